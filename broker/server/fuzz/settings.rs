//! A configuration file, any octets. In `broker/server`: `cargo +nightly fuzz run --fuzz-dir fuzz settings fuzz/seeds/settings`.
//! `broker/tests/any_octets.rs` runs the seeds without a fuzzer.
#![no_main]

#[path = "../broker/tests/check/settings.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| check::check(octets));
