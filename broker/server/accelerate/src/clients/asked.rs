//! The messages of MQTT-SN clients.

use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_sn::{Code, Filter, Message, Qos};

use super::{Clients, Dirty};
use crate::clock::SECOND_NS;
use crate::plane::{Key, Topic};
use crate::session::{Connect, MOST_NAMES, Named, Request, Session, State, Subscription};

impl Clients {
    /// Process a message of a client.
    pub fn asked(&mut self, now_ns: u64, client: SocketAddr, message: &Message<'_>) {
        match message {
            Message::Connect {
                clean,
                duration_s,
                client: id,
                ..
            } => {
                let connect = Connect {
                    id: Rc::from(*id),
                    clean: *clean,
                    keep_alive_ns: u64::from(*duration_s) * SECOND_NS,
                };
                self.connect(now_ns, client, connect);
            }
            Message::Publish { qos, topic, .. } => {
                self.published(now_ns, client, *qos, (*topic).into())
            }
            Message::Subscribe {
                message_id,
                filter,
                qos,
                ..
            } => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.other_qos |= *qos != Qos::AtMostOnce;
                }
                let request = Request::Subscribe(self.subscription(filter));
                self.request(now_ns, client, *message_id, request);
            }
            Message::Unsubscribe { message_id, filter } => {
                let request = Request::Unsubscribe(self.subscription(filter));
                self.request(now_ns, client, *message_id, request);
            }
            Message::Register {
                message_id, name, ..
            } => {
                let request = Request::Register(Rc::from(*name));
                self.request(now_ns, client, *message_id, request);
            }
            Message::Regack {
                topic_id,
                message_id,
                code,
            } => self.agreed(client, *topic_id, *message_id, *code),
            Message::Pingreq { client: id } => self.pings(now_ns, client, id),
            Message::Disconnect { duration_s } => self.disconnect(client, *duration_s),
            _ => {}
        }
    }

    fn connect(&mut self, now_ns: u64, client: SocketAddr, connect: Connect) {
        self.doubt_elsewhere(client, &connect.id);
        if !self.sessions.contains_key(&client) {
            if self.sessions.len() >= self.settings.clients {
                return;
            }
            let session = Session::new(connect.clone(), now_ns);
            self.sessions.insert(client, session);
        }
        if let Some(session) = self.sessions.get_mut(&client) {
            session.connects(now_ns, connect);
        }
        self.touch(client);
    }

    /// A client uses an identifier that may belong to a client at another address: the broker has
    /// to confirm that it still serves the other one.
    fn doubt_elsewhere(&mut self, client: SocketAddr, id: &str) {
        if let Some(&before) = self.addresses.get(id)
            && before != client
            && let Some(session) = self.sessions.get_mut(&before)
        {
            session.changed();
            self.touch(before);
        }
    }

    fn pings(&mut self, now_ns: u64, client: SocketAddr, id: &str) {
        let Some(session) = self.sessions.get_mut(&client) else {
            // A sleeping client may ask from another address: the broker may accept the new one.
            return self.doubt_elsewhere(client, id);
        };
        session.pings.sent(now_ns);
        if id.is_empty() {
            return;
        }
        if *session.as_said.id == *id {
            // Only a sleeping client has to state its identifier.
            if session.state == State::Active {
                session.state = State::Away {
                    leaving: false,
                    open: 0,
                };
            }
            self.touch(client);
        } else {
            self.doubt_elsewhere(client, id);
            self.loses_track(now_ns, client);
        }
    }

    fn subscription(&self, filter: &Filter<'_>) -> Subscription {
        match filter {
            Filter::Name(name) => Subscription {
                filter: Some(Rc::from(*name)),
                named: Named::Name,
            },
            Filter::Predefined(id) => Subscription {
                filter: self.settings.predefined.get(id).cloned(),
                named: Named::Predefined(*id),
            },
            // Octets that are not UTF-8 cannot match a valid name.
            Filter::Short(name) => Subscription {
                filter: Some(Rc::from(String::from_utf8_lossy(name))),
                named: Named::Short,
            },
        }
    }

    fn request(&mut self, now_ns: u64, client: SocketAddr, message_id: u16, request: Request) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let changed = request.change().cloned();
        if !session.ask(message_id, request) {
            return self.loses_track(now_ns, client);
        }
        if let Some(subscription) = &changed {
            self.list(client, subscription);
        }
        self.touch_filters(&changed);
    }

    /// REGACK: a client answers the broker's REGISTER.
    fn agreed(&mut self, client: SocketAddr, topic_id: u16, message_id: u16, code: Code) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let asked = (topic_id, message_id);
        let mut all = session.proposed.iter();
        let Some((name, _)) = all.find(|(_, one)| **one == asked) else {
            return;
        };
        let name = Rc::clone(name);
        session.proposed.remove(&name);
        if code == Code::ACCEPTED {
            session.proven = true;
            session.told.remove(&name);
            session.tell(topic_id, &name);
        } else {
            session.told.insert(name, None);
        }
        session.changed();
        self.touch(client);
    }

    fn disconnect(&mut self, client: SocketAddr, duration_s: Option<u16>) {
        let duration_s = duration_s.filter(|duration_s| *duration_s > 0);
        let leaving = duration_s.is_none();
        if let Some(stranger) = self.strangers.get_mut(&client) {
            stranger.leaving = leaving;
        }
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let open = match session.state {
            State::Away { open, .. } => open,
            _ => 0,
        };
        let open = open.saturating_add(1);
        session.state = State::Away { leaving, open };
        if let Some(duration_s) = duration_s {
            let duration_ns = u64::from(duration_s) * SECOND_NS;
            session.keep_alive_ns = session.keep_alive_ns.max(duration_ns);
        }
        self.touch(client);
    }

    fn published(&mut self, now_ns: u64, client: SocketAddr, qos: Qos, topic: Topic) {
        if qos == Qos::Unconnected {
            return;
        }
        if !self.sessions.contains_key(&client) {
            if !self.settled {
                self.estrange(now_ns, client);
            }
            return;
        }
        self.follow(client, topic);
        if qos != Qos::AtMostOnce
            && let Some(session) = self.sessions.get_mut(&client)
            && let Some(other_ns) = session.publishes.get_mut(&topic)
        {
            *other_ns = Some(now_ns);
            let publisher = client;
            self.dirty.push(Dirty::Key(Key { publisher, topic }));
        }
    }

    /// A client publishes to a topic, or has registered it in order to.
    pub(super) fn follow(&mut self, client: SocketAddr, topic: Topic) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        if session.publishes.contains_key(&topic) {
            return;
        }
        let is_unnamed =
            matches!(topic, Topic::Predefined(id) if !self.settings.predefined.contains_key(&id));
        if is_unnamed && !std::mem::replace(&mut session.unnamed, true) {
            self.dirty.push(Dirty::Publisher(client));
        }
        if self.followed >= self.settings.topics || session.publishes.len() >= MOST_NAMES {
            self.not_followed += 1;
            return;
        }
        session.publishes.insert(topic, None);
        self.followed += 1;
        let publisher = client;
        self.dirty.push(Dirty::Key(Key { publisher, topic }));
    }
}
