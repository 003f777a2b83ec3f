//! What no client would send: what the fuzzer found worth keeping, and its neighbours.
#![allow(clippy::unwrap_used)]

#[path = "check/websocket.rs"]
mod check;
#[path = "../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn a_websocket_reads_the_same_however_the_socket_cuts_it() {
    seeds::run("websocket", 7, &[0, 0x7e, 0x80, 0xff], check::check);
}
