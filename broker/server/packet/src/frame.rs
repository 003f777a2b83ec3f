//! Where a packet begins and ends.

use crate::read;
use crate::types::Error;

/// One complete packet, with its fixed header parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The first octet: type and flags.
    pub first: u8,
    /// The octets after the fixed header.
    pub body: &'a [u8],
    /// The octets of the whole packet, including its fixed header.
    pub length: usize,
}

impl Frame<'_> {
    /// Whether it is a PUBLISH.
    #[must_use]
    #[inline]
    pub fn is_publish(&self) -> bool {
        self.first >> 4 == 3
    }
}

/// Finds the packet at the beginning of `octets`. `None`: more octets are needed.
///
/// # Errors
/// `TooLarge` as soon as the fixed header announces a packet of more than `limit` octets;
/// `Malformed` if its length has more than four octets, or more than necessary ([MQTT-1.5.5-1]).
#[inline]
pub fn frame(octets: &[u8], limit: usize) -> Result<Option<Frame<'_>>, Error> {
    let [first, rest @ ..] = octets else {
        return Ok(None);
    };
    let Some((remaining, used)) = read::variable(rest)? else {
        return Ok(None);
    };
    let length = 1 + used + remaining as usize;
    if length > limit {
        return Err(Error::TooLarge);
    }
    let body = octets.get(1 + used..length);
    Ok(body.map(|body| Frame {
        first: *first,
        body,
        length,
    }))
}
