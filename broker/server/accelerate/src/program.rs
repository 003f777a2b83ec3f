//! The program: runs a controller with a data plane, or asks a running one.

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

/// Why the program fails.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Use(String),
    /// Something failed at run time: exit code 1.
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

/// The result of most functions here.
pub type Outcome<T> = Result<T, Failure>;

/// A data plane with its input and output.
pub trait Driver: Plane {
    /// Its name, for the user.
    fn name(&self) -> String;
    /// Its counters.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// Readable when there is work.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Do the work that there is, without waiting.
    ///
    /// # Errors
    /// It cannot go on.
    fn work(&mut self, watcher: &mut impl Watcher) -> Outcome<()>;
    /// To be called ten times a second. Returns whether routes to subscribers have changed.
    ///
    /// # Errors
    /// It cannot go on.
    fn upkeep(&mut self, now_ns: u64) -> Outcome<bool>;
    /// Copy until this time (CLOCK_MONOTONIC, ns). From the first call on, nothing else extends it.
    ///
    /// # Errors
    /// It cannot go on.
    fn lend(&mut self, until_ns: u64) -> Outcome<()>;
    /// The address of a client that the broker sees at `seen_as`; `None` if it does not come this
    /// way.
    fn client_of(&self, seen_as: SocketAddr) -> Option<SocketAddr> {
        Some(seen_as)
    }
}

/// Makes the rules of a data plane: the controller, or the rules that a broker offers.
pub trait Watcher {
    /// Process a packet.
    fn event(&mut self, now_ns: u64, event: &Event<'_>, plane: &mut impl Plane);
    /// Events were lost, none of them after this mark.
    fn lost(&mut self, now_ns: u64, mark: u64, plane: &mut impl Plane);
    /// Whether the broker has, or may have, a session with this client.
    fn knows(&self, client: &SocketAddr) -> bool;
    /// The counters.
    fn counters(&self) -> Counters;
    /// The numbers of known clients and of strangers.
    fn sizes(&self) -> (usize, usize);
    /// The state of all topics of publishers that are followed.
    fn status(&self, plane: &impl Plane) -> Vec<Status>;
    /// Start.
    ///
    /// # Errors
    /// It cannot go on.
    fn begin(&mut self, _driver: &mut impl Driver) -> Outcome<()> {
        Ok(())
    }
    /// Readable when there is work other than packets.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Do that work.
    ///
    /// # Errors
    /// It cannot go on.
    fn work(&mut self, _now_ns: u64, _driver: &mut impl Driver) -> Outcome<()> {
        Ok(())
    }
    /// Update the rules after the packets since the last call.
    fn settle(&mut self, _now_ns: u64, _plane: &mut impl Plane) {}
    /// The regular work; to be called at least ten times a second. `ways_changed`: routes to
    /// subscribers have changed.
    fn tick(&mut self, now_ns: u64, ways_changed: bool, driver: &mut impl Driver);
    /// The broker is about to be started, and has no sessions.
    fn broker_started(&mut self, _now_ns: u64, _plane: &mut impl Plane) {}
    /// Delete all rules.
    fn stop(&mut self, plane: &mut impl Plane);
    /// The source of its rules, for the user.
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
/// The interval between ticks: short, because ticks open rules. If ticks take long because there
/// are many clients, it grows to twenty times as long as a tick takes, up to [`LONGEST_TICK_NS`].
const TICK_MS: u8 = 10;
const TICK_NS: u64 = TICK_MS as u64 * 1_000_000;
const LONGEST_TICK_NS: u64 = 50_000_000;

/// Execute the command line.
///
/// # Errors
/// Why it failed.
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

    /// Use a proxy because the kernel cannot copy.
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
        // If it is interrupted, go on as if it were over.
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

/// Print. It is no failure if the reader has closed the pipe (`| head`).
fn print(text: &str) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("standard output: {error}.")))
        }
        _ => Ok(()),
    }
}
