//! Processor time and memory of a process, and the descriptors of this one.

use mqtick_net::failure::{Failure, Outcome};
use mqtick_net::process::raise_descriptors;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::fs;

/// A process that is watched.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pid: i32,
    clock: ClockId,
}

/// Processor time that a process has used since it began, all its threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Used {
    /// In ns, by the process's CPU clock.
    pub total_ns: u64,
    /// In user mode, in ticks of 10 ms.
    user_ticks: u64,
    /// In the kernel, in ticks.
    system_ticks: u64,
}

impl Used {
    /// Returns what was used since an earlier reading.
    pub fn since(self, before: Self) -> Self {
        Self {
            total_ns: self.total_ns.saturating_sub(before.total_ns),
            user_ticks: self.user_ticks.saturating_sub(before.user_ticks),
            system_ticks: self.system_ticks.saturating_sub(before.system_ticks),
        }
    }

    /// Returns the kernel's share, 0 to 1; None below 20 ticks, which are too coarse.
    pub fn system_share(self) -> Option<f64> {
        let ticks = self.user_ticks + self.system_ticks;
        (ticks >= 20).then(|| self.system_ticks as f64 / ticks as f64)
    }
}

/// Memory of a process, in octets.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Resident pages.
    pub rss: u64,
    /// Proportional: shared pages are divided among their processes.
    pub pss: u64,
}

impl Process {
    /// Finds a process.
    ///
    /// # Errors
    /// Where there is no such process, or /proc hides it.
    pub fn new(pid: i32) -> Outcome<Self> {
        let none = |_| Failure::Use(format!("--broker-pid {pid}: there is no such process."));
        let clock = clock_getcpuclockid(Pid::from_raw(pid)).map_err(none)?;
        let process = Self { pid, clock };
        process.used().map_err(|_| none(nix::Error::ESRCH))?;
        Ok(process)
    }

    /// Reads the processor time.
    ///
    /// # Errors
    /// Where the process has ended.
    pub fn used(&self) -> Outcome<Used> {
        let ended = |_| self.ended();
        let now = clock_gettime(self.clock).map_err(ended)?;
        let stat = self.read("stat")?;
        // The name, the second field, may hold spaces and brackets.
        let fields: Vec<&str> = match stat.rsplit_once(')') {
            Some((_, after)) => after.split_whitespace().collect(),
            None => Vec::new(),
        };
        let ticks = |place: usize| {
            fields
                .get(place)
                .and_then(|field| field.parse().ok())
                .unwrap_or(0)
        };
        Ok(Used {
            total_ns: now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64,
            user_ticks: ticks(11),
            system_ticks: ticks(12),
        })
    }

    /// Reads the memory.
    ///
    /// # Errors
    /// Where the process has ended, or belongs to another user.
    pub fn memory(&self) -> Outcome<Memory> {
        let text = self.read("smaps_rollup")?;
        let octets = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
                .map(|kib| kib * 1024)
        };
        match (octets("Rss:"), octets("Pss:")) {
            (Some(rss), Some(pss)) => Ok(Memory { rss, pss }),
            _ => Err(self.ended()),
        }
    }

    /// Counts its threads.
    pub fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.pid)).map_or(0, Iterator::count)
    }

    fn read(&self, name: &str) -> Outcome<String> {
        let path = format!("/proc/{}/{name}", self.pid);
        fs::read_to_string(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Failure::Failed(format!(
                "{path} may not be read: run this as root or as the broker's user."
            )),
            _ => self.ended(),
        })
    }

    fn ended(&self) -> Failure {
        Failure::Failed(format!(
            "process {} has ended, so its cost is not known.",
            self.pid
        ))
    }
}

/// Returns the processor time that this process has used, in ns.
pub fn own_ns() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| {
        let (user, system) = (usage.user_time(), usage.system_time());
        (user.tv_sec() + system.tv_sec()) as u64 * 1_000_000_000
            + (user.tv_usec() + system.tv_usec()) as u64 * 1_000
    })
}

/// Returns how long this thread was ready to run and had no processor, in ns.
pub fn waited_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let second = text.split_whitespace().nth(1);
    second.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Descriptors besides the connections: standard ones, epoll, signals, the floor's pipes.
const SPARE: u64 = 32;

/// Raises the limit so that `sockets` connections fit; returns it.
///
/// # Errors
/// Where the system allows fewer; the text says how many.
pub fn descriptors(sockets: u64) -> Outcome<u64> {
    let needed = sockets + SPARE;
    let limit = raise_descriptors(needed);
    if needed <= limit {
        return Ok(limit);
    }
    Err(Failure::Failed(format!(
        "{sockets} connections need {needed} descriptors, and this process may open {limit}: ask \
         for at most {} connections, or raise the limit (`ulimit -Hn`).",
        limit.saturating_sub(SPARE)
    )))
}
