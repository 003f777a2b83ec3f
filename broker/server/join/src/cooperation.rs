//! The interface of a cooperation algorithm. `publications.rs` in its folder is the simplest one, and the example.
//!
//! An algorithm decides which neighbours get a message, and what a neighbour has to be told for
//! that. It does no input or output and has no clock: each method tells it one event, and it answers
//! with what to tell neighbours. It is one of the five components of the published layer (ILDM):
//!
//! | component | here |
//! |---|---|
//! | session manager | `manager.rs`: connections to clients, broker and neighbours; not visible here |
//! | message listener | [`Algorithm::subscribed`], [`Algorithm::unsubscribed`], [`Algorithm::route`] |
//! | status listener | [`Algorithm::added`], [`Algorithm::removed`] |
//! | event listener | [`Algorithm::lost`] |
//! | message generator | [`Say`], which `words.rs` writes as MQTT |
//!
//! `node.rs` deals with the rest: loops, repeated messages and acknowledgements. To add an
//! algorithm, implement [`Algorithm`] in a file of its own there and add it to [`Kind`].

mod publications;
mod subscriptions;

use crate::message::Link;
use publications::PublicationFlooding;
use std::sync::Arc;
use subscriptions::SubscriptionFlooding;
pub(crate) use subscriptions::width;

/// Where a subscription or a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// Clients of this site.
    Local,
    /// The neighbour at the other end of this link.
    Link(Link),
}

/// One word to a neighbour: this node subscribes to a filter there, or ends such a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Say {
    /// The link to the neighbour.
    pub link: Link,
    /// Which messages it is about.
    pub filter: Arc<str>,
    /// Whether this node wants these messages from now on, or no longer.
    pub wants: bool,
}

/// A cooperation algorithm.
///
/// Where a method has the argument `say`, it appends what neighbours are to be told. Each neighbour
/// is told in the order of `say`.
pub trait Algorithm {
    /// `by` has subscribed to these filters. For [`Source::Local`] they are new: no client of this
    /// site was subscribed to them before. A neighbour may repeat itself.
    fn subscribed(&mut self, by: Source, filters: &[Arc<str>], say: &mut Vec<Say>);

    /// `by` is no longer subscribed to these filters. For [`Source::Local`]: no client of this site is.
    fn unsubscribed(&mut self, by: Source, filters: &[Arc<str>], say: &mut Vec<Say>);

    /// A link has become part of the tree: from now on messages go over it. Both ends tell each other
    /// what they want.
    fn added(&mut self, link: Link, say: &mut Vec<Say>);

    /// A link is no longer part of the tree. The neighbour is still connected (the link would close a
    /// loop), so the algorithm withdraws what this node has subscribed to there.
    fn removed(&mut self, link: Link, say: &mut Vec<Say>);

    /// A link is gone, and so is every subscription that was made over it, in both directions.
    fn lost(&mut self, link: Link, say: &mut Vec<Say>);

    /// Where a message goes. Appends links to `to`, each once and never the one that it came `from`.
    /// Returns whether this site's broker gets the message, too.
    fn route(&self, topic: &str, retain: bool, from: Source, to: &mut Vec<Link>) -> bool;

    /// How many different filters clients of this site and neighbours have subscribed to.
    fn filters(&self) -> usize;

    /// How many filters this node has subscribed to at a neighbour.
    fn told(&self, link: Link) -> usize;
}

/// The algorithms that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Each message goes to all nodes.
    Publications,
    /// Subscriptions go to all nodes, and messages only where they are wanted.
    #[default]
    Subscriptions,
}

impl Kind {
    /// All of them, the default one first.
    pub const ALL: [Self; 2] = [Self::Subscriptions, Self::Publications];

    /// The algorithm with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in settings and in the greeting between nodes: both ends of a link need the same one.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Publications => "publications",
            Self::Subscriptions => "subscriptions",
        }
    }

    /// A new algorithm of this kind, which knows no link and no subscription yet.
    #[must_use]
    pub fn start(self) -> Box<dyn Algorithm> {
        match self {
            Self::Publications => Box::<PublicationFlooding>::default(),
            Self::Subscriptions => Box::<SubscriptionFlooding>::default(),
        }
    }
}
