//! Blocks of messages, in turn through the broker and through the floor.

use std::thread;
use std::time::Duration;

use crate::floor;
use crate::results::rows::{DISORDER, DUPLICATES, LOST, LOST_IN_ALL};
use crate::results::tally::Tally;
use crate::run::contest::{Run, contestants};
use crate::run::engine::Engine;
use crate::settings::scenario::Scenario;
use mqtick_net::failure::{Failure, Outcome};

/// Pause between messages of `--until-eof`.
const WARM_UP_GAP: Duration = Duration::from_millis(20);

/// A contestant, connected.
struct Side {
    who: &'static str,
    engine: Engine,
    lost: u64,
}

/// Measures blocks of a scenario, after one block of `warm_up` that does not count.
///
/// `open` prepares an engine; `tell` adds the figures of a block.
///
/// # Errors
/// What stopped it; the report has what was measured until then.
pub fn measure(
    run: &mut Run<'_>,
    warm_up: &Scenario,
    block: &Scenario,
    open: impl Fn(&mut Engine),
    tell: impl Fn(&mut Run<'_>, &'static str, &mut Engine, &Tally),
) -> Outcome<Vec<(&'static str, Engine)>> {
    let options = run.options;
    let (contestants, _floor) = contestants(options)?;
    let mut sides = Vec::new();
    for one in &contestants {
        let mut engine = Engine::open(run, one, block)?;
        open(&mut engine);
        sides.push(Side {
            who: one.target.who,
            engine,
            lost: 0,
        });
    }
    if options.until_eof {
        let mut short = warm_up.clone();
        short
            .group
            .iter_mut()
            .for_each(|one| one.messages = Some(1));
        let ended = thread::spawn(floor::until_eof);
        while !ended.is_finished() {
            thread::sleep(WARM_UP_GAP);
            for side in &mut sides {
                side.block(run, &short)?;
            }
        }
    }
    let mut result = Ok(());
    'blocks: for number in 0..=options.repeats {
        for side in &mut sides {
            let who = side.who;
            run.progress(&format!("{who}: block {number} of {}", options.repeats));
            let tally = match side.block(run, if number == 0 { warm_up } else { block }) {
                Ok(tally) => tally,
                Err(failure) => {
                    result = Err(failure);
                    break 'blocks;
                }
            };
            if number > 0 {
                run.cost(who, tally.cost, tally.own_ns, tally.delivered);
                tell(run, who, &mut side.engine, &tally);
                let lost = (LOST, tally.lost());
                let others = [(DUPLICATES, tally.duplicates), (DISORDER, tally.disorder)];
                for (name, count) in std::iter::once(lost).chain(others) {
                    run.report.add(name, who, count as f64);
                }
            }
            if run.stop.asked() {
                result = Err(Failure::Stopped);
                break 'blocks;
            }
        }
    }
    if result.is_ok() {
        let all = contestants.iter().map(|one| (one.target.who, one.process));
        let processes: Vec<_> = all.collect();
        result = run.memory(&processes);
    }
    for side in &sides {
        run.report.add(LOST_IN_ALL, side.who, side.lost as f64);
    }
    result.map(|()| sides.into_iter().map(|one| (one.who, one.engine)).collect())
}

impl Side {
    fn block(&mut self, run: &mut Run<'_>, scenario: &Scenario) -> Outcome<Tally> {
        let mut tally = Tally::new()?;
        let patience = run.options.patience;
        self.engine
            .trial(run.stop, scenario, 1.0, patience, &mut tally)?;
        self.lost += tally.lost();
        if tally.delivered == 0 {
            return Err(match run.stop.asked() {
                true => Failure::Stopped,
                false => Failure::Failed(format!(
                    "no copy of {} messages came through the {}.",
                    tally.sent, self.who
                )),
            });
        }
        if let Some(text) = tally.stepped() {
            run.report
                .note(format!("{text}: the delays around it are wrong."));
        }
        for text in tally.remarks() {
            run.report.note(format!("{}: {text}", self.who));
        }
        Ok(tally)
    }
}
