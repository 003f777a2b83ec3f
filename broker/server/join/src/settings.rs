//! The configuration file: what may be set, the defaults, and what is refused.
//!
//! `join.toml.example` documents each setting.

use crate::cooperation::Kind;
use crate::topology::valid_name;
use crate::words::MOST_CONNECTIONS;
use mqtick_broker::settings::{
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
    /// What other nodes call this one.
    pub name: String,
    /// Who tells whom what.
    pub algorithm: Kind,
    /// When a client's message of QoS 1 or 2 is acknowledged.
    pub reliability: Reliability,
    /// For how long messages above QoS 0 wait for a neighbour that went.
    pub absence_s: u64,
    /// Whether time messages say how long they were in nodes and brokers.
    pub residence: bool,
    /// Where subscriptions of kept sessions are, over a restart.
    pub state: Option<PathBuf>,
    /// Topics of messages that tell the time.
    pub time_filters: Vec<String>,
    /// Where `status` and the like ask.
    pub control: PathBuf,
    /// Where clients and neighbours connect.
    #[serde(rename = "listener")]
    pub listeners: Vec<Listener>,
    /// The broker behind.
    pub broker: Broker,
    /// Other nodes.
    pub neighbours: Neighbours,
    /// Who may publish what.
    pub access: Access,
    /// What others may make the node hold.
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

/// The broker behind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Broker {
    /// Where it is; its user is who publishes what comes from other sites.
    pub url: Option<Address>,
    /// The password of that user, in its first line.
    pub password_file: Option<PathBuf>,
    /// Who signs its certificate, PEM.
    pub ca_file: PathBuf,
    /// Over how many connections messages from other sites are published.
    pub connections: u8,
}

/// Other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Neighbours {
    /// Those that this node connects to.
    pub urls: Vec<Address>,
    /// What all nodes know and nobody else, in its first line.
    pub secret_file: Option<PathBuf>,
    /// The common names in the certificates of nodes.
    pub certificate_names: Vec<String>,
    /// Who signs their certificates, PEM.
    pub ca_file: PathBuf,
    /// The certificate that this node shows them, PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// Connections to each.
    pub connections: u8,
    /// Seconds between two signs of life; after three times that a neighbour is gone.
    pub keep_alive_s: u16,
}

/// Who may publish what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Access {
    /// Mosquitto's access file; none: everything is allowed.
    pub acl_file: Option<PathBuf>,
}

/// What others may make the node hold.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections at a time, of clients and neighbours.
    pub connections: usize,
    /// Octets of one packet.
    pub packet: usize,
    /// Octets that wait for one neighbour, or for the broker, before QoS 0 is dropped.
    pub queue: usize,
    /// Octets for the topics of retained messages.
    pub retained: usize,
    /// Seconds from a connection to its whole CONNECT.
    pub connect_timeout_s: u64,
    /// Seconds for which the node waits for others at its end.
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

/// Where `status` asks, unless it is told otherwise.
pub const CONTROL: &str = "/run/mqtick-join/control";
const CA_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A plain listener.
#[must_use]
pub fn listener(address: SocketAddr) -> Listener {
    Listener {
        place: Place::Tcp(address),
        transport: Transport::Mqtt,
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

/// Read an address of a broker or node; `mqtt://` may be left out.
///
/// # Errors
/// Why it is none.
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
    /// The first one, with its key.
    pub fn check(&self) -> Result<(), Error> {
        if !valid_name(&self.name) {
            let what = format!(
                "is {:?}; 1 to 64 letters, digits, \"-\", \".\" and \"_\" can be used",
                self.name
            );
            return refuse("name", what);
        }
        if self.broker.url.is_none() {
            return refuse(
                "broker.url",
                "is missing: say where the broker is (--broker)",
            );
        }
        if self.listeners.is_empty() {
            return refuse(
                "listener",
                "is empty; leave it out for 127.0.0.1:1883 alone",
            );
        }
        let connections = 1..=MOST_CONNECTIONS;
        between(
            "broker.connections",
            self.broker.connections,
            connections.clone(),
        )?;
        between(
            "neighbours.connections",
            self.neighbours.connections,
            connections,
        )?;
        between(
            "neighbours.keep_alive_s",
            self.neighbours.keep_alive_s,
            1..=3600,
        )?;
        between("absence_s", self.absence_s, 0..=86_400)?;
        between("limits.connections", self.limits.connections, 1..=1_000_000)?;
        between(
            "limits.packet",
            self.limits.packet,
            1024..=mqtick_packet::MAXIMUM_LENGTH,
        )?;
        between("limits.queue", self.limits.queue, 1024..=1 << 40)?;
        between("limits.retained", self.limits.retained, 0..=1 << 40)?;
        between(
            "limits.connect_timeout_s",
            self.limits.connect_timeout_s,
            1..=3600,
        )?;
        between("limits.stop_s", self.limits.stop_s, 0..=3600)?;
        if self.neighbours.certificate.is_some() != self.neighbours.key.is_some() {
            let what = "certificate and key belong together: set both, or none";
            return refuse("neighbours.certificate", what);
        }
        let names = &self.neighbours.certificate_names;
        let asks = |one: &Listener| one.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if !names.is_empty() && !self.listeners.iter().any(asks) {
            let what = "needs a [[listener]] with tls.client_ca: nobody is asked for a certificate";
            return refuse("neighbours.certificate_names", what);
        }
        let wrong = |one: &&String| !mqtick_topics::valid_filter(one);
        if let Some(wrong) = self.time_filters.iter().find(wrong) {
            return refuse(
                "time_filters",
                format!("has {wrong:?}, which is no topic filter"),
            );
        }
        if self
            .state
            .as_ref()
            .is_some_and(|path| path.as_os_str().is_empty())
        {
            return refuse(
                "state",
                "is empty; leave it out to keep nothing over a restart",
            );
        }
        Ok(())
    }

    /// Take over what may change while a node runs. What else is another one, as the file calls it.
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
        // The files of another broker are not for this one.
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

    /// Whether whoever connects may be a neighbour: only where nobody can reach this node from
    /// another machine, and nothing else says who is one.
    #[must_use]
    pub fn trusts_anybody(&self) -> bool {
        self.neighbours.secret_file.is_none()
            && self.neighbours.certificate_names.is_empty()
            && self.listeners.iter().all(|one| one.place.is_local())
    }

    /// What is allowed but should be known, a sentence each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut said = Vec::new();
        let is_closed = self.neighbours.secret_file.is_none()
            && self.neighbours.certificate_names.is_empty()
            && !self.trusts_anybody();
        if is_closed {
            said.push(
                "neighbours: no other node can connect to this one, since nothing says who is one: \
                 set neighbours.secret_file, or certificate_names"
                    .into(),
            );
        }
        if self.access.acl_file.is_none() && !self.listeners.iter().all(|one| one.place.is_local())
        {
            said.push(
                "access.acl_file: is not set, so whatever clients publish here goes to other sites, \
                 also what this site's broker refuses, and whatever comes from there is published"
                    .into(),
            );
        }
        let far = |one: &&Address| {
            let ip = one.host.parse::<std::net::IpAddr>();
            !one.is_tls && !ip.is_ok_and(|ip| ip.is_loopback())
        };
        if self.neighbours.secret_file.is_some() {
            said.extend(self.neighbours.urls.iter().filter(far).map(|url| {
                format!("neighbours.secret_file: goes to {url} unencrypted; use mqtts://")
            }));
        }
        said
    }
}
