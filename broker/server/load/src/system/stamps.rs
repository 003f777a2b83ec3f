//! What the kernel knows of a connection: when octets came or left, and what was sent again.

use crate::system::clocks::now_ns;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, getsockopt, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeValLike;
use nix::{cmsg_space, getsockopt_impl, libc, sockopt_impl};
use std::io::IoSliceMut;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Asks the kernel for receive stamps; returns whether it gives them.
pub fn enable(stream: &TcpStream) -> bool {
    setsockopt(stream, sockopt::ReceiveTimestampns, &true).is_ok()
}

/// Reads octets and their stamps.
#[derive(Debug)]
pub struct Reader {
    control: Vec<u8>,
    /// Reads without a stamp of the kernel, which have that of the clock.
    pub without: u64,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            control: cmsg_space!(nix::sys::time::TimeSpec),
            without: 0,
        }
    }
}

impl Reader {
    /// Reads once without waiting; returns how many octets came and the stamp of the last, in ns.
    ///
    /// # Errors
    /// `EAGAIN` where nothing has come; other errors of the socket.
    pub fn read(&mut self, stream: &TcpStream, into: &mut [u8]) -> nix::Result<(usize, u64)> {
        let mut places = [IoSliceMut::new(into)];
        let message = recvmsg::<()>(
            stream.as_raw_fd(),
            &mut places,
            Some(&mut self.control),
            MsgFlags::MSG_DONTWAIT,
        )?;
        let stamp = message.cmsgs()?.find_map(|one| match one {
            ControlMessageOwned::ScmTimestampns(time) => {
                Some(time.num_nanoseconds().cast_unsigned())
            }
            _ => None,
        });
        let octets = message.bytes;
        if stamp.is_none() && octets > 0 {
            self.without += 1;
        }
        Ok((octets, stamp.unwrap_or_else(now_ns)))
    }
}

/// SO_EE_ORIGIN_TIMESTAMPING: marks a stamp in the error queue of a socket.
const ORIGIN: u8 = 4;

/// The kernel's stamps of what leaves a socket.
#[derive(Debug)]
pub struct SendStamps {
    control: Vec<u8>,
}

impl SendStamps {
    /// Asks the kernel for them; None if it gives none. Call it when TCP has nothing to send.
    pub fn new(stream: &TcpStream) -> Option<Self> {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(stream, sockopt::Timestamping, &flags).ok()?;
        Some(Self {
            control: vec![0; 512],
        })
    }

    /// Returns the next stamp: the number of the last octet of a write, counted from 0 since
    /// [`SendStamps::new`], and when it left, in ns.
    pub fn read(&mut self, stream: &TcpStream) -> Option<(u32, u64)> {
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let control = Some(self.control.as_mut_slice());
        let message = recvmsg::<()>(stream.as_raw_fd(), &mut [], control, flags).ok()?;
        let (mut octet, mut left) = (None, None);
        for one in message.cmsgs().ok()? {
            match one {
                ControlMessageOwned::ScmTimestampsns(times) => {
                    let time = times.system;
                    left = Some(time.num_nanoseconds().cast_unsigned());
                }
                ControlMessageOwned::Ipv4RecvErr(error, _)
                | ControlMessageOwned::Ipv6RecvErr(error, _)
                    if error.ee_origin == ORIGIN =>
                {
                    octet = Some(error.ee_data);
                }
                _ => {}
            }
        }
        octet.zip(left)
    }
}

sockopt_impl!(
    /// What the kernel knows of a connection.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info
);

/// Returns the segments that this end of a connection sent again since it was opened.
pub fn resent(stream: &TcpStream) -> u64 {
    getsockopt(stream, TcpInfo).map_or(0, |info| u64::from(info.tcpi_total_retrans))
}
