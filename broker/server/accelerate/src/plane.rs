//! What a data plane does for the controller (`broker/spec/acceleration.md`).

use std::net::SocketAddr;

pub use crate::rules::Topic;

/// What a publish is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Who sends it.
    pub publisher: SocketAddr,
    /// What it is about, in the publisher's numbers.
    pub topic: Topic,
}

/// One copy of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// Who gets it.
    pub to: SocketAddr,
    /// The topic, in the subscriber's numbers.
    pub topic: Topic,
}

/// What a rule has done since it was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Publishes that went to the broker, of whatever QoS.
    pub slow: u64,
    /// Publishes that were copied here.
    pub fast: u64,
    /// Copies that were made of them.
    pub copies: u64,
}

/// Why a rule was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room for another one.
    Full,
    /// So many copies cannot be made.
    Copies,
    /// The way to this subscriber is not known (its neighbour does not answer).
    Unreachable(SocketAddr),
}

/// The most copies that a rule can have.
pub const MOST_COPIES: usize = 4095;

/// Where rules are. A publish is copied here if all this is true, and goes to the broker else:
///
/// 1. its rule is open, and `slow` is still what it was opened with;
/// 2. each packet that may change who receives, and that passed so far, is
///    [`done`](Self::done);
/// 3. QoS is 0, and neither RETAIN nor DUP is set.
pub trait Plane {
    /// Set a rule, or replace it. It is closed, and its counts begin at 0. `residence`: copies say how
    /// long they were here (`broker/spec/residence.md`), where the data plane can.
    ///
    /// # Errors
    /// It is not there then, nor is the one that was.
    fn set(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal>;
    /// The same, but the original goes on to the broker, marked: it serves the others.
    ///
    /// # Errors
    /// The same; also where this data plane cannot.
    fn set_marked(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal> {
        let _ = (key, copies, residence);
        Err(Refusal::Full)
    }
    /// Open a rule for as long as its `slow` is this.
    fn open(&mut self, key: &Key, slow: u64);
    /// Copy nothing from this time on, on the controller's clock, whatever else is so.
    fn copy_until(&mut self, _until_ns: u64) {}
    /// Delete a rule, if it is there.
    fn delete(&mut self, key: &Key);
    /// What a rule has done.
    fn counts(&self, key: &Key) -> Counts;
    /// When a client last sent anything, ns on the controller's clock; None: not that it is known.
    fn heard_ns(&self, client: &SocketAddr) -> Option<u64>;
    /// When the broker last sent a PUBLISH to a client, on that clock; None: not that it is known. A
    /// broker that wants a proof of an address has it then.
    fn served_ns(&self, _client: &SocketAddr) -> Option<u64> {
        None
    }
    /// Keep so many answers to questions of ours from a client, if they come before this time.
    fn keep_back(&mut self, client: &SocketAddr, answers: u32, until_ns: u64);
    /// Whether all packets that may change who receives are [`done`](Self::done).
    fn is_quiet(&self) -> bool;
    /// Send a datagram to the broker in a client's name; false: there was no room for it on the way.
    fn to_broker(&mut self, client: &SocketAddr, datagram: &[u8]) -> bool;
    /// All packets up to this mark, which an event had, are taken into account.
    fn done(&mut self, mark: u64);
}
