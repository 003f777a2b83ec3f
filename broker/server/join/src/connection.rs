//! One connection, to a client, the broker or a neighbour.

use crate::residence::Came;
use mqtick_net::residence::{Account, Arrivals, Arrived, Clock, TRAILER};
use mqtick_net::socket::{self, Socket};
use mqtick_net::transport::Transport;
use mqtick_net::transport::tls::common_name;
use mqtick_net::wire::Wire;
use mqtick_packet::{Frame, frame};
use nix::sys::socket::{Shutdown, shutdown};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// When so many octets wait for one side of a pair, the other side is not read from.
pub(crate) const HIGH: usize = 1 << 20;

/// Why a connection is closed.
#[derive(Debug)]
pub struct Fault {
    /// A sentence for the log.
    pub why: String,
    /// Whether the other end broke the protocol. If not, it only ends or refuses the connection.
    pub is_malformed: bool,
}

impl Fault {
    /// The other end ends or refuses the connection, or is not the right one.
    pub fn ended(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            is_malformed: false,
        }
    }
}

impl<T: ToString> From<T> for Fault {
    /// The other end broke the protocol.
    fn from(why: T) -> Self {
        Self {
            why: why.to_string(),
            is_malformed: true,
        }
    }
}

/// The packet at this place of the input, if it is there as a whole. `most`: octets that it may have.
///
/// # Errors
/// What is malformed.
pub fn next_packet(
    input: &[u8],
    at: usize,
    most: usize,
) -> Result<Option<Frame<'_>>, mqtick_packet::Error> {
    match input.get(at..) {
        None | Some([]) => Ok(None),
        Some(rest) => frame(rest, most),
    }
}

enum Carrier {
    /// The other end connected to this node.
    Taken(Socket, Transport),
    /// This node connected to the other end.
    Made(Wire),
}

/// A connection that never blocks.
pub struct Connection {
    carrier: Carrier,
    /// Octets of MQTT that have come, and are not processed yet.
    pub input: Vec<u8>,
    /// Octets to be written. If the other end connected, they are encoded for its transport already.
    out: Vec<u8>,
    /// The last [`Self::wants`].
    wants: (bool, bool),
    /// Whether the kernel stamps what comes.
    is_stamped: bool,
    arrivals: Arrivals,
    stamp: Option<i64>,
    came: Came,
    account: Option<Box<Account>>,
    counted: u32, // octets written in all, modulo 2^32
}

impl Connection {
    /// A connection that the other end made.
    #[must_use]
    pub fn taken(socket: Socket, transport: Transport) -> Self {
        Self::new(Carrier::Taken(socket, transport))
    }

    /// A connection that this node makes.
    #[must_use]
    pub fn made(wire: Wire) -> Self {
        Self::new(Carrier::Made(wire))
    }

    fn new(carrier: Carrier) -> Self {
        Self {
            carrier,
            input: Vec::new(),
            out: Vec::new(),
            wants: (true, false),
            is_stamped: false,
            arrivals: Arrivals::default(),
            stamp: None,
            came: None,
            account: None,
            counted: 0,
        }
    }

    /// Note when octets come, from now on. Nothing may have been written before.
    pub fn stamp_arrivals(&mut self) {
        self.is_stamped = true;
        match &self.carrier {
            Carrier::Taken(socket, _) => socket.stamp_arrivals(),
            Carrier::Made(wire) => socket::stamp_arrivals(wire.socket()),
        }
    }

    /// When the last octets that were read came, if that is known.
    pub fn came(&mut self) -> Came {
        if let Some(stamp_ns) = self.stamp.take() {
            self.came = self.arrivals.take(Some(stamp_ns), self.out_of_order());
        }
        self.came
    }

    /// How many segments have come out of order.
    fn out_of_order(&self) -> Option<u32> {
        let troubles = match &self.carrier {
            Carrier::Taken(socket, _) => socket.troubles(),
            Carrier::Made(wire) => socket::troubles(wire.socket()),
        };
        troubles.map(|(_, count)| count)
    }

    /// Octets were read, with this stamp of the kernel. A Unix socket has no stamps, nor has TLS to a
    /// place that this node connected to: there the octets came no later than now.
    fn note_arrival(&mut self, stamp_ns: Option<i64>) {
        let has_stamps = match &self.carrier {
            Carrier::Taken(socket, _) => matches!(socket, Socket::Tcp(_)),
            Carrier::Made(wire) => matches!(wire, Wire::Plain(_)),
        };
        self.stamp = stamp_ns.filter(|_| has_stamps);
        self.came = (!has_stamps).then(|| Clock::read().raw_ns);
        if has_stamps && self.arrivals.is_new() {
            let out_of_order = self.out_of_order();
            self.arrivals.take(None, out_of_order);
        }
    }

    /// Octets that wait to be written.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing is left to be written or processed. Never so for TLS that this node asked for,
    /// which may have messages of its own to write.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_ours = matches!(self.carrier, Carrier::Made(Wire::Tls(_)));
        self.input.is_empty() && self.out.is_empty() && !is_ours
    }

    /// Whether there is something at the other end: the first octets could be written to it.
    #[must_use]
    pub fn has_met(&self) -> bool {
        match &self.carrier {
            Carrier::Made(Wire::Tls(tls)) => !tls.conn.is_handshaking(),
            _ => self.out.is_empty(),
        }
    }

    /// The common name in the certificate of the other end, if it showed one.
    #[must_use]
    pub fn common_name(&self) -> Option<String> {
        match &self.carrier {
            Carrier::Taken(_, transport) => transport.common_name(),
            Carrier::Made(Wire::Tls(tls)) => common_name(tls.conn.peer_certificates()?.first()?),
            Carrier::Made(Wire::Plain(_)) => None,
        }
    }

    /// The address of the other end, for the log.
    #[must_use]
    pub fn peer(&self) -> String {
        match &self.carrier {
            Carrier::Taken(socket, _) => socket.peer(),
            Carrier::Made(wire) => wire
                .socket()
                .peer_addr()
                .map_or_else(|_| "gone".into(), |address| address.to_string()),
        }
    }

    /// Read once. Returns whether there may be more to read.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub fn read(&mut self, room: &mut [u8]) -> Result<bool, String> {
        let read = match &mut self.carrier {
            Carrier::Taken(socket, _) if self.is_stamped => socket.read_stamped(room),
            Carrier::Taken(socket, _) => socket.read(room).map(|count| (count, None)),
            Carrier::Made(Wire::Plain(stream)) if self.is_stamped => {
                socket::read_stamped(stream, room)
            }
            Carrier::Made(wire) => wire.read(room).map(|count| (count, None)),
        };
        let count = match read {
            Ok((0, _)) => return Err("it closed the connection".into()),
            Ok((count, stamp_ns)) => {
                if self.is_stamped {
                    self.note_arrival(stamp_ns);
                }
                count
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.to_string()),
        };
        let octets = room.get(..count).unwrap_or_default();
        match &mut self.carrier {
            Carrier::Taken(_, transport) => {
                let received = transport.receive(octets, &mut self.input, &mut self.out);
                received.map_err(|failure| failure.to_string())?;
            }
            Carrier::Made(_) => self.input.extend_from_slice(octets),
        }
        Ok(count == room.len())
    }

    /// Append octets of MQTT to what is to be written.
    pub fn push(&mut self, octets: &[u8]) {
        match &mut self.carrier {
            // Nothing is sent before the handshake, and after it only a lack of memory can fail.
            Carrier::Taken(_, transport) => {
                let _ = transport.send(octets, &mut self.out);
            }
            Carrier::Made(_) => self.out.extend_from_slice(octets),
        }
    }

    /// Append a copy of a time message that arrived at the node then. If nothing waits before it, its
    /// trailer states how long the message was here; so it has to be written at once.
    pub fn push_stated(&mut self, copy: &mut [u8], arrived: &Arrived) {
        if self.waiting() > 0 || !self.is_stamped {
            return self.push(copy);
        }
        let Carrier::Taken(socket, _) = &self.carrier else {
            return self.push(copy);
        };
        let sent_again = socket.troubles().map(|(again, _)| again);
        let mut account = match self.account.take() {
            Some(account) => account,
            None => {
                socket.stamp_departures();
                Box::default()
            }
        };
        while account.is_open()
            && let Some((last, left_ns)) = socket.departure()
        {
            account.left(last, left_ns);
        }
        let now = Clock::read();
        let (trailer, is_counted) = account.state(arrived, now, sent_again);
        if let Some(place) = copy.last_chunk_mut::<TRAILER>() {
            *place = trailer;
        }
        self.push(copy);
        if is_counted {
            let last = self.counted.wrapping_add(self.out.len() as u32);
            account.written(last.wrapping_sub(1), now, sent_again);
        }
        self.account = Some(account);
    }

    /// Read the kernel's stamps of octets that have left. Returns whether there were any.
    pub fn note_departures(&mut self) -> bool {
        let Carrier::Taken(socket, _) = &self.carrier else {
            return false;
        };
        let mut any = false;
        while let Some(account) = &mut self.account
            && let Some((last, left_ns)) = socket.departure()
        {
            account.left(last, left_ns);
            any = true;
        }
        any
    }

    /// Write as much as the kernel takes. Returns whether there is more to write.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub fn flush(&mut self) -> Result<bool, String> {
        match &mut self.carrier {
            Carrier::Made(wire) => match wire.write(&mut self.out) {
                Err(error) if error.kind() == ErrorKind::NotConnected => Ok(true),
                other => other.map_err(|error| error.to_string()),
            },
            Carrier::Taken(socket, _) => {
                let mut done = 0;
                let result = loop {
                    let rest = self.out.get(done..).unwrap_or_default();
                    if rest.is_empty() {
                        break Ok(());
                    }
                    match socket.write(rest) {
                        Ok(count) => done += count,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
                        Err(error) => break Err(error.to_string()),
                    }
                };
                self.out.drain(..done);
                self.counted = self.counted.wrapping_add(done as u32);
                result.map(|()| !self.out.is_empty())
            }
        }
    }

    /// Append the transport's own closing message.
    pub fn close(&mut self) {
        if let Carrier::Taken(_, transport) = &mut self.carrier {
            transport.close(&mut self.out);
        }
    }

    /// Everything is written: end this direction. Octets that still come are read, or the other end
    /// could lose the last ones that were sent to it.
    pub fn finish(&self) {
        let _ = shutdown(self.as_fd().as_raw_fd(), Shutdown::Write); // it may have ended already
    }

    /// Wait until it can be read or written. Returns both if that is a change.
    pub fn wants(&mut self, read: bool, write: bool) -> Option<(bool, bool)> {
        let wants = (read, write);
        (wants != self.wants).then(|| {
            self.wants = wants;
            wants
        })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.carrier {
            Carrier::Taken(socket, _) => socket.as_fd(),
            Carrier::Made(wire) => wire.socket().as_fd(),
        }
    }
}
