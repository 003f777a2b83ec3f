//! Joins MQTT brokers of any kind: a node stands between each broker and its clients, and nodes
//! exchange what others need.

pub mod client;
mod connection;
pub mod cooperation;
mod delivery;
pub mod manager;
pub mod message;
pub mod node;
pub mod program;
mod rarely;
pub mod residence;
pub mod retained;
pub mod sessions;
pub mod settings;
mod status;
pub mod topology;
pub mod words;
