//! One connection, whoever is at its other end.

use mqtick_broker::socket::Socket;
use mqtick_broker::transport::Transport;
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
        }
    }

    /// Octets that wait to be written.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// The name in the certificate that the other end showed, if any.
    #[must_use]
    pub fn common_name(&self) -> Option<String> {
        match &self.carrier {
            Carrier::Taken(_, transport) => transport.common_name(),
            Carrier::Made(_) => None,
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
            Carrier::Taken(socket, _) => socket.read(room),
            Carrier::Made(wire) => wire.read(room),
        };
        let count = match read {
            Ok(0) => return Err("it closed the connection".into()),
            Ok(count) => count,
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
