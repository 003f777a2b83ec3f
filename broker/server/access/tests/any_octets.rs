//! Reads the fuzzer's corpus, and variations of it, as files.
#![allow(clippy::unwrap_used)]

#[path = "check/access.rs"]
mod check;

use std::fs::read;

#[test]
fn no_octets_make_the_readers_panic_or_allow_what_no_line_says() {
    let seeds = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/access"));
    let mut count = 0;
    for seed in seeds.unwrap() {
        let octets = read(seed.unwrap().path()).unwrap();
        check::check(&octets);
        for at in 0..octets.len() {
            for octet in [0, b'\n', b' ', b'#', b'%', b'$', b':', 0xff] {
                let mut octets = octets.clone();
                octets[at] = octet;
                check::check(&octets);
            }
        }
        count += 1;
    }
    assert!(count > 20, "only {count} seeds");
}
