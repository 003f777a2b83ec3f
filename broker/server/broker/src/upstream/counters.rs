//! What is counted of the upstream.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The names of the counters, in the order of [`Count`].
const NAMES: [&str; 6] = [
    "connections",
    "failures",
    "published",
    "received",
    "refused",
    "dropped",
];

/// What is counted.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum Count {
    Connections,
    Failures,
    Published,
    Received,
    Refused,
    Dropped,
}

/// What has happened since the start.
#[derive(Default)]
pub struct Counters {
    /// Present connections that the upstream has accepted.
    pub connected: AtomicU64,
    counts: [AtomicU64; NAMES.len()],
}

impl Counters {
    pub(super) fn add(&self, what: Count) {
        if let Some(count) = self.counts.get(what as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// The counters, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES
            .into_iter()
            .zip(self.counts.iter().map(|one| one.load(Relaxed)))
    }
}
