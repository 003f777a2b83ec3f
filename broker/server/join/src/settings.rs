//! The configuration file: the settings, their defaults, and which values are refused.
//!
//! `join.toml.example` documents each setting.

use crate::cooperation::Kind;
use crate::topology::valid_name;
use crate::words::MOST_CONNECTIONS;
use mqtick_net::settings::{
    Address, Error, Listener, Metrics, Place, Transport, between, explain, refuse,
};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The name of this node.
    pub name: String,
    /// The cooperation algorithm.
    pub algorithm: Kind,
    /// When a client's message of QoS 1 or 2 is acknowledged.
    pub reliability: Reliability,
    /// How long messages above QoS 0 wait for a neighbour that went away.
    pub absence_s: u64,
    /// Whether time messages state how long they were in nodes and brokers.
    pub residence: bool,
    /// The file for kept sessions, which are restored after a restart.
    pub state: Option<PathBuf>,
    /// The topics of time messages.
    pub time_filters: Vec<String>,
    /// The socket for `status` and the like.
    pub control: PathBuf,
    /// Where clients and neighbours connect.
    #[serde(rename = "listener")]
    pub listeners: Vec<Listener>,
    /// This site's broker.
    pub broker: Broker,
    /// Other nodes.
    pub neighbours: Neighbours,
    /// Who may publish what.
    pub access: Access,
    /// How much clients and neighbours may make the node hold.
    pub limits: Limits,
    /// Where Prometheus reads.
    pub metrics: Metrics,
}

/// When a client's message of QoS 1 or 2 is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reliability {
    /// Once its broker has it.
    #[default]
    Broker,
    /// Once all sites that want it have it.
    All,
}

/// This site's broker.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Broker {
    /// Its address, and the user who publishes messages from other sites there.
    pub url: Option<Address>,
    /// A file with the password of that user in the first line.
    pub password_file: Option<PathBuf>,
    /// The authority that signs the broker's certificate, PEM.
    pub ca_file: PathBuf,
    /// How many connections publish messages from other sites.
    pub connections: u8,
}

/// Other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Neighbours {
    /// The nodes that this one connects to.
    pub urls: Vec<Address>,
    /// A file with the secret that all nodes share in the first line.
    pub secret_file: Option<PathBuf>,
    /// The common names in the certificates of nodes.
    pub certificate_names: Vec<String>,
    /// The authority that signs these certificates, PEM.
    pub ca_file: PathBuf,
    /// The certificate that this node shows to others, PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// How many connections a link has.
    pub connections: u8,
    /// Seconds between pings. A neighbour that is silent for three times as long is gone.
    pub keep_alive_s: u16,
}

/// Who may publish what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// An access file in Mosquitto's format. None: everything is allowed.
    pub acl_file: Option<PathBuf>,
}

/// How much clients and neighbours may make the node hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at a time, of clients and neighbours.
    pub connections: usize,
    /// Octets of one packet.
    pub packet: usize,
    /// Octets that may wait for one neighbour, or for the broker, until QoS 0 is dropped.
    pub queue: usize,
    /// Octets for the topics of retained messages.
    pub retained: usize,
    /// Seconds in which CONNECT has to come, and in which the broker has to answer it.
    pub connect_timeout_s: u64,
    /// Seconds for which a node that ends waits for other sites.
    pub stop_s: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: host_name(),
            algorithm: Kind::default(),
            reliability: Reliability::default(),
            absence_s: 30,
            residence: true,
            state: None,
            time_filters: vec!["mqtick/#".into()],
            control: CONTROL.into(),
            listeners: vec![listener(SocketAddr::from(([127, 0, 0, 1], 1883)))],
            broker: Broker::default(),
            neighbours: Neighbours::default(),
            access: Access::default(),
            limits: Limits::default(),
            metrics: Metrics::default(),
        }
    }
}

/// The default of [`Settings::control`].
pub const CONTROL: &str = "/run/mqtick-join/control";
const CA_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A TCP listener without TLS.
#[must_use]
pub fn listener(address: SocketAddr) -> Listener {
    Listener {
        place: Place::Tcp(address),
        transport: Transport::Mqtt,
        origins: Vec::new(),
        tls: None,
    }
}

fn host_name() -> String {
    let name = nix::sys::utsname::uname().ok();
    let name = name.and_then(|name| name.nodename().to_str().map(String::from));
    name.filter(|name| valid_name(name))
        .unwrap_or_else(|| "node".into())
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            url: None,
            password_file: None,
            ca_file: CA_FILE.into(),
            connections: 2,
        }
    }
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            secret_file: None,
            certificate_names: Vec::new(),
            ca_file: CA_FILE.into(),
            certificate: None,
            key: None,
            connections: 2,
            keep_alive_s: 5,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 100_000,
            packet: 16 << 20,
            queue: 32 << 20,
            retained: 32 << 20,
            connect_timeout_s: 10,
            stop_s: 5,
        }
    }
}

/// Read the address of a broker or node. `mqtt://` may be left out.
///
/// # Errors
/// What is wrong with it.
pub fn url(text: &str) -> Result<Address, String> {
    match text.contains("://") {
        true => text.parse(),
        false => format!("mqtt://{text}").parse(),
    }
}

impl FromStr for Settings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        toml::from_str(text).map_err(|error| explain(text, &error))
    }
}

impl Settings {
    /// Look for values out of range and settings that contradict each other.
    ///
    /// # Errors
    /// The first one found, with its key.
    pub fn check(&self) -> Result<(), Error> {
        let (broker, neighbours, limits) = (&self.broker, &self.neighbours, &self.limits);
        if !valid_name(&self.name) {
            let what = format!(
                "is {:?}; 1 to 64 letters, digits, \"-\", \".\" and \"_\" can be used",
                self.name
            );
            return refuse("name", what);
        }
        if broker.url.is_none() {
            let what = "is missing: set it to the address of the broker (--broker)";
            return refuse("broker.url", what);
        }
        if self.listeners.is_empty() {
            let what = "is empty; leave it out to listen on 127.0.0.1:1883 only";
            return refuse("listener", what);
        }
        let (most, longest) = (MOST_CONNECTIONS, mqtick_packet::MAXIMUM_LENGTH);
        let timeout_s = limits.connect_timeout_s;
        between("broker.connections", broker.connections, 1..=most)?;
        between("neighbours.connections", neighbours.connections, 1..=most)?;
        between("neighbours.keep_alive_s", neighbours.keep_alive_s, 1..=3600)?;
        between("absence_s", self.absence_s, 0..=86_400)?;
        between("limits.connections", limits.connections, 1..=1_000_000)?;
        between("limits.packet", limits.packet, 1024..=longest)?;
        between("limits.queue", limits.queue, 1024..=1 << 40)?;
        between("limits.retained", limits.retained, 0..=1 << 40)?;
        between("limits.connect_timeout_s", timeout_s, 1..=3600)?;
        between("limits.stop_s", limits.stop_s, 0..=3600)?;
        if neighbours.certificate.is_some() != neighbours.key.is_some() {
            let what = "certificate and key belong together: set both, or none";
            return refuse("neighbours.certificate", what);
        }
        let asks = |one: &Listener| one.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if !neighbours.certificate_names.is_empty() && !self.listeners.iter().any(asks) {
            let what =
                "needs a [[listener]] with tls.client_ca, which asks nodes for a certificate";
            return refuse("neighbours.certificate_names", what);
        }
        let wrong = |one: &&String| !mqtick_topics::valid_filter(one);
        if let Some(wrong) = self.time_filters.iter().find(wrong) {
            let what = format!("has {wrong:?}, which is no topic filter");
            return refuse("time_filters", what);
        }
        if self
            .state
            .as_ref()
            .is_some_and(|path| path.as_os_str().is_empty())
        {
            let what = "is empty; leave it out to keep nothing over a restart";
            return refuse("state", what);
        }
        Ok(())
    }

    /// Take over new settings that may change while a node runs. Returns the other ones that have
    /// changed, as the file calls them.
    pub fn follow(&mut self, new: Self) -> Vec<&'static str> {
        macro_rules! differing {
            ($($name:literal: $($field:ident).+),* $(,)?) => {
                [$(($name, self.$($field).+ != new.$($field).+)),*]
            };
        }
        let all = differing![
            "name": name,
            "algorithm": algorithm,
            "reliability": reliability,
            "absence_s": absence_s,
            "residence": residence,
            "state": state,
            "time_filters": time_filters,
            "control": control,
            "listener": listeners,
            "broker.url": broker.url,
            "broker.connections": broker.connections,
            "neighbours.connections": neighbours.connections,
            "neighbours.keep_alive_s": neighbours.keep_alive_s,
            "limits": limits,
            "metrics": metrics,
        ];
        self.access = new.access;
        // The files of a new broker do not belong to the present one.
        if self.broker.url == new.broker.url {
            self.broker.password_file = new.broker.password_file;
            self.broker.ca_file = new.broker.ca_file;
        }
        self.neighbours = Neighbours {
            connections: self.neighbours.connections,
            keep_alive_s: self.neighbours.keep_alive_s,
            ..new.neighbours
        };
        let differing = all.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(name, _)| name).collect()
    }

    fn is_local(&self) -> bool {
        self.listeners.iter().all(|one| one.place.is_local())
    }

    /// Whether neighbours have to show neither a secret nor a certificate.
    fn is_open(&self) -> bool {
        self.neighbours.secret_file.is_none() && self.neighbours.certificate_names.is_empty()
    }

    /// Whether anything that connects may be a neighbour: if no secret and no certificate is asked for,
    /// and only this machine can connect.
    #[must_use]
    pub fn trusts_anybody(&self) -> bool {
        self.is_open() && self.is_local()
    }

    /// Warnings about settings that are allowed, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut said: Vec<String> = Vec::new();
        if self.is_open() && !self.is_local() {
            let text = "neighbours: no other node can connect to this one, as it could not show that it \
                        is a node: set neighbours.secret_file or neighbours.certificate_names";
            said.push(text.into());
        }
        if self.access.acl_file.is_none() && !self.is_local() {
            let text = "access.acl_file: is not set, so every message of a client goes to other sites, \
                        even if this site's broker refuses it, and every message from there is published";
            said.push(text.into());
        }
        let far = |one: &&Address| {
            let ip = one.host.parse::<std::net::IpAddr>();
            !one.is_tls && !ip.is_ok_and(|ip| ip.is_loopback())
        };
        if self.neighbours.secret_file.is_some() {
            said.extend(self.neighbours.urls.iter().filter(far).map(|url| {
                format!(
                    "neighbours.secret_file: the secret goes to {url} unencrypted; use mqtts://"
                )
            }));
        }
        said
    }
}
