//! The options: their defaults, and which contradict each other.

use mqtick_packet::{Qos, Version};
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::failure::{Failure, Outcome};
use crate::protocol::target::{Target, tls_host};
use crate::protocol::tls::Pem;
use crate::settings::command::Command;
use crate::system::clocks::now_ns;

/// Octets of a payload beside which a datagram has room for the topic.
const LONGEST_OVER_UDP: usize = 1400;

/// How the limit is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Bisection of short trials, repeated.
    Fast,
    /// Doubling the interval, then 20 steps.
    Published,
}

/// All options, with their defaults.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "HELP describes them")]
pub struct Options {
    pub command: Command,
    /// Names of the options that were given.
    pub given: Vec<String>,
    pub broker: String,
    pub broker_pid: Option<i32>,
    pub version: Version,
    pub username: Option<String>,
    pub password_file: Option<String>,
    pub pem: Pem,
    pub prefix: Option<String>,
    pub patience: Duration,
    pub json: bool,
    pub qos: Qos,
    pub size: usize,
    pub repeats: usize,
    pub floor: bool,
    pub threads: usize,
    pub pairs: usize,
    pub window: u64,
    pub burst: usize,
    pub seconds: f64,
    pub persistent: bool,
    pub subscribers: usize,
    pub messages: usize,
    pub gap: Duration,
    pub rate: Option<f64>,
    pub kernel_stamps: bool,
    pub udp: bool,
    pub sn: bool,
    pub connections: usize,
    pub address: Ipv4Addr,
    pub port: u16,
    pub until_eof: bool,
    pub file: Option<String>,
    pub scenario: Option<String>,
    pub search: Search,
    pub trial: f64,
    pub resolution: f64,
    pub csv: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command: Command::Help,
            given: Vec::new(),
            broker: "127.0.0.1:1883".to_owned(),
            broker_pid: None,
            version: Version::V3,
            username: None,
            password_file: None,
            pem: Pem::default(),
            prefix: None,
            patience: Duration::from_secs(5),
            json: false,
            qos: Qos::AtMostOnce,
            size: 64,
            repeats: 5,
            floor: false,
            threads: 1,
            pairs: 1,
            window: 4096,
            burst: 32,
            seconds: 2.0,
            persistent: false,
            subscribers: 100,
            messages: 200,
            gap: Duration::from_millis(1),
            rate: None,
            kernel_stamps: true,
            udp: false,
            sn: false,
            connections: 1000,
            address: Ipv4Addr::LOCALHOST,
            port: 0,
            until_eof: false,
            file: None,
            scenario: None,
            search: Search::Fast,
            trial: 3.0,
            resolution: 0.02,
            csv: None,
        }
    }
}

impl Options {
    /// Whether an option was given.
    #[must_use]
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|one| one == name)
    }

    /// The parameters of a result; what is not listed has its default.
    #[must_use]
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let mqtt = match self.version {
            Version::V3 => "3.1.1",
            Version::V5 => "5",
        };
        let words: Vec<String> = std::env::args().skip(2).collect();
        vec![
            ("broker", self.broker.clone()),
            ("mqtt", mqtt.to_owned()),
            ("arguments", words.join(" ")),
        ]
    }

    /// Checks that the options do not contradict each other.
    ///
    /// # Errors
    /// [`Failure::Use`], with the option, the value and the limit.
    pub fn check(&self) -> Outcome<()> {
        if self.command == Command::Run && self.file.is_none() {
            let text = "run needs a file: a scenario (.toml) or a mqttloader.conf.";
            return Err(Failure::Use(text.to_owned()));
        }
        if self.command == Command::Pairs && self.burst as u64 > self.window {
            return Err(Failure::Use(format!(
                "--burst {} is more than --window {}: a burst has to fit.",
                self.burst, self.window
            )));
        }
        if self.subscribers * self.messages > 100_000_000 {
            return Err(Failure::Use(format!(
                "--subscribers {} times --messages {} is more than 100 million stamps: ask for \
                 fewer messages and more --repeats.",
                self.subscribers, self.messages
            )));
        }
        if self.command == Command::Limit && self.repeats < 2 {
            let text = "--repeats 1: the spread of one bisection is not known, so at least 2.";
            return Err(Failure::Use(text.to_owned()));
        }
        let of_fast = ["trial", "resolution", "repeats"];
        if self.search == Search::Published
            && let Some(name) = of_fast.iter().find(|one| self.is_given(one))
        {
            let text = format!("--search published takes no --{name}; see --help.");
            return Err(Failure::Use(text));
        }
        if self.command == Command::Idle && self.broker_pid.is_none() {
            return Err(Failure::Use(
                "idle measures a process: name it by --broker-pid.".to_owned(),
            ));
        }
        if self.rate.is_some() && self.burst > 1 {
            return Err(Failure::Use(
                "--rate and --burst exclude each other.".to_owned(),
            ));
        }
        let plain = self.qos == Qos::AtMostOnce && self.version == Version::V3;
        if self.udp && (!plain || self.username.is_some()) {
            return Err(Failure::Use(
                "--udp takes MQTT 3.1.1 and QoS 0 only, and no --username.".to_owned(),
            ));
        }
        if self.sn && (self.udp || !plain || self.username.is_some()) {
            return Err(Failure::Use(
                "--sn takes QoS 0 only, no --udp, and no --username.".to_owned(),
            ));
        }
        if (self.udp || self.sn) && tls_host(&self.broker).is_some() {
            return Err(Failure::Use("--udp and --sn take no TLS.".to_owned()));
        }
        if (self.udp || self.sn) && self.size > LONGEST_OVER_UDP {
            return Err(Failure::Use(format!(
                "--udp and --sn take --size {LONGEST_OVER_UDP} at most, to fit a datagram."
            )));
        }
        if self
            .prefix
            .as_ref()
            .is_some_and(|one| one.contains(['#', '+', '\0']))
        {
            return Err(Failure::Use("--prefix must not contain # or +.".to_owned()));
        }
        if self.password_file.is_some() && self.username.is_none() {
            return Err(Failure::Use("--password-file needs --username.".to_owned()));
        }
        Ok(())
    }

    /// Finds the broker.
    ///
    /// # Errors
    /// Where its name has no address, or the password cannot be read.
    pub fn target(&self) -> Outcome<Target> {
        let login = match (&self.username, &self.password_file) {
            (Some(name), Some(file)) => {
                let password = std::fs::read_to_string(file)
                    .map_err(|error| Failure::Use(format!("--password-file {file}: {error}.")))?;
                Some((
                    name.clone(),
                    password.trim_end_matches(['\r', '\n']).as_bytes().to_vec(),
                ))
            }
            (Some(name), None) => Some((name.clone(), Vec::new())),
            _ => None,
        };
        if !self.pem.is_empty() && tls_host(&self.broker).is_none() {
            return Err(Failure::Use(format!(
                "--broker {} is reached without TLS, so --ca-file and --certificate-file protect \
                 nothing: write mqtts://, or leave them out.",
                self.broker
            )));
        }
        let target = Target {
            who: "broker",
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            pem: self.pem.clone(),
            security: None,
            version: self.version,
            login,
            patience: self.patience,
            persistent: self.persistent,
            udp: self.udp,
            prefix: self
                .prefix
                .clone()
                .unwrap_or_else(|| format!("mqtick-load-{:x}", now_ns() / 1000)),
            sn: self.sn,
        };
        target.at(&self.broker)
    }
}
