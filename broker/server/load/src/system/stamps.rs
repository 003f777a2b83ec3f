//! The kernel's stamps of what comes.

use crate::system::clocks::now_ns;
use mqtick_net::socket::read_stamped;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::TcpStream;

/// Asks the kernel for receive stamps; returns whether it gives them.
pub fn enable(stream: &TcpStream) -> bool {
    setsockopt(stream, sockopt::ReceiveTimestampns, &true).is_ok()
}

/// Reads octets and their stamps.
#[derive(Debug, Default)]
pub struct Reader {
    /// Reads without a stamp of the kernel, which have that of the clock.
    pub without: u64,
}

impl Reader {
    /// Reads once without waiting; returns how many octets came and the stamp of the last, in ns.
    ///
    /// # Errors
    /// `WouldBlock` where nothing has come; other errors of the socket.
    pub fn read(&mut self, stream: &TcpStream, into: &mut [u8]) -> io::Result<(usize, u64)> {
        let (octets, stamp) = read_stamped(stream, into)?;
        if stamp.is_none() && octets > 0 {
            self.without += 1;
        }
        Ok((octets, stamp.map_or_else(now_ns, i64::cast_unsigned)))
    }
}
