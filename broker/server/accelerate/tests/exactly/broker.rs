//! A small model of an MQTT-SN broker. It serves datagrams in the order of their arrival.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use mqtick_sn::{Code, Filter, Message, Qos, Topic, decode, encode};
use mqtick_topics::{has_wildcards, matches};

pub const PREDEFINED: [(u16, &str); 2] = [(1, "p/q"), (2, "x")];
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, PartialEq)]
enum Subscription {
    Name(String),
    Predefined(u16),
    Short([u8; 2]),
}

impl Subscription {
    fn new(filter: &Filter<'_>) -> Self {
        match filter {
            Filter::Name(name) => Self::Name((*name).to_owned()),
            Filter::Predefined(id) => Self::Predefined(*id),
            Filter::Short(name) => Self::Short(*name),
        }
    }

    fn filter(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Predefined(id) => name_of(*id).to_owned(),
            Self::Short(name) => String::from_utf8_lossy(name).into_owned(),
        }
    }
}

fn name_of(id: u16) -> &'static str {
    PREDEFINED
        .iter()
        .find(|(one, _)| *one == id)
        .map_or("?", |(_, name)| name)
}

struct Session {
    id: String,
    at: SocketAddr,
    clean: bool,
    here: bool,
    keep_alive_ns: u64,
    heard_ns: u64,
    asleep: bool,
    kept: Vec<Vec<u8>>,
    subscriptions: Vec<Subscription>,
    acknowledged: Vec<Subscription>, // those of QoS 1
    unacked: bool,
    held: Vec<(Vec<u8>, bool)>, // held until PUBACK or the proof; whether it is of QoS 1
    heard: usize,               // datagrams since CONNECT
    asked: bool,                // whether a proof was asked for
    releases: BTreeMap<u16, (String, Vec<u8>)>, // messages of QoS 2, until PUBREL
    // messages after them, since this broker keeps a topic's order
    behind: Vec<(String, Vec<u8>, bool)>,
    ids: BTreeMap<String, u16>,
    proven: bool,
    waiting: BTreeMap<u16, Vec<Vec<u8>>>, // messages that wait for REGACK
    next_id: u16,
}

/// Whether a client has to answer a REGISTER before it gets messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Proof {
    #[default]
    None,
    /// Before messages with registered ids, with the first message.
    Register,
    /// Before any message, once enough datagrams have come to allow a REGISTER.
    Credit,
}

const CREDIT: usize = 4; // datagrams
const PROOF_ID: u16 = 9;

#[derive(Default)]
pub struct Broker {
    sessions: Vec<Session>,
    retained: BTreeMap<String, Vec<u8>>,
    proof: Proof,
    /// How many CONNECTs it will refuse.
    pub refuses: usize,
    pub out: Vec<(SocketAddr, Vec<u8>)>,
}

impl Broker {
    pub fn new(proof: Proof) -> Self {
        Self {
            proof,
            ..Self::default()
        }
    }

    fn say(&mut self, to: SocketAddr, message: &Message<'_>) {
        let mut datagram = Vec::new();
        assert!(encode(message, &mut datagram));
        self.out.push((to, datagram));
    }

    pub fn restart(&mut self) {
        self.sessions.clear();
    }

    /// End sessions that were silent for too long. Those that are not clean are kept without a
    /// client.
    fn expire(&mut self, now_ns: u64) {
        let is_late = |one: &Session| {
            one.here && now_ns.saturating_sub(one.heard_ns) > one.keep_alive_ns / 2 * 3
        };
        self.sessions.retain(|one| !(is_late(one) && one.clean));
        for one in self.sessions.iter_mut().filter(|one| is_late(one)) {
            one.leave();
        }
    }

    pub fn serve(&mut self, now_ns: u64, from: SocketAddr, datagram: &[u8]) {
        self.expire(now_ns);
        // It accepts what the controller cannot read: reserved flags, octets at the end.
        let mut read = datagram.to_vec();
        if decode(&read).is_err() {
            match read[1] {
                4 => read[2] &= 0x0c,
                _ => read.truncate(4),
            }
            read[0] = read.len() as u8;
        }
        let (message, _) = decode(&read).expect("clients send messages");
        let found = |one: &Session| one.here && one.at == from;
        if let Message::Connect {
            clean,
            duration_s,
            client,
            ..
        } = message
        {
            return self.connect(now_ns, from, clean, duration_s, client);
        }
        if let Message::Publish {
            qos: Qos::Unconnected,
            topic,
            data,
            ..
        } = message
        {
            return self.deliver(&plain_name(topic), data, false, false);
        }
        if let Message::Pingreq { client } = message
            && !client.is_empty()
            && let Some(one) = self
                .sessions
                .iter_mut()
                .find(|one| one.id == client && one.asleep)
        {
            one.at = from;
        }
        let Some(at) = self.sessions.iter().position(found) else {
            return self.say(from, &Message::Disconnect { duration_s: None });
        };
        let session = &mut self.sessions[at];
        session.heard_ns = now_ns;
        session.heard += usize::from(datagram.len() > 2); // a PINGREQ is too short to count
        if session.heard >= CREDIT && !session.held.is_empty() {
            self.ask_proof(at);
        }
        let session = &mut self.sessions[at];
        match message {
            Message::Register {
                message_id, name, ..
            } => {
                let topic_id = session.id_of(name);
                let code = Code::ACCEPTED;
                self.say(
                    from,
                    &Message::Regack {
                        topic_id,
                        message_id,
                        code,
                    },
                );
            }
            Message::Puback { .. } => {
                session.unacked = false;
                session.flush(&mut self.out);
            }
            Message::Pubrel(id) => {
                if let Some((name, data)) = session.releases.remove(&id) {
                    let is_last = !session.releases.values().any(|(other, _)| *other == name);
                    let of_it = |one: &(String, Vec<u8>, bool)| is_last && one.0 == name;
                    let (behind, rest) = session.behind.drain(..).partition(of_it);
                    session.behind = rest;
                    let behind: Vec<(String, Vec<u8>, bool)> = behind;
                    self.deliver(&name, &data, false, true);
                    for (name, data, retain) in behind {
                        self.deliver(&name, &data, retain, false);
                    }
                }
            }
            Message::Regack { topic_id, .. } => {
                session.proven = true;
                session.flush(&mut self.out);
                for one in session.waiting.remove(&topic_id).unwrap_or_default() {
                    self.out.push((from, one));
                }
            }
            Message::Publish {
                qos,
                retain,
                topic,
                message_id,
                data,
                ..
            } => {
                let name = match topic {
                    Topic::Registered(id) => {
                        let known = session.ids.iter().find(|(_, one)| **one == id);
                        known.map(|(name, _)| name.clone())
                    }
                    other => Some(plain_name(other)),
                };
                let known = name.clone();
                let code = match name {
                    Some(_) => Code::ACCEPTED,
                    None => Code::INVALID_TOPIC,
                };
                if qos == Qos::AtLeastOnce || name.is_none() {
                    let Topic::Registered(topic_id) = topic else {
                        return;
                    };
                    self.say(
                        from,
                        &Message::Puback {
                            topic_id,
                            message_id,
                            code,
                        },
                    );
                }
                if let Some(name) = name.filter(|_| qos == Qos::ExactlyOnce) {
                    let session = &mut self.sessions[at];
                    session.releases.insert(message_id, (name, data.to_vec()));
                    self.say(from, &Message::Pubrec(message_id));
                } else if let Some(name) = known {
                    let session = &mut self.sessions[at];
                    if session.releases.values().any(|(held, _)| *held == name) {
                        session.behind.push((name, data.to_vec(), retain));
                    } else {
                        self.deliver(&name, data, retain, qos == Qos::AtLeastOnce);
                    }
                }
            }
            Message::Subscribe {
                message_id,
                filter,
                qos,
                ..
            } => self.subscribe(at, message_id, &filter, qos),
            Message::Unsubscribe { message_id, filter } => {
                let gone = Subscription::new(&filter);
                session.subscriptions.retain(|one| *one != gone);
                session.acknowledged.retain(|one| *one != gone);
                self.say(from, &Message::Unsuback(message_id));
            }
            Message::Pingreq { .. } => {
                let kept = std::mem::take(&mut session.kept);
                self.out.extend(kept.into_iter().map(|one| (from, one)));
                self.say(from, &Message::Pingresp);
            }
            Message::Disconnect { duration_s } => {
                match duration_s {
                    Some(duration_s) => {
                        session.asleep = true;
                        session.unacked = false;
                        let held = std::mem::take(&mut session.held);
                        session.kept.extend(held.into_iter().map(|(one, _)| one));
                        session.keep_alive_ns = u64::from(duration_s) * SECOND_NS;
                    }
                    None if session.clean => drop(self.sessions.remove(at)),
                    None => session.leave(),
                }
                self.say(from, &Message::Disconnect { duration_s: None });
            }
            _ => {}
        }
    }

    fn connect(&mut self, now_ns: u64, at: SocketAddr, clean: bool, duration_s: u16, id: &str) {
        if self.refuses > 0 {
            self.refuses -= 1;
            return self.say(at, &Message::Connack(Code::CONGESTION));
        }
        // Another client that had this address is gone.
        self.sessions
            .retain(|one| !(one.here && one.at == at && one.id != id && one.clean));
        for one in &mut self.sessions {
            if one.at == at && one.id != id {
                one.leave();
            }
        }
        let before = self.sessions.iter().position(|one| one.id == id);
        let before = before.map(|place| self.sessions.remove(place));
        let first_id = 10 + u16::from(id.as_bytes().last().copied().unwrap_or(0)) % 3;
        let (mut releases, mut behind) = (BTreeMap::new(), Vec::new());
        let (subscriptions, kept, ids, next_id) = match before {
            Some(one) if !clean => {
                (releases, behind) = (one.releases, one.behind);
                (one.subscriptions, one.kept, one.ids, one.next_id)
            }
            _ => (Vec::new(), Vec::new(), BTreeMap::new(), first_id),
        };
        self.say(at, &Message::Connack(Code::ACCEPTED));
        self.out.extend(kept.into_iter().map(|one| (at, one)));
        let acknowledged = Vec::new();
        self.sessions.push(Session {
            acknowledged,
            unacked: false,
            held: Vec::new(),
            heard: 1,
            asked: false,
            releases,
            behind,
            id: id.to_owned(),
            at,
            clean,
            here: true,
            keep_alive_ns: u64::from(duration_s) * SECOND_NS,
            heard_ns: now_ns,
            asleep: false,
            kept: Vec::new(),
            subscriptions,
            ids,
            proven: self.proof == Proof::None,
            waiting: BTreeMap::new(),
            next_id,
        });
    }

    fn subscribe(&mut self, at: usize, message_id: u16, filter: &Filter<'_>, qos: Qos) {
        let session = &mut self.sessions[at];
        let (to, new) = (session.at, Subscription::new(filter));
        // The broker refuses this filter to client c3.
        let is_refused = session.id == "c3" && *filter == Filter::Name("a/b");
        let topic_id = match filter {
            Filter::Name(name) if !is_refused && !has_wildcards(name) => session.id_of(name),
            Filter::Predefined(id) => *id,
            _ => 0,
        };
        if !is_refused && !session.subscriptions.contains(&new) {
            session.subscriptions.push(new.clone());
        }
        if !is_refused {
            session.acknowledged.retain(|one| *one != new);
            if qos != Qos::AtMostOnce {
                session.acknowledged.push(new.clone());
            }
        }
        let code = Code(if is_refused { 3 } else { 0 });
        self.say(
            to,
            &Message::Suback {
                qos,
                topic_id,
                message_id,
                code,
            },
        );
        if !is_refused {
            let found = self
                .retained
                .iter()
                .filter(|(name, _)| matches(&new.filter(), name));
            let found: Vec<_> = found.map(|(n, d)| (n.clone(), d.clone())).collect();
            for (name, data) in found {
                self.copy(at, &new, &name, &data, true, false);
            }
        }
    }

    fn deliver(&mut self, name: &str, data: &[u8], retain: bool, acknowledged: bool) {
        if retain {
            self.retained.insert(name.to_owned(), data.to_vec());
        }
        for at in 0..self.sessions.len() {
            for one in self.sessions[at].subscriptions.clone() {
                // It keeps messages for clients that are away, for when they resume their sessions.
                let session = &self.sessions[at];
                if (session.here || !session.clean) && matches(&one.filter(), name) {
                    self.copy(at, &one, name, data, false, acknowledged);
                }
            }
        }
    }

    fn copy(
        &mut self,
        at: usize,
        why: &Subscription,
        name: &str,
        data: &[u8],
        retain: bool,
        acknowledged: bool,
    ) {
        let proof = self.proof;
        let session = &mut self.sessions[at];
        let (to, mut registers) = (session.at, false);
        let topic = match why {
            Subscription::Predefined(id) => Topic::Predefined(*id),
            _ if name.len() == 2 => Topic::Short(name.as_bytes().try_into().expect("two")),
            _ => {
                registers = !session.ids.contains_key(name);
                registers |= proof == Proof::Register && !session.proven;
                Topic::Registered(session.id_of(name))
            }
        };
        let mut datagram = Vec::new();
        let is_acknowledged = acknowledged && session.acknowledged.contains(why);
        let qos = match is_acknowledged {
            true => Qos::AtLeastOnce,
            false => Qos::AtMostOnce,
        };
        let message = Message::Publish {
            dup: false,
            qos,
            retain,
            topic,
            message_id: u16::from(is_acknowledged),
            data,
        };
        encode(&message, &mut datagram);
        let Topic::Registered(topic_id) = topic else {
            session.send(datagram, is_acknowledged, proof, &mut self.out);
            return self.ask_proof(at);
        };
        if let Some(waiting) = session.waiting.get_mut(&topic_id) {
            return waiting.push(datagram);
        }
        if !registers {
            session.send(datagram, is_acknowledged, proof, &mut self.out);
            return self.ask_proof(at);
        }
        let message_id = topic_id;
        let mut register = Vec::new();
        encode(
            &Message::Register {
                topic_id,
                message_id,
                name,
            },
            &mut register,
        );
        if session.asleep || !session.here {
            session.kept.extend([register, datagram]);
        } else if proof == Proof::Credit && !session.proven && session.heard < CREDIT {
            session.held.extend([(register, false), (datagram, false)]);
        } else {
            session.waiting.insert(topic_id, vec![datagram]);
            self.out.push((to, register));
        }
    }

    /// A REGISTER, which only a client that receives at this address can answer.
    fn ask_proof(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        let is_awake = session.here && !session.asleep;
        let wants = self.proof == Proof::Credit && !session.proven && is_awake;
        if wants && session.heard >= CREDIT && !std::mem::replace(&mut session.asked, true) {
            let (to, topic_id, message_id, name) = (session.at, PROOF_ID, PROOF_ID, "$proof");
            let register = Message::Register {
                topic_id,
                message_id,
                name,
            };
            self.say(to, &register);
        }
    }
}

impl Session {
    fn leave(&mut self) {
        (self.here, self.asleep) = (false, false);
        self.held.clear();
        self.waiting.clear();
        self.unacked = false;
    }

    fn id_of(&mut self, name: &str) -> u16 {
        let next = &mut self.next_id;
        *self.ids.entry(name.to_owned()).or_insert_with(|| {
            *next += 1;
            *next
        })
    }

    fn send(
        &mut self,
        datagram: Vec<u8>,
        acknowledged: bool,
        proof: Proof,
        out: &mut Vec<(SocketAddr, Vec<u8>)>,
    ) {
        if self.asleep || !self.here {
            self.kept.push(datagram);
        } else if self.unacked || proof == Proof::Credit && !self.proven {
            self.held.push((datagram, acknowledged));
        } else {
            self.unacked = acknowledged;
            out.push((self.at, datagram));
        }
    }

    fn flush(&mut self, out: &mut Vec<(SocketAddr, Vec<u8>)>) {
        while !self.held.is_empty() && !self.unacked {
            let (datagram, acknowledged) = self.held.remove(0);
            self.unacked = acknowledged;
            out.push((self.at, datagram));
        }
    }
}

fn plain_name(topic: Topic) -> String {
    match topic {
        Topic::Registered(_) => String::new(),
        Topic::Predefined(id) => name_of(id).to_owned(),
        Topic::Short(name) => String::from_utf8_lossy(&name).into_owned(),
    }
}
