//! What a program sets up at its start, and how it ends.

use crate::failure::{Failure, Outcome};
use crate::log;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// The signals that end a program.
pub const END: [Signal; 2] = [Signal::SIGTERM, Signal::SIGINT];

/// Where these signals are read. All threads that are started later inherit the mask, so only who
/// reads takes them.
///
/// # Errors
/// The system's.
pub fn signals(wanted: &[Signal]) -> Outcome<SignalFd> {
    let wanted: SigSet = wanted.iter().copied().collect();
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let opened = wanted.thread_block();
    opened
        .and_then(|()| SignalFd::with_flags(&wanted, flags))
        .map_err(Failure::system("signals cannot be read"))
}

/// Raise the soft limit of open files, often 1,024, to the hard one: clients need one or two each.
/// If `least` is more, raise the hard one, too, which root may do. Returns the limit.
pub fn raise_descriptors(least: u64) -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1024;
    };
    let (soft, hard) = (wide(soft), wide(hard));
    let set = |most: u64| {
        let limits = fit(most).zip(fit(hard.max(most)));
        limits.is_some_and(|(soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, soft, hard).is_ok())
    };
    let limits = [hard.max(least), hard];
    let raised = limits.into_iter().find(|most| *most <= soft || set(*most));
    raised.unwrap_or_else(|| {
        log::warning(&format!("no more than {soft} files can be open"));
        soft
    })
}

/// Widen the system's number, which has 32 or 64 bits.
fn wide(limit: impl Into<u64>) -> u64 {
    limit.into()
}

/// Narrow it again.
fn fit<T: TryFrom<u64>>(limit: u64) -> Option<T> {
    limit.try_into().ok()
}

/// Print. It is no failure if the reader has closed the pipe (`| head`).
///
/// # Errors
/// It cannot be written.
pub fn print(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: {error}.")))
        }
        _ => Ok(()),
    }
}

/// End a program: say why it fails, if it does.
pub fn end(program: &str, result: Outcome<()>) -> ExitCode {
    let Err(failure) = result else {
        return ExitCode::SUCCESS;
    };
    eprintln!("{program}: {failure}");
    ExitCode::from(match failure {
        Failure::Use(_) => 2,
        Failure::Failed(_) => 1,
        Failure::Stopped => 130,
    })
}
