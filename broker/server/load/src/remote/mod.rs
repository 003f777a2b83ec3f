//! A scenario on several machines.

pub mod agent;
pub mod crew;
pub mod fleet;
pub mod machines;
pub mod message;
