//! How busy the machine and this program are.

use std::fs;
use std::time::Instant;

use crate::results::tally::Tally;
use crate::system::process::{own_ns, waited_ns};

/// Measures processor time while messages are due.
#[derive(Debug, Default)]
pub struct Busy {
    before: Option<(Instant, u64, u64, Machine)>,
    is_over: bool,
}

impl Busy {
    /// Begins with the first call, and ends with the first call when no message is due any more.
    pub fn follow(&mut self, is_due: bool, tally: &mut Tally) {
        let Some((began, own, waited, machine)) = self.before else {
            self.before = Some((Instant::now(), own_ns(), waited_ns(), Machine::read()));
            return;
        };
        if is_due || std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let passed_ns = began.elapsed().as_nanos().max(1) as f64;
        tally.own_share = own_ns().saturating_sub(own) as f64 / passed_ns;
        tally.waited_share = waited_ns().saturating_sub(waited) as f64 / passed_ns;
        tally.idle_share = Machine::read().idle_since(&machine);
    }
}

/// A reading of /proc/stat, in ticks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine {
    idle: u64,
    all: u64,
}

impl Machine {
    /// Reads; what cannot be read is 0.
    pub fn read() -> Self {
        Self::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(stat: &str) -> Self {
        let words = stat.lines().next().unwrap_or_default().split_whitespace();
        let ticks: Vec<u64> = words.skip(1).filter_map(|word| word.parse().ok()).collect();
        let at = |place: usize| ticks.get(place).copied().unwrap_or(0);
        // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
        Self {
            idle: at(3) + at(4),
            all: ticks.iter().take(8).sum(),
        }
    }

    /// Returns which share of the processors was idle since, 0 to 1.
    pub fn idle_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1) as f64;
        self.idle.saturating_sub(before.idle) as f64 / all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_all_processors_without_their_guests() {
        let before = Machine::of("cpu  10 0 10 80 0 0 0 0 5 0\ncpu0 1");
        let after = Machine::of("cpu  40 0 30 120 10 0 0 0 9 0\n");
        assert_eq!(after.idle_since(&before), 0.5);
        assert_eq!(Machine::of("").idle_since(&Machine::default()), 0.0);
    }
}
