//! What a cooperation algorithm is. `publications.rs` is the simplest one, and the example.
//!
//! An algorithm decides where messages go and what neighbours have to be told for that. It does no
//! input or output and knows no time: it is told what happened and answers with what to say. The
//! five components of the published layer (ILDM) are around it:
//!
//! | component | here |
//! |---|---|
//! | session manager | `manager.rs`: connections to clients, broker, neighbours; none is seen here |
//! | message listener | [`Algorithm::subscribed`], [`Algorithm::unsubscribed`], [`Algorithm::route`] |
//! | status listener | [`Algorithm::added`], [`Algorithm::removed`] |
//! | event listener | [`Algorithm::lost`] |
//! | message generator | [`Say`], turned into MQTT by `words.rs` |
//!
//! `node.rs` keeps the rest away from it: loops, messages that come twice, acknowledgements. To add
//! another algorithm, implement the trait in a file of its own and name it in [`Kind`].

use crate::node::Link;
use crate::publications::PublicationFlooding;
use crate::subscriptions::SubscriptionFlooding;
use std::sync::Arc;

/// Who has a subscription: this site's clients, or whoever is behind a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Clients of this site.
    Local,
    /// A neighbour.
    Link(Link),
}

/// What a neighbour is to be told, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// From now on we want what matches this filter.
    Subscribe(Link, Arc<str>),
    /// And no longer what matches this one.
    Unsubscribe(Link, Arc<str>),
}

/// A cooperation algorithm.
pub trait Algorithm {
    /// Somebody subscribed to these filters who had not before.
    fn subscribed(&mut self, by: Source, filters: &[Arc<str>], say: &mut Vec<Say>);

    /// And ended subscriptions to these.
    fn unsubscribed(&mut self, by: Source, filters: &[Arc<str>], say: &mut Vec<Say>);

    /// A link is used now: both ends tell each other what they want.
    fn added(&mut self, link: Link, say: &mut Vec<Say>);

    /// It is no longer used, but is still there: it may be a loop's.
    fn removed(&mut self, link: Link, say: &mut Vec<Say>);

    /// It is gone, with whatever was told over it.
    fn lost(&mut self, link: Link, say: &mut Vec<Say>);

    /// Where a message goes that came from `from`: the links are appended to `to`, never `from`
    /// itself; whether this site's broker wants it, too.
    fn route(&self, topic: &str, retain: bool, from: Source, to: &mut Vec<Link>) -> bool;

    /// How many different filters are known, of this site or of neighbours.
    fn filters(&self) -> usize;

    /// What we told this neighbour that we want.
    fn told(&self, link: Link) -> usize;
}

/// Which algorithms there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Each message goes to all nodes.
    Publications,
    /// Subscriptions go to all nodes, and messages where they are wanted.
    #[default]
    Subscriptions,
}

impl Kind {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Subscriptions, Self::Publications];

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name, in settings and between nodes: both ends of a link must have the same.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Publications => "publications",
            Self::Subscriptions => "subscriptions",
        }
    }

    /// A new one.
    #[must_use]
    pub fn start(self) -> Box<dyn Algorithm> {
        match self {
            Self::Publications => Box::<PublicationFlooding>::default(),
            Self::Subscriptions => Box::<SubscriptionFlooding>::default(),
        }
    }
}
