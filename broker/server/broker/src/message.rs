//! A message on its way, and its encoding, which is made once for all subscribers that are alike.

use crate::memory::{Of, Share};
use mqtick_packet::{Outgoing, Qos, Version, publish};
use std::sync::Arc;

/// A PUBLISH as it was received, or as it was kept.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// The packet that brought it, and its version, if copies of QoS 0 in that version have the
    /// same octets.
    pub whole: Option<(Version, &'a [u8])>,
    /// The topic's full name: an alias is resolved before.
    pub topic: &'a str,
    /// The payload.
    pub payload: &'a [u8],
    /// QoS, as published.
    pub qos: Qos,
    /// RETAIN, as published.
    pub retain: bool,
    /// The properties that go on unchanged, encoded; empty in MQTT 3.1.1.
    pub forwarded: &'a [u8],
    /// When it expires, in seconds of the broker's clock.
    pub expires_s: Option<u64>,
}

/// A message that outlives the packet that brought it: queued, in flight or retained.
pub struct Kept {
    topic: Box<str>,
    payload: Box<[u8]>,
    qos: Qos,
    retain: bool,
    forwarded: Box<[u8]>,
    expires_s: Option<u64>,
    _share: Share,
}

impl Kept {
    /// Copy a message.
    pub fn new(message: &Message) -> Arc<Self> {
        Arc::new(Self {
            topic: message.topic.into(),
            payload: message.payload.into(),
            qos: message.qos,
            retain: message.retain,
            forwarded: message.forwarded.into(),
            expires_s: message.expires_s,
            _share: Share::new(Of::Messages, message.octets()),
        })
    }

    /// The message.
    pub fn message(&self) -> Message<'_> {
        Message {
            whole: None,
            topic: &self.topic,
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            forwarded: &self.forwarded,
            expires_s: self.expires_s,
        }
    }

    /// How many octets of memory it takes, about.
    pub fn octets(&self) -> usize {
        self.message().octets()
    }
}

impl Message<'_> {
    /// How many octets of memory it takes if it is kept, about.
    pub fn octets(&self) -> usize {
        size_of::<Kept>() + self.topic.len() + self.payload.len() + self.forwarded.len()
    }
}

/// What differs between the copies of a message.
#[derive(Clone, Copy)]
pub struct Copy {
    /// The subscriber's MQTT version.
    pub version: Version,
    /// The lower QoS of the message's and the subscription's.
    pub qos: Qos,
    /// Whether it is sent as a retained message.
    pub retain: bool,
    /// The subscription's identifier; 0: none.
    pub subscription: u32,
}

/// A packet, and where its packet identifier is.
pub struct Octets {
    /// The packet.
    pub packet: Vec<u8>,
    /// Position of the packet identifier in the packet; none at QoS 0.
    pub id_at: Option<usize>,
}

const KEEP_ROOM: usize = 1 << 16; // octets
const KINDS: usize = 12; // 2 versions, 3 levels of QoS, retained or not

/// Encodes a message once for each kind of copy.
pub struct Encoder {
    kinds: [Octets; KINDS],
    made: u16, // a bit for each kind that is encoded
    single: Octets,
}

impl Default for Encoder {
    fn default() -> Self {
        let none = || Octets {
            packet: Vec::new(),
            id_at: None,
        };
        Self {
            kinds: std::array::from_fn(|_| none()),
            made: 0,
            single: none(),
        }
    }
}

impl Encoder {
    /// Begin with another message.
    pub fn begin(&mut self) {
        while self.made != 0 {
            let kind = &mut self.kinds[self.made.trailing_zeros() as usize % KINDS];
            kind.packet.clear();
            kind.packet.shrink_to(KEEP_ROOM);
            self.made &= self.made - 1;
        }
    }

    /// The packet of this copy of the message, with 0 as the packet identifier.
    pub fn octets(&mut self, message: &Message, copy: &Copy, now_s: u64) -> &Octets {
        if copy.subscription != 0 && copy.version == Version::V5 {
            encode(&mut self.single, message, copy, now_s);
            return &self.single;
        }
        let kind = usize::from(copy.version == Version::V5) * 6
            + copy.qos as usize * 2
            + usize::from(copy.retain);
        let octets = &mut self.kinds[kind % KINDS];
        if self.made & 1 << kind == 0 {
            self.made |= 1 << kind;
            encode(octets, message, copy, now_s);
        }
        octets
    }
}

fn encode(octets: &mut Octets, message: &Message, copy: &Copy, now_s: u64) {
    let left = |expires_s: u64| {
        expires_s
            .saturating_sub(now_s)
            .try_into()
            .unwrap_or(u32::MAX)
    };
    let subscription = [copy.subscription];
    let outgoing = Outgoing {
        dup: false,
        qos: copy.qos,
        retain: copy.retain,
        topic: message.topic,
        id: 0,
        expiry: message.expires_s.map(left),
        alias: None,
        subscription_ids: if copy.subscription == 0 {
            &[]
        } else {
            &subscription
        },
        forwarded: message.forwarded,
        payload: message.payload,
    };
    octets.packet.clear();
    octets.id_at = publish(&mut octets.packet, copy.version, &outgoing);
}
