//! Measures an MQTT broker over TCP, UDP or MQTT-SN: throughput, latency, first-to-last skew, loss
//! and order by the kernel's stamps, and what processor time and memory the broker takes for it.

pub mod commands;
pub mod floor;
pub mod protocol;
pub mod remote;
pub mod results;
pub mod run;
pub mod settings;
pub mod system;
