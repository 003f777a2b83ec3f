//! A simulation of clients, a network and a broker, with or without acceleration.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_accelerate::controller::Controller;
use mqtick_accelerate::driver::{Event, Watcher};
use mqtick_accelerate::packet::{Packet, Way, rewrite};
use mqtick_accelerate::rules::Protocol;
use mqtick_accelerate::settings::Settings;
use mqtick_accelerate::table::{Table, Verdict};
use mqtick_sn::{Code, Filter, Message, Qos, Topic, decode, encode};

use super::broker::{Broker, PREDEFINED, Proof};
use super::plane::Switch;

const SECOND_NS: u64 = 1_000_000_000;
const STEP_NS: u64 = SECOND_NS / 10;
/// What the operator has declared of all clients; it is true of forged ones, too.
pub const LONGEST_KEEP_ALIVE_S: u16 = 60;
const LONGEST_KEEP_ALIVE_NS: u64 = LONGEST_KEEP_ALIVE_S as u64 * SECOND_NS;
pub const CLIENTS: usize = 5;
/// The client that answers no REGISTER of a broker that demands a proof.
const DEAF: usize = 4;
pub const NAMES: [&str; 3] = ["a/b", "a/c", "x"];
const SHORT: [[u8; 2]; 2] = [*b"s1", *b"s2"];

/// The topic of a message.
#[derive(Clone, Copy, Debug)]
pub enum What {
    Name(usize),
    Short(usize),
    Predefined(usize),
}

/// The filter of a subscription.
#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    What(What),
    Wild(usize),
}

/// An action in the simulation.
#[derive(Clone, Debug)]
pub enum Action {
    Connect {
        who: usize,
        clean: bool,
        keep_alive_s: u16,
        moves: bool,
    },
    Subscribe(usize, Wanted),
    /// With QoS 1.
    SubscribeOther(usize, Wanted),
    /// A client repeats its last request.
    Repeat(usize),
    /// A CONNECT, or a DISCONNECT to sleep, that the controller cannot read.
    Odd(usize, bool),
    /// A client connects with another identifier from the same address.
    Become(usize),
    /// A sleeping client asks for its messages from another port.
    WakeElsewhere(usize),
    /// The broker refuses the next CONNECTs.
    Refuse(usize),
    /// CONNECT and SUBSCRIBE with a forged source address.
    Forge(Wanted),
    /// Forged SUBACK and CONNACK with the broker's address from the side of the clients.
    ForgeAnswer(usize),
    Unsubscribe(usize, Wanted),
    /// A number of messages in a row.
    Publish(usize, What, usize),
    /// Another kind of message: QoS 1, retained, with DUP, QoS -1, QoS 2, or of a client that is
    /// not connected any more.
    PublishOther(usize, What, u8),
    Disconnect(usize),
    Sleep(usize),
    Wake(usize),
    Vanish(usize),
    Ping(usize),
    /// The broker serves a number of datagrams, the controller a number of events.
    Serve(usize, usize),
    Tick,
    Time(u64),
    LoseEvent,
    /// The next PINGREQ in a client's name is lost.
    LosePing,
    /// The broker hangs for a time.
    Hang(u64),
    RestartController,
    RestartBroker {
        told: bool,
    },
}

struct Seen {
    way: Way,
    client: SocketAddr,
    datagram: Vec<u8>,
    mark: u64,
    kept_back: bool,
}

struct Client {
    id: String,
    at: SocketAddr,
    moves: u16,
    connected: bool,
    asleep: bool,
    last: Vec<u8>,
    owes: Vec<(u64, bool, u16)>, // when to send; PUBACK or PUBREL; its message id
    silent: bool,
    keep_alive_ns: u64,
    wanted_ns: u64,
    said_ns: u64,
    before_ns: u64, // `said_ns` before the last CONNECT
    message_id: u16,
    ids: BTreeMap<String, u16>,
    names: BTreeMap<u16, String>,
    asked: BTreeMap<u16, String>,
    pings: i64,
}

/// The numbers of the messages in their order, by receiver, publisher, and name and kind of topic.
pub type Deliveries = BTreeMap<(SocketAddr, usize, String), Vec<u32>>;

pub struct World {
    now_ns: u64,
    pub switch: Switch,
    pub controller: Option<Controller>,
    settings: Settings,
    events: VecDeque<Seen>,
    lost: bool,
    loses: usize,
    loses_ping: bool,
    broker: Broker,
    proof: Proof,
    inbox: VecDeque<(SocketAddr, Vec<u8>)>,
    clients: Vec<Client>,
    number: u32,
    restarted_ns: Option<u64>,
    /// When the last packet with a forged source address was sent.
    forged_ns: u64,
    pub deliveries: Deliveries,
    /// Messages that a client may or may not get: both are right.
    pub unsure: BTreeSet<(u32, SocketAddr)>,
    pub faults: Vec<String>,
    pub may_get_answers: bool,
    pub log: Vec<String>,
    pub fast: u64,
}

pub fn broker_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1883))
}

impl World {
    pub fn new(is_accelerated: bool, rules: usize, proof: Proof) -> Self {
        let mut settings = Settings::new(broker_address());
        settings.only = vec![Rc::from("#")];
        settings.fresh = true;
        settings.settle_ns = LONGEST_KEEP_ALIVE_NS / 2 * 3 + SECOND_NS;
        settings.predefined = PREDEFINED
            .iter()
            .map(|(id, name)| (*id, Rc::from(*name)))
            .collect();
        let clients = (0..CLIENTS).map(|index| Client {
            id: format!("c{index}"),
            at: address(index, 0),
            moves: 0,
            connected: false,
            asleep: false,
            last: Vec::new(),
            owes: Vec::new(),
            silent: false,
            keep_alive_ns: 0,
            wanted_ns: 0,
            said_ns: 0,
            before_ns: 0,
            message_id: 0,
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            asked: BTreeMap::new(),
            pings: 0,
        });
        Self {
            now_ns: SECOND_NS,
            switch: Switch::new(rules),
            controller: is_accelerated.then(|| Controller::new(settings.clone(), SECOND_NS)),
            settings,
            events: VecDeque::new(),
            lost: false,
            loses: 0,
            loses_ping: false,
            broker: Broker::new(proof),
            proof,
            inbox: VecDeque::new(),
            clients: clients.collect(),
            number: 0,
            restarted_ns: None,
            forged_ns: 0,
            deliveries: BTreeMap::new(),
            unsure: BTreeSet::new(),
            faults: Vec::new(),
            may_get_answers: false,
            log: Vec::new(),
            fast: 0,
        }
    }

    pub fn act(&mut self, action: &Action) {
        // A slow broker's REGISTER would come too late, with acceleration or without.
        if let Action::Connect { .. }
        | Action::Disconnect(_)
        | Action::Sleep(_)
        | Action::Odd(..)
        | Action::Become(_)
        | Action::Refuse(_)
        | Action::Repeat(_)
        | Action::WakeElsewhere(_)
        | Action::Vanish(_) = action
        {
            self.drain();
        }
        match *action {
            Action::Connect {
                who,
                clean,
                keep_alive_s,
                moves,
            } => self.connect(who, clean, keep_alive_s, moves, false),
            Action::Subscribe(who, wanted) | Action::SubscribeOther(who, wanted) => {
                let qos = match action {
                    Action::Subscribe(..) => Qos::AtMostOnce,
                    _ => Qos::AtLeastOnce,
                };
                let (message_id, name) = (self.message_id(who), wanted.name());
                self.clients[who].asked.insert(message_id, name.clone());
                let message = Message::Subscribe {
                    dup: false,
                    qos,
                    message_id,
                    filter: wanted.filter(&name),
                };
                self.say_if(who, &message);
            }
            Action::Unsubscribe(who, wanted) => {
                let (message_id, name) = (self.message_id(who), wanted.name());
                let filter = wanted.filter(&name);
                self.say_if(who, &Message::Unsubscribe { message_id, filter });
            }
            Action::Publish(who, what, count) => {
                for _ in 0..count {
                    self.publish(who, what, Qos::AtMostOnce, false, false);
                }
            }
            Action::PublishOther(who, what, kind) => match kind {
                0 => self.publish(who, what, Qos::AtLeastOnce, false, false),
                1 => self.publish(who, what, Qos::AtMostOnce, true, false),
                2 => self.publish(who, what, Qos::AtMostOnce, false, true),
                4 => self.publish(who, what, Qos::ExactlyOnce, false, false),
                5 => {
                    let client = &mut self.clients[who];
                    let before = (client.connected, client.asleep);
                    if !matches!(what, What::Name(_)) || client.ids.contains_key(&what.name()) {
                        (client.connected, client.asleep) = (true, false);
                        self.publish(who, what, Qos::AtMostOnce, false, false);
                        let client = &mut self.clients[who];
                        (client.connected, client.asleep) = before;
                    }
                }
                _ => self.publish(who, What::Short(0), Qos::Unconnected, false, false),
            },
            Action::Disconnect(who) => {
                self.say_if(who, &Message::Disconnect { duration_s: None });
                self.clients[who].connected = false;
            }
            Action::Sleep(who) => {
                let duration_s = Some((self.clients[who].keep_alive_ns / SECOND_NS) as u16);
                self.say_if(who, &Message::Disconnect { duration_s });
                self.clients[who].asleep = self.clients[who].connected;
            }
            Action::Wake(who) if self.clients[who].asleep => {
                let client = self.clients[who].id.clone();
                self.clients[who].pings += 1;
                self.say(who, &Message::Pingreq { client: &client });
            }
            Action::Repeat(who) if self.can(who) && !self.clients[who].last.is_empty() => {
                let (at, datagram) = (self.clients[who].at, self.clients[who].last.clone());
                let client = &mut self.clients[who];
                client.before_ns = std::mem::replace(&mut client.said_ns, self.now_ns);
                self.send(at, datagram);
                self.drain(); // the client waits for the answer
            }
            Action::Odd(who, true) => self.connect(who, true, 20, false, true),
            Action::Odd(who, false) if self.can(who) => {
                self.clients[who].asleep = true;
                let seconds = (self.clients[who].keep_alive_ns / SECOND_NS) as u8;
                let at = self.clients[who].at;
                self.clients[who].said_ns = self.now_ns;
                self.send(at, vec![5, 0x18, 0, seconds, 0]);
            }
            Action::Become(who) => {
                let id = &mut self.clients[who].id;
                id.push('x');
                if id.len() > 4 {
                    id.truncate(2);
                }
                self.connect(who, true, 20, false, false);
            }
            Action::WakeElsewhere(who) if self.clients[who].asleep => {
                let client = &mut self.clients[who];
                client.moves += 1;
                client.at = address(who, client.moves);
                client.pings += 1;
                let id = client.id.clone();
                self.say(who, &Message::Pingreq { client: &id });
            }
            Action::Refuse(count) => self.broker.refuses = count,
            Action::Forge(wanted) => {
                self.forged_ns = self.now_ns;
                let name = wanted.name();
                let connect = Message::Connect {
                    will: false,
                    clean: true,
                    protocol: 1,
                    duration_s: LONGEST_KEEP_ALIVE_S,
                    client: "victim",
                };
                let subscribe = Message::Subscribe {
                    dup: false,
                    qos: Qos::AtMostOnce,
                    message_id: 1,
                    filter: wanted.filter(&name),
                };
                for message in [connect, subscribe, Message::Pingreq { client: "" }] {
                    let mut datagram = Vec::new();
                    assert!(encode(&message, &mut datagram));
                    self.send(address(CLIENTS, 0), datagram);
                }
            }
            Action::ForgeAnswer(who) => self.forge_answer(who),
            Action::Vanish(who) => self.clients[who].silent = true,
            Action::Ping(who) if self.can(who) => self.ping(who),
            Action::Serve(datagrams, events) => {
                for _ in 0..datagrams {
                    self.serve();
                }
                for _ in 0..events {
                    self.control();
                }
                self.conclude();
            }
            Action::Tick => self.tick(),
            Action::Time(steps) => (0..steps).for_each(|_| self.step()),
            Action::LoseEvent if self.controller.is_some() => self.loses = 1,
            Action::LosePing => self.loses_ping = true,
            Action::Hang(steps) => {
                self.may_get_answers = true;
                for _ in 0..steps {
                    self.now_ns += STEP_NS;
                    self.tick();
                }
            }
            Action::RestartController if self.controller.is_some() => {
                // The data plane ends as well, and no longer keeps answers back.
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
                self.broker.restart();
                if !told {
                    self.restarted_ns = Some(self.now_ns);
                } else if let Some(controller) = &mut self.controller {
                    controller.broker_started(self.now_ns, &mut self.switch);
                }
            }
            _ => {}
        }
        if self.controller.is_none() {
            self.settle();
        }
    }

    fn can(&self, who: usize) -> bool {
        let client = &self.clients[who];
        client.connected && !client.asleep && !client.silent
    }

    fn message_id(&mut self, who: usize) -> u16 {
        self.clients[who].message_id += 1;
        self.clients[who].message_id
    }

    /// Answers that do not come from the side of the broker.
    fn forge_answer(&mut self, who: usize) {
        let Some(controller) = &mut self.controller else {
            return;
        };
        let message_id = self.clients[who].message_id;
        let answers = [
            Message::Connack(Code::ACCEPTED),
            Message::Unsuback(message_id),
            Message::Suback {
                qos: Qos::AtMostOnce,
                topic_id: 11,
                message_id,
                code: Code::ACCEPTED,
            },
        ];
        for message in answers {
            let mut datagram = Vec::new();
            assert!(encode(&message, &mut datagram));
            let event = Event {
                protocol: Protocol::MqttSn,
                way: Way::ToBroker,
                from: broker_address(),
                to: self.clients[who].at,
                datagram: Some(&datagram),
                mark: 0,
                kept_back: false,
            };
            controller.event(self.now_ns, &event, &mut self.switch);
        }
    }

    fn connect(&mut self, who: usize, clean: bool, duration_s: u16, moves: bool, odd: bool) {
        let now_ns = self.now_ns;
        let client = &mut self.clients[who];
        if moves {
            client.moves += 1;
            client.at = address(who, client.moves);
        }
        (client.connected, client.asleep, client.silent) = (true, false, false);
        client.wanted_ns = u64::from(duration_s) * SECOND_NS;
        client.ids.clear();
        if clean {
            client.names.clear();
            client.owes.clear();
        }
        client.pings = 0;
        client.before_ns = std::mem::replace(&mut client.said_ns, now_ns);
        let id = client.id.clone();
        let message = Message::Connect {
            will: false,
            clean,
            protocol: 1,
            duration_s,
            client: &id,
        };
        if odd {
            let mut datagram = Vec::new();
            assert!(encode(&message, &mut datagram));
            datagram[2] |= 0x60;
            let at = self.clients[who].at;
            self.send(at, datagram);
        } else {
            self.say(who, &message);
        }
        self.drain();
    }

    fn publish(&mut self, who: usize, what: What, qos: Qos, retain: bool, dup: bool) {
        if qos != Qos::Unconnected && !self.can(who) {
            return;
        }
        let name = what.name();
        let topic = match what {
            What::Short(at) => Topic::Short(SHORT[at]),
            What::Predefined(at) => Topic::Predefined(PREDEFINED[at].0),
            What::Name(_) => {
                if !self.clients[who].ids.contains_key(&name) {
                    let message_id = self.message_id(who);
                    self.clients[who].asked.insert(message_id, name.clone());
                    let topic_id = 0;
                    self.say(
                        who,
                        &Message::Register {
                            topic_id,
                            message_id,
                            name: &name,
                        },
                    );
                    self.drain();
                }
                match self.clients[who].ids.get(&name) {
                    Some(id) => Topic::Registered(*id),
                    None => return,
                }
            }
        };
        self.number += 1;
        let mut data = self.number.to_be_bytes().to_vec();
        data.push(who as u8);
        data.extend(name.as_bytes());
        self.note_unsure();
        let message_id = match qos {
            Qos::AtLeastOnce | Qos::ExactlyOnce => self.message_id(who),
            _ => 0,
        };
        let message = Message::Publish {
            dup,
            qos,
            retain,
            topic,
            message_id,
            data: &data,
        };
        if self.log.len() < 400 {
            self.log
                .push(format!("{} c{who} {name} {qos:?}", self.number));
        }
        self.say(who, &message);
    }

    /// Note messages whose delivery is uncertain: the broker may or may not have given up a silent
    /// client yet, or its restart cannot have been noticed.
    fn note_unsure(&mut self) {
        const SLACK_NS: u64 = 6 * SECOND_NS;
        let since_ns = self.restarted_ns.map(|at_ns| self.now_ns - at_ns);
        let is_restarted = since_ns.is_some_and(|since_ns| since_ns <= 62 * SECOND_NS);
        let may_be_out = |said_ns: u64, keep_alive_ns: u64| {
            let (silent_ns, limit_ns) = (self.now_ns - said_ns, keep_alive_ns / 2 * 3);
            is_restarted || silent_ns + SECOND_NS >= limit_ns && silent_ns <= limit_ns + SLACK_NS
        };
        if may_be_out(self.forged_ns, LONGEST_KEEP_ALIVE_NS) {
            self.unsure.insert((self.number, address(CLIENTS, 0)));
        }
        for client in &self.clients {
            if may_be_out(client.said_ns, client.keep_alive_ns) {
                for moves in 0..=client.moves {
                    let at = SocketAddr::new(client.at.ip(), 2000 + moves);
                    self.unsure.insert((self.number, at));
                }
            }
        }
    }

    fn ping(&mut self, who: usize) {
        self.clients[who].pings += 1;
        self.say(who, &Message::Pingreq { client: "" });
    }

    fn say_if(&mut self, who: usize, message: &Message<'_>) {
        if self.can(who) {
            self.say(who, message);
        }
    }

    fn say(&mut self, who: usize, message: &Message<'_>) {
        let mut datagram = Vec::new();
        assert!(encode(message, &mut datagram));
        let client = &mut self.clients[who];
        if !matches!(
            message,
            Message::Publish {
                qos: Qos::Unconnected,
                ..
            }
        ) {
            client.said_ns = self.now_ns;
        }
        if let Message::Subscribe { .. } | Message::Unsubscribe { .. } | Message::Connect { .. } =
            message
        {
            client.last.clone_from(&datagram);
        }
        let at = client.at;
        self.send(at, datagram);
    }

    fn send(&mut self, from: SocketAddr, datagram: Vec<u8>) {
        if self.controller.is_none() {
            return self.inbox.push_back((from, datagram));
        }
        let packet = Packet::read(Protocol::MqttSn, Way::ToBroker, &datagram);
        let table = &mut self.switch.table;
        let copies = match table.from_client(self.now_ns, from, &packet) {
            Verdict::Copies(copies) => copies.to_vec(),
            Verdict::Pass(mark) => {
                if let Some(mark) = mark {
                    self.report(Way::ToBroker, from, datagram.clone(), mark, false);
                }
                return self.inbox.push_back((from, datagram));
            }
            Verdict::KeptBack(_) => unreachable!("that is for answers"),
        };
        self.fast += 1;
        for copy in copies {
            let mut sent = datagram.clone();
            rewrite(&mut sent, copy.topic);
            self.receive(copy.to, &sent);
        }
    }

    fn report(&mut self, way: Way, client: SocketAddr, datagram: Vec<u8>, mark: u64, kept: bool) {
        if self.loses > 0 {
            self.loses -= 1;
            self.lost = true;
            return;
        }
        self.events.push_back(Seen {
            way,
            client,
            datagram,
            mark,
            kept_back: kept,
        });
    }

    /// The broker serves one datagram.
    fn serve(&mut self) {
        if let Some((from, datagram)) = self.inbox.pop_front() {
            self.broker.serve(self.now_ns, from, &datagram);
        }
        for (to, datagram) in std::mem::take(&mut self.broker.out) {
            if self.controller.is_some() {
                let packet = Packet::read(Protocol::MqttSn, Way::FromBroker, &datagram);
                match self.switch.table.from_broker(self.now_ns, to, &packet) {
                    Verdict::Pass(None) => {}
                    Verdict::Pass(Some(mark)) => {
                        self.report(Way::FromBroker, to, datagram.clone(), mark, false);
                    }
                    Verdict::KeptBack(mark) => {
                        self.report(Way::FromBroker, to, datagram, mark, true);
                        continue;
                    }
                    Verdict::Copies(_) => unreachable!("that is for publishes"),
                }
            }
            self.receive(to, &datagram);
        }
    }

    fn drain(&mut self) {
        while !self.inbox.is_empty() {
            self.serve();
        }
    }

    /// The controller processes one event, or notices that one was lost.
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
                protocol: Protocol::MqttSn,
                way: seen.way,
                from,
                to,
                datagram: Some(&seen.datagram),
                mark: seen.mark,
                kept_back: seen.kept_back,
            };
            controller.event(self.now_ns, &event, &mut self.switch);
        }
        self.carry();
    }

    /// Deliver the controller's packets to the broker, unless they are lost.
    fn carry(&mut self) {
        let sent = std::mem::take(&mut self.switch.sent);
        let lost = usize::from(self.loses_ping && !sent.is_empty());
        self.loses_ping &= lost == 0;
        self.inbox.extend(sent.into_iter().skip(lost));
    }

    /// Update the rules after the events.
    fn conclude(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.settle(self.now_ns, &mut self.switch);
        }
    }

    fn tick(&mut self) {
        if let Some(controller) = &mut self.controller {
            controller.tick(self.now_ns, &mut self.switch);
            self.carry();
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
            let owes = std::mem::take(&mut self.clients[who].owes);
            let (due, later) = owes
                .into_iter()
                .partition(|(at_ns, ..)| *at_ns <= self.now_ns);
            self.clients[who].owes = later;
            let due: Vec<(u64, bool, u16)> = due;
            for (_, is_ack, message_id) in due {
                let (topic_id, code) = (1, Code::ACCEPTED);
                let ack = Message::Puback {
                    topic_id,
                    message_id,
                    code,
                };
                let release = Message::Pubrel(message_id);
                self.say_if(who, if is_ack { &ack } else { &release });
            }
            let client = &self.clients[who];
            let quiet_ns = self.now_ns - client.said_ns;
            if client.connected && !client.silent && quiet_ns >= client.keep_alive_ns / 2 {
                self.clients[who].pings += 1;
                let id = self.clients[who].id.clone();
                let client = if self.clients[who].asleep { &id } else { "" };
                self.say(who, &Message::Pingreq { client });
            }
        }
        self.settle();
    }

    fn receive(&mut self, to: SocketAddr, datagram: &[u8]) {
        let (message, _) = decode(datagram).expect("whole messages come");
        let who = self.clients.iter().position(|client| client.at == to);
        if let Message::Publish {
            topic,
            data,
            qos,
            message_id,
            ..
        } = message
        {
            if let Some(who) = who.filter(|_| qos == Qos::AtLeastOnce) {
                let at_ns = self.now_ns + 3 * STEP_NS;
                self.clients[who].owes.push((at_ns, true, message_id));
            }
            let number = u32::from_be_bytes(data[..4].try_into().expect("four"));
            let name = String::from_utf8_lossy(&data[5..]).into_owned();
            let publisher = usize::from(data[4]);
            if let (Some(who), Topic::Registered(id)) = (who, topic)
                && self.clients[who].names.get(&id) != Some(&name)
                && !self.unsure.contains(&(number, to))
            {
                self.faults.push(format!(
                    "{to} got {number} of {name} with an id that it does not know"
                ));
            }
            if let Some(who) = who
                && self.clients[who].asleep
                && self.clients[who].pings <= 0
                && !self.unsure.contains(&(number, to))
            {
                self.faults
                    .push(format!("{to} got {number} while it slept"));
            }
            // A client that subscribes in two ways gets two copies, in order for each way.
            let way = match topic {
                // By the client's own ids: after another CONNECT, it may take an old id for another
                // name.
                Topic::Registered(id) => {
                    let known = who.and_then(|who| self.clients[who].names.get(&id));
                    known.cloned().unwrap_or(name)
                }
                Topic::Predefined(_) => name + " (predefined)",
                Topic::Short(_) => name + " (short)",
            };
            let key = (to, publisher, way);
            self.deliveries.entry(key).or_default().push(number);
            return;
        }
        let Some(who) = who else { return };
        let client = &mut self.clients[who];
        match message {
            Message::Suback {
                topic_id,
                message_id,
                code: Code::ACCEPTED,
                ..
            }
            | Message::Regack {
                topic_id,
                message_id,
                code: Code::ACCEPTED,
            } => {
                if let Some(name) = client.asked.remove(&message_id) {
                    if matches!(message, Message::Regack { .. }) {
                        client.ids.insert(name.clone(), topic_id);
                    }
                    client.names.insert(topic_id, name);
                }
            }
            Message::Register {
                topic_id,
                message_id,
                name,
            } => {
                client.names.insert(topic_id, name.to_owned());
                let code = Code::ACCEPTED;
                // The client whose address is forged does not answer.
                let is_deaf = self.proof != Proof::None && who == DEAF;
                if !client.silent && !is_deaf {
                    self.say(
                        who,
                        &Message::Regack {
                            topic_id,
                            message_id,
                            code,
                        },
                    );
                }
            }
            Message::Connack(Code::ACCEPTED) => client.keep_alive_ns = client.wanted_ns,
            Message::Connack(_) => {
                // The broker did not take the last packet for a sign of life.
                (client.connected, client.said_ns) = (false, client.before_ns);
            }
            Message::Pubrec(message_id) => {
                client
                    .owes
                    .push((self.now_ns + 3 * STEP_NS, false, message_id));
            }
            Message::Pingresp => {
                client.pings -= 1;
                if client.pings < 0 {
                    client.pings = 0;
                    if !self.may_get_answers {
                        self.faults
                            .push(format!("{to} got an answer that it did not ask for"));
                    }
                }
            }
            _ => {}
        }
    }
}

impl What {
    pub fn name(self) -> String {
        match self {
            Self::Name(at) => NAMES[at].to_owned(),
            Self::Short(at) => String::from_utf8_lossy(&SHORT[at]).into_owned(),
            Self::Predefined(at) => PREDEFINED[at].1.to_owned(),
        }
    }
}

impl Wanted {
    fn name(self) -> String {
        match self {
            Self::What(what) => what.name(),
            Self::Wild(at) => ["a/+", "#", "+/b", "x"][at].to_owned(),
        }
    }

    fn filter(self, name: &str) -> Filter<'_> {
        match self {
            Self::What(What::Short(at)) => Filter::Short(SHORT[at]),
            Self::What(What::Predefined(at)) => Filter::Predefined(PREDEFINED[at].0),
            _ => Filter::Name(name),
        }
    }
}

fn address(index: usize, moves: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, index as u8 + 1], 2000 + moves))
}
