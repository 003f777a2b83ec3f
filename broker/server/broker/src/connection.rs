//! One client's connection: reads its packets and acts on them.

mod entry;
mod exchange;
mod search;

use crate::link::Link;
use crate::memory::{self, Of, Share};
use crate::reason;
use crate::router::Router;
use crate::session::{Session, State};
use crate::shared::Access;
use crate::tally::Seat;
use mqtick_access::Action;
use mqtick_net::residence::Arrivals;
use mqtick_net::socket::Socket;
use mqtick_net::transport::Failure;
use mqtick_packet::{Error, Packet, Version, decode, decode_publish, frame};
use search::{Part, Search};
use std::collections::VecDeque;
use std::sync::Arc;

const UNANSWERED: usize = 64; // reads whose changes the store has not answered, at most

/// Why a client is refused when the limit of all memory is reached.
const NO_MEMORY: &str = "as much memory is held as the configuration allows";

/// How the body of a CONNECT of MQTT 5 begins.
const HELLO_5: &[u8] = b"\0\x04MQTT\x05";
const LARGEST_CONNECT: usize = 1 << 20; // octets

/// Why a connection ends.
pub enum End {
    /// The other side closed it, or it broke.
    Gone,
    /// The client connected again.
    TakenOver,
    /// The broker ends it, for this reason.
    Because(u8, String),
}

impl End {
    pub(crate) fn because(reason: u8, why: &str) -> Self {
        Self::Because(reason, why.into())
    }

    fn not_connected() -> Self {
        Self::because(reason::PROTOCOL, "the first packet is not CONNECT")
    }

    /// The reason code of MQTT 5; 0: the other side has ended it.
    fn reason(&self) -> u8 {
        match self {
            Self::Gone => 0,
            Self::TakenOver => reason::TAKEN_OVER,
            Self::Because(code, _) => *code,
        }
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Because(error.reason(), error.to_string())
    }
}

enum Stage {
    /// Before CONNECT.
    New(Box<Link>),
    /// Its password is being checked. The CONNECT waits.
    Checking(Box<Link>, Vec<u8>),
    Up(Arc<Session>),
    Over,
}

/// A connection: the part that only its worker uses.
pub struct Connection {
    /// The socket.
    pub socket: Arc<Socket>,
    /// Its token.
    pub token: u64,
    /// When its last packet came, or it was accepted, in milliseconds of the broker's clock.
    pub heard_ms: u64,
    /// How many PUBLISH, SUBSCRIBE and UNSUBSCRIBE packets have come in the present second.
    pub published: u32,
    /// Whether access rules have changed since it was looked at.
    pub is_unjudged: bool,
    /// Whether its turn has ended before its work.
    pub is_busy: bool,
    /// The retained messages that it has still to be sent.
    pub(crate) searches: VecDeque<Search>,
    search_octets: usize,
    part: Part,
    stage: Stage,
    version: Version,
    greeted: bool,
    by_certificate: bool,
    silent_ms: u64, // for so long at most; 0: for ever
    user: Option<Box<str>>,
    /// Decides whether the kernel's stamps can be trusted.
    pub arrivals: Arrivals,
    /// For each read whose changes the store has not answered: the last batch of them.
    pub unanswered: VecDeque<u64>,
    awaits: u64,           // the last batch for which `awaited` has asked for a wake-up
    pinged_s: Option<u64>, // when the first PINGREQ came that may not be answered yet
    partial: Vec<u8>,
    clogged: bool, // it has to read before more is taken from it
    share: Share,
    _seat: Seat,
    aliases: Vec<Box<str>>,
    alias_octets: usize, // of all their topics
}

impl Connection {
    /// A connection from which nothing has come yet. `by_certificate`: the client is known by its
    /// certificate.
    pub fn new(
        socket: Arc<Socket>,
        link: Link,
        seat: Seat,
        by_certificate: bool,
        now_ms: u64,
        connect_timeout_s: u64,
    ) -> Self {
        Self {
            socket,
            token: link.place.token,
            heard_ms: now_ms,
            published: 0,
            is_unjudged: false,
            is_busy: false,
            searches: VecDeque::new(),
            search_octets: 0,
            part: Part::default(),
            stage: Stage::New(Box::new(link)),
            version: Version::V3,
            greeted: false,
            by_certificate,
            silent_ms: connect_timeout_s * 1000,
            user: None,
            arrivals: Arrivals::default(),
            unanswered: VecDeque::new(),
            awaits: 0,
            pinged_s: None,
            partial: Vec::new(),
            clogged: false,
            share: Share::new(Of::Packets, 0),
            _seat: seat,
            aliases: Vec::new(),
            alias_octets: 0,
        }
    }

    /// Whether packets of the client must wait.
    pub fn is_waiting(&self, publishes_a_second: u32) -> bool {
        self.clogged
            || self.is_busy
            || matches!(self.stage, Stage::Checking(..))
            || (publishes_a_second > 0 && self.published >= publishes_a_second)
    }

    /// Whether too many of its packets are on their way to the disk to take more.
    pub fn is_crowded(&mut self, router: &Router) -> bool {
        let Some(journal) = &router.context.journal else {
            return false;
        };
        let answered = journal.answered();
        while self
            .unanswered
            .pop_front_if(|batch| *batch <= answered)
            .is_some()
        {}
        let count = self.unanswered.len();
        count >= UNANSWERED || (count > 0 && journal.is_full())
    }

    /// The batch that a paused connection waits for, if it waits for the disk. Each batch is
    /// returned once.
    pub fn awaited(&mut self) -> Option<(u64, Arc<Session>)> {
        let first = *self.unanswered.front()?;
        if std::mem::replace(&mut self.awaits, first) >= first {
            return None;
        }
        self.session().ok().map(|session| (first, session))
    }

    /// Whether it has been silent for too long.
    pub fn is_late(&self, now_ms: u64) -> bool {
        self.silent_ms > 0 && now_ms > self.heard_ms + self.silent_ms
    }

    /// The session's link, or the new connection's.
    fn link<T>(&mut self, with: impl FnOnce(&mut Link) -> T) -> Option<T> {
        match &mut self.stage {
            Stage::New(link) | Stage::Checking(link, _) => Some(with(link)),
            Stage::Up(session) => {
                let mut state = session.lock();
                state
                    .link
                    .as_mut()
                    .filter(|link| link.place.token == self.token)
                    .map(with)
            }
            Stage::Over => None,
        }
    }

    /// Whether no octets wait to be written.
    pub fn is_idle(&mut self) -> bool {
        self.link(|link| link.waiting()) == Some(0)
    }

    /// The socket has room again.
    pub fn unblock(&mut self) {
        self.link(Link::unblock);
    }

    /// Stop reading from the client, or start again.
    pub fn pause(&mut self, on: bool) {
        self.link(|link| link.pause(on));
    }

    /// Answer PINGREQs that wait for the disk, once they have waited for a second.
    pub fn answer_pings(&mut self, now_s: u64) {
        if self
            .pinged_s
            .take_if(|since_s| now_s > *since_s + 1)
            .is_some()
        {
            self.link(Link::answer_pings);
        }
    }

    /// The access rules have changed: what waits for the client is judged by the new ones.
    ///
    /// # Errors
    /// The password with which it connected is not its user's any more.
    pub fn judge(&mut self, router: &mut Router, before: &Access) -> Result<(), End> {
        let Stage::Up(session) = &self.stage else {
            return Ok(());
        };
        let access = router.shared.access.load_full();
        if let Some(user) = self.user.as_deref().filter(|_| !self.by_certificate)
            && !access.knows_as(before, user)
        {
            let why = "its user's password was changed, or removed";
            return Err(End::because(reason::NOT_AUTHORIZED, why));
        }
        let client = Arc::clone(session);
        self.with_state(router, |state, router| {
            let may = |topic: &str| {
                let user = self.user.as_deref();
                access.rules.may(user, &client.client, Action::Read, topic)
            };
            let copies = state.judge(&mut router.context, may);
            router.context.remains.copies.extend(copies);
            state.fill(&mut router.context);
        })
    }

    /// Free room that is not used.
    pub fn give_back(&mut self) {
        self.link(Link::give_back);
    }

    /// Take all stamps of departures. Returns whether there were any.
    pub fn take_departures(&mut self) -> bool {
        self.link(Link::take_departures).unwrap_or(false)
    }

    /// Decide whether the stamp of what was just read can be trusted.
    pub fn arrived(&mut self, router: &mut Router) {
        let out_of_order = self.socket.troubles().map(|(_, count)| count);
        router.came = self.arrivals.take(router.stamp.take(), out_of_order);
    }

    /// Take octets that were read from the socket.
    pub fn input(
        &mut self,
        router: &mut Router,
        octets: &[u8],
        spare: &mut Vec<u8>,
    ) -> Result<(), End> {
        spare.clear();
        router.begin_turn();
        router.octets += octets.len() as u64;
        let most = router.shared.bounds.octets.saturating_mul(2);
        let received = self.link(|link| {
            let clogged = !memory::may_hold(link.waiting());
            if link.waiting() > most {
                let failure = Failure::new("it asks and does not read");
                return (clogged, true, Err(failure));
            }
            if link.is_plain() {
                return (clogged, true, Ok(()));
            }
            let received = link.receive(octets, spare);
            link.flush();
            (clogged, false, received)
        });
        let Some((clogged, is_plain, received)) = received else {
            return Err(End::TakenOver);
        };
        self.clogged = clogged;
        if !is_plain || received.is_ok() {
            self.plain(router, if is_plain { octets } else { spare })?;
            self.search(router); // it may have made room by acknowledgements
        }
        received.map_err(|failure| match failure.orderly() {
            true => End::Gone,
            false => End::Because(reason::PROTOCOL, failure.to_string()),
        })
    }

    fn plain(&mut self, router: &mut Router, octets: &[u8]) -> Result<(), End> {
        if self.partial.is_empty() {
            let used = self.packets(router, octets)?;
            let rest = octets.get(used..).unwrap_or_default();
            self.hold(rest.len())?;
            self.partial.extend_from_slice(rest);
        } else {
            self.hold(octets.len())?;
            let mut all = std::mem::take(&mut self.partial);
            all.extend_from_slice(octets);
            let used = self.packets(router, &all)?;
            if used < all.len() {
                all.drain(..used);
                self.partial = all;
            }
        }
        self.hold(0)
    }

    /// Account for the memory that it holds.
    ///
    /// # Errors
    /// It may not hold so many octets `more`.
    fn hold(&mut self, more: usize) -> Result<(), End> {
        let waiting = match &self.stage {
            Stage::Checking(_, whole) => whole.len(),
            _ => 0,
        };
        let aliases = self.alias_octets + self.aliases.capacity() * size_of::<Box<str>>();
        self.share
            .set(self.partial.capacity() + waiting + aliases + self.search_octets);
        if more > 0 && !memory::may_hold(self.partial.len() + waiting + aliases + more) {
            return Err(End::because(reason::QUOTA, NO_MEMORY));
        }
        Ok(())
    }

    /// Go on with packets that have come while it had to wait.
    pub fn go_on(&mut self, router: &mut Router) -> Result<(), End> {
        let clogged = self.link(|link| !memory::may_hold(link.waiting()));
        self.clogged = clogged.unwrap_or(false);
        self.is_busy = false;
        router.begin_turn();
        self.search(router);
        self.plain(router, &[])
    }

    fn packets(&mut self, router: &mut Router, octets: &[u8]) -> Result<usize, End> {
        let limits = &router.shared.settings.limits;
        let (most, rate) = (limits.packet, limits.publishes_a_second_a_client);
        let mut used = 0;
        while !self.is_waiting(rate) {
            let rest = octets.get(used..).unwrap_or_default();
            let is_unknown = matches!(self.stage, Stage::New(_));
            let largest = if is_unknown {
                most.min(LARGEST_CONNECT)
            } else {
                most
            };
            let Some(frame) = frame(rest, largest)? else {
                break;
            };
            self.heard_ms = router.context.now_ms;
            if router.left() == 0 {
                self.is_busy = true;
                break;
            }
            router.spend(1);
            let whole = rest.get(..frame.length).unwrap_or_default();
            if is_unknown && frame.first == 0x10 && frame.body.starts_with(HELLO_5) {
                (self.version, self.greeted) = (Version::V5, true); // it is told what is wrong
            }
            if frame.is_publish() {
                let publish = decode_publish(&frame, self.version)?;
                self.publish(router, &publish, whole, whole.len() == octets.len())?;
            } else {
                match decode(&frame, self.version)? {
                    Packet::Connect(connect) => self.connect(router, &connect, whole)?,
                    packet => self.other(router, &packet)?,
                }
            }
            if self.part.done > 0 {
                self.is_busy = true; // the packet comes again, for its other filters
                break;
            }
            used += frame.length;
        }
        Ok(used)
    }

    fn session(&self) -> Result<Arc<Session>, End> {
        match &self.stage {
            Stage::Up(session) => Ok(Arc::clone(session)),
            _ => Err(End::not_connected()),
        }
    }

    /// Do something with the session's state.
    ///
    /// # Errors
    /// Another connection has taken over the session.
    fn with_state<T>(
        &self,
        router: &mut Router,
        what: impl FnOnce(&mut State, &mut Router) -> T,
    ) -> Result<T, End> {
        let session = self.session()?;
        let mut state = session.lock();
        if state
            .link
            .as_ref()
            .is_none_or(|link| link.place.token != self.token)
        {
            return Err(End::TakenOver);
        }
        router.context.at_once = false;
        let result = what(&mut state, router);
        session.written(&mut state, &mut router.context);
        Ok(result)
    }

    fn other(&mut self, router: &mut Router, packet: &Packet) -> Result<(), End> {
        match packet {
            Packet::Ack(ack) => self.ack(router, ack),
            Packet::Subscribe(subscribe) => self.subscribe(router, subscribe),
            Packet::Unsubscribe(unsubscribe) => self.unsubscribe(router, unsubscribe),
            Packet::Pingreq => {
                let is_done = self.with_state(router, |state, _| {
                    state.link.as_mut().is_none_or(Link::answer_ping)
                })?;
                if !is_done {
                    self.pinged_s.get_or_insert(router.context.now_s);
                }
                Ok(())
            }
            Packet::Disconnect(disconnect) => Err(self.goodbye(router, disconnect)),
            _ => Err(End::because(
                reason::PROTOCOL,
                "a packet that only brokers send",
            )),
        }
    }
}
