//! The thread that writes: whatever came while one commit ran makes the next one.

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

/// What the thread works with.
pub(crate) struct Writer {
    pub(crate) place: Place,
    /// `None`: it could not be opened again after a failure.
    pub(crate) tables: Option<Tables>,
    pub(crate) index: Index,
    /// Facts that could not be written yet.
    pub(crate) owed: Vec<Change>,
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

    fn batch(&mut self, submissions: Vec<Submission>) {
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
        let _ = self.index.apply(&self.owed, &mut rows);
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
        let changes = submissions.iter().flat_map(|(changes, _)| changes);
        self.owed
            .extend(changes.filter(|change| fact(change)).cloned());
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

/// Whether a change says what happened to a kept message, which cannot be refused.
fn fact(change: &Change) -> bool {
    matches!(
        change,
        Change::InFlight { .. } | Change::Done { .. } | Change::Released { .. }
    )
}

fn facts(changes: &[Change]) -> bool {
    changes.iter().all(fact)
}
