//! Datagrams: received with their stamps, and many sent by one system call.

use crate::socket::stamp_of;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockaddrLike, SockaddrStorage, recvmsg};
use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Send datagrams, each of some parts, in order. `has_room` waits for room, and says whether there
/// is some; if not, the rest is lost. `lost`: which ones were not sent, and why.
#[allow(unsafe_code)]
pub fn send_all<'a>(
    socket: impl AsFd,
    datagrams: impl Iterator<Item = (&'a SockaddrStorage, &'a [IoSlice<'a>])>,
    mut has_room: impl FnMut() -> bool,
    mut lost: impl FnMut(Range<usize>, Errno),
) {
    // Not nix's `sendmmsg`: its results read addresses that nothing has written.
    let header = |(address, parts): (&SockaddrStorage, &[IoSlice<'_>])| {
        // SAFETY: a structure of numbers and pointers, for which zero is a value.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_name = address.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_namelen = address.len();
        header.msg_hdr.msg_iov = parts.as_ptr().cast_mut().cast();
        header.msg_hdr.msg_iovlen = parts.len() as _;
        header
    };
    let mut headers: Vec<_> = datagrams.map(header).collect();
    let (mut done, all) = (0, headers.len());
    while let Some(rest) = headers.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: the kernel is told the length of `rest`, into which it writes lengths. Each header
        // points to an address and to parts that live for 'a, so longer than this call; the kernel
        // only reads them. Parts have the layout of `iovec`, as `IoSlice` guarantees. The descriptor
        // outlives the call.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_fd().as_raw_fd(),
                rest.as_mut_ptr(),
                rest.len() as _,
                flags as _,
            )
        };
        match Errno::result(sent) {
            Ok(sent) => done += usize::try_from(sent).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) if has_room() => {}
            Err(Errno::EAGAIN) => return lost(done..all, Errno::EAGAIN),
            Err(error) => {
                // It cannot be sent there: the others get theirs.
                lost(done..done + 1, error);
                done += 1;
            }
        }
    }
}

/// Wait for room in a socket, at most so long. Returns whether there is some.
pub fn is_writable(socket: impl AsFd, most: impl Into<PollTimeout>) -> bool {
    let mut wanted = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    let found = poll(&mut wanted, most);
    let events = wanted[0].revents().filter(|_| found.is_ok());
    events.is_some_and(|events| events.contains(PollFlags::POLLOUT))
}

/// Receive a datagram that has come. Returns its length, its source, and when it came: ns of the
/// system's clock.
///
/// # Errors
/// `EAGAIN` if none has; the system's.
pub fn receive(
    socket: impl AsFd,
    room: &mut [u8],
) -> nix::Result<(usize, SocketAddr, Option<i64>)> {
    let mut parts = [IoSliceMut::new(room)];
    let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let (file, flags) = (socket.as_fd().as_raw_fd(), MsgFlags::MSG_DONTWAIT);
    let came = recvmsg::<SockaddrStorage>(file, &mut parts, Some(&mut space), flags)?;
    let came_ns = came.cmsgs()?.find_map(stamp_of);
    let from = came.address.as_ref().map_or(NOWHERE, address_of);
    Ok((came.bytes, from, came_ns))
}

/// The sender where there is none: datagrams from port 0 are refused.
pub const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The address of a peer.
#[must_use]
pub fn address_of(from: &SockaddrStorage) -> SocketAddr {
    let v6 = || Some(SocketAddr::V6((*from.as_sockaddr_in6()?).into()));
    let v4 = from.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(v6).unwrap_or(NOWHERE)
}
