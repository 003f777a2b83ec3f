//! The kernel's keys, values and events as octets, laid out as in `broker/bpf/tables.h`.

use std::io::{self};
use std::net::{IpAddr, SocketAddr};

use crate::rules::{Event, Key, Reason, Subscriber, Topic};

const MESSAGE_HEADER: usize = 32;

/// An array of octets.
pub type Octets<const N: usize> = [u8; N];

/// These parts one after another, padded with zeros.
pub fn octets<const N: usize, const PARTS: usize>(parts: [&[u8]; PARTS]) -> Octets<N> {
    let mut octets = [0; N];
    for (to, from) in octets.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    octets
}

/// `N` octets at this place; zeros if there are fewer.
pub fn part<const N: usize>(octets: &[u8], at: usize) -> Octets<N> {
    octets
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .copied()
        .unwrap_or([0; N])
}

pub fn address(address: IpAddr) -> Octets<16> {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

pub fn endpoint(one: SocketAddr, vlan: u16) -> Octets<20> {
    octets([
        &address(one.ip()),
        &one.port().to_be_bytes(),
        &vlan.to_ne_bytes(),
    ])
}

/// The kind and the id of a topic.
fn topic(topic: &Topic) -> (u8, Octets<2>) {
    match topic {
        Topic::Registered(id) => (0, id.to_be_bytes()),
        Topic::Predefined(id) => (1, id.to_be_bytes()),
        Topic::Short(name) => (2, *name),
        Topic::Name(_) => (3, [0; 2]),
    }
}

pub fn rule_key(key: &Key) -> io::Result<Octets<88>> {
    let publisher = key
        .publisher
        .map_or([0; 20], |publisher| endpoint(publisher, 0));
    let name = match &key.topic {
        Topic::Name(name) => name.octets(),
        _ => &[],
    };
    let (kind, id) = topic(&key.topic);
    let kind = [key.broker, kind, name.len() as u8, 0];
    Ok(octets([&part::<18>(&publisher, 0), &id, &kind, name]))
}

pub fn subscriber(one: &Subscriber) -> io::Result<Octets<24>> {
    let (kind, id) = topic(&one.topic);
    let port = one.address.port().to_be_bytes();
    Ok(octets([
        &address(one.address.ip()),
        &port,
        &id,
        &one.hop.to_ne_bytes(),
        &[kind],
    ]))
}

pub fn event(octets: &[u8]) -> Option<Event> {
    let word = |at| u16::from_ne_bytes(part(octets, at));
    let [broker, _, reason, flags] = part(octets, 24);
    let frame = octets.get(MESSAGE_HEADER..)?.get(..word(22).into())?;
    let reason = match reason {
        0 => Reason::Message,
        1 => Reason::Fragment,
        2 => Reason::Header,
        _ => Reason::NoRule,
    };
    let tagged = frame.get(12..14)? == [0x81, 0];
    let ip = frame.get(if tagged { 18 } else { 14 }..)?;
    let be = |at| u16::from_be_bytes(part(ip, at));
    let is_v4 = ip.first()? >> 4 == 4;
    let (source, destination): (IpAddr, IpAddr) = match is_v4 {
        true => (part::<4>(ip, 12).into(), part::<4>(ip, 16).into()),
        false => (part::<16>(ip, 8).into(), part::<16>(ip, 24).into()),
    };
    // Where UDP begins, and the fragment's offset in units of 8 octets.
    let (udp, offset) = match (is_v4, reason) {
        (true, Reason::Fragment) => (usize::from(ip.first()? & 15) * 4, be(6) & 0x1fff),
        (false, Reason::Fragment) => (48, if *ip.get(6)? == 44 { be(42) >> 3 } else { 1 }),
        _ => (if is_v4 { 20 } else { 40 }, 0),
    };
    let reason = if offset > 1 { Reason::Rest } else { reason };
    let rest = ip.get(udp + 8..).filter(|_| offset == 0);
    let has_ports = match reason {
        Reason::Message | Reason::NoRule => true,
        Reason::Fragment => rest.is_some_and(|rest| rest.len() >= 8),
        Reason::Header | Reason::Rest => false,
    };
    let [from, to] = if has_ports {
        [be(udp), be(udp + 2)]
    } else {
        [0, 0]
    };
    let length = usize::from(be(udp + 4)).saturating_sub(8);
    let message = match reason {
        Reason::Fragment => rest,
        _ => rest.and_then(|rest| rest.get(..length)),
    };
    Some(Event {
        at_ns: u64::from_ne_bytes(part(octets, 0)),
        seen: u64::from_ne_bytes(part(octets, 8)),
        interface: u32::from_ne_bytes(part(octets, 16)),
        vlan: word(20),
        broker,
        reason,
        at_egress: flags & 1 != 0,
        from_broker: flags & 2 != 0,
        kept_back: flags & 4 != 0,
        raises: flags & 8 != 0,
        source: SocketAddr::new(source, from),
        destination: SocketAddr::new(destination, to),
        message: message.filter(|_| has_ports).unwrap_or_default().to_vec(),
        frame: frame.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_whatever_its_octets_are() {
        let mut octets = vec![0; MESSAGE_HEADER];
        for length in 0..200_u16 {
            octets.truncate(MESSAGE_HEADER);
            octets[22..24].copy_from_slice(&length.to_ne_bytes());
            for octet in 0..length {
                octets.push((octet % 7 * 37) as u8);
            }
            if let Some(event) = event(&octets) {
                assert_eq!(event.frame.len(), usize::from(length));
            }
        }
    }
}
