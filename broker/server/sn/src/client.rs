//! What leaves for one client: at most one message waits for its answer, the others behind it.

use crate::codec::{Code, Forwarded, Message, Qos, Topic, encode, encode_forwarded};
use crate::names::Names;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Octets of the longest datagram: one Ethernet frame.
pub const DATAGRAM: usize = 1472;
/// The same over IPv6, whose header is longer.
const DATAGRAM_V6: usize = 1452;
/// Octets of the longest name of a client behind a forwarder.
pub const NODE: usize = 16;
/// An unproven address gets at most so many times the octets that came from it (RFC 9000, 8.1).
const CREDIT: usize = 3;
/// A client that is congested is asked again after as long as usual, then after twice as long, up to
/// the standard's `T_WAIT` (clause 7.2: more than five minutes).
const MOST_REST_NS: u64 = 300_000_000_000;
/// A name that is registered where the topic's own is too long for the credit.
const PROOF: &str = "$proof";

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

/// Where a client is: behind a forwarder also which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Where datagrams come from.
    pub at: SocketAddr,
    node: Option<(u8, [u8; NODE])>,
}

impl Address {
    /// None: the node's name is too long.
    #[must_use]
    pub fn new(at: SocketAddr, forwarded: Option<&Forwarded<'_>>) -> Option<Self> {
        let node = match forwarded {
            None => None,
            Some(forwarded) => {
                let mut node = [0; NODE];
                let length = forwarded.node.len();
                node.get_mut(..length)?.copy_from_slice(forwarded.node);
                Some((u8::try_from(length).ok()?, node))
            }
        };
        Some(Self { at, node })
    }

    /// Where datagrams come from, unless through a forwarder.
    pub(crate) fn plain(&self) -> Option<SocketAddr> {
        self.node.is_none().then_some(self.at)
    }

    /// Whether only the port differs.
    pub(crate) fn is_near(&self, other: &Self) -> bool {
        self.at.ip() == other.at.ip() && self.node == other.node
    }

    /// Octets of a REGISTER there, at most.
    fn register_octets(&self, name: &str) -> usize {
        8 + name.len() + self.node.map_or(0, |(length, _)| 3 + usize::from(length))
    }

    /// Append a message as it goes there; whether it fits.
    pub(crate) fn write(&self, message: &Message<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let fits = match &self.node {
            None => encode(message, out),
            Some((length, node)) => {
                let node = node.get(..usize::from(*length)).unwrap_or_default();
                encode_forwarded(message, &Forwarded { radius: 0, node }, out)
            }
        };
        let most = match self.at {
            SocketAddr::V4(_) => DATAGRAM,
            SocketAddr::V6(_) => DATAGRAM_V6,
        };
        let fits = fits && out.len() - start <= most;
        if !fits {
            out.truncate(start);
        }
        fits
    }
}

/// Datagrams in their order.
#[derive(Default)]
pub struct Datagrams {
    octets: Vec<u8>,
    ends: Vec<usize>,
    /// Whether a message is among them that had to wait.
    pub(crate) has_waited: bool,
}

impl Datagrams {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        places.map(|(start, end)| self.octets.get(start..*end).unwrap_or_default())
    }

    /// Forget them.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.ends.clear();
        self.has_waited = false;
    }
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

    /// Ask the client to know a topic by an id; who answers that proves its address. Whether to go
    /// on: something is under way, or the message was dropped.
    fn register(&mut self, now_ns: u64, topic: &str, out: &mut Datagrams) -> bool {
        let left = (CREDIT * self.received).saturating_sub(self.sent);
        let fits = |name: &str| self.proven || self.address.register_octets(name) <= left;
        let has_no_id = matches!(
            self.names.known(topic),
            Some(Topic::Short(_) | Topic::Predefined(_))
        );
        let name = match topic {
            topic if fits(topic) && !has_no_id => topic,
            _ if fits(PROOF) => PROOF,
            _ => return false,
        };
        let room = M::may_wait(self.names.octets() + topic.len());
        let id = room.then(|| self.names.id(name)).flatten();
        let message_id = self.message_id();
        let register = |topic_id| Message::Register {
            topic_id,
            message_id,
            name,
        };
        if let Some(topic_id) = id
            && self.say(&register(topic_id), out)
        {
            self.wait(now_ns, message_id, What::Register(topic_id, name.into()));
        } else {
            self.refuse(topic); // no id is left, or no datagram is so long
        }
        true
    }

    /// Forget what waits on a topic.
    fn refuse(&mut self, topic: &str) {
        let before = self.queue.len();
        self.queue.retain(|one| one.message.topic() != topic);
        self.queued = self.queue.iter().map(|one| one.message.octets()).sum();
        self.dropped += (before - self.queue.len()) as u64;
    }

    /// The answer to REGISTER came; whether it was waited for.
    pub(crate) fn registered(&mut self, topic_id: u16, id: u16, code: Code) -> bool {
        let is_it = |one: &mut Pending<M>| {
            one.id == id && matches!(one.what, What::Register(known, _) if known == topic_id)
        };
        let Some(Pending {
            what: What::Register(_, name),
            ..
        }) = self.pending.take_if(is_it)
        else {
            return false;
        };
        self.proven = true;
        match code {
            Code::ACCEPTED => self.names.confirm(&name),
            _ if self.names.known(&name).is_none() => self.refuse(&name),
            _ => {}
        }
        true
    }

    /// PUBACK, PUBREC or PUBCOMP came, whichever this is; whether it was waited for.
    pub(crate) fn acknowledged(
        &mut self,
        now_ns: u64,
        answer: &Message<'_>,
        out: &mut Datagrams,
    ) -> bool {
        let (Message::Puback { message_id: id, .. } | Message::Pubrec(id) | Message::Pubcomp(id)) =
            *answer
        else {
            return false;
        };
        if let Message::Puback {
            topic_id,
            message_id: 0,
            code: Code::INVALID_TOPIC,
        } = *answer
        {
            // To a copy of QoS 0 (clause 5.4.13): the next one comes after a REGISTER.
            return self.names.doubt_id(topic_id);
        }
        let qos = match self.pending.as_ref().filter(|one| one.id == id) {
            Some(Pending {
                what: What::Publish(waiting),
                ..
            }) => Some(waiting.qos),
            Some(Pending {
                what: What::Release,
                ..
            }) => None,
            _ => {
                // It was released before, and the answer to that lost.
                if let Message::Pubrec(id) = *answer {
                    self.say(&Message::Pubrel(id), out);
                }
                return false;
            }
        };
        match (answer, qos) {
            (Message::Puback { code, .. }, Some(_)) => {
                if *code == Code::CONGESTION {
                    // It is sent again later, however often: the client answers.
                    let rest_ns = self.bounds.retry_ns;
                    if let Some(pending) = &mut self.pending {
                        let rest_ns = rest_ns << pending.congested.min(16);
                        pending.again_ns = now_ns + rest_ns.min(MOST_REST_NS);
                        pending.congested += 1;
                        pending.tries = 0;
                    }
                    return true;
                }
                if let Some(pending) = self.pending.take()
                    && *code == Code::INVALID_TOPIC
                {
                    self.name_anew(pending);
                }
            }
            (Message::Pubrec(_), Some(Qos::ExactlyOnce) | None) => {
                self.say(&Message::Pubrel(id), out);
                self.wait(now_ns, id, What::Release);
            }
            (Message::Pubcomp(_), None) => self.pending = None,
            _ => return false,
        }
        true
    }

    /// Its topic's id is not known: the name is registered again and the message sent after it, once.
    fn name_anew(&mut self, pending: Pending<M>) {
        let What::Publish(mut waiting) = pending.what else {
            return;
        };
        self.names.doubt(waiting.message.topic());
        let has_id = self.names.known(waiting.message.topic()).is_some();
        if waiting.refused || has_id {
            self.dropped += 1;
            return;
        }
        (waiting.id, waiting.refused) = (pending.id, true);
        self.queued += waiting.message.octets();
        self.queue.push_front(waiting);
    }

    /// Send again what was not answered for long; whether the client still answers.
    pub(crate) fn repeat(&mut self, now_ns: u64, out: &mut Datagrams) -> bool {
        if !matches!(self.state, State::Active | State::Awake) {
            return true;
        }
        let Some(mut pending) = self.pending.take() else {
            self.pump(now_ns, out); // an unproven one may have got credit
            return true;
        };
        if now_ns < pending.again_ns {
            self.pending = Some(pending);
            return true;
        }
        if pending.tries >= self.bounds.retries {
            self.pending = Some(pending);
            return false;
        }
        let credit = (CREDIT * self.received).saturating_sub(self.sent);
        match &pending.what {
            What::Register(topic_id, name)
                if self.proven || self.address.register_octets(name) <= credit =>
            {
                let register = Message::Register {
                    topic_id: *topic_id,
                    message_id: pending.id,
                    name,
                };
                self.say(&register, out);
            }
            What::Register(..) => {}
            What::Publish(waiting) => {
                let message = &waiting.message;
                if let Some(named) = self.names.known(message.topic()) {
                    let (qos, retain) = (waiting.qos, waiting.retain);
                    let again = publish(named, pending.id, true, qos, retain, message.payload());
                    self.say(&again, out);
                }
            }
            What::Release => {
                self.say(&Message::Pubrel(pending.id), out);
            }
        }
        pending.tries += 1;
        pending.again_ns = now_ns + self.bounds.retry_ns;
        self.pending = Some(pending);
        true
    }

    /// It is back: what it owed an answer for is sent again.
    pub(crate) fn resume(&mut self, now_ns: u64, out: &mut Datagrams) {
        if let Some(Pending {
            id,
            what: What::Release,
            again_ns,
            tries,
            ..
        }) = &mut self.pending
        {
            (*again_ns, *tries) = (now_ns + self.bounds.retry_ns, 0);
            let id = *id;
            self.say(&Message::Pubrel(id), out);
        }
        self.pump(now_ns, out);
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
