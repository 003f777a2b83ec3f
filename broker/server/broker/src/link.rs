//! The writing half of a client's connection: packets that wait to be written, and the socket.

use crate::journal::Span;
use crate::memory::{self, Of, Share};
use mqtick_net::poller::Poller;
use mqtick_net::residence::{Account, Arrived, Clock, TRAILER};
use mqtick_net::socket::Socket;
use mqtick_net::transport::{Failure, Transport};
use mqtick_packet::{AckKind, Version, pingresp};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

const KEEP_ROOM: usize = 1 << 18; // octets of a buffer that are kept after a burst

/// Identifies a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The worker that owns the connection.
    pub worker: usize,
    /// The connection's token, which is never used twice.
    pub token: u64,
}

/// What a client is told once changes are on disk or were refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeferredReply {
    /// Nothing. The QoS 2 message that follows may leave, unless it was refused.
    Publish {
        /// Its packet identifier.
        id: u16,
        /// How many octets it has.
        length: usize,
    },
    /// This acknowledgement: kind, packet identifier, reason code.
    Ack(AckKind, u16, u8),
    /// CONNACK, which follows.
    Connected {
        /// Whether it is sent also if the changes were refused.
        may_fail: bool,
    },
    /// What follows. It must not be sent if the changes were refused.
    Kept,
    /// Answers to so many PINGREQs.
    Pings(u32),
}

struct Mark {
    at: usize, // position in what is held back, from the first octet that ever was
    span: Span,
    reply: DeferredReply,
}

/// The writing half of a connection. The thread that holds the lock around it may write.
pub struct Link {
    /// Where the reading half is.
    pub place: Place,
    /// The client's MQTT version.
    pub version: Version,
    /// The largest packet that the client takes, in octets.
    pub largest: usize,
    /// Whether it is in a worker's list of links to flush.
    pub listed: bool,
    poller: Arc<Poller>,
    socket: Arc<Socket>,
    transport: Transport,
    out: Vec<u8>,
    held: Vec<u8>,    // held back until changes are on disk
    held_from: usize, // position of its first octet, from the first that ever was held back
    passed: usize,    // up to which position octets are let through
    marks: VecDeque<Mark>,
    newest: u64, // of all batches that anything was held back for
    /// The newest batch that a worker waits for, to let through what is held back.
    pub awaited: u64,
    wire: Vec<u8>,
    written: usize,
    blocked: bool,
    paused: bool,
    counted: u32, // octets written in all, modulo 2^32
    account: Option<Box<Account>>,
    is_stamped: bool, // departures are stamped, and the poller knows of it
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
            held: Vec::new(),
            held_from: 0,
            passed: 0,
            marks: VecDeque::new(),
            awaited: 0,
            newest: 0,
            wire: Vec::new(),
            written: 0,
            blocked: false,
            paused: false,
            counted: 0,
            account: None,
            is_stamped: false,
            share: Share::new(Of::Outboxes, 0),
        }
    }

    /// Octets that wait to be written.
    pub fn waiting(&self) -> usize {
        let held = self.held_from + self.held.len() - self.passed;
        self.out.len() + held + self.wire.len() - self.written
    }

    /// Where to append packets; `flush` writes them.
    pub fn out(&mut self) -> &mut Vec<u8> {
        if self.marks.is_empty() {
            &mut self.out
        } else {
            &mut self.held
        }
    }

    /// Hold back what is appended from now on until changes are on disk.
    pub fn hold(&mut self, span: Span, reply: DeferredReply) {
        self.newest = self.newest.max(span.last);
        self.marks.push_back(Mark {
            at: self.held_from + self.held.len(),
            span,
            reply,
        });
    }

    /// Answer a PINGREQ after what is held back. Returns whether it is answered now.
    pub fn answer_ping(&mut self) -> bool {
        match self.marks.back_mut() {
            None => pingresp(&mut self.out),
            Some(Mark {
                reply: DeferredReply::Pings(count),
                ..
            }) => *count += 1,
            Some(last) => {
                let span = last.span;
                self.hold(span, DeferredReply::Pings(1));
            }
        }
        self.marks.is_empty()
    }

    /// Answer PINGREQs before what is held back: the disk takes long, and the client must hear
    /// something.
    pub fn answer_pings(&mut self) {
        let connected = |mark: &Mark| matches!(mark.reply, DeferredReply::Connected { .. });
        if self.marks.iter().any(connected) {
            return; // nothing comes before CONNACK
        }
        let out = &mut self.out;
        self.marks.retain(|mark| {
            let DeferredReply::Pings(count) = mark.reply else {
                return true;
            };
            (0..count).for_each(|_| pingresp(out));
            false
        });
        self.flush();
    }

    /// The newest batch for which something is held back.
    pub fn newest(&self) -> Option<u64> {
        (!self.marks.is_empty()).then_some(self.newest)
    }

    /// Take the next deferred reply, if the store has answered its changes: batches up to `answered`. Then
    /// `pass` lets through what follows.
    pub fn next_reply(&mut self, answered: u64) -> Option<(Span, DeferredReply)> {
        let mark = self.marks.pop_front_if(|mark| mark.span.last <= answered)?;
        Some((mark.span, mark.reply))
    }

    /// Where to append the packet of a deferred reply: before what is held back.
    pub fn front(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Drop the next octets of what is held back.
    pub fn skip(&mut self, octets: usize) {
        let from = self.passed - self.held_from;
        let end = self.held.len().min(from + octets);
        self.held.drain(from..end);
        let gone = end - from;
        for mark in &mut self.marks {
            mark.at -= gone;
        }
    }

    /// Let through what follows the deferred reply.
    pub fn pass(&mut self) {
        let from = self.held_from;
        let end = from + self.held.len();
        let until = self.marks.front().map_or(end, |mark| mark.at);
        let octets = self.held.get(self.passed - from..until - from);
        self.out.extend_from_slice(octets.unwrap_or_default());
        self.passed = until;
        if (until - from) * 2 >= self.held.len() {
            self.held.drain(..until - from);
            self.held.shrink_to(KEEP_ROOM);
            self.held_from = until;
        }
    }

    /// Forget what is held back: the connection ends.
    pub fn let_go(&mut self) {
        self.marks.clear();
        self.held.clear();
        self.held_from = self.passed;
    }

    /// Whether so many octets may be added to those that wait. With `waits`, room for them is
    /// reserved: the caller appends them to `out`.
    pub fn may_take(&mut self, octets: usize, waits: bool) -> bool {
        let out = self.out();
        if out.capacity() - out.len() >= octets {
            return true;
        }
        let may = memory::may_queue(self.waiting() + octets);
        if may && waits {
            self.out().reserve(octets);
            self.measure();
        }
        may
    }

    /// Free room that is not used.
    pub fn give_back(&mut self) {
        self.out.shrink_to(memory::ALWAYS);
        self.wire.shrink_to(memory::ALWAYS);
        self.measure();
    }

    fn measure(&mut self) {
        let marks = self.marks.capacity() * size_of::<Mark>();
        let octets = self.out.capacity() + self.held.capacity() + self.wire.capacity();
        self.share.set(octets + marks);
    }

    /// Take octets that were read from the socket. Those of MQTT are appended to `plain`, also if
    /// it fails.
    pub fn receive(&mut self, octets: &[u8], plain: &mut Vec<u8>) -> Result<(), Failure> {
        self.transport.receive(octets, plain, &mut self.wire)
    }

    /// The name in the client's certificate.
    pub fn common_name(&self) -> Option<String> {
        self.transport.common_name()
    }

    /// Whether octets pass unchanged: there is no TLS and no WebSocket.
    pub fn is_plain(&self) -> bool {
        matches!(self.transport, Transport::Plain)
    }

    /// Write a packet now if nothing waits before it; else it waits, too.
    pub fn write(&mut self, packet: &[u8]) {
        if self.waiting() > 0 || !self.marks.is_empty() || !self.is_plain() {
            self.out().extend_from_slice(packet);
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

    /// Write a copy whose trailer states its residence, if nothing waits before it. Otherwise the
    /// copy waits, and its trailer stays as it is.
    pub fn write_stated(&mut self, packet: &[u8], arrived: &Arrived) {
        let Some(start) = packet
            .len()
            .checked_sub(TRAILER)
            .filter(|_| self.waiting() == 0 && self.marks.is_empty())
        else {
            return self.write(packet);
        };
        self.note_departure();
        let mut account = self.account.take().unwrap_or_else(|| {
            self.stamp();
            Box::default()
        });
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

    fn stamp(&mut self) {
        self.socket.stamp_departures();
        self.is_stamped = self.poller.stamp(&self.socket, self.place.token);
        if self.paused || self.blocked {
            self.expect();
        }
    }

    /// Take the kernel's stamp of when the last counted copy left, if there is one.
    pub fn note_departure(&mut self) {
        let Some(account) = &mut self.account else {
            return;
        };
        while account.is_open() {
            match self.socket.departure() {
                Some((last, left_ns)) => account.left(last, left_ns),
                None => return,
            }
        }
    }

    /// Take all stamps of departures from the kernel. Returns whether there were any.
    pub fn take_departures(&mut self) -> bool {
        let mut any = false;
        while let Some(account) = &mut self.account
            && let Some((last, left_ns)) = self.socket.departure()
        {
            account.left(last, left_ns);
            any = true;
        }
        any
    }

    fn count(&mut self, written: usize) {
        self.counted = self.counted.wrapping_add(written as u32);
    }

    /// Write as much as the socket takes.
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
                    let (token, reads) = (self.place.token, !self.paused);
                    self.poller
                        .expect(&self.socket, token, self.is_stamped, reads, true);
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
        self.measure();
    }

    /// The socket has room again.
    pub fn unblock(&mut self) {
        self.blocked = false;
        self.expect();
        self.flush();
    }

    /// Stop reading from the client, or start again.
    pub fn pause(&mut self, on: bool) {
        self.paused = on;
        self.expect();
    }

    /// Tell the poller what to wait for. Only this and `flush` do so, under the lock.
    fn expect(&self) {
        let (token, reads) = (self.place.token, !self.paused);
        self.poller
            .expect(&self.socket, token, self.is_stamped, reads, self.blocked);
    }

    /// End the connection, after one try to write what waits.
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
