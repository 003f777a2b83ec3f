//! Links to neighbours: which ones are used, the link states that go over them, and neighbours that
//! are away.

use super::{Action, BEFORE, Neighbour, Node, SETTLING};
use crate::cooperation::Say;
use crate::message::Link;
use crate::topology::{LinkKey, NodeId, State};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A neighbour has gone away and may come back. Until then messages above QoS 0 wait for it.
pub(super) struct Away {
    /// The names of the nodes behind the link, including the neighbour; and for each, since when it is
    /// reached another way.
    missing: BTreeMap<String, Option<u64>>,
    pub(super) until_s: u64,
}

impl Away {
    /// Take nodes off the list that have been reached another way for long enough to say what they
    /// want. Returns whether there was one.
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
    /// A link has come up. `peer` and `name`: the neighbour's node and its name.
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
        let states = self.topology.states().filter(|one| one.node != self.own);
        let states = states.map(|state| Action::State(link, state.clone()));
        self.actions.extend(states);
        self.announce();
        self.refresh();
    }

    /// The names of the nodes that were there before this node restarted. Messages above QoS 0 that its
    /// clients publish wait for these nodes, as for those behind a neighbour that went away.
    pub fn expect(&mut self, names: impl IntoIterator<Item = String>) {
        let missing: BTreeMap<_, _> = names.into_iter().map(|name| (name, None)).collect();
        if missing.is_empty() {
            return;
        }
        let before = Neighbour {
            peer: self.own,
            key: 0,
            name: "nodes from before the restart".into(),
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

    /// The names of the other nodes that are there, or that this node waits for.
    #[must_use]
    pub fn others(&self) -> BTreeSet<&str> {
        let here = self.reached().filter(|one| one.node != self.own);
        let away = self.links.values().filter_map(|one| one.away.as_ref());
        let away = away.flat_map(|away| away.missing.keys().map(String::as_str));
        here.map(|one| one.name.as_str()).chain(away).collect()
    }

    /// A link is gone. `for_good`: no message waits for the neighbour.
    pub fn link_down(&mut self, link: Link, for_good: bool) {
        let Some(neighbour) = self.links.get_mut(&link) else {
            return;
        };
        let (was_used, peer, key) = (neighbour.is_used, neighbour.peer, neighbour.key);
        let wait_s = if for_good { 0 } else { self.absence_s };
        let behind = self.tree.behind(self.own, peer, key);
        let states = self.topology.states();
        let missing = states.filter(|state| behind.contains(&state.node));
        neighbour.away = Some(Away {
            missing: missing.map(|state| (state.name.clone(), None)).collect(),
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

    /// The neighbour will not confirm what was sent to it.
    fn fail(&mut self, link: Link) {
        let pending = self.pending.iter();
        let waiting = pending.filter(|(_, one)| one.waits.contains(&link));
        let failed: Vec<_> = waiting.map(|(key, one)| (*key, one.attempt)).collect();
        for (key, attempt) in failed {
            self.confirmed(link, key, attempt, false);
        }
    }

    /// A neighbour has sent the link state of a node.
    pub fn state(&mut self, link: Link, state: &State) {
        let own = self.topology.own();
        let contradicts = state.node == self.own && state != own && own.sequence <= state.sequence;
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

    /// Tell all nodes which links this node has.
    fn announce(&mut self) {
        let here = self.links.values().filter(|one| one.away.is_none());
        let links = here.map(|one| (one.peer, one.key)).collect();
        let state = self.topology.renew(Some(links)).clone();
        self.flood(&state, None);
    }

    /// Find the tree again. Use its links at once, and stop using others after [`SETTLING`].
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
                    // Messages published meanwhile did not go there, and the neighbour may not know.
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
        // Where only some of the missing nodes are back, what waited is sent again, and waits on.
        cut.extend(back);
        cut.into_iter().for_each(|link| self.fail(link));
        over.into_iter().for_each(|link| self.forget(link));
    }

    pub(super) fn speak(&mut self, say: Vec<Say>) {
        let links = &self.links;
        let is_here = |one: &Say| links.get(&one.link).is_some_and(|one| one.away.is_none());
        let heard = say.into_iter().filter(is_here);
        self.actions.extend(heard.map(Action::Say));
    }
}
