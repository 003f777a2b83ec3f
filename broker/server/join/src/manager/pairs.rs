//! Clients and their paired connections, and the sessions that deliver messages from other sites to
//! this site's broker.

use super::{Manager, Pair, Role, UNAVAILABLE, refusal};
use crate::client::Next;
use crate::connection::{Fault, next_packet};
use crate::message::{Key, Message};
use mqtick_net::log;
use mqtick_net::residence::{Arrived, NOT_STATED, has_trailer};
use mqtick_packet::{Qos, frame};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

const PING_S: u64 = 20;
const SILENCE_S: u64 = 60;
const ANSWER_S: u64 = 5; // some brokers do not answer a version that they do not speak

/// How many octets at the beginning of `input` are whole messages of QoS 0.
fn leading(input: &[u8], most: usize) -> usize {
    const QOS: u8 = 6;
    let mut at = 0;
    while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty())
        && let Ok(Some(found)) = frame(rest, most)
        && found.is_publish()
        && found.first & QOS == 0
    {
        at += found.length;
    }
    at
}

impl Manager {
    /// Process packets of a client. Returns how many octets were processed.
    pub(crate) fn client_says(&mut self, token: u64, input: &[u8]) -> Result<usize, Fault> {
        let Some(Pair { paired, broker }) = self.pairs.get(&token) else {
            return Ok(input.len());
        };
        let broker = *broker;
        // These never wait here, so the broker gets them before they are processed.
        let relayed = match paired.is_up() {
            true => leading(input, self.settings.limits.packet),
            false => 0,
        };
        if relayed > 0 {
            self.send_now(broker, input.get(..relayed).unwrap_or_default());
        }
        let Some(Pair { paired, .. }) = self.pairs.get_mut(&token) else {
            return Ok(input.len()); // the broker is gone
        };
        let mut at = 0;
        let mut wrong = None;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let found = match frame(rest, self.settings.limits.packet) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    wrong = Some(error);
                    break;
                }
            };
            if found.is_publish() && self.site.residence.may_concern(found.body) {
                let slot = self.slots.get_mut(&token);
                self.site.came = slot.and_then(|slot| slot.connection.came());
            }
            match paired.client_says(&found, &mut self.site) {
                Ok(Next::Relay | Next::Hold) => at += found.length,
                Ok(Next::Wait) => {
                    if paired.is_up() {
                        self.blocked.insert(token);
                    }
                    break;
                }
                Err(error) => {
                    wrong = Some(error);
                    break;
                }
            }
            self.counts.published += u64::from(found.is_publish());
        }
        if at > relayed {
            self.send_now(broker, input.get(relayed..at).unwrap_or_default());
        }
        wrong.map_or(Ok(at), |error| Err(error.into()))
    }

    /// Process packets of the broker for a client. Returns how many octets were processed.
    pub(crate) fn broker_says(
        &mut self,
        token: u64,
        client: u64,
        input: &[u8],
    ) -> Result<usize, Fault> {
        let Some(Pair { paired, broker }) = self.pairs.get_mut(&client) else {
            return Ok(input.len());
        };
        debug_assert_eq!(*broker, token);
        let was_up = paired.is_up();
        let (mut at, mut from) = (0, 0);
        let mut out: Vec<u8> = Vec::new(); // used only if a packet is held back or changed
        let mut stated: Vec<(usize, usize, Arrived)> = Vec::new(); // time messages in `out`
        while let Some(found) = next_packet(input, at, self.settings.limits.packet)? {
            let end = at + found.length;
            if found.is_publish() {
                self.counts.received += 1;
                if let Some(arrived) = paired.broker_tells(&found, &self.site.residence) {
                    out.extend_from_slice(input.get(from..end).unwrap_or_default());
                    from = end;
                    if let Some(trailer) = out.last_chunk_mut() {
                        *trailer = NOT_STATED;
                    }
                    let start = out.len() - found.length;
                    stated.extend(arrived.map(|arrived| (start, out.len(), arrived)));
                }
            } else {
                let raw = input.get(at..end).unwrap_or_default();
                match paired.broker_says(&found, raw, &mut self.site)? {
                    Next::Relay => {}
                    Next::Hold => {
                        out.extend_from_slice(input.get(from..at).unwrap_or_default());
                        from = end;
                    }
                    Next::Wait => {
                        self.blocked.insert(token);
                        break;
                    }
                }
            }
            at = end;
        }
        let is_up = paired.is_up();
        match out.is_empty() {
            true => self.send_now(client, input.get(from..at).unwrap_or_default()),
            false => {
                out.extend_from_slice(input.get(from..at).unwrap_or_default());
                self.send_all(client, &mut out, &stated);
            }
        }
        if is_up && (!was_up || self.blocked.remove(&client)) {
            self.act();
            self.process(client);
            self.dirty.push(client);
        }
        Ok(at)
    }

    /// Write octets to a client. `stated`: the time messages in them (from, to, when each came), whose
    /// trailers state how long they were here.
    fn send_all(&mut self, client: u64, octets: &mut [u8], stated: &[(usize, usize, Arrived)]) {
        let mut at = 0;
        for (start, end, arrived) in stated {
            self.send(client, octets.get(at..*start).unwrap_or_default());
            if let Some(copy) = octets.get_mut(*start..*end) {
                self.send_stated(client, copy, arrived);
            }
            at = *end;
        }
        self.send_now(client, octets.get(at..).unwrap_or_default());
    }

    /// One connection of a pair has ended (`ended`): end the other one, too.
    pub(crate) fn end_pair(&mut self, client: u64, ended: u64) {
        self.blocked.remove(&client);
        let Some(Pair { paired, broker }) = self.pairs.remove(&client) else {
            return self.drop(ended);
        };
        self.blocked.remove(&broker);
        let other = if ended == client { broker } else { client };
        if other == client && !paired.is_up() {
            let slot = self.slots.get(&broker);
            if let Some(slot) = slot.filter(|slot| !slot.was_answered) {
                self.broker_place.away(slot.connection.has_met());
                self.send(client, &refusal(paired.version(), UNAVAILABLE));
            }
        }
        let (name, was_up) = (paired.client(), paired.is_up());
        paired.end(ended == client, &mut self.site);
        self.drop(ended);
        self.over(other);
        // The next client of this name waits until the broker has read what this one sent. A client
        // that the broker never accepted keeps no other one waiting.
        if other == broker
            && was_up
            && let Some(slot) = self.slots.get_mut(&broker)
        {
            slot.leaves = Some(Arc::clone(&name));
            self.leaving.entry(name).or_default().0 = broker;
        }
    }

    /// All sites have a message: acknowledge it to the client that waits for that.
    pub(crate) fn release(&mut self, key: Key) {
        let Some((token, id)) = self.site.waiting.remove(&key) else {
            return;
        };
        let pair = self.pairs.get_mut(&token);
        if let Some(octets) = pair.and_then(|pair| pair.paired.release(id)) {
            self.send(token, &octets);
        }
    }

    // -- messages from other sites -----------------------------------------------------------------

    /// Publish a message at the broker.
    pub(crate) fn deliver(&mut self, key: Key, message: Rc<Message>) {
        if has_trailer(&message.payload) && self.site.residence.is_timed(&message.topic) {
            self.site.residence.note(&message.payload, message.arrived);
        }
        // All messages on one topic go over the same session. So the broker gets them in this order, and
        // retains the same last one as this node.
        let mut hasher = DefaultHasher::new();
        message.topic.hash(&mut hasher);
        let number = (hasher.finish() % self.deliveries.len().max(1) as u64) as usize;
        let most = self.settings.limits.queue;
        let Some((delivery, token)) = self.deliveries.get_mut(number) else {
            return;
        };
        let slot = token.and_then(|token| self.slots.get(&token));
        let is_full = slot.is_some_and(|slot| slot.connection.waiting() > most);
        if is_full && message.retain && message.qos == Qos::AtMostOnce {
            self.reader.missed_s = Some(self.site.now_s);
        }
        delivery.publish(key, message, is_full, &self.site.node.retained);
        self.write_delivery(number);
    }

    fn write_delivery(&mut self, number: usize) {
        let Some((delivery, token)) = self.deliveries.get_mut(number) else {
            return;
        };
        for key in std::mem::take(&mut delivery.done) {
            self.site.node.delivered(key);
        }
        if let Some(token) = token
            && !delivery.out.is_empty()
        {
            let (out, token) = (std::mem::take(&mut delivery.out), *token);
            self.send(token, &out);
            if let Some((delivery, _)) = self.deliveries.get_mut(number) {
                delivery.out = out;
                delivery.out.clear();
            }
        }
    }

    pub(crate) fn delivery_says(&mut self, number: usize, input: &[u8]) -> Result<usize, Fault> {
        let Some((delivery, _)) = self.deliveries.get_mut(number) else {
            return Ok(input.len());
        };
        let (was_up, took_2) = (delivery.is_up(), self.takes_2.get());
        let mut at = 0;
        while let Some(found) = next_packet(input, at, self.settings.limits.packet)? {
            at += found.length;
            delivery.take(&found, &self.site.node.retained)?;
        }
        if delivery.is_up() && !was_up && number == 0 {
            self.broker_said.clear();
            log::notice(&format!("broker {}: connected", self.broker));
        }
        if self.takes_2.get() == Some(false) && took_2.is_none() {
            log::warning(&format!(
                "broker {}: it closes the connection at messages of QoS 2; so from now on it gets those \
                 of other sites with QoS 1",
                self.broker
            ));
        }
        self.write_delivery(number);
        Ok(at)
    }

    /// A session has lost its connection. `has_met`: there was something at the other end.
    pub(crate) fn delivery_ended(&mut self, number: usize, why: &str, has_met: bool) {
        let Some((delivery, token)) = self.deliveries.get_mut(number) else {
            return;
        };
        *token = None;
        let was_up = delivery.closed(has_met);
        self.broker_place.away(has_met);
        if number == 0 && self.broker_said != why {
            self.broker_said = why.into();
            // A broker of MQTT 3.1.1 closes the first connection, which is no news.
            if was_up || self.broker_place.tries > 2 {
                log::warning(&format!("broker {}: away: {why}", self.broker));
            }
        }
    }

    pub(crate) fn tick_deliveries(&mut self, now_s: u64) {
        for number in 0..self.deliveries.len() {
            let Some((delivery, token)) = self.deliveries.get_mut(number) else {
                return;
            };
            delivery.now_s = now_s;
            if let Some(token) = *token {
                if now_s.is_multiple_of(PING_S) {
                    delivery.ping();
                }
                let limit_s = if delivery.is_up() {
                    SILENCE_S
                } else {
                    ANSWER_S
                };
                let slot = self.slots.get(&token);
                let is_silent = slot.is_some_and(|slot| slot.heard_s + limit_s < now_s);
                self.write_delivery(number);
                if is_silent {
                    self.close(token, "it is silent");
                }
                continue;
            }
            match self.connect_to_broker(Role::Delivery(number)) {
                Ok(token) => {
                    let (user, password) = self.broker_account();
                    if let Some((delivery, place)) = self.deliveries.get_mut(number) {
                        *place = Some(token);
                        delivery.open(user.as_deref(), password.as_deref());
                    }
                    self.write_delivery(number);
                }
                Err(why) => self.delivery_ended(number, &why, false),
            }
        }
    }
}
