//! A broker's address, and how to connect to it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use mqtick_packet::Version;

use crate::protocol::tls::{Pem, Security};
use mqtick_net::failure::{Failure, Outcome};

/// Prefix of an address that is reached by TLS.
const TLS: &str = "mqtts://";

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
    pub fn is_datagrams(&self) -> bool {
        self.udp || self.sn
    }
}

/// Returns a broker's address, `mqtt://` left out.
///
/// # Errors
/// Where it has another scheme, or an account.
pub fn broker_of(address: &str) -> Outcome<String> {
    let wrong = |text: &str| Err(Failure::Use(format!("{address:?}: {text}")));
    let (scheme, name) = address.split_once("://").unwrap_or(("mqtt", address));
    let name = name.trim_end_matches('/');
    match scheme {
        "mqtt" | "mqtts" if name.contains('@') => {
            wrong("no account in an address: see --username, --password-file.")
        }
        "mqtt" | "mqtts" if name.is_empty() || name.starts_with(':') => {
            wrong("which host? Give mqtt://HOST[:PORT].")
        }
        "mqtt" => Ok(name.to_owned()),
        "mqtts" => Ok(format!("{TLS}{name}")),
        _ => wrong(&format!(
            "mqtick-load speaks mqtt and mqtts, not {scheme}: give mqtt://HOST[:PORT]."
        )),
    }
}

/// Returns the host of a broker that is reached by TLS; None of another.
pub fn tls_host(broker: &str) -> Option<&str> {
    let name = broker.strip_prefix(TLS)?;
    let host = name.rsplit_once(':').filter(|_| has_port(name));
    let host = host.map_or(name, |(host, _)| host);
    Some(host.trim_start_matches('[').trim_end_matches(']'))
}

fn has_port(name: &str) -> bool {
    let host = name.rsplit_once(':').map(|(host, _)| host);
    host.is_some_and(|host| !host.contains(':') || host.ends_with(']'))
}

/// Resolves a broker's address; the port has a default.
///
/// # Errors
/// Where the name has no address.
pub fn address(broker: &str) -> Outcome<SocketAddr> {
    let unknown = |why: &str| Failure::Use(format!("--broker {broker}: {why}."));
    let name = broker.trim_start_matches(TLS);
    let name = match (has_port(name), tls_host(broker)) {
        (true, _) => name.to_owned(),
        (false, None) => format!("{name}:1883"),
        (false, Some(_)) => format!("{name}:8883"),
    };
    let found = name
        .to_socket_addrs()
        .map_err(|error| unknown(&error.to_string()))?
        .next();
    found.ok_or_else(|| unknown("this name has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_has_a_port_or_the_usual_one() {
        for (name, expected) in [
            ("127.0.0.1", "127.0.0.1:1883"),
            ("127.0.0.1:99", "127.0.0.1:99"),
            ("[::1]", "[::1]:1883"),
            ("[::1]:99", "[::1]:99"),
            ("mqtts://127.0.0.1", "127.0.0.1:8883"),
            ("mqtts://[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(address(name).unwrap().to_string(), expected);
        }
        for (name, host) in [
            ("mqtts://a.b", Some("a.b")),
            ("mqtts://a.b:1", Some("a.b")),
            ("mqtts://[::1]", Some("::1")),
            ("mqtts://[::1]:99", Some("::1")),
            ("a.b:1", None),
        ] {
            assert_eq!(tls_host(&broker_of(name).unwrap()), host);
        }
        for (name, told) in [
            ("mqtts://user:word@h", "no account"),
            ("", "which host?"),
            ("mqtt://", "which host?"),
            ("mqtts:///", "which host?"),
            ("mqtt://:1883", "which host?"),
        ] {
            let error = broker_of(name).unwrap_err().to_string();
            assert!(error.contains(told), "{name}: {error}");
        }
        assert!(address("127.0.0.1:x").is_err());
    }
}
