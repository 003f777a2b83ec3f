//! A connected socket, TCP or Unix.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// A stream socket that does not block.
pub enum Socket {
    /// Over IP, with TCP_NODELAY.
    Tcp(TcpStream),
    /// On the same host.
    Unix(UnixStream),
}

impl Socket {
    /// Make a new connection ready.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Make a new connection ready.
    pub fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(stream))
    }

    /// Read what is there.
    pub fn read(&self, octets: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(octets),
            Self::Unix(stream) => (&*stream).read(octets),
        }
    }

    /// Write what the kernel takes.
    pub fn write(&self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).write(octets),
            Self::Unix(stream) => (&*stream).write(octets),
        }
    }

    /// End both directions: the worker that reads finds the end of the stream.
    pub fn shut_down(&self) {
        // An error means that the other side was faster.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Who is at the other end, for the log.
    pub fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) => {
                stream.peer_addr().map_or_else(|_| "gone".into(), |address| address.to_string())
            }
            Self::Unix(_) => "this host".into(),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}
