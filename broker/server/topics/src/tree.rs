//! The subscriptions, as a tree of levels that readers walk while others change clones of it.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rpds::HashTrieMapSync;

use crate::names::{split_level, split_share, valid_filter};
use crate::ordered::Ordered;

/// Up to this many children of a node are looked at one by one; above, they are hashed.
const SCANNED: usize = 8;

/// Which sessions subscribed to which filters.
///
/// `K` is a session and `V` what the broker keeps of its subscription. A clone takes constant time
/// and shares all nodes; a change makes new nodes only on the way to it, and no clone sees it.
pub struct Tree<K, V> {
    plain: Arc<Node<Ordered<K, V>>>,
    /// Shared subscriptions: for each filter its groups by name.
    shared: Arc<Node<Groups<K, V>>>,
    len: usize,
}

type Groups<K, V> = Ordered<Arc<str>, Group<K, V>>;

/// What [`Tree::matches`] found.
pub enum Match<'t, K, V> {
    /// A subscription.
    One(&'t K, &'t V),
    /// A shared subscription: one of its members gets the message ([MQTT-4.8.2-3]).
    Group(&'t Group<K, V>),
}

/// The members of a shared subscription.
pub struct Group<K, V> {
    members: Ordered<K, V>,
    /// Shared by all clones, so that members take turns while the tree changes.
    turn: Arc<AtomicUsize>,
}

/// A level of filters. `S` is what is kept of the subscriptions to one filter.
struct Node<S> {
    exact: Children<S>,
    plus: Option<Arc<Node<S>>>,
    /// Filters that end with this level.
    here: Option<Arc<S>>,
    /// Filters that go on with `#` and match this level and all below.
    rest: Option<Arc<S>>,
}

enum Children<S> {
    Few(Vec<(Arc<str>, Arc<Node<S>>)>),
    Many(HashTrieMapSync<Arc<str>, Arc<Node<S>>>),
}

impl<K, V> Clone for Tree<K, V> {
    fn clone(&self) -> Self {
        Self {
            plain: Arc::clone(&self.plain),
            shared: Arc::clone(&self.shared),
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
            plain: Arc::default(),
            shared: Arc::default(),
            len: 0,
        }
    }

    /// How many subscriptions there are; each member of a group counts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Call `each` for all that subscribed to `topic`, once for each subscription.
    ///
    /// Of two filters, the one comes first that has the more exact level where they first differ:
    /// a name before `+` before `#`, and the end before `#`. In one filter the order is that of
    /// subscription. Groups come after all others. A filter that begins with a wildcard does not
    /// match a topic that begins with `$` ([MQTT-4.7.2-1]).
    ///
    /// Each node is visited at most once, whatever the filters are.
    #[inline]
    pub fn matches<'t>(&'t self, topic: &str, each: &mut impl FnMut(Match<'t, K, V>)) {
        let wild = !topic.starts_with('$');
        self.plain.walk(Some(topic), wild, &mut |subscribers| {
            subscribers.walk(&mut |key, value| each(Match::One(key, value)));
        });
        if !self.shared.is_empty() {
            self.shared.walk(Some(topic), wild, &mut |groups| {
                groups.walk(&mut |_, group| each(Match::Group(group)));
            });
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Tree<K, V> {
    /// Subscribe to `filter` and return the value of the subscription that this one replaces.
    ///
    /// One that replaces another keeps its place in the order. A filter that is not valid is not
    /// kept ([`valid_filter`]).
    pub fn subscribe(&mut self, filter: &str, key: K, value: V) -> Option<V> {
        if !valid_filter(filter) {
            return None;
        }
        let (name, filter) = split_share(filter).ok()?;
        let earlier = match name {
            None => made(&mut self.plain, filter)?.insert(key, value),
            Some(name) => {
                let groups = made(&mut self.shared, filter)?;
                let name = Arc::from(name);
                if groups.get(&name).is_none() {
                    groups.insert(Arc::clone(&name), Group::default());
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
        // Look first: the way is copied only for a change, and is no deeper than what is there.
        let value = match name {
            None => {
                self.plain.find(filter)?.get(key)?;
                Arc::make_mut(&mut self.plain).change(Some(filter), &mut |ones| {
                    (ones.remove(key), ones.len() == 0)
                })
            }
            Some(name) => {
                let name = Arc::from(name);
                self.shared.find(filter)?.get(&name)?.members.get(key)?;
                Arc::make_mut(&mut self.shared).change(Some(filter), &mut |groups| {
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
    /// Return all members once, beginning with the one whose turn it is; the turn goes on by one.
    pub fn members(&self) -> impl Iterator<Item = (&K, &V)> {
        let len = self.members.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % len.max(1);
        (turn..len)
            .chain(0..turn)
            .filter_map(|rank| self.members.nth(rank))
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Clone for Group<K, V> {
    fn clone(&self) -> Self {
        Self {
            members: self.members.clone(),
            turn: Arc::clone(&self.turn),
        }
    }
}

impl<K, V> Default for Group<K, V> {
    fn default() -> Self {
        Self {
            members: Ordered::default(),
            turn: Arc::default(),
        }
    }
}

impl<S> Clone for Node<S> {
    fn clone(&self) -> Self {
        Self {
            exact: match &self.exact {
                Children::Few(few) => Children::Few(few.clone()),
                Children::Many(many) => Children::Many(many.clone()),
            },
            plus: self.plus.clone(),
            here: self.here.clone(),
            rest: self.rest.clone(),
        }
    }
}

impl<S> Default for Node<S> {
    fn default() -> Self {
        Self {
            exact: Children::Few(Vec::new()),
            plus: None,
            here: None,
            rest: None,
        }
    }
}

impl<S> Node<S> {
    fn is_empty(&self) -> bool {
        self.plus.is_none()
            && self.here.is_none()
            && self.rest.is_none()
            && match &self.exact {
                Children::Few(few) => few.is_empty(),
                Children::Many(many) => many.is_empty(),
            }
    }

    /// Call `each` for what matches the levels, which go on from here, and return how many nodes
    /// were visited. Where `wild` is false, wildcards of this node do not match.
    fn walk<'t>(&'t self, levels: Option<&str>, wild: bool, each: &mut impl FnMut(&'t S)) -> usize {
        let mut visited = 1;
        match levels {
            None => self.here.iter().for_each(|one| each(one)),
            Some(levels) => {
                let (level, below) = split_level(levels);
                if let Some(child) = self.exact.get(level) {
                    visited += child.walk(below, true, each);
                }
                if let Some(plus) = &self.plus
                    && wild
                {
                    visited += plus.walk(below, true, each);
                }
            }
        }
        if wild {
            self.rest.iter().for_each(|one| each(one));
        }
        visited
    }

    /// Return what is kept for exactly this filter.
    fn find(&self, filter: &str) -> Option<&S> {
        let mut node = self;
        let mut levels = Some(filter);
        while let Some(rest) = levels {
            let (level, below) = split_level(rest);
            node = match level {
                "#" => return node.rest.as_deref(),
                "+" => node.plus.as_deref()?,
                _ => node.exact.get(level)?,
            };
            levels = below;
        }
        node.here.as_deref()
    }
}

impl<S: Clone> Node<S> {
    /// Call `change` for what is kept for the filter whose levels go on from here, and drop what
    /// it says is empty. The filter is one that is there.
    fn change<R>(
        &mut self,
        levels: Option<&str>,
        change: &mut impl FnMut(&mut S) -> (Option<R>, bool),
    ) -> Option<R> {
        let Some(levels) = levels else {
            return settle(&mut self.here, change);
        };
        let (level, below) = split_level(levels);
        let child = match level {
            "#" => return settle(&mut self.rest, change),
            "+" => self.plus.as_mut()?,
            _ => self.exact.get_mut(level)?,
        };
        let node = Arc::make_mut(child);
        let value = node.change(below, change);
        if node.is_empty() {
            match level {
                "+" => self.plus = None,
                _ => self.exact.remove(level),
            }
        }
        value
    }
}

/// Change what is kept of a filter and drop it when it is empty.
fn settle<S: Clone, R>(
    kept: &mut Option<Arc<S>>,
    change: &mut impl FnMut(&mut S) -> (Option<R>, bool),
) -> Option<R> {
    let (value, empty) = change(Arc::make_mut(kept.as_mut()?));
    if empty {
        *kept = None;
    }
    value
}

/// Return what is kept for `filter`, made with all nodes on the way where it was not there.
fn made<'t, S: Clone + Default>(root: &'t mut Arc<Node<S>>, filter: &str) -> Option<&'t mut S> {
    let mut node = Arc::make_mut(root);
    let mut levels = Some(filter);
    while let Some(rest) = levels {
        let (level, below) = split_level(rest);
        node = match level {
            "#" => return Some(Arc::make_mut(node.rest.get_or_insert_default())),
            "+" => Arc::make_mut(node.plus.get_or_insert_default()),
            _ => Arc::make_mut(node.exact.made(level)?),
        };
        levels = below;
    }
    Some(Arc::make_mut(node.here.get_or_insert_default()))
}

impl<S> Children<S> {
    #[inline]
    fn get(&self, level: &str) -> Option<&Node<S>> {
        match self {
            Children::Few(few) => few
                .iter()
                .find(|(name, _)| **name == *level)
                .map(|(_, child)| &**child),
            Children::Many(many) => many.get(level).map(|child| &**child),
        }
    }

    fn get_mut(&mut self, level: &str) -> Option<&mut Arc<Node<S>>> {
        match self {
            Children::Few(few) => few
                .iter_mut()
                .find(|(name, _)| **name == *level)
                .map(|(_, child)| child),
            Children::Many(many) => many.get_mut(level),
        }
    }

    /// Return the child of this name, made where it was not there.
    fn made(&mut self, level: &str) -> Option<&mut Arc<Node<S>>> {
        if self.get(level).is_none() {
            match self {
                Children::Few(few) if few.len() < SCANNED => {
                    few.push((level.into(), Arc::default()))
                }
                Children::Few(few) => {
                    let mut many: HashTrieMapSync<_, _> = few.drain(..).collect();
                    many.insert_mut(level.into(), Arc::default());
                    *self = Children::Many(many);
                }
                Children::Many(many) => many.insert_mut(level.into(), Arc::default()),
            }
        }
        self.get_mut(level)
    }

    fn remove(&mut self, level: &str) {
        match self {
            Children::Few(few) => few.retain(|(name, _)| **name != *level),
            Children::Many(many) => {
                many.remove_mut(level);
                if many.size() <= SCANNED / 2 {
                    *self = Children::Few(
                        many.iter()
                            .map(|(name, child)| (name.clone(), child.clone()))
                            .collect(),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return how many nodes a match visits and how many subscriptions it finds.
    fn visited(tree: &Tree<u32, ()>, topic: &str) -> (usize, usize) {
        let mut found = 0;
        let visited = tree
            .plain
            .walk(Some(topic), true, &mut |ones| found += ones.len());
        (visited, found)
    }

    /// Filters of 17 levels, each `a` or `+`, with `end` behind them.
    fn forked(end: &str) -> Tree<u32, ()> {
        let mut tree = Tree::new();
        for number in 0..1u32 << 17 {
            let level = |bit: u32| if number >> bit & 1 == 0 { "a/" } else { "+/" };
            let filter: String = (0..17).map(level).collect();
            tree.subscribe(&(filter + end), number, ());
        }
        tree
    }

    #[test]
    fn a_hundred_thousand_subscribers_of_plus_chains_cost_one_node_a_level() {
        let mut tree = Tree::new();
        let chains: Vec<String> = (1..=50).map(|depth| vec!["+"; depth].join("/")).collect();
        for key in 0..100_000 {
            tree.subscribe(&chains[key as usize % chains.len()], key, ());
        }
        assert_eq!(visited(&tree, &vec!["a"; 50].join("/")), (51, 2000));
        assert_eq!(visited(&tree, &vec!["a"; 32_768].join("/")), (51, 0));
        assert_eq!(visited(&tree, "a"), (2, 2000));
    }

    #[test]
    fn filters_that_fork_at_each_level_cost_no_more_than_their_nodes() {
        let nodes = (1 << 18) - 1;
        let tree = forked("x");
        let topic = vec!["a"; 17].join("/");
        assert_eq!(
            visited(&tree, &(topic.clone() + "/x")),
            (nodes + (1 << 17), 1 << 17)
        );
        assert_eq!(visited(&tree, &(topic.clone() + "/y")), (nodes, 0));
        assert_eq!(visited(&tree, &topic), (nodes, 0));
        assert_eq!(visited(&tree, "b"), (2, 0));
    }

    #[test]
    fn a_tree_keeps_no_node_of_what_has_unsubscribed() {
        let mut tree = Tree::new();
        let filters: Vec<_> = (0..500).map(|one| format!("a/+/{one}/#")).collect();
        for filter in &filters {
            tree.subscribe(filter, 1, ());
        }
        let clone = tree.clone();
        for filter in &filters {
            tree.unsubscribe(filter, &1);
        }
        assert!(tree.is_empty() && tree.plain.is_empty());
        assert_eq!((clone.len(), visited(&clone, "a/b/7/c").1), (500, 1));
    }

    #[test]
    fn a_change_copies_only_the_way_to_it() {
        let mut tree = Tree::new();
        for filter in ["a/b", "a/c", "d"] {
            tree.subscribe(filter, 1, ());
        }
        let clone = tree.clone();
        tree.subscribe("a/b", 2, ());
        let kept = |tree: &Tree<_, _>, filter| tree.plain.find(filter).map(std::ptr::from_ref);
        let same = |filter| kept(&tree, filter) == kept(&clone, filter);
        assert_eq!(["a/b", "a/c", "d"].map(same), [false, true, true]);
    }
}
