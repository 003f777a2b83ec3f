//! What a client of WebSocket sends, any octets. In `broker/server`: `cargo +nightly fuzz run --fuzz-dir fuzz websocket fuzz/seeds/websocket`.
//! `net/tests/any_octets.rs` runs the seeds without a fuzzer.
#![no_main]

#[path = "../net/tests/check/websocket.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| check::check(octets));
