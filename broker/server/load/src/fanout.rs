//! One publisher, many subscribers: when each copy comes, in which order, and what a copy costs.
//!
//! While copies are on their way the generator sleeps: nobody waits in epoll, so the broker's sends
//! wake nobody and the two do not compete. The kernel has stamped each copy when it came.

use mqtick_packet::{AckKind, Packet, ack};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{MsgFlags, recv, send};
use std::os::fd::AsRawFd;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::arrivals::{Arrivals, FIRST, SKEW};
use crate::connection::{Connection, Target};
use crate::contest::{COST, LOST_IN_ALL, Meter, Run, contestants};
use crate::options::Options;
use crate::places::Places;
use crate::process::Process;
use crate::stamps::{Reader, ahead_ns, enable, now_ns};
use crate::wire::{self, Template};
use crate::{Failure, Outcome, floor, system};

const WARM_UP_MESSAGES: usize = 20;
const WARM_UP_GAP: Duration = Duration::from_millis(20);
const PUBLISHER: u64 = u64::MAX;
/// What a clock that is only steered does not gain in a block.
const STEP_NS: u64 = 10_000_000;
/// How long the generator sleeps at least, in ns, before it looks for copies again.
const NAP_NS: u64 = 100_000;
/// A publisher and all who listen to it, through one broker.
struct Audience {
    who: &'static str,
    process: Option<Process>,
    publisher: Connection,
    subscribers: Vec<Connection>,
    template: Template,
    packet: Vec<u8>,
    /// Octets that the publisher's socket has not taken yet.
    unsent: Vec<u8>,
    epoll: Epoll,
    reader: Reader,
    piece: Vec<u8>,
    /// Number of the next message.
    next: u64,
    /// How long a fan-out has taken lately, in ns.
    usual_ns: u64,
    /// Whether the generator sleeps while copies come.
    sleeps: bool,
    /// Copies that have not come, those of the warm-up too.
    lost: u64,
    /// Whether each packet is a datagram of its own.
    is_datagrams: bool,
    places: Places,
}

/// Measures.
///
/// # Errors
/// What stopped it; the report has what was measured until then.
pub fn run(run: &mut Run<'_>) -> Outcome<()> {
    let options = run.options;
    run.descriptors(options.subscribers + 1)?;
    let (contestants, _floor) = contestants(options)?;
    let mut audiences = Vec::new();
    for one in &contestants {
        audiences.push(Audience::open(run, &one.target, one.process)?);
    }
    let mut result = Ok(());
    if options.until_eof {
        let ended = thread::spawn(floor::until_eof);
        while !ended.is_finished() {
            sleep(WARM_UP_GAP);
            for audience in &mut audiences {
                audience.block(run, 1, false)?;
            }
        }
    }
    'blocks: for number in 0..=options.repeats {
        for audience in &mut audiences {
            run.progress(&format!(
                "{}: block {number} of {}",
                audience.who, options.repeats
            ));
            let messages = if number == 0 {
                options.messages.min(WARM_UP_MESSAGES)
            } else {
                options.messages
            };
            result = audience.block(run, messages, number > 0);
            if result.is_err() {
                break 'blocks;
            }
        }
    }
    if result.is_ok() {
        let processes: Vec<_> = audiences.iter().map(|one| (one.who, one.process)).collect();
        result = run.memory(&processes);
    }
    for audience in &audiences {
        audience.places.tell(run, audience.who);
        audience.tell_stamps(run);
        run.report
            .add(LOST_IN_ALL, audience.who, audience.lost as f64);
    }
    run.report
        .compare(&[FIRST[0], FIRST[1], SKEW[0], SKEW[1], COST]);
    result
}

impl Audience {
    fn open(run: &Run<'_>, target: &Target, process: Option<Process>) -> Outcome<Self> {
        let Options {
            subscribers: count,
            qos,
            size,
            kernel_stamps,
            ..
        } = *run.options;
        let topic = format!("{}/0", target.prefix);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll"))?;
        let mut subscribers = Vec::new();
        let mut stamped = kernel_stamps;
        for number in 0..count {
            run.stop.check()?;
            if number.is_multiple_of(100) {
                run.progress(&format!("{}: {number} of {count} subscribers", target.who));
            }
            let mut one = Connection::open(target, &format!("sub{number}"), number)?;
            one.subscribe(&topic, qos)?;
            one.unblock()?;
            stamped = stamped && enable(&one.stream);
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number as u64);
            epoll.add(&one.stream, event).map_err(system("epoll"))?;
            subscribers.push(one);
        }
        let mut publisher = Connection::open(target, "pub", count)?;
        let template = if target.sn {
            Template::of_sensor(&topic, publisher.register(&topic)?, size)?
        } else {
            Template::new(target.version, &topic, qos, size, 0)?
        };
        publisher.unblock()?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, PUBLISHER);
        epoll
            .add(&publisher.stream, event)
            .map_err(system("epoll"))?;
        Ok(Self {
            who: target.who,
            process,
            packet: template.repeated(1),
            piece: vec![0; template.length().max(1 << 16)],
            template,
            publisher,
            unsent: Vec::new(),
            epoll,
            reader: Reader::default(),
            next: 0,
            usual_ns: count as u64 * 5_000,
            sleeps: stamped,
            lost: 0,
            is_datagrams: target.udp || target.sn,
            places: Places::new(count),
            subscribers,
        })
    }

    fn block(&mut self, run: &mut Run<'_>, messages: usize, counts: bool) -> Outcome<()> {
        let options = run.options;
        let mut arrivals = Arrivals::new(self.next, self.subscribers.len(), messages);
        let meter = Meter::start(self.process)?;
        let ahead = ahead_ns();
        match options.rate {
            None => self.some_at_a_time(run, messages, &mut arrivals)?,
            Some(rate) => self.at_rate(run, messages, rate, &mut arrivals)?,
        }
        let (cost, own) = meter.read()?;
        let step = ahead_ns() - ahead;
        if step.unsigned_abs() > STEP_NS {
            let ms = step / 1_000_000;
            let text = format!("the clock was stepped by {ms} ms: the delays around it are wrong.");
            run.report.note(text);
        }
        self.next += arrivals.due.len() as u64;
        self.lost += arrivals.lost();
        if arrivals.copies == 0 {
            return Err(if run.stop.asked() {
                Failure::Stopped
            } else {
                let sent = arrivals.due.len();
                let text = format!("no copy of {sent} messages came through the {}.", self.who);
                Failure::Failed(text)
            });
        }
        if counts {
            arrivals.tell(run, self.who);
            arrivals
                .complete_ones()
                .for_each(|stamps| self.places.add(stamps));
            run.cost(self.who, cost, own, arrivals.copies);
        }
        run.stop.check()
    }

    /// Sends the next burst when all copies of the last have come, or have not in time.
    fn some_at_a_time(
        &mut self,
        run: &Run<'_>,
        messages: usize,
        arrivals: &mut Arrivals,
    ) -> Outcome<()> {
        let mut vain = 0;
        let burst = run.options.burst;
        for first in (0..messages).step_by(burst) {
            if run.stop.asked() || vain == 3 {
                return Ok(());
            }
            sleep(run.options.gap);
            let before = arrivals.copies;
            let due = now_ns();
            let end = messages.min(first + burst);
            for _ in first..end {
                self.publish(now_ns(), arrivals)?;
            }
            self.gather(run.options.patience, arrivals)?;
            vain = if arrivals.copies == before {
                vain + 1
            } else {
                0
            };
            let left = arrivals.left.get(first..end).unwrap_or_default();
            if left.iter().all(|left| *left == 0) {
                let stamps = (first..end).flat_map(|message| arrivals.of(message));
                let last = stamps.max().copied().unwrap_or(due);
                // An eighth of what is new: one slow message does not make for long sleeps.
                self.usual_ns = (self.usual_ns * 7 + last.saturating_sub(due)) / 8;
            }
        }
        Ok(())
    }

    /// Sends each message when it is due, whatever has become of those before.
    fn at_rate(
        &mut self,
        run: &Run<'_>,
        messages: usize,
        rate: f64,
        arrivals: &mut Arrivals,
    ) -> Outcome<()> {
        let begin = now_ns() + 1_000_000;
        for message in 0..messages {
            let due = begin + (message as f64 * 1e9 / rate) as u64;
            while let Some(left) = due.checked_sub(now_ns()).filter(|left| *left > 0) {
                // A sleep may end this much too late; so the end of it is spent awake.
                if left > 2 * NAP_NS && self.drain(0, arrivals)? == 0 {
                    sleep(Duration::from_nanos((left - 2 * NAP_NS).min(10 * NAP_NS)));
                }
            }
            if run.stop.asked() {
                break;
            }
            self.publish(due, arrivals)?;
        }
        self.gather(run.options.patience, arrivals)
    }

    fn publish(&mut self, due: u64, arrivals: &mut Arrivals) -> Outcome<()> {
        self.template
            .number(&mut self.packet, arrivals.base + arrivals.due.len() as u64);
        arrivals.due.push(due);
        while self.is_datagrams && !self.unsent.is_empty() {
            self.flush()?;
        }
        self.unsent.extend_from_slice(&self.packet);
        arrivals.late.push(now_ns().saturating_sub(due));
        self.flush()
    }

    fn flush(&mut self) -> Outcome<()> {
        match send(
            self.publisher.stream.as_raw_fd(),
            &self.unsent,
            MsgFlags::MSG_NOSIGNAL,
        ) {
            Ok(count) => drop(self.unsent.drain(..count)),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(self.publisher.lost(Some(errno))),
        }
        Ok(())
    }

    /// Waits until all copies have come, or none has for a while.
    fn gather(&mut self, patience: Duration, arrivals: &mut Arrivals) -> Outcome<()> {
        let mut nap = self.usual_ns + self.usual_ns / 8;
        let mut last = Instant::now();
        while !arrivals.complete() {
            if self.sleeps {
                sleep(Duration::from_nanos(nap.clamp(NAP_NS, 1_000_000_000)));
                nap = NAP_NS;
            }
            let came = self.drain(if self.sleeps { 0 } else { 20 }, arrivals)?;
            if came > 0 {
                last = Instant::now();
            } else if last.elapsed() > patience {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads all that has come; returns from how many sockets.
    fn drain(&mut self, wait_ms: u8, arrivals: &mut Arrivals) -> Outcome<usize> {
        if !self.unsent.is_empty() {
            self.flush()?;
        }
        let mut events = [EpollEvent::empty(); 1024];
        let mut sockets = 0;
        loop {
            let wait = if sockets == 0 { wait_ms } else { 0 };
            let count = match self.epoll.wait(&mut events, wait) {
                Ok(0) => return Ok(sockets),
                Ok(count) => count,
                Err(Errno::EINTR) => return Ok(sockets),
                Err(error) => return Err(system("epoll")(error)),
            };
            sockets += count;
            for event in events.iter().take(count) {
                match event.data() {
                    PUBLISHER => self.read_answers()?,
                    place => self.read_copy(place as usize, arrivals)?,
                }
            }
        }
    }

    /// Reads no more than one packet, so that the stamp is that of its last octet.
    fn read_copy(&mut self, place: usize, arrivals: &mut Arrivals) -> Outcome<()> {
        let Some(one) = self.subscribers.get_mut(place) else {
            return Ok(());
        };
        let wanted = match one.sn {
            Some(_) => self.piece.len(),
            None => wire::missing(&one.rest, self.template.length()).min(self.piece.len()),
        };
        let into = self.piece.get_mut(..wanted).unwrap_or_default();
        let (count, stamp) = match self.reader.read(&one.stream, into) {
            Ok((0, _)) => return Err(one.lost(None)),
            Ok(read) => read,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(one.lost(Some(errno))),
        };
        let octets = into.get(..count).unwrap_or_default();
        if one.rest.is_empty()
            && let Some((sequence, id)) = self.template.recognise(octets)
        {
            arrivals.add(place, sequence, stamp)?;
            return match one.sn {
                Some(own) if own == id => Ok(()),
                Some(_) => one.answer(octets),
                None => acknowledge(one, id),
            };
        }
        if one.sn.is_some() {
            return one.answer(octets);
        }
        one.rest.extend_from_slice(octets);
        let mut used = 0;
        loop {
            let octets = one.rest.get(used..).unwrap_or_default();
            let found = wire::packet(octets, one.version).map_err(|error| one.named(error))?;
            let Some((packet, length)) = found else { break };
            let Packet::Publish(message) = packet else {
                return Err(one.unexpected(&packet));
            };
            let sequence = self
                .template
                .read(&message)
                .ok_or_else(|| one.stranger(&message))?;
            arrivals.add(place, sequence, stamp)?;
            acknowledge(one, message.id)?;
            used += length;
        }
        one.rest.drain(..used);
        Ok(())
    }

    fn read_answers(&mut self) -> Outcome<()> {
        let fd = self.publisher.stream.as_raw_fd();
        match recv(fd, &mut self.piece, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Err(self.publisher.lost(None)),
            Ok(count) if self.publisher.sn.is_some() => {
                let datagram = self.piece.get(..count).unwrap_or_default();
                return self.publisher.answer(datagram);
            }
            Ok(count) => self.publisher.rest.extend(self.piece.iter().take(count)),
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(self.publisher.lost(Some(errno))),
        }
        self.publisher.acknowledgements().map(|_| ())
    }

    fn tell_stamps(&self, run: &mut Run<'_>) {
        let stamps = match (self.sleeps, self.reader.without) {
            (false, _) => {
                "the clock after each receive: they hold the generator's own delay".to_owned()
            }
            (true, 0) => "the kernel's, at receipt (SO_TIMESTAMPNS)".to_owned(),
            (true, without) => format!(
                "the kernel's, at receipt (SO_TIMESTAMPNS); for {without} copies it had none, and \
                 the clock after the receive was taken"
            ),
        };
        run.report.note(format!("{}: stamps: {stamps}.", self.who));
    }
}

fn acknowledge(one: &Connection, id: u16) -> Outcome<()> {
    if id == 0 {
        return Ok(());
    }
    let mut octets = Vec::with_capacity(4);
    ack(&mut octets, one.version, AckKind::Puback, id, 0);
    match send(one.stream.as_raw_fd(), &octets, MsgFlags::MSG_NOSIGNAL) {
        Ok(count) if count == octets.len() => Ok(()),
        Ok(_) => Err(one.lost(Some(Errno::EAGAIN))),
        Err(errno) => Err(one.lost(Some(errno))),
    }
}
