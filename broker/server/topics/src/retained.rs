//! The retained messages by topic, in an order in which all topics below a level are adjacent.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::names::{split_level, valid_filter};

/// The retained message of each topic.
pub struct Retained<M> {
    messages: HashMap<Arc<str>, M>,
    topics: BTreeSet<Key>,
}

/// A topic. `/` is sorted before all other octets, so that all topics below `a` are between `a` and
/// `a` followed by [`PAST`].
struct Key(Arc<str>);

/// After a level, this is sorted directly after all topics below it.
const PAST: char = '\0';

/// The first character of topics that a first wildcard does not match, and the next one in order.
const HIDDEN: char = '$';
const PAST_HIDDEN: &str = "%";

/// A topic for a look-up, which need not be owned.
trait Topic {
    fn octets(&self) -> &[u8];
}

impl Topic for Key {
    fn octets(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Topic for &str {
    fn octets(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<'t> Borrow<dyn Topic + 't> for Key {
    fn borrow(&self) -> &(dyn Topic + 't) {
        self
    }
}

impl Ord for dyn Topic + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        order(self.octets(), other.octets())
    }
}

impl PartialOrd for dyn Topic + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Topic + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.octets() == other.octets()
    }
}

impl Eq for dyn Topic + '_ {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        order(self.octets(), other.octets())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

fn order(one: &[u8], two: &[u8]) -> Ordering {
    let rank = |octet: u8| {
        if octet == b'/' {
            0
        } else {
            u16::from(octet) + 1
        }
    };
    match one.iter().zip(two).find(|(one, two)| one != two) {
        Some((&one, &two)) => rank(one).cmp(&rank(two)),
        None => one.len().cmp(&two.len()),
    }
}

impl<M> Default for Retained<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> Retained<M> {
    /// Make a store without messages.
    #[must_use]
    pub fn new() -> Self {
        Self {
            messages: HashMap::new(),
            topics: BTreeSet::new(),
        }
    }

    /// Retain `message` for `topic` and return the one that it replaces ([MQTT-3.3.1-5]).
    pub fn set(&mut self, topic: &str, message: M) -> Option<M> {
        if let Some(kept) = self.messages.get_mut(topic) {
            return Some(std::mem::replace(kept, message));
        }
        let topic: Arc<str> = topic.into();
        self.topics.insert(Key(Arc::clone(&topic)));
        self.messages.insert(topic, message)
    }

    /// Forget the message of `topic` and return it, if there was one ([MQTT-3.3.1-6]).
    pub fn remove(&mut self, topic: &str) -> Option<M> {
        self.topics.remove(&topic as &dyn Topic);
        self.messages.remove(topic)
    }

    /// Return the message of `topic`.
    #[must_use]
    pub fn get(&self, topic: &str) -> Option<&M> {
        self.messages.get(topic)
    }

    /// How many topics have a message.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether no topic has a message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Iterate over all topics and their messages. Each topic comes before those below it.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &M)> {
        self.topics
            .iter()
            .filter_map(|topic| Some((&*topic.0, self.get(&topic.0)?)))
    }

    /// Call `each` for the topics that `filter` matches, in the order of [`Self::iter`].
    ///
    /// A filter that begins with a wildcard does not match a topic that begins with `$`
    /// ([MQTT-4.7.2-1]). A filter that is not valid matches nothing, nor does a shared one, whose
    /// subscribers get no retained messages.
    pub fn matching(&self, filter: &str, each: &mut impl FnMut(&str, &M)) {
        self.search(filter, &mut |topic, message| {
            each(topic, message);
            ControlFlow::Continue(())
        });
    }

    /// Do [`Self::matching`] until `each` returns a break. Return the number of searches and steps.
    pub fn search(
        &self,
        filter: &str,
        each: &mut impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> usize {
        let mut steps = 0;
        if valid_filter(filter) {
            // either the end or a break
            let _ = self.walk(&mut String::new(), filter, &mut steps, each);
        }
        steps
    }

    /// Do [`Self::search`] below `above`, which consists of levels, each followed by `/`.
    fn walk(
        &self,
        above: &mut String,
        filter: &str,
        steps: &mut usize,
        each: &mut impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match split_level(filter) {
            ("#", _) => self.all_below(above, steps, each),
            ("+", below) => self.any_level(above, below, steps, each),
            (level, None) => {
                above.push_str(level);
                *steps += 1;
                self.tell(above, each)
            }
            (level, Some(below)) => {
                above.push_str(level);
                above.push('/');
                self.walk(above, below, steps, each)
            }
        }
    }

    fn all_below(
        &self,
        above: &str,
        steps: &mut usize,
        each: &mut impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let parent = above.strip_suffix('/').unwrap_or_default();
        *steps += 1;
        for topic in self.from(parent) {
            *steps += 1;
            if topic.starts_with(above) || topic == parent {
                if !(above.is_empty() && topic.starts_with(HIDDEN)) {
                    self.tell(topic, each)?;
                }
            } else {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    fn any_level(
        &self,
        above: &mut String,
        below: Option<&str>,
        steps: &mut usize,
        each: &mut impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let base = above.len();
        let mut at = self.from(above);
        while let Some(topic) = at.next() {
            *steps += 1;
            let Some(levels) = topic.strip_prefix(&above[..base]) else {
                break;
            };
            if base == 0 && topic.starts_with(HIDDEN) {
                at = self.from(PAST_HIDDEN);
                continue;
            }
            let (level, deeper) = split_level(levels);
            match below {
                None if deeper.is_none() => {
                    self.tell(topic, each)?;
                    continue;
                }
                None => above.push_str(level),
                Some(below) => {
                    above.push_str(level);
                    let end = above.len();
                    above.push('/');
                    self.walk(above, below, steps, each)?;
                    above.truncate(end);
                }
            }
            above.push(PAST);
            at = self.from(above);
            above.truncate(base);
        }
        ControlFlow::Continue(())
    }

    fn tell(
        &self,
        topic: &str,
        each: &mut impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.get(topic)
            .map_or(ControlFlow::Continue(()), |message| each(topic, message))
    }

    /// Iterate over the topics from this one on.
    fn from(&self, topic: &str) -> impl Iterator<Item = &str> + use<'_, M> {
        self.topics
            .range::<dyn Topic, _>((Bound::Included(&topic as &dyn Topic), Bound::Unbounded))
            .map(|topic| &*topic.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(retained: &Retained<u32>, filter: &str) -> usize {
        retained.search(filter, &mut |_, _| ControlFlow::Continue(()))
    }

    #[test]
    fn a_filter_looks_only_at_the_levels_that_it_names() {
        let mut retained = Retained::new();
        for number in 0..10_000u32 {
            retained.set(&format!("a/{}/{number}", number % 100), number);
            retained.set(&format!("$SYS/{number}"), number);
        }
        retained.set("b/x", 0);
        assert_eq!(steps(&retained, "a/7/107"), 1);
        assert_eq!(steps(&retained, "a/7/+"), 101);
        assert_eq!(steps(&retained, "a/7/#"), 102);
        assert_eq!(steps(&retained, "+/x"), 5);
        assert_eq!(steps(&retained, "a/+"), 101);
        assert_eq!(steps(&retained, "a/+/7"), 201);
        assert!(steps(&retained, "+/+/+/+/#") < 30_000);
        assert_eq!(
            steps(&retained, &vec!["+"; 200].join("/")),
            steps(&retained, "+/+/+/+")
        );
    }

    #[test]
    fn a_search_that_has_enough_looks_no_further() {
        let mut retained = Retained::new();
        for number in 0..10_000u32 {
            retained.set(&format!("a/{}/{number}", number % 100), number);
        }
        for filter in ["#", "a/7/#", "+/+/+", "+/#"] {
            let mut left = 5;
            let steps = retained.search(filter, &mut |_, _| {
                left -= 1;
                if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            assert_eq!(left, 0);
            assert!(steps < 10, "{filter}: {steps}");
        }
    }

    #[test]
    fn a_topic_whose_message_is_removed_leaves_nothing_behind() {
        let mut retained = Retained::new();
        retained.set("a/b", 1);
        retained.remove("a/b");
        retained.remove("a");
        assert!(retained.topics.is_empty() && retained.messages.is_empty());
    }
}
