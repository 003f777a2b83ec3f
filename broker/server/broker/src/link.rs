//! The way to one connected client: what waits to be written, and the socket.

use crate::memory::{self, Of, Share};
use crate::poller::Poller;
use crate::residence::{Account, Arrived, Clock, TRAILER};
use crate::socket::Socket;
use crate::transport::{Failure, Transport};
use mqtick_packet::Version;
use std::io::ErrorKind;
use std::sync::Arc;

const KEEP_ROOM: usize = 1 << 18; // octets; what a burst needed more is given back

/// Which connection of which worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The worker that owns the connection.
    pub worker: usize,
    /// The connection's token there; never used twice.
    pub token: u64,
}

/// The writing half of a connection. Whoever holds the lock around it may write.
pub struct Link {
    /// Where the reading half is.
    pub place: Place,
    /// What the client speaks.
    pub version: Version,
    /// The largest packet that the client takes, in octets.
    pub largest: usize,
    /// Whether it is in somebody's list of links to flush.
    pub listed: bool,
    poller: Arc<Poller>,
    socket: Arc<Socket>,
    transport: Transport,
    out: Vec<u8>,
    wire: Vec<u8>,
    written: usize,
    blocked: bool,
    paused: bool,
    counted: u32, // octets written in all, modulo 2^32
    account: Option<Box<Account>>,
    share: Share,
}

impl Link {
    /// A link over a new connection.
    pub fn new(
        place: Place,
        poller: Arc<Poller>,
        socket: Arc<Socket>,
        transport: Transport,
    ) -> Self {
        Self {
            place,
            version: Version::V3,
            largest: usize::MAX,
            listed: false,
            poller,
            socket,
            transport,
            out: Vec::new(),
            wire: Vec::new(),
            written: 0,
            blocked: false,
            paused: false,
            counted: 0,
            account: None,
            share: Share::new(Of::Outboxes, 0),
        }
    }

    /// Octets that wait.
    pub fn waiting(&self) -> usize {
        self.out.len() + self.wire.len() - self.written
    }

    /// Where to append packets; `flush` writes them.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether it may hold so many octets more than those that wait. Where `waits`, there is room
    /// for them afterwards: they are to be appended to `out`.
    pub fn may_take(&mut self, octets: usize, waits: bool) -> bool {
        if self.out.capacity() - self.out.len() >= octets {
            return true;
        }
        let may = memory::may_queue(self.waiting() + octets);
        if may && waits {
            self.out.reserve(octets);
            self.hold();
        }
        may
    }

    /// Give room back that is not used.
    pub fn give_back(&mut self) {
        self.out.shrink_to(memory::ALWAYS);
        self.wire.shrink_to(memory::ALWAYS);
        self.hold();
    }

    fn hold(&mut self) {
        self.share.set(self.out.capacity() + self.wire.capacity());
    }

    /// Take what the socket brought: MQTT's octets are appended to `plain`, also where it fails.
    pub fn receive(&mut self, octets: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        self.transport.receive(octets, plain, &mut self.wire)
    }

    /// The name in the client's certificate.
    pub fn common_name(&self) -> Option<String> {
        self.transport.common_name()
    }

    /// Whether octets pass unchanged.
    pub fn is_plain(&self) -> bool {
        matches!(self.transport, Transport::Plain)
    }

    /// Write a packet now if nothing waits before it; else it waits, too.
    pub fn write(&mut self, packet: &[u8]) {
        if self.waiting() > 0 || !self.is_plain() {
            self.out.extend_from_slice(packet);
            self.flush();
            return;
        }
        let written = match self.socket.write(packet) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.socket.shut_down();
                return;
            }
        };
        self.count(written);
        if let Some(rest) = packet.get(written..).filter(|rest| !rest.is_empty()) {
            self.out.extend_from_slice(rest);
            self.flush();
        }
    }

    /// Write a copy whose trailer says how long it was here, if nothing waits before it: a copy
    /// that waits is written as it is.
    pub fn write_stated(&mut self, packet: &[u8], arrived: &Arrived) {
        let Some(start) = packet
            .len()
            .checked_sub(TRAILER)
            .filter(|_| self.waiting() == 0)
        else {
            return self.write(packet);
        };
        let mut account = self.account.take().unwrap_or_else(|| {
            self.socket.stamp_departures();
            Box::default()
        });
        if account.is_open() {
            self.socket
                .departures(|last, left_ns| account.left(last, left_ns));
        }
        let sent_again = self.socket.troubles().map(|(again, _)| again);
        self.out.extend_from_slice(packet);
        let now = Clock::read();
        let (trailer, is_counted) = account.state(arrived, now, sent_again);
        if let Some(place) = self.out.get_mut(start..) {
            place.copy_from_slice(&trailer);
        }
        self.flush();
        if is_counted {
            let last_octet = self
                .counted
                .wrapping_add(self.waiting() as u32)
                .wrapping_sub(1);
            account.written(last_octet, now, sent_again);
        }
        self.account = Some(account);
    }

    /// The kernel has stamps of what left.
    pub fn take_departures(&mut self) {
        if let Some(account) = &mut self.account {
            self.socket
                .departures(|last, left_ns| account.left(last, left_ns));
        }
    }

    fn count(&mut self, written: usize) {
        self.counted = self.counted.wrapping_add(written as u32);
    }

    /// Write what the socket takes.
    pub fn flush(&mut self) {
        self.listed = false;
        if !self.is_plain() && !self.out.is_empty() {
            if self.transport.send(&self.out, &mut self.wire).is_err() {
                self.socket.shut_down();
            }
            self.out.clear();
            self.out.shrink_to(KEEP_ROOM);
        }
        let buffer = if self.is_plain() {
            &mut self.out
        } else {
            &mut self.wire
        };
        while self.written < buffer.len() && !self.blocked {
            let rest = buffer.get(self.written..).unwrap_or_default();
            match self.socket.write(rest) {
                Ok(written) => {
                    self.written += written;
                    self.counted = self.counted.wrapping_add(written as u32);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    self.poller
                        .expect(&self.socket, self.place.token, !self.paused, true);
                }
                Err(_) => {
                    // The reading half finds the same and ends the connection.
                    self.socket.shut_down();
                    self.written = buffer.len();
                }
            }
        }
        if self.written == buffer.len() {
            buffer.clear();
            buffer.shrink_to(KEEP_ROOM);
            self.written = 0;
        } else if self.written > KEEP_ROOM && self.written * 2 > buffer.len() {
            buffer.drain(..self.written);
            self.written = 0;
        }
        self.hold();
    }

    /// The socket takes more.
    pub fn unblock(&mut self) {
        self.blocked = false;
        self.expect();
        self.flush();
    }

    /// Leave what the client sends in the socket, or take it again.
    pub fn pause(&mut self, on: bool) {
        self.paused = on;
        self.expect();
    }

    /// Only here and in `flush` is it said what the poller waits for: under the lock.
    fn expect(&self) {
        let token = self.place.token;
        self.poller
            .expect(&self.socket, token, !self.paused, self.blocked);
    }

    /// End the connection after what waits was offered to the socket once.
    pub fn close(&mut self) {
        self.flush();
        self.transport.close(&mut self.wire);
        self.flush();
        self.socket.shut_down();
    }

    /// The socket.
    pub fn socket(&self) -> &Socket {
        &self.socket
    }
}
