//! The gateway's counters.

use crate::codec::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)] // they are explained in `broker/spec/mqtt-sn.md`
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

/// The names of the counters, in the order of [`Count`].
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
