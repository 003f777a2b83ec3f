//! The MQTT broker: configuration, listeners, connections, sessions, delivery.
//!
//! `mqtick-join` uses the public modules: listeners, transports, settings and others.

pub mod activation;
mod batch;
mod calendar;
mod calls;
mod connection;
mod departures;
mod desk;
mod door;
mod entry;
mod exchange;
mod feed;
mod inlet;
mod ledger;
mod link;
pub mod listener;
pub mod log;
mod memory;
mod message;
mod metrics;
mod moderation;
pub mod poller;
pub mod program;
mod remains;
pub mod residence;
mod retained;
pub mod scrape;
mod search;
mod session;
pub mod settings;
mod shared;
mod sn;
pub mod socket;
pub mod supervisor;
mod sync;
mod tally;
pub mod transport;
mod udp;
pub mod upstream;
mod worker;
