//! What becomes due beside messages, a few steps at a time: sessions end, wills are published, and
//! what ended sessions leave is removed.

use super::{Router, work_of};
use std::sync::Arc;

const SESSION: usize = 256; // work to end a session, in copies of a message

impl Router {
    /// End sessions that have expired, and publish wills whose delay is over, as many as one turn
    /// allows. Returns whether there may be more.
    pub fn end_due(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let now_s = self.context.now_s;
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
                    shared.end_session(&session, &mut state, &mut self.context);
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

    /// Do as much of what is left as one turn allows.
    pub fn sweep(&mut self) {
        self.begin_turn();
        let (mut gone, mut ended) = (Vec::new(), Vec::new());
        while self.left() > 0
            && let Some(first) = self.context.remains.sessions.front_mut()
        {
            let session = first.session;
            match first.filters.next() {
                Some(filter) => {
                    self.spend(work_of(&filter));
                    gone.push((session, filter));
                }
                None => ended.extend(self.context.remains.sessions.pop_front()),
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
            && let Some((share, kept)) = self.context.remains.copies.pop_front()
        {
            self.hand_on(&share, &kept);
        }
    }
}
