//! Reads the data types of MQTT (1.5).

use crate::types::Error;

/// The largest variable byte integer.
pub(crate) const MAXIMUM_VARIABLE: u32 = 268_435_455;

const SHORT: Error = Error::Malformed("it ends too early");

/// Reads a variable byte integer. Returns its value and its length; `None` if more octets are
/// needed.
#[inline]
pub(crate) fn variable(octets: &[u8]) -> Result<Option<(u32, usize)>, Error> {
    let mut value = 0;
    for (place, octet) in octets.iter().take(4).enumerate() {
        value |= u32::from(octet & 0x7F) << (7 * place);
        if octet & 0x80 == 0 {
            if *octet == 0 && place > 0 {
                return Err(Error::Malformed(
                    "a variable byte integer longer than it needs to be",
                ));
            }
            return Ok(Some((value, place + 1)));
        }
    }
    if octets.len() < 4 {
        return Ok(None);
    }
    Err(Error::Malformed(
        "a variable byte integer of more than four octets",
    ))
}

/// The unread octets of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the rest.
    #[inline]
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*taken)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array().map(|[octet]| octet)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads an octet that must be 0 or 1.
    #[inline]
    pub(crate) fn bool(&mut self) -> Result<bool, Error> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Protocol("a property that must be 0 or 1 is neither")),
        }
    }

    #[inline]
    pub(crate) fn variable(&mut self) -> Result<u32, Error> {
        let (value, used) = variable(self.0)?.ok_or(SHORT)?;
        self.take(used)?;
        Ok(value)
    }

    #[inline]
    pub(crate) fn binary(&mut self) -> Result<&'a [u8], Error> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }

    /// Reads a string: UTF-8 ([MQTT-1.5.4-1]) without U+0000 ([MQTT-1.5.4-2]).
    pub(crate) fn string(&mut self) -> Result<&'a str, Error> {
        let octets = self.binary()?;
        if octets.contains(&0) {
            return Err(Error::Malformed("a string with U+0000"));
        }
        utf8(octets)
    }

    pub(crate) fn pair(&mut self) -> Result<(&'a str, &'a str), Error> {
        Ok((self.string()?, self.string()?))
    }

    /// Reads a topic name: a string without wildcards ([MQTT-3.3.2-2]). It may be empty.
    #[inline]
    pub(crate) fn topic(&mut self) -> Result<&'a str, Error> {
        let octets = self.binary()?;
        // Without an early end the compiler compares many octets at once.
        let forbidden = |found, octet: &u8| found | matches!(octet, 0 | b'#' | b'+');
        if octets.iter().fold(false, forbidden) {
            return Err(Error::Malformed("a topic name with a wildcard or U+0000"));
        }
        utf8(octets)
    }

    /// Reads a packet identifier, which is never 0 ([MQTT-2.2.1-3]).
    #[inline]
    pub(crate) fn id(&mut self) -> Result<u16, Error> {
        match self.u16()? {
            0 => Err(Error::Protocol("packet identifier 0")),
            id => Ok(id),
        }
    }
}

#[inline]
fn utf8(octets: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(octets).map_err(|_| Error::Malformed("a string that is not UTF-8"))
}
