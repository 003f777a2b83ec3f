//! Allocates ranges in the kernel's table of subscribers.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// After this time, no run of the kernel's program is left that began before a change.
const GRACE: Duration = Duration::from_secs(1);

/// The allocator.
pub struct Rooms {
    /// The lengths of the free ranges, by their first index.
    free: BTreeMap<u32, u32>,
    /// Ranges that were given back, and when. A run of the program may still use them.
    left: VecDeque<(Instant, u32, u32)>,
}

impl Rooms {
    /// All `all` entries are free.
    pub fn new(all: u32) -> Self {
        Self {
            free: BTreeMap::from([(0, all)]),
            left: VecDeque::new(),
        }
    }

    /// Allocate a range of `wanted` entries. Returns its first index.
    pub fn take(&mut self, wanted: u32) -> Option<u32> {
        while let Some((since, first, room)) = self.left.front().copied() {
            if since.elapsed() < GRACE {
                break;
            }
            self.left.pop_front();
            self.join(first, room);
        }
        let (first, room) = self.free.iter().find(|(_, room)| **room >= wanted)?;
        let (first, room) = (*first, *room);
        self.free.remove(&first);
        if room > wanted {
            self.free.insert(first + wanted, room - wanted);
        }
        Some(first)
    }

    /// Free a range that no rule uses any more.
    pub fn give_back(&mut self, first: u32, room: u32) {
        self.left.push_back((Instant::now(), first, room));
    }

    fn join(&mut self, first: u32, room: u32) {
        let (mut first, mut room) = (first, room);
        if let Some(next) = self.free.remove(&(first + room)) {
            room += next;
        }
        if let Some((before, n)) = self.free.range(..first).next_back().map(|(a, b)| (*a, *b))
            && before + n == first
        {
            (first, room) = (before, n + room);
        }
        self.free.insert(first, room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(rooms: &mut Rooms) {
        for (since, _, _) in &mut rooms.left {
            *since -= GRACE;
        }
    }

    #[test]
    fn places_are_used_again_when_no_program_can_still_read_them() {
        let mut rooms = Rooms::new(8);
        assert_eq!(rooms.take(4), Some(0));
        assert_eq!(rooms.take(4), Some(4));
        rooms.give_back(0, 4);
        assert_eq!(rooms.take(1), None);
        settle(&mut rooms);
        assert_eq!(rooms.take(1), Some(0));
    }

    #[test]
    fn neighbouring_places_become_one() {
        let mut rooms = Rooms::new(8);
        for (at, first) in [0, 2, 4, 6].into_iter().enumerate() {
            assert_eq!(rooms.take(2), Some(first), "{at}");
        }
        for first in [4, 0, 6, 2] {
            rooms.give_back(first, 2);
        }
        settle(&mut rooms);
        assert_eq!(rooms.take(8), Some(0));
    }
}
