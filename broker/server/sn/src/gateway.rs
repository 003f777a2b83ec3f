//! Who is connected, and what each message changes.

use crate::client::{Address, Bounds, Client, Datagrams, Keep, Seat, State, lock};
use crate::codec::{Code, Error, Filter, Message, Qos, Topic, Will, decode};
use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Arc, Mutex};

const SECOND_NS: u64 = 1_000_000_000;
const CLIENT: usize = 64; // octets of a client's identifier
const CONNECTING: usize = 1024; // clients that were asked for their will
const CONNECTING_NS: u64 = 30 * SECOND_NS;
const INCOMING: usize = 16; // messages of QoS 2 of one client that were not released
const SUBSCRIBES: u32 = 32; // of one client in a second, that retained messages follow
const PUBLISHERS: usize = 1 << 16; // addresses whose messages are counted
const ANY_S: u16 = 3600; // of a client that names no keep-alive
const PROTOCOL: u8 = 1;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)] // `broker/spec/mqtt-sn.md` has them
pub enum Count {
    Length,
    Type,
    Flags,
    Truncated,
    Text,
    Node,
    Direction,
    Stranger,
    Unexpected,
    Topic,
    Access,
    Rate,
    Full,
    Lost,
    TakenOver,
}

/// The names of what is counted, in the order of [`Count`].
pub const NAMES: [&str; 15] = [
    "length",
    "type",
    "flags",
    "truncated",
    "text",
    "node",
    "direction",
    "stranger",
    "unexpected",
    "topic",
    "access",
    "rate",
    "full",
    "lost",
    "taken_over",
];

impl From<Error> for Count {
    fn from(error: Error) -> Self {
        match error {
            Error::Length => Self::Length,
            Error::Type => Self::Type,
            Error::Flags => Self::Flags,
            Error::Truncated => Self::Truncated,
            Error::Text => Self::Text,
        }
    }
}

/// How a gateway is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it calls itself.
    pub gateway: u8,
    /// Topics that have ids beforehand.
    pub predefined: HashMap<u16, Box<str>>,
    /// Clients at a time, with those whose session is kept.
    pub clients: usize,
    /// Topics that one client may have ids for.
    pub topics: usize,
    /// Subscriptions of one client.
    pub subscriptions: usize,
    /// Messages that wait for one client.
    pub messages: usize,
    /// Octets that wait for one client.
    pub octets: usize,
    /// Messages of one address in a second; 0: as many as come.
    pub publishes_a_second: u32,
    /// Seconds for which a session is kept whose client is gone.
    pub expiry_s: u32,
    /// How long an answer is waited for.
    pub retry_ns: u64,
    /// How often it is asked for again.
    pub retries: u32,
    /// Whether a client has to show that it receives what is sent to its address.
    pub prove: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            gateway: 1,
            predefined: HashMap::new(),
            clients: 10_000,
            topics: 1024,
            subscriptions: 256,
            messages: 1000,
            octets: 1 << 20,
            publishes_a_second: 0,
            expiry_s: 24 * 3600,
            retry_ns: 10 * SECOND_NS,
            retries: 4,
            prove: true,
        }
    }
}

/// A message for all that are subscribed.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// The topic's name, without wildcards.
    pub topic: &'a str,
    /// The application's octets.
    pub payload: &'a [u8],
    /// As published; 0 where it is -1.
    pub qos: Qos,
    /// Whether it is kept.
    pub retain: bool,
}

/// What a publisher is told.
pub struct Answer {
    /// Where.
    pub to: SocketAddrV4,
    /// Once the message is safe.
    pub good: Vec<u8>,
    /// If it cannot be taken.
    pub bad: Vec<u8>,
    /// Which message of QoS 2 of which client it is; it may come again if it cannot be taken.
    pub once: Option<(Arc<str>, u16)>,
}

/// Where subscriptions and messages go.
pub trait Engine {
    /// A message that is kept.
    type Message: Keep;
    /// What the engine knows a client by.
    type Subscriber;

    /// Any number.
    fn random(&mut self) -> u32;
    /// Send a datagram.
    fn send(&mut self, to: SocketAddrV4, datagram: &[u8]);
    /// Let what was given to `send` leave now: nobody else delivers to the client meanwhile, so that
    /// what waited leaves before what comes.
    fn flush(&mut self);
    /// What is published next did not come with the present datagram.
    fn came_long_ago(&mut self);
    /// Whether the answer to a message of QoS 2 still waits until the message is safe.
    fn is_held(&self, client: &str, message_id: u16) -> bool;
    /// A session begins; none: there is no room.
    fn begin(&mut self, client: &str, seat: &Seat<Self::Message>) -> Option<Self::Subscriber>;
    /// A session ends, with all its subscriptions.
    fn end(&mut self, who: &Self::Subscriber);
    /// Subscribe, if that is a filter and may be.
    fn subscribe(&mut self, who: &Self::Subscriber, filter: &str, qos: Qos) -> Code;
    /// A subscription ends.
    fn unsubscribe(&mut self, who: &Self::Subscriber, filter: &str);
    /// Deliver the retained messages that match a filter.
    fn retained(&mut self, who: &Self::Subscriber, filter: &str, qos: Qos);
    /// Deliver a message to all that are subscribed, and answer it; whether it is allowed, or what
    /// to refuse it with. Nobody: it is of QoS -1.
    fn publish(
        &mut self,
        who: Option<&Self::Subscriber>,
        publication: &Publication<'_>,
        answer: Option<Answer>,
    ) -> Result<(), Code>;
}

struct Testament {
    topic: Box<str>,
    payload: Box<[u8]>,
    qos: Qos,
    retain: bool,
}

impl Testament {
    fn of(will: &Will<'_>, payload: &[u8]) -> Self {
        Self {
            topic: will.topic.into(),
            payload: payload.into(),
            qos: will.qos,
            retain: will.retain,
        }
    }

    fn publication(&self) -> Publication<'_> {
        Publication {
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
        }
    }

    fn octets(&self) -> usize {
        size_of::<Self>() + self.topic.len() + self.payload.len()
    }
}

struct Connecting {
    client: Box<str>,
    clean: bool,
    duration_s: u16,
    will: Option<Testament>, // once its topic came
    since_ns: u64,
}

struct Session<M: Keep, S> {
    seat: Seat<M>,
    subscriber: S,
    address: Address,
    clean: bool,
    duration_s: u16,
    heard_ns: u64,
    gone: bool,
    asleep: bool,
    will: Option<Testament>,
    filters: HashSet<Box<str>>,
    incoming: Vec<u16>,
    second: u64,
    subscribes: u32, // in that second
}

impl<M: Keep, S> Session<M, S> {
    /// Nothing was heard for 1.5 times as long as it said.
    fn is_late(&self, now_ns: u64) -> bool {
        let most_ns = u64::from(self.duration_s) * SECOND_NS / 2 * 3;
        !self.gone && now_ns.saturating_sub(self.heard_ns) > most_ns
    }
}

/// Serves datagrams. All its tables are bounded by [`Settings`].
pub struct Gateway<M: Keep, S> {
    settings: Settings,
    sessions: HashMap<Arc<str>, Session<M, S>>,
    here: HashMap<Address, Arc<str>>, // of those that are not gone
    connecting: HashMap<Address, Connecting>,
    second: u64,
    published: HashMap<Ipv4Addr, u32>, // in that second
    counters: [u64; NAMES.len()],
    dropped: u64,
    out: Datagrams,
}

/// How a will changes at CONNECT.
enum Change {
    Stays,
    Ends,
    Is(Testament),
}

impl<M: Keep, S> Gateway<M, S> {
    /// A gateway that knows nobody.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            sessions: HashMap::new(),
            here: HashMap::new(),
            connecting: HashMap::new(),
            second: 0,
            published: HashMap::new(),
            counters: [0; NAMES.len()],
            dropped: 0,
            out: Datagrams::default(),
        }
    }

    /// What was counted, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.counters)
    }

    /// How many clients are connected or asleep, and how many sessions there are.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.here.len(), self.sessions.len())
    }

    /// Copies for which there was no room, since this was asked for the last time.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn count(&mut self, what: Count) {
        if let Some(counter) = self.counters.get_mut(what as usize) {
            *counter += 1;
        }
    }

    /// Serve one datagram. `now_ns`: since the gateway was made; it never goes back.
    pub fn datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        octets: &[u8],
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        if let Err(refusal) = self.serve(now_ns, from, octets, engine) {
            self.count(refusal);
        }
    }

    fn serve(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        octets: &[u8],
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let (message, forwarded) = decode(octets)?;
        let address = Address::new(from, forwarded.as_ref()).ok_or(Count::Node)?;
        match message {
            Message::SearchGateway { .. } => {
                let gateway = self.settings.gateway;
                let info = Message::GatewayInfo {
                    gateway,
                    address: &[],
                };
                answer(engine, &address, &info);
            }
            Message::Publish {
                qos: Qos::Unconnected,
                retain,
                topic,
                data,
                ..
            } => return self.publish_unconnected(now_ns, from, topic, data, retain, engine),
            Message::Connect {
                will,
                clean,
                protocol,
                duration_s,
                client,
            } => {
                if protocol != PROTOCOL || client.len() > CLIENT {
                    answer(engine, &address, &Message::Connack(Code::NOT_SUPPORTED));
                    return Ok(());
                }
                let connecting = Connecting {
                    client: client.into(),
                    clean,
                    duration_s,
                    will: None,
                    since_ns: now_ns,
                };
                if !will {
                    self.connecting.remove(&address);
                    return self.enter(now_ns, address, &connecting, Change::Stays, octets, engine);
                }
                if self.connecting.len() >= CONNECTING && !self.connecting.contains_key(&address) {
                    answer(engine, &address, &Message::Connack(Code::CONGESTION));
                    return Err(Count::Full);
                }
                self.connecting.insert(address, connecting);
                answer(engine, &address, &Message::WillTopicRequest);
            }
            Message::WillTopic(will) => {
                let connecting = self.connecting.get_mut(&address);
                let connecting = connecting.ok_or(Count::Unexpected)?;
                let Some(will) = will else {
                    let connecting = self.connecting.remove(&address).ok_or(Count::Unexpected)?;
                    return self.enter(now_ns, address, &connecting, Change::Ends, octets, engine);
                };
                connecting.will = Some(Testament::of(&will, &[]));
                answer(engine, &address, &Message::WillMessageRequest);
            }
            Message::WillMessage(payload) => {
                let connecting = self.connecting.get_mut(&address);
                let connecting = connecting.ok_or(Count::Unexpected)?;
                let mut will = connecting.will.take().ok_or(Count::Unexpected)?;
                will.payload = payload.into();
                let connecting = self.connecting.remove(&address).ok_or(Count::Unexpected)?;
                return self.enter(
                    now_ns,
                    address,
                    &connecting,
                    Change::Is(will),
                    octets,
                    engine,
                );
            }
            Message::Pingreq { client } if !client.is_empty() => {
                return self.wake(now_ns, address, client, octets.len(), engine);
            }
            // Only gateways send these; nobody is told, or two gateways could go on for ever.
            Message::Advertise { .. }
            | Message::GatewayInfo { .. }
            | Message::Connack(_)
            | Message::WillTopicRequest
            | Message::WillMessageRequest
            | Message::Suback { .. }
            | Message::Unsuback(_)
            | Message::Pingresp
            | Message::WillTopicResponse(_)
            | Message::WillMessageResponse(_) => return Err(Count::Direction),
            message => {
                let Some(client) = self.here.get(&address).cloned() else {
                    if !matches!(message, Message::Disconnect { .. }) {
                        answer(engine, &address, &Message::Disconnect { duration_s: None });
                    }
                    return Err(Count::Stranger);
                };
                return self.of_client(now_ns, &client, &message, octets.len(), engine);
            }
        }
        Ok(())
    }

    /// Whether an address has published enough for this second.
    fn is_too_much(&mut self, now_ns: u64, who: Ipv4Addr) -> bool {
        let most = self.settings.publishes_a_second;
        if most == 0 {
            return false;
        }
        let second = now_ns / SECOND_NS;
        if self.second != second {
            self.second = second;
            self.published = HashMap::new();
        }
        if self.published.len() >= PUBLISHERS && !self.published.contains_key(&who) {
            return true;
        }
        let count = self.published.entry(who).or_insert(0);
        *count = count.saturating_add(1);
        *count > most
    }

    fn publish_unconnected(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        topic: Topic,
        payload: &[u8],
        retain: bool,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        if self.is_too_much(now_ns, *from.ip()) {
            return Err(Count::Rate);
        }
        let short;
        let topic = match topic {
            Topic::Registered(_) => return Err(Count::Topic),
            Topic::Predefined(id) => self.settings.predefined.get(&id).ok_or(Count::Topic)?,
            Topic::Short(name) => {
                short = name;
                topic_name(&short).ok_or(Count::Topic)?
            }
        };
        let publication = Publication {
            topic,
            payload,
            qos: Qos::AtMostOnce,
            retain,
        };
        let done = engine.publish(None, &publication, None);
        done.map_err(|_| Count::Access)
    }

    /// A client is connected.
    fn enter(
        &mut self,
        now_ns: u64,
        address: Address,
        wanted: &Connecting,
        will: Change,
        octets: &[u8],
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        // Whoever else was there is gone: it cannot be reached any more.
        if let Some(other) = self
            .here
            .get(&address)
            .filter(|one| ***one != *wanted.client)
        {
            let other = Arc::clone(other);
            self.lose(now_ns, &other, engine);
        }
        if let Some(old) = self.sessions.get_mut(&*wanted.client) {
            let was_elsewhere = !old.gone && !old.asleep && old.address != address;
            if !old.gone {
                self.here.remove(&old.address); // else somebody else may be there now
            }
            if was_elsewhere {
                let testament = old.will.take();
                publish_will(&old.subscriber, testament.as_ref(), engine);
                if !wanted.clean {
                    old.will = testament;
                }
                self.count(Count::TakenOver);
            }
            if wanted.clean {
                self.forget(&wanted.client, engine);
            }
        }
        let client: Arc<str> = match self.sessions.get_key_value(&*wanted.client) {
            Some((client, _)) => Arc::clone(client),
            None => {
                let client: Arc<str> = (&*wanted.client).into();
                if !self.begin(now_ns, &client, address, engine) {
                    answer(engine, &address, &Message::Connack(Code::CONGESTION));
                    return Err(Count::Full);
                }
                client
            }
        };
        self.here.insert(address, Arc::clone(&client));
        let Some(session) = self.sessions.get_mut(&client) else {
            return Ok(());
        };
        match will {
            Change::Stays => {}
            Change::Ends => session.will = None,
            Change::Is(testament) => session.will = Some(testament),
        }
        session.address = address;
        session.clean = wanted.clean;
        session.duration_s = match wanted.duration_s {
            0 => ANY_S,
            duration_s => duration_s,
        };
        session.heard_ns = now_ns;
        (session.gone, session.asleep) = (false, false);
        let mut client = lock(&session.seat);
        client.come(address);
        client.heard(octets.len());
        client.will_octets = session.will.as_ref().map_or(0, Testament::octets);
        client.hold();
        client.leave(State::Active);
        client.say(&Message::Connack(Code::ACCEPTED), &mut self.out);
        client.resume(now_ns, &mut self.out);
        send(engine, &address, &mut self.out);
        Ok(())
    }

    fn begin(
        &mut self,
        now_ns: u64,
        client: &Arc<str>,
        address: Address,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> bool {
        if self.sessions.len() >= self.settings.clients {
            return false;
        }
        let bounds = Bounds {
            messages: self.settings.messages,
            octets: self.settings.octets,
            topics: self.settings.topics,
            retry_ns: self.settings.retry_ns,
            retries: self.settings.retries,
            prove: self.settings.prove,
        };
        let seat = Arc::new(Mutex::new(Client::new(address, bounds, engine.random())));
        let Some(subscriber) = engine.begin(client, &seat) else {
            return false;
        };
        let session = Session {
            seat,
            subscriber,
            address,
            clean: true,
            duration_s: 0,
            heard_ns: now_ns,
            gone: false,
            asleep: false,
            will: None,
            filters: HashSet::new(),
            incoming: Vec::new(),
            second: 0,
            subscribes: 0,
        };
        self.sessions.insert(Arc::clone(client), session);
        true
    }

    /// A sleeping client asks for its messages, or a connected one whether we are there.
    fn wake(
        &mut self,
        now_ns: u64,
        address: Address,
        client: &str,
        octets: usize,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let session = self.sessions.get_mut(client).filter(|one| !one.gone);
        // It may come back from another port, but not from another host.
        let session = session
            .filter(|one| one.address == address || one.asleep && one.address.is_near(&address));
        let Some(session) = session else {
            answer(engine, &address, &Message::Disconnect { duration_s: None });
            return Err(Count::Stranger);
        };
        session.heard_ns = now_ns;
        let mut seat = lock(&session.seat);
        let mut displaced = None;
        if session.address != address {
            self.here.remove(&session.address);
            displaced = self.here.insert(address, client.into());
            session.address = address;
            seat.come(address);
        }
        seat.heard(octets);
        if session.asleep {
            seat.state = State::Awake;
            seat.resume(now_ns, &mut self.out);
        } else {
            seat.say(&Message::Pingresp, &mut self.out);
        }
        send(engine, &address, &mut self.out);
        drop(seat);
        if let Some(other) = displaced.filter(|other| **other != *client) {
            let here = self.here.remove(&address);
            self.lose(now_ns, &other, engine);
            self.here.extend(here.map(|here| (address, here)));
        }
        Ok(())
    }

    /// What somebody who is connected says.
    fn of_client(
        &mut self,
        now_ns: u64,
        client: &Arc<str>,
        message: &Message<'_>,
        octets: usize,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        if let Message::Publish {
            qos,
            retain,
            topic,
            message_id,
            data,
            ..
        } = *message
        {
            self.heard(now_ns, client, octets);
            return self.publish(now_ns, client, topic, data, qos, retain, message_id, engine);
        }
        self.heard(now_ns, client, octets);
        let Some(session) = self.sessions.get_mut(client) else {
            return Err(Count::Stranger);
        };
        let out = &mut self.out;
        let mut seat = lock(&session.seat);
        let mut wanted = true;
        let mut retained = None;
        let mut ends = false;
        match *message {
            Message::Register {
                message_id, name, ..
            } => {
                let may = is_name(name) && M::may_wait(seat.names.octets() + name.len());
                let (topic_id, code) = match may.then(|| seat.names.id(name)) {
                    None if !is_name(name) => (0, Code::NOT_SUPPORTED),
                    None | Some(None) => (0, Code::CONGESTION),
                    Some(Some(id)) => (id, Code::ACCEPTED),
                };
                seat.names.confirm(name);
                seat.hold();
                let regack = Message::Regack {
                    topic_id,
                    message_id,
                    code,
                };
                seat.say(&regack, out);
            }
            Message::Regack {
                topic_id,
                message_id,
                code,
            } => {
                wanted = seat.registered(topic_id, message_id, code);
                seat.pump(now_ns, out);
            }
            Message::Puback { .. } | Message::Pubrec(_) | Message::Pubcomp(_) => {
                wanted = seat.acknowledged(now_ns, message, out);
                seat.pump(now_ns, out);
            }
            Message::Pubrel(id) => {
                session.incoming.retain(|one| *one != id);
                seat.say(&Message::Pubcomp(id), out);
            }
            Message::Subscribe {
                qos,
                message_id,
                filter,
                ..
            } => {
                let mut short = [0; 2];
                let name = text(&filter, &self.settings.predefined, &mut short);
                // The engine takes locks of its own.
                drop(seat);
                let code = match name {
                    None => Code::INVALID_TOPIC,
                    Some(_) if message_id == 0 => Code::NOT_SUPPORTED,
                    Some(name) if session.filters.contains(name) => {
                        engine.subscribe(&session.subscriber, name, qos)
                    }
                    Some(_) if session.filters.len() >= self.settings.subscriptions => {
                        Code::CONGESTION
                    }
                    Some(name) => engine.subscribe(&session.subscriber, name, qos),
                };
                seat = lock(&session.seat);
                let mut topic_id = 0;
                let mut code = code;
                if let Some(name) = name.filter(|_| code == Code::ACCEPTED) {
                    session.filters.insert(name.into());
                    match filter {
                        Filter::Predefined(id) => {
                            seat.names.predefined(name, id);
                            topic_id = id;
                        }
                        Filter::Name(name) if is_name(name) => match seat.names.id(name) {
                            Some(id) => {
                                seat.names.confirm(name);
                                topic_id = id;
                            }
                            None => code = Code::CONGESTION,
                        },
                        _ => {}
                    }
                    seat.hold();
                    retained = Some((name.to_owned(), qos));
                    if code != Code::ACCEPTED {
                        retained = None;
                        session.filters.remove(name);
                        drop(seat);
                        engine.unsubscribe(&session.subscriber, name);
                        seat = lock(&session.seat);
                    }
                }
                let suback = Message::Suback {
                    qos,
                    topic_id,
                    message_id,
                    code,
                };
                seat.say(&suback, out);
            }
            Message::Unsubscribe { message_id, filter } => {
                let mut short = [0; 2];
                if let Some(name) = text(&filter, &self.settings.predefined, &mut short)
                    && session.filters.remove(name)
                {
                    drop(seat);
                    engine.unsubscribe(&session.subscriber, name);
                    seat = lock(&session.seat);
                }
                seat.say(&Message::Unsuback(message_id), out);
            }
            Message::Pingreq { .. } => {
                seat.say(&Message::Pingresp, out);
                seat.repeat(now_ns, out); // its octets are credit, too
            }
            Message::Disconnect { duration_s } => {
                seat.say(&Message::Disconnect { duration_s: None }, out);
                match duration_s.filter(|duration_s| *duration_s > 0) {
                    Some(duration_s) => {
                        session.duration_s = duration_s;
                        session.asleep = true;
                        seat.leave(State::Asleep);
                    }
                    None => ends = true,
                }
            }
            Message::WillTopicUpdate(will) => {
                session.will = will.map(|will| {
                    let before = session.will.take();
                    Testament::of(&will, before.as_ref().map_or(&[], |one| &one.payload))
                });
                seat.will_octets = session.will.as_ref().map_or(0, Testament::octets);
                seat.hold();
                seat.say(&Message::WillTopicResponse(Code::ACCEPTED), out);
            }
            Message::WillMessageUpdate(payload) => {
                let code = match &mut session.will {
                    Some(will) => {
                        will.payload = payload.into();
                        seat.will_octets = will.octets();
                        seat.hold();
                        Code::ACCEPTED
                    }
                    None => Code::NOT_SUPPORTED,
                };
                seat.say(&Message::WillMessageResponse(code), out);
            }
            _ => wanted = false,
        }
        let address = session.address;
        send(engine, &address, out);
        drop(seat);
        if let Some((filter, qos)) = retained {
            let second = now_ns / SECOND_NS;
            if session.second != second {
                (session.second, session.subscribes) = (second, 0);
            }
            session.subscribes += 1;
            if session.subscribes > SUBSCRIBES {
                return Err(Count::Rate);
            }
            engine.retained(&session.subscriber, &filter, qos);
        }
        if ends {
            self.leave(client, engine);
        }
        match wanted {
            true => Ok(()),
            false => Err(Count::Unexpected),
        }
    }

    fn heard(&mut self, now_ns: u64, client: &str, octets: usize) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.heard_ns = now_ns;
            lock(&session.seat).heard(octets);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn publish(
        &mut self,
        now_ns: u64,
        client: &Arc<str>,
        topic: Topic,
        payload: &[u8],
        qos: Qos,
        retain: bool,
        message_id: u16,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let Some(address) = self.sessions.get(client).map(|session| session.address) else {
            return Err(Count::Stranger);
        };
        let topic_id = match topic {
            Topic::Registered(id) | Topic::Predefined(id) => id,
            Topic::Short(name) => u16::from_be_bytes(name),
        };
        let puback = |code| Message::Puback {
            topic_id,
            message_id,
            code,
        };
        let is_surely = qos > Qos::AtMostOnce;
        if self.is_too_much(now_ns, *address.at.ip()) {
            if is_surely {
                answer(engine, &address, &puback(Code::CONGESTION));
            }
            return Err(Count::Rate);
        }
        let Some(session) = self.sessions.get_mut(client) else {
            return Err(Count::Stranger);
        };
        let (registered, short);
        let name = match topic {
            Topic::Registered(id) => {
                registered = lock(&session.seat).names.name(id);
                registered.as_deref()
            }
            Topic::Predefined(id) => self.settings.predefined.get(&id).map(|name| &**name),
            Topic::Short(octets) => {
                short = octets;
                topic_name(&short)
            }
        };
        let Some(name) = name.filter(|_| message_id != 0 || !is_surely) else {
            answer(engine, &address, &puback(Code::INVALID_TOPIC));
            return Err(Count::Topic);
        };
        let twice = qos == Qos::ExactlyOnce;
        if twice && session.incoming.contains(&message_id) {
            if !engine.is_held(client, message_id) {
                answer(engine, &address, &Message::Pubrec(message_id));
            }
            return Ok(());
        }
        if twice && session.incoming.len() >= INCOMING {
            answer(engine, &address, &puback(Code::CONGESTION));
            return Err(Count::Full);
        }
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        if is_surely {
            let done = match twice {
                true => Message::Pubrec(message_id),
                false => puback(Code::ACCEPTED),
            };
            address.write(&done, &mut good);
            address.write(&puback(Code::CONGESTION), &mut bad);
        }
        let acknowledgement = is_surely.then(|| Answer {
            to: address.at,
            good,
            bad,
            once: twice.then(|| (Arc::clone(client), message_id)),
        });
        if twice {
            session.incoming.push(message_id);
        }
        let publication = Publication {
            topic: name,
            payload,
            qos,
            retain,
        };
        if let Err(code) = engine.publish(Some(&session.subscriber), &publication, acknowledgement)
        {
            session.incoming.retain(|one| !twice || *one != message_id);
            answer(engine, &address, &puback(code));
            return Err(Count::Access);
        }
        Ok(())
    }

    /// A message of QoS 2 could not be taken after all: it may come again.
    pub fn refused(&mut self, client: &str, message_id: u16) {
        if let Some(session) = self.sessions.get_mut(client) {
            session.incoming.retain(|one| *one != message_id);
        }
    }

    /// A client is gone without a good-bye.
    fn lose(
        &mut self,
        now_ns: u64,
        client: &str,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        self.count(Count::Lost);
        let Some(session) = self.sessions.get_mut(client) else {
            return;
        };
        session.heard_ns = now_ns;
        let testament = session.will.take();
        publish_will(&session.subscriber, testament.as_ref(), engine);
        if !session.clean {
            session.will = testament;
        }
        self.leave(client, engine);
    }

    /// A client is gone: its session is kept, or ends.
    fn leave(&mut self, client: &str, engine: &mut impl Engine<Message = M, Subscriber = S>) {
        let Some(session) = self.sessions.get_mut(client) else {
            return;
        };
        if !session.gone {
            self.here.remove(&session.address);
        }
        (session.gone, session.asleep) = (true, false);
        lock(&session.seat).leave(State::Away);
        if session.clean {
            self.forget(client, engine);
        }
    }

    fn forget(&mut self, client: &str, engine: &mut impl Engine<Message = M, Subscriber = S>) {
        if let Some(session) = self.sessions.remove(client) {
            self.dropped += std::mem::take(&mut lock(&session.seat).dropped);
            engine.end(&session.subscriber);
        }
    }

    /// Once a second: send again what was not answered, and see who is gone.
    pub fn tick(&mut self, now_ns: u64, engine: &mut impl Engine<Message = M, Subscriber = S>) {
        self.connecting
            .retain(|_, one| now_ns.saturating_sub(one.since_ns) < CONNECTING_NS);
        let (mut lost, mut over) = (Vec::new(), Vec::new());
        for (client, session) in &self.sessions {
            let mut seat = lock(&session.seat);
            self.dropped += std::mem::take(&mut seat.dropped);
            if session.gone {
                let kept_ns = u64::from(self.settings.expiry_s) * SECOND_NS;
                if now_ns.saturating_sub(session.heard_ns) > kept_ns {
                    over.push(Arc::clone(client));
                }
            } else if session.is_late(now_ns) {
                lost.push(Arc::clone(client));
            } else if !seat.repeat(now_ns, &mut self.out) {
                match session.asleep {
                    true => seat.leave(State::Asleep), // it did not stay awake for all of them
                    false => lost.push(Arc::clone(client)),
                }
            }
            send(engine, &session.address, &mut self.out);
        }
        for client in lost {
            self.lose(now_ns, &client, engine);
        }
        for client in over {
            self.forget(&client, engine);
        }
    }

    /// Forget everybody: they are told so when they ask.
    pub fn clear(&mut self, engine: &mut impl Engine<Message = M, Subscriber = S>) {
        let clients: Vec<_> = self.sessions.keys().cloned().collect();
        for client in clients {
            self.forget(&client, engine);
        }
        self.here.clear();
        self.connecting.clear();
        self.out.clear(); // what was for one client is for no other
    }

    /// How an ADVERTISE looks, the next one within so many seconds.
    #[must_use]
    pub fn advertisement(&self, duration_s: u16) -> Vec<u8> {
        let mut out = Vec::new();
        let gateway = self.settings.gateway;
        crate::codec::encode(
            &Message::Advertise {
                gateway,
                duration_s,
            },
            &mut out,
        );
        out
    }
}

fn publish_will<E: Engine>(who: &E::Subscriber, will: Option<&Testament>, engine: &mut E) {
    if let Some(will) = will {
        engine.came_long_ago();
        let _ = engine.publish(Some(who), &will.publication(), None); // nobody is told
    }
}

fn answer<E: Engine>(engine: &mut E, address: &Address, message: &Message<'_>) {
    let mut out = Vec::new();
    if address.write(message, &mut out) {
        engine.send(address.at, &out);
    }
}

fn send<E: Engine>(engine: &mut E, address: &Address, out: &mut Datagrams) {
    for datagram in out.iter() {
        engine.send(address.at, datagram);
    }
    if out.has_waited {
        engine.flush();
    }
    out.clear();
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['+', '#', '\0'])
}

fn topic_name(octets: &[u8; 2]) -> Option<&str> {
    std::str::from_utf8(octets)
        .ok()
        .filter(|name| is_name(name))
}

/// The filter that a SUBSCRIBE or UNSUBSCRIBE names.
fn text<'a>(
    filter: &Filter<'a>,
    predefined: &'a HashMap<u16, Box<str>>,
    short: &'a mut [u8; 2],
) -> Option<&'a str> {
    match filter {
        Filter::Name(name) => Some(name),
        Filter::Predefined(id) => predefined.get(id).map(|name| &**name),
        Filter::Short(name) => {
            *short = *name;
            topic_name(short)
        }
    }
}
