//! Messages to the upstream, and its answers.

use super::{BACKLOG, Event, Line};
use crate::memory;
use crate::message::{Kept, Message};
use mqtick_packet::{Ack, AckKind, Outgoing, Qos, Version, ack, publish, publish_length};
use mqtick_sn::{Answer, Code};
use std::sync::Arc;

/// Messages of QoS 1 and 2 under way, at most, also where the upstream allows more.
pub(super) const WINDOW: usize = 100;
/// Unanswered messages of one sensor, so that it does not hold up others. The gateway remembers as
/// many of QoS 2.
const OF_ONE: usize = 16;
pub(super) const MOST_FLIGHTS: usize = 1 << 14; // there are 65,535 packet identifiers

/// A message that the upstream has not answered yet.
pub(super) struct Flight {
    pub(super) id: u16,
    pub(super) message: Arc<Kept>,
    /// The upstream has it, and gets PUBREL. If it loses its session, it gets the message again.
    pub(super) is_taken: bool,
    pub(super) qos: Qos,
    pub(super) again: bool,
    pub(super) answer: Option<Answer>,
}

/// What the upstream accepts. It ends the connection of all sensors for a message that it does not.
#[derive(Clone, Copy)]
pub(super) struct Takes {
    pub(super) qos: Qos,
    pub(super) retain: bool,
    pub(super) wildcards: bool,
    pub(super) octets: usize,
}

impl Line {
    pub(super) fn acknowledged(&mut self, found: &Ack<'_>, events: &mut Vec<Event>) {
        if found.kind == AckKind::Pubrel {
            self.incoming.remove(&found.id);
            ack(&mut self.out, self.version, AckKind::Pubcomp, found.id, 0);
            return;
        }
        let mut sent = self.flights.iter().take(self.sent);
        let at = sent.position(|one| one.id == found.id);
        let flight = at.and_then(|at| self.flights.get_mut(at));
        let is_refused = found.reason >= 0x80;
        let is_over = match (found.kind, flight) {
            (AckKind::Puback, Some(flight)) if flight.qos == Qos::AtLeastOnce => {
                answer(flight, found.reason, events);
                true
            }
            (AckKind::Pubrec, Some(flight)) if flight.qos == Qos::ExactlyOnce => {
                answer(flight, found.reason, events);
                flight.is_taken = true;
                is_refused
            }
            (AckKind::Pubcomp, Some(flight)) => flight.is_taken,
            _ => false,
        };
        if found.kind == AckKind::Pubrec && !is_refused {
            ack(&mut self.out, self.version, AckKind::Pubrel, found.id, 0);
        }
        if let Some(at) = at.filter(|_| is_over) {
            self.flights.remove(at);
            self.sent -= 1;
            self.fill();
        }
    }

    /// Publish, if there is room. Up to `most` messages of QoS 1 and 2 wait until they are
    /// answered. While the upstream is away, only messages without an `answer` are taken to wait.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn publish(
        &mut self,
        message: &Message<'_>,
        most: usize,
        answer: Option<Answer>,
    ) -> Result<(), Code> {
        let mut message = *message;
        if answer.is_none() {
            message.qos = message.qos.min(self.takes.qos); // a will: with the QoS that is possible
        }
        if !self.takes.takes(self.version, &message) {
            return Err(Code::NOT_SUPPORTED);
        }
        let has_room = match (message.qos, &answer) {
            (Qos::AtMostOnce, _) => self.is_up() && self.out.len() <= BACKLOG,
            (_, Some(answer)) => self.is_up() && self.held_of(&answer.client).count() < OF_ONE,
            (_, None) => true,
        };
        if !has_room {
            return Err(Code::CONGESTION);
        }
        if message.qos == Qos::AtMostOnce {
            write(&mut self.out, self.version, &message, 0, false);
            return Ok(());
        }
        if self.flights.len() >= most.min(MOST_FLIGHTS) || !memory::may_hold(message.octets()) {
            return Err(Code::CONGESTION);
        }
        let id = self.free_id();
        self.flights.push_back(Flight {
            id,
            message: Kept::new(&message),
            is_taken: false,
            qos: message.qos,
            again: false,
            answer,
        });
        self.fill();
        Ok(())
    }

    fn held_of(&self, client: &str) -> impl Iterator<Item = &Answer> {
        let answers = self.flights.iter().filter_map(|one| one.answer.as_ref());
        answers.filter(move |answer| *answer.client == *client)
    }

    /// Whether the upstream has still to answer a message.
    pub fn is_held(&self, client: &str, message_id: u16) -> bool {
        self.held_of(client)
            .any(|answer| answer.message_id == message_id)
    }

    /// Send as many messages as may be under way.
    pub(super) fn fill(&mut self) {
        while self.is_up() && self.sent < self.window {
            let Some(flight) = self.flights.get_mut(self.sent) else {
                break;
            };
            if flight.is_taken {
                ack(&mut self.out, self.version, AckKind::Pubrel, flight.id, 0);
            } else {
                write(
                    &mut self.out,
                    self.version,
                    &flight.message.message(),
                    flight.id,
                    flight.again,
                );
            }
            flight.again = true;
            self.sent += 1;
        }
    }

    pub(super) fn free_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            let id = self.last_id;
            let is_flying = self.flights.iter().any(|one| one.id == id);
            let is_asked = self.asks.contains_key(&id) || self.ending.contains_key(&id);
            if !is_flying && !is_asked {
                return id;
            }
        }
    }
}

impl Takes {
    pub(super) fn takes(&self, version: Version, message: &Message<'_>) -> bool {
        message.qos <= self.qos
            && (self.retain || !message.retain)
            && publish_length(version, &outgoing(message, 0, false)) <= self.octets
    }
}

fn outgoing<'a>(message: &Message<'a>, id: u16, again: bool) -> Outgoing<'a> {
    Outgoing {
        dup: again,
        qos: message.qos,
        retain: message.retain,
        topic: message.topic,
        id,
        payload: message.payload,
        ..Outgoing::default()
    }
}

fn write(out: &mut Vec<u8>, version: Version, message: &Message<'_>, id: u16, again: bool) {
    publish(out, version, &outgoing(message, id, again));
}

pub(super) fn answer(flight: &mut Flight, reason: u8, events: &mut Vec<Event>) {
    let code = match reason {
        0..0x80 => Code::ACCEPTED,
        0x83 | 0x97 => Code::CONGESTION, // the upstream may accept it later
        _ => Code::NOT_SUPPORTED,
    };
    if let Some(answer) = flight.answer.take() {
        events.push(Event::Answered(answer, code));
    }
}
