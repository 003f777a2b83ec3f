//! Which nodes there are, how they are linked, and which links make the tree.
//!
//! Each node tells all others which links it has: its link state, with a sequence number. A link
//! counts if both of its ends name it. The tree is the minimum spanning tree by the time at which
//! links were made. So a new link never changes the way that messages already take, a loop is cut at
//! its newest link, and where a link of the tree is lost, the oldest link that joins both parts again
//! takes its place. Nodes that know the same link states find the same tree.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;

/// Identifies a node from its start to its end; random.
pub type NodeId = u64;

/// Identifies a link at both of its ends: when it was made, followed by random bits.
pub type LinkKey = u64;

/// The most octets of a node's name.
pub const LONGEST_NAME: usize = 64;
/// The most links of a node.
pub const MOST_LINKS: usize = 256;
const MOST_NODES: usize = 1024;
const OLDEST: u32 = 120; // ticks without a new state of a node until it is forgotten

/// The link state of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The node.
    pub node: NodeId,
    /// Of two states of a node, the one with the higher number counts.
    pub sequence: u64,
    /// Its name.
    pub name: String,
    /// Its links: the node at the other end, and the link.
    pub links: Vec<(NodeId, LinkKey)>,
}

/// Whether a node may have this name.
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

    /// Read what [`Self::text`] wrote. None if it is malformed.
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

/// The link states of all nodes.
pub struct Topology {
    own: State,
    /// Those of the other nodes, each with its age in ticks.
    others: BTreeMap<NodeId, (State, u32)>,
}

/// The links that are used, and the nodes that are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// Links, each with the lower node first.
    pub links: BTreeSet<(LinkKey, NodeId, NodeId)>,
    /// All nodes that this node can reach, itself included.
    pub nodes: BTreeSet<NodeId>,
}

impl Tree {
    /// Whether the link between `own` and `peer` with this key is part of the tree.
    #[must_use]
    pub fn uses(&self, own: NodeId, peer: NodeId, key: LinkKey) -> bool {
        self.links.contains(&(key, own.min(peer), own.max(peer)))
    }

    /// The nodes that are reached over the link from `own` to `peer`, including `peer`.
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
        Self {
            own: State {
                node: own,
                sequence: 1,
                name: name.into(),
                links: Vec::new(),
            },
            others: BTreeMap::new(),
        }
    }

    /// The state of this node.
    #[must_use]
    pub fn own(&self) -> &State {
        &self.own
    }

    /// The states of all nodes, this one included.
    pub fn states(&self) -> impl Iterator<Item = &State> {
        let others = self.others.values().map(|(state, _)| state);
        std::iter::once(&self.own).chain(others)
    }

    /// The state of a node, if it is known.
    #[must_use]
    pub fn get(&self, node: NodeId) -> Option<&State> {
        match node == self.own.node {
            true => Some(&self.own),
            false => self.others.get(&node).map(|(state, _)| state),
        }
    }

    /// This node's new state, to be told to all: with these links, or with the same ones.
    pub fn renew(&mut self, links: Option<Vec<(NodeId, LinkKey)>>) -> &State {
        self.own.sequence += 1;
        if let Some(links) = links {
            self.own.links = links;
        }
        &self.own
    }

    /// Take the state of a node. Returns whether it is new, and so has to be passed on.
    ///
    /// A state that claims to be of this node is not taken. The next [`Self::renew`] has a higher
    /// number, and so overrides it at other nodes.
    pub fn take(&mut self, state: &State) -> bool {
        if state.node == self.own.node {
            let above = state.sequence.saturating_add(1).min(u64::MAX / 2);
            self.own.sequence = self.own.sequence.max(above);
            return false;
        }
        let is_new = match self.others.get(&state.node) {
            Some((known, _)) => state.sequence > known.sequence,
            None => self.others.len() + 1 < MOST_NODES,
        };
        if is_new {
            self.others.insert(state.node, (state.clone(), 0));
        }
        is_new
    }

    /// A second has passed: forget nodes that have sent no new state for long.
    pub fn tick(&mut self) {
        self.others.retain(|_, (_, age)| {
            *age += 1;
            *age <= OLDEST
        });
    }

    /// The tree that this node is part of.
    #[must_use]
    pub fn tree(&self) -> Tree {
        let mut links = BTreeSet::new();
        for state in self.states() {
            for (peer, key) in &state.links {
                let other = self.get(*peer);
                if state.node < *peer
                    && other.is_some_and(|other| other.links.contains(&(state.node, *key)))
                {
                    links.insert((*key, state.node, *peer));
                }
            }
        }
        // Each node with another one of its part, up to the root of the part.
        let mut part: HashMap<NodeId, NodeId> =
            self.states().map(|one| (one.node, one.node)).collect();
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
        let ours = root(&mut part, self.own.node);
        let nodes = self.states().map(|one| one.node);
        let nodes: BTreeSet<_> = nodes
            .filter(|node| root(&mut part, *node) == ours)
            .collect();
        links.retain(|(_, one, _)| nodes.contains(one));
        Tree { links, nodes }
    }
}
