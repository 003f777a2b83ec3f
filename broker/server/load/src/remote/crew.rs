//! A scenario's clients: in this process, or on several machines.

use crate::protocol::target::Target;
use crate::remote::fleet::Fleet;
use crate::remote::machines;
use crate::remote::message::{How, Part};
use crate::results::rows::percentiles_of;
use crate::results::tally::Tally;
use crate::run::contest::{Contestant, Run};
use crate::run::engine::Engine;
use crate::settings::scenario::Scenario;
use mqtick_net::failure::{Outcome, refuse_if};

/// All clients of a scenario, connected.
pub enum Crew {
    /// In this process.
    Here(Box<Engine>),
    /// On the scenario's machines.
    Away(Fleet),
}

impl Crew {
    /// Connects everybody.
    ///
    /// # Errors
    /// Where the broker does not take all of them, or a machine is not there.
    pub fn open(run: &mut Run<'_>, target: Target, scenario: &Scenario) -> Outcome<Self> {
        let options = run.options;
        if scenario.machine.is_empty() {
            let broker = Contestant::broker(target, options)?;
            return Ok(Self::Here(Box::new(Engine::open(run, &broker, scenario)?)));
        }
        refuse_if(
            options.csv.is_some() || options.broker_pid.is_some(),
            "--csv and --broker-pid are of one machine, and the scenario names several.",
        )?;
        if target.address.ip().is_loopback() && scenario.machine.iter().any(|one| one.ssh.is_some())
        {
            let broker = &options.broker;
            let text = format!("--broker {broker} is on each machine what is there itself.");
            run.report.note(text);
        }
        Fleet::open(run, &target, scenario).map(Self::Away)
    }

    /// Runs a trial; returns each machine's part, if there are several.
    ///
    /// # Errors
    /// As [`Engine::trial`]; where a machine fails, dies, or says nothing in time.
    pub fn trial(
        &mut self,
        run: &mut Run<'_>,
        scenario: &Scenario,
        how: How,
        tally: &mut Tally,
    ) -> Outcome<Vec<Part>> {
        match self {
            Self::Here(engine) => {
                engine.trial(run.stop, scenario, how.scale, how.patience(), tally)?;
                Ok(Vec::new())
            }
            Self::Away(fleet) => {
                let parts = fleet.carry_out(run, how, scenario.seconds)?;
                machines::put_together(scenario, &parts, tally)?;
                Ok(parts)
            }
        }
    }

    /// Adds latency and skew. `level`: the share of the limit that they were measured at, if any.
    ///
    /// # Errors
    /// Where clocks contradict each other.
    pub fn tell_times(
        &self,
        run: &mut Run<'_>,
        level: &'static str,
        scenario: &Scenario,
        tally: &Tally,
        parts: &[Part],
    ) -> Outcome<()> {
        match self {
            Self::Here(_) => {
                percentiles_of(
                    run.report,
                    if level.is_empty() { "broker" } else { level },
                    tally,
                );
                Ok(())
            }
            Self::Away(_) => machines::tell_times(run.report, level, scenario, parts),
        }
    }

    /// Notes whose stamps they were, and removes retained messages.
    pub fn end(&mut self, run: &mut Run<'_>) {
        if let Self::Here(engine) = self {
            tell_stamps(run, engine);
            engine.forget_retained();
        }
    }
}

/// Notes whose stamps they were, and retained messages of earlier runs.
fn tell_stamps(run: &mut Run<'_>, engine: &Engine) {
    if engine.has_latency() {
        let text = match engine.is_stamped() {
            true => "stamps: the kernel's, at both ends (SO_TIMESTAMPING, SO_TIMESTAMPNS).",
            false => "stamps: the clock at the system calls, as the kernel gives none here.",
        };
        run.report.note(text.to_owned());
    }
    if engine.retained() > 0 {
        let count = engine.retained();
        run.report.note(format!(
            "{count} messages that were retained before were left out."
        ));
    }
}
