//! The gateway: its clients, and what each datagram changes.

mod connection;
mod counters;
mod engine;
mod publishing;
mod session;
mod tick;
mod topics;

pub use counters::{Count, NAMES};
pub use engine::{Answer, Came, Engine, Entrance, Publication};

use crate::client::{Address, Datagrams, Keep};
use crate::codec::{Code, MARK, Message, Qos, decode, publish_flags};
use connection::{Connecting, Entering};
use session::Session;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const SECOND_NS: u64 = 1_000_000_000;

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its gateway id.
    pub gateway: u8,
    /// The predefined topic ids.
    pub predefined: HashMap<u16, Box<str>>,
    /// The most sessions at a time, with those of clients that are away.
    pub clients: usize,
    /// The most topics that have ids for one client.
    pub topics: usize,
    /// The most subscriptions of one client.
    pub subscriptions: usize,
    /// The most messages that wait for one client.
    pub messages: usize,
    /// The most octets of such messages.
    pub octets: usize,
    /// The most messages of one address in a second; 0: no limit.
    pub publishes_a_second: u32,
    /// How long the session of a client that is away is kept.
    pub expiry_s: u32,
    /// How long the gateway waits for an answer before it sends a message again.
    pub retry_ns: u64,
    /// How often it sends a message again.
    pub retries: u32,
    /// Whether a client has to prove that it receives at its address.
    pub prove: bool,
    /// Whether only CONNECT can change a will.
    pub fixed_wills: bool,
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
            fixed_wills: false,
        }
    }
}

/// Serves datagrams. All its tables are bounded by [`Settings`].
pub struct Gateway<M: Keep, S> {
    settings: Settings,
    sessions: HashMap<Arc<str>, Session<M, S>>,
    here: HashMap<Address, Arc<str>>, // clients that are connected or asleep
    connecting: HashMap<Address, Connecting>,
    entering: HashMap<Box<str>, Entering>,
    second: u64,
    published: HashMap<IpAddr, u32>,      // messages in that second
    predefined: HashMap<Box<str>, usize>, // number of predefined ids of each name
    marked: bool,                         // whether the present datagram is marked
    counters: [u64; NAMES.len()],
    dropped: u64,
    out: Datagrams,
}

impl<M: Keep, S> Gateway<M, S> {
    /// A gateway without clients.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut predefined = HashMap::new();
        for name in settings.predefined.values() {
            *predefined.entry(name.clone()).or_default() += 1;
        }
        Self {
            settings,
            predefined,
            marked: false,
            sessions: HashMap::new(),
            here: HashMap::new(),
            connecting: HashMap::new(),
            entering: HashMap::new(),
            second: 0,
            published: HashMap::new(),
            counters: [0; NAMES.len()],
            dropped: 0,
            out: Datagrams::default(),
        }
    }

    /// The counters, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.counters)
    }

    /// The number of clients that are connected or asleep, and the number of sessions.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.here.len(), self.sessions.len())
    }

    /// The number of copies that were dropped since the last call.
    pub fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn count(&mut self, what: Count) {
        if let Some(counter) = self.counters.get_mut(what as usize) {
            *counter += 1;
        }
    }

    /// Serve one datagram. `now_ns`: the time since the gateway was made; it never decreases.
    pub fn datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
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
        from: SocketAddr,
        octets: &[u8],
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let (message, forwarded) = decode(octets)?;
        let flags = publish_flags(octets).and_then(|at| octets.get(at));
        self.marked = flags.is_some_and(|flags| flags & MARK != 0);
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
            Message::Connect { .. } => {
                return self.connect(now_ns, address, &message, octets.len(), engine);
            }
            Message::WillTopic(will) => {
                return self.will_topic(now_ns, address, will.as_ref(), octets.len(), engine);
            }
            Message::WillMessage(payload) => {
                return self.will_message(now_ns, address, payload, octets.len(), engine);
            }
            Message::Pingreq { client } if !client.is_empty() => {
                return self.wake(now_ns, address, client, octets.len(), engine);
            }
            // Only gateways send these. They get no answer, or two gateways could answer each other
            // for ever.
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

    /// A message of a client that is connected or asleep.
    fn of_client(
        &mut self,
        now_ns: u64,
        client: &Arc<str>,
        message: &Message<'_>,
        octets: usize,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let session = self.sessions.get_mut(client).ok_or(Count::Stranger)?;
        session.heard(now_ns, octets);
        if let Message::Register { .. }
        | Message::Regack { .. }
        | Message::Disconnect { .. }
        | Message::Puback {
            code: Code::INVALID_TOPIC,
            ..
        } = message
        {
            engine.moves(&session.subscriber);
        }
        let (settings, out) = (&self.settings, &mut self.out);
        let wanted = match message {
            Message::Publish { .. } => return self.publish(now_ns, client, message, engine),
            Message::Register {
                message_id, name, ..
            } => {
                session.register(*message_id, name, out, engine);
                true
            }
            Message::Regack {
                topic_id,
                message_id,
                code,
            } => session.send(out, engine, |seat, out| {
                let wanted = seat.registered(*topic_id, *message_id, *code);
                seat.pump(now_ns, out);
                wanted
            }),
            Message::Puback { .. } | Message::Pubrec(_) | Message::Pubcomp(_) => {
                session.send(out, engine, |seat, out| {
                    let wanted = seat.acknowledged(now_ns, message, out);
                    seat.pump(now_ns, out);
                    wanted
                })
            }
            Message::Pubrel(id) => {
                session.incoming.retain(|one| one != id);
                session.send(out, engine, |seat, out| {
                    seat.say(&Message::Pubcomp(*id), out)
                });
                true
            }
            Message::Subscribe {
                qos,
                message_id,
                filter,
                ..
            } => {
                let id = *message_id;
                return session.subscribe(now_ns, settings, filter, *qos, id, out, engine);
            }
            Message::Unsubscribe { message_id, filter } => {
                session.unsubscribe(settings, filter, *message_id, out, engine);
                true
            }
            Message::Pingreq { .. } => {
                session.send(out, engine, |seat, out| {
                    seat.say(&Message::Pingresp, out);
                    seat.repeat(now_ns, out) // its octets have raised the credit
                });
                true
            }
            Message::Disconnect { duration_s } => {
                match duration_s.filter(|duration_s| *duration_s > 0) {
                    Some(duration_s) => session.sleep(duration_s, out, engine),
                    None => {
                        let good_bye = Message::Disconnect { duration_s: None };
                        session.send(out, engine, |seat, out| seat.say(&good_bye, out));
                        self.leave(client, false, engine);
                    }
                }
                true
            }
            Message::WillTopicUpdate(_) | Message::WillMessageUpdate(_) if settings.fixed_wills => {
                let no = Code::NOT_SUPPORTED;
                let answer = match message {
                    Message::WillTopicUpdate(_) => Message::WillTopicResponse(no),
                    _ => Message::WillMessageResponse(no),
                };
                session.send(out, engine, |seat, out| seat.say(&answer, out));
                true
            }
            Message::WillTopicUpdate(will) => {
                session.change_will(will.as_ref(), out, engine);
                true
            }
            Message::WillMessageUpdate(payload) => {
                session.change_will_message(payload, out, engine);
                true
            }
            _ => false,
        };
        wanted.then_some(()).ok_or(Count::Unexpected)
    }
}

/// Send an answer. Returns how many octets it has.
fn answer<E: Engine>(engine: &mut E, address: &Address, message: &Message<'_>) -> usize {
    let mut out = Vec::new();
    if address.write(message, &mut out) {
        engine.send(address.at, &out);
    }
    out.len()
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
