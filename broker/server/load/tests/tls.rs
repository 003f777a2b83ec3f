//! TLS record by record, with a server by rustls that cuts, renews its keys and ends.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use mqtick_load::protocol::tls::{Pem, Security, Tls};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// A certificate for localhost and its key, made by `openssl`.
fn made() -> &'static [String; 2] {
    static MADE: OnceLock<[String; 2]> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let [certificate, key] = ["load.pem", "load.key"].map(|name| folder.join(name));
        let done = Command::new("openssl")
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(' '))
            .args("-subj /CN=x -addext subjectAltName=DNS:localhost".split(' '))
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .args([&key, Path::new("-out"), &certificate])
            .output();
        let done = done.expect("the test needs the program openssl");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{said}");
        [certificate, key].map(|path| std::fs::read_to_string(path).unwrap())
    })
}

struct Pair {
    client: Tls,
    server: ServerConnection,
    /// Octets that pass at a time.
    piece: usize,
    /// What the client has read.
    plain: Vec<u8>,
}

impl Pair {
    fn new(version: &'static SupportedProtocolVersion, piece: usize) -> Self {
        let [certificate, key] = made();
        let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let settings = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .unwrap();
        let pem = Pem {
            ca: Some(certificate.clone()),
            ..Pem::default()
        };
        let mut made = Self {
            client: Tls::new(&Security::new(&pem, "localhost").unwrap()).unwrap(),
            server: ServerConnection::new(Arc::new(settings)).unwrap(),
            piece,
            plain: Vec::new(),
        };
        while made.client.is_handshaking() {
            made.read_by_server();
            made.read_by_client().unwrap();
        }
        made.read_by_server();
        made
    }

    /// Passes what the client has to send; returns what the server reads.
    fn read_by_server(&mut self) -> Vec<u8> {
        let mut plain = Vec::new();
        for piece in self.client.wire.chunks(self.piece) {
            let mut left = piece;
            while !left.is_empty() {
                self.server.read_tls(&mut left).unwrap();
                self.server.process_new_packets().unwrap();
                let _ = self.server.reader().read_to_end(&mut plain);
            }
        }
        self.client.wire.clear();
        plain
    }

    /// Passes what the server has to send.
    fn read_by_client(&mut self) -> Result<(), String> {
        let mut wire = Vec::new();
        while self.server.wants_write() {
            self.server.write_tls(&mut wire).unwrap();
        }
        let mut pieces = wire.chunks(self.piece);
        pieces.try_for_each(|piece| self.client.open(piece, &mut self.plain))
    }

    fn send(&mut self, octets: &[u8]) {
        self.server.writer().write_all(octets).unwrap();
    }
}

#[test]
fn messages_pass_and_their_records_are_known_however_they_are_cut_and_whoever_renews_keys() {
    let long = b"abcdefg".repeat(6000);
    for version in [&TLS12, &TLS13] {
        for piece in [1, 7, 4096, usize::MAX] {
            let mut pair = Pair::new(version, piece);
            pair.client.follow_records();
            let (mut sealed, mut plain) = (0, 0);
            for number in 0..12 {
                if version == &TLS13 && number % 3 == 1 {
                    // The client then has to renew its own, in a record before its next message.
                    pair.server.refresh_traffic_keys().unwrap();
                }
                let message = if number % 5 == 4 { &long[..] } else { b"short" };
                pair.send(message);
                pair.read_by_client().unwrap();
                assert_eq!(std::mem::take(&mut pair.plain), message);
                assert_eq!(pair.client.missing(), 5, "the next record's header");

                pair.client.seal(message);
                sealed += pair.client.wire.len() as u32;
                assert_eq!(pair.client.plain_of(sealed - 1), plain);
                plain += message.len() as u32;
                assert_eq!(pair.client.plain_of(sealed), plain);
                assert_eq!(pair.read_by_server(), message);
            }
        }
    }
}

#[test]
fn what_came_before_the_end_of_tls_is_heard() {
    for version in [&TLS12, &TLS13] {
        let mut pair = Pair::new(version, usize::MAX);
        pair.send(b"last words");
        pair.server.send_close_notify();
        pair.read_by_client().unwrap();
        assert_eq!(pair.plain, b"last words");
        // What comes behind it is nothing.
        pair.client.open(b"more", &mut pair.plain).unwrap();
        assert_eq!(pair.plain, b"last words");
    }
}

#[test]
fn a_record_that_was_changed_is_refused() {
    let mut pair = Pair::new(&TLS13, usize::MAX);
    pair.send(b"ten octets");
    let mut wire = Vec::new();
    pair.server.write_tls(&mut wire).unwrap();
    *wire.last_mut().unwrap() ^= 1;
    let why = pair.client.open(&wire, &mut pair.plain).unwrap_err();
    assert!(why.contains("decrypt"), "{why}");
    assert!(pair.plain.is_empty());
    assert!(!pair.client.wire.is_empty(), "an alert");
}
