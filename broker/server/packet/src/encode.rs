//! Packets to octets, appended to a buffer.
//!
//! What MQTT cannot carry: a packet above `MAXIMUM_LENGTH`, or a PUBLISH with a topic above 65,535
//! octets, is not written at all; any other string or binary value is cut at 65,535 octets.

use crate::decode::AckKind;
use crate::property::Property;
use crate::read::MAXIMUM_VARIABLE;
use crate::{Qos, Version};

/// The data types of MQTT (1.5), one function each, called as those that read them.
pub(crate) mod write {
    pub(crate) fn u8(out: &mut Vec<u8>, value: u8) {
        out.push(value);
    }

    pub(crate) fn u16(out: &mut Vec<u8>, value: u16) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn u32(out: &mut Vec<u8>, value: u32) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(out: &mut Vec<u8>, value: bool) {
        out.push(u8::from(value));
    }

    #[inline]
    pub(crate) fn variable(out: &mut Vec<u8>, mut value: u32) {
        while value > 0x7F {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    pub(crate) fn binary(out: &mut Vec<u8>, value: &[u8]) {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        u16(out, length);
        out.extend_from_slice(value.get(..usize::from(length)).unwrap_or_default());
    }

    pub(crate) fn string(out: &mut Vec<u8>, value: &str) {
        let end = value.floor_char_boundary(usize::from(u16::MAX));
        binary(out, value.get(..end).unwrap_or_default().as_bytes());
    }

    pub(crate) fn topic(out: &mut Vec<u8>, value: &str) {
        string(out, value);
    }

    pub(crate) fn pair(out: &mut Vec<u8>, (name, value): (&str, &str)) {
        string(out, name);
        string(out, value);
    }
}

/// Octets of a variable byte integer.
#[inline]
fn variable_length(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Appends fixed header and body.
fn packet(out: &mut Vec<u8>, first: u8, body: &[u8]) {
    if body.len() <= MAXIMUM_VARIABLE as usize {
        out.push(first);
        write::variable(out, body.len() as u32);
        out.extend_from_slice(body);
    }
}

/// Appends properties with their length in front; nothing in 3.1.1.
fn properties<'a>(
    out: &mut Vec<u8>,
    version: Version,
    all: impl IntoIterator<Item = Property<'a>>,
) {
    if version == Version::V5 {
        let mut octets = Vec::new();
        all.into_iter()
            .for_each(|property| property.encode(&mut octets));
        write::variable(out, octets.len() as u32);
        out.extend_from_slice(&octets);
    }
}

/// A message to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Whether it was sent before; only above QoS 0.
    pub dup: bool,
    /// How surely it is to arrive.
    pub qos: Qos,
    /// The retain flag.
    pub retain: bool,
    /// A topic name; empty only with an alias, in MQTT 5.
    pub topic: &'a str,
    /// The packet identifier; not written at QoS 0.
    pub id: u16,
    /// Seconds for which it may still be delivered; only in MQTT 5, as all that follow but the last.
    pub expiry: Option<u32>,
    /// The topic alias.
    pub alias: Option<u16>,
    /// The identifiers of the subscriptions that matched.
    pub subscription_ids: &'a [u32],
    /// What `Properties::forwarded` gave.
    pub forwarded: &'a [u8],
    /// The message itself.
    pub payload: &'a [u8],
}

impl Outgoing<'_> {
    #[inline]
    fn properties_length(&self) -> usize {
        let ids = self.subscription_ids.iter();
        self.expiry.map_or(0, |_| 5)
            + self.alias.map_or(0, |_| 3)
            + ids
                .map(|id| 1 + variable_length(*id as usize))
                .sum::<usize>()
            + self.forwarded.len()
    }

    /// Octets after the fixed header, and octets of the properties without their length.
    #[inline]
    fn lengths(&self, version: Version) -> (usize, usize) {
        let id = if self.qos == Qos::AtMostOnce { 0 } else { 2 };
        let base = 2 + self.topic.len() + id + self.payload.len();
        match version {
            Version::V3 => (base, 0),
            Version::V5 => {
                let properties = self.properties_length();
                (base + variable_length(properties) + properties, properties)
            }
        }
    }
}

/// Octets of the whole PUBLISH. One longer than `MAXIMUM_LENGTH` cannot be sent.
#[inline]
#[must_use]
pub fn publish_length(version: Version, message: &Outgoing<'_>) -> usize {
    let (length, _) = message.lengths(version);
    1 + variable_length(length) + length
}

/// Appends a PUBLISH; gives the place of its packet identifier, counted from its first octet, so
/// that one encoding serves many copies.
///
/// A message that cannot be sent (above `MAXIMUM_LENGTH`, or a topic above 65,535 octets) leaves
/// `out` as it was.
#[inline]
pub fn publish(out: &mut Vec<u8>, version: Version, message: &Outgoing<'_>) -> Option<usize> {
    let (length, properties) = message.lengths(version);
    let topic_length = u16::try_from(message.topic.len()).ok()?;
    let remaining = u32::try_from(length)
        .ok()
        .filter(|length| *length <= MAXIMUM_VARIABLE)?;
    let header = 1 + variable_length(length);
    out.reserve(header + length);
    let flags = u8::from(message.dup) << 3 | (message.qos as u8) << 1 | u8::from(message.retain);
    out.push(0x30 | flags);
    write::variable(out, remaining);
    write::u16(out, topic_length);
    out.extend_from_slice(message.topic.as_bytes());
    let place = if message.qos == Qos::AtMostOnce {
        None
    } else {
        write::u16(out, message.id);
        Some(header + 2 + message.topic.len())
    };
    if version == Version::V5 {
        write::variable(out, properties as u32);
        if properties > 0 {
            message
                .expiry
                .map(Property::MessageExpiry)
                .iter()
                .for_each(|one| one.encode(out));
            message
                .alias
                .map(Property::TopicAlias)
                .iter()
                .for_each(|one| one.encode(out));
            let ids = message.subscription_ids.iter();
            ids.for_each(|id| Property::SubscriptionId(*id).encode(out));
            out.extend_from_slice(message.forwarded);
        }
    }
    out.extend_from_slice(message.payload);
    place
}

/// What a server tells a client with CONNACK; what is `None` is not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnackProperties<'a> {
    /// Seconds for which the session outlives its connection, where not as the client asked.
    pub session_expiry: Option<u32>,
    /// How many QoS 1 and 2 messages we take at once; not 0.
    pub receive_maximum: Option<u16>,
    /// The highest QoS that we take; `ExactlyOnce` is not sent, as it is the default.
    pub maximum_qos: Option<Qos>,
    /// Whether we retain messages.
    pub retain_available: Option<bool>,
    /// Octets of the longest packet that we take; not 0.
    pub maximum_packet_size: Option<u32>,
    /// The client identifier that we chose.
    pub assigned_client_id: Option<&'a str>,
    /// The highest topic alias that we take.
    pub topic_alias_maximum: Option<u16>,
    /// Why, for people.
    pub reason_string: Option<&'a str>,
    /// Whether we take filters with wildcards.
    pub wildcard_available: Option<bool>,
    /// Whether we take subscription identifiers.
    pub subscription_ids_available: Option<bool>,
    /// Whether we take shared subscriptions.
    pub shared_available: Option<bool>,
    /// Seconds of keep alive that we want instead of the client's.
    pub server_keep_alive: Option<u16>,
    /// What response topics are to begin with.
    pub response_information: Option<&'a str>,
    /// Another server to use.
    pub server_reference: Option<&'a str>,
    /// The method of enhanced authentication.
    pub authentication_method: Option<&'a str>,
    /// What that method says.
    pub authentication_data: Option<&'a [u8]>,
}

/// Appends a CONNACK. `reason` is that of MQTT 5; in 3.1.1 the nearest return code stands for it.
pub fn connack(
    out: &mut Vec<u8>,
    version: Version,
    session_present: bool,
    reason: u8,
    with: &ConnackProperties<'_>,
) {
    let code = match version {
        Version::V5 => reason,
        Version::V3 => return_code(reason),
    };
    let mut body = vec![u8::from(session_present && reason == 0), code];
    let qos = with.maximum_qos.filter(|qos| *qos < Qos::ExactlyOnce);
    let all = [
        with.session_expiry.map(Property::SessionExpiry),
        with.receive_maximum.map(Property::ReceiveMaximum),
        qos.map(|qos| Property::MaximumQos(qos as u8)),
        with.retain_available.map(Property::RetainAvailable),
        with.maximum_packet_size.map(Property::MaximumPacketSize),
        with.assigned_client_id.map(Property::AssignedClientId),
        with.topic_alias_maximum.map(Property::TopicAliasMaximum),
        with.reason_string.map(Property::ReasonString),
        with.wildcard_available.map(Property::WildcardAvailable),
        with.subscription_ids_available
            .map(Property::SubscriptionIdsAvailable),
        with.shared_available.map(Property::SharedAvailable),
        with.server_keep_alive.map(Property::ServerKeepAlive),
        with.response_information.map(Property::ResponseInformation),
        with.server_reference.map(Property::ServerReference),
        with.authentication_method
            .map(Property::AuthenticationMethod),
        with.authentication_data.map(Property::AuthenticationData),
    ];
    properties(&mut body, version, all.into_iter().flatten());
    packet(out, 0x20, &body);
}

/// The return code of 3.1.1 (3.2.2.3) that is nearest to a reason code.
fn return_code(reason: u8) -> u8 {
    match reason {
        0 => 0,
        0x84 => 1,
        0x85 => 2,
        0x86 => 4,
        0x87 | 0x8A | 0x8C => 5,
        _ => 3,
    }
}

/// Appends PUBACK, PUBREC, PUBREL or PUBCOMP; the short form where `reason` is 0.
#[inline]
pub fn ack(out: &mut Vec<u8>, version: Version, kind: AckKind, id: u16, reason: u8) {
    let first = (kind as u8) << 4 | if kind == AckKind::Pubrel { 2 } else { 0 };
    let [high, low] = id.to_be_bytes();
    if version == Version::V3 || reason == 0 {
        out.extend_from_slice(&[first, 2, high, low]);
    } else {
        out.extend_from_slice(&[first, 3, high, low, reason]);
    }
}

/// Appends a SUBACK, one code for each subscription. In 3.1.1 each failure is 0x80.
pub fn suback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[u8]) {
    let mut body = id.to_be_bytes().to_vec();
    properties(&mut body, version, []);
    match version {
        Version::V3 => body.extend(codes.iter().map(|code| *code.min(&0x80))),
        Version::V5 => body.extend_from_slice(codes),
    }
    packet(out, 0x90, &body);
}

/// Appends an UNSUBACK, one code for each topic filter. In 3.1.1 there are no codes.
pub fn unsuback(out: &mut Vec<u8>, version: Version, id: u16, codes: &[u8]) {
    let mut body = id.to_be_bytes().to_vec();
    if version == Version::V5 {
        properties(&mut body, version, []);
        body.extend_from_slice(codes);
    }
    packet(out, 0xB0, &body);
}

/// Appends a PINGREQ.
pub fn pingreq(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xC0, 0]);
}

/// Appends a PINGRESP.
pub fn pingresp(out: &mut Vec<u8>) {
    out.extend_from_slice(&[0xD0, 0]);
}

/// Appends a DISCONNECT. In 3.1.1 it has no reason, and only clients may send it.
pub fn disconnect(out: &mut Vec<u8>, version: Version, reason: u8) {
    if version == Version::V3 || reason == 0 {
        out.extend_from_slice(&[0xE0, 0]);
    } else {
        out.extend_from_slice(&[0xE0, 1, reason]);
    }
}

/// What a client tells a server with CONNECT. The default is a first packet of a client that lets
/// the server choose its identifier and keeps an earlier session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOut<'a> {
    /// Whether an earlier session is to be forgotten.
    pub clean_start: bool,
    /// Seconds between two packets of ours, at most; 0 is no limit.
    pub keep_alive: u16,
    /// Our name.
    pub client_id: &'a str,
    /// What to publish when we are gone.
    pub will: Option<WillOut<'a>>,
    /// Who we are.
    pub username: Option<&'a str>,
    /// How we prove that; in 3.1.1 only with a user name.
    pub password: Option<&'a [u8]>,
    /// Only sent in MQTT 5.
    pub properties: &'a [Property<'a>],
}

/// What to publish when we are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WillOut<'a> {
    /// With which QoS.
    pub qos: Qos,
    /// Whether as a retained message.
    pub retain: bool,
    /// Where: a topic name, not empty.
    pub topic: &'a str,
    /// What.
    pub payload: &'a [u8],
    /// Only sent in MQTT 5.
    pub properties: &'a [Property<'a>],
}

/// Appends a CONNECT.
pub fn connect(out: &mut Vec<u8>, version: Version, with: &ConnectOut<'_>) {
    let will = with.will.map_or(0, |will| {
        0x04 | (will.qos as u8) << 3 | if will.retain { 0x20 } else { 0 }
    });
    let flags = will
        | if with.clean_start { 0x02 } else { 0 }
        | if with.username.is_some() { 0x80 } else { 0 }
        | if with.password.is_some() { 0x40 } else { 0 };
    let level = match version {
        Version::V3 => 4,
        Version::V5 => 5,
    };
    let mut body = Vec::new();
    write::string(&mut body, "MQTT");
    body.extend_from_slice(&[level, flags]);
    write::u16(&mut body, with.keep_alive);
    properties(&mut body, version, with.properties.iter().copied());
    write::string(&mut body, with.client_id);
    if let Some(will) = with.will {
        properties(&mut body, version, will.properties.iter().copied());
        write::string(&mut body, will.topic);
        write::binary(&mut body, will.payload);
    }
    if let Some(username) = with.username {
        write::string(&mut body, username);
    }
    if let Some(password) = with.password {
        write::binary(&mut body, password);
    }
    packet(out, 0x10, &body);
}

/// Appends a SUBSCRIBE: topic filters and the highest QoS wanted of each.
pub fn subscribe(out: &mut Vec<u8>, version: Version, id: u16, filters: &[(&str, Qos)]) {
    subscribe_as(out, version, id, None, filters);
}

/// The same with a subscription identifier, which is not 0; it is not sent in 3.1.1.
pub fn subscribe_as(
    out: &mut Vec<u8>,
    version: Version,
    id: u16,
    identifier: Option<u32>,
    filters: &[(&str, Qos)],
) {
    let mut body = id.to_be_bytes().to_vec();
    properties(&mut body, version, identifier.map(Property::SubscriptionId));
    for (filter, qos) in filters {
        write::string(&mut body, filter);
        body.push(*qos as u8);
    }
    packet(out, 0x82, &body);
}

/// Appends an UNSUBSCRIBE.
pub fn unsubscribe(out: &mut Vec<u8>, version: Version, id: u16, filters: &[&str]) {
    let mut body = id.to_be_bytes().to_vec();
    properties(&mut body, version, []);
    filters
        .iter()
        .for_each(|filter| write::string(&mut body, filter));
    packet(out, 0xA2, &body);
}
