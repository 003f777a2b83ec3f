//! Octets of MQTT 3.1.1 and 5 to packets and back, borrowed, without copies.
//!
//! Both directions: a broker decodes what clients send, a load generator what brokers send. Which
//! packets a peer may send, and when, is for the caller to judge; so is everything that needs a
//! memory of earlier packets: topic aliases, packet identifiers in use, an empty client identifier
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

/// Octets of the longest packet there can be, its fixed header included.
pub const MAXIMUM_LENGTH: usize = 1 + 4 + read::MAXIMUM_VARIABLE as usize;

/// Which MQTT a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// 3.1.1. A CONNECT of 3.1 (`MQIsdp`, level 3) counts as this too.
    V3,
    /// 5.0.
    V5,
}

/// How surely a message is to arrive.
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

/// Why octets are refused. The connection they came on is to be closed ([MQTT-4.13.1-1]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// They cannot be parsed; what is wrong.
    Malformed(&'static str),
    /// They can be parsed, but say what the standard forbids; what is wrong.
    Protocol(&'static str),
    /// The packet is longer than we take.
    TooLarge,
    /// A CONNECT of a version that we do not speak; its protocol level.
    Version(u8),
}

impl Error {
    /// The reason code of MQTT 5 for CONNACK or DISCONNECT.
    #[must_use]
    pub fn reason(&self) -> u8 {
        match self {
            Self::Malformed(_) => 0x81,
            Self::Protocol(_) => 0x82,
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
            Self::TooLarge => write!(to, "packet too large"),
            Self::Version(level) => write!(to, "protocol level {level} is neither 3, 4 nor 5"),
        }
    }
}

impl std::error::Error for Error {}

/// One whole packet, its fixed header taken off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The first octet: type and flags.
    pub first: u8,
    /// What follows the fixed header.
    pub body: &'a [u8],
    /// Octets of the whole packet, its fixed header included.
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

/// Finds the packet that `octets` begin with; `None` when more octets are needed.
///
/// # Errors
/// `TooLarge` as soon as the fixed header announces more than `limit` octets in all; `Malformed`
/// where its length has more than four octets or more than it needs ([MQTT-1.5.5-1]).
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
