//! The settings that several programs have, and what is said of wrong ones.

mod address;
mod error;
mod listener;

pub use address::Address;
pub use error::{Error, between, explain, line_of, refuse};
pub use listener::{Listener, Place, Tls, Transport};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

/// Where Prometheus reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Address and port; none: off.
    #[serde(deserialize_with = "address")]
    pub address: Option<SocketAddr>,
}

/// Read a configuration file.
///
/// # Errors
/// The file cannot be read, or something in it is refused.
pub fn load<S: FromStr<Err = Error>>(path: &Path) -> Result<S, Error> {
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

/// Read an address with a port.
///
/// # Errors
/// The text is no address with a port.
pub fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(|_| {
        D::Error::custom(format!(
            "{text:?} is no address with a port; write for example \"0.0.0.0:1883\" or \"[::]:1883\""
        ))
    })
}
