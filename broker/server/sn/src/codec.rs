//! Decodes and encodes MQTT-SN 1.2. Messages borrow their octets; nothing is copied.

mod read;
mod write;

pub use read::decode;
pub use write::{encode, encode_forwarded};

/// The quality of service of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// -1: a PUBLISH from a client that need not be connected.
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
    /// An id that client and gateway have agreed on (type 00).
    Registered(u16),
    /// A predefined id (type 01).
    Predefined(u16),
    /// A name of two octets (type 10).
    Short([u8; 2]),
}

/// The filter of a SUBSCRIBE or UNSUBSCRIBE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Filter<'a> {
    /// A name, or a filter with wildcards (type 00).
    Name(&'a str),
    /// A predefined id (type 01).
    Predefined(u16),
    /// A name of two octets (type 10).
    Short([u8; 2]),
}

/// A return code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code(pub u8);

impl Code {
    /// Accepted.
    pub const ACCEPTED: Self = Self(0);
    /// Rejected because of congestion: the client may try again later.
    pub const CONGESTION: Self = Self(1);
    /// Rejected: the topic id is invalid.
    pub const INVALID_TOPIC: Self = Self(2);
    /// Rejected: not supported.
    pub const NOT_SUPPORTED: Self = Self(3);
}

/// The topic and flags of a will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Will<'a> {
    /// 0, 1 or 2.
    pub qos: Qos,
    /// Whether it is retained.
    pub retain: bool,
    /// The topic's name.
    pub topic: &'a str,
}

/// The encapsulation by a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forwarded<'a> {
    /// How far the forwarder is to broadcast the message, 0 to 3 hops; only from the gateway.
    pub radius: u8,
    /// The client behind the forwarder.
    pub node: &'a [u8],
}

/// A message of MQTT-SN 1.2 (clause 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // of fields, which have the specification's names
pub enum Message<'a> {
    /// A gateway announces itself, and will again after `duration_s`.
    Advertise { gateway: u8, duration_s: u16 },
    /// A client searches for a gateway.
    SearchGateway { radius: u8 },
    /// Answers SEARCHGW. The address is empty if the gateway itself answers.
    GatewayInfo { gateway: u8, address: &'a [u8] },
    /// A client connects; `duration_s` is its keep-alive.
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
    /// The will's topic; `None`: there is no will.
    WillTopic(Option<Will<'a>>),
    /// Asks for the will's payload.
    WillMessageRequest,
    /// The will's payload.
    WillMessage(&'a [u8]),
    /// States the id of a topic name, or asks for one: then the id is 0.
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
    /// Answers a PUBLISH with QoS 1, and any PUBLISH that is refused.
    Puback {
        topic_id: u16,
        message_id: u16,
        code: Code,
    },
    /// Answers a PUBLISH with QoS 2.
    Pubrec(u16),
    /// Answers PUBREC.
    Pubrel(u16),
    /// Answers PUBREL.
    Pubcomp(u16),
    /// Subscribes to a filter.
    Subscribe {
        dup: bool,
        qos: Qos,
        message_id: u16,
        filter: Filter<'a>,
    },
    /// Answers SUBSCRIBE; the id is 0 for a filter with wildcards or a short name.
    Suback {
        qos: Qos,
        topic_id: u16,
        message_id: u16,
        code: Code,
    },
    /// Ends a subscription.
    Unsubscribe { message_id: u16, filter: Filter<'a> },
    /// Answers UNSUBSCRIBE.
    Unsuback(u16),
    /// Asks for a PINGRESP. A sleeping client sends its identifier, to get the messages that wait.
    Pingreq { client: &'a str },
    /// Answers PINGREQ.
    Pingresp,
    /// Ends the connection; with a duration, the client goes to sleep.
    Disconnect { duration_s: Option<u16> },
    /// Replaces the will's topic and flags; `None`: there is no will any more.
    WillTopicUpdate(Option<Will<'a>>),
    /// Answers WILLTOPICUPD.
    WillTopicResponse(Code),
    /// Replaces the will's payload.
    WillMessageUpdate(&'a [u8]),
    /// Answers WILLMSGUPD.
    WillMessageResponse(Code),
}

/// Why octets are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The length is not the number of octets.
    Length,
    /// There is no such message type, or an encapsulation contains another one.
    Type,
    /// Reserved flags, or a QoS that this message cannot have.
    Flags,
    /// A field is incomplete, or octets are left over.
    Truncated,
    /// A name is not UTF-8, or empty.
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

/// The flag that marks a PUBLISH if a switch on the way has sent the copies for clients over
/// MQTT-SN (`broker/spec/acceleration.md`, 4). In other messages this bit means something else.
pub const MARK: u8 = WILL;

/// The index of the flags, if the datagram is a PUBLISH.
#[must_use]
pub fn publish_flags(datagram: &[u8]) -> Option<usize> {
    let kind = if datagram.first() == Some(&1) { 3 } else { 1 };
    let is_publish = datagram.get(kind) == Some(&PUBLISH) && datagram.len() > kind + 1;
    is_publish.then_some(kind + 1)
}
