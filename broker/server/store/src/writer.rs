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
    /// What happened to kept messages and could not be written: it cannot be refused.
    pub(crate) owed: Vec<Change>,
    pub(crate) failed: Box<dyn Fn(&str) + Send>,
    /// Whether the last commit failed.
    pub(crate) failing: bool,
}

impl Writer {
    pub(crate) fn run(mut self, inbox: &Arc<Inbox>) -> Result<(), Error> {
        while let Some(submissions) = inbox.take() {
            self.batch(submissions);
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
        let mut results = Vec::with_capacity(submissions.len());
        let result = match self.tables.take() {
            Some(tables) => self.write(tables, &submissions, &mut results),
            None => self
                .open_again(None)
                .and_then(|()| match self.tables.take() {
                    Some(tables) => self.write(tables, &submissions, &mut results),
                    None => Err(Refused::Failed(String::new())),
                }),
        };
        if let Err(refusal) = &result {
            self.owe(&submissions);
            if !std::mem::replace(&mut self.failing, true) {
                let place = self.place.directory.display();
                (self.failed)(&format!("nothing can be kept in {place}: {refusal}"));
            }
            results.clear();
            results.resize(submissions.len(), result);
        } else {
            self.failing = false;
        }
        for ((_, answer), result) in submissions.into_iter().zip(results) {
            if let Some(answer) = answer {
                // An answer that panics must not end the thread that the others wait for.
                let _ = catch_unwind(AssertUnwindSafe(|| answer(result)));
            }
        }
        if self.failing {
            // Opening the file again reads all of it: at most half of the time for that.
            std::thread::sleep(began.elapsed());
        }
    }

    /// Write one commit; `results` are of the submissions in it.
    fn write(
        &mut self,
        mut tables: Tables,
        submissions: &[Submission],
        results: &mut Vec<Result<(), Refused>>,
    ) -> Result<(), Refused> {
        let mut rows = Rows::new(&self.index);
        let _ = self.index.apply(&self.owed, &mut rows);
        let applied = submissions.iter();
        results.extend(applied.map(|(changes, _)| self.index.apply(changes, &mut rows)));
        if rows.is_empty() {
            self.tables = Some(tables);
            return Ok(());
        }
        self.index.mark(&mut rows);
        let written = catch_unwind(AssertUnwindSafe(|| tables.write(&rows)));
        match written.unwrap_or_else(|_| Err(redb::Error::Corrupted("redb panicked".into()))) {
            Ok(()) => {
                self.tables = Some(tables);
                self.owed.clear();
                Ok(())
            }
            Err(error) => {
                let refusal = tables.refusal(&error);
                tables.give_up();
                let mark = self.index.mark;
                let opened = self.open_again(Some(refusal.clone()));
                // redb does not know whether a commit that failed took place.
                if opened.is_ok() && self.index.mark == mark {
                    self.owed.clear();
                    return Ok(());
                }
                Err(refusal)
            }
        }
    }

    /// Open the file again, as after a crash.
    fn open_again(&mut self, why: Option<Refused>) -> Result<(), Refused> {
        match self.place.open(false) {
            Ok((tables, index, _)) => {
                self.tables = Some(tables);
                self.index = index;
                Ok(())
            }
            Err(error) => Err(why.unwrap_or(Refused::Failed(error.to_string()))),
        }
    }

    /// Remember what is fact whether or not it was written.
    fn owe(&mut self, submissions: &[Submission]) {
        let changes = submissions.iter().flat_map(|(changes, _)| changes);
        let facts = changes.filter(|change| {
            matches!(
                change,
                Change::InFlight { .. } | Change::Done { .. } | Change::Released { .. }
            )
        });
        self.owed.extend(facts.cloned());
    }
}
