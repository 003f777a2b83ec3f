//! Which nodes there are, how they are linked, and which links make the tree.
//!
//! Each node tells all others which links it has (a link state, with a number that grows). A link
//! is one where both of its ends say so. The tree is the minimal spanning tree by the time at which
//! a link was made: so a new link never changes the way of what flows already, a loop is cut at its
//! newest link, and where a link of the tree goes, the oldest one that joins both parts again takes
//! its place. Whoever knows the same states finds the same tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

/// A node, from its start to its end: chosen at random.
pub type NodeId = u64;

/// When a link was made, and by chance which: both ends call it that.
pub type LinkKey = u64;

/// The most octets of a node's name.
pub const LONGEST_NAME: usize = 64;
/// The most links of a node.
pub const MOST_LINKS: usize = 256;
const MOST_NODES: usize = 1024;
const OLDEST: u32 = 120; // ticks without news of a node until it is forgotten

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Which node.
    pub node: NodeId,
    /// Of two states of a node, the one with the higher number counts.
    pub sequence: u64,
    /// What people call it.
    pub name: String,
    /// Its links: to whom, and which.
    pub links: Vec<(NodeId, LinkKey)>,
}

/// Whether a node may be called so.
#[must_use]
pub fn valid_name(name: &str) -> bool {
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._".contains(&octet);
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain)
}

impl State {
    /// As nodes send it: `NODE SEQUENCE NAME [PEER-KEY]...`, numbers in hexadecimal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{:x} {:x} {}", self.node, self.sequence, self.name);
        for (peer, key) in &self.links {
            let _ = write!(text, " {peer:x}-{key:x}"); // to a String nothing fails
        }
        text
    }

    /// Read it; none: it is not one.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut words = std::str::from_utf8(octets).ok()?.split(' ');
        let node = number(words.next()?)?;
        let sequence = number(words.next()?)?;
        let name = words.next().filter(|name| valid_name(name))?.to_owned();
        let link = |word: &str| {
            let (peer, key) = word.split_once('-')?;
            Some((number(peer)?, number(key)?))
        };
        let links: Vec<_> = words.map(link).collect::<Option<_>>()?;
        (links.len() <= MOST_LINKS).then_some(Self {
            node,
            sequence,
            name,
            links,
        })
    }
}

/// All that is known of the nodes.
pub struct Topology {
    own: NodeId,
    states: BTreeMap<NodeId, State>,
    ages: HashMap<NodeId, u32>,
}

/// The links that are used, and the nodes that are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Links, each with the lower node first.
    pub links: BTreeSet<(LinkKey, NodeId, NodeId)>,
    /// All nodes of our part, ourselves included.
    pub nodes: BTreeSet<NodeId>,
}

impl Tree {
    /// Whether a link of ours is used.
    #[must_use]
    pub fn uses(&self, own: NodeId, peer: NodeId, key: LinkKey) -> bool {
        self.links.contains(&(key, own.min(peer), own.max(peer)))
    }

    /// The nodes that a link of ours leads to, its other end included.
    #[must_use]
    pub fn behind(&self, own: NodeId, peer: NodeId, key: LinkKey) -> BTreeSet<NodeId> {
        let mut found = BTreeSet::from([peer]);
        let mut fresh = if self.uses(own, peer, key) {
            vec![peer]
        } else {
            Vec::new()
        };
        while let Some(at) = fresh.pop() {
            for (_, one, other) in &self.links {
                let next = match at {
                    _ if at == *one => *other,
                    _ if at == *other => *one,
                    _ => continue,
                };
                if next != own && found.insert(next) {
                    fresh.push(next);
                }
            }
        }
        found
    }
}

impl Topology {
    /// One node, without links.
    #[must_use]
    pub fn new(own: NodeId, name: &str) -> Self {
        let state = State {
            node: own,
            sequence: 1,
            name: name.into(),
            links: Vec::new(),
        };
        Self {
            own,
            states: BTreeMap::from([(own, state)]),
            ages: HashMap::new(),
        }
    }

    /// All states, our own included, by node.
    pub fn states(&self) -> impl Iterator<Item = &State> {
        self.states.values()
    }

    /// Our own state has other links now, or is to be said again: what to tell all.
    pub fn renew(&mut self, links: Option<Vec<(NodeId, LinkKey)>>) -> Option<&State> {
        let own = self.states.get_mut(&self.own)?;
        own.sequence += 1;
        if let Some(links) = links {
            own.links = links;
        }
        Some(own)
    }

    /// Take what a node says; whether that is new, and so to be passed on.
    ///
    /// What we ourselves never said in our name is contradicted with the next [`Self::renew`].
    pub fn take(&mut self, state: &State) -> bool {
        if state.node == self.own {
            if let Some(own) = self.states.get_mut(&self.own) {
                own.sequence = own
                    .sequence
                    .max(state.sequence.saturating_add(1).min(u64::MAX / 2));
            }
            return false;
        }
        let is_new = match self.states.get(&state.node) {
            Some(known) => state.sequence > known.sequence,
            None => self.states.len() < MOST_NODES,
        };
        if is_new {
            self.ages.insert(state.node, 0);
            self.states.insert(state.node, state.clone());
        }
        is_new
    }

    /// Forget nodes of which nothing was heard for long.
    pub fn tick(&mut self) {
        self.ages.retain(|node, age| {
            *age += 1;
            if *age > OLDEST {
                self.states.remove(node);
            }
            *age <= OLDEST
        });
    }

    /// The tree of our part.
    #[must_use]
    pub fn tree(&self) -> Tree {
        let mut links = BTreeSet::new();
        for state in self.states.values() {
            for (peer, key) in &state.links {
                let both = self.states.get(peer);
                if state.node < *peer
                    && both.is_some_and(|both| both.links.contains(&(state.node, *key)))
                {
                    links.insert((*key, state.node, *peer));
                }
            }
        }
        let mut part: HashMap<NodeId, NodeId> =
            self.states.keys().map(|node| (*node, *node)).collect();
        fn root(part: &mut HashMap<NodeId, NodeId>, node: NodeId) -> NodeId {
            let mut at = node;
            while let Some(up) = part.get(&at).copied().filter(|up| *up != at) {
                at = up;
            }
            part.insert(node, at);
            at
        }
        links.retain(|(_, one, other)| {
            let (one, other) = (root(&mut part, *one), root(&mut part, *other));
            part.insert(one.max(other), one.min(other));
            one != other
        });
        let ours = root(&mut part, self.own);
        let all: Vec<NodeId> = self.states.keys().copied().collect();
        let nodes: BTreeSet<_> = all
            .into_iter()
            .filter(|node| root(&mut part, *node) == ours)
            .collect();
        links.retain(|(_, one, _)| nodes.contains(one));
        Tree { links, nodes }
    }
}
