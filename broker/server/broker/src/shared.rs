//! What all workers share.

use crate::batch::Peer;
use crate::calendar::Calendar;
use crate::calls::Calls;
use crate::gateway::{Counters as Upstream, Secrets};
use crate::journal::{Journal, from_store, to_store, wall_s};
use crate::memory;
use crate::message::{Kept, Message};
use crate::offload::OffloadChannel;
use crate::retained::{AllRetained, Retained, Source};
use crate::session::{Bounds, DeliveryContext, Session, State, Subscription, session_change};
use crate::settings::{Mode, Settings};
use crate::sync::lock;
use crate::tally::Tally;
use crate::udp::DatagramSocket;
use arc_swap::ArcSwap;
use mqtick_access::{Action, Passwords, Rules};
use mqtick_net::poller::Poller;
use mqtick_net::residence::Arrived;
use mqtick_packet::Qos;
use mqtick_sn::Seat;
use mqtick_store::{Change, KeptSession, Store};
use mqtick_topics::{Match, Tree, matches};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::atomic::{
    AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const COMPLAINTS: u64 = 10; // lines in the log in a second
const SYS_S: u64 = 10;
const URGENT_S: u64 = 3600;
/// Passwords that may wait to be checked.
pub const CHECKS: usize = 512;
const SIFTED: usize = 1024; // retained messages that are looked at under one lock
const PARTS: usize = 4096; // parts of fan-outs that may wait for a worker

/// All subscriptions.
pub type Subscriptions = Tree<u64, Subscription>;

/// Sessions by the client's identifier.
pub type Sessions = HashMap<Box<str>, Arc<Session>>;

/// Passwords and access rules.
pub struct Access {
    /// None: passwords are not asked for.
    pub passwords: Option<Passwords>,
    /// The rules for topics.
    pub rules: Rules,
    /// Whether a client may connect without a user name.
    pub anonymous: bool,
}

impl Access {
    /// Whether a user has the same password as before.
    pub fn knows_as(&self, before: &Self, user: &str) -> bool {
        match (&self.passwords, &before.passwords) {
            (Some(now), Some(before)) => now.knows_as(before, user),
            (now, _) => now.is_none(),
        }
    }
}

/// How copies of one topic's messages leave.
#[derive(Clone, Copy, Default)]
pub struct DeliveryPolicy {
    /// When, and in which order.
    pub mode: Mode,
    /// Whether each states its residence.
    pub residence: bool,
}

/// A part of a fan-out that another worker delivers.
pub struct Part {
    /// All subscribers of the topic.
    pub subscriptions: Arc<[Subscription]>,
    /// The message.
    pub message: Arc<Kept>,
    /// When it came, if its copies state their residence.
    pub arrived: Option<Arrived>,
    /// The number of the publisher's session; 0: none.
    pub publisher: u64,
}

/// What another thread asks a worker to do.
pub enum Call {
    /// Deliver a part of a fan-out.
    Deliver(Part),
    /// A password was checked.
    Checked {
        /// The connection's token.
        token: u64,
        /// Whether it is right.
        right: bool,
        /// By which passwords.
        by: Arc<Access>,
    },
    /// End all connections, one after another, and then the worker.
    Stop {
        /// How long that may take.
        over: Duration,
    },
    /// Judge all connections: passwords and access rules have changed.
    Judge {
        /// What they were.
        before: Arc<Access>,
    },
    /// The upstream's name was looked up: its addresses, or why there are none.
    Found(Result<Vec<SocketAddr>, String>),
    /// Panic.
    #[cfg(test)]
    Fail,
}

/// A password to check in the thread for passwords.
pub struct Check {
    /// The user name of the CONNECT.
    pub user: Box<str>,
    /// The password of the CONNECT.
    pub password: Box<[u8]>,
    /// The worker that waits for the answer.
    pub worker: usize,
    /// The connection that waits for the answer.
    pub token: u64,
    /// The client's address; none: this host.
    pub from: Option<IpAddr>,
}

/// How a worker is called.
pub struct Caller {
    /// The worker's poller.
    pub poller: Arc<Poller>,
    calls: Calls<Call>,
    alive_s: AtomicU64,
}

/// While this lives, the other workers do not wake up for connections whose copies are stamped.
pub struct WakeBarrier {
    shared: Arc<Shared>,
    worker: usize, // the one that sends
}

impl WakeBarrier {
    fn others(&self) -> impl Iterator<Item = &Poller> {
        let callers = self.shared.callers.iter().enumerate();
        let others = callers.filter(|(number, _)| *number != self.worker);
        others.map(|(_, caller)| &*caller.poller)
    }
}

impl Drop for WakeBarrier {
    fn drop(&mut self) {
        self.others().for_each(Poller::lower_barrier);
    }
}

/// What has happened since the start.
#[derive(Default)]
pub struct Counters {
    /// Connections that were accepted.
    pub accepted: AtomicU64,
    /// Connections that were refused, before or at CONNECT.
    pub refused: AtomicU64,
    /// Messages that have come from clients.
    pub received: AtomicU64,
    /// Copies that were sent to a client.
    pub sent: AtomicU64,
    /// Copies for which there was no room.
    pub dropped: AtomicU64,
    /// Octets that have come.
    pub octets: AtomicU64,
    /// Clients that are connected.
    pub connected: AtomicUsize,
    /// How often a worker has failed and begun anew.
    pub restarts: AtomicU64,
}

/// The broker, as its threads see it.
pub struct Shared {
    /// The configuration.
    pub settings: Settings,
    /// What one client may make the broker keep.
    pub bounds: Bounds,
    /// All subscriptions; readers take no lock.
    pub tree: ArcSwap<Subscriptions>,
    /// Passwords and access rules.
    pub access: ArcSwap<Access>,
    /// The counters.
    pub counters: Counters,
    /// The counters by reason and transport.
    pub tally: Arc<Tally>,
    /// The workers.
    pub callers: Vec<Caller>,
    /// The socket of mqtt-udp, if that is on.
    pub datagrams: Option<Arc<DatagramSocket>>,
    /// The socket of MQTT-SN, if that is on.
    pub sensors: Option<Arc<DatagramSocket>>,
    /// The connection to `mqtick-accelerate`.
    pub offload: OffloadChannel,
    /// The counters of a gateway's upstream.
    pub upstream: Upstream,
    /// A gateway's password and configuration of TLS for its upstream.
    pub secrets: OnceLock<Secrets>,
    /// Sessions by the client's identifier.
    sessions: Mutex<Sessions>,
    /// When sessions are over whose clients are away, and when their wills are due.
    pub calendar: Calendar,
    retained: Mutex<AllRetained>,
    changing: Mutex<()>,
    changes: AtomicU64,
    urgent_s: AtomicU64,
    journal: OnceLock<Arc<Journal>>,
    next_session: AtomicU64,
    checks: SyncSender<Check>,
    waiting: Mutex<HashMap<Option<IpAddr>, usize>>,
    policies: Tree<usize, DeliveryPolicy>,
    told: Mutex<(u64, u64)>,
    start: Instant,
    began_s: u64,
    ahead_s: AtomicI64, // how much the system's clock is ahead of the broker's
}

impl Shared {
    /// A broker for tests, in which every client may do everything.
    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    pub(crate) fn alone(settings: Settings, sensors: Option<Arc<DatagramSocket>>) -> Arc<Self> {
        let access = Access {
            passwords: None,
            rules: mqtick_access::Rules::open(),
            anonymous: true,
        };
        let (checks, _) = std::sync::mpsc::sync_channel(1);
        Arc::new(Self::new(settings, access, checks, None, sensors).unwrap())
    }

    /// A broker without sessions. `checks` leads to the thread that checks passwords.
    pub fn new(
        settings: Settings,
        access: Access,
        checks: SyncSender<Check>,
        datagrams: Option<Arc<DatagramSocket>>,
        sensors: Option<Arc<DatagramSocket>>,
    ) -> nix::Result<Self> {
        memory::limit_to(match settings.limits.memory {
            0 => memory::usual_limit(),
            octets => octets,
        });
        let threads = settings.threads();
        let caller = |_| {
            Poller::new().map(|poller| Caller {
                poller: Arc::new(poller),
                calls: Calls::new(),
                alive_s: AtomicU64::new(0),
            })
        };
        let most_retained = settings.limits.retained_messages;
        let by_account = access.passwords.is_some() || settings.names_by_certificate();
        let mut policies = Tree::new();
        for (place, rule) in settings.delivery.topic.iter().enumerate().rev() {
            policies.subscribe(
                &rule.filter,
                place,
                DeliveryPolicy {
                    mode: rule.mode,
                    residence: rule.residence,
                },
            );
        }
        Ok(Self {
            policies,
            told: Mutex::default(),
            bounds: Bounds {
                octets: settings.limits.queue,
                messages: settings.limits.queue_messages,
                window: settings.limits.inflight,
            },
            settings,
            tree: ArcSwap::from_pointee(Tree::new()),
            access: ArcSwap::from_pointee(access),
            counters: Counters::default(),
            tally: Arc::default(),
            callers: (0..threads).map(caller).collect::<nix::Result<_>>()?,
            sessions: Mutex::default(),
            calendar: Calendar::default(),
            retained: Mutex::new(AllRetained::new(most_retained, by_account)),
            changing: Mutex::default(),
            changes: AtomicU64::new(0),
            urgent_s: AtomicU64::new(0),
            journal: OnceLock::new(),
            next_session: AtomicU64::new(1),
            checks,
            datagrams,
            sensors,
            offload: OffloadChannel::default(),
            upstream: Upstream::default(),
            secrets: OnceLock::new(),
            waiting: Mutex::default(),
            start: Instant::now(),
            began_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |since| since.as_secs()),
            ahead_s: AtomicI64::new(0),
        })
    }

    /// The broker's clock: Unix seconds at its start, and what has passed since, also if the
    /// system's clock is set. Expiry times are of this clock.
    pub fn now_s(&self) -> u64 {
        self.began_s + self.up_s()
    }

    /// The same clock, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.began_s * 1000 + u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Seconds since the start.
    pub fn up_s(&self) -> u64 {
        self.start.elapsed().as_secs()
    }

    /// The way to the store, if there is one.
    pub fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.get()
    }

    /// Whether the system's clock was set by a minute or more since the last call. Then the times
    /// at which clients have left are wrong in the store.
    pub fn is_clock_set(&self, now_s: u64) -> bool {
        let ahead_s = wall_s().wrapping_sub(now_s).cast_signed();
        let is_set = ahead_s.abs_diff(self.ahead_s.load(Relaxed)) >= 60;
        if is_set {
            self.ahead_s.store(ahead_s, Relaxed);
        }
        is_set
    }

    /// A worker is alive. It calls this once a second.
    pub fn alive(&self, worker: usize) {
        if let Some(caller) = self.callers.get(worker) {
            caller.alive_s.store(self.now_s(), Relaxed);
        }
    }

    /// Whether each worker has called `alive` within this time and two seconds.
    pub fn all_answer(&self, within: Duration) -> bool {
        const USUAL_S: u64 = 2;
        let from_s = self.now_s().saturating_sub(within.as_secs() + USUAL_S);
        self.callers
            .iter()
            .all(|one| one.alive_s.load(Relaxed) >= from_s)
    }

    /// All sessions, locked. A thread that also locks a session locks that after this.
    pub fn sessions(&self) -> MutexGuard<'_, Sessions> {
        lock(&self.sessions)
    }

    /// A new session for a client.
    pub fn new_session(&self, client: &str) -> Arc<Session> {
        Session::new(client, self.next_session.fetch_add(1, Relaxed))
    }

    /// A session that stands for a subscriber over mqtt-udp in the tree.
    pub fn new_peer(&self, client: &str, peer: Arc<Peer>) -> Arc<Session> {
        Session::with_peer(client, self.next_session.fetch_add(1, Relaxed), peer)
    }

    /// A session that stands for a client of MQTT-SN in the tree.
    pub fn new_sensor(&self, client: &str, seat: Seat<Kept>) -> Arc<Session> {
        Session::with_sensor(client, self.next_session.fetch_add(1, Relaxed), seat)
    }

    /// Take over what the store has kept, before any client connects. Changes go there from now on.
    pub fn restore(&self, store: Store, kept: &mqtick_store::Kept) {
        let now_s = self.now_s();
        let pollers = self.callers.iter().map(|one| Arc::clone(&one.poller));
        let journal = Journal::new(store, kept.next_message, pollers.collect());
        let mut subscriptions = Vec::new();
        let mut waiting = 0;
        let (newest, ended) = sort_out(&kept.sessions);
        let mut messages = HashMap::new();
        for client in ended {
            journal.append(Change::SessionGone { client });
        }
        for (client, (number, one)) in newest {
            self.next_session.fetch_max(number + 1, Relaxed);
            let session = Session::new(client, number);
            let mut state = session.lock();
            state.restore(one, &mut messages, now_s);
            if one.session.disconnected_at == 0 {
                journal.append(session_change(&one.client, &state, now_s));
            }
            self.calendar.remind(&session, &mut state);
            drop(state);
            waiting += one.queue.len();
            let kept = one.subscriptions.iter();
            subscriptions.extend(kept.map(|kept| (kept, Arc::clone(&session))));
            self.sessions().insert(client.into(), session);
        }
        journal.submit();
        subscriptions.sort_by_key(|(kept, _)| kept.order);
        let count = subscriptions.len();
        self.change([], |tree| {
            for (kept, session) in subscriptions {
                let number = session.number;
                let subscription = Subscription {
                    session,
                    qos: Qos::try_from(kept.options & 3).unwrap_or_default(),
                    no_local: kept.options & 4 != 0,
                    retain_as_published: kept.options & 8 != 0,
                    identifier: kept.identifier,
                };
                tree.subscribe(&kept.filter, number, subscription);
            }
        });
        for (topic, message) in &kept.retained {
            lock(&self.retained).set(topic, from_store(message, true), None);
        }
        mqtick_net::log::notice(&format!(
            "kept were {} sessions, {count} subscriptions, {waiting} messages for them and {} \
             retained messages",
            self.sessions().len(),
            kept.retained.len(),
        ));
        let _ = self.journal.set(Arc::new(journal)); // it is set only once
    }

    /// Change the subscriptions to these filters. Readers see all of the change or nothing.
    pub fn change<'a, T>(
        &self,
        filters: impl IntoIterator<Item = &'a str>,
        change: impl FnOnce(&mut Subscriptions) -> T,
    ) -> T {
        let _alone = lock(&self.changing);
        let filters: Vec<&str> = filters.into_iter().collect();
        let concerns = |name: &str| filters.iter().any(|filter| matches(filter, name));
        let _closed = self.offload.close_topics(concerns);
        let mut tree = Subscriptions::clone(&self.tree.load());
        let result = change(&mut tree);
        self.tree.store(Arc::new(tree));
        self.changes.fetch_add(1, Release);
        result
    }

    /// Replace passwords and access rules. Each worker judges its connections by the new ones;
    /// retained messages of who may not publish them any more are forgotten here.
    pub fn change_access(&self, access: Access) {
        let closed = self.offload.close_topics(|_| true);
        let access = Arc::new(access);
        let before = self.access.swap(Arc::clone(&access));
        self.change([], |_| ()); // fan-outs are remembered without clients that may not read
        drop(closed);
        for worker in 0..self.callers.len() {
            let before = Arc::clone(&before);
            self.call(worker, Call::Judge { before });
        }
        let may = |one: &Retained| {
            one.source.as_ref().is_none_or(|source| {
                let topic = one.kept.message().topic;
                let user = source.user.as_deref();
                access.rules.may(user, &source.client, Action::Write, topic)
            })
        };
        let mut from = Some(String::new());
        while let Some(at) = from {
            from = self.sift_retained(&at, may);
        }
    }

    /// Whether nobody can come as this user any more: its session is anybody's who has its client
    /// identifier.
    pub fn is_nobody(&self, user: Option<&str>) -> bool {
        let access = self.access.load();
        let passwords = access.passwords.as_ref();
        let is_gone = user
            .zip(passwords)
            .is_some_and(|(user, all)| !all.knows(user));
        is_gone && !self.settings.names_by_certificate()
    }

    /// How often the subscriptions or the access lists have changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// A message has come whose copies leave at once. While there are such messages, input is not
    /// gathered.
    pub fn note_urgent(&self) {
        self.urgent_s.store(self.now_s(), Relaxed);
    }

    /// Whether `note_urgent` was called in the last hour.
    pub fn was_urgent(&self, now_s: u64) -> bool {
        now_s < self.urgent_s.load(Relaxed).saturating_add(URGENT_S)
    }

    /// Keep a retained message, or remove it where it is empty ([MQTT-3.3.1-6]). Returns whether
    /// that was possible.
    pub fn retain(
        &self,
        message: &Message,
        source: Option<Arc<Source>>,
        context: &mut DeliveryContext,
    ) -> bool {
        let mut retained = lock(&self.retained);
        let (topic, now_s) = (message.topic, context.now_s);
        let mut note = |message| {
            if let Some(journal) = context
                .journal
                .as_ref()
                .filter(|_| !topic.starts_with("$SYS/"))
            {
                let topic = topic.into();
                context.note(journal.append(Change::Retain { topic, message }));
            }
        };
        if message.payload.is_empty() {
            retained.remove(topic);
            note(None);
            return true;
        }
        let octets = message.octets();
        // Half of all memory is not for retained messages.
        let is_lost = message.qos == Qos::AtMostOnce && self.is_behind();
        let has_memory = octets <= memory::free() && !memory::is_tight() && !is_lost;
        let has_room = match retained.get(message.topic) {
            Some(before) => has_memory || octets <= before.octets() && !is_lost,
            None => {
                let user = source.as_ref().and_then(|source| source.user.as_deref());
                has_memory && retained.has_room(topic, user)
            }
        };
        if has_room {
            retained.set(topic, Kept::new(message), source);
            note(Some(Arc::new(to_store(message, now_s))));
        } else {
            self.counters.dropped.fetch_add(1, Relaxed);
        }
        has_room
    }

    /// Give those retained messages to the store again that it has refused, as they are now.
    pub fn keep_retained(&self, now_s: u64) {
        let Some(journal) = self.journal() else {
            return;
        };
        for topic in journal.take_unkept() {
            let retained = lock(&self.retained);
            let kept = retained.get(&topic).map(|kept| kept.message());
            let message = kept.map(|message| Arc::new(to_store(&message, now_s)));
            journal.append(Change::Retain { topic, message });
        }
    }

    /// Whether as much waits for the disk as is allowed.
    fn is_behind(&self) -> bool {
        self.journal().is_some_and(|journal| journal.is_full())
    }

    /// Whether the number of retained messages allows this one, or it removes one.
    pub fn has_room_for(&self, topic: &str, payload: &[u8]) -> bool {
        payload.is_empty() || lock(&self.retained).has_room(topic, None)
    }

    /// How many retained messages there are.
    pub fn count_retained(&self) -> usize {
        lock(&self.retained).len()
    }

    /// Do something, if a message is still the one that is retained for its topic.
    pub fn if_retained(&self, kept: &Arc<Kept>, what: impl FnOnce()) {
        let retained = lock(&self.retained);
        let present = retained.get(kept.message().topic);
        if present.is_some_and(|present| Arc::ptr_eq(present, kept)) {
            what();
        }
    }

    /// Look at some retained messages from a topic on, and forget those that are not to be `kept`.
    /// Returns where to go on, if there are more.
    pub fn sift_retained(&self, from: &str, kept: impl Fn(&Retained) -> bool) -> Option<String> {
        let mut retained = lock(&self.retained);
        let (mut topics, mut last) = (Vec::new(), None);
        for (topic, message) in retained.iter_from(from).take(SIFTED) {
            if !kept(message) {
                topics.push(String::from(topic));
            }
            last = Some(topic);
        }
        let next = last.map(|topic| format!("{topic}/")); // the next one in order is not before
        for topic in topics {
            retained.remove(&topic);
            if let Some(journal) = self.journal() {
                let (topic, message) = (topic.into(), None);
                journal.append(Change::Retain { topic, message });
            }
        }
        next
    }

    /// The first `most` retained messages for a filter that are `wanted`, found with so many
    /// `steps`, and the steps of the search.
    pub fn retained_first(
        &self,
        filter: &str,
        most: usize,
        steps: usize,
        wanted: impl Fn(&Message) -> bool,
    ) -> (Vec<Arc<Kept>>, usize) {
        let mut found = Vec::new();
        let (steps, _) = lock(&self.retained).search(filter, "", steps, |kept| {
            if wanted(&kept.message()) {
                found.push(Arc::clone(kept));
            }
            if found.len() < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        (found, steps)
    }

    /// Some steps of a search for retained messages: `each` is called for those that are found, and
    /// none changes meanwhile. Returns the steps, and where to go on.
    pub fn search(
        &self,
        filter: &str,
        from: &str,
        steps: usize,
        each: impl FnMut(&Arc<Kept>) -> ControlFlow<()>,
    ) -> (usize, Option<String>) {
        lock(&self.retained).search(filter, from, steps, each)
    }

    /// How copies of messages on this topic leave.
    pub fn policy(&self, topic: &str) -> DeliveryPolicy {
        let mut first = None::<(usize, DeliveryPolicy)>;
        self.policies.matches(topic, &mut |found| {
            if let Match::One(&place, &policy) = found
                && first.is_none_or(|(before, _)| place < before)
            {
                first = Some((place, policy));
            }
        });
        first.map_or(DeliveryPolicy::default(), |(_, policy)| policy)
    }

    /// Whether copies on any topic state their residence.
    pub fn states_residence(&self) -> bool {
        self.settings
            .delivery
            .topic
            .iter()
            .any(|rule| rule.residence)
    }

    /// Ask a worker to do something.
    pub fn call(&self, worker: usize, call: Call) {
        if let Some(caller) = self.callers.get(worker) {
            caller.calls.add(call, || caller.poller.call());
        }
    }

    /// Have a worker deliver its part of a fan-out. Returns whether there is room for that.
    pub fn hand_over(&self, worker: usize, part: Part) -> bool {
        let Some(caller) = self.callers.get(worker) else {
            return false;
        };
        let is_full = caller.calls.len() >= PARTS || memory::is_tight();
        if !is_full {
            self.call(worker, Call::Deliver(part));
        }
        !is_full
    }

    /// Keep the other workers from waking up for stamps, until the guard is dropped.
    pub fn wake_barrier(self: &Arc<Self>, worker: usize) -> WakeBarrier {
        let shared = Arc::clone(self);
        let barrier = WakeBarrier { shared, worker };
        barrier.others().for_each(Poller::raise_barrier);
        barrier
    }

    /// Take the calls of a worker that was woken.
    pub fn calls(&self, worker: usize) -> Vec<Call> {
        self.callers
            .get(worker)
            .map(|caller| caller.calls.take(|| caller.poller.heard()))
            .unwrap_or_default()
    }

    /// End a session, with all that waits for it. `Router::sweep` removes its subscriptions.
    pub fn end_session(&self, session: &Session, state: &mut State, context: &mut DeliveryContext) {
        session.is_over.store(true, Relaxed);
        self.calendar.forget(session, state);
        context.remains.copies.extend(state.shared_copies());
        state.end(context);
        context.remains.add(session.number, state.take_filters());
    }

    /// An identifier for a client without one.
    pub fn assign_client(&self) -> String {
        let secret = RandomState::new().build_hasher().finish(); // hard to guess
        format!("mqtick-{secret:016x}")
    }

    /// Write a line about one client to the log. Of many such lines in a second, most are left out.
    pub fn complain(&self, text: &str) {
        let now_s = self.now_s();
        let mut told = lock(&self.told);
        if told.0 != now_s {
            if told.1 > COMPLAINTS {
                mqtick_net::log::warning(&format!("{} more like these", told.1 - COMPLAINTS));
            }
            *told = (now_s, 0);
        }
        told.1 += 1;
        if told.1 <= COMPLAINTS {
            mqtick_net::log::warning(text);
        }
    }

    /// The messages on `$SYS`, if they are due.
    pub fn report(&self) -> Vec<(&'static str, String)> {
        let up_s = self.up_s();
        if !up_s.is_multiple_of(SYS_S) {
            return Vec::new();
        }
        let of = |counter: &AtomicU64| counter.load(Relaxed).to_string();
        let Counters {
            received,
            sent,
            dropped,
            octets,
            connected,
            ..
        } = &self.counters;
        let mut all = vec![
            (
                "$SYS/broker/version",
                concat!("mqtick-broker ", env!("CARGO_PKG_VERSION")).into(),
            ),
            ("$SYS/broker/uptime", format!("{up_s} seconds")),
            (
                "$SYS/broker/clients/connected",
                connected.load(Relaxed).to_string(),
            ),
            (
                "$SYS/broker/clients/total",
                self.sessions().len().to_string(),
            ),
            ("$SYS/broker/messages/received", of(received)),
            ("$SYS/broker/messages/sent", of(sent)),
            ("$SYS/broker/publish/messages/dropped", of(dropped)),
            ("$SYS/broker/bytes/received", of(octets)),
            (
                "$SYS/broker/subscriptions/count",
                self.tree.load().len().to_string(),
            ),
            (
                "$SYS/broker/retained messages/count",
                self.count_retained().to_string(),
            ),
        ];
        if let Some(journal) = self.journal() {
            let refusals = journal.refusals().to_string();
            all.push(("$SYS/broker/store/refusals", refusals));
        }
        all
    }

    /// Have a password checked. Returns whether there is room for that: an address may take as many
    /// places as it leaves free, so a flood from one does not keep the others out.
    pub fn check(&self, check: Check) -> bool {
        let mut waiting = lock(&self.waiting);
        let all: usize = waiting.values().sum();
        let ours = waiting.get(&check.from).copied().unwrap_or(0);
        if ours >= CHECKS.saturating_sub(all) {
            return false;
        }
        waiting.insert(check.from, ours + 1);
        drop(waiting);
        self.checks.try_send(check).is_ok()
    }

    /// A password from this address was checked.
    pub fn checked(&self, from: Option<IpAddr>) {
        let mut waiting = lock(&self.waiting);
        if let Some(ours) = waiting.get_mut(&from) {
            *ours -= 1;
            if *ours == 0 {
                waiting.remove(&from);
            }
        }
    }
}

type Newest<'a> = HashMap<&'a str, (u64, &'a KeptSession)>;

/// The newest session of each client with its number, and the names of older ones, which are over.
fn sort_out(all: &[KeptSession]) -> (Newest<'_>, Vec<Arc<str>>) {
    let (mut newest, mut ended) = (HashMap::new(), Vec::new());
    for one in all {
        let (number, client) = one.client.split_once('/').unwrap_or_default();
        let number = number.parse().unwrap_or(0);
        match newest.entry(client) {
            Entry::Vacant(place) => drop(place.insert((number, one))),
            Entry::Occupied(mut known) => {
                let is_newer = known.get().0 < number;
                let older = if is_newer {
                    known.insert((number, one)).1
                } else {
                    one
                };
                ended.push(Arc::clone(&older.client));
            }
        }
    }
    (newest, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_sessions_of_a_client_the_newer_one_is_restored_and_the_other_one_ends() {
        let kept = |client: &str| KeptSession {
            client: client.into(),
            session: mqtick_store::Session::default(),
            subscriptions: Vec::new(),
            queue: Vec::new(),
            received: Vec::new(),
        };
        let all = ["10/a", "11/b/c", "9/a", "8/a", "1/d"].map(kept);
        let (newest, ended) = sort_out(&all);
        let mut found: Vec<_> = newest
            .iter()
            .map(|(client, one)| (*client, one.0))
            .collect();
        found.sort_unstable();
        assert_eq!(found, [("a", 10), ("b/c", 11), ("d", 1)]);
        assert_eq!(
            ended.iter().map(|one| &**one).collect::<Vec<_>>(),
            ["9/a", "8/a"]
        );
    }
}
