//! What a session that has ended leaves to do, a few steps at a time: its subscriptions are removed
//! from the tree, and what it had of shared subscriptions goes to other members.

use crate::desk::Desk;
use crate::exchange::work_of;
use crate::memory::Share;
use crate::message::Kept;
use std::collections::{HashSet, VecDeque, hash_set};
use std::sync::Arc;

/// What is left to do.
#[derive(Default)]
pub struct Remains {
    sessions: VecDeque<Subscriptions>,
    /// Copies for another member of a shared subscription.
    pub copies: VecDeque<(Arc<str>, Arc<Kept>)>,
}

struct Subscriptions {
    session: u64,
    filters: hash_set::IntoIter<Box<str>>,
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

impl Desk {
    /// Do as much of what is left as one turn allows.
    pub fn sweep(&mut self) {
        self.begin_turn();
        let (mut gone, mut ended) = (Vec::new(), Vec::new());
        while self.left() > 0
            && let Some(first) = self.courier.remains.sessions.front_mut()
        {
            let session = first.session;
            match first.filters.next() {
                Some(filter) => {
                    self.spend(work_of(&filter));
                    gone.push((session, filter));
                }
                None => ended.extend(self.courier.remains.sessions.pop_front()),
            }
        }
        if !gone.is_empty() {
            let shared = Arc::clone(&self.shared);
            shared.change(gone.iter().map(|(_, filter)| &**filter), |tree| {
                for (session, filter) in &gone {
                    tree.unsubscribe(filter, session);
                }
            });
        }
        while self.left() > 0
            && let Some((share, kept)) = self.courier.remains.copies.pop_front()
        {
            self.hand_on(&share, &kept);
        }
    }
}
