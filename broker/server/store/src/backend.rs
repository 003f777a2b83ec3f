//! The file below redb. Nothing is written to it before it has been checked completely.
//!
//! redb repairs a file while it opens it. But a damaged file is evidence, and may be another
//! program's. So redb's writes while it opens stay in memory until [`Backend::adopt`].

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

/// A handle to the file; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Backend(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    file: FileBackend,
    state: Mutex<State>,
    #[cfg(test)]
    faults: Arc<crate::faults::Faults>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    error: Option<(ErrorKind, String)>,
}

#[derive(Debug)]
enum Phase {
    /// Writes are kept in memory, in their order.
    Trial { len: u64, steps: Vec<Step> },
    /// Writes go to the file.
    Live,
    /// Nothing is written to the file any more.
    Dead,
}

#[derive(Debug)]
enum Step {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

impl Backend {
    /// Begin with a file, on trial. It is read from the disk, not from the page cache: after a
    /// failed write, Linux marks pages as clean that were not written.
    pub(crate) fn new(
        file: File,
        #[cfg(test)] faults: Arc<crate::faults::Faults>,
    ) -> std::result::Result<Self, redb::Error> {
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).map_err(Error::from)?;
        let len = file.metadata()?.len();
        let phase = Phase::Trial {
            len,
            steps: Vec::new(),
        };
        let error = None;
        Ok(Self(Arc::new(Shared {
            file: FileBackend::new(file)?,
            state: Mutex::new(State { phase, error }),
            #[cfg(test)]
            faults,
        })))
    }

    /// Write all that is in memory, in its order. From now on write at once.
    pub(crate) fn adopt(&self) -> Result<()> {
        let mut state = self.state();
        // Dead until all is written: after an error here, nothing more may be written.
        let Phase::Trial { steps, .. } = std::mem::replace(&mut state.phase, Phase::Dead) else {
            return Ok(());
        };
        let mut all = steps.iter().chain([&Step::Sync]);
        let done = all.try_for_each(|step| self.step(step));
        if done.is_ok() {
            state.phase = Phase::Live;
        }
        noted(&mut state, done)
    }

    /// Write nothing to the file any more.
    pub(crate) fn kill(&self) {
        self.state().phase = Phase::Dead;
    }

    /// The first error of the file system, if there was one.
    pub(crate) fn error(&self) -> Option<(ErrorKind, String)> {
        self.state().error.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, step: &Step) -> Result<()> {
        #[cfg(test)]
        self.0.faults.check(matches!(step, Step::Sync))?;
        match step {
            Step::Write(offset, octets) => self.0.file.write(*offset, octets),
            Step::SetLen(len) => self.0.file.set_len(*len),
            Step::Sync => self.0.file.sync_data(),
        }
    }

    fn change(&self, live: impl FnOnce() -> Result<()>, step: impl FnOnce() -> Step) -> Result<()> {
        let mut state = self.state();
        let done = match &mut state.phase {
            Phase::Trial { len, steps } => {
                let step = step();
                match &step {
                    Step::Write(offset, octets) => *len = (*len).max(offset + octets.len() as u64),
                    Step::SetLen(new) => *len = *new,
                    Step::Sync => {}
                }
                steps.push(step);
                Ok(())
            }
            #[cfg(test)]
            Phase::Live => {
                let sync = matches!(step(), Step::Sync);
                self.0.faults.check(sync).and_then(|()| live())
            }
            #[cfg(not(test))]
            Phase::Live => live(),
            Phase::Dead => Err(Error::other("the file was given up")),
        };
        noted(&mut state, done)
    }

    fn read_trial(&self, offset: u64, out: &mut [u8], len: u64, steps: &[Step]) -> Result<()> {
        // With a damaged file, redb may read at any offset.
        let end = offset.saturating_add(out.len() as u64);
        if end > len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let there = self.0.file.len()?.clamp(offset, end) - offset;
        let (kept, new) = out.split_at_mut(there as usize);
        self.0.file.read(offset, kept)?;
        new.fill(0);
        for step in steps {
            match step {
                Step::Write(at, octets) => {
                    let first = offset.max(*at);
                    let last = end.min(at + octets.len() as u64);
                    if first < last {
                        out[(first - offset) as usize..(last - offset) as usize]
                            .copy_from_slice(&octets[(first - at) as usize..(last - at) as usize]);
                    }
                }
                Step::SetLen(new) => out[(new.clamp(&offset, &end) - offset) as usize..].fill(0),
                Step::Sync => {}
            }
        }
        Ok(())
    }
}

/// Keep the first error: later ones of redb may only be its consequences.
fn noted(state: &mut State, done: Result<()>) -> Result<()> {
    if let (Err(error), None) = (&done, &state.error) {
        state.error = Some((error.kind(), error.to_string()));
    }
    done
}

impl StorageBackend for Backend {
    fn len(&self) -> Result<u64> {
        match &self.state().phase {
            Phase::Trial { len, .. } => Ok(*len),
            _ => self.0.file.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut state = self.state();
        let done = match &state.phase {
            Phase::Trial { len, steps } => self.read_trial(offset, out, *len, steps),
            _ => self.0.file.read(offset, out),
        };
        noted(&mut state, done)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change(|| self.0.file.set_len(len), || Step::SetLen(len))
    }

    fn sync_data(&self) -> Result<()> {
        self.change(|| self.0.file.sync_data(), || Step::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.change(
            || self.0.file.write(offset, data),
            || Step::Write(offset, data.to_vec()),
        )
    }

    fn close(&self) -> Result<()> {
        self.0.file.close()
    }

    fn try_lock_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.0.file.try_lock_range(start, end)
    }

    fn unlock_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<(), BackendError> {
        self.0.file.unlock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.0.file.try_lock_shared_range(start, end)
    }

    fn query_lock_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> std::result::Result<bool, BackendError> {
        self.0.file.query_lock_range(start, end)
    }
}
