//! The order of changes that must be on disk before they are acknowledged.
//!
//! All threads append changes to one list. They hold the lock of what has changed meanwhile, that
//! of the session or of the retained messages, so the order is right. At the end of each read the
//! list goes to the store as one batch. Batches are numbered. To wait for a change is to wait until
//! the store has answered its batch.

use crate::message::{Copy, Kept, Message};
use crate::sync::lock;
use mqtick_net::poller::Poller;
use mqtick_packet::Qos;
use mqtick_store as store;
use mqtick_store::{Change, Refused, Store};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

const MOST: usize = 1 << 28; // octets of changes that may wait for the disk
const CHANGE: usize = size_of::<Change>() + 64; // octets of memory of one, about
const UNKEPT: usize = 1 << 17; // topics
const AGAIN: usize = 1000; // unkept topics that are tried again in a second
const RUNS: usize = 4096; // of refused batches that are remembered

/// The batches that hold some changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub(crate) first: u64,
    /// The last one: once it is answered, the changes are on disk or were refused.
    pub last: u64,
}

impl Span {
    /// These changes and others.
    pub fn and(self, other: Option<Self>) -> Self {
        let other = other.unwrap_or(self);
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// A message that is about to enter queues.
pub struct Entering {
    batch: u64,
    number: u64,
}

struct List {
    store: Option<Store>,
    changes: Vec<Change>,
    retained: Vec<Arc<str>>, // topics of changed retained messages
    batch: u64,
    octets: usize,
    next_message: u64,
}

#[derive(Default)]
struct Answers {
    answered: AtomicU64,
    refused: AtomicU64,                       // the last batch that was refused
    all_refused: Mutex<VecDeque<(u64, u64)>>, // the last runs of refused batches: first and last
    refusals: AtomicU64,
    octets: AtomicUsize,              // of unanswered changes
    unkept: Mutex<HashSet<Arc<str>>>, // topics whose retained messages were refused
    waits: Vec<(AtomicBool, Arc<Poller>)>,
}

/// What all threads append to.
pub struct Journal {
    list: Mutex<List>,
    cut: RwLock<()>,
    answers: Arc<Answers>,
}

impl Journal {
    /// A journal for a store. `workers` are woken when the store answers, if they wait for that.
    pub fn new(store: Store, next_message: u64, workers: Vec<Arc<Poller>>) -> Self {
        let waits = workers.into_iter();
        Self {
            list: Mutex::new(List {
                store: Some(store),
                changes: Vec::new(),
                retained: Vec::new(),
                batch: 1,
                octets: 0,
                next_message,
            }),
            cut: RwLock::default(),
            answers: Arc::new(Answers {
                waits: waits.map(|one| (AtomicBool::new(false), one)).collect(),
                ..Answers::default()
            }),
        }
    }

    fn list(&self) -> MutexGuard<'_, List> {
        lock(&self.list)
    }

    /// Until this guard is dropped, all that is appended is in one batch. A thread holds one at a
    /// time, and does not submit meanwhile.
    pub fn whole(&self) -> RwLockReadGuard<'_, ()> {
        self.cut.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Append a change.
    pub fn append(&self, change: Change) -> Span {
        self.list().append(&self.answers, change)
    }

    /// Append that a message enters a session's queue. `entering` is the message's number, once it
    /// has entered a queue. It has another number in each batch, since the store keeps a message
    /// only if a queue holds it in the same batch.
    pub fn queue(
        &self,
        client: &Arc<str>,
        place: u64,
        message: &Kept,
        copy: &Copy,
        entering: &mut Option<Entering>,
        now_s: u64,
    ) -> Span {
        let mut list = self.list();
        let number = match entering {
            Some(known) if known.batch == list.batch => known.number,
            _ => {
                let number = list.next_message;
                list.next_message += 1;
                let body = Arc::new(to_store(&message.message(), now_s));
                list.append(
                    &self.answers,
                    Change::Message {
                        message: number,
                        body,
                    },
                );
                *entering = Some(Entering {
                    batch: list.batch,
                    number,
                });
                number
            }
        };
        let identifier = [copy.subscription];
        let change = Change::Queue {
            client: Arc::clone(client),
            place,
            message: number,
            qos: copy.qos as u8,
            retain: copy.retain,
            subscription_ids: match copy.subscription {
                0 => Arc::default(),
                _ => identifier.into(),
            },
        };
        list.append(&self.answers, change)
    }

    /// Hand all that was appended to the store. The caller must not hold the lock of a session: a
    /// thread with a guard of `whole` may wait for it.
    pub fn submit(&self) {
        let _cut = self.cut.write().unwrap_or_else(PoisonError::into_inner);
        let mut list = self.list();
        if list.changes.is_empty() {
            return;
        }
        let (batch, octets) = (list.batch, std::mem::take(&mut list.octets));
        let changes = std::mem::take(&mut list.changes);
        list.batch += 1;
        let pending = Pending {
            answers: Arc::clone(&self.answers),
            batch,
            octets,
            retained: std::mem::take(&mut list.retained),
            result: Err(Refused::Failed("nobody answered".into())),
        };
        let done = move |result| pending.answer(result);
        // Under the lock, so that batches come to the store in order.
        if let Some(store) = &list.store {
            store.submit(changes, Some(Box::new(done)));
        }
    }

    /// The last batch that was answered.
    pub fn answered(&self) -> u64 {
        self.answers.answered.load(Ordering::SeqCst)
    }

    /// Whether some of these changes, which are answered, were refused.
    pub fn is_refused(&self, span: Span) -> bool {
        if self.answers.refused.load(Ordering::SeqCst) < span.first {
            return false;
        }
        let overlaps = |run: &(u64, u64)| run.0 <= span.last && span.first <= run.1;
        self.answers.runs().iter().rev().any(overlaps)
    }

    /// Topics whose retained messages were refused, for another try: only one while the disk
    /// refuses.
    pub fn take_unkept(&self) -> Vec<Arc<str>> {
        let refuses = self.answers.refused.load(Ordering::SeqCst) == self.answered();
        let mut unkept = self.answers.unkept();
        let some = unkept.iter().take(if refuses { 1 } else { AGAIN });
        let some: Vec<Arc<str>> = some.cloned().collect();
        for topic in &some {
            unkept.remove(topic);
        }
        some
    }

    /// How many batches have been refused.
    pub fn refusals(&self) -> u64 {
        self.answers.refusals.load(Ordering::Relaxed)
    }

    /// Whether so much waits for the disk that no more may be added.
    pub fn is_full(&self) -> bool {
        self.answers.octets.load(Ordering::Relaxed) > MOST
    }

    /// Have a worker woken at the store's next answer.
    pub fn wake(&self, worker: usize) {
        if let Some((waits, _)) = self.answers.waits.get(worker) {
            waits.store(true, Ordering::SeqCst);
        }
    }

    /// Close the store. Then all that was appended is on disk or was refused.
    ///
    /// # Errors
    ///
    /// A sentence for the log.
    pub fn close(&self) -> Result<(), String> {
        self.submit();
        let store = self.list().store.take();
        store
            .map_or(Ok(()), Store::close)
            .map_err(|e| e.to_string())
    }
}

impl List {
    fn append(&mut self, answers: &Answers, change: Change) -> Span {
        let body = match &change {
            Change::Message { body, .. } => Some(body),
            Change::Retain { topic, message } => {
                self.retained.push(Arc::clone(topic));
                message.as_ref()
            }
            _ => None,
        };
        let body = body.map_or(0, |body| {
            body.topic.len() + body.payload.len() + body.properties.len()
        });
        self.octets += CHANGE + body;
        answers.octets.fetch_add(CHANGE + body, Ordering::Relaxed);
        self.changes.push(change);
        Span {
            first: self.batch,
            last: self.batch,
        }
    }
}

impl Answers {
    fn runs(&self) -> MutexGuard<'_, VecDeque<(u64, u64)>> {
        lock(&self.all_refused)
    }

    fn unkept(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        lock(&self.unkept)
    }

    /// The store has answered a batch. This runs in the store's thread.
    fn take(&self, batch: u64, octets: usize, result: &Result<(), Refused>) {
        self.octets.fetch_sub(octets, Ordering::Relaxed);
        match result {
            // Wrong: it is for a session that has ended meanwhile.
            Ok(()) | Err(Refused::Wrong(_)) => {}
            Err(Refused::Full | Refused::Failed(_)) => {
                let mut runs = self.runs();
                match runs.back_mut() {
                    Some(run) if run.1 + 1 == batch => run.1 = batch,
                    _ => runs.push_back((batch, batch)),
                }
                if runs.len() > RUNS {
                    runs.pop_front();
                }
                self.refused.store(batch, Ordering::SeqCst);
                self.refusals.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.answered.store(batch, Ordering::SeqCst);
        for (waits, poller) in &self.waits {
            if waits.swap(false, Ordering::SeqCst) {
                poller.call();
            }
        }
    }
}

/// A batch that was submitted. If it is dropped without an answer, it counts as refused.
struct Pending {
    answers: Arc<Answers>,
    batch: u64,
    octets: usize,
    retained: Vec<Arc<str>>,
    result: Result<(), Refused>,
}

impl Pending {
    fn answer(mut self, result: Result<(), Refused>) {
        self.result = result;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Err(Refused::Full | Refused::Failed(_)) = self.result {
            let mut unkept = self.answers.unkept();
            let room = UNKEPT.saturating_sub(unkept.len());
            unkept.extend(self.retained.drain(..).take(room));
        }
        self.answers.take(self.batch, self.octets, &self.result);
    }
}

/// The system's clock, in Unix seconds.
pub fn wall_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Convert a time of the broker's clock to one of the system's clock, in Unix seconds. That may
/// have been set since the start, and the broker's next start goes by it.
pub fn to_wall(s: u64, now_s: u64) -> u64 {
    (wall_s() + s).saturating_sub(now_s).max(1)
}

/// A message, as the store keeps it.
pub fn to_store(message: &Message, now_s: u64) -> store::Message {
    store::Message {
        topic: message.topic.into(),
        payload: message.payload.into(),
        properties: message.forwarded.into(),
        expiry: message.expires_s.map_or(0, |s| to_wall(s, now_s)),
        qos: message.qos as u8,
    }
}

/// A message that the store has kept.
pub fn from_store(message: &store::Message, retain: bool) -> Arc<Kept> {
    Kept::new(&Message {
        whole: None,
        topic: &message.topic,
        payload: &message.payload,
        qos: Qos::try_from(message.qos).unwrap_or_default(),
        retain,
        forwarded: &message.properties,
        expires_s: (message.expiry != 0).then_some(message.expiry),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    fn journal() -> (Journal, std::path::PathBuf) {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mqtick-journal-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let (store, kept) = Store::open(&folder, |_| {}).unwrap();
        (Journal::new(store, kept.next_message, Vec::new()), folder)
    }

    fn retain(octets: usize) -> Change {
        Change::Retain {
            topic: "t".into(),
            message: Some(Arc::new(store::Message {
                topic: "t".into(),
                payload: vec![0; octets].into(),
                properties: [].into(),
                expiry: 0,
                qos: 0,
            })),
        }
    }

    #[test]
    fn only_what_was_refused_is_said_to_be() {
        let (journal, folder) = journal();
        for batch in 1..=3 * RUNS as u64 {
            let refused = batch % 4 == 3;
            let result = if refused { Err(Refused::Full) } else { Ok(()) };
            journal.answers.take(batch, 0, &result);
        }
        for batch in [3, RUNS as u64 * 3 - 1, RUNS as u64 * 3 - 2] {
            let span = Span {
                first: batch,
                last: batch,
            };
            assert_eq!(journal.is_refused(span), batch % 4 == 3, "{batch}");
        }
        let wide = Span { first: 5, last: 7 };
        assert!(journal.is_refused(wide));
        assert_eq!(journal.refusals(), 3 * RUNS as u64 / 4);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_batch_that_nobody_answered_was_refused() {
        let (journal, folder) = journal();
        journal.close().unwrap();
        let span = journal.append(retain(1000));
        journal.submit(); // to a closed store
        assert_eq!(journal.answered(), span.last);
        assert!(journal.is_refused(span));
        assert_eq!(journal.answers.octets.load(Ordering::Relaxed), 0);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn all_that_waits_for_the_disk_counts() {
        let (journal, folder) = journal();
        for _ in 0..MOST >> 24 {
            assert!(!journal.is_full());
            journal.append(retain(1 << 24));
        }
        assert!(journal.is_full());
        journal.list().changes.clear();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_changes_of_one_packet_are_in_one_batch_whoever_submits() {
        let (journal, folder) = journal();
        std::thread::scope(|scope| {
            let whole = journal.whole();
            let first = journal.append(retain(1));
            let other = scope.spawn(|| journal.submit());
            for _ in 0..100 {
                std::thread::yield_now();
                assert_eq!(journal.append(retain(1)), first);
            }
            drop(whole);
            other.join().unwrap();
            assert_ne!(journal.append(retain(1)), first);
        });
        journal.close().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }
}
