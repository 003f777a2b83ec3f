//! The address of a client, and datagrams to it.

use crate::codec::{Forwarded, Message, encode, encode_forwarded};
use std::net::SocketAddr;

/// The octets of the longest datagram: it fits into one Ethernet frame.
pub const DATAGRAM: usize = 1472;
/// The same for IPv6, whose header is longer.
const DATAGRAM_V6: usize = 1452;
/// The octets of the longest wireless node id behind a forwarder.
pub const NODE: usize = 16;

/// A client's address, with its wireless node id if it is behind a forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The source of its datagrams.
    pub at: SocketAddr,
    node: Option<(u8, [u8; NODE])>,
}

impl Address {
    /// `None`: the wireless node id is too long.
    #[must_use]
    pub fn new(at: SocketAddr, forwarded: Option<&Forwarded<'_>>) -> Option<Self> {
        let node = match forwarded {
            None => None,
            Some(forwarded) => {
                let mut node = [0; NODE];
                let length = forwarded.node.len();
                node.get_mut(..length)?.copy_from_slice(forwarded.node);
                Some((u8::try_from(length).ok()?, node))
            }
        };
        Some(Self { at, node })
    }

    /// The source of its datagrams, unless it is behind a forwarder.
    pub(crate) fn plain(&self) -> Option<SocketAddr> {
        self.node.is_none().then_some(self.at)
    }

    /// Whether both differ in the port at most.
    pub(crate) fn is_near(&self, other: &Self) -> bool {
        self.at.ip() == other.at.ip() && self.node == other.node
    }

    /// The most octets that a REGISTER of this name to this address has.
    pub(super) fn register_octets(&self, name: &str) -> usize {
        8 + name.len() + self.node.map_or(0, |(length, _)| 3 + usize::from(length))
    }

    /// Append a message as it is sent to this address. Returns false if it is too long.
    pub(crate) fn write(&self, message: &Message<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let fits = match &self.node {
            None => encode(message, out),
            Some((length, node)) => {
                let node = node.get(..usize::from(*length)).unwrap_or_default();
                encode_forwarded(message, &Forwarded { radius: 0, node }, out)
            }
        };
        let most = match self.at {
            SocketAddr::V4(_) => DATAGRAM,
            SocketAddr::V6(_) => DATAGRAM_V6,
        };
        let fits = fits && out.len() - start <= most;
        if !fits {
            out.truncate(start);
        }
        fits
    }
}

/// Datagrams in their order, for one client.
#[derive(Default)]
pub struct Datagrams {
    pub(super) octets: Vec<u8>,
    pub(super) ends: Vec<usize>,
    /// Whether one of them is a message from the queue.
    pub(crate) has_waited: bool,
}

impl Datagrams {
    /// The datagrams.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        places.map(|(start, end)| self.octets.get(start..*end).unwrap_or_default())
    }

    /// Remove them.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.ends.clear();
        self.has_waited = false;
    }
}
