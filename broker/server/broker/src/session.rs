//! What the broker keeps of one client: its link while it is connected, and what waits for it.

mod context;
mod inflight;
mod kept;

use crate::batch::Peer;
use crate::journal::Span;
use crate::link::{DeferredReply, Link};
use crate::memory::{self, Of, Share};
use crate::message::{Copy, Kept, Message};
use crate::retained::Source;
use crate::sync::lock;
pub use context::DeliveryContext;
use inflight::{Entry, Flight};
pub use kept::session_change;
use mqtick_packet::{AckKind, Qos, ack};
use mqtick_sn::Seat;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

const SESSION: usize = 1024; // octets of memory, about
const SUBSCRIPTION: usize = 512;
const LEVEL: usize = 256;
const EAGER: usize = 1 << 18; // octets that wait for a client that is sent retained messages

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
    /// The subscriber.
    pub session: Arc<Session>,
    /// The highest QoS that was granted.
    pub qos: Qos,
    /// Whether the client does not get its own messages.
    pub no_local: bool,
    /// Whether copies say that the message was published as retained.
    pub retain_as_published: bool,
    /// The subscription's identifier; 0: none.
    pub identifier: u32,
}

/// The message to publish when the connection ends without a normal DISCONNECT.
pub struct Will {
    /// The message.
    pub message: Arc<Kept>,
    /// How long it may be delivered after it is published, in seconds; none: without limit.
    pub lifetime_s: Option<u32>,
    /// How long after the end of the connection it is published, in seconds.
    pub delay_s: u32,
}

/// A client's session.
pub struct Session {
    /// The client's identifier.
    pub client: Box<str>,
    /// The key of its subscriptions in the tree, which is never used twice.
    pub number: u64,
    /// Its address and lease, if it is subscribed over mqtt-udp. It has no link then.
    pub peer: Option<Arc<Peer>>,
    /// What it has to be sent, if it is a client of MQTT-SN. It has no link then.
    pub sensor: Option<Seat<Kept>>,
    /// Whether it has ended: it gets nothing more, although it may be in the tree for a while.
    pub is_over: AtomicBool,
    state: Mutex<State>,
}

/// What changes in a session.
pub struct State {
    /// The connection, while there is one.
    pub link: Option<Link>,
    /// The user name, proven by password or certificate.
    pub user: Option<Box<str>>,
    /// How long the session outlives its connection, in seconds; `u32::MAX`: without limit.
    pub expiry_s: u32,
    /// When the connection ended, in seconds of the broker's clock.
    pub left_s: Option<u64>,
    /// When it is looked at next while its client is away, as the calendar has it.
    pub reminder_s: Option<u64>,
    /// Its last will.
    pub will: Option<Will>,
    source: Option<Arc<Source>>,
    filters: HashSet<Box<str>>,
    /// Packet identifiers of QoS 2 messages that have come and are not released yet, with the
    /// changes that each message has made.
    received: HashMap<u16, Option<Span>>,
    /// The most messages that may be under way to it.
    pub window: u16,
    /// Its name in the store, if it is kept on disk. The client's next session has another name, so
    /// that no change is applied to the wrong session.
    pub key: Option<Arc<str>>,
    /// The name of its will in the store, if nothing else of it is kept: it is published after a
    /// crash.
    pub will_key: Option<Arc<str>>,
    flights: VecDeque<Flight>,
    due: usize, // how many of the last flights this connection has not been sent yet
    queue: VecDeque<Entry>,
    queued: usize,
    last_id: u16,
    next_place: u64,
    filter_octets: usize,
    client_octets: usize,
    share: Share,
}

impl Session {
    /// A session without a connection.
    pub fn new(client: &str, number: u64) -> Arc<Self> {
        Self::with(client, number, None, None)
    }

    /// A session that stands for a subscriber over mqtt-udp in the tree.
    pub fn with_peer(client: &str, number: u64, peer: Arc<Peer>) -> Arc<Self> {
        Self::with(client, number, Some(peer), None)
    }

    /// A session that stands for a client of MQTT-SN in the tree.
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
            is_over: AtomicBool::new(false),
            state: Mutex::new(State {
                link: None,
                user: None,
                expiry_s: 0,
                left_s: None,
                reminder_s: None,
                will: None,
                source: None,
                filters: HashSet::new(),
                received: HashMap::new(),
                window: 0,
                key: None,
                will_key: None,
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
        lock(&self.state)
    }

    /// Deliver one copy. `kept` is the message, once one of its copies has to be kept.
    pub fn deliver(
        self: &Arc<Self>,
        context: &mut DeliveryContext,
        message: &Message,
        kept: &mut Option<Arc<Kept>>,
        subscription: &Subscription,
        retain: bool,
    ) {
        if self.is_over.load(Relaxed) {
            return;
        }
        if let Some(peer) = &self.peer {
            return context.send_datagram(message, peer);
        }
        if let Some(seat) = &self.sensor {
            return context.send_to_sensor(message, kept, subscription.qos, retain, seat);
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
            if !state.queue_or_send(context, kept, copy) {
                return;
            }
        } else if let Some(link) = &mut state.link {
            let is_same = |one: &(_, _)| one.0 == version && !retain && copy.subscription == 0;
            let octets = match message.whole.filter(is_same) {
                Some((_, octets)) => octets,
                None => &context.encoder.octets(message, &copy, context.now_s).packet,
            };
            if octets.len() > link.largest {
                return; // [MQTT-3.1.2-24]
            }
            let waits = !context.at_once;
            if link.waiting() + octets.len() > context.bounds.octets
                || !link.may_take(octets.len(), waits)
            {
                context.dropped += 1;
                return;
            }
            context.sent += 1;
            if let Some(arrived) = &context.arrived {
                link.write_stated(octets, arrived);
                return;
            }
            if context.at_once {
                link.write(octets);
                return;
            }
            link.out().extend_from_slice(octets);
        }
        self.written(&mut state, context);
    }

    /// Something was appended to the link: flush it now, or note that it must be.
    pub fn written(self: &Arc<Self>, state: &mut State, context: &mut DeliveryContext) {
        let Some(link) = &mut state.link else { return };
        if let Some(newest) = link.newest().filter(|newest| *newest > link.awaited) {
            link.awaited = newest;
            context.holding.push_back((newest, Arc::clone(self)));
        }
        if context.at_once {
            link.flush();
        } else if !link.listed {
            link.listed = true;
            context.pending_flush.push(Arc::clone(self));
        }
    }
}

impl State {
    /// Account for the memory that it holds, without the messages.
    pub fn hold(&mut self) {
        let entries = self.queue.capacity() * size_of::<Entry>()
            + self.flights.capacity() * size_of::<Flight>()
            + self.received.capacity() * size_of::<(u32, Option<Span>)>();
        let user = self.user.as_ref().map_or(0, |user| user.len());
        self.share
            .set(SESSION + self.client_octets + user + entries + self.filter_octets);
    }

    /// The octets that the identifiers of received QoS 2 messages take at least.
    pub fn received_octets(&self) -> usize {
        self.received.len() * size_of::<(u32, Option<Span>)>()
    }

    /// Whether its connection, which has this token, takes another retained message: little waits
    /// for it so far.
    pub fn takes_retained(&self, token: u64, bounds: &Bounds) -> bool {
        let link = self.link.as_ref().filter(|link| link.place.token == token);
        link.is_some_and(|link| link.waiting() <= EAGER.min(bounds.octets / 4))
            && self.queue.len() <= bounds.messages / 2
            && self.queued <= bounds.octets / 2
    }

    /// Who has published what it publishes.
    pub fn source(&mut self, session: &Session) -> Arc<Source> {
        let known = self.source.take();
        let known = known.filter(|known| known.user == self.user);
        let new = || {
            Arc::new(Source {
                user: self.user.clone(),
                client: session.client.clone(),
            })
        };
        Arc::clone(self.source.insert(known.unwrap_or_else(new)))
    }

    /// The filters that it is subscribed to.
    pub fn filters(&self) -> &HashSet<Box<str>> {
        &self.filters
    }

    /// Whether the limit of all memory lets it subscribe to one more.
    pub fn may_add(&self, filter: &str) -> bool {
        memory::may_hold(self.filter_octets + cost(filter))
    }

    /// Subscribe to a filter. Returns whether it is new.
    pub fn add_filter(&mut self, filter: &str) -> bool {
        let is_new = self.filters.insert(filter.into());
        if is_new {
            self.filter_octets += cost(filter);
            self.hold();
        }
        is_new
    }

    /// Unsubscribe from a filter. Returns whether there was a subscription.
    pub fn remove_filter(&mut self, filter: &str) -> bool {
        let was_there = self.filters.remove(filter);
        if was_there {
            self.filter_octets -= cost(filter);
            self.hold();
        }
        was_there
    }

    /// Unsubscribe from all: the filters, and the memory that subscriptions to them take.
    pub fn take_filters(&mut self) -> (HashSet<Box<str>>, Share) {
        let share = Share::new(Of::Sessions, std::mem::take(&mut self.filter_octets));
        self.hold();
        (std::mem::take(&mut self.filters), share)
    }

    /// Acknowledge, once the changes of `span` are on disk.
    pub fn answer(&mut self, kind: AckKind, id: u16, reason: u8, span: Option<Span>) {
        let Some(link) = &mut self.link else { return };
        match span {
            Some(span) => link.hold(span, DeferredReply::Ack(kind, id, reason)),
            None => {
                let version = link.version;
                ack(link.out(), version, kind, id, reason);
            }
        }
    }
}

/// Octets of memory that a subscription takes, about.
fn cost(filter: &str) -> usize {
    let levels = filter.bytes().filter(|octet| *octet == b'/').count() + 1;
    SUBSCRIPTION + 2 * filter.len() + levels * LEVEL
}
