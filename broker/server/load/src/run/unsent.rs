//! Octets that a publisher's socket has not taken: mostly packets that differ in their numbers
//! only. Sent packets stay in the buffer and are numbered again, rather than copied.

/// Sent octets before others, above which the others are moved to the front.
const MOST_SENT: usize = 1 << 16;

/// Octets to be sent.
#[derive(Debug)]
pub struct Unsent {
    packet: Vec<u8>,
    /// Unsent octets are at `from..to`; behind them there are only packets.
    octets: Vec<u8>,
    from: usize,
    to: usize,
    /// Whether the buffer holds nothing but packets.
    is_even: bool,
}

impl Unsent {
    /// An empty buffer for packets like this one.
    pub fn new(packet: Vec<u8>) -> Self {
        Self {
            packet,
            octets: Vec::new(),
            from: 0,
            to: 0,
            is_even: true,
        }
    }

    /// Octets of a packet.
    pub fn each(&self) -> usize {
        self.packet.len()
    }

    /// The unsent octets.
    pub fn octets(&self) -> &[u8] {
        self.octets.get(self.from..self.to).unwrap_or_default()
    }

    /// Adds packets; returns them to be numbered.
    pub fn add(&mut self, count: usize) -> impl Iterator<Item = &mut [u8]> {
        let (start, each) = (self.to, self.packet.len());
        self.to += count * each;
        if self.octets.len() < self.to {
            self.octets.truncate(start);
            while self.octets.len() < self.to {
                self.octets.extend_from_slice(&self.packet);
            }
        }
        let added = self.octets.get_mut(start..self.to);
        added.unwrap_or_default().chunks_exact_mut(each)
    }

    /// Adds another packet.
    pub fn add_other(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.octets.truncate(self.to);
        write(&mut self.octets);
        self.to = self.octets.len();
        self.is_even = false;
    }

    /// Removes octets that were sent.
    pub fn sent(&mut self, count: usize) {
        self.from += count;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            if !self.is_even {
                self.octets.clear();
                self.is_even = true;
            }
        } else if self.from > MOST_SENT {
            let whole = self.from - self.from % self.packet.len();
            self.octets.drain(..whole);
            (self.from, self.to) = (self.from - whole, self.to - whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_was_added_however_much_a_socket_takes() {
        for takes in [1, 3, 4, 7, 5000, 100_000] {
            let mut unsent = Unsent::new(b"abcd".to_vec());
            let (mut added, mut sent) = (Vec::new(), Vec::new());
            for number in 0..40_000_u32 {
                for packet in unsent.add(number as usize % 4) {
                    assert_eq!(&packet[1..], b"bcd");
                    packet[0] = b'A' + (number % 26) as u8;
                    added.extend_from_slice(packet);
                }
                if number % 1000 == 999 {
                    unsent.add_other(|octets| octets.extend_from_slice(b"other"));
                    added.extend_from_slice(b"other");
                }
                if number % 3 == 0 {
                    let count = unsent.octets().len().min(takes);
                    sent.extend_from_slice(&unsent.octets()[..count]);
                    unsent.sent(count);
                }
            }
            sent.extend_from_slice(unsent.octets());
            assert!(sent == added, "{takes} octets at a time");
            if takes > 100 {
                assert!(
                    unsent.octets.len() < 2 * MOST_SENT,
                    "{}",
                    unsent.octets.len()
                );
            }
        }
    }
}
