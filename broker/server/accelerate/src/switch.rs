//! The data plane in the kernel, for the controller: the rules, the hops to clients, and frames
//! that are sent in clients' names.

use nix::net::if_::if_nametoindex;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use crate::driver::{self, Driver, Watcher};
use crate::kernel::{Attach, Kernel};
use crate::neighbours::Neighbours;
use crate::packet::{Way, begun_publish};
use crate::plane::{Copy, Counts, Key, Plane, Refusal};
use crate::rules::{self, Broker, Event, Flags, Hop, Protocol, Reason, Subscriber, Topic};
use mqtick_net::failure::{Failure, Outcome};

const ALIVE_NS: u64 = 250_000_000;
const TURN: usize = 4096; // most events before other work gets its turn
const MOST_HOSTS: u16 = 16_384; // size of the kernel's table of hops
const MOST_CLIENTS: usize = 16_384; // size of the kernel's table of clients
/// If there is no room, clients that were silent for this time and have no part in a rule are
/// forgotten.
const SILENT_NS: u64 = 60_000_000_000;
const ROOM_NS: u64 = 1_000_000_000; // how often room is made
const TTL: u8 = 64;

/// The path of a client's frames to the broker.
struct Road {
    broker: SocketAddr,
    interface: u32,
    /// Destination and source MAC address, and the VLAN tag if there is one; without the EtherType
    /// of IP.
    head: Vec<u8>,
    heard_ns: u64,
}

/// A host with clients.
#[derive(Default)]
struct Host {
    number: u16,
    hop: Option<Hop>,
    /// If its frames go through a bridge: interface and VLAN where they come in, destination and
    /// source MAC address.
    came: Option<(u32, u16, [u8; 6], [u8; 6])>,
    /// Destination and source MAC address of the broker's frames to it.
    answered: Option<([u8; 6], [u8; 6])>,
}

/// How many packets that may change the receivers were processed.
///
/// Processors raise `seen` and write events concurrently, so events do not come in the order of
/// `seen`. Therefore events are counted.
#[derive(Debug, Default)]
struct Taken {
    /// The number of events that raised `seen`.
    count: u64,
    /// How often `seen` was raised without an event, up to the last restart of the controller.
    untold: u64,
    /// The value of `seen` at the last restart of the controller.
    floor: u64,
}

impl Taken {
    /// Count an event. Returns the mark up to which all is processed with it, and whether the
    /// controller has to process the event.
    fn take(&mut self, event: &Event) -> (u64, bool) {
        self.count += u64::from(event.raises);
        let is_news = event.seen > self.floor || (event.seen == self.floor && !event.raises);
        (self.done(), is_news)
    }

    /// The controller starts again. `untold` has to be read before `seen`.
    fn begin(&mut self, untold: u64, seen: u64) {
        (self.untold, self.floor) = (untold, seen);
    }

    fn done(&self) -> u64 {
        self.count + self.untold
    }
}

/// The kernel's data plane, for the brokers at one address: one of each protocol at most.
pub struct Switch {
    kernel: Kernel,
    brokers: Vec<Broker>,
    vlan: u16,
    broker_side: Option<u32>,
    attach: Attach,
    most_rules: usize,
    /// The hosts that get copies, by rule.
    rules: HashMap<Key, Vec<IpAddr>>,
    neighbours: Neighbours,
    hosts: HashMap<IpAddr, Host>,
    numbers: Vec<u16>,
    roads: HashMap<SocketAddr, Road>,
    kept_until_ns: HashMap<SocketAddr, u64>,
    room_ns: u64,
    /// The number of frames of clients for which there was no room.
    crowded: u64,
    ways_changed: bool,
    lost: u64,
    taken: Taken,
    mark: u64,
    done: u64,
    alive_ns: u64,
}

impl Switch {
    /// Load the programs. `broker_side`: the interface on the broker's side, if the broker is
    /// another host.
    ///
    /// # Errors
    /// The kernel's, with advice.
    pub fn new(
        interfaces: &[String],
        brokers: &[Broker],
        broker_side: Option<&str>,
        rules: usize,
    ) -> Outcome<Self> {
        let vlan = brokers.first().map_or(0, |one| one.vlan);
        let mut names: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        names.extend(broker_side.filter(|name| !interfaces.iter().any(|one| one == name)));
        let mut side = None;
        for name in &names {
            let index = if_nametoindex(*name)
                .map_err(|error| Failure::Failed(format!("{name}: {}.", error.desc())))?;
            if Some(*name) == broker_side {
                side = Some(index);
            }
        }
        let attach = Attach::best();
        let kernel = Kernel::start(&names, brokers, side.is_some(), attach).map_err(|error| {
            Failure::Failed(match error.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("another mqtick-accelerate is on {}.", names.join(", "))
                }
                _ => format!(
                    "the kernel's data plane cannot be used: {error}. It needs root and Linux 5.17; \
                     --proxy needs neither."
                ),
            })
        })?;
        let host = brokers.first().map(|one| one.address.ip());
        let host = host.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let neighbours = Neighbours::new(host, side)
            .map_err(|error| Failure::Failed(format!("the kernel's routes: {error}.")))?;
        Ok(Self {
            kernel,
            brokers: brokers.to_vec(),
            vlan,
            broker_side: side,
            attach,
            most_rules: rules,
            rules: HashMap::new(),
            neighbours,
            hosts: HashMap::new(),
            numbers: (0..MOST_HOSTS).rev().collect(),
            roads: HashMap::new(),
            kept_until_ns: HashMap::new(),
            room_ns: 0,
            crowded: 0,
            ways_changed: false,
            lost: 0,
            taken: Taken::default(),
            mark: 0,
            done: 0,
            alive_ns: 0,
        })
    }

    fn key(&self, key: &Key) -> rules::Key {
        let protocol = match key.topic {
            Topic::Name(_) => Protocol::MqttUdp,
            _ => Protocol::MqttSn,
        };
        let mut brokers = self.brokers.iter();
        let place = brokers.position(|one| one.protocol == protocol);
        rules::Key {
            // no broker has this number
            broker: place.and_then(|at| at.try_into().ok()).unwrap_or(u8::MAX),
            publisher: Some(key.publisher),
            topic: key.topic,
        }
    }

    fn is_broker(&self, address: SocketAddr) -> bool {
        self.brokers.iter().any(|one| one.address == address)
    }

    /// Note how frames of a client come, and determine the hop to it.
    fn learn(&mut self, event: &Event, knows: impl Fn(&SocketAddr) -> bool) {
        let client = event.source;
        if !self.has_room(&client) {
            self.make_room(event.at_ns, knows);
            if !self.has_room(&client) {
                self.crowded += 1;
                return;
            }
        }
        let is_new = !self.hosts.contains_key(&client.ip());
        if is_new {
            let Some(number) = self.numbers.pop() else {
                return;
            };
            let host = Host {
                number,
                ..Host::default()
            };
            self.hosts.insert(client.ip(), host);
        }
        let is_through = self.broker_side.is_some() && self.neighbours.is_port(event.interface);
        if let Some(host) = self.hosts.get_mut(&client.ip()) {
            let macs = event.macs().filter(|_| is_through);
            host.came = macs.map(|(to, from)| (event.interface, event.vlan, to, from));
        }
        self.follow(client.ip());
        if let Some(head) = event.frame.get(..12) {
            let mut head = head.to_vec();
            if event.vlan != 0 {
                head.extend([0x81, 0]);
                head.extend(event.vlan.to_be_bytes());
            }
            let road = Road {
                broker: event.destination,
                interface: event.interface,
                head,
                heard_ns: event.at_ns,
            };
            if self.roads.insert(client, road).is_none() {
                // From now on the kernel records when this client is heard.
                let _ = self.kernel.keep_back(client, self.vlan, 0);
            }
        }
    }

    fn has_room(&self, client: &SocketAddr) -> bool {
        self.roads.contains_key(client)
            || self.roads.len() < MOST_CLIENTS
                && (!self.numbers.is_empty() || self.hosts.contains_key(&client.ip()))
    }

    /// Forget clients without a part in a rule that were silent for long or that the broker does
    /// not know. So a flood of forged addresses does not displace clients.
    fn make_room(&mut self, now_ns: u64, knows: impl Fn(&SocketAddr) -> bool) {
        if now_ns.saturating_sub(self.room_ns) < ROOM_NS {
            return;
        }
        self.room_ns = now_ns;
        let receivers: HashSet<IpAddr> = self.rules.values().flatten().copied().collect();
        let publishers: HashSet<SocketAddr> = self.rules.keys().map(|key| key.publisher).collect();
        let (kernel, vlan, kept) = (&mut self.kernel, self.vlan, &self.kept_until_ns);
        self.roads.retain(|client, road| {
            let is_recent = now_ns.saturating_sub(road.heard_ns) < SILENT_NS;
            let stays = is_recent && knows(client)
                || kept.contains_key(client)
                || publishers.contains(client)
                || receivers.contains(&client.ip());
            if !stays {
                kernel.forget(*client, vlan);
            }
            stays
        });
        let hosts: HashSet<IpAddr> = self.roads.keys().map(SocketAddr::ip).collect();
        let numbers = &mut self.numbers;
        self.hosts.retain(|host, known| {
            let stays = hosts.contains(host) || receivers.contains(host);
            if !stays {
                numbers.push(known.number);
            }
            stays
        });
    }

    /// The present hop to a host.
    fn way(&mut self, to: IpAddr) -> Option<Hop> {
        let host = self.hosts.get(&to)?;
        let Some((interface, vlan, ours, theirs)) = host.came else {
            let way = self.neighbours.way(to)?;
            return Some(Hop {
                interface: way.interface,
                destination: way.destination,
                source: way.source,
                ttl: TTL,
                up: true,
                vlan: 0, // a VLAN interface adds its own tag
            });
        };
        // Through a bridge: copies take the path of the client's frames if the broker's frames to
        // it do.
        (host.answered == Some((theirs, ours))).then_some(Hop {
            interface,
            destination: theirs,
            source: ours,
            ttl: TTL,
            up: true,
            vlan,
        })
    }

    /// Update the hop to a host. If there is none, close all rules with copies for this host, so
    /// that their messages go through the broker.
    fn follow(&mut self, to: IpAddr) {
        let hop = self.way(to);
        let Some(host) = self.hosts.get_mut(&to) else {
            return;
        };
        if host.hop == hop {
            return;
        }
        let before = std::mem::replace(&mut host.hop, hop);
        let number = host.number;
        if let Some(before) = before {
            let down = Hop {
                up: false,
                ..before
            };
            let _ = self.kernel.set_hop(number, down);
        }
        if let Some(hop) = hop
            && self.kernel.set_hop(number, hop).is_ok()
        {
            self.ways_changed |= before.is_none();
            return;
        }
        host.hop = None;
        self.ways_changed = true;
        for (key, to_whom) in &self.rules {
            if to_whom.contains(&to) {
                let key = self.key(key);
                let _ = self.kernel.close(&key);
            }
        }
    }

    fn tell(&mut self, event: &Event, controller: &mut impl Watcher) {
        let (mark, is_news) = self.taken.take(event);
        // The first fragment was processed; later ones change nothing.
        if !is_news || event.reason == Reason::Rest {
            self.mark = mark;
            return;
        }
        // Frames from the broker leave this host, or come in on the broker's side.
        let is_brokers = match self.broker_side {
            None => event.at_egress,
            Some(side) => event.interface == side && !event.at_egress,
        };
        let way = if event.from_broker && is_brokers {
            Way::FromBroker
        } else {
            Way::ToBroker
        };
        let can_be_read = matches!(event.reason, Reason::Message | Reason::NoRule);
        if way == Way::ToBroker && can_be_read && !self.is_broker(event.source) {
            self.learn(event, |client| controller.knows(client));
        } else if way == Way::FromBroker
            && let Some(host) = self.hosts.get_mut(&event.destination.ip())
        {
            host.answered = event.macs();
            self.follow(event.destination.ip());
        }
        let broker = self.brokers.get(usize::from(event.broker));
        let protocol = broker.map_or(Protocol::MqttSn, |one| one.protocol);
        let is_begun = event.reason == Reason::Fragment && protocol == Protocol::MqttSn;
        let begun = is_begun.then(|| begun_publish(&event.message));
        let seen = driver::Event {
            protocol,
            way,
            from: event.source,
            to: event.destination,
            datagram: match &begun {
                Some(begun) => begun.as_deref(),
                None => can_be_read.then_some(&event.message),
            },
            mark,
            kept_back: event.kept_back,
        };
        controller.event(event.at_ns, &seen, self);
    }

    fn set_rule(&mut self, key: Key, copies: &[Copy], flags: Flags) -> Result<(), Refusal> {
        if self.rules.len() >= self.most_rules && !self.rules.contains_key(&key) {
            self.delete(&key);
            return Err(Refusal::Full);
        }
        let subscribers = copies
            .iter()
            .map(|copy| {
                let host = self.hosts.get(&copy.to.ip());
                let host = host.filter(|host| host.hop.is_some());
                host.map(|host| Subscriber {
                    address: copy.to,
                    topic: copy.topic,
                    hop: host.number,
                })
                .ok_or(Refusal::Unreachable(copy.to))
            })
            .collect::<Result<Vec<_>, _>>();
        let subscribers = subscribers.inspect_err(|_| self.delete(&key))?;
        let in_kernel = self.key(&key);
        let set = self.kernel.set(&in_kernel, &subscribers, flags);
        if let Err(error) = set {
            self.delete(&key);
            return Err(match error.kind() {
                io::ErrorKind::InvalidInput => Refusal::Copies,
                _ => Refusal::Full,
            });
        }
        let hosts: HashSet<IpAddr> = copies.iter().map(|copy| copy.to.ip()).collect();
        for host in &hosts {
            self.neighbours.confirm(*host);
        }
        self.rules.insert(key, hosts.into_iter().collect());
        Ok(())
    }

    fn events_lost(&self) -> u64 {
        let counters = self.kernel.counters().unwrap_or_default();
        let found = counters.iter().find(|(name, _)| *name == "events_lost");
        found.map_or(0, |(_, count)| *count)
    }
}

impl Driver for Switch {
    fn name(&self) -> String {
        match self.attach {
            Attach::Tcx => "kernel, tc-BPF by TCX".to_owned(),
            Attach::Clsact => "kernel, tc-BPF by clsact".to_owned(),
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.kernel.counters().unwrap_or_default();
        counters.push(("crowded", self.crowded));
        counters
    }

    #[allow(unsafe_code)]
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the ring buffer, which `self.kernel` owns.
        unsafe { BorrowedFd::borrow_raw(self.kernel.events_fd()) }
    }

    fn work(&mut self, controller: &mut impl Watcher) -> Outcome<()> {
        for _ in 0..TURN {
            let Some(event) = self.kernel.next_event() else {
                break;
            };
            self.tell(&event, controller);
        }
        // Lost events are missing in the count, so nothing has been copied since.
        let lost = self.events_lost();
        if lost != self.lost {
            let fault = |error| Failure::Failed(format!("the kernel's data plane: {error}."));
            let untold = self.kernel.untold().map_err(fault)?;
            self.taken.begin(untold, self.kernel.seen().map_err(fault)?);
            self.lost = lost;
            controller.lost(crate::clock::now_ns(), self.taken.done(), self);
        }
        controller.settle(crate::clock::now_ns(), self);
        if self.mark != self.done && self.kernel.done(self.mark).is_ok() {
            self.done = self.mark;
        }
        Ok(())
    }

    fn upkeep(&mut self, now_ns: u64) -> Outcome<bool> {
        if now_ns.saturating_sub(self.alive_ns) >= ALIVE_NS {
            self.alive_ns = now_ns;
            self.kernel
                .alive()
                .map_err(|error| Failure::Failed(format!("the kernel's data plane: {error}.")))?;
        }
        let news = self
            .neighbours
            .changes()
            .map_err(|error| Failure::Failed(format!("the kernel's routes: {error}.")))?;
        if news {
            for host in self.hosts.keys().copied().collect::<Vec<_>>() {
                self.follow(host);
            }
            let receivers: HashSet<IpAddr> = self.rules.values().flatten().copied().collect();
            for host in receivers {
                self.neighbours.confirm(host);
            }
        }
        let (kernel, vlan) = (&mut self.kernel, self.vlan);
        self.kept_until_ns.retain(|client, until_ns| {
            let is_over = now_ns >= *until_ns;
            if is_over {
                let _ = kernel.keep_back(*client, vlan, 0);
            }
            !is_over
        });
        Ok(std::mem::take(&mut self.ways_changed))
    }

    fn lend(&mut self, until_ns: u64) -> Outcome<()> {
        self.kernel
            .lend(until_ns)
            .map_err(|error| Failure::Failed(format!("the kernel's data plane: {error}.")))
    }
}

impl Plane for Switch {
    fn set(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal> {
        let flags = Flags {
            residence,
            ..Flags::default()
        };
        self.set_rule(key, copies, flags)
    }

    fn set_marked(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal> {
        let flags = Flags {
            residence,
            broker: true,
            mark: true,
            ..Flags::default()
        };
        self.set_rule(key, copies, flags)
    }

    fn open(&mut self, key: &Key, slow: u64) {
        let is_up = |host| self.hosts.get(host).is_some_and(|host| host.hop.is_some());
        if self.rules.get(key).is_some_and(|to| to.iter().all(is_up)) {
            let key = self.key(key);
            let _ = self.kernel.open(&key, slow);
        }
    }

    fn delete(&mut self, key: &Key) {
        let in_kernel = self.key(key);
        let _ = self.kernel.remove(&in_kernel);
        self.rules.remove(key);
    }

    fn counts(&self, key: &Key) -> Counts {
        let counted = self.kernel.rule_counters(&self.key(key));
        let counted = counted.unwrap_or_default();
        Counts {
            slow: counted.slow,
            fast: counted.hits,
            copies: counted.copies,
        }
    }

    fn heard_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.kernel.heard_ns(*client, self.vlan)
    }

    fn served_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.kernel.served_ns(*client, self.vlan)
    }

    fn keep_back(&mut self, client: &SocketAddr, answers: u32, until_ns: u64) {
        if !self.roads.contains_key(client) {
            return; // no question was sent in its name
        }
        let _ = self.kernel.keep_back(*client, self.vlan, answers);
        if answers == 0 {
            self.kept_until_ns.remove(client);
        } else {
            self.kept_until_ns.insert(*client, until_ns);
        }
    }

    fn is_quiet(&self) -> bool {
        self.kernel.seen().is_ok_and(|seen| seen == self.done)
    }

    fn to_broker(&mut self, client: &SocketAddr, datagram: &[u8]) -> bool {
        let Some(road) = self.roads.get(client) else {
            return false; // not until it is heard again
        };
        frame(&road.head, *client, road.broker, datagram)
            .is_none_or(|frame| self.kernel.inject(road.interface, &frame, true).is_ok())
    }

    fn done(&mut self, mark: u64) {
        self.mark = self.mark.max(mark);
    }
}

/// A frame that contains a UDP datagram.
fn frame(head: &[u8], from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(8 + datagram.len()).ok()?;
    let mut udp = Vec::new();
    udp.extend(from.port().to_be_bytes());
    udp.extend(to.port().to_be_bytes());
    udp.extend(length.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(datagram);
    let mut pseudo = Vec::new();
    let mut out = head.to_vec();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let addresses = [from.octets(), to.octets()].concat();
            let mut ip = vec![0x45, 0];
            ip.extend((20 + length).to_be_bytes());
            ip.extend([0, 0, 0x40, 0, TTL, 17, 0, 0]);
            ip.extend(&addresses);
            let sum = checksum(&ip);
            put(&mut ip, 10, sum);
            out.extend([0x08, 0x00]);
            out.extend(&ip);
            pseudo.extend(addresses);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let addresses = [from.octets(), to.octets()].concat();
            out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            out.extend(length.to_be_bytes());
            out.extend([17, TTL]);
            out.extend(&addresses);
            pseudo.extend(addresses);
        }
        _ => return None,
    }
    pseudo.extend([0, 17]);
    pseudo.extend(length.to_be_bytes());
    pseudo.extend(&udp);
    let sum = checksum(&pseudo);
    put(&mut udp, 6, if sum == 0 { u16::MAX } else { sum });
    out.extend(udp);
    Some(out)
}

fn put(octets: &mut [u8], at: usize, value: u16) {
    if let Some(place) = octets.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|pair| match pair {
        [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
        [high] => u32::from(*high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn event(seen: u64, raises: bool) -> Event {
        let nobody = SocketAddr::from(([0; 4], 0));
        Event {
            at_ns: 0,
            seen,
            raises,
            interface: 0,
            vlan: 0,
            broker: 0,
            reason: Reason::Message,
            at_egress: false,
            from_broker: false,
            kept_back: false,
            frame: Vec::new(),
            source: nobody,
            destination: nobody,
            message: Vec::new(),
        }
    }

    #[test]
    fn an_event_that_comes_late_is_missed_until_it_is_there() {
        let mut taken = Taken::default();
        for (count, seen) in (1..).zip([1, 3, 4]) {
            assert_eq!(taken.take(&event(seen, true)), (count, true));
        }
        assert_eq!(taken.take(&event(4, false)), (3, true));
        assert_eq!(taken.take(&event(2, true)), (4, true));
    }

    #[test]
    fn what_was_lost_counts_from_the_new_beginning_on_and_no_sooner() {
        let mut taken = Taken::default();
        taken.take(&event(1, true));
        // The second event found no room; the third is on its way when the controller starts again.
        assert!(taken.done() < 3);
        taken.begin(1, 3);
        assert!(taken.done() < 3);
        assert_eq!(taken.take(&event(3, true)), (3, false));
        // One more event is lost, and one more has come since.
        assert_eq!(taken.take(&event(5, true)), (4, true));
    }

    #[test]
    fn a_frame_in_a_clients_name_has_right_checksums() {
        for (from, to) in [
            ("10.0.0.2:5000", "10.0.0.1:1883"),
            ("[fd00::2]:5000", "[fd00::1]:1883"),
        ] {
            let [from, to] = [from, to].map(|one| one.parse::<SocketAddr>().unwrap());
            let frame = frame(&[0; 12], from, to, &[2, 0x16]).unwrap();
            let (addresses, udp) = if from.is_ipv4() {
                assert_eq!(checksum(&frame[14..34]), 0);
                (&frame[26..34], &frame[34..])
            } else {
                (&frame[22..54], &frame[54..])
            };
            let pseudo = [addresses, &[0, 17, 0, 10], udp].concat();
            assert_eq!(checksum(&pseudo), 0);
        }
    }
}
