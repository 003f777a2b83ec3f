//! How long each copy was in the broker: the trailer of `broker/spec/residence.md`.

pub use crate::clock::{Clock, Looks};

/// Octets of the trailer, at the end of the payload.
pub const TRAILER: usize = 16;
/// The trailer of a copy whose residence is not known.
pub const NOT_STATED: [u8; TRAILER] = [0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];

const LAST_COPY: u32 = (1 << 24) - 1;
const UNKNOWN: i32 = i32::MIN;
const PROGRAM: u32 = 1;

/// Whether a payload on a topic whose residence is stated has a trailer.
pub fn has_trailer(payload: &[u8]) -> bool {
    (TRAILER + 1..=64).contains(&payload.len()) && payload.first().is_some_and(|one| one >> 4 == 2)
}

/// Decides whether the kernel's stamp of a read can be trusted. It is the stamp of the last segment
/// that was read. If an earlier segment was lost and came later than that one, the data has waited
/// for less time than the stamp says.
#[derive(Default)]
pub struct Arrivals {
    before: Option<(u32, Looks)>, // as of the last read: segments out of order, looks at the clock
}

impl Arrivals {
    /// Whether nothing was read yet.
    pub fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// Something was read: its stamp, and how many segments have come out of order so far. Returns
    /// when it came, in ns of `CLOCK_MONOTONIC_RAW`, if the stamp can be trusted.
    pub fn take(&mut self, stamp_ns: Option<i64>, out_of_order: Option<u32>) -> Option<i64> {
        let now = Clock::read();
        let before = self.before.take();
        let looks = before.map_or(Looks::first(now), |(_, looks)| looks.again(now));
        self.before = out_of_order.map(|count| (count, looks));
        let (count, looks) = before?;
        looks.raw_of(stamp_ns.filter(|_| Some(count) == out_of_order)?, &now)
    }
}

/// What the residence of a message's copies is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// When the message came, in ns of `CLOCK_MONOTONIC_RAW`.
    pub at_ns: i64,
    /// The trailer with which it came.
    pub trailer: [u8; TRAILER],
}

impl Arrived {
    /// How long it has been here and in all brokers before, if that is known, in 2^-16 ns.
    #[must_use]
    pub fn so_far(&self, now: Clock) -> Option<u64> {
        let is_stated = self.is_first() || (1..=3).contains(&self.trailer[TRAILER - 1]);
        let stood = u64::from_be_bytes(std::array::from_fn(|at| self.trailer[at]));
        let here = u64::try_from(now.raw_ns.checked_sub(self.at_ns)?).ok();
        let here = here.filter(|ns| *ns < 1 << 48)?;
        stood.checked_add(here << 16).filter(|_| is_stated)
    }

    fn is_first(&self) -> bool {
        self.trailer == [0; TRAILER]
    }
}

/// The counted copies of one connection.
#[derive(Default)]
pub struct Account {
    copy: u32,
    before: Option<Departure>,
    looks: Option<Looks>, // at the clock, until the last counted copy
}

struct Departure {
    last_octet: u32,
    stated: Clock,
    sent_again: Option<u32>,
    left_ns: Option<i64>,
}

impl Account {
    /// Whether the kernel's stamp of the last counted copy is still missing.
    pub fn is_open(&self) -> bool {
        self.before
            .as_ref()
            .is_some_and(|before| before.left_ns.is_none())
    }

    /// The kernel's stamp of an octet that has left, in ns of the system's clock.
    pub fn left(&mut self, last_octet: u32, at_ns: i64) {
        // The first stamp counts: there is another one if the segment is sent again.
        let is_it = |one: &&mut Departure| one.last_octet == last_octet && one.left_ns.is_none();
        if let Some(before) = self.before.as_mut().filter(is_it) {
            before.left_ns = Some(at_ns);
        }
    }

    /// The trailer of a copy that leaves now, and whether the copy is counted. `sent_again`: how
    /// many segments of this connection have been sent again so far.
    pub fn state(
        &self,
        arrived: &Arrived,
        now: Clock,
        sent_again: Option<u32>,
    ) -> ([u8; TRAILER], bool) {
        let Some(stated) = arrived.so_far(now) else {
            return (NOT_STATED, false);
        };
        if !arrived.is_first() {
            return (chained(stated), false);
        }
        let off = self.before.as_ref().and_then(|before| {
            // A segment that was sent again may have the stamp of the second time.
            let is_first = before.sent_again.is_some() && before.sent_again == sent_again;
            let off_ns = before.left_ns?.checked_sub(before.stated.now_ns)?;
            let off_ns = self.looks?.at_least(off_ns, &now)?;
            i32::try_from(off_ns).ok().filter(|_| is_first)
        });
        (
            trailer(stated, off.unwrap_or(UNKNOWN), self.copy % LAST_COPY + 1),
            true,
        )
    }

    /// A counted copy was written. `stated` is the time of departure that it states.
    pub fn written(&mut self, last_octet: u32, stated: Clock, sent_again: Option<u32>) {
        self.copy = self.copy % LAST_COPY + 1;
        let looks = self.looks.map(|looks| looks.again(stated));
        self.looks = looks.or_else(|| Some(Looks::first(stated)));
        self.before = Some(Departure {
            last_octet,
            stated,
            sent_again,
            left_ns: None,
        });
    }
}

/// The trailer of a copy whose residence other brokers have stated before. `stated` is the sum, in
/// 2^-16 ns.
#[must_use]
pub fn chained(stated: u64) -> [u8; TRAILER] {
    trailer(stated, UNKNOWN, 0)
}

fn trailer(residence: u64, correction: i32, copy: u32) -> [u8; TRAILER] {
    let mut octets = [0; TRAILER];
    let (times, counts) = octets.split_at_mut(12);
    let (first, second) = times.split_at_mut(8);
    first.copy_from_slice(&residence.to_be_bytes());
    second.copy_from_slice(&correction.to_be_bytes());
    counts.copy_from_slice(&(copy << 8 | PROGRAM).to_be_bytes());
    octets
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    const LATER_NS: i32 = 1_999_000; // 2 ms, less what a clock may gain that is not slewed

    fn at(now_ns: i64) -> Clock {
        Clock {
            now_ns,
            ahead_ns: 7,
            raw_ns: now_ns,
            unsure_ns: 0,
            steps: 0,
        }
    }

    fn arrived(at_ns: i64) -> Arrived {
        Arrived {
            at_ns,
            trailer: [0; TRAILER],
        }
    }

    fn correction(trailer: &[u8; TRAILER]) -> i32 {
        i32::from_be_bytes(std::array::from_fn(|at| trailer[8 + at]))
    }

    /// An account whose last copy was stated at 1 ms and left at 3 ms.
    fn account(sent_again: Option<u32>) -> Account {
        let mut account = Account::default();
        account.written(98, at(-99 * MS), sent_again);
        account.written(99, at(MS), sent_again);
        account.left(98, 2 * MS);
        account.left(99, 3 * MS);
        account
    }

    #[test]
    fn the_next_copy_says_by_how_much_the_last_one_was_off() {
        let (trailer, is_counted) = account(Some(4)).state(&arrived(5 * MS), at(6 * MS), Some(4));
        assert_eq!(
            u64::from_be_bytes(std::array::from_fn(|at| trailer[at])) >> 16,
            1_000_000
        );
        assert_eq!(
            (correction(&trailer), &trailer[12..], is_counted),
            (LATER_NS, &[0, 0, 3, 1][..], true)
        );
    }

    #[test]
    fn a_stamp_of_the_second_time_is_no_correction() {
        let mut twice = account(Some(4));
        twice.left(99, 300 * MS);
        assert_eq!(
            correction(&twice.state(&arrived(5 * MS), at(6 * MS), Some(4)).0),
            LATER_NS
        );
        for (before, now) in [(Some(4), Some(5)), (None, None), (None, Some(4))] {
            let (trailer, _) = account(before).state(&arrived(5 * MS), at(6 * MS), now);
            assert_eq!(correction(&trailer), UNKNOWN);
        }
    }

    #[test]
    fn what_a_clock_says_that_was_set_since_is_no_correction() {
        let now = at(6 * MS);
        let stepped = Clock {
            now_ns: 8 * MS,
            ahead_ns: 7 + 2 * MS,
            ..now
        };
        let slewed = Clock {
            now_ns: 6 * MS + 500_000,
            ..now
        };
        for set in [stepped, slewed] {
            let (trailer, _) = account(Some(4)).state(&arrived(5 * MS), set, Some(4));
            assert_eq!(correction(&trailer), UNKNOWN);
        }
    }

    #[test]
    fn a_clock_that_is_slewed_makes_no_residence_longer() {
        let slewed = Clock {
            now_ns: 6 * MS + 100_000,
            ..at(6 * MS)
        };
        assert_eq!(arrived(5 * MS).so_far(slewed), Some(1_000_000 << 16));
        assert_eq!(arrived(7 * MS).so_far(at(6 * MS)), None);
    }

    #[test]
    fn a_stamp_is_believed_only_where_nothing_came_out_of_order() {
        let now = Clock::read;
        let mut arrivals = Arrivals::default();
        let mut came = |stamp_ns, count| arrivals.take(stamp_ns, count).is_some();
        assert!(
            !came(Some(now().now_ns), Some(1)),
            "nothing is known of before"
        );
        assert!(came(Some(now().now_ns), Some(1)));
        assert!(!came(Some(now().now_ns), Some(2)), "out of order");
        assert!(came(Some(now().now_ns), Some(2)));
        assert!(!came(Some(1), Some(2)), "before the last look");
        assert!(!came(None, Some(2)));
        assert!(!came(Some(now().now_ns), None));
    }
}
