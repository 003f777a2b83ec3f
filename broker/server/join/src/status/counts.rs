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
            "Connections refused because limits.connections was reached.",
            full,
        ),
        (
            "client_messages_received",
            "Messages that clients published.",
            published,
        ),
        (
            "client_messages_sent",
            "Messages sent to clients.",
            received,
        ),
        (
            "messages_began",
            "Messages of clients sent to other sites.",
            began,
        ),
        ("messages_arrived", "Messages from neighbours.", arrived),
        (
            "messages_repeated",
            "Messages from neighbours that had come before.",
            repeated,
        ),
        (
            "messages_delivered",
            "Messages of other sites published at this broker.",
            delivered,
        ),
        ("messages_again", "Messages that were sent again.", again),
        (
            "dropped_neighbour",
            "Messages of QoS 0 dropped because a neighbour was slow.",
            dropped,
        ),
        (
            "dropped_too_long",
            "Messages dropped because they are longer than a neighbour takes.",
            too_long,
        ),
        (
            "dropped_away",
            "Messages of QoS 0 dropped because a neighbour was away.",
            away,
        ),
        (
            "dropped_broker",
            "Messages of QoS 0 dropped because the broker was slow or away.",
            lost,
        ),
        (
            "denied_broker",
            "Messages of other sites that the broker refused, or are too long for it.",
            unwanted,
        ),
        (
            "expired",
            "Messages of other sites that expired before the broker could have them.",
            expired,
        ),
        (
            "retained_handed",
            "Retained messages sent to neighbours that joined, or had room again, after them.",
            handed,
        ),
        (
            "retained_outdated",
            "Retained messages of other sites that were older than those here.",
            outdated,
        ),
        (
            "retained_unknown",
            "Retained messages on topics for which limits.retained has no room.",
            manager.site.node.retained.unknown,
        ),
        (
            "denied_access",
            "Messages stopped by the access list.",
            manager.site.denied,
        ),
        (
            "refused_packets",
            "Connections that ended because of a malformed packet, or in the middle of one.",
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
            "Connections to the broker for messages from other sites.",
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
            "Neighbours that this node tries to connect to, and does not reach.",
            away,
        ),
        (
            "neighbours_waiting",
            "Messages that wait for neighbours.",
            queued,
        ),
        (
            "nodes",
            "Nodes in the tree, including this one.",
            node.tree.nodes.len(),
        ),
        ("subscriptions", "Subscriptions of clients.", subscriptions),
        ("filters", "Different topic filters of clients.", different),
        (
            "filters_known",
            "Different topic filters of clients and neighbours.",
            node.filters(),
        ),
        (
            "retained",
            "Topics with a retained message, or with one that was deleted lately.",
            node.retained.len(),
        ),
        (
            "unconfirmed",
            "Messages above QoS 0 that some site has not confirmed yet.",
            node.pending(),
        ),
    ];
    all.map(|(name, help, value)| (name, help, value as u64))
        .into()
}
