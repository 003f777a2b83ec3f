//! Retained messages for those who subscribe, a few at a time: others have their turns meanwhile, and
//! nobody is sent more than it takes.

use super::{Connection, End, Stage};
use crate::journal::Span;
use crate::reason;
use crate::router::Router;
use crate::session::Subscription;
use mqtick_access::Action;
use mqtick_packet::Qos;
use std::ops::ControlFlow;
use std::sync::Arc;

const STEP: usize = 32; // work of one, in copies of a message

/// How much of a SUBSCRIBE or UNSUBSCRIBE is done.
#[derive(Default)]
pub(super) struct Part {
    /// Filters.
    pub(super) done: usize,
    /// Their reason codes.
    pub(super) codes: Vec<u8>,
    /// The changes so far.
    pub(super) span: Option<Span>,
}

/// A search for retained messages.
pub(crate) struct Search {
    filter: Box<str>,
    from: String, // where it goes on
    qos: Qos,
    identifier: u32,
}

impl Search {
    /// How many octets of memory it takes, about.
    fn octets(&self) -> usize {
        size_of::<Self>() + self.filter.len()
    }
}

impl Connection {
    /// Have it sent the retained messages for a filter by `search`.
    pub(super) fn ask(
        &mut self,
        router: &Router,
        filter: &str,
        qos: Qos,
        identifier: u32,
    ) -> Result<(), End> {
        if self.searches.len() > router.shared.settings.limits.subscriptions_a_client {
            let why = "it asks for retained messages and does not take them";
            return Err(End::because(reason::QUOTA, why));
        }
        let search = Search {
            filter: filter.into(),
            from: String::new(),
            qos,
            identifier,
        };
        self.search_octets += search.octets();
        self.searches.push_back(search);
        Ok(())
    }

    /// Go on with its searches, until its turn ends, or so much waits for it that it has to read or
    /// acknowledge first.
    pub(crate) fn search(&mut self, router: &mut Router) {
        let Stage::Up(session) = &self.stage else {
            return;
        };
        if self.searches.is_empty() || self.part.done > 0 {
            return; // SUBACK comes first
        }
        let shared = Arc::clone(&router.shared);
        let access = shared.access.load();
        let (user, now_s) = (self.user.as_deref(), router.context.now_s);
        let mut has_begun = false;
        while let Some(search) = self.searches.front_mut() {
            let bounds = router.context.bounds;
            let takes_more = || session.lock().takes_retained(self.token, &bounds);
            if !takes_more() {
                self.is_busy |= has_begun; // it may take more once this is written
                return;
            }
            has_begun = true;
            if router.left() == 0 {
                self.is_busy = true;
                return;
            }
            let subscription = Subscription {
                session: Arc::clone(session),
                qos: search.qos,
                no_local: false,
                retain_as_published: true,
                identifier: search.identifier,
            };
            let steps = router.left() / STEP + 1;
            let is_wanted = session.lock().filters().contains(&search.filter);
            let steps = if is_wanted { steps } else { 0 };
            let context = &mut router.context;
            context.entering = None;
            context.at_once = false;
            context.arrived = None;
            let (steps, next) = shared.search(&search.filter, &search.from, steps, |kept| {
                let message = kept.message();
                let is_over = message
                    .expires_s
                    .is_some_and(|expires_s| expires_s <= now_s);
                let rules = &access.rules;
                if is_over || !rules.may(user, &session.client, Action::Read, message.topic) {
                    return ControlFlow::Continue(());
                }
                context.encoder.begin();
                context.entering = None;
                let mut again = Some(Arc::clone(kept));
                session.deliver(context, &message, &mut again, &subscription, true);
                match takes_more() {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            router.spend(1 + steps * STEP);
            match next.filter(|_| is_wanted) {
                Some(next) => search.from = next,
                None => {
                    self.search_octets -= search.octets();
                    self.searches.pop_front();
                }
            }
        }
    }
}
