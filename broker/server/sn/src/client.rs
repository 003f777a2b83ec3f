//! What leaves for one client: at most one message waits for its answer, the others behind it.

mod address;
mod answers;

pub use address::{Address, DATAGRAM, Datagrams, NODE};

use crate::codec::{Message, Qos, Topic};
use crate::names::Names;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A message that outlives the datagram that brought it, and how it is accounted for.
pub trait Keep {
    /// What is kept beside each client.
    type Account: Default;
    /// The topic's name.
    fn topic(&self) -> &str;
    /// The application's octets.
    fn payload(&self) -> &[u8];
    /// About how much memory it takes.
    fn octets(&self) -> usize;
    /// Whether it may not be delivered any more.
    fn is_over(&self, now_ns: u64) -> bool;
    /// Whether so much in all may wait for one client.
    fn may_wait(octets: usize) -> bool;
    /// The client holds so much beside messages.
    fn hold(account: &mut Self::Account, octets: usize);
    /// The client is reached there; none: not at all.
    fn moved(account: &mut Self::Account, to: Option<SocketAddr>);
}

/// Whether it gets messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Active,
    /// Messages wait until it asks for them.
    Asleep,
    /// It asked.
    Awake,
    /// It is not connected, but its session is kept.
    Away,
}

/// What became of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// It leaves as the only datagram.
    Sent,
    /// It waits, or was not for somebody who is away.
    Waits,
    /// There is no room for it.
    Dropped,
}

struct Waiting<M> {
    message: Arc<M>,
    qos: Qos,
    retain: bool,
    id: u16,       // of an earlier try; 0: none
    refused: bool, // the client did not know its topic's id
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
    congested: u32, // times that the client had no room for it
}

/// How a client is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) messages: usize,
    pub(crate) octets: usize,
    pub(crate) topics: usize,
    pub(crate) retry_ns: u64,
    pub(crate) retries: u32,
    pub(crate) prove: bool,
}

/// One client, as whoever delivers sees it.
pub struct Client<M: Keep> {
    /// What is kept beside it.
    pub account: M::Account,
    pub(crate) address: Address,
    pub(crate) state: State,
    pub(crate) names: Names,
    pub(crate) will_octets: usize,
    bounds: Bounds,
    proven: bool,
    received: usize, // octets, before it was proven
    sent: usize,
    queue: VecDeque<Waiting<M>>,
    queued: usize,
    pending: Option<Pending<M>>,
    next_id: u16,
    /// Copies for which there was no room.
    pub(crate) dropped: u64,
}

/// A client that several threads deliver to.
pub type Seat<M> = Arc<Mutex<Client<M>>>;

/// Lock, also after a thread ended with the lock held: what it protects is whole at any time.
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

    /// Say how much it holds, beside the messages.
    pub(crate) fn hold(&mut self) {
        let octets = self.names.octets() + self.will_octets;
        let queue = self.queue.capacity() * size_of::<Waiting<M>>();
        M::hold(&mut self.account, octets + queue);
    }

    /// It comes from somewhere: what that proved is forgotten if it is elsewhere.
    pub(crate) fn come(&mut self, address: Address) {
        if self.address != address {
            self.address = address;
            self.proven = !self.bounds.prove;
            (self.received, self.sent) = (0, 0);
        }
        M::moved(&mut self.account, Some(address.at));
    }

    /// It goes, or sleeps: what is under way is sent again when it is back.
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
            // The message was received: only its release is owed.
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

    /// So many octets came from it.
    pub(crate) fn heard(&mut self, octets: usize) {
        self.received = self.received.saturating_add(octets);
    }

    /// So many octets went to it that were not appended here.
    pub(crate) fn told(&mut self, octets: usize) {
        self.sent = self.sent.saturating_add(octets);
    }

    /// Append an answer.
    pub(crate) fn say(&mut self, message: &Message<'_>, out: &mut Datagrams) -> bool {
        let start = out.octets.len();
        let fits = self.address.write(message, &mut out.octets);
        if fits {
            self.sent += out.octets.len() - start;
            out.ends.push(out.octets.len());
        }
        fits
    }

    /// Where a copy of QoS 0 of a message on this topic would leave for at once, and as what; none:
    /// it would have to wait, or goes through a forwarder.
    #[must_use]
    pub fn direct(&self, topic: &str) -> Option<(SocketAddr, Topic)> {
        let is_direct = self.state == State::Active && self.proven;
        let to = self.address.plain().filter(|_| is_direct)?;
        let waits = self.queue.iter().any(|one| one.message.topic() == topic);
        let named = self.names.known(topic).filter(|_| !waits)?;
        Some((to, named))
    }

    /// Deliver one copy; what leaves now is appended. `keep` makes what waits.
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

    /// Send what can leave.
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
                self.dropped += 1; // no datagram is so long
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
