//! Serves the fuzzer's seeds: each as it is, cut off at each octet, and with each octet replaced.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "check/sn.rs"]
mod check;
mod tree;

use std::fs::read;

#[test]
fn no_octets_make_the_gateway_panic_or_break_its_bounds() {
    let seeds = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/sn"));
    let mut count = 0;
    for seed in seeds.unwrap() {
        let octets = read(seed.unwrap().path()).unwrap();
        check::check(&octets);
        for at in 0..octets.len() {
            check::check(&octets[..at]);
            for octet in [0, 2, 0x84, 0xff] {
                let mut octets = octets.clone();
                octets[at] = octet;
                check::check(&octets);
            }
        }
        count += 1;
    }
    assert!(count > 20, "only {count} seeds");
}
