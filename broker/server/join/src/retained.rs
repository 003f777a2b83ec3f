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
    /// The last reading of the broker that says nothing against it: the one that found it, or the next
    /// one after it was on its way to the broker.
    reading: u64,
    /// The last one that found it, or needs not.
    found: u64,
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
    is_away: bool,
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
            is_away: false,
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
            reading: self.reading + 1,
            found: 0,
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
            if !self.has_room(topic) {
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

    fn has_room(&self, topic: &str) -> bool {
        self.octets + topic.len() + OF_ENTRY <= self.most_octets
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
            *here = (content, self.reading + 1);
        } else if self.stays_octets + topic.len() + OF_ENTRY > self.most_octets / 4 {
            self.doubts_found = true;
            self.unknown += 1;
        } else {
            self.stays_octets += topic.len() + OF_ENTRY;
            self.stays.insert(topic.into(), (content, self.reading + 1));
        }
    }

    /// Whether what is to be kept is not the last one on its topic any more.
    #[must_use]
    pub fn is_outdated(&self, message: &Message) -> bool {
        let here = self.all.get(&*message.topic);
        here.is_some_and(|here| {
            message.stamp < here.stamp && hash(&message.payload) != here.content
        })
    }

    /// Whether a message from another site is newer than what is here, as far as that is known.
    #[must_use]
    pub fn is_newer(&self, message: &Message) -> bool {
        let newer = |here: &Entry| {
            message.stamp > 0
                && (message.stamp, hash(&message.payload)) > (here.stamp, here.content)
        };
        let here = self.all.get(&*message.topic);
        here.map_or_else(|| self.has_room(&message.topic), newer)
    }

    /// It came from another site; `kept`: as one of those that were there before.
    pub fn came(&mut self, message: &Message) -> Came {
        let is_newer = self.is_newer(message);
        let here = self.all.get_mut(&*message.topic);
        match here {
            Some(_) if !is_newer => return Came::Older,
            // Whether the broker has it is as sure as it was.
            Some(here) if message.kept && here.content == hash(&message.payload) => {
                here.stamp = message.stamp;
                return Came::Same;
            }
            _ => {}
        }
        match self.set(&message.topic, message.stamp, &message.payload) {
            // It cannot be known whether something newer is here.
            false if message.kept => Came::Older,
            _ => Came::Newer,
        }
    }

    /// The broker is away: it may come back without what it had, and what was on its way.
    pub fn away(&mut self) {
        (self.is_known, self.is_away) = (false, true);
    }

    /// It is there.
    pub fn back(&mut self) {
        self.reading += u64::from(std::mem::take(&mut self.is_away));
    }

    /// The broker is about to say what it has.
    pub fn begin_reading(&mut self) {
        self.reading += 1;
    }

    /// This one waits here until the broker takes it: with which stamp other sites get it, if it is
    /// the last one on its topic.
    pub fn waits(&mut self, message: &Message) -> Option<u64> {
        let here = self.all.get_mut(&*message.topic);
        let is_last = |here: &&mut Entry| hash(&message.payload) == here.content;
        let here = here.filter(|_| message.retain).filter(is_last)?;
        (here.reading, here.found) = (here.reading.max(self.reading), self.reading);
        Some(here.stamp)
    }

    /// It has this: with which stamp other sites get it, if they do.
    pub fn found(&mut self, topic: &str, payload: &[u8]) -> Option<u64> {
        let (reading, content) = (self.reading, hash(payload));
        if let Some(stays) = self.stays.get_mut(topic).filter(|one| one.0 == content) {
            stays.1 = reading;
            // What is for others may come again.
            if let Some(here) = self.all.get_mut(topic) {
                (here.reading, here.found) = (reading, reading);
            }
            return None;
        }
        match self.all.get_mut(topic) {
            Some(here) if here.content == content => {
                (here.reading, here.found) = (reading, reading);
                Some(here.stamp)
            }
            // Another one is on its way to the broker.
            Some(here) if here.reading >= reading => None,
            _ if self.doubts_found => None,
            // Somebody passed this node by, or the broker did not take what it was given.
            _ => self.set(topic, 0, payload).then_some(0),
        }
    }

    /// That was all: what the broker has not is not here. Whether something was there before the
    /// broker was asked, and had not come to it yet: the next reading finds it.
    pub fn end_reading(&mut self) -> bool {
        let reading = self.reading;
        let mut is_missing = false;
        self.all.retain(|topic, one| {
            let stays = one.gone > 0 || one.reading >= reading;
            is_missing |= one.gone == 0 && one.reading == reading && one.found < reading;
            self.octets -= if stays { 0 } else { topic.len() + OF_ENTRY };
            stays
        });
        self.stays.retain(|topic, one| {
            let stays = one.1 >= reading;
            self.stays_octets -= if stays { 0 } else { topic.len() + OF_ENTRY };
            stays
        });
        self.is_known = true;
        is_missing
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
mod tests;
