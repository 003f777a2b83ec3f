//! Subscriptions and topic ids of clients.

use super::counters::Count;
use super::engine::Engine;
use super::session::{Asked, Session};
use super::{Gateway, SECOND_NS, Settings};
use crate::client::{Datagrams, Keep};
use crate::codec::{Code, Filter, Message, Qos};
use std::collections::HashMap;

const ASKED: usize = 32; // most unanswered SUBSCRIBEs of one client
// most SUBSCRIBEs of one client and second that retained messages follow
const SUBSCRIBES: u32 = 32;

impl<M: Keep, S> Gateway<M, S> {
    /// The engine has decided about a SUBSCRIBE: the QoS that it grants, or the code to refuse it
    /// with.
    #[allow(clippy::too_many_arguments)]
    pub fn subscribed(
        &mut self,
        now_ns: u64,
        client: &str,
        filter: &str,
        message_id: u16,
        answer: Result<Qos, Code>,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        let Some(session) = self.sessions.get_mut(client) else {
            return;
        };
        let mut asked = session.asked.iter();
        let is_it = |one: &Asked| one.message_id == message_id && *one.name == *filter;
        let Some(at) = asked.position(is_it) else {
            return; // it is of an earlier session, or the client has unsubscribed since
        };
        let Asked { name, filter, .. } = session.asked.remove(at);
        let filter = filter.unwrap_or(Filter::Name(&name));
        let out = &mut self.out;
        let done = match answer {
            Ok(_) if session.gone => {
                session.filters.insert(name);
                return;
            }
            Ok(qos) => session.grant(now_ns, &filter, &name, qos, message_id, out, engine),
            Err(code) => {
                let suback = Message::Suback {
                    qos: Qos::AtMostOnce,
                    topic_id: 0,
                    message_id,
                    code,
                };
                if !session.gone {
                    session.send(out, engine, |seat, out| seat.say(&suback, out));
                }
                Ok(())
            }
        };
        if let Err(count) = done {
            self.count(count);
        }
    }
}

impl<M: Keep, S> Session<M, S> {
    /// REGISTER: the client asks for the id of a name.
    pub(super) fn register(
        &mut self,
        message_id: u16,
        name: &str,
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        self.send(out, engine, |seat, out| {
            let may = is_name(name) && M::may_wait(seat.names.octets() + name.len());
            let (topic_id, code) = match may.then(|| seat.names.id(name)) {
                None if !is_name(name) => (0, Code::NOT_SUPPORTED),
                None | Some(None) => (0, Code::CONGESTION),
                Some(Some(id)) => (id, Code::ACCEPTED),
            };
            seat.names.confirm(name);
            seat.hold();
            let regack = Message::Regack {
                topic_id,
                message_id,
                code,
            };
            seat.say(&regack, out);
        });
    }

    /// SUBSCRIBE: retained messages follow the answer.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn subscribe(
        &mut self,
        now_ns: u64,
        settings: &Settings,
        filter: &Filter<'_>,
        qos: Qos,
        message_id: u16,
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let suback = |code| Message::Suback {
            qos,
            topic_id: 0,
            message_id,
            code,
        };
        if self.asked.iter().any(|one| one.message_id == message_id) {
            return Ok(()); // it will be answered
        }
        let mut short = [0; 2];
        let name = text(filter, &settings.predefined, &mut short);
        let has_room =
            |name| self.filters.contains(name) || self.filters.len() < settings.subscriptions;
        let name = match name {
            None => Err(Code::INVALID_TOPIC),
            Some(_) if message_id == 0 => Err(Code::NOT_SUPPORTED),
            Some(name) if !has_room(name) => Err(Code::CONGESTION),
            Some(_) if self.asked.len() >= ASKED => Err(Code::CONGESTION),
            Some(name) => match engine.subscribe(&self.subscriber, message_id, name, qos) {
                Some(Code::ACCEPTED) => Ok(name),
                Some(code) => Err(code),
                None => {
                    self.asked.push(Asked {
                        message_id,
                        name: name.into(),
                        filter: match *filter {
                            Filter::Name(_) => None,
                            Filter::Predefined(id) => Some(Filter::Predefined(id)),
                            Filter::Short(name) => Some(Filter::Short(name)),
                        },
                    });
                    return Ok(());
                }
            },
        };
        let name = match name {
            Ok(name) => name,
            Err(code) => {
                self.send(out, engine, |seat, out| seat.say(&suback(code), out));
                return Ok(());
            }
        };
        self.grant(now_ns, filter, name, qos, message_id, out, engine)
    }

    /// The subscription is granted.
    #[allow(clippy::too_many_arguments)]
    fn grant(
        &mut self,
        now_ns: u64,
        filter: &Filter<'_>,
        name: &str,
        qos: Qos,
        message_id: u16,
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let suback = |topic_id, code| Message::Suback {
            qos,
            topic_id,
            message_id,
            code,
        };
        self.filters.insert(name.into());
        // The SUBACK with the id has to leave before the first copy that has this id.
        let is_named = self.send(out, engine, |seat, out| {
            let topic_id = match *filter {
                Filter::Predefined(id) => {
                    seat.names.predefined(name, id);
                    Some(id)
                }
                Filter::Name(name) if is_name(name) => {
                    let id = seat.names.id(name);
                    seat.names.confirm(name);
                    id
                }
                _ => Some(0),
            };
            if let Some(topic_id) = topic_id {
                seat.hold();
                seat.say(&suback(topic_id, Code::ACCEPTED), out);
            }
            topic_id.is_some()
        });
        if !is_named {
            self.filters.remove(name);
            engine.unsubscribe(&self.subscriber, name);
            let refusal = suback(0, Code::CONGESTION);
            self.send(out, engine, |seat, out| seat.say(&refusal, out));
            return Ok(());
        }
        let second = now_ns / SECOND_NS;
        if self.second != second {
            (self.second, self.subscribes) = (second, 0);
        }
        self.subscribes += 1;
        if self.subscribes > SUBSCRIBES {
            return Err(Count::Rate);
        }
        engine.retained(&self.subscriber, name, qos);
        Ok(())
    }

    /// UNSUBSCRIBE.
    pub(super) fn unsubscribe(
        &mut self,
        settings: &Settings,
        filter: &Filter<'_>,
        message_id: u16,
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        let mut short = [0; 2];
        if let Some(name) = text(filter, &settings.predefined, &mut short) {
            let before = self.asked.len();
            self.asked.retain(|one| *one.name != *name);
            if self.filters.remove(name) || self.asked.len() < before {
                engine.unsubscribe(&self.subscriber, name);
            }
        }
        self.send(out, engine, |seat, out| {
            seat.say(&Message::Unsuback(message_id), out)
        });
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['+', '#', '\0'])
}

/// A short name as a topic name; `None` if it is invalid.
pub(super) fn topic_name(octets: &[u8; 2]) -> Option<&str> {
    std::str::from_utf8(octets)
        .ok()
        .filter(|name| is_name(name))
}

/// The text of a filter; `None` if it is unknown or invalid.
fn text<'a>(
    filter: &Filter<'a>,
    predefined: &'a HashMap<u16, Box<str>>,
    short: &'a mut [u8; 2],
) -> Option<&'a str> {
    match filter {
        Filter::Name(name) => Some(name),
        Filter::Predefined(id) => predefined.get(id).map(|name| &**name),
        Filter::Short(name) => {
            *short = *name;
            topic_name(short)
        }
    }
}
