//! What is known of one lease of mqtt-udp (`broker/spec/mqtt-udp.md`, 4): its earliest and its
//! latest possible end.

use std::collections::{BTreeSet, VecDeque};

const SECOND_NS: u64 = 1_000_000_000;
/// The longest lease that a broker can have as its default.
const LONGEST_NS: u64 = 3_600 * SECOND_NS;
/// Rules end this long before a lease, so that they can be rewritten in time.
const MARGIN_NS: u64 = SECOND_NS / 4;
/// A broker's clock may be faster than ours by one part in this many.
const CLOCKS: u64 = 1_000;
/// A lease may still exist for this long after its end: requests wait, and clocks differ.
const SLACK_NS: u64 = 10 * SECOND_NS;
/// How late an answer can come. Until then it could be taken for the answer to a later request.
const OWED_NS: u64 = 60 * SECOND_NS;
/// An answer is missing after this time.
pub const PATIENCE_NS: u64 = 3 * SECOND_NS;
/// A client without a lease is forgotten after this time of silence.
const IDLE_NS: u64 = 60 * SECOND_NS;
const MOST_ASKED: usize = 64;

/// Whether a lease exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// This is not known.
    #[default]
    Unknown,
    /// It does not: the broker has sent a challenge.
    Absent,
    /// The client has sent a proof: if the broker answers anything, the lease exists.
    Proven,
    /// It does.
    Held,
}

/// A request that renews a lease, once it is answered.
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
    /// Whether it exists.
    pub stage: Stage,
    /// Whether it began after a challenge, so that no earlier subscriptions exist.
    pub is_new: bool,
    /// Its possible lengths, counted from a renewal. `None`: a default of the broker that is not
    /// known. There are several if it is not known whether the broker has got a CONNECT.
    pub lengths: BTreeSet<Option<u64>>,
    /// Whether a packet since the proof could not be read.
    pub unread: bool,
    renewed_ns: u64, // when the last request was seen that surely renewed it
    latest_ns: u64,  // when it may have been renewed last
    // each with its time, and whether its answer is known to be missing
    asked: VecDeque<(Renewal, u64, bool)>,
    /// How many challenges may still come as answers to requests before the last proof. One more
    /// means that the broker has refused the proof.
    pub owed: u64,
    /// The number of requests since that proof.
    pub since_proof: u64,
    /// Challenges although the lease seems to exist: how many, and when the first one came.
    pub challenged: Option<(u32, u64)>,
}

impl Lease {
    /// The client has sent a request that renews the lease.
    pub fn asks(&mut self, now_ns: u64, what: Renewal) {
        self.latest_ns = now_ns;
        // The oldest ones are kept: without them, their answers would be taken for those of later
        // ones.
        if self.asked.len() < MOST_ASKED {
            self.asked.push_back((what, now_ns, false));
        }
    }

    /// The broker has answered such a request. This is taken for an answer to the oldest one that
    /// it can answer, so that the lease is not overestimated.
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

    /// All requests before this time have been answered, or never will be.
    pub fn served(&mut self, before_ns: u64) {
        self.asked.retain(|(_, at_ns, _)| *at_ns >= before_ns);
    }

    /// Whether the answer to a request is newly found to be missing.
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

    /// The client has sent a proof. `own_ns`: the broker's default length, if that is known.
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

    /// The lease has ended.
    pub fn ends(&mut self) {
        *self = Self {
            stage: Stage::Absent,
            ..Self::default()
        };
    }

    /// The earliest time at which it can end; `None` if that is not known.
    #[must_use]
    pub fn end_ns(&self) -> Option<u64> {
        let length_ns = self.lengths.first().copied().flatten()?;
        Some(self.renewed_ns + length_ns - length_ns / CLOCKS)
    }

    /// The broker still has the lease: drop the lengths by which it would have ended.
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

    /// Whether a proof was sent that the broker has not yet reacted to.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.stage == Stage::Proven
    }

    /// Whether it may have ended, or may end soon.
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        let is_over = |end_ns: u64| now_ns.saturating_add(MARGIN_NS) >= end_ns;
        self.stage == Stage::Held && self.end_ns().is_some_and(is_over)
    }

    /// Whether it has surely ended. Without a lease: whether the client was silent since `heard_ns`
    /// for long enough to be forgotten.
    #[must_use]
    pub fn is_gone(&self, now_ns: u64, heard_ns: u64) -> bool {
        if self.stage != Stage::Held {
            return now_ns.saturating_sub(heard_ns) >= IDLE_NS;
        }
        let longest_ns = self.lengths.iter().copied().map(at_most).max();
        longest_ns.is_some_and(|longest_ns| now_ns.saturating_sub(self.latest_ns) > longest_ns)
    }
}

/// How long after its last renewal a lease may still exist, by our clock.
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
