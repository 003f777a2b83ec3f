//! The counts and times of a trial.

use hdrhistogram::Histogram;

use crate::results::csv::Csv;
use crate::system::clocks::Look;
use crate::system::process::Used;
use mqtick_net::failure::{Failure, Outcome};

/// Longest duration of a histogram, in ns: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A larger change of the clock in a trial is a step, not steering; ns.
const STEP_NS: u64 = 10_000_000;

/// A broker is under its limit while this share of the copies due comes in time.
pub const ENOUGH: f64 = 0.99;

/// What one of several machines needs and records besides.
#[derive(Debug, Default)]
pub struct Apart {
    /// When the first message is due, in ns.
    pub begin: u64,
    /// Copies that this machine's subscribers should get.
    pub owed: u64,
    /// Whether this machine's publishers have sent all their messages.
    pub is_over: bool,
    /// Looks at the clock, if they are wanted; the first is from before the trial.
    pub looks: Vec<Look>,
    /// Publisher, number and stamp of each copy whose latency is measured.
    pub heard: Vec<(u32, u64, u64)>,
}

/// A trial's counts and times.
#[derive(Debug)]
pub struct Tally {
    /// The window that counts: from, to, in ns.
    pub window: (u64, u64),
    /// Messages due in the window.
    pub offered: u64,
    /// Messages that the sockets took in the window.
    pub ingress: u64,
    /// Copies of the messages due in the window.
    pub owed: u64,
    /// Copies that came in the window.
    pub egress: u64,
    /// Messages sent in the whole trial.
    pub sent: u64,
    /// Copies of those messages.
    pub copies: u64,
    /// Copies that came in the whole trial.
    pub delivered: u64,
    /// Copies that came twice.
    pub duplicates: u64,
    /// Copies that came after a later one.
    pub disorder: u64,
    /// Copies of earlier trials, which counted them as lost.
    pub belated: u64,
    /// Messages that were due and not sent before the trial's end.
    pub refused: u64,
    /// Messages above QoS 0 that were not acknowledged.
    pub unanswered: u64,
    /// Copies with the stamp of a later one, which came before they were read.
    pub together: u64,
    /// By how much such a stamp may be too late, in ns.
    pub together_ns: u64,
    /// From when a message was due, and the socket could take it, to its write; ns.
    pub late: Histogram<u64>,
    /// From when a message was due to each copy, ns.
    pub delay: Histogram<u64>,
    /// From when it left (kernel's stamp) to each copy, ns.
    pub wire: Histogram<u64>,
    /// From a message's first copy to its last, ns.
    pub skew: Histogram<u64>,
    /// Our own processor time, in ns.
    pub own_ns: u64,
    /// Our own processor time while messages were sent, as a share of one processor.
    pub own_share: f64,
    /// Time meanwhile in which we were ready to run and had no processor, as a share.
    pub waited_share: f64,
    /// Processor time of the broker.
    pub cost: Option<Used>,
    /// Idle share of the machine's processors meanwhile, 0 to 1.
    pub idle_share: f64,
    /// Segments that TCP sent to the broker again.
    pub resent: u64,
    /// Fullest receive queue of a subscriber, as a share of its buffer.
    pub fullest: f64,
    /// Copies or messages without a stamp of the kernel.
    pub unstamped: u64,
    /// When the last copy came, or message left, in ns.
    pub last_ns: u64,
    /// Change of the clock against CLOCK_MONOTONIC, in ns.
    pub step_ns: i64,
    /// Whether Ctrl-C stopped it.
    pub stopped: bool,
    /// The file in which each message is recorded.
    pub csv: Option<Csv>,
    /// Bottlenecks of the several machines, with their names.
    pub elsewhere: Vec<String>,
    /// On one of several machines.
    pub apart: Option<Apart>,
}

impl Tally {
    /// Begins.
    ///
    /// # Errors
    /// Where there is no memory for the histograms.
    pub fn new() -> Outcome<Self> {
        let empty = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .map_err(|error| Failure::Failed(format!("no histogram: {error}.")))?;
        Ok(Self {
            window: (0, 0),
            offered: 0,
            ingress: 0,
            owed: 0,
            egress: 0,
            sent: 0,
            copies: 0,
            delivered: 0,
            duplicates: 0,
            disorder: 0,
            belated: 0,
            refused: 0,
            unanswered: 0,
            together: 0,
            together_ns: 0,
            late: empty.clone(),
            delay: empty.clone(),
            wire: empty.clone(),
            skew: empty,
            own_ns: 0,
            own_share: 0.0,
            waited_share: 0.0,
            cost: None,
            idle_share: 1.0,
            resent: 0,
            fullest: 0.0,
            unstamped: 0,
            last_ns: 0,
            step_ns: 0,
            stopped: false,
            csv: None,
            elsewhere: Vec::new(),
            apart: None,
        })
    }

    /// Whether a moment is in the window.
    #[inline]
    pub fn holds(&self, at_ns: u64) -> bool {
        self.window.0 <= at_ns && at_ns < self.window.1
    }

    /// The window's length in s.
    pub fn seconds(&self) -> f64 {
        self.window.1.saturating_sub(self.window.0) as f64 / 1e9
    }

    /// Egress over ingress, as scheduled, times the copies of each message.
    pub fn ratio(&self) -> f64 {
        self.egress as f64 / self.owed.max(1) as f64
    }

    /// Whether the broker is under its limit (Definition 1 of the published benchmark).
    pub fn is_under_limit(&self) -> bool {
        self.owed > 0 && self.ratio() >= ENOUGH
    }

    /// Processor time of the broker for each copy that came, in ns, if it is known.
    pub fn cost_ns(&self) -> Option<f64> {
        let used = self.cost?;
        Some(used.total_ns as f64 / self.delivered.max(1) as f64)
    }

    /// Copies that never came.
    pub fn lost(&self) -> u64 {
        self.copies.saturating_sub(self.delivered)
    }

    /// Returns a sentence if the clock was stepped.
    pub fn stepped(&self) -> Option<String> {
        let ms = self.step_ns / 1_000_000;
        let is_stepped = self.step_ns.unsigned_abs() > STEP_NS;
        is_stepped.then(|| format!("the clock was stepped by {ms} ms"))
    }

    /// Returns remarks on counts and stamps.
    pub fn remarks(&self) -> Vec<String> {
        let (belated, unanswered, together) = (self.belated, self.unanswered, self.together);
        let at_most = self.together_ns as f64 / 1e3;
        [
            (
                belated,
                format!("{belated} copies counted as lost came after their trial."),
            ),
            (
                unanswered,
                format!("{unanswered} messages above QoS 0 were not acknowledged."),
            ),
            (
                together,
                format!(
                    "{together} copies have the stamp of a later one, at most {at_most:.0} us too late: both had \
                     come when mqtick-load read them."
                ),
            ),
        ]
        .into_iter()
        .filter_map(|(count, text)| (count > 0).then_some(text))
        .collect()
    }

    /// Returns what limited the trial other than the broker.
    pub fn bottlenecks(&self) -> Vec<String> {
        let mut found = self.elsewhere.clone();
        found.extend(self.stepped());
        if self.own_share + self.waited_share > 0.85 {
            found.push(format!(
                "mqtick-load used {:.0} % of its processor, and waited {:.0} % for one",
                100.0 * self.own_share,
                100.0 * self.waited_share
            ));
        }
        let late_s = self.late.value_at_quantile(0.99) as f64 / 1e9;
        if late_s > (1.0 - ENOUGH) * self.seconds() {
            found.push(format!(
                "mqtick-load wrote its messages late (p99 {:.1} ms) though the broker took them",
                1e3 * late_s
            ));
        }
        if self.fullest > 0.5 {
            found.push(format!(
                "a subscriber's receive queue was {:.0} % full when mqtick-load read it",
                100.0 * self.fullest
            ));
        }
        if self.resent as f64 > (1.0 - ENOUGH) * self.sent as f64 {
            found.push(format!(
                "TCP sent {} segments to the broker again",
                self.resent
            ));
        }
        found
    }
}

/// Records a duration in ns.
pub fn record(histogram: &mut Histogram<u64>, ns: u64) {
    histogram.saturating_record(ns.max(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_bottleneck_is_told() {
        let mut tally = Tally::new().unwrap();
        (tally.window, tally.sent) = ((0, 1_000_000_000), 1000);
        assert!(tally.bottlenecks().is_empty());
        tally.step_ns = -20_000_000;
        (tally.own_share, tally.waited_share) = (0.6, 0.3);
        tally.fullest = 0.6;
        tally.resent = 11;
        record(&mut tally.late, 11_000_000);
        let told = tally.bottlenecks();
        for (text, expected) in told.iter().zip([
            "by -20 ms",
            "60 % of its processor, and waited 30 %",
            "p99 11.0 ms",
            "60 % full",
            "11 seg",
        ]) {
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!(told.len(), 5);
    }

    #[test]
    fn a_broker_is_under_its_limit_where_99_of_100_copies_come_in_time() {
        let mut tally = Tally::new().unwrap();
        assert!(!tally.is_under_limit());
        (tally.owed, tally.egress) = (1000, 990);
        assert!(tally.is_under_limit());
        tally.egress = 989;
        assert!(!tally.is_under_limit());
    }
}
