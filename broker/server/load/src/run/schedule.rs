//! When the messages of a publisher are due.

/// When a publisher's messages are due.
#[derive(Debug, Clone, Copy, Default)]
pub struct Schedule {
    /// The first, in ns.
    pub begin: u64,
    /// Time between two, in ns; 0: as fast as the broker takes them.
    pub interval: f64,
    /// When the trial ends, in ns.
    pub end: u64,
    /// Most messages.
    pub most: u64,
    /// Messages that may be on their way; 0: no limit. With a limit, the interval begins when there
    /// is room for the next messages.
    pub window: u64,
    /// Messages that are added at a time, where there is no schedule.
    pub burst: u64,
}

impl Schedule {
    /// Returns when a message is due; None if there is no such message.
    pub fn due(&self, number: u64) -> Option<u64> {
        let due = self
            .begin
            .saturating_add((number as f64 * self.interval) as u64);
        (number < self.most && due < self.end).then_some(due)
    }

    /// Whether each message has a moment of its own.
    pub fn is_open(&self) -> bool {
        self.interval > 0.0 && self.window == 0
    }

    /// Counts the messages that are due at or after `from` and before `to`.
    pub fn count(&self, from: u64, to: u64) -> u64 {
        if !self.is_open() {
            return self.most;
        }
        let before = |moment: u64| {
            let passed = moment.min(self.end).saturating_sub(self.begin) as f64;
            ((passed / self.interval).ceil() as u64).min(self.most)
        };
        before(to).saturating_sub(before(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_counts_what_is_due_in_a_window() {
        let one = Schedule {
            begin: 1000,
            interval: 2.5,
            end: 2000,
            most: u64::MAX,
            ..Schedule::default()
        };
        let dues: Vec<u64> = (0..).map_while(|number| one.due(number)).collect();
        assert_eq!((dues.len(), dues.last()), (400, Some(&1997)));
        assert_eq!(one.count(0, 5000), 400);
        assert_eq!(one.count(1000, 1005), 2);
        assert_eq!(Schedule { most: 7, ..one }.count(0, 5000), 7);
        assert_eq!(Schedule { most: 7, ..one }.due(7), None);
        assert_eq!(one.due(u64::MAX - 1), None);
    }
}
