//! Delivery of messages from other sites: one session at this site's broker, which publishes them.

use crate::connection::Fault;
use crate::message::{Key, Message};
use crate::retained::Retained;
use mqtick_packet::{
    AckKind, ConnectOut, Frame, Outgoing, Packet, Property, Qos, Version, ack, connect, decode,
    pingreq, publish,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

const KEEP_ALIVE_S: u16 = 60;
const MOST_TRIES: u8 = 3; // for a message at which the connection ends each time
const TRIES_OF_2: u8 = 2; // for one of QoS 2, which a broker of MQTT 3.1.1 cannot refuse otherwise
const EXPIRY_S: u32 = 3600; // of the session, so that QoS 2 outlives a connection

/// A message above QoS 0 that the broker has not acknowledged.
struct Flying {
    id: u16,
    key: Key,
    message: Rc<Message>,
    /// PUBREC came, and PUBREL was sent.
    is_released: bool,
    /// On how many connections it was the first one to be sent.
    tries: u8,
}

/// What the broker takes, as its CONNACK says.
struct Limits {
    /// Unacknowledged messages above QoS 0.
    room: usize,
    /// The highest QoS.
    qos: Qos,
    /// Whether it takes retained messages.
    retains: bool,
    /// Octets of a packet.
    packet: usize,
}

/// Whether the broker takes QoS 2, if that is known. All sessions at the broker share it.
pub type Takes2 = Rc<Cell<Option<bool>>>;

/// The session. It does no input or output: what is to be sent is appended to `out`.
pub struct Delivery {
    name: String,
    version: Version,
    is_up: bool,
    limits: Limits,
    /// MQTT 3.1.1 has no way to say that QoS 2 is not taken, so it is found out.
    takes_2: Takes2,
    last_id: u16,
    queue: VecDeque<(Key, Rc<Message>)>,
    flying: VecDeque<Flying>,
    /// Octets to be sent.
    pub out: Vec<u8>,
    /// Messages above QoS 0 that the broker now has, or will never get.
    pub done: Vec<Key>,
    /// Seconds since the start of the node.
    pub now_s: u64,
    /// Messages that expired before the broker could have them.
    pub expired: u64,
    /// Messages of QoS 0 for which there was no connection, or no room.
    pub dropped: u64,
    /// Messages that the broker refused, or that are too long for it.
    pub refused: u64,
}

impl Delivery {
    /// A session with this client identifier.
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

    /// The MQTT version of the connection.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its client identifier.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is connected: the broker has accepted its CONNECT.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// How many messages wait for the broker.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.flying.len()
    }

    /// The messages that wait for the broker.
    pub fn messages(&self) -> impl Iterator<Item = &Rc<Message>> {
        let flying = self.flying.iter().map(|one| &one.message);
        flying.chain(self.queue.iter().map(|(_, message)| message))
    }

    /// A connection begins: send CONNECT.
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

    /// The connection ended. `has_met`: there was something at the other end. Returns whether the
    /// broker had accepted it.
    pub fn closed(&mut self, has_met: bool) -> bool {
        self.out.clear();
        let was_up = std::mem::take(&mut self.is_up);
        if !was_up {
            // A broker that was there may not speak this version. If none was there, nothing is known.
            self.version = match self.version {
                Version::V5 if has_met => Version::V3,
                _ => Version::V5,
            };
        }
        was_up
    }

    /// Keep the connection alive.
    pub fn ping(&mut self) {
        if self.is_up {
            pingreq(&mut self.out);
        }
    }

    /// Publish a message. `is_full`: drop it if it has QoS 0. `retained` tells whether a message that
    /// had to wait is still the last one on its topic.
    pub fn publish(&mut self, key: Key, message: Rc<Message>, is_full: bool, retained: &Retained) {
        if message.qos != Qos::AtMostOnce {
            self.queue.push_back((key, message));
            return self.fill(retained);
        }
        if !self.is_up || is_full {
            self.dropped += 1;
        } else if !self.put(&self.as_taken(message, retained), 0, false) {
            self.refused += 1;
        }
    }

    /// Send messages that wait, as many as the broker takes.
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
                self.done.push(key); // the broker takes only QoS 0, and does not acknowledge it
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

    /// The message, with a QoS and a retain flag that the broker takes.
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

    /// Write a message. Returns false, and writes nothing, if it is too long for the broker.
    fn put(&mut self, message: &Message, id: u16, dup: bool) -> bool {
        let before = self.out.len();
        write(&mut self.out, self.version, message, self.now_s, id, dup);
        let fits = self.out.len() - before <= self.limits.packet;
        if !fits {
            self.out.truncate(before);
        }
        fits
    }

    /// A packet has come from the broker.
    ///
    /// # Errors
    /// Why the connection has to be closed.
    pub fn take(&mut self, frame: &Frame<'_>, retained: &Retained) -> Result<(), Fault> {
        match decode(frame, self.version)? {
            Packet::Connack(connack) if connack.reason != 0 => {
                let (name, reason) = (&self.name, connack.reason);
                let why = format!("the broker refuses client {name:?}: reason 0x{reason:02x}");
                return Err(Fault::ended(why));
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
                    // In MQTT 5 the CONNACK says it, each time anew.
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
                let why = format!("the broker disconnects: reason 0x{reason:02x}");
                return Err(Fault::ended(why));
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

    /// The broker has accepted the connection: send again what it has not acknowledged.
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
        // The broker seems to break off at this message. Those behind it must not wait for ever.
        if let Some(first) = self.flying.pop_front_if(|one| one.tries >= MOST_TRIES) {
            self.refused += 1;
            if !first.is_released {
                self.done.push(first.key);
            }
        }
        if let Some(first) = self.flying.front_mut() {
            first.tries += 1;
        }
        for mut one in std::mem::take(&mut self.flying) {
            if one.is_released {
                ack(&mut self.out, self.version, AckKind::Pubrel, one.id, 0);
            } else {
                one.message = self.as_taken(one.message, retained);
                let (message, out) = (&one.message, &mut self.out);
                let is_sure = message.qos != Qos::AtMostOnce;
                let dup = is_present && is_sure;
                write(out, self.version, message, self.now_s, one.id, dup);
                if !is_sure {
                    self.done.push(one.key); // a broker that takes only QoS 0 now
                    continue;
                }
            }
            self.flying.push_back(one);
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
