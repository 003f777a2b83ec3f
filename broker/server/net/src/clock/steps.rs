//! Notices steps of the system's clock, also those that were reversed before the next reading.

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::read;
use std::cell::OnceCell;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

static COUNT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static TIMER: OnceCell<TimerFd> = const { OnceCell::new() };
}

/// A number that changes with each step; all threads get the same one. `None` if steps cannot be
/// noticed. It may also change without a step.
pub(crate) fn number() -> Option<u32> {
    let has_news = TIMER.with(|timer| match timer.get() {
        // Each step cancels a timer of CLOCK_REALTIME, whatever the clock says by now:
        // timerfd_create(2), TFD_TIMER_CANCEL_ON_SET.
        Some(timer) => Some(read(timer.as_fd(), &mut [0; 8]) != Err(Errno::EAGAIN)),
        None => timer.set(watch().ok()?).ok().map(|()| true),
    })?;
    if has_news {
        COUNT.fetch_add(1, SeqCst);
    }
    Some(COUNT.load(SeqCst))
}

fn watch() -> nix::Result<TimerFd> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    let timer = TimerFd::new(ClockId::CLOCK_REALTIME, flags)?;
    let never = Expiration::OneShot(TimeSpec::new(0, 0));
    let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    timer.set(never, flags)?;
    Ok(timer)
}
