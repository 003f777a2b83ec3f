//! The encoding of values in the tables. Numbers are little-endian base 128; texts and octets begin
//! with their length.

use std::sync::Arc;

use crate::types::{Message, Session, Will};

/// A row of the log, for data that changes often. The log's key increases with time, so that rows
/// of the same time are adjacent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The mark of the newest commit; each commit replaces it.
    Mark,
    Message(u64, Arc<Message>),
    Entry(Entry),
    Received {
        client: u64,
        id: u16,
    },
}

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The number of the session.
    pub(crate) client: u64,
    pub(crate) place: u64,
    pub(crate) message: u64,
    pub(crate) qos: u8,
    pub(crate) retain: bool,
    pub(crate) ids: Arc<[u32]>,
    pub(crate) in_flight: Option<(u16, u8)>,
}

impl Record {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Mark => out.push(0),
            Self::Message(number, message) => {
                out.push(1);
                write_number(out, *number);
                write_message(out, message);
            }
            Self::Entry(entry) => {
                let sent = entry.in_flight.is_some();
                out.push(2 | u8::from(entry.retain) << 2 | u8::from(sent) << 3 | entry.qos << 4);
                write_number(out, entry.client);
                write_number(out, entry.place);
                write_number(out, entry.message);
                if let Some((id, state)) = entry.in_flight {
                    out.extend(id.to_le_bytes());
                    out.push(state);
                }
                for id in &*entry.ids {
                    write_number(out, u64::from(*id));
                }
            }
            Self::Received { client, id } => {
                out.push(3);
                write_number(out, *client);
                out.extend(id.to_le_bytes());
            }
        }
    }

    /// `None`: it is not a record.
    pub(crate) fn read(octets: &[u8]) -> Option<Self> {
        let mut input = Input(octets);
        let kind = input.octet()?;
        let record = match kind & 3 {
            0 => Self::Mark,
            1 => Self::Message(input.number()?, Arc::new(input.message()?)),
            2 => {
                let (client, place, message) = (input.number()?, input.number()?, input.number()?);
                let in_flight = match kind & 8 {
                    0 => None,
                    _ => Some((input.id()?, input.octet()?)),
                };
                let mut ids = Vec::new();
                while !input.0.is_empty() {
                    ids.push(u32::try_from(input.number()?).ok()?);
                }
                Self::Entry(Entry {
                    client,
                    place,
                    message,
                    qos: kind >> 4,
                    retain: kind & 4 != 0,
                    ids: ids.into(),
                    in_flight,
                })
            }
            _ => Self::Received {
                client: input.number()?,
                id: input.id()?,
            },
        };
        input.0.is_empty().then_some(record)
    }
}

/// Write a row of the table of sessions.
pub(crate) fn write_session(out: &mut Vec<u8>, number: u64, session: &Session) {
    write_number(out, number);
    write_number(out, u64::from(session.expiry));
    write_number(out, session.disconnected_at);
    let will = session.will.as_ref();
    out.push(
        u8::from(session.user.is_some())
            | u8::from(will.is_some()) << 1
            | u8::from(will.is_some_and(|will| will.retain)) << 2,
    );
    if let Some(user) = &session.user {
        write_octets(out, user.as_bytes());
    }
    if let Some(will) = will {
        write_number(out, u64::from(will.delay));
        write_message(out, &will.message);
    }
}

/// Read a row of the table of sessions.
pub(crate) fn read_session(octets: &[u8]) -> Option<(u64, Session)> {
    let mut input = Input(octets);
    let number = input.number()?;
    let expiry = u32::try_from(input.number()?).ok()?;
    let disconnected_at = input.number()?;
    let flags = input.octet()?;
    let user = match flags & 1 {
        0 => None,
        _ => Some(input.text()?),
    };
    let will = match flags & 2 {
        0 => None,
        _ => Some(Will {
            delay: u32::try_from(input.number()?).ok()?,
            message: Arc::new(input.message()?),
            retain: flags & 4 != 0,
        }),
    };
    let session = Session {
        expiry,
        disconnected_at,
        user,
        will,
    };
    input.0.is_empty().then_some((number, session))
}

/// Write a message.
pub(crate) fn write_message(out: &mut Vec<u8>, message: &Message) {
    out.push(message.qos);
    write_number(out, message.expiry);
    write_octets(out, message.topic.as_bytes());
    write_octets(out, &message.properties);
    out.extend(&*message.payload);
}

/// Read a message.
pub(crate) fn read_message(octets: &[u8]) -> Option<Message> {
    Input(octets).message()
}

fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn write_octets(out: &mut Vec<u8>, octets: &[u8]) {
    write_number(out, octets.len() as u64);
    out.extend(octets);
}

/// The unread octets.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count)?;
        self.0 = left;
        Some(taken)
    }

    fn octet(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn id(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let octet = self.octet()?;
            number |= u64::from(octet & 0x7f) << shift;
            if octet < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn octets(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(usize::try_from(count).ok()?)
    }

    fn text(&mut self) -> Option<Arc<str>> {
        Some(std::str::from_utf8(self.octets()?).ok()?.into())
    }

    /// Reads to the end, since a message is always the last part of a value.
    fn message(&mut self) -> Option<Message> {
        Some(Message {
            qos: self.octet()?,
            expiry: self.number()?,
            topic: self.text()?,
            properties: self.octets()?.into(),
            payload: std::mem::take(&mut self.0).into(),
        })
    }
}
