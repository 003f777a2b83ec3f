//! A trial of a scenario: one thread, one epoll, an open-loop schedule or windows.
//!
//! In a schedule the moment at which a message is due does not depend on earlier messages, and its
//! delay counts from there: a broker that pauses cannot hide it (no coordinated omission). A
//! message that the broker does not take in time is sent later, and is late. With windows, the next
//! messages leave when copies have come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::results::tally::{Tally, record};
use crate::run::busy::Busy;
use crate::run::contest::Meter;
use crate::run::engine::Engine;
use crate::run::schedule::Schedule;
use crate::run::sender::Sender;
use crate::run::sequence::Sequence;
use crate::settings::scenario::Scenario;
use crate::system::clocks::{Look, ahead_ns, now_ns};
use crate::system::stop::Stop;
use mqtick_net::failure::Outcome;
use mqtick_net::socket::troubles;

/// Shortest sleep, in ns: messages that are due meanwhile leave together.
const NAP_NS: u64 = 50_000;
/// Longest sleep, in ns.
const LONGEST_NAP_NS: u64 = 500_000;
/// How much too late a sleep may end, in ns: it stays awake for so long where it has to be
/// punctual.
const LATE_NS: u64 = 200_000;
/// Times that all windows are given up without a copy in between.
const VAIN: u32 = 3;
/// Most messages of a publisher in a trial on several machines.
const MOST_MESSAGES: u64 = 1 << 28;
/// Time until the first message is due, in ns.
const AHEAD_NS: u64 = 2_000_000;

impl Engine {
    /// Runs a trial.
    ///
    /// `scale` multiplies the intervals of the load. After a silence of `patience` the copies that
    /// are missing count as lost.
    ///
    /// # Errors
    /// Where the broker closed, or sent a message that was not published.
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
            apart.owed = self.owed();
        }
        let without = self.reader.without;
        let (meter, ahead) = (Meter::start(self.process)?, ahead_ns());
        let (resent, mut busy) = (self.resent(), Busy::default());
        let result = self.traffic(stop, due, begin..until, &mut busy, patience, tally);
        busy.follow(false, tally);
        (tally.cost, tally.own_ns) = meter.read()?;
        tally.step_ns = ahead_ns() - ahead;
        tally.resent = self.resent().saturating_sub(resent);
        tally.unstamped += self.reader.without - without;
        // A trial that was stopped ends now.
        let is_cut = result.is_err() || tally.stopped;
        self.close(tally, if is_cut { now_ns() } else { u64::MAX });
        result
    }

    /// Sets the number of each publisher's first message, the same on all machines.
    fn renumber(&mut self) {
        self.base += MOST_MESSAGES;
        let base = self.base;
        self.senders.iter_mut().for_each(|one| one.renumber(base));
        self.sequences.fill(Sequence::from(self.base));
    }

    /// Copies that this machine's subscribers should get of all publishers.
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
        let troubles = all.filter_map(|one| troubles(&one.stream));
        troubles.map(|(resent, _)| u64::from(resent)).sum()
    }

    /// Sends and reads until all has come. `span`: from when the first message is due to when the
    /// last one is.
    fn traffic(
        &mut self,
        stop: &Stop,
        mut due: BinaryHeap<Reverse<(u64, usize)>>,
        span: Range<u64>,
        busy: &mut Busy,
        patience: Duration,
        tally: &mut Tally,
    ) -> Outcome<()> {
        let (mut dirty, mut waiting, mut looked) = (Vec::new(), Vec::new(), Instant::now());
        let (mut last, mut vain, mut delivered) = (looked, 0, 0);
        loop {
            let (now, moment) = (now_ns(), Instant::now());
            std::mem::swap(&mut dirty, &mut waiting);
            while let Some(Reverse((_, place))) = due.peek().filter(|one| one.0.0 <= now) {
                dirty.push(*place);
                due.pop();
            }
            for place in dirty.drain(..) {
                if let Some(next) = self.serve(place, now, tally)? {
                    if next <= now {
                        waiting.push(place)
                    } else {
                        due.push(Reverse((next, place)))
                    }
                }
            }
            let came = self.rest(&due, waiting.is_empty(), tally)?;
            let all_sent = due.is_empty() && waiting.is_empty();
            let is_apart = tally.apart.is_some();
            if now >= span.start {
                busy.follow(now < span.end && (is_apart || !all_sent), tally);
            }
            let owed = tally.apart.as_ref().map_or(tally.copies, |one| one.owed);
            if came > 0 || !due.is_empty() || is_apart && now < span.end {
                last = moment;
            }
            // Other machines may wait for messages of ours that have not left, and messages that
            // are not acknowledged have to be counted.
            let is_settled = || self.senders.iter().all(Sender::is_settled);
            let has_all = || tally.delivered >= owed || self.is_closed && self.windows().0 == 0;
            if all_sent && has_all() && is_settled() {
                return Ok(());
            }
            if moment.duration_since(last) > patience {
                vain = if tally.delivered > delivered {
                    0
                } else {
                    vain + 1
                };
                if !self.is_closed || all_sent || vain == VAIN {
                    return Ok(());
                }
                (last, delivered) = (moment, tally.delivered);
                self.give_up();
            }
            if moment.duration_since(looked) > Duration::from_millis(20) {
                looked = moment;
                if let Some(apart) = tally.apart.as_mut().filter(|one| !one.looks.is_empty()) {
                    apart.looks.push(Look::take());
                }
                if stop.asked() {
                    tally.stopped = true;
                    return Ok(());
                }
            }
        }
    }

    /// Sleeps if there is nothing to do, and reads what has come; returns from how many sockets.
    ///
    /// It sleeps rather than waits in epoll, so that the broker's sends do not have to wake it, and
    /// more is read at once. It waits only where most of a window is free.
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

    /// Returns how many messages are on their way in windows, and how many may be.
    fn windows(&self) -> (u64, u64) {
        let all = self.senders.iter().filter(|one| one.schedule.window > 0);
        all.fold((0, 0), |(on_way, windows), one| {
            (on_way + one.on_way(), windows + one.schedule.window)
        })
    }

    /// Sends what a publisher has to send; returns when to call it again.
    fn serve(&mut self, place: usize, now: u64, tally: &mut Tally) -> Outcome<Option<u64>> {
        let Some(sender) = self.senders.get_mut(place) else {
            return Ok(None);
        };
        sender.flush()?;
        // At the end of the trial no more messages are added.
        let over = now >= sender.schedule.end;
        let is_burst = sender.latency && sender.schedule.window > 0;
        let took = (is_burst && sender.on_way() == 0).then(|| sender.took());
        let mut added = if over { 0 } else { sender.add_due(now) };
        let mut flushed = sender.flush()?;
        while flushed && added > 0 && sender.schedule.window > 0 {
            let more = sender.add_due(now);
            if more == 0 {
                break;
            }
            added += more;
            flushed = sender.flush()?;
        }
        if is_burst && added > 0 {
            self.just_left = true;
            // A slow average: one slow message does not cause long sleeps.
            let took = took.flatten().unwrap_or(self.usual_ns);
            self.usual_ns = (self.usual_ns * 7 + took) / 8;
        }
        if added > 0 {
            tally.last_ns = tally.last_ns.max(now);
        }
        tally.sent += added;
        tally.copies += added * sender.copies as u64;
        let written = sender.written();
        if tally.holds(now) {
            tally.ingress += written;
            if !sender.schedule.is_open() {
                // Without a schedule, what was written is what was offered.
                tally.offered += written;
                tally.owed += written * sender.copies as u64;
            }
        }
        if sender.schedule.is_open() {
            let dues =
                (sender.count() - added..sender.count()).filter_map(|n| sender.schedule.due(n));
            // Time in which the broker took nothing is not our lateness.
            let own = dues.map(|due| now.saturating_sub(due.max(sender.held_up)));
            own.for_each(|late| record(&mut tally.late, late));
        }
        if let Some(csv) = tally.csv.as_mut().filter(|_| sender.latency) {
            for _ in 0..added {
                csv.sent(place, now)?;
            }
        }
        let next = sender.due().filter(|_| !over);
        Ok(match next {
            Some(due) if sender.has_room() && flushed => Some(due.max(now.saturating_add(1))),
            None if flushed => None,
            _ => {
                sender.held_up = now;
                Some(now)
            }
        })
    }

    /// Ends a trial: counts what was due, and gives up what is missing.
    fn close(&mut self, tally: &mut Tally, until: u64) {
        let (from, to) = tally.window;
        let to = until.clamp(from, to);
        tally.window.1 = to;
        let mut is_over = true;
        for sender in &mut self.senders {
            if sender.schedule.is_open() {
                let due = sender.schedule.count(from, to);
                tally.offered += due;
                tally.owed += due * sender.copies as u64;
                let all = sender.schedule.count(0, until);
                tally.refused += all.saturating_sub(sender.count());
            }
            is_over &= sender.count() == sender.schedule.most;
            tally.unanswered += sender.unanswered();
            tally.unstamped += sender.unstamped();
        }
        self.give_up();
        if let Some(apart) = &mut tally.apart {
            apart.is_over = is_over;
        } else if is_over {
            // All messages were sent before the time was over.
            tally.window.1 = tally.last_ns.clamp(from, to);
        }
    }

    /// Gives up what is missing, so that all windows are empty.
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
}
