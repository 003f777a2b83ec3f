//! How the first worker reads datagrams: so few at a time that other input has its turn.

use crate::router::Router;
use crate::udp::{AT_ONCE, DatagramSocket, ROOM};
use mqtick_net::poller::Poller;
use mqtick_net::residence::{Clock, Looks};
use nix::sys::epoll::EpollFlags;
use std::net::SocketAddr;
use std::sync::Arc;

/// Datagrams from lower ports are refused: system services, such as echo, are there.
pub(crate) const LOWEST_PORT: u16 = 1024;
/// Steps of searches for retained messages for all clients of a door in a second: these are not cut.
pub(crate) const MOST_STEPS: usize = 1 << 16;
const TURN: usize = 256; // datagrams until other input has its turn
const TURN_NS: u64 = 2_000_000; // the same, in time

/// A door, which serves datagrams.
pub(crate) trait Serve {
    /// Serve a datagram. `alone`: no other one has come with it.
    fn datagram(&mut self, router: &mut Router, alone: bool, from: SocketAddr, octets: &[u8]);

    /// Do what is done once for all datagrams that have come together.
    fn go_on(&mut self, _: &mut Router) {}
}

/// Reads the datagrams of a socket.
pub(crate) struct DatagramReceiver {
    socket: Arc<DatagramSocket>,
    room: Vec<u8>,
    since: Looks, // looks at the clock, before the arrival of all that will be read
}

impl DatagramReceiver {
    /// Have the worker of a poller wait for datagrams.
    pub(crate) fn open(
        socket: &Arc<DatagramSocket>,
        poller: &Arc<Poller>,
        token: u64,
    ) -> nix::Result<Self> {
        socket.listen(poller, token)?;
        Ok(Self {
            socket: Arc::clone(socket),
            room: vec![0; AT_ONCE * ROOM],
            since: Looks::first(Clock::read()),
        })
    }

    /// Read the datagrams that have come, and have them served.
    pub(crate) fn ready(&mut self, router: &mut Router, flags: EpollFlags, by: &mut impl Serve) {
        if flags.contains(EpollFlags::EPOLLERR) {
            self.socket.departures();
        }
        let end_ns = self.socket.now_ns() + TURN_NS;
        for _ in 0..TURN / AT_ONCE {
            let clock = Clock::read();
            let came = self.socket.receive(&mut self.room);
            let now = Clock::read();
            for ((from, length, stamp), octets) in came.iter().zip(self.room.chunks_exact(ROOM)) {
                let octets = octets.get(..*length).unwrap_or_default();
                router.came = stamp.and_then(|ns| self.since.raw_of(ns, &now));
                router.octets += octets.len() as u64;
                by.datagram(router, came.len() == 1, *from, octets);
            }
            by.go_on(router);
            router.flush();
            if came.len() < AT_ONCE {
                self.since = self.since.again(clock);
                break;
            }
            if self.socket.now_ns() >= end_ns {
                break;
            }
        }
        router.came = None;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use super::*;
    use crate::settings::Settings;
    use crate::shared::Shared;
    use std::net::UdpSocket;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Fails at the first datagram.
    struct Fails(Vec<Vec<u8>>);

    impl Serve for Fails {
        fn datagram(&mut self, _: &mut Router, _: bool, _: SocketAddr, octets: &[u8]) {
            self.0.push(octets.to_vec());
            assert!(self.0.len() > 1, "it fails, on purpose");
        }
    }

    #[test]
    fn who_failed_at_one_datagram_gets_the_next_one_whole() {
        let own = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Arc::new(DatagramSocket::open(own, []).unwrap());
        let settings = Settings {
            threads: 1,
            ..Settings::default()
        };
        let shared = Shared::alone(settings, None);
        let mut receiver = DatagramReceiver::open(&socket, &shared.callers[0].poller, 1).unwrap();
        let (mut router, mut served) = (Router::new(&shared, 0), Fails(Vec::new()));
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for octets in ["first", "second"] {
            sender.send_to(octets.as_bytes(), socket.address()).unwrap();
            let _ = catch_unwind(AssertUnwindSafe(|| {
                receiver.ready(&mut router, EpollFlags::EPOLLIN, &mut served);
            }));
        }
        assert_eq!(served.0, [b"first".to_vec(), b"second".to_vec()]);
    }
}
