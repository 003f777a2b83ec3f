//! Parses datagrams, with the checks of clause 7 in their order.

use crate::counters::Count;

/// The octets of the longest datagram.
pub const DATAGRAM: usize = 1472;

const NAME: usize = 64; // most octets of a topic or filter
const LEVELS: usize = 16;
const FILTERS: usize = 32; // in one packet
const MARK: u8 = 8; // the bit of DUP, which a client does not set with QoS 0
const PROOF: &[u8] = b"$proof";
const ACCELERATE: &[u8] = b"$accelerate";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Connect,
    Publish,
    Subscribe,
    Unsubscribe,
    Ping,
    Disconnect,
}

/// A datagram with a valid fixed header.
pub(crate) struct Frame<'a> {
    kind: Kind,
    retain: bool,
    /// Whether it claims that all subscribers over UDP already have their copies.
    pub(crate) marked: bool,
    body: &'a [u8],
}

/// The request in a datagram.
pub(crate) enum Request<'a> {
    /// Deliver a message to all subscribers.
    Publish {
        topic: &'a str,
        payload: &'a [u8],
        retain: bool,
    },
    /// Prove the sender's address with this token.
    Prove(&'a [u8]),
    /// Report that all datagrams before it were served, if the engine knows these octets.
    Say(&'a [u8]),
    /// Begin a lease for this keep-alive (the lease is 1.5 times as long; 0: the broker's default),
    /// or refuse with this code.
    Connect(Result<u16, u8>),
    Subscribe(Id, Filters<'a>),
    Unsubscribe(Id, Filters<'a>),
    Ping,
    Disconnect,
}

/// A packet identifier.
pub(crate) type Id = [u8; 2];

/// Unchecked filters, each with the requested QoS.
pub(crate) type Filters<'a> = Vec<(&'a [u8], u8)>;

impl<'a> Frame<'a> {
    /// Read the fixed header.
    pub(crate) fn read(datagram: &'a [u8]) -> Result<Self, Count> {
        if datagram.len() > DATAGRAM {
            return Err(Count::Oversized);
        }
        let (&first, length, body) = match datagram {
            [first, length @ ..0x80, body @ ..] => (first, usize::from(*length), body),
            [first, low, high @ 1..0x80, body @ ..] => {
                let length = usize::from(*low & 0x7f) | usize::from(*high) << 7;
                (first, length, body)
            }
            _ => return Err(Count::Length),
        };
        if body.len() != length {
            return Err(Count::Length);
        }
        let (kind, flags) = match first >> 4 {
            1 => (Kind::Connect, 0),
            3 if first & 15 == MARK => (Kind::Publish, MARK),
            3 => (Kind::Publish, first & 1),
            8 => (Kind::Subscribe, 2),
            10 => (Kind::Unsubscribe, 2),
            12 => (Kind::Ping, 0),
            14 => (Kind::Disconnect, 0),
            _ => return Err(Count::Type),
        };
        match first & 15 == flags {
            true => Ok(Self {
                kind,
                retain: flags == 1,
                marked: kind == Kind::Publish && flags == MARK,
                body,
            }),
            false if kind == Kind::Publish => Err(Count::Qos),
            false => Err(Count::Flags),
        }
    }

    /// Whether it publishes a message. If not, it is a subscriber's packet.
    pub(crate) fn publishes(&self) -> bool {
        let proves = || {
            self.body
                .get(2..)
                .is_some_and(|rest| rest.starts_with(PROOF))
        };
        self.kind == Kind::Publish && !(self.body.starts_with(&[0, 6]) && proves())
    }

    /// Read the variable header and the payload.
    pub(crate) fn request(&self) -> Result<Request<'a>, Count> {
        let mut left = Reader(self.body);
        let request = match self.kind {
            Kind::Publish => {
                let topic = left.string()?;
                if topic == PROOF {
                    return Ok(Request::Prove(left.0));
                }
                if topic == ACCELERATE {
                    return Ok(Request::Say(left.0));
                }
                let is_name = is_name(topic) && !topic.iter().any(|one| b"+#".contains(one));
                let name = std::str::from_utf8(topic).ok().filter(|_| is_name);
                let topic = name.ok_or(Count::Topic)?;
                if topic.starts_with('$') {
                    return Err(Count::Reserved);
                }
                return Ok(Request::Publish {
                    topic,
                    payload: left.0,
                    retain: self.retain,
                });
            }
            Kind::Connect => {
                if left.string()? != b"MQTT" || left.octet()? != 4 {
                    return Ok(Request::Connect(Err(1)));
                }
                if left.octet()? & !2 != 0 {
                    return Ok(Request::Connect(Err(5)));
                }
                let keep_alive_s = u16::from_be_bytes(left.pair()?);
                left.string()?;
                Request::Connect(Ok(keep_alive_s))
            }
            Kind::Subscribe => {
                let (id, filters) = left.filters(true)?;
                Request::Subscribe(id, filters)
            }
            Kind::Unsubscribe => {
                let (id, filters) = left.filters(false)?;
                Request::Unsubscribe(id, filters)
            }
            Kind::Ping => Request::Ping,
            Kind::Disconnect => Request::Disconnect,
        };
        match left.0 {
            [] => Ok(request),
            _ => Err(Count::Truncated),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn octet(&mut self) -> Result<u8, Count> {
        let (first, rest) = self.0.split_first().ok_or(Count::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn pair(&mut self) -> Result<[u8; 2], Count> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Count::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn string(&mut self) -> Result<&'a [u8], Count> {
        let length = usize::from(u16::from_be_bytes(self.pair()?));
        let (string, rest) = self.0.split_at_checked(length).ok_or(Count::Truncated)?;
        self.0 = rest;
        Ok(string)
    }

    fn filters(&mut self, with_qos: bool) -> Result<(Id, Filters<'a>), Count> {
        let id = self.pair()?;
        let mut filters = Vec::new();
        while filters.is_empty() || !self.0.is_empty() {
            let filter = self.string()?;
            filters.push((filter, if with_qos { self.octet()? } else { 0 }));
        }
        match (filters.len(), id) {
            (FILTERS.., _) if filters.len() > FILTERS => Err(Count::Filters),
            (_, [0, 0]) => Err(Count::Identifier),
            _ => Ok((id, filters)),
        }
    }
}

fn is_name(octets: &[u8]) -> bool {
    let levels = 1 + octets.iter().filter(|octet| **octet == b'/').count();
    (1..=NAME).contains(&octets.len()) && levels <= LEVELS && !octets.contains(&0)
}

/// These octets as a filter (MQTT 3.1.1, 4.7.1); `None` if it is invalid or refused.
pub(crate) fn filter(octets: &[u8]) -> Option<&str> {
    if !is_name(octets) || octets.starts_with(b"$") {
        return None;
    }
    let filter = std::str::from_utf8(octets).ok()?;
    mqtick_topics::valid_filter(filter).then_some(filter)
}

/// A packet of this first octet, and of this body after the fixed header.
pub(crate) fn packet(first: u8, body: &[&[u8]]) -> Vec<u8> {
    let length: usize = body.iter().map(|part| part.len()).sum();
    let mut octets = Vec::with_capacity(3 + length);
    octets.push(first);
    if length < 128 {
        octets.push(length as u8);
    } else {
        octets.extend([length as u8 & 0x7f | 0x80, (length >> 7) as u8]);
    }
    for part in body {
        octets.extend_from_slice(part);
    }
    octets
}

/// The PUBLISH that carries a token to a subscriber.
pub(crate) fn challenge(token: [u8; 8]) -> Vec<u8> {
    packet(0x30, &[&[0, 6], PROOF, &token])
}

/// The packet of a retained message; `None` if it is too long for a datagram.
pub(crate) fn retained(topic: &str, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(topic.len()).ok()?;
    (5 + topic.len() + payload.len() <= DATAGRAM)
        .then(|| packet(0x31, &[&length.to_be_bytes(), topic.as_bytes(), payload]))
}
