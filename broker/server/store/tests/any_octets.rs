//! Reads rows that no store has written. Normally its checksums keep them from the readers.
#![allow(dead_code, clippy::unwrap_used)]

#[path = "check/store.rs"]
mod check;
#[path = "../src/record.rs"]
mod record;
#[path = "../src/types.rs"]
mod types;

use std::fs::read;

#[test]
fn no_row_makes_the_readers_panic_and_what_they_take_they_write() {
    let seeds = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/store"));
    let mut count = 0;
    for seed in seeds.unwrap() {
        let octets = read(seed.unwrap().path()).unwrap();
        check::check(&octets);
        for at in 0..octets.len() {
            check::check(&octets[..at]);
            for octet in [0, 1, 0x7f, 0x80, 0xff] {
                let mut octets = octets.clone();
                octets[at] = octet;
                check::check(&octets);
            }
        }
        count += 1;
    }
    assert!(count > 20, "only {count} seeds");
}
