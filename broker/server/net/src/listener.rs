//! Sockets that accept connections.

use crate::activation::{Door, Passed};
use crate::settings::{self, Place};
use crate::socket::Socket;
use crate::transport::Transport;
use crate::transport::tls::{self, Authorities, Clients, Tls};
use crate::transport::websocket::{Origins, WebSocket};
use arc_swap::ArcSwap;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt,
};
use rustls::ServerConfig;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

const BACKLOG: i32 = 4096;

/// A socket that accepts connections, and their transport.
pub struct Listener {
    door: Door,
    speaks: settings::Transport,
    origins: Origins,
    tls: Option<Certificate>,
}

/// A listener's certificate, which may be replaced while it listens.
#[derive(Clone)]
pub struct Certificate {
    settings: settings::Tls,
    present: Arc<ArcSwap<ServerConfig>>,
}

impl Certificate {
    /// Read the files of a certificate.
    pub fn load(settings: &settings::Tls) -> Result<Self, String> {
        let present = Arc::new(ArcSwap::new(read(settings)?));
        Ok(Self {
            settings: settings.clone(),
            present,
        })
    }

    /// Read these again, for new connections. If one cannot be used, all stay as they are.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn reload(all: &[Self]) -> Result<(), String> {
        let read: Result<Vec<_>, _> = all.iter().map(|one| read(&one.settings)).collect();
        for (one, read) in all.iter().zip(read?) {
            one.present.store(read);
        }
        Ok(())
    }
}

fn read(settings: &settings::Tls) -> Result<Arc<ServerConfig>, String> {
    let file = |name: &str, path: &Path| {
        let named = |error| format!("listener.tls.{name}, {}: {error}", path.display());
        std::fs::read(path).map_err(named)
    };
    let certificates = file("certificate", &settings.certificate)?;
    let key = file("key", &settings.key)?;
    let ca = settings.client_ca.as_deref();
    let ca = ca.map(|path| file("client_ca", path)).transpose()?;
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
    /// Open the sockets of each worker. The kernel spreads connections over TCP listeners. Unix
    /// listeners, and sockets from systemd, are shared by all workers.
    ///
    /// # Errors
    /// Why one cannot be opened.
    pub fn open(
        settings: &settings::Listener,
        tls: Option<&Certificate>,
        workers: usize,
        passed: &mut Passed,
    ) -> Result<Vec<Vec<Self>>, String> {
        let plain = |error: io::Error| error.to_string();
        let doors: Vec<Vec<Door>> = match &settings.place {
            Place::Tcp(address) => {
                let opened = tcp(*address, workers).map_err(plain)?;
                opened.into_iter().map(|one| vec![Door::Tcp(one)]).collect()
            }
            Place::Unix(path) => {
                shared(&[Door::Unix(unix(path).map_err(plain)?)], workers).map_err(plain)?
            }
            Place::Systemd(name) => shared(&passed.claim(name)?, workers).map_err(plain)?,
        };
        let origins = Origins {
            allowed: settings.origins.clone().into(),
            own_name: tls.is_some(),
        };
        let with = |door| Self {
            door,
            speaks: settings.transport,
            tls: tls.cloned(),
            origins: origins.clone(),
        };
        Ok(doors
            .into_iter()
            .map(|each| each.into_iter().map(with).collect())
            .collect())
    }

    /// Where it listens, with the port that the kernel chose.
    pub fn address(&self) -> String {
        match &self.door {
            Door::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|error| error.to_string(), |address| address.to_string()),
            Door::Unix(listener) => listener
                .local_addr()
                .ok()
                .and_then(|address| Some(address.as_pathname()?.display().to_string()))
                .unwrap_or_else(|| "a Unix socket".into()),
        }
    }

    /// Accept one connection.
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
        let websocket = || Box::new(WebSocket::of(self.origins.clone()));
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

    /// Whether the user name is that of the client's certificate.
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

fn unix(path: &Path) -> io::Result<UnixListener> {
    // An earlier run may have left the file behind: no program listens on it.
    if UnixStream::connect(path).is_err() && path.exists() {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The same sockets again for each worker.
fn shared(doors: &[Door], workers: usize) -> io::Result<Vec<Vec<Door>>> {
    let again = |door: &Door| match door {
        Door::Tcp(listener) => listener.try_clone().map(Door::Tcp),
        Door::Unix(listener) => listener.try_clone().map(Door::Unix),
    };
    (0..workers)
        .map(|_| doors.iter().map(again).collect())
        .collect()
}

/// Open a socket for each worker. The first one listens before it may share its port: if another broker
/// of the same user has the port, this fails, rather than taking half of that broker's clients.
///
/// # Errors
/// The system's.
pub fn tcp(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let first = bound(address, false)?;
    listen(&first, Backlog::new(BACKLOG)?)?;
    setsockopt(&first, sockopt::ReusePort, &true)?;
    let mut all = vec![TcpListener::from(first)];
    // The kernel has chosen the port if it was 0.
    let chosen = all.iter().try_fold(address, |_, one| one.local_addr())?;
    for _ in 1..workers {
        let next = bound(chosen, true)?;
        listen(&next, Backlog::new(BACKLOG)?)?;
        all.push(next.into());
    }
    Ok(all)
}

fn bound(address: SocketAddr, shares: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&listener, sockopt::ReuseAddr, &true)?;
    setsockopt(&listener, sockopt::ReusePort, &shares)?;
    bind(listener.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(listener)
}
