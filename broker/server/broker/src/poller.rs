//! What a worker waits for.

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::AsFd;

/// The token of a call from another thread.
pub const CALLED: u64 = u64::MAX;

/// One worker's epoll; any thread may change what is waited for.
pub struct Poller {
    epoll: Epoll,
    call: EventFd,
}

impl Poller {
    /// A poller that waits for calls only.
    pub fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let call = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&call, EpollEvent::new(EpollFlags::EPOLLIN, CALLED))?;
        Ok(Self { epoll, call })
    }

    /// Wake the worker.
    pub fn call(&self) {
        // It fails only where 2^64 calls were not heard yet.
        let _ = self.call.write(1);
    }

    /// A call was heard.
    pub fn heard(&self) {
        let _ = self.call.read();
    }

    /// Wait for a listener; of several workers that do, one is woken.
    pub fn listen(&self, listener: impl AsFd, token: u64) -> nix::Result<()> {
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        self.epoll.add(listener, EpollEvent::new(flags, token))
    }

    /// Wait no longer.
    pub fn forget(&self, file: impl AsFd) {
        let _ = self.epoll.delete(file);
    }

    /// Wait for what a new connection brings.
    pub fn add(&self, file: impl AsFd, token: u64) -> nix::Result<()> {
        self.epoll
            .add(file, EpollEvent::new(EpollFlags::EPOLLIN, token))
    }

    /// Wait for what it brings, for room to write, for both or for its end only.
    pub fn expect(&self, file: impl AsFd, token: u64, read: bool, write: bool) {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN, read);
        flags.set(EpollFlags::EPOLLOUT, write);
        // It fails where the worker has just forgotten the connection.
        let _ = self.epoll.modify(file, &mut EpollEvent::new(flags, token));
    }

    /// Wait, at most this long; `events` holds what happened.
    pub fn wait(&self, events: &mut Vec<(u64, EpollFlags)>, milliseconds: u16) {
        let mut found = [EpollEvent::empty(); 256];
        events.clear();
        match self
            .epoll
            .wait(&mut found, EpollTimeout::from(milliseconds))
        {
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
