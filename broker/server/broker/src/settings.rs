//! The configuration file: what may be set, the defaults, and what is refused.
//!
//! `broker.toml.example` beside the crates documents each setting.

mod subnet;
mod upstream;

pub use subnet::Subnet;
pub use upstream::{Gateway, Upstream};

use mqtick_net::settings::{
    Address, Error, Listener, Metrics, Place, Transport, address, between, explain, line_of, refuse,
};
use serde::Deserialize;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use subnet::check_datagrams;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How many threads deliver; 0: one for each core. See [`Settings::threads`].
    pub threads: usize,
    /// Where clients connect.
    #[serde(rename = "listener")]
    pub listeners: Vec<Listener>,
    /// Who may connect, publish and subscribe.
    pub access: Access,
    /// What clients may make the broker keep or do.
    pub limits: Limits,
    /// What is kept over a restart.
    pub store: Store,
    /// How copies leave.
    pub delivery: Delivery,
    /// Where Prometheus reads.
    pub metrics: Metrics,
    /// MQTT over UDP (`broker/spec/mqtt-udp.md`).
    pub udp: Udp,
    /// MQTT-SN (`broker/spec/mqtt-sn.md`).
    pub sn: Sn,
    /// The broker for which this one is a gateway to sensors, if any.
    pub upstream: Upstream,
}

/// Who may connect, publish and subscribe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// Whether a client may connect without a user name, if the file says so. See
    /// [`Settings::anonymous`].
    pub anonymous: Option<bool>,
    /// Mosquitto's password file.
    pub password_file: Option<PathBuf>,
    /// Mosquitto's access file; none: everything is allowed.
    pub acl_file: Option<PathBuf>,
    /// Whether who comes with a client's identifier ends that client's session, whatever the user.
    pub shared_identifiers: bool,
}

/// What clients may make the broker keep or do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Octets of one packet.
    pub packet: usize,
    /// Octets of memory that the broker may hold for all clients together; 0: a quarter of the
    /// machine's memory.
    pub memory: usize,
    /// Octets that wait for one client.
    pub queue: usize,
    /// Messages of QoS 1 and 2 that wait for one client.
    pub queue_messages: usize,
    /// Messages of QoS 1 and 2 that are sent to one client and not acknowledged.
    pub inflight: u16,
    /// Subscriptions of one client.
    pub subscriptions_a_client: usize,
    /// Seconds from the start of a connection until its CONNECT has come completely.
    pub connect_timeout_s: u64,
    /// New connections in a second; 0: no limit.
    pub connections_a_second: u32,
    /// Seconds that the shutdown may take: clients are told one after another.
    pub stop_s: u64,
    /// Messages that one client publishes in a second; 0: no limit.
    pub publishes_a_second_a_client: u32,
    /// Topic aliases that one client may set.
    pub topic_alias: u16,
    /// Retained messages.
    pub retained_messages: usize,
    /// Longest time in seconds for which a session is kept without a connection; `u32::MAX`: no
    /// limit.
    pub session_expiry_s: u32,
}

/// What is kept over a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// The folder of the store; none: nothing is kept.
    pub path: Option<PathBuf>,
}

/// How copies leave.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delivery {
    /// How long input is gathered under high load, in microseconds; 0: never.
    pub gather_us: u64,
    /// The Unix socket at which `mqtick-accelerate` is told what it may copy; none: it is not used.
    pub accelerate: Option<PathBuf>,
    /// Topics with settings of their own: the first filter that matches counts.
    pub topic: Vec<DeliveryTopic>,
}

/// How copies of messages on some topics leave.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryTopic {
    /// The topic filter.
    pub filter: String,
    /// When, and in which order.
    #[serde(default)]
    pub mode: Mode,
    /// Whether each copy says how long the broker had it (`broker/spec/residence.md`).
    #[serde(default)]
    pub residence: bool,
}

/// When copies leave, and in which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// With all copies of one read, in one write for each subscriber.
    #[default]
    Batched,
    /// At once, one after another in the order of subscription, by one thread.
    Ordered,
    /// As `Ordered`, but the order is reversed with each message.
    Alternating,
    /// At once: all workers send, each a part of the copies.
    Parallel,
}

/// MQTT over UDP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Udp {
    /// Address and port; none: off.
    #[serde(deserialize_with = "address")]
    pub address: Option<SocketAddr>,
    /// The networks whose clients are answered.
    pub subnets: Vec<Subnet>,
}

/// MQTT-SN.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sn {
    /// Address and port; none: off.
    #[serde(deserialize_with = "address")]
    pub address: Option<SocketAddr>,
    /// The networks whose clients are answered.
    pub subnets: Vec<Subnet>,
    /// Predefined topic ids.
    pub topic: Vec<SnTopic>,
    /// The gateway's id (GwId).
    pub gateway: u8,
    /// Clients at a time, including those that are away and whose session is kept.
    pub clients: usize,
    /// Whether a client has to answer a REGISTER before it gets messages.
    pub proof: bool,
    /// Where ADVERTISE is sent; none: nowhere.
    #[serde(deserialize_with = "address")]
    pub advertise_to: Option<SocketAddr>,
    /// Seconds between two ADVERTISEs.
    pub advertise_s: u16,
}

/// A topic with a predefined id.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnTopic {
    /// The id.
    pub id: u16,
    /// The topic's name.
    pub name: String,
}

impl Default for Settings {
    fn default() -> Self {
        let local = Listener {
            place: Place::Tcp(SocketAddr::from(([127, 0, 0, 1], 1883))),
            transport: Transport::Mqtt,
            origins: Vec::new(),
            tls: None,
        };
        Self {
            threads: 0,
            listeners: vec![local],
            access: Access::default(),
            limits: Limits::default(),
            store: Store::default(),
            delivery: Delivery::default(),
            metrics: Metrics::default(),
            udp: Udp::default(),
            sn: Sn::default(),
            upstream: Upstream::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 100_000,
            packet: 16 << 20,
            memory: 0,
            queue: 32 << 20,
            queue_messages: 1000,
            inflight: 20,
            subscriptions_a_client: 10_000,
            connect_timeout_s: 10,
            connections_a_second: 1000,
            stop_s: 5,
            publishes_a_second_a_client: 0,
            topic_alias: 16,
            retained_messages: 100_000,
            session_expiry_s: 30 * 24 * 3600,
        }
    }
}

impl Default for Sn {
    fn default() -> Self {
        Self {
            address: None,
            subnets: Vec::new(),
            topic: Vec::new(),
            gateway: 1,
            clients: 10_000,
            proof: true,
            advertise_to: None,
            advertise_s: 900,
        }
    }
}

impl Default for Delivery {
    fn default() -> Self {
        let filter = "mqtick/#".into();
        Self {
            gather_us: 100,
            accelerate: None,
            topic: vec![DeliveryTopic {
                filter,
                mode: Mode::Ordered,
                residence: true,
            }],
        }
    }
}

impl FromStr for Settings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let settings: Self = toml::from_str(text).map_err(|error| explain(text, &error))?;
        settings.check().map_err(|error| Error {
            line: line_of(text, &error.key),
            ..error
        })?;
        Ok(settings)
    }
}

impl Settings {
    /// How many threads deliver.
    #[must_use]
    pub fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        if self.threads == 0 {
            cores()
        } else {
            self.threads
        }
    }

    /// Whether a client may connect without a user name. If the file does not say so: only if no
    /// other machine can reach the broker, and there is no password file.
    #[must_use]
    pub fn anonymous(&self) -> bool {
        let closed = || {
            let local = self
                .open_listeners()
                .iter()
                .all(|listener| listener.place.is_local());
            local && self.access.password_file.is_none()
        };
        self.access.anonymous.unwrap_or_else(closed)
    }

    /// Whether clients of some listener are known by their certificates.
    #[must_use]
    pub fn names_by_certificate(&self) -> bool {
        let by_certificate =
            |one: &Listener| one.tls.as_ref().is_some_and(|tls| tls.identity_as_username);
        self.listeners.iter().any(by_certificate)
    }

    /// Look for values out of range and settings that contradict each other.
    ///
    /// # Errors
    /// The first one, with its key. Its line is not known here.
    pub fn check(&self) -> Result<(), Error> {
        between("threads", self.threads, 0..=1024)?;
        self.check_listeners()?;
        self.limits.check()?;
        self.delivery.check()?;
        self.udp.check()?;
        self.sn.check()?;
        let has_datagrams = self.udp.address.or(self.sn.address).is_some();
        if self.delivery.accelerate.is_some() && !has_datagrams {
            return refuse("delivery.accelerate", "needs sn.address or udp.address");
        }
        self.check_upstream()?;
        let names = self.access.password_file.is_some();
        if !self.anonymous() && !names && !self.names_by_certificate() {
            return refuse(
                "access",
                "nobody could connect: set password_file, or anonymous = true, or for a listener \
                 with TLS identity_as_username = true",
            );
        }
        if self
            .store
            .path
            .as_ref()
            .is_some_and(|path| path.as_os_str().is_empty())
        {
            return refuse(
                "store.path",
                "is empty; leave it out to keep nothing over a restart",
            );
        }
        Ok(())
    }

    /// Settings that are allowed but risky or without effect, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut said = Vec::new();
        let open = self
            .open_listeners()
            .iter()
            .filter(|listener| !listener.place.is_local());
        if self.anonymous() {
            said.extend(open.map(|listener| {
                let place = &listener.place;
                format!("access.anonymous = true: whoever reaches {place} may connect")
            }));
        }
        let has_names = self.access.password_file.is_some() || self.names_by_certificate();
        if self.access.acl_file.is_some() && !has_names {
            said.push(
                "access.acl_file: without access.password_file a client's name is not asked for, \
                 and counts as none: only rules before the first `user` and patterns are used"
                    .into(),
            );
        }
        let datagrams = [("udp", self.udp.address), ("sn", self.sn.address)];
        for (key, address) in datagrams {
            let Some(address) = address.filter(|_| self.access.password_file.is_some()) else {
                continue;
            };
            said.push(format!(
                "{key}: asks for no password: whoever is in its subnets may use {address}, as far as \
                 access.acl_file lets those without a name"
            ));
        }
        if let Some(address) = self.metrics.address.filter(|at| !at.ip().is_loopback()) {
            said.push(format!(
                "metrics.address: whoever reaches {address} may read the metrics"
            ));
        }
        if self.upstream.url.is_some() && self.listeners != Self::default().listeners {
            said.push(
                "listener: none is opened: with upstream.url, sensors are served only".into(),
            );
        }
        said
    }

    fn check_upstream(&self) -> Result<(), Error> {
        let Some(address) = &self.upstream.url else {
            return Ok(());
        };
        if self.sn.address.is_none() {
            let what = "a gateway needs [sn] with address and subnets: where its sensors are";
            return refuse("upstream.url", what);
        }
        if self.upstream.client.is_empty() {
            return refuse(
                "upstream.client",
                "is empty: the upstream knows the gateway by it",
            );
        }
        if self.upstream.password_file.is_some() && address.user.is_none() {
            let what = "is of nobody; write the user into upstream.url: mqtt://user@host";
            return refuse("upstream.password_file", what);
        }
        if self.upstream.certificate.is_some() != self.upstream.key.is_some() {
            let what = "certificate and key belong together: set both, or none";
            return refuse("upstream.certificate", what);
        }
        if self.upstream.certificate.is_some() && !address.is_tls {
            let what = "is shown over TLS only: write mqtts:// into upstream.url";
            return refuse("upstream.certificate", what);
        }
        Ok(())
    }

    /// Be a gateway for this broker. If the file names no address for sensors, they are on this
    /// machine.
    pub fn serve_as_gateway(&mut self, url: Address) {
        self.upstream.url = Some(url);
        if self.sn.address.is_none() {
            self.sn.address = Some(SocketAddr::from(([127, 0, 0, 1], 1884)));
            let first = IpAddr::from([127, 0, 0, 0]);
            self.sn.subnets = vec![Subnet { first, bits: 8 }];
        }
    }

    /// Where clients connect: a gateway serves sensors only.
    #[must_use]
    pub fn open_listeners(&self) -> &[Listener] {
        match self.upstream.url {
            Some(_) => &[],
            None => &self.listeners,
        }
    }

    fn check_listeners(&self) -> Result<(), Error> {
        if self.listeners.is_empty() {
            return refuse(
                "listener",
                "is empty; leave it out for 127.0.0.1:1883 alone",
            );
        }
        for (at, one) in self.listeners.iter().enumerate() {
            let port_0 = matches!(one.place, Place::Tcp(address) if address.port() == 0);
            let before = self.listeners.get(..at).unwrap_or_default();
            if !port_0 && before.iter().any(|other| other.place == one.place) {
                return refuse(
                    format!("listener[{at}]"),
                    format!("{} is above, too", one.place),
                );
            }
        }
        Ok(())
    }
}

impl Limits {
    fn check(&self) -> Result<(), Error> {
        const MOST_OCTETS: usize = isize::MAX.unsigned_abs(); // Rust allocates no more at once
        const LARGEST_PACKET: usize = 268_435_460; // 5 octets of header, 4 times 7 bits of length
        between("limits.connections", self.connections, 1..=10_000_000)?;
        between("limits.packet", self.packet, 128..=LARGEST_PACKET)?;
        between("limits.queue", self.queue, 128..=MOST_OCTETS)?;
        between("limits.queue_messages", self.queue_messages, 1..=10_000_000)?;
        between("limits.inflight", self.inflight, 1..=u16::MAX)?;
        between(
            "limits.subscriptions_a_client",
            self.subscriptions_a_client,
            1..=10_000_000,
        )?;
        between("limits.connect_timeout_s", self.connect_timeout_s, 1..=3600)?;
        between(
            "limits.connections_a_second",
            self.connections_a_second,
            0..=10_000_000,
        )?;
        between("limits.stop_s", self.stop_s, 0..=15)?;
        let rate = self.publishes_a_second_a_client;
        between("limits.publishes_a_second_a_client", rate, 0..=100_000_000)?;
        between(
            "limits.retained_messages",
            self.retained_messages,
            0..=100_000_000,
        )?;
        if self.memory != 0 && self.memory / 3 < self.packet {
            let what = format!(
                "three packets of limits.packet, {} octets, must fit in it",
                self.packet
            );
            return refuse("limits.memory", what);
        }
        if self.queue < self.packet {
            let what = format!(
                "a packet of limits.packet, {} octets, must fit in it",
                self.packet
            );
            return refuse("limits.queue", what);
        }
        Ok(())
    }
}

impl Delivery {
    fn check(&self) -> Result<(), Error> {
        between("delivery.gather_us", self.gather_us, 0..=1000)?;
        for (at, one) in self.topic.iter().enumerate() {
            let key = format!("delivery.topic[{at}].filter");
            let filter = &one.filter;
            if !mqtick_topics::valid_filter(filter) {
                let what = format!(
                    "{filter:?} is no topic filter: `+` must be a whole level, `#` the whole last one"
                );
                return refuse(key, what);
            }
            let before = self.topic.get(..at).unwrap_or_default();
            if before.iter().any(|other| other.filter == *filter) {
                return refuse(
                    key,
                    format!("{filter:?} is above, too, and the first one counts"),
                );
            }
        }
        Ok(())
    }
}

impl Udp {
    fn check(&self) -> Result<(), Error> {
        check_datagrams("udp", self.address, &self.subnets)?;
        if self.address.is_some_and(|address| !address.is_ipv4()) {
            return refuse("udp.address", "must be of IPv4");
        }
        let not_v4 = |one: &(usize, &Subnet)| !one.1.first.is_ipv4();
        match self.subnets.iter().enumerate().find(not_v4) {
            Some((at, one)) => refuse(
                format!("udp.subnets[{at}]"),
                format!("{one} must be of IPv4"),
            ),
            None => Ok(()),
        }
    }
}

impl Sn {
    fn check(&self) -> Result<(), Error> {
        check_datagrams("sn", self.address, &self.subnets)?;
        between("sn.clients", self.clients, 1..=1_000_000)?;
        between("sn.advertise_s", self.advertise_s, 1..=u16::MAX)?;
        let is_v4 = self.address.is_some_and(|own| own.is_ipv4());
        if self.advertise_to.is_some_and(|to| is_v4 && to.is_ipv6()) {
            return refuse("sn.advertise_to", "must be of IPv4, as sn.address is");
        }
        for (at, one) in self.topic.iter().enumerate() {
            let key = format!("sn.topic[{at}]");
            if matches!(one.id, 0 | u16::MAX) {
                return refuse(key, format!("{} is no id; 1 to 65534 can be used", one.id));
            }
            if !mqtick_topics::valid_topic(&one.name) {
                return refuse(key, format!("{:?} is no topic", one.name));
            }
            let before = self.topic.get(..at).unwrap_or_default();
            if before.iter().any(|other| other.id == one.id) {
                return refuse(key, format!("the id {} is above, too", one.id));
            }
        }
        Ok(())
    }

    /// Predefined topics by their ids.
    #[must_use]
    pub fn predefined(&self) -> HashMap<u16, Box<str>> {
        let topics = self.topic.iter();
        topics.map(|one| (one.id, (*one.name).into())).collect()
    }
}
