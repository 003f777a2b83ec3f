//! The limit of open descriptors.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{Failure, Outcome, system};

/// Descriptors besides the connections: standard ones, epoll, signals, the floor's pipes.
const SPARE: u64 = 32;

/// Raises the limit so that `sockets` connections fit; returns it.
///
/// # Errors
/// Where the system allows fewer; the text says how many.
pub fn descriptors(sockets: u64) -> Outcome<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(system("the limit of descriptors is not known"))?;
    let (soft, hard) = (wide(soft), wide(hard));
    let needed = sockets + SPARE;
    if needed <= soft {
        return Ok(soft);
    }
    let set = |hard: u64| {
        let (soft, hard) = (fit(needed), fit(hard));
        soft.zip(hard)
            .is_some_and(|(soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, soft, hard).is_ok())
    };
    if set(hard.max(needed)) || needed <= hard && set(hard) {
        return Ok(needed);
    }
    Err(Failure::Failed(format!(
        "{sockets} connections need {needed} descriptors, and this process may open {hard}: ask \
         for at most {} connections, or raise the limit (`ulimit -Hn`).",
        hard.saturating_sub(SPARE)
    )))
}

/// Widens the system's number, which has 32 or 64 bits.
fn wide(limit: impl Into<u64>) -> u64 {
    limit.into()
}

/// Narrows it again.
fn fit<T: TryFrom<u64>>(limit: u64) -> Option<T> {
    limit.try_into().ok()
}
