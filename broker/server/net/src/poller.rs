//! How a worker waits for events.

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// The token of a call from another thread.
pub const CALLED: u64 = u64::MAX;
const STAMPED: u64 = CALLED - 1;

/// The epoll of one worker. Any thread may change what it waits for.
///
/// Connections whose copies are stamped as they leave are in an inner epoll. The kernel reports
/// each stamp before it passes the copy on. If that wakes a worker on another core, the copy leaves
/// tens of microseconds after its stamp. So a worker that sends such copies keeps the other workers
/// from waiting for these connections meanwhile: three system calls a worker, none a copy.
pub struct Poller {
    epoll: Epoll,
    stamped: Epoll,
    is_used: AtomicBool, // the inner one
    barriers: Mutex<usize>,
    call: EventFd,
}

impl Poller {
    /// A poller that waits for calls only.
    pub fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let call = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&call, EpollEvent::new(EpollFlags::EPOLLIN, CALLED))?;
        let stamped = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&stamped.0, EpollEvent::new(EpollFlags::EPOLLIN, STAMPED))?;
        Ok(Self {
            epoll,
            stamped,
            is_used: AtomicBool::new(false),
            barriers: Mutex::new(0),
            call,
        })
    }

    /// Wake the worker.
    pub fn call(&self) {
        // It fails only if 2^64 calls were not taken yet.
        let _ = self.call.write(1);
    }

    /// Reset the wake-up.
    pub fn heard(&self) {
        let _ = self.call.read();
    }

    /// Wait for a listener. If several workers do so, one is woken.
    pub fn listen(&self, listener: impl AsFd, token: u64) -> nix::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        self.epoll.add(listener, EpollEvent::new(flags, token))
    }

    /// Wait for a file no longer.
    pub fn forget(&self, file: impl AsFd) {
        if self.epoll.delete(&file).is_err() {
            let _ = self.stamped.delete(file);
        }
    }

    /// From now on a connection's copies are stamped as they leave. Returns whether it is in the
    /// inner epoll.
    pub fn stamp(&self, file: impl AsFd, token: u64) -> bool {
        self.is_used.store(true, Relaxed);
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token);
        match self.stamped.add(&file, event) {
            Ok(()) => {}
            Err(Errno::EEXIST) => return true,
            Err(_) => return false, // no memory: it stays in the outer one
        }
        let is_known = self.epoll.delete(&file).is_ok();
        if !is_known {
            let _ = self.stamped.delete(file); // the worker has just forgotten the connection
        }
        is_known
    }

    /// Raise a barrier: the worker is not woken for connections with stamps until `lower_barrier`,
    /// which must follow.
    pub fn raise_barrier(&self) {
        let mut barriers = self.barriers.lock().unwrap_or_else(PoisonError::into_inner);
        if *barriers == 0 {
            self.watch_stamped(EpollFlags::empty());
        }
        *barriers += 1;
    }

    /// Lower the barrier, and wake the worker for what has come meanwhile, also if another worker has
    /// raised one, too, or does so at once.
    pub fn lower_barrier(&self) {
        let mut barriers = self.barriers.lock().unwrap_or_else(PoisonError::into_inner);
        *barriers -= 1;
        if *barriers == 0 {
            self.watch_stamped(EpollFlags::EPOLLIN);
        }
        let mut first = [EpollEvent::empty()];
        if matches!(self.stamped.wait(&mut first, EpollTimeout::ZERO), Ok(1..)) {
            self.call();
        }
    }

    fn watch_stamped(&self, flags: EpollFlags) {
        let mut event = EpollEvent::new(flags, STAMPED);
        if let Err(error) = self.epoll.modify(&self.stamped.0, &mut event) {
            crate::log::error(&format!("epoll: {error}"));
        }
    }

    /// Wait for input of a new connection.
    pub fn add(&self, file: impl AsFd, token: u64) -> nix::Result<()> {
        self.epoll
            .add(file, EpollEvent::new(EpollFlags::EPOLLIN, token))
    }

    /// Wait for input, for room to write, for both, or only for the connection's end. `is_stamped`:
    /// see [`Self::stamp`].
    pub fn expect(&self, file: impl AsFd, token: u64, is_stamped: bool, read: bool, write: bool) {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, read);
        flags.set(EpollFlags::EPOLLOUT, write);
        let epoll = if is_stamped {
            &self.stamped
        } else {
            &self.epoll
        };
        // It fails if the worker has just forgotten the connection.
        let _ = epoll.modify(file, &mut EpollEvent::new(flags, token));
    }

    /// Wait for events, at most this long. They are put into `events`.
    pub fn wait(&self, events: &mut Vec<(u64, EpollFlags)>, milliseconds: u16) {
        events.clear();
        Self::gather(&self.epoll, events, milliseconds.into());
        events.retain(|(token, _)| *token != STAMPED);
        if self.is_used.load(Relaxed) {
            Self::gather(&self.stamped, events, EpollTimeout::ZERO);
        }
    }

    fn gather(epoll: &Epoll, events: &mut Vec<(u64, EpollFlags)>, timeout: EpollTimeout) {
        let mut found = [EpollEvent::empty(); 256];
        match epoll.wait(&mut found, timeout) {
            Ok(count) => {
                events.extend(
                    found
                        .iter()
                        .take(count)
                        .map(|one| (one.data(), one.events())),
                );
            }
            Err(Errno::EINTR) => {}
            Err(error) => crate::log::error(&format!("epoll: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn tokens(poller: &Poller) -> Vec<u64> {
        let mut events = Vec::new();
        poller.wait(&mut events, 0);
        events.iter().map(|(token, _)| *token).collect()
    }

    #[test]
    fn what_comes_while_others_send_stamped_copies_wakes_the_worker_after_each_message_of_theirs() {
        let poller = Poller::new().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        poller.add(&near, 0).unwrap();
        poller.raise_barrier(); // nothing is stamped so far
        assert!(poller.stamp(&near, 0));
        poller.raise_barrier();
        (&far).write_all(b"!").unwrap();
        let mut outer = Vec::new();
        Poller::gather(&poller.epoll, &mut outer, EpollTimeout::ZERO);
        assert!(outer.is_empty(), "it sleeps on");
        poller.lower_barrier();
        poller.raise_barrier();
        assert_eq!(
            tokens(&poller),
            [CALLED, 0],
            "although there is a barrier again"
        );
        poller.heard();
        poller.expect(&near, 0, true, false, false);
        poller.lower_barrier();
        poller.lower_barrier();
        assert!(tokens(&poller).is_empty());
        poller.expect(&near, 0, true, true, false);
        assert_eq!(tokens(&poller), [0]);
        poller.forget(&near);
        assert!(tokens(&poller).is_empty());
    }

    #[test]
    fn a_connection_is_stamped_once_and_not_after_it_was_forgotten() {
        let poller = Poller::new().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(!poller.stamp(&near, 0), "it was never there");
        poller.add(&near, 0).unwrap();
        assert!(poller.stamp(&near, 0) && poller.stamp(&near, 0));
    }
}
