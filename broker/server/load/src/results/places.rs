//! Each subscriber's place among the copies of a message: which one the broker serves first.

use crate::results::report::{Report, names};

names! {
    PLACE "place_spread" "mean place of a subscriber, greatest less least" "%"; // 0 first, 100 last
}

/// Sums over messages.
#[derive(Debug)]
pub struct Places {
    ranks: Vec<u64>,
    messages: u64,
    /// A stamp for each message and subscriber of the block; 0: not come.
    stamps: Vec<u64>,
}

impl Places {
    /// Begins with no message.
    pub fn new(subscribers: usize) -> Self {
        Self {
            ranks: vec![0; subscribers],
            messages: 0,
            stamps: Vec::new(),
        }
    }

    /// Takes the stamp of a copy of a block's message.
    pub fn came(&mut self, message: u64, place: usize, stamp: u64) {
        let count = self.ranks.len();
        let slot = message as usize * count + place;
        if slot >= self.stamps.len() {
            self.stamps.resize((message as usize + 1) * count, 0);
        }
        if let Some(one) = self.stamps.get_mut(slot) {
            *one = stamp;
        }
    }

    /// Ends a block: messages whose copies have all come count.
    pub fn end(&mut self) {
        let stamps = std::mem::take(&mut self.stamps);
        let all = stamps.chunks(self.ranks.len());
        all.filter(|one| !one.contains(&0))
            .for_each(|one| self.add(one));
    }

    fn add(&mut self, stamps: &[u64]) {
        let mut order: Vec<usize> = (0..stamps.len()).collect();
        order.sort_by_key(|place| stamps.get(*place));
        for (rank, place) in order.iter().enumerate() {
            if let Some(sum) = self.ranks.get_mut(*place) {
                *sum += rank as u64;
            }
        }
        self.messages += 1;
    }

    /// Adds how much the mean places differ.
    pub fn tell(&self, report: &mut Report, who: &'static str) {
        let count = self.ranks.len();
        if self.messages == 0 || count < 2 {
            return;
        }
        let scale = self.messages as f64 * (count - 1) as f64;
        let least = self.ranks.iter().min().copied().unwrap_or(0);
        let most = self.ranks.iter().max().copied().unwrap_or(0);
        report.add(PLACE, who, 100.0 * (most - least) as f64 / scale);
    }
}
