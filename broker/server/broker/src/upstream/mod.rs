//! A gateway's connections to the broker behind it: one for all sensors, or one for each.
//!
//! The first worker owns them, and the sensors' socket. What the upstream does is queued as
//! [`Done`], in order, for the door of MQTT-SN.

mod line;
mod sensors;

use crate::gateway::Count;
use crate::message::Kept;
use crate::session::Session;
use crate::settings::Gateway;
use crate::shared::{Call, Shared};
use line::{Event, Line, Terms};
use mqtick_net::log;
use mqtick_net::poller::Poller;
use mqtick_net::settings::Address;
use mqtick_net::wire::Wire;
use mqtick_packet::{Qos, Version};
use mqtick_sn::{Address as Place, Answer, Code};
use nix::sys::epoll::EpollFlags;
use rustls::ClientConfig;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The lowest token of these connections. It is that of the one for all sensors; in a transparent
/// gateway, of the one for messages without a client.
pub const LINES: u64 = 1 << 62;
const KEEP_ALIVE_S: u16 = 60;
const EXPIRY_S: u32 = 3600; // of the session of all sensors
const MOST_REST_S: u64 = 30; // longest pause between two tries
const READ: usize = 1 << 16;
const TURNS: usize = 16; // reads from one connection until others have their turn

/// What the upstream has done, to be passed on to sensors.
pub enum Done {
    /// It has accepted this sensor, or refused it.
    Admitted(Arc<str>, Code),
    /// This sensor's connection has broken.
    Lost(Arc<str>),
    /// It has answered a SUBSCRIBE: session, filter, message identifier, and answer.
    Subscribed(Arc<Session>, Arc<str>, u16, Result<Qos, Code>),
    /// It has answered a message.
    Answered(Answer, Code),
    /// It has sent a message: the connection's token, and the identifiers of the subscriptions.
    Message(u64, Arc<Kept>, Vec<u32>),
}

struct Held {
    line: Line,
    wire: Option<Wire>,
    writes: bool, // whether the poller waits for room to write
}

/// The broker for which this one is a gateway.
pub struct Upstream {
    shared: Arc<Shared>,
    poller: Arc<Poller>,
    worker: usize,
    address: Address,
    tls: Option<Arc<ClientConfig>>,
    mode: Gateway,
    places: Vec<SocketAddr>,
    is_asking: bool, // whether the upstream's name is being looked up
    version: Version,
    lines: HashMap<u64, Held>,
    clients: HashMap<Arc<str>, u64>,
    next: u64,
    /// Connections that were opened in the present second: the second, how many, and how many by
    /// address.
    opened: (u64, usize, HashMap<Place, u32>),
    done: VecDeque<Done>,
    pending_flush: HashSet<u64>,
    again_s: u64,
    at: usize, // which of `places` is tried, or connected to
    tries: u32,
    said: String,
    room: Vec<u8>,
}

impl Upstream {
    /// The upstream of the settings, not connected yet; none: they name none.
    pub fn new(shared: &Arc<Shared>, worker: usize) -> Option<Self> {
        let settings = &shared.settings.upstream;
        let mut address = settings.url.clone()?;
        let secrets = shared.secrets.get();
        let password = secrets.and_then(|secrets| secrets.password.clone());
        address.password = password.or(address.password);
        let ip = address.host.parse::<IpAddr>().ok();
        let mut upstream = Self {
            poller: Arc::clone(&shared.callers.get(worker)?.poller),
            shared: Arc::clone(shared),
            worker,
            tls: secrets.and_then(|secrets| secrets.tls.clone()),
            mode: settings.mode,
            places: ip
                .map(|ip| SocketAddr::new(ip, address.port))
                .into_iter()
                .collect(),
            address,
            is_asking: false,
            version: Version::V5,
            lines: HashMap::new(),
            clients: HashMap::new(),
            next: LINES + 1,
            opened: (0, 0, HashMap::new()),
            done: VecDeque::new(),
            pending_flush: HashSet::new(),
            again_s: 0,
            at: 0,
            tries: 0,
            said: String::new(),
            room: vec![0; READ],
        };
        upstream.reset();
        Some(upstream)
    }

    /// Close all connections, and begin anew without sensors.
    pub fn reset(&mut self) {
        for (_, held) in self.lines.drain() {
            if let Some(wire) = held.wire {
                self.poller.forget(wire.socket());
            }
        }
        self.clients.clear();
        self.done.clear();
        self.pending_flush.clear();
        self.shared.upstream.connected.store(0, Relaxed);
        let terms = Terms {
            clean: true,
            keep_alive_s: KEEP_ALIVE_S,
            expiry_s: EXPIRY_S,
            will: None,
        };
        let line = self.line(&self.shared.settings.upstream.client, terms);
        self.lines.insert(LINES, line);
    }

    fn line(&self, client: &str, terms: Terms) -> Held {
        Held {
            line: Line::new(client, terms, self.shared.settings.limits.packet),
            wire: None,
            writes: false,
        }
    }

    fn is_up(&self) -> bool {
        self.lines.get(&LINES).is_some_and(|held| held.line.is_up())
    }

    /// The next thing that the upstream has done.
    pub(crate) fn next(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Whether nothing waits to be passed on or written.
    pub fn is_done(&self) -> bool {
        self.done.is_empty() && self.pending_flush.is_empty()
    }

    fn count(&self, what: Count) {
        self.shared.upstream.add(what);
    }

    /// Once a second: see that all connections are alive, and try to connect where none is.
    pub fn tick(&mut self) {
        let now_s = self.shared.now_s();
        let mut late = Vec::new();
        for (token, held) in &mut self.lines {
            match held.line.tick(now_s) {
                Ok(()) => {}
                Err(why) => late.push((*token, why)),
            }
            if !held.line.out.is_empty() {
                self.pending_flush.insert(*token);
            }
        }
        for (token, why) in late {
            self.fail(token, &why, Code::CONGESTION, false);
        }
        let is_open = self
            .lines
            .get(&LINES)
            .is_some_and(|held| held.line.is_open());
        if is_open || now_s < self.again_s || self.is_asking {
            return;
        }
        if self.address.host.parse::<IpAddr>().is_ok() {
            self.open(LINES);
            return;
        }
        // A thread of its own looks up the name, since that may take long.
        self.is_asking = true;
        let (shared, worker) = (Arc::clone(&self.shared), self.worker);
        let (host, port) = (self.address.host.clone(), self.address.port);
        let look_up = move || {
            let found = (&*host, port).to_socket_addrs();
            let found = found
                .map(Iterator::collect)
                .map_err(|error| error.to_string());
            shared.call(worker, Call::Found(found));
        };
        let thread = std::thread::Builder::new().name("upstream".into());
        if let Err(error) = thread.spawn(look_up) {
            self.found(Err(error.to_string()));
        }
    }

    /// The upstream's name was looked up.
    pub fn found(&mut self, places: Result<Vec<SocketAddr>, String>) {
        self.is_asking = false;
        match places {
            Ok(places) if !places.is_empty() => {
                self.places = places;
                self.open(LINES);
            }
            Ok(_) => self.fail(LINES, "its name has no address", Code::CONGESTION, false),
            Err(why) => self.fail(LINES, &why, Code::CONGESTION, false),
        }
    }

    fn open(&mut self, token: u64) {
        let count = self.places.len().max(1);
        let place = self.places.get(self.at % count).copied();
        let Some((held, place)) = self.lines.get_mut(&token).zip(place) else {
            return;
        };
        let wire = Wire::open(place, &self.address, self.tls.as_ref()).and_then(|wire| {
            self.poller.add(wire.socket(), token)?;
            Ok(wire)
        });
        match wire {
            Ok(wire) => {
                let password = self.address.password.as_ref().map(String::as_bytes);
                let login = self.address.user.as_deref().map(|user| (user, password));
                held.line.open(self.shared.now_s(), self.version, login);
                (held.wire, held.writes) = (Some(wire), false);
                self.pending_flush.insert(token);
            }
            Err(error) => self.fail(token, &error.to_string(), Code::CONGESTION, false),
        }
    }

    /// The poller has events for a connection: read what has come.
    pub fn ready(&mut self, token: u64, flags: EpollFlags) {
        let now_s = self.shared.now_s();
        let Some(held) = self.lines.get_mut(&token) else {
            return;
        };
        let Some(wire) = &mut held.wire else { return };
        self.pending_flush.insert(token);
        if !flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            return;
        }
        let mut events = Vec::new();
        let mut end = None;
        for _ in 0..TURNS {
            end = match wire.read(&mut self.room) {
                Ok(0) => Some(("it closed the connection".to_owned(), true)),
                Ok(count) => {
                    let octets = self.room.get(..count).unwrap_or_default();
                    let taken = held.line.take(now_s, octets, &mut events);
                    taken.err().map(|why| (why, true))
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => None,
                Err(error) => {
                    let is_answer = error.kind() == ErrorKind::ConnectionReset;
                    Some((error.to_string(), is_answer))
                }
            };
            if end.is_some() {
                break;
            }
        }
        for event in events {
            self.event(token, event);
        }
        let is_there = |held: &Held| held.wire.is_some(); // else an event has closed it
        if let Some((why, is_answer)) = end
            && self.lines.get(&token).is_some_and(is_there)
        {
            self.fail(token, &why, Code::CONGESTION, is_answer);
        }
    }

    fn event(&mut self, token: u64, event: Event) {
        match event {
            Event::Up => self.came_up(token),
            Event::Refused(reason) => {
                let code = match reason {
                    0x85 | 0x87 => Code::NOT_SUPPORTED, // it does not take this client
                    _ => Code::CONGESTION,
                };
                let why = match reason {
                    0x84 => "it does not speak this MQTT",
                    0x85 => "it does not take the client's identifier",
                    0x86 | 0x87 => "it does not let this user in",
                    _ => "it refused the connection",
                };
                let why = format!("{why} (reason {reason:#04x})");
                self.fail(token, &why, code, reason == 0x84);
            }
            Event::Subscribed {
                who,
                filter,
                message_id,
                answer,
            } => {
                let done = Done::Subscribed(who, filter, message_id, answer);
                self.done.push_back(done);
            }
            Event::Denied(filter) => {
                self.count(Count::Refused);
                let why = "it does not grant what sensors are subscribed to any more";
                let what = format!("upstream {}: {filter:?}: {why}", self.address);
                self.shared.complain(&what);
            }
            Event::Answered(answer, code) => {
                if code != Code::ACCEPTED {
                    self.count(Count::Refused);
                }
                self.done.push_back(Done::Answered(answer, code));
            }
            Event::Message { message, ids } => {
                self.count(Count::Received);
                self.done.push_back(Done::Message(token, message, ids));
            }
        }
    }

    fn came_up(&mut self, token: u64) {
        let Some(held) = self.lines.get_mut(&token) else {
            return;
        };
        if token == LINES {
            held.line.terms.clean = self.version == Version::V3;
            self.tries = 0;
            self.said.clear();
            let version = match self.version {
                Version::V3 => "3.1.1",
                Version::V5 => "5",
            };
            log::notice(&format!(
                "upstream {}: connected, MQTT {version}",
                self.address
            ));
        } else {
            let client = Arc::clone(&held.line.client);
            self.done.push_back(Done::Admitted(client, Code::ACCEPTED));
        }
        self.count(Count::Connections);
        self.shared.upstream.connected.fetch_add(1, Relaxed);
    }

    /// A connection has broken, or is given up. `is_answer`: the reason may be that the upstream
    /// does not speak this version of MQTT.
    fn fail(&mut self, token: u64, why: &str, code: Code, is_answer: bool) {
        let Some(held) = self.lines.get_mut(&token) else {
            return;
        };
        let was_up = held.line.is_up();
        let has_owner = held.line.owner.is_some();
        let client = Arc::clone(&held.line.client);
        let mut events = Vec::new();
        if let Some(wire) = held.wire.take() {
            self.poller.forget(wire.socket());
        }
        held.line.close(&mut events);
        for event in events {
            self.event(token, event);
        }
        self.count(Count::Failures);
        if was_up {
            self.shared.upstream.connected.fetch_sub(1, Relaxed);
        }
        if token != LINES {
            let sensor = format!("upstream {}: {client:?}: {why}", self.address);
            self.shared.complain(&sensor);
            if !was_up && !has_owner {
                self.drop_line(token);
            }
            self.done.push_back(match was_up {
                true => Done::Lost(client),
                false => Done::Admitted(client, code),
            });
            return;
        }
        let now_s = self.shared.now_s();
        if is_answer && !was_up && self.version == Version::V5 {
            self.version = Version::V3; // tried at once
            self.again_s = now_s;
            return;
        }
        self.version = Version::V5; // the next place may be another broker
        self.at += 1;
        self.again_s = now_s + (1 << self.tries.min(5)).min(MOST_REST_S);
        self.tries += 1;
        if self.said != why {
            self.said = why.into();
            log::warning(&format!("upstream {}: away: {why}", self.address));
        }
    }

    fn drop_line(&mut self, token: u64) {
        let Some(held) = self.lines.remove(&token) else {
            return;
        };
        if self.clients.get(&held.line.client) == Some(&token) {
            self.clients.remove(&held.line.client);
        }
        if held.line.is_up() {
            self.shared.upstream.connected.fetch_sub(1, Relaxed);
        }
        if let Some(wire) = held.wire {
            self.poller.forget(wire.socket());
        }
    }

    /// End a connection: with DISCONNECT or, if `is_lost`, without, so that the upstream publishes
    /// the will.
    fn hang_up(&mut self, token: u64, is_lost: bool) {
        let Some(held) = self.lines.get_mut(&token) else {
            return;
        };
        if held.line.is_up() {
            self.shared.upstream.connected.fetch_sub(1, Relaxed);
        }
        let mut events = Vec::new();
        if let Some(mut wire) = held.wire.take() {
            if !is_lost {
                held.line.leave();
                let _ = wire.write(&mut held.line.out); // if it fails, the connection just breaks
            }
            self.poller.forget(wire.socket());
        }
        held.line.close(&mut events);
        for event in events {
            self.event(token, event);
        }
    }

    /// Disconnect all connections.
    pub fn stop(&mut self) {
        let tokens: Vec<_> = self.lines.keys().copied().collect();
        for token in tokens {
            self.hang_up(token, false);
        }
    }

    /// Write what is ready to be sent.
    pub fn flush(&mut self) {
        for token in std::mem::take(&mut self.pending_flush) {
            let Some(held) = self.lines.get_mut(&token) else {
                continue;
            };
            let Some(wire) = &mut held.wire else { continue };
            match wire.write(&mut held.line.out) {
                Ok(writes) if writes != held.writes => {
                    held.writes = writes;
                    self.poller
                        .expect(wire.socket(), token, false, true, writes);
                }
                Ok(_) => {}
                Err(error) => self.fail(token, &error.to_string(), Code::CONGESTION, false),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use mqtick_sn::Entrance;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn sensors_are_connected_to_the_place_of_a_name_that_answers() {
        let mut settings = crate::settings::Settings {
            threads: 1,
            ..Default::default()
        };
        settings.upstream.url = Some("mqtt://two-places.example".parse().unwrap());
        settings.upstream.mode = Gateway::Transparent;
        let shared = Shared::alone(settings, None);
        let mut upstream = Upstream::new(&shared, 0).unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        let places = vec![closed.local_addr().unwrap()];
        drop(closed);
        let there = TcpListener::bind("127.0.0.1:0").unwrap();
        let places = [places, vec![there.local_addr().unwrap()]].concat();
        upstream.found(Ok(places.clone()));
        while upstream.at == 0 {
            upstream.ready(LINES, EpollFlags::EPOLLHUP);
        }
        upstream.found(Ok(places));
        let (mut first, _) = there.accept().unwrap();
        first.write_all(&[0x20, 3, 0, 0, 0]).unwrap();
        while !upstream.is_up() {
            upstream.ready(LINES, EpollFlags::EPOLLIN);
        }
        let entrance = Entrance {
            address: Place::new("10.0.0.2:5000".parse().unwrap(), None).unwrap(),
            client: "sensor",
            clean: true,
            duration_s: 60,
            will: None,
            is_elsewhere: false,
        };
        assert_eq!(upstream.admit(&entrance), Ok(None));
        there.accept().unwrap();
    }
}
