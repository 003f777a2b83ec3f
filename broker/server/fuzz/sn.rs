//! What clients of MQTT-SN send, any octets. In `broker/server`: `cargo +nightly fuzz run --fuzz-dir fuzz sn fuzz/seeds/sn`.
//! `sn/tests/any_octets.rs` runs the seeds without a fuzzer.
#![no_main]

#[path = "../sn/tests/check/sn.rs"]
mod check;
#[path = "../sn/tests/tree/mod.rs"]
mod tree;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| check::check(octets));
