//! The PINGREQs of one client, its own and the controller's: their answers show that the messages
//! before them were processed.

use crate::clock::SECOND_NS;

/// PINGREQ of a client that is awake.
pub const PINGREQ: [u8; 2] = [2, 0x16];
/// An answer is missing after this time.
pub const PATIENCE_NS: u64 = 3 * SECOND_NS;
/// The longest delay of an answer.
const OWED_NS: u64 = 60 * SECOND_NS;
/// The most missing answers at a time. With more, no PINGREQ is sent until no late answer can come.
const MOST_OWED: u64 = 3;

/// PINGREQs have no numbers, so their answers are only counted. The n-th answer shows that the n-th
/// PINGREQ has been processed, even if some were lost on the way.
#[derive(Clone, Debug, Default)]
pub struct Pings {
    sent: u64,
    answered: u64,
    /// How many unanswered ones are not waited for: they, or their answers, are lost or late.
    owed: u64,
    /// When the last one of these was sent.
    owed_ns: u64,
    last_ns: u64,
    /// The number of the first one since the last change.
    covers: Option<u64>,
    /// The number of the first of the controller's last ones.
    ours: u64,
    /// When that one was sent.
    pub ours_ns: Option<u64>,
    /// Whether its answers are still kept back.
    pub kept: bool,
    /// The number of consecutive failed tries to open rules.
    pub tries: u32,
}

/// How long after the last PINGREQ to try again to open rules, after so many tries.
#[must_use]
pub fn retry_ns(tries: u32) -> u64 {
    const SHORTEST_NS: u64 = 10_000_000;
    SECOND_NS.min(SHORTEST_NS << tries.min(10))
}

/// The meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The broker has served the client since the last change.
    pub is_confirmed: bool,
    /// The controller's PINGREQ was served, and no answer to it is awaited any more.
    pub is_ours: bool,
}

impl Pings {
    /// A PINGREQ was sent.
    pub fn sent(&mut self, now_ns: u64) {
        self.sent += 1;
        self.last_ns = now_ns;
        self.covers.get_or_insert(self.sent);
    }

    /// How many PINGREQs to send so that their answers surely include one to them: the first
    /// answers may be late ones to earlier PINGREQs.
    #[must_use]
    pub fn enough(&self) -> u32 {
        u32::try_from(1 + self.open()).unwrap_or(u32::MAX)
    }

    /// The controller has sent `count` PINGREQs, at least one.
    pub fn sent_ours(&mut self, now_ns: u64, count: u32) {
        self.ours = self.sent + 1;
        (0..count).for_each(|_| self.sent(now_ns));
        (self.ours_ns, self.kept) = (Some(now_ns), true);
    }

    /// Something has changed: only the answer to a later PINGREQ confirms the client.
    pub fn changed(&mut self) {
        self.covers = None;
    }

    /// How many answers may still come.
    #[must_use]
    fn open(&self) -> u64 {
        self.sent - self.answered
    }

    /// An answer has come. `None`: none was expected.
    pub fn answered(&mut self) -> Option<Answer> {
        if self.open() == 0 {
            return None;
        }
        self.answered += 1;
        self.owed = self.owed.min(self.open());
        // The client may have sent a PINGREQ before the controller's whose event came later.
        let is_last = self.open() <= self.owed;
        let is_ours = is_last && self.kept && self.answered >= self.ours;
        self.kept &= !is_ours;
        Some(Answer {
            is_confirmed: is_last && self.covers.is_some_and(|first| self.answered >= first),
            is_ours,
        })
    }

    /// Whether no answer is awaited, and a PINGREQ may be sent.
    pub fn is_idle(&mut self, now_ns: u64) -> bool {
        let since_ns = now_ns.saturating_sub(self.last_ns);
        if since_ns > OWED_NS {
            self.answered = self.sent;
        }
        if since_ns >= PATIENCE_NS {
            if self.owed < self.open() {
                self.owed_ns = self.last_ns;
            }
            self.owed = self.open();
        }
        // The client's own PINGREQs may be more frequent than that.
        if now_ns.saturating_sub(self.owed_ns) > OWED_NS {
            self.answered += std::mem::take(&mut self.owed);
        }
        self.open() == self.owed && self.owed <= MOST_OWED
    }

    /// Whether the controller's last PINGREQ was not answered in time.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        !self.kept && self.answered < self.ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Option<Answer> = Some(Answer {
        is_confirmed: false,
        is_ours: false,
    });

    #[test]
    fn after_a_loss_one_more_answer_is_needed_as_it_may_be_late() {
        let mut pings = Pings::default();
        pings.sent_ours(0, pings.enough());
        assert!(!pings.is_idle(1));
        (pings.kept, pings.covers) = (false, None);
        assert!(pings.is_idle(PATIENCE_NS) && pings.is_missing());
        assert_eq!(pings.enough(), 2);
        pings.sent_ours(PATIENCE_NS, 2);
        assert_eq!(pings.answered(), NOTHING);
        let answer = pings.answered();
        assert!(answer.is_some_and(|answer| answer.is_confirmed && answer.is_ours));
        assert!(pings.is_idle(PATIENCE_NS + 1) && !pings.is_missing());
        // The late answer.
        assert!(pings.answered().is_some());
        assert_eq!((pings.enough(), pings.answered()), (1, None));
    }

    #[test]
    fn a_broker_that_answers_nothing_is_asked_seven_times_a_minute() {
        let mut pings = Pings::default();
        for second in 0..60 {
            let now_ns = second * 1_000_000_000;
            if pings.is_idle(now_ns) {
                pings.sent_ours(now_ns, pings.enough());
            }
        }
        assert_eq!(pings.sent, 7);
        assert!(pings.is_idle(67_000_000_000));
        assert_eq!(pings.enough(), 1);
    }

    #[test]
    fn who_pings_often_by_itself_is_asked_again_when_no_late_answer_can_come() {
        let mut pings = Pings::default();
        pings.sent_ours(0, 4);
        pings.kept = false;
        assert!(!pings.is_idle(PATIENCE_NS));
        for second in (10..=70).step_by(20) {
            let now_ns = second * 1_000_000_000;
            pings.sent(now_ns);
            assert!(pings.answered().is_some());
            assert_eq!(
                pings.is_idle(now_ns + PATIENCE_NS),
                second == 70,
                "{second}"
            );
        }
        assert_eq!(pings.enough(), 1);
    }
}
