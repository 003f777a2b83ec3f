//! What this site's clients are subscribed to, also while they are away, and wills that wait.

mod kept;

use crate::cooperation::width;
use crate::message::Message;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The session expiry interval of MQTT 5 that means: never.
pub const FOR_EVER: u32 = u32::MAX;

/// How many subscriptions end in one turn. A session may have so many that everything else would wait.
const AT_ONCE: usize = 500;

/// The session of one client.
#[derive(Default)]
struct Session {
    filters: HashSet<Arc<str>>,
    /// The client's connection, if it is connected.
    token: Option<u64>,
    /// Whether this connection has resumed a session of the broker.
    was_resumed: bool,
    /// How long the session outlives the connection.
    expiry_s: u32,
    /// When the session ends, unless the client connects.
    until_s: Option<u64>,
    /// Packet identifiers of QoS 2 messages that have come and are not released.
    received: HashSet<u16>,
}

impl Session {
    /// Nothing has to be remembered while the client is away.
    fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.received.is_empty()
    }
}

/// A will that is delayed.
struct Will {
    client: Arc<str>,
    at_s: u64,
    message: Message,
}

/// All sessions.
#[derive(Default)]
pub struct Sessions {
    all: HashMap<Arc<str>, Session>,
    /// How many clients are subscribed to each filter. A shared subscription counts under the filter
    /// after its group.
    counts: HashMap<Arc<str>, usize>,
    /// Subscriptions of sessions that have ended, which are still counted.
    leaving: VecDeque<Arc<str>>,
    wills: Vec<Will>,
    /// Whether there is something new to be kept over a restart.
    changed: bool,
}

/// The filter that other sites are told for a subscription. None: its messages are only at this site.
fn abroad(filter: &str) -> Option<&str> {
    let filter = mqtick_topics::unshared(filter)?;
    (mqtick_topics::valid_filter(filter) && !filter.starts_with('$')).then_some(filter)
}

impl Sessions {
    /// The broker has accepted a client's connection. `is_present`: it had the client's session.
    /// Returns the filters that no client is subscribed to any more.
    pub fn connected(
        &mut self,
        client: &Arc<str>,
        token: u64,
        is_present: bool,
        expiry_s: u32,
    ) -> Vec<Arc<str>> {
        let gone = match is_present {
            true => {
                self.wills.retain(|will| will.client != *client);
                Vec::new()
            }
            false => {
                let its = self.wills.iter_mut();
                let its = its.filter(|will| will.client == *client);
                its.for_each(|will| will.at_s = 0); // its session has ended
                self.drop(client)
            }
        };
        let session = self.all.entry(Arc::clone(client)).or_default();
        (session.token, session.until_s) = (Some(token), None);
        session.was_resumed = is_present;
        self.changed |= session.expiry_s != expiry_s && !session.filters.is_empty();
        session.expiry_s = expiry_s;
        gone
    }

    /// A client has subscribed to these filters. Returns those that are new at this site.
    pub fn subscribe(&mut self, client: &str, filters: &[Arc<str>]) -> Vec<Arc<str>> {
        let Some(session) = self.all.get_mut(client) else {
            return Vec::new();
        };
        let mut new = Vec::new();
        for filter in filters {
            let Some(plain) = abroad(filter) else {
                continue;
            };
            if session.filters.insert(Arc::clone(filter)) {
                self.changed = true;
                let plain: Arc<str> = plain.into();
                let count = self.counts.entry(Arc::clone(&plain)).or_default();
                *count += 1;
                if *count == 1 {
                    new.push(plain);
                }
            }
        }
        new
    }

    /// A client has unsubscribed from these filters. Returns those that no client is subscribed to any
    /// more.
    pub fn unsubscribe(&mut self, client: &str, filters: &[Arc<str>]) -> Vec<Arc<str>> {
        let Some(session) = self.all.get_mut(client) else {
            return Vec::new();
        };
        let gone = filters.iter().filter(|one| session.filters.remove(*one));
        let gone: Vec<_> = gone.cloned().collect();
        self.changed |= !gone.is_empty();
        self.count_down(gone)
    }

    fn count_down(&mut self, filters: impl IntoIterator<Item = Arc<str>>) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        for filter in filters {
            let Some(plain) = abroad(&filter) else {
                continue;
            };
            if let Some(count) = self.counts.get_mut(plain) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(plain);
                    gone.push(plain.into());
                }
            }
        }
        gone
    }

    fn drop(&mut self, client: &str) -> Vec<Arc<str>> {
        let session = self.all.remove(client);
        let filters = session.map(|session| session.filters).unwrap_or_default();
        self.changed |= !filters.is_empty();
        let mut filters: Vec<_> = filters.into_iter().collect();
        // The widest ones last: so neighbours need not be told the filters that they cover.
        filters.sort_by_cached_key(|filter| Reverse(width(filter)));
        self.leaving.extend(filters);
        self.leave()
    }

    /// Whether [`Self::leave`] has something to do.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// End some subscriptions of sessions that have ended. Returns the filters that no client is
    /// subscribed to any more.
    pub fn leave(&mut self) -> Vec<Arc<str>> {
        let count = self.leaving.len().min(AT_ONCE);
        let filters: Vec<_> = self.leaving.drain(..count).collect();
        self.count_down(filters)
    }

    /// A client's connection has ended, and its session outlives it for `expiry_s`. Returns the filters
    /// that no client is subscribed to any more.
    pub fn ended(&mut self, client: &str, token: u64, expiry_s: u32, now_s: u64) -> Vec<Arc<str>> {
        let Some(session) = self.all.get_mut(client) else {
            return Vec::new();
        };
        if session.token != Some(token) {
            return Vec::new(); // it has another connection
        }
        session.token = None;
        if expiry_s == 0 || session.is_empty() {
            return self.drop(client);
        }
        self.changed |= session.expiry_s != expiry_s;
        session.expiry_s = expiry_s;
        session.until_s = (expiry_s != FOR_EVER).then(|| now_s + u64::from(expiry_s));
        Vec::new()
    }

    /// If the client has a newer connection than this one: whether that has resumed its session.
    #[must_use]
    pub fn successor(&self, client: &str, token: u64) -> Option<bool> {
        let session = self.all.get(client)?;
        let is_other = session.token.is_some_and(|now| now != token);
        is_other.then_some(session.was_resumed)
    }

    /// A message of QoS 2 has come. Returns whether it is new: its identifier was free.
    pub fn receive(&mut self, client: &str, id: u16) -> bool {
        let session = self.all.get_mut(client);
        session.is_none_or(|session| session.received.insert(id))
    }

    /// The identifier of a message of QoS 2 is free again.
    pub fn release(&mut self, client: &str, id: u16) {
        if let Some(session) = self.all.get_mut(client) {
            session.received.remove(&id);
        }
    }

    /// A will that has to be published at that time, unless the client is back by then.
    pub fn keep_will(&mut self, client: &Arc<str>, at_s: u64, message: Message) {
        let client = Arc::clone(client);
        self.wills.push(Will {
            client,
            at_s,
            message,
        });
    }

    /// The wills whose time has come.
    pub fn due_wills(&mut self, now_s: u64) -> Vec<Message> {
        let due = self.wills.extract_if(.., |will| will.at_s <= now_s);
        due.map(|will| will.message).collect()
    }

    /// End sessions that have expired. Returns the filters that no client is subscribed to any more.
    pub fn tick(&mut self, now_s: u64) -> Vec<Arc<str>> {
        let has_expired = |session: &Session| session.until_s.is_some_and(|until| until <= now_s);
        let expired = self.all.iter().filter(|(_, session)| has_expired(session));
        let expired: Vec<_> = expired.map(|(client, _)| Arc::clone(client)).collect();
        let gone = expired.iter().flat_map(|client| self.drop(client));
        gone.collect()
    }

    /// How many subscriptions clients have, and to how many different filters.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.counts.values().sum(), self.counts.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn filters(all: &[&str]) -> Vec<Arc<str>> {
        all.iter().map(|&one| one.into()).collect()
    }

    #[test]
    fn only_the_first_and_the_last_client_of_a_filter_count_for_other_sites() {
        let mut sessions = Sessions::default();
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        sessions.connected(&one, 1, false, 0);
        sessions.connected(&other, 2, false, 0);
        assert_eq!(
            sessions.subscribe("one", &filters(&["a", "$SYS/#"])),
            filters(&["a"])
        );
        assert!(
            sessions
                .subscribe("other", &filters(&["$share/group/a"]))
                .is_empty()
        );
        assert!(sessions.ended("one", 1, 0, 0).is_empty());
        assert_eq!(sessions.ended("other", 2, 0, 0), filters(&["a"]));
    }

    #[test]
    fn a_session_that_is_kept_stays_subscribed_until_it_expires_or_is_forgotten_by_the_broker() {
        let mut sessions = Sessions::default();
        let client: Arc<str> = "client".into();
        sessions.connected(&client, 1, false, 10);
        sessions.subscribe("client", &filters(&["a"]));
        assert!(sessions.ended("client", 1, 10, 0).is_empty());
        assert!(sessions.tick(9).is_empty());
        assert_eq!(sessions.tick(10), filters(&["a"]));
        sessions.connected(&client, 2, false, FOR_EVER);
        sessions.subscribe("client", &filters(&["b"]));
        sessions.ended("client", 2, FOR_EVER, 0);
        assert!(sessions.connected(&client, 3, true, FOR_EVER).is_empty());
        assert_eq!(sessions.connected(&client, 4, false, 0), filters(&["b"]));
    }

    #[test]
    fn a_session_without_subscriptions_takes_no_room_while_its_client_is_away() {
        let mut sessions = Sessions::default();
        for number in 0..100 {
            let client: Arc<str> = format!("client-{number}").into();
            sessions.connected(&client, number, false, FOR_EVER);
            sessions.ended(&client, number, FOR_EVER, 0);
        }
        assert_eq!(sessions.all.len(), 0);
        sessions.connected(&"of QoS 2".into(), 1, false, FOR_EVER);
        assert!(sessions.receive("of QoS 2", 7));
        sessions.ended("of QoS 2", 1, FOR_EVER, 0);
        sessions.connected(&"of QoS 2".into(), 2, true, FOR_EVER);
        assert!(!sessions.receive("of QoS 2", 7), "it is not released yet");
    }

    #[test]
    fn a_file_that_could_not_be_written_is_written_again() {
        let mut sessions = Sessions::default();
        sessions.connected(&"client".into(), 1, false, FOR_EVER);
        sessions.subscribe("client", &filters(&["a"]));
        let text = sessions.changes();
        assert!(text.is_some());
        sessions.not_kept();
        assert_eq!(sessions.changes(), text);
        assert_eq!(sessions.changes(), None);
    }

    #[test]
    fn what_ends_late_does_not_end_the_session_of_the_connection_that_came_after_it() {
        let mut sessions = Sessions::default();
        let client: Arc<str> = "client".into();
        sessions.connected(&client, 1, false, 0);
        sessions.connected(&client, 2, false, 0);
        sessions.subscribe("client", &filters(&["a"]));
        assert!(sessions.ended("client", 1, 0, 0).is_empty());
        assert_eq!(sessions.ended("client", 2, 0, 0), filters(&["a"]));
    }

    #[test]
    fn a_session_with_many_subscriptions_ends_piece_by_piece_and_its_client_may_come_back() {
        let mut sessions = Sessions::default();
        let client: Arc<str> = "client".into();
        let mut all: Vec<Arc<str>> = vec!["#".into()];
        all.extend((0..2 * AT_ONCE).map(|number| number.to_string().into()));
        sessions.connected(&client, 1, false, 0);
        sessions.subscribe("client", &all);
        let mut gone = sessions.ended("client", 1, 0, 0);
        assert_eq!(gone.len(), AT_ONCE);
        assert!(sessions.is_leaving());
        sessions.connected(&client, 2, false, 0);
        sessions.subscribe("client", &all[..2]);
        gone.extend(sessions.leave());
        gone.extend(sessions.leave());
        assert!(!sessions.is_leaving());
        assert!(!gone.contains(&"#".into()), "it is wanted again");
        assert_eq!(sessions.sizes(), (2, 2));
        let last = sessions.ended("client", 2, 0, 0);
        assert_eq!(last, filters(&["0", "#"]), "the widest one last");
    }

    #[test]
    fn kept_sessions_are_read_again_as_they_were_whatever_their_names() {
        let mut sessions = Sessions::default();
        for (token, name) in ["%0A", "a\nb", "c d", "\r"].into_iter().enumerate() {
            let client: Arc<str> = name.into();
            sessions.connected(&client, token as u64, false, FOR_EVER);
            sessions.subscribe(name, &filters(&[name, "same"]));
        }
        sessions.connected(&"gone".into(), 9, false, 0);
        sessions.subscribe("gone", &filters(&["of nobody"]));
        let text = sessions.changes().unwrap();
        assert_eq!(sessions.changes(), None);
        let mut again = Sessions::default();
        let mut new = again.restore(&text, 0).unwrap();
        new.sort();
        assert_eq!(new, filters(&["\r", "%0A", "a\nb", "c d", "same"]));
        assert!(again.connected(&"a\nb".into(), 1, true, 0).is_empty());
        assert_eq!(again.ended("a\nb", 1, 0, 0), filters(&["a\nb"]));
        for wrong in ["\tfilter", "x client", "1 a%", "1 a%00"] {
            assert!(Sessions::default().restore(wrong, 0).is_err(), "{wrong:?}");
        }
    }
}
