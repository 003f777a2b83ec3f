//! From one message to its copies.

mod housekeeping;

use crate::batch::Batch;
use crate::memory::{self, Of, Share};
use crate::message::{Encoder, Kept, Message};
use crate::offload::{Called, Key, Rule};
use crate::remains::Remains;
use crate::sensor::Sending;
use crate::session::{DeliveryContext, Session, Subscription, Will};
use crate::settings::Mode;
use crate::shared::{Access, Counters, DeliveryPolicy, Part, Shared, Subscriptions, WakeBarrier};
use mqtick_access::Action;
use mqtick_net::residence::{Arrived, NOT_STATED, TRAILER, has_trailer};
use mqtick_packet::Qos;
use mqtick_topics::Match;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const REMEMBERED: usize = 64 << 20; // octets: topics, and subscriptions to them
const FANOUT: usize = 128; // octets of memory of one, about
const GATHERED: u64 = 1 << 17; // octets read
const LONGEST: usize = 256; // octets of a topic that is remembered
/// Copies of one message that the data plane can send (`broker/spec/acceleration.md`, clause 1).
const MOST_COPIES: usize = 4095;
/// Work for one connection until the others have their turns, in copies of a message: some ms.
const TURN: usize = 1 << 15;
const ROUND: usize = 4 * TURN; // work until those are looked for who were not ready before
const MOST_BARRED: usize = 1024; // copies between two pauses in which other workers can wake up

/// The subscribers of one topic.
#[derive(Clone, Default)]
pub struct Fanout {
    subscriptions: Arc<[Subscription]>,
    groups: Arc<[Group]>,
    policy: DeliveryPolicy,
    is_turned: bool,
}

/// A shared subscription: one member gets each message.
struct Group {
    filter: Arc<str>,
    members: Box<[Subscription]>, // those that may read the topic, at least one
    turn: Arc<AtomicUsize>,
}

impl Group {
    /// The member whose turn it is: a connected one, if there is any.
    fn next(&self) -> Option<&Subscription> {
        let turn = self.turn.fetch_add(1, Relaxed) % self.members.len().max(1);
        let (before, from) = self.members.split_at(turn);
        let mut in_turn = from.iter().chain(before);
        let connected = in_turn.find(|one| one.session.lock().link.is_some());
        let is_there = |one: &&Subscription| !one.session.is_over.load(Relaxed);
        connected.or_else(|| from.iter().chain(before).find(is_there))
    }
}

/// Which subscribers have got a message from `mqtick-accelerate` before it came here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Served {
    /// None: it was not copied.
    Nobody,
    /// Clients of MQTT-SN.
    Sensors,
    /// Subscribers over mqtt-udp.
    Peers,
}

impl Served {
    fn has(self, session: &Session) -> bool {
        match self {
            Self::Nobody => false,
            Self::Sensors => session.sensor.is_some(),
            Self::Peers => session.peer.is_some(),
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    /// There are no subscribers.
    Nobody,
    /// There are some.
    Somebody,
    /// It should have been retained and could not, so it was not delivered, either.
    Refused,
}

/// How a subscriber's copies can be sent in our place.
pub enum Place {
    /// They cannot: the broker sends them.
    Others,
    /// To this address, with this name or id of the topic.
    At(SocketAddr, Called),
    /// The same, but each message has to come to the broker, too.
    Watched(SocketAddr, Called),
    /// Not reliably: the broker has to serve all subscribers.
    Unclear,
}

/// What one worker needs to publish messages.
pub struct Router {
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// What it needs to deliver copies.
    pub context: DeliveryContext,
    /// Which worker.
    pub worker: usize,
    tree: Arc<Subscriptions>,
    /// Passwords and access rules.
    pub access: Arc<Access>,
    changes: u64,
    fanouts: HashMap<Box<str>, Fanout>,
    latest: (String, Option<Fanout>),
    flushed_at: u64,
    remembered_octets: usize,
    share: Share,
    /// When the octets that were just read came, if that is known: see `Arrivals`.
    pub came: Option<i64>,
    /// The kernel's stamp of what was just read, until a message needs to know whether it can be
    /// trusted.
    pub stamp: Option<i64>,
    /// Which subscribers have the present message already.
    pub served: Served,
    /// Whether copies are written after all input of one wait: see `Coalescing`.
    pub gathers: bool,
    /// The last batch of changes that it has submitted to the store.
    pub submitted: u64,
    /// Messages that have come and are not counted yet.
    pub received: u64,
    /// Octets that have come and are not counted yet.
    pub octets: u64,
    /// A spare buffer.
    pub spare: Vec<u8>,
    turn: bool,
    spent: usize, // work in the present round
    until: usize, // when the present connection's turn ends
}

impl Router {
    /// The router of a worker.
    pub fn new(shared: &Arc<Shared>, worker: usize) -> Self {
        Self {
            shared: Arc::clone(shared),
            context: DeliveryContext {
                encoder: Encoder::default(),
                at_once: false,
                arrived: None,
                pending_flush: Vec::new(),
                batch: Batch::default(),
                sensors: Sending::default(),
                now_s: shared.now_s(),
                now_ms: shared.now_ms(),
                sent: 0,
                dropped: 0,
                bounds: shared.bounds,
                journal: shared.journal().cloned(),
                span: None,
                noted: None,
                entering: None,
                once: None,
                holding: VecDeque::new(),
                share: None,
                remains: Remains::default(),
            },
            worker,
            tree: shared.tree.load_full(),
            access: shared.access.load_full(),
            changes: 0,
            fanouts: HashMap::new(),
            latest: (String::new(), None),
            flushed_at: 0,
            remembered_octets: 0,
            share: Share::new(Of::Sessions, 0),
            came: None,
            stamp: None,
            served: Served::Nobody,
            gathers: false,
            submitted: 0,
            received: 0,
            octets: 0,
            spare: Vec::new(),
            turn: false,
            spent: 0,
            until: TURN,
        }
    }

    /// All connections have their turns again.
    pub fn begin_round(&mut self) {
        self.spent = 0;
    }

    /// Whether the others have to wait for the next round.
    pub fn ends_round(&self) -> bool {
        self.spent >= ROUND
    }

    /// A connection's turn begins.
    pub fn begin_turn(&mut self) {
        self.until = self.spent + TURN;
    }

    /// Count some work, of which a copy of a message is one.
    pub fn spend(&mut self, work: usize) {
        self.spent += work;
    }

    /// The work that is left in this turn.
    pub fn left(&self) -> usize {
        self.until.saturating_sub(self.spent)
    }

    /// Deliver a message to all subscribers. `alone`: nothing else has come with it, so its copies
    /// need not wait for others.
    pub fn publish(
        &mut self,
        publisher: Option<&Session>,
        message: &Message,
        alone: bool,
    ) -> Reached {
        let from = publisher.map_or(0, |session| session.number);
        self.context.entering = None;
        self.refresh();
        let mut cached = self.known(message.topic);
        let policy = cached
            .as_ref()
            .map_or_else(|| self.shared.policy(message.topic), |one| one.policy);
        let mut payload = [0; 64];
        let (message, trailer) = match split_trailer(message, &mut payload, policy) {
            Some((unstated, trailer)) => (unstated, Some(trailer)),
            None => (*message, None),
        };
        let message = &message;
        if message.retain {
            let source = publisher.map(|session| session.lock().source(session));
            let is_kept = self.shared.retain(message, source, &mut self.context);
            if !is_kept && message.qos > Qos::AtMostOnce {
                return Reached::Refused;
            }
            // A client that has subscribed before that may have got the former retained message.
            self.refresh();
            cached = self.known(message.topic);
        }
        let fanout = cached.unwrap_or_else(|| self.look_up(message.topic, policy));
        self.serve_groups(&fanout.groups, message, from);
        let all = &fanout.subscriptions;
        self.context.encoder.begin();
        let is_urgent = policy.mode != Mode::Batched || policy.residence;
        if is_urgent {
            self.shared.note_urgent();
        }
        self.context.at_once = alone && !self.gathers || is_urgent;
        if self.context.at_once {
            self.write(); // copies of earlier messages leave first
        }
        self.context.arrived = trailer
            .zip(self.came)
            .map(|(trailer, at_ns)| Arrived { at_ns, trailer });
        let mut barrier = self.wake_barrier();
        let mut kept = None;
        // A part for which there is no room is dropped, so only QoS 0 is shared out.
        let is_shared = policy.mode == Mode::Parallel
            && message.qos == Qos::AtMostOnce
            && self.shared.callers.len() > 1;
        if is_shared {
            self.share_out(all, message, from, &mut kept);
        }
        let backwards = policy.mode == Mode::Alternating && self.is_turned(message.topic);
        for at in 0..all.len() {
            self.renew_barrier(&mut barrier, at);
            let at = if backwards { all.len() - 1 - at } else { at };
            if let Some(one) = all.get(at).filter(|one| !is_shared || self.is_mine(one)) {
                self.copy(one, message, from, &mut kept);
            }
        }
        if self.context.at_once {
            self.send_batch();
        }
        self.note_departures(all);
        self.spent += 1 + all.len();
        match fanout.groups.is_empty() && all.is_empty() {
            true => Reached::Nobody,
            false => Reached::Somebody,
        }
    }

    /// Have `mqtick-accelerate` copy more messages like the one that was just published, if it can
    /// send each copy at once, and nothing else has to be done for them. `publisher`: the number
    /// of the publisher's session, 0: none.
    pub fn offer(
        &mut self,
        key: Key,
        publisher: u64,
        topic: &str,
        keep_alive_s: u16,
        place: impl Fn(&Session) -> Place,
    ) {
        let shared = Arc::clone(&self.shared);
        let counts = shared.settings.limits.publishes_a_second_a_client > 0;
        if counts || !shared.offload.wants(&key) {
            return;
        }
        // Of a shared subscription, the broker chooses the member.
        let fanout = self.known(topic).filter(|one| one.groups.is_empty());
        let Some(fanout) = fanout.filter(|one| one.policy.mode != Mode::Parallel) else {
            return;
        };
        let (mut copies, mut sessions) = (Vec::new(), vec![publisher]);
        let mut is_watched = false;
        for one in &*fanout.subscriptions {
            match place(&one.session) {
                Place::Others => continue,
                Place::Unclear => return,
                Place::At(to, called) => copies.push((to, called)),
                Place::Watched(to, called) => {
                    copies.push((to, called));
                    is_watched = true;
                }
            }
            sessions.push(one.session.number);
        }
        if copies.is_empty() || copies.len() > MOST_COPIES {
            return;
        }
        let rule = Rule {
            key,
            name: topic,
            marked: is_watched || copies.len() < fanout.subscriptions.len(),
            copies,
            sessions,
            residence: fanout.policy.residence,
            keep_alive_s,
        };
        // Unless a subscription has changed since.
        shared
            .offload
            .offer(&rule, || self.changes == shared.changes());
    }

    /// Take over changes of subscriptions and access lists.
    pub fn refresh(&mut self) {
        let changes = self.shared.changes();
        if changes != self.changes {
            self.changes = changes;
            self.tree = self.shared.tree.load_full();
            self.access = self.shared.access.load_full();
            self.forget_fanouts();
        }
    }

    /// The subscribers of a topic, if they are remembered.
    fn known(&mut self, topic: &str) -> Option<Fanout> {
        if self.latest.0 != topic {
            self.latest.1 = self.fanouts.get(topic).cloned();
            self.latest.0.clear();
            if self.latest.1.is_some() {
                self.latest.0.push_str(topic);
            }
        }
        self.latest.1.clone()
    }

    /// Whether the order is reversed this time.
    fn is_turned(&mut self, topic: &str) -> bool {
        let turn = match self.fanouts.get_mut(topic) {
            Some(fanout) => &mut fanout.is_turned,
            None => &mut self.turn,
        };
        *turn = !*turn;
        *turn
    }

    fn forget_fanouts(&mut self) {
        self.fanouts = HashMap::new();
        self.latest = (String::new(), None);
        self.remembered_octets = 0;
        self.share.set(0);
    }

    /// Publish a client's will. Its message expiry interval begins now.
    pub fn publish_will(&mut self, client: &Session, will: &Will) {
        self.came = None; // the will came long ago
        let user = client.lock().user.clone();
        let access = self.shared.access.load();
        let topic = will.message.message().topic;
        let may = access
            .rules
            .may(user.as_deref(), &client.client, Action::Write, topic);
        drop(access);
        if may {
            self.publish_as(client, will);
        }
        // Only now: a will that is published twice is better than one that is lost.
        let mut state = client.lock();
        state.forget_will(&mut self.context);
        state.keep(&mut self.context);
    }

    fn publish_as(&mut self, client: &Session, will: &Will) {
        let lives = |s: u32| self.context.now_s + u64::from(s);
        let message = will.message.message();
        let expires_s = will.lifetime_s.map(lives);
        let mut message = Message {
            expires_s,
            ..message
        };
        if self.publish(Some(client), &message, false) == Reached::Refused {
            message.retain = false; // nobody waits for an answer
            self.publish(Some(client), &message, false);
        }
    }

    /// Deliver a part that another worker has handed over.
    pub fn deliver(&mut self, part: &Part) {
        self.send_batch(); // copies of earlier messages leave first
        self.context.encoder.begin();
        self.context.at_once = true;
        self.context.arrived = part.arrived;
        self.context.entering = None;
        let mut barrier = self.wake_barrier();
        let mut kept = Some(Arc::clone(&part.message));
        for (at, one) in part.subscriptions.iter().enumerate() {
            self.renew_barrier(&mut barrier, at);
            if self.is_mine(one) {
                self.copy(one, &part.message.message(), part.publisher, &mut kept);
            }
        }
        self.send_batch();
        self.note_departures(&part.subscriptions);
    }

    /// If copies are stamped as they leave, keep the stamps from waking other workers.
    fn wake_barrier(&self) -> Option<WakeBarrier> {
        let is_stamped = self.context.arrived.is_some();
        is_stamped.then(|| self.shared.wake_barrier(self.worker))
    }

    fn renew_barrier(&self, barrier: &mut Option<WakeBarrier>, at: usize) {
        if at % MOST_BARRED == MOST_BARRED - 1 {
            drop(barrier.take());
            *barrier = self.wake_barrier();
        }
    }

    /// After all copies of a message: take the stamps of those that left over TCP. The kernel has
    /// nearly all of them by now, so the workers of these connections need not wake up for them.
    fn note_departures(&mut self, all: &[Subscription]) {
        if self.context.arrived.take().is_none() {
            return;
        }
        for one in all.iter().filter(|one| one.session.peer.is_none()) {
            if let Some(link) = &mut one.session.lock().link {
                link.note_departure();
            }
        }
    }

    /// Submit changes to the store, and write what waits in the listed links.
    pub fn flush(&mut self) {
        self.flushed_at = self.octets;
        self.send_batch();
        if let (Some(batch), Some(journal)) = (self.context.noted.take(), &self.context.journal) {
            self.submitted = batch;
            journal.submit();
        }
        self.write();
    }

    /// Whether `flush` must not wait longer: there is much to write, or something for the store.
    pub fn has_gathered(&self) -> bool {
        self.context.noted.is_some() || self.octets.wrapping_sub(self.flushed_at) > GATHERED
    }

    fn write(&mut self) {
        self.send_batch();
        for session in self.context.pending_flush.drain(..) {
            if let Some(link) = &mut session.lock().link {
                link.flush();
            }
        }
    }

    /// Send the datagrams that wait.
    pub(crate) fn send_batch(&mut self) {
        let Self {
            shared, context, ..
        } = self;
        let DeliveryContext {
            batch,
            sensors,
            sent,
            dropped,
            ..
        } = context;
        let sockets = [
            (&shared.datagrams, batch),
            (&shared.sensors, &mut sensors.batch),
        ];
        for (socket, batch) in sockets {
            if let Some(socket) = socket {
                let (left, none) = socket.send(batch);
                *sent += left as u64;
                *dropped += none as u64;
            }
        }
    }

    /// Go on with what was held back for changes that the store has answered. Returns the tokens
    /// of this worker's connections for which that was.
    pub fn settle(&mut self) -> Vec<u64> {
        let mut settled = Vec::new();
        let Some(journal) = self.context.journal.clone() else {
            return settled;
        };
        while let Some(&(batch, _)) = self.context.holding.front() {
            if batch > journal.answered() {
                journal.wake(self.worker);
                if batch > journal.answered() {
                    return settled; // the store's next answer wakes this worker
                }
            }
            self.context.at_once = false;
            let answered = journal.answered();
            let is_answered = |one: &mut (u64, Arc<Session>)| one.0 <= answered;
            while let Some((_, session)) = self.context.holding.pop_front_if(is_answered) {
                let mut state = session.lock();
                state.settle(&mut self.context, &journal);
                session.written(&mut state, &mut self.context);
                let place = state.link.as_ref().map(|link| link.place);
                let ours = place.filter(|place| place.worker == self.worker);
                settled.extend(ours.map(|place| place.token));
            }
            self.flush();
        }
        settled
    }

    /// Add what was counted to the shared counters.
    pub fn count(&mut self) {
        let Counters {
            sent,
            dropped,
            received,
            octets,
            ..
        } = &self.shared.counters;
        received.fetch_add(std::mem::take(&mut self.received), Relaxed);
        octets.fetch_add(std::mem::take(&mut self.octets), Relaxed);
        sent.fetch_add(std::mem::take(&mut self.context.sent), Relaxed);
        dropped.fetch_add(std::mem::take(&mut self.context.dropped), Relaxed);
    }

    fn copy(
        &mut self,
        to: &Subscription,
        message: &Message,
        from: u64,
        kept: &mut Option<Arc<Kept>>,
    ) {
        if to.no_local && to.session.number == from || self.served.has(&to.session) {
            return;
        }
        // Copies that leave at once leave in order, also over different transports.
        let DeliveryContext { batch, sensors, .. } = &self.context;
        let is_first = match (&to.session.peer, &to.session.sensor) {
            (Some(_), _) => sensors.batch.is_empty(),
            (_, Some(_)) => batch.is_empty(),
            _ => false,
        };
        let is_full = batch.is_full() || sensors.batch.is_full();
        if is_full || (self.context.at_once && !is_first) {
            self.send_batch();
        }
        let retain = message.retain && to.retain_as_published;
        to.session
            .deliver(&mut self.context, message, kept, to, retain);
    }

    /// Deliver to one member of each shared subscription.
    fn serve_groups(&mut self, groups: &[Group], message: &Message, from: u64) {
        if groups.is_empty() {
            return;
        }
        self.context.encoder.begin();
        self.context.at_once = false;
        let mut kept = None;
        for group in groups {
            if let Some(one) = group.next() {
                self.context.share = Some(Arc::clone(&group.filter));
                self.copy(one, message, from, &mut kept);
            }
        }
        self.context.share = None;
    }

    /// A member of a shared subscription is gone: have another one get its copy.
    pub(crate) fn hand_on(&mut self, share: &Arc<str>, kept: &Arc<Kept>) {
        self.refresh();
        let message = kept.message();
        let known = self.known(message.topic);
        let fanout = known.unwrap_or_else(|| {
            let policy = self.shared.policy(message.topic);
            self.look_up(message.topic, policy)
        });
        self.context.entering = None;
        self.context.arrived = None;
        let group = fanout.groups.iter().position(|one| one.filter == *share);
        let group = group.and_then(|at| fanout.groups.get(at..=at));
        self.serve_groups(group.unwrap_or_default(), &message, 0);
        self.spent += 1 + fanout.groups.len();
    }

    /// Find the subscribers of a topic, and remember them.
    fn look_up(&mut self, topic: &str, policy: DeliveryPolicy) -> Fanout {
        let access = self.shared.access.load();
        let may = |one: &Subscription| {
            let user = one.session.lock().user.clone();
            let client = &one.session.client;
            access
                .rules
                .may(user.as_deref(), client, Action::Read, topic)
        };
        let mut found = Vec::new();
        let mut groups = Vec::new();
        self.tree.matches(topic, &mut |found_one| match found_one {
            Match::One(_, one) => found.extend(may(one).then(|| one.clone())),
            Match::Group(group) => {
                let turn = Arc::clone(group.turn());
                let filter = Arc::clone(group.filter());
                let allowed = group.members().map(|(_, one)| one).filter(|one| may(one));
                let members: Box<[_]> = allowed.cloned().collect();
                groups.extend((!members.is_empty()).then_some(Group {
                    filter,
                    members,
                    turn,
                }));
            }
        });
        let fanout = Fanout {
            subscriptions: found.into(),
            groups: groups.into(),
            policy,
            is_turned: false,
        };
        if topic.len() <= LONGEST {
            let shared: usize = fanout.groups.iter().map(|one| one.members.len()).sum();
            self.remembered_octets += (fanout.subscriptions.len() + shared)
                * size_of::<Subscription>()
                + fanout.groups.len() * size_of::<Group>()
                + topic.len()
                + FANOUT;
            if self.remembered_octets > REMEMBERED || memory::is_tight() {
                self.forget_fanouts();
            }
            self.share.set(self.remembered_octets);
            self.fanouts.insert(topic.into(), fanout.clone());
        }
        fanout
    }

    /// Whether a subscriber is in this worker's part of a fan-out that all workers share. It is
    /// always the same worker, so that messages keep their order.
    fn is_mine(&self, one: &Subscription) -> bool {
        one.session.number % self.shared.callers.len() as u64 == self.worker as u64
    }

    /// Have the other workers deliver their parts of a fan-out.
    fn share_out(
        &mut self,
        all: &Arc<[Subscription]>,
        message: &Message,
        publisher: u64,
        kept: &mut Option<Arc<Kept>>,
    ) {
        let message = kept.get_or_insert_with(|| Kept::new(message));
        for worker in (0..self.shared.callers.len()).filter(|one| *one != self.worker) {
            let part = Part {
                subscriptions: Arc::clone(all),
                message: Arc::clone(message),
                arrived: self.context.arrived,
                publisher,
            };
            if !self.shared.hand_over(worker, part) {
                self.context.dropped += 1;
            }
        }
    }
}

/// If a message has a trailer: the message with a trailer that states nothing, and the one that it
/// has. So a copy that is kept, or not sent at once, states nothing.
fn split_trailer<'a>(
    message: &Message<'a>,
    payload: &'a mut [u8; 64],
    policy: DeliveryPolicy,
) -> Option<(Message<'a>, [u8; TRAILER])> {
    if !policy.residence || !has_trailer(message.payload) {
        return None;
    }
    let (head, trailer) = message.payload.split_last_chunk::<TRAILER>()?;
    let length = head.len();
    payload.get_mut(..length)?.copy_from_slice(head);
    payload
        .get_mut(length..length + TRAILER)?
        .copy_from_slice(&NOT_STATED);
    Some((
        Message {
            whole: None,
            payload: payload.get(..length + TRAILER)?,
            ..*message
        },
        *trailer,
    ))
}

/// What it takes to change a subscription, in copies of a message.
pub fn work_of(filter: &str) -> usize {
    64 + filter.len() / 2
}
