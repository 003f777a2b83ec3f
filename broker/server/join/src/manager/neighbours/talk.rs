//! Packets from neighbours, and packets to them.

use super::{ITSELF, MOST_FILTERS, NOT_DONE, WINDOW, Waiting, Wires};
use crate::connection::{Fault, next_packet};
use crate::cooperation::{Say, Source};
use crate::manager::Manager;
use crate::message::{Key, Link, Message};
use crate::node::Action;
use crate::residence;
use crate::topology::State;
use crate::words::{self, Passage, Passed};
use mqtick_net::log;
use mqtick_net::residence::{Clock, chained};
use mqtick_packet::{
    AckKind, Connack, Packet, Qos, Version, ack, decode, pingresp, suback, subscribe, unsuback,
    unsubscribe,
};
use std::rc::Rc;
use std::sync::Arc;

const MOST_OCTETS: usize = 1 << 16; // of filters in one packet, not counting the last one
const MOST_REASON: usize = 300; // characters of a neighbour's reason that are logged
const ID: u16 = 1; // of all SUBSCRIBE packets: a link keeps its order, so answers are not waited for

impl Manager {
    /// Process packets of a neighbour. Returns how many octets were processed.
    pub(crate) fn neighbour_says(
        &mut self,
        link: Link,
        index: u8,
        input: &[u8],
    ) -> Result<usize, Fault> {
        let mut at = 0;
        while let Some(wires) = self.wires.get(&link) {
            let one = wires.all.get(usize::from(index));
            let greets = wires.dials && one.is_some_and(|one| !one.is_greeted);
            if !wires.is_up && !greets {
                return Ok(at); // other connections of the link are not there yet
            }
            let Some(found) = next_packet(input, at, self.longest())? else {
                return Ok(at);
            };
            let packet = decode(&found, Version::V5)?;
            at += found.length;
            match packet {
                Packet::Connack(connack) if greets => self.welcomed(link, index, &connack)?,
                _ if greets => return Err("its first packet is not a CONNACK".into()),
                packet => self.hear(link, index, &packet)?,
            }
        }
        Ok(input.len())
    }

    /// A neighbour that this node connected to has answered the greeting.
    fn welcomed(&mut self, link: Link, index: u8, connack: &Connack<'_>) -> Result<(), Fault> {
        let said = &connack.properties;
        if connack.reason != 0 {
            let dial = self.dials.iter_mut().find(|dial| dial.link == Some(link));
            if let Some(dial) = dial.filter(|_| connack.reason == ITSELF) {
                dial.is_self = true;
            }
            let why = said.reason_string().unwrap_or("it gives no reason");
            let why = why.replace(char::is_control, " "); // it must not write log lines of its own
            let why: String = why.chars().take(MOST_REASON).collect();
            return Err(Fault::ended(format!("it refuses this node: {why}")));
        }
        let who = words::parse_welcome(said.assigned_client_id()).map_err(Fault::ended)?;
        if self.removed.contains(&who.1) {
            let why = format!("{} was removed and not added again", who.1);
            return Err(Fault::ended(why));
        }
        let token = |wires: &Wires| wires.all.get(usize::from(index))?.token;
        let wires = self.wires.get(&link);
        if let Some(why) = wires.and_then(|wires| self.is_wrong(wires, token(wires)?)) {
            return Err(Fault::ended(why));
        }
        let Some(wires) = self.wires.get_mut(&link) else {
            return Ok(());
        };
        wires.takes(said.maximum_packet_size());
        if wires.peer.get_or_insert_with(|| who.clone()) != &who {
            return Err(Fault::ended("its connections lead to different nodes"));
        }
        if let Some(one) = wires.all.get_mut(usize::from(index)) {
            one.is_greeted = true;
        }
        self.complete(link);
        Ok(())
    }

    /// A packet of a neighbour whose link is up.
    fn hear(&mut self, link: Link, index: u8, packet: &Packet<'_>) -> Result<(), Fault> {
        let Some(wires) = self.wires.get_mut(&link) else {
            return Ok(());
        };
        let Some(one) = wires.all.get_mut(usize::from(index)) else {
            return Ok(());
        };
        let Some(token) = one.token else {
            return Ok(());
        };
        let by = Source::Link(link);
        let mut out = Vec::new();
        match packet {
            Packet::Publish(publish) if publish.topic == words::TOPOLOGY => {
                let state = State::parse(publish.payload).ok_or("a malformed topology message")?;
                self.site.node.state(link, &state);
            }
            Packet::Publish(publish) => {
                let Passed {
                    key,
                    attempt,
                    stated,
                    mut message,
                } = words::parse_message(publish)?;
                message.came_s = self.site.now_s;
                let (user, client) = (&message.user, &message.client);
                message.is_denied = !self.site.allows(user, client, &message.topic);
                let slot = self.slots.get_mut(&token).filter(|_| attempt == 0);
                let arrived = stated.zip(slot).and_then(|(stated, slot)| {
                    residence::passed(chained(stated), slot.connection.came())
                });
                residence::set_aside(&mut message, &self.site.residence, arrived);
                wires.came += 1;
                if message.qos != Qos::AtMostOnce {
                    if wires.owed_count >= WINDOW * wires.all.len() {
                        return Err("more unconfirmed messages than a neighbour may send".into());
                    }
                    wires.owed_count += 1;
                    let owed = wires.owed.entry((key, attempt)).or_default();
                    owed.push((index, publish.id));
                }
                self.site.node.arrived(link, key, attempt, message);
            }
            Packet::Subscribe(ask) if ask.filters().all(|one| one.filter == words::RETAINED) => {
                suback(&mut out, Version::V5, ask.id, &[0]);
                one.has_asked = true;
                // Only then has everything come that it sent before, over all connections.
                if wires.all.iter().all(|one| one.has_asked) {
                    wires.all.iter_mut().for_each(|one| one.has_asked = false);
                    self.reader.ask(link);
                }
            }
            Packet::Subscribe(subscribe) => {
                let filters: Vec<Arc<str>> =
                    subscribe.filters().map(|one| one.filter.into()).collect();
                let is_valid =
                    |one: &Arc<str>| mqtick_topics::valid_filter(one) && !one.starts_with('$');
                if !filters.iter().all(is_valid) {
                    return Err(
                        "a malformed filter, or one whose messages stay at their site".into(),
                    );
                }
                suback(&mut out, Version::V5, subscribe.id, &vec![0; filters.len()]);
                self.site.node.subscribed(by, &filters);
            }
            Packet::Unsubscribe(unsubscribe) => {
                let filters: Vec<Arc<str>> = unsubscribe.filters().map(Into::into).collect();
                let codes = vec![0; filters.len()];
                unsuback(&mut out, Version::V5, unsubscribe.id, &codes);
                self.site.node.unsubscribed(by, &filters);
            }
            Packet::Ack(one_ack) if one_ack.kind == AckKind::Puback => {
                if let Some((key, attempt)) = one.flying.remove(&one_ack.id) {
                    let done = one_ack.reason < NOT_DONE;
                    self.site.node.confirmed(link, key, attempt, done);
                    while let Some((key, attempt, message)) = self.next_waiting(link, index) {
                        self.pass(link, key, attempt, message);
                    }
                }
            }
            Packet::Pingreq => pingresp(&mut out),
            Packet::Pingresp | Packet::Suback(_) | Packet::Unsuback(_) => {}
            Packet::Disconnect(_) => return Err(Fault::ended("it disconnects")),
            _ => return Err("a packet that no neighbour sends".into()),
        }
        self.send(token, &out);
        self.act();
        Ok(())
    }

    /// Do what the node wants done.
    pub(crate) fn act(&mut self) {
        let mut released = false;
        while let Some(action) = self.site.node.next_action() {
            match action {
                Action::State(link, state) => {
                    let mut out = Vec::new();
                    words::topology(&mut out, &state);
                    self.tell(link, &out);
                }
                Action::Say(say) => self.say(say),
                Action::Send {
                    link,
                    key,
                    attempt,
                    message,
                } => self.pass(link, key, attempt, message),
                Action::Confirm {
                    link,
                    key,
                    attempt,
                    done,
                } => {
                    let Some(wires) = self.wires.get_mut(&link) else {
                        continue;
                    };
                    let owed = wires.owed.remove(&(key, attempt)).unwrap_or_default();
                    wires.owed_count -= owed.len();
                    for (index, id) in owed {
                        let mut out = Vec::new();
                        let reason = if done { 0 } else { NOT_DONE };
                        ack(&mut out, Version::V5, AckKind::Puback, id, reason);
                        self.tell_on(link, index, &out);
                    }
                }
                Action::Deliver(key, message) => self.deliver(key, message),
                Action::Release(key) => {
                    released = true;
                    self.release(key);
                }
                Action::Ask(link) => {
                    let mut out = Vec::new();
                    let all = [(words::RETAINED, Qos::AtLeastOnce)];
                    subscribe(&mut out, Version::V5, ID, &all);
                    let count = self.wires.get(&link).map_or(0, |wires| wires.all.len());
                    (0..count).for_each(|index| self.tell_on(link, index as u8, &out));
                }
                Action::Hand(link) => self.reader.ask(link),
                Action::TreeChanged => {
                    let nodes = self.site.node.tree.nodes.len();
                    let nodes = match nodes {
                        1 => "this node alone".into(),
                        _ => format!("{nodes} nodes"),
                    };
                    log::notice(&format!("the tree has {nodes}"));
                }
            }
        }
        if released && !self.blocked.is_empty() {
            self.unblock();
        }
    }

    /// Send octets over the first connection of a link.
    fn tell(&mut self, link: Link, octets: &[u8]) {
        self.tell_on(link, 0, octets);
    }

    fn tell_on(&mut self, link: Link, index: u8, octets: &[u8]) {
        let wires = self.wires.get(&link);
        let one = wires.and_then(|wires| wires.all.get(usize::from(index)));
        if let Some(token) = one.and_then(|one| one.token) {
            self.send(token, octets);
        }
    }

    /// Subscribe or unsubscribe at a neighbour. Words of the same kind that follow go in the same packet.
    fn say(&mut self, first: Say) {
        let mut octets = first.filter.len();
        let mut filters = vec![Arc::clone(&first.filter)];
        while filters.len() < MOST_FILTERS
            && octets < MOST_OCTETS
            && let Some(next) = self.site.node.next_like(&first)
        {
            octets += next.filter.len();
            filters.push(next.filter);
        }
        let mut out = Vec::new();
        let filters = filters.iter().map(|one| &**one);
        if first.wants {
            let all: Vec<_> = filters.map(|one| (one, Qos::ExactlyOnce)).collect();
            subscribe(&mut out, Version::V5, ID, &all);
        } else {
            let all: Vec<_> = filters.collect();
            unsubscribe(&mut out, Version::V5, ID, &all);
        }
        self.tell(first.link, &out);
    }

    /// The next message that waits for a connection, if that has room now.
    fn next_waiting(&mut self, link: Link, index: u8) -> Option<Waiting> {
        let one = self.wires.get_mut(&link)?.all.get_mut(usize::from(index))?;
        let has_room = one.flying.len() < WINDOW;
        one.queue.pop_front_if(|_| has_room)
    }

    /// Send a message to a neighbour.
    fn pass(&mut self, link: Link, key: Key, attempt: u32, message: Rc<Message>) {
        let most = self.settings.limits.queue;
        let Some(wires) = self.wires.get_mut(&link) else {
            return;
        };
        let index = usize::from(key.lane) % wires.all.len().max(1);
        let Some(one) = wires.all.get_mut(index) else {
            return;
        };
        let both = |token: u64| Some((token, self.slots.get(&token)?));
        let Some((token, slot)) = one.token.and_then(both) else {
            return;
        };
        let mut id = 0;
        if message.qos == Qos::AtMostOnce {
            if slot.connection.waiting() > most {
                wires.dropped += 1;
                if message.retain {
                    wires.missed_s = Some(self.site.now_s);
                }
                self.counts.dropped += 1;
                return;
            }
        } else {
            if one.flying.len() >= WINDOW {
                one.queue.push_back((key, attempt, message));
                return;
            }
            id = one.last_id;
            loop {
                id = id.checked_add(1).unwrap_or(1);
                if !one.flying.contains_key(&id) {
                    break;
                }
            }
            one.last_id = id;
            one.flying.insert(id, (key, attempt));
        }
        // Only a message that leaves at once can state how long it was here.
        let leaves = attempt == 0 && slot.connection.waiting() == 0;
        let states = message.arrived.filter(|_| leaves);
        let how = Passage {
            attempt,
            id,
            now_s: self.site.now_s,
            stated: states.and_then(|arrived| arrived.so_far(Clock::read())),
        };
        let mut out = Vec::new();
        words::message(&mut out, key, &message, how);
        if out.len() > wires.most {
            one.flying.remove(&id);
            self.counts.too_long += 1;
            let name = wires.peer.as_ref().map_or("?", |(_, name)| name);
            let (long, most) = (out.len(), wires.most);
            self.length_said.warn(self.site.now_s, || {
                format!(
                    "neighbour {name}: a message on {:?} is dropped: it has {long} octets, and {name} \
                     takes at most {most}; set the same limits.packet at both nodes",
                    message.topic
                )
            });
            return self.site.node.confirmed(link, key, attempt, true); // it is not waited for
        }
        wires.sent += 1;
        self.send(token, &out);
        if how.stated.is_some() {
            self.flush_one(token);
        }
    }
}
