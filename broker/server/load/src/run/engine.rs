//! All clients of a scenario, connected.

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::prctl::set_timerslack;
use nix::sys::socket::{getsockopt, sockopt};

use crate::protocol::connection::Connection;
use crate::protocol::target::Target;
use crate::protocol::wire::Template;
use crate::results::places::Places;
use crate::run::contest::{Contestant, Run};
use crate::run::listener::{Listener, READ, TURN};
use crate::run::sender::{Sender, Sent};
use crate::run::sequence::Sequence;
use crate::settings::command::Command;
use crate::settings::scenario::{Group, Kind, Scenario};
use crate::system::process::Process;
use crate::system::stamps::{Reader, enable};
use mqtick_net::failure::{Failure, Outcome};

/// Events of one epoll_wait().
const EVENTS: usize = 1024;

/// All clients of a scenario, connected.
pub struct Engine {
    pub(crate) senders: Vec<Sender>,
    groups: Vec<(Group, Vec<String>)>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) epoll: Epoll,
    pub(crate) reader: Reader,
    pub(crate) piece: Vec<u8>,
    pub(crate) events: Vec<EpollEvent>,
    /// When epoll_wait() last returned, in ns.
    pub(crate) looked: u64,
    pub(crate) process: Option<Process>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) stamped: bool,
    pub(crate) retained: u64,
    /// Number of each publisher's first message of a trial, on several machines.
    pub(crate) base: u64,
    /// Whether the groups have windows: a closed loop.
    pub(crate) is_closed: bool,
    /// Whether the latency of bursts in windows is measured, so that it sleeps until they have
    /// come.
    pub(crate) has_bursts: bool,
    /// Whether it stays awake before a message is due.
    pub punctual: bool,
    /// Moving average of the time that a burst's copies take, in ns; whether a burst has just left.
    pub(crate) usual_ns: u64,
    pub(crate) just_left: bool,
    /// Each subscriber's place among the copies, if that is asked for.
    pub places: Option<Places>,
}

/// A publisher, on this or another machine.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) group: usize,
    /// Its sender, if it is on this machine.
    pub(crate) sender: Option<usize>,
    /// Most messages that it sends in this trial.
    pub(crate) total: u64,
}

impl Engine {
    /// Connects all clients of this machine.
    ///
    /// # Errors
    /// Where the broker does not take all of them.
    pub fn open(run: &mut Run<'_>, who: &Contestant, scenario: &Scenario) -> Outcome<Self> {
        let target = &who.target;
        run.descriptors(scenario.clients())?;
        run.tell_tls(target, scenario);
        let _ = set_timerslack(1);
        let epoll =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Failure::system("epoll"))?;
        let windows = scenario.group.iter().filter(|one| one.window > 0);
        let mut made = Self {
            senders: Vec::new(),
            groups: Vec::new(),
            listeners: Vec::new(),
            sequences: Vec::new(),
            epoll,
            reader: Reader::default(),
            piece: vec![0; READ],
            events: vec![EpollEvent::empty(); EVENTS],
            looked: 0,
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
            let brokers = [&group.publisher_brokers, &group.subscriber_brokers];
            let [to, from] = brokers.map(|brokers| targets(target, brokers));
            let (to, from) = (to?, from?);
            for topic in &names {
                made.open_topic(run, &to, &from, group, topic, scenario)?;
            }
            made.groups.push((group.clone(), names));
        }
        Ok(made)
    }

    fn open_topic(
        &mut self,
        run: &Run<'_>,
        to: &[Target],
        from: &[Target],
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
                false => Template::new(
                    target.version,
                    topic,
                    qos.min(wanted),
                    group.payload,
                    0,
                    false,
                )?,
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
                stamp: 0,
                since: 0,
                has_more: false,
                // With a window of one nothing follows a copy: no second read is needed.
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
                false => Template::new(
                    target.version,
                    topic,
                    qos,
                    group.payload,
                    stream as u32,
                    group.retain,
                )?,
            };
            self.watch(&connection, 2 * number + 1)?;
            // The closed loop of `fanout` measures from the write.
            let stamps = latency && (group.window == 0 || run.options.command == Command::Run);
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
            .map_err(Failure::system("epoll"))
    }

    /// Whether any latency is measured.
    pub fn has_latency(&self) -> bool {
        self.listeners.iter().any(|one| one.latency)
    }

    /// Whether both ends have the kernel's stamps.
    pub fn is_stamped(&self) -> bool {
        self.stamped
    }

    /// Returns publisher, number, time due and time left of the messages whose latency is measured,
    /// as far as `holds` of the time due.
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

    /// The messages of the last trial whose latency is measured.
    pub fn sent(&self) -> impl Iterator<Item = &Sent> {
        self.senders.iter().flat_map(|one| &one.sent)
    }

    /// Copies without a stamp of the kernel.
    pub fn unstamped(&self) -> u64 {
        self.reader.without
    }

    /// Retained messages of earlier runs that came.
    pub fn retained(&self) -> u64 {
        self.retained
    }

    /// Removes the messages that the broker retains of this run.
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

/// Returns the brokers over which clients are spread.
fn targets(target: &Target, brokers: &[String]) -> Outcome<Vec<Target>> {
    if brokers.is_empty() {
        return Ok(vec![target.clone()]);
    }
    brokers.iter().map(|broker| target.at(broker)).collect()
}
