//! An access file and a password file, any octets. In `broker/server`: `cargo +nightly fuzz run --fuzz-dir fuzz access fuzz/seeds/access`.
//! `access/tests/any_octets.rs` runs the seeds without a fuzzer.
#![no_main]

#[path = "../access/tests/check/access.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| check::check(octets));
