//! The command line.

use super::{PROGRAM, rules, secrets};
use crate::cooperation;
use crate::settings::{Reliability, Settings, listener, url};
use mqtick_broker::listener::Certificate;
use mqtick_broker::settings::load;
use std::fs;
use std::path::{Path, PathBuf};

const USAGE: &str = "\
Usage: mqtick-join --broker HOST[:PORT] [--listen ADDRESS:PORT] [--neighbour HOST[:PORT]]... [OPTION]...
       mqtick-join --config FILE [--check-config]
       mqtick-join status|topology [--json]
       mqtick-join add HOST[:PORT]
       mqtick-join remove NAME|HOST[:PORT]

Joins MQTT brokers of any kind. A node stands before each site's broker: clients connect to the node
instead, and nodes exchange what clients of other sites want.

  --broker HOST[:PORT]     this site's broker; also mqtt://user:password@host, mqtts for TLS
  --listen ADDRESS:PORT    where clients and other nodes connect (127.0.0.1:1883)
  --neighbour HOST[:PORT]  another node; one of both ends has to name the other
  --secret-file FILE       in its first line, what all nodes know and nobody else: who reaches a node
                           from another machine is a neighbour only with it, or a certificate
  --name NAME              what other nodes call this one (the host's name)
  --algorithm NAME         subscriptions: messages go where they are wanted (default);
                           publications: each message goes everywhere
  --reliability WHEN       a client's QoS 1 or 2 is acknowledged once its broker has it: broker
                           (default); or once all sites that want it have it: all
  --config FILE            settings, of which there are more; status and the like read `control` there
  --check-config           say what is wrong with the settings, and end
  --control PATH           where status and the like ask (/run/mqtick-join/control)
  --lines                  print a line a second while messages flow; on a terminal it does so anyway
  --json                   status, topology: for programs
  --version                print the version
  --help                   print this

  status                   who is connected, and what was counted
  topology                 a drawing of the tree of nodes
  add HOST[:PORT]          connect to one more node, until the end of the program
  remove NAME|HOST[:PORT]  part with a neighbour, and turn it away until the next add, or the end of
                           the program

Examples:
  mqtick-join --broker localhost:1884 --neighbour localhost:2883
  mqtick-join --broker localhost:1884 --listen 0.0.0.0:1883 --secret-file join.secret
  mqtick-join --config /etc/mqtick/join.toml
  mqtick-join status --json
  mqtick-join add site-c.example
  mqtick-join remove site-c

Exit code: 0 ended by a signal, or answered; 1 failed; 2 wrong command line or settings.
";

/// What is to be done.
pub(super) enum Asked {
    Run(Box<Settings>, bool),
    Ask(PathBuf, String),
    Said,
}

/// What the command line asks for.
pub(super) fn arguments() -> Result<Asked, String> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_env();
    let (mut path, mut check, mut json, mut lines) = (None, false, false, false);
    let mut words: Vec<String> = Vec::new();
    type Change = Box<dyn FnOnce(&mut Settings)>;
    let mut changes: Vec<Change> = Vec::new();
    let plain = |error: lexopt::Error| error.to_string();
    let mut listeners = Vec::new();
    let mut control: Option<PathBuf> = None;
    while let Some(argument) = parser.next().map_err(plain)? {
        let text = |parser: &mut lexopt::Parser| -> Result<String, String> {
            parser
                .value()
                .and_then(|value| value.string())
                .map_err(plain)
        };
        match argument {
            Short('c') | Long("config") => path = Some(PathBuf::from(text(&mut parser)?)),
            Long("check-config") => check = true,
            Long("json") => json = true,
            Long("lines") => lines = true,
            Long("control") => control = Some(PathBuf::from(text(&mut parser)?)),
            Long("broker") => {
                let broker =
                    url(&text(&mut parser)?).map_err(|error| format!("--broker {error}"))?;
                changes.push(Box::new(|settings| settings.broker.url = Some(broker)));
            }
            Long("listen") => {
                let said = text(&mut parser)?;
                let address = said.parse().map_err(|_| {
                    format!("--listen {said:?} is no address with a port, such as 0.0.0.0:1883")
                })?;
                listeners.push(listener(address));
            }
            Long("neighbour") => {
                let one =
                    url(&text(&mut parser)?).map_err(|error| format!("--neighbour {error}"))?;
                changes.push(Box::new(|settings| settings.neighbours.urls.push(one)));
            }
            Long("secret-file") => {
                let file = PathBuf::from(text(&mut parser)?);
                changes.push(Box::new(|settings| {
                    settings.neighbours.secret_file = Some(file);
                }));
            }
            Long("name") => {
                let name = text(&mut parser)?;
                changes.push(Box::new(|settings| settings.name = name));
            }
            Long("algorithm") => {
                let kind = cooperation::Kind::named(&text(&mut parser)?).ok_or_else(|| {
                    let names = cooperation::Kind::ALL.map(cooperation::Kind::name);
                    format!("--algorithm is {}", names.join(" or "))
                })?;
                changes.push(Box::new(move |settings| settings.algorithm = kind));
            }
            Long("reliability") => {
                let when = match text(&mut parser)?.as_str() {
                    "broker" => Reliability::Broker,
                    "all" => Reliability::All,
                    _ => return Err("--reliability is broker or all".into()),
                };
                changes.push(Box::new(move |settings| settings.reliability = when));
            }
            Short('h') | Long("help") => {
                print!("{USAGE}");
                return Ok(Asked::Said);
            }
            Short('V') | Long("version") => {
                println!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"));
                return Ok(Asked::Said);
            }
            Value(word) => words.push(word.string().map_err(plain)?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if json && !matches!(words.as_slice(), ["status" | "topology"]) {
        return Err("--json belongs to status and topology".into());
    }
    let question = match words.as_slice() {
        [] => None,
        ["status" | "topology"] if json => Some(format!("{} --json", words.join(" "))),
        ["status" | "topology"] => Some(words.join(" ")),
        ["add", who] => {
            url(who).map_err(|error| format!("{who:?} {error}"))?;
            Some(format!("add {who}"))
        }
        ["remove", who] => Some(format!("remove {who}")),
        ["add" | "remove"] => {
            return Err("say which neighbour, as in `mqtick-join add site-c:1883`".into());
        }
        _ => {
            return Err(format!(
                "{:?} is not understood; see --help",
                words.join(" ")
            ));
        }
    };
    if question.is_some() && (check || lines || !changes.is_empty() || !listeners.is_empty()) {
        return Err(format!(
            "{:?} asks a node that runs: beside it only --config, --control and --json mean something",
            words.join(" ")
        ));
    }
    let mut settings = match &path {
        Some(path) => load(path).map_err(|error| error.to_string())?,
        None => Settings::default(),
    };
    if let Some(control) = control {
        settings.control = control;
    }
    if let Some(question) = question {
        return Ok(Asked::Ask(settings.control, question));
    }
    changes.into_iter().for_each(|change| change(&mut settings));
    if !listeners.is_empty() {
        settings.listeners = listeners;
    }
    settings
        .check()
        .map_err(|error| in_file(path.as_deref(), error))?;
    if check {
        secrets(&settings)?;
        rules(&settings)?;
        for tls in settings.listeners.iter().filter_map(|one| one.tls.as_ref()) {
            Certificate::load(tls)?;
        }
        println!("the settings are good");
        return Ok(Asked::Said);
    }
    Ok(Asked::Run(Box::new(settings), lines))
}

/// An error of a setting, with its line where it is in a file.
fn in_file(path: Option<&Path>, error: mqtick_broker::settings::Error) -> String {
    let text = path.and_then(|path| fs::read_to_string(path).ok());
    let line = text.and_then(|text| mqtick_broker::settings::line_of(&text, &error.key));
    let file = path.filter(|_| line.is_some()).map(Into::into);
    mqtick_broker::settings::Error {
        file,
        line,
        ..error
    }
    .to_string()
}
