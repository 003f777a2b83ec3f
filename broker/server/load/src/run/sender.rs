//! A publisher of a scenario: sends messages when they are due, and keeps the stamps of their
//! leaving.

use mqtick_packet::{AckKind, Packet, Qos, ack};
use std::collections::VecDeque;

use crate::protocol::connection::Connection;
use crate::protocol::wire::{self, Template};
use crate::run::schedule::Schedule;
use crate::run::unsent::Unsent;
use mqtick_net::failure::Outcome;
use mqtick_net::socket::{departure, stamp_departures};

/// A publisher with more unsent octets than this adds no message.
const MOST_UNSENT: usize = 1 << 16;

/// One message of a publisher whose latency is measured; times in ns.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// When it was due.
    pub due: u64,
    /// When it left: the clock before the write, until the kernel's stamp is read.
    pub left: u64,
    /// When its first copy came.
    pub first: u64,
    /// When its last copy came.
    pub last: u64,
    /// How many copies have come.
    pub came: usize,
}

/// A publisher.
#[derive(Debug)]
pub struct Sender {
    /// Its connection.
    pub connection: Connection,
    template: Template,
    qos: Qos,
    unsent: Unsent,
    /// Messages that the socket had taken when last asked.
    written: u64,
    /// When its messages of this trial are due.
    pub schedule: Schedule,
    /// Number of the trial's first message.
    pub first: u64,
    /// Number of the next message.
    pub next: u64,
    /// Copies that a message is to have.
    pub copies: usize,
    /// Whether the latency of its messages is measured.
    pub latency: bool,
    /// The trial's messages, where the latency is measured.
    pub sent: Vec<Sent>,
    is_stamped: bool,
    /// Messages without a stamp: the octet at which each ends, and its place in `sent`.
    marks: VecDeque<(u32, usize)>,
    octets: u32,
    /// Messages that were acknowledged, and those up to which none is waited for any more.
    acknowledged: u64,
    given_up: u64,
    inflight: u64,
    /// Copies that have come or were overtaken by later ones.
    pub passed: u64,
    /// When the broker last did not let it send, in ns.
    pub held_up: u64,
    /// When the next burst may leave, in ns, and whether that has to be set.
    ready: u64,
    rests: bool,
    is_datagrams: bool,
}

impl Sender {
    /// Takes an open connection.
    pub fn new(
        mut connection: Connection,
        template: Template,
        qos: Qos,
        copies: usize,
        latency: bool,
        stamps: bool,
    ) -> Self {
        let is_datagrams = connection.is_datagrams;
        let is_stamped = stamps && !is_datagrams && stamp_departures(&connection.stream);
        if let Some(tls) = connection.tls.as_mut().filter(|_| is_stamped) {
            tls.follow_records();
        }
        Self {
            unsent: Unsent::new(template.packet().to_vec()),
            template,
            qos,
            written: 0,
            schedule: Schedule::default(),
            first: 0,
            next: 0,
            copies,
            latency,
            sent: Vec::new(),
            is_stamped,
            marks: VecDeque::new(),
            octets: 0,
            acknowledged: 0,
            given_up: 0,
            // Packet identifiers are 16 bits; MQTT 5 lets the broker take fewer at once.
            inflight: u64::from(connection.receive_maximum).min(60_000),
            passed: 0,
            held_up: 0,
            ready: 0,
            rests: false,
            is_datagrams,
            connection,
        }
    }

    /// Begins a trial.
    pub fn begin(&mut self, mut schedule: Schedule) {
        if self.qos != Qos::AtMostOnce && schedule.window > 0 {
            // MQTT 5 lets the broker limit what is on its way unacknowledged ([MQTT-4.9.0-2]).
            schedule.window = schedule.window.min(self.inflight);
        }
        if schedule.window > 0 {
            schedule.burst = schedule.burst.min(schedule.window);
        }
        (self.ready, self.rests) = (schedule.begin, false);
        self.written = self.next;
        self.schedule = schedule;
        self.first = self.next;
        self.sent.clear();
        self.marks.clear();
    }

    /// How many messages of this trial were sent.
    pub fn count(&self) -> u64 {
        self.next - self.first
    }

    /// Returns how many messages the socket has taken since this was last asked.
    pub fn written(&mut self) -> u64 {
        let unsent = self.unsent.octets().len().div_ceil(self.unsent.each());
        let before = self.written;
        self.written = before.max(self.next.saturating_sub(unsent as u64));
        self.written - before
    }

    /// Returns how many messages of this trial have left without a stamp.
    pub fn unstamped(&self) -> u64 {
        self.marks.len() as u64
    }

    /// Whether the kernel stamps what leaves.
    pub fn is_stamped(&self) -> bool {
        self.is_stamped
    }

    /// Whether all messages have left, have their stamps, and are acknowledged.
    pub fn is_settled(&self) -> bool {
        self.unanswered() == 0
            && self.unsent.octets().is_empty()
            && self.connection.is_flushed()
            && (!self.is_stamped || self.marks.is_empty())
    }

    /// Whether another message may be added now.
    pub fn has_room(&self) -> bool {
        self.unanswered() < self.inflight
            && self.has_window()
            && self.unsent.octets().len() < MOST_UNSENT
    }

    fn has_window(&self) -> bool {
        let Schedule { window, burst, .. } = self.schedule;
        window == 0 || self.on_way() + burst <= window
    }

    /// Messages whose copies or acknowledgements have not come.
    pub fn on_way(&self) -> u64 {
        let passed = self.passed.checked_div(self.copies as u64);
        let unheard = self.next.saturating_sub(passed.unwrap_or(self.next));
        unheard.max(self.unanswered())
    }

    /// Messages that are not acknowledged.
    pub fn unanswered(&self) -> u64 {
        match self.qos {
            Qos::AtMostOnce => 0,
            // Acknowledgements may come after their messages were given up.
            _ => self
                .next
                .saturating_sub(self.acknowledged.max(self.given_up)),
        }
    }

    /// Sets the number of the next message.
    pub fn renumber(&mut self, next: u64) {
        self.acknowledged += next.saturating_sub(self.next);
        (self.next, self.written) = (next, next);
        self.give_up();
    }

    /// Returns when the next message is due; None if there is none.
    pub fn due(&self) -> Option<u64> {
        let due = self.schedule.due(self.count());
        match self.schedule.window {
            0 => due,
            _ => (self.count() < self.schedule.most).then_some(self.ready),
        }
    }

    /// Adds the messages that are due at `now`, in ns; returns how many.
    pub fn add_due(&mut self, now: u64) -> u64 {
        let before = self.next;
        if self.rests && self.has_window() {
            self.rests = false;
            self.ready = now + self.schedule.interval as u64;
        }
        while self.has_room() {
            match self.due() {
                Some(due) if due <= now && self.schedule.is_open() => self.add(1, due, now),
                Some(due) if due <= now => {
                    let left = self.schedule.most - self.count();
                    self.add(self.schedule.burst.min(left), now, now);
                    // Each burst is a write of its own.
                    self.rests = self.schedule.window > 0 && self.schedule.interval > 0.0;
                    break;
                }
                _ => break,
            }
        }
        self.next - before
    }

    /// Returns how long the last burst's copies took, in ns; None if some have not come.
    pub fn took(&self) -> Option<u64> {
        let burst = self.sent.len().checked_sub(self.schedule.burst as usize)?;
        let last = self.sent.get(burst..)?;
        let is_whole = last.iter().all(|one| one.came == self.copies);
        let end = last.iter().map(|one| one.last).max()?;
        is_whole.then(|| end.saturating_sub(last.first().map_or(end, |one| one.due)))
    }

    fn add(&mut self, count: u64, due: u64, now: u64) {
        let (held, each) = (self.unsent.octets().len(), self.unsent.each());
        for (packet, number) in self.unsent.add(count as usize).zip(self.next..) {
            self.template.number(packet, number);
        }
        self.next += count;
        if !self.latency {
            return;
        }
        for place in 1..=count as usize {
            if self.is_stamped {
                let end = self.octets.wrapping_add((held + place * each) as u32);
                self.marks.push_back((end, self.sent.len()));
            }
            self.sent.push(Sent {
                due,
                left: now,
                first: 0,
                last: 0,
                came: 0,
            });
        }
    }

    /// Writes what the socket takes; false if something is left.
    ///
    /// # Errors
    /// Where the broker closed.
    pub fn flush(&mut self) -> Outcome<bool> {
        let unsent = self.unsent.octets();
        if unsent.is_empty() {
            self.connection.send(&[])?;
            return Ok(self.connection.is_flushed());
        }
        // Datagrams are written one by one; stamped messages, too, but for a burst over TCP, which
        // is one write.
        let is_single = self.schedule.window == 0 || self.connection.tls.is_some();
        let each = match self.is_datagrams || self.is_stamped && is_single {
            true => self.unsent.each(),
            false => unsent.len(),
        };
        // First what is left of a message that the socket has taken a part of.
        let (rest, whole) = unsent.split_at(unsent.len() % each);
        let mut sent = 0;
        for part in std::iter::once(rest).chain(whole.chunks(each)) {
            let count = self.connection.send(part)?;
            sent += count;
            if count < part.len() {
                break;
            }
        }
        self.octets = self.octets.wrapping_add(sent as u32);
        self.unsent.sent(sent);
        Ok(self.unsent.octets().is_empty() && self.connection.is_flushed())
    }

    /// Reads the kernel's stamps of messages that have left.
    pub fn read_stamps(&mut self) {
        while self.is_stamped
            && let Some((last_octet, stamp)) = departure(&self.connection.stream)
        {
            let sent = last_octet.wrapping_add(1);
            let tls = self.connection.tls.as_mut();
            let sent = tls.map_or(sent, |tls| tls.plain_of(sent));
            while let Some((end, message)) = self.marks.front().copied() {
                // Octets are counted in 32 bits, and begin again.
                if sent.wrapping_sub(end).cast_signed() < 0 {
                    break;
                }
                self.marks.pop_front();
                if let Some(sent) = self.sent.get_mut(message) {
                    sent.left = stamp.cast_unsigned();
                }
            }
        }
    }

    /// Reads acknowledgements.
    ///
    /// # Errors
    /// Where the broker closed, or sent another packet.
    pub fn read_answers(&mut self, piece: &mut [u8]) -> Outcome<()> {
        let connection = &mut self.connection;
        let count = connection.receive(piece)?;
        let came = piece.get(..count).unwrap_or_default();
        if came.is_empty() {
            return Ok(());
        }
        if connection.sn.is_some() {
            return connection.answer_sensor(came);
        }
        connection.came(came)?;
        if self.qos != Qos::ExactlyOnce {
            self.acknowledged += connection.acknowledgements()?;
            return Ok(());
        }
        let mut used = 0;
        loop {
            let octets = connection.rest.get(used..).unwrap_or_default();
            let found = wire::packet(octets, connection.version)
                .map_err(|error| connection.named(error))?;
            let Some((packet, length)) = found else { break };
            let Packet::Ack(one) = packet else {
                return Err(connection.unexpected(&packet));
            };
            match one.kind {
                _ if one.reason >= 0x80 => {
                    return Err(connection.refused("refused a message", one.reason));
                }
                AckKind::Pubrec => {
                    let (version, id) = (connection.version, one.id);
                    self.unsent
                        .add_other(|out| ack(out, version, AckKind::Pubrel, id, 0));
                }
                AckKind::Pubcomp => self.acknowledged += 1,
                _ => return Err(connection.unexpected(&packet)),
            }
            used += length;
        }
        connection.rest.drain(..used);
        self.flush().map(|_| ())
    }

    /// Removes the message that the broker retains.
    pub fn forget_retained(&mut self, topic: &str) {
        let message = mqtick_packet::Outgoing {
            topic,
            retain: true,
            ..Default::default()
        };
        let version = self.connection.version;
        self.unsent.add_other(|out| {
            mqtick_packet::publish(out, version, &message);
        });
        let _ = self.flush();
    }

    /// Gives up copies and acknowledgements that have not come, so that the window is empty.
    pub fn give_up(&mut self) {
        self.given_up = self.next;
        self.passed = self.next * self.copies as u64;
        self.rests = true;
    }
}
