//! The rows that several commands have: their names, and how counts and percentiles become rows.

use crate::results::report::{Name, Report, names};
use crate::results::tally::Tally;
use crate::settings::scenario::Scenario;
use hdrhistogram::Histogram;

const WHO: &str = "broker";

names! {
    /// Processor time of a contestant for each message delivered.
    pub COST "cost_ns" "processor time a message delivered" "ns";
    /// Messages or copies that never came.
    pub LOST "lost" "lost" "messages";
    /// The same, including the warm-up.
    pub LOST_IN_ALL "lost_in_all" "lost, warm-up included" "messages";
    /// Copies that came twice.
    pub DUPLICATES "duplicates" "duplicates" "messages";
    /// Copies that came after a later one.
    pub DISORDER "disorder" "out of order" "messages";
    OFFERED "offered" "ingress, as scheduled" "1/s";
    INGRESS "ingress" "ingress, written" "1/s";
    EGRESS "egress" "egress" "1/s";
    SP "sp" "copies of a message (sp-ratio)" "1";
    RATIO "ratio" "egress / (ingress as scheduled * sp)" "1";
    REFUSED "refused" "due, and not sent before the end" "messages";
    UNSTAMPED "unstamped" "without a stamp of the kernel" "messages";
    OWN "own_share" "the load tool's own processor" "%";
    IDLE "idle_share" "idle processors of this machine" "%";
    AGAIN "resent" "segments to the broker that TCP sent again" "segments";
    FULLEST "fullest" "fullest receive queue of a subscriber" "%";
}

/// Percentiles that are told.
pub const TOLD: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// Names of the percentiles of a duration: `percentiles!(key, text)`.
macro_rules! percentiles {
    ($key:literal, $text:literal) => {
        percentiles!($key, $text: "p50" "p50", "p90" "p90", "p99" "p99", "p999" "p99.9", "max" "max")
    };
    ($key:literal, $text:literal: $($of:literal $told:literal),*) => {
        [$($crate::results::report::Name {
            key: concat!($key, "_", $of, "_us"),
            text: concat!($text, ", ", $told),
            unit: "us",
        }),*]
    };
}

pub(crate) use percentiles;

/// From when a message was due to each copy.
pub const DELAY: [Name; 5] = percentiles!("delay", "due to each copy");
/// From when it left to each copy, by the kernel's stamps.
pub const WIRE: [Name; 5] = percentiles!("wire", "left to each copy (kernel's stamps)");
/// From a message's first copy to its last.
pub const SKEW: [Name; 5] = percentiles!("skew", "first to last copy");
/// From when a message was due to its write.
pub const LATE: [Name; 5] = percentiles!("late", "the load tool's own lateness");

/// Adds a trial's counts.
pub fn tell_counts(report: &mut Report, scenario: &Scenario, tally: &Tally) {
    // A run that was stopped before its window has no rates.
    let rate = |count: u64| match tally.seconds() {
        0.0 => 0.0,
        seconds => count as f64 / seconds,
    };
    for (name, value) in [
        (OFFERED, rate(tally.offered)),
        (INGRESS, rate(tally.ingress)),
        (EGRESS, rate(tally.egress)),
        (SP, scenario.sp()),
        (LOST, tally.lost() as f64),
        (DUPLICATES, tally.duplicates as f64),
        (DISORDER, tally.disorder as f64),
        (REFUSED, tally.refused as f64),
    ] {
        report.add(name, WHO, value);
    }
    if tally.owed > 0 {
        report.add(RATIO, WHO, tally.ratio());
    }
    if let Some(each) = tally.cost_ns() {
        report.add(COST, WHO, each);
    }
}

/// Adds the figures of the load tool itself.
pub fn tell_own(report: &mut Report, who: &str, unstamped: u64, resent: u64, shares: [f64; 3]) {
    let [own, idle, fullest] = shares;
    for (name, value) in [
        (UNSTAMPED, unstamped as f64),
        (OWN, 100.0 * own),
        (FULLEST, 100.0 * fullest),
        (AGAIN, resent as f64),
        (IDLE, 100.0 * idle),
    ] {
        report.add(name, who.to_owned(), value);
    }
}

/// Adds remarks on a trial. `at`: its name and a colon, or nothing.
pub fn tell_remarks(report: &mut Report, at: &str, tally: &Tally) {
    for text in tally.remarks() {
        report.note(format!("{at}{text}"));
    }
    for text in tally.bottlenecks() {
        report.note(format!("{at}not the broker alone: {text}."));
    }
}

/// Adds latency and skew.
pub fn percentiles_of(report: &mut Report, who: &'static str, tally: &Tally) {
    for (names, histogram) in [
        (DELAY, &tally.delay),
        (WIRE, &tally.wire),
        (SKEW, &tally.skew),
    ] {
        tell_percentiles(report, names, who, histogram);
    }
}

/// Adds the percentiles of some durations.
pub fn tell_percentiles(
    report: &mut Report,
    names: [Name; 5],
    who: &'static str,
    of: &Histogram<u64>,
) {
    for (name, share) in told(report, names, who, of.len()) {
        report.add(name, who, of.value_at_quantile(share) as f64 / 1e3);
    }
}

/// Returns the percentiles of so many values. Of fewer than 1000, p99.9 is the largest value, and
/// is left out; of fewer than 100, p99 is, and a note says so.
pub fn told(
    report: &mut Report,
    names: [Name; 5],
    who: &str,
    count: u64,
) -> impl Iterator<Item = (Name, f64)> + use<> {
    if (1..100).contains(&count) {
        let text = names[2].text;
        let text = format!("{who}: {text} of {count} values is the largest of them.");
        report.note(text);
    }
    let all = names.into_iter().zip(TOLD);
    all.filter(move |(_, share)| count >= 1000 || count > 0 && *share != TOLD[3])
}
