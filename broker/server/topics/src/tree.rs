//! The subscriptions: a tree that threads can read while others change clones of it.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::filters::Filters;
use crate::names::{split_share, valid_filter};
use crate::ordered::Ordered;

/// The subscriptions of sessions to filters.
///
/// `K` is a session, and `V` the broker's data of its subscription. A clone takes constant time and
/// shares all nodes. A change copies only the nodes on the path to it, and does not affect clones.
pub struct Tree<K, V> {
    plain: Filters<Ordered<K, V>>,
    /// Shared subscriptions: the groups of each filter, by name.
    shared: Filters<Groups<K, V>>,
    len: usize,
}

type Groups<K, V> = Ordered<Arc<str>, Group<K, V>>;

/// A result of [`Tree::matches`].
pub enum Match<'t, K, V> {
    /// A subscription.
    One(&'t K, &'t V),
    /// A shared subscription: one of its members gets the message ([MQTT-4.8.2-3]).
    Group(&'t Group<K, V>),
}

/// The members of a shared subscription.
pub struct Group<K, V> {
    filter: Arc<str>,
    members: Ordered<K, V>,
    turn: Arc<AtomicUsize>,
}

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        Self {
            plain: self.plain.clone(),
            shared: self.shared.clone(),
            len: self.len,
        }
    }
}

impl<K, V> Default for Tree<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, V> Tree<K, V> {
    /// Make a tree without subscriptions.
    #[must_use]
    pub fn new() -> Self {
        Self {
            plain: Filters::new(),
            shared: Filters::new(),
            len: 0,
        }
    }

    /// The number of subscriptions; each member of a group counts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Call `each` for every subscription that matches `topic`.
    ///
    /// Filters come in the order of the first level in which they differ: a name before `+` before
    /// `#`, and the end before `#`. The subscribers of one filter come in the order of
    /// subscription. Groups come last. A filter that begins with a wildcard does not match a topic
    /// that begins with `$` ([MQTT-4.7.2-1]).
    ///
    /// Each node is visited at most once, whatever the filters are.
    #[inline]
    pub fn matches<'t>(&'t self, topic: &str, each: &mut impl FnMut(Match<'t, K, V>)) {
        self.plain.matches(topic, &mut |subscribers| {
            subscribers.walk(&mut |key, value| each(Match::One(key, value)));
        });
        self.shared.matches(topic, &mut |groups| {
            groups.walk(&mut |_, group| each(Match::Group(group)));
        });
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Tree<K, V> {
    /// Subscribe to `filter` and return the value of the subscription that this one replaces.
    ///
    /// A subscription that replaces another one keeps its place in the order. An invalid filter
    /// ([`valid_filter`]) is ignored.
    pub fn subscribe(&mut self, filter: &str, key: K, value: V) -> Option<V> {
        if !valid_filter(filter) {
            return None;
        }
        let whole = filter;
        let (name, filter) = split_share(filter).ok()?;
        let earlier = match name {
            None => self.plain.made(filter)?.insert(key, value),
            Some(name) => {
                let groups = self.shared.made(filter)?;
                let name = Arc::from(name);
                if groups.get(&name).is_none() {
                    groups.insert(Arc::clone(&name), Group::new(whole));
                }
                groups.get_mut(&name)?.members.insert(key, value)
            }
        };
        self.len += usize::from(earlier.is_none());
        earlier
    }

    /// End the subscription of `key` to `filter` and return its value, if there was one.
    pub fn unsubscribe(&mut self, filter: &str, key: &K) -> Option<V> {
        let (name, filter) = split_share(filter).ok()?;
        // Search first: nodes are copied only if there is something to remove.
        let value = match name {
            None => {
                self.plain.find(filter)?.get(key)?;
                self.plain
                    .change(filter, &mut |ones| (ones.remove(key), ones.len() == 0))
            }
            Some(name) => {
                let name = Arc::from(name);
                self.shared.find(filter)?.get(&name)?.members.get(key)?;
                self.shared.change(filter, &mut |groups| {
                    let Some(group) = groups.get_mut(&name) else {
                        return (None, false);
                    };
                    let value = group.members.remove(key);
                    if group.members.len() == 0 {
                        groups.remove(&name);
                    }
                    (value, groups.len() == 0)
                })
            }
        };
        self.len -= usize::from(value.is_some());
        value
    }
}

impl<K, V> Group<K, V> {
    fn new(filter: &str) -> Self {
        Self {
            filter: filter.into(),
            members: Ordered::default(),
            turn: Arc::default(),
        }
    }

    /// What its members are subscribed to, `$share/NAME/FILTER`.
    #[must_use]
    pub fn filter(&self) -> &Arc<str> {
        &self.filter
    }

    /// Return all members, in the order of subscription.
    pub fn members(&self) -> impl Iterator<Item = (&K, &V)> {
        (0..self.members.len()).filter_map(|rank| self.members.nth(rank))
    }

    /// The number of messages so far. The caller increments it for each message, and tries the
    /// member of this number first. All clones share it, so that members take turns while the tree
    /// changes.
    #[must_use]
    pub fn turn(&self) -> &Arc<AtomicUsize> {
        &self.turn
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Clone for Group<K, V> {
    fn clone(&self) -> Self {
        Self {
            filter: Arc::clone(&self.filter),
            members: self.members.clone(),
            turn: Arc::clone(&self.turn),
        }
    }
}
