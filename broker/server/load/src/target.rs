//! A broker's address, and how to connect to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use mqtick_packet::Version;

use crate::options::Options;
use crate::tls::{Pem, Security};
use crate::values::{address, broker_of, tls_host};
use crate::{Failure, Outcome};

/// A broker's address, and how to connect to it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its name in a report: `broker` or `floor`.
    pub who: &'static str,
    /// Its address.
    pub address: SocketAddr,
    /// The version of MQTT.
    pub version: Version,
    /// Certificates and key for TLS.
    pub pem: Pem,
    /// TLS to this broker, if it is spoken.
    pub security: Option<Security>,
    /// The user's name and password.
    pub login: Option<(String, Vec<u8>)>,
    /// How long an answer may take.
    pub patience: Duration,
    /// Prefix of client identifiers and topics; different in each run.
    pub prefix: String,
    /// Whether the broker is to keep the subscribers' sessions.
    pub persistent: bool,
    /// Whether it speaks MQTT over UDP rather than TCP.
    pub udp: bool,
    /// Whether it speaks MQTT-SN.
    pub sn: bool,
}

impl Target {
    /// Returns the same for another broker.
    ///
    /// # Errors
    /// Where its name has no address, or TLS cannot be spoken with it.
    pub fn at(&self, broker: &str) -> Outcome<Self> {
        let broker = broker_of(broker)?;
        let security = tls_host(&broker).map(|host| Security::new(&self.pem, host));
        Ok(Self {
            address: address(&broker)?,
            security: security.transpose()?,
            ..self.clone()
        })
    }

    /// Whether each packet is a datagram of its own.
    #[must_use]
    pub fn is_datagrams(&self) -> bool {
        self.udp || self.sn
    }
}

impl Options {
    /// Finds the broker.
    ///
    /// # Errors
    /// Where its name has no address, or the password cannot be read.
    pub fn target(&self) -> Outcome<Target> {
        let login = match (&self.username, &self.password_file) {
            (Some(name), Some(file)) => {
                let password = std::fs::read_to_string(file)
                    .map_err(|error| Failure::Use(format!("--password-file {file}: {error}.")))?;
                Some((
                    name.clone(),
                    password.trim_end_matches(['\r', '\n']).as_bytes().to_vec(),
                ))
            }
            (Some(name), None) => Some((name.clone(), Vec::new())),
            _ => None,
        };
        if !self.pem.is_empty() && tls_host(&self.broker).is_none() {
            return Err(Failure::Use(format!(
                "--broker {} is reached without TLS, so --ca-file and --certificate-file protect \
                 nothing: write mqtts://, or leave them out.",
                self.broker
            )));
        }
        let target = Target {
            who: "broker",
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            pem: self.pem.clone(),
            security: None,
            version: self.version,
            login,
            patience: self.patience,
            persistent: self.persistent,
            udp: self.udp,
            prefix: self
                .prefix
                .clone()
                .unwrap_or_else(|| format!("mqtick-load-{:x}", crate::stamps::now_ns() / 1000)),
            sn: self.sn,
        };
        target.at(&self.broker)
    }
}
