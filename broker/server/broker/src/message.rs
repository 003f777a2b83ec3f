//! A message on its way, and its octets, encoded once for all subscribers that are alike.

use crate::memory::{Of, Share};
use mqtick_packet::{Outgoing, Qos, Version, publish};
use std::sync::Arc;

/// A PUBLISH as it was received, or as it was kept.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// The packet that brought it, where a copy at QoS 0 has the same octets, in this version.
    pub whole: Option<(Version, &'a [u8])>,
    /// The topic's name, whole: an alias is resolved before.
    pub topic: &'a str,
    /// The application's octets.
    pub payload: &'a [u8],
    /// As published.
    pub qos: Qos,
    /// As published.
    pub retain: bool,
    /// The properties that go on unchanged, encoded; empty in MQTT 3.1.1.
    pub forwarded: &'a [u8],
    /// When it may no longer be delivered, in seconds of the broker's clock.
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

    /// The message again.
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

    /// How much memory it takes, about.
    pub fn octets(&self) -> usize {
        self.message().octets()
    }
}

impl Message<'_> {
    /// How much memory it takes where it is kept, about.
    pub fn octets(&self) -> usize {
        size_of::<Kept>() + self.topic.len() + self.payload.len() + self.forwarded.len()
    }
}

/// What one copy has of its own.
#[derive(Clone, Copy)]
pub struct Copy {
    /// The subscriber's.
    pub version: Version,
    /// The lower one of the publisher's and the subscription's.
    pub qos: Qos,
    /// Whether it is sent as a retained message.
    pub retain: bool,
    /// The subscription's identifier; 0: none.
    pub subscription: u32,
}

/// Octets of a packet, and where its packet identifier stands.
pub struct Octets {
    /// The packet.
    pub packet: Vec<u8>,
    /// Counted from the packet's first octet; none at QoS 0.
    pub id_at: Option<usize>,
}

const KEEP_ROOM: usize = 1 << 16; // octets
const KINDS: usize = 12; // versions, levels of service, retained or not

/// Encodes a message once for each kind of copy.
pub struct Encoder {
    kinds: [Octets; KINDS],
    made: u16, // which of them, a bit each
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
    /// Forget the last message.
    pub fn begin(&mut self) {
        while self.made != 0 {
            let kind = &mut self.kinds[self.made.trailing_zeros() as usize % KINDS];
            kind.packet.clear();
            kind.packet.shrink_to(KEEP_ROOM);
            self.made &= self.made - 1;
        }
    }

    /// The octets of this copy of the message; the packet identifier is 0 in them.
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
