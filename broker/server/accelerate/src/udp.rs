//! The controller's parser of mqtt-udp (`broker/spec/mqtt-udp.md`).

use std::rc::Rc;

use crate::rules::Name;

/// The most filters in one packet.
const FILTERS: usize = 32;
const CLEAN: u8 = 2;
/// The controller's question: a CONNECT with an invalid protocol level. The broker answers with
/// CONNACK code 1 if the client has a lease, or with a challenge if not. It changes and renews
/// nothing.
pub const QUESTION: [u8; 14] = *b"\x10\x0c\0\x04MQTT\0\x02\0\0\0\0";

/// A packet of a client.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// CONNECT with this keep-alive.
    Connect(u16),
    /// A CONNECT that a broker refuses.
    BadConnect,
    /// SUBSCRIBE.
    Subscribe(u16, Vec<Rc<str>>),
    /// UNSUBSCRIBE.
    Unsubscribe(u16, Vec<Rc<str>>),
    /// PINGREQ.
    Ping,
    /// DISCONNECT.
    Disconnect,
    /// PUBLISH.
    Publish(Name),
    /// PUBLISH to $proof.
    Proof,
    /// PUBLISH to another topic that begins with `$`.
    Nothing,
}

/// A packet of the broker.
#[derive(Debug, PartialEq, Eq)]
pub enum Answered {
    /// CONNACK with this code.
    Connack(u8),
    /// SUBACK, and whether each filter was granted.
    Suback(u16, Vec<bool>),
    /// UNSUBACK.
    Unsuback(u16),
    /// PINGRESP.
    Pingresp,
    /// PUBLISH to $proof.
    Challenge,
    /// Any other packet.
    Nothing,
}

/// Parse a client's packet; `None`: a broker refuses it.
#[must_use]
pub fn asked(datagram: &[u8]) -> Option<Asked> {
    let (first, mut rest) = split(datagram)?;
    let asked = match first {
        0x10 => {
            if string(&mut rest)? != b"MQTT" || octet(&mut rest)? != 4 {
                return Some(Asked::BadConnect);
            }
            if octet(&mut rest)? & !CLEAN != 0 {
                return Some(Asked::BadConnect);
            }
            let keep_alive_s = pair(&mut rest)?;
            string(&mut rest)?;
            Asked::Connect(keep_alive_s)
        }
        0x82 | 0xa2 => {
            let is_new = first == 0x82;
            let id = pair(&mut rest).filter(|id| *id != 0)?;
            let mut filters = Vec::new();
            while filters.is_empty() || !rest.is_empty() {
                filters.push(text(string(&mut rest)?));
                if is_new {
                    octet(&mut rest)?;
                }
            }
            if filters.len() > FILTERS {
                return None;
            }
            match is_new {
                true => Asked::Subscribe(id, filters),
                false => Asked::Unsubscribe(id, filters),
            }
        }
        0xc0 => Asked::Ping,
        0xe0 => Asked::Disconnect,
        0x30..=0x3f => {
            let name = string(&mut rest)?;
            return Some(match name {
                b"$proof" => Asked::Proof,
                [b'$', ..] => Asked::Nothing,
                name => Asked::Publish(Name::new(name)?),
            });
        }
        _ => return None,
    };
    rest.is_empty().then_some(asked)
}

/// Parse a packet of the broker; `None`: it is invalid.
#[must_use]
pub fn answered(datagram: &[u8]) -> Option<Answered> {
    let (first, mut rest) = split(datagram)?;
    let answered = match first {
        0x20 => {
            octet(&mut rest)?;
            Answered::Connack(octet(&mut rest)?)
        }
        0x90 => {
            let id = pair(&mut rest)?;
            let codes = std::mem::take(&mut rest).iter().map(|code| *code == 0);
            Answered::Suback(id, codes.collect())
        }
        0xb0 => Answered::Unsuback(pair(&mut rest)?),
        0xd0 => Answered::Pingresp,
        0x30 if string(&mut rest)? == b"$proof" => {
            rest = &[];
            Answered::Challenge
        }
        _ => return Some(Answered::Nothing),
    };
    rest.is_empty().then_some(answered)
}

/// A filter that is not UTF-8 matches no valid name, like the invalid one that replaces it.
fn text(octets: &[u8]) -> Rc<str> {
    Rc::from(str::from_utf8(octets).unwrap_or("\0"))
}

fn split(datagram: &[u8]) -> Option<(u8, &[u8])> {
    let (first, length, body) = match datagram {
        [first, length @ ..0x80, body @ ..] => (first, usize::from(*length), body),
        [first, low, high @ 1..0x80, body @ ..] => {
            let length = usize::from(*low & 0x7f) | usize::from(*high) << 7;
            (first, length, body)
        }
        _ => return None,
    };
    (body.len() == length).then_some((*first, body))
}

fn octet(rest: &mut &[u8]) -> Option<u8> {
    let (first, more) = rest.split_first()?;
    *rest = more;
    Some(*first)
}

fn pair(rest: &mut &[u8]) -> Option<u16> {
    let (first, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(u16::from_be_bytes(*first))
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(pair(rest)?);
    let (string, more) = rest.split_at_checked(length)?;
    *rest = more;
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_the_specification_writes_them() {
        let some = |filters: &[&str]| filters.iter().map(|one| Rc::from(*one)).collect();
        for (datagram, wanted) in [
            (
                &b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0"[..],
                Asked::Connect(60),
            ),
            (&QUESTION, Asked::BadConnect),
            (b"\x10\x0c\0\x04MQTT\x04\x06\0\x3c\0\0", Asked::BadConnect),
            (b"\x10\x07\0\x05MQTTx", Asked::BadConnect),
            (
                b"\x82\x0b\0\x07\0\x01a\0\0\x02b\xff\0",
                Asked::Subscribe(7, some(&["a", "\0"])),
            ),
            (
                b"\xa2\x05\0\x07\0\x01a",
                Asked::Unsubscribe(7, some(&["a"])),
            ),
            (b"\xc0\0", Asked::Ping),
            (b"\xe0\0", Asked::Disconnect),
            (b"\x30\x10\0\x06$proof12345678", Asked::Proof),
            (
                b"\x30\x04\0\x01ax",
                Asked::Publish(Name::new(b"a").unwrap_or_else(|| unreachable!())),
            ),
        ] {
            assert_eq!(asked(datagram).as_ref(), Some(&wanted));
            for end in 0..datagram.len() {
                assert_eq!(asked(&datagram[..end]), None, "{wanted:?}");
            }
        }
        for refused in [
            &b"\x82\x06\0\0\0\x01a\0"[..],
            b"\x82\x02\0\x07",
            b"\x80\x06\0\x07\0\x01a\0",
            b"\xa2\x06\0\x07\0\x02a",
            b"\xe0\x01x",
            b"\xf0\0",
            b"\x82\x86\0\0\x07\0\x01a\0",
            b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\0x",
        ] {
            assert_eq!(asked(refused), None, "{refused:x?}");
        }
        let many = [&b"\x82\xa3\x01\0\x07"[..], &b"\0\x02ab\0".repeat(32), b"x"].concat();
        assert_eq!(asked(&many), None);
    }

    #[test]
    fn answers_are_read_as_the_specification_writes_them() {
        for (datagram, wanted) in [
            (&b"\x20\x02\0\x03"[..], Answered::Connack(3)),
            (
                b"\x90\x04\0\x07\0\x80",
                Answered::Suback(7, vec![true, false]),
            ),
            (b"\xb0\x02\0\x07", Answered::Unsuback(7)),
            (b"\xd0\0", Answered::Pingresp),
            (b"\x30\x10\0\x06$proof12345678", Answered::Challenge),
            (b"\x30\x04\0\x01ax", Answered::Nothing),
        ] {
            assert_eq!(answered(datagram), Some(wanted));
        }
        for wrong in [
            &b"\x20\x01\0"[..],
            b"\x20\x03\0\0\0",
            b"\xb0\x03\0\x07\0",
            b"\xd0\x01\0",
            b"\x90",
        ] {
            assert_eq!(answered(wrong), None);
        }
    }
}
