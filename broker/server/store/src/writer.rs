//! The thread that writes: whatever came while one commit ran makes the next one.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::Answer;
use crate::file::{Place, Tables};
use crate::index::{Index, Rows};
use crate::types::{Change, Error, Refused};

type Submission = (Vec<Change>, Option<Answer>);

/// What was handed over and not taken.
#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    submissions: Vec<Submission>,
    closed: bool,
}

impl Inbox {
    pub(crate) fn put(&self, submission: Submission) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.submissions.push(submission);
        if waiting.submissions.len() == 1 {
            self.came.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.closed = true;
        self.came.notify_one();
    }

    /// Everything that waits; `None` when nothing more will come.
    fn take(&self) -> Option<Vec<Submission>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.submissions.is_empty() {
            if waiting.closed {
                return None;
            }
            waiting = self
                .came
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Some(std::mem::take(&mut waiting.submissions))
    }
}

/// What a fact is about: the last one is enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    Queued(u64),
    Received(u16),
    All,
}

/// What the thread works with.
pub(crate) struct Writer {
    pub(crate) place: Place,
    /// `None`: it could not be opened again after a failure.
    pub(crate) tables: Option<Tables>,
    pub(crate) index: Index,
    /// Facts that could not be written yet.
    pub(crate) owed: BTreeMap<(Arc<str>, About), Change>,
    /// For each queue the first place of those that were refused since the file could not be read.
    pub(crate) refused: HashMap<Arc<str>, u64>,
    pub(crate) failed: Box<dyn Fn(&str) + Send>,
    /// Whether the operator was told that changes are refused.
    pub(crate) failing: bool,
    /// Whether there is room for facts on a full disk.
    pub(crate) spare: bool,
}

impl Writer {
    pub(crate) fn run(mut self, inbox: &Arc<Inbox>) -> Result<(), Error> {
        while let Some(submissions) = inbox.take() {
            // A thread that ended would leave all others waiting; the file tells what is true.
            if catch_unwind(AssertUnwindSafe(|| self.batch(submissions))).is_err() {
                self.tables = None;
            }
        }
        let path = self.place.directory.display().to_string();
        match self.tables.take() {
            Some(tables) => tables
                .close()
                .map_err(|error| Error::Io(format!("cannot close the store in {path}: {error}"))),
            None => Err(Error::Io(format!("the store in {path} was given up"))),
        }
    }

    pub(crate) fn batch(&mut self, submissions: Vec<Submission>) {
        let began = Instant::now();
        let (results, refused) = match self.commit(&submissions) {
            Ok(results) => (results, None),
            Err(refusal) => (self.refused(&submissions, &refusal), Some(refusal)),
        };
        if let Some(refusal) = &refused {
            if !std::mem::replace(&mut self.failing, true) {
                let place = self.place.directory.display();
                let text = format!("nothing can be kept in {place}: {refusal}");
                let _ = catch_unwind(AssertUnwindSafe(|| (self.failed)(&text)));
            }
        } else if !submissions.iter().all(|(changes, _)| facts(changes)) {
            self.failing = false;
        }
        for ((_, answer), result) in submissions.into_iter().zip(results) {
            if let Some(answer) = answer {
                // An answer that panics must not end the thread that the others wait for.
                let _ = catch_unwind(AssertUnwindSafe(|| answer(result)));
            }
        }
        if !self.spare {
            self.spare = self.place.make_spare();
        }
        if refused.is_some() {
            // Opening the file again reads all of it: at most half of the time for that.
            std::thread::sleep(began.elapsed());
        }
    }

    /// Write one commit; return the results of the submissions in it.
    fn commit(&mut self, submissions: &[Submission]) -> Result<Vec<Result<(), Refused>>, Refused> {
        if self.tables.is_none() {
            self.open_again()?;
        }
        let mut rows = Rows::new(&self.index);
        let owed: Vec<Change> = self.owed.values().cloned().collect();
        let _ = self.index.apply(&owed, &mut rows);
        let results = submissions.iter();
        let results = results
            .map(|(changes, _)| self.index.apply(changes, &mut rows))
            .collect();
        if !rows.is_empty() {
            self.index.mark(&mut rows);
            self.write(&rows)?;
        }
        self.owed.clear();
        Ok(results)
    }

    fn write(&mut self, rows: &Rows) -> Result<(), Refused> {
        let Some(mut tables) = self.tables.take() else {
            return Err(Refused::Failed("it is not open".into()));
        };
        let written = catch_unwind(AssertUnwindSafe(|| tables.write(rows)));
        let written =
            written.unwrap_or_else(|_| Err(redb::Error::Corrupted("redb panicked".into())));
        let Err(error) = written else {
            self.tables = Some(tables);
            return Ok(());
        };
        let refusal = tables.refusal(&error);
        tables.give_up();
        let mark = self.index.mark;
        // redb does not know whether a commit that failed took place.
        match self.open_again() {
            Ok(()) if self.index.mark == mark => Ok(()),
            _ => Err(refusal),
        }
    }

    /// What to answer when a commit was refused: what is fact gets room that was kept for it.
    fn refused(
        &mut self,
        submissions: &[Submission],
        refusal: &Refused,
    ) -> Vec<Result<(), Refused>> {
        for change in submissions.iter().flat_map(|(changes, _)| changes) {
            self.owe(change);
        }
        let mut written = false;
        if *refusal == Refused::Full && !self.owed.is_empty() {
            self.place.drop_spare();
            self.spare = false;
            written = self.commit(&[]).is_ok();
        }
        let results = submissions
            .iter()
            .map(|(changes, _)| match written && facts(changes) {
                true => Ok(()),
                false => Err(refusal.clone()),
            });
        results.collect()
    }

    /// Remember a fact, unless it is about what was never written.
    fn owe(&mut self, change: &Change) {
        if self.tables.is_some() {
            self.refused.clear(); // the index says what was written
        } else if let Change::Queue { client, place, .. } = change {
            let first = self.refused.entry(Arc::clone(client)).or_insert(*place);
            *first = (*first).min(*place);
        }
        let Some((client, about)) = fact(change) else {
            return;
        };
        let known = self.index.clients.get(client);
        let is_written = match about {
            // The index is not of the file then.
            About::Queued(place) if self.tables.is_none() => {
                self.refused.get(client).is_none_or(|first| place < *first)
            }
            _ if self.tables.is_none() => true,
            About::Queued(place) => known.is_some_and(|known| known.queue.contains_key(&place)),
            About::Received(id) => known.is_some_and(|known| known.received.contains_key(&id)),
            About::All => known.is_some(),
        };
        if is_written {
            self.owed
                .insert((Arc::clone(client), about), change.clone());
        }
    }

    /// Open the file again, as after a crash.
    fn open_again(&mut self) -> Result<(), Refused> {
        match self.place.open(false) {
            Ok((tables, index, _)) => {
                self.tables = Some(tables);
                self.index = index;
                Ok(())
            }
            Err(Error::Full(_)) => Err(Refused::Full),
            Err(error) => Err(Refused::Failed(error.to_string())),
        }
    }
}

/// What a change is about if it says what happened to what is kept, which cannot be refused.
fn fact(change: &Change) -> Option<(&Arc<str>, About)> {
    match change {
        Change::InFlight { client, place, .. } | Change::Done { client, place } => {
            Some((client, About::Queued(*place)))
        }
        Change::Released { client, id } => Some((client, About::Received(*id))),
        Change::SessionGone { client } => Some((client, About::All)),
        _ => None,
    }
}

fn facts(changes: &[Change]) -> bool {
    changes.iter().all(|change| fact(change).is_some())
}
