//! Decodes frames into packets (3).

use crate::frame::Frame;
use crate::property::{self, Properties};
use crate::read::Reader;
use crate::types::{AckKind, Error, Qos, Version};

/// A packet of any type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the names of the standard")]
pub enum Packet<'a> {
    Connect(Connect<'a>),
    Connack(Connack<'a>),
    Publish(Publish<'a>),
    Ack(Ack<'a>),
    Subscribe(Subscribe<'a>),
    Suback(Suback<'a>),
    Unsubscribe(Unsubscribe<'a>),
    Unsuback(Unsuback<'a>),
    Pingreq,
    Pingresp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

/// A client's request to connect (3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The client's MQTT version.
    pub version: Version,
    /// The protocol level: 3 (MQTT 3.1, whose CONNACK says nothing of the session), 4 or 5.
    pub level: u8,
    /// Clean start: an earlier session is to be forgotten. In 3.1.1 (clean session) also this one,
    /// when the connection ends.
    pub clean_start: bool,
    /// The keep-alive: the most seconds between two packets of the client; 0 is no limit.
    pub keep_alive: u16,
    /// The client identifier; empty if the server is to choose one.
    pub client_id: &'a str,
    /// The will: the message to publish if the connection ends without DISCONNECT.
    pub will: Option<Will<'a>>,
    /// The user name.
    pub username: Option<&'a str>,
    /// The password. In 3.1.1 never without a user name ([MQTT-3.1.2-22] there).
    pub password: Option<&'a [u8]>,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
}

/// The message to publish for a client that is gone (3.1.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Will<'a> {
    /// Its QoS.
    pub qos: Qos,
    /// Whether it is to be retained.
    pub retain: bool,
    /// Its topic name, not empty.
    pub topic: &'a str,
    /// Its payload.
    pub payload: &'a [u8],
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
}

/// A server's answer to CONNECT (3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connack<'a> {
    /// Whether the server has resumed an earlier session.
    pub session_present: bool,
    /// The reason code of MQTT 5; a return code of 3.1.1 is translated to the equivalent one.
    pub reason: u8,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
}

/// A message (3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Whether it may have been sent before.
    pub dup: bool,
    /// Its QoS.
    pub qos: Qos,
    /// Whether it is to be retained, or is a retained message.
    pub retain: bool,
    /// Its topic name; empty only in MQTT 5, and then `properties` has a topic alias.
    pub topic: &'a str,
    /// The packet identifier; 0 at QoS 0, which has none.
    pub id: u16,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
    /// Its payload.
    pub payload: &'a [u8],
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Its type.
    pub kind: AckKind,
    /// The packet identifier of the message; not 0.
    pub id: u16,
    /// The reason code; 0 in 3.1.1.
    pub reason: u8,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
}

/// A client's subscriptions (3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// The packet identifier; not 0.
    pub id: u16,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
    filters: Reader<'a>,
}

impl<'a> Subscribe<'a> {
    /// Its subscriptions, at least one.
    #[must_use]
    pub fn filters(&self) -> Filters<'a> {
        Filters(self.filters)
    }
}

/// One subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter<'a> {
    /// The topic filter, which is UTF-8 and not empty. The places of wildcards are not checked.
    pub filter: &'a str,
    /// The highest QoS that the client wants.
    pub qos: Qos,
    /// Whether the client is not to get its own messages; false in 3.1.1.
    pub no_local: bool,
    /// Whether messages keep their retain flag; false in 3.1.1.
    pub retain_as_published: bool,
    /// When retained messages are sent: 0 always, 1 only to a new subscription, 2 never.
    pub retain_handling: u8,
}

/// Iterates over the subscriptions of a SUBSCRIBE.
#[derive(Clone, Debug)]
pub struct Filters<'a>(Reader<'a>);

impl<'a> Iterator for Filters<'a> {
    type Item = Filter<'a>;

    fn next(&mut self) -> Option<Filter<'a>> {
        if self.0.is_empty() {
            None
        } else {
            Filter::read(&mut self.0, Version::V5).ok()
        }
    }
}

impl<'a> Filter<'a> {
    fn read(from: &mut Reader<'a>, version: Version) -> Result<Self, Error> {
        let filter = topic_filter(from)?;
        let options = from.u8()?;
        let reserved = match version {
            Version::V3 => 0b1111_1100,
            Version::V5 => 0b1100_0000,
        };
        if options & reserved != 0 {
            return Err(Error::Malformed(
                "reserved bits of subscription options set",
            ));
        }
        let one = Self {
            filter,
            qos: Qos::try_from(options & 3)?,
            no_local: options & 4 != 0,
            retain_as_published: options & 8 != 0,
            retain_handling: options >> 4,
        };
        if one.retain_handling == 3 {
            return Err(Error::Protocol("retain handling 3"));
        }
        if one.no_local && filter.starts_with("$share/") {
            return Err(Error::Protocol("a shared subscription with no local")); // [MQTT-3.8.3-4]
        }
        Ok(one)
    }
}

fn topic_filter<'a>(from: &mut Reader<'a>) -> Result<&'a str, Error> {
    let filter = from.string()?;
    if filter.is_empty() {
        return Err(Error::Malformed("an empty topic filter")); // [MQTT-4.7.3-1]
    }
    Ok(filter)
}

/// A server's answer to SUBSCRIBE (3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suback<'a> {
    /// The packet identifier of the SUBSCRIBE; not 0.
    pub id: u16,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
    /// The reason code of each subscription; below 0x80 the granted QoS.
    pub codes: &'a [u8],
}

/// The end of a client's subscriptions (3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// The packet identifier; not 0.
    pub id: u16,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
    filters: Reader<'a>,
}

impl<'a> Unsubscribe<'a> {
    /// The topic filters, at least one; as in `Filter`.
    #[must_use]
    pub fn filters(&self) -> UnsubscribeFilters<'a> {
        UnsubscribeFilters(self.filters)
    }
}

/// Iterates over the topic filters of an UNSUBSCRIBE.
#[derive(Clone, Debug)]
pub struct UnsubscribeFilters<'a>(Reader<'a>);

impl<'a> Iterator for UnsubscribeFilters<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.0.is_empty() {
            None
        } else {
            topic_filter(&mut self.0).ok()
        }
    }
}

/// A server's answer to UNSUBSCRIBE (3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsuback<'a> {
    /// The packet identifier of the UNSUBSCRIBE; not 0.
    pub id: u16,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
    /// The reason code of each topic filter; none in 3.1.1.
    pub codes: &'a [u8],
}

/// The end of a connection (3.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// The reason code; 0 in 3.1.1.
    pub reason: u8,
    /// Empty in 3.1.1.
    pub properties: Properties<'a>,
}

/// A step of enhanced authentication (3.15); only in MQTT 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auth<'a> {
    /// The reason code.
    pub reason: u8,
    /// The authentication method and its data, among others.
    pub properties: Properties<'a>,
}

/// Decodes a packet. `version` is that of the connection; a CONNECT states its own.
///
/// # Errors
/// The standard of that version does not allow the packet: see `Error`.
#[inline]
pub fn decode<'a>(frame: &Frame<'a>, version: Version) -> Result<Packet<'a>, Error> {
    if frame.is_publish() {
        return decode_publish(frame, version).map(Packet::Publish);
    }
    other(frame, version)
}

fn other<'a>(frame: &Frame<'a>, version: Version) -> Result<Packet<'a>, Error> {
    let (kind, flags) = (frame.first >> 4, frame.first & 15);
    if flags != if matches!(kind, 6 | 8 | 10) { 2 } else { 0 } {
        return Err(Error::Malformed("reserved flags")); // [MQTT-2.1.3-1]
    }
    let mut from = Reader(frame.body);
    let packet = match kind {
        1 => Packet::Connect(connect(&mut from)?),
        2 => Packet::Connack(connack(&mut from, version)?),
        4 => Packet::Ack(ack(&mut from, version, AckKind::Puback)?),
        5 => Packet::Ack(ack(&mut from, version, AckKind::Pubrec)?),
        6 => Packet::Ack(ack(&mut from, version, AckKind::Pubrel)?),
        7 => Packet::Ack(ack(&mut from, version, AckKind::Pubcomp)?),
        8 => Packet::Subscribe(subscribe(&mut from, version)?),
        9 => Packet::Suback(suback(&mut from, version)?),
        10 => Packet::Unsubscribe(unsubscribe(&mut from, version)?),
        11 => Packet::Unsuback(unsuback(&mut from, version)?),
        12 => Packet::Pingreq,
        13 => Packet::Pingresp,
        14 => Packet::Disconnect(disconnect(&mut from, version)?),
        15 if version == Version::V5 => Packet::Auth(auth(&mut from)?),
        _ => return Err(Error::Malformed("a packet type that there is not")),
    };
    if !from.is_empty() {
        return Err(Error::Malformed("octets after its end"));
    }
    Ok(packet)
}

#[inline]
fn properties<'a>(
    from: &mut Reader<'a>,
    version: Version,
    place: u16,
) -> Result<Properties<'a>, Error> {
    match version {
        Version::V3 => Ok(Properties::default()),
        Version::V5 => Properties::read(from, place),
    }
}

/// Decodes a PUBLISH, for which `Frame::is_publish` has to be true: as `decode` does, but without
/// moving the result.
///
/// # Errors
/// As `decode`.
#[inline(always)] // or the result is moved all the same
pub fn decode_publish<'a>(frame: &Frame<'a>, version: Version) -> Result<Publish<'a>, Error> {
    let mut from = Reader(frame.body);
    let qos = Qos::try_from(frame.first >> 1 & 3)?;
    let dup = frame.first & 8 != 0;
    let topic = from.topic()?;
    let id = match qos {
        Qos::AtMostOnce if dup => return Err(Error::Malformed("DUP at QoS 0")), // [MQTT-3.3.1-2]
        Qos::AtMostOnce => 0,
        Qos::AtLeastOnce | Qos::ExactlyOnce => from.id()?,
    };
    let properties = properties(&mut from, version, property::PUBLISH)?;
    if topic.is_empty() && properties.topic_alias().is_none() {
        return Err(Error::Protocol("neither topic nor topic alias"));
    }
    let retain = frame.first & 1 != 0;
    Ok(Publish {
        dup,
        qos,
        retain,
        topic,
        id,
        properties,
        payload: from.rest(),
    })
}

fn connect<'a>(from: &mut Reader<'a>) -> Result<Connect<'a>, Error> {
    let name = from.binary()?;
    let level = from.u8()?;
    let version = match (name, level) {
        (b"MQTT", 5) => Version::V5,
        (b"MQTT", 4) | (b"MQIsdp", 3) => Version::V3,
        (b"MQTT" | b"MQIsdp", _) => return Err(Error::Version(level)),
        _ => return Err(Error::Malformed("a protocol name that is not MQTT")),
    };
    let flags = from.u8()?;
    if flags & 1 != 0 {
        return Err(Error::Malformed("the reserved flag of CONNECT")); // [MQTT-3.1.2-3]
    }
    let has = |bit: u8| flags & bit != 0;
    let qos = Qos::try_from(flags >> 3 & 3)?;
    if !has(0x04) && has(0x38) {
        return Err(Error::Malformed("will flags without a will")); // [MQTT-3.1.2-11], -13
    }
    if version == Version::V3 && has(0x40) && !has(0x80) {
        return Err(Error::Malformed("a password without a user name"));
    }
    let keep_alive = from.u16()?;
    let properties = properties(from, version, property::CONNECT)?;
    let client_id = from.string()?;
    let will = if has(0x04) {
        Some(will(from, version, qos, has(0x20))?)
    } else {
        None
    };
    let username = if has(0x80) {
        Some(from.string()?)
    } else {
        None
    };
    let password = if has(0x40) {
        Some(from.binary()?)
    } else {
        None
    };
    Ok(Connect {
        version,
        level,
        clean_start: has(0x02),
        keep_alive,
        client_id,
        will,
        username,
        password,
        properties,
    })
}

fn will<'a>(
    from: &mut Reader<'a>,
    version: Version,
    qos: Qos,
    retain: bool,
) -> Result<Will<'a>, Error> {
    let properties = properties(from, version, property::WILL)?;
    let topic = from.topic()?;
    if topic.is_empty() {
        return Err(Error::Malformed("an empty will topic")); // [MQTT-4.7.3-1]
    }
    Ok(Will {
        qos,
        retain,
        topic,
        payload: from.binary()?,
        properties,
    })
}

fn connack<'a>(from: &mut Reader<'a>, version: Version) -> Result<Connack<'a>, Error> {
    let session_present = match from.u8()? {
        0 => false,
        1 => true,
        _ => return Err(Error::Malformed("reserved flags of CONNACK")), // [MQTT-3.2.2-1]
    };
    let code = from.u8()?;
    let reason = match (version, code) {
        (Version::V5, _) => known(code, CONNACK_CODES)?,
        (Version::V3, 0) => 0,
        (Version::V3, 1) => 0x84,
        (Version::V3, 2) => 0x85,
        (Version::V3, 3) => 0x88,
        (Version::V3, 4) => 0x86,
        (Version::V3, 5) => 0x87,
        _ => return Err(UNKNOWN_CODE),
    };
    if session_present && reason != 0 {
        return Err(Error::Protocol("a session though not connected")); // [MQTT-3.2.2-6]
    }
    let properties = properties(from, version, property::CONNACK)?;
    Ok(Connack {
        session_present,
        reason,
        properties,
    })
}

const UNKNOWN_CODE: Error = Error::Protocol("a reason code that this packet does not have");
const CONNACK_CODES: &[u8] = &[
    0x00, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8C, 0x90, 0x95, 0x97,
    0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F,
];
const PUBACK_CODES: &[u8] = &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
const PUBREL_CODES: &[u8] = &[0x00, 0x92];
const SUBACK_CODES: &[u8] = &[
    0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2,
];
const UNSUBACK_CODES: &[u8] = &[0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91];
const DISCONNECT_CODES: &[u8] = &[
    0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95,
    0x96, 0x97, 0x98, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2,
];
const AUTH_CODES: &[u8] = &[0x00, 0x18, 0x19];

fn known(code: u8, codes: &[u8]) -> Result<u8, Error> {
    if codes.contains(&code) {
        Ok(code)
    } else {
        Err(UNKNOWN_CODE)
    }
}

/// Reads the reason codes up to the packet's end, at least one.
fn all_known<'a>(from: &mut Reader<'a>, codes: &[u8]) -> Result<&'a [u8], Error> {
    let found = from.rest();
    if found.is_empty() {
        return Err(Error::Malformed("no reason code"));
    }
    found
        .iter()
        .try_for_each(|code| known(*code, codes).map(|_| ()))?;
    Ok(found)
}

/// Reads a reason code and properties. The properties, or both, may be missing.
fn reason<'a>(
    from: &mut Reader<'a>,
    version: Version,
    codes: &[u8],
    place: u16,
) -> Result<(u8, Properties<'a>), Error> {
    if version == Version::V3 || from.is_empty() {
        return Ok((0, Properties::default()));
    }
    let code = known(from.u8()?, codes)?;
    if from.is_empty() {
        return Ok((code, Properties::default()));
    }
    Ok((code, Properties::read(from, place)?))
}

#[inline]
fn ack<'a>(from: &mut Reader<'a>, version: Version, kind: AckKind) -> Result<Ack<'a>, Error> {
    let id = from.id()?;
    let codes = match kind {
        AckKind::Puback | AckKind::Pubrec => PUBACK_CODES,
        AckKind::Pubrel | AckKind::Pubcomp => PUBREL_CODES,
    };
    let (reason, properties) = reason(from, version, codes, property::ACK)?;
    Ok(Ack {
        kind,
        id,
        reason,
        properties,
    })
}

fn subscribe<'a>(from: &mut Reader<'a>, version: Version) -> Result<Subscribe<'a>, Error> {
    let id = from.id()?;
    let properties = properties(from, version, property::SUBSCRIBE)?;
    let filters = Reader(from.rest());
    let mut rest = filters;
    if rest.is_empty() {
        return Err(Error::Protocol("SUBSCRIBE without a topic filter")); // [MQTT-3.8.3-2]
    }
    while !rest.is_empty() {
        Filter::read(&mut rest, version)?;
    }
    Ok(Subscribe {
        id,
        properties,
        filters,
    })
}

fn suback<'a>(from: &mut Reader<'a>, version: Version) -> Result<Suback<'a>, Error> {
    let id = from.id()?;
    let properties = properties(from, version, property::SUBACK)?;
    let codes = match version {
        Version::V3 => all_known(from, &[0x00, 0x01, 0x02, 0x80])?,
        Version::V5 => all_known(from, SUBACK_CODES)?,
    };
    Ok(Suback {
        id,
        properties,
        codes,
    })
}

fn unsubscribe<'a>(from: &mut Reader<'a>, version: Version) -> Result<Unsubscribe<'a>, Error> {
    let id = from.id()?;
    let properties = properties(from, version, property::UNSUBSCRIBE)?;
    let filters = Reader(from.rest());
    let mut rest = filters;
    if rest.is_empty() {
        return Err(Error::Protocol("UNSUBSCRIBE without a topic filter")); // [MQTT-3.10.3-2]
    }
    while !rest.is_empty() {
        topic_filter(&mut rest)?;
    }
    Ok(Unsubscribe {
        id,
        properties,
        filters,
    })
}

fn unsuback<'a>(from: &mut Reader<'a>, version: Version) -> Result<Unsuback<'a>, Error> {
    let id = from.id()?;
    let properties = properties(from, version, property::UNSUBACK)?;
    let codes = match version {
        Version::V3 => &[],
        Version::V5 => all_known(from, UNSUBACK_CODES)?,
    };
    Ok(Unsuback {
        id,
        properties,
        codes,
    })
}

fn disconnect<'a>(from: &mut Reader<'a>, version: Version) -> Result<Disconnect<'a>, Error> {
    let (reason, properties) = reason(from, version, DISCONNECT_CODES, property::DISCONNECT)?;
    Ok(Disconnect { reason, properties })
}

fn auth<'a>(from: &mut Reader<'a>) -> Result<Auth<'a>, Error> {
    let (reason, properties) = reason(from, Version::V5, AUTH_CODES, property::AUTH)?;
    let is_bare = reason == 0 && properties == Properties::default();
    if !is_bare && properties.authentication_method().is_none() {
        return Err(Error::Protocol("AUTH without a method")); // 3.15.2.2.2
    }
    Ok(Auth { reason, properties })
}
