//! The broker of mqtt-udp: the server's own code with a simple list of subscriptions.

use std::collections::{BTreeMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use mqtick_accelerate::names::{has_wildcards, matches};
use mqtick_udp::{Engine, Publication, Published, Server, Settings, Subnet};

const SECOND_NS: u64 = 1_000_000_000;
pub const OWN_LEASE_S: u16 = 10;

#[derive(Default)]
struct Tree {
    subscriptions: Vec<(SocketAddrV4, String)>,
    retained: BTreeMap<String, Vec<u8>>,
    out: Vec<(SocketAddr, Vec<u8>)>,
}

pub struct Broker {
    server: Server<SocketAddrV4>,
    tree: Tree,
    began_ns: u64,
}

impl Broker {
    /// Each broker has a secret of its own.
    pub fn new(now_ns: u64, number: u8) -> Self {
        let any = Subnet {
            first: Ipv4Addr::UNSPECIFIED,
            bits: 0,
        };
        let settings = Settings {
            secret: [number; 16],
            lease_s: OWN_LEASE_S,
            publishers: vec![any],
            subscribers: vec![any],
            subscriptions_a_subscriber: 4,
            ..Settings::default()
        };
        Self {
            server: Server::new(settings),
            tree: Tree::default(),
            began_ns: now_ns,
        }
    }

    /// Serve a datagram. Returns what the broker sends.
    pub fn serve(
        &mut self,
        now_ns: u64,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Vec<(SocketAddr, Vec<u8>)> {
        let SocketAddr::V4(from) = from else {
            unreachable!("clients of mqtt-udp have addresses of IPv4")
        };
        let now_ns = now_ns - self.began_ns + 64 * SECOND_NS;
        self.server.datagram(now_ns, from, datagram, &mut self.tree);
        std::mem::take(&mut self.tree.out)
    }
}

impl Engine for Tree {
    type Subscriber = SocketAddrV4;

    fn send(&mut self, to: SocketAddrV4, datagram: &[u8]) {
        self.out.push((to.into(), datagram.to_vec()));
    }
    fn begin(&mut self, who: SocketAddrV4, _end_ns: u64) -> SocketAddrV4 {
        who
    }
    fn renew(&mut self, _who: &SocketAddrV4, _end_ns: u64) {}
    fn end(&mut self, who: SocketAddrV4, _filters: HashSet<Box<str>>) {
        self.subscriptions.retain(|(one, _)| *one != who);
    }
    fn may_subscribe(&self, filter: &str) -> bool {
        filter != "secret"
    }
    fn subscribe(&mut self, who: &SocketAddrV4, filters: &[&str]) {
        let new = filters.iter().map(|one| (*who, (*one).to_owned()));
        self.subscriptions.extend(new);
    }
    fn unsubscribe(&mut self, who: &SocketAddrV4, filters: &[&str]) {
        self.subscriptions
            .retain(|(one, filter)| one != who || !filters.contains(&filter.as_str()));
    }
    fn publish(&mut self, message: &Publication<'_>) -> Published {
        if message.retain {
            let payload = message.payload.to_vec();
            self.retained.insert(message.topic.to_owned(), payload);
        }
        let packet = packet(0x30, message.topic, message.payload);
        for is_wild in [false, true] {
            for (to, filter) in &self.subscriptions {
                if has_wildcards(filter) == is_wild && matches(filter, message.topic) {
                    self.out.push(((*to).into(), packet.clone()));
                }
            }
        }
        Published::Sent
    }
    fn retained(
        &mut self,
        who: &SocketAddrV4,
        filter: &str,
        _most: usize,
        packet: fn(&str, &[u8]) -> Option<Vec<u8>>,
    ) -> usize {
        let kept = self.retained.iter();
        let kept = kept.filter(|(name, _)| matches(filter, name));
        let kept: Vec<_> = kept.filter_map(|(name, kept)| packet(name, kept)).collect();
        let count = kept.len();
        let to = SocketAddr::from(*who);
        self.out.extend(kept.into_iter().map(|one| (to, one)));
        count
    }
}

/// A PUBLISH.
pub fn packet(first: u8, topic: &str, payload: &[u8]) -> Vec<u8> {
    let length = (2 + topic.len() + payload.len()) as u8;
    let head = [first, length, 0, topic.len() as u8];
    [&head, topic.as_bytes(), payload].concat()
}
