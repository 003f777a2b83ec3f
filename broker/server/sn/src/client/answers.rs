//! Messages to a client that need an answer, and the answers.

use super::{Client, Datagrams, Keep, Pending, State, What, publish};
use crate::codec::{Code, Message, Qos, Topic};

/// An unproven address gets at most this many times the octets that came from it (RFC 9000, 8.1).
const CREDIT: usize = 3;
/// A message that a client answers with CONGESTION is sent again after the usual time, then after
/// twice the time, up to this. The standard's `T_WAIT` (clause 7.2) is more than five minutes.
const MOST_REST_NS: u64 = 300_000_000_000;
/// A topic name that is registered to prove an address, if the topic's own name is too long for the
/// credit or needs no id.
const PROOF: &str = "$proof";

impl<M: Keep> Client<M> {
    /// Send REGISTER for a topic; the answer also proves the client's address. Returns false if the
    /// credit does not suffice. If no REGISTER can be sent, the topic's messages are dropped.
    pub(super) fn register(&mut self, now_ns: u64, topic: &str, out: &mut Datagrams) -> bool {
        let left = (CREDIT * self.received).saturating_sub(self.sent);
        let fits = |name: &str| self.proven || self.address.register_octets(name) <= left;
        let has_no_id = matches!(
            self.names.known(topic),
            Some(Topic::Short(_) | Topic::Predefined(_))
        );
        let name = match topic {
            topic if fits(topic) && !has_no_id => topic,
            _ if fits(PROOF) => PROOF,
            _ => return false,
        };
        let room = M::may_wait(self.names.octets() + topic.len());
        let id = room.then(|| self.names.id(name)).flatten();
        let message_id = self.message_id();
        let register = |topic_id| Message::Register {
            topic_id,
            message_id,
            name,
        };
        if let Some(topic_id) = id
            && self.say(&register(topic_id), out)
        {
            self.wait(now_ns, message_id, What::Register(topic_id, name.into()));
        } else {
            self.refuse(topic); // no id is left, or it is too long for a datagram
        }
        true
    }

    /// Drop the queued messages of a topic.
    fn refuse(&mut self, topic: &str) {
        let before = self.queue.len();
        self.queue.retain(|one| one.message.topic() != topic);
        self.queued = self.queue.iter().map(|one| one.message.octets()).sum();
        self.dropped += (before - self.queue.len()) as u64;
    }

    /// REGACK has come. Returns whether it was expected.
    pub(crate) fn registered(&mut self, topic_id: u16, id: u16, code: Code) -> bool {
        let is_it = |one: &mut Pending<M>| {
            one.id == id && matches!(one.what, What::Register(known, _) if known == topic_id)
        };
        let Some(Pending {
            what: What::Register(_, name),
            ..
        }) = self.pending.take_if(is_it)
        else {
            return false;
        };
        self.proven = true;
        match code {
            Code::ACCEPTED => self.names.confirm(&name),
            _ if self.names.known(&name).is_none() => self.refuse(&name),
            _ => {}
        }
        true
    }

    /// PUBACK, PUBREC or PUBCOMP has come. Returns whether it was expected.
    pub(crate) fn acknowledged(
        &mut self,
        now_ns: u64,
        answer: &Message<'_>,
        out: &mut Datagrams,
    ) -> bool {
        let (Message::Puback { message_id: id, .. } | Message::Pubrec(id) | Message::Pubcomp(id)) =
            *answer
        else {
            return false;
        };
        if let Message::Puback {
            topic_id,
            message_id: 0,
            code: Code::INVALID_TOPIC,
        } = *answer
        {
            // A copy of QoS 0 is refused (clause 5.4.13): a REGISTER precedes the next one.
            return self.names.doubt_id(topic_id);
        }
        let qos = match self.pending.as_ref().filter(|one| one.id == id) {
            Some(Pending {
                what: What::Publish(waiting),
                ..
            }) => Some(waiting.qos),
            Some(Pending {
                what: What::Release,
                ..
            }) => None,
            _ => {
                // The message was released before, but that PUBREL or its PUBCOMP may be lost.
                if let Message::Pubrec(id) = *answer {
                    self.say(&Message::Pubrel(id), out);
                }
                return false;
            }
        };
        match (answer, qos) {
            (Message::Puback { code, .. }, Some(_)) => {
                if *code == Code::CONGESTION {
                    // The number of tries is not limited, since the client answers.
                    let rest_ns = self.bounds.retry_ns;
                    if let Some(pending) = &mut self.pending {
                        let rest_ns = rest_ns << pending.congested.min(16);
                        pending.again_ns = now_ns + rest_ns.min(MOST_REST_NS);
                        pending.congested += 1;
                        pending.tries = 0;
                    }
                    return true;
                }
                if let Some(pending) = self.pending.take()
                    && *code == Code::INVALID_TOPIC
                {
                    self.name_anew(pending);
                }
            }
            (Message::Pubrec(_), Some(Qos::ExactlyOnce) | None) => {
                self.say(&Message::Pubrel(id), out);
                self.wait(now_ns, id, What::Release);
            }
            (Message::Pubcomp(_), None) => self.pending = None,
            _ => return false,
        }
        true
    }

    /// The client does not know the topic id: register the name again and send the message after
    /// that, but only once.
    fn name_anew(&mut self, pending: Pending<M>) {
        let What::Publish(mut waiting) = pending.what else {
            return;
        };
        self.names.doubt(waiting.message.topic());
        let has_id = self.names.known(waiting.message.topic()).is_some();
        if waiting.refused || has_id {
            self.dropped += 1;
            return;
        }
        (waiting.id, waiting.refused) = (pending.id, true);
        self.queued += waiting.message.octets();
        self.queue.push_front(waiting);
    }

    /// Send again what was not answered in time. Returns false if all tries are used up.
    pub(crate) fn repeat(&mut self, now_ns: u64, out: &mut Datagrams) -> bool {
        if !matches!(self.state, State::Active | State::Awake) {
            return true;
        }
        let Some(mut pending) = self.pending.take() else {
            self.pump(now_ns, out); // an unproven client may have got credit
            return true;
        };
        if now_ns < pending.again_ns {
            self.pending = Some(pending);
            return true;
        }
        if pending.tries >= self.bounds.retries {
            self.pending = Some(pending);
            return false;
        }
        let credit = (CREDIT * self.received).saturating_sub(self.sent);
        match &pending.what {
            What::Register(topic_id, name)
                if self.proven || self.address.register_octets(name) <= credit =>
            {
                let register = Message::Register {
                    topic_id: *topic_id,
                    message_id: pending.id,
                    name,
                };
                self.say(&register, out);
            }
            What::Register(..) => {}
            What::Publish(waiting) => {
                let message = &waiting.message;
                if let Some(named) = self.names.known(message.topic()) {
                    let (qos, retain) = (waiting.qos, waiting.retain);
                    let again = publish(named, pending.id, true, qos, retain, message.payload());
                    self.say(&again, out);
                }
            }
            What::Release => {
                self.say(&Message::Pubrel(pending.id), out);
            }
        }
        pending.tries += 1;
        pending.again_ns = now_ns + self.bounds.retry_ns;
        self.pending = Some(pending);
        true
    }

    /// The client is back: send again what it has not answered.
    pub(crate) fn resume(&mut self, now_ns: u64, out: &mut Datagrams) {
        if let Some(Pending {
            id,
            what: What::Release,
            again_ns,
            tries,
            ..
        }) = &mut self.pending
        {
            (*again_ns, *tries) = (now_ns + self.bounds.retry_ns, 0);
            let id = *id;
            self.say(&Message::Pubrel(id), out);
        }
        self.pump(now_ns, out);
    }
}
