//! The command `limit`: how much a broker carries, and its latency there and below.

use crate::commands::search::{self, Limit};
use crate::remote::crew::Crew;
use crate::remote::message::How;
use crate::results::report::{Report, names};
use crate::results::rows::{COST, LOST, tell_remarks};
use crate::results::tally::Tally;
use crate::run::contest::Run;
use crate::settings::options::{Options, Search};
use crate::settings::scenario::{Group, Kind, PUBLISHED, Scenario};
use hdrhistogram::Histogram;
use mqtick_net::failure::{Outcome, refuse_if};

const WHO: &str = "broker";

/// Silence after a trial until the missing copies count as lost, in s.
const SILENCE_S: f64 = 1.0;

/// The latency clients' interval in the fast search, in us: short trials need more messages.
const LATENCY_INTERVAL_US: f64 = 20_000.0;

/// Shares of the limit at which the latency is measured.
const LEVELS: [(&str, f64); 3] = [("at 50 %", 0.5), ("at 90 %", 0.9), ("at the limit", 1.0)];

/// Trials up to this many times the limit say what limited it.
const NEAR: f64 = 1.5;

names! {
    INGRESS "limit_ingress" "limit of performance, ingress" "1/s";
    EGRESS "limit_egress" "limit of performance, egress" "1/s";
    INTERVAL "limit_interval_us" "shortest interval of the first group" "us";
    LOW "limit_ingress_low" "limit of performance, ingress, from" "1/s";
    HIGH "limit_ingress_high" "limit of performance, ingress, to" "1/s";
    BEST "held" "highest ingress that it has carried" "1/s";
    TRIALS "trials" "trials" "1";
    BY_LOAD "limited_by_load" "trials above it that the load tool limited" "%";
}

/// Returns how to run a trial. `times`: whether each message's times are wanted.
fn how(options: &Options, scale: f64, times: bool) -> How {
    How {
        scale,
        patience_s: match options.is_given("patience") {
            true => options.patience.as_secs_f64(),
            false => SILENCE_S,
        },
        times,
    }
}

/// What a trial of the search showed.
struct Shown {
    scale: f64,
    ratio: f64,
    holds: bool,
    bottlenecks: Vec<String>,
    idle_share: f64,
    own_share: f64,
}

/// Measures.
///
/// # Errors
/// What stopped it; the report has what was measured until then.
pub fn run(run: &mut Run<'_>) -> Outcome<()> {
    let options = run.options;
    let target = options.target()?;
    let scenario = plan(run)?;
    let mut crew = Crew::open(run, target, &scenario)?;
    let mut shown: Vec<Shown> = Vec::new();
    let mut trial = |scale: f64| {
        let ingress = scenario.ingress(scale);
        run.progress(&format!(
            "trial {}, {} s: {ingress:.0} messages a second; it has carried {:.0}",
            shown.len() + 1,
            scenario.seconds,
            highest_held(&scenario, &shown)
        ));
        let mut tally = Tally::new()?;
        crew.trial(run, &scenario, how(options, scale, false), &mut tally)?;
        run.stop.check()?;
        refuse_if(
            shown.is_empty() && tally.owed == 0,
            "no message is due in a trial: give a longer one (--trial), or a shorter interval_us.",
        )?;
        let holds = tally.is_under_limit();
        shown.push(Shown {
            scale,
            ratio: tally.ratio(),
            holds,
            bottlenecks: tally.bottlenecks(),
            idle_share: tally.idle_share,
            own_share: tally.own_share,
        });
        Ok(holds)
    };
    let found = match options.search {
        Search::Published => search::published(&mut trial),
        Search::Fast => search::fast(options.resolution, options.repeats, &mut trial),
    };
    let each = || shown.iter();
    let rates = each().map(|one| scenario.ingress(one.scale)).collect();
    run.report.list("trial_ingress", rates);
    run.report
        .list("trial_ratio", each().map(|one| one.ratio).collect());
    let held = each().map(|one| f64::from(u8::from(one.holds)));
    run.report.list("trial_held", held.collect());
    let limit = match found {
        Ok(limit) => limit,
        Err(failure) => {
            // Even a search that ends early knows which rate has held.
            run.report.add(BEST, WHO, highest_held(&scenario, &shown));
            run.report.add(TRIALS, WHO, shown.len() as f64);
            return Err(failure);
        }
    };
    if options.search == Search::Published {
        let text = "the interval of the limit is one step of the search: each rate was tried once, so \
                    it does not include how much the broker varies.";
        run.report.note(text.to_owned());
    }
    tell_limit(run.report, &scenario, &limit, &shown);
    let percentiles = shares().map(|share| 100.0 * share);
    run.report.list("percentiles", percentiles.collect());
    for (name, share) in LEVELS {
        run.progress(&format!("latency {name}"));
        let mut tally = Tally::new()?;
        let how = how(options, limit.scale / share, true);
        let parts = crew.trial(run, &scenario, how, &mut tally)?;
        run.stop.check()?;
        crew.tell_times(run, name, &scenario, &tally, &parts)?;
        tell_level(run.report, name, &tally);
        list_percentiles(run.report, "wire", name, &tally.wire);
        list_percentiles(run.report, "skew", name, &tally.skew);
    }
    crew.end(run);
    Ok(())
}

/// The highest ingress that the broker has carried.
fn highest_held(scenario: &Scenario, shown: &[Shown]) -> f64 {
    let held = shown.iter().filter(|one| one.holds);
    held.map(|one| scenario.ingress(one.scale))
        .fold(0.0, f64::max)
}

/// The percentiles that a curve is drawn through, from 0 to 99.9 %, as shares.
fn shares() -> impl Iterator<Item = f64> {
    (0..=60).map(|step| 1.0 - 10_f64.powf(-f64::from(step) / 20.0))
}

/// Lists those percentiles of latency or skew, in us, and of how many values they are.
fn list_percentiles(report: &mut Report, what: &str, level: &str, of: &Histogram<u64>) {
    if of.is_empty() {
        return;
    }
    let count = of.len() as f64;
    // Beyond the last one there is only the largest value.
    let told = shares().take_while(|share| (1.0 - share) * count >= 1.0);
    let us = told.map(|share| of.value_at_quantile(share) as f64 / 1e3);
    report.list(&format!("{what}_us {level}"), us.collect());
    report.list(&format!("{what}_count {level}"), vec![count]);
}

/// Adds the figures of a share of the limit, except its times.
fn tell_level(report: &mut Report, name: &'static str, tally: &Tally) {
    report.add(LOST, name, tally.lost() as f64);
    tell_remarks(report, &format!("{name}: "), tally);
    if let Some(each) = tally.cost_ns() {
        report.add(COST, name, each);
    }
}

/// Returns the scenario of the trials.
fn plan(run: &Run<'_>) -> Outcome<Scenario> {
    let options = run.options;
    let mut scenario = match &options.scenario {
        Some(path) => Scenario::load(path)?,
        None => Scenario::parse(PUBLISHED)?,
    };
    let loads = || scenario.group.iter().filter(varied);
    refuse_if(
        loads().all(|one| one.copies() == 0),
        "limit varies the interval of groups of kind load that have subscribers and no window, and \
         the scenario has no such group.",
    )?;
    refuse_if(
        loads().any(|one| one.messages.is_some()),
        "limit: leave `messages` out, so that the rate lasts until the end of a trial.",
    )?;
    if options.search == Search::Fast {
        scenario.seconds = options.trial;
        scenario.ramp_up_s = options.trial * 0.2;
        scenario.ramp_down_s = options.trial * 0.05;
        if options.scenario.is_none() {
            let all = scenario.group.iter_mut();
            let latency = all.filter(|one| one.kind == Kind::Latency);
            latency.for_each(|one| one.interval_us = LATENCY_INTERVAL_US);
        }
    }
    Ok(scenario)
}

/// Whether the search varies the interval of a group.
fn varied(one: &&Group) -> bool {
    one.kind == Kind::Load && one.ingress(1.0) > 0.0
}

/// Copies a second, as scheduled.
fn egress(scenario: &Scenario, scale: f64) -> f64 {
    let each = scenario.group.iter();
    each.map(|one| one.ingress(scale) * one.copies() as f64)
        .sum()
}

fn tell_limit(report: &mut Report, scenario: &Scenario, limit: &Limit, shown: &[Shown]) {
    let ingress = scenario.ingress(limit.scale);
    let interval = scenario.group.iter().find(varied);
    let above = |one: &&Shown| !one.holds && limit.scale / one.scale < NEAR;
    let failed: Vec<&Shown> = shown.iter().filter(above).collect();
    let ours = failed
        .iter()
        .filter(|one| !one.bottlenecks.is_empty())
        .count();
    let share = 100.0 * ours as f64 / failed.len().max(1) as f64;
    for (name, value) in [
        (INGRESS, ingress),
        (EGRESS, egress(scenario, limit.scale)),
        (LOW, scenario.ingress(limit.lowest)),
        (HIGH, scenario.ingress(limit.highest)),
        (
            INTERVAL,
            interval.map_or(0.0, |one| one.interval_ns(limit.scale) / 1e3),
        ),
        (TRIALS, shown.len() as f64),
        (BY_LOAD, share),
    ] {
        report.add(name, WHO, value);
    }
    report.list(
        "limits",
        limit
            .scales
            .iter()
            .map(|one| scenario.ingress(*one))
            .collect(),
    );
    if share > 50.0 {
        let why: Vec<&str> = failed
            .iter()
            .flat_map(|one| &one.bottlenecks)
            .map(String::as_str)
            .take(1)
            .collect();
        let text = format!(
            "THE LOAD TOOL, NOT THE BROKER, WAS THE LIMIT: {}. The broker carries at least this.",
            why.join("; ")
        );
        report.note(text);
    }
    let idle = failed.iter().map(|one| one.idle_share).fold(1.0, f64::min);
    let own = failed.iter().map(|one| one.own_share).fold(0.0, f64::max);
    if idle < 0.05 {
        report.note(format!(
            "the processors of this machine were all busy, {own:.2} of them with the load tool: if \
             the broker is on this machine, it carries more on one of its own."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// What is told of trials: scale, whether it held, whether the load tool was at its end.
    fn told(trials: &[(f64, bool, bool)], idle_share: f64) -> Value {
        let mut report = Report::default();
        let shown: Vec<Shown> = trials
            .iter()
            .map(|(scale, holds, is_ours)| Shown {
                scale: *scale,
                ratio: 1.0,
                holds: *holds,
                bottlenecks: is_ours
                    .then(|| "mqtick-load used 99 %".to_owned())
                    .into_iter()
                    .collect(),
                idle_share,
                own_share: 0.99,
            })
            .collect();
        let limit = Limit {
            scale: 1.0,
            lowest: 2.0,
            highest: 0.5,
            scales: vec![1.0],
        };
        let scenario = Scenario::parse(PUBLISHED).unwrap();
        tell_limit(&mut report, &scenario, &limit, &shown);
        report.json(true)
    }

    #[test]
    fn the_limit_has_an_interval_in_which_the_latency_clients_keep_their_rate() {
        let told = told(&[], 1.0);
        let rows = told["rows"].as_array().unwrap();
        let rates: Vec<&Value> = rows.iter().map(|row| &row["median"]).collect();
        // Ingress, egress, from, to: 5000 messages a second are varied, and one is not.
        assert_eq!(rates[..4], [5001.0, 50_005.0, 2501.0, 10_001.0]);
    }

    #[test]
    fn what_was_wrong_with_a_latency_is_told_with_its_share_of_the_limit() {
        let mut report = Report::default();
        let mut tally = Tally::new().unwrap();
        tally.step_ns = 20_000_000;
        tell_level(&mut report, "at 50 %", &tally);
        let told = report.json(true)["notes"].to_string();
        assert!(
            told.contains("at 50 %: not the broker alone: the clock was stepped by 20 ms"),
            "{told}"
        );
    }

    #[test]
    fn percentiles_end_where_only_the_largest_value_is_beyond() {
        let mut report = Report::default();
        let mut tally = Tally::new().unwrap();
        (1..1000).for_each(|us| tally.wire.record(us * 1000).unwrap());
        list_percentiles(&mut report, "wire", "at 90 %", &tally.wire);
        list_percentiles(&mut report, "skew", "at 90 %", &tally.skew);
        let told = report.json(true);
        assert_eq!(told["lists"]["wire_count at 90 %"], json!([999.0]));
        let us = told["lists"]["wire_us at 90 %"].as_array().unwrap();
        // Up to 99.87 %.
        assert_eq!(us.len(), 60);
        let median = us[6].as_f64().unwrap();
        assert!((498.0..501.0).contains(&median), "{median}");
        assert!(told["lists"].get("skew_us at 90 %").is_none());
    }

    #[test]
    fn a_copy_may_take_as_long_as_the_command_line_says() {
        let patience = |line: &str| {
            let options = Options::parse(line.split(' ').map(Into::into)).unwrap();
            how(&options, 1.0, true).patience_s
        };
        assert_eq!(patience("limit 127.0.0.1"), SILENCE_S);
        assert_eq!(patience("limit 127.0.0.1 --patience 3"), 3.0);
    }

    #[test]
    fn whose_limit_it_was_is_said_by_the_trials_just_above_it() {
        let ours = "THE LOAD TOOL, NOT THE BROKER, WAS THE LIMIT: mqtick-load used 99 %.";
        let told = |trials: &[_], idle_share| told(trials, idle_share).to_string();
        assert!(told(&[(0.9, false, true), (0.8, false, true)], 0.5).contains(ours));
        // Half of them, those that held, and those far above do not count.
        let half = [(0.9, false, true), (0.8, false, false)];
        let far = [(1.1, true, true), (0.9, false, false), (0.5, false, true)];
        for trials in [&half[..], &far[..]] {
            assert!(!told(trials, 0.5).contains("THE LOAD TOOL"), "{trials:?}");
        }
        let busy = "processors of this machine were all busy, 0.99 of them with the load tool";
        assert!(told(&[(0.9, false, false)], 0.01).contains(busy));
        assert!(!told(&[(0.9, false, false)], 0.5).contains(busy));
    }
}
