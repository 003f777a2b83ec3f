//! Measures an MQTT broker over TCP, UDP or MQTT-SN: throughput, latency, first-to-last skew, loss and order by the
//! kernel's stamps, and what processor time and memory the broker takes for it.

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
mod format;
pub mod help;
pub mod idle;
pub mod limit;
pub mod limits;
pub mod machine;
pub mod machines;
pub mod mqttloader;
pub mod options;
pub mod page;
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
    /// The command line asks for something that cannot be: exit code 2.
    Use(String),
    /// The broker or the machine did not do what a measurement needs: exit code 1.
    Failed(String),
    /// Someone asked it to end (Ctrl-C): exit code 130.
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

/// What most functions here return.
pub type Outcome<T> = Result<T, Failure>;

/// Makes a failure of a system call that no broker is to blame for.
pub fn system(what: &str) -> impl FnOnce(nix::Error) -> Failure + '_ {
    move |error| Failure::Failed(format!("{what}: {}.", error.desc()))
}
