//! The socket of one connection to another broker, with or without TLS.

use crate::settings::Address;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

/// A non-blocking connection, which may still be being made.
pub enum Wire {
    /// TCP.
    Plain(TcpStream),
    /// TLS over TCP.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    /// Begin to connect.
    pub fn open(
        to: SocketAddr,
        address: &Address,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::Inet,
            SocketAddr::V6(_) => AddressFamily::Inet6,
        };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(family, SockType::Stream, flags, None)?;
        setsockopt(&socket, sockopt::TcpNoDelay, &true)?;
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) | Err(Errno::EINPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let stream = TcpStream::from(socket);
        let Some(tls) = tls else {
            return Ok(Self::Plain(stream));
        };
        let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
        let client = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
        Ok(Self::Tls(Box::new(StreamOwned::new(client, stream))))
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(tls) => &tls.sock,
        }
    }

    /// Read octets that have come.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(room),
            Self::Tls(tls) => tls.read(room),
        }
    }

    /// Write as much as the socket takes. Returns whether something is left to be written.
    pub fn write(&mut self, octets: &mut Vec<u8>) -> io::Result<bool> {
        let mut done = 0;
        let result = loop {
            let rest = octets.get(done..).unwrap_or_default();
            let written = match self {
                Self::Plain(_) if rest.is_empty() => break Ok(()),
                Self::Plain(stream) => stream.write(rest),
                Self::Tls(tls) if rest.is_empty() => break tls.flush(),
                Self::Tls(tls) => tls.write(rest),
            };
            match written {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        octets.drain(..done);
        match result {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(match self {
                Self::Plain(_) => !octets.is_empty(),
                Self::Tls(tls) => tls.conn.wants_write(),
            }),
        }
    }
}

/// The configuration of TLS: trusted certificates from `path`, and our own certificate and key, if
/// any. All files are PEM.
///
/// # Errors
/// What is wrong with a file, with its name.
pub fn trust(path: &Path, own: Option<(&Path, &Path)>) -> Result<Arc<ClientConfig>, String> {
    let named = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let wrong = |error: &dyn std::fmt::Display| named(path, error);
    let mut roots = RootCertStore::empty();
    for one in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        let one = one.map_err(|error| wrong(&error))?;
        // A system's list may have old certificates that cannot be used.
        let _ = roots.add(one);
    }
    if roots.is_empty() {
        return Err(wrong(&"no certificate in it can be used"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(&error))?;
    let config = config.with_root_certificates(roots);
    let Some((certificate, key)) = own else {
        return Ok(Arc::new(config.with_no_client_auth()));
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| named(certificate, &error))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| named(key, &error))?;
    let config = config
        .with_client_auth_cert(chain, secret)
        .map_err(|error| named(certificate, &error))?;
    Ok(Arc::new(config))
}
