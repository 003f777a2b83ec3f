//! The network: links, and at each site a node, its broker, and messages on their way between the two.

use mqtick_join::cooperation::{Kind, Source};
use mqtick_join::message::{Key, Link, Message};
use mqtick_join::node::{Action, Node};
use mqtick_join::topology::State;
use mqtick_packet::Qos;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Word {
    State(State),
    Say(bool, Arc<str>),
    Message(Key, u32, Rc<Message>),
    Confirm(Key, u32, bool),
    Ask,
    /// The last one: the link is gone.
    Gone,
}

/// One direction of a link. Control words keep their order, and so do the messages of each lane.
#[derive(Default)]
struct Wire {
    lanes: [VecDeque<Word>; 3],
}

pub struct Cable {
    ends: [(usize, Link); 2],
    wires: [Wire; 2],
    pub is_cut: bool,
}

pub struct Site {
    pub node: Node,
    pub filters: BTreeSet<&'static str>,
    /// The payloads that its broker got, and how often.
    pub got: HashMap<Vec<u8>, usize>,
    /// Messages that were confirmed by all sites.
    pub released: BTreeSet<Key>,
    /// What its broker has retained.
    pub kept: BTreeMap<String, Vec<u8>>,
    /// Messages on their way to the broker.
    queue: VecDeque<(Key, Rc<Message>)>,
    pub is_away: bool,
    asked: Vec<Link>,
    /// Neighbours that have asked on some lanes, and on how many.
    half_asked: HashMap<Link, usize>,
    reading: Option<Reading>,
    links: HashMap<Link, u64>,
}

/// A reading of what the broker has retained.
struct Reading {
    serves: Vec<Link>,
    /// What the broker has not said yet of what it had when it was asked.
    left: Option<BTreeMap<String, Vec<u8>>>,
}

impl Site {
    pub fn keep(&mut self, topic: String, payload: Vec<u8>) {
        match payload.is_empty() {
            true => self.kept.remove(&topic),
            false => self.kept.insert(topic, payload),
        };
    }

    /// The broker takes the first message of QoS 0, or above it. Returns whether there was one.
    fn take(&mut self, is_sure: bool) -> bool {
        let mut queue = self.queue.iter();
        let at = queue.position(|(_, one)| is_sure == (one.qos != Qos::AtMostOnce));
        let Some((key, message)) = at.and_then(|at| self.queue.remove(at)) else {
            return false;
        };
        if message.retain && !self.node.retained.is_outdated(&message) {
            self.keep(message.topic.clone(), message.payload.clone());
        }
        *self.got.entry(message.payload.clone()).or_default() += 1;
        self.node.delivered(key);
        true
    }

    /// Begin to read for neighbours that asked, once they get all later messages.
    pub fn begin_reading(&mut self) {
        let node = &self.node;
        let is_due = !node.retained.is_known || self.asked.iter().any(|link| node.is_told(*link));
        if self.is_away || self.reading.is_some() || !is_due {
            return;
        }
        let told = self.asked.extract_if(.., |link| node.is_told(*link));
        let serves: Vec<Link> = told.collect();
        let waiting = self.queue.iter().map(|(_, message)| message);
        let waiting = waiting.filter(|one| one.qos != Qos::AtMostOnce);
        self.node.begin_reading(waiting, &serves);
        self.reading = Some(Reading { serves, left: None });
    }

    /// The broker gets the question, or names one more message, or says that there are no more.
    pub fn go_on_reading(&mut self) {
        let Some(reading) = &mut self.reading else {
            return;
        };
        let Some(left) = &mut reading.left else {
            reading.left = Some(self.kept.clone());
            return;
        };
        match left.pop_first() {
            Some((topic, payload)) => {
                let found = message(&topic, payload, Qos::AtMostOnce);
                self.node.found(found, &reading.serves);
            }
            None => {
                // When it has answered a ping, it has taken everything that was on its socket.
                while self.take(false) {}
                let serves = self.reading.take().map_or(Vec::new(), |one| one.serves);
                self.node.end_reading(&serves);
            }
        }
    }

    pub fn broker_is_back(&mut self) {
        self.is_away = false;
        self.node.retained.back();
    }

    /// The broker goes away, and loses messages of QoS 0 that it has not taken.
    pub fn lose_broker(&mut self) {
        self.is_away = true;
        self.node.retained.away();
        self.queue.retain(|(_, one)| one.qos != Qos::AtMostOnce);
        if let Some(reading) = self.reading.take() {
            self.asked.extend(reading.serves);
        }
    }
}

/// What can happen next.
enum Turn {
    Word(u64, usize, usize),
    Broker(usize),
    Reader(usize),
}

pub struct Network {
    kind: Kind,
    pub sites: Vec<Site>,
    pub cables: BTreeMap<u64, Cable>,
    next: u64,
    ids: u64,
    now_s: u64,
    chance: u64,
    absence_s: u64,
    /// Nothing arrives over this cable as long as it is named here.
    pub held: Option<u64>,
}

pub const FILTERS: [&str; 8] = ["#", "a/#", "a/+", "a/b", "+/b", "b", "b/#", "+/+/c"];
pub const TOPICS: [&str; 6] = ["a", "a/b", "b", "c/b", "a/b/c", "d"];

pub fn message(topic: &str, payload: Vec<u8>, qos: Qos) -> Message {
    Message {
        topic: topic.into(),
        payload,
        qos,
        ..Message::default()
    }
}

impl Network {
    pub fn new(kind: Kind, size: usize, absence_s: u64) -> Self {
        let mut network = Self {
            kind,
            sites: Vec::new(),
            cables: BTreeMap::new(),
            next: 1,
            ids: 0,
            now_s: 0,
            chance: 0x1234_5678_9ABC_DEF1,
            absence_s,
            held: None,
        };
        for number in 0..size {
            let site = network.start(number);
            network.sites.push(site);
        }
        network
    }

    pub fn start(&mut self, number: usize) -> Site {
        // Like random identifiers, these are not in the order in which nodes start.
        self.ids += 1;
        let id = self.ids.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Site {
            node: Node::new(id, &format!("node-{number}"), self.kind, self.absence_s),
            filters: BTreeSet::new(),
            got: HashMap::new(),
            released: BTreeSet::new(),
            kept: BTreeMap::new(),
            queue: VecDeque::new(),
            is_away: false,
            asked: Vec::new(),
            half_asked: HashMap::new(),
            reading: None,
            links: HashMap::new(),
        }
    }

    pub fn roll(&mut self, below: usize) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance % below.max(1) as u64) as usize
    }

    pub fn join(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        let cable = self.next;
        self.next += 1;
        let ends = [(one, 2 * cable), (other, 2 * cable + 1)];
        for (here, there) in [(0, 1), (1, 0)] {
            let peer = &self.sites[ends[there].0].node;
            let (id, name) = (peer.id(), format!("node-{}", ends[there].0));
            let (site, link) = ends[here];
            self.sites[site].links.insert(link, cable);
            self.sites[site].node.link_up(link, id, cable, &name);
        }
        let wires = Default::default();
        let is_cut = false;
        let laid = Cable {
            ends,
            wires,
            is_cut,
        };
        self.cables.insert(cable, laid);
        self.collect(one);
        self.collect(other);
    }

    /// Cut a cable: words on it are lost, and each end notices at some time.
    pub fn cut(&mut self, cable: u64) {
        if let Some(cable) = self.cables.get_mut(&cable).filter(|one| !one.is_cut) {
            cable.is_cut = true;
            for wire in &mut cable.wires {
                *wire = Wire::default();
                wire.lanes[0].push_back(Word::Gone);
            }
        }
    }

    /// One end of a cable has noticed that it is cut.
    pub fn gone(&mut self, cable: u64, site: usize, link: Link) {
        self.sites[site].links.remove(&link);
        self.sites[site].node.link_down(link, false);
        self.collect(site);
        let is_silent = |cable: &Cable| cable.wires.iter().all(|wire| wire.lanes[0].is_empty());
        if self.cables.get(&cable).is_some_and(is_silent) {
            self.cables.remove(&cable);
        }
    }

    /// The cables that are not cut.
    pub fn whole(&self) -> Vec<u64> {
        let whole = self.cables.iter().filter(|(_, cable)| !cable.is_cut);
        whole.map(|(key, _)| *key).collect()
    }

    /// Restart a node: it forgets everything, and its neighbours notice at some time.
    pub fn restart(&mut self, site: usize) {
        let mut ends = Vec::new();
        self.cables.retain(|_, cable| {
            let Some(here) = cable.ends.iter().position(|(one, _)| *one == site) else {
                return true;
            };
            if !cable.is_cut {
                ends.push(cable.ends);
                cable.wires[here].lanes[0].push_back(Word::Gone);
            }
            cable.is_cut = true;
            cable.wires[1 - here] = Wire::default();
            !cable.wires[here].lanes[0].is_empty()
        });
        let others = self.sites[site].node.others();
        let others: Vec<String> = others.into_iter().map(Into::into).collect();
        let filters = std::mem::take(&mut self.sites[site].filters);
        let got = std::mem::take(&mut self.sites[site].got);
        self.sites[site] = self.start(site);
        self.sites[site].got = got;
        self.sites[site].node.expect(others);
        filters
            .into_iter()
            .for_each(|filter| self.subscribe(site, filter));
        ends.into_iter()
            .for_each(|[one, other]| self.join(one.0, other.0));
    }

    pub fn subscribe(&mut self, site: usize, filter: &'static str) {
        if self.sites[site].filters.insert(filter) {
            self.sites[site]
                .node
                .subscribed(Source::Local, &[filter.into()]);
            self.collect(site);
        }
    }

    pub fn unsubscribe(&mut self, site: usize, filter: &'static str) {
        if self.sites[site].filters.remove(filter) {
            self.sites[site]
                .node
                .unsubscribed(Source::Local, &[filter.into()]);
            self.collect(site);
        }
    }

    pub fn publish(&mut self, site: usize, topic: &str, payload: Vec<u8>, qos: Qos) -> Option<Key> {
        let make = || message(topic, payload, qos);
        let key = self.sites[site]
            .node
            .publish(topic, qos, false, "client", make);
        self.collect(site);
        key
    }

    /// Do a node's actions: put words on wires, and messages on their way to the broker.
    pub fn collect(&mut self, site: usize) {
        while let Some(action) = self.sites[site].node.next_action() {
            let (link, lane, word) = match action {
                Action::State(link, state) => (link, 0, Word::State(state)),
                Action::Say(say) => (say.link, 0, Word::Say(say.wants, say.filter)),
                Action::Send {
                    link,
                    key,
                    attempt,
                    message,
                } => (
                    link,
                    1 + usize::from(key.lane % 2),
                    Word::Message(key, attempt, message),
                ),
                Action::Confirm {
                    link,
                    key,
                    attempt,
                    done,
                } => (
                    link,
                    1 + usize::from(key.lane % 2),
                    Word::Confirm(key, attempt, done),
                ),
                Action::Ask(link) => {
                    (0..3).for_each(|lane| self.send(site, link, lane, Word::Ask));
                    continue;
                }
                Action::Deliver(key, message) => {
                    let site = &mut self.sites[site];
                    if !site.is_away || message.qos != Qos::AtMostOnce {
                        site.queue.push_back((key, message));
                    }
                    continue;
                }
                Action::Release(key) => {
                    self.sites[site].released.insert(key);
                    continue;
                }
                Action::Hand(link) => {
                    self.sites[site].asked.push(link);
                    continue;
                }
                Action::TreeChanged => continue,
            };
            self.send(site, link, lane, word);
        }
    }

    fn send(&mut self, site: usize, link: Link, lane: usize, word: Word) {
        let Some(cable) = self.sites[site].links.get(&link) else {
            panic!("a word over a link that is gone: {word:?}");
        };
        let cable = self.cables.get_mut(cable).expect("a cable");
        if !cable.is_cut {
            let way = usize::from(cable.ends[0] != (site, link));
            cable.wires[way].lanes[lane].push_back(word);
        }
    }

    /// Let one thing happen, chosen at random. Returns whether there was one.
    pub fn step(&mut self) -> bool {
        let mut ready = Vec::new();
        let here = |(key, _): &(&u64, &Cable)| self.held != Some(**key);
        for (key, cable) in self.cables.iter().filter(here) {
            for (way, wire) in cable.wires.iter().enumerate() {
                let lanes = wire.lanes.iter().enumerate();
                let lanes = lanes.filter(|(_, words)| !words.is_empty());
                ready.extend(lanes.map(|(lane, _)| Turn::Word(*key, way, lane)));
            }
        }
        for (number, site) in self.sites.iter().enumerate() {
            if !site.is_away && !site.queue.is_empty() {
                ready.push(Turn::Broker(number));
            }
            if site.reading.is_some() {
                ready.push(Turn::Reader(number));
            }
        }
        if ready.is_empty() {
            return false;
        }
        let which = self.roll(ready.len());
        let site = match ready.swap_remove(which) {
            Turn::Word(key, way, lane) => self.word_arrives(key, way, lane),
            Turn::Broker(site) => {
                let is_sure = self.roll(2) == 0;
                self.sites[site].take(is_sure);
                site
            }
            Turn::Reader(site) => {
                self.sites[site].go_on_reading();
                site
            }
        };
        self.sites[site].begin_reading();
        self.collect(site);
        true
    }

    /// A word arrives. Returns at which site.
    pub fn word_arrives(&mut self, key: u64, way: usize, lane: usize) -> usize {
        let cable = self.cables.get_mut(&key).unwrap();
        let word = cable.wires[way].lanes[lane].pop_front().unwrap();
        let (site, link) = cable.ends[1 - way];
        let node = &mut self.sites[site].node;
        let by = Source::Link(link);
        match word {
            Word::State(state) => {
                let read = State::parse(state.text().as_bytes());
                assert_eq!(read.as_ref(), Some(&state));
                node.state(link, &state);
            }
            Word::Say(true, filter) => node.subscribed(by, &[filter]),
            Word::Say(false, filter) => node.unsubscribed(by, &[filter]),
            Word::Message(key, attempt, message) => {
                node.arrived(link, key, attempt, (*message).clone())
            }
            Word::Confirm(key, attempt, done) => node.confirmed(link, key, attempt, done),
            Word::Ask => {
                let site = &mut self.sites[site];
                let count = site.half_asked.entry(link).or_default();
                *count += 1;
                if *count == 3 {
                    *count = 0;
                    site.asked.push(link);
                }
            }
            Word::Gone => self.gone(key, site, link),
        }
        site
    }

    /// A client publishes a retained message. Returns false if the broker cannot take it now.
    pub fn keep(&mut self, site: usize, topic: &str, payload: Vec<u8>, qos: Qos) -> bool {
        let here = &self.sites[site];
        // Messages that reach a broker at the same moment have no order.
        let meets = here.queue.iter().any(|(_, one)| one.topic == topic);
        if here.is_away || meets {
            return false;
        }
        self.sites[site].keep(topic.into(), payload.clone());
        self.ids += 1; // a clock that all sites share
        let node = &mut self.sites[site].node;
        let (stamp, _) = node.retained.published(topic, &payload, self.ids);
        let make = || Message {
            retain: true,
            stamp,
            ..message(topic, payload, qos)
        };
        node.publish(topic, qos, true, "client", make);
        self.collect(site);
        true
    }

    pub fn tick(&mut self) {
        self.now_s += 1;
        for site in 0..self.sites.len() {
            let now_s = self.now_s;
            self.sites[site].node.tick(now_s);
            self.sites[site].begin_reading();
            self.collect(site);
        }
    }

    /// Go on until nothing is on its way. Time has to pass meanwhile: as long as links that are no longer
    /// needed make a loop, a subscription and its end may follow each other round it.
    pub fn rest(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            if steps % 100_000 == 0 {
                self.tick();
            }
            assert!(steps < 2_000_000, "it never comes to rest");
        }
    }

    /// Go on until nothing is on its way, no neighbour is waited for, and ticks change nothing.
    pub fn settle(&mut self) {
        let (mut calm, mut ticks) = (0, 0);
        while calm < 10 {
            self.rest();
            self.tick();
            let waits = self.sites.iter().any(|site| site.node.away().count() > 0);
            calm = if waits { 0 } else { calm + 1 };
            ticks += 1;
            assert!(ticks < 2 * self.absence_s + 40, "they wait for ever");
        }
        self.rest();
    }

    /// Which part of the network each site is in.
    pub fn parts(&self) -> Vec<usize> {
        let mut part: Vec<usize> = (0..self.sites.len()).collect();
        for _ in 0..self.sites.len() {
            for cable in self.cables.values().filter(|cable| !cable.is_cut) {
                let [(one, _), (other, _)] = cable.ends;
                let least = part[one].min(part[other]);
                (part[one], part[other]) = (least, least);
            }
        }
        part
    }

    pub fn wants(&self, site: usize, topic: &str) -> bool {
        self.kind == Kind::Publications
            || self.sites[site]
                .filters
                .iter()
                .any(|filter| mqtick_topics::matches(filter, topic))
    }

    /// Check everything that the top of main.rs says.
    pub fn check(&mut self) {
        self.settle();
        let part = self.parts();
        for one in 0..self.sites.len() {
            let size = part.iter().filter(|other| **other == part[one]).count();
            let tree = &self.sites[one].node.tree;
            assert_eq!(tree.nodes.len(), size, "node {one} knows its part");
            assert_eq!(
                tree.links.len(),
                size - 1,
                "the tree has no loop and reaches all"
            );
            for other in 0..self.sites.len() {
                if part[other] == part[one] {
                    assert_eq!(
                        *tree, self.sites[other].node.tree,
                        "nodes {one}, {other} agree"
                    );
                }
            }
            assert_eq!(
                self.sites[one].node.pending(),
                0,
                "node {one} waits for nobody"
            );
        }
        self.ids += 1;
        let time = self.ids;
        for topic in TOPICS {
            for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
                for from in 0..self.sites.len() {
                    let payload = format!("last {time} {topic} {qos:?} {from}").into_bytes();
                    let key = self.publish(from, topic, payload.clone(), qos);
                    while self.step() {}
                    for to in 0..self.sites.len() {
                        let got = self.sites[to].got.get(&payload).copied().unwrap_or(0);
                        let wanted = to != from && part[to] == part[from] && self.wants(to, topic);
                        assert_eq!(got, usize::from(wanted), "{topic} from {from} at {to}");
                    }
                    if let Some(key) = key {
                        assert!(self.sites[from].released.contains(&key), "it is confirmed");
                    }
                }
            }
        }
    }
}
