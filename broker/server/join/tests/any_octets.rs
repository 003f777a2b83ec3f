//! Malformed packets of a neighbour: seeds, each with one octet changed.
#![allow(clippy::unwrap_used)]

#[path = "check/words.rs"]
mod check;
#[path = "../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn no_octets_make_a_node_panic_or_say_something_else_than_it_heard() {
    seeds::run("words", 1, b"\0/#$f\x30\x80\xff", check::check);
}
