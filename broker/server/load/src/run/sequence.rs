//! Which of a publisher's messages a receiver has got: lost, duplicated or out of order.

use std::collections::HashSet;

/// How a message follows the messages that came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It is the next one, after a gap of so many messages.
    After(u64),
    /// It was missing, and came after a later one.
    Late,
    /// It has come before.
    Again,
}

/// Which messages have come.
#[derive(Debug, Default, Clone)]
pub struct Sequence {
    next: u64,
    missing: HashSet<u64>,
}

impl From<u64> for Sequence {
    /// Begins at a message.
    fn from(next: u64) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }
}

impl Sequence {
    /// Returns the number of the next message.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes a message.
    pub fn take(&mut self, number: u64) -> Place {
        if number == self.next {
            self.next += 1;
            return Place::After(0);
        }
        if number > self.next {
            let gap = self.skip_to(number);
            self.next = number + 1;
            return Place::After(gap);
        }
        if self.missing.remove(&number) {
            Place::Late
        } else {
            Place::Again
        }
    }

    /// Takes so many messages after the last one.
    pub fn follow(&mut self, count: u64) {
        self.next += count;
    }

    /// Takes the messages up to `end` for missing; returns how many.
    pub fn skip_to(&mut self, end: u64) -> u64 {
        let skipped = end.saturating_sub(self.next);
        self.missing.extend(self.next..end);
        self.next = self.next.max(end);
        skipped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_late_or_doubled_is_known() {
        let mut one = Sequence::default();
        let numbers = [0, 1, 4, 2, 2, 4, 5];
        let places = numbers.map(|number| one.take(number));
        let expected = [
            Place::After(0),
            Place::After(0),
            Place::After(2),
            Place::Late,
            Place::Again,
            Place::Again,
            Place::After(0),
        ];
        assert_eq!(places, expected);
        assert_eq!(one.skip_to(8), 2);
        assert_eq!(
            (one.take(3), one.take(7), one.next()),
            (Place::Late, Place::Late, 8)
        );
    }
}
