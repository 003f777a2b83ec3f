//! The configuration file: what may be set, the defaults, and what is refused.
//!
//! `broker.toml.example` beside the crates documents each setting.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
}

/// One place where clients connect.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawListener")]
pub struct Listener {
    /// Where.
    pub place: Place,
    /// What is spoken there.
    pub transport: Transport,
    /// TLS, or none.
    pub tls: Option<Tls>,
}

/// Where a listener listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
    /// What systemd listens on under this name (`FileDescriptorName=`).
    Systemd(String),
}

/// What a listener's clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// MQTT.
    #[default]
    Mqtt,
    /// MQTT in WebSocket frames.
    Websocket,
}

/// How a listener's clients are encrypted and known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The broker's certificate with those that lead to its root, PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, PEM.
    pub key: PathBuf,
    /// Who signs the certificates of clients, PEM.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is turned away.
    #[serde(default)]
    pub require_certificate: bool,
    /// Whether the certificate's common name is the user's name; there is no password then.
    #[serde(default)]
    pub identity_as_username: bool,
}

/// Who may connect, publish and subscribe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// Whether somebody without a name may connect, where it is said. See
    /// [`Settings::anonymous`].
    pub anonymous: Option<bool>,
    /// Mosquitto's password file.
    pub password_file: Option<PathBuf>,
    /// Mosquitto's access file; none: everything is allowed.
    pub acl_file: Option<PathBuf>,
}

/// What clients may make the broker keep or do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// Octets of one packet.
    pub packet: usize,
    /// Octets that all clients together make the broker hold; 0: a quarter of the machine's.
    pub memory: usize,
    /// Octets that wait for one client.
    pub queue: usize,
    /// Messages of QoS 1 and 2 that wait for one client.
    pub queue_messages: usize,
    /// Messages under way to one client without an acknowledgement.
    pub inflight: u16,
    /// Subscriptions of one client.
    pub subscriptions_a_client: usize,
    /// Seconds from a connection to its whole CONNECT.
    pub connect_timeout_s: u64,
    /// New connections in a second; 0: no limit.
    pub connections_a_second: u32,
    /// Messages that one client publishes in a second; 0: no limit.
    pub publishes_a_second_a_client: u32,
    /// Topic aliases that one client may set.
    pub topic_alias: u16,
    /// Retained messages.
    pub retained_messages: usize,
    /// Seconds for which the session of a client that is gone is kept at most; `u32::MAX`: for
    /// good.
    pub session_expiry_s: u32,
}

/// What is kept over a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// In which folder; none: nothing is kept.
    pub path: Option<PathBuf>,
}

/// How copies leave.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delivery {
    /// For topics with wishes of their own: the first that matches counts.
    pub topic: Vec<DeliveryTopic>,
}

/// How copies of messages on some topics leave.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryTopic {
    /// Which topics.
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
    /// With whatever else one read brought, one write for each subscriber.
    #[default]
    Batched,
    /// At once, one after another in the order of subscription, by one thread.
    Ordered,
    /// At once, each message the other way round.
    Alternating,
    /// At once, the cores share them.
    Parallel,
}

/// Where Prometheus reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Address and port; none: nowhere.
    #[serde(deserialize_with = "address")]
    pub address: Option<SocketAddr>,
}

/// MQTT over UDP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Udp {
    /// Address and port; none: off.
    #[serde(deserialize_with = "address")]
    pub address: Option<SocketAddr>,
    /// Whom it answers.
    pub subnets: Vec<Subnet>,
}

/// MQTT-SN.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sn {
    /// Address and port; none: off.
    #[serde(deserialize_with = "address")]
    pub address: Option<SocketAddr>,
    /// Whom it answers.
    pub subnets: Vec<Subnet>,
    /// Topics that clients know by an id beforehand.
    pub topic: Vec<SnTopic>,
    /// What the gateway calls itself.
    pub gateway: u8,
    /// Clients at a time, with those whose session is kept.
    pub clients: usize,
    /// Whether a client has to answer a REGISTER before it gets messages.
    pub proof: bool,
    /// Where it says that it is there; none: nowhere.
    #[serde(deserialize_with = "address")]
    pub advertise_to: Option<SocketAddr>,
    /// How often, in seconds.
    pub advertise_s: u16,
}

/// A topic with an id that is known beforehand.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnTopic {
    /// The id.
    pub id: u16,
    /// The topic's name.
    pub name: String,
}

/// A subnet, such as `192.168.1.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subnet {
    /// Its first address.
    pub first: IpAddr,
    /// How many bits of it count.
    pub bits: u8,
}

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The file; none: the text is from elsewhere.
    pub file: Option<PathBuf>,
    /// The line, from 1, where one is at fault.
    pub line: Option<usize>,
    /// The setting, such as `limits.packet`; empty: the file.
    pub key: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(out, "{}: ", file.display())?;
        }
        if let Some(line) = self.line {
            write!(out, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(out, "{}: ", self.key)?;
        }
        out.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

impl Default for Settings {
    fn default() -> Self {
        let local = Listener {
            place: Place::Tcp(SocketAddr::from(([127, 0, 0, 1], 1883))),
            transport: Transport::Mqtt,
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
            topic: vec![DeliveryTopic {
                filter,
                mode: Mode::Ordered,
                residence: true,
            }],
        }
    }
}

/// Read a configuration file.
///
/// # Errors
/// What cannot be read, is no setting, or is refused by [`Settings::check`].
pub fn load(path: &Path) -> Result<Settings, Error> {
    let text = std::fs::read_to_string(path);
    let settings = text.map_err(|error| Error {
        file: None,
        line: None,
        key: String::new(),
        what: format!("cannot be read: {error}"),
    });
    settings
        .and_then(|text| text.parse())
        .map_err(|error| Error {
            file: Some(path.into()),
            ..error
        })
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

    /// Whether somebody without a name may connect. Where it is not said: only if nobody can reach
    /// the broker from another machine, and there is no password file.
    #[must_use]
    pub fn anonymous(&self) -> bool {
        let closed = || {
            let local = self
                .listeners
                .iter()
                .all(|listener| listener.place.is_local());
            local && self.access.password_file.is_none()
        };
        self.access.anonymous.unwrap_or_else(closed)
    }

    /// Look for values out of range and settings that contradict each other.
    ///
    /// # Errors
    /// The first one, with its key; lines are not known here.
    pub fn check(&self) -> Result<(), Error> {
        between("threads", self.threads, 0..=1024)?;
        self.check_listeners()?;
        self.limits.check()?;
        self.delivery.check()?;
        self.udp.check()?;
        self.sn.check()?;
        let by_certificate =
            |one: &Listener| one.tls.as_ref().is_some_and(|tls| tls.identity_as_username);
        let names = self.access.password_file.is_some();
        if !self.anonymous() && !names && !self.listeners.iter().any(by_certificate) {
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

    /// What is allowed but should be known, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut said = Vec::new();
        let open = self
            .listeners
            .iter()
            .filter(|listener| !listener.place.is_local());
        if self.anonymous() {
            said.extend(open.map(|listener| {
                let place = &listener.place;
                format!("access.anonymous = true: whoever reaches {place} may connect")
            }));
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
        said
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
        check_datagrams("udp", self.address, &self.subnets)
    }
}

impl Sn {
    fn check(&self) -> Result<(), Error> {
        check_datagrams("sn", self.address, &self.subnets)?;
        between("sn.clients", self.clients, 1..=1_000_000)?;
        between("sn.advertise_s", self.advertise_s, 1..=u16::MAX)?;
        if self.advertise_to.is_some_and(|to| !to.is_ipv4()) {
            return refuse("sn.advertise_to", "must be of IPv4");
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

    /// Topics by their ids.
    #[must_use]
    pub fn predefined(&self) -> HashMap<u16, Box<str>> {
        let topics = self.topic.iter();
        topics.map(|one| (one.id, (*one.name).into())).collect()
    }
}

/// Of what listens for datagrams: whom it answers.
fn check_datagrams(
    key: &str,
    address: Option<SocketAddr>,
    subnets: &[Subnet],
) -> Result<(), Error> {
    let Some(address) = address else {
        return match subnets {
            [] => Ok(()),
            _ => refuse(
                key,
                "has subnets but no address; set address = \"0.0.0.0:1883\"",
            ),
        };
    };
    if !address.is_ipv4() {
        return refuse(format!("{key}.address"), "must be of IPv4");
    }
    if subnets.is_empty() {
        return refuse(
            key,
            "has an address but answers nobody; set subnets = [\"...\"]",
        );
    }
    for (at, subnet) in subnets.iter().enumerate() {
        let key = || format!("{key}.subnets[{at}]");
        if !subnet.first.is_ipv4() {
            return refuse(key(), format!("{subnet} must be of IPv4"));
        }
        if subnet.bits == 0 {
            return refuse(
                key(),
                format!("{subnet} is everybody; name your own subnets"),
            );
        }
    }
    Ok(())
}

impl Place {
    /// Whether only this machine reaches it, as far as is known: what systemd listens on is not.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
            Self::Systemd(_) => false,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(out, "{address}"),
            Self::Unix(path) => write!(out, "{}", path.display()),
            Self::Systemd(name) => write!(out, "systemd's {name}"),
        }
    }
}

/// A listener as it is written: one of three says where.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawListener {
    #[serde(default, deserialize_with = "address")]
    address: Option<SocketAddr>,
    path: Option<PathBuf>,
    systemd: Option<String>,
    #[serde(default)]
    transport: Transport,
    tls: Option<Tls>,
}

impl TryFrom<RawListener> for Listener {
    type Error = &'static str;

    fn try_from(raw: RawListener) -> Result<Self, &'static str> {
        let RawListener { transport, tls, .. } = raw;
        let place = match (raw.address, raw.path, raw.systemd) {
            (Some(address), None, None) => Place::Tcp(address),
            (None, Some(path), None) if path.as_os_str().is_empty() => return Err("path is empty"),
            (None, Some(path), None) => Place::Unix(path),
            (None, None, Some(name)) if name.is_empty() => return Err("systemd is empty"),
            (None, None, Some(name)) => Place::Systemd(name),
            _ => return Err("a listener has one of address, path and systemd"),
        };
        match &tls {
            Some(tls) if tls.require_certificate && tls.client_ca.is_none() => {
                Err("tls.require_certificate needs tls.client_ca: who signs them")
            }
            Some(tls) if tls.identity_as_username && !tls.require_certificate => {
                Err("tls.identity_as_username needs tls.require_certificate = true")
            }
            _ => Ok(Self {
                place,
                transport,
                tls,
            }),
        }
    }
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(|_| {
        D::Error::custom(format!(
            "{text:?} is no address with a port; write for example \"0.0.0.0:1883\" or \"[::]:1883\""
        ))
    })
}

impl Subnet {
    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        fn bits_of(address: IpAddr) -> u128 {
            match address {
                IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
                IpAddr::V6(address) => address.to_bits(),
            }
        }
        let differ = bits_of(self.first) ^ bits_of(address);
        self.first.is_ipv4() == address.is_ipv4() && differ.leading_zeros() >= u32::from(self.bits)
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parsed =
            parts.and_then(|(first, bits)| Some((first.parse().ok()?, bits.parse().ok()?)));
        match parsed {
            Some((first @ IpAddr::V4(address), bits)) if bits <= 32 => {
                let host = address.to_bits().checked_shl(u32::from(bits)).unwrap_or(0);
                if host == 0 {
                    Ok(Self { first, bits })
                } else {
                    Err(text)
                }
            }
            Some((first @ IpAddr::V6(address), bits)) if bits <= 128 => {
                let host = address.to_bits().checked_shl(u32::from(bits)).unwrap_or(0);
                if host == 0 {
                    Ok(Self { first, bits })
                } else {
                    Err(text)
                }
            }
            _ => Err(text),
        }
        .map_err(|text| {
            format!("{text:?} is no subnet; write its first address, as in \"192.168.1.0/24\"")
        })
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.first, self.bits)
    }
}

impl<'de> Deserialize<'de> for Subnet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

fn refuse(key: impl Into<String>, what: impl Into<String>) -> Result<(), Error> {
    Err(Error {
        file: None,
        line: None,
        key: key.into(),
        what: what.into(),
    })
}

fn between<T>(key: &str, value: T, range: RangeInclusive<T>) -> Result<(), Error>
where
    T: PartialOrd + fmt::Display,
{
    if range.contains(&value) {
        return Ok(());
    }
    refuse(
        key,
        format!(
            "is {value}; {} to {} can be used",
            range.start(),
            range.end()
        ),
    )
}

/// An error of the parser, with the line and the setting where it happened.
fn explain(text: &str, error: &toml::de::Error) -> Error {
    let at = error.span().map(|span| span.start);
    let spots = at.map(|at| (at, spots(text)));
    let here = |at, spot: &Spot| spot.name.contains(&at) || spot.value.contains(&at);
    let key = spots.and_then(|(at, mut all)| {
        all.retain(|spot| here(at, spot));
        all.pop().map(|spot| spot.key)
    });
    let mut what = error.message().replace('\n', "; ");
    for (kind, plain) in [
        ("expected u16", "expected a whole number from 0 to 65535"),
        (
            "expected u32",
            "expected a whole number from 0 to 4294967295",
        ),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected usize", "expected a whole number, 0 or more"),
    ] {
        what = what.replace(kind, plain);
    }
    Error {
        file: None,
        line: at.map(|at| line_at(text, at)),
        key: key.unwrap_or_default(),
        what,
    }
}

fn line_at(text: &str, at: usize) -> usize {
    text.bytes()
        .take(at)
        .filter(|octet| *octet == b'\n')
        .count()
        + 1
}

/// Where a setting stands in the file.
struct Spot {
    /// Its name, such as `listener[1].tls`.
    key: String,
    name: Range<usize>,
    value: Range<usize>,
}

/// All settings of a file, each after what it is in.
fn spots(text: &str) -> Vec<Spot> {
    fn of_table(table: &DeTable<'_>, within: &str, all: &mut Vec<Spot>) {
        for (name, value) in table {
            let dot = if within.is_empty() { "" } else { "." };
            let key = format!("{within}{dot}{}", name.get_ref());
            add(key, name.span(), value, all);
        }
    }
    fn add(key: String, name: Range<usize>, value: &Spanned<DeValue<'_>>, all: &mut Vec<Spot>) {
        all.push(Spot {
            key: key.clone(),
            name,
            value: value.span(),
        });
        match value.get_ref() {
            DeValue::Table(table) => of_table(table, &key, all),
            DeValue::Array(array) => {
                for (at, one) in array.iter().enumerate() {
                    add(format!("{key}[{at}]"), one.span(), one, all);
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        of_table(table.get_ref(), "", &mut all);
    }
    all
}

/// The line of a setting, or of the innermost thing that it would be in.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let spots = spots(text);
    let within = |spot: &&Spot| {
        key.strip_prefix(&spot.key)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    spots
        .iter()
        .filter(within)
        .max_by_key(|spot| spot.key.len())
        .map(|spot| line_at(text, spot.name.start))
}
