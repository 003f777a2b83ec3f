//! What neighbours say, and what is said to them.

use super::{ITSELF, NOT_DONE, ONE_WORD, WINDOW, Waiting, Wires};
use crate::cooperation::{Say, Source};
use crate::manager::Manager;
use crate::node::{Action, Key, Link, Message};
use crate::residence;
use crate::topology::State;
use crate::words::{self, Passage, Passed};
use mqtick_broker::log;
use mqtick_broker::residence::{Clock, chained};
use mqtick_packet::{
    AckKind, Packet, Qos, Version, ack, decode, frame, pingresp, suback, subscribe, unsuback,
    unsubscribe,
};
use std::rc::Rc;
use std::sync::Arc;

const MOST_OCTETS: usize = 1 << 16; // of filters in one packet, before the last one
const ID: u16 = 1; // the answers are not waited for: a link keeps its order

impl Manager {
    pub(crate) fn neighbour_says(
        &mut self,
        link: Link,
        index: u8,
        input: &[u8],
    ) -> Result<usize, String> {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(wires) = self.wires.get(&link) else {
                return Ok(input.len());
            };
            let greets = wires.dials
                && wires
                    .all
                    .get(usize::from(index))
                    .is_some_and(|one| !one.is_greeted);
            if !wires.is_up && !greets {
                return Ok(at);
            }
            let found = frame(rest, self.longest()).map_err(|error| error.to_string())?;
            let Some(found) = found else {
                break;
            };
            let packet = decode(&found, Version::V5).map_err(|error| error.to_string())?;
            at += found.length;
            match packet {
                Packet::Connack(connack) if greets => {
                    let why = connack
                        .properties
                        .reason_string()
                        .unwrap_or("it gives no reason");
                    if connack.reason != 0 {
                        let dial = self.dials.iter_mut().find(|dial| dial.link == Some(link));
                        if let Some(dial) = dial.filter(|_| connack.reason == ITSELF) {
                            dial.is_self = true;
                        }
                        return Err(format!("it refuses us, and says: {why}"));
                    }
                    let said = &connack.properties;
                    if let Some(wires) = self.wires.get_mut(&link) {
                        wires.takes(said.maximum_packet_size());
                    }
                    self.welcomed(link, index, said.assigned_client_id())?;
                }
                _ if greets => return Err("its first packet is no CONNACK".into()),
                packet => self.hear(link, index, &packet)?,
            }
        }
        Ok(at)
    }

    fn welcomed(&mut self, link: Link, index: u8, assigned: Option<&str>) -> Result<(), String> {
        let (peer, name) = words::parse_welcome(assigned)?;
        if self.removed.contains(&name) {
            return Err(format!("{name} was removed, and not added again"));
        }
        let token = |wires: &Wires| wires.all.get(usize::from(index))?.token;
        let wires = self.wires.get(&link);
        if let Some(why) = wires.and_then(|wires| self.is_wrong(wires, token(wires)?)) {
            return Err(why.into());
        }
        let Some(wires) = self.wires.get_mut(&link) else {
            return Ok(());
        };
        let who = (peer, name);
        if wires.peer.get_or_insert_with(|| who.clone()) != &who {
            return Err("its connections lead to different nodes".into());
        }
        if let Some(one) = wires.all.get_mut(usize::from(index)) {
            one.is_greeted = true;
        }
        self.complete(link);
        Ok(())
    }

    fn hear(&mut self, link: Link, index: u8, packet: &Packet<'_>) -> Result<(), String> {
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
                let state = State::parse(publish.payload).ok_or("a malformed topology")?;
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
                        return Err("more messages under way than a neighbour sends at once".into());
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
                // Behind what it sent before, over whichever connection.
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
                    return Err("a filter that is none, or not for others".into());
                }
                suback(&mut out, Version::V5, subscribe.id, &vec![0; filters.len()]);
                self.site.node.subscribed(by, &filters);
            }
            Packet::Unsubscribe(unsubscribe) => {
                let filters: Vec<Arc<str>> = unsubscribe.filters().map(Into::into).collect();
                unsuback(
                    &mut out,
                    Version::V5,
                    unsubscribe.id,
                    &vec![0; filters.len()],
                );
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
            Packet::Disconnect(_) => return Err("it says good-bye".into()),
            _ => return Err("a packet that no neighbour sends".into()),
        }
        self.send(token, &out);
        self.act();
        Ok(())
    }

    /// Do what the node says.
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

    /// What the node says of one neighbour in one go fits few packets.
    fn say(&mut self, first: Say) {
        let (link, is_wanted, filter) = taken_apart(first);
        let mut octets = filter.len();
        let mut filters = vec![filter];
        while filters.len() < ONE_WORD
            && octets < MOST_OCTETS
            && let Some(next) = self.site.node.next_if(|next| match next {
                Say::Subscribe(to, _) => is_wanted && *to == link,
                Say::Unsubscribe(to, _) => !is_wanted && *to == link,
            })
        {
            let filter = taken_apart(next).2;
            octets += filter.len();
            filters.push(filter);
        }
        let mut out = Vec::new();
        match is_wanted {
            true => {
                let all: Vec<_> = filters
                    .iter()
                    .map(|one| (&**one, Qos::ExactlyOnce))
                    .collect();
                subscribe(&mut out, Version::V5, ID, &all);
            }
            false => {
                let all: Vec<_> = filters.iter().map(|one| &**one).collect();
                unsubscribe(&mut out, Version::V5, ID, &all);
            }
        }
        self.tell(link, &out);
    }

    /// A message that waited for room on a connection that has it now.
    fn next_waiting(&mut self, link: Link, index: u8) -> Option<Waiting> {
        let one = self.wires.get_mut(&link)?.all.get_mut(usize::from(index))?;
        let has_room = one.flying.len() < WINDOW;
        one.queue.pop_front_if(|_| has_room)
    }

    fn pass(&mut self, link: Link, key: Key, attempt: u32, message: Rc<Message>) {
        let most = self.settings.limits.queue;
        let Some(wires) = self.wires.get_mut(&link) else {
            return;
        };
        let index = usize::from(key.lane) % wires.all.len().max(1);
        let Some(one) = wires.all.get_mut(index) else {
            return;
        };
        let Some((token, slot)) = one
            .token
            .and_then(|token| Some((token, self.slots.get(&token)?)))
        else {
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
        // Only what leaves at once can say how long it was here.
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
                    "neighbour {name}: a message on {:?} is dropped: with {long} octets it is longer \
                     than the {most} that {name} takes; give both the same limits.packet",
                    message.topic
                )
            });
            return self.site.node.confirmed(link, key, attempt, true); // it never gets there
        }
        wires.sent += 1;
        self.send(token, &out);
        if how.stated.is_some() {
            self.flush_one(token);
        }
    }
}

fn taken_apart(say: Say) -> (Link, bool, Arc<str>) {
    match say {
        Say::Subscribe(link, filter) => (link, true, filter),
        Say::Unsubscribe(link, filter) => (link, false, filter),
    }
}
