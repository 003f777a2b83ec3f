//! What all parts of the crate name.

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

/// The type of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AckKind {
    /// Acknowledges a QoS 1 PUBLISH.
    Puback = 4,
    /// Acknowledges a QoS 2 PUBLISH.
    Pubrec = 5,
    /// Answers PUBREC, from the message's sender.
    Pubrel = 6,
    /// Answers PUBREL.
    Pubcomp = 7,
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
