//! The settings of a gateway: its upstream, and how it connects.

use mqtick_net::settings::Address;
use serde::Deserialize;
use std::path::PathBuf;

/// The broker for which this one is a gateway to sensors, if any.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    /// Where it is; none: this is no gateway.
    pub url: Option<Address>,
    /// Whether sensors share one connection.
    pub mode: Gateway,
    /// The file whose first line is the password of the URL's user.
    pub password_file: Option<PathBuf>,
    /// The certificates that are trusted to sign the upstream's, PEM.
    pub ca_file: PathBuf,
    /// The certificate that the gateway shows, with its chain, PEM.
    pub certificate: Option<PathBuf>,
    /// The certificate's private key, PEM.
    pub key: Option<PathBuf>,
    /// The gateway's client identifier at the upstream.
    pub client: String,
}

/// Whether sensors share one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gateway {
    /// One connection for all of them.
    #[default]
    Aggregating,
    /// One connection for each, with its identifier, session and will.
    Transparent,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: None,
            mode: Gateway::default(),
            password_file: None,
            ca_file: "/etc/ssl/certs/ca-certificates.crt".into(),
            certificate: None,
            key: None,
            client: "mqtick-gateway".into(),
        }
    }
}

impl Upstream {
    /// Whether each sensor has a connection of its own.
    #[must_use]
    pub fn is_transparent(&self) -> bool {
        self.url.is_some() && self.mode == Gateway::Transparent
    }
}
