//! A simulation of mqtt-udp clients, a network and a broker, with or without acceleration.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_accelerate::controller::{Controller, Event, Settings, Way};
use mqtick_accelerate::packet::{Packet, unmark};
use mqtick_accelerate::rules::Protocol;
use mqtick_accelerate::table::{Table, Verdict};

use super::plane::Switch;
use super::udp_broker::{Broker, OWN_LEASE_S, packet};
use super::world::broker_address;

const SECOND_NS: u64 = 1_000_000_000;
const STEP_NS: u64 = SECOND_NS / 10;
const LAG_NS: u64 = SECOND_NS / 80;
pub const LONGEST_KEEP_ALIVE_S: u16 = 30;
pub const CLIENTS: usize = 5;
pub const TOPICS: [&str; 3] = ["a/b", "a/c", "x"];
pub const FILTERS: [&str; 9] = ["a/b", "a/c", "x", "a/+", "#", "+/b", "a/#", "secret", "a+"];

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Served,
    /// It is lost, before the data plane or behind it.
    Lost,
    LostBehind,
    /// Its answer is lost, before the data plane or behind it.
    Unheard,
    UnheardBehind,
    /// The broker can read it, but the data plane cannot; and its answer is lost before the data
    /// plane.
    Unread,
    UnreadUnheard,
}

/// An action in the simulation.
#[derive(Clone, Debug)]
pub enum Action {
    Connect {
        who: usize,
        keep_alive_s: u16,
        moves: bool,
        fate: Fate,
    },
    Subscribe(usize, Vec<usize>, Fate),
    Unsubscribe(usize, Vec<usize>, Fate),
    /// A client repeats its last request, or the one before.
    Repeat(usize, bool),
    Publish(usize, usize, usize),
    /// Retained, with QoS 1, with DUP, two octets too long, with an invalid name, or with a length
    /// in two octets.
    PublishOther(usize, usize, u8),
    Disconnect(usize, Fate),
    Ping(usize, Fate),
    /// A client sends its last CONNECT twice, and goes on without waiting.
    Insist(usize),
    Vanish(usize),
    /// A CONNECT that is refused, or a packet that no client sends.
    Odd(usize, u8),
    /// A client sends its last token again.
    OldProof(usize),
    /// Forged answers of the broker from the side of the clients.
    ForgeAnswer(usize),
    /// The broker serves a number of datagrams, the controller a number of events.
    Serve(usize, usize),
    Tick,
    /// The next tick comes before the broker has served the waiting datagrams.
    Lag,
    Time(u64),
    LoseEvent,
    RestartController,
    RestartBroker {
        told: bool,
    },
}

struct Client {
    at: SocketAddr,
    moves: u16,
    connect: Vec<u8>,
    waits: Option<Vec<u8>>, // the request whose answer it awaits, other than a challenge
    connected: bool,
    answered: bool, // whether it has a lease, and renews it
    silent: bool,
    keep_alive_ns: u64,
    said_ns: u64,
    last: [Vec<u8>; 2],
    proof: Vec<u8>,
    id: u16,
}

struct Seen {
    way: Way,
    client: SocketAddr,
    datagram: Vec<u8>,
    readable: bool,
    mark: u64,
    kept_back: bool,
}

/// The numbers of the messages in their order, by receiver, publisher and topic.
pub type Deliveries = BTreeMap<(SocketAddr, usize, String), Vec<u32>>;

pub struct World {
    now_ns: u64,
    switch: Switch,
    controller: Option<Controller>,
    settings: Settings,
    events: VecDeque<Seen>,
    lost: bool,
    loses: usize,
    broker: Broker,
    inbox: VecDeque<(SocketAddr, Vec<u8>)>,
    /// The client whose next answer is lost, and whether this happens behind the data plane.
    unheard: Option<(SocketAddr, bool)>,
    clients: Vec<Client>,
    number: u32,
    started: u8, // how often the broker was started
    restarted_ns: Option<u64>,
    pub deliveries: Deliveries,
    /// What else clients got, except challenges and messages.
    pub answers: BTreeMap<(SocketAddr, u8), usize>,
    /// Challenges and CONNACKs with code 1.
    pub asked_for: BTreeMap<(SocketAddr, u8), usize>,
    pub unsure: BTreeSet<u32>,
    pub may_get_answers: bool,
    pub fast: u64,
}

impl World {
    pub fn new(is_accelerated: bool, rules: usize, is_told_lease: bool) -> Self {
        let mut settings = Settings::new(broker_address());
        settings.protocol = Protocol::MqttUdp;
        settings.only = vec![Rc::from("#")];
        settings.fresh = true;
        settings.settle_ns = u64::from(LONGEST_KEEP_ALIVE_S) * SECOND_NS / 2 * 3 + SECOND_NS;
        settings.lease_ns = is_told_lease.then_some(u64::from(OWN_LEASE_S) * SECOND_NS);
        let clients = (0..CLIENTS).map(|index| Client {
            at: address(index, 0),
            moves: 0,
            connect: Vec::new(),
            waits: None,
            connected: false,
            answered: false,
            silent: false,
            keep_alive_ns: 0,
            said_ns: 0,
            last: [Vec::new(), Vec::new()],
            proof: Vec::new(),
            id: 0,
        });
        Self {
            now_ns: SECOND_NS,
            switch: Switch::new(rules),
            controller: is_accelerated.then(|| Controller::new(settings.clone(), SECOND_NS)),
            settings,
            events: VecDeque::new(),
            lost: false,
            loses: 0,
            broker: Broker::new(SECOND_NS, 0),
            inbox: VecDeque::new(),
            unheard: None,
            clients: clients.collect(),
            number: 0,
            started: 0,
            restarted_ns: None,
            deliveries: BTreeMap::new(),
            answers: BTreeMap::new(),
            asked_for: BTreeMap::new(),
            unsure: BTreeSet::new(),
            may_get_answers: false,
            fast: 0,
        }
    }

    pub fn act(&mut self, action: &Action) {
        match action {
            Action::Connect {
                who,
                keep_alive_s,
                moves,
                fate,
            } => self.connect(*who, *keep_alive_s, *moves, *fate),
            Action::Subscribe(who, filters, fate) => self.request(*who, 0x82, filters, *fate),
            Action::Unsubscribe(who, filters, fate) => self.request(*who, 0xa2, filters, *fate),
            Action::Repeat(who, before) => {
                let [last, other] = &self.clients[*who].last;
                let again = if *before { other } else { last }.clone();
                if !again.is_empty() && !self.clients[*who].silent {
                    self.ask(*who, again, Fate::Served);
                }
            }
            Action::Publish(who, topic, count) => {
                for _ in 0..*count {
                    self.publish(*who, *topic, 9);
                }
            }
            Action::PublishOther(who, topic, kind) => self.publish(*who, *topic, *kind),
            Action::Disconnect(who, fate) => {
                self.settle(); // or it would drop what the broker is about to send
                let client = &mut self.clients[*who];
                (client.connected, client.answered, client.waits) = (false, false, None);
                self.say(*who, vec![0xe0, 0], *fate);
            }
            Action::Ping(who, fate) => self.ask(*who, vec![0xc0, 0], *fate),
            Action::Insist(who) => {
                self.drain();
                let client = &mut self.clients[*who];
                if client.connect.is_empty() {
                    client.connect = b"\x10\x0c\0\x04MQTT\x04\x02\0\x14\0\0".to_vec();
                    (client.keep_alive_ns, client.connected) = (20 * SECOND_NS, true);
                }
                let connect = client.connect.clone();
                if client.connected && !client.silent {
                    client.said_ns = self.now_ns;
                    client.waits = Some(connect.clone());
                    self.say(*who, connect.clone(), Fate::Served);
                    self.say(*who, connect, Fate::Served);
                }
            }
            Action::Vanish(who) => {
                self.drain(); // or it would not answer a challenge
                self.clients[*who].silent = true;
            }
            Action::Odd(who, kind) => {
                let octets: &[u8] = match kind {
                    0 => b"\x10\x0c\0\x04MQTT\x05\x02\0\x3c\0\0",
                    1 => b"\x10\x0c\0\x04MQTT\x04\x06\0\x3c\0\0",
                    2 => b"\x82\x06\0\0\0\x01x\0",
                    3 => b"\xe2\x00",
                    4 => b"\x82\x07\0\x09\0\x01\xff\0\0",
                    5 => b"\x82\x06\0\x09\0\x01\xff\0",
                    6 => b"\x20\x02\0\0",
                    _ => b"\xc0\x01\0",
                };
                self.drain();
                self.say(*who, octets.to_vec(), Fate::Served);
                // A client that waits for an answer would take the challenge for its own.
                let client = &self.clients[*who];
                if !client.answered && (*kind > 1 || client.waits.is_some()) {
                    self.drain();
                }
            }
            Action::OldProof(who) => {
                self.drain();
                let proof = self.clients[*who].proof.clone();
                if !proof.is_empty() {
                    self.say(*who, proof, Fate::Served);
                }
            }
            Action::ForgeAnswer(who) => self.forge_answer(*who),
            Action::Serve(datagrams, events) => {
                for _ in 0..*datagrams {
                    self.serve();
                }
                for _ in 0..*events {
                    self.control();
                }
                self.conclude();
            }
            Action::Tick => self.tick(),
            Action::Lag => {
                self.now_ns += LAG_NS;
                self.tick();
            }
            Action::Time(steps) => (0..*steps).for_each(|_| self.step()),
            Action::LoseEvent if self.controller.is_some() => self.loses = 1,
            Action::RestartController if self.controller.is_some() => {
                // or clients would get answers that were kept back, and take them for theirs
                self.drain();
                self.may_get_answers = true;
                self.events.clear();
                (self.lost, self.loses) = (false, 0);
                self.switch.table = Table::new(64);
                let mut settings = self.settings.clone();
                settings.fresh = false;
                self.controller = Some(Controller::new(settings, self.now_ns));
            }
            Action::RestartBroker { told } => {
                self.settle();
                self.started = self.started.wrapping_add(1);
                self.broker = Broker::new(self.now_ns, self.started);
                self.clients.iter_mut().for_each(|one| one.answered = false);
                if !told {
                    self.restarted_ns = Some(self.now_ns);
                } else if let Some(controller) = &mut self.controller {
                    self.may_get_answers = true;
                    controller.broker_started(self.now_ns, &mut self.switch);
                }
            }
            _ => {}
        }
        if self.controller.is_none() {
            self.settle();
        }
    }

    fn connect(&mut self, who: usize, keep_alive_s: u16, moves: bool, fate: Fate) {
        self.settle();
        let client = &mut self.clients[who];
        if moves {
            client.moves += 1;
            client.at = address(who, client.moves);
        }
        let [high, low] = keep_alive_s.to_be_bytes();
        let head = b"\x10\x0c\0\x04MQTT\x04\x02";
        client.connect = [head, &[high, low, 0, 0][..]].concat();
        client.keep_alive_ns = u64::from(keep_alive_s) * SECOND_NS;
        (client.connected, client.answered, client.silent) = (true, false, false);
        let connect = client.connect.clone();
        self.ask(who, connect, fate);
    }

    fn request(&mut self, who: usize, first: u8, filters: &[usize], fate: Fate) {
        if self.clients[who].silent {
            return;
        }
        // A client usually waits for the answer to its last request.
        self.clients[who].id += 1;
        let mut body = self.clients[who].id.to_be_bytes().to_vec();
        for filter in filters {
            let filter = FILTERS[*filter].as_bytes();
            body.extend([0, filter.len() as u8]);
            body.extend(filter);
            if first == 0x82 {
                body.push(0);
            }
        }
        let request = [&[first, body.len() as u8], &body[..]].concat();
        let client = &mut self.clients[who];
        client.last = [request.clone(), std::mem::take(&mut client.last[0])];
        self.ask(who, request, fate);
    }

    fn ask(&mut self, who: usize, datagram: Vec<u8>, fate: Fate) {
        if self.clients[who].silent {
            return;
        }
        // It waits for the last answer; without a lease, for the challenge.
        self.drain();
        let client = &mut self.clients[who];
        client.said_ns = self.now_ns;
        if matches!(datagram[0], 0x10 | 0x82) {
            client.waits = Some(datagram.clone());
        }
        self.say(who, datagram, fate);
        if !self.clients[who].answered {
            self.drain();
        }
    }

    fn drain(&mut self) {
        while !self.inbox.is_empty() {
            self.serve();
        }
    }

    fn publish(&mut self, who: usize, topic: usize, kind: u8) {
        self.number += 1;
        let mut data = self.number.to_be_bytes().to_vec();
        data.push(who as u8);
        let restarted = self.restarted_ns;
        // The controller may need this time to notice a restart of the broker.
        if restarted.is_some_and(|at_ns| self.now_ns - at_ns <= 12 * STEP_NS) {
            self.unsure.insert(self.number);
        }
        let first = match kind {
            0 => 0x31,
            1 => 0x32,
            2 => 0x38,
            _ => 0x30,
        };
        let name = if kind == 4 { "a/+" } else { TOPICS[topic] };
        let mut datagram = packet(first, name, &data);
        match kind {
            3 => datagram.extend(*b"xy"),
            5 => {
                let length = datagram[1];
                datagram[1] |= 0x80;
                datagram.insert(2, 0);
                assert!(length < 0x80);
            }
            _ => {}
        }
        self.say(who, datagram, Fate::Served);
    }

    fn say(&mut self, who: usize, datagram: Vec<u8>, fate: Fate) {
        let at = self.clients[who].at;
        match fate {
            Fate::Lost => return,
            Fate::Unheard | Fate::UnreadUnheard => self.unheard = Some((at, false)),
            Fate::UnheardBehind => self.unheard = Some((at, true)),
            _ => {}
        }
        self.send(at, datagram, fate);
    }

    fn send(&mut self, from: SocketAddr, mut datagram: Vec<u8>, fate: Fate) {
        unmark(Protocol::MqttUdp, &mut datagram);
        let is_served = fate != Fate::LostBehind;
        if self.controller.is_none() {
            if is_served {
                self.inbox.push_back((from, datagram));
            }
            return;
        }
        let readable = !matches!(fate, Fate::Unread | Fate::UnreadUnheard);
        let packet = match readable {
            true => Packet::read(Protocol::MqttUdp, Way::ToBroker, &datagram),
            false => Packet::Unread,
        };
        let table = &mut self.switch.table;
        match table.from_client(self.now_ns, from, &packet) {
            Verdict::Copies(copies) => {
                self.fast += 1;
                let copies = copies.to_vec();
                for copy in copies {
                    self.receive(copy.to, &datagram);
                }
            }
            Verdict::Pass(mark) => {
                if let Some(mark) = mark {
                    self.report(Seen {
                        way: Way::ToBroker,
                        client: from,
                        datagram: datagram.clone(),
                        readable,
                        mark,
                        kept_back: false,
                    });
                }
                if is_served {
                    self.inbox.push_back((from, datagram));
                }
            }
            Verdict::KeptBack(_) => unreachable!("that is for answers"),
        }
    }

    fn report(&mut self, seen: Seen) {
        if self.loses > 0 {
            self.loses -= 1;
            self.lost = true;
        } else {
            self.events.push_back(seen);
        }
    }

    /// The broker serves one datagram.
    fn serve(&mut self) {
        let Some((from, datagram)) = self.inbox.pop_front() else {
            return;
        };
        for (to, datagram) in self.broker.serve(self.now_ns, from, &datagram) {
            let is_request = !matches!(datagram[..], [0x30 | 0x31, ..] | [0x20, _, _, 1]);
            let is_lost = is_request && self.unheard.is_some_and(|(who, _)| who == to);
            let lost = self.unheard.take_if(|_| is_lost);
            if lost.is_some_and(|(_, behind)| !behind) {
                continue;
            }
            if self.controller.is_some() && self.is_kept_back(to, &datagram) {
                continue;
            }
            if lost.is_none() {
                self.receive(to, &datagram);
            }
        }
    }

    /// Whether the data plane keeps this datagram of the broker back.
    fn is_kept_back(&mut self, to: SocketAddr, datagram: &[u8]) -> bool {
        let packet = Packet::read(Protocol::MqttUdp, Way::FromBroker, datagram);
        let verdict = self.switch.table.from_broker(self.now_ns, to, &packet);
        let (mark, kept_back) = match verdict {
            Verdict::Pass(None) => return false,
            Verdict::Pass(Some(mark)) => (mark, false),
            Verdict::KeptBack(mark) => (mark, true),
            Verdict::Copies(_) => unreachable!("that is for publishes"),
        };
        self.report(Seen {
            way: Way::FromBroker,
            client: to,
            datagram: datagram.to_vec(),
            readable: true,
            mark,
            kept_back,
        });
        kept_back
    }

    fn control(&mut self) {
        let Some(controller) = &mut self.controller else {
            return;
        };
        if std::mem::take(&mut self.lost) {
            self.may_get_answers = true;
            let mark = self.switch.table.mark();
            self.events.clear();
            controller.lost(self.now_ns, mark, &mut self.switch);
        } else if let Some(seen) = self.events.pop_front() {
            let (from, to) = match seen.way {
                Way::ToBroker => (seen.client, broker_address()),
                Way::FromBroker => (broker_address(), seen.client),
            };
            let event = Event {
                protocol: Protocol::MqttUdp,
                way: seen.way,
                from,
                to,
                datagram: seen.readable.then_some(&seen.datagram[..]),
                mark: seen.mark,
                kept_back: seen.kept_back,
            };
            controller.event(self.now_ns, &event, &mut self.switch);
        }
        self.inbox.extend(std::mem::take(&mut self.switch.sent));
    }

    fn forge_answer(&mut self, who: usize) {
        let Some(controller) = &mut self.controller else {
            return;
        };
        let [high, low] = self.clients[who].id.to_be_bytes();
        let challenge = packet(0x30, "$proof", &[0; 8]);
        for datagram in [
            &[0x90, 3, high, low, 0][..],
            &[0xb0, 2, high, low],
            &[0x20, 2, 0, 0],
            &[0x20, 2, 0, 1],
            &[0xd0, 0],
            &challenge,
        ] {
            let event = Event {
                protocol: Protocol::MqttUdp,
                way: Way::ToBroker,
                from: broker_address(),
                to: self.clients[who].at,
                datagram: Some(datagram),
                mark: 0,
                kept_back: false,
            };
            controller.event(self.now_ns, &event, &mut self.switch);
        }
    }

    fn conclude(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.settle(self.now_ns, &mut self.switch);
        }
    }

    fn tick(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.tick(self.now_ns, &mut self.switch);
            self.inbox.extend(std::mem::take(&mut self.switch.sent));
        }
    }

    fn settle(&mut self) {
        while !self.inbox.is_empty() || !self.events.is_empty() || self.lost {
            self.serve();
            self.control();
            self.conclude();
        }
    }

    /// A tenth of a second passes, in which everything is served.
    fn step(&mut self) {
        self.settle();
        self.now_ns += STEP_NS;
        self.tick();
        self.settle();
        for who in 0..CLIENTS {
            let client = &self.clients[who];
            let length_ns = match client.keep_alive_ns {
                0 => u64::from(OWN_LEASE_S) * SECOND_NS,
                keep_alive_ns => keep_alive_ns,
            };
            let is_due = self.now_ns - client.said_ns >= length_ns / 3;
            if client.connected && !client.silent && is_due {
                self.ask(who, vec![0xc0, 0], Fate::Served);
            }
        }
        self.settle();
    }

    fn receive(&mut self, to: SocketAddr, datagram: &[u8]) {
        let first = datagram[0];
        let who = self.clients.iter().position(|client| client.at == to);
        if !matches!(first, 0x30 | 0x31) {
            let is_refused = datagram[..] == [0x20, 2, 0, 1];
            let counts = if is_refused {
                &mut self.asked_for
            } else {
                &mut self.answers
            };
            *counts.entry((to, first)).or_default() += 1;
            if let Some(who) = who.filter(|_| !is_refused) {
                let client = &mut self.clients[who];
                client.waits = None;
                client.answered |= client.connected && datagram[..] == [0x20, 2, 0, 0];
            }
            return;
        }
        let end = 4 + usize::from(datagram[3]);
        let name = String::from_utf8_lossy(&datagram[4..end]).into_owned();
        if name == "$proof" {
            *self.asked_for.entry((to, first)).or_default() += 1;
            let Some(who) = who.filter(|who| !self.clients[*who].silent) else {
                return;
            };
            // Only a client that waits for an answer takes a challenge for its own.
            if let Some(request) = self.clients[who].waits.take() {
                self.clients[who].proof = datagram.to_vec();
                self.say(who, datagram.to_vec(), Fate::Served);
                self.clients[who].waits = Some(request.clone());
                self.say(who, request, Fate::Served);
            }
            return;
        }
        let number = u32::from_be_bytes(datagram[end..end + 4].try_into().expect("four"));
        let publisher = usize::from(datagram[end + 4]);
        let name = if first == 0x31 {
            name + " (retained)"
        } else {
            name
        };
        let key = (to, publisher, name);
        self.deliveries.entry(key).or_default().push(number);
    }
}

fn address(index: usize, moves: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, index as u8 + 1], 2000 + moves))
}
