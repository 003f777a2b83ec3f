//! Reads the vectors of `broker/spec`.
#![allow(dead_code)]

pub use serde_json::Value;

/// What a value is. Each fails where it is something else.
pub trait Vector {
    fn text(&self) -> &str;
    fn number(&self) -> usize;
    fn list(&self) -> &[Value];
    fn map(&self) -> &serde_json::Map<String, Value>;
}

impl Vector for Value {
    fn text(&self) -> &str {
        self.as_str().expect("no text")
    }
    fn number(&self) -> usize {
        self.as_u64().expect("no number") as usize
    }
    fn list(&self) -> &[Value] {
        self.as_array().expect("no list")
    }
    fn map(&self) -> &serde_json::Map<String, Value> {
        self.as_object().expect("no map")
    }
}

pub fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

pub fn octets(hex: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
    (0..hex.len()).step_by(2).map(pair).collect()
}

pub fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
