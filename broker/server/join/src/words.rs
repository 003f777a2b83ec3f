//! What nodes say to each other, in MQTT 5.
//!
//! | word | packet |
//! |---|---|
//! | greeting | CONNECT with the client identifier `mqtick-join/VERSION/NODE/KEY/INDEX/COUNT/ALGORITHM/NAME`; the answer's assigned client identifier is `mqtick-join/VERSION/NODE/NAME` |
//! | link state of a node | PUBLISH with QoS 0 to `$mqtick-join/topology`, see [`State::text`] |
//! | request for the site's retained messages | SUBSCRIBE to `$mqtick-join/retained`, on each connection |
//! | start or end of a subscription | SUBSCRIBE, UNSUBSCRIBE, answered as usual |
//! | message of QoS 0 | PUBLISH with QoS 0 |
//! | message of QoS 1 or 2 | PUBLISH with QoS 1; PUBACK once every site that wants it has it, or with 0x80 if that failed |
//!
//! A message's first user property has the name `mqtick-join` and the value `NODE LANE NUMBER FLAGS`,
//! in hexadecimal. FLAGS is the QoS that it was published with, plus 4 if it was retained before the
//! link came up, plus 8 for each earlier attempt. A fifth number is the stamp of a retained message. For
//! a time message it is the time that the message has spent in nodes, in 2^-16 ns
//! (broker/spec/residence.md), if every node on the way states that. The second user property is the
//! user and the client who published the message.

use crate::message::{Key, LANES, Message};
use crate::topology::{LinkKey, NodeId, State, valid_name};
use mqtick_packet::{
    ConnackProperties, ConnectOut, Outgoing, Property, Publish, Qos, Version, connack, connect,
    publish,
};
use std::fmt;

/// The topic of link states.
pub const TOPOLOGY: &str = "$mqtick-join/topology";
/// Subscribing to this topic asks for retained messages.
pub const RETAINED: &str = "$mqtick-join/retained";
/// How a neighbour's client identifier begins.
pub const MARK: &str = "mqtick-join/";
/// The version of this protocol.
pub const VERSION: u32 = 4;
/// The most connections of one link.
pub const MOST_CONNECTIONS: u8 = 16;
const CONNECTS: &str = "that connects";
const IS_REACHED: &str = "that it connects to";
/// The name of the user property of a message.
const TAG: &str = "mqtick-join";
const HANDED: u64 = 4;
const ATTEMPT: u64 = 8;
const MALFORMED: &str = "its greeting is malformed";

/// How a node introduces itself on one connection of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node that connects.
    pub node: NodeId,
    /// The link; the node that connects chooses it.
    pub key: LinkKey,
    /// The number of this connection, from 0.
    pub index: u8,
    /// How many connections the link has.
    pub count: u8,
    /// The name of its algorithm.
    pub algorithm: String,
    /// The name of the node.
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

/// Check that the other node speaks this version. `there` and `here` describe the other node and this
/// one: the error is read at both ends.
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
            "the node {there} speaks version {said:?} of mqtick-join's protocol, and the node {here} \
             speaks version {VERSION}: install the same release at both"
        )),
    }
}

impl Hello {
    /// Read the client identifier of a CONNECT that begins with [`MARK`].
    ///
    /// # Errors
    /// What is wrong with it.
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
        hello.ok_or_else(|| MALFORMED.into())
    }

    /// Append the CONNECT. `most`: octets of the longest packet that this node takes.
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

/// Append the answer to a greeting. `most`: octets of the longest packet that this node takes.
pub fn welcome(out: &mut Vec<u8>, node: NodeId, name: &str, most: u32) {
    let who = format!("{MARK}{VERSION}/{node:x}/{name}");
    let with = ConnackProperties {
        assigned_client_id: Some(&who),
        maximum_packet_size: Some(most),
        ..ConnackProperties::default()
    };
    connack(out, Version::V5, false, 0, &with);
}

/// Append a refusal, with its reason code and a sentence.
pub fn refuse(out: &mut Vec<u8>, reason: u8, why: &str) {
    let with = ConnackProperties {
        reason_string: Some(why),
        ..ConnackProperties::default()
    };
    connack(out, Version::V5, false, reason, &with);
}

/// Read the assigned client identifier of an answer. Returns which node it is, and its name.
///
/// # Errors
/// What is wrong with it.
pub fn parse_welcome(assigned: Option<&str>) -> Result<(NodeId, String), String> {
    let Some(rest) = assigned.and_then(|assigned| assigned.strip_prefix(MARK)) else {
        return Err(
            "it is a broker, not mqtick-join: use the address of the node before it".into(),
        );
    };
    let mut words = rest.split('/');
    version(&mut words, IS_REACHED, CONNECTS)?;
    let node = words.next();
    let node = node.and_then(|text| u64::from_str_radix(text, 16).ok());
    let name = words.next().filter(|name| valid_name(name));
    let both = node.zip(name.map(str::to_owned));
    both.ok_or_else(|| MALFORMED.into())
}

/// Append the link state of a node.
pub fn topology(out: &mut Vec<u8>, state: &State) {
    let text = state.text();
    let message = Outgoing {
        topic: TOPOLOGY,
        payload: text.as_bytes(),
        ..Outgoing::default()
    };
    publish(out, Version::V5, &message);
}

/// What goes beside a message to a neighbour.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passage {
    /// How many attempts there were before.
    pub attempt: u32,
    /// Its packet identifier, above QoS 0.
    pub id: u16,
    /// The present time, on the scale of [`Message::came_s`].
    pub now_s: u64,
    /// How long it has been in nodes, if that is stated: 2^-16 ns.
    pub stated: Option<u64>,
}

/// Append a message.
pub fn message(out: &mut Vec<u8>, key: Key, message: &Message, how: Passage) {
    let handed = if message.handed { HANDED } else { 0 };
    let flags = message.qos as u64 | handed | (u64::from(how.attempt) * ATTEMPT);
    let (origin, lane, sequence) = (key.origin, key.lane, key.sequence);
    let mut tag = format!("{origin:x} {lane:x} {sequence:x} {flags:x}");
    let fifth = message.retain.then_some(message.stamp);
    if let Some(fifth) = fifth.or(how.stated) {
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
        id: how.id,
        expiry: message.expiry_at(how.now_s),
        forwarded: &forwarded,
        payload: &message.payload,
        ..Outgoing::default()
    };
    publish(out, Version::V5, &outgoing);
}

/// A message from a neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Identifies the message.
    pub key: Key,
    /// How many attempts there were before.
    pub attempt: u32,
    /// How long it has been in nodes, if that is stated: 2^-16 ns.
    pub stated: Option<u64>,
    /// The message.
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
    let (key, flags, fifth) = key.ok_or("a message without a key, or with a malformed one")?;
    let attempt = u32::try_from(flags / ATTEMPT).map_err(|_| "a message with too many attempts")?;
    message.handed = flags & HANDED != 0;
    message.stamp = fifth.filter(|_| message.retain).unwrap_or(0);
    let stated = fifth.filter(|_| !message.retain);
    if message.retain && fifth.is_none() || message.handed && !message.retain {
        return Err("a message whose retain flag does not agree with its key");
    }
    message.qos = Qos::try_from((flags & 3) as u8).map_err(|_| "a message with a QoS of 3")?;
    if (message.qos == Qos::AtMostOnce) != (from.qos == Qos::AtMostOnce) {
        return Err("a message whose QoS does not agree with its key");
    }
    if names < 2 || !mqtick_topics::valid_topic(&message.topic) || message.topic.starts_with('$') {
        return Err("a message without a publisher, or with a topic that stays at its site");
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
    let fifth = words.next().map(|word| u64::from_str_radix(word, 16));
    let fifth = fifth.transpose().ok()?;
    let is_whole = words.next().is_none() && key.sequence < u64::MAX / 2;
    is_whole.then_some((key, flags, fifth))
}

#[cfg(test)]
mod tests;
