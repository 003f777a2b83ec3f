//! What is counted, and what is now: names, meanings, values.

use super::dials_away;
use crate::manager::{Counts, Manager};
use crate::node::Counters;

/// All that is counted, by name, with what it means.
#[must_use]
pub fn counts(manager: &Manager) -> Vec<(&'static str, &'static str, u64)> {
    let Counts {
        published,
        received,
        accepted,
        full,
        refused,
        dropped,
        too_long,
        strangers,
    } = manager.counts;
    let Counters {
        began,
        arrived,
        repeated,
        delivered,
        again,
        away,
        handed,
        outdated,
    } = manager.site.node.counters;
    let lanes = || manager.lanes.iter().map(|(lane, _)| lane);
    let lost: u64 = lanes().map(|lane| lane.dropped).sum();
    let unwanted: u64 = lanes().map(|lane| lane.refused).sum();
    let expired: u64 = lanes().map(|lane| lane.expired).sum();
    vec![
        ("connections_accepted", "Connections accepted.", accepted),
        (
            "refused_full",
            "Connections for which limits.connections left no room.",
            full,
        ),
        (
            "client_messages_received",
            "Messages that clients published.",
            published,
        ),
        (
            "client_messages_sent",
            "Messages that went to clients.",
            received,
        ),
        (
            "messages_began",
            "Messages of clients that went to other sites.",
            began,
        ),
        (
            "messages_arrived",
            "Messages that came from neighbours.",
            arrived,
        ),
        (
            "messages_repeated",
            "Of these, those that had come before.",
            repeated,
        ),
        (
            "messages_delivered",
            "Messages of other sites for this broker.",
            delivered,
        ),
        ("messages_again", "Messages that were sent again.", again),
        (
            "dropped_neighbour",
            "QoS 0, for which a neighbour had no room.",
            dropped,
        ),
        (
            "dropped_too_long",
            "Messages that are longer than a neighbour takes.",
            too_long,
        ),
        (
            "dropped_away",
            "QoS 0, for a neighbour that was away.",
            away,
        ),
        (
            "dropped_broker",
            "QoS 0, for which the broker had no room, or was away.",
            lost,
        ),
        (
            "denied_broker",
            "Messages of other sites that the broker refused, or are too long for it.",
            unwanted,
        ),
        (
            "expired",
            "Messages of other sites whose time was over before the broker could have them.",
            expired,
        ),
        (
            "retained_handed",
            "Retained messages for neighbours that came, or had room, after them.",
            handed,
        ),
        (
            "retained_outdated",
            "Retained messages of other sites that were older than what is here.",
            outdated,
        ),
        (
            "retained_unknown",
            "Retained messages of topics for which limits.retained has no room.",
            manager.site.node.retained.unknown,
        ),
        (
            "denied_access",
            "Messages that the access list kept from going on.",
            manager.site.denied,
        ),
        (
            "refused_packets",
            "Connections that ended by a packet, or amid one.",
            refused,
        ),
        (
            "refused_neighbours",
            "Neighbours that were turned away.",
            strangers,
        ),
    ]
}

/// And what is now.
#[must_use]
pub fn gauges(manager: &Manager) -> Vec<(&'static str, &'static str, u64)> {
    let up = manager
        .lanes
        .iter()
        .filter(|(lane, _)| lane.is_up())
        .count();
    let waiting: usize = manager.lanes.iter().map(|(lane, _)| lane.waiting()).sum();
    let links = manager.wires.values().filter(|wires| wires.is_up).count();
    let queued: usize = manager.wires.values().map(|wires| wires.waiting()).sum();
    let away = dials_away(manager).count();
    let (subscriptions, different) = manager.site.sessions.sizes();
    let node = &manager.site.node;
    let all = [
        (
            "clients",
            "Clients that are connected.",
            manager.pairs.len(),
        ),
        (
            "broker_sessions",
            "Sessions that the broker has taken, for other sites.",
            up,
        ),
        (
            "broker_waiting",
            "Messages that wait for the broker.",
            waiting,
        ),
        ("neighbours", "Neighbours that are connected.", links),
        (
            "neighbours_away",
            "Neighbours that this node connects to, and does not reach.",
            away,
        ),
        (
            "neighbours_waiting",
            "Messages that wait for neighbours.",
            queued,
        ),
        (
            "nodes",
            "Nodes of the tree, this one included.",
            node.tree.nodes.len(),
        ),
        ("subscriptions", "Subscriptions of clients.", subscriptions),
        ("filters", "Different ones, of clients.", different),
        (
            "filters_known",
            "Different ones, of clients or neighbours.",
            node.filters(),
        ),
        (
            "retained",
            "Topics with a retained message, or one that was deleted.",
            node.retained.len(),
        ),
        (
            "unconfirmed",
            "Messages above QoS 0 that not all have yet.",
            node.pending(),
        ),
    ];
    all.map(|(name, help, value)| (name, help, value as u64))
        .into()
}
