//! The subscribers of a scenario: reads, recognises and counts copies.

use mqtick_packet::{AckKind, Packet, ack};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::protocol::wire;
use crate::results::tally::{Tally, record};
use crate::run::engine::Engine;
use crate::run::listener::{Listener, READ};
use crate::run::sequence::Place;
use crate::system::clocks::now_ns;
use mqtick_net::failure::{Failure, Outcome};

impl Engine {
    /// Reads what has come; returns from how many sockets.
    pub(crate) fn drain(&mut self, wait_ms: u8, tally: &mut Tally) -> Outcome<usize> {
        let count = match self.epoll.wait(&mut self.events, wait_ms) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(Failure::system("epoll")(error)),
        };
        let now = now_ns();
        let before = std::mem::replace(&mut self.looked, now);
        let mut piece = std::mem::take(&mut self.piece);
        let events = std::mem::take(&mut self.events);
        let mut result = Ok(());
        for event in events.iter().take(count) {
            let (place, is_sender) = ((event.data() / 2) as usize, event.data() % 2 == 1);
            result = if is_sender {
                self.senders.get_mut(place).map_or(Ok(()), |one| {
                    one.read_stamps();
                    one.read_answers(&mut piece)
                })
            } else if self.listeners.get(place).is_some_and(|one| one.latency) {
                self.read_stamped(place, before, &mut piece, tally)
            } else {
                self.read_many(place, now, &mut piece, tally)
            };
            if result.is_err() {
                break;
            }
        }
        (self.piece, self.events) = (piece, events);
        result.map(|()| count)
    }

    /// Reads as much as it can of a subscriber of kind load.
    fn read_many(
        &mut self,
        place: usize,
        now: u64,
        piece: &mut [u8],
        tally: &mut Tally,
    ) -> Outcome<()> {
        let Some(one) = self.listeners.get_mut(place) else {
            return Ok(());
        };
        if one.connection.tls.is_some() {
            let count = one.connection.receive(piece)?;
            one.look_at_queue(count, tally);
            one.connection
                .came(piece.get(..count).unwrap_or_default())?;
            self.take_rest(place, now, tally)?;
            return self.answer(place);
        }
        let held = one.connection.rest.len();
        let mut longer = Vec::new();
        // A packet above the usual size needs more room.
        let space = if held < piece.len() / 2 {
            piece
        } else {
            longer.resize(held + READ, 0);
            &mut longer
        };
        let (front, back) = space.split_at_mut_checked(held).unwrap_or_default();
        front.copy_from_slice(&one.connection.rest);
        let count = one.connection.receive(back)?;
        one.look_at_queue(count, tally);
        let octets = space.get(..held + count).unwrap_or_default();
        let used = self.take(place, octets, now, tally)?;
        if let Some(one) = self.listeners.get_mut(place) {
            one.connection.rest.clear();
            let rest = octets.get(used..).unwrap_or_default();
            one.connection.rest.extend_from_slice(rest);
        }
        self.answer(place)
    }

    /// Reads the copies of a subscriber one by one, so that each gets the stamp of its last octet
    /// (over TLS, that of its record's last octet). Copies that came since `before` and wait
    /// together have one stamp, that of the last, as the kernel merges their segments.
    fn read_stamped(
        &mut self,
        place: usize,
        before: u64,
        piece: &mut [u8],
        tally: &mut Tally,
    ) -> Outcome<()> {
        let turn = self.listeners.get_mut(place).map_or(0, |one| {
            if !std::mem::replace(&mut one.has_more, true) {
                one.since = before;
            }
            one.turn
        });
        for _ in 0..turn {
            let Some(one) = self.listeners.get_mut(place) else {
                return Ok(());
            };
            let connection = &mut one.connection;
            let wanted = match &connection.tls {
                _ if connection.is_datagrams => READ,
                Some(tls) => tls.missing(),
                None => wire::missing(&connection.rest, one.template.length()),
            };
            // A whole packet may be left from the subscription: read on behind it.
            let wanted = wanted.clamp(1, READ);
            let into = piece.get_mut(..wanted).unwrap_or_default();
            let (count, stamp) = match self.reader.read(&connection.stream, into) {
                Ok((0, _)) => return Err(connection.lost(None)),
                Ok(read) => read,
                Err(error) => match Errno::try_from(error) {
                    Ok(Errno::EAGAIN) => {
                        one.has_more = false;
                        break;
                    }
                    Ok(Errno::EINTR) => break,
                    errno => return Err(connection.lost(errno.ok())),
                },
            };
            connection.came(into.get(..count).unwrap_or_default())?;
            self.take_rest(place, stamp, tally)?;
        }
        if let Some(one) = self.listeners.get_mut(place).filter(|one| one.has_more) {
            let fd = one.connection.stream.as_raw_fd();
            let count = recv(fd, piece, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
            one.look_at_queue(count.unwrap_or(0), tally);
        }
        self.answer(place)
    }

    /// Takes the whole packets that a subscriber holds.
    fn take_rest(&mut self, place: usize, stamp: u64, tally: &mut Tally) -> Outcome<()> {
        let Some(one) = self.listeners.get_mut(place) else {
            return Ok(());
        };
        let mut octets = std::mem::take(&mut one.connection.rest);
        let used = self.take(place, &octets, stamp, tally)?;
        octets.drain(..used);
        if let Some(one) = self.listeners.get_mut(place) {
            one.connection.rest = octets;
        }
        Ok(())
    }

    fn answer(&mut self, place: usize) -> Outcome<()> {
        let one = self.listeners.get_mut(place);
        one.map_or(Ok(()), Listener::answer)
    }

    /// Takes the whole packets at the beginning of some octets; returns how many octets.
    fn take(
        &mut self,
        place: usize,
        octets: &[u8],
        stamp: u64,
        tally: &mut Tally,
    ) -> Outcome<usize> {
        let mut used = 0;
        loop {
            let rest = octets.get(used..).unwrap_or_default();
            let Some(one) = self.listeners.get_mut(place) else {
                return Ok(used);
            };
            if let Some((stream, number, id)) = one.template.recognise(rest) {
                if one.connection.sn.is_some_and(|own| own != id) {
                    one.connection.answer_sensor(rest)?;
                    return Ok(octets.len());
                }
                used += one.template.length();
                let qos = one.template.qos();
                one.acknowledge(qos, id);
                let mut numbers = number..number + 1;
                if !one.latency && one.connection.sn.is_none() {
                    // A run of consecutive messages is counted at once.
                    let rest = octets.get(used..).unwrap_or_default();
                    numbers.end += one.template.follow(rest, stream, number + 1);
                    used += one.template.length() * (numbers.end - number - 1) as usize;
                }
                while !numbers.is_empty() {
                    numbers.start += self.copies(place, stream, &numbers, stamp, tally)?;
                }
                continue;
            }
            if one.connection.sn.is_some() {
                if !rest.is_empty() {
                    one.connection.answer_sensor(rest)?;
                }
                return Ok(octets.len());
            }
            let version = one.connection.version;
            let found = wire::packet(rest, version).map_err(|error| one.connection.named(error))?;
            let Some((packet, length)) = found else {
                return Ok(used);
            };
            used += length;
            match packet {
                Packet::Publish(message) => {
                    one.acknowledge(message.qos, message.id);
                    if message.retain {
                        self.retained += 1;
                        continue;
                    }
                    let stranger = || one.connection.stranger(&message);
                    let (stream, number) = one.template.read(&message).ok_or_else(stranger)?;
                    self.copies(place, stream, &(number..number + 1), stamp, tally)?;
                }
                Packet::Ack(release) if release.kind == AckKind::Pubrel => {
                    ack(&mut one.answers, version, AckKind::Pubcomp, release.id, 0);
                }
                other => return Err(one.connection.unexpected(&other)),
            }
        }
    }

    /// Counts copies of consecutive messages, at least one; returns how many.
    #[inline]
    fn copies(
        &mut self,
        place: usize,
        stream: u32,
        numbers: &Range<u64>,
        stamp: u64,
        tally: &mut Tally,
    ) -> Outcome<u64> {
        let (stream, number) = (stream as usize, numbers.start);
        let Some(one) = self.listeners.get_mut(place) else {
            return Ok(1);
        };
        if one.latency && std::mem::replace(&mut one.stamp, stamp) == stamp {
            tally.together += 1;
            tally.together_ns = tally.together_ns.max(stamp.saturating_sub(one.since));
        }
        let own = stream
            .checked_sub(one.first)
            .filter(|own| *own < one.publishers);
        let publisher = self.streams.get(stream);
        let sender = publisher.and_then(|one| self.senders.get_mut(one.sender?));
        // Of a publisher elsewhere we know only the most that it sends.
        let end = match (&sender, publisher) {
            (Some(sender), _) => sender.next,
            (None, publisher) => publisher.map_or(0, |one| self.base.saturating_add(one.total)),
        };
        if number < self.base {
            tally.belated += 1;
            return Ok(1);
        }
        let Some(own) = own.filter(|_| number < end) else {
            return Err(one.connection.failed(format!(
                "a copy of message {number} of publisher {stream} came, which was not sent there."
            )));
        };
        let Some(sequence) = self.sequences.get_mut(one.sequences + own) else {
            return Ok(1);
        };
        let first = sender.as_ref().map_or(self.base, |sender| sender.first);
        let mut sender = sender;
        let mut count = 1;
        let is_new = match sequence.take(number) {
            Place::After(gap) => {
                count = end.min(numbers.end) - number;
                sequence.follow(count - 1);
                if let Some(sender) = &mut sender {
                    sender.passed += gap + count;
                }
                true
            }
            // Subscribers that share messages may be read in any order.
            Place::Late => {
                tally.disorder += u64::from(!one.shared && number >= first);
                true
            }
            Place::Again => {
                tally.duplicates += 1;
                false
            }
        };
        if !is_new {
            return Ok(1);
        }
        let Some(message) = number.checked_sub(first) else {
            tally.belated += count;
            return Ok(count);
        };
        tally.delivered += count;
        tally.last_ns = tally.last_ns.max(stamp);
        tally.egress += count * u64::from(tally.holds(stamp));
        if !one.latency {
            return Ok(count);
        }
        if let Some(apart) = &mut tally.apart {
            apart.heard.push((stream as u32, number, stamp));
            return Ok(1);
        }
        let Some(sender) = sender else { return Ok(1) };
        sender.read_stamps();
        let Some(sent) = sender.sent.get_mut(message as usize) else {
            return Ok(1);
        };
        sent.came += 1;
        sent.first = if sent.came == 1 {
            stamp
        } else {
            sent.first.min(stamp)
        };
        sent.last = sent.last.max(stamp);
        let delay = stamp.saturating_sub(sent.left);
        if let Some(places) = &mut self.places {
            places.came(message, place, stamp);
        }
        if tally.holds(sent.due) {
            record(&mut tally.delay, stamp.saturating_sub(sent.due));
            record(&mut tally.wire, delay);
            if sent.came == sender.copies && sender.copies > 1 {
                record(&mut tally.skew, sent.last - sent.first);
            }
        }
        if let Some(csv) = tally.csv.as_mut() {
            csv.received(place, stamp, delay)?;
        }
        Ok(1)
    }
}
