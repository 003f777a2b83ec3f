//! The clock of the controller. The kernel's data plane takes its timestamps from the same clock.

use mqtick_net::clock::Clock;
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

/// The nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// CLOCK_MONOTONIC, ns; 0 if it cannot be read.
#[must_use]
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_MONOTONIC_RAW, ns, which is never slewed; 0 if it cannot be read.
#[must_use]
pub fn raw_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC_RAW)
}

fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |now| now.num_nanoseconds().cast_unsigned())
}

/// Whether the clock is slewed, from repeated readings.
#[derive(Debug, Default)]
pub struct Rate {
    looked: Option<Clock>,
    is_steady: bool,
}

impl Rate {
    /// Read the clock, and return the reading.
    pub fn look(&mut self) -> Clock {
        let now = Clock::read();
        self.take(now);
        now
    }

    fn take(&mut self, now: Clock) {
        // Closer readings would show a rate only beyond the tolerance of the comparison.
        const APART_NS: i64 = 100_000_000;
        let before = self.looked.get_or_insert(now);
        if now.raw_ns - before.raw_ns >= APART_NS {
            self.is_steady = !now.was_set_since(before);
            *before = now;
        }
    }

    /// Whether the clock was neither set nor slewed between the last two readings. False before
    /// there are two.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.is_steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_steady_while_two_looks_find_it_neither_set_nor_slewed() {
        let at = |raw_ns, slewed_ns| Clock {
            now_ns: raw_ns + slewed_ns,
            ahead_ns: 7,
            raw_ns,
            unsure_ns: 0,
            steps: 0,
        };
        let mut rate = Rate::default();
        let mut is_steady = |raw_ms: i64, slewed_ns| {
            rate.take(at(raw_ms * 1_000_000, slewed_ns));
            rate.is_steady()
        };
        assert!(!is_steady(0, 0), "one look says nothing");
        assert!(!is_steady(99, 0), "too soon");
        assert!(is_steady(100, 50_000));
        assert!(!is_steady(200, 150_000));
        assert!(!is_steady(250, 150_000), "too soon");
        assert!(is_steady(300, 150_000));
    }
}
