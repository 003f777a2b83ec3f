//! The types of a data plane's interface (`broker/spec/acceleration.md`, 1).

use std::fmt;
use std::net::SocketAddr;

/// The most subscribers of one rule.
pub const SUBSCRIBERS_A_RULE: usize = 4095;

/// The protocol of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// MQTT-SN 1.2.
    MqttSn,
    /// `broker/spec/mqtt-udp.md`.
    MqttUdp,
}

/// A broker. Its number is its index in the list with which a data plane was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broker {
    /// Its address and port.
    pub address: SocketAddr,
    /// The VLAN that its frames carry when the data plane sees them; 0: none.
    pub vlan: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

/// How a publisher or a subscriber names a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// MQTT-SN: an id on which one client and the broker have agreed.
    Registered(u16),
    /// MQTT-SN: a predefined id.
    Predefined(u16),
    /// MQTT-SN: a name of two octets.
    Short([u8; 2]),
    /// mqtt-udp: the topic name.
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

/// The most octets of a [`Name`].
pub const NAME: usize = 64;

/// A topic name of 1 to 64 octets.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    length: u8,
    octets: [u8; NAME], // zeros after the name
}

impl Name {
    /// `None` if it is empty or too long.
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

/// The key of a rule: which messages it is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The number of the broker to which they are sent.
    pub broker: u8,
    /// The publisher; `None`: each publisher that has no rule of its own.
    pub publisher: Option<SocketAddr>,
    /// The topic, as the messages name it.
    pub topic: Topic,
}

/// What is done with a message, other than to copy it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// It also goes on to the broker.
    pub broker: bool,
    /// If so, it is marked: all subscribers over the broker's protocol have their copies.
    pub mark: bool,
    /// The copies state their residence.
    pub residence: bool,
    /// It is not copied, but passes to the broker.
    pub pass: bool,
}

/// The receiver of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscriber {
    /// Its address.
    pub address: SocketAddr,
    /// The topic, as this subscriber names it.
    pub topic: Topic,
    /// The number of the hop that leads to it.
    pub hop: u16,
}

/// The next host on the way to a subscriber: the subscriber itself, or a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The index of the interface through which copies leave.
    pub interface: u32,
    /// MAC address of the next host.
    pub destination: [u8; 6],
    /// MAC address of the interface.
    pub source: [u8; 6],
    /// The TTL or hop limit of the copies, usually 64.
    pub ttl: u8,
    /// Whether the next host answers: copies through a hop that is not up are counted, not sent.
    pub up: bool,
    /// The VLAN tag of copies on this interface; 0: none.
    pub vlan: u16,
}

/// A frame that is reported to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it was seen, CLOCK_MONOTONIC, ns.
    pub at_ns: u64,
    /// How many packets that may change the receivers were seen, including this one.
    pub seen: u64,
    /// Whether this packet may change the receivers.
    pub raises: bool,
    /// The index of the interface.
    pub interface: u32,
    /// Its VLAN; 0: none.
    pub vlan: u16,
    /// The number of the broker that sent it or is to get it.
    pub broker: u8,
    /// Why it is reported.
    pub reason: Reason,
    /// Whether it was seen at egress; if not, at ingress.
    pub at_egress: bool,
    /// Whether it comes from the broker's address and port; if not, it goes there.
    pub from_broker: bool,
    /// Whether it is an answer that was kept back from the client.
    pub kept_back: bool,
    /// The frame, from the destination MAC address on.
    pub frame: Vec<u8>,
    /// Its source.
    pub source: SocketAddr,
    /// Its destination.
    pub destination: SocketAddr,
    /// The UDP payload; empty if it cannot be read.
    pub message: Vec<u8>,
}

impl Event {
    /// The destination and the source MAC address.
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
    /// It is a first fragment. If it is too short for the UDP header and more, the ports are 0 and
    /// the message is empty: later fragments may hold them.
    Fragment,
    /// It is a later fragment. The ports are 0.
    Rest,
    /// It has IP options or extension headers, and is not parsed. The ports are 0.
    Header,
    /// It is a PUBLISH without a rule, or of QoS 1 or 2.
    NoRule,
}

/// The counters of one rule since it was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounters {
    /// Messages that went to the broker instead.
    pub slow: u64,
    /// Messages that were copied.
    pub hits: u64,
    /// Copies that were sent.
    pub copies: u64,
}
