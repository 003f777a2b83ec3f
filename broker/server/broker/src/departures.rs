//! Assigns the kernel's stamps of departures to copies: a stamp comes with the frame that has left,
//! and only that identifies the copy.

use crate::batch::Peer;
use crate::sync::lock;
use mqtick_net::residence::TRAILER;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

const MOST: usize = 1 << 16; // peers; as many may have a lease

/// The last counted copy of each peer, until its stamp comes.
#[derive(Default)]
pub struct Departures {
    inflight: HashMap<(IpAddr, u16), ([u8; TRAILER], Arc<Peer>)>,
}

impl Departures {
    /// Whether no copy waits for its stamp.
    pub fn is_empty(&self) -> bool {
        self.inflight.is_empty()
    }

    /// A copy with this trailer is about to leave. No other copy to this address has the same one:
    /// copies of one lease are numbered, and leases differ in the octets below 1 ns of the
    /// residence.
    pub fn expect(&mut self, peer: &Arc<Peer>, trailer: [u8; TRAILER]) {
        let to = key(peer.address);
        if self.inflight.len() >= MOST && !self.inflight.contains_key(&to) {
            self.inflight.clear(); // they are of leases that have ended, or their stamps were lost
        }
        self.inflight.insert(to, (trailer, Arc::clone(peer)));
    }

    /// A frame has left.
    pub fn left(&mut self, frame: &[u8], at_ns: i64) {
        let Some(trailer) = frame.last_chunk::<TRAILER>() else {
            return;
        };
        for to in destinations(frame) {
            let is_it = |one: &([u8; TRAILER], _)| one.0 == *trailer;
            if self.inflight.get(&to).is_some_and(is_it)
                && let Some((_, peer)) = self.inflight.remove(&to)
            {
                return lock(&peer.account).left(copy_of(trailer), at_ns);
            }
        }
    }
}

/// What identifies a copy in an account: its number, and the program that has made it.
pub fn copy_of(trailer: &[u8; TRAILER]) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|at| trailer[12 + at]))
}

/// Possible destinations of a frame. Where its IP header begins depends on the link. So each place
/// counts where there is a header of UDP over IP with the length of the rest.
fn destinations(frame: &[u8]) -> impl Iterator<Item = (IpAddr, u16)> {
    (0..frame.len()).filter_map(|at| {
        let packet = frame.get(at..)?;
        if packet.first().is_some_and(|first| first >> 4 == 6) {
            return destination_v6(packet);
        }
        let [0x45, _, high, low, rest @ ..] = packet else {
            return None;
        };
        let is_whole = usize::from(u16::from_be_bytes([*high, *low])) == packet.len();
        let [
            _,
            _,
            _,
            _,
            _,
            17,
            _,
            _,
            _,
            _,
            _,
            _,
            a,
            b,
            c,
            d,
            _,
            _,
            e,
            f,
            ..,
        ] = rest
        else {
            return None;
        };
        let port = u16::from_be_bytes([*e, *f]);
        is_whole.then(|| ([*a, *b, *c, *d].into(), port))
    })
}

fn destination_v6(packet: &[u8]) -> Option<(IpAddr, u16)> {
    let (header, udp) = packet.split_first_chunk::<40>()?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let is_it = header[6] == 17 && length == udp.len();
    let to: [u8; 16] = *header.last_chunk()?;
    let port = u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]);
    is_it.then(|| (to.into(), port))
}

/// What a frame contains of an address: not the link's scope.
fn key(to: SocketAddr) -> (IpAddr, u16) {
    (to.ip(), to.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mqtick_net::residence::{Arrived, Clock};

    const TO: [u8; 6] = [10, 0, 0, 7, 0x13, 0x88];
    /// A reading without uncertainty, as a busy machine seldom gives one.
    const NOW: Clock = Clock {
        now_ns: 1 << 60,
        ahead_ns: 0,
        raw_ns: 1 << 60,
        unsure_ns: 0,
        steps: 0,
    };
    const LEFT_NS: i64 = NOW.now_ns + 1_100; // of which a tenth may be a slew of the clock

    /// The frame of a copy in the error queue, after a link's header of so many octets.
    fn frame(link: usize, to: [u8; 6], trailer: [u8; TRAILER]) -> Vec<u8> {
        let [a, b, c, d, e, f] = to;
        let length = 28 + 12 + TRAILER as u8;
        let mut octets = vec![0x45; link];
        octets.extend([
            0x45, 0, 0, length, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, a, b, c, d,
        ]);
        octets.extend([7, 91, e, f, 0, length - 20, 0, 0]);
        octets.extend(*b"\x30\x1a\0\x06mqtick/ ");
        octets.extend(trailer);
        octets
    }

    /// A peer whose only copy has left the program with this trailer.
    fn waiting(departures: &mut Departures) -> (Arc<Peer>, [u8; TRAILER]) {
        let to = SocketAddr::from(([10, 0, 0, 7], 5000));
        let peer = Arc::new(Peer::new(to, u64::MAX));
        let trailer = state(&peer).1;
        lock(&peer.account).written(copy_of(&trailer), NOW, Some(0));
        departures.expect(&peer, trailer);
        (peer, trailer)
    }

    /// The correction that the next copy states, and its trailer. All messages came 5 ns ago.
    fn state(peer: &Peer) -> (i32, [u8; TRAILER]) {
        let arrived = Arrived {
            at_ns: NOW.raw_ns - 5,
            trailer: [0; TRAILER],
        };
        let (trailer, is_counted) = peer.state(&lock(&peer.account), &arrived, NOW);
        assert!(is_counted);
        let said = i32::from_be_bytes(std::array::from_fn(|at| trailer[8 + at]));
        (said, trailer)
    }

    #[test]
    fn a_stamp_belongs_to_the_copy_that_it_brings_whatever_the_link() {
        for link in [0, 14, 18, 50] {
            let mut departures = Departures::default();
            let (peer, trailer) = waiting(&mut departures);
            departures.left(&frame(link, TO, trailer), LEFT_NS);
            assert_eq!(state(&peer).0, 1_000);
            assert!(departures.is_empty());
        }
    }

    #[test]
    fn a_stamp_of_another_copy_is_none_of_this_one_however_late_it_comes() {
        let mut departures = Departures::default();
        let (before, late) = waiting(&mut departures);
        let (peer, trailer) = waiting(&mut departures);
        assert_eq!(late[12..], trailer[12..], "both are the first of a lease");
        let mut other = trailer;
        other[14] += 1; // the next copy
        departures.left(&frame(14, TO, late), LEFT_NS);
        departures.left(&frame(14, TO, other), LEFT_NS);
        departures.left(&frame(14, [10, 0, 0, 7, 0x13, 0x89], trailer), LEFT_NS);
        departures.left(&frame(14, TO, trailer)[..60], LEFT_NS);
        departures.left(&[], LEFT_NS);
        for one in [&before, &peer] {
            assert_eq!(state(one).0, i32::MIN);
        }
        departures.left(&frame(14, TO, trailer), LEFT_NS);
        assert_eq!(state(&peer).0, 1_000);
    }

    #[test]
    fn stamps_that_never_come_take_no_more_room() {
        let mut departures = Departures::default();
        for at in 0..=MOST as u32 {
            let to = SocketAddr::from((at.to_be_bytes(), 5000));
            departures.expect(&Arc::new(Peer::new(to, u64::MAX)), [0; TRAILER]);
            assert!((1..=MOST).contains(&departures.inflight.len()));
        }
    }
}
