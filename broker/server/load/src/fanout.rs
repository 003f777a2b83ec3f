//! One publisher, many subscribers: when each copy comes, in which order, and what a copy costs.
//!
//! While copies are on their way the generator sleeps: nobody waits in epoll, so the broker's sends
//! wake nobody and the two do not compete. The kernel has stamped each copy when it came.

use mqtick_packet::{AckKind, Packet, ack};
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
use crate::report::{Name, quantile};
use crate::stamps::{Reader, enable, now_ns};
use crate::wire::{self, Template};
use crate::{Failure, Outcome, system};

const FIRST: [Name; 3] = [
    Name {
        key: "first_p50_us",
        text: "publish to first copy, p50",
        unit: "us",
    },
    Name {
        key: "first_p99_us",
        text: "publish to first copy, p99",
        unit: "us",
    },
    Name {
        key: "first_max_us",
        text: "publish to first copy, max",
        unit: "us",
    },
];
const SKEW: [Name; 3] = [
    Name {
        key: "skew_p50_us",
        text: "first to last copy, p50",
        unit: "us",
    },
    Name {
        key: "skew_p99_us",
        text: "first to last copy, p99",
        unit: "us",
    },
    Name {
        key: "skew_max_us",
        text: "first to last copy, max",
        unit: "us",
    },
];
const COPIES: [Name; 3] = [
    Name {
        key: "copy_p50_us",
        text: "publish to each copy, p50",
        unit: "us",
    },
    Name {
        key: "copy_p99_us",
        text: "publish to each copy, p99",
        unit: "us",
    },
    Name {
        key: "copy_max_us",
        text: "publish to each copy, max",
        unit: "us",
    },
];
const LATE: [Name; 3] = [
    Name {
        key: "late_p50_us",
        text: "the generator's own lateness, p50",
        unit: "us",
    },
    Name {
        key: "late_p99_us",
        text: "the generator's own lateness, p99",
        unit: "us",
    },
    Name {
        key: "late_max_us",
        text: "the generator's own lateness, max",
        unit: "us",
    },
];
const SHARES: [f64; 3] = [0.5, 0.99, 1.0];
const WARM_UP_MESSAGES: usize = 20;
const PUBLISHER: u64 = u64::MAX;
/// How long the generator sleeps at least, in ns, before it looks for copies again.
const NAP_NS: u64 = 100_000;
/// Connections of which the JSON has each one's mean place; of more it has groups.
const PLACES: usize = 1000;

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
    /// Sums of each subscriber's place among the copies of a message, over `ranked` messages.
    ranks: Vec<u64>,
    firsts: Vec<u64>,
    ranked: u64,
}

/// What came in a block: a stamp for each message and subscriber, 0 where none has come.
struct Arrivals {
    base: u64,
    subscribers: usize,
    due: Vec<u64>,
    late: Vec<u64>,
    stamps: Vec<u64>,
    left: Vec<usize>,
    newest: Vec<u64>,
    copies: u64,
    duplicates: u64,
    disorder: u64,
    /// Copies of earlier blocks, counted as lost there.
    belated: u64,
}

impl Arrivals {
    fn new(base: u64, subscribers: usize, messages: usize) -> Self {
        Self {
            base,
            subscribers,
            due: Vec::with_capacity(messages),
            late: Vec::with_capacity(messages),
            stamps: vec![0; subscribers * messages],
            left: vec![subscribers; messages],
            newest: vec![0; subscribers],
            copies: 0,
            duplicates: 0,
            disorder: 0,
            belated: 0,
        }
    }

    fn add(&mut self, place: usize, sequence: u64, stamp: u64) -> Outcome<()> {
        let Some(message) = sequence.checked_sub(self.base) else {
            self.belated += 1;
            return Ok(());
        };
        let message = message as usize;
        let slot = self.stamps.get_mut(message * self.subscribers + place);
        let (Some(slot), true) = (slot, message < self.due.len()) else {
            let text = format!("a copy of message {sequence} came, which was not sent yet.");
            return Err(Failure::Failed(text));
        };
        if *slot != 0 {
            self.duplicates += 1;
            return Ok(());
        }
        *slot = stamp;
        self.copies += 1;
        if let Some(left) = self.left.get_mut(message) {
            *left -= 1;
        }
        if let Some(newest) = self.newest.get_mut(place) {
            self.disorder += u64::from(sequence < *newest);
            *newest = sequence.max(*newest);
        }
        Ok(())
    }

    /// Whether all copies of the messages sent so far have come.
    fn complete(&self) -> bool {
        self.copies == (self.due.len() * self.subscribers) as u64
    }

    fn of(&self, message: usize) -> &[u64] {
        let from = message * self.subscribers;
        self.stamps
            .get(from..from + self.subscribers)
            .unwrap_or_default()
    }
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
        audience.tell_places(run);
        audience.tell_stamps(run);
    }
    run.report
        .compare(&[FIRST[0], FIRST[1], SKEW[0], SKEW[1], COST]);
    audiences.into_iter().for_each(Audience::close);
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
        let publisher = Connection::open(target, "pub", count)?;
        publisher.unblock()?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, PUBLISHER);
        epoll
            .add(&publisher.stream, event)
            .map_err(system("epoll"))?;
        let template = Template::new(target.version, &topic, qos, size, 0)?;
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
            ranks: vec![0; count],
            firsts: vec![0; count],
            ranked: 0,
            subscribers,
        })
    }

    fn block(&mut self, run: &mut Run<'_>, messages: usize, counts: bool) -> Outcome<()> {
        let options = run.options;
        let mut arrivals = Arrivals::new(self.next, self.subscribers.len(), messages);
        let meter = Meter::start(self.process)?;
        match options.rate {
            None => self.one_at_a_time(run, messages, &mut arrivals)?,
            Some(rate) => self.at_rate(run, messages, rate, &mut arrivals)?,
        }
        let (cost, own) = meter.read()?;
        self.next += arrivals.due.len() as u64;
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
            self.evaluate(run, &arrivals);
            run.cost(self.who, cost, own, arrivals.copies);
        }
        run.stop.check()
    }

    /// Sends the next message when all copies of the last have come, or have not in time.
    fn one_at_a_time(
        &mut self,
        run: &Run<'_>,
        messages: usize,
        arrivals: &mut Arrivals,
    ) -> Outcome<()> {
        let mut vain = 0;
        for message in 0..messages {
            if run.stop.asked() || vain == 3 {
                return Ok(());
            }
            sleep(run.options.gap);
            let before = arrivals.copies;
            let due = now_ns();
            self.publish(due, arrivals)?;
            self.gather(run.options.patience, arrivals)?;
            vain = if arrivals.copies == before {
                vain + 1
            } else {
                0
            };
            if arrivals.left.get(message) == Some(&0) {
                let last = arrivals.of(message).iter().max().copied().unwrap_or(due);
                // An eighth of what is new: one slow message does not make the generator sleep long.
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
        let wanted = wire::missing(&one.rest, self.template.length()).min(self.piece.len());
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
            return acknowledge(one, id);
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
            Ok(count) => self.publisher.rest.extend(self.piece.iter().take(count)),
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(self.publisher.lost(Some(errno))),
        }
        self.publisher.acknowledgements().map(|_| ())
    }

    fn evaluate(&mut self, run: &mut Run<'_>, arrivals: &Arrivals) {
        let (mut first, mut skew, mut copies) = (Vec::new(), Vec::new(), Vec::new());
        for (message, due) in arrivals.due.iter().enumerate() {
            let stamps = arrivals.of(message);
            let came = || stamps.iter().copied().filter(|stamp| *stamp != 0);
            copies.extend(came().map(|stamp| stamp.saturating_sub(*due)));
            let (Some(earliest), Some(latest)) = (came().min(), came().max()) else {
                continue;
            };
            first.push(earliest.saturating_sub(*due));
            if arrivals.left.get(message) == Some(&0) {
                skew.push(latest - earliest);
                self.rank(stamps);
            }
        }
        let mut late = arrivals.late.clone();
        let of_rate: &[_] = if run.options.rate.is_some() {
            &[LATE]
        } else {
            &[]
        };
        for (names, values) in [
            (FIRST, &mut first),
            (SKEW, &mut skew),
            (COPIES, &mut copies),
        ] {
            quantiles(run, names, self.who, values);
        }
        for names in of_rate {
            quantiles(run, *names, self.who, &mut late);
        }
        let lost = (arrivals.due.len() * arrivals.subscribers) as u64 - arrivals.copies;
        let counts = [
            (LOST, lost),
            (DUPLICATES, arrivals.duplicates),
            (DISORDER, arrivals.disorder),
        ];
        for (name, count) in counts {
            run.report.add(name, self.who, count as f64);
        }
        if arrivals.belated > 0 {
            run.report.note(format!(
                "{}: {} copies counted as lost came after their block.",
                self.who, arrivals.belated
            ));
        }
    }

    fn rank(&mut self, stamps: &[u64]) {
        let mut order: Vec<usize> = (0..stamps.len()).collect();
        order.sort_by_key(|place| stamps.get(*place));
        for (rank, place) in order.iter().enumerate() {
            if let Some(sum) = self.ranks.get_mut(*place) {
                *sum += rank as u64;
            }
        }
        if let Some(firsts) = order.first().and_then(|place| self.firsts.get_mut(*place)) {
            *firsts += 1;
        }
        self.ranked += 1;
    }

    /// Says whether the broker serves some subscribers always before others.
    fn tell_places(&self, run: &mut Run<'_>) {
        let count = self.ranks.len();
        if self.ranked == 0 || count < 2 {
            return;
        }
        let scale = self.ranked as f64 * (count - 1) as f64;
        let places: Vec<f64> = self.ranks.iter().map(|sum| *sum as f64 / scale).collect();
        let mut histogram = [0_u64; 10];
        for place in &places {
            if let Some(bin) = histogram.get_mut(((place * 10.0) as usize).min(9)) {
                *bin += 1;
            }
        }
        let tenths = means(&places, count.min(10));
        let most = self
            .firsts
            .iter()
            .enumerate()
            .max_by_key(|(_, firsts)| **firsts)
            .unwrap_or((0, &0));
        let tenths_text: Vec<String> = tenths.iter().map(|mean| format!("{mean:.2}")).collect();
        let bins: Vec<String> = histogram.iter().map(u64::to_string).collect();
        run.report.note(format!(
            "{}: mean place among a message's copies, 0 first, 1 last, by order of subscription: {}; \
             subscribers with a mean place of 0 to 0.1, to 0.2, ... to 1: {}; number {} was first of all \
             in {:.0} % of the messages.",
            self.who,
            tenths_text.join(" "),
            bins.join(" "),
            most.0 + 1,
            *most.1 as f64 * 100.0 / self.ranked as f64,
        ));
        run.report.list(
            &format!("{}_mean_place", self.who),
            means(&places, count.min(PLACES)),
        );
        run.report.list(
            &format!("{}_mean_place_histogram", self.who),
            histogram.iter().map(|bin| *bin as f64).collect(),
        );
    }

    fn tell_stamps(&self, run: &mut Run<'_>) {
        run.report.note(match (self.sleeps, self.reader.without) {
            (false, _) => format!(
                "{}: stamps: the clock, read after each receive; so they hold the generator's own delay \
                 and the order in which it reads.",
                self.who
            ),
            (true, 0) => format!("{}: stamps: the kernel's, at receipt (SO_TIMESTAMPNS).", self.who),
            (true, without) => format!(
                "{}: stamps: the kernel's, at receipt (SO_TIMESTAMPNS), but for {without} copies, where it \
                 had none: the clock after the receive.",
                self.who
            ),
        });
    }

    fn close(self) {
        self.publisher.close();
        self.subscribers.into_iter().for_each(Connection::close);
    }
}

/// Returns the means of so many groups of neighbours.
fn means(values: &[f64], groups: usize) -> Vec<f64> {
    let bounds = (0..groups).map(|group| {
        (
            group * values.len() / groups,
            (group + 1) * values.len() / groups,
        )
    });
    let parts = bounds.filter_map(|(from, to)| values.get(from..to));
    parts
        .map(|part| part.iter().sum::<f64>() / part.len() as f64)
        .collect()
}

fn quantiles(run: &mut Run<'_>, names: [Name; 3], who: &'static str, values: &mut [u64]) {
    values.sort_unstable();
    if values.is_empty() {
        return;
    }
    for (name, share) in names.into_iter().zip(SHARES) {
        run.report
            .add(name, who, quantile(values, share) as f64 / 1e3);
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
