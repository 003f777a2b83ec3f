//! Decodes and encodes packets of MQTT 3.1.1 and 5. Packets borrow their octets; nothing is copied.
//!
//! It decodes packets of clients, for a broker, and packets of brokers, for a load generator. The
//! caller has to check which packets a peer may send, and when; also all that depends on earlier
//! packets or on the peer: topic aliases, packet identifiers in use, an empty client identifier
//! without a clean session ([MQTT-3.1.3-8]), a subscription identifier in a client's PUBLISH
//! ([MQTT-3.3.4-6]).
//!
//! Clause numbers are those of MQTT 5; where 3.1.1 differs, the text says so.

mod decode;
mod encode;
mod property;
mod read;

pub use decode::{
    Ack, AckKind, Auth, Connack, Connect, Disconnect, Filter, Filters, Packet, Publish, Suback,
    Subscribe, Unsuback, Unsubscribe, UnsubscribeFilters, Will, decode, decode_publish,
};
pub use encode::{
    ConnackProperties, ConnectOut, Outgoing, WillOut, ack, connack, connect, disconnect, pingreq,
    pingresp, publish, publish_length, suback, subscribe, subscribe_as, unsuback, unsubscribe,
};
pub use property::{Properties, Property, PropertyIter};

/// The octets of the longest possible packet, including its fixed header.
pub const MAXIMUM_LENGTH: usize = 1 + 4 + read::MAXIMUM_VARIABLE as usize;

/// The MQTT version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// 3.1.1. A CONNECT of 3.1 (`MQIsdp`, level 3) counts as this too.
    V3,
    /// 5.0.
    V5,
}

/// The quality of service of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Qos {
    /// Not acknowledged.
    #[default]
    AtMostOnce = 0,
    /// Acknowledged by PUBACK; may come twice.
    AtLeastOnce = 1,
    /// Acknowledged by PUBREC, PUBREL and PUBCOMP.
    ExactlyOnce = 2,
}

impl TryFrom<u8> for Qos {
    type Error = Error;

    fn try_from(number: u8) -> Result<Self, Error> {
        match number {
            0 => Ok(Self::AtMostOnce),
            1 => Ok(Self::AtLeastOnce),
            2 => Ok(Self::ExactlyOnce),
            _ => Err(Error::Malformed("a QoS that is neither 0, 1 nor 2")),
        }
    }
}

/// Why a packet is refused. Its connection has to be closed ([MQTT-4.13.1-1]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It cannot be parsed; the text says why.
    Malformed(&'static str),
    /// It can be parsed, but the standard forbids it; the text says why.
    Protocol(&'static str),
    /// It is longer than the caller's limit.
    TooLarge,
    /// It has topic alias 0.
    Alias,
    /// It is a CONNECT with an unsupported version; this is its protocol level.
    Version(u8),
}

impl Error {
    /// The reason code of MQTT 5 for CONNACK or DISCONNECT.
    #[must_use]
    pub fn reason(&self) -> u8 {
        match self {
            Self::Malformed(_) => 0x81,
            Self::Protocol(_) => 0x82,
            Self::Alias => 0x94,
            Self::TooLarge => 0x95,
            Self::Version(_) => 0x84,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(what) => write!(to, "malformed packet: {what}"),
            Self::Protocol(what) => write!(to, "protocol error: {what}"),
            Self::Alias => write!(to, "topic alias 0"),
            Self::TooLarge => write!(to, "packet too large"),
            Self::Version(level) => write!(to, "protocol level {level} is neither 3, 4 nor 5"),
        }
    }
}

impl std::error::Error for Error {}

/// One complete packet, with its fixed header parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The first octet: type and flags.
    pub first: u8,
    /// The octets after the fixed header.
    pub body: &'a [u8],
    /// The octets of the whole packet, including its fixed header.
    pub length: usize,
}

impl Frame<'_> {
    /// Whether it is a PUBLISH.
    #[must_use]
    #[inline]
    pub fn is_publish(&self) -> bool {
        self.first >> 4 == 3
    }
}

/// Finds the packet at the beginning of `octets`. `None`: more octets are needed.
///
/// # Errors
/// `TooLarge` as soon as the fixed header announces a packet of more than `limit` octets;
/// `Malformed` if its length has more than four octets, or more than necessary ([MQTT-1.5.5-1]).
#[inline]
pub fn frame(octets: &[u8], limit: usize) -> Result<Option<Frame<'_>>, Error> {
    let [first, rest @ ..] = octets else {
        return Ok(None);
    };
    let Some((remaining, used)) = read::variable(rest)? else {
        return Ok(None);
    };
    let length = 1 + used + remaining as usize;
    if length > limit {
        return Err(Error::TooLarge);
    }
    let body = octets.get(1 + used..length);
    Ok(body.map(|body| Frame {
        first: *first,
        body,
        length,
    }))
}
