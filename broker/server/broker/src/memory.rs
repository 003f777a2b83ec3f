//! One limit for everything that clients can make the broker hold.
//!
//! Who holds something says so with a [`Share`]. Each may grow to as much as is still free, so
//! whoever holds much is stopped first, and something is always left for the others. Memory belongs
//! to the process, and so do these counters.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What each may hold in any case, in octets.
pub const ALWAYS: usize = 4096;

const LEAST: usize = 64 << 20;

/// What memory is held for.
#[derive(Clone, Copy)]
pub enum Of {
    /// What waits to be written.
    Outboxes,
    /// Messages that are queued, under way, retained or a will.
    Messages,
    /// What came of packets that are not whole.
    Packets,
    /// Sessions with their subscriptions, and what is remembered of who is subscribed.
    Sessions,
}

const NAMES: [&str; 4] = ["outboxes", "messages", "packets", "sessions"];
static HELD: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The limit where the configuration names none: a quarter of what the machine has.
pub fn usual_limit() -> usize {
    use nix::unistd::{SysconfVar, sysconf};
    let of = |what| {
        sysconf(what)
            .ok()
            .flatten()
            .and_then(|value| usize::try_from(value).ok())
    };
    let pages = of(SysconfVar::_PHYS_PAGES).unwrap_or(0);
    let page = of(SysconfVar::PAGE_SIZE).unwrap_or(0);
    (pages.saturating_mul(page) / 4).max(LEAST)
}

/// Set the limit, octets.
pub fn limit_to(octets: usize) {
    LIMIT.store(octets, Relaxed);
}

/// The limit, octets.
pub fn limit() -> usize {
    LIMIT.load(Relaxed)
}

/// What is held, octets, and for what.
pub fn held() -> impl Iterator<Item = (&'static str, usize)> {
    NAMES
        .into_iter()
        .zip(HELD.iter().map(|one| one.load(Relaxed)))
}

/// What is still free, octets.
pub fn free() -> usize {
    limit().saturating_sub(HELD.iter().map(|one| one.load(Relaxed)).sum())
}

/// Whether more than half is held: then nobody keeps room that is not used, and nothing more is
/// kept for good.
pub fn is_tight() -> bool {
    free() < limit() / 2
}

/// Whether somebody may hold as much as this in all.
pub fn may_hold(octets: usize) -> bool {
    octets <= ALWAYS || octets <= free()
}

/// Whether so much in all may wait for one client. Half of what is free: those that do not read
/// are often many, and leave more to those that send.
pub fn may_queue(octets: usize) -> bool {
    octets <= ALWAYS || octets <= free() / 2
}

/// What one holds, until it is dropped.
pub struct Share {
    of: Of,
    octets: usize,
}

impl Share {
    /// Of somebody who holds this much.
    pub fn new(of: Of, octets: usize) -> Self {
        let mut share = Self { of, octets: 0 };
        share.set(octets);
        share
    }

    /// It is this much now.
    pub fn set(&mut self, octets: usize) {
        if octets == self.octets {
            return;
        }
        if let Some(held) = HELD.get(self.of as usize) {
            // In one step also where it becomes less: the sum wraps as it should.
            held.fetch_add(octets.wrapping_sub(self.octets), Relaxed);
        }
        self.octets = octets;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_may_hold_half_at_most_and_leaves_something_to_each_that_follows() {
        limit_to(1 << 20);
        let grow = || {
            let (mut share, mut size) = (Share::new(Of::Packets, 0), 0);
            while may_hold(size + 1024) {
                size += 1024;
                share.set(size);
            }
            (share, size)
        };
        let (first, half) = grow();
        assert_eq!(half, 1 << 19);
        assert!(may_queue(1 << 18) && !may_queue((1 << 18) + 1));
        let (second, quarter) = grow();
        assert_eq!(quarter, 1 << 18);
        assert!(may_hold(ALWAYS) && !may_hold((1 << 18) + 1));
        drop((first, second));
        assert_eq!(free(), 1 << 20);
        limit_to(usize::MAX);
    }
}
