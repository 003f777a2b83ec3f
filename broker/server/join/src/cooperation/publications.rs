//! Publication flooding: each message goes to the broker and to all neighbours except the one that
//! it came from. Neighbours are told nothing.

use super::{Algorithm, Say, Source};
use crate::message::Link;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Publication flooding.
#[derive(Default)]
pub struct PublicationFlooding {
    /// The links of the tree.
    links: BTreeSet<Link>,
}

impl Algorithm for PublicationFlooding {
    fn subscribed(&mut self, _by: Source, _filters: &[Arc<str>], _say: &mut Vec<Say>) {}

    fn unsubscribed(&mut self, _by: Source, _filters: &[Arc<str>], _say: &mut Vec<Say>) {}

    fn added(&mut self, link: Link, _say: &mut Vec<Say>) {
        self.links.insert(link);
    }

    fn removed(&mut self, link: Link, _say: &mut Vec<Say>) {
        self.links.remove(&link);
    }

    fn lost(&mut self, link: Link, _say: &mut Vec<Say>) {
        self.links.remove(&link);
    }

    fn route(&self, _topic: &str, _retain: bool, from: Source, to: &mut Vec<Link>) -> bool {
        to.extend(
            self.links
                .iter()
                .filter(|link| Source::Link(**link) != from),
        );
        true
    }

    fn filters(&self) -> usize {
        0
    }

    fn told(&self, _link: Link) -> usize {
        0
    }
}
