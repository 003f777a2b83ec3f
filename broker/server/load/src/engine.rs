//! Carries out a scenario: one thread, one epoll, an open-loop schedule.
//!
//! Each message is due at a moment that does not depend on what became of those before it; delays
//! count from there, so that a broker that stops for a while does not hide it (no coordinated
//! omission). What the broker does not take in time is sent later, and late.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::{getsockopt, sockopt};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Target};
use crate::contest::{Contestant, Meter, Run};
use crate::machine::Machine;
use crate::places::Places;
use crate::process::{Process, waited_ns};
use crate::receive::{Listener, TURN};
use crate::scenario::{Group, Kind, Scenario};
use crate::sender::{Schedule, Sender, Sent};
use crate::sequence::Sequence;
use crate::stamps::{Reader, ahead_ns, enable, now_ns};
use crate::stop::Stop;
use crate::tally::{Tally, record};
use crate::values::{address, broker_of};
use crate::wire::Template;
use crate::{Outcome, resent, system};

/// Octets that are read at once.
pub(crate) const READ: usize = 1 << 18;
/// How long it sleeps at least, in ns: what is due meanwhile goes out together.
const NAP_NS: u64 = 50_000;
/// And at most.
const LONGEST_NAP_NS: u64 = 500_000;
/// By how much a sleep may end too late, in ns: that long it stays awake where it has to be on time.
const LATE_NS: u64 = 200_000;
/// How often all windows are given up without a copy in between.
const VAIN: u32 = 3;
/// Messages of a publisher in a trial at most, on several machines.
const MOST_MESSAGES: u64 = 1 << 28;
/// Sockets that are looked at together.
pub(crate) const EVENTS: usize = 1024;
/// Time from the decision to begin until the first message is due, in ns.
const AHEAD_NS: u64 = 2_000_000;

/// All clients of a scenario, connected.
pub struct Engine {
    pub(crate) senders: Vec<Sender>,
    groups: Vec<(Group, Vec<String>)>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) epoll: Epoll,
    pub(crate) reader: Reader,
    pub(crate) piece: Vec<u8>,
    process: Option<Process>,
    pub(crate) streams: Vec<Stream>,
    stamped: bool,
    pub(crate) retained: u64,
    /// Number of a trial's first messages, where others send some of them.
    pub(crate) base: u64,
    /// Whether the groups have windows: what they send depends on what comes.
    is_closed: bool,
    /// Whether the latency of bursts is measured so, and nobody is to be woken meanwhile.
    has_bursts: bool,
    /// Whether it stays awake so that each message leaves when it is due.
    pub punctual: bool,
    /// How long the copies of a burst have taken lately, in ns; and whether one has just left.
    usual_ns: u64,
    just_left: bool,
    /// Who is served first, where that is asked for.
    pub places: Option<Places>,
}

/// A publisher, on whichever machine.
#[derive(Debug)]
pub(crate) struct Stream {
    group: usize,
    /// Which of our own senders it is.
    pub(crate) sender: Option<usize>,
    /// Messages that it sends in this trial at most.
    pub(crate) total: u64,
}

impl Engine {
    /// Connects everybody, on our own machine if there are several.
    ///
    /// # Errors
    /// Where the broker does not take all of them.
    pub fn open(run: &mut Run<'_>, who: &Contestant, scenario: &Scenario) -> Outcome<Self> {
        let target = &who.target;
        run.descriptors(scenario.clients())?;
        let _ = set_timerslack(1);
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll"))?;
        let windows = scenario.group.iter().filter(|one| one.window > 0);
        let mut made = Self {
            senders: Vec::new(),
            groups: Vec::new(),
            listeners: Vec::new(),
            sequences: Vec::new(),
            epoll,
            reader: Reader::default(),
            piece: vec![0; READ],
            process: who.process,
            streams: Vec::new(),
            stamped: run.options.kernel_stamps,
            retained: 0,
            base: 0,
            is_closed: windows.clone().next().is_some(),
            has_bursts: windows.clone().any(|one| one.kind == Kind::Latency),
            punctual: false,
            usual_ns: scenario.clients() as u64 * 5_000,
            just_left: false,
            places: None,
        };
        for group in &scenario.group {
            let names: Vec<String> = (0..group.topics)
                .map(|number| match group.topic.as_str() {
                    "" => format!("{}/{}/{number}", target.prefix, group.name),
                    given => given.to_owned(),
                })
                .collect();
            for topic in &names {
                made.open_topic(run, target, group, topic, scenario)?;
            }
            made.groups.push((group.clone(), names));
        }
        Ok(made)
    }

    fn open_topic(
        &mut self,
        run: &Run<'_>,
        target: &Target,
        group: &Group,
        topic: &str,
        scenario: &Scenario,
    ) -> Outcome<()> {
        let (qos, wanted) = group.qualities();
        let (first, of) = (self.streams.len(), scenario.clients());
        let at = scenario.own.map_or(String::new(), |own| format!("-m{own}"));
        let latency = group.kind == Kind::Latency;
        let place = |made: &Self| made.senders.len() + made.listeners.len();
        let mut sequences = self.sequences.len();
        let filter = match group.shared {
            true => format!("$share/mqtick-load/{topic}"),
            false => topic.to_owned(),
        };
        let (to, from) = (
            targets(target, &group.publisher_brokers)?,
            targets(target, &group.subscriber_brokers)?,
        );
        for (number, target) in from.iter().cycle().take(group.subscribers).enumerate() {
            if !scenario.is_own(&group.subscriber_machines, number) {
                continue;
            }
            self.progress(run, of)?;
            let name = format!("{}-sub{}{at}", group.name, self.listeners.len());
            let mut connection = Connection::open_kept(target, &name, place(self))?;
            connection.subscribe(&filter, wanted)?;
            let template = match target.sn {
                true => Template::of_sensor(topic, 0, group.payload)?,
                false => Template::new(target.version, topic, qos.min(wanted), group.payload, 0)?,
            };
            if latency {
                self.stamped = self.stamped && enable(&connection.stream);
            }
            self.watch(&connection, 2 * self.listeners.len())?;
            if number == 0 || !group.shared {
                sequences = self.sequences.len();
                let more = self.sequences.len() + group.publishers;
                self.sequences.resize(more, Sequence::default());
            }
            self.listeners.push(Listener {
                room: getsockopt(&connection.stream, sockopt::RcvBuf).unwrap_or(READ),
                connection,
                template,
                latency,
                // A burst of one is on its way alone: no second read has to find out.
                turn: if group.window == 1 { 1 } else { TURN },
                first,
                publishers: group.publishers,
                sequences,
                shared: group.shared,
                answers: Vec::new(),
            });
        }
        for (place_in, target) in to.iter().cycle().take(group.publishers).enumerate() {
            let is_own = scenario.is_own(&group.publisher_machines, place_in);
            let stream = self.streams.len();
            let number = self.senders.len();
            self.streams.push(Stream {
                group: self.groups.len(),
                sender: is_own.then_some(number),
                total: 0,
            });
            if !is_own {
                continue;
            }
            self.progress(run, of)?;
            let name = format!("{}-pub{stream}", group.name);
            let mut connection = Connection::open(target, &name, place(self))?;
            let template = match target.sn {
                true => Template::of_sensor(topic, connection.register(topic)?, group.payload)?,
                false => Template::new_retained(
                    target.version,
                    topic,
                    qos,
                    group.payload,
                    stream as u32,
                    group.retain,
                )?,
            };
            self.watch(&connection, 2 * number + 1)?;
            let stamps = latency && group.window == 0;
            let sender = Sender::new(connection, template, qos, group.copies(), latency, stamps);
            self.stamped =
                self.stamped && (!stamps || sender.is_stamped() || target.is_datagrams());
            self.senders.push(sender);
        }
        Ok(())
    }

    fn progress(&self, run: &Run<'_>, of: usize) -> Outcome<()> {
        let open = self.senders.len() + self.listeners.len();
        if open.is_multiple_of(100) {
            run.progress(&format!("{open} of {of} connections"));
        }
        run.stop.check()
    }

    fn watch(&self, connection: &Connection, token: usize) -> Outcome<()> {
        connection.unblock()?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, token as u64);
        self.epoll
            .add(&connection.stream, event)
            .map_err(system("epoll"))
    }

    /// Whether both ends of what is measured have the kernel's stamps.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.stamped
    }

    /// Returns publisher, number, due and left of the messages whose latency is measured, of those
    /// that were due when `holds` says so.
    #[must_use]
    pub fn left(&self, holds: impl Fn(u64) -> bool) -> Vec<(u32, u64, u64, u64)> {
        let mut all = Vec::new();
        for (stream, one) in self.streams.iter().enumerate() {
            let sender = one.sender.and_then(|own| self.senders.get(own));
            let Some(sender) = sender else { continue };
            let sent = sender.sent.iter().zip(sender.first..);
            let held = sent.filter(|(sent, _)| holds(sent.due));
            all.extend(held.map(|(sent, number)| (stream as u32, number, sent.due, sent.left)));
        }
        all
    }

    /// What became of the messages of the last trial whose latency is measured.
    pub fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.senders.iter().flat_map(|one| &one.sent)
    }

    /// Copies that had no stamp of the kernel.
    #[must_use]
    pub fn unstamped(&self) -> u64 {
        self.reader.without
    }

    /// Messages that came because they had been retained before the run.
    #[must_use]
    pub fn retained(&self) -> u64 {
        self.retained
    }

    /// Sends for a while, waits for the rest, and says what happened.
    ///
    /// `scale`: what the intervals of the load are multiplied by. `patience`: how long nothing may
    /// come before the rest counts as lost.
    ///
    /// # Errors
    /// Where the broker closed, or sent what nobody sent.
    pub fn trial(
        &mut self,
        stop: &Stop,
        scenario: &Scenario,
        scale: f64,
        patience: Duration,
        tally: &mut Tally,
    ) -> Outcome<()> {
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let begin = match &tally.apart {
            Some(apart) => {
                self.renumber();
                apart.begin
            }
            None => now_ns() + AHEAD_NS,
        };
        let end = begin + ns(scenario.seconds);
        tally.window = (
            begin + ns(scenario.ramp_up_s),
            end - ns(scenario.ramp_down_s),
        );
        let mut due = BinaryHeap::new();
        let mut until = begin;
        for (place, stream) in self.streams.iter_mut().enumerate() {
            let Some(group) = scenario.group.get(stream.group) else {
                continue;
            };
            let interval = group.interval_ns(scale);
            let all = group.topics * group.publishers;
            let phase = if group.together {
                0.0
            } else {
                (place % all) as f64 / all as f64
            };
            let schedule = Schedule {
                begin: begin + (interval * phase) as u64,
                interval,
                end,
                most: group.messages.unwrap_or(u64::MAX),
                window: group.window,
                burst: group.burst,
            };
            stream.total = schedule.count(0, u64::MAX);
            let last = schedule.due(stream.total.saturating_sub(1));
            until = until.max(last.filter(|_| interval > 0.0).unwrap_or(end));
            if let Some(own) = stream.sender
                && let Some(sender) = self.senders.get_mut(own)
            {
                sender.begin(schedule);
                due.extend(schedule.due(0).map(|first| Reverse((first, own))));
            }
        }
        if let Some(apart) = &mut tally.apart {
            (apart.until, apart.owed) = (until, self.owed());
        }
        let without = self.reader.without;
        let (machine, resent) = (Machine::read(), self.resent());
        let (meter, ahead) = (Meter::start(self.process)?, ahead_ns());
        let (began, waited) = (Instant::now(), waited_ns());
        let result = self.traffic(stop, due, patience, tally);
        let seconds = began.elapsed().as_secs_f64();
        let (cost, own) = meter.read()?;
        (tally.cost, tally.own_ns) = (cost, own);
        tally.step_ns = ahead_ns() - ahead;
        tally.own_share = own as f64 / 1e9 / seconds;
        tally.waited_share = waited_ns().saturating_sub(waited) as f64 / 1e9 / seconds;
        tally.idle_share = Machine::read().idle_since(&machine);
        tally.resent = self.resent().saturating_sub(resent);
        tally.unstamped += self.reader.without - without;
        self.close(tally);
        result
    }

    /// Has each publisher, on whichever machine, begin the trial at the same number.
    fn renumber(&mut self) {
        self.base += MOST_MESSAGES;
        for one in &mut self.senders {
            one.next = self.base;
            one.give_up();
        }
        self.sequences.fill(Sequence::from(self.base));
    }

    /// Copies that our subscribers are to have of all publishers, wherever they are.
    fn owed(&self) -> u64 {
        let (mut owed, mut shared) = (0_u64, None);
        for one in &self.listeners {
            if one.shared && shared.replace(one.sequences) == Some(one.sequences) {
                continue;
            }
            let streams = self.streams.iter().skip(one.first).take(one.publishers);
            owed = streams.fold(owed, |sum, stream| sum.saturating_add(stream.total));
        }
        owed
    }

    fn resent(&self) -> u64 {
        let senders = self.senders.iter().map(|one| &one.connection);
        let all = senders.chain(self.listeners.iter().map(|one| &one.connection));
        all.map(|one| resent::segments(&one.stream)).sum()
    }

    fn traffic(
        &mut self,
        stop: &Stop,
        mut due: BinaryHeap<Reverse<(u64, usize)>>,
        patience: Duration,
        tally: &mut Tally,
    ) -> Outcome<()> {
        let (mut waiting, mut looked) = (Vec::new(), Instant::now());
        let (mut last, mut vain, mut delivered) = (Instant::now(), 0, 0);
        loop {
            let now = now_ns();
            let mut dirty = std::mem::take(&mut waiting);
            while let Some(Reverse((_, place))) = due.peek().filter(|one| one.0.0 <= now) {
                dirty.push(*place);
                due.pop();
            }
            for place in dirty {
                if let Some(next) = self.serve(place, now, tally)? {
                    if next <= now {
                        waiting.push(place)
                    } else {
                        due.push(Reverse((next, place)))
                    }
                }
            }
            let came = self.rest(&due, waiting.is_empty(), tally)?;
            let apart = tally.apart.as_ref();
            let (until, owed) = apart.map_or((0, tally.copies), |one| (one.until, one.owed));
            if came > 0 || !due.is_empty() || now < until {
                last = Instant::now();
            }
            let all_sent = due.is_empty() && waiting.is_empty();
            // Others still wait for what leaves here, so that each handshake has to end first.
            let is_settled = || apart.is_none() || self.senders.iter().all(Sender::is_settled);
            let has_all = || tally.delivered >= owed || self.is_closed && self.windows().0 == 0;
            if all_sent && has_all() && is_settled() {
                return Ok(());
            }
            if last.elapsed() > patience {
                vain = if tally.delivered > delivered {
                    0
                } else {
                    vain + 1
                };
                if !self.is_closed || all_sent || vain == VAIN {
                    return Ok(());
                }
                (last, delivered) = (Instant::now(), tally.delivered);
                self.give_up();
            }
            if looked.elapsed() > Duration::from_millis(20) {
                looked = Instant::now();
                if stop.asked() {
                    tally.stopped = true;
                    return Ok(());
                }
            }
        }
    }

    /// Sleeps where nothing else is to be done, and reads what has come; returns from how many
    /// sockets.
    ///
    /// While it sleeps nobody waits in epoll: the broker's sends wake nobody, and more is read at
    /// once. Only where most of a window is free somebody has to be woken.
    fn rest(
        &mut self,
        due: &BinaryHeap<Reverse<(u64, usize)>>,
        is_free: bool,
        tally: &mut Tally,
    ) -> Outcome<usize> {
        let left = || {
            due.peek()
                .map_or(u64::MAX, |one| one.0.0.saturating_sub(now_ns()))
        };
        let sleep = |ns: u64| sleep(Duration::from_nanos(ns));
        let just_left = std::mem::take(&mut self.just_left);
        let (on_way, windows) = if self.is_closed {
            self.windows()
        } else {
            (0, 0)
        };
        if on_way > 0 {
            if !self.stamped || !self.has_bursts && 2 * on_way <= windows {
                return self.drain(u8::from(left() > 1_000_000), tally);
            }
            let usual = self.usual_ns + self.usual_ns / 8;
            sleep(if just_left {
                usual.clamp(NAP_NS, 1_000_000_000)
            } else {
                NAP_NS
            });
            return self.drain(0, tally);
        }
        let came = self.drain(0, tally)?;
        let left = left();
        if self.punctual && left > LATE_NS && came == 0 {
            sleep((left - LATE_NS).min(LONGEST_NAP_NS));
        } else if !self.punctual && left > 0 && (came == 0 || left > NAP_NS) {
            let nap = if is_free { left } else { NAP_NS };
            sleep(nap.clamp(NAP_NS, LONGEST_NAP_NS));
        }
        Ok(came)
    }

    /// Returns how many messages are on their way in windows, and how many could be.
    fn windows(&self) -> (u64, u64) {
        let all = self.senders.iter().filter(|one| one.schedule.window > 0);
        all.fold((0, 0), |(on_way, windows), one| {
            (on_way + one.on_way(), windows + one.schedule.window)
        })
    }

    /// Sends what one publisher has to send; returns when it is to be asked again.
    fn serve(&mut self, place: usize, now: u64, tally: &mut Tally) -> Outcome<Option<u64>> {
        let Some(sender) = self.senders.get_mut(place) else {
            return Ok(None);
        };
        let had_room = sender.flush()?;
        // What the broker has not taken when the trial ends is not sent any more.
        let over = now >= sender.schedule.end;
        let is_burst = sender.latency && sender.schedule.window > 0;
        let took = (is_burst && sender.on_way() == 0).then(|| sender.took());
        let added = if over { 0 } else { sender.add_due(now) };
        if is_burst && added > 0 {
            self.just_left = true;
            // An eighth of what is new: one slow message does not make for long sleeps.
            let took = took.flatten().unwrap_or(self.usual_ns);
            self.usual_ns = (self.usual_ns * 7 + took) / 8;
        }
        tally.sent += added;
        tally.copies += added * sender.copies as u64;
        if tally.holds(now) {
            tally.ingress += added;
            if !sender.schedule.is_open() {
                // Without a schedule, what was sent is what was offered.
                tally.offered += added;
                tally.owed += added * sender.copies as u64;
            }
        }
        if had_room && sender.schedule.is_open() {
            let dues =
                (sender.count() - added..sender.count()).filter_map(|n| sender.schedule.due(n));
            dues.for_each(|due| record(&mut tally.late, now.saturating_sub(due)));
        }
        let flushed = sender.flush()?;
        if let Some(csv) = tally.csv.as_mut() {
            for _ in 0..added {
                csv.sent(place, now)?;
            }
        }
        let next = sender.due().filter(|_| !over);
        Ok(match next {
            Some(due) if sender.has_room() && flushed => Some(due.max(now.saturating_add(1))),
            None if flushed => None,
            _ => Some(now),
        })
    }

    /// Ends a trial: counts what was due, and gives up what has not come.
    fn close(&mut self, tally: &mut Tally) {
        let (from, to) = tally.window;
        let mut is_over = true;
        for sender in &mut self.senders {
            if sender.schedule.is_open() {
                let due = sender.schedule.count(from, to);
                tally.offered += due;
                tally.owed += due * sender.copies as u64;
                let all = sender.schedule.count(0, u64::MAX);
                tally.refused += all.saturating_sub(sender.count());
            }
            is_over &= sender.count() == sender.schedule.most;
        }
        self.give_up();
        if let Some(apart) = &mut tally.apart {
            apart.is_over = is_over;
        } else if is_over {
            // The messages were fewer than the time would have allowed.
            tally.window.1 = tally.last_ns.clamp(from + 1, to);
        }
    }

    /// Gives up what has not come: no window has anything on its way.
    fn give_up(&mut self) {
        self.senders.iter_mut().for_each(Sender::give_up);
        for one in &self.listeners {
            for own in 0..one.publishers {
                let stream = self.streams.get(one.first + own);
                let sender = stream.and_then(|stream| self.senders.get(stream.sender?));
                let next = sender.map_or(0, |sender| sender.next);
                if let Some(sequence) = self.sequences.get_mut(one.sequences + own) {
                    sequence.skip_to(next);
                }
            }
        }
    }

    /// Has the broker forget what a run made it retain.
    pub fn forget_retained(&mut self) {
        for (place, stream) in self.streams.iter().enumerate() {
            let group = self.groups.get(stream.group);
            let sender = stream.sender.and_then(|own| self.senders.get_mut(own));
            if let Some((group, topics)) = group.filter(|(group, _)| group.retain)
                && let Some(sender) = sender
            {
                let own = place % (group.topics * group.publishers) / group.publishers;
                if let Some(topic) = topics.get(own) {
                    sender.forget_retained(topic);
                }
            }
        }
    }
}

/// Returns the brokers among which clients take turns.
fn targets(target: &Target, brokers: &[String]) -> Outcome<Vec<Target>> {
    if brokers.is_empty() {
        return Ok(vec![target.clone()]);
    }
    let named = |broker: &String| {
        let address = address(&broker_of(broker)?)?;
        Ok(Target {
            address,
            ..target.clone()
        })
    };
    brokers.iter().map(named).collect()
}
