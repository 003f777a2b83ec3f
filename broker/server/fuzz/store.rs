//! A row of the store, any octets. In `broker/server`: `cargo +nightly fuzz run --fuzz-dir fuzz store fuzz/seeds/store`.
//! `store/tests/any_octets.rs` runs the seeds without a fuzzer.
#![no_main]
#![allow(dead_code)]

#[path = "../store/tests/check/store.rs"]
mod check;
#[path = "../store/src/record.rs"]
mod record;
#[path = "../store/src/types.rs"]
mod types;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| check::check(octets));
