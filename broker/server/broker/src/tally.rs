//! What is counted for the metrics beyond what `$SYS` says.

use crate::transport::Transport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What carries a connection.
pub const TRANSPORTS: [&str; 4] = ["mqtt", "tls", "websocket", "tls_websocket"];

/// Why a connection ended, by reason code of MQTT 5 (clause 2.4); the first one: the client went
/// without a word; the last one: any other.
pub const REASONS: [(u8, &str); 18] = [
    (0x00, "gone"),
    (0x80, "unspecified"),
    (0x81, "malformed"),
    (0x82, "protocol"),
    (0x84, "version"),
    (0x85, "client_identifier"),
    (0x86, "password"),
    (0x87, "not_authorized"),
    (0x89, "busy"),
    (0x8B, "shutting_down"),
    (0x8C, "authentication_method"),
    (0x8D, "timeout"),
    (0x8F, "topic_filter"),
    (0x90, "topic"),
    (0x94, "topic_alias"),
    (0x95, "too_large"),
    (0x97, "quota"),
    (0xFF, "other"),
];

/// How often something happened, for each of [`REASONS`].
#[derive(Default)]
pub struct ByReason([AtomicU64; REASONS.len()]);

impl ByReason {
    /// It happened, for the reason with this code.
    pub fn count(&self, code: u8) {
        let known = REASONS.iter().position(|(known, _)| *known == code);
        if let Some(one) = self.0.get(known.unwrap_or(REASONS.len() - 1)) {
            one.fetch_add(1, Relaxed);
        }
    }

    /// Reasons, and how often it was each.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = REASONS.iter().map(|(_, name)| *name);
        names.zip(self.0.iter().map(|one| one.load(Relaxed)))
    }
}

/// The counters.
#[derive(Default)]
pub struct Tally {
    /// Connections refused, before or at CONNECT.
    pub refused: ByReason,
    /// Connections of clients that the broker ended.
    pub ended: ByReason,
    open: [AtomicUsize; TRANSPORTS.len()],
}

impl Tally {
    /// Connections that are open, by what carries them.
    pub fn open(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let numbers = self.open.iter().map(|one| one.load(Relaxed));
        TRANSPORTS.into_iter().zip(numbers)
    }

    /// A connection was opened.
    pub fn seat(self: &Arc<Self>, transport: &Transport) -> Seat {
        let at = match transport {
            Transport::Plain => 0,
            Transport::Tls(_) => 1,
            Transport::WebSocket(_) => 2,
            Transport::TlsWebSocket(..) => 3,
        };
        if let Some(one) = self.open.get(at) {
            one.fetch_add(1, Relaxed);
        }
        Seat(Arc::clone(self), at)
    }
}

/// One connection, counted for as long as this is there.
pub struct Seat(Arc<Tally>, usize);

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(one) = self.0.open.get(self.1) {
            one.fetch_sub(1, Relaxed);
        }
    }
}
