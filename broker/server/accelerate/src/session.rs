//! What the controller knows of one client of the broker.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use mqtick_sn::Topic;

/// Requests of one client that the broker has not answered: more are not followed.
pub const MOST_PENDING: usize = 64;
const REMEMBERED: usize = 16; // answers, for requests that were sent again

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

/// By which id the broker sends a name to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// By this one.
    Id(u16),
    /// It proposed one in the message with this identifier; the client has not answered.
    Asked(u16, u16),
    /// Not to be said.
    Unclear,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// CONNECT was seen, CONNACK was not.
    Connecting {
        /// Whether there was a session at this address before.
        again: bool,
    },
    /// It gets messages at once.
    Active,
    /// It gets them when it asks; so many DISCONNECT are still to be answered.
    Asleep(u32),
    /// It has said DISCONNECT, the broker has not.
    Leaving,
}

/// One client.
#[derive(Debug)]
pub struct Session {
    /// What it calls itself.
    pub id: Rc<str>,
    /// Whether its subscriptions end with its connection.
    pub clean: bool,
    /// Where it stands.
    pub state: State,
    /// It resumes what was to end with the connection before: brokers differ.
    pub mixed: bool,
    /// Within what time the broker wants to hear from it; 0: ever.
    pub keep_alive_ns: u64,
    /// Whether a broker that was restarted, or does not answer, may have forgotten it.
    pub doubt: bool,
    /// When it was last heard.
    pub heard_ns: u64,
    /// Whether that is longer ago than its keep-alive.
    pub late: bool,
    /// When the data plane was last asked when it was heard.
    pub looked_ns: u64,
    /// What it may publish to, by agreed ids.
    pub ids: HashMap<u16, Rc<str>>,
    /// By what ids names are sent to it.
    pub told: HashMap<Rc<str>, Told>,
    /// In the order in which they were granted.
    pub subscriptions: Vec<Subscription>,
    /// What the broker has not answered yet.
    pub pending: Vec<(u16, Request)>,
    answered: VecDeque<(u16, Request)>,
    /// Topics that it has published to, or said that it will.
    pub publishes: Vec<Topic>,
    /// PINGREQ that are not answered, ours and its own.
    pub pings: u32,
    /// When the last one was sent.
    pub asked_ns: u64,
    /// Whether one of them is ours, and not answered.
    pub ours: bool,
    /// When ours was sent last.
    pub pinged_ns: Option<u64>,
    /// Tries to open a rule that failed, one after another.
    pub tries: u32,
    /// What its rules copied when ours was sent last.
    pub fast_then: u64,
    /// All publishes that its rules saw.
    pub seen_then: u64,
}

impl Session {
    /// A client that says CONNECT.
    #[must_use]
    pub fn new(id: Rc<str>, clean: bool, keep_alive_ns: u64, now_ns: u64) -> Self {
        Self {
            id,
            clean,
            state: State::Connecting { again: false },
            mixed: false,
            keep_alive_ns,
            doubt: false,
            heard_ns: now_ns,
            looked_ns: 0,
            late: false,
            ids: HashMap::new(),
            told: HashMap::new(),
            subscriptions: Vec::new(),
            pending: Vec::new(),
            answered: VecDeque::new(),
            publishes: Vec::new(),
            pings: 0,
            asked_ns: 0,
            ours: false,
            pinged_ns: None,
            tries: 0,
            fast_then: 0,
            seen_then: 0,
        }
    }

    /// What it is subscribed to, and what it asks for.
    pub fn filters(&self) -> impl Iterator<Item = &Subscription> {
        let requests = self.pending.iter().map(|(_, request)| request);
        self.subscriptions
            .iter()
            .chain(requests.filter_map(Request::changes))
    }

    /// Whether it is not to be said what is left of it after a CONNECT.
    #[must_use]
    pub fn mixes(&self, clean: bool) -> bool {
        self.clean && !clean && !self.subscriptions.is_empty()
    }

    /// Note a request; whether it can be followed.
    #[must_use]
    pub fn ask(&mut self, message_id: u16, request: Request) -> bool {
        let is_same = |(id, one): &&(u16, Request)| *id == message_id && *one == request;
        if self.pending.iter().any(|one| is_same(&one)) {
            return true;
        }
        // Whose answer the next one with this identifier is could not be said.
        let is_used = self.pending.iter().any(|(id, one)| {
            *id == message_id && one.changes().is_some() == request.changes().is_some()
        });
        let follows = !is_used && self.pending.len() < MOST_PENDING;
        if follows {
            self.pending.push((message_id, request));
        }
        follows
    }

    /// Take the request of this kind that is answered; `Err`: none waited.
    ///
    /// # Errors
    /// Whether it is an answer to a request that was sent again.
    pub fn answer(
        &mut self,
        message_id: u16,
        is_kind: impl Fn(&Request) -> bool,
    ) -> Result<Request, bool> {
        let is_it = |(id, request): &(u16, Request)| *id == message_id && is_kind(request);
        let Some(at) = self.pending.iter().position(is_it) else {
            return Err(self.answered.iter().any(is_it));
        };
        let (id, request) = self.pending.remove(at);
        // The broker served, or never got, what came before about the same filter.
        if let Some(subscription) = request.changes().cloned() {
            let mut place = 0;
            self.pending.retain(|(_, one)| {
                place += 1;
                place > at || one.changes() != Some(&subscription)
            });
        }
        if self.answered.len() >= REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back((id, request.clone()));
        Ok(request)
    }

    /// An id and a name belong together from now on.
    pub fn agree(&mut self, id: u16, name: &Rc<str>) {
        if let Some(old) = self.ids.insert(id, Rc::clone(name))
            && old != *name
            && self.told.get(&old) == Some(&Told::Id(id))
        {
            self.told.remove(&old);
        }
    }

    /// What depends on a connection is over.
    pub fn forget_connection(&mut self) {
        self.ids.clear();
        self.told.clear();
        self.pending.clear();
        self.answered.clear();
        self.publishes.clear();
        (self.tries, self.fast_then, self.seen_then) = (0, 0, 0);
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
