//! Messages on their way through a node: where they go, which neighbours have confirmed them, and
//! what is sent again.

use super::window::{Noted, WINDOW, Window};
use super::{Action, BEFORE, MOST_OCTETS, MOST_PENDING, MOST_SEEN, MOST_TRIED, Node, Pending};
use crate::cooperation::Source;
use crate::message::{Key, LANES, Link, Message};
use crate::retained::Compared;
use mqtick_packet::Qos;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

impl Node {
    /// Whether clients of this site may publish above QoS 0. Not while too many of their messages are
    /// unconfirmed.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let fits = |(lane, last): (&BTreeSet<u64>, &[u64; 2])| {
            let oldest = lane.first();
            oldest.is_none_or(|oldest| last[1] - oldest < WINDOW - 1)
        };
        self.owes() < MOST_PENDING
            && self.own_octets < MOST_OCTETS
            && self.own_pending.iter().zip(&self.last).all(fits)
    }

    /// How many messages above QoS 0 of this site's clients are not confirmed by all other sites.
    #[must_use]
    pub fn owes(&self) -> usize {
        self.own_pending.iter().map(BTreeSet::len).sum()
    }

    /// Whether a message of a client of this site goes to other sites.
    #[must_use]
    pub fn goes_on(&self, topic: &str, retain: bool) -> bool {
        let mut to = Vec::new();
        self.algorithm.route(topic, retain, Source::Local, &mut to);
        let is_wanted = !to.is_empty() || self.links.contains_key(&BEFORE);
        is_wanted && !topic.starts_with('$')
    }

    /// A client of this site has published a message, which went to the broker. `make` builds it if it
    /// goes to other sites. Returns its key if those have to confirm it.
    pub fn publish(
        &mut self,
        topic: &str,
        qos: Qos,
        retain: bool,
        client: &str,
        make: impl FnOnce() -> Message,
    ) -> Option<Key> {
        let mut to = std::mem::take(&mut self.room);
        to.clear();
        self.algorithm.route(topic, retain, Source::Local, &mut to);
        if qos != Qos::AtMostOnce && self.links.contains_key(&BEFORE) {
            to.push(BEFORE);
        }
        let goes = !to.is_empty() && !topic.starts_with('$');
        let key = goes.then(|| {
            self.counters.began += 1;
            let key = self.key(topic, client, qos);
            self.pass(key, 0, &to, Rc::new(make()), None, false);
            key
        });
        self.room = to;
        key.filter(|key| self.pending.contains_key(key))
    }

    /// The key of a new message.
    pub(super) fn key(&mut self, topic: &str, client: &str, qos: Qos) -> Key {
        let mut hasher = DefaultHasher::new();
        (client, topic).hash(&mut hasher);
        let lane = (hasher.finish() % u64::from(LANES)) as u8;
        let sure = usize::from(qos != Qos::AtMostOnce);
        let last = self.last.get_mut(usize::from(lane));
        let last = last.and_then(|lane| lane.get_mut(sure));
        let sequence = last.map_or(0, |last| {
            *last += 1;
            *last
        });
        Key {
            origin: self.own,
            lane,
            sequence,
        }
    }

    /// Send a message to these links, and remember what has to be confirmed. `at_broker`: the broker
    /// has to confirm it, too.
    pub(super) fn pass(
        &mut self,
        key: Key,
        attempt: u32,
        to: &[Link],
        message: Rc<Message>,
        from: Option<Link>,
        at_broker: bool,
    ) {
        let sure = message.qos != Qos::AtMostOnce;
        let mut waits = Vec::new();
        for link in to {
            let Some(one) = self.links.get(link) else {
                continue;
            };
            let is_here = one.away.is_none();
            if is_here {
                self.actions.push_back(Action::Send {
                    link: *link,
                    key,
                    attempt,
                    message: Rc::clone(&message),
                });
            } else if !sure {
                self.counters.away += 1;
            }
            // A neighbour that is away asks again for what is handed over.
            if sure && (is_here || !message.handed) {
                waits.push(*link);
            }
        }
        if !sure {
            return;
        }
        if waits.is_empty() && !at_broker {
            match from {
                Some(link) => self.confirm(link, key, attempt, true),
                None => self.actions.push_back(Action::Release(key)),
            }
            return;
        }
        if key.origin == self.own
            && let Some(lane) = self.own_pending.get_mut(usize::from(key.lane))
        {
            lane.insert(key.sequence);
            self.own_octets += message.payload.len();
        }
        let pending = Pending {
            message,
            attempt,
            from,
            waits,
            at_broker,
            failed: false,
        };
        self.pending.insert(key, pending);
    }

    fn confirm(&mut self, link: Link, key: Key, attempt: u32, done: bool) {
        if self.links.get(&link).is_some_and(|one| one.away.is_none()) {
            self.actions.push_back(Action::Confirm {
                link,
                key,
                attempt,
                done,
            });
        }
    }

    /// A message came from a neighbour.
    pub fn arrived(&mut self, link: Link, key: Key, attempt: u32, message: Message) {
        self.counters.arrived += 1;
        let sure = message.qos != Qos::AtMostOnce;
        if key.origin == self.own {
            self.counters.repeated += 1;
            if sure {
                self.confirm(link, key, attempt, true);
            }
            return;
        }
        let mut at_broker = false;
        if let Some(pending) = self.pending.get(&key).filter(|_| sure) {
            let (from, current) = (pending.from, pending.attempt);
            if attempt <= current {
                self.counters.repeated += 1;
                // The neighbour that sent this attempt first gets the answer once it is known.
                if (from, current) != (Some(link), attempt) {
                    self.confirm(link, key, attempt, true);
                }
                return;
            }
            at_broker = pending.at_broker;
            self.pending.remove(&key);
            if let Some(from) = from {
                self.confirm(from, key, current, false);
            }
        }
        if self.seen.len() >= MOST_SEEN && !self.seen.contains_key(&(key.origin, key.lane)) {
            self.seen.clear(); // there are not that many nodes: a neighbour makes them up
        }
        let seen = self.seen.entry((key.origin, key.lane)).or_default();
        let noted = if sure {
            let window = seen.sure.get_or_insert_with(|| Window::new(key.sequence));
            window.note(key.sequence)
        } else {
            let is_new = key.sequence > seen.plain;
            seen.plain = seen.plain.max(key.sequence);
            if is_new { Noted::First } else { Noted::Again }
        };
        let is_later = sure && self.is_later(key, attempt);
        let is_new = match noted {
            Noted::First => true,
            // The last retained message on a topic has to be here, however it comes, and once more if
            // the broker has lost it.
            _ if message.retain && !message.is_denied && self.retained.is_newer(&message) => true,
            Noted::Again => false,
            // Better twice than never: a message that is sent again did not arrive everywhere.
            Noted::Unknown => is_later || message.handed,
        };
        if !is_new {
            self.counters.repeated += 1;
            if !is_later {
                if sure {
                    let is_here = noted == Noted::Again || attempt > 0;
                    self.confirm(link, key, attempt, is_here);
                }
                return;
            }
        }
        let from = Source::Link(link);
        let mut to = std::mem::take(&mut self.room);
        to.clear();
        let here = self
            .algorithm
            .route(&message.topic, message.retain, from, &mut to)
            && !message.is_denied;
        if attempt > 0 {
            self.everywhere(Some(link), &mut to);
        }
        let message = Rc::new(message);
        let mut for_broker = (here && is_new).then(|| Rc::clone(&message));
        if message.retain && is_new && !message.is_denied {
            match self.retained.came(&message) {
                Compared::Newer => {}
                Compared::Same => for_broker = None,
                // Nodes behind this one have the newer one, too.
                Compared::Older if message.handed => {
                    self.counters.outdated += 1;
                    for_broker = None;
                    to.clear();
                }
                // Subscribers get it, but it must not replace the newer one.
                Compared::Older => {
                    self.counters.outdated += 1;
                    let mut plain = Message::clone(&message);
                    plain.retain = false;
                    for_broker = Some(Rc::new(plain));
                }
            }
        }
        at_broker |= for_broker.is_some();
        self.pass(key, attempt, &to, message, Some(link), at_broker);
        self.room = to;
        if let Some(message) = for_broker {
            self.counters.delivered += 1;
            self.actions.push_back(Action::Deliver(key, message));
        }
    }

    /// Whether this attempt is later than all that came before. Attempt 0 is not remembered.
    fn is_later(&mut self, key: Key, attempt: u32) -> bool {
        let last = self.tried.iter().filter_map(|tried| tried.get(&key)).max();
        let is_later = attempt > last.copied().unwrap_or(0);
        if is_later {
            let [tried, _] = &mut self.tried;
            tried.insert(key, attempt);
            if tried.len() > MOST_TRIED {
                self.forget_attempts();
            }
        }
        is_later
    }

    /// Forget the older half of the remembered attempts.
    pub(super) fn forget_attempts(&mut self) {
        let [tried, before] = &mut self.tried;
        *before = std::mem::take(tried);
    }

    /// Add all links of the tree, including those to neighbours that are away.
    fn everywhere(&self, except: Option<Link>, to: &mut Vec<Link>) {
        let used = self.links.iter().filter(|(_, one)| one.is_used);
        for (link, _) in used {
            if Some(*link) != except && !to.contains(link) {
                to.push(*link);
            }
        }
    }

    /// A neighbour has answered an attempt. `done`: every node behind it that wants the message has it.
    pub fn confirmed(&mut self, link: Link, key: Key, attempt: u32, done: bool) {
        let pending = self.pending.get_mut(&key);
        if let Some(pending) = pending.filter(|one| one.attempt == attempt) {
            pending.waits.retain(|one| *one != link);
            pending.failed |= !done;
            self.settle(key);
        }
    }

    /// The broker has a message above QoS 0.
    pub fn delivered(&mut self, key: Key) {
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.at_broker = false;
            self.settle(key);
        }
    }

    /// Answer the neighbour that sent a message, or release it, once nothing is waited for any more.
    fn settle(&mut self, key: Key) {
        let Some(pending) = self.pending.get(&key) else {
            return;
        };
        if pending.at_broker || !pending.waits.is_empty() {
            return;
        }
        let (from, attempt, failed) = (pending.from, pending.attempt, pending.failed);
        match from {
            // A neighbour that comes back asks again for what is handed over.
            None if failed && !pending.message.handed => {
                self.retry.insert(key);
            }
            None => {
                self.take_pending(key);
                self.actions.push_back(Action::Release(key));
            }
            Some(link) => {
                self.pending.remove(&key);
                self.confirm(link, key, attempt, !failed);
            }
        }
    }

    /// Stop waiting for a message of this site's clients.
    fn take_pending(&mut self, key: Key) -> Option<Pending> {
        let pending = self.pending.remove(&key)?;
        if let Some(lane) = self.own_pending.get_mut(usize::from(key.lane)) {
            lane.remove(&key.sequence);
            self.own_octets -= pending.message.payload.len();
        }
        Some(pending)
    }

    /// Send again the messages of this site's clients that were not confirmed everywhere.
    pub(super) fn try_again(&mut self) {
        for key in std::mem::take(&mut self.retry) {
            let Some(pending) = self.take_pending(key) else {
                continue;
            };
            self.counters.again += 1;
            let mut to = Vec::new();
            let (topic, retain) = (&pending.message.topic, pending.message.retain);
            self.algorithm.route(topic, retain, Source::Local, &mut to);
            self.everywhere(None, &mut to);
            self.pass(key, pending.attempt + 1, &to, pending.message, None, false);
        }
    }
}
