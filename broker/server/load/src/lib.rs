//! Measures an MQTT broker over TCP, UDP or MQTT-SN: throughput, latency, first-to-last skew, loss
//! and order by the kernel's stamps, and what processor time and memory the broker takes for it.

use std::fmt;

pub mod agent;
pub mod blocks;
mod check;
pub mod clocks;
pub mod command;
pub mod connection;
pub mod contest;
pub mod crew;
pub mod datagrams;
mod dial;
pub mod engine;
pub mod fanout;
mod faults;
pub mod fleet;
pub mod floor;
pub mod help;
pub mod idle;
pub mod limit;
pub mod limits;
pub mod machine;
pub mod machines;
pub mod mqttloader;
pub mod options;
pub mod pairs;
pub mod places;
pub mod process;
mod receive;
pub mod report;
pub mod resent;
pub mod scenario;
pub mod scenario_run;
pub mod schedule;
pub mod search;
pub mod sender;
pub mod sensor;
pub mod sequence;
pub mod stamps;
pub mod stop;
pub mod tally;
pub mod target;
pub mod tls;
mod trial;
pub mod unsent;
pub mod values;
pub mod wire;

/// Why a measurement ended early.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Wrong use: exit code 2.
    Use(String),
    /// The broker or the machine failed: exit code 1.
    Failed(String),
    /// Ctrl-C or SIGTERM: exit code 130.
    Stopped,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Use(text) | Self::Failed(text) => f.write_str(text),
            Self::Stopped => f.write_str("stopped: the figures are those until then"),
        }
    }
}

impl std::error::Error for Failure {}

/// The result of most functions here.
pub type Outcome<T> = Result<T, Failure>;

/// Makes a failure of a system call.
pub fn system(what: &str) -> impl FnOnce(nix::Error) -> Failure + '_ {
    move |error| Failure::Failed(format!("{what}: {}.", error.desc()))
}
