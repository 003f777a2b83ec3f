//! The controller's knowledge of one client of the broker.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use mqtick_topics::matches;

use crate::pings::Pings;
use crate::plane::Topic;

/// The most unanswered requests of one client.
pub const MOST_PENDING: usize = 64;
/// The most subscriptions, and the most names, of one client.
pub const MOST_NAMES: usize = 1024;
/// How long a broker may hold back a message of QoS 2: it waits for PUBREL for up to a minute.
/// Another second, because data planes report such messages only once a second.
pub const OTHER_QOS_NS: u64 = 61_000_000_000;
const REMEMBERED: usize = 16; // answered requests, in case an answer is repeated
const REPEATS_NS: u64 = 60_000_000_000; // the longest delay of an answer to CONNECT

/// How a subscription names its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// By name, with or without wildcards.
    Name,
    /// By a predefined id.
    Predefined(u16),
    /// By a short name of two octets.
    Short,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its filter; `None`: it is a predefined id without a known name.
    pub filter: Option<Rc<str>>,
    /// How it states the filter.
    pub named: Named,
}

/// A request of a client to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// It asks for the id of a name.
    Register(Rc<str>),
    /// It subscribes.
    Subscribe(Subscription),
    /// It ends a subscription.
    Unsubscribe(Subscription),
}

impl Subscription {
    /// Whether it matches a name, as far as is known.
    #[must_use]
    pub fn may_match(&self, name: &str) -> bool {
        let filter = self.filter.as_ref();
        filter.is_none_or(|filter| matches(filter, name))
    }
}

impl Request {
    /// The subscription that it changes.
    #[must_use]
    pub fn change(&self) -> Option<&Subscription> {
        match self {
            Self::Register(_) => None,
            Self::Subscribe(one) | Self::Unsubscribe(one) => Some(one),
        }
    }

    /// Whether both change the same subscription, or both ask for ids.
    fn is_about(&self, other: &Self) -> bool {
        self.change() == other.change()
    }
}

/// The state of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The broker has not accepted it yet.
    New,
    /// It gets messages at once.
    Active,
    /// It sleeps or goes away; not all of its DISCONNECTs are answered.
    Away {
        /// Whether the last DISCONNECT had no duration, so that the client goes away.
        leaving: bool,
        /// How many are unanswered.
        open: u32,
    },
}

/// A CONNECT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The client identifier.
    pub id: Rc<str>,
    /// CleanSession.
    pub clean: bool,
    /// The keep-alive; 0: no limit.
    pub keep_alive_ns: u64,
}

#[derive(Clone, Debug)]
struct Pending {
    message_id: u16,
    request: Request,
    connection: u32,
}

/// One client.
#[derive(Debug)]
pub struct Session {
    /// The last CONNECT that was accepted.
    pub as_said: Connect,
    /// The unanswered CONNECT, how often it was sent, and whether it was always the same.
    pub connecting: Option<(Connect, u32, bool)>,
    asked_ns: u64,      // when it last sent CONNECT
    asks_in_vain: bool, // no answer to it can come any more
    repeats: u32,       // further answers to the accepted CONNECT that may still come
    connection: u32,
    /// Its state.
    pub state: State,
    /// When the broker accepted it.
    pub since_ns: u64,
    /// Its keep-alive, or its sleep duration if that is longer; 0: no limit.
    pub keep_alive_ns: u64,
    /// When it was last heard.
    pub heard_ns: u64,
    /// Whether something was heard or has changed since the last PINGREQ in its name.
    pub news: bool,
    /// Whether it was silent for longer than its keep-alive.
    pub late: bool,
    /// Whether it was late before, and the broker, which may have ended its session, has not
    /// confirmed it since.
    pub returned: bool,
    /// When the data plane was last asked for `heard_ns`.
    pub looked_ns: u64,
    /// Whether the broker has answered a PINGREQ since the last change. Then the broker knows this
    /// client, and no earlier message waits for it.
    pub confirmed: bool,
    /// Whether it has answered a REGISTER of the broker, which proves its address.
    pub proven: bool,
    /// Whether it has a subscription with QoS 1 or 2: messages may wait at the broker.
    pub other_qos: bool,
    /// Whether its topic ids are uncertain.
    pub unclear: bool,
    /// Whether the broker has refused a message of it.
    pub refused: bool,
    /// Whether it publishes by a predefined id whose name is not known.
    pub unnamed: bool,
    /// The names of its registered ids.
    pub ids: HashMap<u16, Rc<str>>,
    id_counts: HashMap<Rc<str>, usize>,
    /// The ids by which the broker sends names to it; `None`: uncertain.
    pub told: HashMap<Rc<str>, Option<u16>>,
    /// REGISTERs of the broker that it has not answered: the id and the message id, by name.
    pub proposed: HashMap<Rc<str>, (u16, u16)>,
    /// The subscriptions that the broker has granted.
    pub subscriptions: Vec<Subscription>,
    pending: Vec<Pending>,
    answered: VecDeque<(u16, Request)>,
    /// Topics that it has published to or registered; when it last did so with QoS 1 or 2.
    pub publishes: HashMap<Topic, Option<u64>>,
    /// When it last published with QoS 1 or 2 before its last CONNECT.
    pub before_ns: Option<u64>,
    /// PINGREQs, its own and the controller's.
    pub pings: Pings,
}

impl Session {
    /// A client that sends its first CONNECT.
    #[must_use]
    pub fn new(as_said: Connect, now_ns: u64) -> Self {
        Self {
            keep_alive_ns: as_said.keep_alive_ns,
            as_said,
            connecting: None,
            asked_ns: now_ns,
            asks_in_vain: false,
            repeats: 0,
            connection: 0,
            state: State::New,
            since_ns: now_ns,
            heard_ns: now_ns,
            news: true,
            late: false,
            returned: false,
            looked_ns: 0,
            confirmed: false,
            proven: false,
            other_qos: false,
            unclear: false,
            refused: false,
            unnamed: false,
            ids: HashMap::new(),
            id_counts: HashMap::new(),
            told: HashMap::new(),
            proposed: HashMap::new(),
            subscriptions: Vec::new(),
            pending: Vec::new(),
            answered: VecDeque::new(),
            publishes: HashMap::new(),
            before_ns: None,
            pings: Pings::default(),
        }
    }

    /// Whether the answer to a CONNECT is newly found to be lost.
    pub fn gives_up_waiting(&mut self, now_ns: u64) -> bool {
        let is_over = self.waits() && now_ns.saturating_sub(self.asked_ns) >= REPEATS_NS;
        if is_over {
            self.asks_in_vain = true;
            self.changed();
        }
        is_over
    }

    /// Whether an answer to its CONNECT is awaited.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.connecting.is_some() && !self.asks_in_vain
    }

    /// When it last published with QoS 1 or 2, to any topic.
    #[must_use]
    pub fn other_ns(&self) -> Option<u64> {
        let others = self.publishes.values().copied();
        others.max().flatten().max(self.before_ns)
    }

    /// Its subscriptions, and those in unanswered requests.
    pub fn filters(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.iter().chain(self.awaited())
    }

    /// The subscriptions in unanswered requests.
    pub fn awaited(&self) -> impl Iterator<Item = &Subscription> {
        self.pending.iter().filter_map(|one| one.request.change())
    }

    /// Whether it is connected, by the broker's last answer, and awake.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == State::Active && !self.waits()
    }

    /// Whether the broker takes its address for proven. `served_ns`: when the broker last sent it a
    /// PUBLISH.
    #[must_use]
    pub fn is_proven(&self, served_ns: Option<u64>) -> bool {
        self.proven || served_ns > Some(self.since_ns)
    }

    /// A packet of it was seen at this time.
    pub fn hear(&mut self, at_ns: u64) {
        self.heard_ns = self.heard_ns.max(at_ns);
        self.news = true;
    }

    /// Something has changed. Only a PINGREQ that is sent from now on can confirm the client.
    pub fn changed(&mut self) {
        self.confirmed = false;
        self.news = true;
        self.pings.changed();
    }

    /// It sends CONNECT.
    pub fn connects(&mut self, now_ns: u64, new: Connect) {
        self.changed();
        (self.asked_ns, self.asks_in_vain) = (now_ns, false);
        self.connection = self.connection.wrapping_add(1);
        let is_over = now_ns.saturating_sub(self.since_ns) > REPEATS_NS;
        let repeats = if is_over { 0 } else { self.repeats };
        self.connecting = Some(match self.connecting.take() {
            None => (new, 1, repeats == 0),
            Some((old, count, same)) => {
                let same = same && old == new;
                (new, count.saturating_add(1), same)
            }
        });
    }

    /// Its packets cannot be followed: if the broker accepts its CONNECT, it becomes a stranger.
    pub fn is_lost_track_of(&mut self) {
        if let Some((_, _, is_same)) = &mut self.connecting {
            *is_same = false;
        }
    }

    /// The session after the broker has accepted a CONNECT. Requests since this CONNECT stay.
    #[must_use]
    pub fn accepted(&self, now_ns: u64, new: Connect, count: u32) -> Self {
        let pending = self.pending.iter();
        let pending = pending.filter(|one| one.connection == self.connection);
        Self {
            state: State::Active,
            repeats: count.saturating_sub(1),
            connection: self.connection,
            heard_ns: self.heard_ns,
            news: self.news,
            pending: pending.cloned().collect(),
            pings: self.pings.clone(),
            ..Self::new(new, now_ns)
        }
    }

    /// The broker has answered a CONNECT once more. Returns whether this surely changes nothing.
    #[must_use]
    pub fn accepted_again(&mut self) -> bool {
        let is_blank = self.subscriptions.is_empty() && self.ids.is_empty() && self.told.is_empty();
        let is_repeat = is_blank && self.repeats > 0 && self.connecting.is_none();
        self.repeats = self.repeats.saturating_sub(1);
        is_repeat
    }

    /// Note a request. Returns false if it cannot be followed.
    #[must_use]
    pub fn ask(&mut self, message_id: u16, request: Request) -> bool {
        let is_same = |one: &Pending| one.message_id == message_id && one.request == request;
        let mut alike = self.pending.iter().rev();
        let last = alike.find(|one| one.request.is_about(&request));
        if last.is_some_and(is_same) {
            return true;
        }
        // With a used message id, it would not be certain which request an answer is for.
        let is_used = self.pending.iter().any(|one| {
            one.message_id == message_id
                && std::mem::discriminant(&one.request) == std::mem::discriminant(&request)
                && one.request != request
        });
        let follows = !is_used && self.pending.len() < MOST_PENDING;
        if follows {
            let connection = self.connection;
            self.pending.push(Pending {
                message_id,
                request,
                connection,
            });
        }
        follows
    }

    /// Take the request of this kind that is answered.
    ///
    /// # Errors
    /// There is no such request. The value is true if this repeats the answer to an earlier
    /// request, and no later one is about the same filter.
    pub fn answer(
        &mut self,
        message_id: u16,
        is_kind: impl Fn(&Request) -> bool,
    ) -> Result<Request, bool> {
        let is_it = |one: &Pending| one.message_id == message_id && is_kind(&one.request);
        let Some(at) = self.pending.iter().position(is_it) else {
            let found = self
                .answered
                .iter()
                .rposition(|(id, one)| *id == message_id && is_kind(one));
            return Err(found.is_some_and(|at| self.is_last(at)));
        };
        let Pending { request, .. } = self.pending.remove(at);
        // The broker has processed earlier requests about the same filter, or never got them.
        if request.change().is_some() {
            let later = self.pending.split_off(at);
            self.pending.retain(|one| !one.request.is_about(&request));
            self.pending.extend(later);
        }
        if self.answered.len() >= REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back((message_id, request.clone()));
        Ok(request)
    }

    /// Whether no request about the same filter has followed.
    fn is_last(&self, at: usize) -> bool {
        let Some((_, request)) = self.answered.get(at) else {
            return false;
        };
        let mut later = self.answered.iter().skip(at + 1);
        request.change().is_none_or(|filter| {
            !later.any(|(_, one)| one.is_about(request)) && !self.awaited().any(|one| one == filter)
        })
    }

    /// An id has been registered for a name.
    pub fn agree(&mut self, id: u16, name: &Rc<str>) {
        match self.ids.get(&id) {
            Some(old) if old == name => {}
            Some(_) => self.unclear = true,
            None if self.ids.len() >= MOST_NAMES => self.unclear = true,
            None => {
                self.ids.insert(id, Rc::clone(name));
                *self.id_counts.entry(Rc::clone(name)).or_default() += 1;
            }
        }
    }

    /// How many ids a name has.
    #[must_use]
    pub fn ids_of(&self, name: &str) -> usize {
        self.id_counts.get(name).copied().unwrap_or(0)
    }

    /// The broker has stated the id by which it sends a name. After two different ones it is
    /// uncertain.
    pub fn tell(&mut self, id: u16, name: &Rc<str>) {
        self.agree(id, name);
        if self.told.len() >= MOST_NAMES {
            self.unclear = true;
            return;
        }
        let told = self.told.entry(Rc::clone(name)).or_insert(Some(id));
        if *told != Some(id) {
            *told = None;
        }
    }

    /// Whether the broker may have ended its session.
    #[must_use]
    pub fn is_overdue(&self, now_ns: u64) -> bool {
        // for clients without a keep-alive, which only some brokers end
        const WITHOUT_NS: u64 = 3_600_000_000_000;
        let limit_ns = match self.keep_alive_ns {
            0 => WITHOUT_NS,
            keep_alive_ns => keep_alive_ns,
        };
        now_ns.saturating_sub(self.heard_ns) > limit_ns
    }

    /// Whether the broker must have ended its session: no broker's tolerance is more than half the
    /// keep-alive.
    #[must_use]
    pub fn is_gone(&self, now_ns: u64) -> bool {
        const MARGIN_NS: u64 = 10_000_000_000;
        let longest_ns = self.keep_alive_ns.saturating_mul(2) + MARGIN_NS;
        self.keep_alive_ns > 0 && now_ns.saturating_sub(self.heard_ns) > longest_ns
    }
}
