//! The messages of an MQTT-SN broker.

use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_sn::{Code, Message, Qos};
use mqtick_topics::has_wildcards;

use super::{Clients, Dirty, Who};
use crate::plane::Topic;
use crate::session::{MOST_NAMES, Named, Request, Session, State, Subscription};

impl Clients {
    /// Process a message of the broker, other than PINGRESP.
    pub fn answered(&mut self, now_ns: u64, client: SocketAddr, message: &Message<'_>) {
        let is_known = self.sessions.contains_key(&client);
        match message {
            Message::Connack(code) => self.connected(now_ns, client, *code),
            Message::Disconnect { .. } => self.dismissed(now_ns, client),
            Message::Advertise { .. } | Message::GatewayInfo { .. } => {}
            Message::WillTopicRequest | Message::WillMessageRequest => {}
            Message::Suback { code, .. }
            | Message::Regack { code, .. }
            | Message::Puback { code, .. }
                if *code != Code::ACCEPTED && !is_known => {}
            _ if !is_known => self.estrange(now_ns, client),
            Message::Suback {
                qos,
                topic_id,
                message_id,
                code,
            } => self.subscribed(now_ns, client, *qos, *topic_id, *message_id, *code),
            Message::Unsuback(message_id) => self.unsubscribed(now_ns, client, *message_id),
            Message::Register {
                topic_id,
                message_id,
                name,
            } => self.proposed(client, *topic_id, *message_id, name),
            Message::Regack {
                topic_id,
                message_id,
                code,
            } => self.registered(now_ns, client, *topic_id, *message_id, *code),
            Message::Puback { code, .. } if *code != Code::ACCEPTED => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.refused = true;
                    self.dirty.push(Dirty::Publisher(client));
                }
            }
            _ => {}
        }
    }

    fn connected(&mut self, now_ns: u64, client: SocketAddr, code: Code) {
        let is_accepted = code == Code::ACCEPTED;
        let Some(session) = self.sessions.get_mut(&client) else {
            if is_accepted {
                self.estrange(now_ns, client);
            }
            return;
        };
        let Some((new, count, is_same)) = session.connecting.clone() else {
            if !session.accepted_again() || !is_accepted {
                self.estrange(now_ns, client);
            }
            return;
        };
        if !is_accepted && session.state == State::New {
            // The broker still does not know this client.
            self.remove(client);
            return;
        }
        if !is_accepted || !is_same {
            // It is not known whether the broker keeps the last session.
            return self.estrange(now_ns, client);
        }
        let elsewhere = self.addresses.get(&new.id).copied();
        let was_stranger = match self.stranger_ids.get(&new.id) {
            Some(&there) => self.forget_stranger(there),
            None => false,
        } | self.forget_stranger(client);
        let mut before = self.kept.remove(&new.id);
        let there = elsewhere.filter(|there| *there != client);
        if let Some(session) = there.and_then(|there| self.remove(there)) {
            before
                .get_or_insert_default()
                .extend(session.filters().cloned());
        }
        if let Some(filters) = &before {
            self.touch_filters(filters);
        }
        let Some(old) = self.remove(client) else {
            return;
        };
        let mut session = old.accepted(now_ns, new.clone(), count);
        let who = [Who::At(client), Who::Named(Rc::clone(&new.id))];
        session.before_ns = who
            .iter()
            .filter_map(|who| self.others.get(who).copied())
            .max();
        if old.state != State::New {
            if old.as_said.id == new.id {
                before
                    .get_or_insert_default()
                    .extend(old.filters().cloned());
            } else {
                self.keep(now_ns, client, old);
            }
        }
        if !new.clean {
            // Brokers differ in what they resume: assume all subscriptions that may exist.
            let known = before.or(self.kept_known.then(Vec::new));
            match known.filter(|_| !was_stranger) {
                Some(filters) => session.subscriptions = filters,
                None => return self.add_stranger(now_ns, client, Some(new.id)),
            }
        }
        let filters: Vec<Subscription> = session.filters().cloned().collect();
        filters.iter().for_each(|one| self.list(client, one));
        self.addresses.insert(new.id, client);
        self.sessions.insert(client, session);
        self.touch(client);
    }

    fn dismissed(&mut self, now_ns: u64, client: SocketAddr) {
        // Only a stranger that has sent a final DISCONNECT is gone; a sleeping one still has a
        // session.
        if self.strangers.get(&client).is_some_and(|one| one.leaving) {
            self.forget_stranger(client);
        }
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        if session.waits() {
            return; // it answers a message that preceded the CONNECT
        }
        match &mut session.state {
            State::New => return,
            State::Away { leaving, open } if *open > 0 => {
                *open -= 1;
                if *leaving && *open == 0 {
                    self.end(now_ns, client);
                }
                return;
            }
            State::Away { .. } => {}
            State::Active => {
                let is_expected = session.is_overdue(now_ns) || session.returned;
                self.end(now_ns, client);
                if is_expected {
                    return;
                }
            }
        }
        // The broker may have been restarted: then it knows no client. The others will show it.
        self.restarts += 1;
        self.sessions.values_mut().for_each(Session::changed);
        self.dirty.push(Dirty::All);
    }

    fn subscribed(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        qos: Qos,
        topic_id: u16,
        message_id: u16,
        code: Code,
    ) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_kind = |request: &Request| matches!(request, Request::Subscribe(_));
        let asked = match session.answer(message_id, is_kind) {
            Ok(request) => request.change().cloned(),
            Err(true) => return,
            Err(false) => None,
        };
        let subscription = match asked {
            Some(subscription) => subscription,
            None if code != Code::ACCEPTED => return,
            None => return self.estrange(now_ns, client),
        };
        if code != Code::ACCEPTED {
            self.unlist_unused(client, &subscription);
            return self.touch_filters([&subscription]);
        }
        session.other_qos |= qos != Qos::AtMostOnce;
        if !session.subscriptions.contains(&subscription) {
            if session.subscriptions.len() >= MOST_NAMES {
                return self.estrange(now_ns, client);
            }
            session.subscriptions.push(subscription.clone());
        }
        if let (Some(name), Named::Name) = (&subscription.filter, subscription.named)
            && topic_id != 0
            && !has_wildcards(name)
        {
            session.tell(topic_id, name);
        }
        // The broker may send retained messages now.
        session.changed();
        self.touch(client);
    }

    fn unsubscribed(&mut self, now_ns: u64, client: SocketAddr, message_id: u16) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_kind = |request: &Request| matches!(request, Request::Unsubscribe(_));
        match session.answer(message_id, is_kind) {
            Ok(Request::Unsubscribe(subscription)) => {
                session.subscriptions.retain(|one| *one != subscription);
                // The broker may take subscriptions that name a filter in two ways for one.
                let mut rest = session.subscriptions.iter();
                session.unclear |= rest.any(|one| one.filter == subscription.filter);
                self.unlist_unused(client, &subscription);
                self.touch_filters([&subscription]);
            }
            Ok(_) | Err(true) => {}
            Err(false) => self.estrange(now_ns, client),
        }
    }

    /// REGISTER: the broker tells a subscriber the id of a topic name.
    fn proposed(&mut self, client: SocketAddr, topic_id: u16, message_id: u16, name: &str) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        if session.proposed.len() >= MOST_NAMES {
            session.unclear = true;
        } else {
            let name: Rc<str> = Rc::from(name);
            session.proposed.insert(name, (topic_id, message_id));
        }
        session.changed();
        self.touch(client);
    }

    /// REGACK: the broker tells a publisher the id that it asked for.
    fn registered(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        topic_id: u16,
        message_id: u16,
        code: Code,
    ) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_kind = |request: &Request| matches!(request, Request::Register(_));
        match session.answer(message_id, is_kind) {
            Ok(Request::Register(name)) if code == Code::ACCEPTED => {
                session.tell(topic_id, &name);
                self.follow(client, Topic::Registered(topic_id));
                self.touch(client);
            }
            Err(false) if code == Code::ACCEPTED => self.estrange(now_ns, client),
            _ => {}
        }
    }
}
