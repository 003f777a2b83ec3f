//! The broker, and connections to it.

pub mod connection;
pub mod dial;
pub mod sensor;
pub mod target;
pub mod tls;
pub mod wire;
