//! The program: configuration, listeners, connections, sessions, delivery.

mod activation;
mod calls;
mod connection;
mod desk;
mod entry;
mod exchange;
mod ledger;
mod link;
mod listener;
mod log;
mod memory;
mod message;
mod metrics;
mod poller;
pub mod program;
mod residence;
mod scrape;
mod session;
pub mod settings;
mod shared;
mod socket;
mod supervisor;
mod sync;
mod tally;
pub mod transport;
mod udp;
mod worker;
