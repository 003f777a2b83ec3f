//! The program: configuration, listeners, connections, sessions, delivery.

mod connection;
mod desk;
mod entry;
mod exchange;
mod ledger;
mod link;
mod listener;
mod log;
mod message;
mod poller;
pub mod program;
mod residence;
mod session;
pub mod settings;
mod shared;
mod socket;
pub mod transport;
mod worker;
