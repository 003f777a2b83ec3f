//! The part of a scenario that one of several machines has: asked for on standard input ([`Task`],
//! then for each trial [`How`] and when it begins), told on standard output ([`Said`]), a line of JSON
//! each. It ends when its input does, so that nothing stays behind
//! when the connection breaks.

use mqtick_packet::Version;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::clocks::{Interval, Look, Reading, error_of, strayed};
use crate::contest::{Contestant, Run};
use crate::engine::Engine;
use crate::options::Options;
use crate::scenario::Scenario;
use crate::scenario_run::TOLD;
use crate::stamps::now_ns;
use crate::stop::Stop;
use crate::tally::{Apart, Tally};
use crate::tls::Pem;
use crate::{Failure, Outcome};

/// What both ends have to have in common.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// From the word to begin until the first message is due, in ns.
pub const LEAD_NS: u64 = 500_000_000;
/// How long whoever asks may be silent.
pub const SILENCE: Duration = Duration::from_secs(120);
/// Seconds that a clock may take to answer.
const CLOCK_S: &str = "10";

/// What a machine is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    /// The whole scenario.
    pub scenario: Scenario,
    /// Which of its machines this is.
    pub own: usize,
    /// Where the broker is, as seen there.
    pub broker: String,
    /// Whether to speak MQTT 5.
    pub v5: bool,
    /// Name and password.
    pub login: Option<(String, Vec<u8>)>,
    /// Whom to believe and what to show.
    pub pem: Pem,
    /// What topics begin with.
    pub prefix: String,
    /// How long an answer may take, in s.
    pub patience_s: f64,
}

/// How a trial is to be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct How {
    /// What the intervals of the load are multiplied by.
    pub scale: f64,
    /// How long nothing may come before the rest counts as lost, in s.
    pub patience_s: f64,
    /// Whether each message's times are wanted, and so the clocks' intervals.
    pub times: bool,
}

impl How {
    /// How long nothing may come.
    #[must_use]
    pub fn patience(&self) -> Duration {
        Duration::try_from_secs_f64(self.patience_s).unwrap_or(Duration::from_secs(5))
    }
}

/// What a machine says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    /// That it is there, and which version.
    Hello(String),
    /// That its clients are connected, and its clock was asked.
    Ready,
    /// What happened.
    Done(Box<Part>),
    /// Why it gave up.
    Failed(String),
}

/// What is known of a clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Clock {
    /// How wrong it was during the run.
    Known(Interval),
    /// Why nobody knows that.
    Unknown(String),
}

macro_rules! counts {
    ($($field:ident)*) => {
        /// What a machine counted.
        #[derive(Debug, Default, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "they are those of a tally")]
        pub struct Counts {
            $(pub $field: u64,)*
        }

        impl Counts {
            fn of(tally: &Tally) -> Self {
                Self { $($field: tally.$field,)* }
            }

            /// Adds them to those of others.
            pub fn add_to(&self, tally: &mut Tally) {
                $(tally.$field = tally.$field.saturating_add(self.$field);)*
            }
        }
    };
}

counts! {
    offered ingress owed egress sent copies delivered duplicates disorder belated refused
    unanswered together
}

/// What happened on one machine; times by its own clock, in ns.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// How many of what.
    pub counts: Counts,
    /// By how much a stamp that copies share may be too late.
    pub together_ns: u64,
    /// When its first message was due.
    pub begin: u64,
    /// When its last copy came, or message left.
    pub last_ns: u64,
    /// Whether its publishers have sent all that they may.
    pub is_over: bool,
    /// Copies or messages without a stamp of the kernel.
    pub unstamped: u64,
    /// Segments that TCP sent again.
    pub resent: u64,
    /// Shares of one: its own processor, idle processors, the fullest receive queue.
    pub shares: [f64; 3],
    /// Percentiles of its lateness, in us; none where it published nothing.
    pub late_us: Vec<f64>,
    /// What else was at its end.
    pub bottlenecks: Vec<String>,
    /// Whether its stamps are the kernel's.
    pub stamped: bool,
    /// Its clock, where that was asked.
    pub clock: Option<Clock>,
    /// Publisher, number, due and left of each message that counts.
    pub left: Vec<(u32, u64, u64, u64)>,
    /// Publisher, number and stamp of each copy.
    pub heard: Vec<(u32, u64, u64)>,
}

/// Does what is asked for on standard input.
///
/// # Errors
/// What stopped it; it was told on standard output, too.
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
            "it has no part in the scenario.".to_owned(),
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
    let mut report = crate::report::Report::default();
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
            // By a clock that is far off, all begin when the word comes.
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

/// Puts two readings together; a sentence where the clock is not to be trusted.
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

/// An interval, or why there is none.
type Answer = Result<Reading, String>;

/// Asks for the clock's interval; a sentence where what came is nonsense.
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

/// Returns the last line of what a program complained, fit to be printed.
#[must_use]
pub fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.unwrap_or("it said nothing").trim();
    line.chars()
        .filter(|one| !one.is_control())
        .take(200)
        .collect()
}

fn say(what: &Said) -> Outcome<()> {
    let failed = |error: std::io::Error| Failure::Failed(format!("nobody listens: {error}."));
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
                    Failure::Failed(format!("what it was asked is not understood: {error}."))
                });
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Stopped),
            Err(RecvTimeoutError::Timeout) if Instant::now() > until => {
                let text = "whoever asked says nothing more.";
                return Err(Failure::Failed(text.to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Reads standard input; its end asks the program to end, and ends it where it does not.
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
