//! The interface of a data plane to the controller (`broker/spec/acceleration.md`).

use std::net::SocketAddr;

pub use crate::rules::Topic;

/// The key of a rule: which messages it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The publisher.
    pub publisher: SocketAddr,
    /// The topic, as the publisher names it.
    pub topic: Topic,
}

/// One copy of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// Its receiver.
    pub to: SocketAddr,
    /// The topic, as the subscriber names it.
    pub topic: Topic,
}

/// The counters of a rule since it was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that went to the broker instead, of any QoS.
    pub slow: u64,
    /// Messages that the data plane copied.
    pub fast: u64,
    /// Copies that it sent.
    pub copies: u64,
}

/// Why a rule was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no room for another rule.
    Full,
    /// It has too many copies.
    Copies,
    /// The route to this subscriber is not known (its neighbour does not answer).
    Unreachable(SocketAddr),
}

/// The most copies that a rule can have.
pub const MOST_COPIES: usize = 4095;

/// A data plane. It copies a PUBLISH if all of this is true; if not, the PUBLISH goes to the
/// broker:
///
/// 1. its rule is open, and `slow` still has the value with which it was opened;
/// 2. each packet so far that may change the receivers is [`done`](Self::done);
/// 3. QoS is 0, and neither RETAIN nor DUP is set.
pub trait Plane {
    /// Set a rule, or replace it. It is closed, and its counters begin at 0. `residence`: copies
    /// state how long they were here (`broker/spec/residence.md`), if the data plane is able to.
    ///
    /// # Errors
    /// Then there is no such rule, not even the earlier one.
    fn set(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal>;
    /// The same, but the original is marked and goes on to the broker, which serves the other
    /// subscribers.
    ///
    /// # Errors
    /// As for [`Self::set`], or this data plane does not support it.
    fn set_marked(&mut self, key: Key, copies: &[Copy], residence: bool) -> Result<(), Refusal> {
        let _ = (key, copies, residence);
        Err(Refusal::Full)
    }
    /// Open a rule. It is open only as long as its `slow` has this value.
    fn open(&mut self, key: &Key, slow: u64);
    /// Delete a rule, if it exists.
    fn delete(&mut self, key: &Key);
    /// The counters of a rule.
    fn counts(&self, key: &Key) -> Counts;
    /// When a client last sent anything, ns of the controller's clock; `None` if that is not known.
    fn heard_ns(&self, client: &SocketAddr) -> Option<u64>;
    /// When the broker last sent a PUBLISH to a client, on the same clock; `None` if that is not
    /// known. Then the client's address is proven, if the broker demands that.
    fn served_ns(&self, _client: &SocketAddr) -> Option<u64> {
        None
    }
    /// Keep back the broker's next `answers` answers to this client if they come before `until_ns`:
    /// they answer questions of the controller. 0: keep none back.
    fn keep_back(&mut self, client: &SocketAddr, answers: u32, until_ns: u64);
    /// Whether all packets that may change the receivers are [`done`](Self::done).
    fn is_quiet(&self) -> bool;
    /// Send a datagram to the broker in a client's name. Returns false if there was no room for it.
    fn to_broker(&mut self, client: &SocketAddr, datagram: &[u8]) -> bool;
    /// The controller has processed all packets up to this mark of an event.
    fn done(&mut self, mark: u64);
}
