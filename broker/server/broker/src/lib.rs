//! broker

pub mod transport;
