//! What no client and nobody who writes settings would send: what the fuzzer found worth keeping,
//! and its neighbours.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod check {
    pub mod settings;
    pub mod websocket;
}

use std::fs::{read, read_dir};
use std::path::Path;

/// Check each seed of that name, and each with one octet of these in every so many places.
fn run(name: &str, step: usize, octets: &[u8], check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let mut count = 0;
    for seed in read_dir(folder.join(name)).unwrap() {
        let seed = read(seed.unwrap().path()).unwrap();
        check(&seed);
        for at in (0..seed.len()).step_by(step) {
            for &octet in octets {
                let mut seed = seed.clone();
                seed[at] = octet;
                check(&seed);
            }
        }
        count += 1;
    }
    assert!(count > 20, "only {count} seeds");
}

#[test]
fn a_websocket_reads_the_same_however_the_socket_cuts_it() {
    run(
        "websocket",
        7,
        &[0, 0x7e, 0x80, 0xff],
        check::websocket::check,
    );
}

#[test]
fn no_file_of_settings_makes_it_panic_or_say_more_than_a_line() {
    run("settings", 31, b"\0\n\"[=#-9\xff", check::settings::check);
}
