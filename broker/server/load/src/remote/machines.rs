//! A scenario on several machines: adds up their counts, and bounds latencies between them by the
//! errors of their clocks.

use std::collections::{BTreeMap, HashMap};

use crate::remote::message::{Clock, Part};
use crate::results::report::{Name, Report, names, quantile};
use crate::results::rows::{self, LATE, percentiles, tell_own, told};
use crate::results::tally::{ENOUGH, Tally};
use crate::settings::scenario::Scenario;
use crate::system::clocks::Interval;
use mqtick_net::failure::{Failure, Outcome};

const DELAY: [[Name; 5]; 3] = [
    rows::DELAY,
    percentiles!("delay_low", "due to each copy, at least"),
    percentiles!("delay_high", "due to each copy, at most"),
];
const WIRE: [[Name; 5]; 3] = [
    rows::WIRE,
    percentiles!("wire_low", "left to each copy (kernel's stamps), at least"),
    percentiles!("wire_high", "left to each copy (kernel's stamps), at most"),
];
const SKEW: [[Name; 5]; 3] = [
    rows::SKEW,
    percentiles!("skew_low", "first to last copy, at least"),
    percentiles!("skew_high", "first to last copy, at most"),
];
names! {
    CLOCK_LOW "clock_low_us" "clock minus UTC, at least" "us";
    CLOCK_HIGH "clock_high_us" "clock minus UTC, at most" "us";
    WITHIN "clocks_within_us" "uncertainty of the latency by both clocks, +-" "us";
}

/// Stands for all machines in a row's `who`.
const ALL: &str = "at any machine";

/// Bounds of durations, in ns.
#[derive(Debug, Default)]
struct Between {
    low: Vec<i64>,
    high: Vec<i64>,
}

impl Between {
    fn push(&mut self, measured: i64, by: Interval) {
        self.low.push(measured.saturating_add(by.low).max(0));
        self.high.push(measured.saturating_add(by.high));
    }

    /// Adds percentiles. As each true value lies between its bounds, so does each percentile.
    /// `names`: by one clock, at least, at most.
    fn tell(mut self, report: &mut Report, names: &[[Name; 5]; 3], who: &str, one_clock: bool) {
        self.low.sort_unstable();
        self.high.sort_unstable();
        let [exact, low, high] = names;
        let bounds = match one_clock {
            true => vec![(exact, &self.low)],
            false => vec![(low, &self.low), (high, &self.high)],
        };
        for (names, values) in bounds {
            for (name, share) in told(report, *names, who, values.len() as u64) {
                let value = quantile(values, share).unwrap_or(0);
                report.add(name, who.to_owned(), value as f64 / 1e3);
            }
        }
    }
}

/// Adds up the counts of all machines.
///
/// # Errors
/// Where more came than was sent.
pub fn put_together(scenario: &Scenario, parts: &[Part], all: &mut Tally) -> Outcome<()> {
    let seconds = scenario.seconds - scenario.ramp_up_s - scenario.ramp_down_s;
    let mut ns = (seconds * 1e9) as u64;
    for (machine, part) in scenario.machine.iter().zip(parts) {
        part.counts.add_to(all);
        all.together_ns = all.together_ns.max(part.together_ns);
        let named = |text| format!("{}: {text}", machine.name);
        all.elsewhere.extend(part.bottlenecks.iter().map(named));
    }
    if parts.iter().all(|part| part.is_over) {
        let ends = parts
            .iter()
            .map(|part| part.last_ns.saturating_sub(part.begin));
        let ramp_up = (scenario.ramp_up_s * 1e9) as u64;
        let last = ends.max().unwrap_or(0).saturating_sub(ramp_up);
        ns = last.clamp(1, ns);
    }
    all.elsewhere.extend(clocks_apart(scenario, parts));
    all.window = (0, ns);
    if all.delivered > all.copies {
        let (came, sent) = (all.delivered, all.copies);
        let text = format!("{came} copies came of {sent} that were sent.");
        return Err(Failure::Failed(text));
    }
    Ok(())
}

/// Says which two clocks are too far apart for windows that begin at the same reading: by more than
/// the shorter ramp and a hundredth of the window.
fn clocks_apart(scenario: &Scenario, parts: &[Part]) -> Option<String> {
    let ramps = scenario.ramp_up_s + scenario.ramp_down_s;
    let ramp = scenario.ramp_up_s.min(scenario.ramp_down_s);
    let most = ramp + (1.0 - ENOUGH) * (scenario.seconds - ramps);
    let errors = scenario
        .machine
        .iter()
        .zip(parts)
        .filter_map(|(one, part)| match part.clock {
            Some(Clock::Known(error)) => Some((one.name.as_str(), error)),
            _ => None,
        });
    let errors: Vec<_> = errors.collect();
    let (slow, behind) = errors.iter().min_by_key(|(_, error)| error.high)?;
    let (fast, ahead) = errors.iter().max_by_key(|(_, error)| error.low)?;
    let apart = ahead.low.saturating_sub(behind.high);
    (apart as f64 > 1e9 * most).then(|| {
        format!(
            "the clocks of {slow} and {fast} are at least {} ms apart, so the machines did not \
             count at the same time, and the rates are wrong",
            apart / 1_000_000
        )
    })
}

/// Adds the figures of each machine's load tool and clock.
pub fn tell(report: &mut Report, scenario: &Scenario, parts: &[Part]) {
    for (machine, part) in scenario.machine.iter().zip(parts) {
        let name = &machine.name;
        tell_own(report, name, part.unstamped, part.resent, part.shares);
        for (late, value) in LATE.into_iter().zip(&part.late_us) {
            report.add(late, name.clone(), *value);
        }
        if !part.stamped {
            report.note(format!("{name}: the kernel gave no stamps."));
        }
        match &part.clock {
            Some(Clock::Known(error)) => {
                for (row, value) in [(CLOCK_LOW, error.low), (CLOCK_HIGH, error.high)] {
                    report.add(row, name.clone(), value as f64 / 1e3);
                }
            }
            Some(Clock::Unknown(why)) => report.note(format!(
                "latency between {name} and other machines is unknown, as its clock is: {why}."
            )),
            None => {}
        }
    }
}

/// Adds latency and skew, within machines and between them.
///
/// # Errors
/// Where clocks contradict each other.
pub fn tell_times(
    report: &mut Report,
    level: &str,
    scenario: &Scenario,
    parts: &[Part],
) -> Outcome<()> {
    let called = |who: &str| match level {
        "" => who.to_owned(),
        level => format!("{level}: {who}"),
    };
    let name = |place: usize| {
        scenario
            .machine
            .get(place)
            .map_or("", |one| one.name.as_str())
    };
    let clock = |place: usize| match parts.get(place).map(|part| &part.clock) {
        Some(Some(Clock::Known(error))) => Some(*error),
        _ => None,
    };
    let between = |one, other| match one == other {
        true => Some(Interval::NONE),
        false => Some(Interval::correction(clock(one)?, clock(other)?)),
    };
    let mut sent = HashMap::new();
    for (place, part) in parts.iter().enumerate() {
        for (stream, number, due, left) in &part.left {
            let times = (place, due.cast_signed(), left.cast_signed());
            if let Some((other, ..)) = sent.insert((*stream, *number), times) {
                return Err(Failure::Failed(format!(
                    "{} and {} both say that they sent message {number} of publisher {stream}.",
                    name(other),
                    name(place)
                )));
            }
        }
    }
    let mut pairs: BTreeMap<(usize, usize), (Between, Between)> = BTreeMap::new();
    let mut came: HashMap<(u32, u64), Vec<(usize, i64)>> = HashMap::new();
    for (place, part) in parts.iter().enumerate() {
        for (stream, number, stamp) in &part.heard {
            let (key, stamp) = ((*stream, *number), stamp.cast_signed());
            let Some((from, due, left)) = sent.get(&key) else {
                continue;
            };
            came.entry(key).or_default().push((place, stamp));
            if let Some(by) = between(*from, place) {
                let (delay, wire) = pairs.entry((*from, place)).or_default();
                delay.push(stamp.saturating_sub(*due), by);
                wire.push(stamp.saturating_sub(*left), by);
            }
        }
    }
    for ((from, to), (delay, wire)) in pairs {
        if let Some(early) = wire
            .high
            .iter()
            .min()
            .filter(|high| from != to && **high < 0)
        {
            return Err(Failure::Failed(format!(
                "a copy came at {} {} us before it can have left {}: one of the two clocks is \
                 outside its interval.",
                name(to),
                early.unsigned_abs().div_ceil(1000),
                name(from)
            )));
        }
        let who = called(&format!("{} to {}", name(from), name(to)));
        delay.tell(report, &DELAY, &who, from == to);
        wire.tell(report, &WIRE, &who, from == to);
        if let Some(by) = between(from, to).filter(|_| from != to) {
            let half = (by.high - by.low) as f64 / 2e3;
            report.add(WITHIN, who, half);
        }
    }
    let copies: Vec<usize> = scenario
        .group
        .iter()
        .flat_map(|one| std::iter::repeat_n(one.copies(), one.topics * one.publishers))
        .collect();
    let mut skews: BTreeMap<String, Between> = BTreeMap::new();
    for ((stream, _), stamps) in came {
        if copies.get(stream as usize) != Some(&stamps.len()) {
            continue;
        }
        // First and last copy of each machine.
        let mut ends: BTreeMap<usize, (i64, i64)> = BTreeMap::new();
        for (place, stamp) in &stamps {
            let (first, last) = ends.entry(*place).or_insert((*stamp, *stamp));
            (*first, *last) = ((*first).min(*stamp), (*last).max(*stamp));
        }
        for (place, (first, last)) in &ends {
            if stamps.iter().filter(|(at, _)| at == place).count() > 1 {
                let who = format!("at {}", name(*place));
                skews
                    .entry(who)
                    .or_default()
                    .push(last - first, Interval::NONE);
            }
        }
        if ends.len() > 1
            && let Some((low, high)) = skew(&ends, clock)
        {
            let one = skews.entry(ALL.to_owned()).or_default();
            one.low.push(low);
            one.high.push(high);
        }
    }
    for (who, one) in skews {
        one.tell(report, &SKEW, &called(&who), who != ALL);
    }
    Ok(())
}

/// Returns bounds of the time from the first copy to the last, by each machine's first and last
/// stamp and the error of its clock; None if an error is not known.
fn skew(
    ends: &BTreeMap<usize, (i64, i64)>,
    clock: impl Fn(usize) -> Option<Interval>,
) -> Option<(i64, i64)> {
    let mut least = 0;
    let (mut first, mut last) = ([i64::MAX; 2], [i64::MIN; 2]);
    for (place, (begin, end)) in ends {
        let error = clock(*place)?;
        least = least.max(end - begin);
        for (at, by) in [error.high, error.low].into_iter().enumerate() {
            if let (Some(first), Some(last)) = (first.get_mut(at), last.get_mut(at)) {
                *first = (*first).min(begin - by);
                *last = (*last).max(end - by);
            }
        }
    }
    let ([first_early, first_late], [last_early, last_late]) = (first, last);
    Some((least.max(last_early - first_late), last_late - first_early))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = "seconds = 10\nramp_up_s = 1\nramp_down_s = 1\n[[machine]]\nname = \"a\"\n\
                       [[machine]]\nname = \"b\"\n[[group]]\n";

    fn together(parts: &[Part]) -> Tally {
        let mut all = Tally::new().unwrap();
        put_together(&Scenario::parse(TWO).unwrap(), parts, &mut all).unwrap();
        all
    }

    #[test]
    fn of_messages_that_end_early_the_ramp_does_not_count_either() {
        let part = |last_ns| Part {
            is_over: true,
            begin: 5_000_000_000,
            last_ns,
            ..Part::default()
        };
        let all = together(&[part(7_000_000_000), part(9_000_000_000)]);
        assert_eq!(all.seconds(), 3.0);
    }

    #[test]
    fn a_stamp_is_as_late_as_on_the_worst_machine() {
        let part = |together_ns| Part {
            together_ns,
            ..Part::default()
        };
        assert_eq!(together(&[part(300), part(500)]).together_ns, 500);
    }

    #[test]
    fn clocks_that_are_further_apart_than_the_ramps_are_told() {
        let part = |low, high| Part {
            clock: Some(Clock::Known(Interval { low, high })),
            ..Part::default()
        };
        let near = [part(0, 1000), part(1_000_000_000, 2_000_000_000)];
        assert!(together(&near).bottlenecks().is_empty());
        let far = [part(0, 1000), part(1_200_000_000, 2_000_000_000)];
        let told = together(&far).bottlenecks().join("");
        assert!(
            told.contains("clocks of a and b are at least 1199 ms apart"),
            "{told}"
        );
    }

    proptest! {
        #[test]
        fn the_true_skew_is_always_inside(
            machines in prop::collection::vec(
                (prop::collection::vec(0_i64..1_000_000, 1..5), -900_000_i64..900_000,
                 0_i64..500_000, 0_i64..500_000),
                1..5,
            ),
        ) {
            let mut ends = BTreeMap::new();
            for (place, (truth, error, ..)) in machines.iter().enumerate() {
                let stamps = truth.iter().map(|one| one + error);
                ends.insert(place, (stamps.clone().min().unwrap(), stamps.max().unwrap()));
            }
            let clock = |place: usize| machines.get(place).map(|(_, error, below, above)| Interval {
                low: error - below,
                high: error + above,
            });
            let all: Vec<i64> = machines.iter().flat_map(|one| one.0.clone()).collect();
            let truth = all.iter().max().unwrap() - all.iter().min().unwrap();
            let (low, high) = skew(&ends, clock).unwrap();
            prop_assert!(low <= truth && truth <= high, "{low} {truth} {high}");
            prop_assert!(skew(&ends, |_| None).is_none());
        }
    }
}
