//! Decides which messages are copied past the broker, and to whom, from the packets between clients
//! and broker. The reasoning is in `broker/spec/acceleration.md`. It does no I/O.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_sn::Message;

use crate::clients::Clients;
use crate::packet::is_unconnected;
use crate::pings::PATIENCE_NS;
use crate::plane::Plane;
pub use crate::reason::Reason;
use crate::rulebook::Rulebook;
pub use crate::rulebook::Status;
use crate::rules::Protocol;
use crate::session::Session;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// The longest interval between PINGREQs in a publisher's name, so that a restart of the broker is
/// noticed.
const PING_NS: u64 = 5 * SECOND_NS;
/// The most unanswered PINGREQs in clients' names. More could overflow a queue on the way, and each
/// lost one is waited for in vain.
const MOST_UNDER_WAY: usize = 128;
const RETRY_NS: u64 = 10_000_000;
const LONGEST_RETRY_NS: u64 = SECOND_NS;
const PINGREQ: [u8; 2] = [2, 0x16];

/// The settings of a controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The broker's address.
    pub broker: SocketAddr,
    /// Filters of topics to which only MQTT-SN clients behind this data plane subscribe, and to
    /// which all of these may publish.
    pub only: Vec<Rc<str>>,
    /// Filters of topics whose copies state how long they were in the data plane.
    pub residence: Vec<Rc<str>>,
    /// The names of predefined ids.
    pub predefined: BTreeMap<u16, Rc<str>>,
    /// Whether the broker has no sessions when the controller starts.
    pub fresh: bool,
    /// A client that was not seen connecting is taken for gone if no packet from or to it was seen
    /// for this time.
    pub settle_ns: u64,
    /// The most clients that are followed.
    pub clients: usize,
    /// The most topics of publishers that are followed.
    pub topics: usize,
}

/// The longest time for which a client with the longest keep-alive may be silent.
pub const LONGEST_SETTLE_NS: u64 = 65_535 * SECOND_NS / 2 * 3;

impl Settings {
    /// The most cautious settings: nothing is declared.
    #[must_use]
    pub fn new(broker: SocketAddr) -> Self {
        Self {
            broker,
            only: Vec::new(),
            residence: Vec::new(),
            predefined: BTreeMap::new(),
            fresh: false,
            settle_ns: LONGEST_SETTLE_NS,
            clients: 65_536,
            topics: 65_536,
        }
    }
}

/// Where a packet was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It came from the side of the clients.
    ToBroker,
    /// It came from the side of the broker.
    FromBroker,
}

/// A packet that was seen.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The protocol of its broker.
    pub protocol: Protocol,
    /// Its direction.
    pub way: Way,
    /// Its source address, which may be forged.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Its UDP payload; `None`: it could not be read (a fragment, for example). If the ports could
    /// not be read either, they are 0.
    pub datagram: Option<&'a [u8]>,
    /// The argument for [`Plane::done`] once it is processed.
    pub mark: u64,
    /// Whether it was not delivered to its receiver.
    pub kept_back: bool,
}

/// The controller's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were processed.
    pub events: u64,
    /// Packets from the side of the clients with the broker's source address.
    pub forged: u64,
    /// Packets that are neither from nor to the broker.
    pub foreign: u64,
    /// Datagrams that are not a valid message.
    pub malformed: u64,
    /// How often events were lost, so that all had to be learnt again.
    pub lost: u64,
    /// PINGREQs in clients' names.
    pub pings: u64,
    /// How often these were not answered.
    pub unanswered: u64,
    /// Publishers' topics that are not followed for lack of room.
    pub not_followed: u64,
    /// How often the broker seems to have been restarted.
    pub restarts: u64,
}

/// The controller.
pub struct Controller {
    settings: Rc<Settings>,
    clients: Clients,
    book: Rulebook,
    counters: Counters,
}

impl Controller {
    /// A controller that has seen no packets. `now_ns`: the time of a clock that never goes back.
    #[must_use]
    pub fn new(settings: Settings, now_ns: u64) -> Self {
        let settings = Rc::new(settings);
        Self {
            clients: Clients::new(Rc::clone(&settings), now_ns, settings.fresh),
            book: Rulebook::new(Rc::clone(&settings)),
            counters: Counters::default(),
            settings,
        }
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters {
            restarts: self.clients.restarts,
            not_followed: self.clients.not_followed,
            ..self.counters
        }
    }

    /// The numbers of known clients and of strangers.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        self.clients.sizes()
    }

    /// Whether the broker has, or may have, a session with this client.
    #[must_use]
    pub fn knows(&self, client: &SocketAddr) -> bool {
        self.clients.knows(client)
    }

    /// The state of all topics of publishers that are followed.
    #[must_use]
    pub fn status(&self, plane: &impl Plane) -> Vec<Status> {
        self.book
            .status(self.clients.general_reason().as_ref(), plane)
    }

    /// Process a packet. To be followed by [`Self::settle`], which updates the rules, before the
    /// data plane takes the packet for done.
    pub fn event(&mut self, now_ns: u64, event: &Event<'_>, plane: &mut impl Plane) {
        self.counters.events += 1;
        let broker = self.settings.broker;
        if event.way == Way::ToBroker && event.from == broker {
            self.counters.forged += 1;
        } else {
            let (client, there) = match event.way {
                Way::ToBroker => (event.from, event.to),
                Way::FromBroker => (event.to, event.from),
            };
            if there == broker {
                self.message(now_ns, client, event, plane);
            } else if there == SocketAddr::new(broker.ip(), 0) {
                // The client's port cannot be read either: it may be any client at this address.
                for client in self.clients.at(client.ip()) {
                    self.message(now_ns, client, event, plane);
                }
            } else {
                self.counters.foreign += 1;
            }
        }
        plane.done(event.mark);
    }

    /// Update the rules after the packets since the last call. One call serves many packets,
    /// because a rule with 4,000 subscribers takes longer than a packet.
    pub fn settle(&mut self, now_ns: u64, plane: &mut impl Plane) {
        self.book.update(now_ns, &mut self.clients, plane);
    }

    fn message(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        event: &Event<'_>,
        plane: &mut impl Plane,
    ) {
        match (event.datagram.map(mqtick_sn::decode), event.way) {
            (Some(Ok((message, None))), Way::ToBroker) => {
                if !is_unconnected(Some(&message)) {
                    self.clients.hear(now_ns, client);
                }
                self.clients.asked(now_ns, client, &message);
            }
            (Some(Ok((Message::Pingresp, None))), Way::FromBroker)
                if self.clients.get(&client).is_some() =>
            {
                self.pinged(now_ns, client, plane);
            }
            (Some(Ok((message, None))), Way::FromBroker) => {
                self.clients.answered(now_ns, client, &message);
            }
            // The broker's answers show which clients are behind a forwarder.
            (Some(Ok((_, Some(_)))), Way::ToBroker) => {}
            (Some(Ok((_, Some(_)))), Way::FromBroker) => self.clients.estrange(now_ns, client),
            (unread, way) => {
                self.counters.malformed += u64::from(unread.is_some());
                // The broker may be able to read it. Its answers show clients that are not known
                // yet.
                match way {
                    Way::FromBroker => self.clients.estrange(now_ns, client),
                    Way::ToBroker => self.clients.loses_track(now_ns, client),
                }
            }
        }
    }

    /// The broker has answered a PINGREQ in a client's name.
    fn pinged(&mut self, now_ns: u64, client: SocketAddr, plane: &mut impl Plane) {
        let Some(session) = self.clients.get_mut(&client) else {
            return;
        };
        let Some(answer) = session.pings.answered() else {
            return;
        };
        // The next answer is one to a PINGREQ of the client itself.
        if answer.is_ours {
            plane.keep_back(&client, 0, 0);
        }
        if answer.is_confirmed && !std::mem::replace(&mut session.confirmed, true) {
            session.returned = false;
            self.clients.touch(client);
        }
        if self.book.has_rules(&client) {
            self.settle(now_ns, plane);
        }
        if answer.is_ours
            && self.book.open(client, plane)
            && let Some(session) = self.clients.get_mut(&client)
        {
            session.pings.tries = 0;
        }
    }

    /// Events were lost, none of them after this mark: all that was known may be wrong.
    pub fn lost(&mut self, now_ns: u64, mark: u64, plane: &mut impl Plane) {
        self.counters.lost += 1;
        self.stop(plane);
        self.clients.doubt_all(now_ns);
        plane.done(mark);
    }

    /// The broker is about to be started, and has no sessions.
    pub fn broker_started(&mut self, now_ns: u64, plane: &mut impl Plane) {
        self.stop(plane);
        self.clients.broker_started(now_ns);
    }

    /// Routes to subscribers have changed.
    pub fn ways_changed(&mut self, now_ns: u64, plane: &mut impl Plane) {
        self.clients.dirty.push(crate::clients::Dirty::All);
        self.settle(now_ns, plane);
    }

    /// Delete all rules, and keep no answers back any more.
    pub fn stop(&mut self, plane: &mut impl Plane) {
        self.book.clear(plane);
        for (client, session) in self.clients.iter_mut() {
            if std::mem::take(&mut session.pings.kept) {
                plane.keep_back(client, 0, 0);
            }
        }
    }

    /// The regular work; to be called at least ten times a second.
    pub fn tick(&mut self, now_ns: u64, plane: &mut impl Plane) {
        self.clients.tick(now_ns, |client| plane.heard_ns(client));
        self.give_up(now_ns, plane);
        self.book.retry(now_ns, &mut self.clients, plane);
        self.settle(now_ns, plane);
        // A client that has just gone to sleep must not be woken by a PINGREQ in its name.
        if !plane.is_quiet() {
            return;
        }
        let under_way = self.clients.iter_mut();
        let under_way = under_way.filter(|(_, session)| session.pings.kept).count();
        let mut left = MOST_UNDER_WAY.saturating_sub(under_way);
        for (client, session) in self.clients.iter_mut() {
            if left == 0 {
                break;
            }
            let has_rules = self.book.has_rules(client);
            let prepare = || self.book.prepare(*client, plane);
            if let Some(tries) = is_due(now_ns, session, has_rules, prepare) {
                let wanted = session.pings.enough();
                plane.keep_back(client, wanted, now_ns + PATIENCE_NS);
                let pings = (0..wanted).take_while(|_| plane.to_broker(client, &PINGREQ));
                let Some(count) = u32::try_from(pings.count()).ok().filter(|count| *count > 0)
                else {
                    plane.keep_back(client, 0, 0);
                    continue;
                };
                left -= 1;
                session.pings.sent_ours(now_ns, count);
                session.news = false;
                session.pings.tries = tries;
                self.counters.pings += u64::from(count);
            }
        }
    }

    /// Stop waiting for answers that are missing.
    fn give_up(&mut self, now_ns: u64, plane: &mut impl Plane) {
        let mut late = Vec::new();
        for (client, session) in self.clients.iter_mut() {
            let pings = &mut session.pings;
            let sent_ns = pings.ours_ns.filter(|_| pings.kept);
            if sent_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) >= PATIENCE_NS) {
                pings.kept = false;
                session.changed();
                late.push(*client);
            }
        }
        for client in late {
            plane.keep_back(&client, 0, 0);
            self.counters.unanswered += 1;
            self.clients.touch(client);
        }
    }
}

/// Whether a PINGREQ in a client's name is due, to keep the client alive, to learn whether the
/// broker still knows it, or to open rules. If so, returns the new number of tries to open them.
fn is_due(
    now_ns: u64,
    session: &mut Session,
    has_rules: bool,
    prepare: impl FnOnce() -> bool,
) -> Option<u32> {
    if !session.is_active() || session.confirmed && !has_rules || !session.pings.is_idle(now_ns) {
        return None;
    }
    let interval_ns = match session.keep_alive_ns {
        0 => PING_NS,
        keep_alive_ns => PING_NS.min(keep_alive_ns / 4),
    };
    // A silent client is not kept alive: a PINGREQ follows a packet of the client, or is a retry.
    let ours_ns = session.pings.ours_ns;
    let is_recent = now_ns.saturating_sub(session.heard_ns) <= interval_ns;
    if !(is_recent && session.news || session.pings.is_missing()) {
        return None;
    }
    let since_ns = ours_ns.map_or(u64::MAX, |at_ns| now_ns.saturating_sub(at_ns));
    let retry_ns = LONGEST_RETRY_NS.min(RETRY_NS << session.pings.tries.min(10));
    if since_ns < retry_ns {
        return None;
    }
    let opens = prepare();
    let is_due = opens || !session.confirmed || since_ns >= interval_ns;
    let tries = session.pings.tries;
    is_due.then_some(if opens { tries.saturating_add(1) } else { 0 })
}
