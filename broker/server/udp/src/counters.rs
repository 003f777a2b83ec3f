//! What is counted.

/// The counters: refused datagrams, refused filters, and other events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[allow(missing_docs)] // they are explained in clause 7
pub enum Count {
    Source,
    Oversized,
    Length,
    Type,
    Flags,
    Qos,
    Subnet,
    Truncated,
    Filters,
    Identifier,
    Topic,
    Reserved,
    Proof,
    Stranger,
    Full,
    Filter,
    Share,
    Table,
    /// The access rules do not allow it.
    Access,
    /// A message with RETAIN was not retained.
    Pool,
    /// A subscriber or publisher exceeded its limit for a second.
    Rate,
    Challenges,
    LeasesEnded,
}

/// The names of the counters, in the order of [`Count`].
pub const NAMES: [&str; 23] = [
    "source",
    "oversized",
    "length",
    "type",
    "flags",
    "qos",
    "subnet",
    "truncated",
    "filters",
    "identifier",
    "topic",
    "reserved",
    "proof",
    "stranger",
    "full",
    "filter",
    "share",
    "table",
    "access",
    "pool",
    "rate",
    "challenges",
    "leases_ended",
];
