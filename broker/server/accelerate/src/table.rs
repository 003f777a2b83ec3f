//! The rules of a data plane in user space (`broker/spec/acceleration.md`), without I/O. The proxy
//! uses it, and so do the tests of the controller.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::packet::{Packet, Publish};
use crate::plane::{Copy, Counts, Key, MOST_COPIES, Refusal};

#[derive(Debug)]
struct Rule {
    copies: Vec<Copy>,
    marked: bool,
    residence: bool,
    open: Option<u64>,
    counts: Counts,
}

/// What the data plane does with a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It passes. If there is a mark, the controller gets an event.
    Pass(Option<u64>),
    /// It is dropped, and these copies are sent instead.
    Copies(&'a [Copy]),
    /// It is dropped, and the controller gets an event with this mark.
    KeptBack(u64),
}

/// The rules and the other state of a data plane.
#[derive(Debug)]
pub struct Table {
    rules: HashMap<Key, Rule>,
    capacity: usize,
    heard_ns: HashMap<SocketAddr, u64>,
    served_ns: HashMap<SocketAddr, u64>,
    kept_back: HashMap<SocketAddr, (u32, u64)>, // number of answers, and until when
    // time of the last report; the flag: for messages of QoS 1 or 2
    reported: HashMap<(Key, bool), u64>,
    seen: u64,
    done: u64,
    until_ns: u64,
    is_behind: bool,
}

const REPORT_NS: u64 = 1_000_000_000;
const MOST_CLIENTS: usize = 65_536;

impl Table {
    /// A table without rules.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            rules: HashMap::new(),
            capacity,
            heard_ns: HashMap::new(),
            served_ns: HashMap::new(),
            kept_back: HashMap::new(),
            reported: HashMap::new(),
            seen: 0,
            done: 0,
            until_ns: u64::MAX,
            is_behind: false,
        }
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The mark of the last packet that may change the receivers.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.seen
    }

    /// Process a packet of a client.
    pub fn from_client(&mut self, now_ns: u64, client: SocketAddr, packet: &Packet) -> Verdict<'_> {
        if !matches!(packet, Packet::Publish(message) if message.unconnected) {
            if self.heard_ns.len() >= MOST_CLIENTS && !self.heard_ns.contains_key(&client) {
                self.heard_ns.clear();
            }
            self.heard_ns.insert(client, now_ns);
        }
        match packet {
            Packet::Publish(message) => return self.publish(now_ns, client, message),
            Packet::Nothing => return Verdict::Pass(None),
            Packet::Unread => {
                self.seen += 1;
                // The broker may take it for a PUBLISH, which later messages must not overtake.
                let of_client = |(key, _): &(&Key, &mut Rule)| key.publisher == client;
                for (_, rule) in self.rules.iter_mut().filter(of_client) {
                    rule.counts.slow += 1;
                }
            }
            Packet::Other { raises } => self.seen += u64::from(*raises),
            Packet::Answer => {}
        }
        Verdict::Pass(Some(self.seen))
    }

    /// A PUBLISH. The controller is told of those with QoS 1 or 2, at most once a second, because
    /// the broker may deliver them later.
    fn publish(&mut self, now_ns: u64, publisher: SocketAddr, message: &Publish) -> Verdict<'_> {
        let topic = message.topic;
        let key = Key { publisher, topic };
        let is_quiet = self.is_quiet() && !self.is_behind && now_ns < self.until_ns;
        let mark = self.seen;
        let what = (key, message.acknowledged);
        let Some(rule) = self.rules.get_mut(&key) else {
            return Verdict::Pass(is_due(&mut self.reported, now_ns, what).then_some(mark));
        };
        if !message.can_be || !is_quiet || rule.open != Some(rule.counts.slow) {
            rule.counts.slow += 1;
            let is_told = message.acknowledged && is_due(&mut self.reported, now_ns, what);
            return Verdict::Pass(is_told.then_some(mark));
        }
        rule.counts.fast += 1;
        rule.counts.copies += rule.copies.len() as u64;
        Verdict::Copies(&rule.copies)
    }

    /// Process a packet of the broker.
    pub fn from_broker(&mut self, now_ns: u64, client: SocketAddr, packet: &Packet) -> Verdict<'_> {
        match packet {
            Packet::Answer => {
                if let Some((answers, until_ns)) = self.kept_back.get_mut(&client)
                    && *answers > 0
                    && now_ns < *until_ns
                {
                    *answers -= 1;
                    return Verdict::KeptBack(self.seen);
                }
            }
            Packet::Publish(_) => {
                if self.served_ns.len() >= MOST_CLIENTS && !self.served_ns.contains_key(&client) {
                    self.served_ns.clear();
                }
                self.served_ns.insert(client, now_ns);
                return Verdict::Pass(None);
            }
            Packet::Nothing => return Verdict::Pass(None),
            Packet::Other { raises } => self.seen += u64::from(*raises),
            Packet::Unread => self.seen += 1,
        }
        Verdict::Pass(Some(self.seen))
    }

    /// See [`crate::plane::Plane::set`].
    ///
    /// # Errors
    /// There is no room, or there are too many copies.
    pub fn set(
        &mut self,
        key: Key,
        copies: &[Copy],
        marked: bool,
        residence: bool,
    ) -> Result<(), Refusal> {
        self.rules.remove(&key);
        if copies.len() > MOST_COPIES {
            return Err(Refusal::Copies);
        }
        if self.rules.len() >= self.capacity {
            return Err(Refusal::Full);
        }
        let rule = Rule {
            copies: copies.to_vec(),
            marked,
            residence,
            open: None,
            counts: Counts::default(),
        };
        self.rules.insert(key, rule);
        Ok(())
    }

    /// For a message that is copied: whether it is also marked and sent on to the broker, and
    /// whether its copies state their residence.
    #[must_use]
    pub fn flags(&self, client: SocketAddr, packet: &Packet) -> (bool, bool) {
        let Packet::Publish(Publish { topic, .. }) = *packet else {
            return (false, false);
        };
        let publisher = client;
        let rule = self.rules.get(&Key { publisher, topic });
        rule.map_or((false, false), |rule| (rule.marked, rule.residence))
    }

    /// State whether packets of the broker wait to be passed on. Nothing is copied then, so that no
    /// copy overtakes them.
    pub fn behind(&mut self, is_behind: bool) {
        self.is_behind = is_behind;
    }

    /// State until when the controller is alive. Nothing is copied after that.
    pub fn alive(&mut self, until_ns: u64) {
        self.until_ns = until_ns;
    }

    /// See [`crate::plane::Plane::open`].
    pub fn open(&mut self, key: &Key, slow: u64) {
        if let Some(rule) = self.rules.get_mut(key) {
            rule.open = Some(slow);
        }
    }

    /// See [`crate::plane::Plane::delete`].
    pub fn delete(&mut self, key: &Key) {
        self.rules.remove(key);
    }

    /// See [`crate::plane::Plane::counts`].
    #[must_use]
    pub fn counts(&self, key: &Key) -> Counts {
        self.rules
            .get(key)
            .map_or_else(Counts::default, |rule| rule.counts)
    }

    /// See [`crate::plane::Plane::heard_ns`].
    #[must_use]
    pub fn heard_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.heard_ns.get(client).copied()
    }

    /// See [`crate::plane::Plane::served_ns`].
    #[must_use]
    pub fn served_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.served_ns.get(client).copied()
    }

    /// See [`crate::plane::Plane::keep_back`].
    pub fn keep_back(&mut self, client: &SocketAddr, answers: u32, until_ns: u64) {
        if answers == 0 {
            self.kept_back.remove(client);
        } else {
            self.kept_back.insert(*client, (answers, until_ns));
        }
    }

    /// See [`crate::plane::Plane::is_quiet`].
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.seen == self.done
    }

    /// See [`crate::plane::Plane::done`].
    pub fn done(&mut self, mark: u64) {
        self.done = self.done.max(mark);
    }
}

/// Whether the controller is to be told of such a PUBLISH again: once a second.
fn is_due(reported: &mut HashMap<(Key, bool), u64>, now_ns: u64, what: (Key, bool)) -> bool {
    let is_old = |at_ns: &u64| now_ns.saturating_sub(*at_ns) >= REPORT_NS;
    let is_due = reported.get(&what).is_none_or(is_old);
    if is_due {
        if reported.len() >= MOST_CLIENTS {
            reported.clear();
        }
        reported.insert(what, now_ns);
    }
    is_due
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::packet::Way;
    use crate::rules::{Protocol, Topic};

    #[test]
    fn what_cannot_be_read_closes_the_rules_of_whoever_sent_it_and_of_nobody_else() {
        let mut table = Table::new(9);
        let clients = [5000, 5001].map(|port| SocketAddr::from(([10, 0, 0, 2], port)));
        let topic = Topic::Registered(7);
        for publisher in clients {
            let key = Key { publisher, topic };
            let to = SocketAddr::from(([10, 0, 0, 3], 6000));
            table.set(key, &[Copy { to, topic }], false, false).unwrap();
            table.open(&key, 0);
        }
        assert_eq!(
            table.from_client(0, clients[0], &Packet::Unread),
            Verdict::Pass(Some(1))
        );
        table.done(1);
        let publish = [9, 0x0c, 0, 0, 7, 0, 0, b'h', b'i'];
        let packet = Packet::read(Protocol::MqttSn, Way::ToBroker, &publish);
        let became = clients
            .map(|client| matches!(table.from_client(0, client, &packet), Verdict::Copies(_)));
        assert_eq!(became, [false, true]);
    }
}
