//! Reads rows that no store has written. Normally its checksums keep them from the readers.
#![allow(dead_code, clippy::unwrap_used)]

#[path = "check/store.rs"]
mod check;
#[path = "../src/record.rs"]
mod record;
#[path = "../../fuzz/seeds.rs"]
mod seeds;
#[path = "../src/types.rs"]
mod types;

#[test]
fn no_row_makes_the_readers_panic_and_what_they_take_they_write() {
    seeds::run("store", 1, &[0, 1, 0x7f, 0x80, 0xff], check::check);
}
