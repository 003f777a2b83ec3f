//! What the broker keeps of one client: its link while it is connected, and what waits for it.

use crate::link::Link;
use crate::memory::{self, Of, Share};
use crate::message::{Copy, Encoder, Kept, Message};
use crate::residence::Arrived;
use mqtick_packet::{AckKind, Qos, ack};
use std::collections::{HashSet, VecDeque};
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

struct Flight {
    id: u16,
    copy: Copy,
    message: Arc<Kept>,
    step: Step,
}

/// A client's session.
pub struct Session {
    /// The client's identifier.
    pub client: Box<str>,
    /// The key of its subscriptions; never used twice.
    pub number: u64,
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
    /// Identifiers of messages of QoS 2 that came and were not released yet.
    pub received: HashSet<u16>,
    /// The most messages that may be under way to it.
    pub window: u16,
    flights: VecDeque<Flight>,
    due: usize, // the last ones of them, which this connection has not got yet
    queue: VecDeque<(Arc<Kept>, Copy)>,
    queued: usize,
    last_id: u16,
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
    /// The broker's clock, seconds.
    pub now_s: u64,
    /// Copies that went to a link.
    pub sent: u64,
    /// Copies that there was no room for.
    pub dropped: u64,
    /// What a client may make the broker keep.
    pub bounds: Bounds,
}

impl Session {
    /// A session that nobody is connected to.
    pub fn new(client: &str, number: u64) -> Arc<Self> {
        Arc::new(Self {
            client: client.into(),
            number,
            state: Mutex::new(State {
                link: None,
                user: None,
                expiry_s: 0,
                left_s: None,
                will: None,
                filters: HashSet::new(),
                received: HashSet::new(),
                window: 0,
                flights: VecDeque::new(),
                due: 0,
                queue: VecDeque::new(),
                queued: 0,
                last_id: 0,
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
        if courier.at_once {
            link.flush();
        } else if !link.listed {
            link.listed = true;
            courier.dirty.push(Arc::clone(self));
        }
    }
}

impl State {
    /// Send a copy of QoS 1 or 2, or queue it; whether something was appended to the link.
    fn queue_or_send(&mut self, courier: &mut Courier, kept: &Arc<Kept>, copy: Copy) -> bool {
        let octets = kept.octets();
        if self.due == 0 && self.queue.is_empty() && self.has_room(courier, octets) {
            if self.has_memory(octets) {
                return self.send(courier, Arc::clone(kept), copy);
            }
            courier.dropped += 1;
            return false;
        }
        if self.queue.len() >= courier.bounds.messages
            || self.queued + octets > courier.bounds.octets
            || !memory::may_queue(self.queued + octets)
        {
            courier.dropped += 1;
            return false;
        }
        self.queued += octets;
        self.queue.push_back((Arc::clone(kept), copy));
        self.hold();
        false
    }

    fn send(&mut self, courier: &mut Courier, message: Arc<Kept>, mut copy: Copy) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        copy.version = link.version;
        let octets = courier
            .encoder
            .octets(&message.message(), &copy, courier.now_s);
        if octets.packet.is_empty() || octets.packet.len() > link.largest {
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
        append(link.out(), &octets.packet, octets.id_at, id);
        courier.sent += 1;
        self.flights.push_back(Flight {
            id,
            copy,
            message,
            step: Step::Sent,
        });
        true
    }

    /// Fill the window with what has to be sent again, then from the queue.
    pub fn fill(&mut self, courier: &mut Courier) {
        self.send_again(courier);
        while let Some((next, _)) = self.queue.front()
            && self.due == 0
            && self.has_room(courier, next.octets())
        {
            let Some((message, copy)) = self.queue.pop_front() else {
                break;
            };
            self.queued -= message.octets();
            if message
                .message()
                .expires_s
                .is_some_and(|expires_s| expires_s <= courier.now_s)
            {
                continue;
            }
            if !self.has_memory(message.octets()) {
                courier.dropped += 1; // it cannot wait for room: nothing would look for it again
                continue;
            }
            courier.encoder.begin();
            self.send(courier, message, copy);
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
        let entries = self.queue.capacity() * size_of::<(Arc<Kept>, Copy)>()
            + self.flights.capacity() * size_of::<Flight>()
            + self.received.capacity() * size_of::<u32>();
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
            let next = self.flights.get(at).map_or(0, |next| next.message.octets());
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
            flight.copy.version = link.version;
            courier.encoder.begin();
            let octets =
                courier
                    .encoder
                    .octets(&flight.message.message(), &flight.copy, courier.now_s);
            // A message that finds no memory cannot wait for it, as in `fill`.
            let finds_none = !memory::may_queue(link.waiting() + octets.packet.len());
            if octets.packet.len() > link.largest || finds_none {
                courier.dropped += u64::from(finds_none);
                self.flights.remove(at); // [MQTT-3.1.2-24]
                continue;
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
        self.received = HashSet::new();
        self.hold();
    }

    /// An acknowledgement came. Whether it was expected.
    pub fn acknowledged(&mut self, kind: AckKind, id: u16, reason: u8) -> bool {
        let sent = self.flights.len() - self.due;
        let mut flights = self.flights.iter().take(sent);
        let Some(at) = flights.position(|flight| flight.id == id) else {
            if kind == AckKind::Pubrec && reason < 0x80 {
                self.answer(AckKind::Pubrel, id, 0x92);
            }
            return false;
        };
        let Some(flight) = self.flights.get_mut(at) else {
            return false;
        };
        let twice = flight.copy.qos == Qos::ExactlyOnce;
        match kind {
            AckKind::Pubrec if twice && reason < 0x80 => {
                flight.step = Step::Released;
                self.answer(AckKind::Pubrel, id, 0);
            }
            AckKind::Puback if !twice => drop(self.flights.remove(at)),
            AckKind::Pubrec | AckKind::Pubcomp if twice => drop(self.flights.remove(at)),
            _ => return false,
        }
        true
    }

    /// Append an acknowledgement to the link.
    pub fn answer(&mut self, kind: AckKind, id: u16, reason: u8) {
        if let Some(link) = &mut self.link {
            let version = link.version;
            ack(link.out(), version, kind, id, reason);
        }
    }
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
