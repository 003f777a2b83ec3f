//! The receivers over mqtt-udp, where all clients use topic names (`broker/spec/mqtt-udp.md`, 5).

use std::net::SocketAddr;
use std::rc::Rc;

use super::Rulebook;
use crate::clients::Clients;
use crate::names::{has_wildcards, matches};
use crate::plane::{Copy, Key, MOST_COPIES};
use crate::reason::Reason;
use crate::session::Session;

/// The most levels of a topic that a broker accepts.
const LEVELS: usize = 16;

impl Rulebook {
    /// One copy for each subscription that matches. Those without wildcards come first; both kinds
    /// are in the order of subscription.
    pub fn receivers_of_name(
        &self,
        key: &Key,
        name: Option<&Rc<str>>,
        clients: &Clients,
    ) -> Result<Vec<Copy>, Reason> {
        let publisher = clients.get(&key.publisher);
        let publisher = publisher.ok_or(Reason::PublisherUnknown)?;
        let name = name.ok_or(Reason::NameUnknown)?;
        if name.starts_with('$') {
            return Err(Reason::Reserved);
        }
        if has_wildcards(name) || name.contains('\0') || name.split('/').count() > LEVELS {
            return Err(Reason::NameUnknown);
        }
        if !self.settings.only.iter().any(|one| matches(one, name)) {
            return Err(Reason::NotDeclared);
        }
        // The messages of an echo service would go round past the broker, which has to detect it.
        if publisher.filters().any(|one| one.may_match(name)) {
            return Err(Reason::Echo);
        }
        let mut copies = Vec::new();
        let exact = clients.subscribed_to_exactly(name);
        let wild = clients.with_wildcards();
        for (some, is_wild) in [(exact, false), (wild, true)] {
            for to in some {
                let Some(session) = clients.get(&to) else {
                    continue;
                };
                if session.unclear || session.awaited().any(|one| one.may_match(name)) {
                    return Err(Reason::AnswerAwaited(to));
                }
                let filters = session.subscriptions.iter();
                let filters = filters.filter_map(|one| one.filter.as_deref());
                let filters = filters.filter(|one| has_wildcards(one) == is_wild);
                let count = filters.filter(|one| matches(one, name)).count();
                if count > 0 {
                    gets(to, session)?;
                }
                let topic = key.topic;
                copies.extend(std::iter::repeat_n(Copy { to, topic }, count));
            }
        }
        match copies.len() {
            0 => Err(Reason::NoSubscribers),
            _ if !publisher.confirmed => Err(Reason::PublisherInDoubt),
            count if count > MOST_COPIES => Err(Reason::Copies),
            _ => Ok(copies),
        }
    }
}

/// Check that the broker would send to this subscriber at once.
fn gets(client: SocketAddr, session: &Session) -> Result<(), Reason> {
    if !session.is_active() {
        Err(Reason::NotActive(client))
    } else if session.end_ns().is_none() {
        Err(Reason::NoLength(client))
    } else if session.late {
        Err(Reason::Overdue(client))
    } else if !session.confirmed {
        Err(Reason::InDoubt(client))
    } else {
        Ok(())
    }
}
