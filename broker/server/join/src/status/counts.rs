//! Counters and gauges: their names, meanings and values.

use super::dials_away;
use crate::manager::{Counts, Manager};
use crate::node::Counters;

/// A name, what it means, and its value.
type Named = (&'static str, &'static str, u64);

/// A line for each: `name "meaning" value;`.
macro_rules! named {
    ($($name:ident $help:literal $value:expr;)*) => {
        vec![$((stringify!($name), $help, $value as u64)),*]
    };
}

/// All counters.
#[must_use]
pub fn counts(manager: &Manager) -> Vec<Named> {
    let node: Counters = manager.site.node.counters;
    let own: Counts = manager.counts;
    let deliveries = || manager.deliveries.iter().map(|(delivery, _)| delivery);
    let broker_dropped: u64 = deliveries().map(|one| one.dropped).sum();
    let broker_refused: u64 = deliveries().map(|one| one.refused).sum();
    let expired: u64 = deliveries().map(|one| one.expired).sum();
    let (unknown, denied) = (manager.site.node.retained.unknown, manager.site.denied);
    named! {
        connections_accepted "Connections accepted." own.accepted;
        refused_full "Connections refused because limits.connections was reached." own.full;
        client_messages_received "Messages that clients published." own.published;
        client_messages_sent "Messages sent to clients." own.received;
        messages_began "Messages of clients sent to other sites." node.began;
        messages_arrived "Messages from neighbours." node.arrived;
        messages_repeated "Messages from neighbours that had come before." node.repeated;
        messages_delivered "Messages of other sites published at this broker." node.delivered;
        messages_again "Messages that were sent again." node.again;
        dropped_neighbour "Messages of QoS 0 dropped because a neighbour was slow." own.dropped;
        dropped_too_long "Messages dropped because they were too long for a neighbour." own.too_long;
        dropped_away "Messages of QoS 0 dropped because a neighbour was away." node.away;
        dropped_broker "Messages of QoS 0 dropped because the broker was slow or away." broker_dropped;
        denied_broker "Messages of other sites that the broker refused, or too long for it." broker_refused;
        expired "Messages of other sites that expired before the broker could have them." expired;
        retained_handed "Retained messages given to neighbours that joined later, or were slow." node.handed;
        retained_outdated "Retained messages of other sites that were older than those here." node.outdated;
        retained_unknown "Retained messages on topics for which limits.retained has no room." unknown;
        denied_access "Messages stopped by the access list." denied;
        refused_packets "Connections that ended because of a malformed or forbidden packet." own.refused;
        refused_neighbours "Neighbours that were turned away." own.strangers;
    }
}

/// All gauges.
#[must_use]
pub fn gauges(manager: &Manager) -> Vec<Named> {
    let node = &manager.site.node;
    let deliveries = || manager.deliveries.iter().map(|(delivery, _)| delivery);
    let broker_waiting: usize = deliveries().map(|one| one.waiting()).sum();
    let wires = || manager.wires.values();
    let neighbours_waiting: usize = wires().map(|wires| wires.waiting()).sum();
    let up = deliveries().filter(|one| one.is_up()).count();
    let connected = wires().filter(|wires| wires.is_up).count();
    let (subscriptions, different) = manager.site.sessions.sizes();
    named! {
        clients "Clients that are connected." manager.pairs.len();
        broker_sessions "Connections to the broker for messages from other sites." up;
        broker_waiting "Messages that wait for the broker." broker_waiting;
        neighbours "Neighbours that are connected." connected;
        neighbours_away "Neighbours that this node tries to reach, in vain." dials_away(manager).count();
        neighbours_waiting "Messages that wait for neighbours." neighbours_waiting;
        nodes "Nodes in the tree, including this one." node.tree.nodes.len();
        subscriptions "Subscriptions of clients." subscriptions;
        filters "Different topic filters of clients." different;
        filters_known "Different topic filters of clients and neighbours." node.filters();
        retained "Topics with a retained message, or with one that was deleted lately." node.retained.len();
        unconfirmed "Messages above QoS 0 that not all sites have confirmed yet." node.pending();
    }
}
