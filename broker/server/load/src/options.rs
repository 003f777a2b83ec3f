//! The command line.

use lexopt::prelude::*;
use mqtick_packet::{Qos, Version};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::connection::Target;
use crate::{Failure, Outcome};

/// What `--help` prints.
pub const HELP: &str = "\
mqtick-load: measure an MQTT broker over TCP, over UDP (broker/spec/mqtt-udp.md), or over MQTT-SN

  mqtick-load limit  mqtt://HOST[:PORT] [OPTION]...   how much the broker carries, and how surely
  mqtick-load run    FILE [OPTION]...   a scenario (.toml), or a mqttloader.conf, as it is
  mqtick-load pairs  [OPTION]...   1:1 topics: messages a second, processor time a message
  mqtick-load fanout [OPTION]...   one publisher: delay, first-to-last skew, processor time a copy
  mqtick-load idle   [OPTION]...   memory of a connection that does nothing
  mqtick-load floor  [OPTION]...   only serve, by bare system calls, until standard input ends

limit publishes by an open-loop schedule, and finds the shortest interval at which at least 99 % of
the copies come as fast as messages are published: 5 topics, each with 10 publishers and 10
subscribers, 32 octets, QoS 0; latency and skew by a publisher and 5 subscribers beside them.

One thread, one epoll. Delays are by the kernel's receive stamps (SO_TIMESTAMPNS); while messages
are on their way the generator sleeps, so that the broker's sends wake nobody.

All but floor:
  --broker HOST[:PORT]   where the broker listens (127.0.0.1:1883)
  --broker-pid PID       its process: its processor time and memory are printed, too
  --mqtt 3.1.1|5         which MQTT to speak (3.1.1)
  --username NAME, --password-file FILE   log in
  --prefix TOPIC         what topics begin with, of nobody else (mqtick-load-NUMBER)
  --patience SECONDS     how long an answer or a copy may take (5)
  --json                 print JSON instead of a table
limit:
  --search fast|published  fast: bisection of short trials, repeated, whose spread gives the
                         uncertainty; published: 80 s a trial, doubling and 20 steps, 5 % (fast)
  --trial SECONDS        of the fast search (3)
  --resolution PERCENT   of the fast search (2)
  --repeats N            of the bisection, at least 2 (5)
  --scenario FILE        another scenario; its groups of kind load are varied
  --page FILE            write a page (HTML), too
run:
  --csv FILE             write each message and copy as MQTTLoader does
  --repeats N            (1)
pairs and fanout:
  --qos 0|1              (0)
  --size OCTETS          of the payload, at least 8 (64)
  --repeats N            blocks that are measured, after one that is not (5)
  --floor                measure bare system calls, too, block by block in turn with the broker
  --threads N            threads of the floor: as many as the broker has (1)
pairs:
  --pairs N              publishers, each with a topic and a subscriber of its own (1)
  --window N             messages of a pair that may be on their way (4096)
  --burst N              messages a write (32)
  --seconds S            a block (2)
  --persistent           the broker keeps the subscribers' sessions, so that a QoS 1 message is
                         durable before it is acknowledged; they are removed at the end
fanout:
  --subscribers N        (100)
  --messages N           a block (200)
  --gap MS               pause between a message's last copy and the next message (1)
  --rate N               messages a second instead, sent when they are due whatever came back;
                         delays count from when each was due
  --burst N              messages at once, instead of one after the copies of another (1)
  --stamps kernel|clock  clock: read after each receive, where the kernel has no stamps (kernel)
  --udp                  over UDP, the floor is one sendmmsg(); MQTT 3.1.1, QoS 0, no --rate
  --sn                   over MQTT-SN, QoS 0; the same floor
  --until-eof            warm up with a message each 20 ms until standard input ends
idle:
  --connections N        (1000)
floor:
  --address IP           where to serve (127.0.0.1)
  --port N               (any; it is printed)
  --udp                  over UDP

Examples:
  mqtick-load limit mqtt://localhost --page limit.html
  mqtick-load run scenario.toml --broker localhost --json
  mqtick-load run mqttloader.conf --csv out.csv
  mqtick-load pairs --broker-pid $(pidof mosquitto) --floor
  mqtick-load fanout --subscribers 600 --broker-pid $(pidof mosquitto) --floor --json
  mqtick-load fanout --subscribers 10 --rate 1000 --messages 2000
  mqtick-load idle --connections 10000 --broker-pid $(pidof mosquitto)

Exit codes: 0 measured, 1 failed, 2 wrong use, 130 stopped by Ctrl-C (what was measured is printed).
";

/// Octets of a payload beside which a datagram has room for the topic.
const LONGEST_OVER_UDP: usize = 1400;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// How much a broker carries.
    Limit,
    /// A scenario.
    Run,
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// 1:1 topics.
    Pairs,
    /// One publisher, many subscribers.
    Fanout,
    /// Connections that do nothing.
    Idle,
    /// Serve as a peer.
    Floor,
}

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
#[expect(
    missing_docs,
    reason = "they are the options' names; HELP says what they mean"
)]
pub struct Options {
    pub command: Command,
    pub broker: String,
    pub broker_pid: Option<i32>,
    pub version: Version,
    pub username: Option<String>,
    pub password_file: Option<String>,
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
    pub page: Option<String>,
    pub csv: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command: Command::Help,
            broker: "127.0.0.1:1883".to_owned(),
            broker_pid: None,
            version: Version::V3,
            username: None,
            password_file: None,
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
            page: None,
            csv: None,
        }
    }
}

const COMMON: [&str; 8] = [
    "broker",
    "broker-pid",
    "mqtt",
    "username",
    "password-file",
    "prefix",
    "patience",
    "json",
];
const BOTH: [&str; 5] = ["qos", "size", "repeats", "floor", "threads"];

impl Command {
    fn takes(self, option: &str) -> bool {
        let own: &[&str] = match self {
            Self::Pairs => &["pairs", "window", "burst", "seconds", "persistent"],
            Self::Fanout => &[
                "subscribers",
                "messages",
                "gap",
                "rate",
                "burst",
                "stamps",
                "udp",
                "sn",
                "until-eof",
            ],
            Self::Limit => &[
                "search",
                "trial",
                "resolution",
                "repeats",
                "scenario",
                "page",
            ],
            Self::Run => &["csv", "repeats"],
            Self::Idle => &["connections"],
            Self::Floor => &["address", "port", "threads", "until-eof", "udp"],
            Self::Help | Self::Version => &[],
        };
        own.contains(&option)
            || (!matches!(self, Self::Floor | Self::Help | Self::Version)
                && COMMON.contains(&option))
            || (matches!(self, Self::Pairs | Self::Fanout) && BOTH.contains(&option))
    }

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Run => "run",
            Self::Pairs => "pairs",
            Self::Fanout => "fanout",
            Self::Idle => "idle",
            Self::Floor => "floor",
            Self::Help => "--help",
            Self::Version => "--version",
        }
    }
}

impl Options {
    /// Reads a command line, without the program's name.
    ///
    /// # Errors
    /// [`Failure::Use`], with what is wrong.
    pub fn parse(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Outcome<Self> {
        let wrong =
            |error: lexopt::Error| Failure::Use(format!("{error}; see mqtick-load --help."));
        let mut options = Self::default();
        let mut parser = lexopt::Parser::from_args(arguments);
        while let Some(argument) = parser.next().map_err(wrong)? {
            let name = match argument {
                Short('h') => "help".to_owned(),
                Short('V') => "version".to_owned(),
                Long(name) => name.to_owned(),
                Value(word) if options.command == Command::Help => {
                    options.command = match word.to_str() {
                        Some("limit") => Command::Limit,
                        Some("run") => Command::Run,
                        Some("pairs") => Command::Pairs,
                        Some("fanout") => Command::Fanout,
                        Some("idle") => Command::Idle,
                        Some("floor") => Command::Floor,
                        _ => {
                            let text = format!(
                                "{word:?} is neither limit, run, pairs, fanout, idle nor floor; see \
                                 --help."
                            );
                            return Err(Failure::Use(text));
                        }
                    };
                    match options.command {
                        Command::Fanout => options.burst = 1,
                        Command::Run => options.repeats = 1,
                        _ => {}
                    }
                    continue;
                }
                Value(word) => {
                    let word = word.string().map_err(wrong)?;
                    options.operand(word)?;
                    continue;
                }
                other => return Err(wrong(other.unexpected())),
            };
            match name.as_str() {
                "help" => {
                    return Ok(Self {
                        command: Command::Help,
                        ..options
                    });
                }
                "version" => {
                    return Ok(Self {
                        command: Command::Version,
                        ..options
                    });
                }
                name if !options.command.takes(name) => {
                    let command = options.command;
                    let text = match command {
                        Command::Help => format!("--{name}: name the command first; see --help."),
                        _ => format!("{} takes no --{name}; see --help.", command.name()),
                    };
                    return Err(Failure::Use(text));
                }
                name => options.take(name, &mut parser)?,
            }
        }
        if options.command == Command::Help {
            return Err(Failure::Use(
                "say what to measure: limit, run, pairs, fanout or idle; see --help.".to_owned(),
            ));
        }
        options.check()?;
        Ok(options)
    }

    /// Takes the word after `limit` or `run`.
    fn operand(&mut self, word: String) -> Outcome<()> {
        match self.command {
            Command::Limit => self.broker = broker_of(&word)?,
            Command::Run if self.file.is_none() => self.file = Some(word),
            command => {
                let text = format!("{} takes no {word:?}; see --help.", command.name());
                return Err(Failure::Use(text));
            }
        }
        Ok(())
    }

    fn take(&mut self, name: &str, parser: &mut lexopt::Parser) -> Outcome<()> {
        match name {
            "json" => self.json = true,
            "floor" => self.floor = true,
            "udp" => self.udp = true,
            "sn" => self.sn = true,
            "persistent" => self.persistent = true,
            "until-eof" => self.until_eof = true,
            _ => {
                let value = parser
                    .value()
                    .map_err(|_| Failure::Use(format!("--{name} needs a value.")))?;
                let value = value
                    .string()
                    .map_err(|_| Failure::Use(format!("--{name}: not UTF-8.")))?;
                self.set(name, value)?;
            }
        }
        Ok(())
    }

    /// Returns the address of a broker that a file names; `--broker` says otherwise.
    ///
    /// # Errors
    /// Where its name has none.
    pub fn address_of(&self, broker: &str) -> Outcome<SocketAddr> {
        let given = self.broker != Self::default().broker;
        address(if given { &self.broker } else { broker })
    }

    fn set(&mut self, name: &str, value: String) -> Outcome<()> {
        match name {
            "broker" => self.broker = broker_of(&value)?,
            "broker-pid" => self.broker_pid = Some(number(name, &value, 1, i32::MAX)?),
            "mqtt" => {
                self.version = one_of(name, &value, &[("3.1.1", Version::V3), ("5", Version::V5)])?;
            }
            "username" => self.username = Some(value),
            "password-file" => self.password_file = Some(value),
            "prefix" => self.prefix = Some(value),
            "patience" => self.patience = seconds(name, &value, 0.01, 3600.0)?,
            "qos" => {
                self.qos = one_of(
                    name,
                    &value,
                    &[("0", Qos::AtMostOnce), ("1", Qos::AtLeastOnce)],
                )?;
            }
            "size" => self.size = number(name, &value, crate::wire::LEAST_SIZE, 1 << 20)?,
            "repeats" => self.repeats = number(name, &value, 1, 10_000)?,
            "threads" => self.threads = number(name, &value, 1, 256)?,
            "pairs" => self.pairs = number(name, &value, 1, 100_000)?,
            "window" => self.window = number(name, &value, 1, 65_535)?,
            "burst" => self.burst = number(name, &value, 1, 65_535)?,
            "seconds" => self.seconds = number(name, &value, 0.01, 3600.0)?,
            "subscribers" => self.subscribers = number(name, &value, 1, 1_000_000)?,
            "messages" => self.messages = number(name, &value, 1, 10_000_000)?,
            "gap" => self.gap = Duration::from_secs_f64(number(name, &value, 0.0, 60_000.0)? / 1e3),
            "rate" => self.rate = Some(number(name, &value, 0.001, 10_000_000.0)?),
            "stamps" => {
                self.kernel_stamps = one_of(name, &value, &[("kernel", true), ("clock", false)])?
            }
            "address" => {
                self.address = value.parse().map_err(|_| {
                    Failure::Use(format!("--address {value}: give an IPv4 address."))
                })?;
            }
            "search" => {
                let known = [("fast", Search::Fast), ("published", Search::Published)];
                self.search = one_of(name, &value, &known)?;
            }
            "trial" => self.trial = number(name, &value, 0.1, 3600.0)?,
            "resolution" => self.resolution = number(name, &value, 0.1, 20.0)? / 100.0,
            "scenario" => self.scenario = Some(value),
            "page" => self.page = Some(value),
            "csv" => self.csv = Some(value),
            "connections" => self.connections = number(name, &value, 10, 1_000_000)?,
            _ => self.port = number(name, &value, 0, u16::MAX)?,
        }
        Ok(())
    }

    fn check(&self) -> Outcome<()> {
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
        if self.udp && (!plain || self.rate.is_some() || self.username.is_some()) {
            return Err(Failure::Use(
                "--udp: MQTT 3.1.1, QoS 0, no accounts, one message at a time.".to_owned(),
            ));
        }
        if self.sn && (self.udp || !plain || self.username.is_some()) {
            return Err(Failure::Use(
                "--sn: without --udp, QoS 0, no accounts.".to_owned(),
            ));
        }
        if (self.udp || self.sn) && self.size > LONGEST_OVER_UDP {
            return Err(Failure::Use(format!(
                "--udp, --sn: a datagram holds --size {LONGEST_OVER_UDP} at most."
            )));
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
        Ok(Target {
            who: "broker",
            address: address(&self.broker)?,
            version: self.version,
            login,
            patience: self.patience,
            persistent: self.persistent,
            udp: self.udp,
            prefix: self
                .prefix
                .clone()
                .unwrap_or_else(|| format!("mqtick-load-{:x}", crate::stamps::now_ns() / 1000)),
            sn: self.sn,
        })
    }
}

/// Returns host and port of an address such as `mqtt://HOST:PORT`, or of that without a scheme.
pub fn broker_of(address: &str) -> Outcome<String> {
    match address.split_once("://") {
        None | Some(("mqtt", _)) => {
            let name = address.trim_start_matches("mqtt://").trim_end_matches('/');
            Ok(name.to_owned())
        }
        Some((scheme, _)) => Err(Failure::Use(format!(
            "{address}: mqtick-load speaks mqtt, not {scheme}: give mqtt://HOST[:PORT]."
        ))),
    }
}

/// Finds the address of a broker; its port is the usual one where it is not said.
///
/// # Errors
/// Where its name has none.
pub fn address(broker: &str) -> Outcome<SocketAddr> {
    let unknown = |why: &str| Failure::Use(format!("--broker {broker}: {why}."));
    let has_port = match broker.rsplit_once(':') {
        Some((host, _)) => !host.contains(':') || host.ends_with(']'),
        None => false,
    };
    let name = if has_port {
        broker.to_owned()
    } else {
        format!("{broker}:1883")
    };
    let found = name
        .to_socket_addrs()
        .map_err(|error| unknown(&error.to_string()))?
        .next();
    found.ok_or_else(|| unknown("this name has no address"))
}

fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    name: &str,
    value: &str,
    least: T,
    most: T,
) -> Outcome<T> {
    match value.parse::<T>() {
        Ok(found) if found >= least && found <= most => Ok(found),
        _ => Err(Failure::Use(format!(
            "--{name} {value}: give a number from {least} to {most}."
        ))),
    }
}

fn seconds(name: &str, value: &str, least: f64, most: f64) -> Outcome<Duration> {
    number(name, value, least, most).map(Duration::from_secs_f64)
}

fn one_of<T: Copy>(name: &str, value: &str, known: &[(&str, T)]) -> Outcome<T> {
    let found = known
        .iter()
        .find(|(word, _)| *word == value)
        .map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        Failure::Use(format!("--{name} {value}: give {}.", words.join(" or ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Options> {
        Options::parse(line.split_whitespace().map(Into::into))
    }

    #[test]
    fn each_option_is_taken_by_the_command_that_it_is_for() {
        let options =
            parse("pairs --pairs 10 --window 64 --burst 8 --qos 1 --mqtt 5 --json").unwrap();
        assert_eq!((options.pairs, options.window, options.burst), (10, 64, 8));
        assert_eq!(
            (options.qos, options.version, options.json),
            (Qos::AtLeastOnce, Version::V5, true)
        );
        let options = parse("fanout --subscribers=7 --rate 2.5 --gap 0.5 --stamps clock").unwrap();
        assert_eq!(
            (options.subscribers, options.rate, options.kernel_stamps),
            (7, Some(2.5), false)
        );
        assert_eq!(options.gap, Duration::from_micros(500));
    }

    #[test]
    fn wrong_use_is_told_with_the_value_and_the_limit() {
        for (line, text) in [
            ("", "say what to measure"),
            ("dance", "\"dance\" is neither limit"),
            ("--json", "name the command first"),
            ("pairs --rate 3", "pairs takes no --rate"),
            ("fanout --window 3", "fanout takes no --window"),
            ("pairs --size 4", "--size 4: give a number from 8"),
            ("pairs --qos 2", "--qos 2: give 0 or 1"),
            (
                "pairs --burst 9 --window 8",
                "--burst 9 is more than --window 8",
            ),
            ("pairs --burst", "--burst needs a value"),
            (
                "fanout --subscribers 1000000 --messages 101",
                "100 million stamps",
            ),
            ("fanout --password-file x", "needs --username"),
            ("fanout --udp --rate 3", "one message at a time"),
            ("fanout --udp --size 2000", "a datagram holds"),
            ("fanout --sn --qos 1", "--sn: without --udp, QoS 0"),
            ("fanout --burst 2 --rate 9", "exclude each other"),
            ("floor --address x", "give an IPv4 address"),
            ("pairs --udp", "pairs takes no --udp"),
            ("idle", "--broker-pid"),
            ("run", "run needs a file"),
            ("run a b", "run takes no \"b\""),
            ("pairs a", "pairs takes no \"a\""),
            ("limit mqtts://h", "speaks mqtt, not mqtts"),
            ("limit --trial 0", "--trial 0: give a number from 0.1"),
            ("limit --search x", "give fast or published"),
            ("limit --qos 1", "limit takes no --qos"),
            ("pairs --json=yes", "unexpected argument"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(
                matches!(&error, Failure::Use(found) if found.contains(text)),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn a_broker_has_a_port_or_the_usual_one() {
        for (name, expected) in [
            ("127.0.0.1", "127.0.0.1:1883"),
            ("127.0.0.1:99", "127.0.0.1:99"),
            ("[::1]", "[::1]:1883"),
            ("[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(address(name).unwrap().to_string(), expected);
        }
        assert!(address("127.0.0.1:x").is_err());
    }
}
