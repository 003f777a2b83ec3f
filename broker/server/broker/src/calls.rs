//! What other threads ask a worker to do. `threads` models it with loom's locks.

use crate::sync::Mutex;
use std::sync::PoisonError;

/// Calls that wait for a worker.
pub struct Calls<T>(Mutex<Vec<T>>);

impl<T> Calls<T> {
    /// None yet.
    pub fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Add one; `wake` is called where the worker may not know that there are any.
    pub fn add(&self, call: T, wake: impl FnOnce()) {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.push(call);
        if calls.len() == 1 {
            wake();
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Take all, in their order. `heard` takes back that the worker was woken: before it looks, or
    /// it would miss who calls in between.
    pub fn take(&self, heard: impl FnOnce()) -> Vec<T> {
        heard();
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
