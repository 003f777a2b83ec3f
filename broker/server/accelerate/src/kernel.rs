//! The data plane in the kernel: loads `broker/bpf`, attaches it, and keeps its tables.
//!
//! The maps' keys and values are octets here.

use std::collections::HashMap;
use std::io::{self, Error, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use aya::maps::{Array, HashMap as Table, MapData, PerCpuArray, RingBuf};
use aya::programs::tc::{NlOptions, TcAttachOptions, TcHandle, qdisc_add_clsact};
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, TestRun, TestRunOptions};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimestampns};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

mod octets;
mod rooms;

use crate::clock::Rate;
use crate::rules::{
    Broker, Event, Flags, Hop, Key, Protocol, RuleCounters, SUBSCRIBERS_A_RULE, Subscriber,
};
use octets::{Octets, address, endpoint, event, octets, part, rule_key, subscriber};
use rooms::Rooms;

/// How long the kernel copies after each call of [`Kernel::alive`].
pub const ALIVE: Duration = Duration::from_secs(1);
/// The names of the counters, in the order of `enum counter` in `broker/bpf/tables.h`.
pub const COUNTERS: [&str; 19] = [
    "fragment",
    "header",
    "length",
    "checksum",
    "qos",
    "source",
    "no_rule",
    "disabled",
    "closed",
    "waiting",
    "stale",
    "hits",
    "copies",
    "unreachable",
    "refused",
    "to_broker",
    "events",
    "events_lost",
    "kept_back",
];

/// Flags of the settings.
const IN_PATH: u32 = 1;
const STEADY: u32 = 2;
const OBJECT: &[u8] = aya::include_bytes_aligned!(env!("MQTICK_ACCELERATE_OBJECT"));
const DIRECTIONS: [(&str, TcAttachType); 2] = [
    ("mqtick_ingress", TcAttachType::Ingress),
    ("mqtick_egress", TcAttachType::Egress),
];
/// The priority of the filters for [`Attach::Clsact`]; one that other programs are unlikely to use.
const PRIORITY: u16 = 28017;
const SUBSCRIBERS: u32 = 65_536;
/// Indices of the table `all_seen`.
const SEEN: u32 = 0;
const UNTOLD: u32 = 1;
const CHANGES: u32 = 2;
/// The size of the table `all_unread`; one more entry at its end counts all.
const BUCKETS: u32 = 256;
const RULES: u32 = 16_384;
const CLOSED: u64 = u64::MAX;

/// The programs on their interfaces; they are detached when this is dropped.
pub struct Kernel {
    // Fields are dropped in this order: the programs before all that they need.
    programs: Ebpf,
    rules: Table<MapData, Octets<88>, Octets<24>>,
    subscribers: Array<MapData, Octets<24>>,
    hops: Array<MapData, Octets<20>>,
    clients: Table<MapData, Octets<20>, Octets<24>>,
    settings: Array<MapData, Octets<40>>,
    seen: Array<MapData, u64>,
    unread: Array<MapData, u64>,
    targets: Array<MapData, u64>,
    rule_counters: Array<MapData, Octets<24>>,
    counters: PerCpuArray<MapData, u64>,
    events: RingBuf<MapData>,
    watchdogs: Vec<Child>,
    _stamps: UdpSocket,
    _alone: Vec<UnixListener>,
    set: HashMap<Key, Rule>,
    numbers: Vec<u32>,
    rooms: Rooms,
    changes: u64,
    done: u64,
    in_path: bool,
    rate: Rate,
    lent_ns: Option<i64>,
}

struct Rule {
    number: u32,
    /// The value of `unread` when it was set: its `slow` counts from there.
    unread: u64,
    first: u32,
    room: u32,
    flags: u32,
    subscribers: Vec<Octets<24>>,
}

/// How the programs are attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// By a link that ends with this process (Linux 6.6).
    Tcx,
    /// By a filter of a `clsact` queueing discipline, which has to be removed in the end.
    Clsact,
}

impl Attach {
    /// The best one that this kernel has.
    #[must_use]
    pub fn best() -> Self {
        if is_linux(6, 6) {
            Self::Tcx
        } else {
            Self::Clsact
        }
    }
}

impl Kernel {
    /// Load the programs and attach them to `interfaces`. `in_path`: process frames for other hosts
    /// too.
    ///
    /// # Errors
    /// `AddrInUse`: another accelerator is on an interface. Others: the kernel's.
    pub fn start(
        interfaces: &[&str],
        brokers: &[Broker],
        in_path: bool,
        attach: Attach,
    ) -> io::Result<Self> {
        let alone = interfaces
            .iter()
            .map(|one| {
                let name = format!("mqtick-accelerate {one}");
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
                UnixListener::bind_addr(&address)
            })
            .collect::<io::Result<Vec<_>>>()?;
        let has_tai = u32::from(is_linux(6, 1));
        let mut programs = EbpfLoader::new()
            .btf(None)
            .override_global("has_tai", &has_tai, true)
            .load(OBJECT)
            .map_err(other)?;
        // Before the maps are taken out: loaded programs hold them.
        for (_, program) in programs.programs_mut() {
            let program: &mut SchedClassifier = program.try_into().map_err(other)?;
            program.load().map_err(other)?;
        }
        // The kernel takes arrival timestamps only while a socket asks for them.
        let stamps = UdpSocket::bind(("127.0.0.1", 0))?;
        setsockopt(&stamps, ReceiveTimestampns, &true)?;

        let mut this = Self {
            rules: table(&mut programs, "rules")?,
            subscribers: table(&mut programs, "subscribers")?,
            hops: table(&mut programs, "hops")?,
            clients: table(&mut programs, "clients")?,
            settings: table(&mut programs, "all_settings")?,
            seen: table(&mut programs, "all_seen")?,
            unread: table(&mut programs, "all_unread")?,
            targets: table(&mut programs, "all_targets")?,
            rule_counters: table(&mut programs, "rule_counters")?,
            counters: table(&mut programs, "counters")?,
            events: table(&mut programs, "events")?,
            programs,
            watchdogs: Vec::new(),
            _stamps: stamps,
            _alone: alone,
            set: HashMap::new(),
            numbers: (0..RULES).rev().collect(),
            rooms: Rooms::new(SUBSCRIBERS),
            changes: 0,
            done: 0,
            in_path,
            rate: Rate::default(),
            lent_ns: None,
        };
        this.name_brokers(brokers)?;
        for interface in interfaces {
            this.attach(interface, attach)?;
        }
        this.alive()?;
        Ok(this)
    }

    fn name_brokers(&mut self, brokers: &[Broker]) -> io::Result<()> {
        let mut table: Table<MapData, Octets<20>, Octets<4>> =
            table(&mut self.programs, "brokers")?;
        for (number, broker) in (0..).zip(brokers) {
            let protocol = match broker.protocol {
                Protocol::MqttSn => 1,
                Protocol::MqttUdp => 2,
            };
            let value = [number, protocol, 0, 0];
            table
                .insert(endpoint(broker.address, broker.vlan), value, 0)
                .map_err(other)?;
            // For frames whose ports cannot be read.
            let any = SocketAddr::new(broker.address.ip(), 0);
            let _ = table.insert(endpoint(any, broker.vlan), value, 1 /* BPF_NOEXIST */);
        }
        Ok(())
    }

    fn program(&mut self, name: &str) -> io::Result<&mut SchedClassifier> {
        let program = self.programs.program_mut(name).ok_or(ErrorKind::NotFound)?;
        program.try_into().map_err(other)
    }

    fn attach(&mut self, interface: &str, attach: Attach) -> io::Result<()> {
        let added = attach == Attach::Clsact && qdisc_add_clsact(interface).is_ok();
        if attach == Attach::Clsact {
            // Remove what an instance left that was killed together with its watchdog.
            shell(&clean(false), interface).status()?;
            self.watchdogs.push(
                // systemd sends SIGTERM to all processes of a service, also to this one.
                shell(
                    &format!("trap '' TERM; read _; {}", clean(added)),
                    interface,
                )
                .stdin(Stdio::piped())
                .process_group(0)
                .spawn()?,
            );
        }
        for (name, direction) in DIRECTIONS {
            let options = match attach {
                Attach::Tcx => TcAttachOptions::TcxOrder(LinkOrder::default()),
                Attach::Clsact => TcAttachOptions::Netlink(NlOptions {
                    priority: PRIORITY,
                    handle: TcHandle::new(0, 1),
                    ..NlOptions::default()
                }),
            };
            let program = self.program(name)?;
            program
                .attach_with_options(interface, direction, options)
                .map_err(other)?;
        }
        Ok(())
    }

    /// Copy until this time (CLOCK_MONOTONIC); calls of [`Self::alive`] no longer extend it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn lend(&mut self, until_ns: u64) -> io::Result<()> {
        self.lent_ns = Some(until_ns.cast_signed());
        self.alive()
    }

    /// Tell the kernel that the controller is alive; to be called four times a second.
    ///
    /// # Errors
    /// The kernel's.
    pub fn alive(&mut self) -> io::Result<()> {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
        let [tai, utc] = [ClockId::CLOCK_TAI, ClockId::CLOCK_REALTIME].map(clock_gettime);
        let ahead_ns = tai?.num_nanoseconds() - utc?.num_nanoseconds();
        let ahead_ns = (ahead_ns + 500_000_000).div_euclid(1_000_000_000) * 1_000_000_000;
        let own_ns = now.num_nanoseconds() + ALIVE.as_nanos() as i64;
        let until_ns = self.lent_ns.unwrap_or(own_ns);
        let clock = self.rate.look();
        let flags = [(self.in_path, IN_PATH), (self.is_steady(), STEADY)];
        let flags = flags
            .iter()
            .filter(|one| one.0)
            .map(|one| one.1)
            .sum::<u32>();
        let settings = octets([
            &until_ns.to_ne_bytes(),
            &self.done.to_ne_bytes(),
            &ahead_ns.to_ne_bytes(),
            &(clock.ahead_ns - clock.unsure_ns).to_ne_bytes(), // not more than the true value
            &flags.to_ne_bytes(),
        ]);
        self.settings.set(0, settings, 0).map_err(other)
    }

    /// Whether copies state their residence: not while the clock is slewed, nor before it was read
    /// twice.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.rate.is_steady()
    }

    /// The controller has processed this number of packets that may change the receivers. The
    /// number does not depend on the order in which their events came.
    ///
    /// # Errors
    /// The kernel's.
    pub fn done(&mut self, count: u64) -> io::Result<()> {
        self.done = count;
        self.alive()
    }

    /// How many packets that may change the receivers were seen.
    ///
    /// # Errors
    /// The kernel's.
    pub fn seen(&self) -> io::Result<u64> {
        self.seen.get(&SEEN, 0).map_err(other)
    }

    /// How many of these had no event, for lack of room.
    ///
    /// # Errors
    /// The kernel's.
    pub fn untold(&self) -> io::Result<u64> {
        self.seen.get(&UNTOLD, 0).map_err(other)
    }

    /// How many frames could not be read and may have been messages of this publisher; `None`: of
    /// any.
    fn unread(&self, publisher: Option<SocketAddr>) -> io::Result<u64> {
        let bucket = publisher.map_or(BUCKETS, |publisher| {
            u32::from(address(publisher.ip()).iter().fold(0, |all, one| all ^ one))
        });
        self.unread.get(&bucket, 0).map_err(other)
    }

    /// Write to the tables of rules. The kernel copies nothing meanwhile.
    fn write(&mut self, what: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.changes |= 1;
        self.seen.set(CHANGES, self.changes, 0).map_err(other)?;
        fence(Ordering::SeqCst);
        let written = what(self);
        fence(Ordering::SeqCst);
        self.changes += 1;
        self.seen.set(CHANGES, self.changes, 0).map_err(other)?;
        written
    }

    /// Set or replace a rule. It is closed, and its counters begin at 0.
    ///
    /// # Errors
    /// `StorageFull`: there is no room; an earlier rule stays. `InvalidInput`: too many
    /// subscribers, or a name that is too long.
    pub fn set(&mut self, key: &Key, subscribers: &[Subscriber], flags: Flags) -> io::Result<()> {
        let octets = rule_key(key)?;
        if subscribers.len() > SUBSCRIBERS_A_RULE {
            return Err(ErrorKind::InvalidInput.into());
        }
        let wanted = subscribers
            .iter()
            .map(subscriber)
            .collect::<io::Result<Vec<_>>>()?;
        let flags = u32::from(flags.broker)
            | u32::from(flags.mark) << 1
            | u32::from(flags.residence) << 2
            | u32::from(flags.pass) << 3;
        let mut rule = match self.set.get(key) {
            // New subscribers can be appended in place: the kernel ignores them until the rule's
            // count includes them.
            Some(old)
                if wanted.starts_with(&old.subscribers) && wanted.len() <= old.room as usize =>
            {
                Rule {
                    subscribers: old.subscribers.clone(),
                    ..*old
                }
            }
            old => {
                let number =
                    old.map_or_else(|| self.numbers.last().copied(), |old| Some(old.number));
                let number = number.ok_or(ErrorKind::StorageFull)?;
                let room = (wanted.len() as u32).max(1).next_power_of_two();
                let first = self.rooms.take(room).ok_or(ErrorKind::StorageFull)?;
                Rule {
                    number,
                    unread: 0,
                    first,
                    room,
                    flags,
                    subscribers: Vec::new(),
                }
            }
        };
        rule.flags = flags;
        for (at, one) in (rule.first..).zip(&wanted).skip(rule.subscribers.len()) {
            self.subscribers.set(at, one, 0).map_err(other)?;
        }
        rule.subscribers = wanted;
        rule.unread = self.unread(key.publisher)?;
        let old = self.set.get(key).map(|old| old.first);
        let written = self.write(|this| {
            let value = rule.octets(CLOSED);
            this.rules.insert(octets, value, 0).map_err(full)?;
            let counters = &mut this.rule_counters;
            counters.set(rule.number, [0; 24], 0).map_err(other)
        });
        if let Err(error) = written {
            if old != Some(rule.first) {
                self.rooms.give_back(rule.first, rule.room);
            }
            return Err(error);
        }
        if self.numbers.last() == Some(&rule.number) {
            self.numbers.pop();
        }
        let first = rule.first;
        if let Some(old) = self
            .set
            .insert(key.clone(), rule)
            .filter(|old| old.first != first)
        {
            self.rooms.give_back(old.first, old.room);
        }
        Ok(())
    }

    /// Open a rule. It is open only as long as its `slow` has this value.
    ///
    /// # Errors
    /// `NotFound`: there is no such rule.
    pub fn open(&mut self, key: &Key, slow: u64) -> io::Result<()> {
        let rule = self.set.get(key).ok_or(ErrorKind::NotFound)?;
        let value = rule.octets(rule.unread.wrapping_add(slow));
        self.overwrite(key, value)
    }

    /// Close a rule until it is opened again; its `slow` stays.
    ///
    /// # Errors
    /// `NotFound`: there is no such rule.
    pub fn close(&mut self, key: &Key) -> io::Result<()> {
        let rule = self.set.get(key).ok_or(ErrorKind::NotFound)?;
        let value = rule.octets(CLOSED);
        self.overwrite(key, value)
    }

    fn overwrite(&mut self, key: &Key, value: Octets<24>) -> io::Result<()> {
        let key = rule_key(key)?;
        self.write(|this| this.rules.insert(key, value, 0).map_err(other))
    }

    /// Remove a rule, if it exists.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&mut self, key: &Key) -> io::Result<()> {
        if let Some(rule) = self.set.remove(key) {
            let octets = rule_key(key)?;
            self.write(|this| this.rules.remove(&octets).map_err(other))?;
            self.rooms.give_back(rule.first, rule.room);
            self.numbers.push(rule.number);
        }
        Ok(())
    }

    /// Remove all rules.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(&mut self) -> io::Result<()> {
        let keys: Vec<_> = self.set.keys().cloned().collect();
        keys.iter().try_for_each(|key| self.remove(key))
    }

    /// Set a hop. All rules that use this hop follow at once.
    ///
    /// # Errors
    /// The kernel's: there are 16,384 hops.
    pub fn set_hop(&mut self, number: u16, hop: Hop) -> io::Result<()> {
        let octets = octets([
            &hop.interface.to_ne_bytes(),
            &hop.destination,
            &hop.source,
            &[hop.ttl, u8::from(hop.up)],
            &hop.vlan.to_ne_bytes(),
        ]);
        self.hops.set(number.into(), octets, 0).map_err(other)
    }

    /// Record from now on when this client is heard, and keep back the next `answers` answers to
    /// it.
    ///
    /// # Errors
    /// `StorageFull`: there are too many clients.
    pub fn keep_back(&mut self, client: SocketAddr, vlan: u16, answers: u32) -> io::Result<()> {
        let key = endpoint(client, vlan);
        let stamps: [u8; 16] = self
            .clients
            .get(&key, 0)
            .map_or([0; 16], |value| part(&value, 0));
        let value = octets([&stamps, &answers.to_ne_bytes()]);
        self.clients.insert(key, value, 0).map_err(full)
    }

    /// Forget a client.
    pub fn forget(&mut self, client: SocketAddr, vlan: u16) {
        let _ = self.clients.remove(&endpoint(client, vlan));
    }

    /// When a client was last heard (CLOCK_MONOTONIC, ns), if that is recorded.
    #[must_use]
    pub fn heard_ns(&self, client: SocketAddr, vlan: u16) -> Option<u64> {
        self.stamp(client, vlan, 0)
    }

    /// When the broker last sent a PUBLISH to this client, if that is recorded.
    #[must_use]
    pub fn served_ns(&self, client: SocketAddr, vlan: u16) -> Option<u64> {
        self.stamp(client, vlan, 8)
    }

    fn stamp(&self, client: SocketAddr, vlan: u16, at: usize) -> Option<u64> {
        let value = self.clients.get(&endpoint(client, vlan), 0).ok()?;
        Some(u64::from_ne_bytes(part(&value, at))).filter(|ns| *ns != 0)
    }

    /// Send a frame out of an interface, or, if `arrives`, inject it as if it had come in there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn inject(&mut self, interface: u32, frame: &[u8], arrives: bool) -> io::Result<()> {
        // Two 32-bit words in the host's order; 1: BPF_F_INGRESS.
        let words = octets([&interface.to_ne_bytes(), &u32::from(arrives).to_ne_bytes()]);
        self.targets
            .set(0, u64::from_ne_bytes(words), 0)
            .map_err(other)?;
        let options = TestRunOptions {
            data_in: Some(frame),
            ..TestRunOptions::new()
        };
        match self
            .program("mqtick_inject")?
            .test_run(options)
            .map_err(other)?
            .return_value
        {
            0 => Ok(()),
            error => Err(Error::from_raw_os_error(-error.cast_signed())),
        }
    }

    /// How long the program at ingress takes for a frame, as an average of `times` runs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn time(&mut self, frame: &[u8], times: u32) -> io::Result<Duration> {
        let options = TestRunOptions {
            data_in: Some(frame),
            repeat: times,
            ..TestRunOptions::new()
        };
        let ran = self.program("mqtick_ingress")?.test_run(options);
        Ok(ran.map_err(other)?.duration)
    }

    /// Readable when there are events.
    #[must_use]
    pub fn events_fd(&self) -> RawFd {
        self.events.as_raw_fd()
    }

    /// The next event, if there is one.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            let item = self.events.next()?;
            if let Some(event) = event(&item) {
                return Some(event);
            }
        }
    }

    /// All counters, by the names of the specification.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> io::Result<Vec<(&'static str, u64)>> {
        let sum = |(number, name)| {
            let values = self.counters.get(&number, 0).map_err(other)?;
            Ok((name, values.iter().sum()))
        };
        (0..).zip(COUNTERS).map(sum).collect()
    }

    /// Counters of one rule.
    ///
    /// # Errors
    /// `NotFound`: there is no such rule.
    pub fn rule_counters(&self, key: &Key) -> io::Result<RuleCounters> {
        let rule = self.set.get(key).ok_or(ErrorKind::NotFound)?;
        let value = self.rule_counters.get(&rule.number, 0).map_err(other)?;
        let [slow, hits, copies] = [0, 8, 16].map(|at| u64::from_ne_bytes(part(&value, at)));
        let slow = slow + (self.unread(key.publisher)? - rule.unread);
        Ok(RuleCounters { slow, hits, copies })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        for mut watchdog in self.watchdogs.drain(..) {
            drop(watchdog.stdin.take());
            let _ = watchdog.wait();
        }
    }
}

impl Rule {
    fn octets(&self, open: u64) -> Octets<24> {
        octets([
            &self.first.to_ne_bytes(),
            &(self.subscribers.len() as u32).to_ne_bytes(),
            &self.number.to_ne_bytes(),
            &self.flags.to_ne_bytes(),
            &open.to_ne_bytes(),
        ])
    }
}

fn is_linux(major: u8, minor: u8) -> bool {
    KernelVersion::current().is_ok_and(|this| this >= KernelVersion::new(major, minor, 0))
}

fn table<T: TryFrom<aya::maps::Map>>(programs: &mut Ebpf, name: &str) -> io::Result<T>
where
    T::Error: std::error::Error + Send + Sync + 'static,
{
    let map = programs.take_map(name).ok_or(ErrorKind::NotFound)?;
    map.try_into().map_err(other)
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::other(error)
}

fn full(error: aya::maps::MapError) -> Error {
    Error::new(ErrorKind::StorageFull, error)
}

/// A shell command that removes our filters from interface `$1`. It removes `clsact` as well if we
/// `added` it and it has no other filters.
fn clean(added: bool) -> String {
    let of = |direction| {
        format!(
            "tc filter show dev \"$1\" {direction} pref {PRIORITY} | grep -q ' mqtick_{direction} ' && \
             tc filter del dev \"$1\" {direction} pref {PRIORITY} handle 1 bpf; "
        )
    };
    let qdisc = if added {
        "all=$(tc filter show dev \"$1\" ingress && tc filter show dev \"$1\" egress) && \
         [ -z \"$all\" ] && tc qdisc del dev \"$1\" clsact; "
    } else {
        ""
    };
    of("ingress") + &of("egress") + qdisc + "true"
}

fn shell(script: &str, interface: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh", interface])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}
