//! The rules of a data plane in user space (`broker/spec/acceleration.md`), without I/O: the proxy
//! uses it, and tests hold the controller to it.

use std::collections::HashMap;
use std::net::SocketAddr;

use mqtick_sn::{Message, Qos, Topic};

use crate::controller::Way;
use crate::plane::{Copy, Counts, Key, MOST_COPIES, Refusal};

#[derive(Debug)]
struct Rule {
    copies: Vec<Copy>,
    marked: bool,
    open: Option<u64>,
    counts: Counts,
}

/// What becomes of a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It goes on. The controller is told if there is a mark.
    Pass(Option<u64>),
    /// It is dropped, and these are sent instead.
    Copies(&'a [Copy]),
    /// It is dropped, but the controller is told.
    KeptBack(u64),
}

/// Rules, and what else a data plane keeps.
#[derive(Debug)]
pub struct Table {
    rules: HashMap<Key, Rule>,
    capacity: usize,
    heard_ns: HashMap<SocketAddr, u64>,
    served_ns: HashMap<SocketAddr, u64>,
    kept_back: HashMap<SocketAddr, u64>,
    reported: HashMap<Key, u64>,
    seen: u64,
    done: u64,
    until_ns: u64,
}

const REPORT_NS: u64 = 1_000_000_000;
const MOST_CLIENTS: usize = 65_536;

impl Table {
    /// Without rules.
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
        }
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The mark of the last packet that may change who receives.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.seen
    }

    /// What becomes of a client's packet.
    pub fn from_client(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        message: Option<&Message<'_>>,
    ) -> Verdict<'_> {
        if !is_unconnected(message) {
            if self.heard_ns.len() >= MOST_CLIENTS && !self.heard_ns.contains_key(&client) {
                self.heard_ns.clear();
            }
            self.heard_ns.insert(client, now_ns);
        }
        let Some(message) = message else {
            self.seen += 1;
            // A broker may take it for a publish, which what follows must not overtake.
            for (_, rule) in self
                .rules
                .iter_mut()
                .filter(|(key, _)| key.publisher == client)
            {
                rule.counts.slow += 1;
            }
            return Verdict::Pass(Some(self.seen));
        };
        if let Message::Publish {
            dup,
            qos,
            retain,
            topic,
            message_id,
            ..
        } = message
        {
            let publisher = client;
            let topic = *topic;
            let can_be = *qos == Qos::AtMostOnce && !retain && !dup && *message_id == 0;
            let acknowledged = matches!(qos, Qos::AtLeastOnce | Qos::ExactlyOnce);
            let key = Key { publisher, topic };
            return self.publish(now_ns, &key, can_be, acknowledged);
        }
        if changes_receivers(Way::ToBroker, message) {
            self.seen += 1;
        }
        Verdict::Pass(Some(self.seen))
    }

    /// `acknowledged`: of QoS 1 or 2; brokers may deliver it later, so the controller is told.
    fn publish(&mut self, now_ns: u64, key: &Key, can_be: bool, acknowledged: bool) -> Verdict<'_> {
        let is_quiet = self.is_quiet() && now_ns < self.until_ns;
        let mark = self.seen;
        let Some(rule) = self.rules.get_mut(key) else {
            let is_old = |at_ns: &u64| now_ns.saturating_sub(*at_ns) >= REPORT_NS;
            if self.reported.len() >= MOST_CLIENTS {
                self.reported.clear();
            }
            let is_due = self.reported.get(key).is_none_or(is_old);
            if is_due {
                self.reported.insert(*key, now_ns);
            }
            return Verdict::Pass((is_due || acknowledged).then_some(mark));
        };
        if !can_be || !is_quiet || rule.open != Some(rule.counts.slow) {
            rule.counts.slow += 1;
            return Verdict::Pass(acknowledged.then_some(mark));
        }
        rule.counts.fast += 1;
        rule.counts.copies += rule.copies.len() as u64;
        Verdict::Copies(&rule.copies)
    }

    /// What becomes of a packet of the broker.
    pub fn from_broker(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        message: Option<&Message<'_>>,
    ) -> Verdict<'_> {
        match message {
            Some(Message::Pingresp) => {
                if self
                    .kept_back
                    .remove(&client)
                    .is_some_and(|until_ns| now_ns < until_ns)
                {
                    return Verdict::KeptBack(self.seen);
                }
            }
            Some(Message::Publish { .. }) => {
                if self.served_ns.len() >= MOST_CLIENTS && !self.served_ns.contains_key(&client) {
                    self.served_ns.clear();
                }
                self.served_ns.insert(client, now_ns);
                return Verdict::Pass(None);
            }
            Some(message) if !changes_receivers(Way::FromBroker, message) => {}
            _ => self.seen += 1,
        }
        Verdict::Pass(Some(self.seen))
    }

    /// See [`crate::plane::Plane::set`].
    ///
    /// # Errors
    /// Without room, or with too many copies.
    pub fn set(&mut self, key: Key, copies: &[Copy]) -> Result<(), Refusal> {
        self.rules.remove(&key);
        if copies.len() > MOST_COPIES {
            return Err(Refusal::Copies);
        }
        if self.rules.len() >= self.capacity {
            return Err(Refusal::Full);
        }
        let rule = Rule {
            copies: copies.to_vec(),
            marked: false,
            open: None,
            counts: Counts::default(),
        };
        self.rules.insert(key, rule);
        Ok(())
    }

    /// What this rule matches goes on to the broker, too, marked.
    pub fn goes_on(&mut self, key: &Key) {
        if let Some(rule) = self.rules.get_mut(key) {
            rule.marked = true;
        }
    }

    /// Whether a client's message that is copied goes on to the broker, too.
    #[must_use]
    pub fn is_marked(&self, client: SocketAddr, message: Option<&Message<'_>>) -> bool {
        let Some(Message::Publish { topic, .. }) = message else {
            return false;
        };
        let (publisher, topic) = (client, *topic);
        let rule = self.rules.get(&Key { publisher, topic });
        rule.is_some_and(|rule| rule.marked)
    }

    /// Nothing is copied from this time on.
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
    pub fn keep_back(&mut self, client: &SocketAddr, until_ns: u64) {
        if until_ns == 0 {
            self.kept_back.remove(client);
        } else {
            self.kept_back.insert(*client, until_ns);
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

/// Whether a message may change who receives what.
#[must_use]
pub fn changes_receivers(way: Way, message: &Message<'_>) -> bool {
    match (way, message) {
        (
            Way::ToBroker,
            Message::Connect { .. }
            | Message::Subscribe { .. }
            | Message::Unsubscribe { .. }
            | Message::Disconnect { .. },
        )
        | (
            Way::FromBroker,
            Message::Connack(_)
            | Message::Suback { .. }
            | Message::Regack { .. }
            | Message::Register { .. }
            | Message::Disconnect { .. },
        ) => true,
        (Way::ToBroker, Message::Pingreq { client }) => !client.is_empty(),
        _ => false,
    }
}

/// Whether it is a PUBLISH of QoS -1: no sign of life of whoever is connected there.
#[must_use]
pub fn is_unconnected(message: Option<&Message<'_>>) -> bool {
    let unconnected = Qos::Unconnected;
    matches!(message, Some(Message::Publish { qos, .. }) if *qos == unconnected)
}

/// A PUBLISH in two: as far as the topic, and the rest, which is the same in each copy.
#[must_use]
pub fn field(datagram: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = if datagram.first() == Some(&1) { 4 } else { 2 };
    datagram.split_at_checked(start + 3)
}

/// A PUBLISH, or its first part, as it goes to a subscriber: type and id of the topic are his.
///
/// What is too short for one comes back as it is.
#[must_use]
pub fn rewritten(datagram: &[u8], topic: Topic) -> Vec<u8> {
    let mut copy = datagram.to_vec();
    let start = if copy.first() == Some(&1) { 4 } else { 2 };
    if let Some([flags, high, low]) = copy.get_mut(start..start + 3) {
        let (kind, id) = match topic {
            Topic::Registered(id) => (0, id.to_be_bytes()),
            Topic::Predefined(id) => (1, id.to_be_bytes()),
            Topic::Short(name) => (2, name),
        };
        *flags = *flags & !3 | kind;
        [*high, *low] = id;
    }
    copy
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_closes_the_rules_of_whoever_sent_it_and_of_nobody_else() {
        let mut table = Table::new(9);
        let clients = [5000, 5001].map(|port| SocketAddr::from(([10, 0, 0, 2], port)));
        let topic = Topic::Registered(7);
        for publisher in clients {
            let key = Key { publisher, topic };
            let to = SocketAddr::from(([10, 0, 0, 3], 6000));
            table.set(key, &[Copy { to, topic }]).unwrap();
            table.open(&key, 0);
        }
        assert_eq!(
            table.from_client(0, clients[0], None),
            Verdict::Pass(Some(1))
        );
        table.done(1);
        let publish = [9, 0x0c, 0, 0, 7, 0, 0, b'h', b'i'];
        let (message, _) = mqtick_sn::decode(&publish).unwrap();
        let became = clients.map(|client| {
            matches!(
                table.from_client(0, client, Some(&message)),
                Verdict::Copies(_)
            )
        });
        assert_eq!(became, [false, true]);
    }
}
