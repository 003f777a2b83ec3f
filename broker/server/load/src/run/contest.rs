//! What is measured: the broker and, in turn with it, the floor.

use std::io::{IsTerminal, Write};

use crate::floor::FloorProcess;
use crate::protocol::target::Target;
use crate::results::report::{Report, names};
use crate::results::rows::COST;
use crate::settings::options::Options;
use crate::settings::scenario::{Kind, Scenario};
use crate::system::process::{Process, Used, descriptors, own_ns};
use crate::system::stop::Stop;
use mqtick_net::failure::Outcome;

/// What a run has at hand.
#[derive(Debug)]
pub struct Run<'a> {
    /// The command line.
    pub options: &'a Options,
    /// Whether it was asked to end.
    pub stop: &'a Stop,
    /// The figures; printed even if the run fails.
    pub report: &'a mut Report,
}

impl Run<'_> {
    /// Shows progress on a terminal; the next such line replaces it.
    pub fn progress(&self, text: &str) {
        let mut out = std::io::stderr();
        if out.is_terminal() {
            let _ = write!(out, "\r{text}\x1b[K");
            let _ = out.flush();
        }
    }

    /// Raises the limit of descriptors for so many connections, and notes it.
    ///
    /// # Errors
    /// Where the system allows fewer.
    pub fn descriptors(&mut self, each: usize) -> Outcome<()> {
        let contestants = if self.options.floor { 2 } else { 1 };
        let limit = descriptors((each * contestants) as u64)?;
        self.report
            .note(format!("descriptors: this process may open {limit}."));
        Ok(())
    }

    /// Notes what stamps mean over TLS, if there are any.
    pub fn tell_tls(&mut self, target: &Target, scenario: &Scenario) {
        let is_stamped = scenario.group.iter().any(|one| one.kind == Kind::Latency);
        if target.security.is_some() && is_stamped {
            let text = "stamps over TLS: those of the record that carries a message, when its last \
                        octet left or came. What the broker takes to decrypt and encrypt is in the \
                        latency; what mqtick-load takes is not.";
            self.report.note(text.to_owned());
        }
    }

    /// Adds the processor time of a block, by copy delivered.
    pub fn cost(&mut self, who: &'static str, cost: Option<Used>, own: u64, copies: u64) {
        let each = |ns: u64| ns as f64 / copies.max(1) as f64;
        if let Some(used) = cost {
            self.report.add(COST, who, each(used.total_ns));
            if let Some(share) = used.system_share() {
                self.report.add(SYSTEM, who, each(used.total_ns) * share);
            }
        }
        self.report.add(
            OWN_COST,
            if who == "broker" {
                "load, broker"
            } else {
                "load, floor"
            },
            each(own),
        );
    }

    /// Adds the contestants' memory now.
    ///
    /// # Errors
    /// Where a process has ended.
    pub fn memory(&mut self, contestants: &[(&'static str, Option<Process>)]) -> Outcome<()> {
        for (who, process) in contestants {
            if let Some(process) = process {
                let threads = process.threads();
                self.report.note(format!("{who}: threads: {threads}."));
                self.report
                    .add(MEMORY, *who, process.memory()?.pss as f64 / 1024.0);
            }
        }
        Ok(())
    }
}

names! {
    SYSTEM "cost_system_ns" "of it in the kernel" "ns";
    OWN_COST "own_cost_ns" "the generator's own, a message delivered" "ns";
    MEMORY "pss_kib" "memory (PSS) at the end" "KiB";
}

/// A meter of the processor time of a contestant and of this process.
#[derive(Debug)]
pub struct Meter {
    process: Option<Process>,
    before: Option<Used>,
    own_before: u64,
}

impl Meter {
    /// Starts it.
    ///
    /// # Errors
    /// Where the process has ended.
    pub fn start(process: Option<Process>) -> Outcome<Self> {
        let before = process.map(|process| process.used()).transpose()?;
        Ok(Self {
            process,
            before,
            own_before: own_ns(),
        })
    }

    /// Returns what was used since by the contestant, if it is known, and by this process in ns.
    ///
    /// # Errors
    /// Where the process has ended.
    pub fn read(&self) -> Outcome<(Option<Used>, u64)> {
        let own = own_ns().saturating_sub(self.own_before);
        let after = self.process.map(|process| process.used()).transpose()?;
        Ok((
            after
                .zip(self.before)
                .map(|(after, before)| after.since(before)),
            own,
        ))
    }
}

/// A broker or the floor.
#[derive(Debug)]
pub struct Contestant {
    /// Its address and name.
    pub target: Target,
    /// Its process, if it is known.
    pub process: Option<Process>,
}

impl Contestant {
    /// The broker.
    ///
    /// # Errors
    /// Where there is no such process.
    pub fn broker(target: Target, options: &Options) -> Outcome<Self> {
        let process = options.broker_pid.map(Process::new).transpose()?;
        Ok(Self { target, process })
    }
}

/// Finds the broker, and starts the floor if it is wanted.
///
/// # Errors
/// Where the broker has no address or no such process, or the floor does not start.
pub fn contestants(options: &Options) -> Outcome<(Vec<Contestant>, Option<FloorProcess>)> {
    let target = options.target()?;
    let mut all = vec![Contestant::broker(target.clone(), options)?];
    let floor = options
        .floor
        .then(|| FloorProcess::start(options.threads, options.udp || options.sn))
        .transpose()?;
    if let Some(floor) = &floor {
        let target = Target {
            who: "floor",
            address: floor.address,
            security: None,
            login: None,
            udp: options.udp || options.sn,
            sn: false,
            ..target
        };
        all.push(Contestant {
            target,
            process: Some(floor.process),
        });
    }
    Ok((all, floor))
}
