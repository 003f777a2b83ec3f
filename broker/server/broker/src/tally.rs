//! Counters of the metrics that are not on `$SYS`.

use mqtick_net::transport::Transport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The transports of connections.
pub const TRANSPORTS: [&str; 4] = ["mqtt", "tls", "websocket", "tls_websocket"];

/// Why a connection has ended, by reason code of MQTT 5 (clause 2.4). The first one: the client has
/// ended it. The last one: any other.
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

/// How often something has happened, for each of [`REASONS`].
#[derive(Default)]
pub struct ByReason([AtomicU64; REASONS.len()]);

impl ByReason {
    /// Count one, for the reason with this code.
    pub fn count(&self, code: u8) {
        let known = REASONS.iter().position(|(known, _)| *known == code);
        if let Some(one) = self.0.get(known.unwrap_or(REASONS.len() - 1)) {
            one.fetch_add(1, Relaxed);
        }
    }

    /// The count of each reason.
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
    /// Open connections by transport.
    pub fn open(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let numbers = self.open.iter().map(|one| one.load(Relaxed));
        TRANSPORTS.into_iter().zip(numbers)
    }

    /// A connection was opened: count it.
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

/// Counts one connection until it is dropped.
pub struct Seat(Arc<Tally>, usize);

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(one) = self.0.open.get(self.1) {
            one.fetch_sub(1, Relaxed);
        }
    }
}
