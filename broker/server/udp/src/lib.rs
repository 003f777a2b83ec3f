//! MQTT over UDP (`broker/spec/mqtt-udp.md`): the protocol, without sockets, clocks and topic
//! trees. A datagram goes in; answers and changes come out.
//!
//! The [`Engine`] delivers messages, so that subscribers over UDP and over TCP share one tree.

#![forbid(unsafe_code)]

mod counters;
mod packet;
mod proof;

use mqtick_topics::matches;
use packet::{Frame, Id, Request, packet};
use proof::Tokens;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddrV4};

pub use counters::{Count, NAMES};
pub use packet::DATAGRAM;

const SECOND_NS: u64 = 1_000_000_000;
const KEPT: usize = 1024; // most octets of a retained message's payload
const MOST_RETAINED: usize = 64; // retained messages that are sent for one filter
// Per subscriber and second: SUBSCRIBE packets that retained messages follow, and such messages.
const SUBSCRIBES: usize = 32;
const RETAINED: usize = 32 * MOST_RETAINED;
const PUBLISHERS: usize = 1 << 16; // most addresses whose messages are counted
const OWN: usize = 64; // copies of its own messages in a second, after which a subscriber is tested
// addresses that may belong to echo services, each kept for MIRROR_NS
const MIRRORS: usize = 1 << 12;
const MIRROR_NS: u64 = 60 * SECOND_NS;

/// A subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Its first address.
    pub first: Ipv4Addr,
    /// The length of its prefix, 0 to 32 bits.
    pub bits: u8,
}

impl Subnet {
    fn has(&self, address: Ipv4Addr) -> bool {
        let differ = self.first.to_bits() ^ address.to_bits();
        differ
            .checked_shr(32 - u32::from(self.bits.min(32)))
            .unwrap_or(0)
            == 0
    }
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The key of the tokens.
    pub secret: [u8; 16],
    /// The length of a lease for which the subscriber states none.
    pub lease_s: u16,
    /// The subnets of clients that may publish.
    pub publishers: Vec<Subnet>,
    /// The subnets of clients that may subscribe.
    pub subscribers: Vec<Subnet>,
    /// Whether clients on this machine (127.0.0.0/8) may do either.
    pub loopback: bool,
    /// Source ports below this one are refused, so that no echo service can prove its address.
    pub lowest_port: u16,
    /// The server's own port: datagrams from this source port are refused. 0: none.
    pub own_port: u16,
    /// The most messages of one address in a second; 0: no limit.
    pub publishes_a_second: u32,
    /// The most leases at a time.
    pub leases: usize,
    /// The most leases of one address at a time.
    pub subscribers_an_address: usize,
    /// The most subscriptions at a time.
    pub subscriptions: usize,
    /// The most subscriptions of one subscriber.
    pub subscriptions_a_subscriber: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            secret: [0; 16],
            lease_s: 60,
            publishers: Vec::new(),
            subscribers: Vec::new(),
            loopback: false,
            lowest_port: 1,
            own_port: 0,
            publishes_a_second: 0,
            leases: 65_536,
            subscribers_an_address: 1024,
            subscriptions: 65_536,
            subscriptions_a_subscriber: 32,
        }
    }
}

/// The result of publishing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It is delivered, and retained if it was to be.
    Sent,
    /// It is delivered, but there was no room to retain it.
    NotKept,
    /// The publisher may not publish to this topic.
    NotAllowed,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication<'a> {
    /// Its publisher.
    pub from: SocketAddrV4,
    /// Its topic.
    pub topic: &'a str,
    /// Its payload.
    pub payload: &'a [u8],
    /// Whether it is to be retained.
    pub retain: bool,
    /// Whether it claims that all subscribers over UDP already have their copies.
    pub marked: bool,
}

/// The broker behind the server.
pub trait Engine {
    /// The engine's handle of a subscriber.
    type Subscriber;

    /// Send a datagram.
    fn send(&mut self, to: SocketAddrV4, datagram: &[u8]);
    /// A lease begins; it will end at `end_ns`.
    fn begin(&mut self, who: SocketAddrV4, end_ns: u64) -> Self::Subscriber;
    /// The end of the lease has changed, to later or sooner.
    fn renew(&mut self, who: &Self::Subscriber, end_ns: u64);
    /// The lease has ended, with all these subscriptions.
    fn end(&mut self, who: Self::Subscriber, filters: HashSet<Box<str>>);
    /// Whether a client without a user name may subscribe to this.
    fn may_subscribe(&self, filter: &str) -> bool;
    /// Add subscriptions; all of them are new.
    fn subscribe(&mut self, who: &Self::Subscriber, filters: &[&str]);
    /// Remove subscriptions; all of them exist.
    fn unsubscribe(&mut self, who: &Self::Subscriber, filters: &[&str]);
    /// Deliver a message to all subscribers, and retain it if it says so.
    fn publish(&mut self, message: &Publication<'_>) -> Published;
    /// Whether a mark on this publisher's messages is to be believed: they may have been copied to
    /// all subscribers over UDP on the way to the broker (`broker/spec/acceleration.md`, 13).
    fn believes(&self, _from: SocketAddrV4, _topic: &str) -> bool {
        false
    }
    /// Tell the program that makes those copies that all datagrams before this one were served, if
    /// it sent these octets. Returns whether it did.
    fn say_served(&mut self, _octets: &[u8]) -> bool {
        false
    }
    /// Send the retained messages that match a filter, at most `most`. `packet` makes a packet of a
    /// topic and a payload, or returns `None` if the message is to be skipped. Returns how many
    /// were sent.
    fn retained(
        &mut self,
        who: &Self::Subscriber,
        filter: &str,
        most: usize,
        packet: fn(&str, &[u8]) -> Option<Vec<u8>>,
    ) -> usize;
}

struct Lease<S> {
    length_ns: u64,
    end_ns: u64,
    filters: HashSet<Box<str>>,
    subscriber: S,
    second: u64,
    subscribes: usize, // SUBSCRIBE packets in that second
    told: usize,       // retained messages that were sent in that second
    own: usize,        // copies of its own messages in that second
}

impl<S> Lease<S> {
    fn begin_second(&mut self, second: u64) {
        if self.second != second {
            (self.second, self.subscribes) = (second, 0);
            (self.told, self.own) = (0, 0);
        }
    }
}

/// An address that has returned a test: an echo service, or a program that was restarted on a port
/// with much traffic, and took the test for its own challenge. After a second time it is taken for
/// an echo service.
struct Mirror {
    end_ns: u64, // when it is forgotten
    is_sure: bool,
}

/// Serves datagrams. All its tables are bounded by [`Settings`].
pub struct Server<S> {
    settings: Settings,
    tokens: Tokens,
    tests: Tokens,
    mirrors: HashMap<SocketAddrV4, Mirror>,
    leases: HashMap<SocketAddrV4, Lease<S>>,
    ends: BTreeSet<(u64, SocketAddrV4)>,
    of_address: HashMap<Ipv4Addr, usize>,
    subscriptions: usize,
    second: u64,
    published: HashMap<Ipv4Addr, u32>, // messages in that second
    counters: [u64; NAMES.len()],
}

impl<S> Server<S> {
    /// A server without leases.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            tokens: Tokens::new(settings.secret),
            tests: Tokens::new(settings.secret.map(|octet| !octet)),
            mirrors: HashMap::new(),
            settings,
            leases: HashMap::new(),
            ends: BTreeSet::new(),
            of_address: HashMap::new(),
            subscriptions: 0,
            second: 0,
            published: HashMap::new(),
            counters: [0; NAMES.len()],
        }
    }

    /// The counters, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.counters)
    }

    /// The numbers of leases and of subscriptions.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.leases.len(), self.subscriptions)
    }

    /// Serve one datagram. `now_ns`: the time since the server was made; it never decreases.
    pub fn datagram(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        octets: &[u8],
        engine: &mut impl Engine<Subscriber = S>,
    ) {
        self.end_leases(now_ns, engine);
        if let Err(refusal) = self.serve(now_ns, from, octets, engine) {
            self.count(refusal);
        }
    }

    /// When the next lease ends.
    #[must_use]
    pub fn next_end_ns(&self) -> Option<u64> {
        self.ends.first().map(|(end_ns, _)| *end_ns)
    }

    /// End the leases that have expired.
    pub fn end_leases(&mut self, now_ns: u64, engine: &mut impl Engine<Subscriber = S>) {
        while let Some(&(end_ns, who)) = self.ends.first()
            && end_ns <= now_ns
        {
            self.forget(who, engine);
            self.count(Count::LeasesEnded);
        }
    }

    /// End all leases, even if a panic has left the tables inconsistent.
    pub fn clear(&mut self, engine: &mut impl Engine<Subscriber = S>) {
        self.ends.clear();
        self.of_address.clear();
        self.subscriptions = 0;
        for (_, lease) in std::mem::take(&mut self.leases) {
            self.count(Count::LeasesEnded);
            engine.end(lease.subscriber, lease.filters);
        }
    }

    fn count(&mut self, what: Count) {
        if let Some(counter) = self.counters.get_mut(what as usize) {
            *counter += 1;
        }
    }

    fn serve(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        octets: &[u8],
        engine: &mut impl Engine<Subscriber = S>,
    ) -> Result<(), Count> {
        let net = from.ip().octets()[0];
        let (port, settings) = (from.port(), &self.settings);
        if port == 0 || port < settings.lowest_port || port == settings.own_port {
            return Err(Count::Source);
        }
        let is_mirror = |one: &Mirror| one.is_sure && now_ns < one.end_ns;
        let is_mirror = self.mirrors.get(&from).is_some_and(is_mirror);
        if net == 0 || net >= 224 || (net == 127 && !self.settings.loopback) || is_mirror {
            return Err(Count::Source);
        }
        let frame = Frame::read(octets)?;
        let is_believed = || match frame.request() {
            Ok(Request::Publish { topic, .. }) => engine.believes(from, topic),
            _ => false,
        };
        if frame.marked && !is_believed() {
            return Err(Count::Qos);
        }
        let subnets = match frame.publishes() {
            true => &self.settings.publishers,
            false => &self.settings.subscribers,
        };
        if !subnets.iter().any(|subnet| subnet.has(*from.ip())) {
            return Err(Count::Subnet);
        }
        let request = frame.request()?;
        let known = self.leases.contains_key(&from);
        match request {
            Request::Publish {
                topic,
                payload,
                retain,
            } => {
                if self.is_too_much(now_ns, *from.ip()) {
                    return Err(Count::Rate);
                }
                self.test(now_ns, from, topic, engine);
                let message = Publication {
                    from,
                    topic,
                    payload,
                    retain,
                    marked: frame.marked,
                };
                return self.publish(message, engine);
            }
            Request::Say(octets) => {
                let is_ours = engine.say_served(octets);
                return is_ours.then_some(()).ok_or(Count::Reserved);
            }
            Request::Prove(token) => return self.prove(now_ns, from, token, engine),
            Request::Connect(_) | Request::Subscribe(..) if !known => {
                self.count(Count::Challenges);
                let token = self.tokens.token(from, now_ns);
                engine.send(from, &packet::challenge(token));
            }
            _ if !known => return Err(Count::Stranger),
            Request::Connect(Err(code)) => engine.send(from, &packet(0x20, &[&[0, code]])),
            Request::Connect(Ok(keep_alive_s)) => {
                let length_ns = match keep_alive_s {
                    0 => u64::from(self.settings.lease_s) * SECOND_NS,
                    keep_alive_s => u64::from(keep_alive_s) * SECOND_NS / 2 * 3,
                };
                if let Some(lease) = self.leases.get_mut(&from) {
                    lease.length_ns = length_ns;
                }
                self.renew(now_ns, from, engine);
                engine.send(from, &packet(0x20, &[&[0, 0]]));
            }
            Request::Subscribe(id, filters) => {
                self.subscribe(now_ns, from, id, &filters, engine);
            }
            Request::Unsubscribe(id, filters) => {
                self.unsubscribe(from, &filters, engine);
                engine.send(from, &packet(0xb0, &[&id]));
            }
            Request::Ping => {
                self.renew(now_ns, from, engine);
                engine.send(from, &packet(0xd0, &[]));
            }
            Request::Disconnect => self.forget(from, engine),
        }
        Ok(())
    }

    /// Count a message of this address. Returns whether it exceeds the limit for this second.
    fn is_too_much(&mut self, now_ns: u64, who: Ipv4Addr) -> bool {
        let most = self.settings.publishes_a_second;
        if most == 0 {
            return false;
        }
        let second = now_ns / SECOND_NS;
        if self.second != second {
            self.second = second;
            self.published = HashMap::new();
        }
        if self.published.len() >= PUBLISHERS && !self.published.contains_key(&who) {
            return true;
        }
        let count = self.published.entry(who).or_insert(0);
        *count = count.saturating_add(1);
        *count > most
    }

    /// Test a subscriber that gets many copies of its own messages: send it a token, which only an
    /// echo service returns (clause 8). If it does, its datagrams are refused.
    fn test(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        topic: &str,
        engine: &mut impl Engine<Subscriber = S>,
    ) {
        let Some(lease) = self.leases.get_mut(&from) else {
            return;
        };
        lease.begin_second(now_ns / SECOND_NS);
        let before = lease.own / OWN;
        let matching = lease.filters.iter().filter(|one| matches(one, topic));
        lease.own += matching.count();
        if lease.own / OWN > before {
            self.count(Count::Challenges);
            engine.send(from, &packet::challenge(self.tests.token(from, now_ns)));
        }
    }

    fn publish(
        &mut self,
        mut message: Publication<'_>,
        engine: &mut impl Engine<Subscriber = S>,
    ) -> Result<(), Count> {
        let (fits, retain) = (message.payload.len() <= KEPT, message.retain);
        message.retain &= fits;
        match engine.publish(&message) {
            Published::NotAllowed => return Err(Count::Access),
            Published::Sent if retain && !fits => self.count(Count::Pool),
            Published::Sent => {}
            Published::NotKept => self.count(Count::Pool),
        }
        Ok(())
    }

    fn prove(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        token: &[u8],
        engine: &mut impl Engine<Subscriber = S>,
    ) -> Result<(), Count> {
        if self.leases.contains_key(&from) && self.tests.is_good(token, from, now_ns) {
            self.forget(from, engine);
            if self.mirrors.len() >= MIRRORS {
                self.mirrors.retain(|_, one| now_ns < one.end_ns);
            }
            let before = self.mirrors.get(&from).map(|one| one.end_ns);
            if before.is_some() || self.mirrors.len() < MIRRORS {
                let mirror = Mirror {
                    end_ns: now_ns.saturating_add(MIRROR_NS),
                    is_sure: before.is_some_and(|end_ns| now_ns < end_ns),
                };
                self.mirrors.insert(from, mirror);
            }
            return Err(Count::Source);
        }
        if !self.tokens.is_good(token, from, now_ns) {
            return Err(Count::Proof);
        }
        if self.leases.contains_key(&from) {
            return Ok(());
        }
        let of_address = self.of_address.get(from.ip()).copied().unwrap_or(0);
        if of_address >= self.settings.subscribers_an_address
            || self.leases.len() >= self.settings.leases
        {
            engine.send(from, &packet(0x20, &[&[0, 3]]));
            return Err(Count::Full);
        }
        let length_ns = u64::from(self.settings.lease_s) * SECOND_NS;
        let end_ns = now_ns.saturating_add(length_ns);
        let lease = Lease {
            length_ns,
            end_ns,
            filters: HashSet::new(),
            subscriber: engine.begin(from, end_ns),
            second: 0,
            subscribes: 0,
            told: 0,
            own: 0,
        };
        self.leases.insert(from, lease);
        self.ends.insert((end_ns, from));
        self.of_address.insert(*from.ip(), of_address + 1);
        Ok(())
    }

    fn renew(&mut self, now_ns: u64, who: SocketAddrV4, engine: &mut impl Engine<Subscriber = S>) {
        if let Some(lease) = self.leases.get_mut(&who) {
            self.ends.remove(&(lease.end_ns, who));
            lease.end_ns = now_ns.saturating_add(lease.length_ns);
            self.ends.insert((lease.end_ns, who));
            engine.renew(&lease.subscriber, lease.end_ns);
        }
    }

    fn forget(&mut self, who: SocketAddrV4, engine: &mut impl Engine<Subscriber = S>) {
        let Some(lease) = self.leases.remove(&who) else {
            return;
        };
        self.ends.remove(&(lease.end_ns, who));
        self.subscriptions -= lease.filters.len();
        if let Some(count) = self.of_address.get_mut(who.ip()) {
            *count -= 1;
            if *count == 0 {
                self.of_address.remove(who.ip());
            }
        }
        engine.end(lease.subscriber, lease.filters);
    }

    fn subscribe(
        &mut self,
        now_ns: u64,
        from: SocketAddrV4,
        id: Id,
        filters: &[(&[u8], u8)],
        engine: &mut impl Engine<Subscriber = S>,
    ) {
        self.renew(now_ns, from, engine);
        let (mut codes, mut granted, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for (filter, qos) in filters {
            match self.add(from, filter, *qos, engine) {
                Ok((filter, is_new)) => {
                    codes.push(0);
                    if !granted.contains(&filter) {
                        granted.push(filter);
                    }
                    if is_new {
                        new.push(filter);
                    }
                }
                Err(refusal) => {
                    codes.push(0x80);
                    self.count(refusal);
                }
            }
        }
        let Some(lease) = self.leases.get_mut(&from) else {
            return;
        };
        if !new.is_empty() {
            engine.subscribe(&lease.subscriber, &new);
        }
        engine.send(from, &packet(0x90, &[&id, &codes]));
        lease.begin_second(now_ns / SECOND_NS);
        lease.subscribes += 1;
        if lease.subscribes > SUBSCRIBES {
            return self.count(Count::Rate);
        }
        for filter in granted {
            let most = MOST_RETAINED.min(RETAINED - lease.told);
            if most == 0 {
                return self.count(Count::Rate);
            }
            let told = engine.retained(&lease.subscriber, filter, most, packet::retained);
            lease.told += told.min(most);
        }
    }

    /// Add a subscription, unless it exists. Returns whether it is new; the caller tells the
    /// engine.
    fn add<'f>(
        &mut self,
        who: SocketAddrV4,
        filter: &'f [u8],
        qos: u8,
        engine: &impl Engine<Subscriber = S>,
    ) -> Result<(&'f str, bool), Count> {
        let filter = packet::filter(filter)
            .filter(|_| qos <= 2)
            .ok_or(Count::Filter)?;
        let lease = self.leases.get_mut(&who).ok_or(Count::Stranger)?;
        if lease.filters.contains(filter) {
            return Ok((filter, false));
        }
        if lease.filters.len() >= self.settings.subscriptions_a_subscriber {
            return Err(Count::Share);
        }
        if self.subscriptions >= self.settings.subscriptions {
            return Err(Count::Table);
        }
        if !engine.may_subscribe(filter) {
            return Err(Count::Access);
        }
        lease.filters.insert(filter.into());
        self.subscriptions += 1;
        Ok((filter, true))
    }

    fn unsubscribe(
        &mut self,
        who: SocketAddrV4,
        filters: &[(&[u8], u8)],
        engine: &mut impl Engine<Subscriber = S>,
    ) {
        let Some(lease) = self.leases.get_mut(&who) else {
            return;
        };
        let texts = filters.iter().map(|(filter, _)| filter);
        let texts = texts.map(|filter| std::str::from_utf8(filter).unwrap_or_default());
        let gone: Vec<_> = texts.filter(|one| lease.filters.remove(*one)).collect();
        if !gone.is_empty() {
            self.subscriptions -= gone.len();
            engine.unsubscribe(&lease.subscriber, &gone);
        }
    }
}
