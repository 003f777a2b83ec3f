//! Gives any octets to the broker's end of a WebSocket, whole and in pieces: both mean the same.

use mqtick_net::transport::websocket::WebSocket;

const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

type Seen = (Vec<u8>, Vec<u8>, Option<String>);

/// What the broker reads, answers and says of the octets in pieces of that many.
fn seen(octets: &[u8], piece: usize) -> Seen {
    let (mut websocket, mut plain, mut wire) = (WebSocket::new(), Vec::new(), Vec::new());
    for piece in octets.chunks(piece) {
        if let Err(failure) = websocket.receive(piece, &mut plain, &mut wire) {
            return (plain, wire, Some(failure.to_string()));
        }
    }
    (plain, wire, None)
}

/// Fail where something panics, answers grow, or it matters how the socket cuts what comes. The
/// first octet says what follows: frames after a right request, or all of it.
pub fn check(octets: &[u8]) {
    let Some((&first, rest)) = octets.split_first() else {
        return;
    };
    let all = if first & 1 == 0 {
        [REQUEST, rest].concat()
    } else {
        rest.to_vec()
    };
    let whole = seen(&all, all.len().max(1));
    assert!(whole.0.len() <= rest.len() && whole.1.len() <= all.len() + 200);
    for piece in [1, 2, 7, 64] {
        assert_eq!(seen(&all, piece), whole, "in pieces of {piece}");
    }
}
