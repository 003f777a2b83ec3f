//! The MQTT broker: configuration, listeners, connections, sessions, delivery.
//!
//! `mqtick-join` uses the public modules: listeners, transports, settings and others.

pub mod activation;
mod batch;
mod calendar;
mod calls;
mod coalescing;
mod connection;
mod departures;
mod door;
mod gateway;
mod journal;
mod link;
pub mod listener;
pub mod log;
mod memory;
mod message;
mod metrics;
mod offload;
pub mod poller;
pub mod process;
pub mod program;
mod reason;
mod receiver;
mod remains;
pub mod residence;
mod retained;
mod router;
pub mod scrape;
mod sensor;
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
mod upstream;
pub mod wire;
mod worker;
