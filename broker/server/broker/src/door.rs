//! mqtt-udp: the door, with which the first worker serves datagrams. They have to be served in the
//! order in which they come, so one worker does it.

use crate::batch::Peer;
use crate::message::Message;
use crate::offload::{Called, Key};
use crate::receiver::{LOWEST_PORT, MOST_STEPS, Serve};
use crate::router::{Place, Router, Served};
use crate::session::{Session, Subscription};
use crate::settings::Udp;
use crate::shared::Shared;
use crate::udp::DatagramSocket;
use mqtick_access::Action;
use mqtick_packet::Qos;
use mqtick_udp::{Engine, Publication, Published, Server, Settings, Subnet};
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

/// Serves the datagrams of mqtt-udp.
pub struct Door {
    socket: Arc<DatagramSocket>,
    server: Server<Arc<Session>>,
    /// Steps of searches for retained messages in the present second.
    looked: usize,
    /// When the first lease ends, as `mqtick-accelerate` was told.
    lease_end_ns: Option<u64>,
}

impl Door {
    /// A door without subscribers; none if mqtt-udp is off.
    pub fn new(shared: &Shared) -> Option<Self> {
        let socket = Arc::clone(shared.datagrams.as_ref()?);
        let rate = shared.settings.limits.publishes_a_second_a_client;
        Some(Self {
            server: Server::new(settings(&shared.settings.udp, rate, socket.secret)),
            socket,
            looked: 0,
            lease_end_ns: None,
        })
    }

    /// Once a second: end leases.
    pub fn tick(&mut self, router: &mut Router) {
        let now_ns = self.socket.now_ns();
        self.socket.tick();
        self.looked = 0;
        self.with_adapter(router, false, |server, adapter| {
            server.end_leases(now_ns, adapter)
        });
        self.note_ends(router);
        self.socket.count(self.server.counters());
    }

    /// Tell `mqtick-accelerate` when the first lease ends: it does not know of leases.
    fn note_ends(&mut self, router: &Router) {
        let end_ns = self.server.next_end_ns();
        if end_ns != self.lease_end_ns {
            self.lease_end_ns = end_ns;
            let now_ns = self.socket.now_ns();
            let left_ns = end_ns.map(|end_ns| end_ns.saturating_sub(now_ns));
            router.shared.offload.lease_ends(left_ns);
        }
    }

    /// Forget all subscribers. They find out by an unanswered PINGREQ.
    pub fn forget_all(&mut self, router: &mut Router) {
        self.with_adapter(router, false, |server, adapter| server.clear(adapter));
    }

    /// The counters, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.server.counters()
    }

    fn with_adapter(
        &mut self,
        router: &mut Router,
        alone: bool,
        what: impl FnOnce(&mut Server<Arc<Session>>, &mut EngineAdapter),
    ) {
        let mut adapter = EngineAdapter {
            router,
            alone,
            looked: &mut self.looked,
        };
        what(&mut self.server, &mut adapter);
    }
}

impl Serve for Door {
    fn datagram(&mut self, router: &mut Router, alone: bool, from: SocketAddr, octets: &[u8]) {
        let SocketAddr::V4(from) = from else {
            return; // the socket is of IPv4
        };
        let now_ns = self.socket.now_ns();
        self.with_adapter(router, alone, |server, adapter| {
            server.datagram(now_ns, from, octets, adapter);
        });
    }

    fn go_on(&mut self, router: &mut Router) {
        self.note_ends(router);
    }
}

/// How the server of mqtt-udp reaches the rest of the broker.
struct EngineAdapter<'a> {
    router: &'a mut Router,
    alone: bool,
    looked: &'a mut usize,
}

impl EngineAdapter<'_> {
    fn may(&self, action: Action, topic: &str) -> bool {
        let access = self.router.shared.access.load();
        access.rules.may(None, NOBODY, action, topic)
    }

    fn offer(&mut self, key: Key, topic: &str) {
        let (from, called) = (key.publisher, key.topic.clone());
        let place = |session: &Session| match &session.peer {
            None => Place::Others,
            // A subscriber that sends back what it gets must not loop without us: see
            // `Server::test`.
            Some(peer) if peer.address == from => Place::Watched(from, called.clone()),
            Some(peer) => Place::At(peer.address, called.clone()),
        };
        self.router.offer(key, NO_SESSION, topic, UNUSED_S, place);
    }
}

fn key(from: SocketAddrV4, topic: &str) -> Key {
    Key {
        publisher: from.into(),
        topic: Called::Name(topic.into()),
    }
}

/// Stands for the client's identifier in access lists. No pattern matches it, because of the `/`.
const NOBODY: &str = "udp/";
/// Publishers have no session.
const NO_SESSION: u64 = 0;
const UNUSED_S: u16 = 60; // until a rule ends whose publisher is silent

impl Engine for EngineAdapter<'_> {
    type Subscriber = Arc<Session>;

    fn send(&mut self, to: SocketAddrV4, datagram: &[u8]) {
        if self.router.context.batch.is_full() {
            self.router.send_batch();
        }
        self.router.context.batch.answer(to.into(), datagram);
    }

    fn begin(&mut self, who: SocketAddrV4, end_ns: u64) -> Arc<Session> {
        let peer = Peer::new(who.into(), end_ns);
        self.router.shared.new_peer(NOBODY, Arc::new(peer))
    }

    fn renew(&mut self, who: &Arc<Session>, end_ns: u64) {
        if let Some(peer) = &who.peer {
            peer.set_end(end_ns);
        }
    }

    fn end(&mut self, who: Arc<Session>, filters: HashSet<Box<str>>) {
        self.renew(&who, 0);
        if let Some(peer) = &who.peer {
            // Rules for its messages end, too.
            drop(self.router.shared.offload.close_publisher(peer.address));
        }
        if !filters.is_empty() {
            let ended = filters.iter().map(|filter| &**filter);
            self.router.shared.change(ended, |tree| {
                for filter in &filters {
                    tree.unsubscribe(filter, &who.number);
                }
            });
        }
    }

    fn may_subscribe(&self, filter: &str) -> bool {
        self.may(Action::Subscribe, filter)
    }

    fn subscribe(&mut self, who: &Arc<Session>, filters: &[&str]) {
        let subscription = || Subscription {
            session: Arc::clone(who),
            qos: Qos::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            identifier: 0,
        };
        self.router.shared.change(filters.iter().copied(), |tree| {
            for filter in filters {
                tree.subscribe(filter, who.number, subscription());
            }
        });
    }

    fn unsubscribe(&mut self, who: &Arc<Session>, filters: &[&str]) {
        self.router.shared.change(filters.iter().copied(), |tree| {
            for filter in filters {
                tree.unsubscribe(filter, &who.number);
            }
        });
    }

    fn publish(&mut self, publication: &Publication<'_>) -> Published {
        let Publication {
            from,
            topic,
            payload,
            retain,
            marked,
        } = *publication;
        if !self.may(Action::Write, topic) {
            return Published::NotAllowed;
        }
        self.router.received += 1;
        let shared = &self.router.shared;
        shared.note_urgent();
        let is_full = shared.journal().is_some_and(|journal| journal.is_full());
        let kept = !retain || (!is_full && shared.has_room_for(topic, payload));
        let message = Message {
            whole: None,
            topic,
            payload,
            qos: Qos::AtMostOnce,
            retain: retain && kept,
            forwarded: &[],
            expires_s: None,
        };
        if marked {
            self.router.served = Served::Peers;
        }
        self.router.publish(None, &message, self.alone);
        self.router.served = Served::Nobody;
        if self.router.shared.settings.delivery.accelerate.is_some() {
            let key = key(from, topic);
            match retain {
                false => self.offer(key, topic),
                true => self.router.shared.offload.take_back(&key),
            }
        }
        if kept {
            Published::Sent
        } else {
            Published::NotKept
        }
    }

    fn believes(&self, from: SocketAddrV4, topic: &str) -> bool {
        let offload = &self.router.shared.offload;
        offload.believes(&key(from, topic), NO_SESSION)
    }

    fn say_served(&mut self, octets: &[u8]) -> bool {
        let question = self.router.shared.offload.question(octets);
        if let Some(number) = question {
            self.router.flush(); // copies leave first
            self.router.shared.offload.say_served(number);
        }
        question.is_some()
    }

    fn retained(
        &mut self,
        who: &Arc<Session>,
        filter: &str,
        most: usize,
        packet: fn(&str, &[u8]) -> Option<Vec<u8>>,
    ) -> usize {
        let Some(peer) = &who.peer else { return 0 };
        let steps = MOST_STEPS.saturating_sub(*self.looked);
        if steps == 0 {
            return 0;
        }
        self.router.send_batch();
        let now_s = self.router.context.now_s;
        let shared = Arc::clone(&self.router.shared);
        let (kept, steps) = shared.retained_first(filter, most, steps, |message| {
            message.expires_s.is_none_or(|expires_s| expires_s > now_s)
                && self.may(Action::Read, message.topic)
        });
        *self.looked += steps;
        for kept in &kept {
            let message = kept.message();
            let Some(packet) = packet(message.topic, message.payload) else {
                continue;
            };
            // It leaves before any worker can send a newer one.
            shared.if_retained(kept, || {
                self.router.context.batch.copy(peer, &packet, None);
                self.router.send_batch();
            });
        }
        kept.len()
    }
}

fn settings(udp: &Udp, publishes_a_second: u32, secret: [u8; 16]) -> Settings {
    let subnet = |one: &crate::settings::Subnet| match one.first {
        IpAddr::V4(first) => Some(Subnet {
            first,
            bits: one.bits,
        }),
        IpAddr::V6(_) => None,
    };
    let subnets: Vec<_> = udp.subnets.iter().filter_map(subnet).collect();
    let is_local = |one: &Subnet| one.first.is_loopback();
    Settings {
        secret,
        loopback: subnets.iter().any(is_local),
        publishers: subnets.clone(),
        subscribers: subnets,
        lowest_port: LOWEST_PORT,
        own_port: udp.address.map_or(0, |address| address.port()),
        publishes_a_second,
        ..Settings::default()
    }
}
