//! Subnets that may send datagrams.

use mqtick_net::settings::{Error, refuse};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A subnet, such as `192.168.1.0/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subnet {
    /// Its first address.
    pub first: IpAddr,
    /// The length of its prefix, in bits.
    pub bits: u8,
}

/// An address as 128 bits, those of IPv4 on the left.
fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl Subnet {
    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let differ = bits_of(self.first) ^ bits_of(address);
        self.first.is_ipv4() == address.is_ipv4() && differ.leading_zeros() >= u32::from(self.bits)
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no subnet; write its first address, as in \"192.168.1.0/24\"");
        let parts = text.split_once('/');
        let parsed =
            parts.and_then(|(first, bits)| Some((first.parse().ok()?, bits.parse().ok()?)));
        let (first, bits): (IpAddr, u8) = parsed.ok_or_else(wrong)?;
        let most = if first.is_ipv4() { 32 } else { 128 };
        let is_first = bits_of(first).unbounded_shl(bits.into()) == 0;
        (bits <= most && is_first)
            .then_some(Self { first, bits })
            .ok_or_else(wrong)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.first, self.bits)
    }
}

impl<'de> Deserialize<'de> for Subnet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Check the subnets of a socket for datagrams.
pub(super) fn check_datagrams(
    key: &str,
    address: Option<SocketAddr>,
    subnets: &[Subnet],
) -> Result<(), Error> {
    if address.is_none() {
        return match subnets {
            [] => Ok(()),
            _ => refuse(
                key,
                "has subnets but no address; set address = \"0.0.0.0:1883\"",
            ),
        };
    }
    if subnets.is_empty() {
        return refuse(
            key,
            "has an address but answers nobody; set subnets = [\"...\"]",
        );
    }
    for (at, subnet) in subnets.iter().enumerate() {
        let key = || format!("{key}.subnets[{at}]");
        if subnet.bits == 0 {
            return refuse(
                key(),
                format!("{subnet} is everybody; name your own subnets"),
            );
        }
    }
    Ok(())
}
