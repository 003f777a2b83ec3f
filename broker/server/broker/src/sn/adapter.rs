//! How the MQTT-SN gateway reaches the rest of the broker.

use super::Held;
use crate::memory;
use crate::message::{Kept, Message};
use crate::offload::{Called, Key};
use crate::receiver::MOST_STEPS;
use crate::router::{Place, Reached, Router, Served};
use crate::sensor::qos_of;
use crate::session::{Session, Subscription};
use crate::shared::Subscriptions;
use crate::upstream::Upstream;
use mqtick_access::Action;
use mqtick_packet::Qos;
use mqtick_sn::{Answer, Came, Code, Count, Engine, Entrance, Publication, Seat, Topic, lock};
use mqtick_topics::{valid_filter, valid_topic};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

/// Stands for the client's identifier in access lists where a message has no client. No pattern
/// matches it, because of the `/`.
const NOBODY: &str = "sn/";

fn key(came: &Came) -> Key {
    Key {
        publisher: came.from,
        topic: Called::Id(came.topic),
    }
}

/// How the MQTT-SN gateway reaches the rest of the broker.
pub(super) struct EngineAdapter<'a> {
    pub(super) router: &'a mut Router,
    pub(super) alone: bool,
    pub(super) looked: &'a mut usize,
    pub(super) held: &'a mut VecDeque<Held>,
    pub(super) upstream: Option<&'a mut Upstream>,
}

impl EngineAdapter<'_> {
    fn may(&self, client: &str, action: Action, topic: &str) -> bool {
        let access = self.router.shared.access.load();
        access.rules.may(None, client, action, topic)
    }

    fn offer(&mut self, came: &Came, publisher: &Session, topic: &str) {
        let place = |session: &Session| {
            let Some(seat) = &session.sensor else {
                return Place::Others;
            };
            // With a copy, a subscriber gets a registered id for the topic. If it is the publisher,
            // it then has a second id to publish with.
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
        self.router
            .offer(key(came), number, topic, keep_alive_s, place);
    }

    /// Answer now, or once the changes are on disk.
    fn acknowledge(&mut self, answer: Answer) {
        match self.router.context.span.take() {
            Some(span) => self.held.push_back(Held { span, answer }),
            None => self.send(answer.to, &answer.good),
        }
    }
}

impl Engine for EngineAdapter<'_> {
    type Message = Kept;
    type Subscriber = Arc<Session>;

    fn random(&mut self) -> u32 {
        RandomState::new().build_hasher().finish() as u32
    }

    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        if self.router.context.sensors.batch.is_full() {
            self.router.send_batch();
        }
        self.router.context.sensors.batch.answer(to, datagram);
    }

    fn flush(&mut self) {
        self.router.send_batch();
    }

    fn admit(&mut self, entrance: &Entrance<'_>) -> Result<Option<Code>, Count> {
        match &mut self.upstream {
            Some(upstream) => upstream.admit(entrance),
            None => Ok(Some(Code::ACCEPTED)),
        }
    }

    fn left(&mut self, client: &str, is_lost: bool) {
        if let Some(upstream) = &mut self.upstream {
            upstream.left(client, is_lost);
        }
    }

    fn will(&mut self, who: &Arc<Session>, will: &Publication<'_>) {
        self.router.came = None; // the will came long ago
        let transparent = &self.router.shared.settings.upstream;
        if !transparent.is_transparent() {
            let _ = self.publish(Some(who), will, None); // no client waits for an answer
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
        let who = has_room.then(|| self.router.shared.new_sensor(client, Arc::clone(seat)))?;
        if let Some(upstream) = &mut self.upstream {
            upstream.begin(&who);
        }
        Some(who)
    }

    fn moves(&mut self, who: &Arc<Session>) {
        drop(self.router.shared.offload.close_session(who.number));
    }

    fn end(&mut self, who: &Arc<Session>) {
        self.moves(who);
        if let Some(upstream) = &mut self.upstream {
            return upstream.end(who, who.lock().take_filters().0);
        }
        let shared = Arc::clone(&self.router.shared);
        shared.end_session(who, &mut who.lock(), &mut self.router.context);
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
        let change = |tree: &mut Subscriptions| {
            tree.subscribe(filter, who.number, subscription);
        };
        self.router.shared.change([filter], change);
        Some(Code::ACCEPTED)
    }

    fn unsubscribe(&mut self, who: &Arc<Session>, filter: &str) {
        who.lock().remove_filter(filter);
        if let Some(upstream) = &mut self.upstream {
            return upstream.unsubscribe(who, filter);
        }
        self.router.shared.change([filter], |tree| {
            tree.unsubscribe(filter, &who.number);
        });
    }

    fn retained(&mut self, who: &Arc<Session>, filter: &str, qos: mqtick_sn::Qos) {
        let Some(seat) = &who.sensor else { return };
        if self.upstream.is_some() {
            return; // the upstream sends them
        }
        let steps = MOST_STEPS.saturating_sub(*self.looked);
        if steps == 0 {
            return;
        }
        let now_s = self.router.context.now_s;
        let shared = Arc::clone(&self.router.shared);
        let most = self.router.context.bounds.messages;
        let (kept, steps) = shared.retained_first(filter, most, steps, |message| {
            message.expires_s.is_none_or(|expires_s| expires_s > now_s)
                && self.may(&who.client, Action::Read, message.topic)
        });
        *self.looked += steps;
        self.router.context.arrived = None;
        for kept in &kept {
            // It leaves before any worker can send a newer one.
            shared.if_retained(kept, || {
                let (message, mut again) = (kept.message(), Some(Arc::clone(kept)));
                let context = &mut self.router.context;
                context.send_to_sensor(&message, &mut again, qos_of(qos), true, seat);
                self.router.send_batch();
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
        self.router.received += 1;
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
        let journal = self.router.context.journal.clone();
        let is_full = journal.as_ref().is_some_and(|journal| journal.is_full());
        let has_memory = || memory::may_hold(message.octets());
        let has_room = message.qos == Qos::AtMostOnce || !is_full && has_memory();
        if !has_room {
            self.router.context.dropped += 1;
            return Err(Code::CONGESTION);
        }
        // All changes of a message of QoS 2 are in one batch.
        let journal = journal.filter(|_| message.qos == Qos::ExactlyOnce);
        let whole = journal.as_ref().map(|journal| journal.whole());
        self.router.context.span = None;
        let publisher = who.map(|who| &**who);
        let came = publication.came.zip(publisher);
        let can_be = message.qos == Qos::AtMostOnce && !message.retain;
        let is_served = can_be
            && came.is_some_and(|(came, publisher)| {
                let offload = &self.router.shared.offload;
                came.marked && offload.believes(&key(&came), publisher.number)
            });
        if is_served {
            self.router.served = Served::Sensors;
        }
        let reached = self.router.publish(publisher, &message, self.alone);
        self.router.served = Served::Nobody;
        match came {
            Some((came, publisher)) if can_be => self.offer(&came, publisher, topic),
            Some((came, _)) => self.router.shared.offload.take_back(&key(&came)),
            None => {}
        }
        drop(whole);
        if reached == Reached::Refused {
            return Err(Code::CONGESTION);
        }
        if let Some(answer) = answer {
            self.acknowledge(answer);
        }
        Ok(())
    }
}
