//! The values of options: numbers within limits, words of a few, addresses.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::{Failure, Outcome};

/// Returns host and port of an address such as `mqtt://HOST:PORT`, or of that without a scheme.
pub fn broker_of(address: &str) -> Outcome<String> {
    match address.split_once("://") {
        None | Some(("mqtt", _)) => {
            let name = address.trim_start_matches("mqtt://").trim_end_matches('/');
            Ok(name.to_owned())
        }
        Some((scheme, _)) => Err(Failure::Use(format!(
            "{address}: mqtick-load speaks mqtt, not {scheme}: give mqtt://HOST[:PORT]."
        ))),
    }
}

/// Finds the address of a broker; its port is the usual one where it is not said.
///
/// # Errors
/// Where its name has none.
pub fn address(broker: &str) -> Outcome<SocketAddr> {
    let unknown = |why: &str| Failure::Use(format!("--broker {broker}: {why}."));
    let has_port = match broker.rsplit_once(':') {
        Some((host, _)) => !host.contains(':') || host.ends_with(']'),
        None => false,
    };
    let name = if has_port {
        broker.to_owned()
    } else {
        format!("{broker}:1883")
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
        ] {
            assert_eq!(address(name).unwrap().to_string(), expected);
        }
        assert!(address("127.0.0.1:x").is_err());
    }
}
