//! Which retained messages this site has, and which of two is the newer one.
//!
//! MQTT gives messages no time. So the node where a retained message is published stamps it: with
//! its clock, and above the stamp of what was there before, so that what comes after something wins
//! even where a clock is wrong. The higher stamp wins everywhere. What a node found at its broker,
//! and never saw being published, has the stamp 0: it gives way to what some node saw, and of two
//! such ones each site keeps its own. Of two with the same stamp, which nodes gave at once, the hash of the
//! content decides. An empty message, which deletes, has a stamp like any other.
//!
//! Contents stay at the broker: here are topics, and a hash of each content.

use crate::node::Message;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};

const MOST_GONE: usize = 10_000; // deletions that are remembered
const OF_ENTRY: usize = 128; // octets, beside the topic

/// What is known of one topic.
#[derive(Clone, Copy)]
pub struct Entry {
    stamp: u64,
    content: u64,
    /// The reading of the broker in which, or after which, it was last known to be right.
    reading: u64,
    /// Which of the deletions it is, or 0.
    gone: u64,
}

impl Entry {
    /// Whether it has this stamp.
    #[must_use]
    pub fn has(&self, stamp: u64) -> bool {
        self.stamp == stamp
    }
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
    /// Contents that the broker may have, and that are not for other sites; the reading then.
    stays: HashMap<Box<str>, (u64, u64)>,
    stays_octets: usize,
    /// There was no room for one of these: what was found could be it.
    doubts_found: bool,
    gone: BTreeMap<u64, Box<str>>,
    deletions: u64,
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
            stays: HashMap::new(),
            stays_octets: 0,
            doubts_found: false,
            gone: BTreeMap::new(),
            deletions: 0,
            octets: 0,
            reading: 0,
        }
    }
}

/// The same on all machines.
fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
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

    fn set(&mut self, topic: &str, stamp: u64, payload: &[u8]) -> bool {
        let entry = Entry {
            stamp,
            content: hash(payload),
            reading: self.reading,
            gone: u64::from(payload.is_empty()),
        };
        // Now it is for others, too.
        if self
            .stays
            .get(topic)
            .is_some_and(|one| one.0 == entry.content)
        {
            self.stays.remove(topic);
            self.stays_octets -= topic.len() + OF_ENTRY;
        }
        self.put(topic, entry)
    }

    /// Write an entry down; whether there is room.
    fn put(&mut self, topic: &str, entry: Entry) -> bool {
        let mut entry = entry;
        if entry.gone > 0 {
            self.deletions += 1;
            entry.gone = self.deletions;
        }
        if let Some(here) = self.all.get_mut(topic) {
            self.gone.remove(&here.gone);
            *here = entry;
        } else {
            if self.octets + topic.len() + OF_ENTRY > self.most_octets {
                self.unknown += 1;
                return false;
            }
            self.octets += topic.len() + OF_ENTRY;
            self.all.insert(topic.into(), entry);
        }
        if entry.gone > 0 {
            self.gone.insert(entry.gone, topic.into());
            if self.gone.len() > MOST_GONE
                && let Some(oldest) = self.gone.first_entry().map(|one| one.get().clone())
            {
                self.forget(&oldest);
            }
        }
        true
    }

    fn forget(&mut self, topic: &str) {
        if let Some(one) = self.all.remove(topic) {
            self.gone.remove(&one.gone);
            self.octets -= topic.len() + OF_ENTRY;
        }
    }

    /// A client of this site published it now, as this node's clock says in us. Its stamp, and what
    /// was known before.
    pub fn published(&mut self, topic: &str, payload: &[u8], now_us: u64) -> (u64, Option<Entry>) {
        let before = self.all.get(topic).copied();
        let here = before.map_or(0, |one| one.stamp);
        let stamp = now_us.max(here.saturating_add(1));
        self.set(topic, stamp, payload);
        (stamp, before)
    }

    /// The broker refused what had this stamp: what was known before is, unless there is news.
    pub fn refused(&mut self, topic: &str, stamp: u64, before: Option<Entry>) {
        match before {
            _ if !self.all.get(topic).is_some_and(|one| one.has(stamp)) => {}
            Some(before) => {
                self.put(topic, before);
            }
            None => self.forget(topic),
        }
    }

    /// A client published what is not for other sites: the broker may have it, or refuse it without a
    /// word. So it changes nothing of what is known. Such clients get a quarter of the room: beyond
    /// it, other sites get nothing any more that this node did not see being published.
    pub fn stays(&mut self, topic: &str, payload: &[u8]) {
        let content = hash(payload);
        if payload.is_empty()
            || self
                .all
                .get(topic)
                .is_some_and(|one| one.content == content)
        {
            return;
        }
        if let Some(here) = self.stays.get_mut(topic) {
            *here = (content, self.reading);
        } else if self.stays_octets + topic.len() + OF_ENTRY > self.most_octets / 4 {
            self.doubts_found = true;
            self.unknown += 1;
        } else {
            self.stays_octets += topic.len() + OF_ENTRY;
            self.stays.insert(topic.into(), (content, self.reading));
        }
    }

    /// It came from another site; `kept`: as one of those that were there before.
    pub fn came(&mut self, message: &Message) -> Came {
        let here = self.all.get(&*message.topic).copied();
        let content = hash(&message.payload);
        let is_older = |here: Entry| match message.stamp {
            0 => true,
            stamp => (stamp, content) <= (here.stamp, here.content),
        };
        if here.is_some_and(is_older) {
            return Came::Older;
        }
        let has_room = self.set(&message.topic, message.stamp, &message.payload);
        let is_same = |here: Entry| here.content == content;
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
        let (reading, content) = (self.reading, hash(payload));
        if let Some(stays) = self.stays.get_mut(topic).filter(|one| one.0 == content) {
            stays.1 = reading;
            // What is for others may come again.
            if let Some(here) = self.all.get_mut(topic) {
                here.reading = reading;
            }
            return None;
        }
        match self.all.get_mut(topic) {
            Some(here) if here.content == content => {
                here.reading = reading;
                Some(here.stamp)
            }
            // Another one is on its way to the broker.
            Some(here) if here.reading == reading => None,
            _ if self.doubts_found => None,
            // Somebody passed this node by, or the broker did not take what it was given.
            _ => self.set(topic, 0, payload).then_some(0),
        }
    }

    /// That was all: what the broker has not is not here.
    pub fn end_reading(&mut self) {
        let reading = self.reading;
        self.all.retain(|topic, one| {
            let stays = one.gone > 0 || one.reading == reading;
            self.octets -= if stays { 0 } else { topic.len() + OF_ENTRY };
            stays
        });
        self.stays.retain(|topic, one| {
            let stays = one.1 == reading;
            self.stays_octets -= if stays { 0 } else { topic.len() + OF_ENTRY };
            stays
        });
        self.is_known = true;
    }

    /// What was deleted, and with which stamp.
    #[must_use]
    pub fn deleted(&self) -> Vec<(Box<str>, u64)> {
        let gone = self.gone.values();
        gone.filter_map(|topic| Some((topic.clone(), self.all.get(topic)?.stamp)))
            .collect()
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
        assert_eq!(here.published("a", b"now", 10).0, 1001);
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
        here.published("lost", b"x", 5);
        here.published("deleted", b"x", 5);
        here.published("deleted", b"", 6);
        here.begin_reading();
        here.end_reading();
        assert_eq!(here.came(&kept("lost", "x", 5)), Came::Newer);
        assert_eq!(here.came(&kept("deleted", "x", 5)), Came::Older);
        assert_eq!(here.deleted(), [("deleted".into(), 6)]);
    }

    #[test]
    fn what_is_at_the_broker_without_the_nodes_knowledge_goes_on_as_what_was_found() {
        let mut here = Retained::default();
        here.published("a", b"seen", 5);
        here.begin_reading();
        assert_eq!(here.found("a", b"past the node"), Some(0));
        here.published("a", b"on its way", 6);
        assert_eq!(here.found("a", b"past the node"), None);
    }

    #[test]
    fn what_is_not_for_other_sites_stays_and_does_not_touch_what_is() {
        let mut here = Retained::default();
        here.published("a", b"for all", 5);
        here.published("gone", b"", 5);
        for topic in ["a", "b", "gone"] {
            here.stays(topic, b"not for others");
            here.stays(topic, b"");
        }
        here.stays("a", b"for all");
        here.stays("a", b"not for others");
        here.begin_reading();
        assert_eq!(
            here.found("a", b"for all"),
            Some(5),
            "the broker refused it"
        );
        assert_eq!(here.found("a", b"not for others"), None);
        assert_eq!(here.found("b", b"not for others"), None);
        here.end_reading();
        assert_eq!(here.deleted(), [("gone".into(), 5)]);
        assert_eq!(here.came(&kept("a", "newer", 6)), Came::Newer);
        assert_eq!(here.came(&kept("b", "found elsewhere", 0)), Came::Newer);
    }

    #[test]
    fn clients_that_may_not_publish_leave_room_for_others_and_pass_nothing_on_when_theirs_is_full()
    {
        let mut here = Retained {
            most_octets: 40 * (OF_ENTRY + 2),
            ..Retained::default()
        };
        for number in 10..99 {
            here.stays(&number.to_string(), b"not for others");
        }
        assert_eq!(here.unknown, 79);
        for number in 10..50 {
            here.published(&number.to_string(), b"for all", 5);
        }
        assert_eq!((here.len(), here.unknown), (40, 79));
        here.begin_reading();
        assert_eq!(here.found("10", b"not for others"), None);
        assert_eq!(here.found("49", b"not for others"), None);
        assert_eq!(here.found("98", b"not for others"), None);
        assert_eq!(here.found("30", b"for all"), Some(5));
        here.end_reading();
        assert_eq!((here.len(), here.stays.len()), (2, 1));
        assert_eq!(here.stays_octets, OF_ENTRY + 2);
    }

    #[test]
    fn what_one_client_may_not_publish_another_one_may() {
        let mut here = Retained::default();
        here.stays("a", b"x");
        here.published("a", b"x", 5);
        here.begin_reading();
        assert_eq!(here.found("a", b"x"), Some(5));
        assert_eq!((here.stays.len(), here.stays_octets), (0, 0));
    }

    #[test]
    fn two_sites_that_give_the_same_stamp_at_once_keep_the_same() {
        let (mut one, mut other) = (Retained::default(), Retained::default());
        for site in [&mut one, &mut other] {
            site.came(&kept("a", "of a clock that is ahead", 1000));
        }
        let stamp = one.published("a", b"x", 10).0;
        assert_eq!(stamp, other.published("a", b"y", 20).0);
        let came = [
            one.came(&kept("a", "y", stamp)),
            other.came(&kept("a", "x", stamp)),
        ];
        assert!(
            came.contains(&Came::Newer) && came.contains(&Came::Older),
            "{came:?}"
        );
    }

    #[test]
    fn what_the_broker_refused_leaves_what_was_there_before() {
        let mut here = Retained::default();
        here.published("gone", b"", 5);
        here.published("a", b"x", 5);
        for topic in ["a", "gone", "new"] {
            let (stamp, before) = here.published(topic, b"refused", 9);
            here.refused(topic, stamp, before);
        }
        let (stamp, before) = here.published("a", b"refused", 20);
        here.published("a", b"later", 30);
        here.refused("a", stamp, before);
        assert_eq!((here.len(), here.deleted()), (2, vec![("gone".into(), 5)]));
        here.begin_reading();
        assert_eq!(here.found("a", b"later"), Some(30));
    }

    #[test]
    fn where_there_is_no_room_nothing_that_may_be_newer_is_replaced() {
        let mut here = Retained {
            most_octets: 2 * (OF_ENTRY + 1),
            ..Retained::default()
        };
        for topic in ["a", "b", "c"] {
            here.published(topic, b"x", 5);
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
            here.published(&number.to_string(), b"", 5);
            here.published("comes and goes", b"here", 5);
            here.published("comes and goes", b"", 5);
        }
        assert_eq!(here.len(), MOST_GONE);
        assert_eq!(here.deleted().len(), MOST_GONE);
        let octets: usize = here.all.keys().map(|one| one.len() + OF_ENTRY).sum();
        assert_eq!(here.octets, octets);
    }
}
