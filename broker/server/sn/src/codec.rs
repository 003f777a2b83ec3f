//! Octets of MQTT-SN 1.2 to messages and back: borrowed, nothing is copied.

/// How surely a message arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// -1: a PUBLISH from somebody who is not connected.
    Unconnected,
    /// 0.
    #[default]
    AtMostOnce,
    /// 1.
    AtLeastOnce,
    /// 2.
    ExactlyOnce,
}

/// The topic of a PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The id that client and gateway agreed on (type 00).
    Registered(u16),
    /// An id that both know beforehand (type 01).
    Predefined(u16),
    /// A name of two octets (type 10).
    Short([u8; 2]),
}

/// What a SUBSCRIBE or UNSUBSCRIBE names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter<'a> {
    /// A name, or a filter with wildcards (type 00).
    Name(&'a str),
    /// An id that both know beforehand (type 01).
    Predefined(u16),
    /// A name of two octets (type 10).
    Short([u8; 2]),
}

/// How something was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u8);

impl Code {
    /// Done.
    pub const ACCEPTED: Self = Self(0);
    /// Not now: ask again later.
    pub const CONGESTION: Self = Self(1);
    /// No topic has this id.
    pub const INVALID_TOPIC: Self = Self(2);
    /// Never.
    pub const NOT_SUPPORTED: Self = Self(3);
}

/// Where a will goes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Will<'a> {
    /// 0, 1 or 2.
    pub qos: Qos,
    /// Whether it is kept.
    pub retain: bool,
    /// The topic's name.
    pub topic: &'a str,
}

/// What a forwarder put around a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forwarded<'a> {
    /// How far the message is to be broadcast, 0 to 3 hops; only to clients.
    pub radius: u8,
    /// The client behind the forwarder.
    pub node: &'a [u8],
}

/// A message of MQTT-SN 1.2 (clause 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of fields that are what the specification calls them
pub enum Message<'a> {
    /// A gateway says that it is there; the next time within so many seconds.
    Advertise { gateway: u8, duration_s: u16 },
    /// Who is a gateway?
    SearchGateway { radius: u8 },
    /// This is one; the address is empty if it says so itself.
    GatewayInfo { gateway: u8, address: &'a [u8] },
    /// A client comes; `duration_s` is its keep-alive.
    Connect {
        will: bool,
        clean: bool,
        protocol: u8,
        duration_s: u16,
        client: &'a str,
    },
    /// Answers CONNECT.
    Connack(Code),
    /// Asks for the will's topic.
    WillTopicRequest,
    /// The will's topic; none: no will.
    WillTopic(Option<Will<'a>>),
    /// Asks for the will itself.
    WillMessageRequest,
    /// The will itself.
    WillMessage(&'a [u8]),
    /// Gives a name an id; from a client the id is 0.
    Register {
        topic_id: u16,
        message_id: u16,
        name: &'a str,
    },
    /// Answers REGISTER.
    Regack {
        topic_id: u16,
        message_id: u16,
        code: Code,
    },
    /// A message.
    Publish {
        dup: bool,
        qos: Qos,
        retain: bool,
        topic: Topic,
        message_id: u16,
        data: &'a [u8],
    },
    /// Answers PUBLISH with QoS 1, and any that is refused.
    Puback {
        topic_id: u16,
        message_id: u16,
        code: Code,
    },
    /// Answers PUBLISH with QoS 2.
    Pubrec(u16),
    /// Answers PUBREC.
    Pubrel(u16),
    /// Answers PUBREL.
    Pubcomp(u16),
    /// Asks for messages.
    Subscribe {
        dup: bool,
        qos: Qos,
        message_id: u16,
        filter: Filter<'a>,
    },
    /// Answers SUBSCRIBE; the id is 0 for a filter with wildcards and a short name.
    Suback {
        qos: Qos,
        topic_id: u16,
        message_id: u16,
        code: Code,
    },
    /// Asks for no more of them.
    Unsubscribe { message_id: u16, filter: Filter<'a> },
    /// Answers UNSUBSCRIBE.
    Unsuback(u16),
    /// Are you there? With its identifier a sleeping client asks for what waits.
    Pingreq { client: &'a str },
    /// Answers PINGREQ.
    Pingresp,
    /// The end; with a duration, in seconds, a client sleeps.
    Disconnect { duration_s: Option<u16> },
    /// Another topic for the will; none: no will any more.
    WillTopicUpdate(Option<Will<'a>>),
    /// Answers that.
    WillTopicResponse(Code),
    /// Another will.
    WillMessageUpdate(&'a [u8]),
    /// Answers that.
    WillMessageResponse(Code),
}

/// Why octets are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The length is not the number of octets.
    Length,
    /// No message is of this type, or a forwarder is inside another one.
    Type,
    /// Reserved flags, or a QoS where it cannot be.
    Flags,
    /// A field is not there whole, or octets are left over.
    Truncated,
    /// A name is not of UTF-8, or empty.
    Text,
}

const ADVERTISE: u8 = 0x00;
const SEARCHGW: u8 = 0x01;
const GWINFO: u8 = 0x02;
const CONNECT: u8 = 0x04;
const CONNACK: u8 = 0x05;
const WILLTOPICREQ: u8 = 0x06;
const WILLTOPIC: u8 = 0x07;
const WILLMSGREQ: u8 = 0x08;
const WILLMSG: u8 = 0x09;
const REGISTER: u8 = 0x0a;
const REGACK: u8 = 0x0b;
const PUBLISH: u8 = 0x0c;
const PUBACK: u8 = 0x0d;
const PUBCOMP: u8 = 0x0e;
const PUBREC: u8 = 0x0f;
const PUBREL: u8 = 0x10;
const SUBSCRIBE: u8 = 0x12;
const SUBACK: u8 = 0x13;
const UNSUBSCRIBE: u8 = 0x14;
const UNSUBACK: u8 = 0x15;
const PINGREQ: u8 = 0x16;
const PINGRESP: u8 = 0x17;
const DISCONNECT: u8 = 0x18;
const WILLTOPICUPD: u8 = 0x1a;
const WILLTOPICRESP: u8 = 0x1b;
const WILLMSGUPD: u8 = 0x1c;
const WILLMSGRESP: u8 = 0x1d;
const FORWARDED: u8 = 0xfe;

const DUP: u8 = 0x80;
const RETAIN: u8 = 0x10;
const WILL: u8 = 0x08;
const CLEAN: u8 = 0x04;

/// Read the message that a datagram is, and what a forwarder put around it.
///
/// # Errors
/// What is not exactly one whole message.
pub fn decode(datagram: &[u8]) -> Result<(Message<'_>, Option<Forwarded<'_>>), Error> {
    let (&length, &kind) = match datagram {
        [length, kind, ..] => (length, kind),
        _ => return Err(Error::Length),
    };
    // Its length is always one octet, and ends before the message.
    if kind != FORWARDED || length == 1 {
        return Ok((message(datagram)?, None));
    }
    let (header, inside) = datagram
        .split_at_checked(usize::from(length))
        .ok_or(Error::Length)?;
    let [_, _, control, node @ ..] = header else {
        return Err(Error::Length);
    };
    let radius = control & 3;
    Ok((message(inside)?, Some(Forwarded { radius, node })))
}

/// The mark of a PUBLISH whose copies for clients over MQTT-SN were sent by a switch on the way
/// (`broker/spec/acceleration.md`, 4); in no other message that bit means this.
pub const MARK: u8 = WILL;

/// Where the flags of a PUBLISH are, if the datagram is one.
#[must_use]
pub fn publish_flags(datagram: &[u8]) -> Option<usize> {
    let kind = if datagram.first() == Some(&1) { 3 } else { 1 };
    let is_publish = datagram.get(kind) == Some(&PUBLISH) && datagram.len() > kind + 1;
    is_publish.then_some(kind + 1)
}

fn message(octets: &[u8]) -> Result<Message<'_>, Error> {
    let (length, rest) = match octets {
        [1, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [length, rest @ ..] => (usize::from(*length), rest),
        _ => return Err(Error::Length),
    };
    if length != octets.len() {
        return Err(Error::Length);
    }
    let (&kind, body) = rest.split_first().ok_or(Error::Length)?;
    let mut left = Reader(body);
    let message = left.message(kind)?;
    match left.0 {
        [] => Ok(message),
        _ => Err(Error::Truncated),
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn message(&mut self, kind: u8) -> Result<Message<'a>, Error> {
        Ok(match kind {
            ADVERTISE => Message::Advertise {
                gateway: self.octet()?,
                duration_s: self.pair()?,
            },
            SEARCHGW => Message::SearchGateway {
                radius: self.octet()?,
            },
            GWINFO => Message::GatewayInfo {
                gateway: self.octet()?,
                address: self.rest(),
            },
            CONNECT => {
                let flags = self.octet()?;
                Message::Connect {
                    will: flags & WILL != 0,
                    clean: flags & CLEAN != 0,
                    protocol: self.octet()?,
                    duration_s: self.pair()?,
                    client: self.name()?,
                }
            }
            CONNACK => Message::Connack(self.code()?),
            WILLTOPICREQ => Message::WillTopicRequest,
            WILLTOPIC => Message::WillTopic(self.will()?),
            WILLMSGREQ => Message::WillMessageRequest,
            WILLMSG => Message::WillMessage(self.rest()),
            REGISTER => Message::Register {
                topic_id: self.pair()?,
                message_id: self.pair()?,
                name: self.name()?,
            },
            REGACK => Message::Regack {
                topic_id: self.pair()?,
                message_id: self.pair()?,
                code: self.code()?,
            },
            PUBLISH => {
                let flags = self.octet()?;
                let field = self.chunk()?;
                Message::Publish {
                    dup: flags & DUP != 0,
                    qos: qos_of(flags),
                    retain: flags & RETAIN != 0,
                    topic: match flags & 3 {
                        0 => Topic::Registered(u16::from_be_bytes(field)),
                        1 => Topic::Predefined(u16::from_be_bytes(field)),
                        2 => Topic::Short(field),
                        _ => return Err(Error::Flags),
                    },
                    message_id: self.pair()?,
                    data: self.rest(),
                }
            }
            PUBACK => Message::Puback {
                topic_id: self.pair()?,
                message_id: self.pair()?,
                code: self.code()?,
            },
            PUBREC => Message::Pubrec(self.pair()?),
            PUBREL => Message::Pubrel(self.pair()?),
            PUBCOMP => Message::Pubcomp(self.pair()?),
            SUBSCRIBE => {
                let flags = self.octet()?;
                Message::Subscribe {
                    dup: flags & DUP != 0,
                    qos: asked_of(flags)?,
                    message_id: self.pair()?,
                    filter: self.filter(flags)?,
                }
            }
            SUBACK => Message::Suback {
                qos: asked_of(self.octet()?)?,
                topic_id: self.pair()?,
                message_id: self.pair()?,
                code: self.code()?,
            },
            UNSUBSCRIBE => {
                let flags = self.octet()?;
                Message::Unsubscribe {
                    message_id: self.pair()?,
                    filter: self.filter(flags)?,
                }
            }
            UNSUBACK => Message::Unsuback(self.pair()?),
            PINGREQ => Message::Pingreq {
                client: self.text()?,
            },
            PINGRESP => Message::Pingresp,
            DISCONNECT => Message::Disconnect {
                duration_s: match self.0 {
                    [] => None,
                    _ => Some(self.pair()?),
                },
            },
            WILLTOPICUPD => Message::WillTopicUpdate(self.will()?),
            WILLTOPICRESP => Message::WillTopicResponse(self.code()?),
            WILLMSGUPD => Message::WillMessageUpdate(self.rest()),
            WILLMSGRESP => Message::WillMessageResponse(self.code()?),
            _ => return Err(Error::Type),
        })
    }

    fn octet(&mut self) -> Result<u8, Error> {
        let (first, rest) = self.0.split_first().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn chunk(&mut self) -> Result<[u8; 2], Error> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn pair(&mut self) -> Result<u16, Error> {
        self.chunk().map(u16::from_be_bytes)
    }

    fn code(&mut self) -> Result<Code, Error> {
        self.octet().map(Code)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.rest()).map_err(|_| Error::Text)
    }

    fn name(&mut self) -> Result<&'a str, Error> {
        self.text()
            .and_then(|text| (!text.is_empty()).then_some(text).ok_or(Error::Text))
    }

    fn will(&mut self) -> Result<Option<Will<'a>>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let flags = self.octet()?;
        Ok(Some(Will {
            qos: asked_of(flags)?,
            retain: flags & RETAIN != 0,
            topic: self.name()?,
        }))
    }

    fn filter(&mut self, flags: u8) -> Result<Filter<'a>, Error> {
        Ok(match flags & 3 {
            0 => Filter::Name(self.name()?),
            1 => Filter::Predefined(self.pair()?),
            2 => Filter::Short(self.chunk()?),
            _ => return Err(Error::Flags),
        })
    }
}

fn qos_of(flags: u8) -> Qos {
    match flags >> 5 & 3 {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        2 => Qos::ExactlyOnce,
        _ => Qos::Unconnected,
    }
}

/// A QoS that can be granted.
fn asked_of(flags: u8) -> Result<Qos, Error> {
    match qos_of(flags) {
        Qos::Unconnected => Err(Error::Flags),
        qos => Ok(qos),
    }
}

fn flags_of(qos: Qos) -> u8 {
    match qos {
        Qos::AtMostOnce => 0,
        Qos::AtLeastOnce => 1 << 5,
        Qos::ExactlyOnce => 2 << 5,
        Qos::Unconnected => 3 << 5,
    }
}

fn flag(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

/// Append a message; whether it is not too long: of 65,535 octets at most.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.push(0);
    write(message, out);
    let length = out.len() - start;
    if let (Ok(length @ 2..), Some(place)) = (u8::try_from(length), out.get_mut(start)) {
        *place = length;
        return true;
    }
    let Ok(length) = u16::try_from(length + 2) else {
        out.truncate(start);
        return false;
    };
    let [high, low] = length.to_be_bytes();
    out.splice(start..=start, [1, high, low]);
    true
}

/// The same within what a forwarder puts around it; whether both are not too long.
pub fn encode_forwarded(
    message: &Message<'_>,
    forwarded: &Forwarded<'_>,
    out: &mut Vec<u8>,
) -> bool {
    let Ok(length) = u8::try_from(3 + forwarded.node.len()) else {
        return false;
    };
    let start = out.len();
    out.extend([length, FORWARDED, forwarded.radius & 3]);
    out.extend_from_slice(forwarded.node);
    let fits = encode(message, out);
    if !fits {
        out.truncate(start);
    }
    fits
}

fn write(message: &Message<'_>, out: &mut Vec<u8>) {
    let mut put = |kind: u8, parts: &[&[u8]]| {
        out.push(kind);
        for part in parts {
            out.extend_from_slice(part);
        }
    };
    match message {
        Message::Advertise {
            gateway,
            duration_s,
        } => put(ADVERTISE, &[&[*gateway], &duration_s.to_be_bytes()]),
        Message::SearchGateway { radius } => put(SEARCHGW, &[&[*radius]]),
        Message::GatewayInfo { gateway, address } => put(GWINFO, &[&[*gateway], address]),
        Message::Connect {
            will,
            clean,
            protocol,
            duration_s,
            client,
        } => {
            let flags = flag(*will, WILL) | flag(*clean, CLEAN);
            let duration = duration_s.to_be_bytes();
            put(
                CONNECT,
                &[&[flags, *protocol], &duration, client.as_bytes()],
            );
        }
        Message::Connack(code) => put(CONNACK, &[&[code.0]]),
        Message::WillTopicRequest => put(WILLTOPICREQ, &[]),
        Message::WillTopic(topic) => {
            let (flags, topic) = will_parts(topic);
            put(WILLTOPIC, &[flags.as_slice(), topic.as_bytes()]);
        }
        Message::WillMessageRequest => put(WILLMSGREQ, &[]),
        Message::WillMessage(octets) => put(WILLMSG, &[octets]),
        Message::Register {
            topic_id,
            message_id,
            name,
        } => {
            let (topic, id) = (topic_id.to_be_bytes(), message_id.to_be_bytes());
            put(REGISTER, &[&topic, &id, name.as_bytes()]);
        }
        Message::Regack {
            topic_id,
            message_id,
            code,
        } => {
            let (topic, id) = (topic_id.to_be_bytes(), message_id.to_be_bytes());
            put(REGACK, &[&topic, &id, &[code.0]]);
        }
        Message::Publish {
            dup,
            qos,
            retain,
            topic,
            message_id,
            data,
        } => {
            let (kind, field) = match topic {
                Topic::Registered(id) => (0, id.to_be_bytes()),
                Topic::Predefined(id) => (1, id.to_be_bytes()),
                Topic::Short(name) => (2, *name),
            };
            let flags = flag(*dup, DUP) | flags_of(*qos) | flag(*retain, RETAIN) | kind;
            put(
                PUBLISH,
                &[&[flags], &field, &message_id.to_be_bytes(), data],
            );
        }
        Message::Puback {
            topic_id,
            message_id,
            code,
        } => {
            let (topic, id) = (topic_id.to_be_bytes(), message_id.to_be_bytes());
            put(PUBACK, &[&topic, &id, &[code.0]]);
        }
        Message::Pubrec(id) => put(PUBREC, &[&id.to_be_bytes()]),
        Message::Pubrel(id) => put(PUBREL, &[&id.to_be_bytes()]),
        Message::Pubcomp(id) => put(PUBCOMP, &[&id.to_be_bytes()]),
        Message::Subscribe {
            dup,
            qos,
            message_id,
            filter,
        } => {
            let flags = flag(*dup, DUP) | flags_of(*qos) | kind_of(filter);
            let id = message_id.to_be_bytes();
            put_filter(filter, |field| put(SUBSCRIBE, &[&[flags], &id, field]));
        }
        Message::Suback {
            qos,
            topic_id,
            message_id,
            code,
        } => {
            let (topic, id) = (topic_id.to_be_bytes(), message_id.to_be_bytes());
            put(SUBACK, &[&[flags_of(*qos)], &topic, &id, &[code.0]]);
        }
        Message::Unsubscribe { message_id, filter } => {
            let (flags, id) = (kind_of(filter), message_id.to_be_bytes());
            put_filter(filter, |field| put(UNSUBSCRIBE, &[&[flags], &id, field]));
        }
        Message::Unsuback(id) => put(UNSUBACK, &[&id.to_be_bytes()]),
        Message::Pingreq { client } => put(PINGREQ, &[client.as_bytes()]),
        Message::Pingresp => put(PINGRESP, &[]),
        Message::Disconnect { duration_s } => {
            let duration = duration_s.map(u16::to_be_bytes);
            put(DISCONNECT, &[duration.as_ref().map_or(&[], |two| two)]);
        }
        Message::WillTopicUpdate(topic) => {
            let (flags, topic) = will_parts(topic);
            put(WILLTOPICUPD, &[flags.as_slice(), topic.as_bytes()]);
        }
        Message::WillTopicResponse(code) => put(WILLTOPICRESP, &[&[code.0]]),
        Message::WillMessageUpdate(octets) => put(WILLMSGUPD, &[octets]),
        Message::WillMessageResponse(code) => put(WILLMSGRESP, &[&[code.0]]),
    }
}

fn will_parts<'a>(will: &Option<Will<'a>>) -> (Option<u8>, &'a str) {
    let flags = will.map(|will| flags_of(will.qos) | flag(will.retain, RETAIN));
    (flags, will.map_or("", |will| will.topic))
}

fn kind_of(filter: &Filter<'_>) -> u8 {
    match filter {
        Filter::Name(_) => 0,
        Filter::Predefined(_) => 1,
        Filter::Short(_) => 2,
    }
}

fn put_filter(filter: &Filter<'_>, put: impl FnOnce(&[u8])) {
    match filter {
        Filter::Name(name) => put(name.as_bytes()),
        Filter::Predefined(id) => put(&id.to_be_bytes()),
        Filter::Short(name) => put(name),
    }
}
