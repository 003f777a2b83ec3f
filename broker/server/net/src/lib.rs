//! What several programs have around their protocols: sockets and what carries MQTT over them, the
//! kernel's stamps, settings, and how a program starts, is watched, is asked and ends.

pub mod activation;
pub mod clock;
pub mod control;
pub mod datagrams;
pub mod failure;
pub mod listener;
pub mod log;
pub mod poller;
pub mod process;
pub mod residence;
pub mod scrape;
pub mod settings;
pub mod socket;
pub mod supervisor;
pub mod transport;
pub mod wire;
