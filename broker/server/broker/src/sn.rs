//! MQTT-SN: the door, with which the first worker serves the datagrams of its one socket.

mod adapter;

use crate::journal::Span;
use crate::message::Kept;
use crate::receiver::{LOWEST_PORT, Serve};
use crate::router::Router;
use crate::sensor::{SECOND_NS, of_qos};
use crate::session::Session;
use crate::settings::Sn;
use crate::shared::Shared;
use crate::udp::{DatagramSocket, ROOM};
use crate::upstream::{Done, Upstream};
use adapter::EngineAdapter;
use mqtick_sn::{Answer, Code, Gateway, Settings};
use nix::sys::epoll::EpollFlags;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

struct Held {
    span: Span,
    answer: Answer,
}

/// Serves the datagrams of MQTT-SN.
pub struct Door {
    socket: Arc<DatagramSocket>,
    gateway: Gateway<Kept, Arc<Session>>,
    settings: Sn,
    looked: usize, // steps of searches for retained messages in the present second
    held: VecDeque<Held>, // answers that wait until the disk has what they acknowledge
    refused: [u64; REFUSED.len()],
    advertised_s: u64,
    upstream: Option<Upstream>,
}

/// Why datagrams are refused before they are read.
const REFUSED: [&str; 3] = ["oversized", "source", "subnet"];
/// The name of the number of clients.
pub const CLIENTS: &str = "clients";

/// The names of the counters, in the order of [`Door::counters`].
pub fn names() -> impl Iterator<Item = &'static str> {
    let names = REFUSED.into_iter().chain(mqtick_sn::NAMES);
    names.chain([CLIENTS])
}

impl Door {
    /// A door without clients; none if MQTT-SN is off.
    pub fn new(shared: &Arc<Shared>, worker: usize) -> Option<Self> {
        let socket = Arc::clone(shared.sensors.as_ref()?);
        let sn = shared.settings.sn.clone();
        let limits = &shared.settings.limits;
        if sn.advertise_to.is_some() {
            socket.allow_broadcast();
        }
        let settings = Settings {
            gateway: sn.gateway,
            predefined: sn.predefined(),
            clients: sn.clients,
            prove: sn.proof,
            subscriptions: limits.subscriptions_a_client.min(256),
            messages: limits.queue_messages,
            octets: limits.queue,
            publishes_a_second: limits.publishes_a_second_a_client,
            expiry_s: limits.session_expiry_s,
            fixed_wills: shared.settings.upstream.is_transparent(),
            ..Settings::default()
        };
        Some(Self {
            socket,
            gateway: Gateway::new(settings),
            settings: sn,
            looked: 0,
            held: VecDeque::new(),
            refused: [0; REFUSED.len()],
            advertised_s: 0,
            upstream: Upstream::new(shared, worker),
        })
    }

    /// Why a datagram is refused, if it is: an index into `REFUSED`.
    fn refusal(&self, from: SocketAddr, octets: &[u8]) -> Option<usize> {
        let ip = from.ip();
        let own = self.settings.address.map_or(0, |address| address.port());
        let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        let is_sender = !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast;
        if octets.len() >= ROOM {
            return Some(0);
        }
        if from.port() < LOWEST_PORT || from.port() == own || !is_sender {
            return Some(1);
        }
        let may = self.settings.subnets.iter().any(|one| one.contains(ip));
        (!may).then_some(2)
    }

    /// Send the answers whose messages are on disk now.
    pub fn settle(&mut self, router: &mut Router) {
        let Some(journal) = router.context.journal.clone() else {
            return;
        };
        while let Some(held) = self.held.front() {
            let last = held.span.last;
            if last > journal.answered() {
                journal.wake(router.worker);
                if last > journal.answered() {
                    break; // the store's next answer wakes this worker
                }
            }
            let Some(Held { span, answer }) = self.held.pop_front() else {
                break;
            };
            if !journal.is_refused(span) {
                router.context.sensors.batch.answer(answer.to, &answer.good);
                continue;
            }
            router.context.sensors.batch.answer(answer.to, &answer.bad);
            self.gateway.refused(&answer);
        }
        router.send_batch();
    }

    /// Once a second: repeat what was not answered, and end clients that are gone.
    pub fn tick(&mut self, router: &mut Router) {
        let now_s = router.context.now_s;
        self.socket.tick();
        self.looked = 0;
        self.with_adapter(router, false, |gateway, adapter, now_ns| {
            gateway.tick(now_ns, adapter)
        });
        if let Some(upstream) = &mut self.upstream {
            upstream.tick();
        }
        self.go_on(router);
        router.context.dropped += self.gateway.take_dropped();
        self.socket.count(self.counters());
        let Sn {
            advertise_to,
            advertise_s,
            ..
        } = self.settings;
        if let Some(to) = advertise_to
            && now_s >= self.advertised_s + u64::from(advertise_s)
        {
            self.advertised_s = now_s;
            let datagram = self.gateway.advertisement(advertise_s);
            router.context.sensors.batch.answer(to, &datagram);
        }
    }

    /// Forget all clients. They are told so when they send something.
    pub fn forget_all(&mut self, router: &mut Router) {
        self.with_adapter(router, false, |gateway, adapter, _| gateway.clear(adapter));
        if let Some(upstream) = &mut self.upstream {
            upstream.reset();
        }
    }

    /// The poller has events for a connection to the upstream.
    pub fn upstream_ready(&mut self, router: &mut Router, token: u64, flags: EpollFlags) {
        router.came = None;
        if let Some(upstream) = &mut self.upstream {
            upstream.ready(token, flags);
        }
        self.go_on(router);
    }

    /// The upstream's name was looked up.
    pub fn found(&mut self, router: &mut Router, places: Result<Vec<SocketAddr>, String>) {
        if let Some(upstream) = &mut self.upstream {
            upstream.found(places);
        }
        self.go_on(router);
    }

    /// Disconnect from the upstream.
    pub fn stop(&mut self) {
        if let Some(upstream) = &mut self.upstream {
            upstream.stop();
        }
    }

    /// The counters, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let clients = (CLIENTS, self.gateway.sizes().0 as u64);
        let refused = REFUSED.into_iter().zip(self.refused);
        refused.chain(self.gateway.counters()).chain([clients])
    }

    fn with_adapter(
        &mut self,
        router: &mut Router,
        alone: bool,
        what: impl FnOnce(&mut Gateway<Kept, Arc<Session>>, &mut EngineAdapter, u64),
    ) {
        let now_ns = router.context.now_s * SECOND_NS;
        let mut adapter = EngineAdapter {
            router,
            alone,
            looked: &mut self.looked,
            held: &mut self.held,
            upstream: self.upstream.as_mut(),
        };
        what(&mut self.gateway, &mut adapter, now_ns);
    }
}

impl Serve for Door {
    fn datagram(&mut self, router: &mut Router, alone: bool, from: SocketAddr, octets: &[u8]) {
        let refusal = self.refusal(from, octets);
        if let Some(count) = refusal.and_then(|at| self.refused.get_mut(at)) {
            *count += 1;
            return;
        }
        self.with_adapter(router, alone, |gateway, adapter, now_ns| {
            gateway.datagram(now_ns, from, octets, adapter);
        });
    }

    /// Pass on what the upstream has done to sensors, and what they have done to the upstream.
    fn go_on(&mut self, router: &mut Router) {
        while let Some(upstream) = &mut self.upstream {
            let Some(done) = upstream.next() else {
                upstream.flush();
                if upstream.is_done() {
                    break;
                }
                continue;
            };
            match done {
                Done::Message(token, message, ids) => {
                    upstream.deliver(router, token, &message, &ids);
                }
                Done::Answered(answer, code) => {
                    let told = answer.told(code);
                    router.context.sensors.batch.answer(answer.to, &told);
                    if code != Code::ACCEPTED {
                        self.gateway.refused(&answer);
                    }
                }
                Done::Subscribed(who, filter, id, answer) => {
                    let answer = answer.map(of_qos);
                    if !upstream.is_subscribed(&who, &filter) {
                        who.lock().remove_filter(&filter);
                    }
                    self.with_adapter(router, false, |gateway, adapter, now_ns| {
                        gateway.subscribed(now_ns, &who.client, &filter, id, answer, adapter);
                    });
                }
                Done::Admitted(client, code) => {
                    self.with_adapter(router, false, |gateway, adapter, now_ns| {
                        gateway.admitted(now_ns, &client, code, adapter);
                    });
                }
                Done::Lost(client) => {
                    self.with_adapter(router, false, |gateway, adapter, _| {
                        gateway.dismiss(&client, adapter);
                    });
                }
            }
        }
        router.send_batch();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use mqtick_sn::Engine;

    #[test]
    fn an_answer_is_held_for_one_message_of_one_client() {
        let own = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = Arc::new(DatagramSocket::open(own, names()).unwrap());
        let settings = crate::settings::Settings {
            threads: 1,
            ..Default::default()
        };
        let shared = Shared::alone(settings, Some(socket));
        let mut door = Door::new(&shared, 0).unwrap();
        door.held.push_back(Held {
            span: Span { first: 1, last: 1 },
            answer: Answer {
                to: "127.0.0.1:5000".parse().unwrap(),
                good: Vec::new(),
                bad: Vec::new(),
                client: "one".into(),
                message_id: 5,
                is_once: true,
            },
        });
        let mut router = Router::new(&shared, 0);
        door.with_adapter(&mut router, false, |_, adapter, _| {
            assert!(adapter.is_held("one", 5));
            assert!(!adapter.is_held("one", 6) && !adapter.is_held("other", 5));
        });
    }
}
