//! When each copy of a block's messages came.

use crate::contest::{DISORDER, DUPLICATES, LOST, Run};
use crate::report::{Name, Spread, quantile};
use crate::{Failure, Outcome};

/// From when a message was due to its first copy.
pub const FIRST: [Name; 3] = [
    Name {
        key: "first_p50_us",
        text: "publish to first copy, p50",
        unit: "us",
    },
    Name {
        key: "first_p99_us",
        text: "publish to first copy, p99",
        unit: "us",
    },
    Name {
        key: "first_max_us",
        text: "publish to first copy, max",
        unit: "us",
    },
];
/// From a message's first copy to its last.
pub const SKEW: [Name; 3] = [
    Name {
        key: "skew_p50_us",
        text: "first to last copy, p50",
        unit: "us",
    },
    Name {
        key: "skew_p99_us",
        text: "first to last copy, p99",
        unit: "us",
    },
    Name {
        key: "skew_max_us",
        text: "first to last copy, max",
        unit: "us",
    },
];
const COPIES: [Name; 3] = [
    Name {
        key: "copy_p50_us",
        text: "publish to each copy, p50",
        unit: "us",
    },
    Name {
        key: "copy_p99_us",
        text: "publish to each copy, p99",
        unit: "us",
    },
    Name {
        key: "copy_max_us",
        text: "publish to each copy, max",
        unit: "us",
    },
];
const SENT: [Name; 3] = [
    Name {
        key: "sent_p50_us",
        text: "send() to first copy, p50",
        unit: "us",
    },
    Name {
        key: "sent_p99_us",
        text: "send() to first copy, p99",
        unit: "us",
    },
    Name {
        key: "sent_max_us",
        text: "send() to first copy, max",
        unit: "us",
    },
];
const MEAN: Name = Name {
    key: "sent_mean_us",
    text: "send() to first copy, mean",
    unit: "us",
};
const RATE: Name = Name {
    key: "burst_rate",
    text: "messages, from a burst's first send() to its last copy",
    unit: "1/s",
};
const LATE: [Name; 3] = [
    Name {
        key: "late_p50_us",
        text: "the generator's own lateness, p50",
        unit: "us",
    },
    Name {
        key: "late_p99_us",
        text: "the generator's own lateness, p99",
        unit: "us",
    },
    Name {
        key: "late_max_us",
        text: "the generator's own lateness, max",
        unit: "us",
    },
];
const SHARES: [f64; 3] = [0.5, 0.99, 1.0];

/// What came in a block: a stamp for each message and subscriber, 0 where none has come.
#[derive(Debug)]
pub struct Arrivals {
    /// Number of the first message.
    pub base: u64,
    subscribers: usize,
    /// When each message was due, in ns.
    pub due: Vec<u64>,
    /// How much later it was sent.
    pub late: Vec<u64>,
    stamps: Vec<u64>,
    /// How many copies of each message have not come.
    pub left: Vec<usize>,
    newest: Vec<u64>,
    /// How many have come.
    pub copies: u64,
    duplicates: u64,
    disorder: u64,
    /// Copies of earlier blocks, counted as lost there.
    belated: u64,
}

impl Arrivals {
    /// Begins a block.
    #[must_use]
    pub fn new(base: u64, subscribers: usize, messages: usize) -> Self {
        Self {
            base,
            subscribers,
            due: Vec::with_capacity(messages),
            late: Vec::with_capacity(messages),
            stamps: vec![0; subscribers * messages],
            left: vec![subscribers; messages],
            newest: vec![0; subscribers],
            copies: 0,
            duplicates: 0,
            disorder: 0,
            belated: 0,
        }
    }

    /// Takes a copy.
    ///
    /// # Errors
    /// Where it is one of a message that was not sent yet.
    pub fn add(&mut self, place: usize, sequence: u64, stamp: u64) -> Outcome<()> {
        let Some(message) = sequence.checked_sub(self.base) else {
            self.belated += 1;
            return Ok(());
        };
        let message = usize::try_from(message).unwrap_or(usize::MAX);
        let sent = message < self.due.len();
        let slot = if sent {
            message * self.subscribers + place
        } else {
            usize::MAX
        };
        let Some(slot) = self.stamps.get_mut(slot) else {
            let text = format!("a copy of message {sequence} came, which was not sent yet.");
            return Err(Failure::Failed(text));
        };
        if *slot != 0 {
            self.duplicates += 1;
            return Ok(());
        }
        *slot = stamp;
        self.copies += 1;
        if let Some(left) = self.left.get_mut(message) {
            *left -= 1;
        }
        if let Some(newest) = self.newest.get_mut(place) {
            self.disorder += u64::from(sequence < *newest);
            *newest = sequence.max(*newest);
        }
        Ok(())
    }

    /// Whether all copies of the messages sent so far have come.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.copies == (self.due.len() * self.subscribers) as u64
    }

    /// Returns the stamps of a message; 0 where no copy has come.
    #[must_use]
    pub fn of(&self, message: usize) -> &[u64] {
        let from = message * self.subscribers;
        self.stamps
            .get(from..from + self.subscribers)
            .unwrap_or_default()
    }

    /// Returns the stamps of each message of which all copies have come.
    pub fn complete_ones(&self) -> impl Iterator<Item = &[u64]> {
        let complete = self.left.iter().enumerate().filter(|(_, left)| **left == 0);
        complete.map(|(message, _)| self.of(message))
    }

    fn delays_from_send(&self) -> impl Iterator<Item = u64> {
        let sent = self.due.iter().zip(&self.late).enumerate();
        sent.filter_map(|(message, (due, late))| {
            let came = self.of(message).iter().filter(|stamp| **stamp != 0);
            Some(came.min()?.saturating_sub(due + late))
        })
    }

    /// Messages a second of each burst of which all copies came.
    fn rates(&self, burst: usize) -> impl Iterator<Item = f64> {
        let firsts = (0..self.due.len()).step_by(burst);
        firsts.filter_map(move |first| {
            let end = self.due.len().min(first + burst);
            let whole = self.left.get(first..end)?.iter().all(|left| *left == 0);
            let last = (first..end).flat_map(|message| self.of(message)).max()?;
            let took_ns = last.saturating_sub(*self.due.get(first)?).max(1);
            whole.then(|| (end - first) as f64 * 1e9 / took_ns as f64)
        })
    }

    /// Returns how many copies have not come.
    #[must_use]
    pub fn lost(&self) -> u64 {
        (self.due.len() * self.subscribers) as u64 - self.copies
    }

    /// Adds the figures of a contestant.
    pub fn tell(&self, run: &mut Run<'_>, who: &'static str) {
        let (mut first, mut skew, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for (message, due) in self.due.iter().enumerate() {
            let stamps = self.of(message);
            let came = || stamps.iter().copied().filter(|stamp| *stamp != 0);
            copies.extend(came().map(|stamp| stamp.saturating_sub(*due)));
            let (Some(earliest), Some(latest)) = (came().min(), came().max()) else {
                continue;
            };
            first.push(earliest.saturating_sub(*due));
            if self.left.get(message) == Some(&0) {
                skew.push(latest - earliest);
            }
        }
        for (names, values) in [
            (FIRST, &mut first),
            (SKEW, &mut skew),
            (COPIES, &mut copies),
        ] {
            quantiles(run, names, who, values);
        }
        if run.options.rate.is_some() {
            quantiles(run, LATE, who, &mut self.late.clone());
            let mut sent: Vec<u64> = self.delays_from_send().collect();
            let sum: u64 = sent.iter().sum();
            let mean = sum as f64 / sent.len().max(1) as f64;
            run.report.add(MEAN, who, mean / 1e3);
            quantiles(run, SENT, who, &mut sent);
        }
        if run.options.burst > 1 {
            let rates: Vec<f64> = self.rates(run.options.burst).collect();
            if let Some(spread) = Spread::of(&rates) {
                run.report.add(RATE, who, spread.median);
            }
        }
        let counts = [
            (LOST, self.lost()),
            (DUPLICATES, self.duplicates),
            (DISORDER, self.disorder),
        ];
        for (name, count) in counts {
            run.report.add(name, who, count as f64);
        }
        if self.belated > 0 {
            run.report.note(format!(
                "{}: {} copies counted as lost came after their block.",
                who, self.belated
            ));
        }
    }
}

fn quantiles(run: &mut Run<'_>, names: [Name; 3], who: &'static str, values: &mut [u64]) {
    values.sort_unstable();
    if values.is_empty() {
        return;
    }
    for (name, share) in names.into_iter().zip(SHARES) {
        run.report
            .add(name, who, quantile(values, share) as f64 / 1e3);
    }
}
