//! Encodes packets, and appends them to a buffer.
//!
//! A packet above `MAXIMUM_LENGTH`, or a PUBLISH with a topic above 65,535 octets, cannot be sent
//! and is not written. Any other string or binary value is cut at 65,535 octets.

use crate::property::Property;
use crate::read::MAXIMUM_VARIABLE;
use crate::types::{AckKind, Qos, Version};
use crate::write;

/// The octets of a variable byte integer.
#[inline]
fn variable_length(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Appends a fixed header and a body.
fn packet(out: &mut Vec<u8>, first: u8, body: &[u8]) {
    if body.len() <= MAXIMUM_VARIABLE as usize {
        out.push(first);
        write::variable(out, body.len() as u32);
        out.extend_from_slice(body);
    }
}

/// Appends properties after their length; nothing in 3.1.1.
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
    /// Its QoS.
    pub qos: Qos,
    /// The retain flag.
    pub retain: bool,
    /// Its topic name; empty only with an alias, in MQTT 5.
    pub topic: &'a str,
    /// The packet identifier; not written at QoS 0.
    pub id: u16,
    /// The message expiry interval in seconds. Like the following fields except the payload, it is
    /// only sent in MQTT 5.
    pub expiry: Option<u32>,
    /// The topic alias.
    pub alias: Option<u16>,
    /// The identifiers of the subscriptions that matched.
    pub subscription_ids: &'a [u32],
    /// The properties from `Properties::forwarded`.
    pub forwarded: &'a [u8],
    /// Its payload.
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

    /// The octets after the fixed header, and those of the properties without their length.
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

/// The octets of the whole PUBLISH. If there are more than `MAXIMUM_LENGTH`, it cannot be sent.
#[inline]
#[must_use]
pub fn publish_length(version: Version, message: &Outgoing<'_>) -> usize {
    let (length, _) = message.lengths(version);
    1 + variable_length(length) + length
}

/// Appends a PUBLISH. Returns the offset of its packet identifier from its first octet, so that one
/// encoding can be used for many copies.
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

/// The properties of a CONNACK. `None` is not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnackProperties<'a> {
    /// The session expiry interval in seconds, if it is not what the client asked for.
    pub session_expiry: Option<u32>,
    /// How many QoS 1 and 2 messages the server accepts at once; not 0.
    pub receive_maximum: Option<u16>,
    /// The highest QoS that the server accepts; `ExactlyOnce` is not sent, as it is the default.
    pub maximum_qos: Option<Qos>,
    /// Whether the server retains messages.
    pub retain_available: Option<bool>,
    /// The octets of the longest packet that the server accepts; not 0.
    pub maximum_packet_size: Option<u32>,
    /// The client identifier that the server has chosen.
    pub assigned_client_id: Option<&'a str>,
    /// The highest topic alias that the server accepts.
    pub topic_alias_maximum: Option<u16>,
    /// A reason in words.
    pub reason_string: Option<&'a str>,
    /// Whether the server accepts filters with wildcards.
    pub wildcard_available: Option<bool>,
    /// Whether the server accepts subscription identifiers.
    pub subscription_ids_available: Option<bool>,
    /// Whether the server accepts shared subscriptions.
    pub shared_available: Option<bool>,
    /// The server's keep-alive in seconds, which replaces the client's.
    pub server_keep_alive: Option<u16>,
    /// The prefix of response topics.
    pub response_information: Option<&'a str>,
    /// Another server to use.
    pub server_reference: Option<&'a str>,
    /// The method of enhanced authentication.
    pub authentication_method: Option<&'a str>,
    /// The data of that method.
    pub authentication_data: Option<&'a [u8]>,
}

/// Appends a CONNACK. `reason` is a code of MQTT 5; in 3.1.1 the nearest return code is sent.
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

/// Appends PUBACK, PUBREC, PUBREL or PUBCOMP; in the short form if `reason` is 0.
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

/// The contents of a CONNECT. By default, the server chooses the client identifier and an earlier
/// session is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectOut<'a> {
    /// Whether an earlier session is to be forgotten.
    pub clean_start: bool,
    /// The keep-alive: the most seconds between two packets of the client; 0 is no limit.
    pub keep_alive: u16,
    /// The client identifier.
    pub client_id: &'a str,
    /// The will.
    pub will: Option<WillOut<'a>>,
    /// The user name.
    pub username: Option<&'a str>,
    /// The password; in 3.1.1 only with a user name.
    pub password: Option<&'a [u8]>,
    /// Only sent in MQTT 5.
    pub properties: &'a [Property<'a>],
}

/// The message to publish when the client is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WillOut<'a> {
    /// Its QoS.
    pub qos: Qos,
    /// Whether it is to be retained.
    pub retain: bool,
    /// Its topic name, not empty.
    pub topic: &'a str,
    /// Its payload.
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

/// Appends a SUBSCRIBE: topic filters, each with the highest QoS that is wanted.
pub fn subscribe(out: &mut Vec<u8>, version: Version, id: u16, filters: &[(&str, Qos)]) {
    subscribe_as(out, version, id, None, filters);
}

/// Appends a SUBSCRIBE with a subscription identifier, which is not 0 and not sent in 3.1.1.
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
