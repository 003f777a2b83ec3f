//! The program: signals, files, and the loop around a node.

mod arguments;
mod reload;
mod state;

use crate::manager::{Manager, Secrets, random, trust_nodes};
use crate::settings::{CONTROL, Settings, url};
use crate::status;
use arguments::{Asked, arguments};
use mqtick_access::Rules;
use mqtick_net::activation::Passed;
use mqtick_net::control::{Control, ask};
use mqtick_net::listener::{Certificate, Listener};
use mqtick_net::process::{raise_descriptors, signals};
use mqtick_net::wire::trust;
use mqtick_net::{log, scrape, supervisor};
use nix::sys::signal::Signal;
use reload::reload;
use state::State;
use std::collections::BTreeMap;
use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

const PROGRAM: &str = "mqtick-join";
const SECOND_MS: u16 = 1000;
// While part of a question (`status` and the like) has come: how often to look for the rest.
const HALF_ASKED_MS: u16 = 20;

/// Run the program.
pub fn main() -> ExitCode {
    let asked = match arguments() {
        Ok(asked) => asked,
        Err(error) => {
            log::error(&error);
            return ExitCode::from(2);
        }
    };
    let done = match asked {
        Asked::Printed => Ok(()),
        Asked::Ask(path, question) => answer(&path, &question),
        Asked::Run(settings, lines) => run(*settings, lines),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error(&error);
            ExitCode::from(1)
        }
    }
}

/// Ask a node that runs, and print its answer.
fn answer(path: &Path, question: &str) -> Result<(), String> {
    let answer = ask(path, PROGRAM, question).map_err(|error| error.to_string())?;
    match answer.strip_prefix("error: ") {
        Some(error) => Err(error.trim_end().into()),
        None => {
            // It fails if the reader has closed the pipe, which is no error.
            let _ = std::io::stdout().write_all(answer.as_bytes());
            Ok(())
        }
    }
}

/// The first line of a file, without its end.
fn first_line(path: &Path) -> Result<Vec<u8>, String> {
    let text = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let line = text
        .split(|octet| *octet == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match line.is_empty() {
        true => Err(format!("{}: the first line is empty", path.display())),
        false => Ok(line.into()),
    }
}

fn secrets(settings: &Settings) -> Result<Secrets, String> {
    let (broker, others) = (&settings.broker, &settings.neighbours);
    let is_tls = broker.url.as_ref().is_some_and(|url| url.is_tls);
    let are_tls = others.urls.iter().any(|url| url.is_tls) || others.certificate.is_some();
    let neighbour_tls = are_tls.then(|| trust_nodes(settings)).transpose()?;
    let read = |path: &Option<PathBuf>| path.as_deref().map(first_line).transpose();
    Ok(Secrets {
        password: read(&broker.password_file)?,
        secret: read(&others.secret_file)?,
        broker_tls: is_tls.then(|| trust(&broker.ca_file, None)).transpose()?,
        neighbour_tls,
    })
}

fn rules(settings: &Settings) -> Result<Rules, String> {
    let Some(path) = &settings.access.acl_file else {
        return Ok(Rules::open());
    };
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Rules::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn run(settings: Settings, lines: bool) -> Result<(), String> {
    let mut passed = Passed::take()?;
    let (secrets, rules) = (secrets(&settings)?, rules(&settings)?);
    for warning in settings.warnings() {
        log::warning(&warning);
    }
    raise_descriptors(0);
    let signals = signals(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])?;
    let mut control = control(&settings.control)?;
    let (mut listeners, mut certificates) = (Vec::new(), Vec::new());
    for one in &settings.listeners {
        let certificate = one.tls.as_ref().map(Certificate::load).transpose()?;
        let opened = Listener::open(one, certificate.as_ref(), 1, &mut passed)
            .map_err(|error| format!("{}: {error}", one.place))?;
        listeners.extend(opened.into_iter().flatten());
        certificates.extend(certificate);
    }
    passed.finish()?;
    let page = Arc::new(Mutex::new(String::new()));
    if let Some(address) = settings.metrics.address {
        let page = Arc::clone(&page);
        let read = move || page.lock().unwrap_or_else(PoisonError::into_inner).clone();
        scrape::start(scrape::listen(address)?, read)?;
    }
    let places: Vec<String> = listeners.iter().map(Listener::address).collect();
    let mut manager = Manager::new(settings, secrets, rules, listeners, random())?;
    let mut state = State::restore(&mut manager)?;
    for place in places {
        log::notice(&format!("listens on {place}"));
    }
    supervisor::tell("READY=1");
    let heartbeat = supervisor::heartbeat();
    let (mut told, mut second) = (Instant::now(), 0);
    let mut before = BTreeMap::new();
    let lines = lines || std::io::stdout().is_terminal();
    manager.watch(&signals)?;
    control.iter().try_for_each(|one| manager.watch(one))?;
    let beat = |told: Instant| heartbeat.is_some_and(|every| told.elapsed() >= every);
    let beat_ms = heartbeat.map_or(SECOND_MS, |every| every.as_millis().min(1000) as u16);
    loop {
        let is_half = control.as_ref().is_some_and(Control::is_waiting);
        let most_ms = if is_half { HALF_ASKED_MS } else { beat_ms };
        let is_asked = manager.turn(most_ms);
        if !is_asked && !is_half && !beat(told) && manager.site.now_s == second {
            continue; // looking each time would cost more system calls than the messages
        }
        // Signals come before questions: whoever sent one may ask for its result next.
        let signal = signals.read_signal().map_err(|error| error.to_string())?;
        match signal.map(|signal| signal.ssi_signo) {
            None => {}
            Some(number) if number == Signal::SIGHUP as u32 => {
                reload(&mut manager, &certificates);
            }
            Some(_) => break,
        }
        if let Some(control) = &mut control {
            control.serve(|question| Some(reply(&mut manager, question)));
        }
        if beat(told) {
            supervisor::tell("WATCHDOG=1");
            told = Instant::now();
        }
        if manager.site.now_s != second {
            second = manager.site.now_s;
            state.keep(&mut manager);
            *page.lock().unwrap_or_else(PoisonError::into_inner) = status::metrics(&manager);
            if let Some(line) = status::line(&manager, &mut before).filter(|_| lines) {
                let _ = writeln!(std::io::stdout(), "{line}"); // stdout may be closed
            }
        }
    }
    supervisor::tell("STOPPING=1");
    manager.stop();
    state.keep(&mut manager);
    Ok(())
}

/// The socket for questions. If the default place cannot be used, the node runs without it.
fn control(path: &Path) -> Result<Option<Control>, String> {
    match Control::new(path, PROGRAM) {
        Ok(control) => Ok(Some(control)),
        Err(why) if path == Path::new(CONTROL) => {
            log::warning(&format!(
                "{why} Until --control names another place, `mqtick-join status` and the like do not work."
            ));
            Ok(None)
        }
        Err(why) => Err(why.to_string()),
    }
}

/// The answer to a question.
fn reply(manager: &mut Manager, question: &str) -> String {
    let done = match question.split_once(' ') {
        Some(("add", who)) => url(who).and_then(|address| manager.add_neighbour(address)),
        Some(("remove", who)) => manager.remove_neighbour(who),
        _ => {
            return match question {
                "status" => status::text(manager),
                "status --json" => status::json(manager),
                "topology" => status::drawing(manager),
                "topology --json" => status::topology_json(manager),
                _ => "error: the node does not know this question: is it of the same release?\n"
                    .into(),
            };
        }
    };
    match done {
        Ok(()) if question.starts_with("add ") => "connecting; see status\n".into(),
        Ok(()) => "done\n".into(),
        Err(error) => format!("error: {error}\n"),
    }
}
