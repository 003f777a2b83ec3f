//! A broker's transport at the other end of a socket in memory, and certificates to talk to it.

#![allow(dead_code, clippy::expect_used, clippy::unwrap_used)]

use std::cell::RefCell;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use mqtick_net::transport::tls::{Authorities, Clients, Settings, Tls};
use mqtick_net::transport::{Failure, Transport};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};

/// The broker's end.
pub struct Broker {
    pub transport: Transport,
    pub plain: Vec<u8>,
    pub wire: Vec<u8>,
    pub failure: Option<Failure>,
    /// How many octets a read of the broker's socket brings at most.
    pub piece: usize,
}

/// The client's end: what is written reaches the broker at once.
#[derive(Clone)]
pub struct Socket(pub Rc<RefCell<Broker>>);

impl Socket {
    pub fn new(transport: Transport, piece: usize) -> Self {
        let (plain, wire) = (Vec::new(), Vec::new());
        Self(Rc::new(RefCell::new(Broker {
            transport,
            plain,
            wire,
            failure: None,
            piece,
        })))
    }

    /// Return the octets of MQTT that reached the broker.
    pub fn plain(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().plain)
    }

    /// Let the broker send.
    pub fn send(&self, plain: &[u8]) -> Result<(), Failure> {
        let Broker {
            transport, wire, ..
        } = &mut *self.0.borrow_mut();
        transport.send(plain, wire)
    }

    pub fn close(&self) {
        let Broker {
            transport, wire, ..
        } = &mut *self.0.borrow_mut();
        transport.close(wire);
    }

    pub fn failure(&self) -> Option<Failure> {
        self.0.borrow().failure.clone()
    }

    pub fn common_name(&self) -> Option<String> {
        self.0.borrow().transport.common_name()
    }
}

impl Write for Socket {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let Broker {
            transport,
            plain,
            wire,
            failure,
            piece,
        } = &mut *self.0.borrow_mut();
        for part in octets.chunks(*piece) {
            if failure.is_none() {
                *failure = transport.receive(part, plain, wire).err();
            }
        }
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        let broker = &mut *self.0.borrow_mut();
        if broker.wire.is_empty() && broker.failure.is_none() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = broker.wire.len().min(octets.len());
        octets[..count].copy_from_slice(&broker.wire[..count]);
        broker.wire.drain(..count);
        Ok(count)
    }
}

/// Read what there is.
pub fn available(stream: &mut impl Read) -> Vec<u8> {
    let mut found = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut part) {
        found.extend_from_slice(&part[..count]);
    }
    found
}

/// Return a folder with certificates of two authorities, `ours` and `other`, made by `openssl`:
/// `broker` and `renewed` for the broker, `client` and `revoked` for clients, `ours.crl`.
pub fn certificates() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(concat!("certificates-", env!("CARGO_CRATE_NAME")));
        std::fs::create_dir_all(&folder).unwrap();
        let openssl = |arguments: &str| {
            let arguments = arguments.split_ascii_whitespace();
            let done = Command::new("openssl")
                .args(arguments)
                .current_dir(&folder)
                .output();
            let done = done.expect("the test needs the program openssl");
            assert!(
                done.status.success(),
                "{}",
                String::from_utf8_lossy(&done.stderr)
            );
        };
        let settings = "[req]\ndistinguished_name = name\n[name]\n[ca]\ndefault_ca = own\n[own]\n\
                        database = index\ncrlnumber = number\ndefault_md = sha256\n\
                        default_crl_days = 2\n";
        std::fs::write(folder.join("openssl.cnf"), settings).unwrap();
        std::fs::write(folder.join("index"), "").unwrap();
        std::fs::write(folder.join("number"), "01\n").unwrap();
        let make = |name: &str, subject: &str, rest: &str| {
            openssl(&format!(
                "req -x509 -config openssl.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
                 -days 2 -utf8 -keyout {name}.key -out {name}.pem -subj {subject} {rest}"
            ));
        };
        let authority = "-addext basicConstraints=critical,CA:TRUE";
        let leaf = "-addext basicConstraints=CA:FALSE -addext subjectAltName=DNS:localhost";
        make("ours", "/CN=ours", authority);
        make("other", "/CN=other", authority);
        let ours = format!("{leaf} -CA ours.pem -CAkey ours.key");
        make("broker", "/CN=localhost", &ours);
        make("renewed", "/CN=localhost", &ours);
        make("client", "/O=plant/CN=pümp-7/CN=second", &ours);
        make("revoked", "/CN=lost", &ours);
        make(
            "stranger",
            "/CN=stranger",
            &format!("{leaf} -CA other.pem -CAkey other.key"),
        );
        let with = "-config openssl.cnf -keyfile ours.key -cert ours.pem";
        openssl(&format!("ca {with} -revoke revoked.pem"));
        openssl(&format!("ca {with} -gencrl -out ours.crl"));
        folder
    })
}

pub fn file(name: &str) -> Vec<u8> {
    std::fs::read(certificates().join(name)).unwrap()
}

/// Return the configuration of a broker with this certificate.
pub fn configuration(name: &str, clients: Clients<'_>, only_1_3: bool) -> Arc<ServerConfig> {
    let (certificates, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
    let settings = Settings {
        certificates: &certificates,
        key: &key,
        clients,
        only_1_3,
    };
    settings.configuration().unwrap()
}

/// Return the configuration of a broker that has clients show certificates.
pub fn asking(required: bool, revoked: bool) -> Arc<ServerConfig> {
    let (ours, list) = (file("ours.pem"), file("ours.crl"));
    let authorities = Authorities {
        certificates: &ours,
        revoked: revoked.then_some(&*list),
    };
    let clients = if required {
        Clients::Required(authorities)
    } else {
        Clients::Optional(authorities)
    };
    configuration("broker", clients, false)
}

pub fn tls(configuration: Arc<ServerConfig>) -> Box<Tls> {
    Box::new(Tls::new(configuration).unwrap())
}

/// Return a client that trusts `ours` and shows this certificate.
pub fn client(
    socket: &Socket,
    versions: &[&'static rustls::SupportedProtocolVersion],
    shown: Option<&str>,
) -> StreamOwned<ClientConnection, Socket> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&file("ours.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    let configuration = match shown {
        None => builder.with_no_client_auth(),
        Some(name) => {
            let chain = CertificateDer::from_pem_slice(&file(&format!("{name}.pem"))).unwrap();
            let key = PrivateKeyDer::from_pem_slice(&file(&format!("{name}.key"))).unwrap();
            builder.with_client_auth_cert(vec![chain], key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(configuration), name).unwrap();
    StreamOwned::new(connection, socket.clone())
}
