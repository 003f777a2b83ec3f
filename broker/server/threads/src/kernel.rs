//! A model of the kernel for one worker and one client's socket. Each call is atomic.

use loom::sync::{Condvar, Mutex};

/// Why the worker woke up.
#[derive(PartialEq, Eq, Debug)]
pub enum Event {
    /// Another thread has written to the eventfd.
    Called,
    /// The socket has room again, which the worker waits for.
    Room,
}

struct State {
    called: bool,
    awaits_room: bool,
    room: usize,
    sent: Vec<u8>,
}

/// An eventfd, a socket whose buffer is small, and the level-triggered epoll over both.
pub struct Kernel {
    state: Mutex<State>,
    changed: Condvar,
}

impl Kernel {
    /// `room`: the size of the socket's buffer, in octets.
    pub fn new(room: usize) -> Self {
        Self {
            state: Mutex::new(State {
                called: false,
                awaits_room: false,
                room,
                sent: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
        result
    }

    /// Wait for an event. A call comes before room.
    pub fn wait(&self) -> Event {
        let mut state = self.state.lock().unwrap();
        loop {
            if state.called {
                return Event::Called;
            }
            if state.awaits_room && state.room > 0 {
                return Event::Room;
            }
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Write to the eventfd.
    pub fn call(&self) {
        self.change(|state| state.called = true);
    }

    /// Read from the eventfd.
    pub fn heard(&self) {
        self.change(|state| state.called = false);
    }

    /// The client waits for octets, and reads all that there are.
    pub fn receive(&self) -> Vec<u8> {
        let mut state = self.state.lock().unwrap();
        while state.sent.is_empty() {
            state = self.changed.wait(state).unwrap();
        }
        let sent = std::mem::take(&mut state.sent);
        state.room += sent.len();
        self.changed.notify_all();
        sent
    }
}

/// Replaces the broker's module.
pub mod poller {
    use super::Kernel;
    use loom::sync::Arc;

    /// A worker's epoll.
    pub struct Poller(pub Arc<Kernel>);

    impl Poller {
        /// Change what the worker waits for.
        pub fn expect<T>(&self, _: T, _: u64, _: bool, _: bool, write: bool) {
            self.0.change(|state| state.awaits_room = write);
        }

        /// This model has no timestamps.
        pub fn stamp<T>(&self, _: T, _: u64) -> bool {
            false
        }
    }
}

/// Replaces the broker's module.
pub mod socket {
    use super::Kernel;
    use loom::sync::Arc;
    use std::io::{Error, ErrorKind};

    /// The broker's end of the client's connection.
    pub struct Socket(pub Arc<Kernel>);

    impl Socket {
        /// Write as much as there is room for.
        pub fn write(&self, octets: &[u8]) -> Result<usize, Error> {
            self.0.change(|state| {
                let count = octets.len().min(state.room);
                state.room -= count;
                state.sent.extend_from_slice(&octets[..count]);
                match count {
                    0 => Err(ErrorKind::WouldBlock.into()),
                    count => Ok(count),
                }
            })
        }

        /// This model has no timestamps.
        pub fn stamp_departures(&self) {}

        /// This model has no timestamps.
        pub fn departure(&self) -> Option<(u32, i64)> {
            None
        }

        /// This model does not count segments.
        pub fn troubles(&self) -> Option<(u32, u32)> {
            None
        }

        /// The tests do not end the connection.
        pub fn shut_down(&self) {
            panic!("the connection was ended");
        }
    }
}
