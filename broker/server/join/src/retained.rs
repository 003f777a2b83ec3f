//! Which retained messages this site has, and which of two is the newer one.
//!
//! MQTT gives messages no time. So the node where a retained message is published stamps it: with
//! its clock, and above the stamp of what was there before, so that what comes after something wins
//! even where a clock is wrong. The higher stamp wins everywhere. What a node found at its broker,
//! and never saw being published, has the stamp 0: it gives way to what some node saw, and of two
//! such ones each site keeps its own. An empty message, which deletes, has a stamp like any other.
//!
//! Contents stay at the broker: here are topics, and a hash of each content.

use crate::node::Message;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

const MOST_GONE: usize = 10_000; // deletions that are remembered
const OF_ENTRY: usize = 96; // octets, beside the topic

#[derive(Clone, Copy)]
struct Entry {
    stamp: u64,
    content: u64,
    /// The reading of the broker in which, or after which, it was last known to be right.
    reading: u64,
    is_gone: bool,
    /// It is not for other sites.
    stays: bool,
}

/// How a message that came from another site compares with what is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It takes its place.
    Newer,
    /// It is what is here, with a newer stamp.
    Same,
    /// What is here stays.
    Older,
}

/// What is known of the retained messages of this site.
pub struct Retained {
    /// Octets that may be held.
    pub most_octets: usize,
    /// Whether all that the broker has is in it.
    pub is_known: bool,
    /// Messages of topics for which there was no room.
    pub unknown: u64,
    all: HashMap<Box<str>, Entry>,
    gone: VecDeque<Box<str>>,
    octets: usize,
    reading: u64,
}

impl Default for Retained {
    fn default() -> Self {
        Self {
            most_octets: 32 << 20,
            is_known: false,
            unknown: 0,
            all: HashMap::new(),
            gone: VecDeque::new(),
            octets: 0,
            reading: 0,
        }
    }
}

fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

impl Retained {
    /// Topics that are known, also those whose message was deleted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn set(&mut self, topic: &str, stamp: u64, payload: &[u8], stays: bool) -> bool {
        let entry = Entry {
            stamp,
            content: hash(payload),
            reading: self.reading,
            is_gone: payload.is_empty(),
            stays,
        };
        let was_gone = if let Some(here) = self.all.get_mut(topic) {
            std::mem::replace(here, entry).is_gone
        } else {
            if self.octets + topic.len() + OF_ENTRY > self.most_octets {
                self.unknown += 1;
                return false;
            }
            self.octets += topic.len() + OF_ENTRY;
            self.all.insert(topic.into(), entry);
            false
        };
        if entry.is_gone && !was_gone {
            self.gone.push_back(topic.into());
            if self.gone.len() > MOST_GONE
                && let Some(oldest) = self.gone.pop_front()
                && self.all.get(&oldest).is_some_and(|one| one.is_gone)
            {
                self.all.remove(&oldest);
                self.octets -= oldest.len() + OF_ENTRY;
            }
        }
        true
    }

    /// A client of this site published it now, as this node's clock says in us; `stays`: not for
    /// other sites. Its stamp.
    pub fn published(&mut self, topic: &str, payload: &[u8], now_us: u64, stays: bool) -> u64 {
        let here = self.all.get(topic).map_or(0, |one| one.stamp);
        let stamp = now_us.max(here.saturating_add(1));
        self.set(topic, stamp, payload, stays);
        stamp
    }

    /// It came from another site; `kept`: as one of those that were there before.
    pub fn came(&mut self, message: &Message) -> Came {
        let here = self.all.get(&*message.topic).copied();
        if here.is_some_and(|here| message.stamp <= here.stamp) {
            return Came::Older;
        }
        let has_room = self.set(&message.topic, message.stamp, &message.payload, false);
        let is_same = |here: Entry| here.content == hash(&message.payload);
        match message.kept {
            // It cannot be known whether something newer is here.
            true if !has_room => Came::Older,
            true if here.is_some_and(is_same) => Came::Same,
            _ => Came::Newer,
        }
    }

    /// The broker is about to say what it has.
    pub fn begin_reading(&mut self) {
        self.reading += 1;
    }

    /// It has this: with which stamp other sites get it, if they do.
    pub fn found(&mut self, topic: &str, payload: &[u8]) -> Option<u64> {
        let reading = self.reading;
        match self.all.get_mut(topic) {
            Some(here) if here.content == hash(payload) => {
                here.reading = reading;
                (!here.stays).then_some(here.stamp)
            }
            // Another one is on its way to the broker.
            Some(here) if here.reading == reading => None,
            // Somebody passed this node by, or the broker did not take what it was given.
            _ => self.set(topic, 0, payload, false).then_some(0),
        }
    }

    /// That was all: what the broker has not is not here.
    pub fn end_reading(&mut self) {
        let (reading, octets) = (self.reading, &mut self.octets);
        self.all.retain(|topic, one| {
            let stays = one.is_gone || one.reading == reading;
            *octets -= if stays { 0 } else { topic.len() + OF_ENTRY };
            stays
        });
        self.is_known = true;
    }

    /// What was deleted, and with which stamp.
    #[must_use]
    pub fn deleted(&self) -> Vec<(Box<str>, u64)> {
        let gone = self.gone.iter().filter_map(|topic| {
            let one = self.all.get(topic)?;
            (one.is_gone && !one.stays).then(|| (topic.clone(), one.stamp))
        });
        gone.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(topic: &str, payload: &str, stamp: u64) -> Message {
        Message {
            topic: topic.into(),
            payload: payload.into(),
            retain: true,
            stamp,
            kept: true,
            ..Message::default()
        }
    }

    #[test]
    fn what_was_published_last_wins_also_by_a_clock_that_is_behind() {
        let mut here = Retained::default();
        assert_eq!(here.came(&kept("a", "ahead", 1000)), Came::Newer);
        assert_eq!(here.published("a", b"now", 10, false), 1001);
        assert_eq!(here.came(&kept("a", "ahead", 1000)), Came::Older);
        assert_eq!(here.came(&kept("a", "now", 1002)), Came::Same);
    }

    #[test]
    fn what_was_found_gives_way_to_what_was_seen_and_to_nothing_else() {
        let mut here = Retained::default();
        here.begin_reading();
        assert_eq!(here.found("a", b"found"), Some(0));
        here.end_reading();
        assert_eq!(here.came(&kept("a", "found elsewhere", 0)), Came::Older);
        assert_eq!(here.came(&kept("a", "seen", 1)), Came::Newer);
    }

    #[test]
    fn what_the_broker_lost_comes_again_and_what_was_deleted_does_not() {
        let mut here = Retained::default();
        here.published("lost", b"x", 5, false);
        here.published("deleted", b"x", 5, false);
        here.published("deleted", b"", 6, false);
        here.begin_reading();
        here.end_reading();
        assert_eq!(here.came(&kept("lost", "x", 5)), Came::Newer);
        assert_eq!(here.came(&kept("deleted", "x", 5)), Came::Older);
        assert_eq!(here.deleted(), [("deleted".into(), 6)]);
    }

    #[test]
    fn what_is_at_the_broker_without_the_nodes_knowledge_goes_on_as_what_was_found() {
        let mut here = Retained::default();
        here.published("a", b"seen", 5, false);
        here.begin_reading();
        assert_eq!(here.found("a", b"past the node"), Some(0));
        here.published("a", b"on its way", 6, false);
        assert_eq!(here.found("a", b"past the node"), None);
    }

    #[test]
    fn what_is_not_for_other_sites_stays() {
        let mut here = Retained::default();
        here.published("a", b"x", 5, true);
        here.published("b", b"", 5, true);
        here.begin_reading();
        assert_eq!(here.found("a", b"x"), None);
        assert!(here.deleted().is_empty());
    }

    #[test]
    fn where_there_is_no_room_nothing_that_may_be_newer_is_replaced() {
        let mut here = Retained {
            most_octets: 2 * (OF_ENTRY + 1),
            ..Retained::default()
        };
        for topic in ["a", "b", "c"] {
            here.published(topic, b"x", 5, false);
        }
        assert_eq!((here.len(), here.unknown), (2, 1));
        assert_eq!(here.came(&kept("c", "y", 6)), Came::Older);
        assert_eq!(here.came(&kept("a", "y", 6)), Came::Newer);
        let live = Message {
            kept: false,
            ..kept("c", "y", 6)
        };
        assert_eq!(
            here.came(&live),
            Came::Newer,
            "what is published now is kept"
        );
    }

    #[test]
    fn deletions_are_remembered_up_to_a_number_and_room_is_given_back() {
        let mut here = Retained::default();
        for number in 0..MOST_GONE + 5 {
            here.published(&number.to_string(), b"", 5, false);
        }
        assert_eq!(here.len(), MOST_GONE);
        assert_eq!(here.deleted().len(), MOST_GONE);
        let octets: usize = here.all.keys().map(|one| one.len() + OF_ENTRY).sum();
        assert_eq!(here.octets, octets);
    }
}
