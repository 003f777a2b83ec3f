//! The messages to one client. At most one of them is unanswered; the others wait behind it.

mod address;
mod answers;

pub use address::{Address, DATAGRAM, Datagrams, NODE};

use crate::codec::{Message, Qos, Topic};
use crate::names::Names;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A message that is kept after its datagram, and how its memory is accounted for.
pub trait Keep {
    /// What the engine keeps with each client.
    type Account: Default;
    /// The topic's name.
    fn topic(&self) -> &str;
    /// The payload.
    fn payload(&self) -> &[u8];
    /// About how many octets of memory it takes.
    fn octets(&self) -> usize;
    /// Whether it has expired, and may not be delivered any more.
    fn is_over(&self, now_ns: u64) -> bool;
    /// Whether so many octets in total may wait for one client.
    fn may_wait(octets: usize) -> bool;
    /// The client takes so many octets of memory, without its messages.
    fn hold(account: &mut Self::Account, octets: usize);
    /// The client is at this address now; `None`: it is not connected.
    fn moved(account: &mut Self::Account, to: Option<SocketAddr>);
}

/// Whether a client gets messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Active,
    /// Its messages wait until it asks for them.
    Asleep,
    /// It was asleep and has asked for its messages.
    Awake,
    /// It is not connected, but its session is kept.
    Away,
}

/// What was done with a copy of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It was appended as a datagram.
    Sent,
    /// It was queued, or sent from the queue. Or it is of QoS 0 and the client is away.
    Waits,
    /// There was no room for it.
    Dropped,
}

struct Waiting<M> {
    message: Arc<M>,
    qos: Qos,
    retain: bool,
    id: u16,       // message id of an earlier try; 0: none
    refused: bool, // the client has refused the topic id
}

enum What<M> {
    Register(u16, Box<str>),
    Publish(Waiting<M>),
    Release,
}

struct Pending<M> {
    id: u16,
    what: What<M>,
    again_ns: u64, // when it is sent again
    tries: u32,
    congested: u32, // how often the client has answered CONGESTION
}

/// The limits of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) messages: usize,
    pub(crate) octets: usize,
    pub(crate) topics: usize,
    pub(crate) retry_ns: u64,
    pub(crate) retries: u32,
    pub(crate) prove: bool,
}

/// One client, as a thread that delivers messages sees it.
pub struct Client<M: Keep> {
    /// What the engine keeps with it.
    pub account: M::Account,
    pub(crate) address: Address,
    pub(crate) state: State,
    pub(crate) names: Names,
    pub(crate) will_octets: usize,
    bounds: Bounds,
    proven: bool,
    received: usize, // octets from the present address, for the credit until it is proven
    sent: usize,
    queue: VecDeque<Waiting<M>>,
    queued: usize,
    pending: Option<Pending<M>>,
    next_id: u16,
    /// How many copies were dropped for lack of room.
    pub(crate) dropped: u64,
}

/// A client to which several threads deliver.
pub type Seat<M> = Arc<Mutex<Client<M>>>;

/// Lock, even if a thread has panicked with the lock held: the client is consistent at any time.
pub fn lock<M: Keep>(seat: &Seat<M>) -> MutexGuard<'_, Client<M>> {
    seat.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Keep> Client<M> {
    pub(crate) fn new(address: Address, bounds: Bounds, random: u32) -> Self {
        let mut client = Self {
            account: M::Account::default(),
            address,
            state: State::Active,
            names: Names::new(bounds.topics, (random >> 16) as u16),
            will_octets: 0,
            bounds,
            proven: !bounds.prove,
            received: 0,
            sent: 0,
            queue: VecDeque::new(),
            queued: 0,
            pending: None,
            next_id: random as u16,
            dropped: 0,
        };
        client.hold();
        M::moved(&mut client.account, Some(address.at));
        client
    }

    /// Report how many octets of memory it takes, without the messages.
    pub(crate) fn hold(&mut self) {
        let octets = self.names.octets() + self.will_octets;
        let queue = self.queue.capacity() * size_of::<Waiting<M>>();
        M::hold(&mut self.account, octets + queue);
    }

    /// It has connected from this address. If that is a new one, it has to be proven again.
    pub(crate) fn come(&mut self, address: Address) {
        if self.address != address {
            self.address = address;
            self.proven = !self.bounds.prove;
            (self.received, self.sent) = (0, 0);
        }
        M::moved(&mut self.account, Some(address.at));
    }

    /// It goes away or to sleep. An unanswered message is sent again when it is back.
    pub(crate) fn leave(&mut self, state: State) {
        self.state = state;
        match self.pending.take() {
            Some(Pending {
                what: What::Publish(mut waiting),
                id,
                ..
            }) => {
                waiting.id = id;
                self.queued += waiting.message.octets();
                self.queue.push_front(waiting);
            }
            // The client has received the message: only the PUBREL has to be sent again.
            pending @ Some(Pending {
                what: What::Release,
                ..
            }) => self.pending = pending,
            _ => {}
        }
        if state == State::Away {
            M::moved(&mut self.account, None);
            self.queue.retain(|one| one.qos > Qos::AtMostOnce);
            self.queued = self.queue.iter().map(|one| one.message.octets()).sum();
        }
    }

    /// So many octets came from the client.
    pub(crate) fn heard(&mut self, octets: usize) {
        self.received = self.received.saturating_add(octets);
    }

    /// So many octets were sent to the client by other means than [`Self::say`].
    pub(crate) fn told(&mut self, octets: usize) {
        self.sent = self.sent.saturating_add(octets);
    }

    /// Append a message. Returns false if it is too long for a datagram.
    pub(crate) fn say(&mut self, message: &Message<'_>, out: &mut Datagrams) -> bool {
        let start = out.octets.len();
        let fits = self.address.write(message, &mut out.octets);
        if fits {
            self.sent += out.octets.len() - start;
            out.ends.push(out.octets.len());
        }
        fits
    }

    /// The address and the topic of a copy with QoS 0, if it can be sent at once. `None`: it would
    /// have to wait, or the client is behind a forwarder.
    #[must_use]
    pub fn direct(&self, topic: &str) -> Option<(SocketAddr, Topic)> {
        let is_direct = self.state == State::Active && self.proven;
        let to = self.address.plain().filter(|_| is_direct)?;
        let waits = self.queue.iter().any(|one| one.message.topic() == topic);
        let named = self.names.known(topic).filter(|_| !waits)?;
        Some((to, named))
    }

    /// Deliver one copy. Datagrams that are to be sent now are appended. `keep` makes the message
    /// that is queued.
    #[allow(clippy::too_many_arguments)]
    pub fn deliver(
        &mut self,
        now_ns: u64,
        topic: &str,
        payload: &[u8],
        qos: Qos,
        retain: bool,
        keep: impl FnOnce() -> Arc<M>,
        out: &mut Datagrams,
    ) -> Delivered {
        let is_direct = self.state == State::Active && self.proven && qos == Qos::AtMostOnce;
        if is_direct
            && !self.queue.iter().any(|one| one.message.topic() == topic)
            && let Some(named) = self.names.known(topic)
        {
            let message = publish(named, 0, false, qos, retain, payload);
            return match self.say(&message, out) {
                true => Delivered::Sent,
                false => self.drop_one(),
            };
        }
        if self.state == State::Away && qos == Qos::AtMostOnce {
            return Delivered::Waits;
        }
        if self.queue.len() >= self.bounds.messages {
            return self.drop_one();
        }
        let message = keep();
        let octets = self.queued + message.octets();
        if octets > self.bounds.octets || !M::may_wait(octets) {
            return self.drop_one();
        }
        self.queued = octets;
        self.queue.push_back(Waiting {
            message,
            qos,
            retain,
            id: 0,
            refused: false,
        });
        self.pump(now_ns, out);
        self.hold();
        Delivered::Waits
    }

    fn drop_one(&mut self) -> Delivered {
        self.dropped += 1;
        Delivered::Dropped
    }

    /// Append what can be sent of the queue.
    pub(crate) fn pump(&mut self, now_ns: u64, out: &mut Datagrams) {
        while self.pending.is_none() && matches!(self.state, State::Active | State::Awake) {
            let Some(first) = self.queue.front() else {
                break;
            };
            let message = Arc::clone(&first.message);
            if message.is_over(now_ns) {
                self.queued -= message.octets();
                self.queue.pop_front();
                continue;
            }
            let topic = message.topic();
            let known = self.names.known(topic).filter(|_| self.proven);
            let Some(named) = known else {
                if !self.register(now_ns, topic, out) {
                    break;
                }
                continue;
            };
            let Some(mut waiting) = self.queue.pop_front() else {
                break;
            };
            self.queued -= message.octets();
            let is_again = waiting.id != 0;
            if waiting.qos > Qos::AtMostOnce && !is_again {
                waiting.id = self.message_id();
            }
            let (id, qos, retain) = (waiting.id, waiting.qos, waiting.retain);
            out.has_waited = true;
            let publish = publish(named, id, is_again, qos, retain, message.payload());
            if !self.say(&publish, out) {
                self.dropped += 1; // too long for a datagram
            } else if qos > Qos::AtMostOnce {
                self.wait(now_ns, id, What::Publish(waiting));
            }
        }
        if self.state == State::Awake && self.pending.is_none() && self.queue.is_empty() {
            self.say(&Message::Pingresp, out);
            self.state = State::Asleep;
        }
    }

    fn message_id(&mut self) -> u16 {
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        self.next_id
    }

    fn wait(&mut self, now_ns: u64, id: u16, what: What<M>) {
        self.pending = Some(Pending {
            id,
            what,
            again_ns: now_ns + self.bounds.retry_ns,
            tries: 0,
            congested: 0,
        });
    }
}

fn publish(topic: Topic, id: u16, dup: bool, qos: Qos, retain: bool, data: &[u8]) -> Message<'_> {
    Message::Publish {
        dup,
        qos,
        retain,
        topic,
        message_id: id,
        data,
    }
}
