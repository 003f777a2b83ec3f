//! Counters and gauges: their names, meanings and values.

use super::dials_away;
use crate::manager::{Counts, Manager};
use crate::node::Counters;

/// A name, what it means, and its value.
type Named = (&'static str, &'static str, u64);

/// All counters.
#[must_use]
pub fn counts(manager: &Manager) -> Vec<Named> {
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
    let deliveries = || manager.deliveries.iter().map(|(delivery, _)| delivery);
    let lost = deliveries().map(|one| one.dropped).sum();
    let unwanted = deliveries().map(|one| one.refused).sum();
    let expired = deliveries().map(|one| one.expired).sum();
    let (unknown, denied) = (manager.site.node.retained.unknown, manager.site.denied);
    let all = [
        ("connections_accepted", "Connections accepted.", accepted),
        (
            "refused_full",
            "Connections refused: limits.connections was reached.",
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
            "Messages of QoS 0 dropped: a neighbour was slow.",
            dropped,
        ),
        (
            "dropped_too_long",
            "Messages dropped: too long for a neighbour.",
            too_long,
        ),
        (
            "dropped_away",
            "Messages of QoS 0 dropped: a neighbour was away.",
            away,
        ),
        (
            "dropped_broker",
            "Messages of QoS 0 dropped: the broker was slow or away.",
            lost,
        ),
        (
            "denied_broker",
            "Messages of other sites refused by the broker, or too long for it.",
            unwanted,
        ),
        (
            "expired",
            "Messages of other sites that expired before the broker got them.",
            expired,
        ),
        (
            "retained_handed",
            "Retained messages given to neighbours that joined later or were slow.",
            handed,
        ),
        (
            "retained_outdated",
            "Retained messages of other sites, older than those here.",
            outdated,
        ),
        (
            "retained_unknown",
            "Retained messages left out: limits.retained was reached.",
            unknown,
        ),
        (
            "denied_access",
            "Messages stopped by the access list.",
            denied,
        ),
        (
            "refused_packets",
            "Connections ended by a malformed or forbidden packet.",
            refused,
        ),
        (
            "refused_neighbours",
            "Neighbours that were turned away.",
            strangers,
        ),
    ];
    all.into()
}

/// All gauges.
#[must_use]
pub fn gauges(manager: &Manager) -> Vec<Named> {
    let node = &manager.site.node;
    let deliveries = || manager.deliveries.iter().map(|(delivery, _)| delivery);
    let up = deliveries().filter(|one| one.is_up()).count();
    let waiting = deliveries().map(|one| one.waiting()).sum();
    let wires = || manager.wires.values();
    let links = wires().filter(|wires| wires.is_up).count();
    let queued = wires().map(|wires| wires.waiting()).sum();
    let away = dials_away(manager).count();
    let nodes = node.tree.nodes.len();
    let (clients, kept) = (manager.pairs.len(), node.retained.len());
    let (subscriptions, different) = manager.site.sessions.sizes();
    let all = [
        ("clients", "Clients that are connected.", clients),
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
            "Neighbours that this node tries to reach.",
            away,
        ),
        (
            "neighbours_waiting",
            "Messages that wait for neighbours.",
            queued,
        ),
        ("nodes", "Nodes in the tree, including this one.", nodes),
        ("subscriptions", "Subscriptions of clients.", subscriptions),
        ("filters", "Different topic filters of clients.", different),
        (
            "filters_known",
            "Different topic filters of clients and neighbours.",
            node.filters(),
        ),
        (
            "retained",
            "Topics with a retained message, or a remembered deletion.",
            kept,
        ),
        (
            "unconfirmed",
            "Messages above QoS 0 not confirmed by all sites yet.",
            node.pending(),
        ),
    ];
    all.map(|(name, help, value)| (name, help, value as u64))
        .into()
}
