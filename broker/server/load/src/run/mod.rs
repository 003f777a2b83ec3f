//! The clients of a scenario, and a trial of theirs.

pub mod busy;
pub mod contest;
pub mod engine;
pub mod listener;
pub mod receive;
pub mod schedule;
pub mod sender;
pub mod sequence;
pub mod trial;
pub mod unsent;
