//! One client and its paired connection to the broker. Octets are relayed unchanged; packets that
//! concern other sites are read on the way.

mod publish;
mod site;

use crate::cooperation::Source;
use crate::message::Message;
use crate::residence::Residence;
use crate::retained::Entry;
use crate::sessions::FOR_EVER;
use mqtick_net::residence::{Arrived, TRAILER, has_trailer};
use mqtick_packet::{Ack, AckKind, Connack, Connect, Error, Frame, Packet, Version, decode};
pub(crate) use publish::is_echo;
use publish::plain_topic;
pub use publish::publish_will;
pub use site::Site;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A request that the broker has not answered.
enum Asked {
    Subscribe(Vec<Arc<str>>),
    Unsubscribe(Vec<Arc<str>>),
}

struct Will {
    delay_s: u32,
    message: Message,
}

/// A message above QoS 0 that the broker has not answered.
struct Unanswered {
    /// Later messages have higher numbers.
    number: u64,
    message: Message,
    /// The retained message that it replaced.
    before: Option<Entry>,
}

/// What is known of a client.
pub struct Paired {
    /// Identifies its connection.
    token: u64,
    version: Version,
    client: Arc<str>,
    user: String,
    will: Option<Will>,
    expiry_s: u32,
    aliases: HashMap<u16, String>,
    /// The broker's topic aliases that stand for topics of time messages.
    timed: HashSet<u16>,
    most_aliases: u16,
    asked: HashMap<u16, Asked>,
    /// Messages for other sites, by packet identifier, and their octets.
    unanswered: HashMap<u16, Unanswered>,
    unanswered_octets: usize,
    last_number: u64,
    /// Acknowledgements that wait for other sites.
    held: HashMap<u16, Vec<u8>>,
    /// Whether the broker has accepted its CONNECT.
    is_up: bool,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is relayed.
    Relay,
    /// It has to wait, and so do the packets behind it.
    Wait,
    /// It is held back; the packets behind it are relayed.
    Hold,
}

impl Paired {
    /// A client has sent a CONNECT.
    #[must_use]
    pub fn new(token: u64, connect: &Connect<'_>) -> Self {
        let expiry_s = match (connect.version, connect.clean_start) {
            (Version::V3, true) => 0,
            (Version::V3, false) => FOR_EVER,
            (Version::V5, _) => connect.properties.session_expiry().unwrap_or(0),
        };
        // A client without an identifier gets one that no client can send.
        let client: Arc<str> = match connect.client_id {
            "" => format!("\0{token}").into(),
            name => name.into(),
        };
        let user = connect.username.unwrap_or_default();
        let will = connect.will.map(|will| {
            let mut forwarded = Vec::new();
            will.properties.forwarded(&mut forwarded);
            Will {
                delay_s: will.properties.will_delay().unwrap_or(0),
                message: Message {
                    topic: will.topic.into(),
                    payload: will.payload.into(),
                    qos: will.qos,
                    retain: will.retain,
                    expiry: will.properties.message_expiry(),
                    came_s: 0, // set when it is published
                    forwarded,
                    user: user.into(),
                    client: connect.client_id.into(),
                    ..Message::default()
                },
            }
        });
        Self {
            token,
            version: connect.version,
            client,
            user: user.into(),
            will,
            expiry_s,
            aliases: HashMap::new(),
            timed: HashSet::new(),
            most_aliases: 0,
            asked: HashMap::new(),
            unanswered: HashMap::new(),
            unanswered_octets: 0,
            last_number: 0,
            held: HashMap::new(),
            is_up: false,
        }
    }

    /// The MQTT version that the client speaks.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The client identifier, or one that no client can send.
    #[must_use]
    pub fn client(&self) -> Arc<str> {
        Arc::clone(&self.client)
    }

    /// Whether the broker has accepted its CONNECT.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// A packet from the client.
    ///
    /// # Errors
    /// It is malformed, and the connection has to be closed.
    pub fn client_says(&mut self, frame: &Frame<'_>, site: &mut Site) -> Result<Next, Error> {
        const AUTH: u8 = 15;
        if !self.is_up {
            // Nothing is published or subscribed for a client that the broker has not accepted.
            return Ok(match frame.first >> 4 {
                AUTH => Next::Relay,
                _ => Next::Wait,
            });
        }
        let plain = plain_topic(frame, self.version);
        if plain.is_some_and(|topic| {
            !site.residence.is_timed(topic) && !site.node.goes_on(topic, false)
        }) {
            return Ok(Next::Relay); // no other site wants it
        }
        match decode(frame, self.version)? {
            Packet::Publish(publish) => return self.publish(&publish, site),
            Packet::Subscribe(subscribe) => {
                let filters = subscribe.filters().map(|one| one.filter.into()).collect();
                self.asked.insert(subscribe.id, Asked::Subscribe(filters));
            }
            Packet::Unsubscribe(unsubscribe) => {
                let filters = unsubscribe.filters().map(Into::into).collect();
                self.asked
                    .insert(unsubscribe.id, Asked::Unsubscribe(filters));
            }
            Packet::Ack(Ack {
                kind: AckKind::Pubrel,
                id,
                ..
            }) => site.sessions.release(&self.client, id),
            Packet::Disconnect(disconnect) => {
                const WITH_WILL: u8 = 0x04;
                if disconnect.reason != WITH_WILL {
                    self.will = None;
                }
                if let Some(expiry_s) = disconnect.properties.session_expiry() {
                    self.expiry_s = expiry_s;
                }
            }
            Packet::Connect(_) => return Err(Error::Protocol("a second CONNECT")),
            Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_) | Packet::Pingresp => {
                return Err(Error::Protocol("a packet that only a broker sends"));
            }
            Packet::Ack(_) | Packet::Pingreq | Packet::Auth(_) => {}
        }
        Ok(Next::Relay)
    }

    /// A PUBLISH from the broker. Returns something if it is a time message: when that came to the node,
    /// if this is known.
    pub fn broker_tells(
        &mut self,
        frame: &Frame<'_>,
        times: &Residence,
    ) -> Option<Option<Arrived>> {
        let concerns = times.may_concern(frame.body);
        if !concerns && self.timed.is_empty() {
            return None;
        }
        let Ok(Packet::Publish(publish)) = decode(frame, self.version) else {
            // It is malformed, but the client may take it all the same: its trailer must state nothing.
            return (concerns && frame.body.len() >= TRAILER).then_some(None);
        };
        let is_timed = match publish.properties.topic_alias() {
            Some(alias) if publish.topic.is_empty() => self.timed.contains(&alias),
            Some(alias) if concerns => {
                self.timed.insert(alias);
                true
            }
            Some(alias) => {
                self.timed.remove(&alias); // it stands for something else now
                false
            }
            None => concerns,
        };
        let is_kept = publish.retain || publish.dup;
        (is_timed && has_trailer(publish.payload)).then(|| {
            let found = times.find(publish.payload);
            found.filter(|_| !is_kept)
        })
    }

    /// A packet from the broker. `raw`: its octets.
    ///
    /// # Errors
    /// It is malformed, and both connections have to be closed.
    pub fn broker_says(
        &mut self,
        frame: &Frame<'_>,
        raw: &[u8],
        site: &mut Site,
    ) -> Result<Next, Error> {
        const CONNACK: u8 = 2;
        const PUBACK: u8 = 4;
        const PUBREC: u8 = 5;
        const SUBACK: u8 = 9;
        const UNSUBACK: u8 = 11;
        let kind = frame.first >> 4;
        if !matches!(kind, CONNACK | PUBACK | PUBREC | SUBACK | UNSUBACK) {
            return Ok(Next::Relay);
        }
        match decode(frame, self.version)? {
            Packet::Connack(connack) => self.connected(&connack, site),
            Packet::Ack(ack) => {
                let is_taken = ack.reason < 0x80;
                if is_taken && !site.node.has_room() && self.unanswered.contains_key(&ack.id) {
                    return Ok(Next::Wait);
                }
                if !is_taken {
                    // No PUBREL follows, so the identifier is free for another message.
                    site.sessions.release(&self.client, ack.id);
                }
                let key = self.answered(ack.id, is_taken, site);
                if let Some(key) = key.filter(|_| site.waits_for_all) {
                    site.waiting.insert(key, (self.token, ack.id));
                    self.held.insert(ack.id, raw.into());
                    return Ok(Next::Hold);
                }
            }
            Packet::Suback(suback) => {
                if let Some(Asked::Subscribe(filters)) = self.asked.remove(&suback.id) {
                    let taken = filters.into_iter().zip(suback.codes);
                    let taken = taken.filter(|(_, code)| **code < 0x80);
                    let taken: Vec<_> = taken.map(|(filter, _)| filter).collect();
                    let new = site.sessions.subscribe(&self.client, &taken);
                    site.node.subscribed(Source::Local, &new);
                }
            }
            Packet::Unsuback(unsuback) => {
                if let Some(Asked::Unsubscribe(filters)) = self.asked.remove(&unsuback.id) {
                    let is_refused = |at: usize| unsuback.codes.get(at).is_some_and(|c| *c >= 0x80);
                    let ended = filters.into_iter().enumerate();
                    let ended = ended.filter(|(at, _)| !is_refused(*at));
                    let ended: Vec<_> = ended.map(|(_, filter)| filter).collect();
                    let gone = site.sessions.unsubscribe(&self.client, &ended);
                    site.node.unsubscribed(Source::Local, &gone);
                }
            }
            _ => {}
        }
        Ok(Next::Relay)
    }

    fn connected(&mut self, connack: &Connack<'_>, site: &mut Site) {
        if connack.reason >= 0x80 {
            self.will = None;
            return;
        }
        self.is_up = true;
        self.most_aliases = connack.properties.topic_alias_maximum().unwrap_or(0);
        if let Some(name) = connack.properties.assigned_client_id() {
            self.client = name.into();
        }
        if let Some(expiry_s) = connack.properties.session_expiry() {
            self.expiry_s = expiry_s;
        }
        let gone = site.sessions.connected(
            &self.client,
            self.token,
            connack.session_present,
            self.expiry_s,
        );
        site.node.unsubscribed(Source::Local, &gone);
    }

    /// All sites have the message with this identifier. Returns the acknowledgement for the client.
    pub fn release(&mut self, id: u16) -> Option<Vec<u8>> {
        self.held.remove(&id)
    }

    /// One of the two connections has ended: the client's (`has_left`), or the broker's.
    pub fn end(mut self, has_left: bool, site: &mut Site) {
        if !self.is_up {
            return;
        }
        if has_left && self.expiry_s > 0 {
            self.expect_subscriptions(site);
        }
        // The broker still gets what a client sent before it left. If it was the broker that went
        // without an answer, the client has to send the message again.
        let unanswered = self.unanswered.iter();
        let mut unanswered: Vec<(u64, u16)> =
            unanswered.map(|(id, one)| (one.number, *id)).collect();
        unanswered.sort_unstable();
        for (_, id) in unanswered {
            self.answered(id, has_left, site);
            if !has_left {
                site.sessions.release(&self.client, id);
            }
        }
        if let Some(Will { delay_s, message }) = self.will {
            let delay_s = delay_s.min(self.expiry_s);
            if !site.allows(&self.user, &message.client, &message.topic) {
                if message.retain {
                    site.node.retained.stays(&message.topic, &message.payload);
                }
            } else {
                match (delay_s, site.sessions.successor(&self.client, self.token)) {
                    (0, _) | (_, Some(false)) => publish_will(site, message),
                    (_, Some(true)) => {} // the client was back in time
                    (_, None) => {
                        let at_s = site.now_s + u64::from(delay_s);
                        site.sessions.keep_will(&self.client, at_s, message);
                    }
                }
            }
        }
        let gone = site
            .sessions
            .ended(&self.client, self.token, self.expiry_s, site.now_s);
        site.node.unsubscribed(Source::Local, &gone);
    }

    /// The client left without the broker's answers to its SUBSCRIBE packets. The broker still
    /// processes them, and keeps the subscriptions if it keeps the session.
    fn expect_subscriptions(&mut self, site: &mut Site) {
        for (_, asked) in self.asked.drain() {
            if let Asked::Subscribe(filters) = asked {
                let new = site.sessions.subscribe(&self.client, &filters);
                site.node.subscribed(Source::Local, &new);
            }
        }
    }
}

#[cfg(test)]
mod publish_tests;
#[cfg(test)]
mod tests;
