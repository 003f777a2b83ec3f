//! What a neighbour says, any octets. In `broker/server`: `cargo +nightly fuzz run --fuzz-dir fuzz words fuzz/seeds/words`.
//! `join/tests/any_octets.rs` runs the seeds without a fuzzer.
#![no_main]

#[path = "../join/tests/check/words.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| check::check(octets));
