//! Subscriptions at the upstream, and which sensors get a message.

use super::outgoing::MOST_FLIGHTS;
use super::{BACKLOG, Event, Line};
use crate::memory;
use crate::message::Message;
use crate::session::Session;
use mqtick_packet::{Qos, subscribe_as, unsubscribe};
use mqtick_sn::Code;
use mqtick_topics::Match;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const AGAIN: usize = 1000; // unanswered SUBSCRIBEs or UNSUBSCRIBEs, at most
/// Remembered subscription identifiers of one filter: each SUBSCRIBE has a new one.
const IDENTIFIERS: usize = 4096;

pub(super) struct Ask {
    pub(super) who: Option<(Arc<Session>, u16)>, // session and message identifier; none: a renewal
    pub(super) filter: Arc<str>,
    pub(super) qos: Qos,
}

pub(super) struct Subscriber {
    pub(super) session: Arc<Session>,
    pub(super) qos: Qos,
    pub(super) is_granted: bool,
    /// In MQTT 3.1.1: retained messages may still come that it has asked for.
    pub(super) is_fresh: bool,
}

/// The sensors that are subscribed to one filter.
pub(super) struct Interest {
    pub(super) qos: Qos,
    pub(super) ids: VecDeque<u32>,
    pub(super) subscribers: BTreeMap<u64, Subscriber>,
}

impl Line {
    pub(super) fn subscribed(&mut self, now_s: u64, id: u16, code: u8, events: &mut Vec<Event>) {
        let Some(ask) = self.asks.remove(&id) else {
            return;
        };
        self.answered_s = now_s;
        let granted = Qos::try_from(code).map(|granted| granted.min(ask.qos));
        let answer = granted.map_err(|_| match code {
            0x91 | 0x97 => Code::CONGESTION,
            _ => Code::NOT_SUPPORTED,
        });
        if ask.who.is_none() && answer.is_err() && self.interests.contains_key(&ask.filter) {
            self.denied.push(Arc::clone(&ask.filter));
            self.denied_s = now_s;
            events.push(Event::Denied(Arc::clone(&ask.filter)));
        }
        self.answer_ask(ask, answer, events);
        events.append(&mut self.held);
    }

    /// Tell the sensor that has asked. A subscription that was granted before goes on if it is
    /// refused now.
    pub(super) fn answer_ask(
        &mut self,
        ask: Ask,
        answer: Result<Qos, Code>,
        events: &mut Vec<Event>,
    ) {
        let Some((who, message_id)) = ask.who else {
            return;
        };
        let subscriber = self
            .interests
            .get_mut(&ask.filter)
            .and_then(|interest| interest.subscribers.get_mut(&who.number));
        if let Some(subscriber) = subscriber {
            subscriber.is_granted |= answer.is_ok();
            if !subscriber.is_granted {
                self.forget(&ask.filter, who.number);
            }
        }
        events.push(Event::Subscribed {
            who,
            filter: ask.filter,
            message_id,
            answer,
        });
    }

    /// Whether a sensor is subscribed, or waits to be.
    pub fn is_subscribed(&self, filter: &str, number: u64) -> bool {
        let interest = self.interests.get(filter);
        interest.is_some_and(|interest| interest.subscribers.contains_key(&number))
    }

    /// Ask the upstream for a subscription.
    ///
    /// # Errors
    /// The return code for the sensor, if the upstream is not asked.
    pub fn subscribe(
        &mut self,
        now_s: u64,
        who: &Arc<Session>,
        message_id: u16,
        filter: &str,
        qos: Qos,
    ) -> Result<(), Code> {
        let is_full = self.out.len() > BACKLOG || self.asks.len() >= MOST_FLIGHTS;
        if !self.is_up() || is_full || memory::free() == 0 {
            return Err(Code::CONGESTION);
        }
        if !self.takes.wildcards && filter.contains(['+', '#']) {
            return Err(Code::NOT_SUPPORTED);
        }
        let name: Arc<str> = match self.interests.get_key_value(filter) {
            Some((name, _)) => Arc::clone(name),
            None => filter.into(),
        };
        let interest = self
            .interests
            .entry(Arc::clone(&name))
            .or_insert_with(|| Interest {
                qos,
                ids: VecDeque::new(),
                subscribers: BTreeMap::new(),
            });
        interest.qos = interest.qos.max(qos); // the others must not get less
        let before = interest.subscribers.get(&who.number);
        let subscriber = Subscriber {
            session: Arc::clone(who),
            qos,
            is_granted: before.is_some_and(|before| before.is_granted),
            is_fresh: !self.has_ids,
        };
        interest.subscribers.insert(who.number, subscriber);
        self.filters.subscribe(&name, 0, Arc::clone(&name));
        self.ask(now_s, &name, Some((Arc::clone(who), message_id, qos)));
        Ok(())
    }

    /// Ask for the subscriptions that a new session at the upstream lacks, a part at a time.
    pub(super) fn ask_again(&mut self, now_s: u64) {
        while self.asks.len() < AGAIN && self.out.len() < BACKLOG {
            let Some(filter) = self.owed.pop() else {
                break;
            };
            self.ask(now_s, &filter, None);
        }
        let is_answered = || self.asks.values().all(|ask| ask.who.is_some());
        if self.owes && self.owed.is_empty() && is_answered() {
            self.owes = false;
        }
    }

    fn ask(&mut self, now_s: u64, filter: &Arc<str>, who: Option<(Arc<Session>, u16, Qos)>) {
        let id = self.free_id();
        let Some(interest) = self.interests.get_mut(filter) else {
            return;
        };
        let number = who.as_ref().map(|(who, ..)| who.number);
        let identifier = self.has_ids.then(|| {
            self.last_identifier = self.last_identifier % 0x0FFF_FFFF + 1;
            while self.identifiers.contains_key(&self.last_identifier) {
                self.last_identifier = self.last_identifier % 0x0FFF_FFFF + 1;
            }
            let of = (Arc::clone(filter), number);
            self.identifiers.insert(self.last_identifier, of);
            interest.ids.push_back(self.last_identifier);
            if interest.ids.len() > IDENTIFIERS
                && let Some(old) = interest.ids.pop_front()
            {
                self.identifiers.remove(&old);
            }
            self.last_identifier
        });
        let (filters, version) = ([(&**filter, interest.qos)], self.version);
        subscribe_as(&mut self.out, version, id, identifier, &filters);
        self.sent_s = now_s;
        if self.asks.is_empty() && self.ending.is_empty() {
            self.answered_s = now_s;
        }
        let qos = who.as_ref().map_or(interest.qos, |(_, _, qos)| *qos);
        let ask = Ask {
            who: who.map(|(who, message_id, _)| (who, message_id)),
            filter: Arc::clone(filter),
            qos,
        };
        self.asks.insert(id, ask);
        if let Some(number) = number.filter(|_| !self.has_ids) {
            self.ping(now_s, Some((Arc::clone(filter), number)));
        }
    }

    /// A sensor's subscription ends.
    pub fn unsubscribe(&mut self, now_s: u64, filter: &str, number: u64) {
        let over = self.forget(filter, number);
        self.over.extend(over);
        if self.is_up() {
            self.end_more(now_s);
        }
    }

    /// Unsubscribe from filters that no sensor is subscribed to any more, a part at a time.
    pub(super) fn end_more(&mut self, now_s: u64) {
        while self.ending.len() < AGAIN && self.out.len() < BACKLOG {
            let Some(filter) = self.over.pop() else {
                break;
            };
            if self.interests.contains_key(&filter) {
                continue; // a sensor is subscribed again
            }
            if self.asks.is_empty() && self.ending.is_empty() {
                self.answered_s = now_s;
            }
            let id = self.free_id();
            unsubscribe(&mut self.out, self.version, id, &[&filter]);
            self.ending.insert(id, filter);
        }
    }

    /// A sensor is not subscribed to a filter any more. Returns the filter if it was the last one.
    fn forget(&mut self, filter: &str, number: u64) -> Option<Arc<str>> {
        let interest = self.interests.get_mut(filter)?;
        interest.subscribers.remove(&number);
        if !interest.subscribers.is_empty() {
            return None;
        }
        let (filter, interest) = self.interests.remove_entry(filter)?;
        self.filters.unsubscribe(&filter, &0);
        for id in interest.ids {
            self.identifiers.remove(&id);
        }
        Some(filter)
    }

    /// The sensors that a message is for: each of them once for each filter that matches or, if the
    /// upstream does not tell the filters, once.
    pub fn targets(&self, message: &Message<'_>, ids: &[u32]) -> Vec<(Arc<Session>, Qos)> {
        if let Some(owner) = &self.owner {
            return vec![(Arc::clone(owner), Qos::ExactlyOnce)];
        }
        let mut found = Vec::new();
        let mut is_known = false;
        for (filter, asker) in ids.iter().filter_map(|id| self.identifiers.get(id)) {
            is_known = true;
            let asker = asker.filter(|_| message.retain);
            let subscribers = self.interests.get(filter).map(|one| &one.subscribers);
            for (number, one) in subscribers.into_iter().flatten() {
                if asker.is_none_or(|asker| asker == *number) {
                    found.push((Arc::clone(&one.session), one.qos));
                }
            }
        }
        // If its filters have no subscribers any more, the message is for no sensor.
        if is_known || !ids.is_empty() {
            return found;
        }
        let mut best: BTreeMap<u64, (&Arc<Session>, Qos, bool)> = BTreeMap::new();
        self.filters.matches(message.topic, &mut |found| {
            let Match::One(_, filter) = found else { return };
            let subscribers = self.interests.get(filter).map(|one| &one.subscribers);
            for (number, one) in subscribers.into_iter().flatten() {
                let known = best
                    .entry(*number)
                    .or_insert((&one.session, one.qos, false));
                (known.1, known.2) = (known.1.max(one.qos), known.2 || one.is_fresh);
            }
        });
        let only_fresh = message.retain && best.values().any(|(_, _, is_fresh)| *is_fresh);
        let wanted = best.values().filter(|one| one.2 || !only_fresh);
        wanted.map(|one| (Arc::clone(one.0), one.1)).collect()
    }
}
