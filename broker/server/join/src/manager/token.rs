//! A hash for tables of connections.

use std::hash::{BuildHasherDefault, Hasher};

/// Hashes the tokens of connections. They are numbered one by one, so nobody can choose them to collide.
#[derive(Default)]
pub(crate) struct Token(u64);

impl Hasher for Token {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        octets
            .iter()
            .for_each(|one| self.write_u64(u64::from(*one)));
    }

    fn write_u64(&mut self, number: u64) {
        // The table also uses the upper bits.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

pub(crate) type ByNumber = BuildHasherDefault<Token>;
