//! What the program and its agents on other machines say to each other, each as a line of JSON.

use crate::protocol::tls::Pem;
use crate::results::tally::Tally;
use crate::settings::scenario::Scenario;
use crate::system::clocks::Interval;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Both ends have to be of the same version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// From the command to begin until the first message is due, in ns.
pub const LEAD_NS: u64 = 500_000_000;
/// How long the agent waits for its next command.
pub const SILENCE: Duration = Duration::from_secs(120);

/// What a machine is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The whole scenario.
    pub scenario: Scenario,
    /// Which of its machines this is.
    pub own: usize,
    /// Where the broker is, as seen there.
    pub broker: String,
    /// Whether to speak MQTT 5.
    pub v5: bool,
    /// Name and password.
    pub login: Option<(String, Vec<u8>)>,
    /// Certificates and key for TLS.
    pub pem: Pem,
    /// What topics begin with.
    pub prefix: String,
    /// How long an answer may take, in s.
    pub patience_s: f64,
}

/// How to run a trial.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct How {
    /// What the intervals of the load are multiplied by.
    pub scale: f64,
    /// Silence after which missing copies count as lost, in s.
    pub patience_s: f64,
    /// Whether to report each message's times, and the clock's interval with them.
    pub times: bool,
}

impl How {
    /// The same as a duration.
    pub fn patience(&self) -> Duration {
        Duration::try_from_secs_f64(self.patience_s).unwrap_or(Duration::from_secs(5))
    }
}

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// Its version; the first line.
    Hello(String),
    /// Its clients are connected, and its clock has been read.
    Ready,
    /// The result of a trial.
    Done(Box<Part>),
    /// Why it failed.
    Failed(String),
}

/// What is known of a clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Clock {
    /// Its error during the run.
    Known(Interval),
    /// Why its error is not known.
    Unknown(String),
}

macro_rules! counts {
    ($($field:ident)*) => {
        /// What a machine counted.
        #[derive(Debug, Default, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "as in Tally")]
        pub struct Counts {
            $(pub $field: u64,)*
        }

        impl Counts {
            /// Those of a tally.
            pub fn of(tally: &Tally) -> Self {
                Self { $($field: tally.$field,)* }
            }

            /// Adds them to a tally.
            pub fn add_to(&self, tally: &mut Tally) {
                $(tally.$field = tally.$field.saturating_add(self.$field);)*
            }
        }
    };
}

counts! {
    offered ingress owed egress sent copies delivered duplicates disorder belated refused
    unanswered together
}

/// The result of one machine; times by its own clock, in ns.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// What it counted.
    pub counts: Counts,
    /// By how much a stamp that several copies share may be late.
    pub together_ns: u64,
    /// When its first message was due.
    pub begin: u64,
    /// When its last copy came or its last message left.
    pub last_ns: u64,
    /// Whether its publishers have sent all their messages.
    pub is_over: bool,
    /// Copies or messages without a stamp of the kernel.
    pub unstamped: u64,
    /// Segments that TCP sent again.
    pub resent: u64,
    /// From 0 to 1: its own processor time, idle processors, fullest receive queue.
    pub shares: [f64; 3],
    /// Percentiles of its lateness, in us; none where it published nothing.
    pub late_us: Vec<f64>,
    /// What limited it other than the broker.
    pub bottlenecks: Vec<String>,
    /// Whether its stamps are the kernel's.
    pub stamped: bool,
    /// Its clock, if times were asked for.
    pub clock: Option<Clock>,
    /// Publisher, number, time due and time left of each message in the window.
    pub left: Vec<(u32, u64, u64, u64)>,
    /// Publisher, number and stamp of each copy.
    pub heard: Vec<(u32, u64, u64)>,
}

/// Returns the last line of a program's error output, without control characters.
pub fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or("it said nothing").trim();
    line.chars()
        .filter(|one| !one.is_control())
        .take(200)
        .collect()
}
