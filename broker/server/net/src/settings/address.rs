//! The address of a broker, as a URL.

use serde::Deserialize;
use std::str::FromStr;

/// Where an upstream is, and the login: `mqtt://[user[:password]@]host[:port]`, or `mqtts`.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether TLS is used.
    pub is_tls: bool,
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The user name.
    pub user: Option<String>,
    /// The password.
    pub password: Option<String>,
}

impl std::fmt::Display for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "mqtts" } else { "mqtt" };
        match self.host.contains(':') {
            true => write!(out, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(out, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{self}") // without the password, for logs
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            "is no address of a broker; write mqtt://[user[:password]@]host[:port], or mqtts".into()
        })
    }
}

fn parse(text: &str) -> Option<Address> {
    let (scheme, rest) = text.split_once("://")?;
    let is_tls = match scheme {
        "mqtt" => false,
        "mqtts" => true,
        _ => return None,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (login, place) = match rest.rsplit_once('@') {
        Some((login, place)) => (Some(login), place),
        None => (None, rest),
    };
    let (host, port) = match place.strip_prefix('[') {
        Some(place) => {
            let (host, port) = place.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (
                host,
                port.strip_prefix(':').or(port.is_empty().then_some(""))?,
            )
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let port = match port {
        "" if is_tls => 8883,
        "" => 1883,
        port => port.parse().ok().filter(|port| *port > 0)?,
    };
    let is_name = |octet: u8| octet.is_ascii_alphanumeric() || b"-._:".contains(&octet);
    if host.is_empty() || !host.bytes().all(is_name) {
        return None;
    }
    let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        None => (None, None),
        Some(("", _)) => return None, // a password without a user
        Some((user, "")) => (Some(plain(user)?), None),
        Some((user, password)) => (Some(plain(user)?), Some(plain(password)?)),
    };
    Some(Address {
        is_tls,
        host: host.into(),
        port,
        user,
        password,
    })
}

/// Decode the escapes of a URL.
fn plain(text: &str) -> Option<String> {
    let mut octets = Vec::new();
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            octet => octet,
        });
    }
    String::from_utf8(octets).ok()
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_address_has_a_host_and_what_else_it_names() {
        let read = |text: &str| {
            let found: Address = text.parse().unwrap();
            let login = (found.user.clone(), found.password.clone());
            (found.to_string(), login)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("mqtt://b"), ("mqtt://b:1883".into(), (None, None)));
        assert_eq!(
            read("mqtts://[::1]/"),
            ("mqtts://[::1]:8883".into(), (None, None))
        );
        let login = (some("a@b"), some("p:%"));
        assert_eq!(
            read("mqtt://a%40b:p:%25@10.0.0.1:99"),
            ("mqtt://10.0.0.1:99".into(), login)
        );
        assert_eq!(read("mqtt://u@b").1, (some("u"), None));
    }

    #[test]
    fn what_is_no_address_is_refused_and_a_password_is_never_shown() {
        for text in [
            "",
            "b",
            "http://b",
            "mqtt://",
            "mqtt://:1",
            "mqtt://b:0",
            "mqtt://b:x",
            "mqtt://[::1",
            "mqtt://[b]:1",
            "mqtt://u:%4@b",
            "mqtt://u:%ff@b",
            "mqtt://a b",
            "mqtt://::1:1883",
            "mqtt://:secret@b",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        let found: Address = "mqtt://u:secret@b".parse().unwrap();
        assert!(!format!("{found} {found:?}").contains("secret"));
    }
}
