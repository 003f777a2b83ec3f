//! A simple model of a store's contents, in memory.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use mqtick_store::{Change, Kept, Message, Refused, Session, Store, Will};

/// The topic of the retained message that counts submissions.
const COUNT: &str = "count";

/// A temporary folder.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mqtick-store-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("store.redb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn open(directory: &Path) -> (Store, Kept) {
    Store::open(directory, |_| {}).unwrap()
}

/// Submit and wait for the answer.
pub fn kept(store: &Store, changes: Vec<Change>) -> Result<(), Refused> {
    let (sender, receiver) = mpsc::channel();
    store.submit(
        changes,
        Some(Box::new(move |result| sender.send(result).unwrap())),
    );
    receiver.recv().unwrap()
}

/// A queued message.
#[derive(Clone, Debug, PartialEq)]
pub struct Queued {
    pub message: u64,
    pub body: Arc<Message>,
    pub qos: u8,
    pub retain: bool,
    pub ids: Vec<u32>,
    pub in_flight: Option<(u16, u8)>,
}

/// A session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    pub session: Session,
    pub queue: BTreeMap<u64, Queued>,
    pub received: BTreeSet<u16>,
}

/// The contents of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    pub clients: BTreeMap<String, Client>,
    /// The subscriptions, in the order in which they began.
    pub subscriptions: Vec<(String, String, u8, u32)>,
    pub retained: BTreeMap<String, Arc<Message>>,
}

impl From<&Kept> for State {
    fn from(kept: &Kept) -> Self {
        let mut state = Self::default();
        let mut subscriptions = BTreeMap::new();
        for one in &kept.sessions {
            let queue = one.queue.iter().map(|entry| {
                let queued = Queued {
                    message: entry.message,
                    body: entry.body.clone(),
                    qos: entry.qos,
                    retain: entry.retain,
                    ids: entry.subscription_ids.to_vec(),
                    in_flight: entry.in_flight,
                };
                assert!(entry.message < kept.next_message);
                (entry.place, queued)
            });
            let client = Client {
                session: one.session.clone(),
                queue: queue.collect(),
                received: one.received.iter().copied().collect(),
            };
            assert!(one.queue.is_sorted_by_key(|entry| entry.place));
            assert!(one.subscriptions.is_sorted_by_key(|one| one.order));
            let name = one.client.to_string();
            for sub in &one.subscriptions {
                let row = (
                    name.clone(),
                    sub.filter.to_string(),
                    sub.options,
                    sub.identifier,
                );
                assert!(subscriptions.insert(sub.order, row).is_none());
            }
            assert!(state.clients.insert(name, client).is_none());
        }
        state.subscriptions = subscriptions.into_values().collect();
        let retained = kept.retained.iter();
        state.retained = retained
            .map(|(topic, message)| (topic.to_string(), message.clone()))
            .collect();
        state
    }
}

impl State {
    /// The number of submissions of a [`Story`] that took effect.
    pub fn count(&self) -> u64 {
        match self.retained.get(COUNT) {
            Some(message) => u64::from_le_bytes(message.payload[..].try_into().unwrap()),
            None => 0,
        }
    }

    fn apply(&mut self, bodies: &mut BTreeMap<u64, Arc<Message>>, change: &Change) {
        match change.clone() {
            Change::Session { client, session } => {
                self.clients.entry(client.to_string()).or_default().session = session;
            }
            Change::SessionGone { client } => {
                self.clients.remove(&*client);
                self.subscriptions.retain(|one| *one.0 != *client);
            }
            Change::Subscribe {
                client,
                filter,
                options,
                identifier,
            } => {
                let row = (client.to_string(), filter.to_string(), options, identifier);
                let mut old = self.subscriptions.iter_mut();
                match old.find(|one| one.0 == row.0 && one.1 == row.1) {
                    Some(old) => *old = row,
                    None => self.subscriptions.push(row),
                }
            }
            Change::Unsubscribe { client, filter } => {
                self.subscriptions
                    .retain(|one| *one.0 != *client || *one.1 != *filter);
            }
            Change::Message { message, body } => {
                bodies.insert(message, body);
            }
            Change::Queue {
                client,
                place,
                message,
                qos,
                retain,
                subscription_ids,
            } => {
                let queued = Queued {
                    message,
                    body: bodies[&message].clone(),
                    qos,
                    retain,
                    ids: subscription_ids.to_vec(),
                    in_flight: None,
                };
                self.clients
                    .get_mut(&*client)
                    .unwrap()
                    .queue
                    .insert(place, queued);
            }
            Change::InFlight {
                client,
                place,
                id,
                state,
            } => {
                let queue = &mut self.clients.get_mut(&*client).unwrap().queue;
                queue.get_mut(&place).unwrap().in_flight = Some((id, state));
            }
            Change::Done { client, place } => {
                self.clients.get_mut(&*client).unwrap().queue.remove(&place);
            }
            Change::Received { client, id } => {
                self.clients.get_mut(&*client).unwrap().received.insert(id);
            }
            Change::Released { client, id } => {
                self.clients.get_mut(&*client).unwrap().received.remove(&id);
            }
            Change::Retain {
                topic,
                message: Some(message),
            } => {
                self.retained.insert(topic.to_string(), message);
            }
            Change::Retain {
                topic,
                message: None,
            } => {
                self.retained.remove(&*topic);
            }
        }
    }
}

/// An endless series of submissions, the same for each seed, and the contents that result.
#[derive(Clone)]
pub struct Story {
    pub state: State,
    bodies: BTreeMap<u64, Arc<Message>>,
    random: u64,
    count: u64,
    place: u64,
    message: u64,
}

impl Story {
    pub fn new(seed: u64) -> Self {
        Self {
            state: State::default(),
            bodies: BTreeMap::new(),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            count: 0,
            place: 0,
            message: 0,
        }
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn body(&mut self) -> Arc<Message> {
        let long = if self.below(50) == 0 { 20_000 } else { 100 };
        let octets = self.below(long) as usize;
        Arc::new(Message {
            topic: format!("plant/{}/temperature", self.below(9)).into(),
            payload: vec![self.below(256) as u8; octets].into(),
            properties: vec![38; self.below(5) as usize].into(),
            expiry: self.below(2) * 1_800_000_000,
            qos: self.below(3) as u8,
        })
    }

    fn client(&mut self) -> Option<Arc<str>> {
        let count = self.state.clients.len() as u64;
        let chosen = self.below(count.max(1)) as usize;
        self.state
            .clients
            .keys()
            .nth(chosen)
            .map(|name| name.as_str().into())
    }

    fn queued(&mut self) -> Option<(Arc<str>, u64)> {
        let client = self.client()?;
        let places: Vec<u64> = self.state.clients[&*client].queue.keys().copied().collect();
        let chosen = self.below(places.len().max(1) as u64) as usize;
        Some((client, *places.get(chosen)?))
    }

    fn one(&mut self) -> Option<Vec<Change>> {
        let id = self.below(20) as u16 + 1;
        let filter: Arc<str> = format!("plant/+/{}", self.below(6)).into();
        Some(match self.below(40) {
            0..3 => {
                let will = (self.below(2) == 0).then(|| Will {
                    message: self.body(),
                    retain: true,
                    delay: 7,
                });
                let user = (self.below(2) == 0).then(|| "someone".into());
                let (expiry, disconnected_at) = (self.below(9) as u32, self.below(1 << 40));
                let session = Session {
                    expiry,
                    disconnected_at,
                    user,
                    will,
                };
                let client = format!("client {}", self.below(8)).into();
                vec![Change::Session { client, session }]
            }
            3 => vec![Change::SessionGone {
                client: self.client()?,
            }],
            4..7 => {
                let (options, identifier) = (self.below(64) as u8, self.below(1 << 28) as u32);
                vec![Change::Subscribe {
                    client: self.client()?,
                    filter,
                    options,
                    identifier,
                }]
            }
            7..9 => vec![Change::Unsubscribe {
                client: self.client()?,
                filter,
            }],
            9..22 => {
                self.message += 1;
                let message = self.message;
                let mut changes = vec![Change::Message {
                    message,
                    body: self.body(),
                }];
                let all: Vec<Arc<str>> = self
                    .state
                    .clients
                    .keys()
                    .map(|name| name.as_str().into())
                    .collect();
                for client in all.into_iter().take(self.message as usize % 4) {
                    self.place += 1;
                    let ids = [5, 268_435_455][..self.below(3) as usize].into();
                    changes.push(Change::Queue {
                        client,
                        place: self.place,
                        message,
                        qos: self.below(3) as u8,
                        retain: self.below(2) == 0,
                        subscription_ids: ids,
                    });
                }
                changes
            }
            22..26 => {
                let (client, place) = self.queued()?;
                vec![Change::InFlight {
                    client,
                    place,
                    id,
                    state: self.below(4) as u8,
                }]
            }
            26..35 => {
                let (client, place) = self.queued()?;
                vec![Change::Done { client, place }]
            }
            35 => vec![Change::Received {
                client: self.client()?,
                id,
            }],
            36..38 => vec![Change::Released {
                client: self.client()?,
                id,
            }],
            _ => {
                let topic = format!("plant/{}", self.below(6)).into();
                let message = (self.below(3) > 0).then(|| self.body());
                vec![Change::Retain { topic, message }]
            }
        })
    }

    /// The next submission; `state` then includes it.
    pub fn next(&mut self) -> Vec<Change> {
        self.count += 1;
        let count = Message {
            topic: COUNT.into(),
            payload: self.count.to_le_bytes()[..].into(),
            properties: [][..].into(),
            expiry: 0,
            qos: 0,
        };
        let mut changes = vec![Change::Retain {
            topic: COUNT.into(),
            message: Some(Arc::new(count)),
        }];
        self.state.apply(&mut self.bodies, &changes[0]);
        for _ in 0..=self.below(3) {
            let first = changes.len();
            changes.extend(self.one().unwrap_or_default());
            for change in &changes[first..] {
                self.state.apply(&mut self.bodies, change);
            }
        }
        changes
    }
}
