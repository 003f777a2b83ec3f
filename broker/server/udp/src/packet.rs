//! From a datagram to what it asks for, with the checks of clause 7 in their order.

use crate::Count;

/// Octets of the longest datagram.
pub const DATAGRAM: usize = 1472;

const NAME: usize = 64; // octets of a topic or filter
const LEVELS: usize = 16;
const FILTERS: usize = 32; // in one packet
const MARK: u8 = 8; // DUP, which a client's message of QoS 0 has not
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

/// A datagram whose fixed header is right.
pub(crate) struct Frame<'a> {
    kind: Kind,
    retain: bool,
    /// Whether it says that all subscribers over UDP have it.
    pub(crate) marked: bool,
    body: &'a [u8],
}

/// What a datagram asks for.
pub(crate) enum Request<'a> {
    /// To give a message to all that are subscribed.
    Publish {
        topic: &'a str,
        payload: &'a [u8],
        retain: bool,
    },
    /// To believe its address.
    Prove(&'a [u8]),
    /// To say that all before it was served, if these octets are right.
    Say(&'a [u8]),
    /// A lease of 1.5 times so many seconds (0: the broker's own), or the code to refuse it with.
    Connect(Result<u16, u8>),
    Subscribe(Id, Filters<'a>),
    Unsubscribe(Id, Filters<'a>),
    Ping,
    Disconnect,
}

/// A packet identifier.
pub(crate) type Id = [u8; 2];

/// Filters as they came, each with the QoS that is asked for.
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

    /// Whether it is a message, rather than what a subscriber sends.
    pub(crate) fn publishes(&self) -> bool {
        let proves = || {
            self.body
                .get(2..)
                .is_some_and(|rest| rest.starts_with(PROOF))
        };
        self.kind == Kind::Publish && !(self.body.starts_with(&[0, 6]) && proves())
    }

    /// Read the rest.
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

/// The filter (MQTT 3.1.1, 4.7.1) that these octets are, if a subscriber may have it.
pub(crate) fn filter(octets: &[u8]) -> Option<&str> {
    if !is_name(octets) || octets.starts_with(b"$") {
        return None;
    }
    let mut levels = octets.split(|octet| *octet == b'/').peekable();
    while let Some(level) = levels.next() {
        let last = levels.peek().is_none();
        let alone = level == b"+" || (level == b"#" && last);
        if !alone && level.iter().any(|octet| b"+#".contains(octet)) {
            return None;
        }
    }
    std::str::from_utf8(octets).ok()
}

/// Whether a filter fits a topic.
pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    let (mut wanted, mut levels) = (filter.split('/'), topic.split('/'));
    loop {
        match (wanted.next(), levels.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some(wanted), Some(level)) if wanted == "+" || wanted == level => {}
            _ => return false,
        }
    }
}

/// A packet: its first octet, and what follows the fixed header.
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

/// A PUBLISH with a token.
pub(crate) fn challenge(token: [u8; 8]) -> Vec<u8> {
    packet(0x30, &[&[0, 6], PROOF, &token])
}

/// A retained message, if a datagram can hold it.
pub(crate) fn retained(topic: &str, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(topic.len()).ok()?;
    (5 + topic.len() + payload.len() <= DATAGRAM)
        .then(|| packet(0x31, &[&length.to_be_bytes(), topic.as_bytes(), payload]))
}
