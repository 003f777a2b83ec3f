//! The clock of the controller: the kernel's data plane stamps with the same one.

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC, ns; 0 where there is none.
#[must_use]
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME, ns; 0 where there is none.
#[must_use]
pub fn utc_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// UTC less CLOCK_MONOTONIC, ns: it changes only if somebody sets the clock. Never more than it is:
/// what comes between the two reads is missing, so the best of several counts.
#[must_use]
pub fn utc_ahead_ns() -> u64 {
    const TRIES: usize = 3;
    let once = |_| {
        let utc_ns = utc_ns();
        utc_ns.saturating_sub(now_ns())
    };
    (0..TRIES).map(once).max().unwrap_or(0)
}

/// When it is by both ways to read UTC: if somebody has set the clock since `ahead_ns` was read, one of
/// them says more than has passed since.
#[must_use]
pub fn steady_utc_ns(ahead_ns: u64) -> u64 {
    utc_ns().min(now_ns().saturating_add(ahead_ns))
}

fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |now| now.num_nanoseconds().cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_makes_no_time_longer_than_it_was() {
        const STEP_NS: u64 = 50_000_000;
        let (ahead_ns, before_ns) = (utc_ahead_ns(), utc_ns());
        // Set forward since, and back: on the scale of before, and on that of now.
        let forward_ns = steady_utc_ns(ahead_ns - STEP_NS);
        let back_ns = steady_utc_ns(ahead_ns + STEP_NS);
        let after_ns = utc_ns();
        assert!(forward_ns <= after_ns - STEP_NS, "{forward_ns} {after_ns}");
        assert!((before_ns..=after_ns).contains(&back_ns));
    }
}
