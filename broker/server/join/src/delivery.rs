//! One session at this site's broker, over which messages from other sites are published.

use crate::node::{Key, Message};
use crate::retained::Retained;
use mqtick_packet::{
    AckKind, ConnectOut, Error, Frame, Outgoing, Packet, Property, Qos, Version, ack, connect,
    decode, pingreq, publish,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

const KEEP_ALIVE_S: u16 = 60;
const MOST_TRIES: u8 = 3; // of a message with which the connection ends each time
const TRIES_OF_2: u8 = 2; // of one with QoS 2, where MQTT 3.1.1 has no way to say that it is not taken
const EXPIRY_S: u32 = 3600; // of the session, so that QoS 2 outlives a connection

struct Flying {
    id: u16,
    key: Key,
    message: Rc<Message>,
    is_released: bool,
    tries: u8,
}

/// What the broker takes.
struct Limits {
    /// Messages above QoS 0 at once.
    room: usize,
    qos: Qos,
    retains: bool,
    /// Octets of a packet.
    packet: usize,
}

/// What all lanes to one broker know of it.
pub type Takes2 = Rc<Cell<Option<bool>>>;

/// The session. It does no input or output: what is to be sent is appended to `out`.
pub struct Lane {
    name: String,
    version: Version,
    is_up: bool,
    limits: Limits,
    /// Whether the broker takes QoS 2, as far as it is known: MQTT 3.1.1 has no way to say so.
    takes_2: Takes2,
    last_id: u16,
    queue: VecDeque<(Key, Rc<Message>)>,
    flying: VecDeque<Flying>,
    /// What is to be sent.
    pub out: Vec<u8>,
    /// Messages above QoS 0 that the broker has now, or never will.
    pub done: Vec<Key>,
    /// Seconds since the start of the node.
    pub now_s: u64,
    /// Messages whose time was over before the broker could have them.
    pub expired: u64,
    /// Messages of QoS 0 for which there was no connection, or no room.
    pub dropped: u64,
    /// Messages above it that the broker refused.
    pub refused: u64,
}

impl Lane {
    /// One with this client identifier.
    #[must_use]
    pub fn new(name: String, takes_2: Takes2) -> Self {
        Self {
            name,
            version: Version::V5,
            is_up: false,
            limits: Limits {
                room: 0,
                qos: Qos::ExactlyOnce,
                retains: true,
                packet: usize::MAX,
            },
            takes_2,
            last_id: 0,
            queue: VecDeque::new(),
            flying: VecDeque::new(),
            out: Vec::new(),
            done: Vec::new(),
            now_s: 0,
            expired: 0,
            dropped: 0,
            refused: 0,
        }
    }

    /// The version that the broker speaks, once it has taken it.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its client identifier.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the broker has taken it.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Messages that wait for the broker.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.flying.len()
    }

    /// The messages that wait for the broker.
    pub fn messages(&self) -> impl Iterator<Item = &Rc<Message>> {
        let flying = self.flying.iter().map(|one| &one.message);
        flying.chain(self.queue.iter().map(|(_, message)| message))
    }

    /// A connection begins.
    pub fn open(&mut self, user: Option<&str>, password: Option<&[u8]>) {
        self.out.clear();
        let with = ConnectOut {
            clean_start: false,
            keep_alive: KEEP_ALIVE_S,
            client_id: &self.name,
            username: user,
            password,
            properties: &[Property::SessionExpiry(EXPIRY_S)],
            ..ConnectOut::default()
        };
        connect(&mut self.out, self.version, &with);
    }

    /// It ended: whether the broker had taken it. `has_met`: the broker was there.
    pub fn closed(&mut self, has_met: bool) -> bool {
        self.out.clear();
        let was_up = std::mem::take(&mut self.is_up);
        if !was_up {
            // It may not speak this version; one that is not there says nothing about that.
            self.version = match self.version {
                Version::V5 if has_met => Version::V3,
                _ => Version::V5,
            };
        }
        was_up
    }

    /// Say that we are alive.
    pub fn ping(&mut self) {
        if self.is_up {
            pingreq(&mut self.out);
        }
    }

    /// Publish a message; `is_full`: only what cannot be dropped. `retained`: so that what had to wait
    /// does not replace what is newer.
    pub fn publish(&mut self, key: Key, message: Rc<Message>, is_full: bool, retained: &Retained) {
        if message.qos != Qos::AtMostOnce {
            self.queue.push_back((key, message));
            return self.fill(retained);
        }
        if !self.is_up || is_full || !self.put(&self.as_taken(message, retained), 0, false) {
            self.dropped += 1;
        }
    }

    fn fill(&mut self, retained: &Retained) {
        while self.is_up && self.flying.len() < self.limits.room {
            let Some((key, message)) = self.queue.pop_front() else {
                return;
            };
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            while self.flying.iter().any(|one| one.id == self.last_id) {
                self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            }
            let (id, message) = (self.last_id, self.as_taken(message, retained));
            if message.expiry_at(self.now_s) == Some(0) {
                self.expired += 1;
                self.done.push(key);
            } else if !self.put(&message, id, false) {
                self.refused += 1;
                self.done.push(key);
            } else if message.qos == Qos::AtMostOnce {
                self.done.push(key); // this broker takes nothing surer
            } else {
                self.flying.push_back(Flying {
                    id,
                    key,
                    message,
                    is_released: false,
                    tries: 1,
                });
            }
        }
    }

    /// A message with the QoS and the retain flag that the broker takes.
    fn as_taken(&self, message: Rc<Message>, retained: &Retained) -> Rc<Message> {
        let is_lowered = self.version == Version::V3 && self.takes_2.get() == Some(false);
        let most = match is_lowered {
            true => Qos::AtLeastOnce,
            false => self.limits.qos,
        };
        let qos = message.qos.min(most);
        let retain = message.retain && self.limits.retains && !retained.is_outdated(&message);
        if (qos, retain) == (message.qos, message.retain) {
            return message;
        }
        Rc::new(Message {
            qos,
            retain,
            ..Message::clone(&message)
        })
    }

    /// Write a message, unless it is longer than the broker takes.
    fn put(&mut self, message: &Message, id: u16, dup: bool) -> bool {
        let before = self.out.len();
        write(&mut self.out, self.version, message, self.now_s, id, dup);
        let fits = self.out.len() - before <= self.limits.packet;
        if !fits {
            self.out.truncate(before);
        }
        fits
    }

    /// A packet came.
    ///
    /// # Errors
    /// Where the connection is to be closed.
    pub fn take(&mut self, frame: &Frame<'_>, retained: &Retained) -> Result<(), String> {
        let said = |error: Error| format!("the broker's answer is no MQTT: {error}");
        match decode(frame, self.version).map_err(said)? {
            Packet::Connack(connack) if connack.reason != 0 => {
                let reason = connack.reason;
                return Err(format!(
                    "the broker refuses {:?}: 0x{reason:02x}",
                    self.name
                ));
            }
            Packet::Connack(connack) if !self.is_up => {
                self.is_up = true;
                let said = &connack.properties;
                let packet = said.maximum_packet_size();
                self.limits = Limits {
                    room: usize::from(said.receive_maximum().unwrap_or(64).min(1024)),
                    qos: said
                        .maximum_qos()
                        .and_then(|qos| Qos::try_from(qos).ok())
                        .unwrap_or(Qos::ExactlyOnce),
                    retains: said.retain_available().unwrap_or(true),
                    packet: packet.map_or(usize::MAX, |octets| octets as usize),
                };
                self.resume(connack.session_present, retained);
            }
            Packet::Ack(one) if self.is_up => match one.kind {
                AckKind::Puback => self.answered(one.id, one.reason),
                AckKind::Pubcomp => self.flying.retain(|flying| flying.id != one.id),
                AckKind::Pubrec => {
                    // In MQTT 5 it says so itself; what comes after it may be another broker.
                    if self.version == Version::V3 {
                        self.takes_2.set(Some(true));
                    }
                    self.answered(one.id, one.reason);
                    if one.reason < 0x80 {
                        ack(&mut self.out, self.version, AckKind::Pubrel, one.id, 0);
                    }
                }
                AckKind::Pubrel => {}
            },
            Packet::Disconnect(disconnect) => {
                let reason = disconnect.reason;
                return Err(format!("the broker ends it: 0x{reason:02x}"));
            }
            _ => {}
        }
        self.fill(retained);
        Ok(())
    }

    fn answered(&mut self, id: u16, reason: u8) {
        let Some(at) = self.flying.iter().position(|one| one.id == id) else {
            return;
        };
        let Some(one) = self.flying.get_mut(at) else {
            return;
        };
        if !one.is_released {
            self.done.push(one.key);
        }
        self.refused += u64::from(reason >= 0x80);
        match one.message.qos {
            Qos::ExactlyOnce if reason < 0x80 => one.is_released = true,
            _ => {
                self.flying.remove(at);
            }
        }
    }

    /// Go on with what was under way.
    fn resume(&mut self, is_present: bool, retained: &Retained) {
        if !is_present {
            self.flying.retain(|one| !one.is_released);
            while self.flying.len() > self.limits.room
                && let Some(one) = self.flying.pop_back()
            {
                self.queue.push_front((one.key, one.message));
            }
        }
        let first = self
            .flying
            .front_mut()
            .filter(|first| first.message.qos == Qos::ExactlyOnce && first.tries >= TRIES_OF_2);
        let doubts_2 = self.version == Version::V3 && self.takes_2.get() != Some(true);
        if let Some(first) = first.filter(|_| doubts_2) {
            first.tries = 0;
            self.takes_2.set(Some(false));
        }
        for at in 0..self.flying.len() {
            let waits = self.flying.get(at).filter(|one| !one.is_released);
            let lowered = waits.map(|one| self.as_taken(Rc::clone(&one.message), retained));
            if let (Some(one), Some(message)) = (self.flying.get_mut(at), lowered) {
                one.message = message;
            }
        }
        // Too long for this broker, perhaps: those behind it are not to wait for ever.
        if let Some(first) = self.flying.pop_front_if(|one| one.tries >= MOST_TRIES) {
            self.refused += 1;
            if !first.is_released {
                self.done.push(first.key);
            }
        }
        if let Some(first) = self.flying.front_mut() {
            first.tries += 1;
        }
        for one in &self.flying {
            match one.is_released {
                true => ack(&mut self.out, self.version, AckKind::Pubrel, one.id, 0),
                false => write(
                    &mut self.out,
                    self.version,
                    &one.message,
                    self.now_s,
                    one.id,
                    is_present,
                ),
            }
        }
    }
}

fn write(out: &mut Vec<u8>, version: Version, message: &Message, now_s: u64, id: u16, dup: bool) {
    let outgoing = Outgoing {
        dup,
        qos: message.qos,
        retain: message.retain,
        topic: &message.topic,
        id,
        expiry: message.expiry_at(now_s),
        forwarded: &message.forwarded,
        payload: &message.payload,
        ..Outgoing::default()
    };
    publish(out, version, &outgoing);
}

#[cfg(test)]
mod tests;
