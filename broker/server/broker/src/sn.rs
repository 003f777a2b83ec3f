//! MQTT-SN: its one socket, and the door behind which the first worker serves datagrams.
//!
//! Any worker delivers to its clients: what one of them has to be sent next is under a lock of its
//! own.

use crate::batch::{Batch, Peer};
use crate::desk::{Desk, Place, Served};
use crate::door::LOWEST_PORT;
use crate::exchange::MOST_RETAINED;
use crate::feed::{Called, Key};
use crate::inlet::Serve;
use crate::ledger::Span;
use crate::memory::{self, Of, Share};
use crate::message::{Kept, Message};
use crate::session::{Courier, Session, Subscription};
use crate::settings::Sn;
use crate::shared::Shared;
use crate::udp::{Outlet, ROOM};
use crate::upstream::{Done, Upstream};
use mqtick_access::Action;
use mqtick_packet::Qos;
use mqtick_sn::{
    Answer, Came, Code, Datagrams, Delivered, Engine, Entrance, Gateway, Keep, Publication, Seat,
    Settings, Topic, lock,
};
use mqtick_topics::{valid_filter, valid_topic};
use nix::sys::epoll::EpollFlags;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// No client's identifier in an access list: a `/` fits no pattern.
const NOBODY: &str = "sn/";
const SECOND_NS: u64 = 1_000_000_000;

/// What a worker has at hand to deliver with over MQTT-SN.
#[derive(Default)]
pub struct Sending {
    /// Datagrams to send.
    pub batch: Batch,
    out: Datagrams,
}

/// What is kept beside a client.
#[derive(Default)]
pub struct Account {
    share: Option<Share>,
    peer: Option<Arc<Peer>>,
}

impl Keep for Kept {
    type Account = Account;

    fn topic(&self) -> &str {
        self.message().topic
    }

    fn payload(&self) -> &[u8] {
        self.message().payload
    }

    fn octets(&self) -> usize {
        Self::octets(self)
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let expires_s = self.message().expires_s;
        expires_s.is_some_and(|expires_s| expires_s.saturating_mul(SECOND_NS) <= now_ns)
    }

    fn may_wait(octets: usize) -> bool {
        memory::may_queue(octets)
    }

    fn hold(account: &mut Account, octets: usize) {
        let share = || Share::new(Of::Sessions, 0);
        account.share.get_or_insert_with(share).set(octets);
    }

    fn moved(account: &mut Account, to: Option<SocketAddr>) {
        if account.peer.as_ref().map(|peer| peer.address) != to {
            if let Some(peer) = &account.peer {
                peer.set_end(0); // what was not sent there yet is not sent any more
            }
            account.peer = to.map(|to| Arc::new(Peer::new(to, u64::MAX)));
        }
    }
}

/// The QoS of a message from a sensor as MQTT has it.
pub fn qos_of(qos: mqtick_sn::Qos) -> Qos {
    match qos {
        mqtick_sn::Qos::ExactlyOnce => Qos::ExactlyOnce,
        mqtick_sn::Qos::AtLeastOnce => Qos::AtLeastOnce,
        mqtick_sn::Qos::AtMostOnce | mqtick_sn::Qos::Unconnected => Qos::AtMostOnce,
    }
}

fn of_qos(qos: Qos) -> mqtick_sn::Qos {
    match qos {
        Qos::AtMostOnce => mqtick_sn::Qos::AtMostOnce,
        Qos::AtLeastOnce => mqtick_sn::Qos::AtLeastOnce,
        Qos::ExactlyOnce => mqtick_sn::Qos::ExactlyOnce,
    }
}

impl Courier {
    /// Deliver one copy to a client over MQTT-SN.
    pub fn send_to_sensor(
        &mut self,
        message: &Message,
        kept: &mut Option<Arc<Kept>>,
        qos: Qos,
        retain: bool,
        seat: &Seat<Kept>,
    ) {
        let qos = of_qos(qos.min(message.qos));
        let keep = || Arc::clone(kept.get_or_insert_with(|| Kept::new(message)));
        let now_ns = self.now_s * SECOND_NS;
        let Sending { batch, out } = &mut self.sensors;
        let mut client = lock(seat);
        let (topic, payload) = (message.topic, message.payload);
        let delivered = client.deliver(now_ns, topic, payload, qos, retain, keep, out);
        if let Some(peer) = &client.account.peer {
            for datagram in out.iter() {
                match delivered {
                    Delivered::Sent => batch.copy(peer, datagram, self.arrived),
                    // It may hold a copy that waited: it says nothing of the present message.
                    _ => batch.answer(peer.address, datagram),
                }
            }
        }
        out.clear();
        // What the client drops, it counts itself.
    }
}

struct Held {
    span: Span,
    answer: Answer,
}

/// Serves what comes over MQTT-SN.
pub struct Door {
    outlet: Arc<Outlet>,
    gateway: Gateway<Kept, Arc<Session>>,
    settings: Sn,
    looked: usize,        // for retained messages, in the present second: steps
    held: VecDeque<Held>, // answers, until the disk has what they acknowledge
    refused: [u64; REFUSED.len()],
    advertised_s: u64,
    upstream: Option<Upstream>,
}

/// What is refused before it is read.
const REFUSED: [&str; 3] = ["oversized", "source", "subnet"];
/// How many clients are there.
pub const CLIENTS: &str = "clients";

/// What is counted, in the order of [`Door::counters`].
pub fn names() -> impl Iterator<Item = &'static str> {
    let names = REFUSED.into_iter().chain(mqtick_sn::NAMES);
    names.chain([CLIENTS])
}

impl Door {
    /// A door that knows nobody; none if there is no socket.
    pub fn new(shared: &Arc<Shared>, worker: usize) -> Option<Self> {
        let outlet = Arc::clone(shared.sensors.as_ref()?);
        let sn = shared.settings.sn.clone();
        let limits = &shared.settings.limits;
        if sn.advertise_to.is_some() {
            outlet.allow_broadcast();
        }
        let settings = Settings {
            gateway: sn.gateway,
            predefined: sn.predefined(),
            clients: sn.clients,
            prove: sn.proof,
            subscriptions: limits.subscriptions_a_client.min(256),
            messages: limits.queue_messages,
            octets: limits.queue,
            publishes_a_second: limits.publishes_a_second_a_client,
            expiry_s: limits.session_expiry_s,
            fixed_wills: shared.settings.upstream.is_transparent(),
            ..Settings::default()
        };
        Some(Self {
            outlet,
            gateway: Gateway::new(settings),
            settings: sn,
            looked: 0,
            held: VecDeque::new(),
            refused: [0; REFUSED.len()],
            advertised_s: 0,
            upstream: Upstream::new(shared, worker),
        })
    }

    /// Which of the first names it is refused under.
    fn refusal(&self, from: SocketAddr, octets: &[u8]) -> Option<usize> {
        let ip = from.ip();
        let own = self.settings.address.map_or(0, |address| address.port());
        let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        let is_sender = !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast;
        if octets.len() >= ROOM {
            return Some(0);
        }
        if from.port() < LOWEST_PORT || from.port() == own || !is_sender {
            return Some(1);
        }
        let may = self.settings.subnets.iter().any(|one| one.contains(ip));
        (!may).then_some(2)
    }

    /// Send the answers whose messages are on disk now.
    pub fn settle(&mut self, desk: &mut Desk) {
        let Some(ledger) = desk.courier.ledger.clone() else {
            return;
        };
        while let Some(held) = self.held.front() {
            let last = held.span.last;
            if last > ledger.answered() {
                ledger.wake(desk.worker);
                if last > ledger.answered() {
                    break; // whoever answers now wakes this worker
                }
            }
            let Some(Held { span, answer }) = self.held.pop_front() else {
                break;
            };
            if !ledger.is_refused(span) {
                desk.courier.sensors.batch.answer(answer.to, &answer.good);
                continue;
            }
            desk.courier.sensors.batch.answer(answer.to, &answer.bad);
            self.gateway.refused(&answer);
        }
        desk.send_batch();
    }

    /// Once a second: repeat what was not answered, end who is gone.
    pub fn tick(&mut self, desk: &mut Desk) {
        let now_s = desk.courier.now_s;
        self.outlet.tick();
        self.looked = 0;
        self.with_hands(desk, false, |gateway, hands, now_ns| {
            gateway.tick(now_ns, hands)
        });
        if let Some(upstream) = &mut self.upstream {
            upstream.tick();
        }
        self.go_on(desk);
        desk.courier.dropped += self.gateway.take_dropped();
        self.outlet.count(self.counters());
        let Sn {
            advertise_to,
            advertise_s,
            ..
        } = self.settings;
        if let Some(to) = advertise_to
            && now_s >= self.advertised_s + u64::from(advertise_s)
        {
            self.advertised_s = now_s;
            let datagram = self.gateway.advertisement(advertise_s);
            desk.courier.sensors.batch.answer(to, &datagram);
        }
    }

    /// Forget everybody: they are told when they ask.
    pub fn forget_all(&mut self, desk: &mut Desk) {
        self.with_hands(desk, false, |gateway, hands, _| gateway.clear(hands));
        if let Some(upstream) = &mut self.upstream {
            upstream.reset();
        }
    }

    /// Go on with what came from the upstream.
    pub fn upstream_ready(&mut self, desk: &mut Desk, token: u64, flags: EpollFlags) {
        desk.came = None;
        if let Some(upstream) = &mut self.upstream {
            upstream.ready(token, flags);
        }
        self.go_on(desk);
    }

    /// The upstream's name was looked up.
    pub fn found(&mut self, desk: &mut Desk, places: Result<Vec<SocketAddr>, String>) {
        if let Some(upstream) = &mut self.upstream {
            upstream.found(places);
        }
        self.go_on(desk);
    }

    /// Say good-bye to the upstream.
    pub fn stop(&mut self) {
        if let Some(upstream) = &mut self.upstream {
            upstream.stop();
        }
    }

    /// What was counted, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let clients = (CLIENTS, self.gateway.sizes().0 as u64);
        let refused = REFUSED.into_iter().zip(self.refused);
        refused.chain(self.gateway.counters()).chain([clients])
    }

    fn with_hands(
        &mut self,
        desk: &mut Desk,
        alone: bool,
        what: impl FnOnce(&mut Gateway<Kept, Arc<Session>>, &mut Hands, u64),
    ) {
        let now_ns = desk.courier.now_s * SECOND_NS;
        let mut hands = Hands {
            desk,
            alone,
            looked: &mut self.looked,
            held: &mut self.held,
            upstream: self.upstream.as_mut(),
        };
        what(&mut self.gateway, &mut hands, now_ns);
    }
}

impl Serve for Door {
    fn datagram(&mut self, desk: &mut Desk, alone: bool, from: SocketAddr, octets: &[u8]) {
        let refusal = self.refusal(from, octets);
        if let Some(count) = refusal.and_then(|at| self.refused.get_mut(at)) {
            *count += 1;
            return;
        }
        self.with_hands(desk, alone, |gateway, hands, now_ns| {
            gateway.datagram(now_ns, from, octets, hands);
        });
    }

    /// Tell sensors what the upstream did, and the upstream what they did.
    fn go_on(&mut self, desk: &mut Desk) {
        while let Some(upstream) = &mut self.upstream {
            let Some(done) = upstream.next() else {
                upstream.flush();
                if upstream.is_done() {
                    break;
                }
                continue;
            };
            match done {
                Done::Message(token, message, ids) => {
                    upstream.deliver(desk, token, &message, &ids);
                }
                Done::Answered(answer, code) => {
                    let told = answer.told(code);
                    desk.courier.sensors.batch.answer(answer.to, &told);
                    if code != Code::ACCEPTED {
                        self.gateway.refused(&answer);
                    }
                }
                Done::Subscribed(who, filter, id, answer) => {
                    let answer = answer.map(of_qos);
                    if !upstream.is_subscribed(&who, &filter) {
                        who.lock().remove_filter(&filter);
                    }
                    self.with_hands(desk, false, |gateway, hands, now_ns| {
                        gateway.subscribed(now_ns, &who.client, &filter, id, answer, hands);
                    });
                }
                Done::Admitted(client, code) => {
                    self.with_hands(desk, false, |gateway, hands, now_ns| {
                        gateway.admitted(now_ns, &client, code, hands);
                    });
                }
                Done::Lost(client) => {
                    self.with_hands(desk, false, |gateway, hands, _| {
                        gateway.dismiss(&client, hands);
                    });
                }
            }
        }
        desk.send_batch();
    }
}

fn key(came: &Came) -> Key {
    Key {
        publisher: came.from,
        topic: Called::Id(came.topic),
    }
}

/// What the gateway reaches the rest of the broker with.
struct Hands<'a> {
    desk: &'a mut Desk,
    alone: bool,
    looked: &'a mut usize,
    held: &'a mut VecDeque<Held>,
    upstream: Option<&'a mut Upstream>,
}

impl Hands<'_> {
    fn may(&self, client: &str, action: Action, topic: &str) -> bool {
        let access = self.desk.shared.access.load();
        access.rules.may(None, client, action, topic)
    }

    fn offer(&mut self, came: &Came, publisher: &Session, topic: &str) {
        let place = |session: &Session| {
            let Some(seat) = &session.sensor else {
                return Place::Others;
            };
            // Whoever has no id of its own for a name gets one with a copy: a second way to send it.
            let has_two_ways = !matches!(came.topic, Topic::Registered(_));
            if has_two_ways && session.number == publisher.number {
                return Place::Unclear;
            }
            match lock(seat).direct(topic) {
                Some((to, called)) => Place::At(to, Called::Id(called)),
                None => Place::Unclear,
            }
        };
        let (number, keep_alive_s) = (publisher.number, came.keep_alive_s);
        self.desk
            .offer(key(came), number, topic, keep_alive_s, place);
    }

    /// Answer now, or once the disk has what changed.
    fn acknowledge(&mut self, answer: Answer) {
        match self.desk.courier.span.take() {
            Some(span) => self.held.push_back(Held { span, answer }),
            None => self.send(answer.to, &answer.good),
        }
    }
}

impl Engine for Hands<'_> {
    type Message = Kept;
    type Subscriber = Arc<Session>;

    fn random(&mut self) -> u32 {
        RandomState::new().build_hasher().finish() as u32
    }

    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        if self.desk.courier.sensors.batch.is_full() {
            self.desk.send_batch();
        }
        self.desk.courier.sensors.batch.answer(to, datagram);
    }

    fn flush(&mut self) {
        self.desk.send_batch();
    }

    fn admit(&mut self, entrance: &Entrance<'_>) -> Option<Code> {
        match &mut self.upstream {
            Some(upstream) => upstream.admit(entrance),
            None => Some(Code::ACCEPTED),
        }
    }

    fn left(&mut self, client: &str, is_lost: bool) {
        if let Some(upstream) = &mut self.upstream {
            upstream.left(client, is_lost);
        }
    }

    fn will(&mut self, who: &Arc<Session>, will: &Publication<'_>) {
        self.desk.came = None; // it came long ago
        let transparent = &self.desk.shared.settings.upstream;
        if !transparent.is_transparent() {
            let _ = self.publish(Some(who), will, None); // nobody is told
        }
    }

    fn is_held(&self, client: &str, message_id: u16) -> bool {
        let mut held = self.held.iter().map(|one| &one.answer);
        held.any(|one| *one.client == *client && one.message_id == message_id)
            || self
                .upstream
                .as_ref()
                .is_some_and(|upstream| upstream.is_held(client, message_id))
    }

    fn begin(&mut self, client: &str, seat: &Seat<Kept>) -> Option<Arc<Session>> {
        let has_room = memory::free() > 0;
        let who = has_room.then(|| self.desk.shared.new_sensor(client, Arc::clone(seat)))?;
        if let Some(upstream) = &mut self.upstream {
            upstream.begin(&who);
        }
        Some(who)
    }

    fn moves(&mut self, who: &Arc<Session>) {
        drop(self.desk.shared.feed.close_session(who.number));
    }

    fn end(&mut self, who: &Arc<Session>) {
        self.moves(who);
        if let Some(upstream) = &mut self.upstream {
            return upstream.end(who, who.lock().take_filters());
        }
        let shared = Arc::clone(&self.desk.shared);
        shared.end_session(who, &mut who.lock(), &mut self.desk.courier);
    }

    fn subscribe(
        &mut self,
        who: &Arc<Session>,
        message_id: u16,
        filter: &str,
        qos: mqtick_sn::Qos,
    ) -> Option<Code> {
        let is_shared = filter.starts_with("$share/");
        if !valid_filter(filter) || is_shared || !self.may(&who.client, Action::Subscribe, filter) {
            return Some(Code::NOT_SUPPORTED);
        }
        let mut state = who.lock();
        if !state.filters().contains(filter) && !state.may_add(filter) {
            return Some(Code::CONGESTION);
        }
        if let Some(upstream) = &mut self.upstream {
            let refused = upstream.subscribe(who, message_id, filter, qos_of(qos));
            if refused.is_none() {
                state.add_filter(filter);
            }
            return refused;
        }
        state.add_filter(filter);
        let subscription = Subscription {
            session: Arc::clone(who),
            qos: qos_of(qos),
            no_local: false,
            retain_as_published: false,
            identifier: 0,
        };
        let change = |tree: &mut crate::shared::Subscriptions| {
            tree.subscribe(filter, who.number, subscription);
        };
        self.desk.shared.change([filter], change);
        Some(Code::ACCEPTED)
    }

    fn unsubscribe(&mut self, who: &Arc<Session>, filter: &str) {
        who.lock().remove_filter(filter);
        if let Some(upstream) = &mut self.upstream {
            return upstream.unsubscribe(who, filter);
        }
        self.desk.shared.change([filter], |tree| {
            tree.unsubscribe(filter, &who.number);
        });
    }

    fn retained(&mut self, who: &Arc<Session>, filter: &str, qos: mqtick_sn::Qos) {
        let Some(seat) = &who.sensor else { return };
        if self.upstream.is_some() {
            return; // they come of themselves
        }
        if *self.looked > MOST_RETAINED {
            return;
        }
        let now_s = self.desk.courier.now_s;
        let shared = Arc::clone(&self.desk.shared);
        let most = self.desk.courier.bounds.messages;
        let (kept, steps) = shared.retained_first(filter, most, |message| {
            message.expires_s.is_none_or(|expires_s| expires_s > now_s)
                && self.may(&who.client, Action::Read, message.topic)
        });
        *self.looked += steps;
        self.desk.courier.arrived = None;
        for kept in &kept {
            // It leaves before whoever retains a newer one may send that.
            shared.if_retained(kept, || {
                let (message, mut again) = (kept.message(), Some(Arc::clone(kept)));
                let courier = &mut self.desk.courier;
                courier.send_to_sensor(&message, &mut again, qos_of(qos), true, seat);
                self.desk.send_batch();
            });
        }
    }

    fn publish(
        &mut self,
        who: Option<&Arc<Session>>,
        publication: &Publication<'_>,
        answer: Option<Answer>,
    ) -> Result<(), Code> {
        let topic = publication.topic;
        let client = who.map_or(NOBODY, |who| &who.client);
        let is_ours = topic.starts_with("$SYS/");
        if is_ours || !valid_topic(topic) || !self.may(client, Action::Write, topic) {
            return Err(Code::NOT_SUPPORTED);
        }
        self.desk.received += 1;
        let message = Message {
            whole: None,
            topic,
            payload: publication.payload,
            qos: qos_of(publication.qos),
            retain: publication.retain,
            forwarded: &[],
            expires_s: None,
        };
        if let Some(upstream) = &mut self.upstream {
            let client = who.map(|who| &*who.client);
            return upstream.publish(client, &message, answer);
        }
        let is_kept = message.retain && !message.payload.is_empty();
        let ledger = self.desk.courier.ledger.clone();
        let is_full = ledger.as_ref().is_some_and(|ledger| ledger.is_full());
        let has_memory = || memory::may_hold(message.octets()) && !(is_kept && memory::is_tight());
        let has_room = message.qos == Qos::AtMostOnce || !is_full && has_memory();
        if !has_room {
            self.desk.courier.dropped += 1;
            return Err(Code::CONGESTION);
        }
        // All changes of a message of QoS 2 are in one batch.
        let ledger = ledger.filter(|_| message.qos == Qos::ExactlyOnce);
        let whole = ledger.as_ref().map(|ledger| ledger.whole());
        self.desk.courier.span = None;
        let publisher = who.map(|who| &**who);
        let came = publication.came.zip(publisher);
        let can_be = message.qos == Qos::AtMostOnce && !message.retain;
        let is_served = can_be
            && came.is_some_and(|(came, publisher)| {
                let feed = &self.desk.shared.feed;
                came.marked && feed.believes(&key(&came), publisher.number)
            });
        if is_served {
            self.desk.served = Served::Sensors;
        }
        self.desk.publish(publisher, &message, self.alone);
        self.desk.served = Served::Nobody;
        match came {
            Some((came, publisher)) if can_be => self.offer(&came, publisher, topic),
            Some((came, _)) => self.desk.shared.feed.take_back(&key(&came)),
            None => {}
        }
        drop(whole);
        if let Some(answer) = answer {
            self.acknowledge(answer);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_answer_is_held_for_one_message_of_one_client() {
        let own = SocketAddr::from(([127, 0, 0, 1], 0));
        let outlet = Arc::new(Outlet::open(own, names()).unwrap());
        let settings = crate::settings::Settings {
            threads: 1,
            ..Default::default()
        };
        let shared = Shared::alone(settings, Some(outlet));
        let mut door = Door::new(&shared, 0).unwrap();
        door.held.push_back(Held {
            span: Span { first: 1, last: 1 },
            answer: Answer {
                to: "127.0.0.1:5000".parse().unwrap(),
                good: Vec::new(),
                bad: Vec::new(),
                client: "one".into(),
                message_id: 5,
                is_once: true,
            },
        });
        let mut desk = Desk::new(&shared, 0);
        door.with_hands(&mut desk, false, |_, hands, _| {
            assert!(hands.is_held("one", 5));
            assert!(!hands.is_held("one", 6) && !hands.is_held("other", 5));
        });
    }
}
