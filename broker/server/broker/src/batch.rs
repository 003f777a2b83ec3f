//! Subscribers over UDP, and datagrams that leave together.

use mqtick_net::residence::{Account, Arrived, Clock, TRAILER};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const FULL: usize = 1024; // copies that leave together; the kernel takes no more
const SPARE: usize = 1 << 20; // octets of a batch that are not given back

/// How often a datagram is sent again.
pub(crate) const NEVER_AGAIN: Option<u32> = Some(0);

/// An address to which copies are sent over UDP: under a lease, or to a client of MQTT-SN.
pub struct Peer {
    /// The address.
    pub address: SocketAddr,
    pub(crate) end_ns: AtomicU64,
    lease: u16,
    /// The counted copies to it.
    pub account: Mutex<Account>,
}

impl Peer {
    /// A peer to which nothing is sent after `end_ns`, by the clock of [`crate::udp::DatagramSocket`].
    pub fn new(address: SocketAddr, end_ns: u64) -> Self {
        // So no other recent lease of this address has the same number.
        static LEASES: AtomicU16 = AtomicU16::new(0);
        Self {
            address,
            end_ns: AtomicU64::new(end_ns),
            lease: LEASES.fetch_add(1, Relaxed),
            account: Mutex::default(),
        }
    }

    /// Send nothing there after this time.
    pub fn set_end(&self, end_ns: u64) {
        self.end_ns.store(end_ns, Relaxed);
    }

    /// The trailer of a copy that leaves now, and whether the copy is counted. The octets of the
    /// residence below 1 ns have the lease's number.
    pub fn state(&self, account: &Account, arrived: &Arrived, now: Clock) -> ([u8; TRAILER], bool) {
        let (mut trailer, is_counted) = account.state(arrived, now, NEVER_AGAIN);
        if is_counted {
            [trailer[6], trailer[7]] = self.lease.to_be_bytes();
        }
        (trailer, is_counted)
    }
}

pub(crate) struct Copy {
    pub(crate) to: SocketAddr,
    pub(crate) peer: Option<Arc<Peer>>, // none: an answer
    pub(crate) octets: Range<usize>,
}

/// Datagrams that leave together.
#[derive(Default)]
pub struct Batch {
    pub(crate) octets: Vec<u8>,
    pub(crate) copies: Vec<Copy>,
    pub(crate) arrived: Option<Arrived>,
}

impl Batch {
    /// Append a copy of a message. It states its residence if `arrived` is known. Then all copies
    /// of the batch are of that message.
    pub fn copy(&mut self, peer: &Arc<Peer>, packet: &[u8], arrived: Option<Arrived>) {
        self.arrived = arrived;
        self.push(peer.address, Some(Arc::clone(peer)), packet);
    }

    /// Append an answer.
    pub fn answer(&mut self, to: SocketAddr, packet: &[u8]) {
        self.push(to, None, packet);
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Whether it has to be sent before more is appended.
    pub fn is_full(&self) -> bool {
        self.copies.len() >= FULL
    }

    fn push(&mut self, to: SocketAddr, peer: Option<Arc<Peer>>, packet: &[u8]) {
        let last = self.copies.last().map(|copy| copy.octets.clone());
        let is_same = |last: &Range<usize>| self.octets.get(last.clone()) == Some(packet);
        // Equal copies that state no residence share their octets.
        let octets = match last.filter(|last| self.arrived.is_none() && is_same(last)) {
            Some(last) => last,
            None => {
                let start = self.octets.len();
                self.octets.extend_from_slice(packet);
                start..self.octets.len()
            }
        };
        self.copies.push(Copy { to, peer, octets });
    }

    pub(crate) fn clear(&mut self) {
        self.octets.clear();
        self.octets.shrink_to(SPARE);
        self.copies.clear();
        self.arrived = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Arc<Peer> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Arc::new(Peer::new(address, u64::MAX))
    }

    #[test]
    fn copies_share_their_octets_unless_each_states_its_own_residence() {
        let mut batch = Batch::default();
        for port in 1..4 {
            batch.copy(&peer(port), b"one message", None);
        }
        batch.answer(peer(4).address, b"another");
        assert_eq!(batch.octets, b"one messageanother");
        batch.clear();
        let arrived = Arrived {
            at_ns: 0,
            trailer: [0; TRAILER],
        };
        for port in 1..4 {
            batch.copy(&peer(port), b"one message", Some(arrived));
        }
        assert_eq!(batch.octets.len(), 3 * b"one message".len());
    }
}
