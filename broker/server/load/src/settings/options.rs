//! The options: their defaults, and which contradict each other.

use mqtick_packet::{Qos, Version};
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::protocol::target::{Target, tls_host};
use crate::protocol::tls::Pem;
use crate::settings::command::Command;
use crate::system::clocks::now_ns;
use mqtick_net::failure::{Failure, Outcome, refuse_if};

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
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|one| one == name)
    }

    /// The parameters of a result; what is not listed has its default.
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
        refuse_if(
            self.command == Command::Run && self.file.is_none(),
            "run needs a file: a scenario (.toml) or a mqttloader.conf.",
        )?;
        let (burst, window) = (self.burst, self.window);
        refuse_if(
            self.command == Command::Pairs && burst as u64 > window,
            format!("--burst {burst} is more than --window {window}: a burst has to fit."),
        )?;
        let (subscribers, messages) = (self.subscribers, self.messages);
        refuse_if(
            subscribers * messages > 100_000_000,
            format!(
                "--subscribers {subscribers} times --messages {messages} is more than 100 million \
                 stamps: ask for fewer messages and more --repeats."
            ),
        )?;
        refuse_if(
            self.command == Command::Limit && self.repeats < 2,
            "--repeats 1: the spread of one bisection is not known, so at least 2.",
        )?;
        for name in ["trial", "resolution", "repeats"] {
            refuse_if(
                self.search == Search::Published && self.is_given(name),
                format!("--search published takes no --{name}; see --help."),
            )?;
        }
        refuse_if(
            self.command == Command::Idle && self.broker_pid.is_none(),
            "idle measures a process: name it by --broker-pid.",
        )?;
        refuse_if(
            self.rate.is_some() && burst > 1,
            "--rate and --burst exclude each other.",
        )?;
        let is_named = self.username.is_some();
        let is_plain = self.qos == Qos::AtMostOnce && self.version == Version::V3 && !is_named;
        refuse_if(
            self.udp && !is_plain,
            "--udp takes MQTT 3.1.1 and QoS 0 only, and no --username.",
        )?;
        refuse_if(
            self.sn && (self.udp || !is_plain),
            "--sn takes QoS 0 only, no --udp, and no --username.",
        )?;
        let is_datagrams = self.udp || self.sn;
        refuse_if(
            is_datagrams && tls_host(&self.broker).is_some(),
            "--udp and --sn take no TLS.",
        )?;
        refuse_if(
            is_datagrams && self.size > LONGEST_OVER_UDP,
            format!("--udp and --sn take --size {LONGEST_OVER_UDP} at most, to fit a datagram."),
        )?;
        let prefix = self.prefix.as_deref().unwrap_or_default();
        refuse_if(
            prefix.contains(['#', '+', '\0']),
            "--prefix must not contain # or +.",
        )?;
        refuse_if(
            self.password_file.is_some() && !is_named,
            "--password-file needs --username.",
        )
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
        refuse_if(
            !self.pem.is_empty() && tls_host(&self.broker).is_none(),
            format!(
                "--broker {} is reached without TLS, so --ca-file and --certificate-file protect \
                 nothing: write mqtts://, or leave them out.",
                self.broker
            ),
        )?;
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
