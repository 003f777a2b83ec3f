//! The command line.

use super::{PROGRAM, rules, secrets};
use crate::cooperation::Kind;
use crate::settings::{Reliability, Settings, listener, url};
use mqtick_net::listener::Certificate;
use mqtick_net::settings::load;
use std::fs;
use std::path::{Path, PathBuf};

const USAGE: &str = "\
Usage: mqtick-join --broker HOST[:PORT] [--listen [ADDRESS]:PORT] [--neighbour HOST[:PORT]]... [OPTION]...
       mqtick-join --config FILE [--check-config]
       mqtick-join status|topology [--json]
       mqtick-join add HOST[:PORT]
       mqtick-join remove NAME|HOST[:PORT]

Joins MQTT brokers of any kind. A node runs in front of the broker of each site. Clients connect to
the node instead of the broker, and nodes exchange the messages that clients of other sites want.

  --broker HOST[:PORT]     this site's broker; or mqtt://user:password@host, mqtts:// for TLS
  --listen [ADDRESS]:PORT  where clients and other nodes connect (127.0.0.1:1883); without ADDRESS:
                           on all IPv4 addresses of this host
  --neighbour HOST[:PORT]  another node to connect to; only one end of a link has to name the other
  --secret-file FILE       the secret that all nodes share, in the first line. Nodes on other machines
                           need it, or a certificate, to connect to this one
  --name NAME              the name of this node (the host's name)
  --algorithm NAME         subscriptions: messages go where they are wanted (default);
                           publications: each message goes to all nodes
  --reliability WHEN       when a client gets the acknowledgement for QoS 1 and 2:
                           broker: once its broker has the message (default);
                           all: once all sites that want the message have it
  --config FILE            read settings from a file, which can hold more than these options
  --check-config           check the settings, and exit
  --control PATH           the socket for status and the like (/run/mqtick-join/control)
  --lines                  print a line each second while messages flow; the default on a terminal
  --json                   print status or topology as JSON
  --version                print the version
  --help                   print this

Commands for a node that runs (they find it by --control, or by `control` in --config):

  status                   show what is connected, and what was counted
  topology                 draw the tree of nodes
  add HOST[:PORT]          connect to one more node, until this one restarts
  remove NAME|HOST[:PORT]  part with a neighbour, and refuse it until the next add or restart

Examples:
  mqtick-join --broker localhost:1884 --neighbour localhost:2883
  mqtick-join --broker localhost:1884 --listen 0.0.0.0:1883 --secret-file join.secret
  mqtick-join --config /etc/mqtick/join.toml
  mqtick-join status --json
  mqtick-join add site-c.example
  mqtick-join remove site-c

Exit codes: 0 ended by a signal, or answered; 1 failed; 2 wrong command line or settings.
";

/// What the command line asks for.
pub(super) enum Asked {
    /// Run a node with these settings; whether to print a line each second.
    Run(Box<Settings>, bool),
    /// Ask the node with this control socket a question.
    Ask(PathBuf, String),
    /// Nothing more: it was printed.
    Printed,
}

fn plain(error: lexopt::Error) -> String {
    error.to_string()
}

/// The value of an option.
fn text(parser: &mut lexopt::Parser) -> Result<String, String> {
    let value = parser
        .value()
        .and_then(|value| value.into_string().map_err(Into::into));
    value.map_err(plain)
}

/// Read the command line, and the configuration that it names.
pub(super) fn arguments() -> Result<Asked, String> {
    use lexopt::prelude::*;
    let mut parser = lexopt::Parser::from_env();
    let (mut path, mut check, mut json, mut lines) = (None, false, false, false);
    let mut words: Vec<String> = Vec::new();
    type Change = Box<dyn FnOnce(&mut Settings)>;
    let mut changes: Vec<Change> = Vec::new();
    let mut listeners = Vec::new();
    let mut control: Option<PathBuf> = None;
    while let Some(argument) = parser.next().map_err(plain)? {
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
                let all = if said.starts_with(':') { "0.0.0.0" } else { "" };
                let address = format!("{all}{said}").parse().map_err(|_| {
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
                let kind = Kind::named(&text(&mut parser)?).ok_or_else(|| {
                    format!(
                        "--algorithm can be {}",
                        Kind::ALL.map(Kind::name).join(" or ")
                    )
                })?;
                changes.push(Box::new(move |settings| settings.algorithm = kind));
            }
            Long("reliability") => {
                let when = match text(&mut parser)?.as_str() {
                    "broker" => Reliability::Broker,
                    "all" => Reliability::All,
                    _ => return Err("--reliability can be broker or all".into()),
                };
                changes.push(Box::new(move |settings| settings.reliability = when));
            }
            Short('h') | Long("help") => {
                print!("{USAGE}");
                return Ok(Asked::Printed);
            }
            Short('V') | Long("version") => {
                println!("{PROGRAM} {}", env!("CARGO_PKG_VERSION"));
                return Ok(Asked::Printed);
            }
            Value(word) => words.push(word.string().map_err(plain)?),
            other => return Err(other.unexpected().to_string()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if json && !matches!(words.as_slice(), ["status" | "topology"]) {
        return Err("--json can only be used with status and topology".into());
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
            return Err("name the neighbour, as in `mqtick-join add site-c:1883`".into());
        }
        _ => return Err(format!("{:?} is no command; see --help", words.join(" "))),
    };
    if question.is_some() && (check || lines || !changes.is_empty() || !listeners.is_empty()) {
        return Err(format!(
            "{:?} asks a node that runs: only --config, --control and --json can be used with it",
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
        return Ok(Asked::Printed);
    }
    Ok(Asked::Run(Box::new(settings), lines))
}

/// The message for an error in the settings, with file and line if it is in a file.
fn in_file(path: Option<&Path>, error: mqtick_net::settings::Error) -> String {
    let text = path.and_then(|path| fs::read_to_string(path).ok());
    let line = text.and_then(|text| mqtick_net::settings::line_of(&text, &error.key));
    let file = path.filter(|_| line.is_some()).map(Into::into);
    mqtick_net::settings::Error {
        file,
        line,
        ..error
    }
    .to_string()
}
