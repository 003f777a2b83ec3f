//! TLS between a client by rustls and the broker's transport.

#![allow(clippy::unwrap_used)]

mod wire;

use std::io::Write;

use mqtick_net::transport::Transport;
use mqtick_net::transport::tls::{Clients, Settings};
use proptest::prelude::*;
use rustls::ALL_VERSIONS;
use rustls::version::{TLS12, TLS13};
use wire::{Socket, asking, available, client, configuration, file, tls};

const CONNECT: &[u8] = b"\x10\x0c\0\x04MQTT\x04\x02\0\x3c\0\0";

fn anonymous() -> Transport {
    Transport::Tls(tls(configuration("broker", Clients::Anonymous, false)))
}

#[test]
fn octets_pass_both_ways_in_either_version_however_the_socket_cuts_them() {
    for version in [&TLS12, &TLS13] {
        for piece in [1, 7, usize::MAX] {
            let socket = Socket::new(anonymous(), piece);
            let mut stream = client(&socket, &[version], None);
            stream.write_all(CONNECT).unwrap();
            assert_eq!(socket.plain(), CONNECT);
            socket.send(b"\x20\x02\0\0").unwrap();
            assert_eq!(available(&mut stream), b"\x20\x02\0\0");
            assert_eq!(stream.conn.protocol_version(), Some(version.version));
        }
    }
}

#[test]
fn a_packet_longer_than_all_buffers_passes() {
    let socket = Socket::new(anonymous(), 65_536);
    let mut stream = client(&socket, ALL_VERSIONS, None);
    let long: Vec<u8> = (0..3_000_000_u32)
        .map(|number| number.to_le_bytes()[1])
        .collect();
    stream.write_all(&long).unwrap();
    assert!(socket.plain() == long);
    socket.send(&long).unwrap();
    assert!(available(&mut stream) == long);
}

#[test]
fn nothing_is_sent_before_the_handshake() {
    let socket = Socket::new(anonymous(), 1);
    let failure = socket.send(CONNECT).unwrap_err();
    assert_eq!(failure.to_string(), "the TLS handshake is not done");
}

#[test]
fn a_client_is_known_by_the_common_name_of_its_certificate() {
    for version in [&TLS12, &TLS13] {
        for required in [false, true] {
            let socket = Socket::new(Transport::Tls(tls(asking(required, true))), usize::MAX);
            let mut stream = client(&socket, &[version], Some("client"));
            stream.write_all(CONNECT).unwrap();
            assert_eq!(socket.plain(), CONNECT);
            assert_eq!(socket.common_name().as_deref(), Some("pümp-7"));
        }
    }
}

#[test]
fn a_client_without_a_certificate_has_no_name_where_none_is_required() {
    let socket = Socket::new(Transport::Tls(tls(asking(false, false))), usize::MAX);
    client(&socket, ALL_VERSIONS, None)
        .write_all(CONNECT)
        .unwrap();
    assert_eq!(
        (socket.plain(), socket.common_name()),
        (CONNECT.to_vec(), None)
    );
}

#[test]
fn who_shows_no_certificate_or_a_wrong_one_is_refused() {
    for (shown, required, wrong) in [
        (None, true, "no certificate"),
        (Some("stranger"), true, "UnknownIssuer"),
        (Some("stranger"), false, "UnknownIssuer"),
        (Some("revoked"), true, "Revoked"),
    ] {
        for version in [&TLS12, &TLS13] {
            let socket = Socket::new(Transport::Tls(tls(asking(required, true))), usize::MAX);
            let mut stream = client(&socket, &[version], shown);
            let _ = stream.write_all(CONNECT);
            let failure = socket.failure().unwrap();
            assert!(failure.to_string().contains(wrong), "{failure}");
            assert!(!failure.orderly());
            let told = stream
                .flush()
                .and_then(|()| std::io::Read::read(&mut stream, &mut [0; 9]));
            assert!(told.unwrap_err().to_string().contains("alert"));
            assert!(socket.plain().is_empty());
        }
    }
}

#[test]
fn a_listener_can_refuse_tls_1_2() {
    let transport = Transport::Tls(tls(configuration("broker", Clients::Anonymous, true)));
    let socket = Socket::new(transport, usize::MAX);
    assert!(client(&socket, &[&TLS12], None).write_all(CONNECT).is_err());
    assert!(socket.failure().is_some());
}

#[test]
fn a_new_configuration_serves_its_certificate_and_old_connections_go_on() {
    let certificate = |configuration| {
        let socket = Socket::new(Transport::Tls(tls(configuration)), usize::MAX);
        let mut stream = client(&socket, ALL_VERSIONS, None);
        stream.write_all(b"a").unwrap();
        let shown = stream.conn.peer_certificates().unwrap()[0].to_vec();
        (socket, stream, shown)
    };
    let (socket, mut stream, first) =
        certificate(configuration("broker", Clients::Anonymous, false));
    let (_, _, second) = certificate(configuration("renewed", Clients::Anonymous, false));
    assert_ne!(first, second);
    stream.write_all(b"b").unwrap();
    assert_eq!(socket.plain(), b"ab");
}

#[test]
fn what_came_before_the_end_still_counts() {
    let socket = Socket::new(anonymous(), usize::MAX);
    let mut stream = client(&socket, ALL_VERSIONS, None);
    stream.write_all(CONNECT).unwrap();
    stream.conn.writer().write_all(b"\xe0\0").unwrap();
    stream.conn.send_close_notify();
    let mut last = Vec::new();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut last).unwrap();
    }
    stream.sock.write_all(&last).unwrap();
    assert_eq!(socket.plain(), [CONNECT, b"\xe0\0"].concat());
    let failure = socket.failure().unwrap();
    assert!(failure.orderly());
    assert_eq!(failure.to_string(), "the client closed TLS");
}

#[test]
fn a_client_is_told_that_no_more_will_come() {
    let socket = Socket::new(anonymous(), usize::MAX);
    let mut stream = client(&socket, ALL_VERSIONS, None);
    stream.write_all(CONNECT).unwrap();
    socket.close();
    assert_eq!(std::io::Read::read(&mut stream, &mut [0; 9]).unwrap(), 0);
}

#[test]
fn a_record_that_was_changed_on_the_way_ends_the_connection() {
    for version in [&TLS12, &TLS13] {
        let socket = Socket::new(anonymous(), usize::MAX);
        let mut stream = client(&socket, &[version], None);
        stream.write_all(CONNECT).unwrap();
        stream.conn.writer().write_all(b"more").unwrap();
        let mut record = Vec::new();
        stream.conn.write_tls(&mut record).unwrap();
        *record.last_mut().unwrap() ^= 1;
        stream.sock.write_all(&record).unwrap();
        assert_eq!(socket.plain(), CONNECT);
        assert!(
            socket
                .failure()
                .unwrap()
                .to_string()
                .contains("cannot decrypt")
        );
    }
}

#[test]
fn whoever_speaks_without_tls_is_refused_at_once() {
    for first in [
        CONNECT,
        b"GET / HTTP/1.1\r\n\r\n",
        &[0; 64],
        b"\x16\x03\x01\0\0",
        &[0xff; 64],
    ] {
        let (mut plain, mut wire) = (Vec::new(), Vec::new());
        let failure = anonymous()
            .receive(first, &mut plain, &mut wire)
            .unwrap_err();
        assert!(
            failure.to_string().starts_with("the client broke TLS: "),
            "{failure}"
        );
        assert!(plain.is_empty() && wire.len() < 16);
    }
}

#[test]
fn a_handshake_without_end_is_refused() {
    let mut transport = anonymous();
    let (mut plain, mut wire) = (Vec::new(), Vec::new());
    // A ClientHello that announces 16 MiB, in records of 4 KiB.
    let mut record = vec![0x16, 3, 1, 0x10, 0, 1, 0xff, 0xff, 0xff];
    record.resize(5 + 4096, 0);
    let mut records = 0;
    while transport.receive(&record, &mut plain, &mut wire).is_ok() {
        records += 1;
        record[5] = 0;
        assert!(records <= 32, "it takes too much");
    }
    assert!(plain.is_empty() && wire.len() < 16);
}

#[test]
fn files_that_do_not_fit_are_told_by_a_sentence() {
    let (broker, key, other) = (file("broker.pem"), file("broker.key"), file("renewed.key"));
    let told = |certificates: &[u8], key: &[u8]| {
        let settings = Settings {
            certificates,
            key,
            clients: Clients::Anonymous,
            only_1_3: false,
        };
        settings.configuration().unwrap_err().to_string()
    };
    assert!(told(&broker, &other).starts_with("the certificate or its private key: "));
    assert_eq!(
        told(&key, &key),
        "the certificate: no certificate in the file"
    );
    assert!(told(&broker, &broker).starts_with("the private key: "));
    assert!(told(b"-----BEGIN CERTIFICATE-----\n", &key).starts_with("the certificate: "));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn no_octets_make_it_panic(
        begin in prop::sample::select(vec![&b""[..], b"\x16\x03\x01", b"\x16\x03\x01\0\x30\x01\0\0\x2c\x03\x03"]),
        octets in prop::collection::vec(any::<u8>(), 0..300),
        piece in 1..100usize,
    ) {
        let mut socket = Socket::new(anonymous(), piece);
        socket.write_all(&[begin, &octets].concat()).unwrap();
        prop_assert!(socket.plain().is_empty());
    }

    #[test]
    fn no_octets_amid_a_handshake_make_it_panic(at in 0..600usize, octet in any::<u8>()) {
        let socket = Socket::new(Transport::Plain, usize::MAX);
        let mut stream = client(&socket, ALL_VERSIONS, None);
        let mut hello = Vec::new();
        stream.conn.write_tls(&mut hello).unwrap();
        let at = at % hello.len();
        hello[at] ^= octet;
        let mut socket = Socket::new(anonymous(), usize::MAX);
        socket.write_all(&hello).unwrap();
        prop_assert!(socket.plain().is_empty());
    }
}
