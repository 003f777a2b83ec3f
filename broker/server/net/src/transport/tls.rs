//! TLS 1.2 and 1.3, and the name in a client's certificate.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoClientAuth, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::Failure;

/// What a listener for TLS needs, as the contents of PEM files.
pub struct Settings<'s> {
    /// Our certificate and its chain, in this order.
    pub certificates: &'s [u8],
    /// The private key of the first certificate.
    pub key: &'s [u8],
    /// Which certificates clients have to show.
    pub clients: Clients<'s>,
    /// Whether TLS 1.2 is refused.
    pub only_1_3: bool,
}

/// Which certificates clients have to show.
pub enum Clients<'s> {
    /// No certificate is asked for.
    Anonymous,
    /// A certificate is checked if the client shows one.
    Optional(Authorities<'s>),
    /// A client without a certificate is refused.
    Required(Authorities<'s>),
}

/// The authorities that may sign clients' certificates, as the contents of PEM files.
pub struct Authorities<'s> {
    /// The authorities' certificates.
    pub certificates: &'s [u8],
    /// The lists of revoked certificates, if any. Then each certificate has to be covered by one.
    pub revoked: Option<&'s [u8]>,
}

impl Settings<'_> {
    /// Make the configuration for connections. Existing connections keep theirs, so certificates
    /// are replaced by using another configuration for new ones.
    ///
    /// # Errors
    /// A file is not valid, or certificate and key do not belong together.
    pub fn configuration(&self) -> Result<Arc<ServerConfig>, Failure> {
        let versions: &[_] = if self.only_1_3 {
            &[&rustls::version::TLS13]
        } else {
            &[&rustls::version::TLS13, &rustls::version::TLS12]
        };
        let provider = Arc::new(default_provider());
        let verifier = match &self.clients {
            Clients::Anonymous => Arc::new(NoClientAuth),
            Clients::Optional(authorities) | Clients::Required(authorities) => {
                let roots = Arc::new(authorities.roots()?);
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                        .with_crls(authorities.revoked()?);
                match &self.clients {
                    Clients::Optional(_) => verifier.allow_unauthenticated(),
                    _ => verifier,
                }
                .build()
                .map_err(|error| wrong("the authorities of clients", &error))?
            }
        };
        let chain = certificates("the certificate", self.certificates)?;
        let key = PrivateKeyDer::from_pem_slice(self.key)
            .map_err(|error| wrong("the private key", &error))?;
        ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| wrong("the versions of TLS", &error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .map(Arc::new)
            .map_err(|error| wrong("the certificate or its private key", &error))
    }
}

impl Authorities<'_> {
    fn roots(&self) -> Result<RootCertStore, Failure> {
        let what = "the authorities of clients";
        let mut roots = RootCertStore::empty();
        for certificate in certificates(what, self.certificates)? {
            roots
                .add(certificate)
                .map_err(|error| wrong(what, &error))?;
        }
        Ok(roots)
    }

    fn revoked(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, Failure> {
        CertificateRevocationListDer::pem_slice_iter(self.revoked.unwrap_or_default())
            .collect::<Result<_, _>>()
            .map_err(|error| wrong("the list of revoked certificates", &error))
    }
}

fn certificates(what: &str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(what, &error))?;
    if certificates.is_empty() {
        return Err(Failure::new(format!("{what}: no certificate in the file")));
    }
    Ok(certificates)
}

fn wrong(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{what}: {error}"))
}

/// The server's side of a TLS connection.
pub struct Tls {
    connection: ServerConnection,
}

impl Tls {
    /// Wait for a client's hello.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(configuration: Arc<ServerConfig>) -> Result<Self, Failure> {
        let connection = ServerConnection::new(configuration)
            .map_err(|error| wrong("the configuration of TLS", &error))?;
        Ok(Self { connection })
    }

    /// See [`super::Transport::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(
        &mut self,
        mut octets: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        while !octets.is_empty() {
            // It takes only as much as it has room for, and nothing after the client's
            // close_notify.
            let taken = self.connection.read_tls(&mut octets);
            let processed = self.connection.process_new_packets();
            self.flush(wire);
            let state = processed.map_err(|error| wrong("the client broke TLS", &error))?;
            let begin = plain.len();
            plain.resize(begin + state.plaintext_bytes_to_read(), 0);
            let room = plain.get_mut(begin..).unwrap_or_default();
            if !room.is_empty() && self.connection.reader().read_exact(room).is_err() {
                plain.truncate(begin);
                return Err(Failure::new("the client ended TLS amid a record"));
            }
            if state.peer_has_closed() {
                return Err(Failure::closed("the client closed TLS"));
            }
            if !taken.is_ok_and(|count| count > 0) {
                return Err(Failure::new("the client sent more than TLS has room for"));
            }
        }
        Ok(())
    }

    /// Append records that carry `plain`.
    ///
    /// # Errors
    /// See [`super::Transport::send`].
    pub fn send(&mut self, mut plain: &[u8], wire: &mut Vec<u8>) -> Result<(), Failure> {
        if self.connection.is_handshaking() {
            return Err(Failure::new("the TLS handshake is not done"));
        }
        while !plain.is_empty() {
            match self.connection.writer().write(plain) {
                Ok(count @ 1..) => plain = plain.get(count..).unwrap_or_default(),
                _ => return Err(Failure::new("TLS took no more octets")),
            }
            self.flush(wire);
        }
        Ok(())
    }

    /// Append the alert close_notify.
    pub fn close(&mut self, wire: &mut Vec<u8>) {
        self.connection.send_close_notify();
        self.flush(wire);
    }

    /// Return the common name of the client's certificate, if it has shown one.
    #[must_use]
    pub fn common_name(&self) -> Option<String> {
        common_name(self.connection.peer_certificates()?.first()?)
    }

    fn flush(&mut self, wire: &mut Vec<u8>) {
        // Writing to a vector cannot fail. If nothing was written, nothing is left.
        while self.connection.wants_write()
            && self.connection.write_tls(wire).is_ok_and(|count| count > 0)
        {}
    }
}

/// Tags of DER, and the object identifier 2.5.4.3 of a common name.
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const UTF8: u8 = 0x0c;
const PRINTABLE: u8 = 0x13;
const IA5: u8 = 0x16;
const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];

/// Return the first common name of the subject of a certificate in DER.
#[must_use]
pub fn common_name(certificate: &[u8]) -> Option<String> {
    let mut certificate = element(&mut &*certificate, SEQUENCE)?;
    let mut signed = element(&mut certificate, SEQUENCE)?;
    if signed.first() == Some(&VERSION) {
        any(&mut signed)?;
    }
    for _serial_algorithm_issuer_validity in 0..4 {
        any(&mut signed)?;
    }
    let mut subject = element(&mut signed, SEQUENCE)?;
    while !subject.is_empty() {
        let mut names = element(&mut subject, SET)?;
        while !names.is_empty() {
            let name = element(&mut names, SEQUENCE)?;
            if let Some(mut value) = name.strip_prefix(COMMON_NAME) {
                let (tag, text) = any(&mut value)?;
                let text = std::str::from_utf8(text).ok()?;
                let known = tag == UTF8 || matches!(tag, PRINTABLE | IA5) && text.is_ascii();
                return (known && !text.contains('\0')).then(|| text.to_owned());
            }
        }
    }
    None
}

/// Take an element with this tag off `der` and return its contents.
fn element<'d>(der: &mut &'d [u8], tag: u8) -> Option<&'d [u8]> {
    any(der).and_then(|(found, contents)| (found == tag).then_some(contents))
}

/// Take an element off `der` and return its tag and contents.
fn any<'d>(der: &mut &'d [u8]) -> Option<(u8, &'d [u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        ..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (octets, rest) = rest.split_at_checked(usize::from(first & 3))?;
            (
                octets
                    .iter()
                    .fold(0, |sum, &octet| sum << 8 | usize::from(octet)),
                rest,
            )
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    *der = rest;
    Some((tag, contents))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, contents: &[&[u8]]) -> Vec<u8> {
        let contents = contents.concat();
        let length = contents.len().to_be_bytes();
        let length = match contents.len() {
            0..0x80 => length[7..].to_vec(),
            0x80..0x100 => [&[0x81], &length[7..]].concat(),
            _ => [&[0x82], &length[6..]].concat(),
        };
        [vec![tag], length, contents].concat()
    }

    fn certificate(version: bool, names: &[(&[u8], u8, &[u8])]) -> Vec<u8> {
        let names: Vec<Vec<u8>> = names
            .iter()
            .map(|(object, tag, text)| der(SET, &[&der(SEQUENCE, &[object, &der(*tag, &[text])])]))
            .collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let any = der(SEQUENCE, &[&[2, 1, 7]]);
        let version = if version {
            der(VERSION, &[&[2, 1, 2]])
        } else {
            Vec::new()
        };
        let subject = der(SEQUENCE, &names);
        let signed = der(
            SEQUENCE,
            &[&version, &any, &any, &any, &any, &subject, &any],
        );
        der(SEQUENCE, &[&signed, &any, &any])
    }

    const COUNTRY: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x06];

    #[test]
    fn the_first_common_name_is_found() {
        let long = "x".repeat(300);
        for (text, tag) in [
            ("pump", UTF8),
            ("pump", PRINTABLE),
            ("", IA5),
            ("ü", UTF8),
            (&long, UTF8),
        ] {
            let names = [
                (COUNTRY, PRINTABLE, &b"DE"[..]),
                (COMMON_NAME, tag, text.as_bytes()),
            ];
            for version in [false, true] {
                let found = common_name(&certificate(version, &names));
                assert_eq!(found.as_deref(), Some(text));
            }
        }
        let two = [
            (COMMON_NAME, UTF8, &b"one"[..]),
            (COMMON_NAME, UTF8, b"two"),
        ];
        assert_eq!(
            common_name(&certificate(true, &two)).as_deref(),
            Some("one")
        );
    }

    #[test]
    fn a_name_that_cannot_be_trusted_to_be_read_rightly_is_none() {
        const BMP: u8 = 0x1e;
        for (tag, text) in [
            (UTF8, &b"\xff"[..]),
            (UTF8, b"root\0x"),
            (IA5, b"\xc3\xbc"),
            (BMP, b"ab"),
        ] {
            assert_eq!(
                common_name(&certificate(true, &[(COMMON_NAME, tag, text)])),
                None
            );
        }
        assert_eq!(
            common_name(&certificate(true, &[(COUNTRY, UTF8, b"DE")])),
            None
        );
    }

    #[test]
    fn a_certificate_that_was_cut_or_changed_does_no_harm() {
        let whole = certificate(
            true,
            &[(COUNTRY, UTF8, b"DE"), (COMMON_NAME, UTF8, b"pump")],
        );
        for end in 0..whole.len() {
            assert_eq!(common_name(&whole[..end]), None);
        }
        for at in 0..whole.len() {
            for octet in 0..=0xff {
                let mut changed = whole.clone();
                changed[at] = octet;
                let _ = common_name(&changed);
            }
        }
    }
}
