//! What a node does, without sockets and clocks: it is told what happened, and says what to do.
//!
//! Around the cooperation algorithm it keeps the tree ([`crate::topology`]), knows messages that
//! come twice, and sees messages of QoS 1 and 2 through to the last node.
//!
//! A message has a key: the node where it began, a lane (its publisher and topic hash to it; a lane
//! keeps its order on each link) and a number. At QoS 0 a number that is not higher than the last
//! one of its lane is one that came twice or too late. Above, a node confirms a message to the
//! neighbour that it came from first once its broker and all neighbours that it went to have confirmed
//! it. If one of them goes before that, it says so, and the node where the message began sends it
//! again, through the whole tree as it is then, until it is confirmed. Such attempts are numbered: a
//! node that still waits for what belongs to an earlier one starts anew with the later one, as the
//! tree is another one now; an answer counts for its own attempt only; and a node passes an attempt on
//! once, so that it ends also where links make a loop for a moment.

mod links;
mod messages;
mod window;

use crate::cooperation::{Algorithm, Kind, Say, Source};
use crate::retained::Retained;
use crate::topology::{LinkKey, NodeId, State, Topology, Tree};
use links::Away;
use mqtick_broker::residence::Arrived;
use mqtick_packet::Qos;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use window::Window;

/// A link to a neighbour, as this node calls it; never used again.
pub type Link = u64;

/// How many lanes there are.
pub const LANES: u8 = 16;
// No link: who was there before this node started anew is away over it.
const BEFORE: Link = 0;
const MOST_PENDING: usize = 4096; // messages that began here and are not confirmed
const MOST_OCTETS: usize = 64 << 20; // of their payloads
const MOST_SEEN: usize = 1024 * LANES as usize;
const MOST_TRIED: usize = 1 << 16;
const RENEWAL: u64 = 30; // ticks from one state of ours to the next
// Ticks for which a link that is no longer used still counts: until all nodes know the new tree, what
// was sent by the old one finds its way, or is sent again, instead of being taken for unwanted.
const SETTLING: u64 = 2;

/// Which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Where it began.
    pub origin: NodeId,
    /// Its lane, below [`LANES`].
    pub lane: u8,
    /// Its number there; QoS 0 counts apart.
    pub sequence: u64,
}

/// A message between nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Where it was published.
    pub topic: String,
    /// What.
    pub payload: Vec<u8>,
    /// How surely.
    pub qos: Qos,
    /// Whether it is to be kept.
    pub retain: bool,
    /// Seconds for which it could still be delivered when it came.
    pub expiry: Option<u32>,
    /// When it came to this node, in its seconds.
    pub came_s: u64,
    /// Properties that go with it, as `Properties::forwarded` gives them.
    pub forwarded: Vec<u8>,
    /// The user who published it, or empty.
    pub user: String,
    /// And the client.
    pub client: String,
    /// Of a time message: when it came, and what it stated, if all before state it.
    pub arrived: Option<Arrived>,
    /// Of one that is to be kept: see [`crate::retained`].
    pub stamp: u64,
    /// Whether it was kept before the neighbour came: it is for brokers that have an older one.
    pub kept: bool,
    /// Whether this site's access list keeps it from its broker: others may get it.
    pub is_denied: bool,
}

impl Message {
    /// Seconds for which it may still be delivered: less than when it came by how long it waited.
    #[must_use]
    pub fn expiry_at(&self, now_s: u64) -> Option<u32> {
        let waited_s = u32::try_from(now_s.saturating_sub(self.came_s)).unwrap_or(u32::MAX);
        self.expiry.map(|expiry| expiry.saturating_sub(waited_s))
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Tell a neighbour which node has which links.
    State(Link, State),
    /// Tell it what we want, or no longer.
    Say(Say),
    /// Pass a message on.
    Send {
        /// To whom.
        link: Link,
        /// Which.
        key: Key,
        /// 0 for the first one, which goes where it is wanted; later ones go to all.
        attempt: u32,
        /// What.
        message: Rc<Message>,
    },
    /// Tell a neighbour that a message is where it should be, or that it is not.
    Confirm {
        /// To whom.
        link: Link,
        /// Which.
        key: Key,
        /// Which of its attempts.
        attempt: u32,
        /// Whether it is.
        done: bool,
    },
    /// Publish it at the broker, and say [`Node::delivered`] then, unless it is of QoS 0.
    Deliver(Key, Rc<Message>),
    /// A message that began here is where it should be.
    Release(Key),
    /// Ask a neighbour for what its site has retained.
    Ask(Link),
    /// Give a neighbour what this site has retained, as if it had asked.
    Hand(Link),
    /// The tree is another one.
    TreeChanged,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this site's clients that went to a neighbour.
    pub began: u64,
    /// Messages that came from neighbours.
    pub arrived: u64,
    /// Of these, those that were there already.
    pub repeated: u64,
    /// Messages for the broker.
    pub delivered: u64,
    /// Messages that were sent again.
    pub again: u64,
    /// Messages of QoS 0 for a neighbour that was away.
    pub away: u64,
    /// Retained messages for neighbours that came after them.
    pub handed: u64,
    /// Retained messages from elsewhere that were older than what is here.
    pub outdated: u64,
}

struct Neighbour {
    peer: NodeId,
    key: LinkKey,
    name: String,
    is_used: bool,
    /// It was used, and then not, whatever the other end did.
    was_cut: bool,
    /// The tree has no need of it since then.
    unneeded_s: Option<u64>,
    away: Option<Away>,
}

struct Pending {
    message: Rc<Message>,
    attempt: u32,
    from: Option<Link>,
    waits: Vec<Link>,
    at_broker: bool,
    failed: bool,
}

#[derive(Default)]
struct Seen {
    plain: u64,
    sure: Option<Window>,
}

/// A node.
pub struct Node {
    own: NodeId,
    /// Who else there is.
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
    own_pending: [BTreeSet<u64>; LANES as usize],
    own_octets: usize,
    retry: BTreeSet<Key>,
    seen: HashMap<(NodeId, u8), Seen>,
    /// The last attempts, above 0, of messages that came lately, and of those before.
    tried: [HashMap<Key, u32>; 2],
    last: [[u64; 2]; LANES as usize],
    absence_s: u64,
    now_s: u64,
    actions: VecDeque<Action>,
    room: Vec<Link>,
}

impl Node {
    /// One that is alone. `absence_s`: for how long messages wait for a neighbour that went.
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

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next word to a neighbour, if it comes next and is such a one.
    pub fn next_if(&mut self, wanted: impl FnOnce(&Say) -> bool) -> Option<Say> {
        match self.actions.front() {
            Some(Action::Say(say)) if wanted(say) => match self.actions.pop_front() {
                Some(Action::Say(say)) => Some(say),
                _ => None,
            },
            _ => None,
        }
    }

    /// This node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.own
    }

    /// Whether a link is part of the tree.
    #[must_use]
    pub fn is_used(&self, link: Link) -> bool {
        let is_needed = |one: &Neighbour| one.is_used && one.unneeded_s.is_none();
        self.links.get(&link).is_some_and(is_needed)
    }

    /// Whether a neighbour gets all that is retained from now on: then it can have what was before.
    #[must_use]
    pub fn is_told(&self, link: Link) -> bool {
        let one = self.links.get(&link);
        one.is_some_and(|one| one.is_used && one.away.is_none())
    }

    /// What we told a neighbour that we want.
    #[must_use]
    pub fn told(&self, link: Link) -> usize {
        self.algorithm.told(link)
    }

    /// How many different filters are known.
    #[must_use]
    pub fn filters(&self) -> usize {
        self.algorithm.filters()
    }

    /// Messages that are not confirmed.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Neighbours that went and may come back: until when, and what they are called.
    pub fn away(&self) -> impl Iterator<Item = (&str, u64)> {
        let away = |one: &'_ Neighbour| one.away.as_ref().map(|away| away.until_s);
        self.links
            .values()
            .filter_map(move |one| Some((one.name.as_str(), away(one)?)))
    }

    /// A second went by.
    pub fn tick(&mut self, now_s: u64) {
        self.now_s = now_s;
        self.topology.tick();
        if now_s.is_multiple_of(RENEWAL) {
            let known: BTreeSet<NodeId> = self.topology.states().map(|one| one.node).collect();
            self.seen.retain(|(node, _), _| known.contains(node));
            self.forget_attempts();
        }
        if now_s.is_multiple_of(RENEWAL)
            && let Some(state) = self.topology.renew(None).cloned()
        {
            self.flood(&state, None);
        }
        self.refresh();
        self.try_again();
    }

    // -- subscriptions -----------------------------------------------------------------------------

    /// Somebody has new subscriptions.
    pub fn subscribed(&mut self, by: Source, filters: &[Arc<str>]) {
        let mut say = Vec::new();
        self.algorithm.subscribed(by, filters, &mut say);
        self.speak(say);
    }

    /// Or ended some.
    pub fn unsubscribed(&mut self, by: Source, filters: &[Arc<str>]) {
        let mut say = Vec::new();
        self.algorithm.unsubscribed(by, filters, &mut say);
        self.speak(say);
    }
}
