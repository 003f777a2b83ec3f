//! Locks. The crate `threads` replaces `Mutex` by loom's.

pub use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// Lock a mutex, also after a thread has failed with it held: the data is consistent at any time.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
