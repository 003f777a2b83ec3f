//! Serves the fuzzer's seeds: each as it is, cut off at each octet, and with each octet replaced.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "check/sn.rs"]
mod check;
#[path = "../../fuzz/seeds.rs"]
mod seeds;
mod tree;

#[test]
fn no_octets_make_the_gateway_panic_or_break_its_bounds() {
    seeds::run("sn", 1, &[0, 2, 0x84, 0xff], check::check);
}
