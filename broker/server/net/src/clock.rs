//! Compares the system's clock with a clock that is never corrected, to measure how long messages
//! were in a program.

mod steps;

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

const STEP_NS: i64 = 1_000;
// 500 ppm: the frequency error of a clock that is not being slewed is smaller
const SLEWED: i64 = 2_000;
const TENTH: i64 = 11; // chronyd slews by up to 1/10; then 1/11 of a measured time is error
const APART_NS: i64 = 50_000_000; // readings that are closer than this do not show the rate
const LONG_NS: i64 = 60_000_000_000; // an older reading says nothing about the present rate
const SURE_NS: i64 = 2_000;
const MOST_UNSURE_NS: i64 = 100_000;
const UNKNOWN_NS: i64 = 1 << 60; // where steps cannot be noticed; the sum of two does not overflow
const TRIES: usize = 4;

/// A reading of the system's clock and of the clocks that are never stepped, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// `CLOCK_REALTIME`.
    pub now_ns: i64,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`; both are slewed alike.
    pub ahead_ns: i64,
    /// `CLOCK_MONOTONIC_RAW`, which is never slewed. chronyd slews the others by up to a tenth.
    pub raw_ns: i64,
    /// The uncertainty of these readings.
    pub unsure_ns: i64,
    /// Changes with each step of `CLOCK_REALTIME`.
    pub steps: u32,
}

impl Clock {
    /// Read the clocks; again if the thread was interrupted between the reads.
    #[must_use]
    pub fn read() -> Self {
        let steps = steps::number();
        let ns = |id| clock_gettime(id).map_or(0, |time| time.num_nanoseconds());
        let once = || {
            let before_ns = ns(ClockId::CLOCK_MONOTONIC);
            let now_ns = ns(ClockId::CLOCK_REALTIME);
            let raw_ns = ns(ClockId::CLOCK_MONOTONIC_RAW);
            let unsure_ns = ns(ClockId::CLOCK_MONOTONIC) - before_ns;
            Self {
                now_ns,
                ahead_ns: now_ns - before_ns,
                raw_ns,
                unsure_ns: steps.map_or(UNKNOWN_NS, |_| unsure_ns),
                steps: steps.unwrap_or_default(),
            }
        };
        let mut best = once();
        for _ in 0..TRIES {
            if best.unsure_ns <= SURE_NS {
                break;
            }
            let again = once();
            if again.unsure_ns < best.unsure_ns {
                best = again;
            }
        }
        best
    }

    /// The time since `before`, and by how much the system's clock advanced more than that.
    fn since(&self, before: &Self) -> (i64, i64) {
        let passed_ns = self.raw_ns - before.raw_ns;
        (passed_ns, self.now_ns - before.now_ns - passed_ns)
    }

    /// Whether the system's clock was stepped since `before`, or slewed by more than 500 ppm. Also
    /// true if this cannot be determined.
    #[must_use]
    pub fn was_set_since(&self, before: &Self) -> bool {
        let unsure_ns = self.unsure_ns + before.unsure_ns;
        let (passed_ns, gained_ns) = self.since(before);
        self.steps != before.steps
            || unsure_ns > MOST_UNSURE_NS
            || (self.ahead_ns - before.ahead_ns).abs() > STEP_NS + unsure_ns
            || gained_ns.abs() > STEP_NS + unsure_ns + passed_ns / SLEWED
    }
}

/// The last reading of the clocks, and an earlier one. The system's clock's gain between the two
/// gives its usual rate, so that a slew that has only just begun is noticed.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    last: Clock,
    before: Option<Clock>,
}

impl Looks {
    /// Start with a first reading.
    #[must_use]
    pub fn first(last: Clock) -> Self {
        Self { last, before: None }
    }

    /// Add a reading, unless it is too close to the last one. After a step, start again with it.
    #[must_use]
    pub fn again(self, now: Clock) -> Self {
        if now.steps != self.last.steps {
            return Self::first(now);
        }
        if now.raw_ns - self.last.raw_ns < APART_NS {
            return self;
        }
        let is_recent = |before: &Clock| self.last.raw_ns - before.raw_ns < LONG_NS;
        let before = self.before.filter(is_recent).unwrap_or(self.last);
        Self {
            last: now,
            before: Some(before),
        }
    }

    /// The least duration of something that began after the last reading, ended `now`, and took
    /// `system_ns` by the system's clock. `None` if that clock was set meanwhile.
    #[must_use]
    pub fn at_least(&self, system_ns: i64, now: &Clock) -> Option<i64> {
        let slewed_ns = self.slewed_ns(now).saturating_add(system_ns / SLEWED);
        let too_much_ns = slewed_ns.min(system_ns / TENTH);
        (system_ns >= 0 && !now.was_set_since(&self.last)).then(|| system_ns - too_much_ns)
    }

    /// The most that the system's clock has gained since the last reading, beyond its usual gain.
    fn slewed_ns(&self, now: &Clock) -> i64 {
        let (passed_ns, gained_ns) = now.since(&self.last);
        let Some(before) = &self.before else {
            return i64::MAX;
        };
        let (long_ns, usually_ns) = self.last.since(before);
        let share = passed_ns as f64 / long_ns as f64;
        let unsure_ns = (self.last.unsure_ns + before.unsure_ns) as f64 * share;
        let unsure_ns = unsure_ns as i64 + now.unsure_ns + self.last.unsure_ns;
        let more_ns = gained_ns.saturating_sub((usually_ns as f64 * share) as i64);
        more_ns.saturating_abs().saturating_add(unsure_ns)
    }

    /// The latest time on `CLOCK_MONOTONIC_RAW` that a timestamp of the system's clock can stand
    /// for. `None` if that clock was set since the last reading, or the timestamp is older than it.
    #[must_use]
    pub fn raw_of(&self, stamp_ns: i64, now: &Clock) -> Option<i64> {
        let ago_ns = self.at_least(now.now_ns - stamp_ns, now)?;
        (stamp_ns >= self.last.now_ns).then(|| now.raw_ns - ago_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const US: i64 = 1_000;

    fn at(raw_ns: i64) -> Clock {
        Clock {
            now_ns: raw_ns,
            ahead_ns: 7,
            raw_ns,
            unsure_ns: 0,
            steps: 0,
        }
    }

    /// The same instant, read from a system's clock that has gained `ns` without a step.
    fn gained(clock: Clock, ns: i64) -> Clock {
        Clock {
            now_ns: clock.now_ns + ns,
            ..clock
        }
    }

    #[test]
    fn a_stamp_of_a_clock_that_was_set_since_is_not_believed() {
        let (looks, now) = (Looks::first(at(0)).again(at(1000 * MS)), at(1006 * MS));
        assert_eq!(looks.raw_of(1005 * MS, &now), Some(1005 * MS + 500));
        assert_eq!(looks.raw_of(1000 * MS - 1, &now), None, "from before");
        assert_eq!(looks.raw_of(1006 * MS + 1, &now), None, "from afterwards");
        let stepped = Clock {
            ahead_ns: 7 + 2 * MS,
            ..gained(now, 2 * MS)
        };
        let slewed = gained(now, 500 * US);
        let unsure = Clock {
            unsure_ns: MS,
            ..now
        };
        let stepped_back = Clock { steps: 2, ..now };
        let after = looks.again(stepped_back);
        for set in [stepped, slewed, unsure, stepped_back] {
            assert!(set.was_set_since(&at(1000 * MS)));
            assert_eq!(looks.raw_of(1005 * MS, &set), None);
        }
        let later = Clock {
            steps: 2,
            ..at(1007 * MS)
        };
        assert!(after.raw_of(1006 * MS, &later).is_some(), "from after it");
    }

    #[test]
    fn a_slew_that_has_only_just_begun_makes_nothing_longer() {
        // A message waited for 10 ms at the end of four seconds; the clock was slewed by a tenth
        // then.
        let looks = Looks::first(at(0)).again(at(1000 * MS));
        let now = gained(at(5000 * MS), MS);
        assert!(!now.was_set_since(&looks.last), "that is less than 500 ppm");
        assert_eq!(looks.at_least(11 * MS, &now), Some(10 * MS));
        assert_eq!(Looks::first(at(0)).at_least(11 * MS, &now), Some(10 * MS));
    }

    #[test]
    fn a_clock_that_runs_as_it_always_did_takes_nothing_off() {
        let after = |ms| gained(at(ms * MS), ms * 50); // 50 ppm
        let looks = Looks::first(after(0)).again(after(1000)).again(after(1001));
        assert_eq!(looks.last, after(1000), "too soon");
        assert_eq!(looks.at_least(100 * US, &after(5000)), Some(100 * US - 50));
        let unsure = Clock {
            unsure_ns: 200,
            ..after(5000)
        };
        assert_eq!(looks.at_least(100 * US, &unsure), Some(100 * US - 250));
    }
}
