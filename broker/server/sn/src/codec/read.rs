//! Decodes messages.

use super::{
    ADVERTISE, CLEAN, CONNACK, CONNECT, Code, DISCONNECT, DUP, Error, FORWARDED, Filter, Forwarded,
    GWINFO, Message, PINGREQ, PINGRESP, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, Qos, REGACK,
    REGISTER, RETAIN, SEARCHGW, SUBACK, SUBSCRIBE, Topic, UNSUBACK, UNSUBSCRIBE, WILL, WILLMSG,
    WILLMSGREQ, WILLMSGRESP, WILLMSGUPD, WILLTOPIC, WILLTOPICREQ, WILLTOPICRESP, WILLTOPICUPD,
    Will,
};

/// Decode a datagram into its message and, if there is one, its encapsulation.
///
/// # Errors
/// The datagram is not exactly one complete message.
pub fn decode(datagram: &[u8]) -> Result<(Message<'_>, Option<Forwarded<'_>>), Error> {
    let (&length, &kind) = match datagram {
        [length, kind, ..] => (length, kind),
        _ => return Err(Error::Length),
    };
    // The length of an encapsulation is always one octet, and does not include the message.
    if kind != FORWARDED || length == 1 {
        return Ok((message(datagram)?, None));
    }
    let (header, inside) = datagram
        .split_at_checked(usize::from(length))
        .ok_or(Error::Length)?;
    let [_, _, control, node @ ..] = header else {
        return Err(Error::Length);
    };
    let radius = control & 3;
    Ok((message(inside)?, Some(Forwarded { radius, node })))
}

fn message(octets: &[u8]) -> Result<Message<'_>, Error> {
    let (length, rest) = match octets {
        [1, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        [length, rest @ ..] => (usize::from(*length), rest),
        _ => return Err(Error::Length),
    };
    if length != octets.len() {
        return Err(Error::Length);
    }
    let (&kind, body) = rest.split_first().ok_or(Error::Length)?;
    let mut left = Reader(body);
    let message = left.message(kind)?;
    match left.0 {
        [] => Ok(message),
        _ => Err(Error::Truncated),
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn message(&mut self, kind: u8) -> Result<Message<'a>, Error> {
        Ok(match kind {
            ADVERTISE => Message::Advertise {
                gateway: self.octet()?,
                duration_s: self.pair()?,
            },
            SEARCHGW => Message::SearchGateway {
                radius: self.octet()?,
            },
            GWINFO => Message::GatewayInfo {
                gateway: self.octet()?,
                address: self.rest(),
            },
            CONNECT => {
                let flags = self.octet()?;
                Message::Connect {
                    will: flags & WILL != 0,
                    clean: flags & CLEAN != 0,
                    protocol: self.octet()?,
                    duration_s: self.pair()?,
                    client: self.name()?,
                }
            }
            CONNACK => Message::Connack(self.code()?),
            WILLTOPICREQ => Message::WillTopicRequest,
            WILLTOPIC => Message::WillTopic(self.will()?),
            WILLMSGREQ => Message::WillMessageRequest,
            WILLMSG => Message::WillMessage(self.rest()),
            REGISTER => Message::Register {
                topic_id: self.pair()?,
                message_id: self.pair()?,
                name: self.name()?,
            },
            REGACK => Message::Regack {
                topic_id: self.pair()?,
                message_id: self.pair()?,
                code: self.code()?,
            },
            PUBLISH => {
                let flags = self.octet()?;
                let field = self.chunk()?;
                Message::Publish {
                    dup: flags & DUP != 0,
                    qos: qos_of(flags),
                    retain: flags & RETAIN != 0,
                    topic: match flags & 3 {
                        0 => Topic::Registered(u16::from_be_bytes(field)),
                        1 => Topic::Predefined(u16::from_be_bytes(field)),
                        2 => Topic::Short(field),
                        _ => return Err(Error::Flags),
                    },
                    message_id: self.pair()?,
                    data: self.rest(),
                }
            }
            PUBACK => Message::Puback {
                topic_id: self.pair()?,
                message_id: self.pair()?,
                code: self.code()?,
            },
            PUBREC => Message::Pubrec(self.pair()?),
            PUBREL => Message::Pubrel(self.pair()?),
            PUBCOMP => Message::Pubcomp(self.pair()?),
            SUBSCRIBE => {
                let flags = self.octet()?;
                Message::Subscribe {
                    dup: flags & DUP != 0,
                    qos: asked_of(flags)?,
                    message_id: self.pair()?,
                    filter: self.filter(flags)?,
                }
            }
            SUBACK => Message::Suback {
                qos: asked_of(self.octet()?)?,
                topic_id: self.pair()?,
                message_id: self.pair()?,
                code: self.code()?,
            },
            UNSUBSCRIBE => {
                let flags = self.octet()?;
                Message::Unsubscribe {
                    message_id: self.pair()?,
                    filter: self.filter(flags)?,
                }
            }
            UNSUBACK => Message::Unsuback(self.pair()?),
            PINGREQ => Message::Pingreq {
                client: self.text()?,
            },
            PINGRESP => Message::Pingresp,
            DISCONNECT => Message::Disconnect {
                duration_s: match self.0 {
                    [] => None,
                    _ => Some(self.pair()?),
                },
            },
            WILLTOPICUPD => Message::WillTopicUpdate(self.will()?),
            WILLTOPICRESP => Message::WillTopicResponse(self.code()?),
            WILLMSGUPD => Message::WillMessageUpdate(self.rest()),
            WILLMSGRESP => Message::WillMessageResponse(self.code()?),
            _ => return Err(Error::Type),
        })
    }

    fn octet(&mut self) -> Result<u8, Error> {
        let (first, rest) = self.0.split_first().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn chunk(&mut self) -> Result<[u8; 2], Error> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Error::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn pair(&mut self) -> Result<u16, Error> {
        self.chunk().map(u16::from_be_bytes)
    }

    fn code(&mut self) -> Result<Code, Error> {
        self.octet().map(Code)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.rest()).map_err(|_| Error::Text)
    }

    fn name(&mut self) -> Result<&'a str, Error> {
        self.text()
            .and_then(|text| (!text.is_empty()).then_some(text).ok_or(Error::Text))
    }

    fn will(&mut self) -> Result<Option<Will<'a>>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let flags = self.octet()?;
        Ok(Some(Will {
            qos: asked_of(flags)?,
            retain: flags & RETAIN != 0,
            topic: self.name()?,
        }))
    }

    fn filter(&mut self, flags: u8) -> Result<Filter<'a>, Error> {
        Ok(match flags & 3 {
            0 => Filter::Name(self.name()?),
            1 => Filter::Predefined(self.pair()?),
            2 => Filter::Short(self.chunk()?),
            _ => return Err(Error::Flags),
        })
    }
}

fn qos_of(flags: u8) -> Qos {
    match flags >> 5 & 3 {
        0 => Qos::AtMostOnce,
        1 => Qos::AtLeastOnce,
        2 => Qos::ExactlyOnce,
        _ => Qos::Unconnected,
    }
}

/// The QoS of a request or a grant: it cannot be -1.
fn asked_of(flags: u8) -> Result<Qos, Error> {
    match qos_of(flags) {
        Qos::Unconnected => Err(Error::Flags),
        qos => Ok(qos),
    }
}
