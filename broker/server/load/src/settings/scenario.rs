//! A scenario: groups of publishers and subscribers.

use mqtick_packet::Qos;
use serde::{Deserialize, Serialize};

/// The benchmark as it was published (Banno et al., IEICE Trans. E102-D(12), 2019): 5 topics, each
/// with 10 publishers and 10 subscribers, 32 octets, QoS 0, and a publisher with 5 subscribers that
/// measure the latency.
pub const PUBLISHED: &str = "
seconds = 80
ramp_up_s = 10
ramp_down_s = 10
[[group]]
name = \"t\"
topics = 5
publishers = 10
subscribers = 10
payload = 32
interval_us = 10000
[[group]]
name = \"l\"
kind = \"latency\"
subscribers = 5
payload = 32
interval_us = 1000000
";

/// A load, and how long it lasts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// How long messages are sent, in s, ramps included.
    pub seconds: f64,
    /// Time at the beginning that does not count, in s.
    pub ramp_up_s: f64,
    /// Time at the end that does not count, in s.
    pub ramp_down_s: f64,
    /// The publishers and subscribers.
    pub group: Vec<Group>,
    /// The machines that clients run on; none: this one.
    pub machine: Vec<Machine>,
    /// The number of this machine; None: there is only this one.
    #[serde(skip)]
    pub own: Option<usize>,
}

/// A machine on which clients run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    /// Its name in this scenario.
    pub name: String,
    /// Its address for ssh; None: it is this machine.
    pub ssh: Option<String>,
    /// The name or path of mqtick-load there.
    pub program: String,
    /// The command that tells its clock's interval, run without a shell; `none`: it is not known.
    pub clock: String,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            name: String::new(),
            ssh: None,
            program: "mqtick-load".to_owned(),
            clock: "mqtick-client now --json".to_owned(),
        }
    }
}

/// Publishers and subscribers that are alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// Its name; part of its topics.
    pub name: String,
    /// Its purpose.
    pub kind: Kind,
    /// Number of topics.
    pub topics: usize,
    /// Publishers of each topic.
    pub publishers: usize,
    /// Subscribers of each topic.
    pub subscribers: usize,
    /// QoS of the publishers.
    pub qos: u8,
    /// QoS of the subscriptions; None: that of the publishers.
    pub subscriber_qos: Option<u8>,
    /// Octets of a message.
    pub payload: usize,
    /// Time between two messages of a publisher, in us; 0: as fast as the broker takes them.
    pub interval_us: f64,
    /// Most messages of a publisher.
    pub messages: Option<u64>,
    /// Messages of a publisher that may be on their way: the next ones leave `interval_us` after
    /// copies have come. 0: a schedule without windows.
    pub window: u64,
    /// Messages of a write, where there is no schedule.
    pub burst: u64,
    /// Whether all publishers send at the same moments; otherwise they are spread evenly.
    pub together: bool,
    /// Whether messages are retained.
    pub retain: bool,
    /// Whether the subscribers of a topic share its messages.
    pub shared: bool,
    /// The topic's name; empty: a unique one.
    pub topic: String,
    /// Joined brokers over which the publishers are spread; empty: the broker of the command line.
    pub publisher_brokers: Vec<String>,
    /// The same for the subscribers.
    pub subscriber_brokers: Vec<String>,
    /// Machines over which the publishers are spread; empty: all.
    pub publisher_machines: Vec<String>,
    /// The same for the subscribers.
    pub subscriber_machines: Vec<String>,
}

/// The purpose of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// t-clients: load the broker; `limit` varies their interval.
    Load,
    /// l-clients: measure the latency; each copy is stamped.
    Latency,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            seconds: 10.0,
            ramp_up_s: 1.0,
            ramp_down_s: 1.0,
            group: Vec::new(),
            machine: Vec::new(),
            own: None,
        }
    }
}

impl Default for Group {
    fn default() -> Self {
        Self {
            name: "t".to_owned(),
            kind: Kind::Load,
            topics: 1,
            publishers: 1,
            subscribers: 1,
            qos: 0,
            subscriber_qos: None,
            payload: 32,
            interval_us: 10_000.0,
            messages: None,
            window: 0,
            burst: 32,
            together: false,
            retain: false,
            shared: false,
            topic: String::new(),
            publisher_brokers: Vec::new(),
            subscriber_brokers: Vec::new(),
            publisher_machines: Vec::new(),
            subscriber_machines: Vec::new(),
        }
    }
}

impl Scenario {
    /// Number of publishers.
    pub fn publishers(&self) -> usize {
        self.group
            .iter()
            .map(|one| one.topics * one.publishers)
            .sum()
    }

    /// Number of connections from this machine.
    pub fn clients(&self) -> usize {
        let own = |machines: &[String], count| match self.own {
            None => count,
            Some(_) => (0..count)
                .filter(|number| self.is_own(machines, *number))
                .count(),
        };
        let each = |one: &Group| {
            let publishers = own(&one.publisher_machines, one.publishers);
            one.topics * (publishers + own(&one.subscriber_machines, one.subscribers))
        };
        self.group.iter().map(each).sum()
    }

    /// Whether a client is on this machine. `machines`: those over which such clients are spread.
    pub fn is_own(&self, machines: &[String], number: usize) -> bool {
        let Some(own) = self.own else { return true };
        match machines.len() {
            0 => number % self.machine.len().max(1) == own,
            count => machines.get(number % count) == self.machine.get(own).map(|one| &one.name),
        }
    }

    /// Messages a second of the schedule, with the intervals of the load multiplied by `scale`.
    pub fn ingress(&self, scale: f64) -> f64 {
        self.group.iter().map(|one| one.ingress(scale)).sum()
    }

    /// Mean copies of a message: sum(P S) / sum(P).
    pub fn sp(&self) -> f64 {
        let weight = |one: &Group| (one.topics * one.publishers) as f64;
        let copies: f64 = self
            .group
            .iter()
            .map(|one| weight(one) * one.copies() as f64)
            .sum();
        copies / self.group.iter().map(weight).sum::<f64>()
    }
}

impl Group {
    /// Copies of a message.
    pub fn copies(&self) -> usize {
        if self.shared {
            self.subscribers.min(1)
        } else {
            self.subscribers
        }
    }

    /// Time between two messages of a publisher, in ns, with the load scaled.
    pub fn interval_ns(&self, scale: f64) -> f64 {
        let varies = self.kind == Kind::Load && self.window == 0;
        self.interval_us * 1e3 * if varies { scale } else { 1.0 }
    }

    /// Messages a second; 0 where there is no schedule.
    pub fn ingress(&self, scale: f64) -> f64 {
        let interval_s = self.interval_ns(scale) / 1e9;
        if interval_s > 0.0 && self.window == 0 {
            (self.topics * self.publishers) as f64 / interval_s
        } else {
            0.0
        }
    }

    /// Returns the two QoS: of the publishers, of the subscribers.
    pub fn qualities(&self) -> (Qos, Qos) {
        let of = |level| match level {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        };
        (of(self.qos), of(self.subscriber_qos.unwrap_or(self.qos)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_benchmark_has_ten_copies_of_a_message() {
        let found = Scenario::parse(PUBLISHED).unwrap();
        assert_eq!((found.publishers(), found.clients()), (51, 106));
        assert_eq!(found.ingress(1.0), 5001.0);
        assert_eq!(found.ingress(2.0), 2501.0);
        assert!((found.sp() - 505.0 / 51.0).abs() < 1e-12);
    }

    #[test]
    fn shared_subscribers_get_one_copy_among_them() {
        let text = "[[group]]\npublishers = 2\nsubscribers = 7\nshared = true";
        assert_eq!(Scenario::parse(text).unwrap().sp(), 1.0);
    }

    #[test]
    fn machines_have_clients_in_turn_and_each_client_is_on_one() {
        let text = "[[machine]]\nname = \"a\"\n[[machine]]\nname = \"b\"\n[[group]]\ntopics = 2\n\
                    publishers = 3\nsubscribers = 5\nsubscriber_machines = [\"b\"]";
        let mut found = Scenario::parse(text).unwrap();
        assert_eq!(found.clients(), 16);
        found.own = Some(0);
        assert_eq!(found.clients(), 4);
        found.own = Some(1);
        assert_eq!(found.clients(), 12);
    }
}
