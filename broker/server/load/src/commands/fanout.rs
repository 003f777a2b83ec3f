//! One publisher, many subscribers: delay, order and cost of the copies.

use hdrhistogram::Histogram;

use crate::commands::blocks;
use crate::results::places::Places;
use crate::results::report::{Name, Spread, names};
use crate::results::rows::{COST, DELAY, LATE, SKEW, percentiles, tell_percentiles};
use crate::results::tally::{Tally, record};
use crate::run::contest::Run;
use crate::run::engine::Engine;
use crate::run::sender::Sent;
use crate::settings::scenario::{Group, Kind, Scenario};
use mqtick_net::failure::Outcome;

const FIRST: [Name; 5] = percentiles!("first", "publish to first copy");
const SENT: [Name; 5] = percentiles!("sent", "send() to first copy");
names! {
    MEAN "sent_mean_us" "send() to first copy, mean" "us";
    RATE "burst_rate" "messages, from a burst's first send() to its last copy" "1/s";
}

const WARM_UP_MESSAGES: usize = 20;
/// Most messages of a block whose delay and skew are listed in the JSON.
const LISTED: usize = 10_000;

/// Measures.
///
/// # Errors
/// What stopped it; the report has what was measured until then.
pub fn run(run: &mut Run<'_>) -> Outcome<()> {
    let options = run.options;
    let of = |messages: usize| Scenario {
        seconds: 3600.0 * 24.0,
        ramp_up_s: 0.0,
        ramp_down_s: 0.0,
        group: vec![Group {
            kind: Kind::Latency,
            subscribers: options.subscribers,
            qos: options.qos as u8,
            payload: options.size,
            interval_us: options
                .rate
                .map_or(1e6 * options.gap.as_secs_f64(), |rate| 1e6 / rate),
            window: options.rate.map_or(options.burst as u64, |_| 0),
            burst: options.burst as u64,
            messages: Some(messages as u64),
            ..Group::default()
        }],
        ..Scenario::default()
    };
    let (warm_up, block) = (
        of(options.messages.min(WARM_UP_MESSAGES)),
        of(options.messages),
    );
    let open = |engine: &mut Engine| {
        engine.punctual = options.rate.is_some();
        engine.places = Some(Places::new(options.subscribers));
    };
    let result = blocks::measure(run, &warm_up, &block, open, tell);
    run.report
        .compare(&[FIRST[0], FIRST[2], SKEW[0], SKEW[2], COST]);
    for (who, engine) in result? {
        if let Some(places) = &engine.places {
            places.tell(run.report, who);
        }
        tell_stamps(run, who, &engine);
    }
    Ok(())
}

/// Adds the figures of a block.
fn tell(run: &mut Run<'_>, who: &'static str, engine: &mut Engine, tally: &Tally) {
    if let Some(places) = &mut engine.places {
        places.end();
    }
    let [mut firsts, mut sents] = [&tally.delay; 2].map(Histogram::new_from);
    let (mut listed, mut sum) = ([Vec::new(), Vec::new()], 0);
    for one in engine.sent().filter(|one| one.came > 0) {
        let first = one.first.saturating_sub(one.due);
        let sent = one.first.saturating_sub(one.left);
        record(&mut firsts, first);
        record(&mut sents, sent);
        sum += sent;
        listed[0].push(first as f64 / 1e3);
        if one.came == run.options.subscribers {
            listed[1].push((one.last - one.first) as f64 / 1e3);
        }
    }
    tell_percentiles(run.report, FIRST, who, &firsts);
    tell_percentiles(run.report, SKEW, who, &tally.skew);
    tell_percentiles(run.report, DELAY, who, &tally.delay);
    for (name, mut values) in ["first", "skew"].into_iter().zip(listed) {
        values.truncate(LISTED);
        run.report.list(&format!("{who}_{name}_us"), values);
    }
    if run.options.rate.is_some() {
        tell_percentiles(run.report, LATE, who, &tally.late);
        let mean = sum as f64 / sents.len().max(1) as f64;
        run.report.add(MEAN, who, mean / 1e3);
        tell_percentiles(run.report, SENT, who, &sents);
    }
    if run.options.burst > 1 {
        let all: Vec<Sent> = engine.sent().copied().collect();
        let rates: Vec<f64> = all
            .chunks(run.options.burst)
            .filter_map(|burst| rate(burst, run.options.subscribers))
            .collect();
        if let Some(spread) = Spread::of(&rates) {
            run.report.add(RATE, who, spread.median);
        }
    }
}

/// Messages a second of a burst; None if a copy is missing.
fn rate(burst: &[Sent], copies: usize) -> Option<f64> {
    let is_whole = burst.iter().all(|one| one.came == copies);
    let last = burst.iter().map(|one| one.last).max()?;
    let took_ns = last.saturating_sub(burst.first()?.due).max(1);
    is_whole.then(|| burst.len() as f64 * 1e9 / took_ns as f64)
}

fn tell_stamps(run: &mut Run<'_>, who: &str, engine: &Engine) {
    let stamps = match (engine.is_stamped(), engine.unstamped()) {
        (false, _) => {
            "the clock after each receive: they include the generator's own delay".to_owned()
        }
        (true, 0) => "the kernel's, at receipt (SO_TIMESTAMPNS)".to_owned(),
        (true, without) => format!(
            "the kernel's, at receipt (SO_TIMESTAMPNS); {without} copies had none, and have the clock \
             after the receive"
        ),
    };
    run.report.note(format!("{who}: stamps: {stamps}."));
}
