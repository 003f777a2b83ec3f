//! What a session that has ended leaves to do, a few steps at a time: its subscriptions are removed
//! from the tree, and what it had of shared subscriptions goes to other members.

use crate::memory::Share;
use crate::message::Kept;
use std::collections::{HashSet, VecDeque, hash_set};
use std::sync::Arc;

/// What is left to do.
#[derive(Default)]
pub struct Remains {
    /// Sessions whose subscriptions are still in the tree.
    pub sessions: VecDeque<Subscriptions>,
    /// Copies for another member of a shared subscription.
    pub copies: VecDeque<(Arc<str>, Arc<Kept>)>,
}

/// The subscriptions of a session that has ended.
pub struct Subscriptions {
    /// Its number.
    pub session: u64,
    /// The filters that are left to remove.
    pub filters: hash_set::IntoIter<Box<str>>,
    _share: Share, // of the memory that they take
}

impl Remains {
    /// A session has ended that had these subscriptions.
    pub fn add(&mut self, session: u64, (filters, share): (HashSet<Box<str>>, Share)) {
        if !filters.is_empty() {
            self.sessions.push_back(Subscriptions {
                session,
                filters: filters.into_iter(),
                _share: share,
            });
        }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.copies.is_empty()
    }
}
