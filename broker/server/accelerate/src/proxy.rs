//! The data plane in user space, for kernels that cannot copy: clients use the proxy's address
//! instead of the broker's. Each client has a socket of its own towards the broker, so that the
//! broker sees a different address for each. Copies are sent with sendmmsg.

use mqtick_net::clock::{Clock, Looks};
use mqtick_net::datagrams::{is_writable, receive, send_all};
use mqtick_net::process::raise_descriptors;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::HashMap;
use std::io::{self, ErrorKind, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use crate::clock::{Rate, now_ns, raw_ns};
use crate::driver::{Driver, Event, Watcher};
use crate::packet::{self, Packet, TRAILER, Way};
use crate::plane::{Copy, Counts, Key, Plane, Refusal};
use crate::rules::{Broker, Protocol};
use crate::table::{Table, Verdict};
use mqtick_net::failure::{Failure, Outcome};

const ROOM: usize = 65_536;
const BUFFER: usize = 4 << 20; // octets; the kernel may allow less
const TURN: usize = 64; // most datagrams of one socket before the others get their turn
const AT_ONCE: usize = 256; // most copies in one call
const STATED: usize = 8; // most copies in one call if they state their residence
const OWN_FILES: u64 = 64;
const MOST_CLIENTS: u64 = 65_536;
const IDLE_NS: u64 = 60_000_000_000;
const FRONT: u64 = 0;
const PATIENCE_MS: u8 = 10;
/// How long rules are valid after each round of the controller, in case the program is stopped.
const ALIVE_NS: u64 = 1_000_000_000;

struct Upstream {
    socket: UdpSocket,
    token: u64,
}

/// The sockets and the table of rules.
pub struct Proxy {
    front: UdpSocket,
    broker: SocketAddr,
    protocol: Protocol,
    epoll: Epoll,
    table: Table,
    upstreams: HashMap<SocketAddr, Upstream>,
    seen_as: HashMap<SocketAddr, SocketAddr>, // clients, by the addresses that the broker sees
    clients: HashMap<u64, SocketAddr>,
    tokens: u64,
    limit: usize,
    room: Vec<u8>,
    /// Readings of the clock from before all datagrams came that wait in `front`.
    before: Looks,
    rate: Rate,
    /// Answers for the controller: the client, the datagram, the mark, and whether it was kept
    /// back.
    answers: Vec<(SocketAddr, Vec<u8>, u64, bool)>,
    lent: bool,
    why: Option<String>,
    refused_clients: u64,
    hits: u64,
    copies: u64,
    refused: u64,
    to_broker: u64,
    from_broker: u64,
}

impl Proxy {
    /// Listen at `address` for clients of `broker`. `why`: why the kernel is not used.
    ///
    /// # Errors
    /// The system's.
    pub fn new(
        address: SocketAddr,
        broker: Broker,
        rules: usize,
        why: Option<String>,
    ) -> Outcome<Self> {
        let fault =
            |what: String| move |error: io::Error| Failure::Failed(format!("{what}: {error}."));
        let front = UdpSocket::bind(address).map_err(fault(address.to_string()))?;
        front
            .set_nonblocking(true)
            .map_err(fault(address.to_string()))?;
        let _ = setsockopt(&front, sockopt::RcvBuf, &BUFFER);
        // without it, no residence is stated
        let _ = setsockopt(&front, sockopt::ReceiveTimestampns, &true);
        let _ = setsockopt(&front, sockopt::SndBuf, &BUFFER);
        let system = |error: Errno| Failure::Failed(format!("epoll: {error}."));
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, FRONT);
        epoll.add(&front, event).map_err(system)?;
        let files = raise_descriptors(0);
        let limit = files.saturating_sub(OWN_FILES).clamp(1, MOST_CLIENTS);
        Ok(Self {
            front,
            broker: broker.address,
            protocol: broker.protocol,
            epoll,
            table: Table::new(rules),
            upstreams: HashMap::new(),
            seen_as: HashMap::new(),
            clients: HashMap::new(),
            tokens: FRONT,
            limit: usize::try_from(limit).unwrap_or(1),
            room: vec![0; ROOM],
            before: Looks::first(Clock::read()),
            rate: Rate::default(),
            answers: Vec::new(),
            lent: false,
            why,
            refused_clients: 0,
            hits: 0,
            copies: 0,
            refused: 0,
            to_broker: 0,
            from_broker: 0,
        })
    }

    /// Its address for clients.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.front.local_addr()
    }

    /// Process datagrams of clients.
    fn hear_clients(&mut self, controller: &mut impl Watcher) {
        let mut room = std::mem::take(&mut self.room);
        for _ in 0..TURN {
            let before = Clock::read();
            let (length, client, came_ns) = match receive(&self.front, &mut room) {
                Ok(came) => came,
                Err(Errno::EAGAIN) => {
                    self.before = self.before.again(before);
                    break;
                }
                Err(_) => continue,
            };
            let datagram = room.get_mut(..length).unwrap_or_default();
            // Only the proxy may mark a message.
            packet::unmark(self.protocol, datagram);
            self.pass(datagram, client, came_ns, controller);
        }
        self.room = room;
    }

    fn pass(
        &mut self,
        datagram: &[u8],
        client: SocketAddr,
        came_ns: Option<i64>,
        controller: &mut impl Watcher,
    ) {
        if client == self.broker || client.port() == 0 {
            self.refused_clients += 1;
            return;
        }
        let packet = Packet::read(self.protocol, Way::ToBroker, datagram);
        let now_ns = now_ns();
        let (is_marked, residence) = self.table.flags(client, &packet);
        match (self.table.from_client(now_ns, client, &packet), &packet) {
            (Verdict::Copies(copies), Packet::Publish(message)) => {
                let trailer = packet::trailer(datagram, message.payload).filter(|_| residence);
                let came_ns = came_ns.filter(|_| self.rate.is_steady());
                let stated = trailer.map(|trailer| (trailer, raw_of(came_ns, &self.before)));
                let (sent, refused) =
                    send_copies(&self.front, datagram, message.payload, stated, copies);
                self.hits += 1;
                self.copies += sent;
                self.refused += refused;
                if is_marked {
                    let mut marked = datagram.to_vec();
                    packet::mark(self.protocol, &mut marked);
                    self.send_to_broker(&client, &marked, controller);
                }
            }
            (Verdict::KeptBack(_) | Verdict::Copies(_), _) => {}
            (Verdict::Pass(mark), _) => {
                self.send_to_broker(&client, datagram, controller);
                if let Some(mark) = mark {
                    let event = Event {
                        protocol: self.protocol,
                        way: Way::ToBroker,
                        from: client,
                        to: self.broker,
                        datagram: Some(datagram),
                        mark,
                        kept_back: false,
                    };
                    controller.event(now_ns, &event, self);
                    controller.settle(now_ns, self);
                }
            }
        }
    }

    fn send_to_broker(&mut self, client: &SocketAddr, datagram: &[u8], controller: &impl Watcher) {
        if !self.upstreams.contains_key(client) && !self.add(*client, controller) {
            self.refused_clients += 1;
            return;
        }
        if let Some(upstream) = self.upstreams.get(client) {
            // An error means that the broker is down; the client will repeat its request.
            let _ = upstream.socket.send(datagram);
            self.to_broker += 1;
        }
    }

    fn add(&mut self, client: SocketAddr, controller: &impl Watcher) -> bool {
        if self.upstreams.len() >= self.limit {
            self.make_room(controller);
        }
        if self.upstreams.len() >= self.limit {
            return false;
        }
        let any: IpAddr = match self.broker {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let open = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(self.broker)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let Ok(socket) = open() else { return false };
        self.tokens += 1;
        let token = self.tokens;
        if self
            .epoll
            .add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, token))
            .is_err()
        {
            return false;
        }
        self.clients.insert(token, client);
        if let Ok(seen_as) = socket.local_addr() {
            self.seen_as.insert(seen_as, client);
        }
        self.upstreams.insert(client, Upstream { socket, token });
        true
    }

    /// Forget clients that were silent for a while.
    fn make_room(&mut self, controller: &impl Watcher) {
        let now_ns = now_ns();
        let one = |client: &SocketAddr| {
            let heard_ns = self.table.heard_ns(client).unwrap_or(0);
            (controller.knows(client), heard_ns, *client)
        };
        let idle = self.upstreams.keys().map(one);
        let idle = idle.filter(|(_, heard_ns, _)| now_ns.saturating_sub(*heard_ns) >= IDLE_NS);
        for client in to_forget(idle.collect()) {
            let Some(upstream) = self.upstreams.remove(&client) else {
                continue;
            };
            self.clients.remove(&upstream.token);
            if let Ok(address) = upstream.socket.local_addr() {
                self.seen_as.remove(&address);
            }
        }
    }

    /// Process datagrams of the broker to one client.
    fn hear_broker(&mut self, token: u64, controller: &mut impl Watcher) {
        let Some(&client) = self.clients.get(&token) else {
            return;
        };
        let mut room = std::mem::take(&mut self.room);
        for _ in 0..TURN {
            let Some(upstream) = self.upstreams.get(&client) else {
                break;
            };
            let length = match upstream.socket.recv(&mut room) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => continue,
            };
            let datagram = room.get(..length).unwrap_or_default();
            self.from_broker += 1;
            let packet = Packet::read(self.protocol, Way::FromBroker, datagram);
            let now_ns = now_ns();
            let (mark, kept_back) = match self.table.from_broker(now_ns, client, &packet) {
                Verdict::KeptBack(mark) => (Some(mark), true),
                Verdict::Pass(mark) => (mark, false),
                Verdict::Copies(_) => (None, false),
            };
            if !kept_back && self.front.send_to(datagram, client).is_err() {
                self.refused += 1;
            }
            let Some(mark) = mark else { continue };
            if packet == Packet::Answer {
                let datagram = datagram.to_vec();
                self.answers.push((client, datagram, mark, kept_back));
                continue;
            }
            let event = Event {
                protocol: self.protocol,
                way: Way::FromBroker,
                from: self.broker,
                to: client,
                datagram: Some(datagram),
                mark,
                kept_back,
            };
            controller.event(now_ns, &event, self);
            controller.settle(now_ns, self);
        }
        self.room = room;
    }

    /// Pass on the datagrams of the broker. Returns whether none is left.
    fn hear_all(&mut self, controller: &mut impl Watcher) -> bool {
        let mut found = [EpollEvent::empty(); 64];
        for _ in 0..TURN {
            let timeout = EpollTimeout::ZERO;
            let count = self.epoll.wait(&mut found, timeout).unwrap_or(0);
            let tokens = found.iter().take(count).map(EpollEvent::data);
            let tokens: Vec<u64> = tokens.filter(|token| *token != FRONT).collect();
            for token in &tokens {
                self.hear_broker(*token, controller);
            }
            if tokens.is_empty() {
                return true;
            }
        }
        false
    }

    /// Give the answers to the controller. They show that all earlier messages have been delivered,
    /// so this comes after the messages that wait in other sockets were passed on.
    fn hear_answers(&mut self, controller: &mut impl Watcher) {
        for (client, datagram, mark, kept_back) in std::mem::take(&mut self.answers) {
            let event = Event {
                protocol: self.protocol,
                way: Way::FromBroker,
                from: self.broker,
                to: client,
                datagram: Some(&datagram),
                mark,
                kept_back,
            };
            controller.event(now_ns(), &event, self);
            controller.settle(now_ns(), self);
        }
    }
}

impl Driver for Proxy {
    fn name(&self) -> String {
        let at = self.address().map(|at| at.to_string()).unwrap_or_default();
        match &self.why {
            Some(why) => format!("user space, sendmmsg, at {at}, because {why}"),
            None => format!("user space, sendmmsg, at {at}"),
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("hits", self.hits),
            ("copies", self.copies),
            ("refused", self.refused),
            ("to_broker", self.to_broker),
            ("from_broker", self.from_broker),
            ("clients_refused", self.refused_clients),
        ]
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }

    fn work(&mut self, controller: &mut impl Watcher) -> Outcome<()> {
        // The broker's datagrams first: a rule may wait for an answer to open.
        let is_all = self.hear_all(controller);
        self.table.behind(!is_all);
        if is_all {
            self.hear_answers(controller);
        }
        self.hear_clients(controller);
        Ok(())
    }

    fn upkeep(&mut self, now_ns: u64) -> Outcome<bool> {
        self.rate.look();
        if !self.lent {
            self.table.alive(now_ns + ALIVE_NS);
        }
        Ok(false)
    }

    fn lend(&mut self, until_ns: u64) -> Outcome<()> {
        self.lent = true;
        self.table.alive(until_ns);
        Ok(())
    }

    fn client_of(&self, seen_as: SocketAddr) -> Option<SocketAddr> {
        self.seen_as.get(&seen_as).copied()
    }
}

impl Plane for Proxy {
    fn set(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal> {
        self.table.set(key, copies, false, residence)
    }
    fn set_marked(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal> {
        self.table.set(key, copies, true, residence)
    }
    fn open(&mut self, key: &Key, slow: u64) {
        self.table.open(key, slow);
    }
    fn delete(&mut self, key: &Key) {
        self.table.delete(key);
    }
    fn counts(&self, key: &Key) -> Counts {
        self.table.counts(key)
    }
    fn heard_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.table.heard_ns(client)
    }
    fn served_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.table.served_ns(client)
    }
    fn keep_back(&mut self, client: &SocketAddr, answers: u32, until_ns: u64) {
        self.table.keep_back(client, answers, until_ns);
    }
    fn is_quiet(&self) -> bool {
        self.table.is_quiet()
    }
    fn to_broker(&mut self, client: &SocketAddr, datagram: &[u8]) -> bool {
        let upstream = self.upstreams.get(client);
        let sent = upstream.map(|upstream| upstream.socket.send(datagram));
        !matches!(sent, Some(Err(error)) if error.kind() == ErrorKind::WouldBlock)
    }
    fn done(&mut self, mark: u64) {
        self.table.done(mark);
    }
}

/// Selects idle clients to forget. Each entry: whether the broker may have a session with the
/// client, and when it was last heard. Selects those without a session; if there are none, the
/// eighth of the others that were silent for longest, because clients may leave without notice.
fn to_forget(mut idle: Vec<(bool, u64, SocketAddr)>) -> impl Iterator<Item = SocketAddr> {
    idle.sort_unstable();
    let unknown = idle.partition_point(|(is_known, ..)| !is_known);
    let count = if unknown > 0 {
        unknown
    } else {
        idle.len().div_ceil(8)
    };
    idle.into_iter().take(count).map(|(.., client)| client)
}

/// When a datagram came, by CLOCK_MONOTONIC_RAW, if this can be determined. `before`: readings of
/// the clock from before it came.
fn raw_of(came_ns: Option<i64>, before: &Looks) -> Option<u64> {
    u64::try_from(before.raw_of(came_ns?, &Clock::read())?).ok()
}

/// Send copies of a PUBLISH. Returns how many were sent, and how many failed. `stated`: its
/// trailer, and when it came (CLOCK_MONOTONIC_RAW).
fn send_copies(
    socket: &UdpSocket,
    datagram: &[u8],
    payload: usize,
    stated: Option<([u8; TRAILER], Option<u64>)>,
    copies: &[Copy],
) -> (u64, u64) {
    let (head, tail) = datagram.split_at_checked(payload).unwrap_or_default();
    let (tail, _) = tail
        .split_last_chunk::<TRAILER>()
        .filter(|_| stated.is_some())
        .unwrap_or((tail, &[0; TRAILER]));
    let (mut sent, mut refused) = (0, 0);
    let at_once = if stated.is_some() { STATED } else { AT_ONCE };
    for some in copies.chunks(at_once) {
        let rewritten = |one: &Copy| {
            let mut head = head.to_vec();
            packet::rewrite(&mut head, one.topic);
            head
        };
        let heads: Vec<Vec<u8>> = some.iter().map(rewritten).collect();
        // The time of departure: none of these copies leaves sooner.
        let trailer = stated.map(|(trailer, came_ns)| packet::stated(trailer, came_ns, raw_ns()));
        let trailer: &[u8] = trailer.as_ref().map_or(&[], |trailer| trailer);
        let parts: Vec<_> = heads
            .iter()
            .map(|head| [&**head, tail, trailer].map(IoSlice::new))
            .collect();
        let addresses: Vec<_> = some.iter().map(|one| one.to.into()).collect();
        let datagrams = addresses.iter().zip(parts.iter().map(<[_; 3]>::as_slice));
        let has_room = || is_writable(socket, PATIENCE_MS);
        let mut lost = 0;
        send_all(socket, datagrams, has_room, |these, _| {
            lost += these.len() as u64
        });
        sent += some.len() as u64 - lost;
        refused += lost;
    }
    (sent, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_not_heard_for_longest_makes_room_for_others() {
        let idle = |known: &[bool]| -> Vec<(bool, u64, SocketAddr)> {
            let one = |(number, known): (u16, &bool)| {
                (
                    *known,
                    100 - u64::from(number),
                    ([10, 0, 0, 2], number).into(),
                )
            };
            (0..).zip(known).map(one).collect()
        };
        let ports = |idle| -> Vec<u16> { to_forget(idle).map(|client| client.port()).collect() };
        assert_eq!(ports(idle(&[true, false, true, false])), [3, 1]);
        assert_eq!(ports(idle(&[true; 16])), [15, 14]);
        assert_eq!(ports(idle(&[true])), [0]);
        assert_eq!(ports(idle(&[])), Vec::<u16>::new());
    }
}
