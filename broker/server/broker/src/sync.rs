//! The locks that `threads` replaces by loom's.

pub use std::sync::Mutex;
