//! `mqtick-load agent`: one machine's part of a scenario. It reads a [`Task`], then for each trial
//! a [`How`] and the moment to begin, from standard input, and writes [`Said`] to standard output,
//! each as a line of JSON. It ends when its input does, so nothing is left behind when the
//! connection breaks.

use mqtick_packet::Version;
use serde::de::DeserializeOwned;
use std::io::{BufRead, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::remote::message::{
    Clock, Counts, How, LEAD_NS, Part, SILENCE, Said, Task, VERSION, last_line,
};
use crate::results::report::Report;
use crate::results::rows::TOLD;
use crate::results::tally::{Apart, Tally};
use crate::run::contest::{Contestant, Run};
use crate::run::engine::Engine;
use crate::settings::options::Options;
use crate::system::clocks::{Look, Reading, error_of, now_ns, strayed};
use crate::system::stop::Stop;
use mqtick_net::failure::{Failure, Outcome};

/// Seconds that the clock's command may take.
const CLOCK_S: &str = "10";

/// Runs trials as commanded on standard input.
///
/// # Errors
/// What went wrong; standard output has it, too.
pub fn run() -> Outcome<()> {
    let stop = Stop::new()?;
    let lines = listen(stop.asker());
    say(&Said::Hello(VERSION.to_owned()))?;
    let result = work(&stop, &lines);
    if let Err(Failure::Failed(text) | Failure::Use(text)) = &result {
        say(&Said::Failed(text.clone()))?;
    }
    result
}

fn work(stop: &Stop, lines: &Receiver<String>) -> Outcome<()> {
    let mut task: Task = hear(stop, lines)?;
    task.scenario.check()?;
    task.scenario.own = Some(task.own);
    let scenario = task.scenario;
    let Some(machine) = scenario.machine.get(task.own) else {
        return Err(Failure::Failed(
            "the scenario does not name this machine.".to_owned(),
        ));
    };
    let options = Options {
        broker: task.broker,
        pem: task.pem,
        version: if task.v5 { Version::V5 } else { Version::V3 },
        prefix: Some(task.prefix),
        patience: Duration::try_from_secs_f64(task.patience_s).unwrap_or(Duration::from_secs(5)),
        ..Options::default()
    };
    let mut target = options.target()?;
    target.login = task.login;
    let mut report = Report::default();
    let mut run = Run {
        options: &options,
        stop,
        report: &mut report,
    };
    let mut engine = Engine::open(&mut run, &Contestant::broker(target, &options)?, &scenario)?;
    loop {
        let how: How = match hear(stop, lines) {
            Err(Failure::Stopped) => break,
            other => other?,
        };
        let before = how.times.then(|| (Look::take(), reading(&machine.clock)));
        say(&Said::Ready)?;
        let at: u64 = hear(stop, lines)?;
        let now = now_ns();
        let mut tally = Tally::new()?;
        tally.apart = Some(Apart {
            // Where the clocks are far apart, it begins when the command comes.
            begin: if at.abs_diff(now + LEAD_NS) < LEAD_NS {
                at
            } else {
                now + LEAD_NS
            },
            looks: before.iter().map(|(look, _)| *look).collect(),
            ..Apart::default()
        });
        engine.trial(stop, &scenario, how.scale, how.patience(), &mut tally)?;
        stop.check()?;
        let mut looks = tally
            .apart
            .as_ref()
            .map_or(Vec::new(), |one| one.looks.clone());
        let clock = before.map(|(_, before)| {
            let after = reading(&machine.clock);
            looks.push(Look::take());
            known(before, after, &looks).map_err(|why| Failure::Failed(format!("{why}.")))
        });
        say(&Said::Done(Box::new(part(
            &engine,
            tally,
            clock.transpose()?,
        ))))?;
    }
    engine.forget_retained();
    Ok(())
}

fn part(engine: &Engine, mut tally: Tally, clock: Option<Clock>) -> Part {
    let apart = tally.apart.take().unwrap_or_default();
    let left = engine.left(|due| clock.is_some() && tally.holds(due));
    let late = |share| tally.late.value_at_quantile(share) as f64 / 1e3;
    Part {
        counts: Counts::of(&tally),
        together_ns: tally.together_ns,
        begin: apart.begin,
        last_ns: tally.last_ns,
        is_over: apart.is_over,
        unstamped: tally.unstamped,
        resent: tally.resent,
        shares: [tally.own_share, tally.idle_share, tally.fullest],
        late_us: match tally.late.is_empty() {
            true => Vec::new(),
            false => TOLD.map(late).to_vec(),
        },
        bottlenecks: tally.bottlenecks(),
        stamped: engine.is_stamped(),
        left,
        heard: if clock.is_some() {
            apart.heard
        } else {
            Vec::new()
        },
        clock,
    }
}

/// Combines two readings; an error if the clock cannot be trusted.
fn known(
    before: Result<Answer, String>,
    after: Result<Answer, String>,
    looks: &[Look],
) -> Result<Clock, String> {
    strayed(looks)?;
    Ok(match (before?, after?) {
        (Ok(one), Ok(other)) => Clock::Known(error_of(one, other, looks)?),
        (Err(why), _) | (_, Err(why)) => Clock::Unknown(why),
    })
}

/// An interval, or why it is not known.
type Answer = Result<Reading, String>;

/// Reads the clock's interval; an error if the answer makes no sense.
fn reading(command: &str) -> Result<Answer, String> {
    if command == "none" {
        return Ok(Err(
            "nothing tells its interval (clock = \"none\")".to_owned()
        ));
    }
    let words = command.split_whitespace();
    let asked = Command::new("timeout")
        .args(["-k", "1", CLOCK_S])
        .args(words)
        .output();
    let output = match asked {
        Ok(output) => output,
        Err(error) => return Ok(Err(format!("timeout {command}: {error}"))),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if !text.trim().is_empty() {
        return Reading::parse(&text).map(Ok);
    }
    let why = match output.status.code() {
        Some(124 | 137) => format!("no answer in {CLOCK_S} s"),
        _ => last_line(&String::from_utf8_lossy(&output.stderr)),
    };
    Ok(Err(format!("{command}: {why}")))
}

fn say(what: &Said) -> Outcome<()> {
    let failed = |error: std::io::Error| {
        Failure::Failed(format!("standard output cannot be written: {error}."))
    };
    let mut out = std::io::stdout().lock();
    let text = serde_json::to_string(what).map_err(|error| failed(error.into()))?;
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(failed)
}

fn hear<T: DeserializeOwned>(stop: &Stop, lines: &Receiver<String>) -> Outcome<T> {
    let until = Instant::now() + SILENCE;
    loop {
        stop.check()?;
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => {
                return serde_json::from_str(&line).map_err(|error| {
                    Failure::Failed(format!("its command cannot be read: {error}."))
                });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Stopped),
            Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                let text = "no command came for 120 s.";
                return Err(Failure::Failed(text.to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Reads commands. At the end of its input the program is asked to end; after 10 s it is forced to.
fn listen(asker: Arc<AtomicBool>) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        asker.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_secs(10));
        std::process::exit(1);
    });
    receiver
}
