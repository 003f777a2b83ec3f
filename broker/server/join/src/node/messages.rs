//! Messages on their way through a node: where they go, who has confirmed them, what is sent again.

use super::window::{Noted, WINDOW, Window};
use super::{
    Action, BEFORE, Key, LANES, Link, MOST_OCTETS, MOST_PENDING, MOST_SEEN, MOST_TRIED, Message,
    Node, Pending,
};
use crate::cooperation::Source;
use crate::retained::Came;
use mqtick_packet::Qos;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

impl Node {
    /// Whether clients may publish above QoS 0: not too much waits to be confirmed.
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

    /// How many messages above QoS 0 of this site's clients are not confirmed.
    #[must_use]
    pub fn owes(&self) -> usize {
        self.own_pending.iter().map(BTreeSet::len).sum()
    }

    /// Whether a message of a client of this site goes to others.
    #[must_use]
    pub fn goes_on(&self, topic: &str, retain: bool) -> bool {
        let mut to = Vec::new();
        self.algorithm.route(topic, retain, Source::Local, &mut to);
        let is_wanted = !to.is_empty() || self.links.contains_key(&BEFORE);
        is_wanted && !topic.starts_with('$')
    }

    /// A client of this site published, and its broker knows it already. Which message it is, if
    /// others have to confirm it.
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

    fn key(&mut self, topic: &str, client: &str, qos: Qos) -> Key {
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

    /// Send a message on, and remember what has to be confirmed.
    fn pass(
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
            // Who is away asks again for what was kept.
            if sure && (is_here || !message.kept) {
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
                // Whoever sent this attempt first is told how it ends.
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
            self.seen.clear(); // that many nodes there are not: somebody makes them up
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
        // Better twice than never: whoever sends it again is believed that it is not everywhere.
        let is_new = match noted {
            Noted::First => true,
            // The last one on a topic that is to be kept has to be here, by whichever way it comes, and
            // again where the broker has lost it.
            _ if message.retain && !message.is_denied && self.retained.is_newer(&message) => true,
            Noted::Again => false,
            Noted::Unknown => is_later || message.kept,
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
                Came::Newer => {}
                Came::Same => for_broker = None,
                // Nobody behind needs it either.
                Came::Older if message.kept => {
                    self.counters.outdated += 1;
                    for_broker = None;
                    to.clear();
                }
                // It is news, but not what is to be kept.
                Came::Older => {
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

    /// Whether no attempt so late came before; the first one, 0, is not remembered.
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

    /// Forget those before the last ones.
    pub(super) fn forget_attempts(&mut self) {
        let [tried, before] = &mut self.tried;
        *before = std::mem::take(tried);
    }

    /// All links of the tree, and those to neighbours that are away.
    fn everywhere(&self, except: Option<Link>, to: &mut Vec<Link>) {
        let used = self.links.iter().filter(|(_, one)| one.is_used);
        for (link, _) in used {
            if Some(*link) != except && !to.contains(link) {
                to.push(*link);
            }
        }
    }

    /// A neighbour has a message, or does not, as it came to it with this attempt.
    pub fn confirmed(&mut self, link: Link, key: Key, attempt: u32, done: bool) {
        let pending = self.pending.get_mut(&key);
        if let Some(pending) = pending.filter(|one| one.attempt == attempt) {
            pending.waits.retain(|one| *one != link);
            pending.failed |= !done;
            self.settle(key);
        }
    }

    /// The broker has it.
    pub fn delivered(&mut self, key: Key) {
        if let Some(pending) = self.pending.get_mut(&key) {
            pending.at_broker = false;
            self.settle(key);
        }
    }

    fn settle(&mut self, key: Key) {
        let Some(pending) = self.pending.get(&key) else {
            return;
        };
        if pending.at_broker || !pending.waits.is_empty() {
            return;
        }
        let (from, attempt, failed) = (pending.from, pending.attempt, pending.failed);
        match from {
            // A neighbour that is back asks for all that was kept.
            None if failed && !pending.message.kept => {
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

    /// Wait no longer for a message that began here.
    fn take_pending(&mut self, key: Key) -> Option<Pending> {
        let pending = self.pending.remove(&key)?;
        if let Some(lane) = self.own_pending.get_mut(usize::from(key.lane)) {
            lane.remove(&key.sequence);
            self.own_octets -= pending.message.payload.len();
        }
        Some(pending)
    }

    /// Send again what began here and was not confirmed everywhere.
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

    // -- what was retained before neighbours came ---------------------------------------------------

    /// The broker is about to say what it has retained, for neighbours that asked for it. `waiting`:
    /// what waits here until the broker takes it; they get it, too.
    pub fn begin_reading<'a>(
        &mut self,
        waiting: impl IntoIterator<Item = &'a Rc<Message>>,
        links: &[Link],
    ) {
        self.retained.begin_reading();
        for message in waiting {
            if let Some(stamp) = self.retained.waits(message) {
                let message = Message::clone(message);
                self.hand(Message { stamp, ..message }, links);
            }
        }
    }

    /// It has this: neighbours that asked for it get it.
    pub fn found(&mut self, message: Message, links: &[Link]) {
        if let Some(stamp) = self.retained.found(&message.topic, &message.payload) {
            self.hand(Message { stamp, ..message }, links);
        }
    }

    /// That was all. Neighbours are asked where what they have could not be compared before; those
    /// that asked here get what was deleted, and the rest with the next reading.
    pub fn end_reading(&mut self, links: &[Link]) {
        let is_first = !self.retained.is_known;
        if self.retained.end_reading() {
            let again = links.iter().map(|link| Action::Hand(*link));
            self.actions.extend(again);
        }
        let used = self.links.iter();
        let used = used.filter(|(_, one)| is_first && one.is_used && one.away.is_none());
        self.actions
            .extend(used.map(|(link, _)| Action::Ask(*link)));
        for (topic, stamp) in self.retained.deleted() {
            let message = Message {
                topic: topic.into(),
                stamp,
                ..Message::default()
            };
            self.hand(message, links);
        }
    }

    /// Give neighbours what was kept. Whoever asks when he has the tree, and hears of all that comes
    /// later, misses nothing, in whichever order they come.
    fn hand(&mut self, message: Message, links: &[Link]) {
        if links.is_empty() {
            return;
        }
        let message = Message {
            qos: Qos::AtLeastOnce,
            retain: true,
            kept: true,
            ..message
        };
        self.counters.handed += 1;
        let key = self.key(&message.topic, "", message.qos);
        self.pass(key, 0, links, Rc::new(message), None, false);
    }
}
