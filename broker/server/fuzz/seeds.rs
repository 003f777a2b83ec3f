//! Runs the fuzzer's seeds, and what is near them, without a fuzzer.

use std::fs::{read, read_dir};

/// Check each seed of that name. In every so many places: cut it off there, and put each of these
/// octets there.
pub fn run(name: &str, step: usize, octets: &[u8], check: fn(&[u8])) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/").to_owned() + name;
    let mut count = 0;
    for seed in read_dir(folder).unwrap() {
        let seed = read(seed.unwrap().path()).unwrap();
        check(&seed);
        for at in (0..seed.len()).step_by(step) {
            check(&seed[..at]);
            for &octet in octets {
                let mut seed = seed.clone();
                seed[at] = octet;
                check(&seed);
            }
        }
        count += 1;
    }
    assert!(count > 10, "only {count} seeds");
}
