//! The command line.

use lexopt::prelude::*;
use mqtick_topics::valid_filter;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::rc::Rc;

use crate::clock::SECOND_NS;
use crate::rules::{Broker, Protocol};
use crate::settings::{LONGEST_SETTLE_NS, Settings};
use mqtick_net::failure::{Failure, Outcome};

/// The text of `--help`.
pub const HELP: &str = "\
mqtick-accelerate: copy publishes over UDP to their subscribers before they reach the broker

  mqtick-accelerate --interface NAME --broker HOST[:PORT] [OPTION]...
  mqtick-accelerate --proxy ADDRESS:PORT --broker HOST[:PORT] [OPTION]...
  mqtick-accelerate status [--json] [--control PATH]
  mqtick-accelerate broker-started [--control PATH]

It watches who subscribes to what, and copies publishes of QoS 0 that are not retained; all else goes
through the broker, and everything does once it is stopped. Which publishes it leaves to the broker,
and why, says `status`; broker/spec/acceleration.md says what it must know first.

  --interface NAME     the kernel copies what comes in here; several may be named (root)
  --broker-side NAME   this host is a bridge or router, and the broker is behind this interface
  --vlan N             the broker's VLAN, if this host sees the tags (0: none)
  --proxy ADDRESS:PORT clients talk to this address instead of the broker's, and this program copies:
                       for kernels that cannot. With --interface: only if the kernel cannot, and
                       `status` says why; clients must find it there then
  --broker HOST[:PORT] where the broker listens (port 1883) for MQTT-SN; mqtt+udp://HOST[:PORT]: for
                       MQTT over UDP, with --feed. Both may be given, if it has both
  --feed PATH          the broker is mqtick-broker on this host, and says at this place what may be
                       copied (delivery.accelerate in its configuration): nothing has to be declared
                       or waited for
  --only FILTER        topics whose subscribers are all MQTT-SN clients that come this way, and
                       which all of those may publish to; several may be given. Without it nothing
                       is copied, since only you know that
  --residence FILTER   topics of mqtick's time messages: each copy says how long it was in this host
                       (broker/spec/residence.md); several may be given
  --predefined ID=NAME the name of a predefined topic id; several may be given
  --fresh              the broker has no sessions yet: it is started after this program
  --settle SECONDS     else: wait so long for clients that were there before; at least one and a half
                       times the longest keep-alive or sleep (98302, the longest there can be)
  --rules N            topics of publishers that are copied at a time (4096)
  --control PATH       where `status` asks (/run/mqtick-accelerate.sock)

`broker-started` says that the broker is about to be started and has no sessions; say it while none
runs (ExecStartPre= of its unit).

Examples:
  mqtick-accelerate --interface eth0 --broker 192.0.2.1 --only 'sensors/#' --fresh
  mqtick-accelerate --interface eth0 --broker 192.0.2.1:1883 --only '#' --settle 90
  mqtick-accelerate --interface eth0 --broker 192.0.2.1 --feed /run/mqtick-broker/accelerate
  mqtick-accelerate --interface eth0 --broker mqtt+udp://192.0.2.1 --feed /run/mqtick-broker/accelerate
  mqtick-accelerate --proxy 0.0.0.0:1884 --broker 127.0.0.1:1883 --only 'time/#' --settle 90
  mqtick-accelerate status --json

Exit codes: 0 done, or stopped by SIGTERM or Ctrl-C; 1 failed; 2 wrong use.
";

/// The default path of the socket for `status`.
pub const CONTROL: &str = "/run/mqtick-accelerate.sock";

/// The data plane to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Where {
    /// The kernel, on these interfaces.
    Kernel {
        /// Their names.
        interfaces: Vec<String>,
        /// The interface on the broker's side, if the broker is another host.
        broker_side: Option<String>,
        /// The proxy's address if the kernel cannot copy.
        fallback: Option<SocketAddr>,
    },
    /// This program, at this address.
    Proxy(SocketAddr),
}

/// The task of the program.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of it")]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Print the version.
    Version,
    /// Copy messages.
    Run {
        /// The data plane.
        plane: Where,
        /// The brokers, at one address: at most one for each protocol.
        brokers: Vec<Broker>,
        /// The settings of the controller.
        settings: Settings,
        /// The most rules.
        rules: usize,
    },
    /// Ask the running program.
    Ask(&'static str),
}

/// The command line.
#[derive(Clone, Debug)]
pub struct Options {
    /// The task of the program.
    pub command: Command,
    /// The path of the socket for `status`.
    pub control: PathBuf,
    /// The path of the broker's socket that offers rules.
    pub feed: Option<PathBuf>,
}

#[derive(Default)]
struct Given {
    asked: Option<String>,
    json: bool,
    interfaces: Vec<String>,
    broker_side: Option<String>,
    vlan: u16,
    proxy: Option<SocketAddr>,
    brokers: Vec<Broker>,
    only: Vec<Rc<str>>,
    residence: Vec<Rc<str>>,
    predefined: BTreeMap<u16, Rc<str>>,
    fresh: bool,
    settle_s: Option<u64>,
    rules: Option<usize>,
    control: Option<PathBuf>,
    feed: Option<PathBuf>,
}

impl Options {
    /// Parse the command line.
    ///
    /// # Errors
    /// The command line is wrong.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Outcome<Self> {
        let mut parser = lexopt::Parser::from_args(arguments);
        let mut given = Given::default();
        let plain = given.read(&mut parser)?;
        let control = given.control.clone().unwrap_or_else(|| CONTROL.into());
        let feed = given.feed.clone();
        let command = match plain {
            Some(command) => command,
            None => given.command()?,
        };
        Ok(Self {
            command,
            control,
            feed,
        })
    }
}

impl Given {
    /// Read all arguments. Returns a command that only prints, if there is one.
    fn read(&mut self, parser: &mut lexopt::Parser) -> Outcome<Option<Command>> {
        let mut plain = None;
        while let Some(argument) = parser.next().map_err(wrong)? {
            match argument {
                Short('h') | Long("help") => plain = plain.or(Some(Command::Help)),
                Short('V') | Long("version") => plain = plain.or(Some(Command::Version)),
                Value(word) if self.asked.is_none() => {
                    self.asked = Some(word.to_string_lossy().into_owned());
                }
                Long("json") => self.json = true,
                Long("interface") => self.interfaces.push(interface(text(parser)?)?),
                Long("broker-side") => self.broker_side = Some(interface(text(parser)?)?),
                Long("vlan") => self.vlan = number("--vlan", &text(parser)?, 0, 4094)?,
                Long("proxy") => {
                    let text = text(parser)?;
                    let fault =
                        || Failure::Use(format!("--proxy '{text}' is not an ADDRESS:PORT."));
                    self.proxy = Some(text.parse().map_err(|_| fault())?);
                }
                Long("broker") => self.brokers.push(broker(&text(parser)?)?),
                Long("only") => self.only.push(filter("--only", &text(parser)?)?),
                Long("residence") => {
                    self.residence.push(filter("--residence", &text(parser)?)?);
                }
                Long("predefined") => {
                    let (id, name) = predefined(&text(parser)?)?;
                    self.predefined.insert(id, name);
                }
                Long("fresh") => self.fresh = true,
                Long("settle") => {
                    self.settle_s = Some(number("--settle", &text(parser)?, 1, 31_536_000)?);
                }
                Long("rules") => self.rules = Some(number("--rules", &text(parser)?, 1, 16_384)?),
                Long("feed") => self.feed = Some(text(parser)?.into()),
                Long("control") => self.control = Some(text(parser)?.into()),
                other => return Err(wrong(other.unexpected())),
            }
        }
        Ok(plain)
    }

    fn brokers(&self) -> Outcome<Vec<Broker>> {
        let mut brokers = self.brokers.clone();
        let first = *brokers.first().ok_or_else(no_broker)?;
        let is_alone = |one: &Broker| {
            let same = brokers
                .iter()
                .filter(|other| other.protocol == one.protocol);
            same.count() == 1 && one.address.ip() == first.address.ip()
        };
        if !brokers.iter().all(is_alone) {
            let text =
                "more than one --broker is for one that speaks both protocols at one address.";
            return Err(Failure::Use(text.to_owned()));
        }
        let is_udp = |one: &Broker| one.protocol == Protocol::MqttUdp;
        if self.feed.is_none() && brokers.iter().any(is_udp) {
            let text =
                "mqtt+udp:// needs --feed: only mqtick-broker says who is subscribed over it.";
            return Err(Failure::Use(text.to_owned()));
        }
        for one in &mut brokers {
            one.vlan = self.vlan;
        }
        Ok(brokers)
    }

    fn command(self) -> Outcome<Command> {
        match self.asked.as_deref() {
            Some("status") if self.json => return Ok(Command::Ask("status --json")),
            Some("status") => return Ok(Command::Ask("status")),
            Some("broker-started") => return Ok(Command::Ask("broker-started")),
            Some(other) => return Err(Failure::Use(format!("'{other}' is not a command."))),
            None => {}
        }
        let brokers = self.brokers()?;
        let plane = match (self.interfaces.is_empty(), self.proxy) {
            (true, None) => return Err(missing("--interface NAME or --proxy ADDRESS:PORT")),
            (_, Some(address)) if brokers.iter().any(|one| one.address == address) => {
                let text = "--proxy is the broker's own address.";
                return Err(Failure::Use(text.to_owned()));
            }
            (_, Some(_)) if brokers.len() > 1 => {
                let text = "--proxy stands before one --broker.";
                return Err(Failure::Use(text.to_owned()));
            }
            (true, Some(address)) => Where::Proxy(address),
            (false, fallback) => Where::Kernel {
                interfaces: self.interfaces,
                broker_side: self.broker_side,
                fallback,
            },
        };
        if self.fresh && self.settle_s.is_some() {
            let text = "--fresh and --settle exclude each other.";
            return Err(Failure::Use(text.to_owned()));
        }
        let guesses = self.fresh
            || self.settle_s.is_some()
            || !self.predefined.is_empty()
            || !(self.only.is_empty() && self.residence.is_empty());
        if self.feed.is_some() && guesses {
            let text = "with --feed the broker says what --only, --residence, --predefined, --fresh \
                        and --settle would.";
            return Err(Failure::Use(text.to_owned()));
        }
        let first = brokers.first().ok_or_else(no_broker)?;
        let mut settings = Settings::new(first.address);
        settings.only = self.only;
        settings.residence = self.residence;
        settings.predefined = self.predefined;
        settings.fresh = self.fresh;
        settings.settle_ns = self
            .settle_s
            .map_or(LONGEST_SETTLE_NS, |seconds| seconds * SECOND_NS);
        let rules = self.rules.unwrap_or(4096);
        Ok(Command::Run {
            plane,
            brokers,
            settings,
            rules,
        })
    }
}

fn no_broker() -> Failure {
    missing("--broker HOST[:PORT]")
}

fn wrong(error: lexopt::Error) -> Failure {
    Failure::Use(format!("{error}."))
}

fn missing(what: &str) -> Failure {
    Failure::Use(format!("{what} is missing."))
}

fn text(parser: &mut lexopt::Parser) -> Outcome<String> {
    let value = parser.value().map_err(wrong)?;
    value
        .into_string()
        .map_err(|value| Failure::Use(format!("{value:?} is not UTF-8.")))
}

fn number<T: TryFrom<u64>>(option: &str, text: &str, least: u64, most: u64) -> Outcome<T> {
    text.parse()
        .ok()
        .filter(|value| (least..=most).contains(value))
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| {
            Failure::Use(format!(
                "{option} '{text}' is not a number from {least} to {most}."
            ))
        })
}

/// Check that the kernel would accept this as an interface's name.
fn interface(name: String) -> Outcome<String> {
    let is_bad =
        |octet: u8| octet.is_ascii_whitespace() || octet < 0x21 || b"/'\"".contains(&octet);
    if name.is_empty() || name.len() > 15 || name.bytes().any(is_bad) {
        return Err(Failure::Use(format!(
            "'{name}' is not an interface's name."
        )));
    }
    Ok(name)
}

fn broker(text: &str) -> Outcome<Broker> {
    let fault = |why: &str| Failure::Use(format!("--broker '{text}': {why}."));
    let (protocol, place) = match text.split_once("://") {
        None => (Protocol::MqttSn, text),
        Some(("mqtt-sn", place)) => (Protocol::MqttSn, place),
        Some(("mqtt+udp", place)) => (Protocol::MqttUdp, place),
        Some(_) => return Err(fault("it is neither mqtt-sn:// nor mqtt+udp://")),
    };
    let found = match place.parse::<std::net::IpAddr>() {
        Ok(address) => Some(SocketAddr::new(address, 1883)),
        Err(_) if place.rsplit_once(':').is_some() => place
            .to_socket_addrs()
            .map_err(|error| fault(&error.to_string()))?
            .next(),
        Err(_) => (place, 1883)
            .to_socket_addrs()
            .map_err(|error| fault(&error.to_string()))?
            .next(),
    };
    match found {
        Some(address) if address.port() == 0 || address.ip().is_unspecified() => {
            Err(fault("nobody listens there"))
        }
        Some(address) => Ok(Broker {
            address,
            vlan: 0,
            protocol,
        }),
        None => Err(fault("there is no such host")),
    }
}

fn filter(option: &str, text: &str) -> Outcome<Rc<str>> {
    if !valid_filter(text) {
        return Err(Failure::Use(format!("{option} '{text}' is not a filter.")));
    }
    Ok(Rc::from(text))
}

fn predefined(text: &str) -> Outcome<(u16, Rc<str>)> {
    text.split_once('=')
        .and_then(|(id, name)| Some((id.parse().ok()?, name)))
        .filter(|(id, name)| *id != 0 && !name.is_empty() && !name.contains(['+', '#', '\0']))
        .map(|(id, name)| (id, Rc::from(name)))
        .ok_or_else(|| Failure::Use(format!("--predefined '{text}' is not ID=NAME.")))
}
