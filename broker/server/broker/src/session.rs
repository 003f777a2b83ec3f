//! What the broker keeps of one client: its link while it is connected, and what waits for it.

use crate::connection::reason;
use crate::ledger::{Entering, Ledger, Span, from_store, session_change, will_from_store};
use crate::link::{Link, Promise};
use crate::memory::{self, Of, Share};
use crate::message::{Copy, Encoder, Kept, Message};
use crate::residence::Arrived;
use crate::udp::{Batch, Peer};
use mqtick_packet::{AckKind, ConnackProperties, Qos, Version, ack, connack, disconnect, pingresp};
use mqtick_sn::Seat;
use mqtick_store::{Change, KeptSession};
use mqtick_udp::DATAGRAM;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SESSION: usize = 1024; // octets that each one takes, about
const SUBSCRIPTION: usize = 512;
const LEVEL: usize = 256;
const SPARE: usize = 16; // places in a queue

/// What one client may make the broker keep.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Octets that wait for a client, in its link and in its queue.
    pub octets: usize,
    /// Messages that wait for a client.
    pub messages: usize,
    /// Messages that may be under way to a client without an acknowledgement.
    pub window: u16,
}

/// One subscription, as the tree keeps it.
#[derive(Clone)]
pub struct Subscription {
    /// Whose it is.
    pub session: Arc<Session>,
    /// The highest level of service that was granted.
    pub qos: Qos,
    /// Not what the client itself published.
    pub no_local: bool,
    /// Whether copies say that the message was published as retained.
    pub retain_as_published: bool,
    /// The subscription's identifier; 0: none.
    pub identifier: u32,
}

/// A message to publish when the connection ends without a good-bye.
pub struct Will {
    /// What.
    pub message: Arc<Kept>,
    /// How long it may be delivered after that, in seconds.
    pub lifetime_s: Option<u32>,
    /// How long after the end of the connection, in seconds.
    pub delay_s: u32,
}

#[derive(PartialEq, Eq)]
enum Step {
    Sent,
    Released, // the receiver has it, and was told that we know
}

struct Entry {
    place: u64, // in the store's queue
    message: Arc<Kept>,
    copy: Copy,
    entered: Option<Span>, // the store's queue, or it came with these changes
}

struct Flight {
    id: u16,
    entry: Entry,
    step: Step,
}

const SENT: u8 = 0; // as the store keeps it
const RELEASED: u8 = 1;

/// A client's session.
pub struct Session {
    /// The client's identifier.
    pub client: Box<str>,
    /// The key of its subscriptions; never used twice.
    pub number: u64,
    /// Where it is reached if it subscribed over UDP; it has no link then.
    pub peer: Option<Arc<Peer>>,
    /// What it has to be sent if it came over MQTT-SN; it has no link then.
    pub sensor: Option<Seat<Kept>>,
    /// Whether nobody is connected to it, so that somebody has to look whether its time is over.
    pub is_away: AtomicBool,
    state: Mutex<State>,
}

/// What changes in a session.
pub struct State {
    /// While the client is connected.
    pub link: Option<Link>,
    /// Who it is, by its password or certificate.
    pub user: Option<Box<str>>,
    /// How long the session outlives its connection, in seconds; `u32::MAX`: for good.
    pub expiry_s: u32,
    /// When the connection ended, in seconds of the broker's clock.
    pub left_s: Option<u64>,
    /// Its last will.
    pub will: Option<Will>,
    filters: HashSet<Box<str>>,
    /// Identifiers of messages of QoS 2 that came and were not released yet, with the changes that
    /// each one made.
    received: HashMap<u16, Option<Span>>,
    /// The most messages that may be under way to it.
    pub window: u16,
    /// What the store calls it, if it is kept on disk. The next session of the same client has
    /// another name, so that no change meets the wrong one.
    pub key: Option<Arc<str>>,
    flights: VecDeque<Flight>,
    due: usize, // the last ones of them, which this connection has not got yet
    queue: VecDeque<Entry>,
    queued: usize,
    last_id: u16,
    next_place: u64,
    filter_octets: usize,
    client_octets: usize,
    share: Share,
}

/// What a worker has at hand to deliver with.
pub struct Courier {
    /// The message's octets.
    pub encoder: Encoder,
    /// Whether each copy is written at once, rather than with what else the same read brings.
    pub at_once: bool,
    /// When the message came, where copies say how long it was here.
    pub arrived: Option<Arrived>,
    /// Sessions whose links have something to flush.
    pub dirty: Vec<Arc<Session>>,
    /// Datagrams to send.
    pub batch: Batch,
    /// The same over MQTT-SN.
    pub sensors: crate::sn::Sending,
    /// The broker's clock, seconds.
    pub now_s: u64,
    /// Copies that went to a link.
    pub sent: u64,
    /// Copies that there was no room for.
    pub dropped: u64,
    /// What a client may make the broker keep.
    pub bounds: Bounds,
    /// Where what must survive is written, if anything must.
    pub ledger: Option<Arc<Ledger>>,
    /// The changes that the present packet made.
    pub span: Option<Span>,
    /// The last batch of the changes that were not submitted yet.
    pub noted: Option<u64>,
    /// The present message, once it entered a queue of the store.
    pub entering: Option<Entering>,
    /// The changes of the present message, if it is of QoS 2 from a session that is kept: who gets
    /// it before they are on disk could get it twice.
    pub once: Option<Span>,
    /// Sessions whose links hold something back until a batch was answered.
    pub holding: VecDeque<(u64, Arc<Session>)>,
}

impl Courier {
    /// A change was appended to the ledger.
    pub fn note(&mut self, span: Span) {
        self.span = Some(span.and(self.span));
        self.noted = Some(span.last);
    }
}

impl Session {
    /// A session that nobody is connected to.
    pub fn new(client: &str, number: u64) -> Arc<Self> {
        Self::with(client, number, None, None)
    }

    /// What stands for a subscriber over UDP in the tree.
    pub fn with_peer(client: &str, number: u64, peer: Arc<Peer>) -> Arc<Self> {
        Self::with(client, number, Some(peer), None)
    }

    /// What stands for a client over MQTT-SN in the tree.
    pub fn with_sensor(client: &str, number: u64, seat: Seat<Kept>) -> Arc<Self> {
        Self::with(client, number, None, Some(seat))
    }

    fn with(
        client: &str,
        number: u64,
        peer: Option<Arc<Peer>>,
        sensor: Option<Seat<Kept>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client: client.into(),
            number,
            peer,
            sensor,
            is_away: AtomicBool::new(false),
            state: Mutex::new(State {
                link: None,
                user: None,
                expiry_s: 0,
                left_s: None,
                will: None,
                filters: HashSet::new(),
                received: HashMap::new(),
                window: 0,
                key: None,
                flights: VecDeque::new(),
                due: 0,
                queue: VecDeque::new(),
                queued: 0,
                last_id: 0,
                next_place: 0,
                filter_octets: 0,
                client_octets: 2 * client.len(),
                share: Share::new(Of::Sessions, SESSION + 2 * client.len()),
            }),
        })
    }

    /// Its state, locked. A thread holds the state of one session at a time.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deliver one copy. `kept` is the message once somebody had to keep it.
    pub fn deliver(
        self: &Arc<Self>,
        courier: &mut Courier,
        message: &Message,
        kept: &mut Option<Arc<Kept>>,
        subscription: &Subscription,
        retain: bool,
    ) {
        if let Some(peer) = &self.peer {
            return courier.send_datagram(message, peer);
        }
        if let Some(seat) = &self.sensor {
            return courier.send_to_sensor(message, kept, subscription.qos, retain, seat);
        }
        let mut state = self.lock();
        let version = match &state.link {
            Some(link) => link.version,
            None if message.qos.min(subscription.qos) == Qos::AtMostOnce => return,
            None => mqtick_packet::Version::V5,
        };
        let copy = Copy {
            version,
            qos: message.qos.min(subscription.qos),
            retain,
            subscription: subscription.identifier,
        };
        if copy.qos > Qos::AtMostOnce {
            let kept = kept.get_or_insert_with(|| Kept::new(message));
            if !state.queue_or_send(courier, kept, copy) {
                return;
            }
        } else if let Some(link) = &mut state.link {
            let octets = &courier.encoder.octets(message, &copy, courier.now_s).packet;
            if octets.len() > link.largest {
                return; // [MQTT-3.1.2-24]
            }
            let waits = !courier.at_once;
            if link.waiting() + octets.len() > courier.bounds.octets
                || !link.may_take(octets.len(), waits)
            {
                courier.dropped += 1;
                return;
            }
            courier.sent += 1;
            if let Some(arrived) = &courier.arrived {
                link.write_stated(octets, arrived);
                return;
            }
            if courier.at_once {
                link.write(octets);
                return;
            }
            link.out().extend_from_slice(octets);
        }
        self.written(&mut state, courier);
    }

    /// Something was appended to the link: flush it now, or note that it must be.
    pub fn written(self: &Arc<Self>, state: &mut State, courier: &mut Courier) {
        let Some(link) = &mut state.link else { return };
        if let Some(newest) = link.newest().filter(|newest| *newest > link.awaited) {
            link.awaited = newest;
            courier.holding.push_back((newest, Arc::clone(self)));
        }
        if courier.at_once {
            link.flush();
        } else if !link.listed {
            link.listed = true;
            courier.dirty.push(Arc::clone(self));
        }
    }
}

impl Courier {
    fn send_datagram(&mut self, message: &Message, peer: &Arc<Peer>) {
        let copy = Copy {
            version: mqtick_packet::Version::V3,
            qos: Qos::AtMostOnce,
            retain: false,
            subscription: 0,
        };
        let packet = &self.encoder.octets(message, &copy, self.now_s).packet;
        if (1..=DATAGRAM).contains(&packet.len()) {
            self.batch.copy(peer, packet, self.arrived);
        } else {
            self.dropped += 1;
        }
    }
}

impl State {
    /// Send a copy of QoS 1 or 2, or queue it; whether something was appended to the link.
    fn queue_or_send(&mut self, courier: &mut Courier, kept: &Arc<Kept>, copy: Copy) -> bool {
        let octets = kept.octets();
        let sends = self.due == 0 && self.queue.is_empty() && self.has_room(courier, octets);
        let may = if sends {
            self.has_memory(octets)
        } else {
            self.queue.len() < courier.bounds.messages
                && self.queued + octets <= courier.bounds.octets
                && memory::may_queue(self.queued + octets)
        };
        if !may {
            courier.dropped += 1;
            return false;
        }
        let mut entry = Entry {
            place: self.next_place,
            message: Arc::clone(kept),
            copy,
            entered: None,
        };
        if let (Some(key), Some(ledger)) = (&self.key, &courier.ledger) {
            self.next_place += 1;
            let entering = &mut courier.entering;
            let span = ledger.queue(key, entry.place, kept, &copy, entering, courier.now_s);
            entry.entered = Some(span);
            courier.note(span);
        } else {
            entry.entered = courier.once;
        }
        if sends {
            return self.send(courier, entry);
        }
        self.queued += octets;
        self.queue.push_back(entry);
        self.hold();
        false
    }

    fn send(&mut self, courier: &mut Courier, mut entry: Entry) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        entry.copy.version = link.version;
        let message = entry.message.message();
        let octets = courier.encoder.octets(&message, &entry.copy, courier.now_s);
        if octets.packet.is_empty() || octets.packet.len() > link.largest {
            self.done(courier, entry.place);
            return false; // none: too long for MQTT; [MQTT-3.1.2-24]
        }
        // At most `window` of 65,535 identifiers are in use.
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.flights.iter().any(|flight| flight.id == self.last_id) {
                break;
            }
        }
        let id = self.last_id;
        let octets = if self.key.is_some() {
            let (place, state) = (entry.place, SENT);
            let changed = change(&self.key, courier, |client| Change::InFlight {
                client,
                place,
                id,
                state,
            });
            let octets = courier.encoder.octets(&message, &entry.copy, courier.now_s);
            // One of QoS 1 may come again after a crash, one of QoS 2 may not, nor may another one
            // have its identifier.
            if let Some(span) = changed.filter(|_| entry.copy.qos == Qos::ExactlyOnce) {
                let (span, length) = (span.and(entry.entered), octets.packet.len());
                link.hold(span, Promise::Publish { id, length });
            }
            octets
        } else {
            if let Some(span) = entry.unanswered(courier.ledger.as_deref()) {
                let length = octets.packet.len();
                link.hold(span, Promise::Publish { id, length });
            }
            octets
        };
        append(link.out(), &octets.packet, octets.id_at, id);
        courier.sent += 1;
        self.flights.push_back(Flight {
            id,
            entry,
            step: Step::Sent,
        });
        true
    }

    /// Fill the window with what has to be sent again, then from the queue.
    pub fn fill(&mut self, courier: &mut Courier) {
        self.send_again(courier);
        while let Some(next) = self.queue.front()
            && self.due == 0
            && self.has_room(courier, next.message.octets())
        {
            let Some(entry) = self.queue.pop_front() else {
                break;
            };
            self.queued -= entry.message.octets();
            let expires_s = entry.message.message().expires_s;
            let is_over = expires_s.is_some_and(|expires_s| expires_s <= courier.now_s);
            if is_over || entry.is_refused(courier.ledger.as_deref()) {
                self.done(courier, entry.place);
                continue;
            }
            // It cannot wait for room, since nothing would look for it again. What is on disk is
            // acknowledged: one of it is always sent.
            if self.key.is_none() && !self.has_memory(entry.message.octets()) {
                courier.dropped += 1;
                continue;
            }
            courier.encoder.begin();
            self.send(courier, entry);
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(SPARE);
        }
        self.hold();
    }

    /// Whether the link may take a message of this size, as far as the limit of all memory goes.
    fn has_memory(&self, octets: usize) -> bool {
        let waiting = self.link.as_ref().map_or(0, Link::waiting);
        memory::may_queue(waiting + octets)
    }

    /// Say how much it holds, beside the messages.
    pub fn hold(&mut self) {
        let entries = self.queue.capacity() * size_of::<Entry>()
            + self.flights.capacity() * size_of::<Flight>()
            + self.received.capacity() * size_of::<(u32, Option<Span>)>();
        let user = self.user.as_ref().map_or(0, |user| user.len());
        self.share
            .set(SESSION + self.client_octets + user + entries + self.filter_octets);
    }

    /// The filters that it is subscribed to.
    pub fn filters(&self) -> &HashSet<Box<str>> {
        &self.filters
    }

    /// Whether the limit of all memory lets it subscribe to one more.
    pub fn may_add(&self, filter: &str) -> bool {
        memory::may_hold(self.filter_octets + cost(filter))
    }

    /// Subscribe to a filter; whether that is new.
    pub fn add_filter(&mut self, filter: &str) -> bool {
        let is_new = self.filters.insert(filter.into());
        if is_new {
            self.filter_octets += cost(filter);
            self.hold();
        }
        is_new
    }

    /// Unsubscribe; whether it was there.
    pub fn remove_filter(&mut self, filter: &str) -> bool {
        let was_there = self.filters.remove(filter);
        if was_there {
            self.filter_octets -= cost(filter);
            self.hold();
        }
        was_there
    }

    /// Unsubscribe from all.
    pub fn take_filters(&mut self) -> HashSet<Box<str>> {
        self.filter_octets = 0;
        self.hold();
        std::mem::take(&mut self.filters)
    }

    /// A new connection: what was under way when the last one ended is sent again by `fill`
    /// ([MQTT-4.4.0-1]).
    pub fn resume(&mut self) {
        self.due = self.flights.len();
    }

    /// Whether the window, and the bounds of what waits in the link, let another message of this
    /// size go. A link with nothing under way has to take one, or no acknowledgement would ever
    /// bring it back here.
    fn has_room(&self, courier: &Courier, next: usize) -> bool {
        let under_way = self.flights.len() - self.due;
        self.link.as_ref().is_some_and(|link| {
            under_way < usize::from(self.window)
                && (under_way == 0
                    || link.waiting() <= courier.bounds.octets
                        && memory::may_queue(link.waiting() + next))
        })
    }

    fn send_again(&mut self, courier: &mut Courier) {
        while self.due > 0 {
            let at = self.flights.len() - self.due;
            let next = self
                .flights
                .get(at)
                .map_or(0, |next| next.entry.message.octets());
            if !self.has_room(courier, next) {
                break;
            }
            self.due -= 1;
            let (Some(link), Some(flight)) = (&mut self.link, self.flights.get_mut(at)) else {
                return;
            };
            if flight.step == Step::Released {
                let version = link.version;
                ack(link.out(), version, AckKind::Pubrel, flight.id, 0);
                continue;
            }
            if flight.entry.is_refused(courier.ledger.as_deref()) {
                let place = flight.entry.place;
                self.flights.remove(at);
                self.done(courier, place);
                continue;
            }
            flight.entry.copy.version = link.version;
            courier.encoder.begin();
            let message = flight.entry.message.message();
            let octets = courier
                .encoder
                .octets(&message, &flight.entry.copy, courier.now_s);
            // A message that finds no memory cannot wait for it, as in `fill`.
            let finds_none =
                self.key.is_none() && !memory::may_queue(link.waiting() + octets.packet.len());
            if octets.packet.len() > link.largest || finds_none {
                courier.dropped += u64::from(finds_none);
                let place = flight.entry.place;
                self.flights.remove(at); // [MQTT-3.1.2-24]
                self.done(courier, place);
                continue;
            }
            if let Some(span) = flight.entry.unanswered(courier.ledger.as_deref()) {
                let (id, length) = (flight.id, octets.packet.len());
                link.hold(span, Promise::Publish { id, length });
            }
            let start = link.out().len();
            append(link.out(), &octets.packet, octets.id_at, flight.id);
            if let Some(first) = link.out().get_mut(start) {
                *first |= 0x08; // DUP
            }
        }
    }

    /// Forget what is under way and what waits.
    pub fn clear(&mut self) {
        self.flights.clear();
        self.due = 0;
        self.queue = VecDeque::new();
        self.queued = 0;
        self.received = HashMap::new();
        self.hold();
    }

    /// An acknowledgement came. Whether it was expected.
    pub fn acknowledged(
        &mut self,
        courier: &mut Courier,
        kind: AckKind,
        id: u16,
        reason: u8,
    ) -> bool {
        let sent = self.flights.len() - self.due;
        let mut flights = self.flights.iter().take(sent);
        let Some(at) = flights.position(|flight| flight.id == id) else {
            if kind == AckKind::Pubrec && reason < 0x80 {
                self.answer(AckKind::Pubrel, id, 0x92, None);
            }
            return false;
        };
        let Some(flight) = self.flights.get_mut(at) else {
            return false;
        };
        let place = flight.entry.place;
        let twice = flight.entry.copy.qos == Qos::ExactlyOnce;
        match kind {
            AckKind::Pubrec if twice && reason < 0x80 => {
                flight.step = Step::Released;
                let state = RELEASED;
                let span = self.change(courier, |client| Change::InFlight {
                    client,
                    place,
                    id,
                    state,
                });
                self.answer(AckKind::Pubrel, id, 0, span);
                return true;
            }
            AckKind::Puback if !twice => drop(self.flights.remove(at)),
            AckKind::Pubrec | AckKind::Pubcomp if twice => drop(self.flights.remove(at)),
            _ => return false,
        }
        self.done(courier, place);
        true
    }

    fn change(
        &mut self,
        courier: &mut Courier,
        what: impl FnOnce(Arc<str>) -> Change,
    ) -> Option<Span> {
        change(&self.key, courier, what)
    }

    /// A message left the queue.
    fn done(&mut self, courier: &mut Courier, place: u64) {
        self.change(courier, |client| Change::Done { client, place });
    }

    /// A message of QoS 2 came; whether it is new. If it is, the caller has the ledger keep all of
    /// its changes in one batch.
    pub fn receive(&mut self, courier: &mut Courier, id: u16) -> bool {
        if let Some(before) = self.received.get(&id) {
            let refused = courier.ledger.as_ref().zip(*before);
            if !refused.is_some_and(|(ledger, span)| ledger.is_refused(span)) {
                let answered = courier
                    .ledger
                    .as_ref()
                    .map_or(0, |ledger| ledger.answered());
                courier.span = before.filter(|before| before.last > answered);
                return false;
            }
        }
        let span = self.change(courier, |client| Change::Received { client, id });
        self.received.insert(id, span);
        true
    }

    /// A message of QoS 2 will not come again; whether it came.
    pub fn release(&mut self, courier: &mut Courier, id: u16) -> bool {
        self.change(courier, |client| Change::Released { client, id });
        self.received.remove(&id).is_some()
    }

    /// Subscribed to a filter, with the options as in SUBSCRIBE.
    pub fn subscribed(
        &mut self,
        courier: &mut Courier,
        filter: &str,
        options: u8,
        identifier: u32,
    ) {
        let filter = filter.into();
        self.change(courier, |client| Change::Subscribe {
            client,
            filter,
            options,
            identifier,
        });
    }

    /// Not subscribed to a filter any more.
    pub fn unsubscribed(&mut self, courier: &mut Courier, filter: &str) {
        let filter = filter.into();
        self.change(courier, |client| Change::Unsubscribe { client, filter });
    }

    /// The session's state is to survive as it is now.
    pub fn keep(&mut self, courier: &mut Courier) -> Option<Span> {
        let key = self.key.clone()?;
        let now = session_change(&key, self, courier.now_s);
        self.change(courier, |_| now)
    }

    /// The session ended: nothing of it survives.
    pub fn end(&mut self, courier: &mut Courier) {
        self.clear();
        self.change(courier, |client| Change::SessionGone { client });
        self.key = None;
    }

    /// Whether nobody is connected, and its time is over.
    pub fn is_over(&self, now_s: u64) -> bool {
        let left_s = self.left_s.filter(|_| self.link.is_none());
        left_s.is_some_and(|left_s| {
            self.expiry_s != u32::MAX && now_s >= left_s.saturating_add(u64::from(self.expiry_s))
        })
    }

    /// Take what the store kept of it. Who was connected when the broker ended lost the connection
    /// now.
    pub fn restore(&mut self, kept: &KeptSession, now_s: u64) {
        self.key = Some(Arc::clone(&kept.client));
        self.user = kept.session.user.as_deref().map(Into::into);
        self.expiry_s = kept.session.expiry;
        self.left_s = Some(match kept.session.disconnected_at {
            0 => now_s,
            left_s => left_s.min(now_s),
        });
        self.will = kept.session.will.as_ref().map(will_from_store);
        self.received = kept.received.iter().map(|id| (*id, None)).collect();
        let filters = kept.subscriptions.iter();
        self.filters = filters.map(|one| (*one.filter).into()).collect();
        for one in &kept.queue {
            self.next_place = one.place + 1;
            let message = from_store(&one.body, false);
            let copy = Copy {
                version: Version::V5,
                qos: Qos::try_from(one.qos).unwrap_or_default(),
                retain: one.retain,
                subscription: one.subscription_ids.first().copied().unwrap_or(0),
            };
            let entry = Entry {
                place: one.place,
                message,
                copy,
                entered: None,
            };
            let Some((id, state)) = one.in_flight else {
                self.queued += entry.message.octets();
                self.queue.push_back(entry);
                continue;
            };
            let step = match state {
                RELEASED => Step::Released,
                _ => Step::Sent,
            };
            self.last_id = id;
            self.flights.push_back(Flight { id, entry, step });
        }
        self.resume();
    }

    /// Acknowledge, once the changes that `span` names are on disk.
    pub fn answer(&mut self, kind: AckKind, id: u16, reason: u8, span: Option<Span>) {
        let Some(link) = &mut self.link else { return };
        match span {
            Some(span) => link.hold(span, Promise::Ack(kind, id, reason)),
            None => {
                let version = link.version;
                ack(link.out(), version, kind, id, reason);
            }
        }
    }

    /// Let through what was held back for changes that were answered.
    pub fn settle(&mut self, courier: &mut Courier, ledger: &Ledger) {
        let answered = ledger.answered();
        let mut fills = false;
        while let Some(link) = &mut self.link
            && let Some((span, promise)) = link.promise(answered)
        {
            let version = link.version;
            let refused = ledger.is_refused(span);
            match promise {
                Promise::Publish { .. } if !refused => {}
                Promise::Pings(count) => (0..count).for_each(|_| pingresp(link.front())),
                Promise::Publish { id, length } => {
                    let at = self.flights.iter().position(|flight| flight.id == id);
                    let flight = at.and_then(|at| self.flights.get(at));
                    let entry = flight.map(|flight| &flight.entry);
                    if let Some(at) = at
                        && entry.is_some_and(|entry| entry.is_refused(Some(ledger)))
                    {
                        // Its publisher is told, and may send it again.
                        link.skip(length);
                        let flight = self.flights.remove(at);
                        if let Some(flight) = flight {
                            self.done(courier, flight.entry.place);
                        }
                        fills = true;
                    }
                }
                Promise::Ack(kind, id, code) if !refused => {
                    ack(link.front(), version, kind, id, code);
                }
                Promise::Ack(kind @ (AckKind::Puback | AckKind::Pubrec), id, _) => {
                    if version == Version::V5 {
                        ack(link.front(), version, kind, id, reason::QUOTA);
                    } else {
                        link.let_go();
                        link.close();
                    }
                    if kind == AckKind::Pubrec {
                        self.release(courier, id); // it may come again
                    }
                }
                // Who comes back may take what waits, which makes room.
                Promise::Connected { present: false } if refused => {
                    let none = ConnackProperties::default();
                    link.let_go();
                    connack(link.front(), version, false, reason::QUOTA, &none);
                    link.close();
                    self.expiry_s = 0;
                    self.will = None;
                    return;
                }
                Promise::Connected { .. } => {}
                Promise::Kept if !refused => {}
                Promise::Ack(..) | Promise::Kept => {
                    link.let_go();
                    if version == Version::V5 {
                        disconnect(link.front(), version, reason::QUOTA);
                    }
                    link.close();
                    return;
                }
            }
            if let Some(link) = &mut self.link {
                link.pass();
            }
        }
        if fills {
            self.fill(courier);
        }
    }
}

impl Entry {
    /// What it waits for, if it entered the store's queue with a batch that was not answered.
    fn unanswered(&self, ledger: Option<&Ledger>) -> Option<Span> {
        let (ledger, span) = ledger.zip(self.entered)?;
        let is_held = self.copy.qos == Qos::ExactlyOnce && span.last > ledger.answered();
        is_held.then_some(span)
    }

    /// Whether its publisher was told that it was not taken, so that it may come again.
    fn is_refused(&self, ledger: Option<&Ledger>) -> bool {
        let refused = ledger.zip(self.entered);
        self.copy.qos == Qos::ExactlyOnce
            && refused.is_some_and(|(ledger, span)| ledger.is_refused(span))
    }
}

/// Append a change of a session that is kept.
fn change(
    key: &Option<Arc<str>>,
    courier: &mut Courier,
    what: impl FnOnce(Arc<str>) -> Change,
) -> Option<Span> {
    let (key, ledger) = (key.as_ref()?, courier.ledger.as_ref()?);
    let span = ledger.append(what(Arc::clone(key)));
    courier.note(span);
    Some(span)
}

/// What a subscription takes, in octets, about.
fn cost(filter: &str) -> usize {
    let levels = filter.bytes().filter(|octet| *octet == b'/').count() + 1;
    SUBSCRIPTION + 2 * filter.len() + levels * LEVEL
}

fn append(out: &mut Vec<u8>, packet: &[u8], id_at: Option<usize>, id: u16) {
    let start = out.len();
    out.extend_from_slice(packet);
    if let Some(place) = id_at.and_then(|at| out.get_mut(start + at..start + at + 2)) {
        place.copy_from_slice(&id.to_be_bytes());
    }
}
