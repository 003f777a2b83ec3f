//! Decides which publishes are copied past the broker, and to whom, by what it sees of clients and
//! broker; `broker/spec/acceleration.md` has the reasoning. It does no I/O.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_sn::{Code, Filter, Message, Qos, Topic};

use crate::names::{has_wildcards, matches};
use crate::plane::{Copy, Counts, Key, MOST_COPIES, Plane, Refusal};
use crate::session::{Named, Request, Session, State, Subscription, Told};

const SECOND_NS: u64 = 1_000_000_000;
/// No longer than this is a publisher's keep-alive left to itself: a restart of the broker shows then.
const PING_NS: u64 = 5 * SECOND_NS;
const PATIENCE_NS: u64 = 3 * SECOND_NS;
const RETRY_NS: u64 = 10_000_000;
const LONGEST_RETRY_NS: u64 = SECOND_NS;
const PINGREQ: [u8; 2] = [2, 0x16];

/// How a controller is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the broker is.
    pub broker: SocketAddr,
    /// Topics that have no subscribers but MQTT-SN clients behind this data plane, and that whoever may
    /// register may publish.
    pub only: Vec<Rc<str>>,
    /// Topics whose copies say how long they were in the data plane.
    pub residence: Vec<Rc<str>>,
    /// The names of predefined numbers.
    pub predefined: BTreeMap<u16, Rc<str>>,
    /// Whether the broker has no sessions when we begin.
    pub fresh: bool,
    /// After this time without a word from or to it, a client that we do not know is none.
    pub settle_ns: u64,
    /// Clients that are followed.
    pub clients: usize,
    /// Topics of publishers that are followed.
    pub topics: usize,
}

/// The longest time that a client which keeps its keep-alive may be silent.
pub const LONGEST_SETTLE_NS: u64 = 65_535 * SECOND_NS / 2 * 3;

impl Settings {
    /// The most careful settings: nothing is declared.
    #[must_use]
    pub fn new(broker: SocketAddr) -> Self {
        Self {
            broker,
            only: Vec::new(),
            residence: Vec::new(),
            predefined: BTreeMap::new(),
            fresh: false,
            settle_ns: LONGEST_SETTLE_NS,
            clients: 65_536,
            topics: 65_536,
        }
    }
}

/// Where a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It came from where clients are.
    ToBroker,
    /// It came from where the broker is.
    FromBroker,
}

/// A packet that was seen.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// On which side.
    pub way: Way,
    /// Its source, as it says.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Its UDP payload; None: it could not be read (a fragment, say).
    pub datagram: Option<&'a [u8]>,
    /// What [`Plane::done`] is told when it is taken into account.
    pub mark: u64,
    /// Whether it was kept from its receiver.
    pub kept_back: bool,
}

/// Why a topic of a publisher is not accelerated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`Display` says it")]
pub enum Reason {
    Settling { until_ns: u64 },
    Stranger(SocketAddr),
    TooMany,
    NotDeclared,
    Reserved,
    NameUnknown,
    PublisherUnknown,
    PublisherNotActive,
    PublisherInDoubt,
    Refused,
    NoSubscribers,
    AnswerAwaited(SocketAddr),
    NotActive(SocketAddr),
    Overdue(SocketAddr),
    InDoubt(SocketAddr),
    Overlap(SocketAddr),
    OtherWay(SocketAddr),
    NoId(SocketAddr),
    PredefinedUnknown(SocketAddr, u16),
    Full,
    Copies,
    Unreachable(SocketAddr),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settling { .. } => f.write_str(
                "clients may be there that connected before this program began (--settle, --fresh)",
            ),
            Self::Stranger(who) => write!(f, "what {who} is subscribed to was not seen"),
            Self::TooMany => f.write_str("there are more clients than are followed"),
            Self::NotDeclared => f.write_str("not declared free of other subscribers (--only)"),
            Self::Reserved => f.write_str("topics that begin with $ are the broker's"),
            Self::NameUnknown => f.write_str("its name is not known"),
            Self::PublisherUnknown => f.write_str("the publisher's CONNECT was not seen"),
            Self::PublisherNotActive => f.write_str("the publisher is not connected"),
            Self::PublisherInDoubt => {
                f.write_str("the broker has not confirmed lately that it knows the publisher")
            }
            Self::Refused => f.write_str("the broker has refused a publish"),
            Self::NoSubscribers => f.write_str("nobody is subscribed"),
            Self::AnswerAwaited(who) => write!(f, "the broker has not answered {who}"),
            Self::NotActive(who) => write!(f, "{who} sleeps, comes or goes"),
            Self::Overdue(who) => write!(f, "{who} has not been heard for its keep-alive"),
            Self::InDoubt(who) => {
                write!(f, "the broker has not confirmed lately that it knows {who}")
            }
            Self::Overlap(who) => write!(f, "{who} has several subscriptions that match"),
            Self::OtherWay(who) => write!(
                f,
                "{who} names the topic in another way, or in two (name, predefined or short)"
            ),
            Self::NoId(who) => write!(f, "{who} and the broker have not agreed on a topic id"),
            Self::PredefinedUnknown(who, id) => {
                write!(
                    f,
                    "{who} is subscribed to predefined id {id} (--predefined {id}=NAME)"
                )
            }
            Self::Full => f.write_str("there is no room for another rule"),
            Self::Copies => write!(f, "more than {MOST_COPIES} subscribers"),
            Self::Unreachable(who) => write!(f, "the way to {who} is not known"),
        }
    }
}

#[derive(Debug)]
struct Rule {
    copies: Vec<Copy>,
    open: Option<u64>,
    /// Open it with this when the publisher's pings are answered.
    wanted: Option<u64>,
}

#[derive(Debug)]
struct Candidate {
    name: Option<Rc<str>>,
    rule: Result<Rule, Reason>,
    before: Counts, // of rules that were deleted
}

/// What is said of one topic of one publisher.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whose topic.
    pub key: Key,
    /// Its name, if it is known.
    pub name: Option<Rc<str>>,
    /// Its subscribers, if it has a rule; whether it is open.
    pub rule: Result<(usize, bool), Reason>,
    /// What was copied, and what was not, since it is followed.
    pub counts: Counts,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were looked at.
    pub events: u64,
    /// Packets that came from where clients are, with the broker's address.
    pub forged: u64,
    /// Packets of other hosts that are none of ours.
    pub foreign: u64,
    /// Datagrams that are not a message.
    pub malformed: u64,
    /// How often events were lost, and all begun again.
    pub lost: u64,
    /// PINGREQ in publishers' names.
    pub pings: u64,
    /// Those of them that were not answered.
    pub unanswered: u64,
    /// Topics of publishers that there was no room for.
    pub not_followed: u64,
    /// How often the broker seems to have been restarted.
    pub restarts: u64,
}

enum Dirty {
    All,
    Publisher(SocketAddr),
    Key(Key),
    Name(Rc<str>),
}

/// The controller.
pub struct Controller {
    settings: Settings,
    began_ns: u64,
    settled: bool,
    /// Whether all sessions that the broker keeps for clients that are away are known.
    kept_known: bool,
    sessions: HashMap<SocketAddr, Session>,
    addresses: HashMap<Rc<str>, SocketAddr>,
    kept: HashMap<Rc<str>, Vec<Subscription>>,
    strangers: BTreeMap<SocketAddr, u64>,
    too_many: bool,
    exact: HashMap<Rc<str>, HashSet<SocketAddr>>,
    wild: HashSet<SocketAddr>, // with a filter that has wildcards, or no name
    candidates: HashMap<Key, Candidate>,
    by_name: HashMap<Rc<str>, HashSet<Key>>,
    rules: HashSet<Key>,
    /// Those for which there was no room, and whether there is some since.
    waiting: HashSet<Key>,
    has_room: bool,
    dirty: Vec<Dirty>,
    counters: Counters,
}

impl Controller {
    /// A controller that has seen nothing. `now_ns`: any clock that does not go back.
    #[must_use]
    pub fn new(settings: Settings, now_ns: u64) -> Self {
        Self {
            began_ns: now_ns,
            settled: settings.fresh,
            kept_known: settings.fresh,
            settings,
            sessions: HashMap::new(),
            addresses: HashMap::new(),
            kept: HashMap::new(),
            strangers: BTreeMap::new(),
            too_many: false,
            exact: HashMap::new(),
            wild: HashSet::new(),
            candidates: HashMap::new(),
            by_name: HashMap::new(),
            rules: HashSet::new(),
            waiting: HashSet::new(),
            has_room: false,
            dirty: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How many clients are known, and how many are not.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.sessions.len(), self.strangers.len())
    }

    /// Whether the broker has, or may have, a session with this client.
    #[must_use]
    pub fn knows(&self, client: &SocketAddr) -> bool {
        self.sessions.contains_key(client) || self.strangers.contains_key(client)
    }

    /// All topics of publishers that are followed.
    #[must_use]
    pub fn status(&self, plane: &impl Plane) -> Vec<Status> {
        let mut all: Vec<Status> = self
            .candidates
            .iter()
            .map(|(key, one)| {
                let mut counts = one.before;
                let rule = match &one.rule {
                    Ok(rule) => {
                        let now = plane.counts(key);
                        add(&mut counts, now);
                        Ok((rule.copies.len(), rule.open == Some(now.slow)))
                    }
                    Err(reason) => Err(self.general_reason().unwrap_or_else(|| reason.clone())),
                };
                Status {
                    key: *key,
                    name: one.name.clone(),
                    rule,
                    counts,
                }
            })
            .collect();
        all.sort_by(|a, b| (&a.name, a.key.publisher).cmp(&(&b.name, b.key.publisher)));
        all
    }

    /// Take a packet into account.
    pub fn event(&mut self, now_ns: u64, event: &Event<'_>, plane: &mut impl Plane) {
        self.counters.events += 1;
        let broker = self.settings.broker;
        let client = match event.way {
            Way::ToBroker => event.from,
            Way::FromBroker => event.to,
        };
        if event.way == Way::ToBroker && event.from == broker {
            self.counters.forged += 1;
        } else if match event.way {
            Way::ToBroker => event.to != broker,
            Way::FromBroker => event.from != broker,
        } {
            self.counters.foreign += 1;
        } else {
            match (event.datagram.map(mqtick_sn::decode), event.way) {
                (Some(Ok((message, None))), Way::ToBroker) => {
                    self.hear(now_ns, client);
                    self.asked(now_ns, client, &message);
                }
                (Some(Ok((message, None))), Way::FromBroker) => {
                    self.answered(now_ns, client, &message, event.kept_back, plane);
                }
                // Who is behind a forwarder, or what a fragment said, shows in what the broker answers.
                (Some(Ok((_, Some(_)))) | None, Way::FromBroker) => {
                    self.estrange(now_ns, client);
                }
                (Some(Ok((_, Some(_)))) | None, Way::ToBroker) => {}
                (Some(Err(_)), _) => self.counters.malformed += 1,
            }
        }
        self.make_rules(plane);
        plane.done(event.mark);
    }

    /// Events were lost, none of them after this mark: whatever was known may be wrong.
    pub fn lost(&mut self, now_ns: u64, mark: u64, plane: &mut impl Plane) {
        self.counters.lost += 1;
        let mut strangers = std::mem::take(&mut self.strangers);
        strangers.extend(self.sessions.keys().map(|who| (*who, now_ns)));
        self.begin(now_ns, plane);
        self.strangers = strangers;
        (self.settled, self.kept_known) = (false, false);
        plane.done(mark);
    }

    /// The broker was started, and has no sessions.
    pub fn broker_started(&mut self, now_ns: u64, plane: &mut impl Plane) {
        self.counters.restarts += 1;
        self.begin(now_ns, plane);
        (self.settled, self.kept_known) = (true, true);
    }

    /// Ways to subscribers have changed.
    pub fn ways_changed(&mut self, plane: &mut impl Plane) {
        self.dirty.push(Dirty::All);
        self.make_rules(plane);
    }

    /// Delete all rules.
    pub fn stop(&mut self, plane: &mut impl Plane) {
        for key in self.rules.drain() {
            plane.delete(&key);
        }
        for (client, session) in &self.sessions {
            if session.ours {
                plane.keep_back(client, 0);
            }
        }
    }

    /// What depends on time; to be called at least ten times a second.
    pub fn tick(&mut self, now_ns: u64, plane: &mut impl Plane) {
        if !self.settled && now_ns.saturating_sub(self.began_ns) >= self.settings.settle_ns {
            self.settled = true;
            self.dirty.push(Dirty::All);
        }
        let settle_ns = self.settings.settle_ns;
        let strangers = self.strangers.len();
        self.strangers
            .retain(|_, heard_ns| now_ns.saturating_sub(*heard_ns) < settle_ns);
        if self.strangers.len() < strangers {
            self.dirty.push(Dirty::All);
        }
        self.count_publishes(now_ns, plane);
        self.watch_keep_alives(now_ns, plane);
        if std::mem::take(&mut self.has_room) {
            self.dirty.extend(self.waiting.drain().map(Dirty::Key));
        }
        self.make_rules(plane);
        // A client that has just gone to sleep must not be woken by a PINGREQ in its name.
        if plane.is_quiet() {
            self.ping(now_ns, plane);
        }
    }

    fn begin(&mut self, now_ns: u64, plane: &mut impl Plane) {
        self.stop(plane);
        let counters = self.counters;
        *self = Self::new(self.settings.clone(), now_ns);
        self.counters = counters;
    }

    fn general_reason(&self) -> Option<Reason> {
        if !self.settled {
            let until_ns = self.began_ns.saturating_add(self.settings.settle_ns);
            return Some(Reason::Settling { until_ns });
        }
        if self.too_many {
            return Some(Reason::TooMany);
        }
        self.strangers
            .first_key_value()
            .map(|(who, _)| Reason::Stranger(*who))
    }

    fn hear(&mut self, now_ns: u64, client: SocketAddr) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.heard_ns = now_ns;
            if std::mem::take(&mut session.late) {
                self.touch_client(client);
            }
        } else if let Some(heard_ns) = self.strangers.get_mut(&client) {
            *heard_ns = now_ns;
        }
    }

    /// The broker takes somebody for a client of whom we do not know what he is subscribed to.
    fn estrange(&mut self, now_ns: u64, client: SocketAddr) {
        self.remove(client);
        if self.general_reason().is_none() {
            self.dirty.push(Dirty::All);
        }
        if self.strangers.len() >= self.settings.clients {
            self.too_many = true;
        } else {
            self.strangers.insert(client, now_ns);
        }
    }

    fn remove(&mut self, client: SocketAddr) -> Option<Session> {
        let session = self.sessions.remove(&client)?;
        if self.addresses.get(&session.id) == Some(&client) {
            self.addresses.remove(&session.id);
        }
        self.unlist_all_of(client, &session);
        self.touch_all_of(&session, client);
        for topic in &session.publishes {
            let publisher = client;
            self.drop_candidate(&Key {
                publisher,
                topic: *topic,
            });
        }
        Some(session)
    }

    /// The session ended; what the broker keeps of it is kept here, too.
    fn end(&mut self, client: SocketAddr) {
        if let Some(session) = self.remove(client)
            && !session.clean
        {
            self.keep(&session.id, session.subscriptions);
        }
    }

    fn keep(&mut self, id: &Rc<str>, subscriptions: Vec<Subscription>) {
        if self.kept.len() >= self.settings.clients {
            self.kept.clear();
            self.kept_known = false;
        }
        self.kept.insert(Rc::clone(id), subscriptions);
    }

    fn touch(&mut self, subscription: &Subscription) {
        self.dirty.push(match &subscription.filter {
            Some(filter) if !has_wildcards(filter) => Dirty::Name(Rc::clone(filter)),
            _ => Dirty::All,
        });
    }

    fn touch_all_of(&mut self, session: &Session, client: SocketAddr) {
        for one in session.filters() {
            self.touch(one);
        }
        self.dirty.push(Dirty::Publisher(client));
    }

    fn touch_client(&mut self, client: SocketAddr) {
        if let Some(session) = self.sessions.remove(&client) {
            self.touch_all_of(&session, client);
            self.sessions.insert(client, session);
        }
    }

    fn list(&mut self, client: SocketAddr, subscription: &Subscription) {
        match &subscription.filter {
            Some(filter) if !has_wildcards(filter) => {
                self.exact
                    .entry(Rc::clone(filter))
                    .or_default()
                    .insert(client);
            }
            _ => {
                self.wild.insert(client);
            }
        }
    }

    fn unlist_all_of(&mut self, client: SocketAddr, session: &Session) {
        for one in session.filters() {
            self.unlist(client, one);
        }
        self.wild.remove(&client);
    }

    fn unlist(&mut self, client: SocketAddr, subscription: &Subscription) {
        let Some(filter) = &subscription.filter else {
            return;
        };
        if let Some(clients) = self.exact.get_mut(filter) {
            clients.remove(&client);
            if clients.is_empty() {
                self.exact.remove(filter);
            }
        }
    }

    /// Take a subscription off the list, unless it is there for another reason.
    fn unlist_unused(&mut self, client: SocketAddr, subscription: &Subscription) {
        let filter = &subscription.filter;
        let is_used = self
            .sessions
            .get(&client)
            .is_some_and(|session| session.filters().any(|one| one.filter == *filter));
        if !is_used {
            self.unlist(client, subscription);
        }
    }

    // ---- what clients say -------------------------------------------------------------------------

    fn asked(&mut self, now_ns: u64, client: SocketAddr, message: &Message<'_>) {
        match message {
            Message::Connect {
                clean,
                duration_s,
                client: id,
                ..
            } => {
                let keep_alive_ns = u64::from(*duration_s) * SECOND_NS;
                self.connect(now_ns, client, id, *clean, keep_alive_ns);
            }
            Message::Publish { qos, topic, .. } => self.published(now_ns, client, *qos, *topic),
            Message::Subscribe {
                message_id, filter, ..
            } => {
                let request = Request::Subscribe(self.subscription(filter));
                self.request(now_ns, client, *message_id, request);
            }
            Message::Unsubscribe { message_id, filter } => {
                let request = Request::Unsubscribe(self.subscription(filter));
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
            } => self.registered_there(client, *topic_id, *message_id, *code),
            Message::Pingreq { client: id } => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.pings = session.pings.saturating_add(1);
                    session.asked_ns = now_ns;
                }
                // A sleeping client that asks from elsewhere: the broker may take it for moved.
                if !id.is_empty()
                    && let Some(&before) = self.addresses.get(*id)
                    && before != client
                {
                    self.doubt(before);
                }
            }
            Message::Disconnect { duration_s } => self.disconnect(client, *duration_s),
            _ => {}
        }
    }

    fn connect(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        id: &str,
        clean: bool,
        keep_alive_ns: u64,
    ) {
        let id: Rc<str> = Rc::from(id);
        if self
            .sessions
            .get(&client)
            .is_some_and(|session| session.id != id)
        {
            self.end(client);
        }
        if let Some(&before) = self.addresses.get(&id)
            && before != client
        {
            self.doubt(before);
        }
        self.touch_client(client);
        if let Some(mut session) = self.sessions.remove(&client) {
            self.unlist_all_of(client, &session);
            let publishes = std::mem::take(&mut session.publishes);
            session.forget_connection();
            let again = !matches!(session.state, State::Connecting { again: false });
            session.state = State::Connecting { again };
            session.mixed |= session.mixes(clean);
            (session.clean, session.keep_alive_ns) = (clean, keep_alive_ns);
            for one in &session.subscriptions {
                self.list(client, one);
            }
            self.sessions.insert(client, session);
            for topic in publishes {
                let publisher = client;
                self.drop_candidate(&Key { publisher, topic });
            }
            return;
        }
        if self.sessions.len() < self.settings.clients {
            let session = Session::new(id, clean, keep_alive_ns, now_ns);
            self.sessions.insert(client, session);
        }
    }

    /// Whether the broker still knows this one has to be shown.
    fn doubt(&mut self, client: SocketAddr) {
        if let Some(session) = self.sessions.get_mut(&client) {
            session.doubt = true;
            self.touch_client(client);
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
        let subscription = request.changes().cloned();
        let follows = session.ask(message_id, request);
        if let Some(subscription) = subscription {
            if !follows {
                return self.estrange(now_ns, client);
            }
            self.list(client, &subscription);
            self.touch(&subscription);
        }
    }

    fn registered_there(&mut self, client: SocketAddr, topic_id: u16, message_id: u16, code: Code) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let asked = Told::Asked(topic_id, message_id);
        let Some((name, told)) = session.told.iter_mut().find(|(_, told)| **told == asked) else {
            return;
        };
        let name = Rc::clone(name);
        if code == Code::ACCEPTED {
            *told = Told::Id(topic_id);
            session.agree(topic_id, &name);
        } else {
            *told = Told::Unclear;
        }
        self.touch_client(client);
    }

    fn disconnect(&mut self, client: SocketAddr, duration_s: Option<u16>) {
        self.touch_client(client);
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        session.state = match (duration_s, session.state) {
            (None | Some(0), _) => State::Leaving,
            (Some(duration_s), state) => {
                session.keep_alive_ns = u64::from(duration_s) * SECOND_NS;
                match state {
                    State::Asleep(asked) => State::Asleep(asked.saturating_add(1)),
                    _ => State::Asleep(1),
                }
            }
        };
    }

    fn published(&mut self, now_ns: u64, client: SocketAddr, qos: Qos, topic: Topic) {
        if qos == Qos::Unconnected {
            return;
        }
        if self.sessions.contains_key(&client) {
            self.follow(client, topic);
        } else if !self.settled {
            self.estrange(now_ns, client);
        }
    }

    /// A client publishes to a topic, or will.
    fn follow(&mut self, client: SocketAddr, topic: Topic) {
        let publisher = client;
        let key = Key { publisher, topic };
        if self.candidates.contains_key(&key) {
            return;
        }
        if self.candidates.len() >= self.settings.topics {
            self.counters.not_followed += 1;
            return;
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            session.publishes.push(topic);
            let candidate = Candidate {
                name: None,
                rule: Err(Reason::NameUnknown),
                before: Counts::default(),
            };
            self.candidates.insert(key, candidate);
            self.dirty.push(Dirty::Publisher(client));
        }
    }

    fn drop_candidate(&mut self, key: &Key) {
        // Its rule goes with what is made anew: a candidate without a session has none.
        self.dirty.push(Dirty::Key(*key));
        if let Some(candidate) = self.candidates.get_mut(key) {
            let name = candidate.name.take();
            self.unname(key, name);
        }
    }

    fn unname(&mut self, key: &Key, name: Option<Rc<str>>) {
        if let Some(name) = name
            && let Some(keys) = self.by_name.get_mut(&name)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_name.remove(&name);
            }
        }
    }

    // ---- what the broker says ---------------------------------------------------------------------

    fn answered(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        message: &Message<'_>,
        kept_back: bool,
        plane: &mut impl Plane,
    ) {
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
                topic_id,
                message_id,
                code,
                ..
            } => self.subscribed(now_ns, client, *topic_id, *message_id, *code),
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
            } => self.registered(client, *topic_id, *message_id, *code),
            Message::Puback { topic_id, code, .. } if *code != Code::ACCEPTED => {
                self.refused(client, *topic_id);
            }
            Message::Pingresp => self.pinged(client, kept_back, plane),
            _ => {}
        }
    }

    fn connected(&mut self, now_ns: u64, client: SocketAddr, code: Code) {
        self.touch_client(client);
        let accepted = code == Code::ACCEPTED;
        let Some(session) = self.sessions.get_mut(&client) else {
            if accepted {
                self.estrange(now_ns, client);
            }
            return;
        };
        let State::Connecting { again } = session.state else {
            return;
        };
        if !accepted {
            // Whether the broker keeps what was there before is not said.
            if again {
                self.estrange(now_ns, client);
            } else {
                self.remove(client);
            }
            return;
        }
        session.state = State::Active;
        session.doubt = false;
        let (id, clean) = (Rc::clone(&session.id), session.clean);
        self.forget_stranger(client);
        let elsewhere = self.addresses.get(&id).copied();
        let moved = match elsewhere.filter(|there| *there != client) {
            Some(there) => self.remove(there),
            None => None,
        };
        let kept = self.kept.remove(&id);
        self.addresses.insert(Rc::clone(&id), client);
        let Some(mut session) = self.sessions.remove(&client) else {
            return;
        };
        self.unlist_all_of(client, &session);
        let is_mixed = std::mem::take(&mut session.mixed)
            || moved.as_ref().is_some_and(|before| before.mixes(clean));
        let known = if is_mixed {
            None
        } else if again {
            Some(std::mem::take(&mut session.subscriptions))
        } else {
            let moved = moved.map(|before| before.subscriptions);
            moved.or(kept).or(self.kept_known.then(Vec::new))
        };
        session.subscriptions = match known {
            _ if clean => Vec::new(),
            Some(subscriptions) => subscriptions,
            None => return self.estrange(now_ns, client),
        };
        for one in session.filters() {
            self.list(client, one);
        }
        self.sessions.insert(client, session);
        self.touch_client(client);
    }

    fn forget_stranger(&mut self, client: SocketAddr) {
        if self.strangers.remove(&client).is_some() && self.strangers.is_empty() {
            self.dirty.push(Dirty::All);
        }
    }

    fn dismissed(&mut self, now_ns: u64, client: SocketAddr) {
        self.forget_stranger(client);
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        match &mut session.state {
            State::Asleep(asked @ 1..) => *asked -= 1,
            // It answers something that came before the CONNECT.
            State::Connecting { .. } => {}
            State::Asleep(0) | State::Leaving => self.end(client),
            State::Active => {
                let is_expected = session.is_overdue(now_ns);
                self.end(client);
                if !is_expected {
                    // A broker that was restarted knows nobody; the others will show it.
                    self.counters.restarts += 1;
                    for session in self.sessions.values_mut() {
                        session.doubt = true;
                    }
                    self.dirty.push(Dirty::All);
                }
            }
        }
    }

    fn subscribed(
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
        let is_kind = |request: &Request| matches!(request, Request::Subscribe(_));
        let subscription = match session.answer(message_id, is_kind) {
            Ok(Request::Subscribe(subscription)) => subscription,
            Err(true) => return,
            _ if code != Code::ACCEPTED => return,
            _ => return self.estrange(now_ns, client),
        };
        if code != Code::ACCEPTED {
            self.unlist_unused(client, &subscription);
        } else {
            if !session.subscriptions.contains(&subscription) {
                session.subscriptions.push(subscription.clone());
            }
            if let (Some(name), Named::Name) = (&subscription.filter, subscription.named)
                && topic_id != 0
                && !has_wildcards(name)
            {
                session.agree(topic_id, name);
                let told = session.told.entry(Rc::clone(name));
                let told = told.or_insert(Told::Id(topic_id));
                if !matches!(told, Told::Asked(..)) {
                    *told = Told::Id(topic_id);
                }
            }
        }
        self.touch(&subscription);
        self.dirty.push(Dirty::Publisher(client));
    }

    fn unsubscribed(&mut self, now_ns: u64, client: SocketAddr, message_id: u16) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_kind = |request: &Request| matches!(request, Request::Unsubscribe(_));
        match session.answer(message_id, is_kind) {
            Ok(Request::Unsubscribe(subscription)) => {
                session.subscriptions.retain(|one| *one != subscription);
                self.unlist_unused(client, &subscription);
                self.touch(&subscription);
            }
            Err(true) => {}
            _ => self.estrange(now_ns, client),
        }
    }

    /// The broker tells a subscriber by which id it will send a name.
    fn proposed(&mut self, client: SocketAddr, topic_id: u16, message_id: u16, name: &str) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let name: Rc<str> = Rc::from(name);
        session.told.insert(name, Told::Asked(topic_id, message_id));
        self.touch_client(client);
    }

    /// The broker tells a publisher the id for which it asked.
    fn registered(&mut self, client: SocketAddr, topic_id: u16, message_id: u16, code: Code) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_kind = |request: &Request| matches!(request, Request::Register(_));
        let Ok(Request::Register(name)) = session.answer(message_id, is_kind) else {
            return;
        };
        if code != Code::ACCEPTED {
            return;
        }
        session.agree(topic_id, &name);
        match session.told.get(&name) {
            None => {
                session.told.insert(Rc::clone(&name), Told::Id(topic_id));
            }
            Some(told) if *told == Told::Id(topic_id) => {}
            // Two ids for one name: by which of them it will be sent is not to be said.
            Some(_) => {
                session.told.insert(Rc::clone(&name), Told::Unclear);
            }
        }
        self.follow(client, Topic::Registered(topic_id));
        self.dirty.push(Dirty::Name(name));
        self.dirty.push(Dirty::Publisher(client));
    }

    fn refused(&mut self, client: SocketAddr, topic_id: u16) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        if let Some(name) = session.ids.remove(&topic_id) {
            session.told.remove(&name);
            self.dirty.push(Dirty::Name(name));
        }
        self.dirty.push(Dirty::Publisher(client));
    }

    fn pinged(&mut self, client: SocketAddr, kept_back: bool, plane: &mut impl Plane) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        session.pings = session.pings.saturating_sub(1);
        if kept_back {
            session.ours = false;
        }
        let is_new = std::mem::take(&mut session.doubt);
        if session.pings > 0 {
            return;
        }
        // Whatever the publisher sent before its last PINGREQ has been delivered.
        for topic in &session.publishes {
            let publisher = client;
            let topic = *topic;
            let key = Key { publisher, topic };
            if let Some(Candidate { rule: Ok(rule), .. }) = self.candidates.get_mut(&key)
                && let Some(slow) = rule.wanted.take()
            {
                rule.open = Some(slow);
                plane.open(&key, slow);
                if plane.counts(&key).slow == slow {
                    session.tries = 0;
                }
            }
        }
        if is_new {
            self.touch_client(client);
        }
    }

    // ---- time -------------------------------------------------------------------------------------

    /// Rules have seen publishes: then their publisher was heard.
    fn count_publishes(&mut self, now_ns: u64, plane: &impl Plane) {
        for (client, session) in &mut self.sessions {
            let mut seen = 0;
            for topic in &session.publishes {
                let (publisher, topic) = (*client, *topic);
                let key = Key { publisher, topic };
                if let Some(candidate) = self.candidates.get(&key) {
                    let counts = candidate.rule.as_ref().map(|_| plane.counts(&key));
                    let counts = counts.unwrap_or_default();
                    let before = candidate.before;
                    seen += counts.slow + counts.fast + before.slow + before.fast;
                }
            }
            let is_due = now_ns.saturating_sub(session.looked_ns) >= SECOND_NS;
            let stamp_ns = if is_due || !session.publishes.is_empty() {
                session.looked_ns = now_ns;
                plane.heard_ns(client).unwrap_or(0)
            } else {
                0
            };
            let heard_ns = if seen > session.seen_then {
                now_ns
            } else {
                stamp_ns.min(now_ns)
            };
            session.seen_then = seen;
            session.heard_ns = session.heard_ns.max(heard_ns);
        }
    }

    fn watch_keep_alives(&mut self, now_ns: u64, plane: &mut impl Plane) {
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        for (client, session) in &mut self.sessions {
            let is_late = session.is_overdue(now_ns);
            if session.is_gone(now_ns) && plane.heard_ns(client).is_some() {
                gone.push(*client);
            } else if is_late != std::mem::replace(&mut session.late, is_late) {
                changed.push(*client);
            }
            if session.pings > 0 && now_ns.saturating_sub(session.asked_ns) >= PATIENCE_NS {
                if session.ours {
                    plane.keep_back(client, 0);
                    self.counters.unanswered += 1;
                    session.doubt = true;
                    changed.push(*client);
                }
                (session.pings, session.ours) = (0, false);
            }
        }
        for client in changed {
            self.touch_client(client);
        }
        for client in gone {
            self.end(client);
        }
    }

    /// Keep publishers alive at the broker, and open their rules.
    fn ping(&mut self, now_ns: u64, plane: &mut impl Plane) {
        let mut due: Vec<SocketAddr> = self
            .rules
            .iter()
            .map(|key| key.publisher)
            .chain(
                self.sessions
                    .iter()
                    .filter(|(_, session)| session.doubt && !session.publishes.is_empty())
                    .map(|(client, _)| *client),
            )
            .collect();
        due.sort_unstable();
        due.dedup();
        for client in due {
            self.ping_one(now_ns, client, plane);
        }
    }

    fn ping_one(&mut self, now_ns: u64, client: SocketAddr, plane: &mut impl Plane) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let interval_ns = match session.keep_alive_ns {
            0 => PING_NS,
            keep_alive_ns => PING_NS.min(keep_alive_ns / 4),
        };
        // Nobody is kept alive who does not publish: each of ours follows something of his.
        let is_recent = now_ns.saturating_sub(session.heard_ns) <= interval_ns;
        let is_news = session
            .pinged_ns
            .is_none_or(|at_ns| session.heard_ns > at_ns);
        if session.state != State::Active || session.ours || !is_recent || !is_news {
            return;
        }
        let since_ns = session
            .pinged_ns
            .map_or(u64::MAX, |at_ns| now_ns.saturating_sub(at_ns));
        let (mut fast, mut closed) = (0, false);
        for topic in &session.publishes {
            let (publisher, topic) = (client, *topic);
            let key = Key { publisher, topic };
            if let Some(candidate) = self.candidates.get_mut(&key) {
                fast += candidate.before.fast;
                if let Ok(rule) = &mut candidate.rule {
                    let counts = plane.counts(&key);
                    fast += counts.fast;
                    // At least one message has to show whether the broker asks subscribers for a
                    // proof of their address before it sends them any.
                    let is_closed = rule.open != Some(counts.slow) && counts.slow > 0;
                    closed |= is_closed;
                    rule.wanted = is_closed.then_some(counts.slow);
                }
            }
        }
        let retry_ns = LONGEST_RETRY_NS.min(RETRY_NS << session.tries.min(10));
        let opens = (closed || session.doubt) && since_ns >= retry_ns;
        let keeps_alive = fast > session.fast_then && since_ns >= interval_ns;
        if !opens && !keeps_alive {
            return;
        }
        session.tries = if closed {
            session.tries.saturating_add(1)
        } else {
            0
        };
        (session.fast_then, session.pinged_ns, session.ours) = (fast, Some(now_ns), true);
        session.pings = session.pings.saturating_add(1);
        session.asked_ns = now_ns;
        self.counters.pings += 1;
        plane.keep_back(&client, now_ns + PATIENCE_NS);
        plane.to_broker(&client, &PINGREQ);
    }

    // ---- rules ------------------------------------------------------------------------------------

    fn make_rules(&mut self, plane: &mut impl Plane) {
        if self.dirty.is_empty() {
            return;
        }
        let mut keys = HashSet::new();
        for dirty in std::mem::take(&mut self.dirty) {
            match dirty {
                Dirty::All => {
                    keys.extend(self.candidates.keys().copied());
                    break;
                }
                Dirty::Publisher(publisher) => {
                    let session = self.sessions.get(&publisher);
                    let topics = session.into_iter().flat_map(|session| &session.publishes);
                    keys.extend(topics.map(|&topic| Key { publisher, topic }));
                }
                Dirty::Key(key) => {
                    keys.insert(key);
                }
                Dirty::Name(name) => {
                    keys.extend(self.by_name.get(&name).into_iter().flatten().copied());
                }
            }
        }
        for key in keys {
            self.make_rule(key, plane);
        }
    }

    fn make_rule(&mut self, key: Key, plane: &mut impl Plane) {
        let name = self.name(&key);
        let wanted = match self.general_reason() {
            Some(reason) => Err(reason),
            None => self.receivers(&key, name.as_ref()),
        };
        let is_followed = self
            .sessions
            .get(&key.publisher)
            .is_some_and(|session| session.publishes.contains(&key.topic));
        let residence = name.as_ref().is_some_and(|name| {
            let mut filters = self.settings.residence.iter();
            filters.any(|one| matches(one, name))
        });
        let Some(candidate) = self.candidates.get_mut(&key) else {
            return;
        };
        if let (Ok(rule), Ok(copies)) = (&candidate.rule, &wanted)
            && rule.copies == *copies
            && candidate.name == name
        {
            return;
        }
        if candidate.rule.is_ok() {
            add(&mut candidate.before, plane.counts(&key));
            plane.delete(&key);
            self.rules.remove(&key);
            self.has_room = true;
        }
        let was = std::mem::replace(&mut candidate.name, name.clone());
        candidate.rule = match wanted {
            Err(reason) => Err(reason),
            Ok(copies) => match plane.set(key, &copies, residence) {
                Ok(()) => {
                    self.rules.insert(key);
                    Ok(Rule {
                        copies,
                        open: None,
                        wanted: None,
                    })
                }
                Err(Refusal::Full) => {
                    self.waiting.insert(key);
                    Err(Reason::Full)
                }
                Err(Refusal::Copies) => Err(Reason::Copies),
                Err(Refusal::Unreachable(who)) => Err(Reason::Unreachable(who)),
            },
        };
        if !is_followed {
            self.candidates.remove(&key);
        }
        if was != name || !is_followed {
            self.unname(&key, was);
        }
        if let Some(name) = name
            && is_followed
        {
            self.by_name.entry(name).or_default().insert(key);
        }
    }

    fn name(&self, key: &Key) -> Option<Rc<str>> {
        match key.topic {
            Topic::Registered(id) => self.sessions.get(&key.publisher)?.ids.get(&id).cloned(),
            Topic::Predefined(id) => self.settings.predefined.get(&id).cloned(),
            Topic::Short(name) => std::str::from_utf8(&name).ok().map(Rc::from),
        }
    }

    /// Who gets a publish, and as what.
    fn receivers(&self, key: &Key, name: Option<&Rc<str>>) -> Result<Vec<Copy>, Reason> {
        let publisher = self
            .sessions
            .get(&key.publisher)
            .ok_or(Reason::PublisherUnknown)?;
        if publisher.state != State::Active || publisher.late {
            return Err(Reason::PublisherNotActive);
        }
        if publisher.doubt {
            return Err(Reason::PublisherInDoubt);
        }
        let name = name.ok_or(Reason::NameUnknown)?;
        if name.starts_with('$') {
            return Err(Reason::Reserved);
        }
        // What it may send in two ways, it may send in an order that we cannot keep.
        let registered = publisher.ids.values().filter(|one| *one == name).count();
        let predefined = self.settings.predefined.values();
        let predefined = predefined.filter(|one| *one == name).count();
        let is_unnamed = |one: &Topic| matches!(one, Topic::Predefined(id) if !self.settings.predefined.contains_key(id));
        if registered + predefined + usize::from(name.len() == 2) != 1
            || publisher.publishes.iter().any(is_unnamed)
        {
            return Err(Reason::OtherWay(key.publisher));
        }
        if !self.settings.only.iter().any(|one| matches(one, name)) {
            return Err(Reason::NotDeclared);
        }
        let exact = self.exact.get(name).into_iter().flatten();
        let mut clients: Vec<SocketAddr> = exact.chain(&self.wild).copied().collect();
        clients.sort_unstable();
        clients.dedup();
        let mut copies = Vec::new();
        for client in clients {
            if let Some(session) = self.sessions.get(&client)
                && let Some(topic) = receives(client, session, key.topic, name)?
            {
                copies.push(Copy { to: client, topic });
            }
        }
        match copies.len() {
            0 => Err(Reason::NoSubscribers),
            count if count > MOST_COPIES => Err(Reason::Copies),
            _ => Ok(copies),
        }
    }
}

/// As what a client receives a topic, if it does.
fn receives(
    client: SocketAddr,
    session: &Session,
    topic: Topic,
    name: &Rc<str>,
) -> Result<Option<Topic>, Reason> {
    let is_it = |one: &Subscription| match (&one.filter, one.named) {
        (Some(filter), _) => Ok(matches(filter, name)),
        (None, Named::Predefined(id)) => Err(Reason::PredefinedUnknown(client, id)),
        (None, _) => Ok(true),
    };
    for (_, request) in &session.pending {
        if let Some(one) = request.changes()
            && is_it(one)?
        {
            return Err(Reason::AnswerAwaited(client));
        }
    }
    let mut found = None;
    for one in &session.subscriptions {
        if is_it(one)? && found.replace(one).is_some() {
            return Err(Reason::Overlap(client));
        }
    }
    let Some(subscription) = found else {
        return Ok(None);
    };
    if session.state != State::Active {
        return Err(Reason::NotActive(client));
    }
    if session.late {
        return Err(Reason::Overdue(client));
    }
    if session.doubt {
        return Err(Reason::InDoubt(client));
    }
    // What it does not answer, it may not have got: a broker may wait for that before it sends.
    if session
        .told
        .values()
        .any(|told| matches!(told, Told::Asked(..)))
    {
        return Err(Reason::NoId(client));
    }
    match (topic, subscription.named) {
        (Topic::Short(_), Named::Short) if subscription.filter.as_deref() == Some(name) => {
            Ok(Some(topic))
        }
        (Topic::Predefined(id), Named::Predefined(own)) if id == own => Ok(Some(topic)),
        // A name of two octets may be sent as a short one.
        (Topic::Registered(_), Named::Name) if name.len() != 2 => match session.told.get(name) {
            Some(Told::Id(id)) => Ok(Some(Topic::Registered(*id))),
            _ => Err(Reason::NoId(client)),
        },
        _ => Err(Reason::OtherWay(client)),
    }
}

fn add(sum: &mut Counts, more: Counts) {
    sum.slow += more.slow;
    sum.fast += more.fast;
    sum.copies += more.copies;
}
