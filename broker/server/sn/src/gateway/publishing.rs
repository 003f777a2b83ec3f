//! Messages that clients publish.

use super::counters::Count;
use super::engine::{Answer, Came, Engine, Publication};
use super::topics::topic_name;
use super::{Gateway, SECOND_NS, answer};
use crate::client::{Keep, lock};
use crate::codec::{Code, Message, Qos, Topic};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

const INCOMING: usize = 16; // most messages of QoS 2 of one client without PUBREL
const PUBLISHERS: usize = 1 << 16; // most addresses whose messages are counted

impl<M: Keep, S> Gateway<M, S> {
    /// Count a message of this address. Returns whether it exceeds the limit for this second.
    fn is_too_much(&mut self, now_ns: u64, who: IpAddr) -> bool {
        let who = network(who);
        let most = self.settings.publishes_a_second;
        if most == 0 {
            return false;
        }
        let second = now_ns / SECOND_NS;
        if self.second != second {
            self.second = second;
            self.published = HashMap::new();
        }
        if self.published.len() >= PUBLISHERS && !self.published.contains_key(&who) {
            return true;
        }
        let count = self.published.entry(who).or_insert(0);
        *count = count.saturating_add(1);
        *count > most
    }

    /// PUBLISH with QoS -1, which needs no connection.
    pub(super) fn publish_unconnected(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        topic: Topic,
        payload: &[u8],
        retain: bool,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        if self.is_too_much(now_ns, from.ip()) {
            return Err(Count::Rate);
        }
        let short;
        let topic = match topic {
            Topic::Registered(_) => return Err(Count::Topic),
            Topic::Predefined(id) => self.settings.predefined.get(&id).ok_or(Count::Topic)?,
            Topic::Short(name) => {
                short = name;
                topic_name(&short).ok_or(Count::Topic)?
            }
        };
        let publication = Publication {
            topic,
            payload,
            qos: Qos::AtMostOnce,
            retain,
            came: None,
        };
        let done = engine.publish(None, &publication, None);
        done.map_err(|_| Count::Access)
    }

    /// PUBLISH of a connected client.
    pub(super) fn publish(
        &mut self,
        now_ns: u64,
        client: &Arc<str>,
        message: &Message<'_>,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let Message::Publish {
            dup,
            qos,
            retain,
            topic,
            message_id,
            data: payload,
        } = *message
        else {
            return Err(Count::Unexpected);
        };
        let Some(address) = self.sessions.get(client).map(|session| session.address) else {
            return Err(Count::Stranger);
        };
        let topic_id = match topic {
            Topic::Registered(id) | Topic::Predefined(id) => id,
            Topic::Short(name) => u16::from_be_bytes(name),
        };
        let puback = |code| Message::Puback {
            topic_id,
            message_id,
            code,
        };
        let is_surely = qos > Qos::AtMostOnce;
        if self.is_too_much(now_ns, address.at.ip()) {
            if is_surely {
                answer(engine, &address, &puback(Code::CONGESTION));
            }
            return Err(Count::Rate);
        }
        let Some(session) = self.sessions.get_mut(client) else {
            return Err(Count::Stranger);
        };
        let (registered, short);
        let name = match topic {
            Topic::Registered(id) => {
                registered = lock(&session.seat).names.name(id);
                registered.as_deref()
            }
            Topic::Predefined(id) => self.settings.predefined.get(&id).map(|name| &**name),
            Topic::Short(octets) => {
                short = octets;
                topic_name(&short)
            }
        };
        let Some(name) = name.filter(|_| message_id != 0 || !is_surely) else {
            answer(engine, &address, &puback(Code::INVALID_TOPIC));
            return Err(Count::Topic);
        };
        // If the client could name the topic in two ways, a switch could not keep the order.
        let is_registered = lock(&session.seat).names.is_registered(name);
        let ids = self.predefined.get(name).copied().unwrap_or(0);
        let ways = ids + usize::from(is_registered) + usize::from(name.len() == 2);
        let came = address.plain().filter(|_| ways == 1).map(|from| Came {
            from,
            topic,
            keep_alive_s: session.duration_s,
            marked: self.marked,
        });
        let twice = qos == Qos::ExactlyOnce;
        let is_known = twice && session.incoming.contains(&message_id);
        if (is_known || is_surely && dup) && engine.is_held(client, message_id) {
            return Ok(()); // it will be answered
        }
        if is_known {
            answer(engine, &address, &Message::Pubrec(message_id));
            return Ok(());
        }
        if twice && session.incoming.len() >= INCOMING {
            answer(engine, &address, &puback(Code::CONGESTION));
            return Err(Count::Full);
        }
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        if is_surely {
            let done = match twice {
                true => Message::Pubrec(message_id),
                false => puback(Code::ACCEPTED),
            };
            address.write(&done, &mut good);
            address.write(&puback(Code::CONGESTION), &mut bad);
        }
        let acknowledgement = is_surely.then(|| Answer {
            to: address.at,
            good,
            bad,
            client: Arc::clone(client),
            message_id,
            is_once: twice,
        });
        if twice {
            session.incoming.push(message_id);
        }
        let publication = Publication {
            topic: name,
            payload,
            qos,
            retain,
            came,
        };
        if let Err(code) = engine.publish(Some(&session.subscriber), &publication, acknowledgement)
        {
            session.incoming.retain(|one| !twice || *one != message_id);
            answer(engine, &address, &puback(code));
            return Err(Count::Access);
        }
        Ok(())
    }

    /// The engine has refused a message after all: if it is of QoS 2, the client may send it again.
    pub fn refused(&mut self, answer: &Answer) {
        let session = self.sessions.get_mut(&answer.client);
        if let Some(session) = session.filter(|_| answer.is_once) {
            session.incoming.retain(|one| *one != answer.message_id);
        }
    }
}

/// The address to count messages by. An IPv6 host usually has a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}
