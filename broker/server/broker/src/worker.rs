//! One thread's loop: connections come, bring packets, and go.

use crate::batch::Batch;
use crate::coalescing::Coalescing;
use crate::connection::{Connection, End};
use crate::door::Door;
use crate::link::{Link, Place};
use crate::memory;
use crate::reason;
use crate::receiver::DatagramReceiver;
use crate::retained::Retained;
use crate::router::{Router, Served};
use crate::sensor::Sending;
use crate::session::Session;
use crate::shared::{Access, Call, Shared};
use crate::sn;
use crate::udp::DatagramSocket;
use crate::upstream::LINES;
use mqtick_net::listener::Listener;
use mqtick_net::poller::{CALLED, Poller};
use mqtick_net::transport::Transport;
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const READ: usize = 1 << 17; // octets at a time
const SLACK_NS: std::ffi::c_ulong = 1_000;
const ACCEPT: usize = 64; // connections at a time
const FIRST_TOKEN: u64 = 1 << 16; // of connections; lower ones are of listeners and UDP sockets
const DATAGRAMS: u64 = FIRST_TOKEN - 1;
const SENSORS: u64 = FIRST_TOKEN - 2;
const WAIT_MS: u16 = 1000; // to the next second
const ENDED: usize = 256; // work to end a connection, in copies of a message
const LATE: usize = 128; // connections that are ended at a time
const JUDGED: usize = 16; // connections whose queues are judged at a time
const SHIFTED: usize = 512; // sessions that are written at a time
const LEAVE_MS: u16 = 10; // between two groups of farewells
const PAUSE_MS: u16 = 10; // shortest pause in accepting, where the rate limit is reached
/// Connections that the rate limit allows and that do not come add up for this time.
const SAVED: Duration = Duration::from_millis(100);

/// Whether the process or the machine has run out of descriptors or memory: another try at once
/// would fail, too.
fn is_scarce(error: &std::io::Error) -> bool {
    let errors = [Errno::EMFILE, Errno::ENFILE, Errno::ENOBUFS, Errno::ENOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| errors.contains(&Errno::from_raw(code)))
}

/// A thread's connections and listeners.
pub struct Worker {
    router: Router,
    poller: Arc<Poller>,
    listeners: Vec<Listener>,
    door: Option<(DatagramReceiver, Door)>,
    gate: Option<(DatagramReceiver, sn::Door)>,
    connections: HashMap<u64, Connection>,
    waiting: HashSet<u64>,
    busy: VecDeque<u64>, // whose turn has ended before their work
    late: Vec<u64>,      // connections to end
    judged: (Option<Arc<Access>>, Vec<u64>), // connections to judge, and by which change
    is_due: bool,        // sessions may end, or wills be due
    sifted: Option<String>, // from which topic on retained messages may have expired
    shifted: Vec<Arc<Session>>, // to write again, since the system's clock was set
    next_token: u64,
    buffer: Vec<u8>,
    spare: Vec<u8>,
    states_residence: bool,
    every: Duration, // time between two connections at the rate limit
    next: Instant,   // when the next one may be accepted
    is_pausing: bool,
    starved: bool, // no descriptors: accept nothing until a connection ends, or the second does
    puts_off: bool, // until the next second: to end MQTT-SN clients that are late
    leaving: Option<Leaving>,
    calls: VecDeque<Call>, // taken, but not carried out yet
}

/// The time in which clients are told, one after another, that the broker ends.
struct Leaving {
    until: Instant,
    over: Duration,
    connections: usize, // when the shutdown began
}

impl Worker {
    /// A worker without connections.
    pub fn new(shared: &Arc<Shared>, number: usize, listeners: Vec<Listener>) -> Option<Self> {
        let poller = Arc::clone(&shared.callers.get(number)?.poller);
        let share = Duration::from_secs(shared.callers.len() as u64);
        let rate = shared.settings.limits.connections_a_second;
        let receiver = |socket: &Option<Arc<DatagramSocket>>, token| {
            let socket = socket.as_ref().filter(|_| number == 0);
            let receiver = socket.map(|socket| DatagramReceiver::open(socket, &poller, token));
            receiver.transpose().ok()
        };
        let datagrams = receiver(&shared.datagrams, DATAGRAMS)?;
        let sensors = receiver(&shared.sensors, SENSORS)?;
        let door = datagrams.and_then(|receiver| Some((receiver, Door::new(shared)?)));
        let gate = sensors.and_then(|receiver| Some((receiver, sn::Door::new(shared, number)?)));
        Some(Self {
            router: Router::new(shared, number),
            poller,
            listeners,
            door,
            gate,
            connections: HashMap::new(),
            waiting: HashSet::new(),
            busy: VecDeque::new(),
            late: Vec::new(),
            judged: (None, Vec::new()),
            is_due: false,
            sifted: None,
            shifted: Vec::new(),
            next_token: FIRST_TOKEN + number as u64,
            buffer: vec![0; READ],
            spare: Vec::new(),
            states_residence: shared.states_residence(),
            every: share.checked_div(rate).unwrap_or_default(),
            next: Instant::now(),
            is_pausing: true,
            starved: false,
            puts_off: false,
            calls: VecDeque::new(),
            leaving: None,
        })
    }

    /// Work until told to stop, also after a panic: that only ends the connections of this worker's
    /// clients.
    pub fn run_on(mut self) {
        while catch_unwind(AssertUnwindSafe(|| self.run())).is_err() {
            self.router.shared.counters.restarts.fetch_add(1, Relaxed);
            self.router.context.arrived = None;
            self.router.context.batch = Batch::default();
            self.router.context.sensors = Sending::default();
            self.router.came = None;
            self.router.served = Served::Nobody;
            mqtick_net::log::error(
                "a worker failed and begins anew; its clients must connect again",
            );
            for (_, mut connection) in self.connections.drain() {
                self.poller.forget(&connection.socket);
                let end = || {
                    // Nothing may be sent after what may be half a packet.
                    let why = if connection.is_idle() {
                        End::because(reason::UNSPECIFIED, "the broker failed")
                    } else {
                        connection.socket.shut_down();
                        End::Gone
                    };
                    connection.end(&mut self.router, &why);
                };
                let _ = catch_unwind(AssertUnwindSafe(end));
                connection.socket.shut_down();
            }
            if let Some((_, door)) = &mut self.door {
                let _ = catch_unwind(AssertUnwindSafe(|| door.forget_all(&mut self.router)));
            }
            if let Some((_, gate)) = &mut self.gate {
                let _ = catch_unwind(AssertUnwindSafe(|| gate.forget_all(&mut self.router)));
            }
            // Links of other workers' clients may be listed there, and would not be listed again.
            let _ = catch_unwind(AssertUnwindSafe(|| self.router.flush()));
        }
    }

    fn run(&mut self) {
        let mut events = Vec::new();
        let mut cut = None; // how many events of the last round were not left for this one
        let mut second = 0;
        if !self.calls.is_empty() {
            self.called(); // calls that were left when the worker failed
        }
        let mut coalescing = Coalescing::new(Instant::now());
        let gather = Duration::from_micros(self.router.shared.settings.delivery.gather_us);
        if !gather.is_zero() {
            let _ = nix::sys::prctl::set_timerslack(SLACK_NS); // else sleeps may last twice as long
        }
        loop {
            let now_s = self.router.shared.now_s();
            if now_s != second {
                self.tick(now_s, now_s.saturating_sub(second + 1));
                second = now_s;
            }
            self.work();
            self.settle();
            self.poller.wait(&mut events, self.patience_ms());
            // Those for whom there was no time come first.
            let late = cut.take().map_or(0, |at: usize| at.min(events.len()));
            events.rotate_left(late);
            if self.is_pausing && !self.starved && self.next <= Instant::now() {
                self.listen(true);
            }
            self.router.context.now_ms = self.router.shared.now_ms();
            self.router.context.now_s = self.router.context.now_ms / 1000;
            // Take the stamps of departures first, so that the next copies can state them. A
            // connection that has failed has more flags than EPOLLERR.
            for (token, flags) in &mut events {
                if flags.contains(EpollFlags::EPOLLERR)
                    && let Some(connection) = self.connections.get_mut(token)
                    && connection.take_departures()
                {
                    flags.remove(EpollFlags::EPOLLERR);
                }
            }
            let received = self.router.received;
            self.router.begin_round();
            for (at, &(token, flags)) in events.iter().enumerate() {
                if self.router.ends_round() {
                    cut = Some(at);
                    break; // the other events come again
                }
                if token == CALLED {
                    self.called();
                } else if token == DATAGRAMS {
                    if let Some((receiver, door)) = &mut self.door {
                        receiver.ready(&mut self.router, flags, door);
                    }
                } else if token == SENSORS {
                    if let Some((receiver, gate)) = &mut self.gate {
                        receiver.ready(&mut self.router, flags, gate);
                    }
                } else if token < FIRST_TOKEN {
                    self.accept(token);
                } else if token >= LINES {
                    if let Some((_, gate)) = &mut self.gate {
                        gate.upstream_ready(&mut self.router, token, flags);
                    }
                } else {
                    self.ready(token, flags);
                }
            }
            if self.router.gathers {
                self.router.flush();
            }
            let received = self.router.received.saturating_sub(received);
            if !gather.is_zero() {
                self.router.gathers = coalescing.gathers(received, Instant::now())
                    && !self.router.shared.was_urgent(self.router.context.now_s);
                if self.router.gathers {
                    std::thread::sleep(gather);
                }
            }
            if self.leave() {
                if let Some((_, gate)) = &mut self.gate {
                    gate.stop();
                }
                return self.router.count();
            }
        }
    }

    /// How long to wait for events.
    fn patience_ms(&self) -> u16 {
        if !self.rests() {
            return 0;
        }
        if self.leaving.is_some() {
            return LEAVE_MS;
        }
        let second_ms = WAIT_MS - (self.router.context.now_ms % u64::from(WAIT_MS)) as u16;
        if !self.is_pausing || self.starved {
            return second_ms;
        }
        let until = self.next.saturating_duration_since(Instant::now());
        let until_ms = u16::try_from(until.as_millis()).unwrap_or(WAIT_MS);
        until_ms.max(PAUSE_MS).min(second_ms)
    }

    /// Go on with packets and connections that have waited for the disk. The store wakes the worker
    /// for those that still wait.
    fn settle(&mut self) {
        if self.router.context.journal.is_none() {
            return;
        }
        self.router.came = None; // when those packets came is not known any more
        self.settle_searches();
        if let Some((_, gate)) = &mut self.gate {
            gate.settle(&mut self.router);
        }
        let rate = self
            .router
            .shared
            .settings
            .limits
            .publishes_a_second_a_client;
        let mut rested = Vec::new();
        for token in &self.waiting {
            if let Some(connection) = self.connections.get_mut(token)
                && !connection.is_waiting(rate)
                && !connection.is_crowded(&self.router)
            {
                rested.push(*token);
            }
        }
        for token in &rested {
            self.waiting.remove(token);
            self.resume(*token);
        }
        if !self.waiting.is_empty() || !rested.is_empty() {
            self.router.flush();
            self.settle_searches();
        }
    }

    fn settle_searches(&mut self) {
        loop {
            let settled = self.router.settle();
            if settled.is_empty() {
                return;
            }
            for token in settled {
                self.search(token);
            }
        }
    }

    /// A client takes more: go on with what it has asked for.
    fn search(&mut self, token: u64) {
        let connection = self.connections.get_mut(&token);
        if let Some(connection) = connection.filter(|one| !one.searches.is_empty()) {
            self.router.begin_turn();
            connection.search(&mut self.router);
            let is_busy = connection.is_busy;
            self.router.flush();
            if is_busy {
                self.pause(token);
            }
        }
    }

    /// Whether `work` has nothing to do.
    fn rests(&self) -> bool {
        self.busy.is_empty()
            && self.late.is_empty()
            && self.judged.1.is_empty()
            && self.shifted.is_empty()
            && self.sifted.is_none()
            && !self.is_due
            && self.router.context.remains.is_empty()
    }

    /// Do a part of what has to be done and is much: connections and events come between.
    fn work(&mut self) {
        if self.rests() {
            return;
        }
        let now_s = self.router.context.now_s;
        self.router.context.arrived = None;
        if !self.router.context.remains.is_empty() {
            self.router.sweep();
            self.router.flush();
        }
        if self.is_due {
            self.is_due = self.router.end_due();
            self.router.flush();
        }
        if let Some(from) = self.sifted.take() {
            let is_over = |expires_s| expires_s <= now_s;
            let lasts = |one: &Retained| !one.kept.message().expires_s.is_some_and(is_over);
            self.sifted = self.router.shared.sift_retained(&from, lasts);
        }
        for session in self
            .shifted
            .split_off(self.shifted.len().saturating_sub(SHIFTED))
        {
            let mut state = session.lock();
            if state.link.is_none() {
                state.keep(&mut self.router.context);
            }
        }
        for token in self
            .judged
            .1
            .split_off(self.judged.1.len().saturating_sub(JUDGED))
        {
            self.judge(token);
        }
        for token in self.late.split_off(self.late.len().saturating_sub(LATE)) {
            let late = self.connections.get(&token);
            if late.is_some_and(|one| one.is_late(self.router.context.now_ms)) {
                let why = "nothing was heard for 1.5 times the keep-alive, or no CONNECT came";
                self.end(token, &End::Because(reason::KEEP_ALIVE, why.into()));
            }
        }
        if let Some(token) = self.busy.pop_front() {
            self.waiting.remove(&token);
            self.router.came = None; // when its packets came is not known any more
            self.resume(token);
            self.router.flush();
        }
    }

    /// Judge a connection by the present access rules.
    fn judge(&mut self, token: u64) {
        let connection = self.connections.get_mut(&token);
        let connection = connection.filter(|one| one.is_unjudged);
        if let Some((connection, before)) = connection.zip(self.judged.0.as_ref()) {
            connection.is_unjudged = false;
            let judged = connection.judge(&mut self.router, before);
            self.router.flush();
            if let Err(end) = judged {
                self.end(token, &end);
            }
        }
    }

    fn resume(&mut self, token: u64) {
        let rate = self
            .router
            .shared
            .settings
            .limits
            .publishes_a_second_a_client;
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        connection.pause(false);
        match connection.go_on(&mut self.router) {
            Err(end) => self.end(token, &end),
            Ok(()) if connection.is_waiting(rate) || connection.is_crowded(&self.router) => {
                self.pause(token);
            }
            Ok(()) => {}
        }
    }

    fn ready(&mut self, token: u64, flags: EpollFlags) {
        self.judge(token); // before it does anything by rights that are gone
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        self.router.came = None;
        if flags.contains(EpollFlags::EPOLLOUT) {
            connection.unblock();
            self.search(token);
        }
        let Some(connection) = self.connections.get_mut(&token) else {
            return;
        };
        if !flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            return;
        }
        let rate = self
            .router
            .shared
            .settings
            .limits
            .publishes_a_second_a_client;
        if connection.is_waiting(rate) && !flags.contains(EpollFlags::EPOLLHUP) {
            return self.pause(token);
        }
        let read = if self.states_residence {
            connection.socket.read_stamped(&mut self.buffer)
        } else {
            connection
                .socket
                .read(&mut self.buffer)
                .map(|count| (count, None))
        };
        let submitted = self.router.submitted;
        let end = match read {
            Ok((0, _)) => Err(End::Gone),
            Ok((count, came_ns)) => {
                self.router.stamp = came_ns;
                if self.states_residence && connection.arrivals.is_new() {
                    connection.arrived(&mut self.router);
                }
                let octets = self.buffer.get(..count).unwrap_or_default();
                connection.input(&mut self.router, octets, &mut self.spare)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(_) => Err(End::Gone),
        };
        self.router.stamp = None;
        if !self.router.gathers || self.router.has_gathered() {
            self.router.flush();
        }
        if self.router.submitted != submitted {
            connection.unanswered.push_back(self.router.submitted);
        }
        let waits = connection.is_waiting(rate) || connection.is_crowded(&self.router);
        match end {
            Err(end) => self.end(token, &end),
            Ok(()) if waits => self.pause(token),
            Ok(()) => {}
        }
    }

    /// Do not read from a connection until the next second, or until its password is checked, or
    /// the disk has its messages.
    fn pause(&mut self, token: u64) {
        if let Some(connection) = self.connections.get_mut(&token) {
            connection.pause(true);
            self.router.context.holding.extend(connection.awaited());
            self.waiting.insert(token);
            if connection.is_busy && !self.busy.contains(&token) {
                self.busy.push_back(token);
            }
        }
    }

    fn end(&mut self, token: u64, end: &End) {
        if let Some(mut connection) = self.connections.remove(&token) {
            self.router.spend(ENDED);
            self.poller.forget(&connection.socket);
            connection.end(&mut self.router, end);
            self.router.flush();
        }
        if std::mem::take(&mut self.starved) {
            self.listen(true);
        }
    }

    fn accept(&mut self, token: u64) {
        let shared = Arc::clone(&self.router.shared);
        for _ in 0..ACCEPT {
            let now = Instant::now();
            if self.next > now {
                return self.listen(false);
            }
            let Some(listener) = self
                .listeners
                .get(usize::try_from(token).unwrap_or(usize::MAX))
            else {
                return;
            };
            let (socket, transport) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_scarce(&error) => {
                    shared.complain(&format!("a connection could not be accepted: {error}"));
                    self.starved = true;
                    return self.listen(false);
                }
                Err(_) => continue, // this connection is broken already: accept(2)
            };
            let saved = now.checked_sub(SAVED).unwrap_or(now);
            self.next = self.next.max(saved) + self.every;
            shared.counters.accepted.fetch_add(1, Relaxed);
            let by_certificate = listener.knows_by_certificate();
            self.begin(socket, transport, by_certificate);
        }
    }

    fn begin(
        &mut self,
        socket: mqtick_net::socket::Socket,
        transport: Transport,
        by_certificate: bool,
    ) {
        if self.states_residence {
            socket.stamp_arrivals();
        }
        let socket = Arc::new(socket);
        let place = Place {
            worker: self.router.worker,
            token: self.next_token,
        };
        self.next_token += self.router.shared.callers.len() as u64; // never a token of another worker
        if self.poller.add(&socket, place.token).is_err() {
            return;
        }
        let seat = self.router.shared.tally.seat(&transport);
        let link = Link::new(
            place,
            Arc::clone(&self.poller),
            Arc::clone(&socket),
            transport,
        );
        let timeout_s = self.router.shared.settings.limits.connect_timeout_s;
        let now_ms = self.router.context.now_ms;
        let connection = Connection::new(socket, link, seat, by_certificate, now_ms, timeout_s);
        self.connections.insert(place.token, connection);
    }

    /// Wait for new connections, or leave them in the kernel's queue for now.
    fn listen(&mut self, wanted: bool) {
        if self.is_pausing != wanted {
            return;
        }
        self.is_pausing = !wanted;
        for (token, listener) in self.listeners.iter().enumerate() {
            if !wanted {
                self.poller.forget(listener);
            } else if let Err(error) = self.poller.listen(listener, token as u64) {
                mqtick_net::log::error(&format!("epoll: {error}"));
            }
        }
    }

    fn called(&mut self) {
        self.router.came = None;
        self.calls
            .extend(self.router.shared.calls(self.router.worker));
        while let Some(call) = self.calls.pop_front() {
            match call {
                Call::Deliver(part) => self.router.deliver(&part),
                Call::Judge { before } => {
                    while let Some(token) = self.judged.1.pop() {
                        self.judge(token); // by what was before this change
                    }
                    let all = self.connections.values_mut();
                    let tokens = all.map(|one| {
                        one.is_unjudged = true;
                        one.token
                    });
                    self.judged = (Some(before), tokens.collect());
                }
                Call::Checked { token, right, by } => {
                    let Some(connection) = self.connections.get_mut(&token) else {
                        continue;
                    };
                    connection.pause(false);
                    let end = connection.checked(&mut self.router, right, &by);
                    let is_busy = connection.is_busy;
                    match end {
                        Err(end) => self.end(token, &end),
                        Ok(()) if is_busy => self.pause(token),
                        Ok(()) => {}
                    }
                }
                Call::Found(places) => {
                    if let Some((_, gate)) = &mut self.gate {
                        gate.found(&mut self.router, places);
                    }
                }
                Call::Stop { over } => {
                    self.listen(false);
                    self.listeners.clear(); // new clients have to try again later
                    self.leaving = Some(Leaving {
                        until: Instant::now() + over,
                        over,
                        connections: self.connections.len(),
                    });
                }
                #[cfg(test)]
                #[allow(clippy::panic)]
                Call::Fail => panic!("as it was asked to"),
            }
        }
        self.router.flush();
    }

    /// During the shutdown, disconnect as many clients as the elapsed time demands; the others are
    /// still served, also those of other workers. Returns whether the worker is done.
    fn leave(&mut self) -> bool {
        let Some(leaving) = &self.leaving else {
            return false;
        };
        let left = leaving.until.saturating_duration_since(Instant::now());
        let is_over = left.is_zero() || self.router.shared.counters.connected.load(Relaxed) == 0;
        let may_stay = match is_over {
            true => 0,
            false => leaving.connections as u128 * left.as_nanos() / leaving.over.as_nanos(),
        };
        let may_stay = usize::try_from(may_stay).unwrap_or(usize::MAX);
        let more = self.connections.len().saturating_sub(may_stay);
        let tokens: Vec<_> = self.connections.keys().copied().take(more).collect();
        for token in tokens {
            let why = End::because(reason::SHUTTING_DOWN, "the broker ends");
            self.end(token, &why);
        }
        is_over
    }

    /// Once a second. `missed_s`: how many seconds went by in which it did not read, because the
    /// process or the machine stood still. They are nobody's silence.
    fn tick(&mut self, now_s: u64, missed_s: u64) {
        let shared = Arc::clone(&self.router.shared);
        shared.alive(self.router.worker);
        self.router.came = None; // when waiting packets came is not known any more
        let now_ms = shared.now_ms();
        self.router.context.now_s = now_s;
        self.router.context.now_ms = now_ms;
        self.starved = false;
        self.listen(true);
        let is_tight = memory::is_tight();
        for connection in self.connections.values_mut() {
            connection.published = 0;
            connection.heard_ms += missed_s * 1000;
            if connection.is_crowded(&self.router) || connection.is_busy {
                connection.heard_ms = now_ms; // it is not read, because of the disk or its own work
            }
            connection.answer_pings(now_s);
            if is_tight {
                connection.give_back();
            }
        }
        let is_busy = |token: &u64| self.connections.get(token).is_some_and(|one| one.is_busy);
        let (busy, rested): (HashSet<_>, HashSet<_>) = self.waiting.drain().partition(is_busy);
        self.waiting = busy; // these have turns of their own
        for token in rested {
            self.resume(token);
        }
        // What came while it stood still is read before the next second.
        let until_ms = now_ms - u64::from(missed_s > 0) * 1000;
        let late = self.connections.values();
        let late = late.filter(|one| one.is_late(until_ms));
        self.late = late.map(|one| one.token).collect();
        if let Some((_, door)) = &mut self.door {
            door.tick(&mut self.router);
        }
        self.puts_off = missed_s > 0 && !self.puts_off;
        if let Some((_, gate)) = self.gate.as_mut().filter(|_| !self.puts_off) {
            gate.tick(&mut self.router);
        }
        self.router.refresh(); // else remembered fan-outs keep sessions that have ended
        if self.router.worker == 0 {
            self.keep_house(now_s);
            if now_s.is_multiple_of(60) {
                self.sifted = Some(String::new());
            }
            if let Some(journal) = shared.journal() {
                shared.keep_retained(now_s);
                journal.submit();
            }
        }
        self.router.flush();
        self.router.count();
    }

    /// Have `work` look after sessions whose clients are away; publish `$SYS` when due.
    fn keep_house(&mut self, now_s: u64) {
        let shared = Arc::clone(&self.router.shared);
        self.is_due = true;
        if shared.is_clock_set(now_s) {
            self.shifted = shared.calendar.all();
        }
        let mut report: Vec<(Cow<str>, String)> = Vec::new();
        report.extend(
            shared
                .report()
                .into_iter()
                .map(|(topic, text)| (topic.into(), text)),
        );
        if let Some((_, door)) = self.door.as_ref().filter(|_| !report.is_empty()) {
            let count = |(name, count): (_, u64)| {
                (format!("$SYS/broker/udp/{name}").into(), count.to_string())
            };
            report.extend(door.counters().map(count));
        }
        if let Some((_, gate)) = self.gate.as_ref().filter(|_| !report.is_empty()) {
            let count = |(name, count): (_, u64)| {
                (format!("$SYS/broker/sn/{name}").into(), count.to_string())
            };
            report.extend(gate.counters().map(count));
        }
        if shared.settings.delivery.accelerate.is_some() && !report.is_empty() {
            for (name, count) in shared.offload.counted() {
                report.push((format!("$SYS/broker/{name}").into(), count.to_string()));
            }
        }
        for (topic, text) in report {
            let message = crate::message::Message {
                whole: None,
                topic: &topic,
                payload: text.as_bytes(),
                qos: mqtick_packet::Qos::AtMostOnce,
                retain: true,
                forwarded: &[],
                expires_s: None,
            };
            self.router.publish(None, &message, false);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::settings::Settings;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_worker_that_fails_at_one_call_hears_those_that_came_with_it() {
        let settings = Settings {
            threads: 1,
            ..Settings::default()
        };
        let shared = Shared::alone(settings, None);
        let worker = Worker::new(&shared, 0, Vec::new()).unwrap();
        for call in [
            Call::Fail,
            Call::Fail,
            Call::Stop {
                over: Duration::ZERO,
            },
        ] {
            shared.call(0, call);
        }
        let (ended, end) = channel();
        std::thread::spawn(move || {
            worker.run_on();
            ended.send(()).unwrap();
        });
        let limit = Duration::from_secs(60);
        assert!(end.recv_timeout(limit).is_ok(), "it was told to stop");
        assert_eq!(shared.counters.restarts.load(Relaxed), 2);
    }
}
