//! Where connections come from.

use crate::settings::{self, Place};
use crate::socket::Socket;
use crate::transport::Transport;
use crate::transport::tls::{self, Authorities, Clients, Tls};
use crate::transport::websocket::WebSocket;
use arc_swap::ArcSwap;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};
use rustls::ServerConfig;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket that takes connections, and what they speak.
pub struct Listener {
    door: Door,
    speaks: settings::Transport,
    tls: Option<Certificate>,
}

/// A listener's certificate, which may be replaced while it listens.
#[derive(Clone)]
pub struct Certificate {
    settings: settings::Tls,
    present: Arc<ArcSwap<ServerConfig>>,
}

impl Certificate {
    /// Read it.
    pub fn load(settings: &settings::Tls) -> Result<Self, String> {
        let present = Arc::new(ArcSwap::new(read(settings)?));
        Ok(Self {
            settings: settings.clone(),
            present,
        })
    }

    /// Read it again, for connections to come.
    pub fn reload(&self) -> Result<(), String> {
        self.present.store(read(&self.settings)?);
        Ok(())
    }
}

fn read(settings: &settings::Tls) -> Result<Arc<ServerConfig>, String> {
    let file =
        |path: &Path| std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    let (certificates, key) = (file(&settings.certificate)?, file(&settings.key)?);
    let ca = settings.client_ca.as_deref().map(file).transpose()?;
    let authorities = ca.as_ref().map(|ca| Authorities {
        certificates: ca,
        revoked: None,
    });
    let clients = match authorities {
        None => Clients::Anonymous,
        Some(authorities) if settings.require_certificate => Clients::Required(authorities),
        Some(authorities) => Clients::Optional(authorities),
    };
    let wanted = tls::Settings {
        certificates: &certificates,
        key: &key,
        clients,
        only_1_3: false,
    };
    let name = settings.certificate.display();
    wanted
        .configuration()
        .map_err(|failure| format!("{name}: {failure}"))
}

impl Listener {
    /// Open it once for each worker: the kernel spreads connections over TCP listeners; a Unix
    /// listener is shared.
    pub fn open(
        settings: &settings::Listener,
        tls: Option<&Certificate>,
        workers: usize,
    ) -> io::Result<Vec<Self>> {
        let with = |door| Self {
            door,
            speaks: settings.transport,
            tls: tls.cloned(),
        };
        match &settings.place {
            Place::Tcp(address) => (0..workers)
                .map(|_| Ok(with(Door::Tcp(tcp(*address)?))))
                .collect(),
            Place::Unix(path) => {
                // A file that an earlier run left behind: nobody listens to it.
                if UnixStream::connect(path).is_err() && path.exists() {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                let shared = |_| Ok(with(Door::Unix(listener.try_clone()?)));
                (0..workers).map(shared).collect()
            }
            Place::Systemd(_) => Err(io::Error::other("systemd opened no such socket")),
        }
    }

    /// Take one connection.
    pub fn accept(&self) -> io::Result<(Socket, Transport)> {
        let socket = match &self.door {
            Door::Tcp(listener) => Socket::tcp(listener.accept()?.0)?,
            Door::Unix(listener) => Socket::unix(listener.accept()?.0)?,
        };
        let tls = self
            .tls
            .as_ref()
            .map(|one| Tls::new(one.present.load_full()))
            .transpose();
        let tls = tls.map_err(io::Error::other)?.map(Box::new);
        let websocket = || Box::new(WebSocket::new());
        let transport = match (self.speaks, tls) {
            (settings::Transport::Mqtt, None) => Transport::Plain,
            (settings::Transport::Mqtt, Some(tls)) => Transport::Tls(tls),
            (settings::Transport::Websocket, None) => Transport::WebSocket(websocket()),
            (settings::Transport::Websocket, Some(tls)) => {
                Transport::TlsWebSocket(tls, websocket())
            }
        };
        Ok((socket, transport))
    }

    /// Whether a client's certificate says who it is.
    pub fn knows_by_certificate(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|one| one.settings.identity_as_username)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.door {
            Door::Tcp(listener) => listener.as_fd(),
            Door::Unix(listener) => listener.as_fd(),
        }
    }
}

fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&listener, sockopt::ReuseAddr, &true)?;
    setsockopt(&listener, sockopt::ReusePort, &true)?;
    bind(listener.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&listener, Backlog::new(4096)?)?;
    Ok(TcpListener::from(listener))
}
