//! What all clients of a site share.

use crate::message::Key;
use crate::node::Node;
use crate::residence::{Came, Residence};
use crate::sessions::Sessions;
use mqtick_access::{Action, Rules};
use std::collections::HashMap;

/// A site: its node, and what belongs to all of its clients.
pub struct Site {
    /// The node.
    pub node: Node,
    /// The sessions of clients.
    pub sessions: Sessions,
    /// The access list: who may publish what to other sites, and from there.
    pub rules: Rules,
    /// Whether a client's acknowledgement waits until all sites have its message.
    pub waits_for_all: bool,
    /// Messages whose acknowledgement waits: the client's connection and its packet identifier.
    pub waiting: HashMap<Key, (u64, u16)>,
    /// Messages that the access list stopped on their way to other sites, or to this one.
    pub denied: u64,
    /// Time messages in the broker.
    pub residence: Residence,
    /// When the PUBLISH came that is being processed, if it may be a time message.
    pub came: Came,
    /// Seconds since the start of the node.
    pub now_s: u64,
}

impl Site {
    /// Whether this user and client may publish on the topic. Counts it if not.
    pub fn allows(&mut self, user: &str, client: &str, topic: &str) -> bool {
        let user = Some(user).filter(|user| !user.is_empty());
        let may = self.rules.may(user, client, Action::Write, topic);
        self.denied += u64::from(!may);
        may
    }
}
