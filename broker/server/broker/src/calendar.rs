//! What becomes due while clients are away: sessions end, and wills are published, a few at a time.

use crate::desk::Desk;
use crate::session::{Session, State};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SESSION: usize = 256; // work to end a session, in copies of a message

type Days = BTreeMap<(u64, u64), Arc<Session>>; // by second of the broker's clock, and number

/// The sessions whose clients are away, by when something is due.
#[derive(Default)]
pub struct Calendar(Mutex<Days>);

impl Calendar {
    fn days(&self) -> MutexGuard<'_, Days> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn next(&self, now_s: u64) -> Option<Arc<Session>> {
        let mut days = self.days();
        let first = days.first_entry().filter(|first| first.key().0 <= now_s)?;
        Some(first.remove())
    }
}

impl Desk {
    /// End sessions that have expired, and publish wills whose delay is over, as many as one turn
    /// allows. Returns whether there may be more.
    pub fn end_due(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let now_s = self.courier.now_s;
        self.begin_turn();
        while self.left() > 0 {
            let Some(session) = shared.calendar.next(now_s) else {
                return false;
            };
            self.spend(SESSION);
            let will = {
                let mut sessions = shared.sessions();
                let mut state = session.lock();
                state.reminder_s = None;
                let Some(left_s) = state.left_s.filter(|_| state.link.is_none()) else {
                    continue; // the client has come back meanwhile
                };
                let over = state.is_over(now_s);
                if over {
                    if let Some(known) = sessions.get(&session.client)
                        && Arc::ptr_eq(known, &session)
                    {
                        sessions.remove(&session.client);
                    }
                    shared.end_session(&session, &mut state, &mut self.courier);
                }
                let is_due = |delay_s| over || now_s >= left_s + u64::from(delay_s);
                let will = state.will.take_if(|will| is_due(will.delay_s));
                if !over {
                    shared.calendar.remind(&session, &mut state);
                }
                will
            };
            if let Some(will) = will {
                self.publish_will(&session, &will);
            }
        }
        true
    }
}
