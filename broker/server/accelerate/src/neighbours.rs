//! The kernel's routes, neighbours and interfaces, by rtnetlink.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

const DONE: u16 = 3;
const ERROR: u16 = 2;
const NEW_LINK: u16 = 16;
const DELETED_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;
const DELETED_NEIGHBOUR: u16 = 29;
const GET_NEIGHBOUR: u16 = 30;

const REQUEST: u16 = 1;
const MULTI: u16 = 2;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
/// Groups: links, neighbours, routes and rules of both families, and next-hop objects.
const GROUPS: u32 = 1 | 4 | 0x40 | 0x80 | 0x400 | 1 << 18 | 1 << 31;

const ETHERNET: u16 = 1; // type of interface
const UP_AND_RUNNING: u32 = 0x1 | 0x40;
const UNICAST: u8 = 1; // type of route
const STALE: u16 = 4;
/// States in which the kernel sends to a neighbour: reachable, stale, delay, probe, noarp,
/// permanent.
const VALID: u16 = 2 | STALE | 8 | 0x10 | 0x40 | 0x80;
const USE: u8 = 1; // NTF_USE: as if a packet were sent to the neighbour
const ROOM: usize = 1 << 16;
const BUFFER: usize = 4 << 20; // octets; the kernel may allow less

/// The first hop to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The index of the interface.
    pub interface: u32,
    /// The MAC address of the host, or of the router on the way to it.
    pub destination: [u8; 6],
    /// The MAC address of the interface.
    pub source: [u8; 6],
}

struct Link {
    mac: Option<[u8; 6]>, // if it is an Ethernet interface that is up
    is_port: bool,
}

#[derive(Clone, Copy)]
struct Neighbour {
    mac: Option<[u8; 6]>,
    state: u16,
}

/// A copy of the kernel's tables.
pub struct Neighbours {
    news: OwnedFd,
    asks: OwnedFd,
    asked: u32,
    /// The packets' source, and the interface where they come in if they are forwarded.
    from: IpAddr,
    through: Option<u32>,
    links: HashMap<u32, Link>,
    neighbours: HashMap<(u32, IpAddr), Neighbour>,
    /// Interface and next host to destinations that were asked for.
    routes: HashMap<IpAddr, Option<(u32, IpAddr)>>,
}

impl Neighbours {
    /// For packets with this source. `through`: the interface where they come in, if they are
    /// forwarded.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(from: IpAddr, through: Option<u32>) -> io::Result<Self> {
        let open = |flags, groups| -> io::Result<OwnedFd> {
            let one = socket(
                AddressFamily::Netlink,
                SockType::Raw,
                flags | SockFlag::SOCK_CLOEXEC,
                SockProtocol::NetlinkRoute,
            )?;
            bind(one.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
            let _ = setsockopt(&one, sockopt::RcvBufForce, &BUFFER);
            Ok(one)
        };
        let mut this = Self {
            news: open(SockFlag::SOCK_NONBLOCK, GROUPS)?,
            asks: open(SockFlag::empty(), 0)?,
            asked: 0,
            from,
            through,
            links: HashMap::new(),
            neighbours: HashMap::new(),
            routes: HashMap::new(),
        };
        setsockopt(&this.asks, sockopt::ReceiveTimeout, &TimeVal::seconds(2))?;
        this.read_all()?;
        Ok(this)
    }

    fn read_all(&mut self) -> io::Result<()> {
        self.links.clear();
        self.neighbours.clear();
        self.routes.clear();
        for (what, room) in [(GET_LINK, 16), (GET_NEIGHBOUR, 12)] {
            for (kind, body) in self.ask(what, DUMP, &vec![0; room])? {
                self.take(kind, &body);
            }
        }
        Ok(())
    }

    /// Process notifications. Returns whether there were any.
    ///
    /// # Errors
    /// The kernel's.
    pub fn changes(&mut self) -> io::Result<bool> {
        let mut room = vec![0; ROOM];
        let mut changed = false;
        loop {
            match recv(self.news.as_raw_fd(), &mut room, MsgFlags::empty()) {
                Ok(length) => {
                    changed = true;
                    for message in messages(room.get(..length).unwrap_or_default()) {
                        self.take(message.kind, message.body);
                    }
                }
                Err(Errno::EAGAIN) => return Ok(changed),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => {
                    changed = true;
                    self.read_all()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(&mut self, kind: u16, body: &[u8]) {
        match kind {
            NEW_LINK | DELETED_LINK => {
                if let Some((index, link)) = link(body) {
                    self.routes.clear();
                    if kind == NEW_LINK {
                        self.links.insert(index, link);
                    } else {
                        self.links.remove(&index);
                    }
                }
            }
            NEW_NEIGHBOUR | DELETED_NEIGHBOUR => {
                if let Some((place, neighbour)) = neighbour(body) {
                    if kind == NEW_NEIGHBOUR {
                        self.neighbours.insert(place, neighbour);
                    } else {
                        self.neighbours.remove(&place);
                    }
                }
            }
            _ => self.routes.clear(),
        }
    }

    /// Whether an interface is a port of a bridge.
    #[must_use]
    pub fn is_port(&self, interface: u32) -> bool {
        self.links.get(&interface).is_some_and(|link| link.is_port)
    }

    /// The first hop to a host, if the kernel knows it now.
    pub fn way(&mut self, to: IpAddr) -> Option<Way> {
        let (interface, next) = self.next(to)?;
        let neighbour = self.neighbours.get(&(interface, next))?;
        Some(Way {
            interface,
            destination: neighbour.mac.filter(|_| neighbour.state & VALID != 0)?,
            source: self.links.get(&interface)?.mac?,
        })
    }

    /// Have the kernel probe the next host on the way if its entry is stale.
    pub fn confirm(&mut self, to: IpAddr) {
        let Some((interface, next)) = self.next(to) else {
            return;
        };
        let found = self.neighbours.get(&(interface, next));
        if found.is_some_and(|one| one.state & STALE != 0) {
            let mut body = vec![family(next), 0, 0, 0];
            body.extend(interface.to_ne_bytes());
            body.extend([0, 0, USE, 0]);
            attribute(&mut body, 1, &octets(next));
            let _ = self.ask(NEW_NEIGHBOUR, ACK, &body);
        }
    }

    fn next(&mut self, to: IpAddr) -> Option<(u32, IpAddr)> {
        if let Some(known) = self.routes.get(&to) {
            return *known;
        }
        let found = self.route(to).ok().flatten();
        self.routes.insert(to, found);
        found
    }

    fn route(&mut self, to: IpAddr) -> io::Result<Option<(u32, IpAddr)>> {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let mut body = vec![family(to), bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        attribute(&mut body, 1, &octets(to));
        attribute(&mut body, 2, &octets(self.from));
        if let Some(through) = self.through {
            attribute(&mut body, 3, &through.to_ne_bytes());
        }
        let answers = self.ask(GET_ROUTE, 0, &body)?;
        let found = answers.iter().find(|(kind, _)| *kind == NEW_ROUTE);
        Ok(found.and_then(|(_, body)| route(body, to)))
    }

    /// Send a request, and return the types and bodies of the answers.
    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<(u16, Vec<u8>)>> {
        self.asked = self.asked.wrapping_add(1);
        let length = u32::try_from(16 + body.len()).map_err(io::Error::other)?;
        let mut request = length.to_ne_bytes().to_vec();
        request.extend(kind.to_ne_bytes());
        request.extend((REQUEST | flags).to_ne_bytes());
        request.extend(self.asked.to_ne_bytes());
        request.extend([0; 4]);
        request.extend(body);
        send(self.asks.as_raw_fd(), &request, MsgFlags::empty())?;
        let mut room = vec![0; ROOM];
        let mut answers = Vec::new();
        loop {
            let length = recv(self.asks.as_raw_fd(), &mut room, MsgFlags::empty())?;
            for message in messages(room.get(..length).unwrap_or_default()) {
                if message.number != self.asked {
                    continue;
                }
                match message.kind {
                    DONE => return Ok(answers),
                    ERROR => match i32::from_ne_bytes(part(message.body, 0)) {
                        0 => return Ok(answers),
                        error => return Err(io::Error::from_raw_os_error(-error)),
                    },
                    kind => answers.push((kind, message.body.to_vec())),
                }
                if message.flags & MULTI == 0 {
                    return Ok(answers);
                }
            }
            if length == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    number: u32,
    body: &'a [u8],
}

fn messages(mut octets: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*octets.first_chunk()?) as usize;
        let message = octets.get(..length)?;
        let one = Message {
            kind: u16::from_ne_bytes(part(message, 4)),
            flags: u16::from_ne_bytes(part(message, 6)),
            number: u32::from_ne_bytes(part(message, 8)),
            body: message.get(16..)?,
        };
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(one)
    })
}

fn attributes(mut octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*octets.first_chunk()?));
        let one = octets.get(..length)?;
        let kind = u16::from_ne_bytes(part(one, 2)) & 0x3fff;
        let value = one.get(4..)?;
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = 4 + value.len() as u16; // short: values are addresses and indices
    to.extend(length.to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(value);
}

fn link(body: &[u8]) -> Option<(u32, Link)> {
    let found: HashMap<_, _> = attributes(body.get(16..)?).collect();
    let is_up = u32::from_ne_bytes(part(body, 8)) & UP_AND_RUNNING == UP_AND_RUNNING;
    let is_ethernet = u16::from_ne_bytes(part(body, 2)) == ETHERNET;
    let mac = found.get(&1).and_then(|mac| (*mac).try_into().ok());
    let link = Link {
        mac: mac.filter(|_| is_up && is_ethernet),
        is_port: found.contains_key(&10),
    };
    Some((u32::from_ne_bytes(part(body, 4)), link))
}

fn neighbour(body: &[u8]) -> Option<((u32, IpAddr), Neighbour)> {
    let family = *body.first()?;
    let found: HashMap<_, _> = attributes(body.get(12..)?).collect();
    let neighbour = Neighbour {
        mac: found.get(&2).and_then(|mac| (*mac).try_into().ok()),
        state: u16::from_ne_bytes(part(body, 8)),
    };
    let address = address(family, found.get(&1)?)?;
    Some(((u32::from_ne_bytes(part(body, 4)), address), neighbour))
}

/// The interface and the next host of a route to another host.
fn route(body: &[u8], to: IpAddr) -> Option<(u32, IpAddr)> {
    let family = *body.first()?;
    if body.get(7) != Some(&UNICAST) {
        return None;
    }
    let found: HashMap<_, _> = attributes(body.get(12..)?).collect();
    let interface = u32::from_ne_bytes((*found.get(&4)?).try_into().ok()?);
    // RTA_VIA, for a router of the other family, begins with the family.
    let next = match (found.get(&5), found.get(&18)) {
        (Some(router), _) => address(family, router)?,
        (None, Some(router)) => address(*router.first()?, router.get(2..)?)?,
        (None, None) => to,
    };
    Some((interface, next))
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 2 } else { 10 }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn address(family: u8, octets: &[u8]) -> Option<IpAddr> {
    match family {
        2 => Some(<[u8; 4]>::try_from(octets).ok()?.into()),
        10 => Some(<[u8; 16]>::try_from(octets).ok()?.into()),
        _ => None,
    }
}

/// `N` octets at this place; zeros if there are fewer.
fn part<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    let found = octets.get(at..).and_then(<[u8]>::first_chunk);
    found.copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn body(fixed: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = fixed.to_vec();
        for (kind, value) in attributes {
            attribute(&mut body, *kind, value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        body
    }

    #[test]
    fn a_route_through_a_router_leads_to_its_neighbour() {
        let to = IpAddr::from([10, 1, 0, 9]);
        let fixed = [2, 32, 0, 0, 0, 0, 0, UNICAST, 0, 0, 0, 0];
        let oif = 7_u32.to_ne_bytes();
        let of = |attributes: &[(u16, &[u8])]| route(&body(&fixed, attributes), to);
        assert_eq!(of(&[(4, &oif)]), Some((7, to)));
        let router = IpAddr::from([10, 0, 0, 254]);
        assert_eq!(of(&[(5, &[10, 0, 0, 254]), (4, &oif)]), Some((7, router)));
        let via = [&[10, 0][..], &[0xfe; 16]].concat();
        assert_eq!(of(&[(18, &via), (4, &oif)]), Some((7, [0xfe; 16].into())));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_route_that_leads_to_no_other_host_is_none() {
        for kind in [0, 2, 3, 5, 6, 7, 8] {
            let fixed = [2, 32, 0, 0, 0, 0, 0, kind, 0, 0, 0, 0];
            let octets = body(&fixed, &[(4, &1_u32.to_ne_bytes())]);
            assert_eq!(route(&octets, [127, 0, 0, 1].into()), None);
        }
    }

    proptest! {
        #[test]
        fn whatever_the_kernel_might_say_is_read(octets in proptest::collection::vec(0_u8.., 0..200)) {
            for message in messages(&octets) {
                prop_assert!(message.body.len() <= octets.len());
            }
            let _ = (link(&octets), neighbour(&octets), route(&octets, [1, 2, 3, 4].into()));
        }
    }
}
