//! What the controller knows of one client of the broker.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use crate::lease::{Lease, PATIENCE_NS, Stage};
use crate::names::matches;
use crate::pings::Pings;
use crate::plane::Topic;

/// Requests of one client that the broker has not answered: more are not followed.
pub const MOST_PENDING: usize = 64;
/// Subscriptions, and names, of one client.
pub const MOST_NAMES: usize = 1024;
/// A broker may hold a message of QoS 2 back until PUBREL, and ask for that as long as a minute; data planes
/// tell of one in a second.
pub const OTHER_QOS_NS: u64 = 61_000_000_000;
const REMEMBERED: usize = 16; // answers, for requests that were sent again
const REPEATS_NS: u64 = 60_000_000_000; // so long a CONNECT may be answered

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
    /// Subscriptions: one of MQTT-SN, some of mqtt-udp.
    Subscribe(Vec<Subscription>),
    /// Their end.
    Unsubscribe(Vec<Subscription>),
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
    /// The subscriptions that it changes.
    #[must_use]
    pub fn changes(&self) -> &[Subscription] {
        match self {
            Self::Register(_) => &[],
            Self::Subscribe(some) | Self::Unsubscribe(some) => some,
        }
    }

    /// Whether it changes one that the other changes, or both are about ids.
    fn is_about(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.changes(), other.changes());
        ours.iter().any(|one| theirs.contains(one)) || ours.is_empty() && theirs.is_empty()
    }

    /// Nothing is asked any more of what another request changes later.
    fn forget(&mut self, later: &Self) {
        if let Self::Subscribe(some) | Self::Unsubscribe(some) = self {
            some.retain(|one| !later.changes().contains(one));
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

impl Connect {
    /// That of a client without a name.
    #[must_use]
    pub fn nobodys() -> Self {
        Self {
            id: Rc::from(""),
            clean: true,
            keep_alive_ns: 0,
        }
    }
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
    asked_ns: u64,      // when it said CONNECT last
    asks_in_vain: bool, // that was too long ago for an answer
    repeats: u32,       // answers to CONNECT that may still come
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
    /// Whether it was, and the broker has not answered it since: it may have been given up meanwhile.
    pub returned: bool,
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
    /// The same of whatever it published before it connected.
    pub before_ns: Option<u64>,
    /// What its PINGREQ say, and ours; over mqtt-udp our questions.
    pub pings: Pings,
    /// Of mqtt-udp.
    pub lease: Option<Lease>,
}

impl Session {
    /// A client that says CONNECT.
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
            lease: None,
        }
    }

    /// Who talks mqtt-udp, and has no lease that we know of.
    #[must_use]
    pub fn without_lease(now_ns: u64) -> Self {
        Self {
            lease: Some(Lease::default()),
            ..Self::new(Connect::nobodys(), now_ns)
        }
    }

    /// What its session is known by after it: not by an address.
    #[must_use]
    pub fn id(self) -> Option<Rc<str>> {
        self.lease.is_none().then_some(self.as_said.id)
    }

    /// Its lease is over; what it was subscribed to, or wanted to be.
    #[must_use]
    pub fn loses_lease(&mut self) -> Vec<Rc<str>> {
        let filters = self.filters().filter_map(|one| one.filter.clone());
        let filters = filters.collect();
        self.subscriptions.clear();
        self.pending.clear();
        self.answered.clear();
        (self.state, self.connecting, self.repeats) = (State::New, None, 0);
        (self.late, self.unclear) = (false, false);
        if let Some(lease) = &mut self.lease {
            lease.ends();
        }
        self.changed();
        filters
    }

    /// The broker answers as it does whom it has a lease of; whether we know of that lease.
    #[must_use]
    pub fn is_answered(&mut self, now_ns: u64) -> bool {
        let Some(lease) = &mut self.lease else {
            return false;
        };
        match lease.stage {
            Stage::Held => lease.is_there(now_ns),
            // What could not be read may have been a SUBSCRIBE.
            Stage::Proven if lease.is_new && !lease.unread => {
                lease.stage = Stage::Held;
                self.state = State::Active;
                // What was asked before the proof has been answered, or will never be.
                self.pings.forget();
            }
            Stage::Unknown | Stage::Absent | Stage::Proven => return false,
        }
        self.hear(now_ns);
        true
    }

    /// It says CONNECT over mqtt-udp.
    pub fn connects_by_udp(&mut self, now_ns: u64, new: Connect, own_ns: Option<u64>) {
        self.changed();
        (self.asked_ns, self.asks_in_vain) = (now_ns, false);
        if let Some(lease) = &mut self.lease {
            lease.lengths.insert(length_ns(&new, own_ns));
        }
        self.connecting = Some(match self.connecting.take() {
            None => {
                let is_same = self.repeats == 0 || new == self.as_said;
                (new, 1, is_same)
            }
            Some((old, count, same)) => {
                let same = same && old == new;
                (new, count.saturating_add(1), same)
            }
        });
    }

    /// The broker of mqtt-udp has accepted a CONNECT, which removes nothing; whether that can be followed.
    #[must_use]
    pub fn accepted_by_udp(&mut self, own_ns: Option<u64>) -> bool {
        let Some((new, count, is_same)) = self.connecting.take() else {
            let is_repeat = self.repeats > 0;
            self.repeats = self.repeats.saturating_sub(1);
            return is_repeat;
        };
        self.repeats = self.repeats.saturating_add(count - 1);
        self.state = State::Active;
        if let Some(lease) = &mut self.lease {
            lease.lengths = BTreeSet::from([length_ns(&new, own_ns)]);
        }
        self.as_said = new;
        is_same
    }

    /// Whether a CONNECT is to be waited for no longer, which was not said before: it, or its answer, was lost.
    /// Over mqtt-udp it changes nothing but how long the lease is.
    pub fn gives_up_waiting(&mut self, now_ns: u64) -> bool {
        let patience_ns = match &self.lease {
            None => REPEATS_NS,
            Some(lease) if lease.stage == Stage::Held => PATIENCE_NS,
            Some(_) => return false,
        };
        let is_over = self.waits() && now_ns.saturating_sub(self.asked_ns) >= patience_ns;
        if is_over {
            self.asks_in_vain = true;
            self.changed();
        }
        is_over
    }

    /// Whether an answer to its CONNECT is waited for.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.connecting.is_some() && !self.asks_in_vain
    }

    /// When it last published with another QoS than 0, to whatever topic.
    #[must_use]
    pub fn other_ns(&self) -> Option<u64> {
        let others = self.publishes.values().copied();
        others.max().flatten().max(self.before_ns)
    }

    /// Whether the broker has sent a challenge, and nothing for a while that shows that it was a test.
    #[must_use]
    pub fn is_refuted(&mut self, now_ns: u64) -> bool {
        let challenged = self.lease.as_ref().and_then(|one| one.challenged);
        let Some((count, since_ns)) = challenged else {
            return false;
        };
        let is_over = now_ns.saturating_sub(since_ns) >= PATIENCE_NS;
        if is_over {
            self.pings.answered_late(count);
        }
        is_over
    }

    /// Whether an answer is missing: the broker may have forgotten it, and is to be asked.
    pub fn misses_an_answer(&mut self, now_ns: u64) -> bool {
        let Some(lease) = &mut self.lease else {
            return false;
        };
        let is_missing = lease.misses_an_answer(now_ns);
        if is_missing {
            self.changed();
        }
        is_missing
    }

    /// What it is subscribed to, and what it asks for.
    pub fn filters(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.iter().chain(self.awaited())
    }

    /// The subscriptions that requests without an answer change.
    pub fn awaited(&self) -> impl Iterator<Item = &Subscription> {
        self.pending.iter().flat_map(|one| one.request.changes())
    }

    /// Whether it gets and sends messages, as far as the broker has said.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state == State::Active && !self.waits()
    }

    /// Whether the broker knows that it is at its address. `served_ns`: when it last sent it a PUBLISH.
    #[must_use]
    pub fn is_proven(&self, served_ns: Option<u64>) -> bool {
        self.proven || served_ns > Some(self.since_ns)
    }

    /// Whether its lease may have ended, which nobody says.
    #[must_use]
    pub fn may_be_over(&self) -> bool {
        self.lease.is_some() && (self.late || matches!(self.state, State::Away { .. }))
    }

    /// When its lease ends, at the soonest.
    #[must_use]
    pub fn end_ns(&self) -> Option<u64> {
        self.lease.as_ref()?.end_ns()
    }

    /// It was heard at this time.
    pub fn hear(&mut self, at_ns: u64) {
        self.heard_ns = self.heard_ns.max(at_ns);
        self.news = true;
    }

    /// Only a later PINGREQ shows that nothing waits for it; one may have left since it was heard.
    pub fn changed(&mut self) {
        self.confirmed = false;
        self.news = true;
        self.pings.changed();
    }

    /// It says CONNECT.
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

    /// It has said more than can be followed: if the broker accepts it, it is a stranger.
    pub fn is_lost_track_of(&mut self) {
        if let Some((_, _, is_same)) = &mut self.connecting {
            *is_same = false;
        }
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
        let last = alike.find(|one| one.request.is_about(&request));
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
        if !request.changes().is_empty() {
            for earlier in self.pending.iter_mut().take(at) {
                earlier.request.forget(&request);
            }
            let is_about = |one: &Pending| match one.request {
                Request::Register(_) => true,
                _ => !one.request.changes().is_empty(),
            };
            self.pending.retain(is_about);
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
        let filters = request.changes();
        let mut later = self.answered.iter().skip(at + 1);
        filters.is_empty()
            || !later.any(|(_, one)| one.is_about(request))
                && !self.awaited().any(|one| filters.contains(one))
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
        if let Some(lease) = &self.lease {
            return lease.is_over(now_ns);
        }
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
        if let Some(lease) = &self.lease {
            return lease.is_gone(now_ns, self.heard_ns);
        }
        const MARGIN_NS: u64 = 10_000_000_000;
        let longest_ns = self.keep_alive_ns.saturating_mul(2) + MARGIN_NS;
        self.keep_alive_ns > 0 && now_ns.saturating_sub(self.heard_ns) > longest_ns
    }
}

/// How long a lease of mqtt-udp is after this CONNECT, if the broker takes it. `own_ns`: what it does without.
fn length_ns(connect: &Connect, own_ns: Option<u64>) -> Option<u64> {
    match connect.keep_alive_ns {
        0 => own_ns,
        keep_alive_ns => Some(keep_alive_ns / 2 * 3),
    }
}
