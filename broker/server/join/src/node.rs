//! What a node does, without sockets and clocks. Its methods are told what happened; what to do
//! about it is read with [`Node::next_action`].
//!
//! Around the cooperation algorithm it keeps the tree ([`crate::topology`]), recognises messages that
//! come twice, and sees messages of QoS 1 and 2 through to the last node.
//!
//! A message has a key: its origin (the node where it was published), a lane (a hash of publisher and
//! topic; messages of one lane keep their order on each link) and a sequence number.
//!
//! - **QoS 0.** A message whose number is not higher than the last one of its lane is dropped: it came
//!   twice or too late.
//! - **QoS 1 and 2.** A node confirms a message to the neighbour that sent it once its own broker and
//!   all neighbours behind it have confirmed it. If one of them goes away first, the node reports that
//!   the message failed. The origin then sends it again, through the whole tree as it is at that
//!   moment, until it is confirmed.
//! - **Attempts.** These repetitions are numbered. A node that still waits for answers to an earlier
//!   attempt drops them when a later one comes, as the tree has changed. An answer counts only for
//!   its own attempt. A node passes each attempt on once, so it ends even where links make a loop for
//!   a moment.

mod handover;
mod links;
mod messages;
mod window;

use crate::cooperation::{Algorithm, Kind, Say, Source};
use crate::message::{Key, LANES, Link, Message};
use crate::retained::Retained;
use crate::topology::{LinkKey, NodeId, State, Topology, Tree};
use links::Away;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use window::Window;

// Not a real link: the nodes that were there before this node restarted are away over it.
const BEFORE: Link = 0;
const MOST_PENDING: usize = 4096; // unconfirmed messages of this site's clients
const MOST_OCTETS: usize = 64 << 20; // of their payloads
const MOST_SEEN: usize = 1024 * LANES as usize;
const MOST_TRIED: usize = 1 << 16;
const RENEWAL: u64 = 30; // ticks after which this node repeats its link state
// Ticks for which a link stays in use after it has left the tree: until all nodes know the new tree.
// Messages sent by the old tree still arrive, or fail and are sent again, and are not taken for
// unwanted ones.
const SETTLING: u64 = 2;

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell a neighbour the link state of a node.
    State(Link, State),
    /// Subscribe at a neighbour, or end a subscription there.
    Say(Say),
    /// Send a message to a neighbour.
    Send {
        /// The link to the neighbour.
        link: Link,
        /// Identifies the message.
        key: Key,
        /// 0 for the first attempt, which goes where it is wanted. Later attempts go everywhere.
        attempt: u32,
        /// The message.
        message: Rc<Message>,
    },
    /// Tell a neighbour whether a message from it has reached every node that wants it.
    Confirm {
        /// The link to the neighbour.
        link: Link,
        /// Identifies the message.
        key: Key,
        /// The attempt that this is the answer to.
        attempt: u32,
        /// True: it has. False: it has to be sent again.
        done: bool,
    },
    /// Publish a message at the broker. Above QoS 0 call [`Node::delivered`] once the broker has it.
    Deliver(Key, Rc<Message>),
    /// A message of a client of this site has reached every site that wants it.
    Release(Key),
    /// Ask a neighbour for the retained messages of its site.
    Ask(Link),
    /// Give a neighbour the retained messages of this site, as if it had asked.
    Hand(Link),
    /// The tree has changed.
    TreeChanged,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this site's clients that went to a neighbour.
    pub began: u64,
    /// Messages that came from neighbours.
    pub arrived: u64,
    /// Messages from neighbours that had come before.
    pub repeated: u64,
    /// Messages from neighbours for this site's broker.
    pub delivered: u64,
    /// Messages that were sent again.
    pub again: u64,
    /// Messages of QoS 0 that were dropped because a neighbour was away.
    pub away: u64,
    /// Retained messages given to neighbours that had joined, or had room again, after they came.
    pub handed: u64,
    /// Retained messages from other sites that were older than what is here.
    pub outdated: u64,
}

struct Neighbour {
    peer: NodeId,
    key: LinkKey,
    name: String,
    /// The link is part of the tree, or was so less than [`SETTLING`] ago.
    is_used: bool,
    /// The link was used, and then no longer, while both ends were there.
    was_cut: bool,
    /// Since when the link, which is still used, is no part of the tree.
    unneeded_s: Option<u64>,
    away: Option<Away>,
}

/// A message above QoS 0 that is not confirmed yet.
struct Pending {
    message: Rc<Message>,
    attempt: u32,
    /// The neighbour to confirm it to; none: it was published at this site.
    from: Option<Link>,
    /// The neighbours that have not confirmed it.
    waits: Vec<Link>,
    /// Whether the broker has not confirmed it.
    at_broker: bool,
    /// Whether a neighbour has gone away or reported a failure.
    failed: bool,
}

/// Which messages of one lane of one node have come.
#[derive(Default)]
struct Seen {
    /// The last number at QoS 0.
    plain: u64,
    /// The numbers above QoS 0.
    sure: Option<Window>,
}

/// A node.
pub struct Node {
    own: NodeId,
    /// All nodes and their links.
    pub topology: Topology,
    /// The tree now.
    pub tree: Tree,
    /// What is counted.
    pub counters: Counters,
    /// What this site has retained.
    pub retained: Retained,
    algorithm: Box<dyn Algorithm>,
    links: BTreeMap<Link, Neighbour>,
    pending: HashMap<Key, Pending>,
    /// The numbers of pending messages of this site, by lane, and the octets of their payloads.
    own_pending: [BTreeSet<u64>; LANES as usize],
    own_octets: usize,
    retry: BTreeSet<Key>,
    seen: HashMap<(NodeId, u8), Seen>,
    /// The last attempt, if above 0, of messages that came lately: recent ones, and ones before those.
    tried: [HashMap<Key, u32>; 2],
    /// The last numbers that this node gave in each lane: at QoS 0, and above.
    last: [[u64; 2]; LANES as usize],
    absence_s: u64,
    now_s: u64,
    actions: VecDeque<Action>,
    /// Kept between calls only for its allocation.
    room: Vec<Link>,
}

impl Node {
    /// A node without links. `absence_s`: how long messages wait for a neighbour that went away.
    #[must_use]
    pub fn new(own: NodeId, name: &str, kind: Kind, absence_s: u64) -> Self {
        let topology = Topology::new(own, name);
        Self {
            own,
            tree: topology.tree(),
            topology,
            counters: Counters::default(),
            retained: Retained::default(),
            algorithm: kind.start(),
            links: BTreeMap::new(),
            pending: HashMap::new(),
            own_pending: Default::default(),
            own_octets: 0,
            retry: BTreeSet::new(),
            seen: HashMap::new(),
            tried: Default::default(),
            last: Default::default(),
            absence_s,
            now_s: 0,
            actions: VecDeque::new(),
            room: Vec::new(),
        }
    }

    /// The next thing to do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next thing to do, if it is a word of the same kind over the same link.
    pub fn next_like(&mut self, say: &Say) -> Option<Say> {
        match self.actions.pop_front()? {
            Action::Say(next) if (next.link, next.wants) == (say.link, say.wants) => Some(next),
            other => {
                self.actions.push_front(other);
                None
            }
        }
    }

    /// The identifier of this node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.own
    }

    /// The states of all nodes that this node can reach, itself included.
    pub fn reached(&self) -> impl Iterator<Item = &State> {
        let states = self.topology.states();
        states.filter(|one| self.tree.nodes.contains(&one.node))
    }

    /// Whether a link is part of the tree.
    #[must_use]
    pub fn is_used(&self, link: Link) -> bool {
        let is_needed = |one: &Neighbour| one.is_used && one.unneeded_s.is_none();
        self.links.get(&link).is_some_and(is_needed)
    }

    /// Whether a neighbour gets every retained message that is published from now on. Only then may it
    /// be given the earlier ones: so it misses none.
    #[must_use]
    pub fn is_told(&self, link: Link) -> bool {
        let one = self.links.get(&link);
        one.is_some_and(|one| one.is_used && one.away.is_none())
    }

    /// How many filters this node has subscribed to at a neighbour.
    #[must_use]
    pub fn told(&self, link: Link) -> usize {
        self.algorithm.told(link)
    }

    /// How many different filters are known.
    #[must_use]
    pub fn filters(&self) -> usize {
        self.algorithm.filters()
    }

    /// How many messages are not confirmed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Neighbours that went away and may come back: their names, and until when this node waits.
    pub fn away(&self) -> impl Iterator<Item = (&str, u64)> {
        let away = |one: &'_ Neighbour| one.away.as_ref().map(|away| away.until_s);
        self.links
            .values()
            .filter_map(move |one| Some((one.name.as_str(), away(one)?)))
    }

    /// A second has passed.
    pub fn tick(&mut self, now_s: u64) {
        self.now_s = now_s;
        self.topology.tick();
        if now_s.is_multiple_of(RENEWAL) {
            let known: BTreeSet<NodeId> = self.topology.states().map(|one| one.node).collect();
            self.seen.retain(|(node, _), _| known.contains(node));
            self.forget_attempts();
            let state = self.topology.renew(None).clone();
            self.flood(&state, None);
        }
        self.refresh();
        self.try_again();
    }

    // -- subscriptions -----------------------------------------------------------------------------

    /// Clients of this site, or a neighbour, have subscribed to these filters.
    pub fn subscribed(&mut self, by: Source, filters: &[Arc<str>]) {
        let mut say = Vec::new();
        self.algorithm.subscribed(by, filters, &mut say);
        self.speak(say);
    }

    /// Clients of this site, or a neighbour, are no longer subscribed to these filters.
    pub fn unsubscribed(&mut self, by: Source, filters: &[Arc<str>]) {
        let mut say = Vec::new();
        self.algorithm.unsubscribed(by, filters, &mut say);
        self.speak(say);
    }
}
