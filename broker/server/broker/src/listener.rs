//! Where connections come from.

use crate::settings::{self, Place};
use crate::socket::Socket;
use crate::transport::Transport;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};

enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A socket that takes connections, and what they speak.
pub struct Listener {
    door: Door,
}

impl Listener {
    /// Open it once for each worker: the kernel spreads connections over TCP listeners; a Unix
    /// listener is shared.
    pub fn open(settings: &settings::Listener, workers: usize) -> io::Result<Vec<Self>> {
        match &settings.place {
            Place::Tcp(address) => {
                (0..workers).map(|_| Ok(Self { door: Door::Tcp(tcp(*address)?) })).collect()
            }
            Place::Unix(path) => {
                // A file that an earlier run left behind: nobody listens to it.
                if UnixStream::connect(path).is_err() && path.exists() {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                let shared = |_| Ok(Self { door: Door::Unix(listener.try_clone()?) });
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
        Ok((socket, Transport::Plain))
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
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let listener = socket(family, SockType::Stream, flags, None)?;
    setsockopt(&listener, sockopt::ReuseAddr, &true)?;
    setsockopt(&listener, sockopt::ReusePort, &true)?;
    bind(listener.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&listener, Backlog::new(4096)?)?;
    Ok(TcpListener::from(listener))
}
