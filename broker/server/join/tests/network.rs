//! Nodes in a simulated network: links that delay, lose what is on them and come back, nodes that
//! start anew, clients that subscribe and publish all the while. When all that has ended, the nodes
//! agree on one tree, each message goes exactly where it is wanted, and no message above QoS 0 was
//! lost on the way to somebody who could be reached all the time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

use mqtick_join::cooperation::{Kind, Say, Source};
use mqtick_join::node::{Action, Key, Link, Message, Node};
use mqtick_join::topology::State;
use mqtick_packet::Qos;
use proptest::prelude::*;
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

/// One direction of a link: control and lanes keep their order, each by itself.
#[derive(Default)]
struct Wire {
    lanes: [VecDeque<Word>; 3],
}

struct Cable {
    ends: [(usize, Link); 2],
    wires: [Wire; 2],
    is_cut: bool,
}

struct Site {
    node: Node,
    filters: BTreeSet<&'static str>,
    /// What its broker was given, and how often.
    got: HashMap<Vec<u8>, usize>,
    /// What its clients were told that all have.
    released: BTreeSet<Key>,
    /// What its broker has retained.
    kept: BTreeMap<String, Vec<u8>>,
    asked: Vec<Link>,
    links: HashMap<Link, u64>,
}

impl Site {
    fn keep(&mut self, topic: String, payload: Vec<u8>) {
        match payload.is_empty() {
            true => self.kept.remove(&topic),
            false => self.kept.insert(topic, payload),
        };
    }
}

struct Network {
    kind: Kind,
    sites: Vec<Site>,
    cables: BTreeMap<u64, Cable>,
    next: u64,
    ids: u64,
    now_s: u64,
    chance: u64,
    absence_s: u64,
    /// Nothing arrives over this cable until it is another one.
    held: Option<u64>,
}

const FILTERS: [&str; 8] = ["#", "a/#", "a/+", "a/b", "+/b", "b", "b/#", "+/+/c"];
const TOPICS: [&str; 6] = ["a", "a/b", "b", "c/b", "a/b/c", "d"];

fn message(topic: &str, payload: Vec<u8>, qos: Qos) -> Message {
    Message {
        topic: topic.into(),
        payload,
        qos,
        ..Message::default()
    }
}

impl Network {
    fn new(kind: Kind, size: usize, absence_s: u64) -> Self {
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

    fn start(&mut self, number: usize) -> Site {
        // Identifiers are random: the order of starts says nothing.
        self.ids += 1;
        let id = self.ids.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Site {
            node: Node::new(id, &format!("node-{number}"), self.kind, self.absence_s),
            filters: BTreeSet::new(),
            got: HashMap::new(),
            released: BTreeSet::new(),
            kept: BTreeMap::new(),
            asked: Vec::new(),
            links: HashMap::new(),
        }
    }

    fn roll(&mut self, below: usize) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance % below.max(1) as u64) as usize
    }

    fn join(&mut self, one: usize, other: usize) {
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

    /// What is on it is lost, and each end notices some time.
    fn cut(&mut self, cable: u64) {
        if let Some(cable) = self.cables.get_mut(&cable).filter(|one| !one.is_cut) {
            cable.is_cut = true;
            for wire in &mut cable.wires {
                *wire = Wire::default();
                wire.lanes[0].push_back(Word::Gone);
            }
        }
    }

    /// One end of a cable has noticed that it is cut.
    fn gone(&mut self, cable: u64, site: usize, link: Link) {
        self.sites[site].links.remove(&link);
        self.sites[site].node.link_down(link, false);
        self.collect(site);
        let is_silent = |cable: &Cable| cable.wires.iter().all(|wire| wire.lanes[0].is_empty());
        if self.cables.get(&cable).is_some_and(is_silent) {
            self.cables.remove(&cable);
        }
    }

    /// Which cables are whole.
    fn whole(&self) -> Vec<u64> {
        let whole = self.cables.iter().filter(|(_, cable)| !cable.is_cut);
        whole.map(|(key, _)| *key).collect()
    }

    /// It knows nothing any more; its neighbours notice some time.
    fn restart(&mut self, site: usize) {
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

    fn subscribe(&mut self, site: usize, filter: &'static str) {
        if self.sites[site].filters.insert(filter) {
            self.sites[site]
                .node
                .subscribed(Source::Local, &[filter.into()]);
            self.collect(site);
        }
    }

    fn unsubscribe(&mut self, site: usize, filter: &'static str) {
        if self.sites[site].filters.remove(filter) {
            self.sites[site]
                .node
                .unsubscribed(Source::Local, &[filter.into()]);
            self.collect(site);
        }
    }

    fn publish(&mut self, site: usize, topic: &str, payload: Vec<u8>, qos: Qos) -> Option<Key> {
        let make = || message(topic, payload, qos);
        let key = self.sites[site]
            .node
            .publish(topic, qos, false, "client", make);
        self.collect(site);
        key
    }

    /// Do what a node says, as far as it goes without a wire.
    fn collect(&mut self, site: usize) {
        while let Some(action) = self.sites[site].node.next_action() {
            let (link, lane, word) = match action {
                Action::State(link, state) => (link, 0, Word::State(state)),
                Action::Say(Say::Subscribe(link, filter)) => (link, 0, Word::Say(true, filter)),
                Action::Say(Say::Unsubscribe(link, filter)) => (link, 0, Word::Say(false, filter)),
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
                Action::Ask(link) => (link, 0, Word::Ask),
                Action::Deliver(key, message) => {
                    if message.retain {
                        let topic = message.topic.clone();
                        self.sites[site].keep(topic, message.payload.clone());
                    }
                    *self.sites[site]
                        .got
                        .entry(message.payload.clone())
                        .or_default() += 1;
                    self.sites[site].node.delivered(key);
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
            let Some(cable) = self.sites[site].links.get(&link) else {
                panic!("a word over a link that is gone: {word:?}");
            };
            let cable = self.cables.get_mut(cable).expect("a cable");
            if cable.is_cut {
                continue;
            }
            let way = usize::from(cable.ends[0] != (site, link));
            cable.wires[way].lanes[lane].push_back(word);
        }
    }

    /// Let one word arrive, whichever; whether there was one.
    fn step(&mut self) -> bool {
        let mut ready = Vec::new();
        for (key, cable) in self
            .cables
            .iter()
            .filter(|(key, _)| self.held != Some(**key))
        {
            for (way, wire) in cable.wires.iter().enumerate() {
                for (lane, words) in wire.lanes.iter().enumerate() {
                    if !words.is_empty() {
                        ready.push((*key, way, lane));
                    }
                }
            }
        }
        if ready.is_empty() {
            return false;
        }
        let (key, way, lane) = ready[self.roll(ready.len())];
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
            Word::Ask => self.sites[site].asked.push(link),
            Word::Gone => self.gone(key, site, link),
        }
        self.read(site);
        self.collect(site);
        true
    }

    /// Neighbours get what they asked for, once they hear of what comes later.
    fn read(&mut self, site: usize) {
        let Site {
            node, kept, asked, ..
        } = &mut self.sites[site];
        let told: Vec<Link> = asked.extract_if(.., |link| node.is_told(*link)).collect();
        if told.is_empty() && node.retained.is_known {
            return;
        }
        node.begin_reading();
        for (topic, payload) in kept {
            node.found(message(topic, payload.clone(), Qos::AtMostOnce), &told);
        }
        node.end_reading(&told);
    }

    fn keep(&mut self, site: usize, topic: &str, payload: Vec<u8>) {
        self.sites[site].keep(topic.into(), payload.clone());
        self.ids += 1; // a clock that all sites share
        let node = &mut self.sites[site].node;
        let (stamp, _) = node.retained.published(topic, &payload, self.ids);
        let make = || Message {
            retain: true,
            stamp,
            ..message(topic, payload, Qos::AtMostOnce)
        };
        node.publish(topic, Qos::AtMostOnce, true, "client", make);
        self.collect(site);
    }

    fn tick(&mut self) {
        self.now_s += 1;
        for site in 0..self.sites.len() {
            let now_s = self.now_s;
            self.sites[site].node.tick(now_s);
            self.read(site);
            self.collect(site);
        }
    }

    /// Until nothing is under way. Time goes on meanwhile: as long as links that are no longer needed
    /// make a loop, a subscription and its end may follow each other round it.
    fn rest(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            if steps % 100_000 == 0 {
                self.tick();
            }
            assert!(steps < 2_000_000, "it never comes to rest");
        }
    }

    /// Nothing is under way, nobody is waited for any more, and ticks bring nothing either.
    fn settle(&mut self) {
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
    fn parts(&self) -> Vec<usize> {
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

    fn wants(&self, site: usize, topic: &str) -> bool {
        self.kind == Kind::Publications
            || self.sites[site]
                .filters
                .iter()
                .any(|filter| mqtick_topics::matches(filter, topic))
    }

    /// All that is said at the top.
    fn check(&mut self) {
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

#[derive(Clone, Debug)]
enum Event {
    Join(usize, usize),
    Cut(usize),
    Restart(usize),
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    Publish(usize, usize, u8),
    Steps(usize),
    Tick,
}

fn event() -> impl Strategy<Value = Event> {
    let any = 0..1000_usize;
    prop_oneof![
        4 => (any.clone(), any.clone()).prop_map(|(one, other)| Event::Join(one, other)),
        2 => any.clone().prop_map(Event::Cut),
        1 => any.clone().prop_map(Event::Restart),
        6 => (any.clone(), any.clone()).prop_map(|(at, which)| Event::Subscribe(at, which)),
        4 => (any.clone(), any.clone()).prop_map(|(at, which)| Event::Unsubscribe(at, which)),
        4 => (any.clone(), any.clone(), 0..3_u8).prop_map(|(at, which, qos)| Event::Publish(at, which, qos)),
        8 => (0..60_usize).prop_map(Event::Steps),
        1 => Just(Event::Tick),
    ]
}

/// For how long a node waits for a neighbour that went: not at all, or as is usual.
fn absence_s() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(30)]
}

fn run(kind: Kind, size: usize, absence_s: u64, events: &[Event]) {
    let mut network = Network::new(kind, size, absence_s);
    for one in 1..size {
        let to = network.roll(one);
        network.join(one, to);
    }
    for (number, event) in events.iter().enumerate() {
        match *event {
            Event::Join(one, other) => network.join(one % size, other % size),
            Event::Cut(which) => {
                let keys = network.whole();
                if let Some(key) = keys.get(which % keys.len().max(1)) {
                    network.cut(*key);
                }
            }
            Event::Restart(site) => network.restart(site % size),
            Event::Subscribe(site, which) => network.subscribe(site % size, FILTERS[which % 8]),
            Event::Unsubscribe(site, which) => network.unsubscribe(site % size, FILTERS[which % 8]),
            Event::Publish(site, which, qos) => {
                let payload = format!("event {number}").into_bytes();
                let qos = Qos::try_from(qos).unwrap();
                network.publish(site % size, TOPICS[which % 6], payload, qos);
            }
            Event::Steps(count) => (0..count).for_each(|_| {
                network.step();
            }),
            Event::Tick => network.tick(),
        }
    }
    network.check();
    for (number, site) in network.sites.iter().enumerate() {
        for (payload, count) in &site.got {
            let text = String::from_utf8_lossy(payload);
            let sure = text.starts_with("last")
                || !events.iter().any(|one| matches!(one, Event::Restart(_)));
            // A node that starts anew does not know what it had before.
            assert!(
                *count == 1 || !sure,
                "{text} came {count} times to {number}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_few_nodes_agree_after_whatever_happened(
        size in 2..7_usize,
        absence_s in absence_s(),
        events in prop::collection::vec(event(), 0..120),
    ) {
        run(Kind::Subscriptions, size, absence_s, &events);
        run(Kind::Publications, size, absence_s, &events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn fifty_nodes_agree_after_whatever_happened(
        events in prop::collection::vec(event(), 100..300),
    ) {
        run(Kind::Subscriptions, 50, 30, &events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// As long as every node can be reached by some way, and news of a link is there within the
    /// seconds that nodes allow for it.
    #[test]
    fn links_come_and_go_and_each_message_above_qos_0_arrives_once_wherever_it_is_wanted(
        size in 2..8_usize,
        absence_s in absence_s(),
        filters in prop::collection::vec((0..8_usize, 0..8_usize), 0..12),
        events in prop::collection::vec((0..4_u8, 0..1000_usize, 0..1000_usize), 0..80),
    ) {
        arrives_once(size, absence_s, &filters, &events);
    }

    /// As long as all can be reached again before others stop waiting for them.
    #[test]
    fn parts_come_and_go_and_each_message_above_qos_0_arrives_once_wherever_it_is_wanted(
        size in 2..8_usize,
        filters in prop::collection::vec((0..8_usize, 0..8_usize), 0..12),
        events in prop::collection::vec((0..6_u8, 0..1000_usize, 0..1000_usize), 0..80),
    ) {
        arrives_once(size, 30, &filters, &events);
    }

    /// Only a node that starts anew may get what it had before, or lose what began there.
    #[test]
    fn nodes_start_anew_and_each_message_above_qos_0_of_others_arrives_wherever_it_is_wanted(
        size in 2..8_usize,
        filters in prop::collection::vec((0..8_usize, 0..8_usize), 0..12),
        events in prop::collection::vec((prop::sample::select(&[0_u8, 1, 2, 2, 3, 4, 6]), 0..1000_usize, 0..1000_usize), 0..80),
    ) {
        arrives_once(size, 30, &filters, &events);
    }
}

fn arrives_once(
    size: usize,
    absence_s: u64,
    filters: &[(usize, usize)],
    events: &[(u8, usize, usize)],
) {
    let mut network = Network::new(Kind::Subscriptions, size, absence_s);
    for one in 1..size {
        let to = network.roll(one);
        network.join(one, to);
    }
    for (site, which) in filters {
        network.subscribe(site % size, FILTERS[*which]);
    }
    network.settle();
    let (mut sent, mut ticks) = (Vec::new(), 0);
    let mut anew = vec![0; size]; // at which event
    for (number, (what, one, other)) in events.iter().enumerate() {
        match what {
            0 => network.join(one % size, other % size),
            1 | 5 => {
                let keys = network.whole();
                let Some(key) = keys.get(one % keys.len().max(1)) else {
                    continue;
                };
                network.cables.get_mut(key).unwrap().is_cut = true;
                let is_whole = network.parts().iter().all(|part| *part == 0);
                network.cables.get_mut(key).unwrap().is_cut = false;
                if is_whole || *what == 5 {
                    network.cut(*key);
                }
            }
            2 => {
                let payload = format!("event {number}").into_bytes();
                let (from, topic) = (one % size, TOPICS[other % 6]);
                let key = network.publish(from, topic, payload.clone(), Qos::AtLeastOnce);
                sent.push((number, from, topic, payload, key));
            }
            3 => (0..other % 40).for_each(|_| {
                network.step();
            }),
            6 => {
                network.restart(one % size);
                anew[one % size] = number;
            }
            _ => {
                ticks += 1;
                if ticks < 25 {
                    network.rest();
                    network.tick();
                }
            }
        }
    }
    if network.parts().iter().any(|part| *part != 0) {
        (1..size).for_each(|one| network.join(one, one - 1));
    }
    network.settle();
    for (number, from, topic, payload, key) in sent {
        if anew[from] > number {
            continue;
        }
        for (to, anew) in anew.iter().enumerate() {
            let got = network.sites[to].got.get(&payload).copied().unwrap_or(0);
            let wanted = usize::from(to != from && network.wants(to, topic));
            let is_right = got == wanted || got > wanted && wanted > 0 && *anew > number;
            assert!(is_right, "{topic} from {from} came {got} times to {to}");
        }
        assert!(key.is_none_or(|key| network.sites[from].released.contains(&key)));
    }
}

#[test]
fn a_loop_is_cut_at_its_newest_link_and_a_cut_link_is_gone_round() {
    let mut network = Network::new(Kind::Subscriptions, 3, 30);
    network.join(0, 1);
    network.join(1, 2);
    network.join(2, 0);
    network.subscribe(2, "a");
    network.check();
    let used: Vec<u64> = network.sites[0]
        .node
        .tree
        .links
        .iter()
        .map(|(key, ..)| *key)
        .collect();
    assert_eq!(used, [1, 2]);
    network.cut(2);
    network.check();
    network.cut(1);
    network.check();
}

#[test]
fn a_message_above_qos_0_that_was_on_a_link_when_it_was_cut_arrives_over_the_other_one() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut network = Network::new(Kind::Subscriptions, 4, 30);
        for (one, other) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
            network.join(one, other);
        }
        network.subscribe(2, "a/#");
        network.settle();
        let key = network.publish(0, "a/b", b"one".to_vec(), qos).unwrap();
        network.cut(2);
        network.settle();
        assert_eq!(network.sites[2].got.get(b"one".as_slice()), Some(&1));
        assert!(network.sites[0].released.contains(&key));
    }
}

#[test]
fn a_message_that_is_sent_again_goes_where_the_first_attempt_did_not_have_to_go() {
    let mut network = Network::new(Kind::Subscriptions, 5, 30);
    let [begin, first, slow, behind_slow, moves] = [0, 1, 2, 3, 4];
    for (one, other) in [
        (begin, first),
        (first, slow),
        (slow, behind_slow),
        (first, moves),
        (moves, slow), // these two are not used at first
        (begin, slow),
    ] {
        network.join(one, other);
    }
    network.subscribe(behind_slow, "a");
    network.subscribe(moves, "a");
    network.settle();
    let key = network.publish(begin, "a", b"one".to_vec(), Qos::AtLeastOnce);
    network.held = Some(3);
    network.step(); // from `begin` to `first`
    network.cut(4);
    network.cut(1);
    network.settle(); // `slow` has it, and waits for who is behind it
    network.held = None;
    network.settle();
    for site in [behind_slow, moves] {
        assert_eq!(network.sites[site].got.get(b"one".as_slice()), Some(&1));
    }
    assert!(network.sites[begin].released.contains(&key.unwrap()));
}

#[test]
fn an_attempt_is_passed_on_once_whichever_way_it_comes() {
    let mut network = Network::new(Kind::Subscriptions, 4, 30);
    (1..4).for_each(|other| network.join(0, other));
    network.settle();
    let key = Key {
        origin: network.sites[1].node.id(),
        lane: 0,
        sequence: 1,
    };
    for (attempt, passed_on) in [(0, 0), (1, 2), (1, 0), (0, 0), (2, 2)] {
        for link in [2, 4] {
            let node = &mut network.sites[0].node;
            node.arrived(link, key, attempt, message("a", vec![], Qos::AtLeastOnce));
            let said: Vec<Action> = std::iter::from_fn(|| node.next_action()).collect();
            let sends: Vec<Link> = said
                .iter()
                .filter_map(|one| match one {
                    Action::Send { link, .. } => Some(*link),
                    _ => None,
                })
                .collect();
            let expected = if link == 2 { passed_on } else { 0 };
            assert_eq!(
                sends.len(),
                expected,
                "attempt {attempt} from {link}: {said:?}"
            );
            for to in sends {
                node.confirmed(to, key, attempt, true);
            }
            while node.next_action().is_some() {}
        }
    }
}

#[test]
fn what_the_access_list_of_a_site_denies_goes_on_to_others_and_changes_nothing_here() {
    let mut network = Network::new(Kind::Subscriptions, 3, 30);
    (1..3).for_each(|other| network.join(0, other));
    network.subscribe(0, "a");
    network.settle();
    let key = Key {
        origin: network.sites[1].node.id(),
        lane: 0,
        sequence: 1,
    };
    let denied = Message {
        retain: true,
        stamp: 7,
        is_denied: true,
        ..message("a", b"x".to_vec(), Qos::AtLeastOnce)
    };
    let node = &mut network.sites[0].node;
    node.arrived(2, key, 0, denied);
    let said: Vec<Action> = std::iter::from_fn(|| node.next_action()).collect();
    assert!(matches!(*said, [Action::Send { link: 4, .. }]), "{said:?}");
    assert!(node.retained.is_empty());
}

#[test]
fn who_is_back_after_a_while_gets_what_came_before_it_said_again_what_it_wants() {
    let mut network = Network::new(Kind::Subscriptions, 2, 30);
    network.join(0, 1);
    network.subscribe(1, "a");
    network.settle();
    network.cut(1);
    for _ in 0..10 {
        network.rest();
        network.tick();
    }
    network.join(0, 1);
    for number in 0..20 {
        network.step();
        network.publish(0, "a", vec![number], Qos::AtLeastOnce);
    }
    network.settle();
    let got: Vec<_> = (0..20)
        .map(|one| network.sites[1].got.get([one].as_slice()))
        .collect();
    assert_eq!(got, [Some(&1); 20]);
}

#[test]
fn however_many_wait_for_a_neighbour_none_of_them_is_taken_for_one_that_it_had() {
    const COUNT: u16 = 4200; // of one lane: more than a node remembers one by one
    let mut network = Network::new(Kind::Subscriptions, 3, 30);
    network.join(0, 1);
    network.join(1, 2);
    network.subscribe(2, "a");
    network.settle();
    network.cut(2);
    network.rest();
    let publish = |network: &mut Network, number: u16| {
        network.publish(0, "a", number.to_be_bytes().into(), Qos::AtLeastOnce);
    };
    (0..COUNT).for_each(|number| publish(&mut network, number));
    network.rest();
    network.join(1, 2);
    network.rest();
    publish(&mut network, COUNT); // it is there first
    network.settle();
    for number in 0..=COUNT {
        let got = network.sites[2].got.get(number.to_be_bytes().as_slice());
        assert_eq!(got, Some(&1), "{number}");
    }
}

#[test]
fn a_filter_that_only_two_neighbours_in_a_loop_told_each_other_is_not_kept_alive() {
    let mut network = Network::new(Kind::Subscriptions, 3, 30);
    network.subscribe(0, "a");
    for (one, other) in [(0, 1), (1, 2), (2, 0)] {
        network.join(one, other);
    }
    (0..40).for_each(|_| {
        network.step();
    });
    network.unsubscribe(0, "a");
    network.settle();
    for site in &network.sites {
        assert_eq!(site.node.filters(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// Whatever the order in which sites join, part and publish; also where links lose QoS 0.
    #[test]
    fn once_all_are_joined_each_site_has_what_was_published_last_on_a_topic(
        size in 2..7_usize,
        events in prop::collection::vec((0..8_u8, 0..1000_usize, 0..1000_usize), 0..80),
    ) {
        all_have_the_last(size, &events);
    }
}

fn all_have_the_last(size: usize, events: &[(u8, usize, usize)]) {
    for kind in [Kind::Subscriptions, Kind::Publications] {
        let mut network = Network::new(kind, size, 30);
        let mut last: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        (0..size).for_each(|site| network.read(site));
        for (number, (what, one, other)) in events.iter().enumerate() {
            match what {
                0 => network.join(one % size, other % size),
                1 => {
                    let keys = network.whole();
                    if let Some(key) = keys.get(one % keys.len().max(1)) {
                        network.cut(*key);
                    }
                }
                2..5 => {
                    let payload = if *what == 2 {
                        Vec::new()
                    } else {
                        vec![1, number as u8]
                    };
                    let topic = TOPICS[other % 6];
                    last.insert(topic, payload.clone());
                    network.keep(one % size, topic, payload);
                }
                5 => network.tick(),
                _ => (0..other % 40).for_each(|_| {
                    network.step();
                }),
            }
        }
        for one in 1..size {
            network.join(one, one - 1);
        }
        network.settle();
        last.retain(|_, payload| !payload.is_empty());
        let last: BTreeMap<String, Vec<u8>> = last
            .iter()
            .map(|(topic, payload)| (topic.to_string(), payload.clone()))
            .collect();
        for site in 0..size {
            assert_eq!(&network.sites[site].kept, &last, "site {}", site);
        }
    }
}

#[test]
fn of_two_retained_messages_that_no_node_saw_being_published_each_site_keeps_its_own() {
    let mut network = Network::new(Kind::Subscriptions, 2, 30);
    network.sites[0].keep("a".into(), b"here".to_vec());
    network.sites[1].keep("a".into(), b"there".to_vec());
    network.sites[1].keep("b".into(), b"only there".to_vec());
    (0..2).for_each(|site| network.read(site));
    network.join(0, 1);
    network.settle();
    assert_eq!(network.sites[0].kept["a"], b"here");
    assert_eq!(network.sites[1].kept["a"], b"there");
    assert_eq!(network.sites[0].kept["b"], b"only there");
}
