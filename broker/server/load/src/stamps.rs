//! The kernel's stamps of octets that came or left.

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use std::io::IoSliceMut;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Returns CLOCK_REALTIME in ns: the clock of the kernel's stamps.
#[must_use]
pub fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |now| {
        now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
    })
}

/// Returns CLOCK_REALTIME minus CLOCK_MONOTONIC in ns; a sudden change of it is a step.
#[must_use]
pub fn ahead_ns() -> i64 {
    let boot = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.num_nanoseconds());
    now_ns().cast_signed() - boot
}

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
                Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
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
                    left = Some(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64);
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
