//! Reads what the broker has retained, over a session of its own: when the broker comes, and when a
//! neighbour asks for it. MQTT does not mark the last retained message. The reading is over when the
//! broker has answered a ping and has sent none for a second before.

use super::neighbours::CALM_S;
use super::{Manager, Role};
use crate::client::is_echo;
use crate::connection::{Fault, next_packet};
use crate::delivery::Delivery;
use crate::message::{Link, Message};
use crate::residence;
use mqtick_net::log;
use mqtick_packet::{
    ConnectOut, Packet, Property, Publish, Qos, Version, connect, decode, disconnect, pingreq,
    subscribe,
};
use std::collections::BTreeSet;

const KEEP_ALIVE_S: u16 = 60;
const REST_S: u64 = 15; // until the next try, after a failure
const SILENCE_S: u64 = 60;
const ALL: &str = "#";

/// The session.
pub(crate) struct Reader {
    name: String,
    token: Option<u64>,
    version: Version,
    /// Neighbours that have asked.
    asked: BTreeSet<Link>,
    /// Neighbours that get what is read now.
    serves: Vec<Link>,
    is_subscribed: bool,
    /// No retained message has come since the last ping.
    was_quiet: bool,
    again_s: u64,
    /// When a retained message of QoS 0 was last dropped because the broker was slow.
    pub missed_s: Option<u64>,
    /// The last failure that was logged.
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

    /// A neighbour asks for what is retained.
    pub fn ask(&mut self, link: Link) {
        self.asked.insert(link);
    }
}

impl Manager {
    pub(super) fn tick_reader(&mut self, now_s: u64) {
        let mut deliveries = self.deliveries.iter().map(|(delivery, _)| delivery);
        let version = deliveries.clone().next().map(Delivery::version);
        let Some(version) = version.filter(|_| deliveries.all(Delivery::is_up)) else {
            self.site.node.retained.away();
            if let Some(token) = self.reader.token {
                self.close(
                    token,
                    "another session of this node at the broker has ended",
                );
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
        let tokens = self.deliveries.iter().filter_map(|(_, token)| *token);
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
            // The broker leaves out longer messages, which could go to no other site.
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

    /// The user and the password of this node's account at the broker.
    pub(crate) fn broker_account(&self) -> (Option<String>, Option<Vec<u8>>) {
        let password = self.secrets.password.clone();
        let in_url = self.broker.password.clone().map(String::into_bytes);
        (self.broker.user.clone(), password.or(in_url))
    }

    /// Process packets of the broker. Returns how many octets were processed.
    pub(super) fn reader_says(&mut self, token: u64, input: &[u8]) -> Result<usize, Fault> {
        let version = self.reader.version;
        let mut at = 0;
        while let Some(found) = next_packet(input, at, self.settings.limits.packet)? {
            if !self.site.node.has_room() {
                self.blocked.insert(token);
                break;
            }
            at += found.length;
            match decode(&found, version)? {
                Packet::Connack(connack) if connack.reason == 0 => {
                    let node = &mut self.site.node;
                    let asked = &mut self.reader.asked;
                    let told = asked.extract_if(.., |link| node.is_told(*link));
                    self.reader.serves = told.collect();
                    let waiting = self
                        .deliveries
                        .iter()
                        .flat_map(|(delivery, _)| delivery.messages());
                    node.begin_reading(waiting, &self.reader.serves);
                    let mut out = Vec::new();
                    subscribe(&mut out, version, 1, &[(ALL, Qos::AtMostOnce)]);
                    self.send(token, &out);
                }
                Packet::Connack(connack) => {
                    let (name, reason) = (&self.reader.name, connack.reason);
                    let why = format!("it refuses client {name:?}: reason 0x{reason:02x}");
                    return Err(Fault::ended(why));
                }
                Packet::Suback(suback) if suback.codes.iter().all(|code| *code < 0x80) => {
                    self.reader.is_subscribed = true;
                }
                Packet::Suback(_) => {
                    let why = format!("the node's account may not subscribe to {ALL:?}");
                    return Err(Fault::ended(why));
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
                    let why = format!("it disconnects: reason 0x{:02x}", disconnect.reason);
                    return Err(Fault::ended(why));
                }
                _ => {} // among them messages that are published meanwhile
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
        // Its publisher is not known any more, so the access list treats this node as the publisher.
        if is_wanted && !self.site.allows(&user, &self.reader.name, topic) {
            return;
        }
        let mut forwarded = Vec::new();
        publish.properties.forwarded(&mut forwarded);
        let mut message = Message {
            topic: topic.into(),
            payload: payload.into(),
            expiry: publish.properties.message_expiry(),
            came_s: self.site.now_s,
            forwarded,
            user,
            client: self.reader.name.clone(),
            ..Message::default()
        };
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
                "broker {}: its retained messages cannot be read: {why}; until they can, neighbours do \
                 not get those from before they joined",
                self.broker
            ));
        }
    }
}
