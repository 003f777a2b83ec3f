//! The command `run`: carries out a scenario or a configuration of MQTTLoader.

use crate::agent::{How, Part};
use crate::contest::{COST, DISORDER, DUPLICATES, LOST, Run};
use crate::crew::Crew;
use crate::engine::Engine;
use crate::machines;
use crate::mqttloader::{self, Csv};
use crate::report::{Name, names};
use crate::scenario::{self, Kind, Scenario};
use crate::stamps::now_ns;
use crate::tally::Tally;
use crate::{Failure, Outcome};
use hdrhistogram::Histogram;

const WHO: &str = "broker";

names! {
    OFFERED "offered" "ingress, as scheduled" "1/s";
    INGRESS "ingress" "ingress, written" "1/s";
    EGRESS "egress" "egress" "1/s";
    SP "sp" "copies of a message (sp-ratio)" "1";
    RATIO "ratio" "egress / (ingress as scheduled * sp)" "1";
    REFUSED "refused" "due, and not sent before the end" "messages";
    UNSTAMPED "unstamped" "without a stamp of the kernel" "messages";
    OWN "own_share" "the load tool's own processor" "%";
    IDLE "idle_share" "idle processors of this machine" "%";
    AGAIN "resent" "segments to the broker that TCP sent again" "segments";
    FULLEST "fullest" "fullest receive queue of a subscriber" "%";
}

/// Percentiles that are told.
pub(crate) const TOLD: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

macro_rules! percentiles {
    ($key:literal, $text:literal) => {
        percentiles!($key, $text: "p50" "p50", "p90" "p90", "p99" "p99", "p999" "p99.9", "max" "max")
    };
    ($key:literal, $text:literal: $($of:literal $told:literal),*) => {
        [$(Name {
            key: concat!($key, "_", $of, "_us"),
            text: concat!($text, ", ", $told),
            unit: "us",
        }),*]
    };
}

pub(crate) use percentiles;

pub(crate) const DELAY: [Name; 5] = percentiles!("delay", "due to each copy");
pub(crate) const WIRE: [Name; 5] = percentiles!("wire", "left to each copy (kernel's stamps)");
pub(crate) const SKEW: [Name; 5] = percentiles!("skew", "first to last copy");
pub(crate) const LATE: [Name; 5] = percentiles!("late", "the load tool's own lateness");

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
        let found = mqttloader::parse(&scenario::read(path)?).map_err(|failure| match failure {
            Failure::Use(why) => Failure::Use(format!("{path}: {why}")),
            other => other,
        })?;
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
    if csv.is_some() && scenario.group.iter().all(|one| one.kind == Kind::Load) {
        let text = "--csv: it has the times of groups of kind latency, and the scenario has none.";
        return Err(Failure::Use(text.to_owned()));
    }
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

/// Adds a trial's counts.
pub(crate) fn tell_counts(run: &mut Run<'_>, scenario: &Scenario, tally: &Tally) {
    // A run that was stopped before its window has no rates.
    let rate = |count: u64| match tally.seconds() {
        0.0 => 0.0,
        seconds => count as f64 / seconds,
    };
    for (name, value) in [
        (OFFERED, rate(tally.offered)),
        (INGRESS, rate(tally.ingress)),
        (EGRESS, rate(tally.egress)),
        (SP, scenario.sp()),
        (LOST, tally.lost() as f64),
        (DUPLICATES, tally.duplicates as f64),
        (DISORDER, tally.disorder as f64),
        (REFUSED, tally.refused as f64),
    ] {
        run.report.add(name, WHO, value);
    }
    if tally.owed > 0 {
        run.report.add(RATIO, WHO, tally.ratio());
    }
    if let Some(used) = tally.cost {
        let each = used.total_ns as f64 / tally.delivered.max(1) as f64;
        run.report.add(COST, WHO, each);
    }
}

/// Adds the figures of the load tool itself.
pub(crate) fn tell_own(
    run: &mut Run<'_>,
    who: &str,
    unstamped: u64,
    resent: u64,
    shares: [f64; 3],
) {
    let [own, idle, fullest] = shares;
    for (name, value) in [
        (UNSTAMPED, unstamped as f64),
        (OWN, 100.0 * own),
        (FULLEST, 100.0 * fullest),
        (AGAIN, resent as f64),
        (IDLE, 100.0 * idle),
    ] {
        run.report.add(name, who.to_owned(), value);
    }
}

/// Adds a trial's figures.
fn tell(run: &mut Run<'_>, scenario: &Scenario, tally: &Tally, parts: &[Part]) {
    tell_counts(run, scenario, tally);
    if scenario.machine.is_empty() {
        tell_percentiles(run, LATE, "mqtick-load", &tally.late);
        let shares = [tally.own_share, tally.idle_share, tally.fullest];
        tell_own(run, "mqtick-load", tally.unstamped, tally.resent, shares);
    }
    machines::tell(run, scenario, parts);
    tell_remarks(run, "", tally);
}

/// Adds remarks on a trial. `at`: its name and a colon, or nothing.
pub(crate) fn tell_remarks(run: &mut Run<'_>, at: &str, tally: &Tally) {
    for text in tally.remarks() {
        run.report.note(format!("{at}{text}"));
    }
    for text in tally.bottlenecks() {
        run.report
            .note(format!("{at}not the broker alone: {text}."));
    }
}

/// Adds latency and skew.
pub fn percentiles_of(run: &mut Run<'_>, who: &'static str, tally: &Tally) {
    for (names, histogram) in [
        (DELAY, &tally.delay),
        (WIRE, &tally.wire),
        (SKEW, &tally.skew),
    ] {
        tell_percentiles(run, names, who, histogram);
    }
}

pub(crate) fn tell_percentiles(
    run: &mut Run<'_>,
    names: [Name; 5],
    who: &'static str,
    of: &Histogram<u64>,
) {
    for (name, share) in told(run, names, who, of.len()) {
        run.report
            .add(name, who, of.value_at_quantile(share) as f64 / 1e3);
    }
}

/// Returns the percentiles of so many values. Of fewer than 1000, p99.9 is the largest value, and
/// is left out; of fewer than 100, p99 is, and a note says so.
pub(crate) fn told(
    run: &mut Run<'_>,
    names: [Name; 5],
    who: &str,
    count: u64,
) -> impl Iterator<Item = (Name, f64)> + use<> {
    if (1..100).contains(&count) {
        let text = names[2].text;
        let text = format!("{who}: {text} of {count} values is the largest of them.");
        run.report.note(text);
    }
    let all = names.into_iter().zip(TOLD);
    all.filter(move |(_, share)| count >= 1000 || count > 0 && *share != TOLD[3])
}

/// Notes whose stamps they were, and retained messages of earlier runs.
pub fn tell_stamps(run: &mut Run<'_>, engine: &Engine) {
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
