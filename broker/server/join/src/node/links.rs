//! Links to neighbours: which are used, what goes over them of nodes' states, and neighbours that are
//! away.

use super::{Action, BEFORE, Link, Neighbour, Node, SETTLING};
use crate::cooperation::Say;
use crate::topology::{LinkKey, NodeId, State};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A neighbour is gone, and may come back: messages above QoS 0 wait for it.
pub(super) struct Away {
    /// The names of nodes that it led to, itself included, each with since when another way does.
    missing: BTreeMap<String, Option<u64>>,
    pub(super) until_s: u64,
}

impl Away {
    /// Who is there by another way, and has had the time to say what it wants, is missing no longer;
    /// whether there was one.
    fn welcome(&mut self, here: &HashSet<&str>, now_s: u64) -> bool {
        let before = self.missing.len();
        self.missing.retain(|name, since_s| {
            let since = here
                .contains(name.as_str())
                .then(|| since_s.unwrap_or(now_s));
            *since_s = since;
            since.is_none_or(|since| now_s < since + SETTLING)
        });
        self.missing.len() < before
    }
}

impl Node {
    /// A neighbour is there.
    pub fn link_up(&mut self, link: Link, peer: NodeId, key: LinkKey, name: &str) {
        let neighbour = Neighbour {
            peer,
            key,
            name: name.into(),
            is_used: false,
            was_cut: false,
            unneeded_s: None,
            away: None,
        };
        self.links.insert(link, neighbour);
        let states = self
            .topology
            .states()
            .filter(|state| state.node != self.own);
        let states = states.map(|state| Action::State(link, state.clone()));
        self.actions.extend(states);
        self.announce();
        self.refresh();
    }

    /// These nodes were there before this one started anew: what its clients publish above QoS 0 waits
    /// for them, as for those behind a neighbour that went.
    pub fn expect(&mut self, names: impl IntoIterator<Item = String>) {
        let missing: BTreeMap<_, _> = names.into_iter().map(|name| (name, None)).collect();
        if missing.is_empty() {
            return;
        }
        let before = Neighbour {
            peer: self.own,
            key: 0,
            name: "known before".into(),
            is_used: true,
            was_cut: false,
            unneeded_s: None,
            away: Some(Away {
                missing,
                until_s: self.now_s + self.absence_s.max(SETTLING),
            }),
        };
        self.links.insert(BEFORE, before);
    }

    /// What the other nodes are called that are there, or are waited for.
    #[must_use]
    pub fn others(&self) -> BTreeSet<&str> {
        let here = self.topology.states();
        let here = here.filter(|one| one.node != self.own && self.tree.nodes.contains(&one.node));
        let away = self.links.values().filter_map(|one| one.away.as_ref());
        let away = away.flat_map(|away| away.missing.keys().map(String::as_str));
        here.map(|one| one.name.as_str()).chain(away).collect()
    }

    /// It is gone; `for_good`: nobody waits for it.
    pub fn link_down(&mut self, link: Link, for_good: bool) {
        let Some(neighbour) = self.links.get_mut(&link) else {
            return;
        };
        let (was_used, peer, key) = (neighbour.is_used, neighbour.peer, neighbour.key);
        let wait_s = if for_good { 0 } else { self.absence_s };
        let behind = self.tree.behind(self.own, peer, key);
        let behind = self
            .topology
            .states()
            .filter(|state| behind.contains(&state.node));
        neighbour.away = Some(Away {
            missing: behind.map(|state| (state.name.clone(), None)).collect(),
            until_s: self.now_s + wait_s.max(SETTLING),
        });
        if !was_used {
            self.forget(link);
        }
        self.announce();
        self.refresh();
    }

    fn forget(&mut self, link: Link) {
        self.links.remove(&link);
        let mut say = Vec::new();
        self.algorithm.lost(link, &mut say);
        self.speak(say);
        self.fail(link);
    }

    /// What was sent there is not confirmed any more.
    fn fail(&mut self, link: Link) {
        let waiting = self
            .pending
            .iter()
            .filter(|(_, one)| one.waits.contains(&link));
        let failed: Vec<_> = waiting.map(|(key, one)| (*key, one.attempt)).collect();
        for (key, attempt) in failed {
            self.confirmed(link, key, attempt, false);
        }
    }

    /// A neighbour says which links a node has.
    pub fn state(&mut self, link: Link, state: &State) {
        let contradicts = state.node == self.own
            && !self.topology.states().any(|known| known == state)
            && self
                .topology
                .states()
                .any(|known| known.node == self.own && known.sequence <= state.sequence);
        if self.topology.take(state) {
            self.flood(state, Some(link));
            self.refresh();
        } else if contradicts {
            self.announce();
        }
    }

    pub(super) fn flood(&mut self, state: &State, except: Option<Link>) {
        let here = self.links.iter().filter(|(_, one)| one.away.is_none());
        let to = here.filter(|(link, _)| Some(**link) != except);
        let actions = to.map(|(link, _)| Action::State(*link, state.clone()));
        self.actions.extend(actions);
    }

    /// Tell all which links we have.
    fn announce(&mut self) {
        let here = self.links.values().filter(|one| one.away.is_none());
        let links = here.map(|one| (one.peer, one.key)).collect();
        if let Some(state) = self.topology.renew(Some(links)).cloned() {
            self.flood(&state, None);
        }
    }

    /// Use the links of the tree, and after a while no others.
    pub(super) fn refresh(&mut self) {
        let tree = self.topology.tree();
        if tree != self.tree {
            self.tree = tree;
            self.actions.push_back(Action::TreeChanged);
        }
        let mut say = Vec::new();
        let (mut cut, mut over) = (Vec::new(), Vec::new());
        let (mut new, mut back) = (Vec::new(), Vec::new());
        let here = self.topology.states();
        let here = here.filter(|state| self.tree.nodes.contains(&state.node));
        let here: HashSet<&str> = here.map(|state| state.name.as_str()).collect();
        for (link, one) in &mut self.links {
            if let Some(away) = &mut one.away {
                let is_one_back = away.welcome(&here, self.now_s);
                if away.until_s <= self.now_s || is_one_back && away.missing.is_empty() {
                    over.push(*link);
                } else if is_one_back {
                    back.push(*link);
                }
            } else if self.tree.uses(self.own, one.peer, one.key) {
                one.unneeded_s = None;
                if !one.is_used {
                    one.is_used = true;
                    self.algorithm.added(*link, &mut say);
                    new.push(*link);
                    // What was published meanwhile did not go there, and nobody there may have noticed.
                    if one.was_cut {
                        self.actions.push_back(Action::Hand(*link));
                    }
                }
            } else if one.is_used {
                let since_s = *one.unneeded_s.get_or_insert(self.now_s);
                if since_s + SETTLING <= self.now_s {
                    (one.is_used, one.was_cut) = (false, true);
                    cut.push(*link);
                }
            }
        }
        for link in &cut {
            self.algorithm.removed(*link, &mut say);
        }
        self.speak(say);
        if self.retained.is_known {
            self.actions.extend(new.into_iter().map(Action::Ask));
        }
        // Where some are back and others not, what waited goes out again, and waits on.
        cut.extend(back);
        cut.into_iter().for_each(|link| self.fail(link));
        over.into_iter().for_each(|link| self.forget(link));
    }

    pub(super) fn speak(&mut self, say: Vec<Say>) {
        let links = &self.links;
        let is_here = |link: &Link| links.get(link).is_some_and(|one| one.away.is_none());
        let heard = say.into_iter().filter(|one| match one {
            Say::Subscribe(link, _) | Say::Unsubscribe(link, _) => is_here(link),
        });
        self.actions.extend(heard.map(Action::Say));
    }
}
