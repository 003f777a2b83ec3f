//! One MQTT connection to the upstream, and its state that outlives it, without socket and clock.

mod outgoing;
mod subscriptions;
#[cfg(test)]
mod tests;

use crate::memory::{self, Of, Share};
use crate::message::{Kept, Message};
use crate::session::Session;
use mqtick_packet::{
    AckKind, Connack, ConnectOut, Packet, Property, Publish, Qos, Version, WillOut, ack, connect,
    decode, disconnect, frame, pingreq,
};
use mqtick_sn::{Answer, Code};
use mqtick_topics::{Tree, valid_topic};
use outgoing::{Flight, Takes, WINDOW, answer};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use subscriptions::{Ask, Interest};

/// Seconds that the upstream has to answer CONNECT, PINGREQ, SUBSCRIBE or UNSUBSCRIBE.
const ANSWER_S: u64 = 10;
/// Seconds until a subscription is asked for again that the upstream has refused to renew.
const DENIED_S: u64 = 60;
/// Maximum packet size that the upstream is told: much more than a sensor can be sent.
const PACKET: u32 = 1 << 16;
/// Octets that may wait for the socket before messages of QoS 0 are dropped.
const BACKLOG: usize = 1 << 18;
/// Octets that may wait for the socket before the connection is given up.
const GIVE_UP: usize = 1 << 22;
/// Messages that wait for the answer to a SUBSCRIBE, at most.
const HELD: usize = 1024;
const IDENTIFIER: usize = 96; // octets of memory of one, about

/// What the upstream has done.
pub enum Event {
    /// It has accepted the connection.
    Up,
    /// It has refused the connection, with this reason code of MQTT 5.
    Refused(u8),
    /// It has answered a SUBSCRIBE.
    Subscribed {
        /// The sensor's session.
        who: Arc<Session>,
        /// The filter.
        filter: Arc<str>,
        /// The sensor's message identifier.
        message_id: u16,
        /// The granted QoS, or why it grants none.
        answer: Result<Qos, Code>,
    },
    /// It does not renew its grant of a filter that sensors are subscribed to.
    Denied(Arc<str>),
    /// It has accepted a message, or refused it.
    Answered(Answer, Code),
    /// It has sent a message.
    Message {
        /// The message.
        message: Arc<Kept>,
        /// The identifiers of the subscriptions that match.
        ids: Vec<u32>,
    },
}

/// A PINGREQ that is not answered. `after`: a SUBSCRIBE before it, of this filter and subscriber,
/// whose retained messages come before the answer.
struct Ping {
    asked_s: u64,
    after: Option<(Arc<str>, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Down,
    Asked(u64),
    Up,
}

/// What the upstream publishes if the connection breaks.
#[derive(PartialEq, Eq)]
pub struct Will {
    /// The topic.
    pub topic: Box<str>,
    /// The payload.
    pub payload: Box<[u8]>,
    /// The QoS.
    pub qos: Qos,
    /// Whether it is retained.
    pub retain: bool,
}

/// The terms of CONNECT.
#[derive(PartialEq, Eq)]
pub struct Terms {
    /// Whether the session starts clean.
    pub clean: bool,
    /// Keep-alive: seconds between two packets of ours, at most.
    pub keep_alive_s: u16,
    /// Seconds for which the upstream keeps the session without a connection.
    pub expiry_s: u32,
    /// The will.
    pub will: Option<Will>,
}

/// One connection.
pub struct Line {
    /// The client identifier.
    pub client: Arc<str>,
    /// The session of its sensor; none: it is of all sensors.
    pub owner: Option<Arc<Session>>,
    /// The terms of its CONNECT.
    pub terms: Terms,
    /// Octets for the upstream.
    pub out: Vec<u8>,
    version: Version,
    state: State,
    input: Vec<u8>,
    limit: usize,
    sent_s: u64,
    keep_alive_s: u16,
    pings: VecDeque<Ping>,
    last_id: u16,
    flights: VecDeque<Flight>,
    sent: usize, // how many of the first flights are sent
    window: usize,
    takes: Takes,
    incoming: HashSet<u16>,
    asks: HashMap<u16, Ask>,
    ending: HashMap<u16, Arc<str>>, // filters of unanswered UNSUBSCRIBEs
    over: Vec<Arc<str>>,            // filters to unsubscribe from
    answered_s: u64,                // when the upstream last answered one, or was asked the first
    denied: Vec<Arc<str>>,
    denied_s: u64,
    held: Vec<Event>,
    has_ids: bool,
    last_identifier: u32,
    owed: Vec<Arc<str>>, // filters to be asked for again
    owes: bool,          // whether some of them are not asked for or not answered yet
    identifiers: HashMap<u32, (Arc<str>, Option<u64>)>, // filter, and who asked; none: all
    interests: HashMap<Arc<str>, Interest>,
    filters: Tree<u8, Arc<str>>,
    share: Share,
}

impl Line {
    /// One that is not connected. It takes no packets of more than `limit` octets.
    pub fn new(client: &str, terms: Terms, limit: usize) -> Self {
        Self {
            client: client.into(),
            owner: None,
            terms,
            out: Vec::new(),
            version: Version::V5,
            state: State::Down,
            input: Vec::new(),
            limit,
            sent_s: 0,
            keep_alive_s: 0,
            pings: VecDeque::new(),
            last_id: 0,
            flights: VecDeque::new(),
            sent: 0,
            window: WINDOW,
            takes: Takes {
                qos: Qos::ExactlyOnce,
                retain: true,
                wildcards: true,
                octets: usize::MAX,
            },
            incoming: HashSet::new(),
            asks: HashMap::new(),
            ending: HashMap::new(),
            over: Vec::new(),
            answered_s: 0,
            denied: Vec::new(),
            denied_s: 0,
            held: Vec::new(),
            has_ids: false,
            last_identifier: 0,
            owed: Vec::new(),
            owes: false,
            identifiers: HashMap::new(),
            interests: HashMap::new(),
            filters: Tree::new(),
            share: Share::new(Of::Messages, 0),
        }
    }

    /// Whether the upstream has accepted the connection.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether there is a connection, or one is asked for.
    pub fn is_open(&self) -> bool {
        self.state != State::Down
    }

    /// Send CONNECT.
    pub fn open(&mut self, now_s: u64, version: Version, login: Option<(&str, Option<&[u8]>)>) {
        let Terms {
            clean,
            keep_alive_s,
            expiry_s,
            ref will,
        } = self.terms;
        let properties = [
            Property::SessionExpiry(expiry_s),
            Property::MaximumPacketSize(PACKET.min(self.limit as u32)),
        ];
        let with = ConnectOut {
            clean_start: clean,
            keep_alive: keep_alive_s,
            client_id: &self.client,
            will: will.as_ref().map(|will| WillOut {
                qos: will.qos,
                retain: will.retain,
                topic: &will.topic,
                payload: &will.payload,
                properties: &[],
            }),
            username: login.map(|(user, _)| user),
            password: login.and_then(|(_, password)| password),
            properties: &properties,
        };
        self.out.clear();
        self.input.clear();
        connect(&mut self.out, version, &with);
        (self.version, self.state, self.sent_s) = (version, State::Asked(now_s), now_s);
        self.keep_alive_s = keep_alive_s;
    }

    /// The connection is gone. Sensors that wait for an answer are told. If the upstream keeps the
    /// session, messages of QoS 2 stay, to be sent again, so that it takes them exactly once.
    pub fn close(&mut self, events: &mut Vec<Event>) {
        self.state = State::Down;
        self.out = Vec::new();
        self.input = Vec::new();
        self.pings.clear();
        events.append(&mut self.held); // the upstream has their acknowledgements
        let resumes = self.resumes();
        self.flights.retain_mut(|flight| {
            let is_theirs = flight.qos == Qos::AtLeastOnce || !resumes; // the sensor sends it again
            let answer = flight.answer.take_if(|_| is_theirs);
            let stays = answer.is_none();
            events.extend(answer.map(|answer| Event::Answered(answer, Code::CONGESTION)));
            stays
        });
        self.sent = 0;
        // The upstream may or may not have done what it has not answered.
        self.over
            .extend(self.ending.drain().map(|(_, filter)| filter));
        for (_, ask) in std::mem::take(&mut self.asks) {
            self.over.push(Arc::clone(&ask.filter));
            self.answer_ask(ask, Err(Code::CONGESTION), events);
        }
        let interests = self.interests.values_mut();
        for one in interests.flat_map(|interest| interest.subscribers.values_mut()) {
            one.is_fresh = false;
        }
        self.hold();
    }

    /// Whether the upstream keeps the session.
    fn resumes(&self) -> bool {
        self.version == Version::V5 && self.terms.expiry_s > 0 || !self.terms.clean
    }

    /// Send DISCONNECT.
    pub fn leave(&mut self) {
        if self.is_up() {
            disconnect(&mut self.out, self.version, 0);
        }
    }

    /// Once a second.
    ///
    /// # Errors
    /// Why the connection is to be given up.
    pub fn tick(&mut self, now_s: u64) -> Result<(), String> {
        let asked_s = match self.state {
            State::Down => return Ok(()),
            State::Asked(asked_s) => Some(asked_s),
            State::Up => {
                let is_asked = !self.asks.is_empty() || !self.ending.is_empty();
                let ping_s = self.pings.front().map(|ping| ping.asked_s);
                let asked_s = is_asked.then_some(self.answered_s);
                ping_s.into_iter().chain(asked_s).min()
            }
        };
        if asked_s.is_some_and(|asked_s| now_s >= asked_s + ANSWER_S) {
            return Err(format!("it has not answered for {ANSWER_S} s"));
        }
        let rest_s = u64::from(self.keep_alive_s / 2).max(1);
        if self.is_up() && now_s >= self.sent_s + rest_s && self.keep_alive_s > 0 {
            self.ping(now_s, None);
        }
        if self.is_up() && !self.denied.is_empty() && now_s >= self.denied_s + DENIED_S {
            self.owed.append(&mut self.denied);
            self.owes = true;
            self.ask_again(now_s);
        }
        Ok(())
    }

    fn ping(&mut self, now_s: u64, after: Option<(Arc<str>, u64)>) {
        pingreq(&mut self.out);
        self.sent_s = now_s;
        let asked_s = now_s;
        self.pings.push_back(Ping { asked_s, after });
    }

    /// Take octets that have come.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn take(
        &mut self,
        now_s: u64,
        octets: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(octets);
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let Some(frame) = frame(rest, self.limit).map_err(|error| error.to_string())? else {
                break;
            };
            used += frame.length;
            let packet = decode(&frame, self.version).map_err(|error| error.to_string())?;
            self.packet(now_s, &packet, events)?;
        }
        input.drain(..used);
        self.input = input;
        if self.is_up() {
            self.end_more(now_s);
            self.ask_again(now_s);
        }
        self.hold();
        if self.out.len() > GIVE_UP || !memory::may_hold(self.input.len()) {
            return Err("it sends more than there is room for".into());
        }
        Ok(())
    }

    fn packet(
        &mut self,
        now_s: u64,
        packet: &Packet<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        if let (Packet::Connack(connack), State::Asked(_)) = (packet, self.state) {
            return self.connected(now_s, connack, events);
        }
        if !self.is_up() {
            return Err("something else came than CONNACK".into());
        }
        match packet {
            Packet::Publish(message) => self.message(now_s, message, events)?,
            Packet::Ack(ack) => self.acknowledged(ack, events),
            Packet::Suback(suback) => {
                let code = suback.codes.first().copied().unwrap_or(0x80);
                self.subscribed(now_s, suback.id, code, events);
            }
            Packet::Unsuback(unsuback) => {
                self.ending.remove(&unsuback.id);
                self.answered_s = now_s;
            }
            Packet::Pingresp => {
                if let Some((filter, number)) = self.pings.pop_front().and_then(|ping| ping.after)
                    && let Some(one) = self
                        .interests
                        .get_mut(&filter)
                        .and_then(|interest| interest.subscribers.get_mut(&number))
                {
                    one.is_fresh = false;
                }
            }
            Packet::Disconnect(why) => {
                return Err(format!("it disconnected with reason {:#04x}", why.reason));
            }
            _ => return Err("a packet came that only clients send".into()),
        }
        Ok(())
    }

    fn connected(
        &mut self,
        now_s: u64,
        connack: &Connack<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        if connack.reason != 0 {
            events.push(Event::Refused(connack.reason));
            return Ok(());
        }
        self.state = State::Up;
        let properties = &connack.properties;
        let is_v5 = self.version == Version::V5;
        self.has_ids = is_v5 && properties.subscription_ids_available().unwrap_or(true);
        self.keep_alive_s = properties
            .server_keep_alive()
            .unwrap_or(self.terms.keep_alive_s);
        let most = properties.receive_maximum().map_or(WINDOW, usize::from);
        self.window = most.min(WINDOW);
        let octets = properties.maximum_packet_size();
        self.takes = Takes {
            qos: match properties.maximum_qos() {
                Some(0) => Qos::AtMostOnce,
                Some(_) => Qos::AtLeastOnce,
                None => Qos::ExactlyOnce,
            },
            retain: properties.retain_available().unwrap_or(true),
            wildcards: properties.wildcard_available().unwrap_or(true),
            octets: octets.map_or(usize::MAX, |octets| octets as usize),
        };
        let (takes, version) = (self.takes, self.version);
        self.flights.retain_mut(|flight| {
            let stays = flight.is_taken || takes.takes(version, &flight.message.message());
            if !stays {
                answer(flight, 0x80, events);
            }
            stays
        });
        let is_resumed = connack.session_present;
        if !is_resumed {
            self.incoming.clear();
            for flight in &mut self.flights {
                (flight.again, flight.is_taken) = (false, false);
            }
        }
        self.sent = 0;
        self.fill();
        if !is_resumed {
            self.over.clear();
        }
        self.end_more(now_s);
        if !is_resumed || self.owes {
            self.denied.clear();
            self.owed = self.interests.keys().cloned().collect();
            self.owes = true;
            self.ask_again(now_s);
        }
        events.push(Event::Up);
        Ok(())
    }

    fn message(
        &mut self,
        now_s: u64,
        publish: &Publish<'_>,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        if !valid_topic(publish.topic) {
            return Err("a message without a topic's name came".into());
        }
        let is_again = publish.qos == Qos::ExactlyOnce && !self.incoming.insert(publish.id);
        match publish.qos {
            Qos::AtMostOnce => {}
            Qos::AtLeastOnce => ack(&mut self.out, self.version, AckKind::Puback, publish.id, 0),
            Qos::ExactlyOnce => ack(&mut self.out, self.version, AckKind::Pubrec, publish.id, 0),
        }
        if is_again {
            return Ok(());
        }
        let ids = publish.properties.iter().filter_map(|one| match one {
            Property::SubscriptionId(id) => Some(id),
            _ => None,
        });
        let expires_s = publish.properties.message_expiry();
        let message = Event::Message {
            ids: ids.collect(),
            message: Kept::new(&Message {
                whole: None,
                topic: publish.topic,
                payload: publish.payload,
                qos: publish.qos,
                retain: publish.retain,
                forwarded: &[],
                expires_s: expires_s.map(|s| now_s + u64::from(s)),
            }),
        };
        // A sensor that waits for SUBACK may not expect a message before it. A newer message on the
        // same topic must not come before the retained one.
        let is_of = |held: &Event| match held {
            Event::Message { message, .. } => message.message().topic == publish.topic,
            _ => false,
        };
        let waits = publish.retain && !self.asks.is_empty() || self.held.iter().any(is_of);
        if self.held.len() >= HELD {
            events.append(&mut self.held);
        }
        match waits {
            true => self.held.push(message),
            false => events.push(message),
        }
        Ok(())
    }

    fn hold(&mut self) {
        let identifiers = self.identifiers.len() * IDENTIFIER;
        self.share
            .set(self.input.capacity() + self.out.capacity() + identifiers);
    }
}
