//! The topic ids of one client.

use crate::codec::Topic;
use std::collections::HashMap;
use std::sync::Arc;

const COST: usize = 128; // about the octets of an entry, without its name

struct Named {
    topic: Topic,
    known: bool, // whether the client has confirmed it, or got it in a SUBACK or REGACK
}

/// The topic names that have ids for one client.
pub(crate) struct Names {
    most: usize,
    next: u16,
    named: HashMap<Arc<str>, Named>,
    registered: HashMap<u16, Arc<str>>,
    octets: usize,
}

impl Names {
    /// No names. Ids begin at `first`, a random number, so that they cannot be guessed.
    pub(crate) fn new(most: usize, first: u16) -> Self {
        Self {
            most: most.min(60_000),
            next: first,
            named: HashMap::new(),
            registered: HashMap::new(),
            octets: 0,
        }
    }

    /// About how many octets of memory the names take.
    pub(crate) fn octets(&self) -> usize {
        self.octets
    }

    /// What to call a topic in a PUBLISH to the client. `None`: it has to be registered first.
    pub(crate) fn known(&self, name: &str) -> Option<Topic> {
        let named = self.named.get(name).filter(|named| named.known);
        named.map(|named| named.topic).or_else(|| short(name))
    }

    /// The topic name of a registered id.
    pub(crate) fn name(&self, id: u16) -> Option<Arc<str>> {
        self.registered.get(&id).cloned()
    }

    /// The registered id of a name; a new one if it has none. `None`: there are too many.
    pub(crate) fn id(&mut self, name: &str) -> Option<u16> {
        if let Some(Topic::Registered(id)) = self.named.get(name).map(|named| named.topic) {
            return Some(id);
        }
        if self.named.len() >= self.most {
            return None;
        }
        while matches!(self.next, 0 | u16::MAX) || self.registered.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let (id, name) = (self.next, Arc::<str>::from(name));
        self.next = self.next.wrapping_add(1);
        self.registered.insert(id, Arc::clone(&name));
        let topic = Topic::Registered(id);
        self.octets += COST + name.len();
        self.named.insert(
            name,
            Named {
                topic,
                known: false,
            },
        );
        Some(id)
    }

    /// Whether a name has a registered id.
    pub(crate) fn is_registered(&self, name: &str) -> bool {
        let named = self.named.get(name).map(|named| named.topic);
        matches!(named, Some(Topic::Registered(_)))
    }

    /// The client knows the id of a name.
    pub(crate) fn confirm(&mut self, name: &str) {
        if let Some(named) = self.named.get_mut(name) {
            named.known = true;
        }
    }

    /// The client does not know the id of a name after all.
    pub(crate) fn doubt(&mut self, name: &str) {
        if let Some(named) = self.named.get_mut(name) {
            named.known = false;
        }
    }

    /// The client does not know a registered id after all. Returns whether it did until now.
    pub(crate) fn doubt_id(&mut self, id: u16) -> bool {
        let name = self.registered.get(&id);
        let named = name.and_then(|name| self.named.get_mut(name));
        named.is_some_and(|named| std::mem::take(&mut named.known))
    }

    /// The client uses a predefined id for a name.
    pub(crate) fn predefined(&mut self, name: &str, id: u16) {
        if self.named.contains_key(name) || self.named.len() >= self.most {
            return;
        }
        let topic = Topic::Predefined(id);
        self.octets += COST + name.len();
        self.named.insert(name.into(), Named { topic, known: true });
    }
}

fn short(name: &str) -> Option<Topic> {
    name.as_bytes().try_into().ok().map(Topic::Short)
}
