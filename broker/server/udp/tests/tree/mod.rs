//! A small engine: the broker's topic tree, without limits.

use mqtick_topics::{Match, Retained, Tree};
use mqtick_udp::{Engine, Publication, Published};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddrV4;

#[derive(Default)]
pub struct Broker {
    pub sent: Vec<(SocketAddrV4, Vec<u8>)>,
    tree: Tree<u64, SocketAddrV4>,
    retained: Retained<Vec<u8>>,
    known: HashMap<u64, (SocketAddrV4, u64, usize)>, // address, end and number of subscriptions
    next: u64,
}

impl Broker {
    pub fn leases(&self) -> usize {
        self.known.len()
    }

    pub fn subscriptions(&self) -> usize {
        let subscriptions: usize = self.known.values().map(|one| one.2).sum();
        assert_eq!(self.tree.len(), subscriptions);
        self.tree.len()
    }

    pub fn most_of_one(&self) -> usize {
        self.known.values().map(|one| one.2).max().unwrap_or(0)
    }

    pub fn ends_ns(&self) -> impl Iterator<Item = u64> {
        self.known.values().map(|one| one.1)
    }
}

fn packet(first: u8, topic: &str, payload: &[u8]) -> Vec<u8> {
    let length = 2 + topic.len() + payload.len();
    let mut octets = vec![first];
    if length < 128 {
        octets.push(length as u8);
    } else {
        octets.extend([length as u8 | 0x80, (length >> 7) as u8]);
    }
    [
        &octets[..],
        &[0, topic.len() as u8],
        topic.as_bytes(),
        payload,
    ]
    .concat()
}

impl Engine for Broker {
    type Subscriber = u64;

    fn send(&mut self, to: SocketAddrV4, datagram: &[u8]) {
        self.sent.push((to, datagram.into()));
    }

    fn begin(&mut self, who: SocketAddrV4, end_ns: u64) -> u64 {
        self.next += 1;
        self.known.insert(self.next, (who, end_ns, 0));
        self.next
    }

    fn renew(&mut self, who: &u64, end_ns: u64) {
        self.known.get_mut(who).expect("somebody known").1 = end_ns;
    }

    fn end(&mut self, who: u64, filters: HashSet<Box<str>>) {
        let filters: Vec<&str> = filters.iter().map(|one| &**one).collect();
        self.unsubscribe(&who, &filters);
        self.known.remove(&who);
    }

    fn may_subscribe(&self, _: &str) -> bool {
        true
    }

    fn subscribe(&mut self, who: &u64, filters: &[&str]) {
        let one = self.known.get_mut(who).expect("somebody known");
        one.2 += filters.len();
        for filter in filters {
            assert!(self.tree.subscribe(filter, *who, one.0).is_none());
        }
    }

    fn unsubscribe(&mut self, who: &u64, filters: &[&str]) {
        self.known.get_mut(who).expect("somebody known").2 -= filters.len();
        for filter in filters {
            assert!(self.tree.unsubscribe(filter, who).is_some());
        }
    }

    fn publish(&mut self, message: &Publication<'_>) -> Published {
        let (topic, payload, retain) = (message.topic, message.payload, message.retain);
        let octets = packet(0x30, topic, payload);
        self.tree.matches(topic, &mut |found| {
            if let Match::One(_, to) = found {
                self.sent.push((*to, octets.clone()));
            }
        });
        if retain && payload.is_empty() {
            self.retained.remove(topic);
        } else if retain {
            self.retained.set(topic, payload.into());
        }
        Published::Sent
    }

    fn retained(
        &mut self,
        who: &u64,
        filter: &str,
        most: usize,
        packet: fn(&str, &[u8]) -> Option<Vec<u8>>,
    ) -> usize {
        let to = self.known.get(who).expect("somebody known").0;
        let before = self.sent.len();
        self.retained.matching(filter, &mut |topic, payload| {
            if self.sent.len() < before + most {
                self.sent
                    .extend(packet(topic, payload).map(|one| (to, one)));
            }
        });
        self.sent.len() - before
    }
}
