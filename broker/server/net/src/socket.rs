//! A connected socket, TCP or Unix.

use nix::libc;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeValLike;
use std::io::{self, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// Room for a stamp, and for the kernel's message with a stamp of the error queue.
#[repr(align(8))] // as a `cmsghdr` needs it
struct Ancillary([u8; 256]);

/// A non-blocking stream socket.
pub enum Socket {
    /// Over IP, with TCP_NODELAY.
    Tcp(TcpStream),
    /// On the same host.
    Unix(UnixStream),
}

impl Socket {
    /// Set up a new connection.
    pub fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// Set up a new connection.
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

    /// Have the kernel stamp what arrives. It also begins to count the octets that leave, so
    /// nothing may have been written yet. A Unix socket has no stamps.
    pub fn stamp_arrivals(&self) {
        if let Self::Tcp(stream) = self {
            stamp(stream, stamps());
        }
    }

    /// Have the kernel stamp what leaves, too.
    pub fn stamp_departures(&self) {
        if let Self::Tcp(stream) = self {
            stamp_departures(stream);
        }
    }

    /// Read what is there, and when its last octet arrived: ns of the system's clock.
    pub fn read_stamped(&self, octets: &mut [u8]) -> io::Result<(usize, Option<i64>)> {
        match self {
            Self::Tcp(stream) => read_stamped(stream, octets),
            Self::Unix(_) => Ok((self.read(octets)?, None)),
        }
    }

    /// See [`troubles`].
    pub fn troubles(&self) -> Option<(u32, u32)> {
        match self {
            Self::Tcp(stream) => troubles(stream),
            Self::Unix(_) => None,
        }
    }

    /// See [`departure`].
    pub fn departure(&self) -> Option<(u32, i64)> {
        match self {
            Self::Tcp(stream) => departure(stream),
            Self::Unix(_) => None,
        }
    }

    /// Write as much as the kernel takes.
    pub fn write(&self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).write(octets),
            Self::Unix(stream) => (&*stream).write(octets),
        }
    }

    /// End both directions: the worker that reads finds the end of the stream.
    pub fn shut_down(&self) {
        // An error means that the other side has closed the connection before.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// The client's address; of IPv6, the upper 64 bits, since a host can choose the lower ones.
    /// None: this host, or the connection is gone.
    pub fn neighbourhood(&self) -> Option<IpAddr> {
        let Self::Tcp(stream) = self else { return None };
        Some(match stream.peer_addr().ok()?.ip().to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address => address,
        })
    }

    /// The client's address, for the log.
    pub fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) => stream
                .peer_addr()
                .map_or_else(|_| "gone".into(), |address| address.to_string()),
            Self::Unix(_) => "this host".into(),
        }
    }
}

/// Have the kernel stamp what arrives over a new connection: see [`Socket::stamp_arrivals`].
pub fn stamp_arrivals(stream: &TcpStream) {
    stamp(stream, stamps());
}

/// Have it stamp what leaves, too. Returns whether it does.
pub fn stamp_departures(stream: &TcpStream) -> bool {
    let departures = TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE;
    stamp(stream, stamps() | departures)
}

fn stamps() -> TimestampingFlag {
    TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
        | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY
}

fn stamp(stream: &TcpStream, flags: TimestampingFlag) -> bool {
    // Without stamps of the kernel, no residence is stated.
    setsockopt(stream, sockopt::Timestamping, &flags).is_ok()
}

/// Read what is there, and when its last octet arrived: ns of the system's clock.
pub fn read_stamped(stream: &TcpStream, octets: &mut [u8]) -> io::Result<(usize, Option<i64>)> {
    let mut space = Ancillary([0; _]);
    let mut parts = [IoSliceMut::new(octets)];
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space.0), flags)?;
    let stamp = message
        .cmsgs()
        .ok()
        .into_iter()
        .flatten()
        .find_map(stamp_of);
    Ok((message.bytes, stamp))
}

/// Take the next stamp of a departure: the number of the last octet that has left, counted from
/// the first that was ever written, and when, in ns of the system's clock.
pub fn departure(stream: &TcpStream) -> Option<(u32, i64)> {
    let mut space = Ancillary([0; _]);
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    loop {
        let message = recvmsg::<()>(stream.as_raw_fd(), &mut [], Some(&mut space.0), flags).ok()?;
        let (mut last, mut left) = (None, None);
        for one in message.cmsgs().ok().into_iter().flatten() {
            match one {
                ControlMessageOwned::Ipv4RecvErr(error, _)
                | ControlMessageOwned::Ipv6RecvErr(error, _) => last = Some(error.ee_data),
                other => left = left.or(stamp_of(other)),
            }
        }
        if let Some(both) = last.zip(left) {
            return Some(both);
        }
    }
}

/// How many segments have been sent again, and how many have come out of order, so far (`TCP_INFO`:
/// octets 100 and 224, the latter from Linux 5.4). None: not known.
#[allow(unsafe_code)]
pub fn troubles(stream: &TcpStream) -> Option<(u32, u32)> {
    let mut info = [0u32; 57];
    let whole = size_of_val(&info) as libc::socklen_t;
    let mut length = whole;
    // SAFETY: the kernel writes at most `length` octets, the size of `info`, in which each value
    // of an octet is valid; both outlive the call, and so does the descriptor.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0 && length == whole).then_some((info[25], info[56]))
}

/// The time in a message of the kernel, ns of the system's clock, if it is a stamp.
pub fn stamp_of(one: ControlMessageOwned) -> Option<i64> {
    // In 64 bits, also where the system's own numbers have fewer.
    match one {
        ControlMessageOwned::ScmTimestampns(time) => Some(time.num_nanoseconds()),
        ControlMessageOwned::ScmTimestampsns(all) if all.system.tv_sec() != 0 => {
            Some(all.system.num_nanoseconds())
        }
        _ => None,
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
