//! Requests of sensors to the upstream.

use super::line::{Line, Terms, Will};
use super::{Done, Held, LINES, Upstream};
use crate::gateway::Count;
use crate::message::{Kept, Message};
use crate::router::Router;
use crate::sensor::qos_of;
use crate::session::Session;
use crate::settings::Gateway;
use mqtick_access::Action;
use mqtick_packet::Qos;
use mqtick_sn::{Answer, Code, Count as Refused, Entrance};
use std::collections::HashMap;
use std::sync::Arc;

/// Connections to the upstream that are opened in a second for one address of sensors.
const MOST_OPENED: u32 = 4;

impl Upstream {
    /// Whether a sensor may connect; none: the upstream is asked.
    ///
    /// # Errors
    /// It connects too often.
    pub fn admit(&mut self, entrance: &Entrance<'_>) -> Result<Option<Code>, Refused> {
        if !self.is_up() {
            return Ok(Some(Code::CONGESTION));
        }
        if self.mode == Gateway::Aggregating {
            return Ok(Some(Code::ACCEPTED));
        }
        // The upstream would end the gateway's own connection for this client.
        let is_own = entrance.client == self.shared.settings.upstream.client;
        if is_own || !is_sound(entrance.client) {
            return Ok(Some(Code::NOT_SUPPORTED));
        }
        let expiry_s = match entrance.clean {
            true => 0,
            false => self.shared.settings.limits.session_expiry_s,
        };
        let terms = Terms {
            clean: entrance.clean,
            keep_alive_s: entrance.duration_s,
            expiry_s,
            will: entrance.will.as_ref().map(|will| Will {
                topic: will.topic.into(),
                payload: will.payload.into(),
                qos: qos_of(will.qos),
                retain: will.retain,
            }),
        };
        let known = self.clients.get(entrance.client).copied();
        let known = known.and_then(|token| Some((token, &self.lines.get(&token)?.line)));
        if let Some((_, line)) = known.filter(|(_, line)| line.terms == terms && line.is_open()) {
            if !line.is_up() {
                return Ok(None); // the upstream is asked already
            }
            if !entrance.clean && !entrance.is_elsewhere {
                return Ok(Some(Code::ACCEPTED));
            }
        }
        let known = known.map(|(token, _)| token);
        self.limit(entrance)?;
        if let Some(token) = known {
            self.hang_up(token, entrance.is_elsewhere);
            if entrance.clean {
                self.drop_line(token);
            } else if let Some(held) = self.lines.get_mut(&token) {
                held.line.terms = terms;
                self.open(token);
                return Ok(None);
            }
        }
        let token = self.next;
        self.next += 1;
        let held = self.line(entrance.client, terms);
        self.clients.insert(Arc::clone(&held.line.client), token);
        self.lines.insert(token, held);
        self.open(token);
        Ok(None)
    }

    /// Whether another connection may be opened in this second.
    fn limit(&mut self, entrance: &Entrance<'_>) -> Result<(), Refused> {
        let (now_s, most) = (self.shared.now_s(), &self.shared.settings.limits);
        let most = most.connections_a_second as usize;
        if self.opened.0 != now_s {
            self.opened = (now_s, 0, HashMap::new());
        }
        let (_, all, of_each) = &mut self.opened;
        let here = of_each.get(&entrance.address).copied().unwrap_or(0);
        let why = if here >= MOST_OPENED {
            format!("connects more than {MOST_OPENED} times a second")
        } else if most > 0 && *all >= most {
            format!("has to wait: limits.connections_a_second = {most}")
        } else {
            *all += 1;
            of_each.insert(entrance.address, here + 1);
            return Ok(());
        };
        let (at, client) = (entrance.address.at, entrance.client);
        let told = format!("upstream {}: {client:?} at {at}: {why}", self.address);
        self.shared.complain(&told);
        Err(Refused::Rate)
    }

    fn token_of(&self, client: &str) -> Option<u64> {
        match self.mode {
            Gateway::Aggregating => Some(LINES),
            Gateway::Transparent => self.clients.get(client).copied(),
        }
    }

    fn line_of(&mut self, client: Option<&str>) -> Option<&mut Line> {
        let token = client.map_or(Some(LINES), |client| self.token_of(client))?;
        self.pending_flush.insert(token);
        self.lines.get_mut(&token).map(|held| &mut held.line)
    }

    /// A session begins.
    pub fn begin(&mut self, who: &Arc<Session>) {
        if self.mode == Gateway::Transparent
            && let Some(line) = self.line_of(Some(&who.client))
        {
            line.owner = Some(Arc::clone(who));
        }
    }

    /// A session with these subscriptions ends.
    pub fn end(&mut self, who: &Arc<Session>, filters: impl IntoIterator<Item = Box<str>>) {
        if self.mode == Gateway::Aggregating {
            for filter in filters {
                self.unsubscribe(who, &filter);
            }
        } else if let Some(token) = self.token_of(&who.client)
            && let Some(held) = self.lines.get(&token)
            && held
                .line
                .owner
                .as_ref()
                .is_some_and(|owner| Arc::ptr_eq(owner, who))
        {
            self.give_up(token, false);
            self.drop_line(token);
        }
    }

    /// End the connection of a sensor that is gone. If the upstream has not answered it yet, whoever
    /// waits for that answer is refused.
    fn give_up(&mut self, token: u64, is_lost: bool) {
        if let Some(Held { line, .. }) = self.lines.get(&token)
            && line.is_open()
            && !line.is_up()
        {
            let done = Done::Admitted(Arc::clone(&line.client), Code::CONGESTION);
            self.done.push_back(done);
        }
        self.hang_up(token, is_lost);
    }

    /// A sensor has left.
    pub fn left(&mut self, client: &str, is_lost: bool) {
        if self.mode == Gateway::Transparent
            && let Some(token) = self.token_of(client)
        {
            self.give_up(token, is_lost);
            let held = self.lines.get(&token);
            if held.is_some_and(|held| held.line.owner.is_none()) {
                self.drop_line(token); // the upstream has accepted it, but there was no room here
            }
        }
    }

    /// Ask the upstream for a subscription. Returns why not, if it is not asked.
    pub fn subscribe(
        &mut self,
        who: &Arc<Session>,
        message_id: u16,
        filter: &str,
        qos: Qos,
    ) -> Option<Code> {
        if !is_sound(filter) {
            return Some(Code::NOT_SUPPORTED);
        }
        let now_s = self.shared.now_s();
        match self.line_of(Some(&who.client)) {
            Some(line) => line.subscribe(now_s, who, message_id, filter, qos).err(),
            None => Some(Code::CONGESTION),
        }
    }

    /// Whether a sensor is subscribed, or has asked for it.
    pub fn is_subscribed(&mut self, who: &Arc<Session>, filter: &str) -> bool {
        self.line_of(Some(&who.client))
            .is_some_and(|line| line.is_subscribed(filter, who.number))
    }

    /// A subscription ends.
    pub fn unsubscribe(&mut self, who: &Arc<Session>, filter: &str) {
        let now_s = self.shared.now_s();
        if let Some(line) = self.line_of(Some(&who.client)) {
            line.unsubscribe(now_s, filter, who.number);
        }
    }

    /// Publish a message.
    ///
    /// # Errors
    /// Why the message is not taken. Without an `answer`, a lack of room is only counted.
    pub fn publish(
        &mut self,
        client: Option<&str>,
        message: &Message<'_>,
        answer: Option<Answer>,
    ) -> Result<(), Code> {
        let most = self.shared.settings.limits.queue_messages;
        let is_asked = answer.is_some();
        let taken = match self.line_of(client).filter(|_| is_sound(message.topic)) {
            Some(line) => line.publish(message, most, answer),
            None if is_sound(message.topic) => Err(Code::CONGESTION),
            None => Err(Code::NOT_SUPPORTED),
        };
        self.count(match taken {
            Ok(()) => Count::Published,
            Err(_) if is_asked => Count::Refused,
            Err(_) => Count::Dropped,
        });
        taken.or_else(|code| match code {
            Code::CONGESTION if !is_asked => Ok(()),
            code => Err(code),
        })
    }

    /// Whether the upstream has still to answer a message.
    pub fn is_held(&self, client: &str, message_id: u16) -> bool {
        let held = self
            .token_of(client)
            .and_then(|token| self.lines.get(&token));
        held.is_some_and(|held| held.line.is_held(client, message_id))
    }

    /// Deliver a message to the sensors that are subscribed.
    pub fn deliver(&self, router: &mut Router, token: u64, kept: &Arc<Kept>, ids: &[u32]) {
        let Some(held) = self.lines.get(&token) else {
            return;
        };
        let message = kept.message();
        let mut again = Some(Arc::clone(kept));
        router.context.arrived = None;
        let access = self.shared.access.load();
        for (to, qos) in held.line.targets(&message, ids) {
            let may = access
                .rules
                .may(None, &to.client, Action::Read, message.topic);
            if let Some(seat) = to.sensor.as_ref().filter(|_| may) {
                if router.context.sensors.batch.is_full() {
                    router.send_batch();
                }
                router
                    .context
                    .send_to_sensor(&message, &mut again, qos, message.retain, seat);
            }
        }
    }
}

/// Whether every broker has to take it as text. A broker may end the connection of all sensors for
/// control characters and code points that are no characters (MQTT 5, 1.5.4).
fn is_sound(text: &str) -> bool {
    let is_none =
        |one: char| matches!(u32::from(one), 0xFDD0..=0xFDEF) || u32::from(one) & 0xFFFE == 0xFFFE;
    !text.chars().any(|one| one.is_control() || is_none(one))
}
