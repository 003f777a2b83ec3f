//! Command line, threads and signals.

use crate::gateway::Secrets;
use crate::metrics;
use crate::offload;
use crate::settings::{Gateway, Settings};
use crate::shared::{Access, CHECKS, Call, Check, Shared};
use crate::sn;
use crate::udp::DatagramSocket;
use crate::worker::Worker;
use mqtick_access::{Passwords, Rules};
use mqtick_net::activation::Passed;
use mqtick_net::listener::{Certificate, Listener};
use mqtick_net::log;
use mqtick_net::process::{raise_descriptors, signals};
use mqtick_net::scrape;
use mqtick_net::settings::{Address, load};
use mqtick_net::supervisor;
use mqtick_store::Store;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::unistd::{AccessFlags, access};
use std::collections::VecDeque;
use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(5); // between two checks for the workers' end
const AFTERWARDS: Duration = Duration::from_secs(10); // for closing the store in the end

const USAGE: &str = "\
Usage: mqtick-broker [--config FILE] [--upstream URL] [--check-config]

Delivers MQTT messages (3.1.1 and 5) to many subscribers as nearly at once as this machine can.

  --config FILE    settings; without it: 127.0.0.1:1883, and anybody may connect
  --upstream URL   be a gateway for sensors (MQTT-SN) before another broker, and serve nobody else:
                   mqtt://[user[:password]@]host[:port], mqtts for TLS. Others see a command line:
                   rather write the password into upstream.password_file. Without a file that says
                   where sensors are: at UDP 127.0.0.1:1884
  --mode MODE      aggregating: one connection for all sensors (default); transparent: one for each
  --check-config   say what is wrong with the settings, and end
  --version        print the version
  --help           print this

Examples:
  mqtick-broker
  mqtick-broker --config /etc/mqtick/broker.toml
  mqtick-broker --upstream mqtt://127.0.0.1

SIGHUP reads passwords, access lists and certificates again. Sockets may come from systemd, which is
told when clients can connect and, where it asks, that all workers are alive.
Exit code: 0 ended by a signal, 1 cannot start, 2 wrong command line or settings.
";

enum Asked {
    Run(Box<Settings>),
    Said,
}

/// Run the program.
pub fn main() -> ExitCode {
    match arguments() {
        Ok(Asked::Said) => ExitCode::SUCCESS,
        Ok(Asked::Run(settings)) => match run(*settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                log::error(&error);
                ExitCode::from(1)
            }
        },
        Err(error) => {
            log::error(&error);
            ExitCode::from(2)
        }
    }
}

fn arguments() -> Result<Asked, String> {
    use lexopt::prelude::*;
    let (mut path, mut check) = (None, false);
    let (mut upstream, mut mode) = (None, None);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        match argument {
            Short('c') | Long("config") => {
                path = Some(PathBuf::from(
                    parser.value().map_err(|error| error.to_string())?,
                ));
            }
            Long("check-config") => check = true,
            Long("upstream") => {
                let url = parser.value().map_err(|error| error.to_string())?;
                let url = url.to_string_lossy().parse::<Address>();
                upstream = Some(url.map_err(|error| format!("--upstream {error}"))?);
            }
            Long("mode") => {
                let wanted = parser.value().map_err(|error| error.to_string())?;
                mode = Some(match wanted.to_string_lossy().as_ref() {
                    "aggregating" => Gateway::Aggregating,
                    "transparent" => Gateway::Transparent,
                    _ => return Err("--mode is aggregating or transparent".into()),
                });
            }
            Short('h') | Long("help") => {
                print!("{USAGE}");
                return Ok(Asked::Said);
            }
            Short('V') | Long("version") => {
                println!("mqtick-broker {}", env!("CARGO_PKG_VERSION"));
                return Ok(Asked::Said);
            }
            other => return Err(other.unexpected().to_string()),
        }
    }
    let mut settings = match path {
        Some(path) => load(&path).map_err(|error| error.to_string())?,
        None => Settings::default(),
    };
    if let Some(url) = upstream {
        settings.serve_as_gateway(url);
    }
    if let Some(mode) = mode {
        settings.upstream.mode = mode;
    }
    settings.check().map_err(|error| error.to_string())?;
    if check {
        read_access(&settings)?;
        Secrets::read(&settings.upstream)?;
        for tls in settings
            .listeners
            .iter()
            .filter_map(|listener| listener.tls.as_ref())
        {
            Certificate::load(tls)?;
        }
        settings
            .store
            .path
            .as_deref()
            .map_or(Ok(()), check_folder)?;
        println!("the settings are good");
        return Ok(Asked::Said);
    }
    Ok(Asked::Run(Box::new(settings)))
}

/// Check that a store can be in this folder, without creating it: its nearest ancestor that exists
/// must be a folder that can be written.
fn check_folder(path: &Path) -> Result<(), String> {
    let mut there = path.ancestors().filter(|one| one.exists());
    let place = there.next().unwrap_or(Path::new("."));
    let refuse = |why| Err(format!("{}: {why}", place.display()));
    if !place.is_dir() {
        return refuse("is not a folder, so no store can be in it".to_owned());
    }
    let all = AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK;
    access(place, all).or_else(|error| refuse(format!("no store can be in it: {error}")))
}

fn read(setting: &str, path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{setting}, {}: {error}", path.display()))
}

fn read_access(settings: &Settings) -> Result<Access, String> {
    let access = &settings.access;
    let named = |path: &Path, error: mqtick_access::Error| format!("{}: {error}", path.display());
    let passwords = |path: &PathBuf| {
        Passwords::parse(&read("access.password_file", path)?).map_err(|e| named(path, e))
    };
    let rules =
        |path: &PathBuf| Rules::parse(&read("access.acl_file", path)?).map_err(|e| named(path, e));
    Ok(Access {
        passwords: access.password_file.as_ref().map(passwords).transpose()?,
        rules: access
            .acl_file
            .as_ref()
            .map_or_else(|| Ok(Rules::open()), rules)?,
        anonymous: settings.anonymous(),
    })
}

/// Serve until a signal comes.
///
/// # Errors
/// Why the broker cannot start, as a sentence.
pub fn run(settings: Settings) -> Result<(), String> {
    let mut passed = Passed::take()?;
    let access = read_access(&settings)?;
    let secrets = Secrets::read(&settings.upstream)?;
    for warning in settings.warnings() {
        log::warning(&warning);
    }
    raise_descriptors(0);
    let signals = signals(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP])?;
    let offload = settings.delivery.accelerate.as_deref().map(|path| {
        let bound = offload::bind(path);
        bound.map_err(|error| format!("delivery.accelerate, {}: {error}", path.display()))
    });
    let offload = offload.transpose()?;
    // Before the listeners: a client that connects may use these sockets at once.
    let datagrams = settings.udp.address.map(|address| {
        let opened = DatagramSocket::open(address, mqtick_udp::NAMES).map(Arc::new);
        opened.map_err(|error| format!("udp {address}: {error}"))
    });
    let datagrams = datagrams.transpose()?;
    let sensors = settings.sn.address.map(|address| {
        let opened = DatagramSocket::open(address, sn::names()).map(Arc::new);
        opened.map_err(|error| format!("sn {address}: {error}"))
    });
    let sensors = sensors.transpose()?;
    let workers = settings.threads();
    let mut doors: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
    let (mut certificates, mut places) = (Vec::new(), Vec::new());
    for listener in settings.open_listeners() {
        let certificate = listener.tls.as_ref().map(Certificate::load).transpose()?;
        let opened = Listener::open(listener, certificate.as_ref(), workers, &mut passed)
            .map_err(|error| format!("{}: {error}", listener.place))?;
        places.extend(opened.first().into_iter().flatten().map(Listener::address));
        for (door, one) in doors.iter_mut().zip(opened) {
            door.extend(one);
        }
        certificates.extend(certificate);
    }
    passed.finish()?;
    let metrics = settings.metrics.address.map(scrape::listen).transpose()?;
    let (checks, to_check) = sync_channel(CHECKS);
    let shared = Shared::new(settings, access, checks, datagrams, sensors)
        .map_err(|error| error.to_string())?;
    let _ = shared.secrets.set(secrets); // it is set only once
    if let Some(path) = &shared.settings.store.path {
        let (store, kept) = Store::open(path, log::error).map_err(|error| error.to_string())?;
        shared.restore(store, &kept);
    }
    let shared = Arc::new(shared);
    let mut threads = Vec::new();
    for (number, listeners) in doors.into_iter().enumerate() {
        let worker = Worker::new(&shared, number, listeners).ok_or("no such worker")?;
        threads.push(start(&format!("worker-{number}"), move || worker.run_on())?);
    }
    if let Some(listener) = offload {
        let shared = Arc::clone(&shared);
        start("offload", move || shared.offload.listen(&listener))?;
    }
    // One thread: a flood of passwords takes one core at most.
    let checker = Arc::clone(&shared);
    start("passwords", move || check_passwords(&checker, &to_check))?;
    if let Some(listener) = metrics {
        let shared = Arc::clone(&shared);
        scrape::start(listener, move || metrics::page(&shared))?;
    }
    for place in places {
        log::notice(&format!("listens on {place}"));
    }
    if let Some(address) = shared.settings.udp.address {
        log::notice(&format!("listens on UDP {address}"));
    }
    if let Some(address) = shared.settings.sn.address {
        log::notice(&format!("listens on UDP {address} for MQTT-SN"));
    }
    supervisor::tell("READY=1");
    let heartbeat = supervisor::heartbeat();
    loop {
        match next_signal(&signals, heartbeat)? {
            None if shared.all_answer(heartbeat.unwrap_or_default()) => {
                supervisor::tell("WATCHDOG=1");
            }
            None => log::error("a worker does not answer"),
            Some(Signal::SIGHUP) => match reload(&shared, &certificates) {
                Ok(()) => log::notice("passwords, access lists and certificates were read again"),
                Err(error) => log::error(&format!("{error}; what was read before stays")),
            },
            Some(_) => break,
        }
    }
    supervisor::tell("STOPPING=1");
    let _closed = shared.offload.close_topics(|_| true);
    let stop = |over| (0..workers).for_each(|worker| shared.call(worker, Call::Stop { over }));
    stop(take_leave(&shared));
    while !threads.iter().all(thread::JoinHandle::is_finished) {
        match next_signal(&signals, Some(LOOK))? {
            None | Some(Signal::SIGHUP) => {}
            Some(_) => stop(Duration::ZERO), // a second signal ends the wait
        }
    }
    shared.journal().map_or(Ok(()), |journal| journal.close())
}

/// How long to take for telling all clients that the broker ends: at the rate at which they may
/// connect again. Asks systemd for that time.
fn take_leave(shared: &Shared) -> Duration {
    let limits = &shared.settings.limits;
    let clients = shared.counters.connected.load(Relaxed) as u64;
    let rate = u64::from(limits.connections_a_second);
    let needed_us = (clients * 1_000_000).checked_div(rate).unwrap_or(0);
    let over = Duration::from_micros(needed_us).min(Duration::from_secs(limits.stop_s));
    if !over.is_zero() {
        let most_us = (over + AFTERWARDS).as_micros();
        supervisor::tell(&format!("EXTEND_TIMEOUT_USEC={most_us}"));
    }
    over
}

/// The next signal. None: none has come within this time.
fn next_signal(signals: &SignalFd, within: Option<Duration>) -> Result<Option<Signal>, String> {
    let until = within.map(|within| Instant::now() + within);
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let mut file = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut file, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.to_string()),
        }
        let found = signals.read_signal().map_err(|error| error.to_string())?;
        let number = found.and_then(|found| i32::try_from(found.ssi_signo).ok());
        if let Some(signal) = number.and_then(|number| Signal::try_from(number).ok()) {
            return Ok(Some(signal));
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(None);
        }
    }
}

fn reload(shared: &Shared, certificates: &[Certificate]) -> Result<(), String> {
    let access = read_access(&shared.settings)?;
    Certificate::reload(certificates)?;
    shared.change_access(access);
    Ok(())
}

fn start(
    name: &str,
    what: impl FnOnce() + Send + 'static,
) -> Result<thread::JoinHandle<()>, String> {
    let builder = thread::Builder::new().name(name.into());
    builder
        .spawn(what)
        .map_err(|error| format!("a thread could not be started: {error}"))
}

/// Check passwords, one of each address in turn, so that a flood of passwords from one address does
/// not delay the others.
fn check_passwords(shared: &Shared, checks: &Receiver<Check>) {
    let mut waiting: VecDeque<(Option<IpAddr>, VecDeque<Check>)> = VecDeque::new();
    loop {
        let first = match waiting.is_empty() {
            true => checks.recv().ok(),
            false => None,
        };
        for check in first.into_iter().chain(checks.try_iter()) {
            match waiting.iter_mut().find(|(from, _)| *from == check.from) {
                Some((_, queue)) => queue.push_back(check),
                None => waiting.push_back((check.from, VecDeque::from([check]))),
            }
        }
        let Some((from, mut queue)) = waiting.pop_front() else {
            return; // all senders are gone
        };
        if let Some(check) = queue.pop_front() {
            let access = shared.access.load_full();
            let fits = |known: &Passwords| known.check(&check.user, &check.password);
            let right = access.passwords.as_ref().is_some_and(fits);
            shared.checked(from);
            let (token, by) = (check.token, access);
            shared.call(check.worker, Call::Checked { token, right, by });
        }
        if !queue.is_empty() {
            waiting.push_back((from, queue));
        }
    }
}
