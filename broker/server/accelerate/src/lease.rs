//! What is known of one lease of mqtt-udp (`broker/spec/mqtt-udp.md`, 4): when it ends at the soonest,
//! and at the latest.

use std::collections::{BTreeSet, VecDeque};

const SECOND_NS: u64 = 1_000_000_000;
/// The longest lease that a broker gives by itself.
const LONGEST_NS: u64 = 3_600 * SECOND_NS;
/// Rules end that long before a lease: they are written anew meanwhile.
const MARGIN_NS: u64 = SECOND_NS / 4;
/// A broker's clock may be faster than ours by one part in so many.
const CLOCKS: u64 = 1_000;
/// So long after its end a lease may still be there: requests wait, clocks differ.
const SLACK_NS: u64 = 10 * SECOND_NS;
/// So long an answer may be under way, so that it could be taken for that to a later request.
const OWED_NS: u64 = 60 * SECOND_NS;
/// After so long an answer is missing.
pub const PATIENCE_NS: u64 = 3 * SECOND_NS;
/// Nothing is remembered of who has no lease and was silent for so long.
const IDLE_NS: u64 = 60 * SECOND_NS;
const MOST_ASKED: usize = 64;

/// Whether there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Not that we know of.
    #[default]
    Unknown,
    /// None: the broker has sent a challenge.
    Absent,
    /// A proof was sent: if the broker answers anything, there is one.
    Proven,
    /// There is one.
    Held,
}

/// What renews a lease, once it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// CONNECT.
    Connect,
    /// SUBSCRIBE.
    Subscribe,
    /// PINGREQ.
    Ping,
}

/// One lease.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    /// Whether there is one.
    pub stage: Stage,
    /// Whether it began after a challenge: without subscriptions of before.
    pub is_new: bool,
    /// How long it may be from each renewal on; None: as long as the broker likes. Several, if it is not known
    /// whether the broker has got a CONNECT.
    pub lengths: BTreeSet<Option<u64>>,
    /// Whether anything could not be read since the proof.
    pub unread: bool,
    renewed_ns: u64, // when the request was seen that renewed it last, for sure
    latest_ns: u64,  // when it may have been renewed last
    asked: VecDeque<(Renewal, u64, bool)>, // when, and whether its answer is missed
    /// So many challenges may still come that answer what was asked before the last proof; one more, and it
    /// was no good.
    pub owed: u64,
    /// Requests since that proof.
    pub since_proof: u64,
    /// Challenges to somebody of whom we think that he has a lease: how many, and since when.
    pub challenged: Option<(u32, u64)>,
}

impl Lease {
    /// A client wants to renew it.
    pub fn asks(&mut self, now_ns: u64, what: Renewal) {
        self.latest_ns = now_ns;
        // Without the first ones their answers would count for later requests.
        if self.asked.len() < MOST_ASKED {
            self.asked.push_back((what, now_ns, false));
        }
    }

    /// The broker has answered such a request: the first that it can have meant is taken for it, so that
    /// the lease is never longer than we think.
    pub fn renewed(&mut self, now_ns: u64, what: Renewal) {
        self.latest_ns = now_ns;
        let is_old = |at_ns: u64| now_ns.saturating_sub(at_ns) > OWED_NS;
        self.asked.retain(|(_, at_ns, _)| !is_old(*at_ns));
        let is_it = |(one, ..): &(Renewal, u64, bool)| *one == what;
        let place = self.asked.iter().position(is_it);
        if let Some((_, at_ns, _)) = place.and_then(|at| self.asked.remove(at)) {
            self.renewed_ns = self.renewed_ns.max(at_ns);
        }
    }

    /// What was asked before this time has been answered, or never will be.
    pub fn served(&mut self, before_ns: u64) {
        self.asked.retain(|(_, at_ns, _)| *at_ns >= before_ns);
    }

    /// Whether a request was not answered for a while, which was not said before.
    #[must_use]
    pub fn misses_an_answer(&mut self, now_ns: u64) -> bool {
        let mut found = false;
        for (_, at_ns, is_missed) in &mut self.asked {
            if now_ns.saturating_sub(*at_ns) >= PATIENCE_NS {
                found |= !std::mem::replace(is_missed, true);
            }
        }
        found
    }

    /// It begins with a proof that was seen at this time, as long as the broker makes it by itself.
    pub fn begins(&mut self, now_ns: u64, own_ns: Option<u64>) {
        *self = Self {
            stage: Stage::Proven,
            is_new: self.stage == Stage::Absent,
            lengths: BTreeSet::from([own_ns]),
            renewed_ns: now_ns,
            latest_ns: now_ns,
            ..Self::default()
        };
    }

    /// There is none any more.
    pub fn ends(&mut self) {
        *self = Self {
            stage: Stage::Absent,
            ..Self::default()
        };
    }

    /// When it ends at the soonest, for sure; None: that cannot be said.
    #[must_use]
    pub fn end_ns(&self) -> Option<u64> {
        let length_ns = self.lengths.first().copied().flatten()?;
        Some(self.renewed_ns + length_ns - length_ns / CLOCKS)
    }

    /// The broker has it: lengths by which it would be over are not the right one.
    pub fn is_there(&mut self, now_ns: u64) {
        self.challenged = None;
        let silent_ns = now_ns.saturating_sub(self.latest_ns);
        while self.lengths.len() > 1
            && let Some(first) = self.lengths.first()
            && silent_ns > at_most(*first)
        {
            self.lengths.pop_first();
        }
    }

    /// Whether nobody can say if there is one: the broker has the proof, or will have it.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.stage == Stage::Proven
    }

    /// Whether it may be over, or is soon.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        let is_over = |end_ns: u64| now_ns.saturating_add(MARGIN_NS) >= end_ns;
        self.stage == Stage::Held && self.end_ns().is_some_and(is_over)
    }

    /// Whether it is over for sure; or, without one, whether nothing was `heard_ns` lately.
    #[must_use]
    pub fn is_gone(&self, now_ns: u64, heard_ns: u64) -> bool {
        if self.stage != Stage::Held {
            return now_ns.saturating_sub(heard_ns) >= IDLE_NS;
        }
        let longest_ns = self.lengths.iter().copied().map(at_most).max();
        longest_ns.is_some_and(|longest_ns| now_ns.saturating_sub(self.latest_ns) > longest_ns)
    }
}

/// So long after its last renewal a lease may still be there, by our clock.
fn at_most(length_ns: Option<u64>) -> u64 {
    let length_ns = length_ns.unwrap_or(LONGEST_NS);
    length_ns + length_ns / CLOCKS + SLACK_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(length_s: u64) -> Lease {
        let mut lease = Lease::default();
        lease.begins(0, Some(length_s * SECOND_NS));
        lease.stage = Stage::Held;
        lease
    }

    #[test]
    fn a_lease_lasts_from_the_request_and_not_from_its_answer() {
        let mut lease = held(30);
        lease.asks(10 * SECOND_NS, Renewal::Ping);
        lease.renewed(15 * SECOND_NS, Renewal::Ping);
        let end_ns = 40 * SECOND_NS - 30_000_000;
        assert_eq!(lease.end_ns(), Some(end_ns));
        assert!(!lease.is_over(end_ns - MARGIN_NS - 1) && lease.is_over(end_ns - MARGIN_NS));
    }

    #[test]
    fn what_was_not_answered_renews_nothing_but_may_have() {
        let mut lease = held(30);
        lease.asks(25 * SECOND_NS, Renewal::Ping);
        assert!(lease.is_over(30 * SECOND_NS));
        assert!(!lease.is_gone(60 * SECOND_NS, 0) && lease.is_gone(66 * SECOND_NS, 0));
    }

    #[test]
    fn an_answer_counts_for_the_first_request_that_it_can_have_meant() {
        let mut lease = held(30);
        for at_s in [10, 20] {
            lease.asks(at_s * SECOND_NS, Renewal::Ping);
        }
        lease.renewed(20 * SECOND_NS, Renewal::Ping);
        assert_eq!(lease.end_ns(), Some(40 * SECOND_NS - 30_000_000));
        lease.renewed(21 * SECOND_NS, Renewal::Subscribe);
        assert_eq!(lease.end_ns(), Some(40 * SECOND_NS - 30_000_000));
        lease.asks(100 * SECOND_NS, Renewal::Ping);
        lease.renewed(100 * SECOND_NS, Renewal::Ping);
        assert_eq!(lease.end_ns(), Some(130 * SECOND_NS - 30_000_000));
    }

    #[test]
    fn of_two_lengths_the_shorter_counts_until_the_broker_has_it_longer() {
        let mut lease = held(30);
        lease.lengths.insert(Some(15 * SECOND_NS));
        lease.is_there(25 * SECOND_NS);
        assert!(lease.is_over(15 * SECOND_NS) && !lease.is_gone(30 * SECOND_NS, 0));
        lease.is_there(26 * SECOND_NS);
        assert!(!lease.is_over(29 * SECOND_NS) && lease.is_over(30 * SECOND_NS));
    }

    #[test]
    fn a_missing_answer_is_said_once() {
        let mut lease = held(30);
        lease.asks(SECOND_NS, Renewal::Ping);
        assert!(!lease.misses_an_answer(SECOND_NS + PATIENCE_NS - 1));
        assert!(lease.misses_an_answer(SECOND_NS + PATIENCE_NS));
        assert!(!lease.misses_an_answer(SECOND_NS + PATIENCE_NS));
    }

    #[test]
    fn of_a_lease_without_a_length_only_its_longest_is_known() {
        let mut lease = held(0);
        lease.lengths = BTreeSet::from([None]);
        assert!(!lease.is_over(u64::MAX / 2) && lease.end_ns().is_none());
        assert!(!lease.is_gone(LONGEST_NS, 0) && lease.is_gone(LONGEST_NS + 14 * SECOND_NS, 0));
    }
}
