//! Reads the fuzzer's corpus, and variations of it, as files.
#![allow(clippy::unwrap_used)]

#[path = "check/access.rs"]
mod check;
#[path = "../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn no_octets_make_the_readers_panic_or_allow_what_no_line_says() {
    seeds::run("access", 1, b"\0\n #%$:\xff", check::check);
}
