//! 1:1 topics: what a broker delivers, and what it costs.

use mqtick_packet::{AckKind, Packet, Qos, ack};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{MsgFlags, recv, send};
use std::os::fd::AsRawFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Target};
use crate::contest::{COST, DISORDER, DUPLICATES, LOST, Meter, Run, contestants};
use crate::options::Options;
use crate::process::Process;
use crate::report::Name;
use crate::sequence::{Place, Sequence};
use crate::stop::Stop;
use crate::wire::{self, Template};
use crate::{Failure, Outcome, system};

const RATE: Name = Name {
    key: "rate",
    text: "messages delivered",
    unit: "1/s",
};
const READ: usize = 1 << 18;
const NAP: Duration = Duration::from_micros(50);
const WARM_UP_S: f64 = 0.5;

/// Publisher and subscriber of one topic.
struct Pair {
    publisher: Connection,
    subscriber: Connection,
    template: Template,
    /// Packets of one write, and where what the socket has not taken yet begins.
    burst: Vec<u8>,
    unsent_from: usize,
    /// Acknowledgements of the subscriber that its socket has not taken yet.
    acks: Vec<u8>,
    /// Messages written and acknowledged, and which were delivered or given up.
    sent: u64,
    came: Sequence,
    acknowledged: u64,
}

/// What happened in a block.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    delivered: u64,
    lost: u64,
    duplicates: u64,
    disorder: u64,
}

/// All pairs through one broker.
struct Crowd {
    pairs: Vec<Pair>,
    who: &'static str,
    process: Option<Process>,
    epoll: Epoll,
    window: u64,
    burst: u64,
    qos: Qos,
    patience: Duration,
    counts: Counts,
    piece: Vec<u8>,
}

/// Measures.
///
/// # Errors
/// What stopped it; the report has what was measured until then.
pub fn run(run: &mut Run<'_>) -> Outcome<()> {
    let options = run.options;
    run.descriptors(2 * options.pairs)?;
    let (contestants, _floor) = contestants(options)?;
    let mut crowds = Vec::new();
    for one in &contestants {
        crowds.push(Crowd::open(run, &one.target, one.process)?);
    }
    let mut result = Ok(());
    'blocks: for number in 0..=options.repeats {
        for crowd in &mut crowds {
            run.progress(&format!(
                "{}: block {number} of {}",
                crowd.who, options.repeats
            ));
            let seconds = if number == 0 {
                options.seconds.min(WARM_UP_S)
            } else {
                options.seconds
            };
            result = crowd.block(run, Duration::from_secs_f64(seconds), number > 0);
            if result.is_err() {
                break 'blocks;
            }
        }
    }
    if result.is_ok() {
        let processes: Vec<_> = crowds
            .iter()
            .map(|crowd| (crowd.who, crowd.process))
            .collect();
        result = run.memory(&processes);
    }
    run.report.compare(&[RATE, COST]);
    result
}

impl Crowd {
    fn open(run: &Run<'_>, target: &Target, process: Option<Process>) -> Outcome<Self> {
        let Options {
            pairs,
            window,
            burst,
            qos,
            size,
            patience,
            ..
        } = *run.options;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll"))?;
        let mut crowd = Self {
            pairs: Vec::new(),
            who: target.who,
            process,
            epoll,
            window,
            burst: burst as u64,
            qos,
            patience,
            counts: Counts::default(),
            piece: vec![0; READ],
        };
        for number in 0..pairs {
            run.stop.check()?;
            if number.is_multiple_of(100) {
                run.progress(&format!("{}: {number} of {pairs} pairs", target.who));
            }
            let topic = format!("{}/{number}", target.prefix);
            let mut subscriber =
                Connection::open_kept(target, &format!("sub{number}"), 2 * number)?;
            subscriber.subscribe(&topic, qos)?;
            let publisher = Connection::open(target, &format!("pub{number}"), 2 * number + 1)?;
            // MQTT 5 lets the broker limit what is on its way unacknowledged ([MQTT-4.9.0-2]).
            if qos != Qos::AtMostOnce {
                crowd.window = crowd.window.min(u64::from(publisher.receive_maximum));
                crowd.burst = crowd.burst.min(crowd.window);
            }
            let template = Template::new(target.version, &topic, qos, size, number as u32)?;
            for (connection, token) in [(&subscriber, 2 * number), (&publisher, 2 * number + 1)] {
                connection.unblock()?;
                let event = EpollEvent::new(EpollFlags::EPOLLIN, token as u64);
                crowd
                    .epoll
                    .add(&connection.stream, event)
                    .map_err(system("epoll"))?;
            }
            crowd.pairs.push(Pair {
                publisher,
                subscriber,
                burst: Vec::new(),
                unsent_from: 0,
                acks: Vec::new(),
                template,
                sent: 0,
                came: Sequence::default(),
                acknowledged: 0,
            });
        }
        for pair in &mut crowd.pairs {
            pair.burst = pair.template.repeated(crowd.burst as usize);
            pair.unsent_from = pair.burst.len();
        }
        Ok(crowd)
    }

    /// Publishes for a while, waits for the rest, and adds the figures where they count.
    fn block(&mut self, run: &mut Run<'_>, time: Duration, counts: bool) -> Outcome<()> {
        self.counts = Counts::default();
        let meter = Meter::start(self.process)?;
        let began = Instant::now();
        let ended = self.traffic(run.stop, began, time)?;
        let (cost, own) = meter.read()?;
        let elapsed = ended.duration_since(began).as_secs_f64();
        if self.counts.delivered == 0 {
            return Err(if run.stop.asked() {
                Failure::Stopped
            } else {
                Failure::Failed(format!(
                    "the {} delivered none of the messages of {time:?}.",
                    self.who
                ))
            });
        }
        if counts {
            let Counts {
                delivered,
                lost,
                duplicates,
                disorder,
            } = self.counts;
            run.report.add(RATE, self.who, delivered as f64 / elapsed);
            run.cost(self.who, cost, own, delivered);
            for (name, count) in [(LOST, lost), (DUPLICATES, duplicates), (DISORDER, disorder)] {
                run.report.add(name, self.who, count as f64);
            }
        }
        run.stop.check()
    }

    /// Keeps all windows full, then waits until they are empty; returns when the last copy came.
    fn traffic(&mut self, stop: &Stop, began: Instant, time: Duration) -> Outcome<Instant> {
        let mut last = began;
        let mut looked = began;
        let mut publishing = true;
        loop {
            let mut outstanding = 0;
            for place in 0..self.pairs.len() {
                outstanding += self.fill(place, publishing)?;
            }
            if !publishing && outstanding == 0 {
                return Ok(last);
            }
            // With most of the windows on their way there is time to sleep: then the broker's sends
            // wake nobody, and we read more at once.
            let busy = publishing && outstanding * 2 > self.window * self.pairs.len() as u64;
            if busy {
                sleep(NAP);
            }
            let before = self.counts;
            let read = self.wait(busy)?;
            let now = Instant::now();
            if self.counts.delivered != before.delivered
                || self.counts.duplicates != before.duplicates
            {
                last = now;
            }
            publishing &= now.duration_since(began) < time;
            if now.duration_since(looked) > Duration::from_millis(20) {
                looked = now;
                publishing &= !stop.asked();
            }
            if !read && now.duration_since(last.max(began)) > self.patience {
                self.give_up();
                return Ok(last);
            }
        }
    }

    /// Writes bursts while a pair's window has room; returns how many messages are on their way.
    fn fill(&mut self, place: usize, publishing: bool) -> Outcome<u64> {
        let qos = self.qos;
        let Some(pair) = self.pairs.get_mut(place) else {
            return Ok(0);
        };
        loop {
            let done = match qos {
                Qos::AtMostOnce => pair.came.next(),
                _ => pair.came.next().min(pair.acknowledged),
            };
            let outstanding = pair.sent.saturating_sub(done);
            let room = publishing && outstanding + self.burst <= self.window;
            if !pair.flush()? || !room {
                return Ok(outstanding);
            }
            let length = pair.template.length();
            for packet in pair.burst.chunks_exact_mut(length) {
                pair.template.number(packet, pair.sent);
                pair.sent += 1;
            }
            pair.unsent_from = 0;
        }
    }

    /// Reads what has come; false where nothing came for a while.
    fn wait(&mut self, busy: bool) -> Outcome<bool> {
        let blocked = self
            .pairs
            .iter()
            .any(|pair| pair.unsent_from < pair.burst.len() || !pair.acks.is_empty());
        // What a socket would not take is tried again after 1 ms, or whenever anything comes.
        let wait_ms: u8 = match (busy, blocked) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 20,
        };
        let mut events = [EpollEvent::empty(); 256];
        let count = match self.epoll.wait(&mut events, wait_ms) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(system("epoll")(error)),
        };
        let mut piece = std::mem::take(&mut self.piece);
        let mut result = Ok(());
        for event in events.iter().take(count) {
            let token = event.data() as usize;
            let Some(pair) = self.pairs.get_mut(token / 2) else {
                continue;
            };
            result = if token.is_multiple_of(2) {
                pair.read_copies(&mut self.counts, &mut piece)
            } else {
                pair.read_answers(&mut piece)
            };
            if result.is_err() {
                break;
            }
        }
        self.piece = piece;
        result.map(|()| count > 0)
    }

    /// Counts as lost what has not come, so that the next block begins with empty windows.
    fn give_up(&mut self) {
        for pair in &mut self.pairs {
            self.counts.lost += pair.came.skip_to(pair.sent);
            pair.acknowledged = pair.sent;
        }
    }
}

impl Pair {
    /// Writes the rest of a burst; false where the socket does not take all of it.
    fn flush(&mut self) -> Outcome<bool> {
        if self.unsent_from < self.burst.len() {
            let rest = self.burst.get(self.unsent_from..).unwrap_or_default();
            self.unsent_from += write(&self.publisher, rest)?;
        }
        Ok(self.unsent_from >= self.burst.len())
    }

    fn read_copies(&mut self, counts: &mut Counts, piece: &mut [u8]) -> Outcome<()> {
        let held = self.subscriber.rest.len();
        let mut longer = Vec::new();
        // A packet above the usual size needs more room than there is.
        let space = if held < piece.len() / 2 {
            piece
        } else {
            longer.resize(held + READ, 0);
            &mut longer
        };
        let (front, back) = space.split_at_mut_checked(held).unwrap_or_default();
        front.copy_from_slice(&self.subscriber.rest);
        let count = match recv(
            self.subscriber.stream.as_raw_fd(),
            back,
            MsgFlags::MSG_DONTWAIT,
        ) {
            Ok(0) => return Err(self.subscriber.lost(None)),
            Ok(count) => count,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(self.subscriber.lost(Some(errno))),
        };
        let mut octets = space.get(..held + count).unwrap_or_default();
        while !octets.is_empty() {
            let length = if let Some((sequence, id)) = self.template.recognise(octets) {
                self.copy(counts, sequence, id)?;
                self.template.length()
            } else {
                let version = self.subscriber.version;
                let found =
                    wire::packet(octets, version).map_err(|error| self.subscriber.named(error))?;
                let Some((packet, length)) = found else { break };
                let Packet::Publish(message) = packet else {
                    return Err(self.subscriber.unexpected(&packet));
                };
                let stranger = || self.subscriber.stranger(&message);
                let sequence = self.template.read(&message).ok_or_else(stranger)?;
                self.copy(counts, sequence, message.id)?;
                length
            };
            octets = octets.get(length..).unwrap_or_default();
        }
        self.subscriber.rest.clear();
        self.subscriber.rest.extend_from_slice(octets);
        if !self.acks.is_empty() {
            let written = write(&self.subscriber, &self.acks)?;
            self.acks.drain(..written);
        }
        Ok(())
    }

    fn copy(&mut self, counts: &mut Counts, sequence: u64, id: u16) -> Outcome<()> {
        if sequence >= self.sent {
            return Err(Failure::Failed(format!(
                "a copy of message {sequence} came, and only {} were sent.",
                self.sent
            )));
        }
        match self.came.take(sequence) {
            Place::After(gap) => {
                counts.lost += gap;
                counts.delivered += 1;
            }
            Place::Late => {
                // It may have been given up in an earlier block.
                counts.lost = counts.lost.saturating_sub(1);
                counts.disorder += 1;
                counts.delivered += 1;
            }
            Place::Again => counts.duplicates += 1,
        }
        if id != 0 {
            ack(
                &mut self.acks,
                self.subscriber.version,
                AckKind::Puback,
                id,
                0,
            );
        }
        Ok(())
    }

    fn read_answers(&mut self, piece: &mut [u8]) -> Outcome<()> {
        let publisher = &mut self.publisher;
        match recv(publisher.stream.as_raw_fd(), piece, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Err(publisher.lost(None)),
            Ok(count) => publisher.rest.extend(piece.iter().take(count)),
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(publisher.lost(Some(errno))),
        }
        self.acknowledged += publisher.acknowledgements()?;
        Ok(())
    }
}

/// Writes what the socket takes; returns how much.
fn write(connection: &Connection, octets: &[u8]) -> Outcome<usize> {
    match send(
        connection.stream.as_raw_fd(),
        octets,
        MsgFlags::MSG_NOSIGNAL,
    ) {
        Ok(count) => Ok(count),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        Err(errno) => Err(connection.lost(Some(errno))),
    }
}
