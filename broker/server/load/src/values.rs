//! Values of options: numbers, words and addresses.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::{Failure, Outcome};

/// Prefix of an address that is reached by TLS.
const TLS: &str = "mqtts://";

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
#[must_use]
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

pub(crate) fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
    name: &str,
    value: &str,
    least: T,
    most: T,
) -> Outcome<T> {
    match value.parse::<T>() {
        Ok(found) if found >= least && found <= most => Ok(found),
        _ => Err(Failure::Use(format!(
            "--{name} {value}: give a number from {least} to {most}."
        ))),
    }
}

pub(crate) fn seconds(name: &str, value: &str, least: f64, most: f64) -> Outcome<Duration> {
    number(name, value, least, most).map(Duration::from_secs_f64)
}

pub(crate) fn one_of<T: Copy>(name: &str, value: &str, known: &[(&str, T)]) -> Outcome<T> {
    let found = known
        .iter()
        .find(|(word, _)| *word == value)
        .map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let words: Vec<&str> = known.iter().map(|(word, _)| *word).collect();
        Failure::Use(format!("--{name} {value}: give {}.", words.join(" or ")))
    })
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
