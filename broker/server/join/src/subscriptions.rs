//! Subscription flooding: nodes tell each other what they want, and a message goes where it is
//! wanted.
//!
//! What a neighbour has to be told follows from what is wanted elsewhere, at any moment: each filter
//! that this site's clients or another neighbour subscribed to ("needed there") is told, or covered
//! by one that is told; and nothing is told that is not needed. Every change keeps that true with
//! the fewest words: only the difference is inter-subscribed. So it does not matter in which order
//! neighbours come, go and subscribe at the same moment: on a tree that no longer changes, what is
//! told no longer depends on what was told before.
//!
//! What came over a link that is not used (a loop's) is kept, but counts for nobody: a filter cannot
//! keep itself alive in a circle.

use crate::cooperation::{Algorithm, Say, Source};
use crate::node::Link;
use mqtick_topics::{Match, Tree, covers};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

/// Sorts a filter before all that it covers: by `#`, by levels, by levels without a wildcard.
pub(crate) fn width(filter: &str) -> (bool, usize, usize) {
    let levels = || filter.split('/');
    let exact = levels().filter(|level| !matches!(*level, "+" | "#"));
    (!filter.ends_with('#'), levels().count(), exact.count())
}

/// What a neighbour was told.
#[derive(Default)]
struct Told {
    /// Each filter with itself, to find those that cover another one.
    filters: Tree<(), Arc<str>>,
    all: HashSet<Arc<str>>,
    /// Needed there, but covered by what was told.
    covered: BTreeSet<Arc<str>>,
}

impl Told {
    fn covers(&self, filter: &str) -> bool {
        // Taken for a topic, the filter finds all that could cover it, and some more.
        let mut holds = false;
        self.filters.matches(filter, &mut |found| {
            if let Match::One((), wide) = found {
                holds |= covers(wide, filter);
            }
        });
        holds
    }

    /// It is needed: whether to tell.
    fn need(&mut self, filter: &Arc<str>) -> bool {
        if self.all.contains(filter) || self.covered.contains(filter) {
            return false;
        }
        if self.covers(filter) {
            self.covered.insert(Arc::clone(filter));
            return false;
        }
        self.tell(filter);
        true
    }

    fn tell(&mut self, filter: &Arc<str>) {
        self.filters.subscribe(filter, (), Arc::clone(filter));
        self.all.insert(Arc::clone(filter));
    }

    /// These are no longer needed: what to tell instead of which.
    fn release(&mut self, filters: &[Arc<str>]) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut withdrawn = Vec::new();
        for filter in filters {
            if !self.covered.remove(filter) && self.all.remove(filter) {
                self.filters.unsubscribe(filter, &());
                withdrawn.push(Arc::clone(filter));
            }
        }
        let mut bare = BTreeSet::new();
        for wide in withdrawn.iter().filter(|wide| wide.contains(['+', '#'])) {
            let begin = wide.split(['+', '#']).next().unwrap_or_default();
            // `a/#` covers `a`, too.
            let begin = begin.strip_suffix('/').unwrap_or(begin);
            let below = self
                .covered
                .range::<str, _>((Bound::Included(begin), Bound::Unbounded));
            let below = below.take_while(|one| one.starts_with(begin));
            bare.extend(below.filter(|one| covers(wide, one)).cloned());
        }
        let mut bare: Vec<_> = bare.into_iter().collect();
        bare.sort_by_key(|one| width(one));
        bare.retain(|one| !self.covers(one));
        let mut instead = Vec::new();
        for filter in bare {
            self.covered.remove(&filter);
            if self.need(&filter) {
                instead.push(filter);
            }
        }
        (instead, withdrawn)
    }
}

/// Subscription flooding.
#[derive(Default)]
pub struct SubscriptionFlooding {
    /// Who wants what.
    wanted: HashMap<Arc<str>, Vec<Source>>,
    tree: Tree<Source, ()>,
    /// The links that are used.
    used: BTreeMap<Link, Told>,
}

impl SubscriptionFlooding {
    fn counts(used: &BTreeMap<Link, Told>, source: Source) -> bool {
        match source {
            Source::Local => true,
            Source::Link(link) => used.contains_key(&link),
        }
    }

    /// Somebody who counts wants these, or counts from now on.
    fn spread(&mut self, by: Source, filters: &[Arc<str>], say: &mut Vec<Say>) {
        for (link, told) in &mut self.used {
            if Source::Link(*link) != by {
                let new = filters.iter().filter(|filter| told.need(filter));
                say.extend(new.map(|filter| Say::Subscribe(*link, Arc::clone(filter))));
            }
        }
    }

    /// He no longer does, or no longer counts.
    fn withdraw(&mut self, by: Source, filters: &[Arc<str>], say: &mut Vec<Say>) {
        let links: Vec<Link> = self.used.keys().copied().collect();
        for link in links.into_iter().filter(|link| Source::Link(*link) != by) {
            let others = |one: &&Source| {
                **one != by && **one != Source::Link(link) && Self::counts(&self.used, **one)
            };
            let is_needed = |filter: &Arc<str>| {
                let sources = self.wanted.get(filter);
                sources.is_some_and(|sources| sources.iter().any(|one| others(&one)))
            };
            let free: Vec<_> = filters
                .iter()
                .filter(|one| !is_needed(one))
                .cloned()
                .collect();
            let Some(told) = self.used.get_mut(&link) else {
                continue;
            };
            let (instead, withdrawn) = told.release(&free);
            say.extend(instead.into_iter().map(|one| Say::Subscribe(link, one)));
            say.extend(withdrawn.into_iter().map(|one| Say::Unsubscribe(link, one)));
        }
    }

    fn of(&self, source: Source) -> Vec<Arc<str>> {
        let has = |(_, sources): &(&Arc<str>, &Vec<Source>)| sources.contains(&source);
        let filters = self.wanted.iter().filter(has);
        filters.map(|(filter, _)| Arc::clone(filter)).collect()
    }
}

impl Algorithm for SubscriptionFlooding {
    fn subscribed(&mut self, by: Source, filters: &[Arc<str>], say: &mut Vec<Say>) {
        let mut new = Vec::new();
        for filter in filters {
            let sources = self.wanted.entry(Arc::clone(filter)).or_default();
            if !sources.contains(&by) {
                sources.push(by);
                self.tree.subscribe(filter, by, ());
                new.push(Arc::clone(filter));
            }
        }
        if Self::counts(&self.used, by) {
            new.sort_by_key(|filter| width(filter));
            self.spread(by, &new, say);
        }
    }

    fn unsubscribed(&mut self, by: Source, filters: &[Arc<str>], say: &mut Vec<Say>) {
        let mut gone = Vec::new();
        for filter in filters {
            if self.tree.unsubscribe(filter, &by).is_none() {
                continue;
            }
            gone.push(Arc::clone(filter));
            if let Some(sources) = self.wanted.get_mut(filter) {
                sources.retain(|one| *one != by);
                if sources.is_empty() {
                    self.wanted.remove(filter);
                }
            }
        }
        if Self::counts(&self.used, by) {
            self.withdraw(by, &gone, say);
        }
    }

    fn added(&mut self, link: Link, say: &mut Vec<Say>) {
        if self.used.contains_key(&link) {
            return;
        }
        let mut told = Told::default();
        let counts = |one: &Source| *one != Source::Link(link) && Self::counts(&self.used, *one);
        let needed = self
            .wanted
            .iter()
            .filter(|(_, sources)| sources.iter().any(counts));
        let mut needed: Vec<_> = needed.map(|(filter, _)| filter).collect();
        needed.sort_by_key(|filter| width(filter));
        let new = needed.into_iter().filter(|filter| told.need(filter));
        say.extend(new.map(|filter| Say::Subscribe(link, Arc::clone(filter))));
        self.used.insert(link, told);
        let mut theirs = self.of(Source::Link(link));
        theirs.sort_by_key(|filter| width(filter));
        self.spread(Source::Link(link), &theirs, say);
    }

    fn removed(&mut self, link: Link, say: &mut Vec<Say>) {
        let Some(told) = self.used.remove(&link) else {
            return;
        };
        say.extend(told.all.into_iter().map(|one| Say::Unsubscribe(link, one)));
        let theirs = self.of(Source::Link(link));
        self.withdraw(Source::Link(link), &theirs, say);
    }

    fn lost(&mut self, link: Link, say: &mut Vec<Say>) {
        let theirs = self.of(Source::Link(link));
        self.unsubscribed(Source::Link(link), &theirs, say);
        self.used.remove(&link);
    }

    fn route(&self, topic: &str, retain: bool, from: Source, to: &mut Vec<Link>) -> bool {
        if topic.starts_with('$') {
            return false;
        }
        if retain {
            let others = self.used.keys().filter(|link| Source::Link(**link) != from);
            to.extend(others);
            return true;
        }
        let begin = to.len();
        let mut here = false;
        self.tree.matches(topic, &mut |found| {
            let Match::One(source, ()) = found else {
                return;
            };
            match source {
                Source::Local => here = true,
                Source::Link(link) => {
                    let is_there = to.iter().skip(begin).any(|one| one == link);
                    if *source != from && !is_there && self.used.contains_key(link) {
                        to.push(*link);
                    }
                }
            }
        });
        here
    }

    fn filters(&self) -> usize {
        self.wanted.len()
    }

    fn told(&self, link: Link) -> usize {
        self.used.get(&link).map_or(0, |told| told.all.len())
    }
}
