//! Parses datagrams and rewrites copies for a data plane in user space
//! (`broker/spec/acceleration.md`, 2 to 5).

use mqtick_sn::{MARK, Message, Qos, publish_flags};

use crate::rules::{Name, Protocol, Topic};

/// The octets of the trailer of a time message.
pub const TRAILER: usize = 16;
const PROGRAM: u8 = 1; // a program took the timestamp of the departure
const MOST_NS: u64 = 100_000_000;
const DATAGRAM: usize = 1472; // octets of the longest datagram of mqtt-udp
const DUP: u8 = 8;
const QOS_3: u8 = 6;

/// Where a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It came from the side of the clients.
    ToBroker,
    /// It came from the side of the broker.
    FromBroker,
}

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// It cannot be read, and may be anything.
    Unread,
    /// It concerns no rule, and is not reported to the controller.
    Nothing,
    /// It is a PUBLISH.
    Publish(Publish),
    /// It may answer a PINGREQ of the controller in a client's name: PINGRESP of MQTT-SN.
    Answer,
    /// It is another packet, for the controller.
    Other {
        /// Whether it may change the receivers.
        raises: bool,
    },
}

/// A PUBLISH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish {
    /// Its topic.
    pub topic: Topic,
    /// Whether it may be copied.
    pub can_be: bool,
    /// Whether it is of QoS 1 or 2.
    pub acknowledged: bool,
    /// Whether it is of QoS -1: then it is no sign of life of a client that is connected there.
    pub unconnected: bool,
    /// The index of its payload.
    pub payload: usize,
}

impl Packet {
    /// Parse a datagram.
    #[must_use]
    pub fn read(protocol: Protocol, way: Way, datagram: &[u8]) -> Self {
        match protocol {
            Protocol::MqttSn => match mqtick_sn::decode(datagram) {
                Ok((message, None)) => of_sn(way, &message, datagram.len()),
                _ => Self::Unread,
            },
            Protocol::MqttUdp => of_udp(way, datagram),
        }
    }
}

/// Replaces a PUBLISH of MQTT-SN of which only the first fragment is known: the same with a shorter
/// payload. `None`: it may be another packet.
#[must_use]
pub fn begun_publish(beginning: &[u8]) -> Option<Vec<u8>> {
    const MOST: usize = 64; // more than precedes the payload
    let ([1, _, _, kind @ 0x0c, rest @ ..] | [_, kind @ 0x0c, rest @ ..]) = beginning else {
        return None;
    };
    let rest = rest.get(..rest.len().min(MOST))?;
    let message = [&[rest.len() as u8 + 2, *kind], rest].concat();
    let read = Packet::read(Protocol::MqttSn, Way::ToBroker, &message);
    matches!(read, Packet::Publish(_)).then_some(message)
}

fn of_sn(way: Way, message: &Message<'_>, length: usize) -> Packet {
    match message {
        Message::Publish {
            dup,
            qos,
            retain,
            topic,
            message_id,
            data,
        } => Packet::Publish(Publish {
            topic: (*topic).into(),
            can_be: *qos == Qos::AtMostOnce && !retain && !dup && *message_id == 0,
            acknowledged: matches!(qos, Qos::AtLeastOnce | Qos::ExactlyOnce),
            unconnected: *qos == Qos::Unconnected,
            payload: length - data.len(),
        }),
        Message::Pingresp if way == Way::FromBroker => Packet::Answer,
        message => Packet::Other {
            raises: changes_receivers(way, message),
        },
    }
}

fn changes_receivers(way: Way, message: &Message<'_>) -> bool {
    match (way, message) {
        (
            Way::ToBroker,
            Message::Connect { .. }
            | Message::Subscribe { .. }
            | Message::Unsubscribe { .. }
            | Message::Disconnect { .. },
        )
        | (
            Way::FromBroker,
            Message::Connack(_)
            | Message::Suback { .. }
            | Message::Regack { .. }
            | Message::Register { .. }
            | Message::Disconnect { .. },
        ) => true,
        (Way::ToBroker, Message::Pingreq { client }) => !client.is_empty(),
        _ => false,
    }
}

fn of_udp(way: Way, datagram: &[u8]) -> Packet {
    let (first, length, body) = match datagram {
        [first, length @ ..0x80, body @ ..] => (first, usize::from(*length), body),
        [first, low, high @ 1..0x80, body @ ..] => {
            let length = usize::from(*low & 0x7f) | usize::from(*high) << 7;
            (first, length, body)
        }
        _ => return Packet::Unread,
    };
    if body.len() != length || datagram.len() > DATAGRAM {
        return Packet::Unread;
    }
    match first >> 4 {
        3 => {
            let name = body.split_first_chunk().and_then(|(length, rest)| {
                let name = rest.get(..u16::from_be_bytes(*length).into())?;
                Some((Name::new(name)?, rest))
            });
            let Some((name, rest)) = name else {
                return Packet::Nothing;
            };
            // It concerns only one client and the broker.
            if name.octets().starts_with(b"$") {
                return Packet::Nothing;
            }
            Packet::Publish(Publish {
                topic: Topic::Name(name),
                can_be: first & 15 == 0,
                acknowledged: matches!(first >> 1 & 3, 1 | 2),
                unconnected: false,
                payload: datagram.len() - (rest.len() - name.octets().len()),
            })
        }
        4..=7 => Packet::Nothing,
        // The broker answers no DISCONNECT, and announces all other changes itself.
        _ => Packet::Other {
            raises: *first == 0xe0 && way == Way::ToBroker,
        },
    }
}

/// Whether it is a PUBLISH of QoS -1: then it is no sign of life of a client that is connected
/// there.
#[must_use]
pub fn is_unconnected(message: Option<&Message<'_>>) -> bool {
    let unconnected = Qos::Unconnected;
    matches!(message, Some(Message::Publish { qos, .. }) if *qos == unconnected)
}

/// Remove a mark from a client's message: only data planes may mark messages.
pub fn unmark(protocol: Protocol, datagram: &mut [u8]) {
    match (protocol, datagram.first_mut()) {
        (Protocol::MqttSn, _) => {
            if let Some(flags) = publish_flags(datagram).and_then(|at| datagram.get_mut(at)) {
                *flags &= !MARK;
            }
        }
        // A broker refuses QoS 3, as it refuses DUP with QoS 0.
        (Protocol::MqttUdp, Some(first)) if *first >> 4 == 3 && *first & DUP != 0 => {
            *first |= QOS_3;
        }
        (Protocol::MqttUdp, _) => {}
    }
}

/// Mark a message that was copied, for the broker.
pub fn mark(protocol: Protocol, datagram: &mut [u8]) {
    let (at, bit) = match protocol {
        Protocol::MqttSn => (publish_flags(datagram), MARK),
        Protocol::MqttUdp => (Some(0), DUP),
    };
    if let Some(flags) = at.and_then(|at| datagram.get_mut(at)) {
        *flags |= bit;
    }
}

/// Write the subscriber's topic kind and id into a PUBLISH of MQTT-SN, or into its first octets. If
/// it is too short, nothing is changed.
pub fn rewrite(datagram: &mut [u8], topic: Topic) {
    let (kind, id) = match topic {
        Topic::Registered(id) => (0, id.to_be_bytes()),
        Topic::Predefined(id) => (1, id.to_be_bytes()),
        Topic::Short(name) => (2, name),
        Topic::Name(_) => return,
    };
    let start = if datagram.first() == Some(&1) { 4 } else { 2 };
    if let Some([flags, high, low]) = datagram.get_mut(start..start + 3) {
        *flags = *flags & !3 | kind;
        [*high, *low] = id;
    }
}

/// The trailer of a time message; `None` if it has none.
#[must_use]
pub fn trailer(datagram: &[u8], payload: usize) -> Option<[u8; TRAILER]> {
    let payload = datagram.get(payload..)?;
    let is_due = (17..=64).contains(&payload.len()) && payload.first()? >> 4 == 2;
    payload.last_chunk().copied().filter(|_| is_due)
}

/// The trailer of a copy that leaves at `now_ns`, of a message that came at `came_ns` with this
/// one.
#[must_use]
pub fn stated(trailer: [u8; TRAILER], came_ns: Option<u64>, now_ns: u64) -> [u8; TRAILER] {
    const NOT_STATED: [u8; TRAILER] = [0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];
    let [before @ .., _, _, _, _, _, _, _, source] = trailer;
    let before = before.first_chunk().copied().unwrap_or_default();
    let source = match source {
        _ if trailer == [0; TRAILER] => PROGRAM,
        1..=3 => PROGRAM.min(source),
        _ => return NOT_STATED,
    };
    let spent_ns = came_ns.and_then(|came_ns| now_ns.checked_sub(came_ns));
    let spent_ns = spent_ns.filter(|spent_ns| *spent_ns < MOST_NS);
    // Allow for a slew that is too small to be noticed.
    let spent_ns = spent_ns.map(|spent_ns| spent_ns - spent_ns / 512);
    let total =
        spent_ns.and_then(|spent_ns| u64::from_be_bytes(before).checked_add(spent_ns << 16));
    let mut stated = NOT_STATED;
    if let (Some(total), [residence @ .., last]) = (total, &mut stated) {
        *last = source;
        if let Some(residence) = residence.first_chunk_mut() {
            *residence = total.to_be_bytes();
        }
    }
    stated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(first: u8, name: &[u8]) -> Vec<u8> {
        let mut datagram = vec![first, name.len() as u8 + 3, 0, name.len() as u8];
        datagram.extend(name);
        datagram.push(b'!');
        datagram
    }

    #[test]
    fn a_client_cannot_say_what_only_a_data_plane_may() {
        for first in [0x38, 0x39, 0x3a, 0x3e] {
            let mut datagram = publish(first, b"a/b");
            unmark(Protocol::MqttUdp, &mut datagram);
            assert_eq!(
                datagram[0] & QOS_3,
                QOS_3,
                "{first:02x}: no broker takes it"
            );
        }
        for first in [0x30, 0x31, 0x32, 0xc0, 0x88] {
            let mut datagram = publish(first, b"a/b");
            unmark(Protocol::MqttUdp, &mut datagram);
            assert_eq!(datagram[0], first);
        }
        unmark(Protocol::MqttUdp, &mut []);
    }

    #[test]
    fn the_beginning_of_a_publish_stands_for_it_and_nothing_else_does() {
        let sn = [1, 4, 0, 0x0c, 0x40, 0, 7, 0, 9, b'x', b'y'];
        let short = [11, 0x0c, 0x40, 0, 7, 0, 9, b'x', b'y'];
        assert_eq!(
            begun_publish(&sn).as_deref(),
            Some(&[9, 0x0c, 0x40, 0, 7, 0, 9, b'x', b'y'][..])
        );
        assert!(begun_publish(&short).is_some());
        for other in [
            &[1, 4, 0, 0x12, 0, 0, 7, b'x'][..],
            &[1, 4, 0, 0x0c, 0x40, 0, 7, 0],
            &[],
        ] {
            assert_eq!(begun_publish(other), None, "{other:x?}");
        }
    }

    #[test]
    fn no_beginning_of_a_datagram_is_taken_for_the_whole() {
        let whole = publish(0x30, b"a/b");
        for end in 0..whole.len() {
            let read = Packet::read(Protocol::MqttUdp, Way::ToBroker, &whole[..end]);
            assert_eq!(read, Packet::Unread);
        }
        for (first, length) in [(0x30, 0), (0x30, 65)] {
            let read = Packet::read(
                Protocol::MqttUdp,
                Way::ToBroker,
                &publish(first, &vec![b'x'; length]),
            );
            assert_eq!(read, Packet::Nothing, "no rule has such a name");
        }
        let lies = [0x30, 4, 0, 9, b'a', b'b'];
        let read = Packet::read(Protocol::MqttUdp, Way::ToBroker, &lies);
        assert_eq!(read, Packet::Nothing, "its name is not there");
    }
}
