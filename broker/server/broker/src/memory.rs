//! One limit for everything that clients can make the broker hold.
//!
//! Each holder of memory accounts for it with a [`Share`]. A holder may grow to as much as is still
//! free, so the largest ones are stopped first, and something is always left for the others. The
//! counters are global, as the memory of the process is.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Octets that each holder may hold in any case.
pub const ALWAYS: usize = 4096;

const LEAST: usize = 64 << 20;

/// What memory is held for.
#[derive(Clone, Copy)]
pub enum Of {
    /// Packets that wait to be written.
    Outboxes,
    /// Messages that are queued, under way, retained or a will.
    Messages,
    /// Parts of packets that have not come completely.
    Packets,
    /// Sessions with their subscriptions, and remembered fan-outs.
    Sessions,
}

const NAMES: [&str; 4] = ["outboxes", "messages", "packets", "sessions"];
static HELD: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The limit if the configuration names none: a quarter of the machine's memory, in octets.
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

/// Set the limit, in octets.
pub fn limit_to(octets: usize) {
    LIMIT.store(octets, Relaxed);
}

/// The limit, in octets.
pub fn limit() -> usize {
    LIMIT.load(Relaxed)
}

/// The octets that are held, by what they are held for.
pub fn held() -> impl Iterator<Item = (&'static str, usize)> {
    NAMES
        .into_iter()
        .zip(HELD.iter().map(|one| one.load(Relaxed)))
}

/// Octets that are still free.
pub fn free() -> usize {
    limit().saturating_sub(HELD.iter().map(|one| one.load(Relaxed)).sum())
}

/// Whether more than half is held: then unused room is freed, and no more messages are retained.
pub fn is_tight() -> bool {
    free() < limit() / 2
}

/// Whether one holder may hold so many octets in all.
pub fn may_hold(octets: usize) -> bool {
    octets <= ALWAYS || octets <= free()
}

/// Whether so many octets in all may wait for one client: at most half of what is free. Clients
/// that do not read are often many, and those that send need the rest.
pub fn may_queue(octets: usize) -> bool {
    octets <= ALWAYS || octets <= free() / 2
}

/// What one holder holds, until this is dropped.
pub struct Share {
    of: Of,
    octets: usize,
}

impl Share {
    /// The share of a holder of so many octets.
    pub fn new(of: Of, octets: usize) -> Self {
        let mut share = Self { of, octets: 0 };
        share.set(octets);
        share
    }

    /// Set the octets that are held now.
    pub fn set(&mut self, octets: usize) {
        if octets == self.octets {
            return;
        }
        if let Some(held) = HELD.get(self.of as usize) {
            // One step, also if it becomes less: the sum wraps to the right value.
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
