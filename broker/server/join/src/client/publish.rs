//! Messages that a client publishes: which ones go to other sites, and when.

use super::{Next, Paired, Site, Unanswered};
use crate::connection::HIGH;
use crate::message::{Key, Message};
use crate::residence;
use crate::retained::Entry;
use mqtick_net::residence::has_trailer;
use mqtick_packet::{Error, Frame, Publish, Qos, Version};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

impl Paired {
    pub(super) fn publish(
        &mut self,
        publish: &Publish<'_>,
        site: &mut Site,
    ) -> Result<Next, Error> {
        let alias = publish.properties.topic_alias();
        let topic = match alias {
            Some(alias) if publish.topic.is_empty() => match self.aliases.get(&alias) {
                Some(topic) => topic.as_str(),
                None => return Err(Error::Protocol("a topic alias that was not set before")),
            },
            Some(alias) if alias > self.most_aliases => {
                return Err(Error::Protocol("a topic alias above the broker's maximum"));
            }
            Some(alias) => {
                self.aliases.insert(alias, publish.topic.into());
                publish.topic
            }
            None => publish.topic,
        };
        let sure = publish.qos != Qos::AtMostOnce;
        let is_timed = has_trailer(publish.payload) && site.residence.is_timed(topic);
        let goes_on = sure && site.node.goes_on(topic, publish.retain);
        if goes_on && (!site.node.has_room() || self.unanswered_octets > HIGH) {
            return Ok(Next::Wait);
        }
        let came = is_timed.then_some(site.came).flatten();
        let arrived = residence::arrived(publish.payload, came, publish.retain || publish.dup);
        if is_timed {
            site.residence.note(publish.payload, arrived);
        }
        let came_before =
            publish.qos == Qos::ExactlyOnce && !site.sessions.receive(&self.client, publish.id);
        let name = self.client.strip_prefix('\0').map_or(&*self.client, |_| "");
        let stays = is_echo(topic, publish.payload);
        if came_before {
            return Ok(Next::Relay);
        }
        if stays || !site.allows(&self.user, name, topic) {
            if publish.retain {
                site.node.retained.stays(topic, publish.payload);
            }
            return Ok(Next::Relay);
        }
        let is_kept = publish.retain && !topic.starts_with('$'); // for sites that join later
        // Stamped in the order in which the broker gets them, whenever it answers.
        let (stamp, before) = match is_kept {
            true => (site.node.retained).published(topic, publish.payload, now_us()),
            false => (0, None),
        };
        let came_s = site.now_s;
        let times = &site.residence;
        let make = || {
            let mut forwarded = Vec::new();
            publish.properties.forwarded(&mut forwarded);
            let mut message = Message {
                topic: topic.into(),
                payload: publish.payload.into(),
                qos: publish.qos,
                retain: publish.retain,
                expiry: publish.properties.message_expiry(),
                came_s,
                forwarded,
                user: self.user.clone(),
                client: name.into(),
                arrived: None,
                stamp,
                handed: false,
                is_denied: false,
            };
            residence::set_aside(&mut message, times, arrived);
            message
        };
        if goes_on || (sure && is_kept) {
            let message = make();
            self.unanswered_octets += octets(&message);
            self.last_number += 1;
            let one = Unanswered {
                number: self.last_number,
                message,
                before,
            };
            if let Some(before) = self.unanswered.insert(publish.id, one) {
                self.unanswered_octets -= octets(&before.message);
            }
        } else if !sure {
            let client = &self.client;
            site.node
                .publish(topic, publish.qos, publish.retain, client, make);
        }
        Ok(Next::Relay)
    }

    /// The broker has answered a message above QoS 0. It goes to other sites now, unless the broker
    /// refused it. Returns its key if other sites have to confirm it.
    pub(super) fn answered(&mut self, id: u16, is_taken: bool, site: &mut Site) -> Option<Key> {
        let one = self.unanswered.remove(&id)?;
        let message = one.message;
        self.unanswered_octets -= octets(&message);
        if message.retain && !is_taken {
            let retained = &mut site.node.retained;
            retained.refused(&message.topic, message.stamp, one.before);
            // A later message that replaced it may be refused, too: then the one before is back.
            for later in self.unanswered.values_mut() {
                let is_next = |before: &Entry| before.has(message.stamp);
                if later.message.topic == message.topic
                    && later.before.as_ref().is_some_and(is_next)
                {
                    later.before = one.before;
                }
            }
        }
        let (topic, client) = (message.topic.clone(), Arc::clone(&self.client));
        let (qos, retain) = (message.qos, message.retain);
        let publish = || site.node.publish(&topic, qos, retain, &client, || message);
        is_taken.then(publish).flatten()
    }
}

/// The computer's clock, to stamp retained messages.
fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// The topic of a message of QoS 0 that is not retained and has no properties. Nothing more has to be
/// read of it if no other site wants it. None for any other packet, or for a malformed one.
pub(super) fn plain_topic<'a>(frame: &Frame<'a>, version: Version) -> Option<&'a str> {
    const PLAIN: u8 = 0x30;
    let (length, rest) = frame.body.split_first_chunk()?;
    let (topic, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let has_none = version == Version::V3 || rest.first() == Some(&0);
    let topic = std::str::from_utf8(topic).ok()?;
    (frame.first == PLAIN && has_none && mqtick_topics::valid_topic(topic)).then_some(topic)
}

/// About how much memory a message takes.
fn octets(message: &Message) -> usize {
    size_of::<Message>() + message.topic.len() + message.payload.len() + message.forwarded.len()
}

/// Whether it is an echo message of a time server (docs/protocol.md, 4.5 and 4.8), on
/// `P/f/SERVER/CLIENT`. It says between which instants the server's own broker delivered the reply. At
/// another site the reply came later, so a client there would be wrong by the time between the sites.
/// Without the echo it treats the exchange as two-way.
pub(crate) fn is_echo(topic: &str, payload: &[u8]) -> bool {
    // Kind 8; kind 5 until mqtick's time servers stated what their rate changes.
    let is_layout = matches!(
        (payload.first(), payload.len()),
        (Some(0x15 | 0x18), 32) | (Some(0x25 | 0x28), 53)
    );
    if !is_layout {
        return false;
    }
    let mut levels = topic.rsplit('/').skip(1);
    let is_number = levels.next().is_some_and(|one| one.parse::<u8>().is_ok());
    is_number && levels.next() == Some("f")
}

/// Publish a will at the other sites. At this site the broker does it.
pub fn publish_will(site: &mut Site, message: Message) {
    let mut message = message;
    residence::set_aside(&mut message, &site.residence, None);
    message.came_s = site.now_s;
    if message.retain && !message.topic.starts_with('$') {
        let retained = &mut site.node.retained;
        (message.stamp, _) = retained.published(&message.topic, &message.payload, now_us());
    }
    let (topic, client) = (message.topic.clone(), message.client.clone());
    let (qos, retain) = (message.qos, message.retain);
    site.node.publish(&topic, qos, retain, &client, || message);
}
