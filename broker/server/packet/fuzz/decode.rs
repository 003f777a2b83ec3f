//! Any octets, as a packet of either version, to both decoders.
#![no_main]

#[path = "../tests/common/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| check::check(octets));
