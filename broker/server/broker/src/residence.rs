//! How long each copy was in the broker: the trailer of `broker/spec/residence.md`.

/// Octets of the trailer, at the end of the payload.
pub const TRAILER: usize = 16;
/// What says that it is not known how long the message was here.
pub const NOT_STATED: [u8; TRAILER] = [0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0];

const LAST_COPY: u32 = (1 << 24) - 1;
const UNKNOWN: i32 = i32::MIN;
const PROGRAM: u32 = 1;

/// Whether a payload on a topic whose residence is stated has a trailer.
pub fn has_trailer(payload: &[u8]) -> bool {
    (TRAILER + 1..=64).contains(&payload.len()) && payload.first().is_some_and(|one| one >> 4 == 2)
}

/// What the copies of one message state.
#[derive(Clone, Copy)]
pub struct Arrived {
    /// When it came: ns of the system's clock.
    pub at_ns: i64,
    /// What its trailer said.
    pub trailer: [u8; TRAILER],
}

/// What one connection counts.
#[derive(Default)]
pub struct Account {
    copy: u32,
    before: Option<Departure>,
}

struct Departure {
    last_octet: u32,
    stated_ns: i64,
    left_ns: Option<i64>,
}

impl Account {
    /// Whether the kernel has not said yet when the copy before left.
    pub fn is_open(&self) -> bool {
        self.before
            .as_ref()
            .is_some_and(|before| before.left_ns.is_none())
    }

    /// The kernel says when an octet left.
    pub fn left(&mut self, last_octet: u32, at_ns: i64) {
        if let Some(before) = self
            .before
            .as_mut()
            .filter(|one| one.last_octet == last_octet)
        {
            before.left_ns = Some(at_ns);
        }
    }

    /// The trailer of a copy that leaves now; whether it is counted.
    pub fn state(&mut self, arrived: &Arrived, now_ns: i64) -> ([u8; TRAILER], bool) {
        let stood = u64::from_be_bytes(std::array::from_fn(|at| arrived.trailer[at]));
        let here = now_ns
            .checked_sub(arrived.at_ns)
            .and_then(|ns| u64::try_from(ns).ok());
        let here = here.filter(|ns| *ns < 1 << 48).map(|ns| ns << 16);
        let Some(stated) = here.and_then(|here| stood.checked_add(here)) else {
            return (NOT_STATED, false);
        };
        if arrived.trailer != [0; TRAILER] {
            let stamped = (1..=3).contains(&arrived.trailer[TRAILER - 1]);
            return (
                if stamped {
                    trailer(stated, UNKNOWN, 0)
                } else {
                    NOT_STATED
                },
                false,
            );
        }
        let off = self
            .before
            .as_ref()
            .and_then(|one| Some(one.left_ns? - one.stated_ns));
        let correction = off.and_then(|ns| i32::try_from(ns).ok()).unwrap_or(UNKNOWN);
        self.copy = self.copy % LAST_COPY + 1;
        (trailer(stated, correction, self.copy), true)
    }

    /// The counted copy was written: its last octet, and when it was said to leave.
    pub fn written(&mut self, last_octet: u32, stated_ns: i64) {
        self.before = Some(Departure {
            last_octet,
            stated_ns,
            left_ns: None,
        });
    }
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
