//! The program: runs a controller with a data plane, or asks a running one.

use mqtick_net::control::{Control, ask};
use mqtick_net::failure::{Failure, Outcome};
use mqtick_net::process::{END, print, signals};
use nix::poll::{PollFd, PollFlags, poll};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::clock::now_ns;
use crate::controller::Controller;
use crate::driver::{Driver, Watcher};
use crate::feed::Told;
use crate::options::{Command, HELP, Options, Where};
use crate::proxy::Proxy;
use crate::rules::{Broker, Protocol};
use crate::settings::Settings;
use crate::status::Report;

/// The name of the program.
pub const PROGRAM: &str = "mqtick-accelerate";
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
    let signals = signals(&END)?;
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
