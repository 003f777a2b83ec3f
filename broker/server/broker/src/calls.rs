//! The queue of calls to a worker. The crate `threads` checks it with loom's locks.

use crate::sync::Mutex;
use std::sync::PoisonError;

/// Calls that wait for a worker.
pub struct Calls<T>(Mutex<Vec<T>>);

impl<T> Calls<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Add a call. `wake` is called if the worker may not know that there are any.
    pub fn add(&self, call: T, wake: impl FnOnce()) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
        if calls.len() == 1 {
            wake();
        }
    }

    /// How many calls wait.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Take all calls, in order. `heard` resets the wake-up. It is called first: otherwise a call
    /// that comes between would be missed.
    pub fn take(&self, heard: impl FnOnce()) -> Vec<T> {
        heard();
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
