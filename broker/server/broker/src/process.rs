//! What a program sets up at its start.

use crate::log;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Where SIGTERM, SIGINT and SIGHUP are read. All threads that are started later inherit the mask,
/// so only who reads takes them.
///
/// # Errors
/// The system's.
pub fn signals() -> Result<SignalFd, String> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    signals
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .and_then(|_| SignalFd::with_flags(&signals, flags))
        .map_err(|error| error.to_string())
}

/// Raise the soft limit of open files, often 1,024, to the hard one: clients need one or two each.
pub fn raise_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_err()
    {
        log::warning(&format!("no more than {soft} files can be open"));
    }
}
