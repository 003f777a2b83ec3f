//! What becomes due while clients are away: sessions end, and wills are published, a few at a time.

use crate::session::{Session, State};
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

type Days = BTreeMap<(u64, u64), Arc<Session>>; // by second of the broker's clock, and number

/// The sessions whose clients are away, by when something is due.
#[derive(Default)]
pub struct Calendar(Mutex<Days>);

impl Calendar {
    fn days(&self) -> MutexGuard<'_, Days> {
        lock(&self.0)
    }

    /// A session's client is away: note when something is due.
    pub fn remind(&self, session: &Arc<Session>, state: &mut State) {
        let left_s = state.left_s.unwrap_or_default();
        let will_s = state.will.as_ref().map(|will| will.delay_s);
        let over_s = (state.expiry_s != u32::MAX).then_some(state.expiry_s);
        let first_s = will_s.into_iter().chain(over_s).min();
        let due_s = first_s.map_or(u64::MAX, |s| left_s.saturating_add(u64::from(s)));
        state.reminder_s = Some(due_s);
        let key = (due_s, session.number);
        self.days().insert(key, Arc::clone(session));
    }

    /// Nothing is due any more: the client is back, or the session has ended.
    pub fn forget(&self, session: &Session, state: &mut State) {
        if let Some(due_s) = state.reminder_s.take() {
            self.days().remove(&(due_s, session.number));
        }
    }

    /// All sessions whose clients are away.
    pub fn all(&self) -> Vec<Arc<Session>> {
        self.days().values().cloned().collect()
    }

    /// Take the session for which something has been due for the longest time.
    pub fn next(&self, now_s: u64) -> Option<Arc<Session>> {
        let mut days = self.days();
        let first = days.first_entry().filter(|first| first.key().0 <= now_s)?;
        Some(first.remove())
    }
}
