//! Subscription flooding: nodes tell each other what they want, and a message goes only where it is
//! wanted.
//!
//! A filter is *needed* at a neighbour if this site's clients or another neighbour subscribed to it.
//! At any moment each needed filter is either told to that neighbour, or covered by another filter
//! that is told; and nothing is told that is not needed. Each change tells only the difference. What
//! is told follows from what is wanted now, not from what was told before. So on a tree that no
//! longer changes the nodes agree, in whichever order neighbours came, went and subscribed.
//!
//! Subscriptions over a link that is not part of the tree (it would close a loop) are remembered, but
//! do not count: a filter cannot keep itself alive in a circle.

use super::{Algorithm, Say, Source};
use crate::message::Link;
use mqtick_topics::{Match, Tree, covers};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

/// The sort key of a filter, which puts it before all filters that it covers: whether it ends with
/// `#`, how many levels it has, and how many of them are no wildcard.
pub(crate) fn width(filter: &str) -> (bool, usize, usize) {
    let levels = || filter.split('/');
    let exact = levels().filter(|level| !matches!(*level, "+" | "#"));
    (!filter.ends_with('#'), levels().count(), exact.count())
}

/// What a neighbour was told.
#[derive(Default)]
struct Told {
    /// The filters that were told, as a tree: it finds filters that cover another one.
    filters: Tree<(), Arc<str>>,
    /// The same filters, as a set.
    all: HashSet<Arc<str>>,
    /// Filters that are needed there, but covered by one that was told.
    covered: BTreeSet<Arc<str>>,
}

impl Told {
    fn covers(&self, filter: &str) -> bool {
        // Looked up like a topic, the filter finds every filter that covers it, and a few that do not.
        let mut holds = false;
        self.filters.matches(filter, &mut |found| {
            if let Match::One((), wide) = found {
                holds |= covers(wide, filter);
            }
        });
        holds
    }

    /// This filter is needed there: whether the neighbour has to be told.
    fn need(&mut self, filter: &Arc<str>) -> bool {
        if self.all.contains(filter) || self.covered.contains(filter) {
            return false;
        }
        if self.covers(filter) {
            self.covered.insert(Arc::clone(filter));
            return false;
        }
        self.filters.subscribe(filter, (), Arc::clone(filter));
        self.all.insert(Arc::clone(filter));
        true
    }

    /// These filters are no longer needed there. Returns which filters to tell now, and which to
    /// withdraw.
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
            // `a/#` also covers `a`.
            let begin = begin.strip_suffix('/').unwrap_or(begin);
            let below = self
                .covered
                .range::<str, _>((Bound::Included(begin), Bound::Unbounded));
            let below = below.take_while(|one| one.starts_with(begin));
            bare.extend(below.filter(|one| covers(wide, one)).cloned());
        }
        let mut instead = Vec::new();
        for filter in sorted(bare.into_iter().collect()) {
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
    /// Who has subscribed to each filter.
    wanted: HashMap<Arc<str>, Vec<Source>>,
    /// The same as a tree, to route messages.
    tree: Tree<Source, ()>,
    /// The links of the tree of nodes, with what was told over each.
    used: BTreeMap<Link, Told>,
}

fn say(link: Link, wants: bool) -> impl Fn(Arc<str>) -> Say {
    move |filter| Say {
        link,
        filter,
        wants,
    }
}

fn sorted(mut filters: Vec<Arc<str>>) -> Vec<Arc<str>> {
    filters.sort_by_key(|filter| width(filter));
    filters
}

impl SubscriptionFlooding {
    /// Whether subscriptions of this source count: those over links outside the tree do not.
    fn counts(used: &BTreeMap<Link, Told>, source: Source) -> bool {
        match source {
            Source::Local => true,
            Source::Link(link) => used.contains_key(&link),
        }
    }

    /// Filters of `by` count from now on: tell them to all other neighbours that need to know.
    fn spread(&mut self, by: Source, filters: Vec<Arc<str>>, out: &mut Vec<Say>) {
        let filters = sorted(filters);
        for (link, told) in &mut self.used {
            if Source::Link(*link) != by {
                let new = filters.iter().filter(|filter| told.need(filter));
                out.extend(new.cloned().map(say(*link, true)));
            }
        }
    }

    /// Filters of `by` count no longer: withdraw them where nobody else needs them.
    fn withdraw(&mut self, by: Source, filters: &[Arc<str>], out: &mut Vec<Say>) {
        let links: Vec<Link> = self.used.keys().copied().collect();
        for link in links.into_iter().filter(|link| Source::Link(*link) != by) {
            let is_other = |one: &Source| {
                *one != by && *one != Source::Link(link) && Self::counts(&self.used, *one)
            };
            let is_needed = |filter: &Arc<str>| {
                let sources = self.wanted.get(filter);
                sources.is_some_and(|sources| sources.iter().any(is_other))
            };
            let free = filters.iter().filter(|one| !is_needed(one));
            let free: Vec<_> = free.cloned().collect();
            let Some(told) = self.used.get_mut(&link) else {
                continue;
            };
            let (instead, withdrawn) = told.release(&free);
            out.extend(instead.into_iter().map(say(link, true)));
            out.extend(withdrawn.into_iter().map(say(link, false)));
        }
    }

    fn of(&self, source: Source) -> Vec<Arc<str>> {
        let has = |(_, sources): &(&Arc<str>, &Vec<Source>)| sources.contains(&source);
        let filters = self.wanted.iter().filter(has);
        filters.map(|(filter, _)| Arc::clone(filter)).collect()
    }
}

impl Algorithm for SubscriptionFlooding {
    fn subscribed(&mut self, by: Source, filters: &[Arc<str>], out: &mut Vec<Say>) {
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
            self.spread(by, new, out);
        }
    }

    fn unsubscribed(&mut self, by: Source, filters: &[Arc<str>], out: &mut Vec<Say>) {
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
            self.withdraw(by, &gone, out);
        }
    }

    fn added(&mut self, link: Link, out: &mut Vec<Say>) {
        if self.used.contains_key(&link) {
            return;
        }
        let mut told = Told::default();
        let counts = |one: &Source| *one != Source::Link(link) && Self::counts(&self.used, *one);
        let needed = self.wanted.iter();
        let needed = needed.filter(|(_, sources)| sources.iter().any(counts));
        let needed = sorted(needed.map(|(filter, _)| Arc::clone(filter)).collect());
        let new = needed.into_iter().filter(|filter| told.need(filter));
        out.extend(new.map(say(link, true)));
        self.used.insert(link, told);
        let theirs = self.of(Source::Link(link));
        self.spread(Source::Link(link), theirs, out);
    }

    fn removed(&mut self, link: Link, out: &mut Vec<Say>) {
        let Some(told) = self.used.remove(&link) else {
            return;
        };
        out.extend(told.all.into_iter().map(say(link, false)));
        let theirs = self.of(Source::Link(link));
        self.withdraw(Source::Link(link), &theirs, out);
    }

    fn lost(&mut self, link: Link, out: &mut Vec<Say>) {
        let theirs = self.of(Source::Link(link));
        self.unsubscribed(Source::Link(link), &theirs, out);
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
