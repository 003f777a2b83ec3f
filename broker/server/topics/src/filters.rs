//! A map of filters, which is searched by filter or by topic.

use std::sync::Arc;

use rpds::HashTrieMapSync;

use crate::names::{has_wildcards, split_level};

/// Up to this many children of a node are searched linearly; more are hashed.
const SCANNED: usize = 8;

/// The values of filters. A clone shares all nodes; a change copies those on the path to it.
pub(crate) struct Filters<S> {
    /// The filters without wildcards: a single look-up finds them.
    exact: HashTrieMapSync<Arc<str>, S>,
    /// The filters with wildcards, as a tree of levels.
    wild: Arc<Node<S>>,
}

/// A level of filters. `S` is the value of a filter.
struct Node<S> {
    exact: Children<S>,
    plus: Option<Arc<Node<S>>>,
    /// The value of the filter that ends here.
    here: Option<Arc<S>>,
    /// The value of the filter that goes on with `#`: it matches this level and all below.
    rest: Option<Arc<S>>,
}

enum Children<S> {
    Few(Vec<(Arc<str>, Arc<Node<S>>)>),
    Many(HashTrieMapSync<Arc<str>, Arc<Node<S>>>),
}

impl<S> Clone for Filters<S> {
    fn clone(&self) -> Self {
        Self {
            exact: self.exact.clone(),
            wild: Arc::clone(&self.wild),
        }
    }
}

impl<S> Filters<S> {
    pub(crate) fn new() -> Self {
        Self {
            exact: HashTrieMapSync::new_sync(),
            wild: Arc::default(),
        }
    }

    /// Call `each` for the values of the filters that match `topic`. Where two filters first
    /// differ, a name comes before `+` before `#`, and the end before `#`.
    #[inline]
    pub(crate) fn matches<'t>(&'t self, topic: &str, each: &mut impl FnMut(&'t S)) {
        if !self.exact.is_empty() {
            self.exact.get(topic).into_iter().for_each(&mut *each);
        }
        self.wild.walk(Some(topic), !topic.starts_with('$'), each);
    }

    /// Return the value of this filter.
    pub(crate) fn find(&self, filter: &str) -> Option<&S> {
        if has_wildcards(filter) {
            self.wild.find(filter)
        } else {
            self.exact.get(filter)
        }
    }
}

impl<S: Clone + Default> Filters<S> {
    /// Return the value of `filter`, which is added if it is missing. Never `None`.
    pub(crate) fn made(&mut self, filter: &str) -> Option<&mut S> {
        if has_wildcards(filter) {
            return made(&mut self.wild, filter);
        }
        if !self.exact.contains_key(filter) {
            self.exact.insert_mut(filter.into(), S::default());
        }
        self.exact.get_mut(filter)
    }

    /// Call `change` for the value of `filter`, and remove it if `change` returns that it is empty.
    pub(crate) fn change<R>(
        &mut self,
        filter: &str,
        change: &mut impl FnMut(&mut S) -> (Option<R>, bool),
    ) -> Option<R> {
        if has_wildcards(filter) {
            return Arc::make_mut(&mut self.wild).change(Some(filter), change);
        }
        let (value, empty) = change(self.exact.get_mut(filter)?);
        if empty {
            self.exact.remove_mut(filter);
        }
        value
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

    /// Call `each` for the values that match the levels from here on. Return how many nodes were
    /// visited. If `wild` is false, wildcards of this node do not match.
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

    /// Return the value of this filter.
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
    /// Call `change` for the value of the filter with these levels from here on, and remove it if
    /// it is empty then. The filter has to exist.
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

/// Change a value, and remove it if it is empty then.
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

/// Return the value of `filter`, which is added with all nodes on the path if it is missing.
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

    /// Return the child of this name, which is added if it is missing.
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

    fn filters_of(filters: impl Iterator<Item = String>) -> Filters<()> {
        let mut kept = Filters::new();
        for filter in filters {
            assert!(kept.made(&filter).is_some());
        }
        kept
    }

    /// Return how many nodes a match visits and how many filters it finds.
    fn visited(filters: &Filters<()>, topic: &str) -> (usize, usize) {
        let mut found = 0;
        let visited = filters.wild.walk(Some(topic), true, &mut |()| found += 1);
        (visited, found)
    }

    fn topic(levels: usize) -> String {
        vec!["a"; levels].join("/")
    }

    #[test]
    fn a_hundred_thousand_plus_chains_cost_one_node_a_level() {
        let chain = vec!["+"; 20].join("/");
        let mut filters = filters_of((0..100_000).map(|name| format!("{chain}/{name}")));
        assert_eq!(visited(&filters, &(topic(20) + "/7")), (22, 1));
        assert_eq!(visited(&filters, &(topic(20) + "/a")), (21, 0));
        filters.made(&(chain + "/#"));
        assert_eq!(visited(&filters, &topic(32_768)), (21, 1));
    }

    #[test]
    fn filters_that_fork_at_each_level_cost_no_more_than_their_nodes() {
        let forked = |number: u32| -> String {
            let levels = (0..17).map(|bit| if number >> bit & 1 == 0 { "a/" } else { "+/" });
            levels.chain(["x"]).collect()
        };
        let filters = filters_of((0..1 << 17).map(forked));
        // All but the filter that has no wildcard.
        assert_eq!(visited(&filters, &(topic(17) + "/x")).1, (1 << 17) - 1);
        for (levels, bound) in [
            (1, 3),
            (16, 1 << 17),
            (17, 1 << 18),
            (18, 1 << 18),
            (300, 1 << 18),
        ] {
            let (visited, found) = visited(&filters, &topic(levels));
            assert!(visited <= bound && found == 0, "{levels}: {visited}");
        }
    }

    #[test]
    fn what_is_dropped_leaves_no_node() {
        let names = || (0..500).flat_map(|one| [format!("a/+/{one}/#"), format!("a/b/{one}")]);
        let mut filters = filters_of(names());
        let clone = filters.clone();
        for filter in names() {
            filters.change(&filter, &mut |()| (Some(()), true));
        }
        assert!(filters.wild.is_empty() && filters.exact.is_empty());
        assert_eq!(visited(&clone, "a/b/7/c").1, 1);
        assert!(clone.find("a/b/7").is_some());
    }

    #[test]
    fn a_change_copies_only_the_way_to_it() {
        let mut filters = Filters::<u32>::new();
        let names = ["a/+", "a/b/#", "+", "a/b", "c"];
        names
            .iter()
            .for_each(|name| assert!(filters.made(name).is_some()));
        let clone = filters.clone();
        for name in ["a/+", "a/b"] {
            filters.change(name, &mut |kept| (Some(std::mem::replace(kept, 1)), false));
        }
        let kept = |filters: &Filters<_>, name| filters.find(name).map(std::ptr::from_ref);
        let same = names.map(|name| kept(&filters, name) == kept(&clone, name));
        assert_eq!(same, [false, true, true, false, true]);
        assert_eq!(
            (filters.find("a/+"), clone.find("a/+")),
            (Some(&1), Some(&0))
        );
    }
}
