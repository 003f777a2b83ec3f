//! What a data plane is told: `broker/spec/acceleration.md`, section 1, as types.

use std::fmt;
use std::net::SocketAddr;

/// Most subscribers of one rule.
pub const SUBSCRIBERS_A_RULE: usize = 4095;

/// What a broker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// MQTT-SN 1.2.
    MqttSn,
    /// `broker/spec/mqtt-udp.md`.
    MqttUdp,
}

/// Where a broker is; its number is its place in the list that a data plane was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its address and port.
    pub address: SocketAddr,
    /// The VLAN that its frames carry when the data plane sees them; 0: none.
    pub vlan: u16,
    /// What it speaks.
    pub protocol: Protocol,
}

/// What a PUBLISH or a subscriber calls a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// MQTT-SN's id that one client and the broker agreed upon.
    Registered(u16),
    /// MQTT-SN's id that everybody knows.
    Predefined(u16),
    /// MQTT-SN's name of two octets.
    Short([u8; 2]),
    /// What it is called everywhere (mqtt-udp).
    Name(Name),
}

impl From<mqtick_sn::Topic> for Topic {
    fn from(topic: mqtick_sn::Topic) -> Self {
        match topic {
            mqtick_sn::Topic::Registered(id) => Self::Registered(id),
            mqtick_sn::Topic::Predefined(id) => Self::Predefined(id),
            mqtick_sn::Topic::Short(name) => Self::Short(name),
        }
    }
}

/// Most octets of a [`Name`].
pub const NAME: usize = 64;

/// A topic's name of 1 to 64 octets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    length: u8,
    octets: [u8; NAME], // zeros after the name
}

impl Name {
    /// None: it is no such name.
    #[must_use]
    pub fn new(name: &[u8]) -> Option<Self> {
        let length = u8::try_from(name.len()).ok().filter(|length| *length > 0)?;
        let mut octets = [0; NAME];
        octets.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self { length, octets })
    }

    /// Its octets.
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..self.length.into()).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.octets().escape_ascii())
    }
}

/// Which messages a rule is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Number of the broker that they are sent to.
    pub broker: u8,
    /// Whose messages; `None`: anybody's for whom there is no rule.
    pub publisher: Option<SocketAddr>,
    /// What they call the topic.
    pub topic: Topic,
}

/// What else is done with a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It goes on to the broker too.
    pub broker: bool,
    /// If so, marked: every MQTT-SN subscriber has its copy.
    pub mark: bool,
    /// The copies state their residence.
    pub residence: bool,
    /// Nothing is done: it goes the slow way.
    pub pass: bool,
}

/// Who gets a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Where to.
    pub address: SocketAddr,
    /// What this subscriber calls the topic.
    pub topic: Topic,
    /// Number of the hop through which it is reached.
    pub hop: u16,
}

/// The way to a subscriber: itself, or the router before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Index of the interface through which copies leave.
    pub interface: u32,
    /// MAC address of the next host.
    pub destination: [u8; 6],
    /// MAC address of the interface.
    pub source: [u8; 6],
    /// TTL or hop limit of the copies, 64 as a rule.
    pub ttl: u8,
    /// Whether the next host answers: copies through a hop that is not up are counted, not sent.
    pub up: bool,
    /// The VLAN's tag that copies have on this interface; 0: none.
    pub vlan: u16,
}

/// A frame that the controller must know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, on CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// How many packets that may change who receives were seen, this one included.
    pub seen: u64,
    /// Whether this one is one of them.
    pub raises: bool,
    /// Index of the interface.
    pub interface: u32,
    /// The VLAN; 0: none.
    pub vlan: u16,
    /// Number of the broker that it goes to or comes from.
    pub broker: u8,
    /// Why it is reported.
    pub reason: Reason,
    /// Whether it left this host (else: it arrived).
    pub at_egress: bool,
    /// Whether it comes from the broker's address and port (else: it goes there).
    pub from_broker: bool,
    /// Whether it is a PINGRESP that was kept back.
    pub kept_back: bool,
    /// The frame, from the destination MAC on.
    pub frame: Vec<u8>,
    /// Who sent it.
    pub source: SocketAddr,
    /// Whom it was sent to.
    pub destination: SocketAddr,
    /// The UDP payload; empty where it cannot be read.
    pub message: Vec<u8>,
}

impl Event {
    /// Destination and source MAC.
    #[must_use]
    pub fn macs(&self) -> Option<([u8; 6], [u8; 6])> {
        let (destination, rest) = self.frame.split_first_chunk()?;
        Some((*destination, *rest.first_chunk()?))
    }
}

/// Why a frame is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is a message other than PUBLISH.
    Message,
    /// It is a fragment with the beginning of whatever it is. Ports are 0, and there is no message, if so little
    /// of it is there that they may be in others, too.
    Fragment,
    /// It is a fragment that begins later. Ports are 0.
    Rest,
    /// It has options or extension headers, and may be anything. Ports are 0.
    Header,
    /// It is a PUBLISH for which there is no rule.
    NoRule,
}

/// What became of the messages of one rule, since it was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounters {
    /// Messages that went to the broker instead.
    pub slow: u64,
    /// Messages copied.
    pub hits: u64,
    /// Copies sent.
    pub copies: u64,
}
