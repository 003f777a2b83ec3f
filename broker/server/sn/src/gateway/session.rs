//! The session of one client. The messages to it are in [`Client`].

use super::engine::{Engine, Publication};
use super::{SECOND_NS, send};
use crate::client::{Address, Client, Datagrams, Keep, Seat, lock};
use crate::codec::{Filter, Qos, Will};
use std::collections::HashSet;

/// A will.
#[derive(Clone)]
pub(super) struct Testament {
    pub(super) topic: Box<str>,
    pub(super) payload: Box<[u8]>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
}

impl Testament {
    pub(super) fn of(will: &Will<'_>, payload: &[u8]) -> Self {
        Self {
            topic: will.topic.into(),
            payload: payload.into(),
            qos: will.qos,
            retain: will.retain,
        }
    }

    pub(super) fn publication(&self) -> Publication<'_> {
        Publication {
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            came: None,
        }
    }

    pub(super) fn octets(&self) -> usize {
        size_of::<Self>() + self.topic.len() + self.payload.len()
    }
}

/// A SUBSCRIBE that the engine has not answered.
pub(super) struct Asked {
    pub(super) message_id: u16,
    pub(super) name: Box<str>,
    pub(super) filter: Option<Filter<'static>>, // if it is not a name
}

/// The session of a client that is connected, asleep or away.
pub(super) struct Session<M: Keep, S> {
    pub(super) seat: Seat<M>,
    pub(super) subscriber: S,
    pub(super) address: Address,
    pub(super) clean: bool,
    pub(super) duration_s: u16,
    pub(super) heard_ns: u64,
    pub(super) gone: bool,
    pub(super) asleep: bool,
    pub(super) will: Option<Testament>,
    pub(super) filters: HashSet<Box<str>>,
    pub(super) asked: Vec<Asked>,
    pub(super) incoming: Vec<u16>,
    pub(super) second: u64,
    pub(super) subscribes: u32, // SUBSCRIBEs in that second
}

impl<M: Keep, S> Session<M, S> {
    /// So many octets came from the client.
    pub(super) fn heard(&mut self, now_ns: u64, octets: usize) {
        self.heard_ns = now_ns;
        lock(&self.seat).heard(octets);
    }

    /// Whether nothing has come from the client for 1.5 times its keep-alive, or its sleep
    /// duration.
    pub(super) fn is_late(&self, now_ns: u64) -> bool {
        let most_ns = u64::from(self.duration_s) * SECOND_NS / 2 * 3;
        !self.gone && now_ns.saturating_sub(self.heard_ns) > most_ns
    }

    /// Send the datagrams that `append` appends. The client is locked meanwhile.
    pub(super) fn send<T>(
        &self,
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
        append: impl FnOnce(&mut Client<M>, &mut Datagrams) -> T,
    ) -> T {
        let mut seat = lock(&self.seat);
        let result = append(&mut seat, out);
        send(engine, &self.address, out);
        result
    }
}
