//! One connection, whoever is at its other end.

use crate::residence::Came;
use mqtick_broker::residence::{Account, Arrivals, Arrived, Clock, TRAILER};
use mqtick_broker::socket::{self, Socket};
use mqtick_broker::transport::Transport;
use mqtick_broker::transport::tls::common_name;
use mqtick_broker::upstream::wire::Wire;
use nix::sys::socket::{Shutdown, shutdown};
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

enum Carrier {
    /// Somebody connected to us.
    Taken(Socket, Transport),
    /// We connected.
    Made(Wire),
}

/// A connection that never waits.
pub struct Connection {
    carrier: Carrier,
    /// What came and is not looked at yet.
    pub input: Vec<u8>,
    /// What is to be written: of one that was taken, as it goes on the wire.
    out: Vec<u8>,
    wants: (bool, bool),
    is_stamped: bool, // what comes
    arrivals: Arrivals,
    stamp: Option<i64>,
    came: Came,
    account: Option<Box<Account>>,
    counted: u32, // octets written in all, modulo 2^32
}

impl Connection {
    /// Somebody connected to us.
    #[must_use]
    pub fn taken(socket: Socket, transport: Transport) -> Self {
        Self::new(Carrier::Taken(socket, transport))
    }

    /// We connect.
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

    /// Know from now on when something came. Nothing may have been written yet.
    pub fn stamp_arrivals(&mut self) {
        self.is_stamped = true;
        match &self.carrier {
            Carrier::Taken(socket, _) => socket.stamp_arrivals(),
            Carrier::Made(wire) => socket::stamp_arrivals(wire.socket()),
        }
    }

    /// When the last of what was read came, if that is known.
    pub fn came(&mut self) -> Came {
        if let Some(stamp_ns) = self.stamp.take() {
            self.came = self.arrivals.take(Some(stamp_ns), self.out_of_order());
        }
        self.came
    }

    /// How many segments came out of order.
    fn out_of_order(&self) -> Option<u32> {
        let troubles = match &self.carrier {
            Carrier::Taken(socket, _) => socket.troubles(),
            Carrier::Made(wire) => socket::troubles(wire.socket()),
        };
        troubles.map(|(_, count)| count)
    }

    /// Something was read: how much, and the kernel's stamp. A Unix socket has none, nor has TLS that
    /// we asked for: there it came at the latest now.
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

    /// Whether nothing is to be written, and nothing to be looked at; TLS that we asked for may have
    /// something to say of its own.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let is_ours = matches!(self.carrier, Carrier::Made(Wire::Tls(_)));
        self.input.is_empty() && self.out.is_empty() && !is_ours
    }

    /// Whether the other end was there, so that what we said first could be written.
    #[must_use]
    pub fn has_met(&self) -> bool {
        match &self.carrier {
            Carrier::Made(Wire::Tls(tls)) => !tls.conn.is_handshaking(),
            _ => self.out.is_empty(),
        }
    }

    /// The name in the certificate that the other end showed, if any.
    #[must_use]
    pub fn common_name(&self) -> Option<String> {
        match &self.carrier {
            Carrier::Taken(_, transport) => transport.common_name(),
            Carrier::Made(Wire::Tls(tls)) => common_name(tls.conn.peer_certificates()?.first()?),
            Carrier::Made(Wire::Plain(_)) => None,
        }
    }

    /// Who is at the other end, for the log.
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

    /// Read once: whether there may be more.
    ///
    /// # Errors
    /// That it ended, or why it cannot go on.
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

    /// Have these octets of MQTT written.
    pub fn push(&mut self, octets: &[u8]) {
        match &mut self.carrier {
            // Before its handshake nobody is written to, and afterwards it cannot fail but by memory.
            Carrier::Taken(_, transport) => {
                let _ = transport.send(octets, &mut self.out);
            }
            Carrier::Made(_) => self.out.extend_from_slice(octets),
        }
    }

    /// The same of a copy with a trailer, if nothing waits before it: it says then how long it was
    /// here. It is to be written at once.
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

    /// Take the kernel's stamps of what left; whether there were any.
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

    /// Write what the kernel takes; whether there is more.
    ///
    /// # Errors
    /// Why it cannot go on.
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

    /// Say that no more will come.
    pub fn close(&mut self) {
        if let Carrier::Taken(_, transport) = &mut self.carrier {
            transport.close(&mut self.out);
        }
    }

    /// All is written: end our direction. What still comes is read, so that the other end loses
    /// nothing of what it has not read yet.
    pub fn finish(&self) {
        let _ = match &self.carrier {
            Carrier::Taken(socket, _) => shutdown(socket.as_fd().as_raw_fd(), Shutdown::Write),
            Carrier::Made(wire) => shutdown(wire.socket().as_raw_fd(), Shutdown::Write),
        }; // who is gone needs nothing
    }

    /// What is to be waited for, if that has changed.
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
