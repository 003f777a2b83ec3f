//! The session manager: all connections, and the loop that serves them.
//!
//! One thread. What is read from a client or for one is relayed at once, before anything else is
//! done; what the node says then is done before the next connection has its turn; and at the end of a
//! round each other connection that has something to write is written to once.

mod ending;
mod names;
mod reader;
mod sockets;
mod token;

use crate::client::{Paired, Site};
use crate::connection::Connection;
use crate::cooperation::Source;
use crate::delivery::{Lane, Takes2};
use crate::neighbours::{Dial, Wires};
use crate::node::{Link, Node};
use crate::rarely::Rarely;
use crate::residence::Residence;
use crate::sessions::Sessions;
use crate::settings::{Reliability, Settings};
use crate::topology::{LinkKey, NodeId};
use mqtick_access::Rules;
use mqtick_broker::listener::Listener;
use mqtick_broker::poller::Poller;
use mqtick_broker::settings::Address;
use mqtick_packet::Version;
use names::Found;
pub(crate) use names::Place;
use nix::sys::epoll::EpollFlags;
use rustls::ClientConfig;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;
use token::ByNumber;

/// Octets that wait for one side of a pair until the other is not read from.
pub(crate) const HIGH: usize = 1 << 20;
const EARLY: usize = 1 << 16; // octets before the broker has answered
const READ: usize = 1 << 16;
const TURNS: usize = 8; // reads until others have their turn
const DRAIN_S: u64 = 5;
const LISTENERS: u64 = 1 << 62; // their tokens
const BESIDE: u64 = u64::MAX - 2; // of what is none of a node's business

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
    /// To the broker, for what it has retained.
    Reader,
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
    /// To the broker, for this client that has left.
    pub leaves: Option<Arc<str>>,
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

/// What is counted beside what the node counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// PUBLISH packets of clients.
    pub published: u64,
    /// PUBLISH packets to clients.
    pub received: u64,
    /// Connections that were taken.
    pub accepted: u64,
    /// Connections for which there was no room.
    pub full: u64,
    /// Packets that were malformed, or said what they may not.
    pub refused: u64,
    /// Messages of QoS 0 for which a neighbour had no room.
    pub dropped: u64,
    /// Messages that are longer than a neighbour takes.
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
    pub(crate) lanes: Vec<(Lane, Option<u64>)>,
    pub(crate) takes_2: Takes2,
    pub(crate) reader: reader::Reader,
    pub(crate) broker: Address,
    pub(crate) broker_place: Place,
    pub(crate) broker_said: String,
    resolver: (Sender<Found>, Receiver<Found>),
    events: Vec<(u64, EpollFlags)>,
    pub(crate) dirty: Vec<u64>,
    flushed: Vec<u64>, // of no use but for its room
    /// Clients whose next packet has to wait.
    pub(crate) blocked: HashSet<u64>,
    /// Clients that have left, while the broker still reads what they sent: on which connection, and
    /// who has come under the same name, and waits until the broker has it.
    pub(crate) leaving: HashMap<Arc<str>, (u64, Vec<u64>)>,
    /// What is counted.
    pub counts: Counts,
    /// What of the configuration, read again, holds from the next start on; or why it was not read.
    pub(crate) reloaded: Result<Vec<&'static str>, String>,
    /// The program ends: nothing more is taken from clients.
    pub(crate) is_ending: bool,
    others_kept: String,
    full_said: Rarely,
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
        let takes_2 = Takes2::default();
        let lanes = (0..settings.broker.connections).map(|number| {
            let name = format!("mqtick-join-{}-{number}", settings.name);
            (Lane::new(name, Rc::clone(&takes_2)), None)
        });
        let lanes = lanes.collect();
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
            lanes,
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
            others_kept: String::new(),
            full_said: Rarely::default(),
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

    /// What the other nodes are called, a line each, where that has changed.
    pub(crate) fn others(&mut self) -> Option<String> {
        let names = self.site.node.others().into_iter();
        let text: String = names.map(|name| format!("{name}\n")).collect();
        (self.others_kept != text).then(|| {
            self.others_kept.clone_from(&text);
            text
        })
    }

    /// Have a turn end where there is something to read here, too.
    ///
    /// # Errors
    /// What the system has no room for.
    pub fn watch(&self, file: impl AsFd) -> Result<(), String> {
        let watched = self.poller.add(file, BESIDE);
        watched.map_err(|error| error.to_string())
    }

    /// Serve whatever is ready, or comes within so many milliseconds and this second. Whether there is
    /// something to read where [`Self::watch`] looks.
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
                mqtick_broker::poller::CALLED => self.found(),
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
        self.tick_lanes(now_s);
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
}

/// A client is told that it cannot connect.
pub(crate) fn refusal(version: Version, reason: u8) -> Vec<u8> {
    let mut out = Vec::new();
    mqtick_packet::connack(&mut out, version, false, reason, &Default::default());
    out
}

/// The reason where there is no broker.
pub(crate) const UNAVAILABLE: u8 = 0x88;
