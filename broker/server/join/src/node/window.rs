//! Which sequence numbers of a lane have come.

/// How many of the latest numbers are remembered one by one.
pub(super) const WINDOW: u64 = 4096;

/// Whether a number has come before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// It came for the first time.
    First,
    /// It came before.
    Again,
    /// It is too far behind the highest one to know.
    Unknown,
}

/// Which sequence numbers of a lane have come.
pub(super) struct Window {
    highest: u64,
    seen: Box<[u64; WINDOW as usize / 64]>,
}

impl Window {
    /// A window in which this number is the first one to come.
    pub(super) fn new(first: u64) -> Self {
        Self {
            highest: first.saturating_sub(1),
            seen: Box::new([0; WINDOW as usize / 64]),
        }
    }

    /// A number came.
    pub(super) fn note(&mut self, number: u64) -> Noted {
        if number > self.highest {
            let first = self.highest + 1;
            for between in first.max(number.saturating_sub(WINDOW - 1))..=number {
                self.set(between, false);
            }
            self.highest = number;
        } else if self.highest - number >= WINDOW {
            return Noted::Unknown;
        } else if self.get(number) {
            return Noted::Again;
        }
        self.set(number, true);
        Noted::First
    }

    fn get(&self, number: u64) -> bool {
        let at = number % WINDOW;
        let word = self.seen.get((at / 64) as usize);
        word.is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    fn set(&mut self, number: u64, value: bool) {
        let at = number % WINDOW;
        if let Some(word) = self.seen.get_mut((at / 64) as usize) {
            match value {
                true => *word |= 1 << (at % 64),
                false => *word &= !(1 << (at % 64)),
            }
        }
    }
}
