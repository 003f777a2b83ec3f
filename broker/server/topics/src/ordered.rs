//! A map in the order of insertion that is fast to iterate: a B+ tree that only grows at its end.

use std::hash::Hash;
use std::sync::Arc;

use rpds::HashTrieMapSync;

/// The most entries in a leaf and the most children of a branch.
const WIDTH: usize = 64;

/// Two neighbours are merged if they have no more entries than this together.
const THIN: usize = WIDTH / 2;

/// Up to this many entries are searched linearly; for more there is an index.
const SCANNED: usize = 16;

/// A map in the order of insertion. A clone shares all nodes; a change copies those on the path to
/// it.
pub(crate) struct Ordered<K, V> {
    len: usize,
    /// The place of the next new entry. Places only increase, so they are in the order of
    /// insertion.
    next: u64,
    root: Node<K, V>,
    /// The place of each key, if there are too many entries for a linear search.
    index: Option<Box<HashTrieMapSync<K, u64>>>,
}

enum Node<K, V> {
    Leaf(Vec<Entry<K, V>>),
    Branch(Vec<Child<K, V>>),
}

#[derive(Clone)]
struct Entry<K, V> {
    place: u64,
    key: K,
    value: V,
}

struct Child<K, V> {
    /// A lower bound of the places below.
    first: u64,
    len: usize,
    node: Arc<Node<K, V>>,
}

impl<K, V> Clone for Child<K, V> {
    fn clone(&self) -> Self {
        Self {
            first: self.first,
            len: self.len,
            node: Arc::clone(&self.node),
        }
    }
}

impl<K: Clone, V: Clone> Clone for Node<K, V> {
    fn clone(&self) -> Self {
        match self {
            Node::Leaf(entries) => Node::Leaf(entries.clone()),
            Node::Branch(children) => Node::Branch(children.clone()),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Clone for Ordered<K, V> {
    fn clone(&self) -> Self {
        Self {
            len: self.len,
            next: self.next,
            root: self.root.clone(),
            index: self.index.clone(),
        }
    }
}

impl<K, V> Default for Ordered<K, V> {
    fn default() -> Self {
        Self {
            len: 0,
            next: 0,
            root: Node::Leaf(Vec::new()),
            index: None,
        }
    }
}

impl<K, V> Ordered<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Call `each` for all entries in order.
    #[inline]
    pub(crate) fn walk<'t>(&'t self, each: &mut impl FnMut(&'t K, &'t V)) {
        self.root.walk(each);
    }

    /// Return the entry after `rank` others.
    pub(crate) fn nth(&self, mut rank: usize) -> Option<(&K, &V)> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(entries) => return entries.get(rank).map(|one| (&one.key, &one.value)),
                Node::Branch(children) => {
                    let mut below = children.iter();
                    node = loop {
                        let child = below.next()?;
                        if rank < child.len {
                            break &child.node;
                        }
                        rank -= child.len;
                    };
                }
            }
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Ordered<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.place(key).and_then(|place| self.root.get(place))
    }

    /// Return the value of a key, to be changed. Clones are not affected.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.place(key).and_then(|place| self.root.get_mut(place))
    }

    /// Add an entry at the end, or replace the value of this key. Return the replaced value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(earlier) = self.get_mut(&key) {
            return Some(std::mem::replace(earlier, value));
        }
        let place = self.next;
        self.next += 1;
        self.len += 1;
        if let Some(index) = &mut self.index {
            index.insert_mut(key.clone(), place);
        }
        if let Some(sibling) = self.root.push(Entry { place, key, value }) {
            let whole = std::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            self.root = Node::Branch(vec![Child::new(whole), Child::new(sibling)]);
        }
        if self.index.is_none() && self.len > SCANNED {
            let mut index = HashTrieMapSync::new_sync();
            self.root
                .each(&mut |one| index.insert_mut(one.key.clone(), one.place));
            self.index = Some(Box::new(index));
        }
        None
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let place = self.place(key)?;
        let value = self.root.remove(place)?;
        self.len -= 1;
        if let Some(index) = &mut self.index {
            index.remove_mut(key);
        }
        // Only at half the number that needs an index, so that no client can have it rebuilt
        // repeatedly.
        if self.len <= SCANNED / 2 {
            self.index = None;
        }
        while let Node::Branch(children) = &mut self.root
            && children.len() <= 1
        {
            self.root = match children.pop() {
                Some(only) => Arc::unwrap_or_clone(only.node),
                None => Node::Leaf(Vec::new()),
            };
        }
        Some(value)
    }

    fn place(&self, key: &K) -> Option<u64> {
        match (&self.index, &self.root) {
            (Some(index), _) => index.get(key).copied(),
            (None, Node::Leaf(entries)) => entries
                .iter()
                .find(|one| one.key == *key)
                .map(|one| one.place),
            (None, root) => {
                let mut place = None;
                root.each(&mut |one| {
                    if one.key == *key {
                        place = Some(one.place);
                    }
                });
                place
            }
        }
    }
}

impl<K, V> Child<K, V> {
    fn new(node: Node<K, V>) -> Self {
        Self {
            first: node.first(),
            len: node.len(),
            node: Arc::new(node),
        }
    }
}

impl<K, V> Node<K, V> {
    fn first(&self) -> u64 {
        match self {
            Node::Leaf(entries) => entries.first().map_or(0, |one| one.place),
            Node::Branch(children) => children.first().map_or(0, |one| one.first),
        }
    }

    /// The number of entries below.
    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(children) => children.iter().map(|one| one.len).sum(),
        }
    }

    /// The number of entries or children of the node itself.
    fn width(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(children) => children.len(),
        }
    }

    fn walk<'t>(&'t self, each: &mut impl FnMut(&'t K, &'t V)) {
        match self {
            Node::Leaf(entries) => entries.iter().for_each(|one| each(&one.key, &one.value)),
            Node::Branch(children) => children.iter().for_each(|child| child.node.walk(each)),
        }
    }

    fn each<'t>(&'t self, each: &mut impl FnMut(&'t Entry<K, V>)) {
        match self {
            Node::Leaf(entries) => entries.iter().for_each(each),
            Node::Branch(children) => children.iter().for_each(|child| child.node.each(each)),
        }
    }

    fn get(&self, place: u64) -> Option<&V> {
        match self {
            Node::Leaf(entries) => {
                let at = entries.binary_search_by_key(&place, |one| one.place).ok()?;
                entries.get(at).map(|one| &one.value)
            }
            Node::Branch(children) => children.get(child_with(children, place))?.node.get(place),
        }
    }
}

impl<K: Clone, V: Clone> Node<K, V> {
    fn get_mut(&mut self, place: u64) -> Option<&mut V> {
        match self {
            Node::Leaf(entries) => {
                let at = entries.binary_search_by_key(&place, |one| one.place).ok()?;
                entries.get_mut(at).map(|one| &mut one.value)
            }
            Node::Branch(children) => {
                let at = child_with(children, place);
                Arc::make_mut(&mut children.get_mut(at)?.node).get_mut(place)
            }
        }
    }

    /// Add an entry at the end. If there is no room, it is returned in a new neighbour.
    fn push(&mut self, entry: Entry<K, V>) -> Option<Self> {
        match self {
            Node::Leaf(entries) if entries.is_empty() => *entries = vec![entry],
            Node::Leaf(entries) if entries.len() < WIDTH => entries.push(entry),
            Node::Leaf(_) => return Some(Node::Leaf(vec![entry])),
            Node::Branch(children) => {
                let last = children.last_mut()?;
                match Arc::make_mut(&mut last.node).push(entry) {
                    None => last.len += 1,
                    Some(sibling) if children.len() < WIDTH => children.push(Child::new(sibling)),
                    Some(sibling) => return Some(Node::Branch(vec![Child::new(sibling)])),
                }
            }
        }
        None
    }

    fn remove(&mut self, place: u64) -> Option<V> {
        match self {
            Node::Leaf(entries) => {
                let at = entries.binary_search_by_key(&place, |one| one.place).ok()?;
                Some(entries.remove(at).value)
            }
            Node::Branch(children) => {
                let at = child_with(children, place);
                let child = children.get_mut(at)?;
                let value = Arc::make_mut(&mut child.node).remove(place)?;
                child.len -= 1;
                if child.len == 0 {
                    children.remove(at);
                } else {
                    join(children, at);
                    join(children, at.wrapping_sub(1));
                }
                Some(value)
            }
        }
    }
}

/// The index of the child that can contain the entry with `place`.
fn child_with<K, V>(children: &[Child<K, V>], place: u64) -> usize {
    children
        .partition_point(|one| one.first <= place)
        .saturating_sub(1)
}

/// Merge the child at `left` and the next one if both are thin.
fn join<K: Clone, V: Clone>(children: &mut Vec<Child<K, V>>, left: usize) {
    let thin = match (children.get(left), children.get(left.wrapping_add(1))) {
        (Some(one), Some(two)) => one.node.width() + two.node.width() <= THIN,
        _ => false,
    };
    if thin {
        let two = children.remove(left + 1);
        if let Some(one) = children.get_mut(left) {
            one.len += two.len;
            match (Arc::make_mut(&mut one.node), Arc::unwrap_or_clone(two.node)) {
                (Node::Leaf(ones), Node::Leaf(twos)) => ones.extend(twos),
                (Node::Branch(ones), Node::Branch(twos)) => ones.extend(twos),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(map: &Ordered<u32, u32>) -> Vec<(u32, u32)> {
        let mut entries = Vec::new();
        map.walk(&mut |key, value| entries.push((*key, *value)));
        entries
    }

    /// Check all nodes, and return their number.
    fn checked(node: &Node<u32, u32>, root: bool) -> usize {
        assert!(root || node.width() > 0 && node.width() <= WIDTH);
        match node {
            Node::Leaf(_) => 1,
            Node::Branch(children) => {
                for child in children {
                    assert_eq!(child.len, child.node.len());
                    assert!(child.first <= child.node.first());
                }
                1 + children
                    .iter()
                    .map(|child| checked(&child.node, false))
                    .sum::<usize>()
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_map_does_what_a_list_would_do(
            keys in prop::collection::vec((0..400u32, prop::bool::weighted(0.6)), 1..2000),
        ) {
            let mut map = Ordered::default();
            let mut list: Vec<(u32, u32)> = Vec::new();
            let mut clones = Vec::new();
            for (value, (key, insert)) in (0..).zip(keys) {
                let at = list.iter().position(|one| one.0 == key);
                prop_assert_eq!(map.get(&key).copied(), at.map(|at| list[at].1));
                if insert {
                    let earlier = at.map(|at| std::mem::replace(&mut list[at].1, value));
                    prop_assert_eq!(map.insert(key, value), earlier);
                    if at.is_none() {
                        list.push((key, value));
                    }
                } else {
                    prop_assert_eq!(map.remove(&key), at.map(|at| list.remove(at).1));
                }
                prop_assert_eq!(map.len(), list.len());
                if value % 500 == 0 {
                    clones.push((map.clone(), list.clone()));
                }
            }
            checked(&map.root, true);
            prop_assert!(map.index.as_ref().is_none_or(|index| index.size() == list.len()));
            for (rank, one) in list.iter().enumerate() {
                prop_assert_eq!(map.nth(rank), Some((&one.0, &one.1)));
            }
            prop_assert_eq!(map.nth(list.len()), None);
            clones.push((map, list));
            for (map, list) in clones {
                prop_assert_eq!(entries(&map), list);
            }
        }
    }

    #[test]
    fn who_leaves_takes_the_room_along() {
        let mut map = Ordered::default();
        for key in 0..100_000 {
            map.insert(key, 0);
        }
        assert!(checked(&map.root, true) < 100_000 / WIDTH * 11 / 10);
        for key in (0..100_000).filter(|key| key % 1000 != 0) {
            map.remove(&key);
        }
        assert_eq!(map.len(), 100);
        assert!(checked(&map.root, true) <= 100 / (THIN / 2) + 2);
        for key in 0..100_000 {
            map.remove(&key);
        }
        assert_eq!((map.len(), checked(&map.root, true)), (0, 1));
        assert!(map.index.is_none());
    }

    #[test]
    fn a_leaf_without_entries_is_gone_where_its_neighbours_are_full() {
        let mut map = Ordered::default();
        for key in 0..3 * 64 {
            map.insert(key, 0);
        }
        assert_eq!(checked(&map.root, true), 4);
        for key in 64..128 {
            map.remove(&key);
        }
        assert_eq!(checked(&map.root, true), 3);
        assert!(map.nth(64).is_some_and(|(key, _)| *key == 128));
    }

    #[test]
    fn one_subscriber_who_comes_and_goes_leaves_nothing_behind() {
        let mut map = Ordered::default();
        for _ in 0..10_000 {
            map.insert(1, 1);
            map.remove(&1);
        }
        assert_eq!((map.len(), checked(&map.root, true)), (0, 1));
    }
}
