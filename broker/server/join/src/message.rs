//! What nodes exchange: messages, and what identifies them.

use crate::topology::NodeId;
use mqtick_net::residence::Arrived;
use mqtick_packet::Qos;

/// This node's number for a link to a neighbour. Each new link has a new number.
pub type Link = u64;

/// How many lanes there are.
pub const LANES: u8 = 16;
/// Identifies a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The node where it was published.
    pub origin: NodeId,
    /// Its lane, below [`LANES`].
    pub lane: u8,
    /// Its number in that lane; QoS 0 has numbers of its own.
    pub sequence: u64,
}

/// A message between nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Its topic.
    pub topic: String,
    /// Its payload.
    pub payload: Vec<u8>,
    /// The QoS that it was published with.
    pub qos: Qos,
    /// Its retain flag.
    pub retain: bool,
    /// Its message expiry interval, in seconds, when it came to this node.
    pub expiry: Option<u32>,
    /// When it came to this node, in seconds since the node started.
    pub came_s: u64,
    /// Its properties that are passed on, as `Properties::forwarded` encodes them.
    pub forwarded: Vec<u8>,
    /// The user who published it, or empty.
    pub user: String,
    /// The client who published it, or empty.
    pub client: String,
    /// For a time message: when it came, and the residence stated so far, if every node before this
    /// one stated it.
    pub arrived: Option<Arrived>,
    /// For a retained message: its stamp (see [`crate::retained`]).
    pub stamp: u64,
    /// Whether it was retained before the link came up. Only a broker that has an older one needs it.
    pub handed: bool,
    /// Whether this site's access list keeps it from this site's broker. Other sites may still get it.
    pub is_denied: bool,
}

impl Message {
    /// Seconds for which it may still be delivered: its expiry, less the time it waited here.
    #[must_use]
    pub fn expiry_at(&self, now_s: u64) -> Option<u32> {
        let waited_s = u32::try_from(now_s.saturating_sub(self.came_s)).unwrap_or(u32::MAX);
        self.expiry.map(|expiry| expiry.saturating_sub(waited_s))
    }
}
