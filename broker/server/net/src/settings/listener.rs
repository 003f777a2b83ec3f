//! The settings of listeners.

use super::address;
use serde::Deserialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// One place where clients connect.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RawListener")]
pub struct Listener {
    /// Where it is.
    pub place: Place,
    /// The transport of its clients.
    pub transport: Transport,
    /// Origins of the pages from which browsers may connect over WebSocket; `*`: all.
    pub origins: Vec<String>,
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
    /// The sockets that systemd has opened under this name (`FileDescriptorName=`).
    Systemd(String),
}

/// The transport of a listener's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// MQTT.
    #[default]
    Mqtt,
    /// MQTT in WebSocket frames.
    Websocket,
}

/// Encryption and authentication of a listener's clients.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The broker's certificate with its chain, PEM.
    pub certificate: PathBuf,
    /// The certificate's private key, PEM.
    pub key: PathBuf,
    /// The certificates that are trusted to sign those of clients, PEM.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is refused.
    #[serde(default)]
    pub require_certificate: bool,
    /// Whether the certificate's common name is the user name. There is no password then.
    #[serde(default)]
    pub identity_as_username: bool,
}

impl Place {
    /// Whether only this machine can reach it. Of systemd's sockets that is not known, so they are
    /// not local.
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

/// A listener as it is written: one of the first three settings says where it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawListener {
    #[serde(default, deserialize_with = "address")]
    address: Option<SocketAddr>,
    path: Option<PathBuf>,
    systemd: Option<String>,
    #[serde(default)]
    transport: Transport,
    #[serde(default)]
    origins: Vec<String>,
    tls: Option<Tls>,
}

impl TryFrom<RawListener> for Listener {
    type Error = &'static str;

    fn try_from(raw: RawListener) -> Result<Self, &'static str> {
        let RawListener {
            transport,
            tls,
            origins,
            ..
        } = raw;
        if !origins.is_empty() && transport == Transport::Mqtt {
            return Err("origins are for transport = \"websocket\"");
        }
        if !origins.iter().all(|one| one == "*" || one.contains("://")) {
            return Err("an origin is written as a browser says it: https://home.example, or *");
        }
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
                origins,
                tls,
            }),
        }
    }
}
