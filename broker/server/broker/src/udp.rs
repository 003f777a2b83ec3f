//! The socket of mqtt-udp or MQTT-SN: any worker sends copies from it, many with one system call.

use crate::batch::{Batch, Copy, NEVER_AGAIN, Peer};
use crate::departures::{Departures, copy_of};
use crate::sync::lock;
use mqtick_net::datagrams::{NOWHERE, address_of, is_writable, send_all};
use mqtick_net::poller::Poller;
use mqtick_net::residence::{Arrived, Clock, TRAILER};
use mqtick_net::socket::stamp_of;
use mqtick_udp::DATAGRAM;
use nix::cmsg_space;
use nix::sys::socket::{
    AddressFamily, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrStorage, TimestampingFlag,
    bind, recvmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

pub(crate) const AT_ONCE: usize = 32; // datagrams that one system call receives
pub(crate) const ROOM: usize = DATAGRAM + 1; // octets; a datagram that is too long fills it
const BUFFER: usize = 4 << 20; // octets; the kernel may allow less
const PATIENCE_MS: u8 = 10;
const PATIENCE_REST: u64 = 10; // how many times longer than a wait the pause before the next one is
const FRAME: usize = DATAGRAM + 128; // octets of a sent frame, with the headers of all layers
const STATED: usize = 8; // copies that state the same time of departure

#[derive(Default)]
pub(crate) struct Sending {
    stamps: bool,
    departures: Departures,
    frames: Vec<u8>, // buffer for frames that have left, which come back with their stamps
    patience: Patience,
}

/// All senders wait while one waits for a slow link, so at most about a tenth of the time goes into
/// such waits.
#[derive(Default)]
struct Patience {
    again_ns: u64,
}

impl Patience {
    fn is_left(&self, now_ns: u64) -> bool {
        now_ns >= self.again_ns
    }

    fn waited(&mut self, from_ns: u64, to_ns: u64) {
        self.again_ns = to_ns + (to_ns - from_ns) * PATIENCE_REST;
    }
}

/// The socket.
pub struct DatagramSocket {
    fd: OwnedFd,
    is_v6: bool,
    pub(crate) secret: [u8; 16],
    poller: OnceLock<(Arc<Poller>, u64)>,
    pub(crate) sending: Mutex<Sending>,
    start: Instant,
    counted: Vec<(&'static str, AtomicU64)>,
}

impl DatagramSocket {
    /// Listen on an address (on `[::]` over IPv4, too). `counted`: the names of the counters.
    pub fn open(
        address: SocketAddr,
        counted: impl IntoIterator<Item = &'static str>,
    ) -> io::Result<Self> {
        let mut secret = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut secret)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let is_v6 = address.is_ipv6();
        let family = match is_v6 {
            true => AddressFamily::Inet6,
            false => AddressFamily::Inet,
        };
        let fd = socket(family, SockType::Datagram, flags, None)?;
        if is_v6 {
            setsockopt(&fd, sockopt::Ipv6V6Only, &false)?;
        }
        bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
        // Room for bursts and for stamps of departures. Root may exceed the system's limit.
        if setsockopt(&fd, sockopt::RcvBufForce, &BUFFER).is_err() {
            setsockopt(&fd, sockopt::RcvBuf, &BUFFER)?;
        }
        if setsockopt(&fd, sockopt::SndBufForce, &BUFFER).is_err() {
            setsockopt(&fd, sockopt::SndBuf, &BUFFER)?;
        }
        let socket = Self {
            fd,
            is_v6,
            secret,
            poller: OnceLock::new(),
            sending: Mutex::default(),
            start: Instant::now(),
            counted: counted
                .into_iter()
                .map(|name| (name, AtomicU64::new(0)))
                .collect(),
        };
        socket.stamp(TimestampingFlag::empty());
        Ok(socket)
    }

    /// Where it listens.
    #[cfg(test)]
    #[allow(clippy::expect_used)]
    pub(crate) fn address(&self) -> SocketAddr {
        use nix::sys::socket::getsockname;
        address_of(&getsockname(self.fd.as_raw_fd()).expect("a name"))
    }

    /// Have a worker's poller wait for datagrams.
    pub fn listen(&self, poller: &Arc<Poller>, token: u64) -> nix::Result<()> {
        poller.add(self, token)?;
        let _ = self.poller.set((Arc::clone(poller), token));
        Ok(())
    }

    /// Once a second: add the socket to the poller again, in case that has failed.
    pub fn tick(&self) {
        let _nobody_sends = lock(&self.sending);
        self.listen_again();
    }

    fn listen_again(&self) {
        if let Some((poller, token)) = self.poller.get() {
            let _ = poller.add(self, *token); // if it fails, `tick` tries again
        }
    }

    /// Allow datagrams to broadcast addresses.
    pub fn allow_broadcast(&self) {
        // If this fails, sending fails, too.
        let _ = setsockopt(&self.fd, sockopt::Broadcast, &true);
    }

    /// Nanoseconds since the socket was opened.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn stamp(&self, more: TimestampingFlag) {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | more;
        // Without stamps of the kernel, no residence is stated.
        let _ = setsockopt(&self.fd, sockopt::Timestamping, &flags);
    }

    /// The door's counters as of the last call of `count`, by name.
    pub fn counted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = self.counted.iter();
        all.map(|(name, count)| (*name, count.load(Relaxed)))
    }

    /// Take over the door's counters, in the order of the names.
    pub fn count(&self, counts: impl Iterator<Item = (&'static str, u64)>) {
        for ((_, place), (_, count)) in self.counted.iter().zip(counts) {
            place.store(count, Relaxed);
        }
    }

    /// Send the gathered datagrams in order. Returns how many copies have left, and how many found
    /// no room.
    pub fn send(&self, batch: &mut Batch) -> (usize, usize) {
        if batch.is_empty() {
            return (0, 0);
        }
        let mut sending = lock(&self.sending);
        let now_ns = self.now_ns();
        let lives = |peer: &Arc<Peer>| peer.end_ns.load(Relaxed) > now_ns;
        batch
            .copies
            .retain(|copy| copy.peer.as_ref().is_none_or(lives));
        let _unpolled = Unpolled::of(self, batch);
        let Batch {
            octets,
            copies,
            arrived,
        } = batch;
        let dropped = match arrived {
            None => {
                self.stamp_departures(&mut sending, false);
                self.write(&mut sending, octets, copies)
            }
            Some(arrived) => {
                if !sending.departures.is_empty() {
                    self.take_departures(&mut sending);
                }
                self.stamp_departures(&mut sending, true);
                let some = copies.chunks(STATED);
                some.map(|copies| self.write_stated(&mut sending, octets, copies, arrived))
                    .sum()
            }
        };
        let all = batch.copies.iter().filter(|copy| copy.peer.is_some());
        let sent = all.count() - dropped;
        batch.clear();
        (sent, dropped)
    }

    fn stamp_departures(&self, sending: &mut Sending, wanted: bool) {
        if sending.stamps != wanted {
            sending.stamps = wanted;
            let departures = TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE;
            self.stamp(if wanted {
                departures
            } else {
                TimestampingFlag::empty()
            });
        }
    }

    /// Write into each copy its residence as of now, and send them: none leaves before that.
    fn write_stated(
        &self,
        sending: &mut Sending,
        octets: &mut [u8],
        copies: &[Copy],
        arrived: &Arrived,
    ) -> usize {
        let now = Clock::read();
        for copy in copies {
            let octets = octets.get_mut(copy.octets.clone());
            let place = octets.and_then(|octets| octets.last_chunk_mut::<TRAILER>());
            let Some((peer, place)) = copy.peer.as_ref().zip(place) else {
                continue;
            };
            let mut account = lock(&peer.account);
            let (trailer, is_counted) = peer.state(&account, arrived, now);
            *place = trailer;
            if is_counted {
                account.written(copy_of(&trailer), now, NEVER_AGAIN);
                sending.departures.expect(peer, trailer);
            }
        }
        self.write(sending, octets, copies)
    }

    /// Send copies. Returns how many found no room.
    fn write(&self, sending: &mut Sending, octets: &[u8], copies: &[Copy]) -> usize {
        let address = |copy: &Copy| match copy.to.ip() {
            IpAddr::V4(ip) if self.is_v6 => {
                SocketAddr::from((ip.to_ipv6_mapped(), copy.to.port())).into()
            }
            _ => SockaddrStorage::from(copy.to),
        };
        let part = |copy: &Copy| IoSlice::new(octets.get(copy.octets.clone()).unwrap_or_default());
        let addresses: Vec<_> = copies.iter().map(address).collect();
        let parts: Vec<_> = copies.iter().map(part).collect();
        let mut dropped = 0;
        send_all(
            self,
            addresses.iter().zip(parts.chunks(1)),
            || self.is_writable(sending),
            |lost, _| {
                let lost = copies.get(lost).unwrap_or_default().iter();
                dropped += lost.filter(|copy| copy.peer.is_some()).count();
            },
        );
        dropped
    }

    /// Wait a short time for room. Returns whether there is some.
    fn is_writable(&self, sending: &mut Sending) -> bool {
        let from_ns = self.now_ns();
        if !sending.patience.is_left(from_ns) {
            return false;
        }
        let is_writable = is_writable(self, PATIENCE_MS);
        sending.patience.waited(from_ns, self.now_ns());
        is_writable
    }

    /// The kernel has stamps of departures.
    pub fn departures(&self) {
        self.take_departures(&mut lock(&self.sending));
    }

    /// Take the kernel's stamps of departures.
    pub(crate) fn take_departures(&self, sending: &mut Sending) {
        let space = cmsg_space!([TimeSpec; 3], [u64; 8]);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let room = &mut sending.frames;
        room.resize(AT_ONCE * FRAME, 0);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(AT_ONCE, Some(space));
        let mut count = AT_ONCE;
        while count == AT_ONCE {
            let parts = room.chunks_exact_mut(FRAME);
            let mut parts: Vec<_> = parts.map(|one| [IoSliceMut::new(one)]).collect();
            let fd = self.fd.as_raw_fd();
            let Ok(messages) = recvmmsg(fd, &mut headers, &mut parts, flags, None) else {
                return;
            };
            let stamps = messages.map(|message| {
                let cmsgs = message.cmsgs().ok().into_iter().flatten();
                (message.bytes, cmsgs.filter_map(stamp_of).next())
            });
            let stamps: Vec<_> = stamps.collect();
            count = stamps.len();
            for ((length, left_ns), frame) in stamps.into_iter().zip(room.chunks_exact(FRAME)) {
                if let Some((frame, left_ns)) = frame.get(..length).zip(left_ns) {
                    sending.departures.left(frame, left_ns);
                }
            }
        }
    }

    /// Receive some datagrams, each into `ROOM` octets. Returns for each the sender, the length,
    /// and the kernel's stamp in ns of the system's clock.
    pub(crate) fn receive(&self, room: &mut [u8]) -> Vec<(SocketAddr, usize, Option<i64>)> {
        let parts = room.chunks_exact_mut(ROOM);
        let mut parts: Vec<_> = parts.map(|one| [IoSliceMut::new(one)]).collect();
        let space = cmsg_space!([TimeSpec; 3]);
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(parts.len(), Some(space));
        let fd = self.fd.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let Ok(messages) = recvmmsg(fd, &mut headers, &mut parts, flags, None) else {
            return Vec::new();
        };
        let came = messages.map(|message| {
            let cmsgs = message.cmsgs().ok().into_iter().flatten();
            let stamp = cmsgs.filter_map(stamp_of).next();
            let mut from = message.address.as_ref().map_or(NOWHERE, address_of);
            if let ip @ IpAddr::V4(_) = from.ip().to_canonical() {
                from.set_ip(ip); // also on a socket for both families
            }
            (from, message.bytes, stamp)
        });
        came.collect()
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// While stamped or many datagrams leave, the socket is in no poller: the kernel would wake it for
/// each one, and that time would be between the stated departures and the real ones.
struct Unpolled<'a>(&'a DatagramSocket);

impl<'a> Unpolled<'a> {
    fn of(socket: &'a DatagramSocket, batch: &Batch) -> Option<Self> {
        let pays = batch.arrived.is_some() || batch.copies.len() > STATED;
        let (poller, _) = socket.poller.get().filter(|_| pays)?;
        poller.forget(socket);
        Some(Self(socket))
    }
}

impl Drop for Unpolled<'_> {
    fn drop(&mut self) {
        self.0.listen_again();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Arc<Peer> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Arc::new(Peer::new(address, u64::MAX))
    }

    /// A socket on any port, and that port.
    fn opened() -> (DatagramSocket, SocketAddr) {
        let socket = DatagramSocket::open(SocketAddr::from(([127, 0, 0, 1], 0)), []).unwrap();
        let own = socket.address();
        (socket, own)
    }

    #[test]
    fn what_the_kernel_refuses_is_dropped_and_the_others_get_theirs() {
        let (socket, own) = opened();
        let mut batch = Batch::default();
        let peer = peer(own.port());
        batch.copy(&peer, b"before", None);
        batch.copy(&peer, &[0; 70_000], None); // too long for a datagram
        batch.answer(own, &[0; 70_000]); // an answer is no copy
        batch.copy(&peer, b"behind", None);
        assert_eq!(socket.send(&mut batch), (2, 1));
        assert!(batch.is_empty());
        let mut room = vec![0; 8 * ROOM];
        let came = socket.receive(&mut room);
        let lengths: Vec<_> = came.iter().map(|one| one.1).collect();
        assert_eq!(lengths, [6, 6]);
        assert!(room.starts_with(b"before") && room[ROOM..].starts_with(b"behind"));
    }

    #[test]
    fn no_copy_leaves_after_the_end_of_a_lease() {
        let (socket, own) = opened();
        let ended = Peer::new(own, 0);
        let mut batch = Batch::default();
        batch.copy(&Arc::new(ended), b"late", None);
        assert_eq!(socket.send(&mut batch), (0, 0));
        assert!(socket.receive(&mut [0; ROOM]).is_empty());
    }

    #[test]
    fn a_datagram_that_is_too_long_shows() {
        let (socket, own) = opened();
        let mut batch = Batch::default();
        batch.answer(own, &[7; DATAGRAM + 9]);
        socket.send(&mut batch);
        assert_eq!(socket.receive(&mut vec![0; ROOM])[0].1, DATAGRAM + 1);
    }

    /// The correction that a copy to a peer states. One `to` another peer is too long to be sent.
    fn correction(socket: &DatagramSocket, peer: &Arc<Peer>, to: Option<&Arc<Peer>>) -> i32 {
        let arrived = Arrived {
            at_ns: Clock::read().raw_ns,
            trailer: [0; TRAILER],
        };
        let mut batch = Batch::default();
        batch.copy(peer, &[0x20; 32], Some(arrived));
        if let Some(other) = to {
            batch.copy(other, &[0x20; 70_000], Some(arrived));
        }
        socket.send(&mut batch);
        let mut room = vec![0; ROOM];
        assert_eq!(socket.receive(&mut room)[0].1, 32);
        i32::from_be_bytes(room[24..28].try_into().unwrap())
    }

    #[test]
    fn who_cannot_be_reached_costs_nobody_else_a_correction() {
        let (socket, own) = opened();
        let [peer, other] = [own.port(), 9].map(peer);
        assert_eq!(correction(&socket, &peer, None), i32::MIN, "the first one");
        for _ in 0..4 {
            assert!(correction(&socket, &peer, Some(&other)) >= 0);
        }
    }

    #[test]
    fn a_copy_that_the_kernel_refused_gets_no_correction() {
        let (socket, own) = opened();
        let peer = peer(own.port());
        correction(&socket, &peer, None);
        let arrived = Arrived {
            at_ns: Clock::read().raw_ns,
            trailer: [0; TRAILER],
        };
        let mut batch = Batch::default();
        batch.copy(&peer, &[0x20; 70_000], Some(arrived));
        assert_eq!(socket.send(&mut batch), (0, 1));
        assert_eq!(correction(&socket, &peer, None), i32::MIN);
        assert!(correction(&socket, &peer, None) >= 0);
    }

    #[test]
    fn one_socket_serves_both_families_with_stamps_of_what_left() {
        let any = SocketAddr::from(([0_u16; 8], 0));
        let socket = DatagramSocket::open(any, []).unwrap();
        let port = socket.address().port();
        for ip in ["::1", "127.0.0.1"] {
            let to = SocketAddr::new(ip.parse().unwrap(), port);
            let peer = Arc::new(Peer::new(to, u64::MAX));
            assert_eq!(correction(&socket, &peer, None), i32::MIN, "the first one");
            assert!(correction(&socket, &peer, None) >= 0, "{ip}");
            let mut batch = Batch::default();
            batch.answer(to, b"answer");
            socket.send(&mut batch);
            assert_eq!(socket.receive(&mut vec![0; ROOM])[0].0, to);
        }
    }

    #[test]
    fn who_waited_for_a_slow_link_goes_on_for_ten_times_as_long() {
        let mut patience = Patience::default();
        assert!(patience.is_left(0));
        patience.waited(100, 110);
        assert!(!patience.is_left(209));
        assert!(patience.is_left(210));
    }
}
