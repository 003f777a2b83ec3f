//! A disk that fails when a test wants it to.

use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What fails.
#[derive(Debug)]
pub(crate) struct Faults {
    /// Writes until there is no room.
    pub(crate) writes: AtomicU64,
    /// Whether syncing fails.
    pub(crate) sync: AtomicBool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            writes: AtomicU64::new(u64::MAX),
            sync: AtomicBool::new(false),
        }
    }
}

impl Faults {
    pub(crate) fn check(&self, sync: bool) -> Result<()> {
        if sync {
            return match self.sync.load(Ordering::SeqCst) {
                true => Err(Error::other("the disk died")),
                false => Ok(()),
            };
        }
        let left = self.writes.load(Ordering::SeqCst);
        if left == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.writes.store(
            left.saturating_sub(u64::from(left != u64::MAX)),
            Ordering::SeqCst,
        );
        Ok(())
    }
}
