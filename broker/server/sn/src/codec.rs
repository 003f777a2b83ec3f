//! Octets of MQTT-SN 1.2 to messages and back: borrowed, nothing is copied.

mod read;
mod write;

pub use read::decode;
pub use write::{encode, encode_forwarded};

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
