//! Feeds a gateway with any events. Checks its bounds, that all it sends can be decoded, and that
//! no unproven address gets more than three times the octets that it sent.

use crate::tree::{Body, Broker};
use mqtick_sn::{Gateway, Message, Qos, Settings, decode};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;

const SECOND_NS: u64 = 1_000_000_000;

/// An event.
#[derive(Clone, Debug)]
pub enum Act {
    /// A datagram from a port.
    Says(u16, Vec<u8>),
    /// Another client of the broker publishes: topic, payload, QoS, RETAIN.
    Publishes(String, Vec<u8>, usize, bool),
    /// Time passes, in seconds.
    Waits(u64),
}

/// A gateway with low limits.
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

    /// Process one event, and check all bounds.
    pub fn act(&mut self, act: Act) {
        let Self {
            gateway, broker, ..
        } = self;
        match act {
            Act::Says(port, mut octets) => {
                // Put the ids of the last REGISTER into a REGACK: random ones would never fit.
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

    /// End all sessions, and check that nothing is left.
    pub fn end(mut self) {
        self.gateway.clear(&mut self.broker);
        assert_eq!(self.broker.subscriptions(), 0);
    }
}

/// Process octets as events. The first octet of each is its type; a datagram's length precedes it.
#[allow(dead_code)] // some programs include this file without using it
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
