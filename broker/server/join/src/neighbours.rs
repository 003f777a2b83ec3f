//! Connections to other nodes. Both ends of a link have the same number of them; it is there once
//! all are, and gone once one is.

use crate::connection::Connection;
use crate::cooperation::{Say, Source};
use crate::manager::{Manager, Place, Role};
use crate::node::{Action, Key, Link, Message};
use crate::settings::{Settings, url};
use crate::topology::{LinkKey, NodeId, State};
use crate::words::{self, Hello};
use mqtick_broker::log;
use mqtick_broker::settings::Address;
use mqtick_broker::upstream::wire::{Wire, trust};
use mqtick_packet::{
    AckKind, Connect, Packet, Qos, Version, ack, decode, frame, pingreq, pingresp, suback,
    subscribe, unsuback, unsubscribe,
};
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
            owed: HashMap::new(),
            sent: 0,
            came: 0,
            dropped: 0,
        }
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
            hello.encode(&mut out, 3 * keep_alive_s, self.secrets.secret.as_deref());
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
            log::warning(&format!("a neighbour from {peer} is turned away: {why}"));
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
        let wires = self.wires.get_mut(&link);
        let one = wires.and_then(|wires| wires.all.get_mut(usize::from(hello.index)));
        let Some(one) = one.filter(|one| one.token.is_none()) else {
            return not_allowed("it has this connection already");
        };
        (one.token, one.is_greeted) = (Some(token), true);
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.role = Role::Link(link, hello.index);
        }
        let mut out = Vec::new();
        words::welcome(&mut out, self.site.node.id(), &self.settings.name);
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

    // -- words -------------------------------------------------------------------------------------

    pub(crate) fn neighbour_says(
        &mut self,
        link: Link,
        index: u8,
        input: &[u8],
    ) -> Result<usize, String> {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(wires) = self.wires.get(&link) else {
                return Ok(input.len());
            };
            let greets = wires.dials
                && wires
                    .all
                    .get(usize::from(index))
                    .is_some_and(|one| !one.is_greeted);
            if !wires.is_up && !greets {
                return Ok(at);
            }
            // Its tag comes on top of the packet that a client sent.
            let most = self.settings.limits.packet.saturating_add(1 << 18);
            let found = frame(rest, most).map_err(|error| error.to_string())?;
            let Some(found) = found else {
                break;
            };
            let packet = decode(&found, Version::V5).map_err(|error| error.to_string())?;
            at += found.length;
            match packet {
                Packet::Connack(connack) if greets => {
                    let why = connack
                        .properties
                        .reason_string()
                        .unwrap_or("it gives no reason");
                    if connack.reason != 0 {
                        let dial = self.dials.iter_mut().find(|dial| dial.link == Some(link));
                        if let Some(dial) = dial.filter(|_| connack.reason == ITSELF) {
                            dial.is_self = true;
                        }
                        return Err(format!("it refuses us: {why}"));
                    }
                    self.welcomed(link, index, connack.properties.assigned_client_id())?;
                }
                _ if greets => return Err("its first packet is no CONNACK".into()),
                packet => self.hear(link, index, &packet)?,
            }
        }
        Ok(at)
    }

    fn welcomed(&mut self, link: Link, index: u8, assigned: Option<&str>) -> Result<(), String> {
        let (peer, name) = words::parse_welcome(assigned)?;
        if self.removed.contains(&name) {
            return Err(format!("{name} was removed, and not added again"));
        }
        let Some(wires) = self.wires.get_mut(&link) else {
            return Ok(());
        };
        let who = (peer, name);
        if wires.peer.get_or_insert_with(|| who.clone()) != &who {
            return Err("its connections lead to different nodes".into());
        }
        if let Some(one) = wires.all.get_mut(usize::from(index)) {
            one.is_greeted = true;
        }
        self.complete(link);
        Ok(())
    }

    fn hear(&mut self, link: Link, index: u8, packet: &Packet<'_>) -> Result<(), String> {
        let Some(wires) = self.wires.get_mut(&link) else {
            return Ok(());
        };
        let Some(one) = wires.all.get_mut(usize::from(index)) else {
            return Ok(());
        };
        let Some(token) = one.token else {
            return Ok(());
        };
        let by = Source::Link(link);
        let mut out = Vec::new();
        match packet {
            Packet::Publish(publish) if publish.topic == words::TOPOLOGY => {
                let state = State::parse(publish.payload).ok_or("a malformed topology")?;
                self.site.node.state(link, &state);
            }
            Packet::Publish(publish) => {
                let (key, again, message) = words::parse_message(publish)?;
                wires.came += 1;
                if message.qos != Qos::AtMostOnce {
                    wires.owed.entry(key).or_default().push((index, publish.id));
                }
                self.site.node.arrived(link, key, again, message);
            }
            Packet::Subscribe(subscribe) => {
                let filters: Vec<Arc<str>> =
                    subscribe.filters().map(|one| one.filter.into()).collect();
                let is_valid =
                    |one: &Arc<str>| mqtick_topics::valid_filter(one) && !one.starts_with('$');
                if !filters.iter().all(is_valid) {
                    return Err("a filter that is none, or not for others".into());
                }
                suback(&mut out, Version::V5, subscribe.id, &vec![0; filters.len()]);
                self.site.node.subscribed(by, &filters);
            }
            Packet::Unsubscribe(unsubscribe) => {
                let filters: Vec<Arc<str>> = unsubscribe.filters().map(Into::into).collect();
                unsuback(
                    &mut out,
                    Version::V5,
                    unsubscribe.id,
                    &vec![0; filters.len()],
                );
                self.site.node.unsubscribed(by, &filters);
            }
            Packet::Ack(one_ack) if one_ack.kind == AckKind::Puback => {
                if let Some(key) = one.flying.remove(&one_ack.id) {
                    let next = one.queue.pop_front();
                    self.site
                        .node
                        .confirmed(link, key, one_ack.reason < NOT_DONE);
                    if let Some((key, again, message)) = next {
                        self.pass(link, key, again, message);
                    }
                }
            }
            Packet::Pingreq => pingresp(&mut out),
            Packet::Pingresp | Packet::Suback(_) | Packet::Unsuback(_) => {}
            Packet::Disconnect(_) => return Err("it says good-bye".into()),
            _ => return Err("a packet that no neighbour sends".into()),
        }
        self.send(token, &out);
        self.act();
        Ok(())
    }

    /// Do what the node says.
    pub(crate) fn act(&mut self) {
        let mut released = false;
        while let Some(action) = self.site.node.next_action() {
            match action {
                Action::State(link, state) => {
                    let mut out = Vec::new();
                    words::topology(&mut out, &state);
                    self.tell(link, &out);
                }
                Action::Say(say) => self.say(say),
                Action::Send {
                    link,
                    key,
                    again,
                    message,
                } => self.pass(link, key, again, message),
                Action::Confirm { link, key, done } => {
                    let wires = self.wires.get_mut(&link);
                    let owed = wires.and_then(|wires| wires.owed.remove(&key));
                    for (index, id) in owed.unwrap_or_default() {
                        let mut out = Vec::new();
                        let reason = if done { 0 } else { NOT_DONE };
                        ack(&mut out, Version::V5, AckKind::Puback, id, reason);
                        self.tell_on(link, index, &out);
                    }
                }
                Action::Deliver(key, message) => self.deliver(key, message),
                Action::Release(key) => {
                    released = true;
                    self.release(key);
                }
                Action::TreeChanged => {
                    let tree = &self.site.node.tree;
                    let (nodes, links) = (tree.nodes.len(), tree.links.len());
                    log::notice(&format!("the tree has {nodes} nodes and {links} links"));
                }
            }
        }
        if released && !self.blocked.is_empty() {
            self.unblock();
        }
    }

    fn tell(&mut self, link: Link, octets: &[u8]) {
        self.tell_on(link, 0, octets);
    }

    fn tell_on(&mut self, link: Link, index: u8, octets: &[u8]) {
        let wires = self.wires.get(&link);
        let one = wires.and_then(|wires| wires.all.get(usize::from(index)));
        if let Some(token) = one.and_then(|one| one.token) {
            self.send(token, octets);
        }
    }

    /// What the node says of one neighbour in one go fits few packets.
    fn say(&mut self, first: Say) {
        const ID: u16 = 1; // the answers are not waited for: a link keeps its order
        let (link, is_wanted, filter) = taken_apart(first);
        let mut filters = vec![filter];
        while filters.len() < ONE_WORD
            && let Some(next) = self.site.node.next_if(|next| match next {
                Say::Subscribe(to, _) => is_wanted && *to == link,
                Say::Unsubscribe(to, _) => !is_wanted && *to == link,
            })
        {
            filters.push(taken_apart(next).2);
        }
        let mut out = Vec::new();
        match is_wanted {
            true => {
                let all: Vec<_> = filters
                    .iter()
                    .map(|one| (&**one, Qos::ExactlyOnce))
                    .collect();
                subscribe(&mut out, Version::V5, ID, &all);
            }
            false => {
                let all: Vec<_> = filters.iter().map(|one| &**one).collect();
                unsubscribe(&mut out, Version::V5, ID, &all);
            }
        }
        self.tell(link, &out);
    }

    fn pass(&mut self, link: Link, key: Key, again: bool, message: Rc<Message>) {
        let most = self.settings.limits.queue;
        let Some(wires) = self.wires.get_mut(&link) else {
            return;
        };
        let index = usize::from(key.lane) % wires.all.len().max(1);
        let Some(one) = wires.all.get_mut(index) else {
            return;
        };
        let Some((token, slot)) = one
            .token
            .and_then(|token| Some((token, self.slots.get(&token)?)))
        else {
            return;
        };
        let mut id = 0;
        if message.qos == Qos::AtMostOnce {
            if slot.connection.waiting() > most {
                wires.dropped += 1;
                self.counts.dropped += 1;
                return;
            }
        } else {
            if one.flying.len() >= WINDOW {
                one.queue.push_back((key, again, message));
                return;
            }
            id = one.last_id;
            loop {
                id = id.checked_add(1).unwrap_or(1);
                if !one.flying.contains_key(&id) {
                    break;
                }
            }
            one.last_id = id;
            one.flying.insert(id, key);
        }
        wires.sent += 1;
        let mut out = Vec::new();
        words::message(&mut out, key, again, &message, id);
        self.send(token, &out);
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

fn taken_apart(say: Say) -> (Link, bool, Arc<str>) {
    match say {
        Say::Subscribe(link, filter) => (link, true, filter),
        Say::Unsubscribe(link, filter) => (link, false, filter),
    }
}
