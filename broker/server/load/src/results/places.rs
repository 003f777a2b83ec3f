//! Each subscriber's place among the copies of a message: which one the broker serves first.

use crate::results::report::{Report, names};

names! {
    PLACE "place_spread" "mean place of a subscriber, greatest less least" "%"; // 0 first, 100 last
}

/// Most subscribers whose mean places are listed one by one in the JSON; more are grouped.
const PLACES: usize = 1000;

/// Sums over messages.
#[derive(Debug)]
pub struct Places {
    ranks: Vec<u64>,
    firsts: Vec<u64>,
    messages: u64,
    /// A stamp for each message and subscriber of the block; 0: not come.
    stamps: Vec<u64>,
}

impl Places {
    /// Begins with no message.
    #[must_use]
    pub fn new(subscribers: usize) -> Self {
        let (ranks, firsts) = (vec![0; subscribers], vec![0; subscribers]);
        Self {
            ranks,
            firsts,
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
        if let Some(firsts) = order.first().and_then(|place| self.firsts.get_mut(*place)) {
            *firsts += 1;
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
        let places: Vec<f64> = self.ranks.iter().map(|sum| *sum as f64 / scale).collect();
        let (least, most) = places.iter().fold((1.0, 0.0), |(least, most), place| {
            (place.min(least), place.max(most))
        });
        report.add(PLACE, who, 100.0 * (most - least));
        let mut histogram = [0_u64; 10];
        for place in &places {
            if let Some(bin) = histogram.get_mut(((place * 10.0) as usize).min(9)) {
                *bin += 1;
            }
        }
        let tenths = means(&places, count.min(10));
        let most = self
            .firsts
            .iter()
            .enumerate()
            .max_by_key(|(_, firsts)| **firsts)
            .unwrap_or((0, &0));
        let tenths_text: Vec<String> = tenths.iter().map(|mean| format!("{mean:.2}")).collect();
        let bins: Vec<String> = histogram.iter().map(u64::to_string).collect();
        let share = *most.1 as f64 * 100.0 / self.messages as f64;
        report.note(format!(
            "{who}: mean place among a message's copies, 0 first, 1 last, by order of \
             subscription: {}; subscribers with a mean place of 0 to 0.1, to 0.2, ... to 1: {}; \
             number {} was first of all in {share:.0} % of the messages.",
            tenths_text.join(" "),
            bins.join(" "),
            most.0 + 1,
        ));
        report.list(
            &format!("{}_mean_place", who),
            means(&places, count.min(PLACES)),
        );
        report.list(
            &format!("{}_mean_place_histogram", who),
            histogram.iter().map(|bin| *bin as f64).collect(),
        );
    }
}

/// Returns the means of so many groups of neighbours.
fn means(values: &[f64], groups: usize) -> Vec<f64> {
    let bounds = (0..groups).map(|group| {
        (
            group * values.len() / groups,
            (group + 1) * values.len() / groups,
        )
    });
    let parts = bounds.filter_map(|(from, to)| values.get(from..to));
    parts
        .map(|part| part.iter().sum::<f64>() / part.len() as f64)
        .collect()
}
