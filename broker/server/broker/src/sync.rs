//! The locks that the crate `threads` replaces by loom's.

pub use std::sync::Mutex;
