//! The command line.

use crate::protocol::target::broker_of;
use crate::protocol::wire::LEAST_SIZE;
use crate::settings::command::Command;
use crate::settings::file::read;
use crate::settings::options::{Options, Search};
use lexopt::prelude::*;
use mqtick_net::failure::{Failure, Outcome};
use mqtick_packet::{Qos, Version};
use std::time::Duration;

/// What to say to who asks for the page that this program wrote before.
const PAGE: &str = "limit takes no --page: `mqtick-report limit limit.json` makes the page of what \
                    limit --json >limit.json prints.";

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
                    let found = word.to_str().and_then(Command::named);
                    options.command = found.ok_or_else(|| {
                        Failure::Use(format!(
                            "{word:?} is not limit, run, pairs, fanout, idle or floor; see --help."
                        ))
                    })?;
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
                "help" | "version" => {
                    let is_help = name == "help";
                    options.command = if is_help {
                        Command::Help
                    } else {
                        Command::Version
                    };
                    return Ok(options);
                }
                name if !options.command.takes(name) => {
                    let command = options.command;
                    let text = match command {
                        Command::Help => format!("--{name}: name the command first; see --help."),
                        Command::Limit if name == "page" => PAGE.to_owned(),
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
            Command::Limit if !self.is_given("broker") => {
                self.broker = broker_of(&word)?;
                self.given.push("broker".to_owned());
            }
            Command::Run if self.file.is_none() => self.file = Some(word),
            command => {
                let text = format!("{} takes no {word:?}; see --help.", command.name());
                return Err(Failure::Use(text));
            }
        }
        Ok(())
    }

    fn take(&mut self, name: &str, parser: &mut lexopt::Parser) -> Outcome<()> {
        self.given.push(name.to_owned());
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

    fn set(&mut self, name: &str, value: String) -> Outcome<()> {
        match name {
            "broker" => self.broker = broker_of(&value)?,
            "broker-pid" => self.broker_pid = Some(number(name, &value, 1, i32::MAX)?),
            "mqtt" => {
                self.version = one_of(name, &value, &[("3.1.1", Version::V3), ("5", Version::V5)])?;
            }
            "username" => self.username = Some(value),
            "password-file" => self.password_file = Some(value),
            "ca-file" => self.pem.ca = Some(read(&value)?),
            "certificate-file" => self.pem.certificate = Some(read(&value)?),
            "certificate-key-file" => self.pem.key = Some(read(&value)?),
            "prefix" => self.prefix = Some(value),
            "patience" => self.patience = seconds(name, &value, 0.01, 3600.0)?,
            "qos" => {
                self.qos = one_of(
                    name,
                    &value,
                    &[("0", Qos::AtMostOnce), ("1", Qos::AtLeastOnce)],
                )?;
            }
            "size" => self.size = number(name, &value, LEAST_SIZE, 1 << 20)?,
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
            "csv" => self.csv = Some(value),
            "connections" => self.connections = number(name, &value, 10, 1_000_000)?,
            _ => self.port = number(name, &value, 0, u16::MAX)?,
        }
        Ok(())
    }
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
            ("dance", "\"dance\" is not limit"),
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
            ("fanout --udp --qos 1", "MQTT 3.1.1 and QoS 0 only"),
            ("fanout --udp --size 2000", "to fit a datagram"),
            ("fanout --sn --qos 1", "--sn takes QoS 0 only, no --udp"),
            ("fanout --burst 2 --rate 9", "exclude each other"),
            ("floor --address x", "give an IPv4 address"),
            ("pairs --udp", "pairs takes no --udp"),
            ("idle", "--broker-pid"),
            ("run", "run needs a file"),
            ("run a b", "run takes no \"b\""),
            ("pairs a", "pairs takes no \"a\""),
            ("limit wss://h", "speaks mqtt and mqtts, not wss"),
            ("limit mqtts://h --ca-file /none", "/none: No such file"),
            (
                "fanout --sn --broker mqtts://h",
                "--udp and --sn take no TLS",
            ),
            ("limit --trial 0", "--trial 0: give a number from 0.1"),
            ("limit --search x", "give fast or published"),
            ("limit --qos 1", "limit takes no --qos"),
            (
                "limit h --page limit.html",
                "`mqtick-report limit limit.json` makes the page",
            ),
            ("limit a b", "limit takes no \"b\""),
            ("limit a --repeats 1", "--repeats 1: the spread of one"),
            (
                "limit a --search published --trial 9",
                "--search published takes no --trial",
            ),
            ("limit h --prefix a/#", "--prefix must not contain # or +"),
            ("pairs --json=yes", "unexpected argument"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(
                matches!(&error, Failure::Use(found) if found.contains(text)),
                "{line}: {error}"
            );
        }
    }
}
