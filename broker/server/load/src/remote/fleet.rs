//! Starts, commands and ends `mqtick-load agent` on several machines.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::protocol::target::Target;
use crate::remote::message::{Clock, How, LEAD_NS, Part, SILENCE, Said, Task, VERSION, last_line};
use crate::run::contest::Run;
use crate::settings::scenario::{Machine, Scenario};
use crate::system::clocks::now_ns;
use crate::system::stop::Stop;
use mqtick_net::failure::{Failure, Outcome};

/// Most octets that a machine sends.
const LONGEST: u64 = 1 << 27;
/// Time for ssh and the first answer, in s.
const HELLO_S: f64 = 60.0;
/// Time for its clock and its answer after a trial, in s.
const REST_S: f64 = 40.0;
/// Time to end.
const ENDING: Duration = Duration::from_secs(15);

/// All machines, connected.
pub struct Fleet {
    all: Vec<Member>,
    heard: Receiver<(usize, Heard)>,
}

struct Member {
    name: String,
    child: Child,
}

enum Heard {
    /// A line, without its end.
    Line(Vec<u8>),
    /// The end of its output, and what it wrote to standard error.
    End(String),
}

impl Fleet {
    /// Starts the program on each machine, and gives it its part.
    ///
    /// # Errors
    /// Where a machine cannot be reached, or has another version.
    pub fn open(run: &mut Run<'_>, target: &Target, scenario: &Scenario) -> Outcome<Self> {
        run.tell_tls(target, scenario);
        let (sender, heard) = channel();
        let mut made = Self {
            all: Vec::new(),
            heard,
        };
        for (place, machine) in scenario.machine.iter().enumerate() {
            let mut child = start(machine)?;
            listen(&mut child, place, &sender);
            made.all.push(Member {
                name: machine.name.clone(),
                child,
            });
        }
        run.progress("ssh");
        let hellos = made.gather(run.stop, HELLO_S, |said| match said {
            Said::Hello(version) => Some(version),
            _ => None,
        })?;
        for (member, version) in made.all.iter().zip(hellos) {
            if version != VERSION {
                let version = last_line(&version);
                let text = format!(
                    "has mqtick-load {version}, and here is {VERSION}: they have to be the same"
                );
                return Err(member.failed(&text));
            }
        }
        for own in 0..made.all.len() {
            let task = Task {
                scenario: scenario.clone(),
                own,
                broker: run.options.broker.clone(),
                v5: target.version == mqtick_packet::Version::V5,
                login: target.login.clone(),
                pem: target.pem.clone(),
                prefix: target.prefix.clone(),
                patience_s: target.patience.as_secs_f64(),
            };
            made.tell(own, &task);
        }
        Ok(made)
    }

    /// Runs a trial of so many seconds on all machines; returns their parts.
    ///
    /// # Errors
    /// Where a machine fails, dies, or does not answer in time.
    pub fn carry_out(&mut self, run: &mut Run<'_>, how: How, seconds: f64) -> Outcome<Vec<Part>> {
        self.tell_all(&how);
        let is_ready = |said| matches!(said, Said::Ready).then_some(());
        self.gather(run.stop, SILENCE.as_secs_f64(), is_ready)?;
        let at = now_ns() + LEAD_NS;
        self.tell_all(&at);
        let long = seconds + how.patience_s + REST_S;
        let parts = self.gather(run.stop, long, |said| match said {
            Said::Done(part) => Some(*part),
            _ => None,
        })?;
        for (member, part) in self.all.iter().zip(&parts) {
            let is_turned = matches!(part.clock, Some(Clock::Known(one)) if one.low > one.high);
            let figures = part.shares.iter().chain(&part.late_us);
            if is_turned || !figures.clone().all(|one| one.is_finite()) {
                return Err(member.failed("its figures make no sense"));
            }
            if part.begin != at {
                let name = &member.name;
                run.report.note(format!(
                    "{name} began when the command came, as its clock and this one are far apart."
                ));
            }
        }
        Ok(parts)
    }

    fn tell_all(&mut self, what: &impl serde::Serialize) {
        (0..self.all.len()).for_each(|place| self.tell(place, what));
    }

    fn tell(&mut self, place: usize, what: &impl serde::Serialize) {
        let text = serde_json::to_string(what).unwrap_or_default();
        let input = self
            .all
            .get_mut(place)
            .and_then(|one| one.child.stdin.as_mut());
        // If the agent is gone, the end of its output will tell.
        let _ = input.map(|input| writeln!(input, "{text}").and_then(|()| input.flush()));
    }

    /// Waits until each machine has given the answer that is wanted.
    fn gather<T>(
        &mut self,
        stop: &Stop,
        within_s: f64,
        wanted: impl Fn(Said) -> Option<T>,
    ) -> Outcome<Vec<T>> {
        let until = Instant::now() + Duration::from_secs_f64(within_s);
        let mut found: Vec<Option<T>> = self.all.iter().map(|_| None).collect();
        while let Some(missing) = found.iter().position(Option::is_none) {
            stop.check()?;
            let (place, heard) = match self.heard.recv_timeout(Duration::from_millis(50)) {
                Ok(heard) => heard,
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => continue,
                Err(_) => {
                    let text = format!("has not answered for {within_s:.0} s");
                    return Err(match self.all.get(missing) {
                        Some(member) => member.failed(&text),
                        None => Failure::Failed(text),
                    });
                }
            };
            let Some(member) = self.all.get_mut(place) else {
                continue;
            };
            let line = match heard {
                Heard::Line(line) => line,
                Heard::End(complaint) => {
                    let ended = member.ended();
                    let text = format!("ended ({ended}): {}", last_line(&complaint));
                    return Err(member.failed(&text));
                }
            };
            let said = serde_json::from_slice(&line).ok();
            match said {
                Some(Said::Failed(text)) => return Err(member.failed(&last_line(&text))),
                said => {
                    let value = said.and_then(&wanted);
                    let Some(place) = found.get_mut(place).filter(|one| one.is_none()) else {
                        return Err(member.failed("spoke out of turn"));
                    };
                    if value.is_none() {
                        let start = line.get(..60).unwrap_or(&line);
                        let start = String::from_utf8_lossy(start).into_owned();
                        let text = format!("said {start:?}, which mqtick-load agent does not say");
                        return Err(member.failed(&text));
                    }
                    *place = value;
                }
            }
        }
        Ok(found.into_iter().flatten().collect())
    }
}

impl Member {
    fn failed(&self, text: &str) -> Failure {
        let end = if text.ends_with('.') { "" } else { "." };
        Failure::Failed(format!("machine {}: {text}{end}", self.name))
    }

    /// Waits for the end of a process that has closed its output.
    fn ended(&mut self) -> String {
        drop(self.child.stdin.take());
        match wait(&mut self.child, Instant::now() + ENDING) {
            Some(status) => status.to_string(),
            None => "it does not end".to_owned(),
        }
    }
}

impl Drop for Fleet {
    /// Closes each agent's input, which ends it and ssh; kills what does not end.
    fn drop(&mut self) {
        for member in &mut self.all {
            drop(member.child.stdin.take());
        }
        let until = Instant::now() + ENDING;
        for member in &mut self.all {
            if wait(&mut member.child, until).is_none() {
                let _ = killpg(
                    Pid::from_raw(member.child.id().cast_signed()),
                    Signal::SIGKILL,
                );
                let _ = member.child.wait();
            }
        }
    }
}

/// Starts the agent, here or by ssh.
fn start(machine: &Machine) -> Outcome<Child> {
    let failed =
        |error: std::io::Error| Failure::Failed(format!("machine {}: ssh: {error}.", machine.name));
    let mut command = match &machine.ssh {
        Some(host) => {
            let mut command = Command::new("ssh");
            command.args(["-T", "-o", "BatchMode=yes", "--", host]);
            command.arg(format!("{} agent", machine.program));
            command
        }
        None => {
            let mut command = Command::new(std::env::current_exe().map_err(failed)?);
            command.arg("agent");
            command
        }
    };
    // In a group of its own: a Ctrl-C reaches only us, and we end the agents.
    command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)
}

fn wait(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(10)),
            _ => return None,
        }
    }
}

/// Reads a program's standard output and standard error, in threads of their own.
fn listen(child: &mut Child, place: usize, sender: &Sender<(usize, Heard)>) {
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let sender = sender.clone();
    let complaints = thread::spawn(move || {
        let mut kept = Vec::new();
        if let Some(mut errors) = errors {
            let _ = errors.by_ref().take(1 << 16).read_to_end(&mut kept);
            // Read on, so that the program does not block.
            let _ = std::io::copy(&mut errors, &mut std::io::sink());
        }
        String::from_utf8_lossy(&kept).into_owned()
    });
    thread::spawn(move || {
        if let Some(output) = output {
            let mut output = BufReader::new(output.take(LONGEST));
            loop {
                let mut line = Vec::new();
                match output.read_until(b'\n', &mut line) {
                    Ok(count) if count > 0 => {
                        let _ = line.pop_if(|last| *last == b'\n');
                        if sender.send((place, Heard::Line(line))).is_err() {
                            return;
                        }
                    }
                    _ => break,
                }
            }
        }
        let complaint = complaints.join().unwrap_or_default();
        let _ = sender.send((place, Heard::End(complaint)));
    });
}
