//! Decides when a worker lets input gather before it reads again, as network cards coalesce
//! interrupts.

use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_millis(1);
const MANY: u128 = 50_000; // messages a second; with fewer, input is not gathered
const ENOUGH: u64 = 64; // messages of one wait: gathering more saves little
const WORTH: u64 = 4; // messages of one wait on average; with fewer, gathering does not help
const REST: Duration = Duration::from_millis(100); // how long input is not gathered then

/// The state of one worker.
pub struct Coalescing {
    began: Instant,
    looks: u64,
    messages: u64,
    is_on: bool,
    rests_until: Instant,
}

impl Coalescing {
    /// Nothing has come yet.
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            looks: 0,
            messages: 0,
            is_on: false,
            rests_until: now,
        }
    }

    /// After a wait that has brought so many messages: whether to let input gather before the next
    /// one. Clients that wait for each other's answers only become slower by that: then it rests.
    pub fn gathers(&mut self, messages: u64, now: Instant) -> bool {
        self.looks += 1;
        self.messages += messages;
        let passed = now.duration_since(self.began);
        if passed >= PERIOD {
            if self.is_on && self.messages < WORTH * self.looks {
                self.rests_until = now + REST;
            }
            let is_fast = u128::from(self.messages) * 1_000_000_000 >= MANY * passed.as_nanos();
            self.is_on = is_fast && now >= self.rests_until;
            (self.began, self.looks, self.messages) = (now, 0, 0);
        }
        self.is_on && messages < ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a second's waits let input gather if each brings so many messages.
    fn gathered(looks: u64, messages: u64) -> usize {
        let start = Instant::now();
        let mut coalescing = Coalescing::new(start);
        let at = |look| start + Duration::from_secs(1) / looks as u32 * look as u32;
        (1..=looks)
            .filter(|look| coalescing.gathers(messages, at(*look)))
            .count()
    }

    #[test]
    fn at_low_rates_nothing_waits() {
        assert_eq!(gathered(49_000, 1), 0);
        assert_eq!(gathered(400, 100), 0);
    }

    #[test]
    fn at_high_rates_input_gathers_unless_each_look_brings_much() {
        assert!(gathered(12_000, 10) > 11_900);
        assert_eq!(gathered(12_000, 100), 0);
    }

    #[test]
    fn where_gathering_brings_no_more_it_rests() {
        assert!(gathered(60_000, 1) < 1_000);
    }

    #[test]
    fn one_burst_after_silence_does_not_wait() {
        let start = Instant::now();
        let mut coalescing = Coalescing::new(start);
        assert!(!coalescing.gathers(63, start + Duration::from_secs(1)));
        assert!(!coalescing.gathers(1, start + Duration::from_secs(2)));
    }
}
