//! The retained messages by topic, in an order in which all topics below a level are adjacent.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::names::{has_wildcards, split_level, valid_filter};

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

/// To look at a topic of so many octets takes twice as long as at a short one, about.
const LONG: usize = 64;

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
        self.iter_from("")
    }

    /// Do [`Self::iter`] from a topic on.
    pub fn iter_from(&self, topic: &str) -> impl Iterator<Item = (&str, &M)> + use<'_, M> {
        self.from(topic)
            .filter_map(|topic| Some((topic, self.get(topic)?)))
    }

    /// Call `each` for the topics that `filter` matches, in the order of [`Self::iter`].
    ///
    /// A filter that begins with a wildcard does not match a topic that begins with `$`
    /// ([MQTT-4.7.2-1]). A filter that is not valid matches nothing, nor does a shared one, whose
    /// subscribers get no retained messages.
    pub fn matching(&self, filter: &str, each: &mut impl FnMut(&str, &M)) {
        self.search(filter, "", usize::MAX, &mut |topic, message| {
            each(topic, message);
            ControlFlow::Continue(())
        });
    }

    /// Do [`Self::matching`] from a topic on, until `each` returns a break, or `most` steps are
    /// done. Return the steps, and where the search has to go on, unless it is over: messages may
    /// come and go meanwhile. A step looks at one topic; a long one counts as more.
    pub fn search(
        &self,
        filter: &str,
        from: &str,
        most: usize,
        each: &mut impl FnMut(&str, &M) -> ControlFlow<()>,
    ) -> (usize, Option<String>) {
        let mut steps = 0;
        if !valid_filter(filter) {
            return (steps, None);
        }
        if !has_wildcards(filter) {
            // nothing follows, so it does not matter whether that was enough
            let _ = self.get(filter).map(|message| each(filter, message));
            return (1, None);
        }
        let mut next = from.to_owned();
        let mut at = self.from(&next);
        while steps < most {
            let Some(topic) = at.next() else {
                return (steps, None);
            };
            steps += 1 + topic.len() / LONG;
            match verdict(filter, topic) {
                Verdict::Over => return (steps, None),
                Verdict::Seek(key) => {
                    at = self.from(&key);
                    next = key;
                }
                Verdict::Match => {
                    next.clear();
                    next.push_str(topic);
                    next.push('/'); // the next topic in order is not before that
                    let message = self.get(topic);
                    if message.is_some_and(|message| each(topic, message).is_break()) {
                        break;
                    }
                }
            }
        }
        (steps, Some(next))
    }

    /// Iterate over the topics from this one on.
    fn from(&self, topic: &str) -> impl Iterator<Item = &str> + use<'_, M> {
        self.topics
            .range::<dyn Topic, _>((Bound::Included(&topic as &dyn Topic), Bound::Unbounded))
            .map(|topic| &*topic.0)
    }
}

/// What a search does at a topic.
enum Verdict {
    /// It is found; the next topic in order may be, too.
    Match,
    /// No topic before this one is found.
    Seek(String),
    /// No topic from here on is found.
    Over,
}

fn verdict(filter: &str, topic: &str) -> Verdict {
    let is_hidden = topic.starts_with(HIDDEN);
    let (mut levels, mut names) = (Some(filter), Some(topic));
    let mut start = 0; // of the present level in the topic
    let mut last_plus = None; // the end of the last level that `+` stands for
    while let Some(rest) = levels {
        let (level, below) = split_level(rest);
        if is_hidden && start == 0 && matches!(level, "+" | "#") {
            return Verdict::Seek(PAST_HIDDEN.into());
        }
        if level == "#" {
            return Verdict::Match;
        }
        let Some(name) = names else {
            let level = if level == "+" { "" } else { level };
            return Verdict::Seek(format!("{topic}/{level}"));
        };
        let (name, deeper) = split_level(name);
        let end = start + name.len();
        if level == "+" {
            last_plus = Some(end);
        } else {
            match level.cmp(name) {
                Ordering::Equal => {}
                Ordering::Greater => return Verdict::Seek(format!("{}{level}", &topic[..start])),
                Ordering::Less => return last_plus.map_or(Verdict::Over, |end| past(topic, end)),
            }
        }
        (levels, names, start) = (below, deeper, end + 1);
    }
    match names {
        None => Verdict::Match,
        Some(_) => past(topic, start - 1),
    }
}

/// Go on after all topics below the levels of `topic` that end there.
fn past(topic: &str, end: usize) -> Verdict {
    Verdict::Seek(format!("{}{PAST}", &topic[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(retained: &Retained<u32>, filter: &str) -> usize {
        let all = &mut |_: &str, _: &u32| ControlFlow::Continue(());
        retained.search(filter, "", usize::MAX, all).0
    }

    fn plant() -> Retained<u32> {
        let mut retained = Retained::new();
        for number in 0..10_000u32 {
            retained.set(&format!("a/{}/{number}", number % 100), number);
            retained.set(&format!("$SYS/{number}"), number);
        }
        retained.set("b/x", 0);
        retained
    }

    #[test]
    fn a_filter_looks_only_at_the_levels_that_it_names() {
        let retained = plant();
        assert_eq!(steps(&retained, "a/7/107"), 1);
        assert!(steps(&retained, "a/7/+") < 105);
        assert!(steps(&retained, "a/7/#") < 105);
        assert!(steps(&retained, "+/x") < 10);
        assert!(steps(&retained, "a/+") < 205);
        assert!(steps(&retained, "a/+/7") < 205);
        assert!(steps(&retained, "+/+/+/+/#") < 10_005);
        assert_eq!(
            steps(&retained, &vec!["+"; 200].join("/")),
            steps(&retained, "+/+/+/+")
        );
    }

    #[test]
    fn a_search_goes_on_where_it_had_enough_or_was_cut() {
        let retained = plant();
        for filter in [
            "#", "a/7/#", "+/+/+", "+/#", "a/+/77", "$SYS/+", "+/+/none", "b/x",
        ] {
            let mut wanted = Vec::new();
            retained.matching(filter, &mut |topic, _| wanted.push(topic.to_owned()));
            for (most, enough) in [(1, usize::MAX), (7, usize::MAX), (usize::MAX, 3)] {
                let (mut found, mut from) = (Vec::new(), Some(String::new()));
                while let Some(at) = from {
                    let mut left = enough;
                    let each = &mut |topic: &str, _: &u32| {
                        found.push(topic.to_owned());
                        left -= 1;
                        match left {
                            0 => ControlFlow::Break(()),
                            _ => ControlFlow::Continue(()),
                        }
                    };
                    let (steps, next) = retained.search(filter, &at, most, each);
                    assert!(steps <= most.min(20_000), "{filter}: {steps}");
                    from = next;
                }
                assert_eq!(found, wanted, "{filter}, {most} steps");
            }
        }
    }

    #[test]
    fn a_long_topic_counts_as_the_work_that_it_is() {
        let mut retained = Retained::new();
        retained.set(&"a/".repeat(32_000), 0);
        assert!(steps(&retained, "#") > 900);
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
