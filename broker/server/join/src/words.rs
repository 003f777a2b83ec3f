//! What nodes say to each other, in MQTT 5.
//!
//! | word | packet |
//! |---|---|
//! | hello | CONNECT with the client identifier `mqtick-join/VERSION/NODE/KEY/INDEX/COUNT/ALGORITHM/NAME`; the answer's assigned client identifier is `mqtick-join/VERSION/NODE/NAME` |
//! | links of a node | PUBLISH of QoS 0 to `$mqtick-join/topology`, see [`State::text`] |
//! | what has your site retained? | SUBSCRIBE to `$mqtick-join/retained`, on each connection |
//! | what is wanted, or no longer | SUBSCRIBE, UNSUBSCRIBE, answered as always |
//! | a message of QoS 0 | PUBLISH of QoS 0 |
//! | one above | PUBLISH of QoS 1; PUBACK once all who want it have it, or with 0x80 if they have not |
//!
//! A message's first user property is `mqtick-join` and `NODE LANE NUMBER FLAGS`, in hexadecimal:
//! flags are the QoS that it was published with, 4 where it was kept before the link was there, and 8
//! for each time that it was sent before. A fifth number is the stamp of one that is to be kept; of a time message
//! it is how long that was in nodes, in 2^-16 ns (broker/spec/residence.md), where all that it has come
//! through state that. The second property is the user and the client who published it.

use crate::node::{Key, LANES, Message};
use crate::topology::{LinkKey, NodeId, State, valid_name};
use mqtick_packet::{
    ConnackProperties, ConnectOut, Outgoing, Property, Publish, Qos, Version, connack, connect,
    publish,
};
use std::fmt;

/// Where links of nodes are told.
pub const TOPOLOGY: &str = "$mqtick-join/topology";
/// What to subscribe to for what was retained before.
pub const RETAINED: &str = "$mqtick-join/retained";
/// How a neighbour's client identifier begins.
pub const MARK: &str = "mqtick-join/";
/// The version of all this.
pub const VERSION: u32 = 4;
/// The most connections of one link.
pub const MOST_CONNECTIONS: u8 = 16;
const CONNECTS: &str = "that connects";
const IS_REACHED: &str = "that it connects to";
const TAG: &str = "mqtick-join";
const KEPT: u64 = 4;
const ATTEMPT: u64 = 8;

/// How a node introduces itself on one connection of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who.
    pub node: NodeId,
    /// Which link, chosen by who connects.
    pub key: LinkKey,
    /// Which connection of it, from 0.
    pub index: u8,
    /// Of how many.
    pub count: u8,
    /// The name of its algorithm.
    pub algorithm: String,
    /// What people call it.
    pub name: String,
}

impl fmt::Display for Hello {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{MARK}{VERSION}/{:x}/{:x}/{}/{}/{}/{}",
            self.node, self.key, self.index, self.count, self.algorithm, self.name
        )
    }
}

/// The version that the other node speaks, which is `there` as seen from this one, `here`. The
/// sentence is read at both ends.
fn version<'t>(
    words: &mut impl Iterator<Item = &'t str>,
    there: &str,
    here: &str,
) -> Result<(), String> {
    let found = words.next().unwrap_or_default();
    let said: String = found.chars().filter(char::is_ascii_digit).take(9).collect();
    match found == VERSION.to_string() {
        true => Ok(()),
        false => Err(format!(
            "the node {there} speaks version {said:?} of mqtick-join's words, and the one {here} \
             version {VERSION}: bring both to the same release"
        )),
    }
}

impl Hello {
    /// Read the client identifier of a CONNECT that begins with [`MARK`].
    ///
    /// # Errors
    /// Why it is none of ours.
    pub fn parse(client_id: &str) -> Result<Self, String> {
        let mut words = client_id.strip_prefix(MARK).unwrap_or_default().split('/');
        version(&mut words, CONNECTS, IS_REACHED)?;
        let hello = (|| {
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let hello = Self {
                node: number(words.next()?)?,
                key: number(words.next()?)?,
                index: words.next()?.parse().ok()?,
                count: words.next()?.parse().ok()?,
                algorithm: words.next()?.to_owned(),
                name: words.next().filter(|name| valid_name(name))?.to_owned(),
            };
            let is_whole = words.next().is_none()
                && (1..=MOST_CONNECTIONS).contains(&hello.count)
                && hello.index < hello.count;
            is_whole.then_some(hello)
        })();
        hello.ok_or_else(|| "its greeting is malformed".into())
    }

    /// Append the CONNECT.
    ///
    /// `most`: octets of the longest packet that this node takes.
    pub fn encode(&self, out: &mut Vec<u8>, keep_alive: u16, most: u32, secret: Option<&[u8]>) {
        let with = ConnectOut {
            properties: &[Property::MaximumPacketSize(most)],
            clean_start: true,
            keep_alive,
            client_id: &self.to_string(),
            username: secret.map(|_| TAG),
            password: secret,
            ..ConnectOut::default()
        };
        connect(out, Version::V5, &with);
    }
}

/// Append the answer to a hello: who we are, and octets of the longest packet that we take.
pub fn welcome(out: &mut Vec<u8>, node: NodeId, name: &str, most: u32) {
    let who = format!("{MARK}{VERSION}/{node:x}/{name}");
    let with = ConnackProperties {
        assigned_client_id: Some(&who),
        maximum_packet_size: Some(most),
        ..ConnackProperties::default()
    };
    connack(out, Version::V5, false, 0, &with);
}

/// Append a refusal.
pub fn refuse(out: &mut Vec<u8>, reason: u8, why: &str) {
    let with = ConnackProperties {
        reason_string: Some(why),
        ..ConnackProperties::default()
    };
    connack(out, Version::V5, false, reason, &with);
}

/// Read the assigned client identifier of an answer: who it is.
///
/// # Errors
/// Why it is none of ours.
pub fn parse_welcome(assigned: Option<&str>) -> Result<(NodeId, String), String> {
    let Some(rest) = assigned.and_then(|assigned| assigned.strip_prefix(MARK)) else {
        return Err("it is no mqtick-join, but a broker: give its node's address instead".into());
    };
    let mut words = rest.split('/');
    version(&mut words, IS_REACHED, CONNECTS)?;
    let node = words
        .next()
        .and_then(|text| u64::from_str_radix(text, 16).ok());
    let name = words.next().filter(|name| valid_name(name));
    node.zip(name)
        .map(|(node, name)| (node, name.to_owned()))
        .ok_or_else(|| "its greeting is malformed".into())
}

/// Append which links a node has.
pub fn topology(out: &mut Vec<u8>, state: &State) {
    let text = state.text();
    let message = Outgoing {
        topic: TOPOLOGY,
        payload: text.as_bytes(),
        ..Outgoing::default()
    };
    publish(out, Version::V5, &message);
}

/// How a message goes to a neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passage {
    /// How often it was sent before.
    pub attempt: u32,
    /// Its packet identifier, above QoS 0.
    pub id: u16,
    /// Now, as in [`Message::came_s`].
    pub now_s: u64,
    /// How long it was in nodes, if that is stated: 2^-16 ns.
    pub stated: Option<u64>,
}

/// Append a message.
pub fn message(out: &mut Vec<u8>, key: Key, message: &Message, how: Passage) {
    let Passage {
        attempt,
        id,
        now_s,
        stated,
    } = how;
    let kept = if message.kept { KEPT } else { 0 };
    let flags = message.qos as u64 | kept | (u64::from(attempt) * ATTEMPT);
    let mut tag = format!(
        "{:x} {:x} {:x} {flags:x}",
        key.origin, key.lane, key.sequence
    );
    let fifth = match message.retain {
        true => Some(message.stamp),
        false => stated,
    };
    if let Some(fifth) = fifth {
        tag += &format!(" {fifth:x}");
    }
    let mut forwarded = Vec::with_capacity(96 + message.forwarded.len());
    Property::UserProperty((TAG, &tag)).encode(&mut forwarded);
    Property::UserProperty((&message.user, &message.client)).encode(&mut forwarded);
    forwarded.extend_from_slice(&message.forwarded);
    let outgoing = Outgoing {
        qos: message.qos.min(Qos::AtLeastOnce),
        retain: message.retain,
        topic: &message.topic,
        id,
        expiry: message.expiry_at(now_s),
        forwarded: &forwarded,
        payload: &message.payload,
        ..Outgoing::default()
    };
    publish(out, Version::V5, &outgoing);
}

/// A message from a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Which.
    pub key: Key,
    /// How often it was sent before.
    pub attempt: u32,
    /// How long it was in nodes so far, if that is stated: 2^-16 ns.
    pub stated: Option<u64>,
    /// What.
    pub message: Message,
}

/// Read a message.
///
/// # Errors
/// What is wrong with it.
pub fn parse_message(from: &Publish<'_>) -> Result<Passed, &'static str> {
    let mut message = Message {
        topic: from.topic.into(),
        payload: from.payload.into(),
        retain: from.retain,
        expiry: from.properties.message_expiry(),
        ..Message::default()
    };
    let mut key = None;
    let mut names = 0;
    for property in from.properties {
        match property {
            Property::UserProperty((name, tag)) if names == 0 => {
                names = 1;
                key = Some(tag).filter(|_| name == TAG).and_then(parse_tag);
            }
            Property::UserProperty((user, client)) if names == 1 => {
                names = 2;
                (message.user, message.client) = (user.into(), client.into());
            }
            Property::PayloadFormat(_)
            | Property::ContentType(_)
            | Property::ResponseTopic(_)
            | Property::CorrelationData(_)
            | Property::UserProperty(_) => property.encode(&mut message.forwarded),
            _ => {}
        }
    }
    let (key, flags, fifth) = key.ok_or("a message without a key")?;
    let attempt =
        u32::try_from(flags / ATTEMPT).map_err(|_| "a message that was sent too often")?;
    message.kept = flags & KEPT != 0;
    message.stamp = fifth.filter(|_| message.retain).unwrap_or(0);
    let stated = fifth.filter(|_| !message.retain);
    if message.retain && fifth.is_none() || message.kept && !message.retain {
        return Err("a message that is to be kept, or is not, other than its key says");
    }
    message.qos = Qos::try_from((flags & 3) as u8).map_err(|_| "a message with a QoS of 3")?;
    if (message.qos == Qos::AtMostOnce) != (from.qos == Qos::AtMostOnce) {
        return Err("a message with another QoS than its key says");
    }
    if names < 2 || !mqtick_topics::valid_topic(&message.topic) || message.topic.starts_with('$') {
        return Err("a message without a publisher, or with a topic that is not for others");
    }
    Ok(Passed {
        key,
        attempt,
        stated,
        message,
    })
}

fn parse_tag(tag: &str) -> Option<(Key, u64, Option<u64>)> {
    let mut words = tag.split(' ');
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let key = Key {
        origin: number()?,
        lane: u8::try_from(number()?).ok().filter(|lane| *lane < LANES)?,
        sequence: number()?,
    };
    let flags = number()?;
    let fifth = match words.next() {
        Some(word) => Some(u64::from_str_radix(word, 16).ok()?),
        None => None,
    };
    let is_whole = words.next().is_none() && key.sequence < u64::MAX / 2;
    is_whole.then_some((key, flags, fifth))
}

#[cfg(test)]
mod tests;
