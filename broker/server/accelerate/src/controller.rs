//! Decides which messages are copied past the broker, and to whom, from the packets between clients
//! and broker. The reasoning is in `broker/spec/acceleration.md`. It does no I/O.

use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_sn::Message;

use crate::clients::{Clients, Dirty};
use crate::clock::SECOND_NS;
use crate::driver::{Counters, Driver, Event, Status, Watcher};
use crate::packet::{Way, is_unconnected};
use crate::pings::{PATIENCE_NS, PINGREQ, retry_ns};
use crate::plane::Plane;
use crate::rulebook::Rulebook;
use crate::session::Session;
use crate::settings::Settings;

/// The longest interval between PINGREQs in a publisher's name, so that a restart of the broker is
/// noticed.
const PING_NS: u64 = 5 * SECOND_NS;
/// The most unanswered PINGREQs in clients' names. More could overflow a queue on the way, and each
/// lost one is waited for in vain.
const MOST_UNDER_WAY: usize = 128;

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

    /// The regular work, but for changes of routes.
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

impl Watcher for Controller {
    fn event(&mut self, now_ns: u64, event: &Event<'_>, plane: &mut impl Plane) {
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

    fn settle(&mut self, now_ns: u64, plane: &mut impl Plane) {
        self.book.update(now_ns, &mut self.clients, plane);
    }

    fn lost(&mut self, now_ns: u64, mark: u64, plane: &mut impl Plane) {
        self.counters.lost += 1;
        self.stop(plane);
        self.clients.doubt_all(now_ns);
        plane.done(mark);
    }

    fn knows(&self, client: &SocketAddr) -> bool {
        self.clients.knows(client)
    }

    fn counters(&self) -> Counters {
        Counters {
            restarts: self.clients.restarts,
            not_followed: self.clients.not_followed,
            ..self.counters
        }
    }

    fn sizes(&self) -> (usize, usize) {
        self.clients.sizes()
    }

    fn status(&self, plane: &impl Plane) -> Vec<Status> {
        self.book
            .status(self.clients.general_reason().as_ref(), plane)
    }

    fn tick(&mut self, now_ns: u64, ways_changed: bool, driver: &mut impl Driver) {
        if ways_changed {
            self.clients.dirty.push(Dirty::All);
            self.settle(now_ns, driver);
        }
        Self::tick(self, now_ns, driver);
    }

    fn broker_started(&mut self, now_ns: u64, plane: &mut impl Plane) {
        self.stop(plane);
        self.clients.broker_started(now_ns);
    }

    fn stop(&mut self, plane: &mut impl Plane) {
        self.book.clear(plane);
        for (client, session) in self.clients.iter_mut() {
            if std::mem::take(&mut session.pings.kept) {
                plane.keep_back(client, 0, 0);
            }
        }
    }

    fn place(&self) -> String {
        String::new()
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
    if since_ns < retry_ns(session.pings.tries) {
        return None;
    }
    let opens = prepare();
    let is_due = opens || !session.confirmed || since_ns >= interval_ns;
    let tries = session.pings.tries;
    is_due.then_some(if opens { tries.saturating_add(1) } else { 0 })
}
