//! A subscriber of a scenario.

use crate::protocol::connection::Connection;
use crate::protocol::wire::Template;
use crate::results::tally::Tally;
use mqtick_net::failure::Outcome;
use mqtick_packet::{AckKind, Qos, ack};
use nix::sys::socket::{getsockopt, sockopt};

/// Octets of one read.
pub(crate) const READ: usize = 1 << 18;
/// Copies read from one subscriber, one by one, before it is the next subscriber's turn.
pub(crate) const TURN: usize = 64;

/// A subscriber.
pub(crate) struct Listener {
    pub(crate) connection: Connection,
    pub(crate) template: Template,
    pub(crate) latency: bool,
    /// Stamp of its last copy; when that copy can have come at the earliest, in ns; whether the
    /// socket may hold more.
    pub(crate) stamp: u64,
    pub(crate) since: u64,
    pub(crate) has_more: bool,
    /// Copies read at a time, if they are stamped.
    pub(crate) turn: usize,
    /// Publishers of its topic: the first, and how many.
    pub(crate) first: usize,
    pub(crate) publishers: usize,
    /// Its first sequence, and whether other subscribers share it.
    pub(crate) sequences: usize,
    pub(crate) shared: bool,
    /// Acknowledgements that the socket has not taken yet.
    pub(crate) answers: Vec<u8>,
    pub(crate) room: usize,
}

impl Listener {
    #[inline]
    pub(crate) fn acknowledge(&mut self, qos: Qos, id: u16) {
        let kind = match qos {
            Qos::AtMostOnce => return,
            Qos::AtLeastOnce => AckKind::Puback,
            Qos::ExactlyOnce => AckKind::Pubrec,
        };
        ack(&mut self.answers, self.connection.version, kind, id, 0);
    }

    pub(crate) fn answer(&mut self) -> Outcome<()> {
        if !self.answers.is_empty() || !self.connection.is_flushed() {
            let count = self.connection.send(&self.answers)?;
            self.answers.drain(..count);
        }
        Ok(())
    }

    /// Notes how full the receive queue was, besides one message.
    pub(crate) fn look_at_queue(&mut self, count: usize, tally: &mut Tally) {
        let count = count.saturating_sub(self.template.length());
        if 2 * count > self.room {
            // The kernel enlarges the buffer as needed.
            self.room = getsockopt(&self.connection.stream, sockopt::RcvBuf).unwrap_or(self.room);
        }
        // More than one read takes is a queue, however large the buffer.
        let room = self.room.min(READ + READ / 2);
        tally.fullest = tally.fullest.max(count as f64 / room as f64);
    }
}
