//! Keeps what has to survive kill -9: sessions, queued messages and retained messages, in one redb
//! file.
//!
//! What changes with every message (queued messages, their octets, received identifiers) is in one
//! table, the log, whose key increases with time. So rows of the same time are adjacent on the
//! disk, and a commit touches few pages however many sessions it concerns. Changes that cancel out
//! before a commit are not written: a message that was delivered meanwhile never gets to the disk.
//! For this the writer has an index of all queued messages in memory, about 70 octets each.
//!
//! Besides `store.redb` there is `store.spare`, of up to 1 MiB. It is removed when the disk is
//! full, so that deliveries, which make room in the file, can still be written.

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

/// An open store. When it is dropped, it writes all submissions, as [`Store::close`] does.
pub struct Store {
    inbox: Arc<Inbox>,
    writer: Option<JoinHandle<Result<(), Error>>>,
    _lock: File,
}

impl Store {
    /// Open the store in `directory`, or make one. The whole file is read and checked.
    ///
    /// `failed` is called in the writer thread when the disk begins to refuse changes, with a
    /// sentence for the log.
    ///
    /// # Errors
    ///
    /// See [`Error`]. A refused file is not changed.
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

    /// Submit changes; `done` is called in the writer thread once they are on disk or refused. This
    /// never waits for the disk. All submissions during one commit form the next one; a submission
    /// is never split between two commits.
    ///
    /// A submission that the disk refuses has no effect. But facts about kept messages (`InFlight`,
    /// `Done`, `Released`) and ended sessions are written later.
    pub fn submit(&self, changes: Vec<Change>, done: Option<Answer>) {
        self.inbox.put((changes, done));
    }

    /// Close the store, once all submissions are on disk or refused.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]: the file could not be closed properly. Acknowledged changes are kept, and the
    /// next open repairs the file.
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
