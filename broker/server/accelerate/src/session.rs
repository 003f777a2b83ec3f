//! What the controller knows of one client of the broker.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::pings::Pings;
use crate::plane::Topic;

/// Requests of one client that the broker has not answered: more are not followed.
pub const MOST_PENDING: usize = 64;
/// Subscriptions, and names, of one client.
pub const MOST_NAMES: usize = 1024;
const REMEMBERED: usize = 16; // answers, for requests that were sent again
const REPEATS_NS: u64 = 60_000_000_000; // so long a CONNECT that was sent again may be answered

/// How a subscription names its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// By name, with or without wildcards.
    Name,
    /// By a number agreed on before.
    Predefined(u16),
    /// By two octets.
    Short,
}

/// A subscription; no text: a predefined number whose name nobody told us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// What it matches.
    pub filter: Option<Rc<str>>,
    /// How it says so.
    pub named: Named,
}

/// What a client wants of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// An id for a name.
    Register(Rc<str>),
    /// A subscription.
    Subscribe(Subscription),
    /// Its end.
    Unsubscribe(Subscription),
}

impl Request {
    /// The subscription that it changes.
    #[must_use]
    pub fn changes(&self) -> Option<&Subscription> {
        match self {
            Self::Register(_) => None,
            Self::Subscribe(one) | Self::Unsubscribe(one) => Some(one),
        }
    }
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The broker has not accepted it yet.
    New,
    /// It gets messages at once.
    Active,
    /// It sleeps or goes; so many DISCONNECT are not answered.
    Away {
        /// Whether the last of them was a good-bye.
        leaving: bool,
        /// How many.
        open: u32,
    },
}

/// A CONNECT that is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    /// What the client calls itself.
    pub id: Rc<str>,
    /// Whether it wants nothing of before, and leaves nothing.
    pub clean: bool,
    /// Within what time the broker wants to hear from it; 0: ever.
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
    /// How it connected last, and was accepted.
    pub as_said: Connect,
    /// How it wants to connect now, how often it said so, and whether always the same.
    pub connecting: Option<(Connect, u32, bool)>,
    repeats: u32, // answers to CONNECT that may still come
    connection: u32,
    /// Where it stands.
    pub state: State,
    /// When the broker accepted it.
    pub since_ns: u64,
    /// Within what time the broker wants to hear from it; 0: ever.
    pub keep_alive_ns: u64,
    /// When it was last heard.
    pub heard_ns: u64,
    /// Whether that has become known since the last PINGREQ in its name, whenever it was.
    pub news: bool,
    /// Whether that is longer ago than its keep-alive.
    pub late: bool,
    /// When the data plane was last asked when it was heard.
    pub looked_ns: u64,
    /// Whether the broker has answered a PINGREQ since anything changed: it knows this client, and
    /// nothing of before waits for it.
    pub confirmed: bool,
    /// Whether it has answered what the broker sent to its address.
    pub proven: bool,
    /// Whether it asked for messages of QoS 1 or 2: they may wait at the broker.
    pub other_qos: bool,
    /// Whether its topic ids are not to be said.
    pub unclear: bool,
    /// Whether the broker refused a publish.
    pub refused: bool,
    /// Whether it publishes by a predefined id without a name.
    pub unnamed: bool,
    /// What it may publish to, by agreed ids.
    pub ids: HashMap<u16, Rc<str>>,
    id_counts: HashMap<Rc<str>, usize>,
    /// By what ids names are sent to it; None: not to be said.
    pub told: HashMap<Rc<str>, Option<u16>>,
    /// The id that the broker proposed for a name, in which message, and which was not answered.
    pub proposed: HashMap<Rc<str>, (u16, u16)>,
    /// What the broker has granted.
    pub subscriptions: Vec<Subscription>,
    pending: Vec<Pending>,
    answered: VecDeque<(u16, Request)>,
    /// Topics that it has published to, or said that it will; when with another QoS than 0.
    pub publishes: HashMap<Topic, Option<u64>>,
    /// What its PINGREQ say.
    pub pings: Pings,
}

impl Session {
    /// A client that says CONNECT.
    #[must_use]
    pub fn new(as_said: Connect, now_ns: u64) -> Self {
        Self {
            keep_alive_ns: as_said.keep_alive_ns,
            as_said,
            connecting: None,
            repeats: 0,
            connection: 0,
            state: State::New,
            since_ns: now_ns,
            heard_ns: now_ns,
            news: true,
            late: false,
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
            pings: Pings::default(),
        }
    }

    /// What it is subscribed to, and what it asks for.
    pub fn filters(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.iter().chain(self.awaited())
    }

    /// The subscriptions that requests without an answer change.
    pub fn awaited(&self) -> impl Iterator<Item = &Subscription> {
        self.pending.iter().filter_map(|one| one.request.changes())
    }

    /// Whether it gets and sends messages, as far as the broker has said.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == State::Active && self.connecting.is_none()
    }

    /// Whether the broker knows that it is at its address. `served_ns`: when it last sent it a PUBLISH.
    #[must_use]
    pub fn is_proven(&self, served_ns: Option<u64>) -> bool {
        self.proven || served_ns > Some(self.since_ns)
    }

    /// It was heard at this time.
    pub fn hear(&mut self, at_ns: u64) {
        self.heard_ns = self.heard_ns.max(at_ns);
        self.news = true;
    }

    /// Only a later PINGREQ shows that nothing waits for it.
    pub fn changed(&mut self) {
        self.confirmed = false;
        self.pings.changed();
    }

    /// It says CONNECT.
    pub fn connects(&mut self, now_ns: u64, new: Connect) {
        self.changed();
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

    /// The broker has accepted it: what it is from now on. Requests since its CONNECT stay.
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

    /// The broker answers a CONNECT once more; whether that changes nothing.
    #[must_use]
    pub fn accepted_again(&mut self) -> bool {
        let is_blank = self.subscriptions.is_empty() && self.ids.is_empty() && self.told.is_empty();
        let is_repeat = is_blank && self.repeats > 0 && self.connecting.is_none();
        self.repeats = self.repeats.saturating_sub(1);
        is_repeat
    }

    /// Note a request; whether it can be followed.
    #[must_use]
    pub fn ask(&mut self, message_id: u16, request: Request) -> bool {
        let is_same = |one: &Pending| one.message_id == message_id && one.request == request;
        let mut alike = self.pending.iter().rev();
        let last = alike.find(|one| one.request.changes() == request.changes());
        if last.is_some_and(is_same) {
            return true;
        }
        // Whose answer the next one with this identifier is could not be said.
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

    /// Take the request of this kind that is answered; `Err`: none waited.
    ///
    /// # Errors
    /// Whether it answers the last request about its filter, which was answered before.
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
        // The broker served, or never got, what came before about the same filter.
        if let Some(subscription) = request.changes() {
            let mut place = 0;
            self.pending.retain(|one| {
                place += 1;
                place > at || one.request.changes() != Some(subscription)
            });
        }
        if self.answered.len() >= REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back((message_id, request.clone()));
        Ok(request)
    }

    /// Whether nothing was asked about the same filter since.
    fn is_last(&self, at: usize) -> bool {
        let Some((_, request)) = self.answered.get(at) else {
            return false;
        };
        let Some(filter) = request.changes() else {
            return true;
        };
        let mut later = self.answered.iter().skip(at + 1);
        !later.any(|(_, one)| one.changes() == Some(filter))
            && !self.awaited().any(|one| one == filter)
    }

    /// An id and a name belong together from now on.
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

    /// The broker has told by which id it sends a name: two of them, and it is not to be said.
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

    /// Whether the broker may have given it up.
    #[must_use]
    pub fn is_overdue(&self, now_ns: u64) -> bool {
        const WITHOUT_NS: u64 = 3_600_000_000_000; // some brokers give up who states none, others do not
        let limit_ns = match self.keep_alive_ns {
            0 => WITHOUT_NS,
            keep_alive_ns => keep_alive_ns,
        };
        now_ns.saturating_sub(self.heard_ns) > limit_ns
    }

    /// Whether the broker must have given it up: no tolerance is above half of the keep-alive.
    #[must_use]
    pub fn is_gone(&self, now_ns: u64) -> bool {
        const MARGIN_NS: u64 = 10_000_000_000;
        let longest_ns = self.keep_alive_ns.saturating_mul(2) + MARGIN_NS;
        self.keep_alive_ns > 0 && now_ns.saturating_sub(self.heard_ns) > longest_ns
    }
}
