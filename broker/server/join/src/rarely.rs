//! A log message that clients and neighbours can cause as often as they like.

use mqtick_net::log;

const REST_S: u64 = 10;

/// Logs a message at most once in ten seconds, and then how many were left out.
#[derive(Default)]
pub(crate) struct Rarely {
    next_s: u64,
    unsaid: u64,
}

impl Rarely {
    /// Log a warning, unless one was logged less than ten seconds ago.
    pub fn warn(&mut self, now_s: u64, text: impl FnOnce() -> String) {
        if let Some(text) = self.due(now_s, text) {
            log::warning(&text);
        }
    }

    fn due(&mut self, now_s: u64, text: impl FnOnce() -> String) -> Option<String> {
        if now_s < self.next_s {
            self.unsaid += 1;
            return None;
        }
        self.next_s = now_s + REST_S;
        Some(match std::mem::take(&mut self.unsaid) {
            0 => text(),
            unsaid => format!("{} (and {unsaid} more before)", text()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_said_once_in_a_while_with_how_often() {
        let mut rarely = Rarely::default();
        let mut say = |now_s| rarely.due(now_s, || "no".into());
        assert_eq!(say(0).as_deref(), Some("no"));
        assert_eq!((say(1), say(9)), (None, None));
        assert_eq!(say(10).as_deref(), Some("no (and 2 more before)"));
        assert_eq!(say(20).as_deref(), Some("no"));
    }
}
