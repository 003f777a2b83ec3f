//! Feeds any octets, as a packet of either version, to both decoders. To be run in `packet`:
//! `cargo +nightly fuzz run decode fuzz/seeds`. `tests/hostile.rs` runs the seeds without a fuzzer.
#![no_main]

#[path = "../tests/common/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| check::check(octets));
