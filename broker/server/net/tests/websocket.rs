//! WebSocket between a client by tungstenite, or one that breaks rules, and the broker's transport.

#![allow(clippy::panic, clippy::unwrap_used)]

mod wire;

use std::io::{Read, Write};

use mqtick_net::transport::tls::Clients;
use mqtick_net::transport::websocket::{MAX_REQUEST, Origins, WebSocket};
use mqtick_net::transport::{Failure, Transport};
use proptest::prelude::*;
use rustls::ALL_VERSIONS;
use tungstenite::client::IntoClientRequest;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{Frame, coding::CloseCode};
use tungstenite::{Message, WebSocket as Client, client::client};
use wire::{Socket, available, configuration, tls};

const CONNECT: &[u8] = b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0";

fn websocket() -> Transport {
    Transport::WebSocket(Box::new(WebSocket::new()))
}

/// Return the client's end of a WebSocket and what the broker chose as protocol.
fn connected<S: Read + Write>(stream: S, offered: &'static str) -> (Client<S>, String) {
    let mut request = "ws://localhost/mqtt".into_client_request().unwrap();
    request
        .headers_mut()
        .insert("Sec-WebSocket-Protocol", offered.parse().unwrap());
    let (client, answer) = client(request, stream)
        .map_err(|error| error.to_string())
        .unwrap();
    (
        client,
        answer.headers()["Sec-WebSocket-Protocol"]
            .to_str()
            .unwrap()
            .to_owned(),
    )
}

fn request(protocol: &str) -> String {
    format!(
        "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocol}\r\n"
    )
}

/// Return a connection with the handshake done and its answer taken.
fn open(piece: usize) -> Socket {
    let mut socket = Socket::new(websocket(), piece);
    socket
        .write_all(request("Sec-WebSocket-Protocol: mqtt\r\n").as_bytes())
        .unwrap();
    let answer = String::from_utf8(available(&mut socket)).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"),
        "{answer}"
    );
    assert!(
        answer
            .to_lowercase()
            .contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=")
    );
    socket
}

/// Return a client's frame: its first octet, and its payload masked.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    match payload.len() {
        short @ ..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
        long => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(long).unwrap().to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(octet, mask)| octet ^ mask),
    );
    frame
}

const BINARY: u8 = 0x82;
const BEGIN: u8 = 0x02;
const MIDDLE: u8 = 0x00;
const END: u8 = 0x80;
const PING: u8 = 0x89;
const CLOSE: u8 = 0x88;

#[test]
fn octets_pass_both_ways_however_the_socket_cuts_them() {
    for piece in [1, 7, usize::MAX] {
        let socket = Socket::new(websocket(), piece);
        let (mut client, _) = connected(socket.clone(), "mqtt");
        for length in [0, 1, 125, 126, 65_535, 65_536, 200_000] {
            let payload: Vec<u8> = (0..length)
                .map(|number: u32| number.to_le_bytes()[0])
                .collect();
            client.send(Message::binary(payload.clone())).unwrap();
            assert!(socket.plain() == payload);
            socket.send(&payload).unwrap();
            assert!(client.read().unwrap() == Message::binary(payload));
        }
    }
}

#[test]
fn octets_pass_both_ways_in_tls() {
    for piece in [1, 100, usize::MAX] {
        let tls = tls(configuration("broker", Clients::Anonymous, false));
        let socket = Socket::new(
            Transport::TlsWebSocket(tls, Box::new(WebSocket::new())),
            piece,
        );
        let (mut client, _) = connected(wire::client(&socket, ALL_VERSIONS, None), "mqtt");
        client.send(Message::binary(CONNECT)).unwrap();
        assert_eq!(socket.plain(), CONNECT);
        client
            .send(Message::Ping(b"there?".as_slice().into()))
            .unwrap();
        assert_eq!(
            client.read().unwrap(),
            Message::Pong(b"there?".as_slice().into())
        );
        socket.send(b"\x20\x02\0\0").unwrap();
        assert_eq!(
            client.read().unwrap(),
            Message::binary(b"\x20\x02\0\0".as_slice())
        );
        socket.close();
        assert!(client.read().unwrap().is_close());
    }
}

#[test]
fn text_in_tls_closes_both() {
    let tls = tls(configuration("broker", Clients::Anonymous, false));
    let socket = Socket::new(
        Transport::TlsWebSocket(tls, Box::new(WebSocket::new())),
        usize::MAX,
    );
    let (mut client, _) = connected(wire::client(&socket, ALL_VERSIONS, None), "mqtt");
    client.send(Message::text("text")).unwrap();
    let Message::Close(Some(CloseFrame { code, .. })) = client.read().unwrap() else {
        panic!("no code");
    };
    assert_eq!(code, CloseCode::Unsupported);
    let failure = socket.failure().unwrap().to_string();
    assert_eq!(failure, "a WebSocket frame had text, not binary data");
    assert_eq!(client.get_mut().read(&mut [0; 9]).unwrap(), 0);
}

#[test]
fn the_protocol_is_mqtt() {
    for (offered, chosen) in [
        ("mqtt", "mqtt"),
        ("mqttv3.1", "mqttv3.1"),
        ("mqttv3.1, chat,mqtt", "mqtt"),
    ] {
        assert_eq!(connected(Socket::new(websocket(), 9), offered).1, chosen);
    }
    for offered in ["", "Sec-WebSocket-Protocol: chat, MQTT\r\n"] {
        let mut socket = Socket::new(websocket(), 9);
        socket.write_all(request(offered).as_bytes()).unwrap();
        assert!(available(&mut socket).starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
        let failure = socket.failure().unwrap().to_string();
        assert_eq!(
            failure,
            "the WebSocket request does not name the protocol `mqtt`"
        );
    }
}

#[test]
fn a_request_that_asks_for_something_else_is_refused() {
    let right = request("Sec-WebSocket-Protocol: mqtt\r\n");
    for (part, instead) in [
        ("HTTP/1.1", "HTTP/1.0"),
        ("HTTP/1.1", "nonsense"),
        ("keep-alive, Upgrade", "keep-alive"),
        ("Upgrade: websocket", "Upgrade: h2c"),
        ("Version: 13", "Version: 8"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "short"),
        ("Host: localhost", "no header"),
        ("Host: localhost", "Host: \u{1}"),
    ] {
        assert!(right.contains(part));
        let mut socket = Socket::new(websocket(), usize::MAX);
        socket
            .write_all(right.replace(part, instead).as_bytes())
            .unwrap();
        assert!(
            available(&mut socket).starts_with(b"HTTP/1.1 400 Bad Request\r\n"),
            "{instead}"
        );
        let failure = socket.failure().unwrap().to_string();
        assert!(
            failure.starts_with("the WebSocket request was wrong: "),
            "{failure}"
        );
    }
}

#[test]
fn browsers_may_connect_only_from_pages_of_allowed_origins() {
    let answer = |origins: &Origins, host: &str, origin: &str| {
        let websocket = WebSocket::of(origins.clone());
        let mut socket = Socket::new(Transport::WebSocket(Box::new(websocket)), 4096);
        let headers = format!("Origin: {origin}\r\nSec-WebSocket-Protocol: mqtt\r\n");
        let request = request(&headers).replace("Host: localhost", &format!("Host: {host}"));
        let _ = socket.write_all(request.as_bytes()); // it fails where it is refused
        let answer = String::from_utf8(available(&mut socket)).unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let usual = Origins::default();
    let with_tls = Origins {
        own_name: true,
        ..Origins::default()
    };
    let listed = |origin: &str| Origins {
        allowed: [origin.to_owned()].into(),
        ..Origins::default()
    };
    for (origins, host, origin, status) in [
        (&usual, "127.0.0.1:9001", "https://evil.example", "403"),
        (&usual, "127.0.0.1:9001", "null", "403"),
        (&usual, "127.0.0.1:9001", "http://127.0.0.1:8000", "403"),
        (&usual, "127.0.0.1:9001", "http://127.0.0.1:9001", "101"),
        (&usual, "[::1]:9001", "http://[::1]:9001", "101"),
        (&usual, "localhost:9001", "http://LOCALHOST:9001", "101"),
        // Its name may be made to mean this address.
        (
            &usual,
            "evil.example:9001",
            "http://evil.example:9001",
            "403",
        ),
        (&with_tls, "home.example", "https://home.example", "101"),
        (&with_tls, "home.example", "https://evil.example", "403"),
        (
            &listed("https://home.example"),
            "x",
            "https://home.example",
            "101",
        ),
        (
            &listed("https://home.example"),
            "x",
            "http://home.example",
            "403",
        ),
        (&listed("*"), "x", "https://evil.example", "101"),
    ] {
        assert_eq!(answer(origins, host, origin), status, "{host} {origin}");
    }
}

#[test]
fn whoever_speaks_without_websocket_is_refused_at_once() {
    for first in [CONNECT, b"POST / HTTP/1.1\r\n", b"\x16", b"GE\0"] {
        let mut socket = Socket::new(websocket(), 1);
        socket.write_all(first).unwrap();
        let failure = socket.failure().unwrap().to_string();
        assert_eq!(failure, "what came is no WebSocket request");
        assert!(available(&mut socket).is_empty());
    }
}

#[test]
fn a_request_is_bounded() {
    let long = format!(
        "Sec-WebSocket-Protocol: mqtt\r\nX: {}\r\n",
        "x".repeat(MAX_REQUEST)
    );
    for piece in [1, 4096, usize::MAX] {
        let mut socket = Socket::new(websocket(), piece);
        socket.write_all(request(&long).as_bytes()).unwrap();
        assert!(available(&mut socket).starts_with(b"HTTP/1.1 431 "));
        assert!(
            socket
                .failure()
                .unwrap()
                .to_string()
                .contains("over 8192 octets")
        );
    }
    let many = "X: x\r\n".repeat(200);
    let mut socket = Socket::new(websocket(), usize::MAX);
    socket.write_all(request(&many).as_bytes()).unwrap();
    assert!(
        socket
            .failure()
            .unwrap()
            .to_string()
            .contains("Too many headers")
    );
}

#[test]
fn frames_may_come_with_the_request() {
    for piece in [1, 50, usize::MAX] {
        let mut socket = Socket::new(websocket(), piece);
        let mut octets = request("Sec-WebSocket-Protocol: mqtt\r\n").into_bytes();
        octets.extend(masked(BINARY, CONNECT));
        socket.write_all(&octets).unwrap();
        assert_eq!((socket.plain(), socket.failure()), (CONNECT.to_vec(), None));
    }
}

#[test]
fn packets_may_be_split_and_joined_and_pinged_between() {
    for piece in [1, 3, usize::MAX] {
        let mut socket = open(piece);
        for frame in [
            masked(BEGIN, b"ab"),
            masked(PING, b"1"),
            masked(MIDDLE, b""),
            masked(MIDDLE, b"cdefghijklmnop"),
            masked(PING, b""),
            masked(END, b"q"),
            masked(0x8a, b"a pong that nobody asked for"),
            masked(BINARY, b"r"),
        ] {
            socket.write_all(&frame).unwrap();
        }
        assert_eq!(
            (socket.plain(), socket.failure()),
            (b"abcdefghijklmnopqr".to_vec(), None)
        );
        assert_eq!(available(&mut socket), b"\x8a\x011\x8a\0");
    }
}

/// Return why the frames were refused and the code that told the client.
fn refused(frames: &[u8]) -> (String, u16) {
    let mut socket = open(usize::MAX);
    socket.write_all(frames).unwrap();
    let failure = socket.failure().unwrap();
    assert!(!failure.orderly());
    let told = available(&mut socket);
    assert!(socket.send(b"more").is_err());
    assert_eq!(told[..2], [0x88, 2]);
    (failure.to_string(), u16::from_be_bytes([told[2], told[3]]))
}

#[test]
fn whoever_breaks_the_rules_of_frames_is_told_why_and_closed() {
    for (frames, why, code) in [
        (
            masked(0x81, b"text"),
            "a WebSocket frame had text, not binary data",
            1003,
        ),
        (
            b"\x82\x01a".to_vec(),
            "a WebSocket frame was not masked",
            1002,
        ),
        (
            masked(0xc2, b"a"),
            "a WebSocket frame had bits set that are reserved",
            1002,
        ),
        (
            masked(0x09, b"a"),
            "a WebSocket control frame was fragmented",
            1002,
        ),
        (
            masked(PING, &[0; 126]),
            "a WebSocket control frame was too long",
            1002,
        ),
        (
            masked(CLOSE, &[0; 126]),
            "a WebSocket control frame was too long",
            1002,
        ),
        (
            masked(END, b"a"),
            "fragments of WebSocket messages were out of order",
            1002,
        ),
        (
            [masked(BEGIN, b"a"), masked(BINARY, b"a")].concat(),
            "fragments of WebSocket messages were out of order",
            1002,
        ),
        (
            b"\x82\xfe\0\x01mask".to_vec(),
            "a WebSocket frame's length was not in its shortest form",
            1002,
        ),
        (
            b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xffmask".to_vec(),
            "a WebSocket frame's length had its highest bit set",
            1002,
        ),
    ] {
        assert_eq!(refused(&frames), (why.to_owned(), code));
    }
    for code in [0x83, 0x87, 0x8b, 0x8f] {
        let (why, told) = refused(&masked(code, b""));
        assert!(
            why.starts_with("a WebSocket frame was wrong: ") && told == 1002,
            "{why}"
        );
    }
}

#[test]
fn a_close_is_answered_by_the_same_code() {
    for (payload, answer) in [
        (&b""[..], 1000_u16),
        (b"\x03\xe8", 1000),
        (b"\x03\xe9going", 1001),
        (b"\x0f\xa0", 4000),
        (b"\x03", 1002),
        (b"\x03\xee", 1002),
        (b"\0\0", 1002),
    ] {
        let mut socket = open(usize::MAX);
        let frames = [masked(BINARY, b"\xe0\0"), masked(CLOSE, payload)].concat();
        socket.write_all(&frames).unwrap();
        assert_eq!(socket.plain(), b"\xe0\0");
        let failure = socket.failure().unwrap();
        assert!(failure.orderly());
        assert_eq!(failure.to_string(), "the client closed the WebSocket");
        assert_eq!(
            available(&mut socket),
            [&[CLOSE, 2][..], &answer.to_be_bytes()].concat()
        );
    }
}

#[test]
fn a_client_is_told_that_no_more_will_come() {
    let socket = Socket::new(websocket(), usize::MAX);
    let (mut client, _) = connected(socket.clone(), "mqtt");
    socket.close();
    socket.close();
    let Message::Close(Some(CloseFrame { code, .. })) = client.read().unwrap() else {
        panic!("no code");
    };
    assert_eq!(code, CloseCode::Normal);
    assert_eq!(
        socket.send(b"more").unwrap_err().to_string(),
        "the WebSocket is closed"
    );
}

#[test]
fn nothing_is_sent_before_the_request() {
    let socket = Socket::new(websocket(), 1);
    let failure = socket.send(CONNECT).unwrap_err().to_string();
    assert_eq!(failure, "the client has not asked for a WebSocket yet");
    socket.close();
    assert!(socket.0.borrow().wire.is_empty());
}

#[test]
fn a_frame_of_any_length_goes_through_as_it_comes() {
    let mut transport = open(usize::MAX).0.replace(wire::Broker {
        transport: websocket(),
        plain: Vec::new(),
        wire: Vec::new(),
        failure: None,
        piece: 1,
    });
    let mut header = vec![0x82, 0xff];
    header.extend((1_u64 << 62).to_be_bytes());
    header.extend([0; 4]);
    let (mut plain, mut wire) = (Vec::new(), Vec::new());
    transport
        .transport
        .receive(&header, &mut plain, &mut wire)
        .unwrap();
    for _ in 0..1000 {
        transport
            .transport
            .receive(&[7; 1000], &mut plain, &mut wire)
            .unwrap();
        assert_eq!(plain.len(), 1000);
        plain.clear();
    }
    assert!(plain.capacity() < 5000 && wire.is_empty());
}

/// Hand a client's frames to a transport in pieces of these lengths.
fn piecewise(
    transport: &mut Transport,
    mut octets: &[u8],
    pieces: &[usize],
    plain: &mut Vec<u8>,
    wire: &mut Vec<u8>,
) -> Result<(), Failure> {
    for piece in pieces.iter().cycle() {
        let (now, later) = octets.split_at((*piece).min(octets.len()));
        transport.receive(now, plain, wire)?;
        octets = later;
        if octets.is_empty() {
            break;
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_frames_in_any_pieces_bring_all_octets(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
        mask in any::<[u8; 4]>(),
        pieces in prop::collection::vec(1..50usize, 1..10),
    ) {
        let socket = open(usize::MAX);
        let mut frames = Vec::new();
        for payload in &payloads {
            let mut frame = Frame::message(payload.clone(), OpCode::Data(Data::Binary), true);
            frame.header_mut().mask = Some(mask);
            frame.format(&mut frames).unwrap();
        }
        let wire::Broker { transport, plain, wire, .. } = &mut *socket.0.borrow_mut();
        piecewise(transport, &frames, &pieces, plain, wire).unwrap();
        prop_assert!(*plain == payloads.concat() && wire.is_empty());
    }

    #[test]
    fn no_octets_make_it_panic_and_answers_are_no_longer_than_what_came(
        opened in any::<bool>(),
        begin in prop::sample::select(vec![&b""[..], b"GET / HTTP/1.1\r\n", b"\x89\xfe", b"\x82"]),
        octets in prop::collection::vec(any::<u8>(), 0..600),
        pieces in prop::collection::vec(1..50usize, 1..10),
    ) {
        let socket = if opened { open(usize::MAX) } else { Socket::new(websocket(), 1) };
        let octets = [begin, &octets].concat();
        let wire::Broker { transport, plain, wire, .. } = &mut *socket.0.borrow_mut();
        let _ = piecewise(transport, &octets, &pieces, plain, wire);
        prop_assert!(plain.len() <= octets.len());
        prop_assert!(wire.len() <= octets.len() + 100);
    }
}
