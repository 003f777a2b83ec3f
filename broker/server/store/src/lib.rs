//! What must survive kill -9: sessions, queued messages and retained messages, in one redb file.
//!
//! What a broker changes with every message (queued messages, their octets, received identifiers)
//! is in one table whose key rises with time: neighbours in time are neighbours on the disk, so that
//! a commit touches few pages however many sessions it is about. Only what is left of the changes
//! since the last commit is written: a message that was delivered meanwhile never gets there. For
//! this the writer remembers the place of every queued message, some 70 octets each.
//!
//! Beside `store.redb` there is `store.spare`: up to 1 MiB that is set free when the disk is full, so
//! that deliveries can still be written, which make room in the file.

#![forbid(unsafe_code)]

mod backend;
#[cfg(test)]
mod faults;
mod file;
mod index;
#[cfg(test)]
#[path = "../tests/model/mod.rs"]
mod model;
mod record;
mod types;
mod writer;

#[cfg(test)]
extern crate self as mqtick_store;

use std::collections::{BTreeMap, HashMap};
use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use file::Place;
pub use types::*;
use writer::{Inbox, Writer};

/// Called in the writer thread once the changes are on disk or refused.
pub type Answer = Box<dyn FnOnce(Result<(), Refused>) + Send>;

/// A store that is open. Dropped, it writes what was handed over, as [`Store::close`] does.
pub struct Store {
    inbox: Arc<Inbox>,
    writer: Option<JoinHandle<Result<(), Error>>>,
    _lock: File,
}

impl Store {
    /// Open the store in `directory`, or make one. All of the file is read and checked.
    ///
    /// `failed` is called in the writer thread with a sentence for the log when changes begin to be
    /// refused because of the disk.
    ///
    /// # Errors
    ///
    /// See [`Error`]. A file that is refused was not changed.
    pub fn open(
        directory: &Path,
        failed: impl Fn(&str) + Send + 'static,
    ) -> Result<(Self, Kept), Error> {
        Self::open_place(Place::new(directory), Box::new(failed))
    }

    fn open_place(place: Place, failed: Box<dyn Fn(&str) + Send>) -> Result<(Self, Kept), Error> {
        let directory = &place.directory;
        let io = |error: std::io::Error| {
            let place = directory.display();
            Error::Io(format!("cannot keep a store in {place}: {error}"))
        };
        let mut make = DirBuilder::new();
        make.recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(io)?;
        let lock = File::open(directory).map_err(io)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => file::locked(directory),
            TryLockError::Error(error) => io(error),
        })?;
        let (tables, index, kept) = place.open(true)?;
        let inbox = Arc::new(Inbox::default());
        let writer = Writer {
            tables: Some(tables),
            index,
            owed: BTreeMap::new(),
            refused: HashMap::new(),
            failed,
            failing: false,
            spare: false,
            place: place.clone(),
        };
        let shared = inbox.clone();
        let thread = std::thread::Builder::new().name("store".into());
        let writer = Some(thread.spawn(move || writer.run(&shared)).map_err(io)?);
        let store = Self {
            inbox,
            writer,
            _lock: lock,
        };
        Ok((store, kept))
    }

    /// Hand changes over; `done` is called in the writer thread once they are on disk or refused.
    /// Never blocks for the disk. What is handed over while one commit runs makes the next one, and
    /// one submission is never split between two commits.
    ///
    /// Refused by the disk, a submission had no effect, but what it says about kept messages
    /// (`InFlight`, `Done`, `Released`) and about sessions that ended is written later.
    pub fn submit(&self, changes: Vec<Change>, done: Option<Answer>) {
        self.inbox.put((changes, done));
    }

    /// Close the store: everything handed over is on disk or was refused.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: the file could not be closed well; what was acknowledged is kept, and the next
    /// open repairs the file.
    pub fn close(mut self) -> Result<(), Error> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.inbox.close();
        match self.writer.take().map(JoinHandle::join) {
            Some(Ok(closed)) => closed,
            Some(Err(_)) => Err(Error::Io("the store's writer panicked".into())),
            None => Ok(()),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}
