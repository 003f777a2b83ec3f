//! The session manager: all connections, and the loop that serves them.
//!
//! One thread. What is read from a connection is relayed, or done, at once; what the node says then
//! is done before the next connection has its turn; and at the end of a round each connection that
//! has something to write is written to once.

use crate::client::{Paired, Site};
use crate::connection::Connection;
use crate::cooperation::Source;
use crate::delivery::Lane;
use crate::neighbours::{Dial, Wires};
use crate::node::{Link, Node};
use crate::sessions::Sessions;
use crate::settings::{Reliability, Settings};
use crate::topology::{LinkKey, NodeId};
use mqtick_access::Rules;
use mqtick_broker::listener::Listener;
use mqtick_broker::log;
use mqtick_broker::poller::Poller;
use mqtick_broker::settings::Address;
use mqtick_broker::upstream::wire::Wire;
use mqtick_packet::{Connect, Error, Packet, Version, decode, frame};
use nix::sys::epoll::EpollFlags;
use rustls::ClientConfig;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

/// Octets that wait for one side of a pair until the other is not read from.
pub(crate) const HIGH: usize = 1 << 20;
const EARLY: usize = 1 << 16; // octets before the broker has answered
const READ: usize = 1 << 16;
const TURNS: usize = 8; // reads until others have their turn
const DRAIN_S: u64 = 5;
const LISTENERS: u64 = 1 << 62; // their tokens

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nobody's yet.
    New,
    /// A client's.
    Client,
    /// To the broker, for the client with this token.
    Paired(u64),
    /// To the broker, for messages from other sites.
    Lane(usize),
    /// One of a link.
    Link(Link, u8),
    /// Over, but for what is left to be written.
    Over,
}

pub(crate) struct Slot {
    pub connection: Connection,
    pub role: Role,
    /// When it began, and when something came last.
    pub since_s: u64,
    pub heard_s: u64,
    pub was_answered: bool,
    /// A client that left before all that it sent could be looked at.
    pub has_left: bool,
}

pub(crate) struct Pair {
    pub paired: Paired,
    pub broker: u64,
}

/// What a program needs beside its settings.
#[derive(Default)]
pub struct Secrets {
    /// Of the user at the broker.
    pub password: Option<Vec<u8>>,
    /// What nodes know.
    pub secret: Option<Vec<u8>>,
    /// For a broker with TLS.
    pub broker_tls: Option<Arc<ClientConfig>>,
    /// For neighbours with TLS.
    pub neighbour_tls: Option<Arc<ClientConfig>>,
}

/// Where something is: looked up again each time that it is away.
#[derive(Default)]
pub(crate) struct Place {
    pub found: Vec<SocketAddr>,
    pub is_asking: bool,
    pub tries: usize,
}

impl Place {
    /// The next address to try.
    pub fn next(&mut self) -> Option<SocketAddr> {
        self.tries += 1;
        self.found
            .get(self.tries % self.found.len().max(1))
            .copied()
    }
}

/// What was asked of the resolver, and what it found.
pub(crate) type Found = (String, Result<Vec<SocketAddr>, String>);

/// What is counted beside what the node counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// PUBLISH packets of clients.
    pub published: u64,
    /// PUBLISH packets to clients.
    pub received: u64,
    /// Connections that were taken.
    pub accepted: u64,
    /// Packets that were malformed, or said what they may not.
    pub refused: u64,
    /// Messages of QoS 0 for which a neighbour had no room.
    pub dropped: u64,
    /// Neighbours that were turned away.
    pub strangers: u64,
}

/// The session manager.
pub struct Manager {
    pub(crate) settings: Settings,
    pub(crate) secrets: Secrets,
    pub(crate) poller: Arc<Poller>,
    listeners: Vec<Listener>,
    /// The node, and what clients share.
    pub site: Site,
    pub(crate) slots: HashMap<u64, Slot>,
    next_token: u64,
    pub(crate) pairs: HashMap<u64, Pair>,
    pub(crate) wires: BTreeMap<Link, Wires>,
    pub(crate) greeted: HashMap<(NodeId, LinkKey), Link>,
    pub(crate) next_link: Link,
    pub(crate) dials: Vec<Dial>,
    pub(crate) removed: HashSet<String>,
    pub(crate) lanes: Vec<(Lane, Option<u64>)>,
    pub(crate) broker: Address,
    pub(crate) broker_place: Place,
    pub(crate) broker_said: String,
    resolver: (Sender<Found>, Receiver<Found>),
    pub(crate) dirty: Vec<u64>,
    /// Clients whose next packet has to wait.
    pub(crate) blocked: HashSet<u64>,
    /// What is counted.
    pub counts: Counts,
    start: Instant,
    room: Vec<u8>,
}

impl Manager {
    /// A node that has no connections yet.
    ///
    /// # Errors
    /// What the system has no room for.
    pub fn new(
        settings: Settings,
        secrets: Secrets,
        rules: Rules,
        listeners: Vec<Listener>,
        id: NodeId,
    ) -> Result<Self, String> {
        let fault = |error: nix::Error| error.to_string();
        let poller = Arc::new(Poller::new().map_err(fault)?);
        for (number, listener) in (LISTENERS..).zip(&listeners) {
            poller.listen(listener, number).map_err(fault)?;
        }
        let broker = settings
            .broker
            .url
            .clone()
            .ok_or("there is no broker.url")?;
        let lanes = 0..settings.broker.connections;
        let lanes =
            lanes.map(|number| Lane::new(format!("mqtick-join-{}-{number}", settings.name)));
        let lanes: Vec<_> = lanes.map(|lane| (lane, None)).collect();
        let node = Node::new(id, &settings.name, settings.algorithm, settings.absence_s);
        let site = Site {
            node,
            sessions: Sessions::default(),
            rules,
            waits_for_all: settings.reliability == Reliability::All,
            waiting: HashMap::new(),
            denied: 0,
            now_s: 0,
        };
        let dials = settings
            .neighbours
            .urls
            .iter()
            .cloned()
            .map(Dial::new)
            .collect();
        Ok(Self {
            settings,
            secrets,
            poller,
            listeners,
            site,
            slots: HashMap::new(),
            next_token: 0,
            pairs: HashMap::new(),
            wires: BTreeMap::new(),
            greeted: HashMap::new(),
            next_link: 1,
            dials,
            removed: HashSet::new(),
            lanes,
            broker,
            broker_place: Place::default(),
            broker_said: String::new(),
            resolver: channel(),
            dirty: Vec::new(),
            blocked: HashSet::new(),
            counts: Counts::default(),
            start: Instant::now(),
            room: vec![0; READ],
        })
    }

    /// Take over what clients of kept sessions were subscribed to.
    ///
    /// # Errors
    /// The line that is none of ours.
    pub fn restore(&mut self, text: &str) -> Result<(), usize> {
        let filters = self.site.sessions.restore(text, self.site.now_s)?;
        self.site.node.subscribed(Source::Local, &filters);
        Ok(())
    }

    /// The program ends: clients and neighbours are told.
    pub fn stop(&mut self) {
        const SHUTTING_DOWN: u8 = 0x8B;
        let mut last = Vec::new();
        mqtick_packet::disconnect(&mut last, Version::V5, SHUTTING_DOWN);
        let clients: Vec<u64> = self.pairs.keys().copied().collect();
        for token in clients {
            let version = self.pairs.get(&token).map(|pair| pair.paired.version());
            if version == Some(Version::V5) {
                self.send(token, &last);
            }
        }
        self.flush();
        let clients: Vec<u64> = self.pairs.keys().copied().collect();
        clients
            .into_iter()
            .for_each(|token| self.end_pair(token, token));
        self.act();
        self.flush();
        let links: Vec<Link> = self.wires.keys().copied().collect();
        links
            .into_iter()
            .for_each(|link| self.link_ended(link, "this node ends", true));
        self.flush();
    }

    /// Serve whatever is ready, or comes within so many milliseconds.
    pub fn turn(&mut self, milliseconds: u16) {
        let mut events = Vec::new();
        self.poller.wait(&mut events, milliseconds);
        let now_s = self.start.elapsed().as_secs();
        if now_s != self.site.now_s {
            self.site.now_s = now_s;
            self.tick(now_s);
        }
        for (token, flags) in events {
            match token {
                mqtick_broker::poller::CALLED => self.found(),
                LISTENERS.. => self.accept(token),
                _ => self.ready(token, flags),
            }
        }
        self.act();
        self.flush();
    }

    fn tick(&mut self, now_s: u64) {
        let gone = self.site.sessions.tick(now_s);
        self.site.node.unsubscribed(Source::Local, &gone);
        for will in self.site.sessions.due_wills(now_s) {
            crate::client::publish_will(&mut self.site, will);
        }
        self.site.node.tick(now_s);
        self.act();
        self.tick_lanes(now_s);
        self.tick_links(now_s);
        let limit_s = self.settings.limits.connect_timeout_s;
        let late = |slot: &Slot| match slot.role {
            Role::New => slot.since_s + limit_s < now_s,
            Role::Over => slot.since_s + DRAIN_S < now_s,
            _ => false,
        };
        let late = self.slots.iter().filter(|(_, slot)| late(slot));
        let late: Vec<u64> = late.map(|(token, _)| *token).collect();
        late.into_iter().for_each(|token| self.drop(token));
        let late = self.pairs.iter().filter(|(token, pair)| {
            let since_s = self.slots.get(token).map_or(0, |slot| slot.since_s);
            !pair.paired.is_up() && since_s + limit_s < now_s
        });
        let late: Vec<(u64, u64)> = late.map(|(token, pair)| (*token, pair.broker)).collect();
        for (token, broker) in late {
            self.end_pair(token, broker); // the broker does not answer
        }
        self.unblock();
    }

    /// Let clients go on whose packets had to wait.
    pub(crate) fn unblock(&mut self) {
        if self.site.node.has_room() {
            for token in std::mem::take(&mut self.blocked) {
                self.process(token);
                self.dirty.push(token); // it is to be read from again
            }
        }
    }

    // -- connections -------------------------------------------------------------------------------

    fn accept(&mut self, token: u64) {
        const AT_ONCE: usize = 64;
        for _ in 0..AT_ONCE {
            let Some(listener) = self.listeners.get((token - LISTENERS) as usize) else {
                return;
            };
            let (socket, transport) = match listener.accept() {
                Ok(both) => both,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    log::error(&format!("a connection could not be taken: {error}"));
                    std::thread::sleep(std::time::Duration::from_millis(10)); // no files are left
                    return;
                }
            };
            self.counts.accepted += 1;
            // Each client needs a second one, to the broker.
            if self.slots.len() < 2 * self.settings.limits.connections {
                self.add(Connection::taken(socket, transport), Role::New);
            }
        }
    }

    pub(crate) fn add(&mut self, connection: Connection, role: Role) -> Option<u64> {
        let token = self.next_token;
        self.poller.add(&connection, token).ok()?;
        self.next_token += 1;
        let now_s = self.site.now_s;
        let slot = Slot {
            connection,
            role,
            since_s: now_s,
            heard_s: now_s,
            was_answered: false,
            has_left: false,
        };
        self.slots.insert(token, slot);
        self.dirty.push(token);
        Some(token)
    }

    fn ready(&mut self, token: u64, flags: EpollFlags) {
        self.dirty.push(token);
        let comes = EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if !flags.intersects(comes) {
            return;
        }
        for _ in 0..TURNS {
            let now_s = self.site.now_s;
            let Some(slot) = self.slots.get_mut(&token) else {
                return;
            };
            let read = slot.connection.read(&mut self.room);
            slot.heard_s = now_s;
            slot.was_answered |= !slot.connection.input.is_empty();
            if slot.role == Role::Over {
                slot.connection.input.clear();
            }
            self.process(token);
            match read {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => return self.close(token, &why),
            }
        }
    }

    /// Look at what came.
    pub(crate) fn process(&mut self, token: u64) {
        let Some(slot) = self.slots.get_mut(&token) else {
            return;
        };
        let mut input = std::mem::take(&mut slot.connection.input);
        let role = slot.role;
        let looked = match role {
            Role::New => self.greet(token, &input),
            Role::Client => self.client_says(token, &input),
            Role::Paired(client) => self.broker_says(token, client, &input),
            Role::Lane(number) => self.lane_says(number, &input),
            Role::Link(link, index) => self.neighbour_says(link, index, &input),
            Role::Over => Ok(input.len()),
        };
        let done = *looked.as_ref().unwrap_or(&0);
        if let Some(slot) = self.slots.get_mut(&token) {
            input.drain(..done);
            slot.connection.input = input;
        }
        self.act();
        if let Err(why) = looked {
            self.counts.refused += 1;
            self.close(token, &why);
        } else if role == Role::New && self.role(token) != Some(Role::New) {
            self.process(token); // what came with its CONNECT
        } else if self.slots.get(&token).is_some_and(|slot| slot.has_left) {
            self.close(token, "it has left");
        }
    }

    pub(crate) fn role(&self, token: u64) -> Option<Role> {
        self.slots.get(&token).map(|slot| slot.role)
    }

    /// The first packet says who it is.
    fn greet(&mut self, token: u64, input: &[u8]) -> Result<usize, String> {
        let found = frame(input, self.settings.limits.packet).map_err(|error| error.to_string())?;
        let Some(found) = found else {
            return Ok(0);
        };
        let packet = match decode(&found, Version::V5) {
            Err(Error::Version(_)) => {
                const UNKNOWN: u8 = 0x84;
                self.send(token, &refusal(Version::V3, UNKNOWN));
                self.over(token);
                return Ok(found.length);
            }
            packet => packet.map_err(|error| error.to_string())?,
        };
        let Packet::Connect(connect) = packet else {
            return Err("its first packet is no CONNECT".into());
        };
        if connect.client_id.starts_with(crate::words::MARK) {
            self.greet_neighbour(token, &connect);
            return Ok(found.length);
        }
        self.pair(
            token,
            &connect,
            input.get(..found.length).unwrap_or_default(),
        );
        Ok(found.length)
    }

    fn pair(&mut self, token: u64, connect: &Connect<'_>, raw: &[u8]) {
        let broker = self.connect_to_broker(Role::Paired(token));
        let paired = Paired::new(token, connect);
        let Some(slot) = self.slots.get_mut(&token) else {
            return;
        };
        slot.role = Role::Client;
        match broker {
            Ok(broker) => {
                self.send(broker, raw);
                self.pairs.insert(token, Pair { paired, broker });
            }
            Err(_) => {
                let unavailable = refusal(connect.version, UNAVAILABLE);
                slot.connection.push(&unavailable);
                self.over(token);
            }
        }
    }

    pub(crate) fn connect_to_broker(&mut self, role: Role) -> Result<u64, String> {
        if self.broker_place.found.is_empty() {
            self.look_up(&self.broker.clone());
        }
        let Some(place) = self.broker_place.next() else {
            return Err("its address is not known yet".into());
        };
        let wire = Wire::open(place, &self.broker, self.secrets.broker_tls.as_ref());
        let wire = wire.map_err(|error| error.to_string())?;
        let token = self.add(Connection::made(wire), role);
        token.ok_or_else(|| "no more connections can be waited for".into())
    }

    /// Have octets of MQTT written.
    pub(crate) fn send(&mut self, token: u64, octets: &[u8]) {
        if let Some(slot) = self.slots.get_mut(&token) {
            if slot.connection.waiting() == 0 {
                self.dirty.push(token);
            }
            slot.connection.push(octets);
        }
    }

    fn flush(&mut self) {
        while !self.dirty.is_empty() {
            for token in std::mem::take(&mut self.dirty) {
                self.flush_one(token);
            }
            self.act();
        }
    }

    fn flush_one(&mut self, token: u64) {
        let Some(slot) = self.slots.get_mut(&token) else {
            return;
        };
        let before = slot.connection.waiting();
        let left = match slot.connection.flush() {
            Ok(left) => left,
            Err(why) => return self.close(token, &why),
        };
        if slot.role == Role::Over && !left {
            slot.connection.finish();
        }
        let was_high = before >= HIGH && slot.connection.waiting() < HIGH;
        let other = match slot.role {
            Role::Client => self.pairs.get(&token).map(|pair| pair.broker),
            Role::Paired(client) => Some(client),
            _ => None,
        };
        self.arm(token, left);
        if let Some(other) = other.filter(|_| was_high || before > HIGH / 2) {
            let left = self
                .slots
                .get(&other)
                .is_some_and(|slot| slot.connection.waiting() > 0);
            self.arm(other, left);
        }
    }

    /// Wait for what is wanted of a connection.
    fn arm(&mut self, token: u64, writes: bool) {
        let waits = |token: &u64| {
            let slot = self.slots.get(token);
            slot.map_or(0, |slot| slot.connection.waiting())
        };
        let Some(slot) = self.slots.get(&token) else {
            return;
        };
        let held = slot.connection.input.len();
        let reads = match slot.role {
            Role::Client => self.pairs.get(&token).is_none_or(|pair| {
                let early = !pair.paired.is_up() && held > EARLY;
                !early && !self.blocked.contains(&token) && waits(&pair.broker) < HIGH
            }),
            Role::Paired(client) => waits(&client) < HIGH,
            _ => true,
        };
        if let Some(slot) = self.slots.get_mut(&token)
            && let Some((reads, writes)) = slot.connection.wants(reads, writes)
        {
            self.poller
                .expect(slot.connection.as_fd(), token, false, reads, writes);
        }
    }

    /// A connection ended, or is to end.
    pub(crate) fn close(&mut self, token: u64, why: &str) {
        match self.role(token) {
            None => {}
            Some(Role::New | Role::Over) => self.drop(token),
            Some(Role::Client) if self.must_wait(token) => {}
            Some(Role::Client) => self.end_pair(token, token),
            Some(Role::Paired(client)) => self.end_pair(client, token),
            Some(Role::Lane(number)) => {
                self.drop(token);
                self.lane_ended(number, why);
            }
            Some(Role::Link(link, _)) => self.link_ended(link, why, false),
        }
    }

    /// A client left, but what it sent before has to wait for the broker or for room.
    fn must_wait(&mut self, token: u64) -> bool {
        let is_up = self
            .pairs
            .get(&token)
            .is_some_and(|pair| pair.paired.is_up());
        let Some(slot) = self.slots.get_mut(&token) else {
            return false;
        };
        let waits = !slot.connection.input.is_empty() && (!is_up || self.blocked.contains(&token));
        if waits && !slot.has_left {
            slot.has_left = true;
            self.poller.forget(&slot.connection);
        }
        waits
    }

    /// No more comes or goes, but for what is left to be written.
    pub(crate) fn over(&mut self, token: u64) {
        let now_s = self.site.now_s;
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.role = Role::Over;
            slot.since_s = now_s;
            slot.connection.close();
            self.dirty.push(token);
        }
    }

    pub(crate) fn drop(&mut self, token: u64) {
        if let Some(slot) = self.slots.remove(&token) {
            self.poller.forget(&slot.connection);
        }
    }

    // -- names -------------------------------------------------------------------------------------

    /// Find out where something is; names are looked up by a thread of its own, as it may last.
    pub(crate) fn look_up(&mut self, address: &Address) {
        let name = address.to_string();
        if let Ok(ip) = address.host.parse::<IpAddr>() {
            let found = vec![SocketAddr::new(ip, address.port)];
            return self.know(&name, Ok(found));
        }
        let mut is_asked = false;
        for place in self.places(&name) {
            is_asked |= std::mem::replace(&mut place.is_asking, true);
        }
        if is_asked {
            return;
        }
        let (sender, poller) = (self.resolver.0.clone(), Arc::clone(&self.poller));
        let (host, port, answer) = (address.host.clone(), address.port, name.clone());
        let ask = move || {
            let found = (&*host, port).to_socket_addrs();
            let found = found
                .map(Iterator::collect)
                .map_err(|error| error.to_string());
            let _ = sender.send((answer, found)); // nobody hears it where the program ends
            poller.call();
        };
        if let Err(error) = std::thread::Builder::new().spawn(ask) {
            self.know(&name, Err(error.to_string()));
        }
    }

    fn found(&mut self) {
        self.poller.heard();
        while let Ok((name, found)) = self.resolver.1.try_recv() {
            self.know(&name, found);
        }
    }

    /// Whatever is there: the broker may be named as a neighbour, too.
    fn places(&mut self, name: &str) -> impl Iterator<Item = &mut Place> {
        let broker = (self.broker.to_string() == name).then_some(&mut self.broker_place);
        let dials = self.dials.iter_mut();
        let dials = dials.filter(move |dial| dial.address.to_string() == name);
        broker.into_iter().chain(dials.map(|dial| &mut dial.place))
    }

    fn know(&mut self, name: &str, found: Result<Vec<SocketAddr>, String>) {
        if let Err(why) = &found {
            log::warning(&format!("{name}: {why}"));
        }
        for place in self.places(name) {
            place.is_asking = false;
            place.found = found.clone().unwrap_or_default();
        }
    }
}

/// A client is told that it cannot connect.
pub(crate) fn refusal(version: Version, reason: u8) -> Vec<u8> {
    let mut out = Vec::new();
    mqtick_packet::connack(&mut out, version, false, reason, &Default::default());
    out
}

/// The reason where there is no broker.
pub(crate) const UNAVAILABLE: u8 = 0x88;
