//! Connections to other nodes. Both ends of a link have the same number of them; it is there once
//! all are, and gone once one is.

mod talk;

use crate::connection::Connection;
use crate::manager::{Manager, Place, Role};
use crate::node::{Key, Link, Message};
use crate::settings::{Settings, url};
use crate::topology::{LinkKey, NodeId};
use crate::words::{self, Hello};
use mqtick_broker::log;
use mqtick_broker::settings::Address;
use mqtick_broker::upstream::wire::{Wire, trust};
use mqtick_packet::{Connect, pingreq};
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;

const WINDOW: usize = 512; // messages above QoS 0 under way on one connection
const GREETING_S: u64 = 10;
const MOST_REST_S: u64 = 15; // from one try to the next
const ONE_WORD: usize = 1000; // filters in one SUBSCRIBE
const NOT_ALLOWED: u8 = 0x87;
const OTHER_VERSION: u8 = 0x84;
const ITSELF: u8 = 0x9C; // "use another server"
const NOT_DONE: u8 = 0x80;

/// A node that this one connects to.
pub(crate) struct Dial {
    pub address: Address,
    pub place: Place,
    pub link: Option<Link>,
    again_s: u64,
    rest_s: u64,
    pub said: String,
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
}

type Waiting = (Key, bool, Rc<Message>);

/// One connection of a link.
#[derive(Default)]
struct Wire1 {
    token: Option<u64>,
    is_greeted: bool,
    last_id: u16,
    flying: HashMap<u16, Key>,
    queue: VecDeque<Waiting>,
}

/// All connections of a link.
pub(crate) struct Wires {
    key: LinkKey,
    pub peer: Option<(NodeId, String)>,
    pub place: String,
    dials: bool,
    all: Vec<Wire1>,
    pub is_up: bool,
    since_s: u64,
    /// Octets of the longest packet that it takes.
    most: usize,
    /// What came and is not confirmed: on which connection, with which identifier.
    owed: HashMap<Key, Vec<(u8, u16)>>,
    pub sent: u64,
    pub came: u64,
    pub dropped: u64,
}

impl Wires {
    fn new(key: LinkKey, count: u8, place: String, dials: bool, since_s: u64) -> Self {
        Self {
            key,
            peer: None,
            place,
            dials,
            all: (0..count).map(|_| Wire1::default()).collect(),
            is_up: false,
            since_s,
            most: usize::MAX,
            owed: HashMap::new(),
            sent: 0,
            came: 0,
            dropped: 0,
        }
    }

    /// The neighbour takes no longer packets.
    fn takes(&mut self, most: Option<u32>) {
        self.most = most.map_or(self.most, |most| most as usize);
    }

    /// Messages that wait for the neighbour.
    pub fn waiting(&self) -> usize {
        self.all
            .iter()
            .map(|one| one.queue.len() + one.flying.len())
            .sum()
    }
}

/// Random octets, as a number.
pub(crate) fn random() -> u64 {
    let mut octets = [0; 8];
    // Where the kernel has none the time has to do: it need not be secret.
    if default_provider().secure_random.fill(&mut octets).is_err() {
        return unix_ms().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    u64::from_be_bytes(octets)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Whom to believe that he is a node, and what to show him.
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
    /// Octets of the longest packet that this node takes from neighbours: the tag comes on top of
    /// the packet that a client sent.
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
            let mut slots = wires
                .all
                .iter()
                .filter_map(|one| self.slots.get(&one.token?));
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
            let tokens = up.flat_map(|wires| wires.all.iter().filter_map(|one| one.token));
            let tokens: Vec<u64> = tokens.collect();
            tokens.into_iter().for_each(|token| self.send(token, &ping));
        }
        for number in 0..self.dials.len() {
            let due = |dial: &Dial| dial.link.is_none() && dial.again_s <= now_s && !dial.is_self;
            if self.dials.get(number).is_some_and(due) {
                self.dial(number);
            }
        }
    }

    fn dial(&mut self, number: usize) {
        let now_s = self.site.now_s;
        let Some(dial) = self.dials.get_mut(number) else {
            return;
        };
        dial.again_s = now_s + dial.rest_s;
        dial.rest_s = (2 * dial.rest_s).min(MOST_REST_S);
        let address = dial.address.clone();
        if dial.place.found.is_empty() {
            self.look_up(&address);
        }
        let Some(dial) = self.dials.get_mut(number) else {
            return;
        };
        let Some(at) = dial.place.next() else {
            dial.again_s = now_s; // as soon as it is known
            return;
        };
        let link = self.next_link;
        self.next_link += 1;
        dial.link = Some(link);
        let count = self.settings.neighbours.connections;
        // Both ends order links by it: the time first, in ms, then chance.
        let key = unix_ms() << 20 | random() >> 44;
        let wires = Wires::new(key, count, address.to_string(), true, now_s);
        self.wires.insert(link, wires);
        for index in 0..count {
            let tls = self
                .secrets
                .neighbour_tls
                .as_ref()
                .filter(|_| address.is_tls);
            let opened = Wire::open(at, &address, tls).map_err(|error| error.to_string());
            let role = Role::Link(link, index);
            let token = opened.and_then(|wire| {
                let token = self.add(Connection::made(wire), role);
                token.ok_or_else(|| "no more connections can be waited for".into())
            });
            let token = match token {
                Ok(token) => token,
                Err(why) => return self.link_ended(link, &why, false),
            };
            let hello = Hello {
                node: self.site.node.id(),
                key,
                index,
                count,
                algorithm: self.settings.algorithm.name().into(),
                name: self.settings.name.clone(),
            };
            let mut out = Vec::new();
            let keep_alive_s = self.settings.neighbours.keep_alive_s;
            let (most, secret) = (self.longest(), self.secrets.secret.as_deref());
            hello.encode(&mut out, 3 * keep_alive_s, most as u32, secret);
            self.send(token, &out);
            let wires = self.wires.get_mut(&link);
            if let Some(one) = wires.and_then(|wires| wires.all.get_mut(usize::from(index))) {
                one.token = Some(token);
            }
        }
    }

    /// A node connects to us, or somebody who says so.
    pub(crate) fn greet_neighbour(&mut self, token: u64, connect: &Connect<'_>) {
        let refused = match Hello::parse(connect.client_id) {
            Err(why) => Err((OTHER_VERSION, why)),
            Ok(hello) => self.take_neighbour(token, &hello, connect),
        };
        if let Err((reason, why)) = refused {
            self.counts.strangers += 1;
            let peer = self.slots.get(&token).map(|slot| slot.connection.peer());
            let peer = peer.unwrap_or_default();
            self.stranger_said.warn(self.site.now_s, || {
                format!("a neighbour from {peer} is turned away: {why}")
            });
            let mut out = Vec::new();
            words::refuse(&mut out, reason, &why);
            self.send(token, &out);
            self.over(token);
        }
    }

    fn take_neighbour(
        &mut self,
        token: u64,
        hello: &Hello,
        connect: &Connect<'_>,
    ) -> Result<(), (u8, String)> {
        let not_allowed = |why: &str| Err((NOT_ALLOWED, why.to_owned()));
        let shown = self
            .slots
            .get(&token)
            .and_then(|slot| slot.connection.common_name());
        let names = &self.settings.neighbours.certificate_names;
        let by_name = shown.is_some_and(|shown| names.contains(&shown));
        let by_secret = match (&self.secrets.secret, connect.password) {
            (Some(secret), Some(said)) => secret.ct_eq(said).into(),
            _ => false,
        };
        let needs_name = !names.is_empty();
        let needs_secret = self.secrets.secret.is_some();
        if (needs_name && !by_name) || (needs_secret && !by_secret) {
            return not_allowed("it shows neither the certificate nor the secret of a neighbour");
        }
        if !needs_name && !needs_secret && !self.settings.trusts_anybody() {
            return not_allowed("neither neighbours.secret_file nor certificate_names is set here");
        }
        if hello.node == self.site.node.id() {
            return Err((
                ITSELF,
                "that is this node itself: it is not tried again".into(),
            ));
        }
        if self.removed.contains(&hello.name) {
            return not_allowed("it was removed here, and not added again");
        }
        let algorithm = self.settings.algorithm.name();
        if hello.algorithm != algorithm {
            let why = format!(
                "its algorithm is {:?}, and this node's {algorithm:?}: set the same",
                hello.algorithm
            );
            return Err((NOT_ALLOWED, why));
        }
        let both = (hello.node, hello.key);
        let link = match self.greeted.get(&both) {
            Some(link) => *link,
            None => {
                let link = self.next_link;
                self.next_link += 1;
                let peer = self.slots.get(&token).map(|slot| slot.connection.peer());
                let place = peer.unwrap_or_default();
                let now_s = self.site.now_s;
                let mut wires = Wires::new(hello.key, hello.count, place, false, now_s);
                wires.peer = Some((hello.node, hello.name.clone()));
                self.wires.insert(link, wires);
                self.greeted.insert(both, link);
                link
            }
        };
        let mut wires = self.wires.get_mut(&link);
        if let Some(wires) = &mut wires {
            wires.takes(connect.properties.maximum_packet_size());
        }
        let one = wires.and_then(|wires| wires.all.get_mut(usize::from(hello.index)));
        let Some(one) = one.filter(|one| one.token.is_none()) else {
            return not_allowed("it has this connection already");
        };
        (one.token, one.is_greeted) = (Some(token), true);
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.role = Role::Link(link, hello.index);
        }
        let mut out = Vec::new();
        let most = self.longest() as u32;
        words::welcome(&mut out, self.site.node.id(), &self.settings.name, most);
        self.send(token, &out);
        self.complete(link);
        Ok(())
    }

    /// Whether all connections of a link are there now.
    fn complete(&mut self, link: Link) {
        let Some(wires) = self.wires.get_mut(&link) else {
            return;
        };
        if wires.is_up || !wires.all.iter().all(|one| one.is_greeted) {
            return;
        }
        let Some((peer, name)) = wires.peer.clone() else {
            return;
        };
        wires.is_up = true;
        let (place, key) = (wires.place.clone(), wires.key);
        let tokens: Vec<u64> = wires.all.iter().filter_map(|one| one.token).collect();
        if name == self.settings.name {
            log::warning(&format!(
                "the neighbour at {place} is called {name:?}, too: give each node a name of its own"
            ));
        }
        log::notice(&format!("neighbour {name} at {place}: connected"));
        if let Some(dial) = self.dials.iter_mut().find(|dial| dial.link == Some(link)) {
            dial.rest_s = 1;
            dial.said.clear();
        }
        self.site.node.link_up(link, peer, key, &name);
        self.act();
        tokens.into_iter().for_each(|token| self.process(token)); // what came early
    }

    /// A link is gone; `for_good`: nobody waits for it.
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
            dial.place.found.clear();
            is_new |= dial.said != why;
            dial.said = why.into();
        }
        if is_new {
            log::warning(&format!("{who}: away: {why}"));
        }
        let tokens = wires.all.iter().filter_map(|one| one.token);
        tokens.for_each(|token| self.over(token));
        if wires.is_up {
            self.site.node.link_down(link, for_good);
        }
    }

    /// Connect to one more node.
    ///
    /// # Errors
    /// Where it is there already.
    pub fn add_neighbour(&mut self, address: Address) -> Result<(), String> {
        let same = |dial: &Dial| dial.address.to_string() == address.to_string();
        if self.dials.iter().any(same) {
            return Err(format!("{address} is a neighbour already"));
        }
        if address.is_tls && self.secrets.neighbour_tls.is_none() {
            self.secrets.neighbour_tls = Some(trust_nodes(&self.settings)?);
        }
        self.dials.push(Dial::new(address));
        // Whoever was removed may be meant.
        self.removed.clear();
        self.tick_links(self.site.now_s);
        Ok(())
    }

    /// Part with a neighbour, by its address or its name.
    ///
    /// # Errors
    /// Where there is none.
    pub fn remove_neighbour(&mut self, who: &str) -> Result<(), String> {
        let place = url(who).map_or_else(|_| who.to_owned(), |address| address.to_string());
        let is_it = |wires: &Wires| {
            let is_called = wires.peer.as_ref().is_some_and(|(_, name)| name == who);
            is_called || wires.place == place
        };
        let links: Vec<Link> = self
            .wires
            .iter()
            .filter(|(_, wires)| is_it(wires))
            .map(|(link, _)| *link)
            .collect();
        let before = self.dials.len();
        self.dials.retain(|dial| {
            let is_linked = dial.link.is_some_and(|link| links.contains(&link));
            !is_linked && dial.address.to_string() != place
        });
        if links.is_empty() && self.dials.len() == before {
            return Err(format!("no neighbour is called {who}, or is there"));
        }
        for link in links {
            let name = self.wires.get(&link).and_then(|wires| wires.peer.clone());
            self.removed.extend(name.map(|(_, name)| name));
            self.link_ended(link, "it was removed", true);
        }
        Ok(())
    }
}
