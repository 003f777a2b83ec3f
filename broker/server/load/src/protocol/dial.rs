//! The socket to a broker.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;

use crate::protocol::target::Target;
use mqtick_net::failure::{Failure, Outcome};

/// Most connections from one loopback address; it has about 28,000 ports.
const FROM_ONE_ADDRESS: usize = 20_000;

/// The same over UDP, where a broker limits the leases of an address.
const LEASES_OF_ONE_ADDRESS: usize = 1000;

/// Receive buffer of a UDP socket, in octets, if we are root.
const ROOM: usize = 8 << 20;

/// Opens the socket: TCP_NODELAY, timeouts, and a local address with free ports.
pub(crate) fn dial(target: &Target, place: usize) -> Outcome<TcpStream> {
    let address = target.address;
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let is_datagram = target.is_datagrams();
    let kind = if is_datagram {
        SockType::Datagram
    } else {
        SockType::Stream
    };
    let fd = socket(family, kind, SockFlag::SOCK_CLOEXEC, None)
        .map_err(Failure::system("a socket cannot be opened"))?;
    let microseconds = target.patience.as_micros() as i64;
    let limit = TimeVal::microseconds(microseconds);
    setsockopt(&fd, sockopt::SendTimeout, &limit)
        .and_then(|()| setsockopt(&fd, sockopt::ReceiveTimeout, &limit))
        .and_then(|()| match is_datagram {
            true => Ok(()),
            false => setsockopt(&fd, sockopt::TcpNoDelay, &true),
        })
        .map_err(Failure::system("a socket cannot be set up"))?;
    if is_datagram {
        // Copies wait there while a generator that has to be on time does not read.
        let _ = setsockopt(&fd, sockopt::RcvBufForce, &ROOM);
    }
    let group = match is_datagram {
        true => place / LEASES_OF_ONE_ADDRESS,
        false => place / FROM_ONE_ADDRESS,
    };
    if group > 0 && matches!(address.ip(), IpAddr::V4(ip) if ip.is_loopback()) {
        let source = Ipv4Addr::new(127, 0, 0, (group + 1).min(254) as u8);
        let source = SockaddrStorage::from(SocketAddr::from((source, 0)));
        setsockopt(&fd, sockopt::IpBindAddressNoPort, &true)
            .and_then(|()| bind(fd.as_raw_fd(), &source))
            .map_err(Failure::system(
                "a socket cannot be bound to another loopback address",
            ))?;
    }
    let failed = |why: &str| Failure::Failed(format!("{address}: {why}"));
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) => Ok(TcpStream::from(fd)),
        Err(Errno::ECONNREFUSED) => Err(failed(
            "the connection was refused: does a broker listen there?",
        )),
        Err(Errno::EINPROGRESS | Errno::EAGAIN | Errno::ETIMEDOUT) => {
            Err(failed("the connection was not answered in time."))
        }
        Err(Errno::EADDRNOTAVAIL) => Err(failed(
            "no local port is left for another connection (net.ipv4.ip_local_port_range).",
        )),
        Err(errno) => Err(failed(&format!("it cannot be reached: {}.", errno.desc()))),
    }
}
