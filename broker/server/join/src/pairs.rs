//! Clients and their paired connections, and this site's broker.

use crate::client::Next;
use crate::manager::{Manager, Pair, Role, UNAVAILABLE, refusal};
use crate::node::{Key, Message};
use mqtick_broker::log;
use mqtick_broker::residence::{Arrived, NOT_STATED, has_trailer};
use mqtick_packet::{Qos, frame};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

const PING_S: u64 = 20;
const SILENCE_S: u64 = 60;
const ANSWER_S: u64 = 5; // some brokers say nothing to a version that they do not speak
const PUBLISH: u8 = 3;

/// How many octets whole messages of QoS 0 at the beginning have.
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
    /// Packets of a client: how many octets were looked at.
    pub(crate) fn client_says(&mut self, token: u64, input: &[u8]) -> Result<usize, String> {
        let Some(Pair { paired, broker }) = self.pairs.get(&token) else {
            return Ok(input.len());
        };
        let broker = *broker;
        // The broker wakes up while we look at what never waits here.
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
                Ok(Next::Relay | Next::Keep) => at += found.length,
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
        wrong.map_or(Ok(at), |error| Err(error.to_string()))
    }

    /// Packets of the broker for a client.
    pub(crate) fn broker_says(
        &mut self,
        token: u64,
        client: u64,
        input: &[u8],
    ) -> Result<usize, String> {
        let Some(Pair { paired, broker }) = self.pairs.get_mut(&client) else {
            return Ok(input.len());
        };
        debug_assert_eq!(*broker, token);
        let was_up = paired.is_up();
        let (mut at, mut from) = (0, 0);
        let mut out: Vec<u8> = Vec::new(); // where something is left out, or stated
        let mut stated: Vec<(usize, usize, Arrived)> = Vec::new(); // copies in it
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let found = frame(rest, self.settings.limits.packet);
            let Some(found) = found.map_err(|error| error.to_string())? else {
                break;
            };
            let end = at + found.length;
            if found.first >> 4 == PUBLISH {
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
                let raw = rest.get(..found.length).unwrap_or_default();
                let next = paired.broker_says(&found, raw, &mut self.site);
                match next.map_err(|error| error.to_string())? {
                    Next::Relay => {}
                    Next::Keep => {
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

    /// Have octets written for a client; and in copies of them, from
    /// where to where, how long those were here.
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

    /// One of a pair's connections ended: so does the other.
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
        // Whoever is not known to the broker under that name is to keep nobody waiting.
        if other == broker
            && was_up
            && let Some(slot) = self.slots.get_mut(&broker)
        {
            slot.leaves = Some(Arc::clone(&name));
            self.leaving.entry(name).or_default().0 = broker;
        }
    }

    /// All sites have a message that a client waits for.
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
        // What is published on a topic, by whomever, comes to the broker in this order: it keeps the
        // last one that is to be retained, and so does this node.
        let mut hasher = DefaultHasher::new();
        message.topic.hash(&mut hasher);
        let number = (hasher.finish() % self.lanes.len().max(1) as u64) as usize;
        let most = self.settings.limits.queue;
        let Some((lane, token)) = self.lanes.get_mut(number) else {
            return;
        };
        let slot = token.and_then(|token| self.slots.get(&token));
        let is_full = slot.is_some_and(|slot| slot.connection.waiting() > most);
        if is_full && message.retain && message.qos == Qos::AtMostOnce {
            self.reader.missed_s = Some(self.site.now_s);
        }
        lane.publish(key, message, is_full, &self.site.node.retained);
        self.write_lane(number);
    }

    fn write_lane(&mut self, number: usize) {
        let Some((lane, token)) = self.lanes.get_mut(number) else {
            return;
        };
        for key in std::mem::take(&mut lane.done) {
            self.site.node.delivered(key);
        }
        if let Some(token) = token
            && !lane.out.is_empty()
        {
            let (out, token) = (std::mem::take(&mut lane.out), *token);
            self.send(token, &out);
            if let Some((lane, _)) = self.lanes.get_mut(number) {
                lane.out = out;
                lane.out.clear();
            }
        }
    }

    pub(crate) fn lane_says(&mut self, number: usize, input: &[u8]) -> Result<usize, String> {
        let Some((lane, _)) = self.lanes.get_mut(number) else {
            return Ok(input.len());
        };
        let (was_up, took_2) = (lane.is_up(), self.takes_2.get());
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let found = frame(rest, self.settings.limits.packet);
            let Some(found) = found.map_err(|error| error.to_string())? else {
                break;
            };
            at += found.length;
            lane.take(&found, &self.site.node.retained)?;
        }
        if lane.is_up() && !was_up && number == 0 {
            self.broker_said.clear();
            log::notice(&format!("broker {}: connected", self.broker));
        }
        if self.takes_2.get() == Some(false) && took_2.is_none() {
            log::warning(&format!(
                "broker {}: it ends the connection at a message of QoS 2: it gets those of other sites \
                 with QoS 1 from now on",
                self.broker
            ));
        }
        self.write_lane(number);
        Ok(at)
    }

    /// `has_met`: the broker was there.
    pub(crate) fn lane_ended(&mut self, number: usize, why: &str, has_met: bool) {
        let Some((lane, token)) = self.lanes.get_mut(number) else {
            return;
        };
        *token = None;
        let was_up = lane.closed(has_met);
        self.broker_place.away(has_met);
        if number == 0 && self.broker_said != why {
            self.broker_said = why.into();
            // A broker of MQTT 3.1.1 closes the first connection.
            if was_up || self.broker_place.tries > 2 {
                log::warning(&format!("broker {}: away: {why}", self.broker));
            }
        }
    }

    pub(crate) fn tick_lanes(&mut self, now_s: u64) {
        for number in 0..self.lanes.len() {
            let Some((lane, token)) = self.lanes.get_mut(number) else {
                return;
            };
            lane.now_s = now_s;
            if let Some(token) = *token {
                if now_s.is_multiple_of(PING_S) {
                    lane.ping();
                }
                let limit_s = if lane.is_up() { SILENCE_S } else { ANSWER_S };
                let slot = self.slots.get(&token);
                let is_silent = slot.is_some_and(|slot| slot.heard_s + limit_s < now_s);
                self.write_lane(number);
                if is_silent {
                    self.close(token, "it is silent");
                }
                continue;
            }
            match self.connect_to_broker(Role::Lane(number)) {
                Ok(token) => {
                    let (user, password) = self.broker_account();
                    if let Some((lane, place)) = self.lanes.get_mut(number) {
                        *place = Some(token);
                        lane.open(user.as_deref(), password.as_deref());
                    }
                    self.write_lane(number);
                }
                Err(why) => self.lane_ended(number, &why, false),
            }
        }
    }
}
