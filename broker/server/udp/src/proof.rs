//! Proves that a subscriber receives at its address (clause 3).

use std::net::SocketAddrV4;

const EPOCH_NS: u64 = 64_000_000_000;

/// Makes and checks tokens with a secret key.
pub(crate) struct Tokens {
    keys: [u64; 2],
}

impl Tokens {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(secret);
        Self {
            keys: [both as u64, (both >> 64) as u64],
        }
    }

    /// The token of an address for the present epoch.
    pub(crate) fn token(&self, of: SocketAddrV4, now_ns: u64) -> [u8; 8] {
        self.in_epoch(of, now_ns / EPOCH_NS)
    }

    /// Whether a token is that of the present or the last epoch.
    pub(crate) fn is_good(&self, token: &[u8], of: SocketAddrV4, now_ns: u64) -> bool {
        let epoch = now_ns / EPOCH_NS;
        // The comparison need not take constant time: each client gets the token of its own
        // address.
        token == self.in_epoch(of, epoch) || token == self.in_epoch(of, epoch.wrapping_sub(1))
    }

    fn in_epoch(&self, of: SocketAddrV4, epoch: u64) -> [u8; 8] {
        let [a, b, c, d] = of.ip().octets();
        let ([e, f], [g, h]) = (of.port().to_be_bytes(), (epoch as u16).to_be_bytes());
        siphash(self.keys, &[a, b, c, d, e, f, g, h]).to_le_bytes()
    }
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012).
fn siphash(keys: [u64; 2], message: &[u8]) -> u64 {
    let [low, high] = keys;
    let mut state = [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = message.as_chunks::<8>();
    let mut last = [0; 8];
    for (place, octet) in last.iter_mut().zip(rest) {
        *place = *octet;
    }
    let last = u64::from_le_bytes(last) | (message.len() as u64) << 56;
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    for word in words.chain([last]) {
        state[3] ^= word;
        round(&mut state);
        round(&mut state);
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    state.into_iter().fold(0, |all, word| all ^ word)
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siphash_is_that_of_its_authors() {
        // Appendix A of the paper: the key is the octets 0 to 15, the message the octets 0 to 14.
        let key = u128::from_le_bytes(std::array::from_fn(|at| at as u8));
        let message: [u8; 15] = std::array::from_fn(|at| at as u8);
        assert_eq!(
            siphash([key as u64, (key >> 64) as u64], &message),
            0xa129_ca61_49be_45e5
        );
    }
}
