//! 1:1 topics, each with a window that is kept full: rate and cost of the messages.

use crate::commands::blocks;
use crate::results::report::names;
use crate::results::rows::COST;
use crate::run::contest::Run;
use crate::settings::scenario::{Group, Scenario};
use mqtick_net::failure::Outcome;

names! {
    RATE "rate" "messages delivered" "1/s";
}

const WARM_UP_S: f64 = 0.5;

/// Measures.
///
/// # Errors
/// What stopped it; the report has what was measured until then.
pub fn run(run: &mut Run<'_>) -> Outcome<()> {
    let options = run.options;
    let of = |seconds| Scenario {
        seconds,
        ramp_up_s: 0.0,
        ramp_down_s: 0.0,
        group: vec![Group {
            topics: options.pairs,
            qos: options.qos as u8,
            payload: options.size,
            interval_us: 0.0,
            window: options.window,
            burst: options.burst as u64,
            ..Group::default()
        }],
        ..Scenario::default()
    };
    let (warm_up, block) = (of(options.seconds.min(WARM_UP_S)), of(options.seconds));
    let result = blocks::measure(
        run,
        &warm_up,
        &block,
        |_| {},
        |run, who, _, tally| {
            let seconds = tally.last_ns.saturating_sub(tally.window.0) as f64 / 1e9;
            run.report.add(RATE, who, tally.delivered as f64 / seconds);
        },
    );
    run.report.compare(&[RATE, COST]);
    result.map(|_| ())
}
