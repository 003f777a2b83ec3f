//! Gives a gateway whatever may come: its bounds hold, what it sends can be read, and no unproven
//! address gets more than three times what it sent.

use crate::tree::{Body, Broker};
use mqtick_sn::{Gateway, Message, Qos, Settings, decode};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

const SECOND_NS: u64 = 1_000_000_000;

/// What may happen.
#[derive(Clone, Debug)]
pub enum Act {
    /// A datagram from a port.
    Says(u16, Vec<u8>),
    /// Somebody else publishes: topic, payload, QoS, RETAIN.
    Publishes(String, Vec<u8>, usize, bool),
    /// So many seconds.
    Waits(u64),
}

/// A gateway with narrow bounds.
pub struct Watched {
    gateway: Gateway<Body, u64>,
    broker: Broker,
    came: HashMap<u16, usize>,
    left: HashMap<u16, usize>,
    proven: HashSet<u16>,
}

impl Watched {
    pub fn new() -> Self {
        Self {
            gateway: Gateway::new(Settings {
                clients: 3,
                topics: 5,
                subscriptions: 2,
                messages: 4,
                predefined: [(7, "a/b".into())].into(),
                publishes_a_second: 50,
                ..Settings::default()
            }),
            broker: Broker::default(),
            came: HashMap::new(),
            left: HashMap::new(),
            proven: HashSet::new(),
        }
    }

    /// Fail where something panics or a bound is not kept.
    pub fn act(&mut self, act: Act) {
        let Self {
            gateway, broker, ..
        } = self;
        match act {
            Act::Says(port, mut octets) => {
                // Who answers what it got: only then is anything acknowledged.
                if let Some((id, message)) = broker.registers.get(&port)
                    && octets.get(1) == Some(&0x0b)
                    && octets.len() == 7
                {
                    octets[2..4].copy_from_slice(&id.to_be_bytes());
                    octets[4..6].copy_from_slice(&message.to_be_bytes());
                    self.proven.insert(port);
                }
                *self.came.entry(port).or_default() += octets.len();
                let from = SocketAddr::from(([10, 0, 0, 2], port));
                gateway.datagram(broker.now_s * SECOND_NS, from, &octets, broker);
            }
            Act::Publishes(topic, payload, qos, retain) => {
                let qos = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce][qos];
                broker.deliver(&topic, &payload, qos, retain);
            }
            Act::Waits(seconds) => {
                for _ in 0..seconds {
                    broker.now_s += 1;
                    gateway.tick(broker.now_s * SECOND_NS, broker);
                }
            }
        }
        for (to, octets) in broker.take() {
            let is_clients = match decode(&octets) {
                Ok((message, _)) => {
                    matches!(message, Message::Connect { .. } | Message::Subscribe { .. })
                }
                Err(error) => panic!("{octets:?}: {error:?}"),
            };
            assert!(!is_clients, "{octets:?}");
            *self.left.entry(to.port()).or_default() += octets.len();
        }
        for (port, left) in &self.left {
            let most = 3 * self.came.get(port).copied().unwrap_or(0);
            let may = self.proven.contains(port) || *left <= most;
            assert!(may, "{port}: {left} of {most}");
        }
        let (here, sessions) = gateway.sizes();
        assert!(here <= sessions && sessions <= 3);
        assert!(broker.most_of_one() <= 2);
        assert_eq!(broker.sessions(), sessions);
    }

    /// Nothing is left of anybody.
    pub fn end(mut self) {
        self.gateway.clear(&mut self.broker);
        assert_eq!(self.broker.subscriptions(), 0);
    }
}

/// Octets as acts: the first one says which; a datagram's length stands before it.
#[allow(dead_code)] // not in each program that has this file
pub fn check(mut octets: &[u8]) {
    let mut watched = Watched::new();
    while let [what, rest @ ..] = octets {
        octets = rest;
        let act = match what >> 6 {
            0 | 1 => {
                let [length, rest @ ..] = rest else { break };
                let length = usize::from(*length).min(rest.len());
                let (datagram, rest) = rest.split_at(length);
                octets = rest;
                Act::Says(5000 + u16::from(what & 3), datagram.into())
            }
            2 => {
                let topic = [
                    "a/b",
                    "a",
                    "ab",
                    "a long name of a topic, for little credit",
                ];
                let topic = topic[usize::from(what & 3)];
                let qos = usize::from(what >> 2 & 3).min(2);
                Act::Publishes(topic.into(), b"x".into(), qos, what & 0x10 != 0)
            }
            _ => Act::Waits(u64::from(what & 0x3f)),
        };
        watched.act(act);
    }
    watched.end();
}
