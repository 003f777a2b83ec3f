//! The clients of the broker and their subscriptions, as derived from the packets between them.
//!
//! A stranger is a client that may have a session with the broker, but whose subscriptions were not
//! seen. Nothing is accelerated while there is one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use mqtick_topics::has_wildcards;

use crate::clock::SECOND_NS;
use crate::plane::Key;
use crate::reason::Reason;
use crate::session::{OTHER_QOS_NS, Session, State, Subscription};
use crate::settings::Settings;

mod answered;
mod asked;

/// The most sessions of clients that are away. Further such clients become strangers.
const MOST_KEPT: usize = 256;

/// Rules that have to be checked again.
#[derive(Clone, Debug)]
pub enum Dirty {
    /// All rules.
    All,
    /// The rules of one publisher.
    Publisher(SocketAddr),
    /// One rule.
    Key(Key),
    /// The rules whose topic this filter matches; `None`: the filter is not known.
    Filter(Option<Rc<str>>),
}

/// A client whose messages of QoS 1 or 2 may still wait in the broker.
#[derive(PartialEq, Eq, Hash)]
enum Who {
    At(SocketAddr),
    Named(Rc<str>),
}

struct Stranger {
    heard_ns: u64,
    id: Option<Rc<str>>,
    leaving: bool,
}

/// All clients.
pub struct Clients {
    settings: Rc<Settings>,
    began_ns: u64,
    settled: bool,
    /// Whether all sessions are known that the broker keeps for clients that are away.
    kept_known: bool,
    sessions: HashMap<SocketAddr, Session>,
    addresses: HashMap<Rc<str>, SocketAddr>,
    kept: BTreeMap<Rc<str>, Vec<Subscription>>,
    strangers: BTreeMap<SocketAddr, Stranger>,
    stranger_ids: HashMap<Rc<str>, SocketAddr>,
    /// When clients whose sessions have ended last published with QoS 1 or 2.
    others: HashMap<Who, u64>,
    /// When a client was last not noted for lack of room.
    crowded_ns: Option<u64>,
    exact: HashMap<Rc<str>, HashSet<SocketAddr>>, // subscribers by filter
    wild: HashSet<SocketAddr>, // clients with a filter that has wildcards or is not known
    followed: usize,
    /// The rules that have to be checked again.
    pub dirty: Vec<Dirty>,
    /// How often the broker seems to have been restarted.
    pub restarts: u64,
    /// Publishers' topics that are not followed for lack of room.
    pub not_followed: u64,
}

impl Session {
    /// When the client last published with QoS 1 or 2, if it did; by its address and by its
    /// identifier.
    fn left(&self, client: SocketAddr) -> impl Iterator<Item = (Who, u64)> {
        let id = Rc::clone(&self.as_said.id);
        let other_ns = self.other_ns().into_iter();
        other_ns.flat_map(move |at_ns| {
            [
                (Who::At(client), at_ns),
                (Who::Named(Rc::clone(&id)), at_ns),
            ]
        })
    }
}

impl Clients {
    /// No clients yet. `fresh`: the broker has no sessions.
    #[must_use]
    pub fn new(settings: Rc<Settings>, now_ns: u64, fresh: bool) -> Self {
        Self {
            settings,
            began_ns: now_ns,
            settled: fresh,
            kept_known: fresh,
            sessions: HashMap::new(),
            addresses: HashMap::new(),
            kept: BTreeMap::new(),
            strangers: BTreeMap::new(),
            stranger_ids: HashMap::new(),
            others: HashMap::new(),
            crowded_ns: None,
            exact: HashMap::new(),
            wild: HashSet::new(),
            followed: 0,
            dirty: Vec::new(),
            restarts: 0,
            not_followed: 0,
        }
    }

    /// All that was known may be wrong: every client becomes a stranger.
    pub fn doubt_all(&mut self, now_ns: u64) {
        let mut new = self.renewed_all(now_ns, false);
        (new.strangers, new.stranger_ids) = (
            std::mem::take(&mut self.strangers),
            std::mem::take(&mut self.stranger_ids),
        );
        new.crowded_ns = self.crowded_ns;
        for (client, session) in std::mem::take(&mut self.sessions) {
            new.add_stranger(now_ns, client, Some(session.as_said.id));
        }
        *self = new;
    }

    /// The broker is about to be started, and has no sessions.
    pub fn broker_started(&mut self, now_ns: u64) {
        *self = self.renewed_all(now_ns, true);
        self.restarts += 1;
    }

    /// No clients. Counters stay, and so do the times of messages of QoS 1 or 2, since a data plane
    /// reports those only once a second.
    fn renewed_all(&mut self, now_ns: u64, fresh: bool) -> Self {
        let (mut others, sessions) = (std::mem::take(&mut self.others), &self.sessions);
        let left = sessions.iter().flat_map(|(client, one)| one.left(*client));
        others.extend(left);
        Self {
            others,
            restarts: self.restarts,
            not_followed: self.not_followed,
            ..Self::new(Rc::clone(&self.settings), now_ns, fresh)
        }
    }

    /// The numbers of known clients and of strangers.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.sessions.len(), self.strangers.len())
    }

    /// Whether the broker has, or may have, a session with this client.
    #[must_use]
    pub fn knows(&self, client: &SocketAddr) -> bool {
        self.sessions.contains_key(client) || self.strangers.contains_key(client)
    }

    /// The session of a known client.
    #[must_use]
    pub fn get(&self, client: &SocketAddr) -> Option<&Session> {
        self.sessions.get(client)
    }

    /// The known clients at an IP address.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Vec<SocketAddr> {
        let all = self.sessions.keys().copied();
        all.filter(|client| client.ip() == address).collect()
    }

    /// The session of a known client, to be changed.
    pub fn get_mut(&mut self, client: &SocketAddr) -> Option<&mut Session> {
        self.sessions.get_mut(client)
    }

    /// All sessions of known clients.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&SocketAddr, &mut Session)> {
        self.sessions.iter_mut()
    }

    /// Whether this publisher is known to publish to this topic.
    #[must_use]
    pub fn follows(&self, key: &Key) -> bool {
        self.sessions
            .get(&key.publisher)
            .is_some_and(|session| session.publishes.contains_key(&key.topic))
    }

    /// The clients that may be subscribed to a topic name.
    #[must_use]
    pub fn subscribed_to(&self, name: &str) -> Vec<SocketAddr> {
        let exact = self.exact.get(name).into_iter().flatten();
        let mut clients: Vec<_> = exact.chain(&self.wild).copied().collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// A client that is away and whose kept session may be subscribed to a name.
    #[must_use]
    pub fn kept_for(&self, name: &str) -> Option<&Rc<str>> {
        let mut all = self.kept.iter();
        all.find(|(_, filters)| filters.iter().any(|one| one.may_match(name)))
            .map(|(id, _)| id)
    }

    /// Why nothing at all is accelerated; `None` if that is not so.
    #[must_use]
    pub fn general_reason(&self) -> Option<Reason> {
        if !self.settled {
            let until_ns = self.began_ns.saturating_add(self.settings.settle_ns);
            return Some(Reason::Settling { until_ns });
        }
        if self.crowded_ns.is_some() {
            return Some(Reason::TooMany);
        }
        self.strangers
            .first_key_value()
            .map(|(who, _)| Reason::Stranger(*who))
    }

    /// The regular work. `heard_ns`: when the data plane last saw a packet of a client.
    pub fn tick(&mut self, now_ns: u64, heard_ns: impl Fn(&SocketAddr) -> Option<u64>) {
        let settle_ns = self.settings.settle_ns;
        let is_over = |since_ns: u64| now_ns.saturating_sub(since_ns) >= settle_ns;
        let before = self.general_reason().is_some();
        self.settled |= is_over(self.began_ns);
        self.crowded_ns.take_if(|since_ns| is_over(*since_ns));
        let is_recent = |at_ns: u64| now_ns.saturating_sub(at_ns) < OTHER_QOS_NS;
        self.others.retain(|_, at_ns| is_recent(*at_ns));
        let ids = &mut self.stranger_ids;
        self.strangers.retain(|_, one| {
            let stays = !is_over(one.heard_ns);
            if let Some(id) = one.id.as_ref().filter(|_| !stays) {
                ids.remove(id);
            }
            stays
        });
        if before && self.general_reason().is_none() {
            self.dirty.push(Dirty::All);
        }
        let (mut gone, mut changed, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (client, session) in &mut self.sessions {
            // Publishers are checked each time: their rules are to open soon.
            let is_due = now_ns.saturating_sub(session.looked_ns) >= SECOND_NS;
            if !is_due && session.publishes.is_empty() {
                continue;
            }
            session.looked_ns = now_ns;
            let last_ns = heard_ns(client);
            if let Some(at_ns) = last_ns.filter(|at_ns| *at_ns > session.heard_ns) {
                session.hear(at_ns.min(now_ns));
            }
            let is_new = session.state == State::New;
            match session.gives_up_waiting(now_ns) {
                true if is_new => {
                    lost.push(*client);
                    continue;
                }
                true => changed.push(*client),
                false => {}
            }
            let is_late = session.is_overdue(now_ns);
            if last_ns.is_some() && session.is_gone(now_ns) {
                gone.push(*client);
            } else if is_late != std::mem::replace(&mut session.late, is_late) {
                // The broker may have ended the session meanwhile.
                session.returned = !is_late;
                session.changed();
                changed.push(*client);
            }
        }
        changed.iter().for_each(|client| self.touch(*client));
        gone.iter().for_each(|client| self.end(now_ns, *client));
        // The broker has never accepted these clients.
        lost.into_iter()
            .for_each(|client| drop(self.remove(client)));
    }

    /// A client has sent something.
    pub fn hear(&mut self, now_ns: u64, client: SocketAddr) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.hear(now_ns);
            if std::mem::take(&mut session.late) {
                session.returned = true;
                self.touch(client);
            }
        } else if let Some(stranger) = self.strangers.get_mut(&client) {
            stranger.heard_ns = now_ns;
        }
    }

    /// Make a client a stranger: the broker may have a session of it with unknown subscriptions.
    pub fn estrange(&mut self, now_ns: u64, client: SocketAddr) {
        let session = self.remove(client);
        self.add_stranger(now_ns, client, session.map(|session| session.as_said.id));
    }

    /// The effect of a client's packet is not known. If the broker has not accepted the client yet,
    /// this matters only once it does.
    pub fn loses_track(&mut self, now_ns: u64, client: SocketAddr) {
        match self.sessions.get_mut(&client) {
            Some(session) if session.state == State::New => session.is_lost_track_of(),
            Some(_) => self.estrange(now_ns, client),
            None => {}
        }
    }

    fn add_stranger(&mut self, now_ns: u64, client: SocketAddr, id: Option<Rc<str>>) {
        if self.general_reason().is_none() {
            self.dirty.push(Dirty::All);
        }
        // Its kept session, once it is away, is not known either.
        self.kept_known = false;
        if let Some(stranger) = self.strangers.get_mut(&client) {
            stranger.heard_ns = now_ns;
            return;
        }
        if self.strangers.len() >= self.settings.clients {
            self.crowded_ns = Some(now_ns);
            return;
        }
        if let Some(id) = &id {
            self.stranger_ids.insert(Rc::clone(id), client);
        }
        let stranger = Stranger {
            heard_ns: now_ns,
            id,
            leaving: false,
        };
        self.strangers.insert(client, stranger);
    }

    /// Remove a stranger. Returns whether the client was one.
    fn forget_stranger(&mut self, client: SocketAddr) -> bool {
        let Some(stranger) = self.strangers.remove(&client) else {
            return false;
        };
        if let Some(id) = &stranger.id {
            self.stranger_ids.remove(id);
        }
        if self.general_reason().is_none() {
            self.dirty.push(Dirty::All);
        }
        true
    }

    fn remove(&mut self, client: SocketAddr) -> Option<Session> {
        self.touch(client);
        let session = self.sessions.remove(&client)?;
        if self.addresses.get(&session.as_said.id) == Some(&client) {
            self.addresses.remove(&session.as_said.id);
        }
        for filter in session.filters().filter_map(|one| one.filter.as_ref()) {
            self.unlist(client, filter);
        }
        self.wild.remove(&client);
        self.others.extend(session.left(client));
        self.followed -= session.publishes.len().min(self.followed);
        let publisher = client;
        let keys = session
            .publishes
            .keys()
            .map(|&topic| Key { publisher, topic });
        self.dirty.extend(keys.map(Dirty::Key));
        Some(session)
    }

    /// A session has ended. If the broker keeps it, its subscriptions stay known.
    fn end(&mut self, now_ns: u64, client: SocketAddr) {
        if let Some(session) = self.remove(client) {
            self.keep(now_ns, client, session);
        }
    }

    fn keep(&mut self, now_ns: u64, client: SocketAddr, session: Session) {
        if session.as_said.clean || session.state == State::New {
            return;
        }
        if self.kept.len() >= MOST_KEPT {
            return self.add_stranger(now_ns, client, Some(session.as_said.id));
        }
        // The broker may or may not have processed the last requests.
        let filters: Vec<Subscription> = session.filters().cloned().collect();
        self.touch_filters(&filters);
        self.kept.insert(session.as_said.id, filters);
    }

    fn touch_filters<'a>(&mut self, filters: impl IntoIterator<Item = &'a Subscription>) {
        let filters = filters
            .into_iter()
            .map(|one| Dirty::Filter(one.filter.clone()));
        self.dirty.extend(filters);
    }

    /// All rules that depend on a client have to be checked again.
    pub fn touch(&mut self, client: SocketAddr) {
        if let Some(session) = self.sessions.get(&client) {
            let filters = session
                .filters()
                .map(|one| Dirty::Filter(one.filter.clone()));
            self.dirty.extend(filters);
            self.dirty.push(Dirty::Publisher(client));
        }
    }

    fn list(&mut self, client: SocketAddr, subscription: &Subscription) {
        let clients = match &subscription.filter {
            Some(filter) if !has_wildcards(filter) => {
                self.exact.entry(Rc::clone(filter)).or_default()
            }
            _ => &mut self.wild,
        };
        clients.insert(client);
    }

    fn unlist(&mut self, client: SocketAddr, filter: &Rc<str>) {
        if let Some(clients) = self.exact.get_mut(filter) {
            clients.remove(&client);
            if clients.is_empty() {
                self.exact.remove(filter);
            }
        }
    }

    /// Remove a subscription from the list, unless another one has the same filter.
    fn unlist_unused(&mut self, client: SocketAddr, subscription: &Subscription) {
        let Some(filter) = &subscription.filter else {
            return;
        };
        let is_it = |one: &Subscription| one.filter.as_ref() == Some(filter);
        let session = self.sessions.get(&client);
        if !session.is_some_and(|session| session.filters().any(is_it)) {
            self.unlist(client, filter);
        }
    }
}
