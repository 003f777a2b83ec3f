//! TLS, record by record: the kernel's stamp of a record's last octet is that of the messages in
//! it.

use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, ClientConnection, RootCertStore};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::Arc;

use mqtick_net::failure::{Failure, Outcome};

/// The system's authorities.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Octets of a record's header; the last two say how many follow ([RFC 8446], 5.1).
const HEAD: usize = 5;

/// Certificates and key: the contents of PEM files.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pem {
    /// Authorities that sign the broker's certificate; None: those of the system.
    pub ca: Option<String>,
    /// The clients' certificate and its chain.
    pub certificate: Option<String>,
    /// Its private key.
    pub key: Option<String>,
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pem") // never print a key
    }
}

impl Pem {
    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the configuration of connections.
    ///
    /// # Errors
    /// [`Failure::Use`], with the option.
    fn configuration(&self) -> Outcome<Arc<ClientConfig>> {
        let wrong = |option: &str, why: String| Failure::Use(format!("--{option}: {why}."));
        let (ca, from) = match &self.ca {
            Some(given) => (given.clone(), String::new()),
            None => match std::fs::read_to_string(SYSTEM) {
                Ok(found) => (found, format!("{SYSTEM}: ")),
                Err(error) => {
                    let why = format!("give one, as the system has none ({SYSTEM}: {error})");
                    return Err(wrong("ca-file", why));
                }
            },
        };
        let mut roots = RootCertStore::empty();
        // A system's list may hold certificates that cannot be used.
        roots.add_parsable_certificates(
            CertificateDer::pem_slice_iter(ca.as_bytes()).filter_map(Result::ok),
        );
        if roots.is_empty() {
            let why = format!("{from}no certificate in it can be used");
            return Err(wrong("ca-file", why));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("ca-file", error.to_string()))?
            .with_root_certificates(roots);
        let mut made = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), key) => {
                // One file may hold both.
                let key = key.as_ref().unwrap_or(certificate);
                let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
                    .collect::<Result<_, _>>()
                    .map_err(|error| wrong("certificate-file", error.to_string()))?;
                if chain.is_empty() {
                    return Err(wrong("certificate-file", "no certificate in it".to_owned()));
                }
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                    .map_err(|error| wrong("certificate-key-file", error.to_string()))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| wrong("certificate-file", error.to_string()))?
            }
            (None, Some(_)) => {
                let text = "--certificate-key-file is given without --certificate-file.";
                return Err(Failure::Use(text.to_owned()));
            }
        };
        // Each client stands for another device, which does a full handshake.
        made.resumption = Resumption::disabled();
        Ok(Arc::new(made))
    }
}

/// How a broker is reached by TLS.
#[derive(Debug, Clone)]
pub struct Security {
    /// Authorities, certificate and key.
    pub configuration: Arc<ClientConfig>,
    /// The name in the broker's certificate.
    pub name: ServerName<'static>,
}

impl Security {
    /// For connections to a host.
    ///
    /// # Errors
    /// [`Failure::Use`], with the option or the name that cannot be used.
    pub fn new(pem: &Pem, host: &str) -> Outcome<Self> {
        let is_no_name = |error| Failure::Use(format!("mqtts://{host}: {error}."));
        Ok(Self {
            configuration: pem.configuration()?,
            name: ServerName::try_from(host.to_owned()).map_err(is_no_name)?,
        })
    }
}

/// TLS of a connection, without its socket.
#[derive(Debug)]
pub struct Tls {
    connection: ClientConnection,
    /// Records that the socket has not taken yet.
    pub wire: Vec<u8>,
    /// The part of the next record's header that has come; octets that are missing of a record.
    head: Vec<u8>,
    missing: usize,
    /// Octets sealed since [`Tls::follow_records`]: of messages, of records; and where they end.
    plain: u32,
    sealed: u32,
    ends: VecDeque<(u32, u32)>,
    is_followed: bool,
    left: u32,
}

impl Tls {
    /// Begins; the first record waits in [`Tls::wire`].
    ///
    /// # Errors
    /// Where the configuration cannot be used.
    pub fn new(security: &Security) -> Outcome<Self> {
        let made =
            ClientConnection::new(Arc::clone(&security.configuration), security.name.clone());
        let mut connection = made.map_err(|error| Failure::Use(format!("TLS: {error}.")))?;
        connection.set_buffer_limit(None);
        let mut made = Self {
            connection,
            wire: Vec::new(),
            head: Vec::with_capacity(HEAD),
            missing: 0,
            plain: 0,
            sealed: 0,
            ends: VecDeque::new(),
            is_followed: false,
            left: 0,
        };
        made.gather();
        Ok(made)
    }

    /// Whether messages cannot be sent yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Appends records that carry some octets to [`Tls::wire`].
    pub fn seal(&mut self, octets: &[u8]) {
        // Writing to a vector cannot fail, and there is no limit.
        let _ = self.connection.writer().write_all(octets);
        self.gather();
        self.plain = self.plain.wrapping_add(octets.len() as u32);
        if self.is_followed {
            self.ends.push_back((self.sealed, self.plain));
        }
    }

    /// Seals octets, if the socket has taken all records before them; returns how many. `write`
    /// writes to the socket, as much as it takes.
    ///
    /// # Errors
    /// What `write` returns.
    pub fn send<E>(
        &mut self,
        octets: &[u8],
        write: impl Fn(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let flush = |wire: &mut Vec<u8>| -> Result<bool, E> {
            if !wire.is_empty() {
                let count = write(wire)?;
                wire.drain(..count);
            }
            Ok(wire.is_empty())
        };
        if !flush(&mut self.wire)? || octets.is_empty() {
            return Ok(0);
        }
        self.seal(octets);
        flush(&mut self.wire).map(|_| octets.len())
    }

    /// Decrypts octets from the socket, and appends the result to `plain`.
    ///
    /// # Errors
    /// What is wrong, and what to do; part of a sentence.
    pub fn open(&mut self, mut octets: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        self.follow(octets);
        while !octets.is_empty() {
            let taken = self.connection.read_tls(&mut octets);
            let opened = self.connection.process_new_packets();
            self.gather();
            let state = opened.map_err(|error| why(&error))?;
            let begin = plain.len();
            plain.resize(begin + state.plaintext_bytes_to_read(), 0);
            let room = plain.get_mut(begin..).unwrap_or_default();
            if !room.is_empty() && self.connection.reader().read_exact(room).is_err() {
                return Err("it ended TLS within a record".to_owned());
            }
            if state.peer_has_closed() {
                return Ok(()); // the socket's end follows
            }
            if !taken.is_ok_and(|count| count > 0) {
                return Err("a record is longer than TLS allows".to_owned());
            }
        }
        Ok(())
    }

    /// Octets that are missing of the current record or its header.
    pub fn missing(&self) -> usize {
        match self.missing {
            0 => HEAD - self.head.len(),
            missing => missing,
        }
    }

    fn follow(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let (front, rest) = octets.split_at(self.missing().min(octets.len()));
            if self.missing > 0 {
                self.missing -= front.len();
            } else {
                self.head.extend_from_slice(front);
                if let [_, _, _, high, low] = *self.head {
                    self.missing = usize::from(u16::from_be_bytes([high, low]));
                    self.head.clear();
                }
            }
            octets = rest;
        }
    }

    /// Begins to count octets, as the kernel does now for its stamps.
    pub fn follow_records(&mut self) {
        (self.plain, self.sealed) = (0, 0);
        self.is_followed = true;
    }

    /// Returns how many octets of messages are in the first `sealed` octets of records, in 32 bits.
    pub fn plain_of(&mut self, sealed: u32) -> u32 {
        while let Some((end, plain)) = self.ends.front().copied()
            && sealed.wrapping_sub(end).cast_signed() >= 0
        {
            self.left = plain;
            self.ends.pop_front();
        }
        self.left
    }

    fn gather(&mut self) {
        let before = self.wire.len();
        // Writing to a vector cannot fail; nothing written means nothing left.
        while self.connection.wants_write()
            && self
                .connection
                .write_tls(&mut self.wire)
                .is_ok_and(|count| count > 0)
        {}
        self.sealed = self.sealed.wrapping_add((self.wire.len() - before) as u32);
    }

    /// Appends the alert close_notify.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
        self.gather();
    }
}

/// Says what is wrong, and what to do.
fn why(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    use rustls::Error;
    let remedy = match error {
        Error::InvalidMessage(_) => "does it speak TLS at this port?",
        Error::InvalidCertificate(one) => match one {
            CertificateError::UnknownIssuer => "see --ca-file",
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "renew it, or is the clock of this machine wrong?"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "write the broker's address by a name that is in its certificate"
            }
            CertificateError::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => {
                "it is an authority's own: give the broker one that is not, CA:FALSE"
            }
            _ => "see --ca-file, and the broker's certificate",
        },
        Error::AlertReceived(
            Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::HandshakeFailure,
        ) => "see --certificate-file: the broker wants a certificate, or does not trust ours",
        _ => return error.to_string(),
    };
    format!("{error} ({remedy})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn begun() -> Tls {
        let configuration = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        Tls::new(&Security {
            configuration: Arc::new(configuration),
            name: ServerName::try_from("a.b").unwrap(),
        })
        .unwrap()
    }

    proptest! {
        // Each begins a handshake, which takes its time in a debug build.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn whatever_comes_is_refused_or_waited_for(
            head in prop::sample::select(vec![
                vec![], vec![0x16, 3, 3], vec![0x16, 3, 3, 0, 0], vec![0x15, 3, 3, 0, 2],
                vec![0x17, 3, 3, 0, 9], vec![0x16, 3, 3, 0, 4, 2, 0, 0, 0],
            ]),
            octets in prop::collection::vec(any::<u8>(), 0..3000),
        ) {
            let (mut tls, mut plain) = (begun(), Vec::new());
            if let Err(why) = tls.open(&[head, octets].concat(), &mut plain) {
                prop_assert!(!why.is_empty() && !why.contains('\n'));
            }
            prop_assert!(plain.is_empty() && tls.is_handshaking());
        }

        #[test]
        fn who_reads_what_is_missing_stops_at_the_end_of_each_record(
            lengths in prop::collection::vec(0_u16..20_000, 1..9), most in 1_usize..9000,
        ) {
            let mut tls = begun();
            for length in lengths {
                let [high, low] = length.to_be_bytes();
                let mut record = vec![0x17, 3, 3, high, low];
                record.resize(HEAD + usize::from(length), 7);
                while !record.is_empty() {
                    let some = tls.missing().min(most);
                    prop_assert!(0 < some && some <= record.len());
                    let read: Vec<u8> = record.drain(..some).collect();
                    tls.follow(&read);
                }
                prop_assert_eq!(tls.missing(), HEAD);
            }
        }
    }
}
