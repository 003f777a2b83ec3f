//! Writes the data types of MQTT (1.5). The functions have the names of those that read them.

pub(crate) fn u8(out: &mut Vec<u8>, value: u8) {
    out.push(value);
}

pub(crate) fn u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn bool(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

#[inline]
pub(crate) fn variable(out: &mut Vec<u8>, mut value: u32) {
    while value > 0x7F {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn binary(out: &mut Vec<u8>, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    u16(out, length);
    out.extend_from_slice(value.get(..usize::from(length)).unwrap_or_default());
}

pub(crate) fn string(out: &mut Vec<u8>, value: &str) {
    let end = value.floor_char_boundary(usize::from(u16::MAX));
    binary(out, value.get(..end).unwrap_or_default().as_bytes());
}

pub(crate) fn topic(out: &mut Vec<u8>, value: &str) {
    string(out, value);
}

pub(crate) fn pair(out: &mut Vec<u8>, (name, value): (&str, &str)) {
    string(out, name);
    string(out, value);
}
