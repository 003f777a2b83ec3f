//! Which retained messages this site has, and which of two is the newer one.
//!
//! An MQTT message does not say when it was published. So the node where a retained message is
//! published stamps it: with its clock, but always above the stamp of the message that it replaces.
//! So the later one wins even where a clock is wrong. The higher stamp wins at all sites. A message
//! that a node found at its broker, and never saw being published, has the stamp 0: any message that
//! a node saw wins over it, and of two found ones each site keeps its own. If two nodes give the same
//! stamp, the hash of the payload decides. An empty message deletes, and has a stamp like any other.
//!
//! Only topics and a hash of each payload are kept here. The payloads are at the broker.

use crate::message::Message;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};

const MOST_GONE: usize = 10_000; // deletions that are remembered
const OF_ENTRY: usize = 128; // octets of an entry, beside the topic

/// What is known of one topic.
#[derive(Clone, Copy)]
pub struct Entry {
    stamp: u64,
    /// The hash of the payload.
    content: u64,
    /// The last reading of the broker that is consistent with this entry: it found the message, or the
    /// message was still on its way to the broker.
    reading: u64,
    /// The last reading that found the message, or that did not have to because it waited here.
    found: u64,
    /// For a deletion its number, else 0.
    gone: u64,
}

impl Entry {
    /// Whether it has this stamp.
    #[must_use]
    pub fn has(&self, stamp: u64) -> bool {
        self.stamp == stamp
    }
}

/// How a message from another site compares with the one that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// It replaces the one here.
    Newer,
    /// It has the same content, with a newer stamp.
    Same,
    /// The one here stays.
    Older,
}

/// What is known of the retained messages of this site.
pub struct Retained {
    /// Octets that may be held.
    pub most_octets: usize,
    /// Whether everything that the broker has retained is known.
    pub is_known: bool,
    is_away: bool,
    /// How many messages were on topics for which there was no room.
    pub unknown: u64,
    all: HashMap<Box<str>, Entry>,
    /// Messages that the broker may have, but that other sites must not get: by topic, the hash of the
    /// payload, and the last reading that is consistent with it.
    stays: HashMap<Box<str>, (u64, u64)>,
    stays_octets: usize,
    /// There was no room for one of `stays`. So a message that is found could be one of them.
    doubts_found: bool,
    /// The topics of deletions, by number.
    gone: BTreeMap<u64, Box<str>>,
    deletions: u64,
    octets: usize,
    /// The number of the latest reading of the broker.
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

/// The hash of a payload: the same on all machines.
fn hash(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(payload);
    hasher.finish()
}

/// Octets that are counted for a topic.
fn size(topic: &str) -> usize {
    topic.len() + OF_ENTRY
}

impl Retained {
    /// How many topics are known, including those whose message was deleted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether no topic is known.
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
        // Other sites get this content now.
        let stays = self.stays.get(topic);
        if stays.is_some_and(|one| one.0 == entry.content) {
            self.stays.remove(topic);
            self.stays_octets -= size(topic);
        }
        self.put(topic, entry)
    }

    /// Store an entry. Returns whether there is room.
    fn put(&mut self, topic: &str, mut entry: Entry) -> bool {
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
            self.octets += size(topic);
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
        self.octets + size(topic) <= self.most_octets
    }

    fn forget(&mut self, topic: &str) {
        if let Some(one) = self.all.remove(topic) {
            self.gone.remove(&one.gone);
            self.octets -= size(topic);
        }
    }

    /// A client of this site has published a retained message. `now_us`: this node's clock. Returns the
    /// stamp of the message, and the entry that it replaced.
    pub fn published(&mut self, topic: &str, payload: &[u8], now_us: u64) -> (u64, Option<Entry>) {
        let before = self.all.get(topic).copied();
        let here = before.map_or(0, |one| one.stamp);
        let stamp = now_us.max(here.saturating_add(1));
        self.set(topic, stamp, payload);
        (stamp, before)
    }

    /// The broker has refused the message with this stamp: go back to the entry from before, unless
    /// there is a newer one already.
    pub fn refused(&mut self, topic: &str, stamp: u64, before: Option<Entry>) {
        match before {
            _ if !self.all.get(topic).is_some_and(|one| one.has(stamp)) => {}
            Some(before) => {
                self.put(topic, before);
            }
            None => self.forget(topic),
        }
    }

    /// A client has published a retained message that other sites must not get. The broker may take it,
    /// or refuse it without saying so. So nothing that is known changes. These messages get a quarter
    /// of the room. Once that is full, other sites only get messages that this node saw being published.
    pub fn stays(&mut self, topic: &str, payload: &[u8]) {
        let content = hash(payload);
        let here = self.all.get(topic);
        if payload.is_empty() || here.is_some_and(|one| one.content == content) {
            return;
        }
        if let Some(here) = self.stays.get_mut(topic) {
            *here = (content, self.reading + 1);
        } else if self.stays_octets + size(topic) > self.most_octets / 4 {
            self.doubts_found = true;
            self.unknown += 1;
        } else {
            self.stays_octets += size(topic);
            self.stays.insert(topic.into(), (content, self.reading + 1));
        }
    }

    /// Whether a newer retained message on the same topic has come since this one.
    #[must_use]
    pub fn is_outdated(&self, message: &Message) -> bool {
        let here = self.all.get(&*message.topic);
        here.is_some_and(|here| {
            message.stamp < here.stamp && hash(&message.payload) != here.content
        })
    }

    /// Whether a message from another site is newer than the one here. If nothing is known of the
    /// topic: whether there is room for it.
    #[must_use]
    pub fn is_newer(&self, message: &Message) -> bool {
        let newer = |here: &Entry| {
            message.stamp > 0
                && (message.stamp, hash(&message.payload)) > (here.stamp, here.content)
        };
        let here = self.all.get(&*message.topic);
        here.map_or_else(|| self.has_room(&message.topic), newer)
    }

    /// A retained message has come from another site: compare it, and remember the newer one.
    pub fn came(&mut self, message: &Message) -> Compared {
        let is_newer = self.is_newer(message);
        let here = self.all.get_mut(&*message.topic);
        match here {
            Some(_) if !is_newer => return Compared::Older,
            // Only the stamp changes: whether the broker has this content is as certain as before.
            Some(here) if message.handed && here.content == hash(&message.payload) => {
                here.stamp = message.stamp;
                return Compared::Same;
            }
            _ => {}
        }
        match self.set(&message.topic, message.stamp, &message.payload) {
            // There is no room, so the broker may have a newer one that is not known.
            false if message.handed => Compared::Older,
            _ => Compared::Newer,
        }
    }

    /// The broker is away. When it comes back, it may have lost retained messages, and the ones that
    /// were on their way to it.
    pub fn away(&mut self) {
        (self.is_known, self.is_away) = (false, true);
    }

    /// The broker is there.
    pub fn back(&mut self) {
        self.reading += u64::from(std::mem::take(&mut self.is_away));
    }

    /// A reading of the broker begins: next it says what it has retained.
    pub fn begin_reading(&mut self) {
        self.reading += 1;
    }

    /// This message waits here until the broker takes it. Returns the stamp with which other sites get
    /// it, if it is the last one on its topic.
    pub fn waits(&mut self, message: &Message) -> Option<u64> {
        let here = self.all.get_mut(&*message.topic);
        let is_last = |here: &&mut Entry| hash(&message.payload) == here.content;
        let here = here.filter(|_| message.retain).filter(is_last)?;
        (here.reading, here.found) = (here.reading.max(self.reading), self.reading);
        Some(here.stamp)
    }

    /// The broker has this retained message. Returns the stamp with which other sites get it; none:
    /// they do not get it.
    pub fn found(&mut self, topic: &str, payload: &[u8]) -> Option<u64> {
        let (reading, content) = (self.reading, hash(payload));
        if let Some(stays) = self.stays.get_mut(topic).filter(|one| one.0 == content) {
            stays.1 = reading;
            // The one that other sites get may still replace it.
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
            // The message that is known here is still on its way to the broker.
            Some(here) if here.reading >= reading => None,
            _ if self.doubts_found => None,
            // A client published it past this node, or the broker did not take what it was sent.
            _ => self.set(topic, 0, payload).then_some(0),
        }
    }

    /// The reading ends: forget messages that the broker does not have. Returns whether a message was
    /// known before the reading began, but had not reached the broker yet; the next reading finds it.
    pub fn end_reading(&mut self) -> bool {
        let reading = self.reading;
        let mut is_missing = false;
        self.all.retain(|topic, one| {
            let stays = one.gone > 0 || one.reading >= reading;
            is_missing |= one.gone == 0 && one.reading == reading && one.found < reading;
            self.octets -= if stays { 0 } else { size(topic) };
            stays
        });
        self.stays.retain(|topic, one| {
            let stays = one.1 >= reading;
            self.stays_octets -= if stays { 0 } else { size(topic) };
            stays
        });
        self.is_known = true;
        is_missing
    }

    /// The topics whose message was deleted, each with the stamp of the deletion.
    #[must_use]
    pub fn deleted(&self) -> Vec<(Box<str>, u64)> {
        let gone = self.gone.values();
        gone.filter_map(|topic| Some((topic.clone(), self.all.get(topic)?.stamp)))
            .collect()
    }
}

#[cfg(test)]
mod tests;
