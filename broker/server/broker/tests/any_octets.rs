//! What nobody who writes settings would: what the fuzzer found worth keeping, and its neighbours.
#![allow(clippy::expect_used, clippy::unwrap_used)]

#[path = "check/settings.rs"]
mod check;
#[path = "../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn no_file_of_settings_makes_it_panic_or_say_more_than_a_line() {
    seeds::run("settings", 31, b"\0\n\"[=#-9\xff", check::check);
}
