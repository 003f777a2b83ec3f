//! Segments that TCP sent again (TCP_INFO).

use nix::libc;
use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, sockopt_impl};
use std::net::TcpStream;

sockopt_impl!(
    /// What the kernel knows of a connection.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info
);

/// Returns the segments that this end of a connection sent again since it was opened.
#[must_use]
pub fn segments(stream: &TcpStream) -> u64 {
    getsockopt(stream, TcpInfo).map_or(0, |info| u64::from(info.tcpi_total_retrans))
}
