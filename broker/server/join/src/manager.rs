//! The session manager: all connections, and the loop that serves them, in one thread.
//!
//! What is read from a client, or for one, is relayed at once. Then the node's actions are done,
//! before the next connection has its turn. At the end of a round all other octets are written, each
//! connection once.

mod ending;
mod first;
mod names;
mod neighbours;
mod pairs;
mod reader;
mod sockets;
mod token;

use crate::client::{Paired, Site};
use crate::connection::Connection;
use crate::cooperation::Source;
use crate::delivery::{Delivery, Takes2};
use crate::message::Link;
use crate::node::Node;
use crate::rarely::Rarely;
use crate::residence::Residence;
use crate::sessions::Sessions;
use crate::settings::{Reliability, Settings};
use crate::topology::{LinkKey, NodeId};
use mqtick_access::Rules;
use mqtick_net::listener::Listener;
use mqtick_net::poller::Poller;
use mqtick_net::settings::Address;
use mqtick_packet::Version;
use names::Found;
use names::Place;
use neighbours::Wires;
pub(crate) use neighbours::{Dial, random, trust_nodes};
use nix::sys::epoll::EpollFlags;
use rustls::ClientConfig;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use token::ByNumber;

const EARLY: usize = 1 << 16; // octets that a client may send before the broker has answered
const READ: usize = 1 << 16;
const TURNS: usize = 8; // reads until other connections have their turn
const DRAIN_S: u64 = 5; // in which the last octets have to be written
const LISTENERS: u64 = 1 << 62; // the first token of a listener
const BESIDE: u64 = u64::MAX - 2; // the token of files that the caller watches

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Not known yet: no CONNECT has come.
    New,
    /// A client.
    Client,
    /// To the broker, for the client with this token.
    Paired(u64),
    /// To the broker, for messages from other sites: the session with this number.
    Delivery(usize),
    /// To the broker, to read its retained messages.
    Reader,
    /// The connection of a link with this number.
    Link(Link, u8),
    /// Ended, except for octets that are left to be written.
    Over,
}

/// A connection and its state.
pub(crate) struct Slot {
    pub connection: Connection,
    pub role: Role,
    /// When it began.
    pub since_s: u64,
    /// When something came last.
    pub heard_s: u64,
    /// Whether anything has come.
    pub was_answered: bool,
    /// The client has left, but some of what it sent is not processed yet.
    pub has_left: bool,
    /// This connection to the broker was for the client of this name, which has left.
    pub leaves: Option<Arc<str>>,
}

/// A client and the token of its paired connection to the broker.
pub(crate) struct Pair {
    pub paired: Paired,
    pub broker: u64,
}

/// The contents of the files that the settings name.
#[derive(Default)]
pub struct Secrets {
    /// The password of the node's account at the broker.
    pub password: Option<Vec<u8>>,
    /// The secret that all nodes share.
    pub secret: Option<Vec<u8>>,
    /// For a broker with TLS.
    pub broker_tls: Option<Arc<ClientConfig>>,
    /// For neighbours with TLS.
    pub neighbour_tls: Option<Arc<ClientConfig>>,
}

/// What is counted here, beside [`crate::node::Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// PUBLISH packets from clients.
    pub published: u64,
    /// PUBLISH packets to clients.
    pub received: u64,
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections refused because limits.connections was reached.
    pub full: u64,
    /// Connections that ended because the other end broke the protocol.
    pub refused: u64,
    /// Messages of QoS 0 that were dropped because a neighbour was slow.
    pub dropped: u64,
    /// Messages that were too long for a neighbour.
    pub too_long: u64,
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
    pub(crate) slots: HashMap<u64, Slot, ByNumber>,
    next_token: u64,
    pub(crate) pairs: HashMap<u64, Pair, ByNumber>,
    pub(crate) wires: BTreeMap<Link, Wires>,
    pub(crate) greeted: HashMap<(NodeId, LinkKey), Link>,
    pub(crate) next_link: Link,
    pub(crate) dials: Vec<Dial>,
    pub(crate) removed: BTreeSet<String>,
    pub(crate) stranger_said: Rarely,
    pub(crate) length_said: Rarely,
    pub(crate) deliveries: Vec<(Delivery, Option<u64>)>,
    pub(crate) takes_2: Takes2,
    pub(crate) reader: reader::Reader,
    pub(crate) broker: Address,
    pub(crate) broker_place: Place,
    pub(crate) broker_said: String,
    resolver: (Sender<Found>, Receiver<Found>),
    events: Vec<(u64, EpollFlags)>,
    /// Connections that may have octets to write, or have to be waited for in another way.
    pub(crate) dirty: Vec<u64>,
    flushed: Vec<u64>, // kept only for its allocation
    /// Connections whose next packet has to wait.
    pub(crate) blocked: HashSet<u64>,
    /// Clients that have left, while the broker still reads what they sent. For each name: the
    /// connection to the broker, and new connections of that name, which wait until the broker is done.
    pub(crate) leaving: HashMap<Arc<str>, (u64, Vec<u64>)>,
    /// What is counted.
    pub counts: Counts,
    /// The last reload: the changed settings that need a restart, or why it failed.
    pub(crate) reloaded: Result<Vec<&'static str>, String>,
    /// The program ends: clients are no longer read from.
    pub(crate) is_ending: bool,
    full_said: Rarely,
    accept_said: Rarely,
    start: Instant,
    room: Vec<u8>,
}

impl Manager {
    /// A node without connections.
    ///
    /// # Errors
    /// The system has no room for a poller.
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
        let takes_2 = Takes2::default();
        let deliveries = (0..settings.broker.connections).map(|number| {
            let name = format!("mqtick-join-{}-{number}", settings.name);
            (Delivery::new(name, Rc::clone(&takes_2)), None)
        });
        let deliveries = deliveries.collect();
        let reader = reader::Reader::new(format!("mqtick-join-{}-retained", settings.name));
        let mut node = Node::new(id, &settings.name, settings.algorithm, settings.absence_s);
        node.retained.most_octets = settings.limits.retained;
        let site = Site {
            node,
            sessions: Sessions::default(),
            rules,
            waits_for_all: settings.reliability == Reliability::All,
            waiting: HashMap::new(),
            denied: 0,
            residence: Residence::new(settings.time_filters.clone(), settings.residence),
            came: None,
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
            slots: HashMap::default(),
            next_token: 0,
            pairs: HashMap::default(),
            wires: BTreeMap::new(),
            greeted: HashMap::new(),
            next_link: 1,
            dials,
            removed: BTreeSet::new(),
            stranger_said: Rarely::default(),
            length_said: Rarely::default(),
            deliveries,
            takes_2,
            reader,
            broker,
            broker_place: Place::default(),
            broker_said: String::new(),
            resolver: channel(),
            events: Vec::new(),
            dirty: Vec::new(),
            flushed: Vec::new(),
            blocked: HashSet::new(),
            leaving: HashMap::new(),
            counts: Counts::default(),
            reloaded: Ok(Vec::new()),
            is_ending: false,
            full_said: Rarely::default(),
            accept_said: Rarely::default(),
            start: Instant::now(),
            room: vec![0; READ],
        })
    }

    /// Restore the kept sessions of clients.
    ///
    /// # Errors
    /// The number of the first malformed line.
    pub fn restore(&mut self, text: &str) -> Result<(), usize> {
        let filters = self.site.sessions.restore(text, self.site.now_s)?;
        self.site.node.subscribed(Source::Local, &filters);
        Ok(())
    }

    /// Watch a file, too: a turn ends when there is something to read in it.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn watch(&self, file: impl AsFd) -> Result<(), String> {
        let watched = self.poller.add(file, BESIDE);
        watched.map_err(|error| error.to_string())
    }

    /// Serve all connections that are ready. If none is, wait for so many milliseconds, but not beyond
    /// this second. Returns whether there is something to read in a watched file.
    pub fn turn(&mut self, milliseconds: u16) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let has_work = self.site.sessions.is_leaving();
        let left = 1000 - self.start.elapsed().subsec_millis() as u16; // at least 1
        let wait = if has_work { 0 } else { milliseconds.min(left) };
        self.poller.wait(&mut events, wait);
        let mut is_asked = false;
        let now_s = self.start.elapsed().as_secs();
        if now_s != self.site.now_s {
            self.site.now_s = now_s;
            self.tick(now_s);
        }
        for (token, flags) in events.drain(..) {
            match token {
                mqtick_net::poller::CALLED => self.found(),
                BESIDE => is_asked = true,
                LISTENERS.. => self.accept(token),
                _ => self.ready(token, flags),
            }
        }
        self.events = events;
        if has_work {
            let gone = self.site.sessions.leave();
            self.site.node.unsubscribed(Source::Local, &gone);
        }
        self.act();
        self.flush();
        is_asked
    }

    fn tick(&mut self, now_s: u64) {
        let gone = self.site.sessions.tick(now_s);
        self.site.node.unsubscribed(Source::Local, &gone);
        for will in self.site.sessions.due_wills(now_s) {
            crate::client::publish_will(&mut self.site, will);
        }
        self.site.node.tick(now_s);
        self.act();
        self.tick_deliveries(now_s);
        self.tick_reader(now_s);
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
        let unanswered = self.pairs.iter().filter(|(token, pair)| {
            let since_s = self.slots.get(token).map_or(0, |slot| slot.since_s);
            !pair.paired.is_up() && since_s + limit_s < now_s
        });
        let unanswered: Vec<_> = unanswered
            .map(|(token, pair)| (*token, pair.broker))
            .collect();
        for (token, broker) in unanswered {
            self.end_pair(token, broker);
        }
        self.unblock();
    }

    /// Process packets that had to wait, if there is room now.
    pub(crate) fn unblock(&mut self) {
        if self.site.node.has_room() {
            for token in std::mem::take(&mut self.blocked) {
                self.process(token);
                self.dirty.push(token); // it is to be read from again
            }
        }
    }
}

/// The CONNACK that refuses a client.
pub(crate) fn refusal(version: Version, reason: u8) -> Vec<u8> {
    let mut out = Vec::new();
    mqtick_packet::connack(&mut out, version, false, reason, &Default::default());
    out
}

/// The reason code if there is no broker.
pub(crate) const UNAVAILABLE: u8 = 0x88;
