//! What the broker has retained: a session of its own reads it, when the broker comes and when a
//! neighbour asks for it. MQTT does not say which retained message is the last one: it is when the
//! broker answered a ping, and had none for the second before.

use super::{Manager, Role};
use crate::client::is_echo;
use crate::delivery::Lane;
use crate::neighbours::CALM_S;
use crate::node::{Link, Message};
use crate::residence;
use mqtick_broker::log;
use mqtick_packet::{
    ConnectOut, Packet, Property, Publish, Qos, Version, connect, decode, disconnect, frame,
    pingreq, subscribe,
};
use std::collections::BTreeSet;

const KEEP_ALIVE_S: u16 = 60;
const REST_S: u64 = 15; // until it is tried again
const SILENCE_S: u64 = 60;
const ALL: &str = "#";

/// The session.
pub(crate) struct Reader {
    name: String,
    token: Option<u64>,
    version: Version,
    /// Neighbours that want to have it.
    asked: BTreeSet<Link>,
    /// Those that get what is read now.
    serves: Vec<Link>,
    is_subscribed: bool,
    was_quiet: bool,
    again_s: u64,
    /// When the broker had no room for something that is to be retained.
    pub missed_s: Option<u64>,
    said: String,
}

impl Reader {
    pub fn new(name: String) -> Self {
        Self {
            name,
            token: None,
            version: Version::V5,
            asked: BTreeSet::new(),
            serves: Vec::new(),
            is_subscribed: false,
            was_quiet: false,
            again_s: 0,
            missed_s: None,
            said: String::new(),
        }
    }

    /// Its client identifier.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A neighbour wants to have it.
    pub fn ask(&mut self, link: Link) {
        self.asked.insert(link);
    }
}

impl Manager {
    pub(super) fn tick_reader(&mut self, now_s: u64) {
        let mut lanes = self.lanes.iter().map(|(lane, _)| lane);
        let version = lanes.clone().next().map(Lane::version);
        let Some(version) = version.filter(|_| lanes.all(Lane::is_up)) else {
            self.site.node.retained.away();
            if let Some(token) = self.reader.token {
                self.close(token, "another session of this node has ended");
            }
            return;
        };
        self.site.node.retained.back();
        if let Some(token) = self.reader.token {
            let slot = self.slots.get(&token);
            if slot.is_some_and(|slot| slot.heard_s + SILENCE_S < now_s) {
                return self.close(token, "it is silent");
            }
            if self.reader.is_subscribed && !self.blocked.contains(&token) {
                self.reader.was_quiet = true;
                let mut ping = Vec::new();
                pingreq(&mut ping);
                self.send(token, &ping);
            }
            return;
        }
        let tokens = self.lanes.iter().filter_map(|(_, token)| *token);
        let mut slots = tokens.filter_map(|token| self.slots.get(&token));
        let is_slow = slots.any(|slot| slot.connection.waiting() > 0);
        let is_calm = |missed_s: &mut u64| *missed_s + CALM_S <= now_s && !is_slow;
        if self.reader.missed_s.take_if(is_calm).is_some() {
            self.site.node.retained.away();
            self.site.node.retained.back();
        }
        let wires = &self.wires;
        self.reader.asked.retain(|link| wires.contains_key(link));
        let node = &self.site.node;
        let is_due =
            !node.retained.is_known || self.reader.asked.iter().any(|link| node.is_told(*link));
        if !is_due || now_s < self.reader.again_s {
            return;
        }
        let token = match self.connect_to_broker(Role::Reader) {
            Ok(token) => token,
            Err(why) => return self.reader_ended(&why),
        };
        (self.reader.token, self.reader.version) = (Some(token), version);
        let (user, password) = self.broker_account();
        let with = ConnectOut {
            // What is longer goes to no other site, and is not to keep the rest from it.
            properties: &[Property::MaximumPacketSize(
                self.settings.limits.packet as u32,
            )],
            clean_start: true,
            keep_alive: KEEP_ALIVE_S,
            client_id: &self.reader.name,
            username: user.as_deref(),
            password: password.as_deref(),
            ..ConnectOut::default()
        };
        let mut out = Vec::new();
        connect(&mut out, version, &with);
        self.send(token, &out);
    }

    /// Who publishes at the broker what comes from other sites.
    pub(crate) fn broker_account(&self) -> (Option<String>, Option<Vec<u8>>) {
        let password = self.secrets.password.clone();
        let in_url = self.broker.password.clone().map(String::into_bytes);
        (self.broker.user.clone(), password.or(in_url))
    }

    /// What the broker says to it.
    pub(super) fn reader_says(&mut self, token: u64, input: &[u8]) -> Result<usize, String> {
        let version = self.reader.version;
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            if !self.site.node.has_room() {
                self.blocked.insert(token);
                break;
            }
            let found = frame(rest, self.settings.limits.packet);
            let Some(found) = found.map_err(|error| error.to_string())? else {
                break;
            };
            at += found.length;
            match decode(&found, version).map_err(|error| error.to_string())? {
                Packet::Connack(connack) if connack.reason == 0 => {
                    let node = &mut self.site.node;
                    let asked = &mut self.reader.asked;
                    let told = asked.extract_if(.., |link| node.is_told(*link));
                    self.reader.serves = told.collect();
                    let waiting = self.lanes.iter().flat_map(|(lane, _)| lane.messages());
                    node.begin_reading(waiting, &self.reader.serves);
                    let mut out = Vec::new();
                    subscribe(&mut out, version, 1, &[(ALL, Qos::AtMostOnce)]);
                    self.send(token, &out);
                }
                Packet::Connack(connack) => {
                    let name = &self.reader.name;
                    return Err(format!("it refuses {name:?}: 0x{:02x}", connack.reason));
                }
                Packet::Suback(suback) if suback.codes.iter().all(|code| *code < 0x80) => {
                    self.reader.is_subscribed = true;
                }
                Packet::Suback(_) => {
                    return Err(format!("its user may not subscribe to {ALL:?}"));
                }
                Packet::Publish(publish) if publish.retain => {
                    self.reader.was_quiet = false;
                    self.found_retained(&publish);
                }
                Packet::Pingresp if self.reader.was_quiet => {
                    let mut out = Vec::new();
                    disconnect(&mut out, version, 0);
                    self.send(token, &out);
                    self.over(token);
                    let serves = std::mem::take(&mut self.reader.serves);
                    self.site.node.end_reading(&serves);
                    (self.reader.token, self.reader.is_subscribed) = (None, false);
                    self.reader.said.clear();
                    return Ok(input.len());
                }
                Packet::Disconnect(disconnect) => {
                    return Err(format!("it ends it: 0x{:02x}", disconnect.reason));
                }
                _ => {} // what is published meanwhile comes from clients
            }
        }
        Ok(at)
    }

    fn found_retained(&mut self, publish: &Publish<'_>) {
        let (topic, payload) = (publish.topic, publish.payload);
        let is_for_others = mqtick_topics::valid_topic(topic) && !topic.starts_with('$');
        if !is_for_others || is_echo(topic, payload) {
            return;
        }
        let user = self.broker.user.clone().unwrap_or_default();
        let is_wanted = !self.reader.serves.is_empty();
        // Who published it is not known any more: it is as if this node had.
        if is_wanted && !self.site.allows(&user, &self.reader.name, topic) {
            return;
        }
        let mut forwarded = Vec::new();
        publish.properties.forwarded(&mut forwarded);
        let message = Message {
            topic: topic.into(),
            payload: payload.into(),
            expiry: publish.properties.message_expiry(),
            came_s: self.site.now_s,
            forwarded,
            user,
            client: self.reader.name.clone(),
            ..Message::default()
        };
        let mut message = message;
        residence::set_aside(&mut message, &self.site.residence, None);
        self.site.node.found(message, &self.reader.serves);
    }

    pub(super) fn reader_ended(&mut self, why: &str) {
        let reader = &mut self.reader;
        reader.asked.extend(reader.serves.drain(..));
        (reader.token, reader.is_subscribed) = (None, false);
        reader.again_s = self.site.now_s + REST_S;
        if reader.said != why {
            reader.said = why.into();
            log::warning(&format!(
                "broker {}: what it has retained cannot be read: {why}; so nothing that was retained \
                 before sites joined is exchanged",
                self.broker
            ));
        }
    }
}
