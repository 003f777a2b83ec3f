//! One MQTT connection to the upstream and what outlives it, without socket and clock.

use crate::memory::{self, Of, Share};
use crate::message::{Kept, Message};
use crate::session::Session;
use mqtick_packet::{
    Ack, AckKind, Connack, ConnectOut, Outgoing, Packet, Property, Publish, Qos, Version, WillOut,
    ack, connect, decode, disconnect, frame, pingreq, publish, publish_length, subscribe_as,
    unsubscribe,
};
use mqtick_sn::{Answer, Code};
use mqtick_topics::{Match, Tree, valid_topic};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Seconds for which the upstream's answer to CONNECT, PINGREQ, SUBSCRIBE or UNSUBSCRIBE is waited for.
const ANSWER_S: u64 = 10;
/// Seconds until what the upstream refused after its return is asked for again.
const DENIED_S: u64 = 60;
/// Octets of the longest packet that is asked for: much more than a sensor can be sent.
const PACKET: u32 = 1 << 16;
/// Octets that may wait for the socket until messages of QoS 0 are dropped, and until it is given up.
const BACKLOG: usize = 1 << 18;
const GIVE_UP: usize = 1 << 22;
/// Retained messages that wait for the answer to their SUBSCRIBE.
const HELD: usize = 1024;
const AGAIN: usize = 1000; // unanswered SUBSCRIBEs or UNSUBSCRIBEs, where many are owed
/// Subscription identifiers of one filter that are remembered: it has a new one for each SUBSCRIBE.
const IDENTIFIERS: usize = 4096;
const IDENTIFIER: usize = 96; // octets of one, about
/// Messages of QoS 1 and 2 under way where the upstream names no number.
const WINDOW: usize = 100;
/// Unanswered messages of one sensor, as many as its broker remembers of QoS 2: nobody holds up others.
const OF_ONE: usize = 16;
const MOST_FLIGHTS: usize = 1 << 14; // there are 65,535 packet identifiers

/// What the upstream did.
pub enum Event {
    /// It took the connection.
    Up,
    /// It refused the connection, with this reason of MQTT 5.
    Refused(u8),
    /// It answered a SUBSCRIBE.
    Subscribed {
        /// Whose.
        who: Arc<Session>,
        /// To what.
        filter: Arc<str>,
        /// The sensor's message identifier.
        message_id: u16,
        /// The QoS that it grants, or why it does not.
        answer: Result<Qos, Code>,
    },
    /// It does not grant any more what sensors are subscribed to.
    Denied(Arc<str>),
    /// It took a message, or did not.
    Answered(Answer, Code),
    /// It has a message.
    Message {
        /// Which.
        message: Arc<Kept>,
        /// Of the subscriptions that matched.
        ids: Vec<u32>,
    },
}

/// A message that the upstream has not answered yet.
struct Flight {
    id: u16,
    message: Arc<Kept>,
    is_taken: bool, // the upstream has it, and is told to release it; if it forgets all, it comes again
    qos: Qos,
    again: bool,
    answer: Option<Answer>,
}

struct Ask {
    who: Option<(Arc<Session>, u16)>, // none: it is only made again
    filter: Arc<str>,
    qos: Qos,
}

/// A PINGREQ that is not answered: retained messages for a subscriber's filter come before.
struct Ping {
    asked_s: u64,
    after: Option<(Arc<str>, u64)>,
}

struct Subscriber {
    session: Arc<Session>,
    qos: Qos,
    is_granted: bool,
    is_fresh: bool, // until all retained messages have come that it asked for, in MQTT 3.1.1
}

/// Who wants what one filter matches.
struct Interest {
    qos: Qos,
    ids: VecDeque<u32>,
    subscribers: BTreeMap<u64, Subscriber>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Down,
    Asked(u64),
    Up,
}

/// What the upstream takes; it ends the connection of all for a message that it does not.
#[derive(Clone, Copy)]
struct Takes {
    qos: Qos,
    retain: bool,
    wildcards: bool,
    octets: usize,
}

/// What the upstream publishes if the connection breaks.
#[derive(PartialEq, Eq)]
pub struct Will {
    /// Where.
    pub topic: Box<str>,
    /// What.
    pub payload: Box<[u8]>,
    /// How surely.
    pub qos: Qos,
    /// Whether it is kept.
    pub retain: bool,
}

/// How a connection is asked for.
#[derive(PartialEq, Eq)]
pub struct Terms {
    /// Whether what was before is forgotten.
    pub clean: bool,
    /// Seconds between two packets of ours, at most.
    pub keep_alive_s: u16,
    /// Seconds for which the upstream keeps the session without a connection.
    pub expiry_s: u32,
    /// What is published if it breaks.
    pub will: Option<Will>,
}

/// One connection.
pub struct Line {
    /// As what it connects.
    pub client: Arc<str>,
    /// Whose it is; none: all sensors'.
    pub owner: Option<Arc<Session>>,
    /// How it is asked for.
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
    sent: usize, // of the first flights
    window: usize,
    takes: Takes,
    incoming: HashSet<u16>,
    asks: HashMap<u16, Ask>,
    ending: HashMap<u16, Arc<str>>, // UNSUBSCRIBEs that are not answered
    over: Vec<Arc<str>>,            // filters that the upstream has yet to be told are not wanted
    answered_s: u64,                // when one of those was, or the first was asked
    denied: Vec<Arc<str>>,
    denied_s: u64,
    held: Vec<Event>,
    has_ids: bool,
    last_identifier: u32,
    owed: Vec<Arc<str>>, // filters to be asked for again
    owes: bool,          // and some of them are not granted yet
    identifiers: HashMap<u32, (Arc<str>, Option<u64>)>, // who asked; none: all
    interests: HashMap<Arc<str>, Interest>,
    filters: Tree<u8, Arc<str>>,
    share: Share,
}

impl Line {
    /// One that is not connected; the upstream is asked for no packets of more than `limit` octets.
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

    /// Whether the upstream took it.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether there is a connection, or one is asked for.
    pub fn is_open(&self) -> bool {
        self.state != State::Down
    }

    /// Ask for a connection.
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

    /// The connection is gone; whoever waits for an answer is told. What is of QoS 2 is sent again,
    /// so that it is taken once, if the upstream keeps the session.
    pub fn close(&mut self, events: &mut Vec<Event>) {
        self.state = State::Down;
        self.out = Vec::new();
        self.input = Vec::new();
        self.pings.clear();
        events.append(&mut self.held); // they are acknowledged
        let resumes = self.resumes();
        self.flights.retain_mut(|flight| {
            let is_theirs = flight.qos == Qos::AtLeastOnce || !resumes; // the sensor sends it again
            let answer = flight.answer.take_if(|_| is_theirs);
            let stays = answer.is_none();
            events.extend(answer.map(|answer| Event::Answered(answer, Code::CONGESTION)));
            stays
        });
        self.sent = 0;
        // Nobody knows whether the upstream has done what it did not answer.
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

    /// Say good-bye.
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

    /// Read what came.
    ///
    /// # Errors
    /// What is wrong with it.
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
        // A sensor that waits for SUBACK may not expect anything else before; and what is newer on
        // the same topic does not come before what is retained.
        let is_of = |held: &Event| matches!(held, Event::Message { message, .. } if message.message().topic == publish.topic);
        let waits = publish.retain && !self.asks.is_empty() || self.held.iter().any(is_of);
        if !waits || self.held.len() >= HELD {
            events.append(&mut self.held);
            events.push(message);
        } else {
            self.held.push(message);
        }
        Ok(())
    }

    fn acknowledged(&mut self, found: &Ack<'_>, events: &mut Vec<Event>) {
        if found.kind == AckKind::Pubrel {
            self.incoming.remove(&found.id);
            ack(&mut self.out, self.version, AckKind::Pubcomp, found.id, 0);
            return;
        }
        let mut sent = self.flights.iter().take(self.sent);
        let at = sent.position(|one| one.id == found.id);
        let flight = at.and_then(|at| self.flights.get_mut(at));
        let is_refused = found.reason >= 0x80;
        let is_over = match (found.kind, flight) {
            (AckKind::Puback, Some(flight)) if flight.qos == Qos::AtLeastOnce => {
                answer(flight, found.reason, events);
                true
            }
            (AckKind::Pubrec, Some(flight)) if flight.qos == Qos::ExactlyOnce => {
                answer(flight, found.reason, events);
                flight.is_taken = true;
                is_refused
            }
            (AckKind::Pubcomp, Some(flight)) => flight.is_taken,
            _ => false,
        };
        if found.kind == AckKind::Pubrec && !is_refused {
            ack(&mut self.out, self.version, AckKind::Pubrel, found.id, 0);
        }
        if let Some(at) = at.filter(|_| is_over) {
            self.flights.remove(at);
            self.sent -= 1;
            self.fill();
        }
    }

    fn subscribed(&mut self, now_s: u64, id: u16, code: u8, events: &mut Vec<Event>) {
        let Some(ask) = self.asks.remove(&id) else {
            return;
        };
        self.answered_s = now_s;
        let granted = Qos::try_from(code).map(|granted| granted.min(ask.qos));
        let answer = granted.map_err(|_| match code {
            0x91 | 0x97 => Code::CONGESTION,
            _ => Code::NOT_SUPPORTED,
        });
        if ask.who.is_none() && answer.is_err() && self.interests.contains_key(&ask.filter) {
            self.denied.push(Arc::clone(&ask.filter));
            self.denied_s = now_s;
            events.push(Event::Denied(Arc::clone(&ask.filter)));
        }
        self.answer_ask(ask, answer, events);
        events.append(&mut self.held);
    }

    /// Tell who asked. What was granted before goes on if it is refused now.
    fn answer_ask(&mut self, ask: Ask, answer: Result<Qos, Code>, events: &mut Vec<Event>) {
        let Some((who, message_id)) = ask.who else {
            return;
        };
        let subscriber = self
            .interests
            .get_mut(&ask.filter)
            .and_then(|interest| interest.subscribers.get_mut(&who.number));
        if let Some(subscriber) = subscriber {
            subscriber.is_granted |= answer.is_ok();
            if !subscriber.is_granted {
                self.forget(&ask.filter, who.number);
            }
        }
        events.push(Event::Subscribed {
            who,
            filter: ask.filter,
            message_id,
            answer,
        });
    }

    /// Whether a sensor is, or waits to be.
    pub fn is_subscribed(&self, filter: &str, number: u64) -> bool {
        let interest = self.interests.get(filter);
        interest.is_some_and(|interest| interest.subscribers.contains_key(&number))
    }

    /// Subscribe; why not, where the upstream is not asked.
    ///
    /// # Errors
    /// What to tell the sensor.
    pub fn subscribe(
        &mut self,
        now_s: u64,
        who: &Arc<Session>,
        message_id: u16,
        filter: &str,
        qos: Qos,
    ) -> Result<(), Code> {
        let is_full = self.out.len() > BACKLOG || self.asks.len() >= MOST_FLIGHTS;
        if !self.is_up() || is_full || memory::free() == 0 {
            return Err(Code::CONGESTION);
        }
        if !self.takes.wildcards && filter.contains(['+', '#']) {
            return Err(Code::NOT_SUPPORTED);
        }
        let name: Arc<str> = match self.interests.get_key_value(filter) {
            Some((name, _)) => Arc::clone(name),
            None => filter.into(),
        };
        let interest = self
            .interests
            .entry(Arc::clone(&name))
            .or_insert_with(|| Interest {
                qos,
                ids: VecDeque::new(),
                subscribers: BTreeMap::new(),
            });
        interest.qos = interest.qos.max(qos); // nobody else shall get less
        let before = interest.subscribers.get(&who.number);
        let subscriber = Subscriber {
            session: Arc::clone(who),
            qos,
            is_granted: before.is_some_and(|before| before.is_granted),
            is_fresh: !self.has_ids,
        };
        interest.subscribers.insert(who.number, subscriber);
        self.filters.subscribe(&name, 0, Arc::clone(&name));
        self.ask(now_s, &name, Some((Arc::clone(who), message_id, qos)));
        Ok(())
    }

    /// Ask for what a new session of the upstream lacks, a part at a time.
    fn ask_again(&mut self, now_s: u64) {
        while self.asks.len() < AGAIN && self.out.len() < BACKLOG {
            let Some(filter) = self.owed.pop() else {
                break;
            };
            self.ask(now_s, &filter, None);
        }
        let is_answered = || self.asks.values().all(|ask| ask.who.is_some());
        if self.owes && self.owed.is_empty() && is_answered() {
            self.owes = false;
        }
    }

    fn ask(&mut self, now_s: u64, filter: &Arc<str>, who: Option<(Arc<Session>, u16, Qos)>) {
        let id = self.free_id();
        let Some(interest) = self.interests.get_mut(filter) else {
            return;
        };
        let number = who.as_ref().map(|(who, ..)| who.number);
        let identifier = self.has_ids.then(|| {
            self.last_identifier = self.last_identifier % 0x0FFF_FFFF + 1;
            while self.identifiers.contains_key(&self.last_identifier) {
                self.last_identifier = self.last_identifier % 0x0FFF_FFFF + 1;
            }
            let of = (Arc::clone(filter), number);
            self.identifiers.insert(self.last_identifier, of);
            interest.ids.push_back(self.last_identifier);
            if interest.ids.len() > IDENTIFIERS
                && let Some(old) = interest.ids.pop_front()
            {
                self.identifiers.remove(&old);
            }
            self.last_identifier
        });
        let (filters, version) = ([(&**filter, interest.qos)], self.version);
        subscribe_as(&mut self.out, version, id, identifier, &filters);
        self.sent_s = now_s;
        if self.asks.is_empty() && self.ending.is_empty() {
            self.answered_s = now_s;
        }
        let qos = who.as_ref().map_or(interest.qos, |(_, _, qos)| *qos);
        let ask = Ask {
            who: who.map(|(who, message_id, _)| (who, message_id)),
            filter: Arc::clone(filter),
            qos,
        };
        self.asks.insert(id, ask);
        if let Some(number) = number.filter(|_| !self.has_ids) {
            self.ping(now_s, Some((Arc::clone(filter), number)));
        }
    }

    /// A sensor's subscription ends.
    pub fn unsubscribe(&mut self, now_s: u64, filter: &str, number: u64) {
        let over = self.forget(filter, number);
        self.over.extend(over);
        if self.is_up() {
            self.end_more(now_s);
        }
    }

    /// Tell the upstream what nobody wants any more, a part at a time.
    fn end_more(&mut self, now_s: u64) {
        while self.ending.len() < AGAIN && self.out.len() < BACKLOG {
            let Some(filter) = self.over.pop() else {
                break;
            };
            if self.interests.contains_key(&filter) {
                continue; // somebody wants it again
            }
            if self.asks.is_empty() && self.ending.is_empty() {
                self.answered_s = now_s;
            }
            let id = self.free_id();
            unsubscribe(&mut self.out, self.version, id, &[&filter]);
            self.ending.insert(id, filter);
        }
    }

    /// A sensor does not want a filter any more, and, if that is given back, nobody else does.
    fn forget(&mut self, filter: &str, number: u64) -> Option<Arc<str>> {
        let interest = self.interests.get_mut(filter)?;
        interest.subscribers.remove(&number);
        if !interest.subscribers.is_empty() {
            return None;
        }
        let (filter, interest) = self.interests.remove_entry(filter)?;
        self.filters.unsubscribe(&filter, &0);
        for id in interest.ids {
            self.identifiers.remove(&id);
        }
        Some(filter)
    }

    /// Publish, if there is room; QoS 1 and 2 wait until they are answered, as many as `most`. Where
    /// the upstream is away, nothing does for which somebody waits.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn publish(
        &mut self,
        message: &Message<'_>,
        most: usize,
        answer: Option<Answer>,
    ) -> Result<(), Code> {
        let mut message = *message;
        if answer.is_none() {
            message.qos = message.qos.min(self.takes.qos); // a will comes as surely as can be
        }
        if !self.takes.takes(self.version, &message) {
            return Err(Code::NOT_SUPPORTED);
        }
        let has_room = match (message.qos, &answer) {
            (Qos::AtMostOnce, _) => self.is_up() && self.out.len() <= BACKLOG,
            (_, Some(answer)) => self.is_up() && self.held_of(&answer.client).count() < OF_ONE,
            (_, None) => true,
        };
        if !has_room {
            return Err(Code::CONGESTION);
        }
        if message.qos == Qos::AtMostOnce {
            write(&mut self.out, self.version, &message, 0, false);
            return Ok(());
        }
        if self.flights.len() >= most.min(MOST_FLIGHTS) || !memory::may_hold(message.octets()) {
            return Err(Code::CONGESTION);
        }
        let id = self.free_id();
        self.flights.push_back(Flight {
            id,
            message: Kept::new(&message),
            is_taken: false,
            qos: message.qos,
            again: false,
            answer,
        });
        self.fill();
        Ok(())
    }

    fn held_of(&self, client: &str) -> impl Iterator<Item = &Answer> {
        let answers = self.flights.iter().filter_map(|one| one.answer.as_ref());
        answers.filter(move |answer| *answer.client == *client)
    }

    /// Whether the answer to a message is still waited for.
    pub fn is_held(&self, client: &str, message_id: u16) -> bool {
        self.held_of(client)
            .any(|answer| answer.message_id == message_id)
    }

    /// Send what may be under way.
    fn fill(&mut self) {
        while self.is_up() && self.sent < self.window {
            let Some(flight) = self.flights.get_mut(self.sent) else {
                break;
            };
            if flight.is_taken {
                ack(&mut self.out, self.version, AckKind::Pubrel, flight.id, 0);
            } else {
                write(
                    &mut self.out,
                    self.version,
                    &flight.message.message(),
                    flight.id,
                    flight.again,
                );
            }
            flight.again = true;
            self.sent += 1;
        }
    }

    fn free_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            let id = self.last_id;
            let is_flying = self.flights.iter().any(|one| one.id == id);
            let is_asked = self.asks.contains_key(&id) || self.ending.contains_key(&id);
            if !is_flying && !is_asked {
                return id;
            }
        }
    }

    fn hold(&mut self) {
        let identifiers = self.identifiers.len() * IDENTIFIER;
        self.share
            .set(self.input.capacity() + self.out.capacity() + identifiers);
    }

    /// Which sensors a message is for: each once for each filter that matches, or, where the
    /// upstream does not say which did, once.
    pub fn targets(&self, message: &Message<'_>, ids: &[u32]) -> Vec<(Arc<Session>, Qos)> {
        if let Some(owner) = &self.owner {
            return vec![(Arc::clone(owner), Qos::ExactlyOnce)];
        }
        let mut found = Vec::new();
        let mut is_known = false;
        for (filter, asker) in ids.iter().filter_map(|id| self.identifiers.get(id)) {
            is_known = true;
            let asker = asker.filter(|_| message.retain);
            let subscribers = self.interests.get(filter).map(|one| &one.subscribers);
            for (number, one) in subscribers.into_iter().flatten() {
                if asker.is_none_or(|asker| asker == *number) {
                    found.push((Arc::clone(&one.session), one.qos));
                }
            }
        }
        // What came by another filter only, which nobody wants any more, came for nobody.
        if is_known || !ids.is_empty() {
            return found;
        }
        let mut best: BTreeMap<u64, (&Arc<Session>, Qos, bool)> = BTreeMap::new();
        self.filters.matches(message.topic, &mut |found| {
            let Match::One(_, filter) = found else { return };
            let subscribers = self.interests.get(filter).map(|one| &one.subscribers);
            for (number, one) in subscribers.into_iter().flatten() {
                let known = best
                    .entry(*number)
                    .or_insert((&one.session, one.qos, false));
                (known.1, known.2) = (known.1.max(one.qos), known.2 || one.is_fresh);
            }
        });
        let only_fresh = message.retain && best.values().any(|(_, _, is_fresh)| *is_fresh);
        let wanted = best.values().filter(|one| one.2 || !only_fresh);
        wanted.map(|one| (Arc::clone(one.0), one.1)).collect()
    }
}

impl Takes {
    fn takes(&self, version: Version, message: &Message<'_>) -> bool {
        message.qos <= self.qos
            && (self.retain || !message.retain)
            && publish_length(version, &outgoing(message, 0, false)) <= self.octets
    }
}

fn outgoing<'a>(message: &Message<'a>, id: u16, again: bool) -> Outgoing<'a> {
    Outgoing {
        dup: again,
        qos: message.qos,
        retain: message.retain,
        topic: message.topic,
        id,
        payload: message.payload,
        ..Outgoing::default()
    }
}

fn write(out: &mut Vec<u8>, version: Version, message: &Message<'_>, id: u16, again: bool) {
    publish(out, version, &outgoing(message, id, again));
}

fn answer(flight: &mut Flight, reason: u8, events: &mut Vec<Event>) {
    let code = match reason {
        0..0x80 => Code::ACCEPTED,
        0x83 | 0x97 => Code::CONGESTION, // the upstream may take it later
        _ => Code::NOT_SUPPORTED,
    };
    if let Some(answer) = flight.answer.take() {
        events.push(Event::Answered(answer, code));
    }
}
