//! The system's clock beside one that nobody corrects, for what says how long messages were here.

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

const STEP_NS: i64 = 1_000;
const SLEWED: i64 = 2_000; // no clock that nobody corrects in a hurry is off by more than one in so many
const SURE_NS: i64 = 2_000;
const MOST_UNSURE_NS: i64 = 100_000;
const TRIES: usize = 4;

/// The system's clock, and those that nobody steps: ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// `CLOCK_REALTIME`.
    pub now_ns: i64,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`; both are slewed alike.
    pub ahead_ns: i64,
    /// `CLOCK_MONOTONIC_RAW`, which nobody slews: chronyd does that to the others by up to a tenth.
    pub raw_ns: i64,
    /// By how much these may be wrong.
    pub unsure_ns: i64,
}

impl Clock {
    /// Read it, again if something came between the reads.
    #[must_use]
    pub fn read() -> Self {
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
                unsure_ns,
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

    /// Whether somebody stepped the system's clock since `before`, or slewed it by more than 500 ppm; or
    /// whether that cannot be told.
    #[must_use]
    pub fn was_set_since(&self, before: &Self) -> bool {
        let unsure_ns = self.unsure_ns + before.unsure_ns;
        let raw_ns = self.raw_ns - before.raw_ns;
        let slewed_ns = (self.now_ns - before.now_ns - raw_ns).abs();
        unsure_ns > MOST_UNSURE_NS
            || (self.ahead_ns - before.ahead_ns).abs() > STEP_NS + unsure_ns
            || slewed_ns > STEP_NS + unsure_ns + raw_ns / SLEWED
    }

    /// What a stamp of the system's clock is on the one that nobody slews, if the former was not set
    /// since `before`, nor the stamp is from before that.
    #[must_use]
    pub fn raw_of(&self, stamp_ns: i64, before: &Self) -> Option<i64> {
        let is_sure = stamp_ns >= before.now_ns && !self.was_set_since(before);
        is_sure.then(|| self.raw_ns - (self.now_ns - stamp_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn a_stamp_of_a_clock_that_was_set_since_is_not_believed() {
        let at = |now_ns| Clock {
            now_ns,
            ahead_ns: 7,
            raw_ns: now_ns,
            unsure_ns: 0,
        };
        let (before, now) = (at(MS), at(6 * MS));
        assert_eq!(now.raw_of(5 * MS, &before), Some(5 * MS));
        assert_eq!(now.raw_of(MS - 1, &before), None, "from before");
        let stepped = Clock {
            now_ns: 8 * MS,
            ahead_ns: 7 + 2 * MS,
            ..now
        };
        let slewed = Clock {
            now_ns: 6 * MS + 500_000,
            ..now
        };
        let unsure = Clock {
            unsure_ns: MS,
            ..now
        };
        for set in [stepped, slewed, unsure] {
            assert!(set.was_set_since(&before));
            assert_eq!(set.raw_of(5 * MS, &before), None);
        }
        let drifting = Clock {
            now_ns: 6 * MS + 1_000,
            ..now
        };
        assert_eq!(drifting.raw_of(5 * MS + 1_000, &before), Some(5 * MS));
    }
}
