//! Links to other nodes. A link has several connections. It is up once all of them are, and down once
//! one of them is.

mod greeting;
mod talk;

use super::{Manager, Place};
use crate::message::{Key, Link, Message};
use crate::settings::{Settings, url};
use crate::topology::{LinkKey, NodeId};
use mqtick_net::log;
use mqtick_net::settings::Address;
use mqtick_net::wire::trust;
use mqtick_packet::pingreq;
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const WINDOW: usize = 512; // unacknowledged messages above QoS 0 on one connection
const GREETING_S: u64 = 10; // in which all connections of a link have to be there
const MOST_REST_S: u64 = 15; // the longest time from one try to the next
const MOST_FILTERS: usize = 1000; // in one SUBSCRIBE
const ITSELF: u8 = 0x9C; // the reason code "use another server"
const NOT_DONE: u8 = 0x80;
/// After a retained message was dropped for a slow neighbour or broker: seconds without another one,
/// until it gets all retained messages again.
pub(crate) const CALM_S: u64 = 5;

/// A neighbour that this node connects to.
pub(crate) struct Dial {
    pub address: Address,
    pub place: Place,
    pub link: Option<Link>,
    /// When to try again, and how long to wait after that try.
    again_s: u64,
    rest_s: u64,
    /// Why the last try failed.
    pub said: String,
    /// The address leads to this node itself, so it is not tried again.
    pub is_self: bool,
}

impl Dial {
    pub fn new(address: Address) -> Self {
        Self {
            address,
            place: Place::default(),
            link: None,
            again_s: 0,
            rest_s: 1,
            said: String::new(),
            is_self: false,
        }
    }

    /// Its name could not be looked up. Returns whether this is news.
    pub fn is_unknown(&mut self, why: &str, now_s: u64) -> bool {
        self.again_s = now_s + self.rest_s;
        let is_new = self.said != why;
        self.said = why.into();
        is_new
    }
}

/// A message for a neighbour, with its attempt.
type Waiting = (Key, u32, Rc<Message>);

/// One connection of a link.
#[derive(Default)]
struct LinkConnection {
    token: Option<u64>,
    is_greeted: bool,
    /// The neighbour has asked for retained messages here, but not on all connections yet.
    has_asked: bool,
    last_id: u16,
    /// Messages that the neighbour has not acknowledged, by packet identifier.
    flying: HashMap<u16, (Key, u32)>,
    /// Messages that wait until fewer are unacknowledged.
    queue: VecDeque<Waiting>,
}

/// All connections of a link.
pub(crate) struct Wires {
    key: LinkKey,
    /// The neighbour and its name, once known.
    pub peer: Option<(NodeId, String)>,
    /// The neighbour's address.
    pub place: String,
    /// Whether this node made the connections, and if so, whether with TLS.
    dials: bool,
    is_tls: bool,
    /// The secret that the neighbour showed, if it made the connections.
    secret: Option<Vec<u8>>,
    all: Vec<LinkConnection>,
    pub is_up: bool,
    since_s: u64,
    /// Octets of the longest packet that the neighbour takes.
    most: usize,
    /// Messages from the neighbour that are not confirmed to it: for each attempt, the connections and
    /// packet identifiers to acknowledge.
    owed: HashMap<(Key, u32), Vec<(u8, u16)>>,
    owed_count: usize,
    pub sent: u64,
    pub came: u64,
    pub dropped: u64,
    /// When a retained message was last dropped for this neighbour, unless it has got all retained
    /// messages since.
    missed_s: Option<u64>,
}

impl Wires {
    fn new(key: LinkKey, count: u8, place: String, dials: bool, since_s: u64) -> Self {
        Self {
            key,
            peer: None,
            place,
            dials,
            is_tls: false,
            secret: None,
            all: (0..count).map(|_| LinkConnection::default()).collect(),
            is_up: false,
            since_s,
            most: usize::MAX,
            owed: HashMap::new(),
            owed_count: 0,
            sent: 0,
            came: 0,
            dropped: 0,
            missed_s: None,
        }
    }

    /// The neighbour has said how long a packet may be.
    fn takes(&mut self, most: Option<u32>) {
        self.most = most.map_or(self.most, |most| most as usize);
    }

    /// The tokens of the connections that are there.
    fn tokens(&self) -> impl Iterator<Item = u64> {
        self.all.iter().filter_map(|one| one.token)
    }

    /// How many messages wait for the neighbour.
    pub fn waiting(&self) -> usize {
        let waiting = |one: &LinkConnection| one.queue.len() + one.flying.len();
        self.all.iter().map(waiting).sum()
    }
}

/// A random number.
pub(crate) fn random() -> u64 {
    let mut octets = [0; 8];
    // If the kernel has no random octets, the time will do: the number need not be secret.
    if default_provider().secure_random.fill(&mut octets).is_err() {
        return unix_ms().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    u64::from_be_bytes(octets)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Which certificates of neighbours are trusted, and the one that this node shows.
///
/// # Errors
/// What is wrong with a file.
pub(crate) fn trust_nodes(settings: &Settings) -> Result<Arc<ClientConfig>, String> {
    let nodes = &settings.neighbours;
    trust(
        &nodes.ca_file,
        nodes.certificate.as_deref().zip(nodes.key.as_deref()),
    )
}

impl Manager {
    /// Octets of the longest packet that this node takes from neighbours: that of a client, and what
    /// nodes add to it.
    fn longest(&self) -> usize {
        const TAG: usize = 1 << 18;
        (self.settings.limits.packet + TAG).min(mqtick_packet::MAXIMUM_LENGTH)
    }

    // -- connecting --------------------------------------------------------------------------------

    pub(crate) fn tick_links(&mut self, now_s: u64) {
        let keep_alive_s = u64::from(self.settings.neighbours.keep_alive_s);
        let mut late = Vec::new();
        for (link, wires) in &self.wires {
            if !wires.is_up && wires.since_s + GREETING_S < now_s {
                late.push((*link, "no answer"));
            }
            let mut slots = wires.tokens().filter_map(|token| self.slots.get(&token));
            if wires.is_up && slots.any(|slot| slot.heard_s + 3 * keep_alive_s < now_s) {
                late.push((*link, "it is silent"));
            }
        }
        for (link, why) in late {
            self.link_ended(link, why, false);
        }
        if now_s.is_multiple_of(keep_alive_s) {
            let mut ping = Vec::new();
            pingreq(&mut ping);
            let up = self.wires.values().filter(|wires| wires.is_up);
            let tokens: Vec<u64> = up.flat_map(Wires::tokens).collect();
            tokens.into_iter().for_each(|token| self.send(token, &ping));
        }
        for (link, wires) in &mut self.wires {
            let slot = |token| self.slots.get(&token);
            let waits = |token| slot(token).is_some_and(|slot| slot.connection.waiting() > 0);
            let is_slow =
                wires.tokens().any(waits) || wires.all.iter().any(|one| !one.queue.is_empty());
            let is_calm = |missed_s: &mut u64| *missed_s + CALM_S <= now_s && !is_slow;
            if wires.missed_s.take_if(is_calm).is_some() {
                self.reader.ask(*link);
            }
        }
        for number in 0..self.dials.len() {
            let due = |dial: &Dial| dial.link.is_none() && dial.again_s <= now_s && !dial.is_self;
            if self.dials.get(number).is_some_and(due) {
                self.dial(number);
            }
        }
    }

    /// A link is gone. `for_good`: no message waits for the neighbour.
    pub(crate) fn link_ended(&mut self, link: Link, why: &str, for_good: bool) {
        let Some(wires) = self.wires.remove(&link) else {
            return;
        };
        let name = wires.peer.as_ref().map(|(_, name)| name.as_str());
        let who = format!("neighbour {} at {}", name.unwrap_or("?"), wires.place);
        if let Some((peer, _)) = &wires.peer {
            self.greeted.remove(&(*peer, wires.key));
        }
        let now_s = self.site.now_s;
        let mut is_new = wires.is_up;
        if let Some(dial) = self.dials.iter_mut().find(|dial| dial.link == Some(link)) {
            dial.link = None;
            dial.again_s = now_s + dial.rest_s;
            dial.place.away(wires.is_up);
            is_new |= dial.said != why;
            dial.said = why.into();
        }
        if is_new {
            log::warning(&format!("{who}: away: {why}"));
        }
        wires.tokens().for_each(|token| self.over(token));
        if wires.is_up {
            self.site.node.link_down(link, for_good);
        }
    }

    /// Connect to one more neighbour.
    ///
    /// # Errors
    /// It is a neighbour already, or a file for TLS is wrong.
    pub fn add_neighbour(&mut self, address: Address) -> Result<(), String> {
        let same = |dial: &Dial| dial.address.to_string() == address.to_string();
        if self.dials.iter().any(same) {
            return Err(format!("{address} is a neighbour already"));
        }
        if address.is_tls && self.secrets.neighbour_tls.is_none() {
            self.secrets.neighbour_tls = Some(trust_nodes(&self.settings)?);
        }
        self.dials.push(Dial::new(address));
        // The address may lead to a node that was removed by name.
        self.removed.clear();
        self.tick_links(self.site.now_s);
        Ok(())
    }

    /// Part with a neighbour, given by its address or its name.
    ///
    /// # Errors
    /// There is no such neighbour.
    pub fn remove_neighbour(&mut self, who: &str) -> Result<(), String> {
        let place = url(who).map_or_else(|_| who.to_owned(), |address| address.to_string());
        let is_it = |wires: &Wires| {
            let is_called = wires.peer.as_ref().is_some_and(|(_, name)| name == who);
            is_called || wires.place == place
        };
        let links = self.wires.iter().filter(|(_, wires)| is_it(wires));
        let links: Vec<Link> = links.map(|(link, _)| *link).collect();
        let before = self.dials.len();
        self.dials.retain(|dial| {
            let is_linked = dial.link.is_some_and(|link| links.contains(&link));
            !is_linked && dial.address.to_string() != place
        });
        if links.is_empty() && self.dials.len() == before {
            return Err(format!(
                "no neighbour has the name or address {who}; see status"
            ));
        }
        for link in links {
            let name = self.wires.get(&link).and_then(|wires| wires.peer.clone());
            self.removed.extend(name.map(|(_, name)| name));
            self.link_ended(link, "it was removed", true);
        }
        Ok(())
    }
}
