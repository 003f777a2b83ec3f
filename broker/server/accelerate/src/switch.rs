//! The controller's data plane in the kernel: its rules there, the ways to clients, and frames in
//! their names.

use nix::net::if_::if_nametoindex;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use crate::controller::{self, Controller, Way};
use crate::kernel::{Attach, Kernel};
use crate::plane::{Copy, Counts, Key, Plane, Refusal};
use crate::program::{Driver, Failure, Outcome};
use crate::rules::{self, Broker, Event, Flags, Hop, Protocol, Reason, Subscriber};

const ALIVE_NS: u64 = 250_000_000;
const TURN: usize = 4096; // events until something else has its turn
const MOST_HOPS: usize = 4096;
const TTL: u8 = 64;

/// How frames of a client reach the broker.
struct Road {
    interface: u32,
    /// Destination and source MAC, and the VLAN's tag if there is one, up to the type of IP.
    head: Vec<u8>,
}

/// The kernel's data plane, for one broker.
pub struct Switch {
    kernel: Kernel,
    broker: SocketAddr,
    vlan: u16,
    broker_side: Option<u32>,
    attach: Attach,
    rules: usize,
    set: usize,
    hops: HashMap<(u32, IpAddr), (u16, Hop)>,
    ways: HashMap<SocketAddr, u16>,
    roads: HashMap<SocketAddr, Road>,
    kept_until_ns: HashMap<SocketAddr, u64>,
    ways_changed: bool,
    lost: u64,
    mark: u64,
    done: u64,
    alive_ns: u64,
}

impl Switch {
    /// Load it. `broker_side`: the interface behind which the broker is, if it is another host.
    ///
    /// # Errors
    /// The kernel's, and what to do then.
    pub fn new(
        interfaces: &[String],
        broker: SocketAddr,
        broker_side: Option<&str>,
        vlan: u16,
        rules: usize,
    ) -> Outcome<Self> {
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
        let protocol = Protocol::MqttSn;
        let address = broker;
        let brokers = [Broker {
            address,
            vlan,
            protocol,
        }];
        let attach = Attach::best();
        let kernel = Kernel::start(&names, &brokers, side.is_some(), attach).map_err(|error| {
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
        Ok(Self {
            kernel,
            broker,
            vlan,
            broker_side: side,
            attach,
            rules,
            set: 0,
            hops: HashMap::new(),
            ways: HashMap::new(),
            roads: HashMap::new(),
            kept_until_ns: HashMap::new(),
            ways_changed: false,
            lost: 0,
            mark: 0,
            done: 0,
            alive_ns: 0,
        })
    }

    fn key(key: &Key) -> rules::Key {
        rules::Key {
            broker: 0,
            publisher: Some(key.publisher),
            topic: topic(key.topic),
        }
    }

    /// Copies to a client take the way back of its frames.
    fn learn(&mut self, event: &Event) {
        let client = event.source;
        let Some(mut hop) = event.way_back() else {
            return;
        };
        hop.ttl = TTL;
        let place = (event.interface, client.ip());
        let count = self.hops.len();
        let number = match self.hops.get(&place) {
            Some((number, old)) if *old == hop => *number,
            Some((number, _)) => *number,
            None if count >= MOST_HOPS => return,
            None => u16::try_from(count).unwrap_or(u16::MAX),
        };
        let is_new = self.hops.get(&place).is_none_or(|(_, old)| *old != hop);
        if is_new && self.kernel.set_hop(number, hop).is_err() {
            return;
        }
        self.hops.insert(place, (number, hop));
        if self.ways.insert(client, number) != Some(number) {
            self.ways_changed = true;
            // From now on the kernel keeps in mind when this client is heard.
            let _ = self.kernel.keep_back(client, self.vlan, 0);
        }
        let end = if event.frame.get(12..14) == Some(&[0x81, 0]) {
            16
        } else {
            12
        };
        if let Some(head) = event.frame.get(..end) {
            let road = Road {
                interface: event.interface,
                head: head.to_vec(),
            };
            self.roads.insert(client, road);
        }
    }

    fn tell(&mut self, event: &Event, controller: &mut Controller) {
        // From the broker is what left this host, or came in where the broker is.
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
        if way == Way::ToBroker && can_be_read && event.source != self.broker {
            self.learn(event);
        }
        let seen = controller::Event {
            way,
            from: event.source,
            to: event.destination,
            datagram: can_be_read.then_some(&event.message),
            mark: event.seen,
            kept_back: event.kept_back,
        };
        controller.event(event.at_ns, &seen, self);
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
        self.kernel.counters().unwrap_or_default()
    }

    #[allow(unsafe_code)]
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: it is the ring's, which lives as long as the kernel's tables that we own.
        unsafe { BorrowedFd::borrow_raw(self.kernel.events_fd()) }
    }

    fn work(&mut self, controller: &mut Controller) -> Outcome<()> {
        for _ in 0..TURN {
            let Some(event) = self.kernel.next_event() else {
                break;
            };
            self.tell(&event, controller);
        }
        // Only now is said how far we are: what was lost, was lost before that.
        let lost = self.events_lost();
        if lost != self.lost {
            self.lost = lost;
            while self.kernel.next_event().is_some() {}
            let seen = self.kernel.seen().unwrap_or(self.mark);
            controller.lost(crate::clock::now_ns(), seen, self);
        }
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
}

impl Plane for Switch {
    fn set(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal> {
        if self.set >= self.rules {
            return Err(Refusal::Full);
        }
        let subscribers = copies
            .iter()
            .map(|copy| {
                let hop = self.ways.get(&copy.to).copied();
                hop.map(|hop| Subscriber {
                    address: copy.to,
                    topic: topic(copy.topic),
                    hop,
                })
                .ok_or(Refusal::Unreachable(copy.to))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let flags = Flags {
            residence,
            ..Flags::default()
        };
        let set = self.kernel.set(&Self::key(&key), &subscribers, flags);
        set.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Refusal::Copies,
            _ => Refusal::Full,
        })?;
        self.set += 1;
        Ok(())
    }

    fn open(&mut self, key: &Key, slow: u64) {
        let _ = self.kernel.open(&Self::key(key), slow);
    }

    fn delete(&mut self, key: &Key) {
        if self.kernel.remove(&Self::key(key)).is_ok() {
            self.set = self.set.saturating_sub(1);
        }
    }

    fn counts(&self, key: &Key) -> Counts {
        let counted = self.kernel.rule_counters(&Self::key(key));
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

    fn keep_back(&mut self, client: &SocketAddr, until_ns: u64) {
        let answers = u32::from(until_ns != 0);
        let _ = self.kernel.keep_back(*client, self.vlan, answers);
        if until_ns == 0 {
            self.kept_until_ns.remove(client);
        } else {
            self.kept_until_ns.insert(*client, until_ns);
        }
    }

    fn is_quiet(&self) -> bool {
        self.kernel.seen().is_ok_and(|seen| seen == self.done)
    }

    fn to_broker(&mut self, client: &SocketAddr, datagram: &[u8]) {
        let Some(road) = self.roads.get(client) else {
            return;
        };
        if let Some(frame) = frame(&road.head, *client, self.broker, datagram) {
            let _ = self.kernel.inject(road.interface, &frame, true);
        }
    }

    fn done(&mut self, mark: u64) {
        self.mark = self.mark.max(mark);
    }
}

fn topic(topic: mqtick_sn::Topic) -> rules::Topic {
    match topic {
        mqtick_sn::Topic::Registered(id) => rules::Topic::Registered(id),
        mqtick_sn::Topic::Predefined(id) => rules::Topic::Predefined(id),
        mqtick_sn::Topic::Short(name) => rules::Topic::Short(name),
    }
}

/// A frame with a datagram of UDP in it.
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

/// The Internet's (RFC 1071).
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
