//! The command `run`: carries out a scenario or a configuration of MQTTLoader.

use crate::remote::crew::Crew;
use crate::remote::machines;
use crate::remote::message::{How, Part};
use crate::results::csv::Csv;
use crate::results::rows::{LATE, tell_counts, tell_own, tell_percentiles, tell_remarks};
use crate::results::tally::Tally;
use crate::run::contest::Run;
use crate::settings::file::read;
use crate::settings::mqttloader;
use crate::settings::scenario::{Kind, Scenario};
use crate::system::clocks::now_ns;
use mqtick_net::failure::{Failure, Outcome, refuse_if};

/// Measures.
///
/// # Errors
/// What stopped it; the report has what was measured until then.
pub fn run(run: &mut Run<'_>) -> Outcome<()> {
    let options = run.options;
    let path = options.file.as_deref().unwrap_or_default();
    let mut csv = options.csv.clone();
    let mut patience_s = options.patience.as_secs_f64();
    let (target, scenario) = if path.ends_with(".conf") {
        let found = mqttloader::parse(&read(path)?).map_err(|failure| failure.at(path))?;
        let mut asked = options.clone();
        // The command line takes precedence over the file.
        if !options.is_given("broker") {
            asked.broker.clone_from(&found.broker);
        }
        if !options.is_given("mqtt") {
            asked.version = found.version;
        }
        if !options.is_given("patience") {
            patience_s = found.patience_s;
        }
        if asked.pem.is_empty() {
            asked.pem = found.pem()?;
        }
        let mut target = asked.target()?;
        target.login = target.login.or(found.login);
        run.report.with(asked.parameters());
        if let (None, Some(folder)) = (&csv, &found.output) {
            std::fs::create_dir_all(folder)
                .map_err(|error| Failure::Use(format!("{path}: output {folder}: {error}.")))?;
            csv = Some(Csv::name_in(folder, now_ns()));
        }
        found
            .notes
            .into_iter()
            .for_each(|note| run.report.note(note));
        (target, found.scenario)
    } else {
        (options.target()?, Scenario::load(path)?)
    };
    refuse_if(
        csv.is_some() && scenario.group.iter().all(|one| one.kind == Kind::Load),
        "--csv: it has the times of groups of kind latency, and the scenario has none.",
    )?;
    let start = now_ns();
    let mut csv = csv.map(|path| Csv::create(&path, start)).transpose()?;
    let mut crew = Crew::open(run, target, &scenario)?;
    run.progress(&format!("{} s of messages", scenario.seconds));
    let how = How {
        scale: 1.0,
        patience_s,
        times: true,
    };
    let mut result = Ok(());
    for _ in 0..options.repeats {
        let mut tally = Tally::new()?;
        tally.csv = csv.take();
        let ended = crew.trial(run, &scenario, how, &mut tally);
        // A full disk costs no figures.
        let written = tally.csv.as_mut().map_or(Ok(()), Csv::finish);
        csv = tally.csv.take();
        let parts = match ended.and_then(|parts| written.map(|()| parts)) {
            Ok(parts) => parts,
            Err(failure) => {
                result = Err(failure);
                Vec::new()
            }
        };
        if result.is_ok() || scenario.machine.is_empty() {
            tell(run, &scenario, &tally, &parts);
            let times = crew.tell_times(run, "", &scenario, &tally, &parts);
            result = result.and(times);
        }
        if result.is_ok() && tally.stopped {
            result = Err(Failure::Stopped);
        }
        if result.is_ok() && tally.delivered == 0 && tally.copies > 0 {
            let text = format!("no copy of {} messages came.", tally.sent);
            result = Err(Failure::Failed(text));
        }
        if result.is_err() {
            break;
        }
    }
    crew.end(run);
    result
}

/// Adds a trial's figures.
fn tell(run: &mut Run<'_>, scenario: &Scenario, tally: &Tally, parts: &[Part]) {
    let report = &mut *run.report;
    tell_counts(report, scenario, tally);
    if scenario.machine.is_empty() {
        tell_percentiles(report, LATE, "mqtick-load", &tally.late);
        let shares = [tally.own_share, tally.idle_share, tally.fullest];
        tell_own(report, "mqtick-load", tally.unstamped, tally.resent, shares);
    }
    machines::tell(report, scenario, parts);
    tell_remarks(report, "", tally);
}
