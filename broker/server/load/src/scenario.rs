//! What a load consists of: groups of publishers and subscribers, from a TOML file.

use mqtick_packet::Qos;
use serde::{Deserialize, Serialize};
use std::fs;

use crate::{Failure, Outcome};

/// Octets that a scenario file may have.
const LONGEST: u64 = 1 << 20;

/// Publishers and subscribers of a scenario at most.
pub(crate) const CLIENTS: usize = 1_000_000;

/// The benchmark as it was published (Banno et al., IEICE Trans. E102-D(12), 2019): 5 topics, each
/// with 10 publishers and 10 subscribers, 32 octets, QoS 0, and one publisher with 5 subscribers by
/// which the latency is measured.
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
    /// How long messages are sent, in s, the two ends included.
    pub seconds: f64,
    /// What of it is not counted, at the beginning.
    pub ramp_up_s: f64,
    /// And at the end.
    pub ramp_down_s: f64,
    /// Who takes part.
    pub group: Vec<Group>,
    /// On which machines; none: on this one, by one clock.
    pub machine: Vec<Machine>,
    /// Which of them this process is on; None: it is the only one.
    #[serde(skip)]
    pub own: Option<usize>,
}

/// A machine on which clients run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    /// What it is called here.
    pub name: String,
    /// Where ssh finds it; None: it is this one.
    pub ssh: Option<String>,
    /// What mqtick-load is called there.
    pub program: String,
    /// The command that tells its clock's interval there, without a shell; `none`: nothing does.
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

/// Alike publishers and subscribers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// What it is called; part of its topics.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// How many topics it has.
    pub topics: usize,
    /// Publishers of each topic.
    pub publishers: usize,
    /// Subscribers of each topic.
    pub subscribers: usize,
    /// QoS of what is published.
    pub qos: u8,
    /// QoS of the subscriptions; that of the publishers where it is not said.
    pub subscriber_qos: Option<u8>,
    /// Octets of a message.
    pub payload: usize,
    /// Time between two messages of a publisher, in us; 0: as fast as the broker takes them.
    pub interval_us: f64,
    /// Messages of a publisher at most.
    pub messages: Option<u64>,
    /// Messages of a publisher that may be on their way: the next ones leave when copies have come,
    /// and `interval_us` after that; 0: the schedule alone says when.
    pub window: u64,
    /// Messages of a write, where no schedule spreads them.
    pub burst: u64,
    /// Whether all publishers send at the same moments, rather than evenly spread.
    pub together: bool,
    /// Whether messages are retained.
    pub retain: bool,
    /// Whether the subscribers of a topic share its messages.
    pub shared: bool,
    /// The topic's name; empty: one that nobody else has.
    pub topic: String,
    /// Joined brokers to which the publishers connect in turn; empty: that of the command line.
    pub publisher_brokers: Vec<String>,
    /// And the subscribers.
    pub subscriber_brokers: Vec<String>,
    /// Machines that have the publishers in turn; empty: all.
    pub publisher_machines: Vec<String>,
    /// And the subscribers.
    pub subscriber_machines: Vec<String>,
}

/// What a group is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// t-clients: they load the broker; `limit` varies their interval.
    Load,
    /// l-clients: each copy gets the kernel's stamp of its own.
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
    /// Reads a file.
    ///
    /// # Errors
    /// [`Failure::Use`], with the file and what is wrong in it.
    pub fn load(path: &str) -> Outcome<Self> {
        let text = read(path)?;
        Self::parse(&text).map_err(|failure| match failure {
            Failure::Use(why) => Failure::Use(format!("{path}: {why}")),
            other => other,
        })
    }

    /// Reads the text of one.
    ///
    /// # Errors
    /// [`Failure::Use`], with what is wrong.
    pub fn parse(text: &str) -> Outcome<Self> {
        let found: Self = toml::from_str(text)
            .map_err(|error| Failure::Use(error.to_string().trim_end().to_owned()))?;
        found.check()?;
        Ok(found)
    }

    /// How many publishers there are.
    #[must_use]
    pub fn publishers(&self) -> usize {
        self.group
            .iter()
            .map(|one| one.topics * one.publishers)
            .sum()
    }

    /// How many connections there are, on our own machine if they are on several.
    #[must_use]
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

    /// Whether a client is on our own machine. `machines`: that have such clients in turn.
    #[must_use]
    pub fn is_own(&self, machines: &[String], number: usize) -> bool {
        let Some(own) = self.own else { return true };
        match machines.len() {
            0 => number % self.machine.len().max(1) == own,
            count => machines.get(number % count) == self.machine.get(own).map(|one| &one.name),
        }
    }

    /// Messages a second that the schedule has, with the intervals of the load multiplied.
    #[must_use]
    pub fn ingress(&self, scale: f64) -> f64 {
        self.group.iter().map(|one| one.ingress(scale)).sum()
    }

    /// Copies of a message, on the average of all topics: sum(P S) / sum(P).
    #[must_use]
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
    #[must_use]
    pub fn copies(&self) -> usize {
        if self.shared {
            self.subscribers.min(1)
        } else {
            self.subscribers
        }
    }

    /// Time between two messages of a publisher, in ns, where the load is scaled.
    #[must_use]
    pub fn interval_ns(&self, scale: f64) -> f64 {
        let varies = self.kind == Kind::Load && self.window == 0;
        self.interval_us * 1e3 * if varies { scale } else { 1.0 }
    }

    /// Messages a second; 0 where there is no schedule.
    #[must_use]
    pub fn ingress(&self, scale: f64) -> f64 {
        let interval_s = self.interval_ns(scale) / 1e9;
        if interval_s > 0.0 && self.window == 0 {
            (self.topics * self.publishers) as f64 / interval_s
        } else {
            0.0
        }
    }

    /// Returns the two QoS: of the publishers, of the subscribers.
    #[must_use]
    pub fn qualities(&self) -> (Qos, Qos) {
        let of = |level| match level {
            0 => Qos::AtMostOnce,
            1 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        };
        (of(self.qos), of(self.subscriber_qos.unwrap_or(self.qos)))
    }
}

/// Reads a small text file.
///
/// # Errors
/// [`Failure::Use`] where it is none.
pub fn read(path: &str) -> Outcome<String> {
    let wrong = |why: String| Failure::Use(format!("{path}: {why}"));
    let about = fs::metadata(path).map_err(|error| wrong(format!("{error}.")))?;
    if !about.is_file() || about.len() > LONGEST {
        return Err(wrong(format!("no file of at most {LONGEST} octets.")));
    }
    let octets = fs::read(path).map_err(|error| wrong(format!("{error}.")))?;
    String::from_utf8(octets).map_err(|_| wrong("it is not UTF-8.".to_owned()))
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
