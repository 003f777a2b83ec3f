//! What the program does with its command line: runs a controller over a data plane, or asks the one
//! that runs.

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::fmt;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use crate::clock::now_ns;
use crate::control::{Control, ask};
use crate::controller::{Controller, Settings};
use crate::options::{Command, HELP, Options, Where};
use crate::plane::Plane;
use crate::proxy::Proxy;
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
    fn work(&mut self, controller: &mut Controller) -> Outcome<()>;
    /// Ten times a second; whether ways to subscribers have changed.
    ///
    /// # Errors
    /// What it cannot go on with.
    fn upkeep(&mut self, now_ns: u64) -> Outcome<bool>;
}

const TICK_NS: u64 = 50_000_000;
const TICK_MS: u8 = 50;

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
        Command::Ask(question) => print(&ask(&options.control, question)?),
        Command::Run {
            plane,
            settings,
            rules,
        } => {
            let control = &options.control;
            match plane {
                Where::Proxy(address) => {
                    let proxy = Proxy::new(address, settings.broker, rules)?;
                    accelerate(proxy, settings, control)
                }
                #[cfg(feature = "kernel")]
                Where::Kernel {
                    interfaces,
                    broker_side,
                    vlan,
                } => {
                    let switch = crate::switch::Switch::new(
                        &interfaces,
                        settings.broker,
                        broker_side.as_deref(),
                        vlan,
                        rules,
                    )?;
                    accelerate(switch, settings, control)
                }
                #[cfg(not(feature = "kernel"))]
                Where::Kernel { .. } => Err(Failure::Failed(
                    "this program was built without the kernel's data plane: use --proxy."
                        .to_owned(),
                )),
            }
        }
    }
}

fn accelerate(mut driver: impl Driver, settings: Settings, path: &Path) -> Outcome<()> {
    let signals = signals()?;
    let mut control = Control::new(path)?;
    if settings.only.is_empty() {
        eprintln!("mqtick-accelerate: nothing will be copied, since there is no --only.");
    }
    let broker = settings.broker;
    let mut controller = Controller::new(settings, now_ns());
    print(&format!("{}, for {broker}\n", driver.name()))?;
    let mut due_ns = 0;
    loop {
        let mut wanted = [
            PollFd::new(driver.fd(), PollFlags::POLLIN),
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        // An interrupted wait is one that is over.
        let _ = poll(&mut wanted, TICK_MS);
        if matches!(signals.read_signal(), Ok(Some(_))) {
            break;
        }
        driver.work(&mut controller)?;
        let now_ns = now_ns();
        if now_ns >= due_ns {
            due_ns = now_ns + TICK_NS;
            if driver.upkeep(now_ns)? {
                controller.ways_changed(&mut driver);
            }
            controller.tick(now_ns, &mut driver);
        }
        control.serve(|question| answer(question, &mut driver, &mut controller));
    }
    controller.stop(&mut driver);
    Ok(())
}

fn answer(question: &str, driver: &mut impl Driver, controller: &mut Controller) -> Option<String> {
    if question == "broker-started" {
        controller.broker_started(now_ns(), driver);
        return Some("noted\n".to_owned());
    }
    let report = Report {
        plane_name: &driver.name(),
        plane: driver,
        plane_counters: driver.counters(),
        controller,
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
