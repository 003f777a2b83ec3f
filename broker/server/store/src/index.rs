//! An index of the file's contents, which turns changes into rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::record::{Entry, Record};
use crate::types::{Change, Message, Refused, Session};

/// Where everything in the file is.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) clients: HashMap<Arc<str>, Client>,
    pub(crate) messages: HashMap<u64, Held>,
    /// Greater than all keys of the log and all places in the order of subscriptions.
    pub(crate) next_key: u64,
    pub(crate) next_client: u64,
    /// The key of the newest commit's mark.
    pub(crate) mark: u64,
}

/// A session.
#[derive(Debug, Default)]
pub(crate) struct Client {
    /// Its number in the other tables.
    pub(crate) number: u64,
    /// The key in the log and the message's number, by place.
    pub(crate) queue: BTreeMap<u64, (u64, u64)>,
    /// The key in the log, by packet identifier.
    pub(crate) received: BTreeMap<u16, u64>,
}

/// A message in queues.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Its key in the log.
    pub(crate) key: u64,
    /// The number of queues that hold it.
    pub(crate) queues: u32,
}

/// The rows of a commit: what is left of the changes since the last one.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) log: BTreeMap<u64, Row>,
    pub(crate) sessions: HashMap<Arc<str>, Option<(u64, Session)>>,
    pub(crate) subscriptions: BTreeMap<(u64, Arc<str>), Option<Subscription>>,
    /// Sessions whose subscriptions are all removed.
    pub(crate) gone: BTreeSet<u64>,
    pub(crate) retained: BTreeMap<Arc<str>, Option<Arc<Message>>>,
    /// The first key that is not in the file.
    first_new: u64,
    /// Messages of this submission that may be in no queue: new ones, and those that a queue has
    /// lost.
    loose: Vec<u64>,
}

/// A change of the log.
#[derive(Debug)]
pub(crate) enum Row {
    Put(Record),
    /// The queued message of this row in the file is in flight now.
    Sent(u16, u8),
    Remove,
}

/// A subscription's row.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) options: u8,
    pub(crate) identifier: u32,
    /// Its place in the order, unless it has one in the file.
    pub(crate) order: u64,
    /// Whether a row of the same key in the file belongs to an earlier subscription, which has
    /// ended.
    pub(crate) fresh: bool,
}

impl Rows {
    pub(crate) fn new(index: &Index) -> Self {
        Self {
            first_new: index.next_key,
            ..Self::default()
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.log.is_empty()
            && self.sessions.is_empty()
            && self.subscriptions.is_empty()
            && self.gone.is_empty()
            && self.retained.is_empty()
    }

    fn remove(&mut self, key: u64) {
        if key >= self.first_new {
            self.log.remove(&key);
        } else {
            self.log.insert(key, Row::Remove);
        }
    }
}

impl Index {
    /// Apply one submission's changes. A wrong change has no effect; the first one is returned as
    /// an error.
    pub(crate) fn apply(&mut self, changes: &[Change], rows: &mut Rows) -> Result<(), Refused> {
        let mut result = Ok(());
        for change in changes {
            if let Err(text) = self.change(change, rows)
                && result.is_ok()
            {
                result = Err(Refused::Wrong(text));
            }
        }
        for message in std::mem::take(&mut rows.loose) {
            if let Some(held) = self.messages.get(&message)
                && held.queues == 0
            {
                rows.remove(held.key);
                self.messages.remove(&message);
            }
        }
        result
    }

    /// End a batch with a mark, which shows later whether its commit took place.
    pub(crate) fn mark(&mut self, rows: &mut Rows) {
        rows.remove(self.mark);
        self.mark = self.key();
        rows.log.insert(self.mark, Row::Put(Record::Mark));
    }

    fn key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key - 1
    }

    fn change(&mut self, change: &Change, rows: &mut Rows) -> Result<(), String> {
        match change {
            Change::Session { client, session } => {
                let number = match self.clients.get(client) {
                    Some(known) => known.number,
                    None => {
                        let number = self.next_client;
                        self.next_client += 1;
                        let new = Client {
                            number,
                            ..Client::default()
                        };
                        self.clients.insert(client.clone(), new);
                        number
                    }
                };
                let row = Some((number, session.clone()));
                rows.sessions.insert(client.clone(), row);
            }
            Change::SessionGone { client } => {
                let Some(gone) = self.clients.remove(client) else {
                    return Ok(());
                };
                for (key, message) in gone.queue.into_values() {
                    rows.remove(key);
                    self.leave(message, rows);
                }
                for key in gone.received.into_values() {
                    rows.remove(key);
                }
                let all = (gone.number, Arc::from(""))..(gone.number + 1, Arc::from(""));
                rows.subscriptions
                    .extract_if(all, |_, _| true)
                    .for_each(drop);
                rows.gone.insert(gone.number);
                rows.sessions.insert(client.clone(), None);
            }
            Change::Subscribe {
                client,
                filter,
                options,
                identifier,
            } => {
                let number = self.client(client)?.number;
                let new = Subscription {
                    options: *options,
                    identifier: *identifier,
                    order: self.key(),
                    fresh: false,
                };
                let row = rows.subscriptions.entry((number, filter.clone()));
                row.and_modify(|row| {
                    let (order, fresh) = match row {
                        Some(old) => (old.order, old.fresh),
                        None => (new.order, true),
                    };
                    *row = Some(Subscription {
                        order,
                        fresh,
                        ..new
                    });
                })
                .or_insert(Some(new));
            }
            Change::Unsubscribe { client, filter } => {
                if let Some(client) = self.clients.get(client) {
                    let key = (client.number, filter.clone());
                    rows.subscriptions.insert(key, None);
                }
            }
            Change::Message { message, body } => {
                if self.messages.contains_key(message) {
                    return Err(format!("message number {message} is taken"));
                }
                let key = self.key();
                self.messages.insert(*message, Held { key, queues: 0 });
                let record = Record::Message(*message, body.clone());
                rows.log.insert(key, Row::Put(record));
                rows.loose.push(*message);
            }
            Change::Queue {
                client,
                place,
                message,
                qos,
                retain,
                subscription_ids,
            } => {
                let key = self.next_key;
                let Some(held) = self.messages.get_mut(message) else {
                    return Err(format!("message number {message} is not kept"));
                };
                let Some(known) = self.clients.get_mut(client) else {
                    return Err(format!("session `{client}` is not kept"));
                };
                if known.queue.contains_key(place) {
                    return Err(format!("place {place} of session `{client}` is taken"));
                }
                held.queues += 1;
                known.queue.insert(*place, (key, *message));
                self.next_key += 1;
                let record = Record::Entry(Entry {
                    client: known.number,
                    place: *place,
                    message: *message,
                    qos: *qos & 3,
                    retain: *retain,
                    ids: subscription_ids.clone(),
                    in_flight: None,
                });
                rows.log.insert(key, Row::Put(record));
            }
            Change::InFlight {
                client,
                place,
                id,
                state,
            } => {
                let queue = self.clients.get(client).map(|client| &client.queue);
                let Some((key, _)) = queue.and_then(|queue| queue.get(place)) else {
                    return Ok(());
                };
                match rows.log.get_mut(key) {
                    Some(Row::Put(Record::Entry(entry))) => entry.in_flight = Some((*id, *state)),
                    _ => {
                        rows.log.insert(*key, Row::Sent(*id, *state));
                    }
                }
            }
            Change::Done { client, place } => {
                let queue = self.clients.get_mut(client).map(|client| &mut client.queue);
                if let Some((key, message)) = queue.and_then(|queue| queue.remove(place)) {
                    rows.remove(key);
                    self.leave(message, rows);
                }
            }
            Change::Received { client, id } => {
                let key = self.next_key;
                let Some(known) = self.clients.get_mut(client) else {
                    return Err(format!("session `{client}` is not kept"));
                };
                if known.received.contains_key(id) {
                    return Ok(());
                }
                known.received.insert(*id, key);
                self.next_key += 1;
                let client = known.number;
                let record = Record::Received { client, id: *id };
                rows.log.insert(key, Row::Put(record));
            }
            Change::Released { client, id } => {
                let known = self.clients.get_mut(client);
                if let Some(key) = known.and_then(|client| client.received.remove(id)) {
                    rows.remove(key);
                }
            }
            Change::Retain { topic, message } => {
                rows.retained.insert(topic.clone(), message.clone());
            }
        }
        Ok(())
    }

    fn client(&self, client: &Arc<str>) -> Result<&Client, String> {
        let known = self.clients.get(client);
        known.ok_or_else(|| format!("session `{client}` is not kept"))
    }

    /// A queue no longer holds a message.
    fn leave(&mut self, message: u64, rows: &mut Rows) {
        if let Some(held) = self.messages.get_mut(&message) {
            held.queues -= 1;
            if held.queues == 0 {
                rows.loose.push(message);
            }
        }
    }
}
