//! What the program does with its command line: runs a controller over a data plane, or asks the one
//! that runs.

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fmt;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::clock::now_ns;
use crate::control::{Control, ask};
use crate::controller::{Controller, Counters, Event, Settings, Status};
use crate::feed::Told;
use crate::options::{Command, HELP, Options, Where};
use crate::plane::Plane;
use crate::proxy::Proxy;
use crate::rules::{Broker, Protocol};
use crate::status::Report;

/// Why the program ends early.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line asks for something that cannot be: exit code 2.
    Use(String),
    /// The machine did not do what is needed: exit code 1.
    Failed(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Use(text) => write!(f, "{text} See --help."),
            Self::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}

/// What most functions here return.
pub type Outcome<T> = Result<T, Failure>;

/// A data plane with its surroundings.
pub trait Driver: Plane {
    /// Which one it is.
    fn name(&self) -> String;
    /// What it counts.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// What can be read when there is work.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Do what there is, without waiting.
    ///
    /// # Errors
    /// What it cannot go on with.
    fn work(&mut self, watcher: &mut impl Watcher) -> Outcome<()>;
    /// Ten times a second; whether ways to subscribers have changed.
    ///
    /// # Errors
    /// What it cannot go on with.
    fn upkeep(&mut self, now_ns: u64) -> Outcome<bool>;
    /// From now on somebody else says until when (CLOCK_MONOTONIC, ns) something may be copied.
    ///
    /// # Errors
    /// What it cannot go on with.
    fn lend(&mut self, until_ns: u64) -> Outcome<()>;
    /// Which client the broker sees at this address, if it comes this way.
    fn client_of(&self, seen_as: SocketAddr) -> Option<SocketAddr> {
        Some(seen_as)
    }
}

/// Who makes the rules of a data plane.
pub trait Watcher {
    /// Take a packet into account.
    fn event(&mut self, now_ns: u64, event: &Event<'_>, plane: &mut impl Plane);
    /// Events were lost, none of them after this mark.
    fn lost(&mut self, now_ns: u64, mark: u64, plane: &mut impl Plane);
    /// Whether the broker has, or may have, a session with this client.
    fn knows(&self, client: &SocketAddr) -> bool;
    /// What was counted.
    fn counters(&self) -> Counters;
    /// How many clients are known, and how many are not.
    fn sizes(&self) -> (usize, usize);
    /// All topics of publishers that are followed.
    fn status(&self, plane: &impl Plane) -> Vec<Status>;
    /// Begin.
    ///
    /// # Errors
    /// What it cannot go on with.
    fn begin(&mut self, _driver: &mut impl Driver) -> Outcome<()> {
        Ok(())
    }
    /// What can be read when there is something to do beside packets.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Do that.
    ///
    /// # Errors
    /// What it cannot go on with.
    fn work(&mut self, _now_ns: u64, _driver: &mut impl Driver) -> Outcome<()> {
        Ok(())
    }
    /// Make the rules that follow from what was taken into account since the last time.
    fn settle(&mut self, _now_ns: u64, _plane: &mut impl Plane) {}
    /// What depends on time, at least ten times a second; whether ways to subscribers have changed.
    fn tick(&mut self, now_ns: u64, ways_changed: bool, driver: &mut impl Driver);
    /// The broker was started, and has no sessions.
    fn broker_started(&mut self, _now_ns: u64, _plane: &mut impl Plane) {}
    /// End all rules.
    fn stop(&mut self, plane: &mut impl Plane);
    /// What it goes by, to be told.
    fn place(&self) -> String;
}

impl Watcher for Controller {
    fn event(&mut self, now_ns: u64, event: &Event<'_>, plane: &mut impl Plane) {
        Self::event(self, now_ns, event, plane);
    }
    fn settle(&mut self, now_ns: u64, plane: &mut impl Plane) {
        Self::settle(self, now_ns, plane);
    }
    fn lost(&mut self, now_ns: u64, mark: u64, plane: &mut impl Plane) {
        Self::lost(self, now_ns, mark, plane);
    }
    fn knows(&self, client: &SocketAddr) -> bool {
        Self::knows(self, client)
    }
    fn counters(&self) -> Counters {
        Self::counters(self)
    }
    fn sizes(&self) -> (usize, usize) {
        Self::sizes(self)
    }
    fn status(&self, plane: &impl Plane) -> Vec<Status> {
        Self::status(self, plane)
    }
    fn tick(&mut self, now_ns: u64, ways_changed: bool, driver: &mut impl Driver) {
        if ways_changed {
            self.ways_changed(now_ns, driver);
        }
        Self::tick(self, now_ns, driver);
    }
    fn broker_started(&mut self, now_ns: u64, plane: &mut impl Plane) {
        Self::broker_started(self, now_ns, plane);
    }
    fn stop(&mut self, plane: &mut impl Plane) {
        Self::stop(self, plane);
    }
    fn place(&self) -> String {
        String::new()
    }
}

const PROGRAM: &str = "mqtick-accelerate";
/// A tick opens rules, so a publisher waits for it; with so many clients that it takes long, they are
/// further apart, and take a twentieth of the time.
const TICK_MS: u8 = 10;
const TICK_NS: u64 = TICK_MS as u64 * 1_000_000;
const LONGEST_TICK_NS: u64 = 50_000_000;

/// Do what was asked for.
///
/// # Errors
/// Whatever prevents it.
pub fn run(options: Options) -> Outcome<()> {
    match options.command {
        Command::Help => print(HELP),
        Command::Version => print(concat!(
            "mqtick-accelerate ",
            env!("CARGO_PKG_VERSION"),
            "\n"
        )),
        Command::Ask(question) => print(&ask(&options.control, PROGRAM, question)?),
        Command::Run {
            plane,
            brokers,
            settings,
            rules,
        } => {
            let by = By {
                control: &options.control,
                brokers,
                settings,
                feed: options.feed,
            };
            match plane {
                Where::Proxy(address) => by.in_user_space(address, rules, None),
                #[cfg(feature = "kernel")]
                Where::Kernel {
                    interfaces,
                    broker_side,
                    fallback,
                } => {
                    let switch = crate::switch::Switch::new(
                        &interfaces,
                        &by.brokers,
                        broker_side.as_deref(),
                        rules,
                    );
                    match switch {
                        Ok(switch) => by.accelerate(switch),
                        Err(why) => by.instead(why, fallback, rules),
                    }
                }
                #[cfg(not(feature = "kernel"))]
                Where::Kernel { fallback, .. } => {
                    let why =
                        "this program was built without the kernel's data plane: use --proxy.";
                    let why = Failure::Failed(why.to_owned());
                    by.instead(why, fallback, rules)
                }
            }
        }
    }
}

struct By<'a> {
    control: &'a Path,
    brokers: Vec<Broker>,
    settings: Settings,
    feed: Option<PathBuf>,
}

impl By<'_> {
    fn accelerate(self, driver: impl Driver) -> Outcome<()> {
        let names: Vec<_> = self.brokers.iter().map(name).collect();
        let names = names.join(" and ");
        if let Some(path) = &self.feed {
            return accelerate(driver, Told::new(path), &names, self.control);
        }
        if self.settings.only.is_empty() {
            eprintln!("mqtick-accelerate: nothing will be copied, since there is no --only.");
        }
        let controller = Controller::new(self.settings, now_ns());
        accelerate(driver, controller, &names, self.control)
    }

    fn in_user_space(self, at: SocketAddr, rules: usize, why: Option<String>) -> Outcome<()> {
        let broker = self.brokers.first();
        let broker = broker.ok_or_else(|| Failure::Use("--broker is missing.".to_owned()))?;
        let proxy = Proxy::new(at, *broker, rules, why)?;
        self.accelerate(proxy)
    }

    /// The kernel cannot.
    fn instead(self, why: Failure, fallback: Option<SocketAddr>, rules: usize) -> Outcome<()> {
        let Some(address) = fallback else {
            return Err(why);
        };
        eprintln!("mqtick-accelerate: {why} Clients have to talk to {address}.");
        self.in_user_space(address, rules, Some(why.to_string()))
    }
}

fn name(broker: &Broker) -> String {
    match broker.protocol {
        Protocol::MqttSn => broker.address.to_string(),
        Protocol::MqttUdp => format!("mqtt+udp://{}", broker.address),
    }
}

fn accelerate(
    mut driver: impl Driver,
    mut watcher: impl Watcher,
    brokers: &str,
    path: &Path,
) -> Outcome<()> {
    let signals = signals()?;
    let mut control = Control::new(path, PROGRAM)?;
    watcher.begin(&mut driver)?;
    print(&format!("{}, for {brokers}\n", driver.name()))?;
    let mut due_ns = 0;
    loop {
        let mut wanted = vec![
            PollFd::new(driver.fd(), PollFlags::POLLIN),
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        wanted.extend(watcher.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        // An interrupted wait is one that is over.
        let _ = poll(&mut wanted, TICK_MS);
        if matches!(signals.read_signal(), Ok(Some(_))) {
            break;
        }
        driver.work(&mut watcher)?;
        let now_ns = now_ns();
        watcher.work(now_ns, &mut driver)?;
        if now_ns >= due_ns {
            let ways_changed = driver.upkeep(now_ns)?;
            watcher.tick(now_ns, ways_changed, &mut driver);
            let took_ns = self::now_ns() - now_ns;
            due_ns = now_ns + (took_ns * 20).clamp(TICK_NS, LONGEST_TICK_NS);
        }
        control.serve(|question| answer(question, &mut driver, &mut watcher));
    }
    watcher.stop(&mut driver);
    Ok(())
}

fn answer(question: &str, driver: &mut impl Driver, watcher: &mut impl Watcher) -> Option<String> {
    if question == "broker-started" {
        watcher.broker_started(now_ns(), driver);
        return Some("noted\n".to_owned());
    }
    let report = Report {
        plane_name: &format!("{}{}", driver.name(), watcher.place()),
        plane: driver,
        plane_counters: driver.counters(),
        controller: watcher,
    };
    match question {
        "status" => Some(report.text()),
        "status --json" => Some(report.json()),
        _ => None,
    }
}

fn signals() -> Outcome<SignalFd> {
    let fault = |error: nix::Error| Failure::Failed(format!("signals: {error}."));
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set.thread_block().map_err(fault)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).map_err(fault)
}

/// Prints; whoever reads us may have enough of it (`| head`).
fn print(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: {error}.")))
        }
        _ => Ok(()),
    }
}
