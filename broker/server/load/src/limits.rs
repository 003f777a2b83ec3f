//! How many descriptors this process may open.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::{Failure, Outcome, system};

/// Descriptors besides the connections: standard ones, epoll, signals, the floor's pipes.
const SPARE: u64 = 32;

/// Raises the limit of open descriptors so far that `sockets` connections fit; returns the limit.
///
/// # Errors
/// Where the system allows fewer: the text says how many connections would do.
pub fn descriptors(sockets: u64) -> Outcome<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(system("the limit of descriptors is not known"))?;
    let needed = sockets + SPARE;
    if needed <= soft {
        return Ok(soft);
    }
    if setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).is_ok() {
        return Ok(needed);
    }
    if needed <= hard && setrlimit(Resource::RLIMIT_NOFILE, needed, hard).is_ok() {
        return Ok(needed);
    }
    Err(Failure::Failed(format!(
        "{sockets} connections need {needed} descriptors, and this process may open {hard}: ask \
         for at most {} connections, or raise the limit (`ulimit -Hn`).",
        hard.saturating_sub(SPARE)
    )))
}
