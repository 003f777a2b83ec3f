//! Who is connected to the broker, and what each is subscribed to, by what passes between them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use mqtick_sn::{Code, Filter, Message, Qos};

use crate::controller::{SECOND_NS, Settings};
use crate::names::has_wildcards;
use crate::pings::Pings;
use crate::plane::{Key, Topic};
use crate::reason::Reason;
mod leases;

use crate::session::{
    Connect, MOST_NAMES, Named, OTHER_QOS_NS, Request, Session, State, Subscription,
};

/// Sessions of clients that are away: more are strangers'.
const MOST_KEPT: usize = 256;

/// What has to be looked at again.
#[derive(Clone, Debug)]
pub enum Dirty {
    /// All.
    All,
    /// What one client publishes.
    Publisher(SocketAddr),
    /// One topic of one publisher.
    Key(Key),
    /// What a filter matches; None: it is not known.
    Filter(Option<Rc<str>>),
}

/// Whose messages of QoS 1 or 2 the broker may still hold back.
#[derive(PartialEq, Eq, Hash)]
enum Who {
    At(SocketAddr),
    Named(Rc<str>),
}

struct Stranger {
    heard_ns: u64,
    id: Option<Rc<str>>,
    leaving: bool,
    challenged: bool,
    /// What of it may still be answered by a challenge.
    pings: Pings,
}

/// All of them.
pub struct Clients {
    settings: Rc<Settings>,
    began_ns: u64,
    settled: bool,
    /// Whether all sessions that the broker keeps for clients that are away are known.
    kept_known: bool,
    sessions: HashMap<SocketAddr, Session>,
    addresses: HashMap<Rc<str>, SocketAddr>,
    kept: BTreeMap<Rc<str>, Vec<Subscription>>,
    strangers: BTreeMap<SocketAddr, Stranger>,
    stranger_ids: HashMap<Rc<str>, SocketAddr>,
    /// When those last published with QoS 1 or 2 whose sessions have ended since.
    others: HashMap<Who, u64>,
    /// When there was last somebody for whom there was no room.
    crowded_ns: Option<u64>,
    // Each with a number that grows in the order of subscription.
    exact: HashMap<Rc<str>, HashMap<SocketAddr, u64>>,
    wild: HashMap<SocketAddr, u64>, // with a filter that has wildcards, or no name
    listed: u64,
    followed: usize,
    /// What has to be looked at again.
    pub dirty: Vec<Dirty>,
    /// How often the broker seems to have been restarted.
    pub restarts: u64,
    /// Topics of publishers that there was no room for.
    pub not_followed: u64,
}

impl Session {
    /// By what it is known later that it published with QoS 1 or 2, and when it did.
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
    /// None so far. `fresh`: the broker has no sessions.
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
            wild: HashMap::new(),
            listed: 0,
            followed: 0,
            dirty: Vec::new(),
            restarts: 0,
            not_followed: 0,
        }
    }

    /// What was known may be wrong: whoever was there is a stranger.
    pub fn doubt_all(&mut self, now_ns: u64) {
        let mut new = self.renewed_all(now_ns, false);
        (new.strangers, new.stranger_ids) = (
            std::mem::take(&mut self.strangers),
            std::mem::take(&mut self.stranger_ids),
        );
        new.crowded_ns = self.crowded_ns;
        for (client, session) in std::mem::take(&mut self.sessions) {
            if session.state != State::New || session.lease.is_none() {
                new.add_stranger(now_ns, client, session.id());
            }
        }
        *self = new;
    }

    /// The broker is about to be started, and has no sessions.
    pub fn broker_started(&mut self, now_ns: u64) {
        *self = self.renewed_all(now_ns, true);
        self.restarts += 1;
    }

    /// None so far, but what was counted, and what a data plane tells only once a second.
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

    /// How many clients are known, and how many are not.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        let is_there = |one: &&Session| one.lease.is_none() || one.state != State::New;
        let known = self.sessions.values().filter(is_there).count();
        (known, self.strangers.len())
    }

    /// Whether the broker has, or may have, a session with this client.
    #[must_use]
    pub fn knows(&self, client: &SocketAddr) -> bool {
        self.sessions.contains_key(client) || self.strangers.contains_key(client)
    }

    /// One that is known.
    #[must_use]
    pub fn get(&self, client: &SocketAddr) -> Option<&Session> {
        self.sessions.get(client)
    }

    /// Those that are known at an address.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Vec<SocketAddr> {
        let all = self.sessions.keys().copied();
        all.filter(|client| client.ip() == address).collect()
    }

    /// One that is known, to be changed.
    pub fn get_mut(&mut self, client: &SocketAddr) -> Option<&mut Session> {
        self.sessions.get_mut(client)
    }

    /// All that are known.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&SocketAddr, &mut Session)> {
        self.sessions.iter_mut()
    }

    /// Whether a client publishes that.
    #[must_use]
    pub fn follows(&self, key: &Key) -> bool {
        self.sessions
            .get(&key.publisher)
            .is_some_and(|session| session.publishes.contains_key(&key.topic))
    }

    /// Those who may be subscribed to a name.
    #[must_use]
    pub fn subscribed_to(&self, name: &str) -> Vec<SocketAddr> {
        let mut clients = self.subscribed_to_exactly(name);
        clients.extend(self.wild.keys());
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// Those who may be subscribed to a name as it is, in the order of subscription.
    #[must_use]
    pub fn subscribed_to_exactly(&self, name: &str) -> Vec<SocketAddr> {
        in_order(self.exact.get(name).into_iter().flatten())
    }

    /// Those who may have filters with wildcards.
    #[must_use]
    pub fn with_wildcards(&self) -> Vec<SocketAddr> {
        in_order(&self.wild)
    }

    /// A client that is away, and whose kept session may be subscribed to a name.
    #[must_use]
    pub fn kept_for(&self, name: &str) -> Option<&Rc<str>> {
        let mut all = self.kept.iter();
        all.find(|(_, filters)| filters.iter().any(|one| one.may_match(name)))
            .map(|(id, _)| id)
    }

    /// Why nothing at all is accelerated.
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

    /// Time has passed. `heard_ns`: when the data plane last saw a packet of a client.
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
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        let (mut over, mut lost) = (Vec::new(), Vec::new());
        for (client, session) in &mut self.sessions {
            // Those who publish want their rules opened soon, and leases end in time.
            let is_due = now_ns.saturating_sub(session.looked_ns) >= SECOND_NS;
            if !is_due && session.publishes.is_empty() && session.lease.is_none() {
                continue;
            }
            let last_ns = match is_due || session.lease.is_none() {
                true => heard_ns(client),
                false => None,
            };
            if is_due || session.lease.is_none() {
                session.looked_ns = now_ns;
            }
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
            if session.misses_an_answer(now_ns) {
                changed.push(*client);
            }
            if session.is_refuted(now_ns) {
                over.push(*client);
            }
            let is_late = session.is_overdue(now_ns);
            let is_known = last_ns.is_some() || session.lease.is_some();
            if is_known && session.is_gone(now_ns) {
                gone.push(*client);
            } else if is_late != std::mem::replace(&mut session.late, is_late) {
                // The broker may give it up meanwhile.
                session.returned = !is_late;
                session.changed();
                changed.push(*client);
            }
        }
        changed.iter().for_each(|client| self.touch(*client));
        over.iter().for_each(|client| self.lease_ends(*client));
        gone.iter().for_each(|client| self.end(now_ns, *client));
        // The broker has never accepted them.
        lost.into_iter()
            .for_each(|client| drop(self.remove(client)));
    }

    /// A client has sent something.
    pub fn hear(&mut self, now_ns: u64, client: SocketAddr) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.hear(now_ns);
            // A lease is not longer for that.
            if session.lease.is_none() && std::mem::take(&mut session.late) {
                session.returned = true;
                self.touch(client);
            }
        } else if let Some(stranger) = self.strangers.get_mut(&client) {
            stranger.heard_ns = now_ns;
        }
    }

    /// The broker takes somebody for a client of whom we do not know what he is subscribed to.
    pub fn estrange(&mut self, now_ns: u64, client: SocketAddr) {
        let session = self.remove(client);
        let pings = session.as_ref().map(|session| session.pings.clone());
        self.add_stranger(now_ns, client, session.and_then(Session::id));
        if let (Some(pings), Some(stranger)) = (pings, self.strangers.get_mut(&client)) {
            stranger.pings = pings;
        }
    }

    /// A client has sent what cannot be followed. If the broker does not know it yet, that matters only
    /// once it does.
    pub fn loses_track(&mut self, now_ns: u64, client: SocketAddr) {
        match self.sessions.get_mut(&client) {
            Some(session) if session.lease.is_none() && session.state == State::New => {
                session.is_lost_track_of();
            }
            Some(_) => self.estrange(now_ns, client),
            None => {}
        }
    }

    fn add_stranger(&mut self, now_ns: u64, client: SocketAddr, id: Option<Rc<str>>) {
        if self.general_reason().is_none() {
            self.dirty.push(Dirty::All);
        }
        // What it leaves at the broker is not known either.
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
            challenged: false,
            pings: Pings::default(),
        };
        self.strangers.insert(client, stranger);
    }

    /// The one that was there.
    fn forget_stranger(&mut self, client: SocketAddr) -> Option<Stranger> {
        let stranger = self.strangers.remove(&client)?;
        if let Some(id) = &stranger.id {
            self.stranger_ids.remove(id);
        }
        if self.general_reason().is_none() {
            self.dirty.push(Dirty::All);
        }
        Some(stranger)
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

    /// The session ended; what the broker keeps of it is kept here, too.
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
        // What it asked for last, the broker may have done, or not.
        let filters: Vec<Subscription> = session.filters().cloned().collect();
        self.touch_filters(&filters);
        self.kept.insert(session.as_said.id, filters);
    }

    fn touch_filters(&mut self, filters: &[Subscription]) {
        let filters = filters.iter().map(|one| Dirty::Filter(one.filter.clone()));
        self.dirty.extend(filters);
    }

    /// All that depends on a client has to be looked at again.
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
        self.listed += 1;
        let clients = match &subscription.filter {
            Some(filter) if !has_wildcards(filter) => {
                self.exact.entry(Rc::clone(filter)).or_default()
            }
            _ => &mut self.wild,
        };
        clients.entry(client).or_insert(self.listed);
    }

    fn unlist(&mut self, client: SocketAddr, filter: &Rc<str>) {
        if let Some(clients) = self.exact.get_mut(filter) {
            clients.remove(&client);
            if clients.is_empty() {
                self.exact.remove(filter);
            }
        }
    }

    /// Take a subscription off the list, unless it is there for another reason.
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

    // ---- what clients say -------------------------------------------------------------------------

    /// A client says something.
    pub fn asked(&mut self, now_ns: u64, client: SocketAddr, message: &Message<'_>) {
        match message {
            Message::Connect {
                clean,
                duration_s,
                client: id,
                ..
            } => {
                let connect = Connect {
                    id: Rc::from(*id),
                    clean: *clean,
                    keep_alive_ns: u64::from(*duration_s) * SECOND_NS,
                };
                self.connect(now_ns, client, connect);
            }
            Message::Publish { qos, topic, .. } => {
                self.published(now_ns, client, *qos, (*topic).into())
            }
            Message::Subscribe {
                message_id,
                filter,
                qos,
                ..
            } => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.other_qos |= *qos != Qos::AtMostOnce;
                }
                let request = Request::Subscribe(vec![self.subscription(filter)]);
                self.request(now_ns, client, *message_id, request);
            }
            Message::Unsubscribe { message_id, filter } => {
                let request = Request::Unsubscribe(vec![self.subscription(filter)]);
                self.request(now_ns, client, *message_id, request);
            }
            Message::Register {
                message_id, name, ..
            } => {
                let request = Request::Register(Rc::from(*name));
                self.request(now_ns, client, *message_id, request);
            }
            Message::Regack {
                topic_id,
                message_id,
                code,
            } => self.agreed(client, *topic_id, *message_id, *code),
            Message::Pingreq { client: id } => self.pings(now_ns, client, id),
            Message::Disconnect { duration_s } => self.disconnect(client, *duration_s),
            _ => {}
        }
    }

    fn connect(&mut self, now_ns: u64, client: SocketAddr, connect: Connect) {
        self.doubt_elsewhere(client, &connect.id);
        if !self.sessions.contains_key(&client) {
            if self.sessions.len() >= self.settings.clients {
                return;
            }
            let session = Session::new(connect.clone(), now_ns);
            self.sessions.insert(client, session);
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            session.connects(now_ns, connect);
        }
        self.touch(client);
    }

    /// Somebody uses an identifier: whether the broker still serves who had it has to be shown.
    fn doubt_elsewhere(&mut self, client: SocketAddr, id: &str) {
        if let Some(&before) = self.addresses.get(id)
            && before != client
            && let Some(session) = self.sessions.get_mut(&before)
        {
            session.changed();
            self.touch(before);
        }
    }

    fn pings(&mut self, now_ns: u64, client: SocketAddr, id: &str) {
        let Some(session) = self.sessions.get_mut(&client) else {
            // A sleeping client asks from elsewhere: the broker may take it for moved.
            return self.doubt_elsewhere(client, id);
        };
        session.pings.sent(now_ns);
        if id.is_empty() {
            return;
        }
        if *session.as_said.id == *id {
            // Only who sleeps has to say who it is.
            if session.state == State::Active {
                session.state = State::Away {
                    leaving: false,
                    open: 0,
                };
            }
            self.touch(client);
        } else {
            self.doubt_elsewhere(client, id);
            self.loses_track(now_ns, client);
        }
    }

    fn subscription(&self, filter: &Filter<'_>) -> Subscription {
        match filter {
            Filter::Name(name) => Subscription {
                filter: Some(Rc::from(*name)),
                named: Named::Name,
            },
            Filter::Predefined(id) => Subscription {
                filter: self.settings.predefined.get(id).cloned(),
                named: Named::Predefined(*id),
            },
            // Octets that are no text cannot match a name that is.
            Filter::Short(name) => Subscription {
                filter: Some(Rc::from(String::from_utf8_lossy(name))),
                named: Named::Short,
            },
        }
    }

    fn request(&mut self, now_ns: u64, client: SocketAddr, message_id: u16, request: Request) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let subscriptions = request.changes().to_vec();
        if !session.ask(message_id, request) {
            return self.loses_track(now_ns, client);
        }
        subscriptions.iter().for_each(|one| self.list(client, one));
        self.touch_filters(&subscriptions);
    }

    /// A client answers the REGISTER of the broker.
    fn agreed(&mut self, client: SocketAddr, topic_id: u16, message_id: u16, code: Code) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let asked = (topic_id, message_id);
        let mut all = session.proposed.iter();
        let Some((name, _)) = all.find(|(_, one)| **one == asked) else {
            return;
        };
        let name = Rc::clone(name);
        session.proposed.remove(&name);
        if code == Code::ACCEPTED {
            session.proven = true;
            session.told.remove(&name);
            session.tell(topic_id, &name);
        } else {
            session.told.insert(name, None);
        }
        session.changed();
        self.touch(client);
    }

    fn disconnect(&mut self, client: SocketAddr, duration_s: Option<u16>) {
        let duration_s = duration_s.filter(|duration_s| *duration_s > 0);
        let leaving = duration_s.is_none();
        if let Some(stranger) = self.strangers.get_mut(&client) {
            stranger.leaving = leaving;
        }
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let open = match session.state {
            State::Away { open, .. } => open,
            _ => 0,
        };
        let open = open.saturating_add(1);
        session.state = State::Away { leaving, open };
        if let Some(duration_s) = duration_s {
            let duration_ns = u64::from(duration_s) * SECOND_NS;
            session.keep_alive_ns = session.keep_alive_ns.max(duration_ns);
        }
        self.touch(client);
    }

    fn published(&mut self, now_ns: u64, client: SocketAddr, qos: Qos, topic: Topic) {
        if qos == Qos::Unconnected {
            return;
        }
        if !self.sessions.contains_key(&client) {
            if !self.settled {
                self.estrange(now_ns, client);
            }
            return;
        }
        self.follow(client, topic);
        if qos != Qos::AtMostOnce
            && let Some(session) = self.sessions.get_mut(&client)
            && let Some(other_ns) = session.publishes.get_mut(&topic)
        {
            *other_ns = Some(now_ns);
            let publisher = client;
            self.dirty.push(Dirty::Key(Key { publisher, topic }));
        }
    }

    /// A client publishes to a topic, or will.
    fn follow(&mut self, client: SocketAddr, topic: Topic) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        if session.publishes.contains_key(&topic) {
            return;
        }
        let is_unnamed =
            matches!(topic, Topic::Predefined(id) if !self.settings.predefined.contains_key(&id));
        if is_unnamed && !std::mem::replace(&mut session.unnamed, true) {
            self.dirty.push(Dirty::Publisher(client));
        }
        if self.followed >= self.settings.topics || session.publishes.len() >= MOST_NAMES {
            self.not_followed += 1;
            return;
        }
        session.publishes.insert(topic, None);
        self.followed += 1;
        let publisher = client;
        self.dirty.push(Dirty::Key(Key { publisher, topic }));
    }

    // ---- what the broker says ---------------------------------------------------------------------

    /// The broker says something, but PINGRESP.
    pub fn answered(&mut self, now_ns: u64, client: SocketAddr, message: &Message<'_>) {
        let is_known = self.sessions.contains_key(&client);
        match message {
            Message::Connack(code) => self.connected(now_ns, client, *code),
            Message::Disconnect { .. } => self.dismissed(now_ns, client),
            Message::Advertise { .. } | Message::GatewayInfo { .. } => {}
            Message::WillTopicRequest | Message::WillMessageRequest => {}
            Message::Suback { code, .. }
            | Message::Regack { code, .. }
            | Message::Puback { code, .. }
                if *code != Code::ACCEPTED && !is_known => {}
            _ if !is_known => self.estrange(now_ns, client),
            Message::Suback {
                qos,
                topic_id,
                message_id,
                code,
            } => self.subscribed(now_ns, client, *qos, *topic_id, *message_id, *code),
            Message::Unsuback(message_id) => self.unsubscribed(now_ns, client, *message_id),
            Message::Register {
                topic_id,
                message_id,
                name,
            } => self.proposed(client, *topic_id, *message_id, name),
            Message::Regack {
                topic_id,
                message_id,
                code,
            } => self.registered(now_ns, client, *topic_id, *message_id, *code),
            Message::Puback { code, .. } if *code != Code::ACCEPTED => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.refused = true;
                    self.dirty.push(Dirty::Publisher(client));
                }
            }
            _ => {}
        }
    }

    fn connected(&mut self, now_ns: u64, client: SocketAddr, code: Code) {
        let is_accepted = code == Code::ACCEPTED;
        let Some(session) = self.sessions.get_mut(&client) else {
            if is_accepted {
                self.estrange(now_ns, client);
            }
            return;
        };
        let Some((new, count, is_same)) = session.connecting.clone() else {
            if !session.accepted_again() || !is_accepted {
                self.estrange(now_ns, client);
            }
            return;
        };
        if !is_accepted && session.state == State::New {
            // The broker did not know it before, and does not now.
            self.remove(client);
            return;
        }
        if !is_accepted || !is_same {
            // Whether the broker keeps what was there before is not said.
            return self.estrange(now_ns, client);
        }
        let elsewhere = self.addresses.get(&new.id).copied();
        let was_stranger = match self.stranger_ids.get(&new.id) {
            Some(&there) => self.forget_stranger(there).is_some(),
            None => false,
        } | self.forget_stranger(client).is_some();
        let mut before = self.kept.remove(&new.id);
        let there = elsewhere.filter(|there| *there != client);
        if let Some(session) = there.and_then(|there| self.remove(there)) {
            before
                .get_or_insert_default()
                .extend(session.filters().cloned());
        }
        if let Some(filters) = &before {
            self.touch_filters(filters);
        }
        let Some(old) = self.remove(client) else {
            return;
        };
        let mut session = old.accepted(now_ns, new.clone(), count);
        let who = [Who::At(client), Who::Named(Rc::clone(&new.id))];
        session.before_ns = who
            .iter()
            .filter_map(|who| self.others.get(who).copied())
            .max();
        if old.state != State::New {
            if old.as_said.id == new.id {
                before
                    .get_or_insert_default()
                    .extend(old.filters().cloned());
            } else {
                self.keep(now_ns, client, old);
            }
        }
        if !new.clean {
            // Brokers differ in what they resume: it is subscribed to all that it may be.
            let known = before.or(self.kept_known.then(Vec::new));
            match known.filter(|_| !was_stranger) {
                Some(filters) => session.subscriptions = filters,
                None => return self.add_stranger(now_ns, client, Some(new.id)),
            }
        }
        let filters: Vec<Subscription> = session.filters().cloned().collect();
        filters.iter().for_each(|one| self.list(client, one));
        self.addresses.insert(new.id, client);
        self.sessions.insert(client, session);
        self.touch(client);
    }

    fn dismissed(&mut self, now_ns: u64, client: SocketAddr) {
        // A stranger that sleeps is still there, and so is what the broker keeps for who leaves.
        if self.strangers.get(&client).is_some_and(|one| one.leaving) {
            self.forget_stranger(client);
        }
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        if session.waits() {
            return; // it answers something that came before the CONNECT
        }
        match &mut session.state {
            State::New => return,
            State::Away { leaving, open } if *open > 0 => {
                *open -= 1;
                if *leaving && *open == 0 {
                    self.end(now_ns, client);
                }
                return;
            }
            State::Away { .. } => {}
            State::Active => {
                let is_expected = session.is_overdue(now_ns) || session.returned;
                self.end(now_ns, client);
                if is_expected {
                    return;
                }
            }
        }
        // A broker that was restarted knows nobody; the others will show it.
        self.restarts += 1;
        self.sessions.values_mut().for_each(Session::changed);
        self.dirty.push(Dirty::All);
    }

    fn subscribed(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        qos: Qos,
        topic_id: u16,
        message_id: u16,
        code: Code,
    ) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_kind = |request: &Request| matches!(request, Request::Subscribe(_));
        let asked = match session.answer(message_id, is_kind) {
            Ok(request) => request.changes().first().cloned(),
            Err(true) => return,
            Err(false) => None,
        };
        let subscription = match asked {
            Some(subscription) => subscription,
            None if code != Code::ACCEPTED => return,
            None => return self.estrange(now_ns, client),
        };
        if code != Code::ACCEPTED {
            self.unlist_unused(client, &subscription);
            return self.touch_filters(&[subscription]);
        }
        session.other_qos |= qos != Qos::AtMostOnce;
        if !session.subscriptions.contains(&subscription) {
            if session.subscriptions.len() >= MOST_NAMES {
                return self.estrange(now_ns, client);
            }
            session.subscriptions.push(subscription.clone());
        }
        if let (Some(name), Named::Name) = (&subscription.filter, subscription.named)
            && topic_id != 0
            && !has_wildcards(name)
        {
            session.tell(topic_id, name);
        }
        // Retained messages follow.
        session.changed();
        self.touch(client);
    }

    fn unsubscribed(&mut self, now_ns: u64, client: SocketAddr, message_id: u16) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_kind = |request: &Request| matches!(request, Request::Unsubscribe(_));
        match session.answer(message_id, is_kind) {
            Ok(request) => {
                for subscription in request.changes() {
                    session.subscriptions.retain(|one| one != subscription);
                    // A broker may take two ways to name it for one.
                    let mut rest = session.subscriptions.iter();
                    session.unclear |= rest.any(|one| one.filter == subscription.filter);
                }
                for subscription in request.changes() {
                    self.unlist_unused(client, subscription);
                }
                self.touch_filters(request.changes());
            }
            Err(true) => {}
            Err(false) => self.estrange(now_ns, client),
        }
    }

    /// The broker tells a subscriber by which id it will send a name.
    fn proposed(&mut self, client: SocketAddr, topic_id: u16, message_id: u16, name: &str) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        if session.proposed.len() >= MOST_NAMES {
            session.unclear = true;
        } else {
            let name: Rc<str> = Rc::from(name);
            session.proposed.insert(name, (topic_id, message_id));
        }
        session.changed();
        self.touch(client);
    }

    /// The broker tells a publisher the id for which it asked.
    fn registered(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        topic_id: u16,
        message_id: u16,
        code: Code,
    ) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_kind = |request: &Request| matches!(request, Request::Register(_));
        match session.answer(message_id, is_kind) {
            Ok(Request::Register(name)) if code == Code::ACCEPTED => {
                session.tell(topic_id, &name);
                self.follow(client, Topic::Registered(topic_id));
                self.touch(client);
            }
            Err(false) if code == Code::ACCEPTED => self.estrange(now_ns, client),
            _ => {}
        }
    }
}

/// Clients in the order of their numbers.
fn in_order<'a>(numbers: impl IntoIterator<Item = (&'a SocketAddr, &'a u64)>) -> Vec<SocketAddr> {
    let mut found: Vec<_> = numbers.into_iter().collect();
    found.sort_unstable_by_key(|(_, number)| **number);
    found.into_iter().map(|(client, _)| *client).collect()
}
