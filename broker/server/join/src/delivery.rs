//! One session at this site's broker, over which messages from other sites are published.

use crate::node::{Key, Message};
use mqtick_packet::{
    AckKind, ConnectOut, Error, Frame, Outgoing, Packet, Property, Qos, Version, ack, connect,
    decode, pingreq, publish,
};
use std::collections::VecDeque;
use std::rc::Rc;

const KEEP_ALIVE_S: u16 = 60;
const MOST_TRIES: u8 = 3; // of a message with which the connection ends each time
const EXPIRY_S: u32 = 3600; // of the session, so that QoS 2 outlives a connection

struct Flying {
    id: u16,
    key: Key,
    message: Rc<Message>,
    is_released: bool,
    tries: u8,
}

/// The session. It does no input or output: what is to be sent is appended to `out`.
pub struct Lane {
    name: String,
    version: Version,
    is_up: bool,
    room: usize,
    last_id: u16,
    queue: VecDeque<(Key, Rc<Message>)>,
    flying: VecDeque<Flying>,
    /// What is to be sent.
    pub out: Vec<u8>,
    /// Messages of QoS 0 for which there was no connection, or no room.
    pub dropped: u64,
    /// Messages above it that the broker refused.
    pub refused: u64,
}

impl Lane {
    /// One with this client identifier.
    #[must_use]
    pub fn new(name: String) -> Self {
        Self {
            name,
            version: Version::V5,
            is_up: false,
            room: 0,
            last_id: 0,
            queue: VecDeque::new(),
            flying: VecDeque::new(),
            out: Vec::new(),
            dropped: 0,
            refused: 0,
        }
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

    /// It ended: whether the broker had taken it.
    pub fn closed(&mut self) -> bool {
        self.out.clear();
        let was_up = std::mem::take(&mut self.is_up);
        if !was_up {
            // It may not speak this version.
            self.version = match self.version {
                Version::V5 => Version::V3,
                Version::V3 => Version::V5,
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

    /// Publish a message; `is_full`: only what cannot be dropped.
    pub fn publish(&mut self, key: Key, message: Rc<Message>, is_full: bool) {
        if message.qos != Qos::AtMostOnce {
            self.queue.push_back((key, message));
            return self.fill();
        }
        if self.is_up && !is_full {
            write(&mut self.out, self.version, &message, 0, false);
        } else {
            self.dropped += 1;
        }
    }

    fn fill(&mut self) {
        while self.is_up && self.flying.len() < self.room {
            let Some((key, message)) = self.queue.pop_front() else {
                return;
            };
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            while self.flying.iter().any(|one| one.id == self.last_id) {
                self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            }
            write(&mut self.out, self.version, &message, self.last_id, false);
            self.flying.push_back(Flying {
                id: self.last_id,
                key,
                message,
                is_released: false,
                tries: 1,
            });
        }
    }

    /// A packet came; which messages the broker has now.
    ///
    /// # Errors
    /// Where the connection is to be closed.
    pub fn take(&mut self, frame: &Frame<'_>, done: &mut Vec<Key>) -> Result<(), String> {
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
                let most = connack.properties.receive_maximum().unwrap_or(64);
                self.room = usize::from(most.min(1024));
                self.resume(connack.session_present, done);
            }
            Packet::Ack(one) if self.is_up => match one.kind {
                AckKind::Puback => self.done(one.id, one.reason, done),
                AckKind::Pubcomp => self.flying.retain(|flying| flying.id != one.id),
                AckKind::Pubrec => {
                    self.done(one.id, one.reason, done);
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
        self.fill();
        Ok(())
    }

    fn done(&mut self, id: u16, reason: u8, done: &mut Vec<Key>) {
        let Some(at) = self.flying.iter().position(|one| one.id == id) else {
            return;
        };
        let Some(one) = self.flying.get_mut(at) else {
            return;
        };
        if !one.is_released {
            done.push(one.key);
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
    fn resume(&mut self, is_present: bool, done: &mut Vec<Key>) {
        if !is_present {
            self.flying.retain(|one| !one.is_released);
        }
        // Too long for this broker, perhaps: those behind it are not to wait for ever.
        if let Some(first) = self.flying.pop_front_if(|one| one.tries >= MOST_TRIES) {
            self.refused += 1;
            if !first.is_released {
                done.push(first.key);
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
                    one.id,
                    is_present,
                ),
            }
        }
    }
}

fn write(out: &mut Vec<u8>, version: Version, message: &Message, id: u16, dup: bool) {
    let outgoing = Outgoing {
        dup,
        qos: message.qos,
        retain: message.retain,
        topic: &message.topic,
        id,
        expiry: message.expiry,
        forwarded: &message.forwarded,
        payload: &message.payload,
        ..Outgoing::default()
    };
    publish(out, version, &outgoing);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use mqtick_packet::{ConnackProperties, connack, frame};

    fn key(sequence: u64) -> Key {
        Key {
            origin: 1,
            lane: 0,
            sequence,
        }
    }

    fn lane() -> Lane {
        let mut lane = Lane::new("lane".into());
        lane.open(None, None);
        lane
    }

    fn hear(lane: &mut Lane, say: impl FnOnce(&mut Vec<u8>)) -> Vec<Key> {
        let (mut octets, mut done) = (Vec::new(), Vec::new());
        say(&mut octets);
        let found = frame(&octets, 1 << 20).unwrap().unwrap();
        lane.take(&found, &mut done).unwrap();
        done
    }

    fn up(lane: &mut Lane, is_present: bool) -> Vec<Key> {
        let with = ConnackProperties {
            receive_maximum: Some(1),
            ..ConnackProperties::default()
        };
        hear(lane, |out| connack(out, Version::V5, is_present, 0, &with))
    }

    fn message(qos: Qos) -> Rc<Message> {
        Rc::new(Message {
            topic: "t".into(),
            qos,
            ..Message::default()
        })
    }

    /// First octet and packet identifier of each PUBLISH and PUBREL that is to be sent.
    fn sent(lane: &mut Lane) -> Vec<(u8, u16)> {
        let out = std::mem::take(&mut lane.out);
        let (mut at, mut all) = (0, Vec::new());
        while let Some(found) = frame(&out[at..], 1 << 20).unwrap() {
            at += found.length;
            match mqtick_packet::decode(&found, Version::V5).unwrap() {
                Packet::Publish(publish) => all.push((found.first, publish.id)),
                Packet::Ack(ack) => all.push((found.first, ack.id)),
                _ => {}
            }
        }
        all
    }

    #[test]
    fn a_message_of_qos_2_goes_on_where_it_was_when_the_connection_broke() {
        let mut lane = lane();
        lane.publish(key(1), message(Qos::ExactlyOnce), false);
        up(&mut lane, false);
        assert_eq!(sent(&mut lane), [(0x34, 1)]);
        lane.closed();
        lane.open(None, None);
        up(&mut lane, true);
        assert_eq!(sent(&mut lane), [(0x3C, 1)], "sent again, and said so");
        let done = hear(&mut lane, |out| {
            ack(out, Version::V5, AckKind::Pubrec, 1, 0)
        });
        assert_eq!(done, [key(1)], "the broker has it");
        assert_eq!(sent(&mut lane), [(0x62, 1)]);
        lane.closed();
        lane.open(None, None);
        assert!(up(&mut lane, true).is_empty());
        assert_eq!(sent(&mut lane), [(0x62, 1)]);
        hear(&mut lane, |out| {
            ack(out, Version::V5, AckKind::Pubcomp, 1, 0)
        });
        assert_eq!(lane.waiting(), 0);
    }

    #[test]
    fn a_message_that_ends_the_connection_each_time_is_given_up_and_those_behind_it_go() {
        let mut lane = lane();
        lane.publish(key(1), message(Qos::AtLeastOnce), false);
        lane.publish(key(2), message(Qos::AtLeastOnce), false);
        for _ in 0..MOST_TRIES {
            assert!(up(&mut lane, true).is_empty());
            assert_eq!(lane.waiting(), 2);
            lane.closed();
            lane.open(None, None);
        }
        assert_eq!(up(&mut lane, true), [key(1)]);
        assert_eq!((lane.refused, lane.waiting()), (1, 1));
    }

    #[test]
    fn of_qos_0_nothing_waits() {
        let mut lane = lane();
        lane.publish(key(1), message(Qos::AtMostOnce), false);
        up(&mut lane, false);
        lane.publish(key(2), message(Qos::AtMostOnce), true);
        lane.out.clear();
        lane.publish(key(3), message(Qos::AtMostOnce), false);
        assert_eq!(sent(&mut lane), [(0x30, 0)]);
        assert_eq!(lane.dropped, 2);
    }
}
