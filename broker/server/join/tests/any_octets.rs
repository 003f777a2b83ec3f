//! Malformed packets of a neighbour: seeds, each with one octet changed.
#![allow(clippy::unwrap_used)]

#[path = "check/words.rs"]
mod check;

use std::fs::read;

#[test]
fn no_octets_make_a_node_panic_or_say_something_else_than_it_heard() {
    let seeds = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/words"));
    let mut count = 0;
    for seed in seeds.unwrap() {
        let octets = read(seed.unwrap().path()).unwrap();
        check::check(&octets);
        for at in 0..octets.len() {
            for octet in [0, b'/', b'#', b'$', b'f', 0x30, 0x80, 0xff] {
                let mut octets = octets.clone();
                octets[at] = octet;
                check::check(&octets);
            }
        }
        count += 1;
    }
    assert!(count > 10, "only {count} seeds");
}
