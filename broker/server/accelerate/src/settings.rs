//! The settings of a controller.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::clock::SECOND_NS;

/// The settings of a controller.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The broker's address.
    pub broker: SocketAddr,
    /// Filters of topics to which only MQTT-SN clients behind this data plane subscribe, and to
    /// which all of these may publish.
    pub only: Vec<Rc<str>>,
    /// Filters of topics whose copies state how long they were in the data plane.
    pub residence: Vec<Rc<str>>,
    /// The names of predefined ids.
    pub predefined: BTreeMap<u16, Rc<str>>,
    /// Whether the broker has no sessions when the controller starts.
    pub fresh: bool,
    /// A client that was not seen connecting is taken for gone if no packet from or to it was seen
    /// for this time.
    pub settle_ns: u64,
    /// The most clients that are followed.
    pub clients: usize,
    /// The most topics of publishers that are followed.
    pub topics: usize,
}

/// The longest time for which a client with the longest keep-alive may be silent.
pub const LONGEST_SETTLE_NS: u64 = 65_535 * SECOND_NS / 2 * 3;

impl Settings {
    /// The most cautious settings: nothing is declared.
    #[must_use]
    pub fn new(broker: SocketAddr) -> Self {
        Self {
            broker,
            only: Vec::new(),
            residence: Vec::new(),
            predefined: BTreeMap::new(),
            fresh: false,
            settle_ns: LONGEST_SETTLE_NS,
            clients: 65_536,
            topics: 65_536,
        }
    }
}
