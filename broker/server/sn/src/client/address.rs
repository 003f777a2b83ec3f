//! Where a client is, and datagrams that leave for it.

use crate::codec::{Forwarded, Message, encode, encode_forwarded};
use std::net::SocketAddr;

/// Octets of the longest datagram: one Ethernet frame.
pub const DATAGRAM: usize = 1472;
/// The same over IPv6, whose header is longer.
const DATAGRAM_V6: usize = 1452;
/// Octets of the longest name of a client behind a forwarder.
pub const NODE: usize = 16;

/// Where a client is: behind a forwarder also which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Where datagrams come from.
    pub at: SocketAddr,
    node: Option<(u8, [u8; NODE])>,
}

impl Address {
    /// None: the node's name is too long.
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

    /// Where datagrams come from, unless through a forwarder.
    pub(crate) fn plain(&self) -> Option<SocketAddr> {
        self.node.is_none().then_some(self.at)
    }

    /// Whether only the port differs.
    pub(crate) fn is_near(&self, other: &Self) -> bool {
        self.at.ip() == other.at.ip() && self.node == other.node
    }

    /// Octets of a REGISTER there, at most.
    pub(super) fn register_octets(&self, name: &str) -> usize {
        8 + name.len() + self.node.map_or(0, |(length, _)| 3 + usize::from(length))
    }

    /// Append a message as it goes there; whether it fits.
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

/// Datagrams in their order.
#[derive(Default)]
pub struct Datagrams {
    pub(super) octets: Vec<u8>,
    pub(super) ends: Vec<usize>,
    /// Whether a message is among them that had to wait.
    pub(crate) has_waited: bool,
}

impl Datagrams {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        places.map(|(start, end)| self.octets.get(start..*end).unwrap_or_default())
    }

    /// Forget them.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.ends.clear();
        self.has_waited = false;
    }
}
