//! The clock of the controller: the kernel's data plane stamps with the same one.

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

/// CLOCK_MONOTONIC, ns; 0 where there is none.
#[must_use]
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_MONOTONIC_RAW, ns, which nobody slews; 0 where there is none.
#[must_use]
pub fn raw_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC_RAW)
}

fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |now| now.num_nanoseconds().cast_unsigned())
}
