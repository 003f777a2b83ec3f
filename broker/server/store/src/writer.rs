//! The writer thread. All submissions during one commit form the next one.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::file::{Place, Tables};
use crate::index::{Index, Rows};
use crate::types::{Answer, Change, Error, Refused};

type Submission = (Vec<Change>, Option<Answer>);

/// Submissions for the writer.
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

    /// Wait for submissions, and take all of them. `None`: the store was closed and none is left.
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

/// The subject of a fact; a later fact about it replaces an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum About {
    Queued(u64),
    Received(u16),
    All,
}

/// The state of the writer thread.
pub(crate) struct Writer {
    pub(crate) place: Place,
    /// `None`: it could not be opened again after a failure.
    pub(crate) tables: Option<Tables>,
    pub(crate) index: Index,
    /// Facts that could not be written yet.
    pub(crate) owed: BTreeMap<(Arc<str>, About), Change>,
    /// The first place in each queue that was refused since the file could not be read.
    pub(crate) refused: HashMap<Arc<str>, u64>,
    pub(crate) failed: Box<dyn Fn(&str) + Send>,
    /// Whether the operator knows that changes are refused.
    pub(crate) failing: bool,
    /// Whether there is a spare file, for facts on a full disk.
    pub(crate) spare: bool,
}

impl Writer {
    pub(crate) fn run(mut self, inbox: &Arc<Inbox>) -> Result<(), Error> {
        while let Some(submissions) = inbox.take() {
            // If this thread ended, all others would wait for ever. Read the file again instead.
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
                // If an answer panics, this thread has to go on for the others.
                let _ = catch_unwind(AssertUnwindSafe(|| answer(result)));
            }
        }
        if !self.spare {
            self.spare = self.place.make_spare();
        }
        if refused.is_some() {
            // To open the file again means to read all of it: spend at most half of the time on
            // that.
            std::thread::sleep(began.elapsed());
        }
    }

    /// Write one commit. Returns the results of its submissions.
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
        // redb does not know whether a failed commit took place.
        match self.open_again() {
            Ok(()) if self.index.mark == mark => Ok(()),
            _ => Err(refusal),
        }
    }

    /// A commit was refused: write its facts, with the spare room if the disk is full. Returns the
    /// answers to its submissions.
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

    /// Keep a fact for later, unless it is about a message or session that was never written.
    fn owe(&mut self, change: &Change) {
        if self.tables.is_some() {
            self.refused.clear(); // the index shows what was written
        } else if let Change::Queue { client, place, .. } = change {
            let first = self.refused.entry(Arc::clone(client)).or_insert(*place);
            *first = (*first).min(*place);
        }
        let Some((client, about)) = fact(change) else {
            return;
        };
        let known = self.index.clients.get(client);
        let is_written = match about {
            // Without a file, the index also has what was not written.
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

/// The subject of a change that is a fact: it states what has happened to kept data, and cannot be
/// undone.
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
