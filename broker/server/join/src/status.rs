//! The state of the node: as text, as JSON, for Prometheus, and as a line each second.

mod counts;

use crate::manager::{Dial, Manager};
use crate::topology::NodeId;
pub use counts::{counts, gauges};
use mqtick_net::control::quoted;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The answer to `status`.
#[must_use]
pub fn text(manager: &Manager) -> String {
    let settings = &manager.settings;
    let mut text = String::new();
    let out = &mut text;
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "node {} ({} flooding, version {VERSION})",
        settings.name,
        settings.algorithm.name().trim_end_matches('s')
    );
    let up = manager
        .deliveries
        .iter()
        .any(|(delivery, _)| delivery.is_up());
    let state = match (up, manager.broker_said.as_str()) {
        (true, _) => "connected".into(),
        (false, "") => "away".into(),
        (false, why) => format!("away: {why}"),
    };
    let _ = writeln!(out, "broker {}: {state}", manager.broker);
    match &manager.reloaded {
        Err(why) => {
            let _ = writeln!(out, "configuration: the reload failed: {why}");
        }
        Ok(later) if later.is_empty() => {}
        Ok(later) => {
            let later = later.join(", ");
            let _ = writeln!(out, "configuration: changed, used after a restart: {later}");
        }
    }
    for one in neighbours(manager) {
        let _ = writeln!(
            out,
            "neighbour {} at {}: {}",
            one.name,
            one.place,
            one.state()
        );
    }
    for name in &manager.removed {
        let _ = writeln!(out, "removed {name}: refused until the next `add`");
    }
    let counted = counts(manager).into_iter().filter(|(.., value)| *value > 0);
    for (name, help, value) in gauges(manager).into_iter().chain(counted) {
        let _ = writeln!(out, "{name:24} {value:>12}  {help}");
    }
    text
}

/// A neighbour, as it is shown.
#[derive(Default)]
struct Neighbour {
    name: String,
    place: String,
    is_up: bool,
    is_used: bool,
    told: usize,
    sent: u64,
    came: u64,
    dropped: u64,
    waiting: usize,
    said: String,
}

impl Neighbour {
    fn state(&self) -> String {
        match (self.is_up, self.is_used) {
            (false, _) if self.said.is_empty() => "away".into(),
            (false, _) => format!("away: {}", self.said),
            (true, false) => "connected, not used: there is another way to it".into(),
            (true, true) => format!(
                "connected; {} filters told; messages: {} sent, {} came, {} wait, {} dropped",
                self.told, self.sent, self.came, self.waiting, self.dropped
            ),
        }
    }
}

/// The neighbours that this node tries to connect to, and is not connected to.
fn dials_away(manager: &Manager) -> impl Iterator<Item = &Dial> {
    let is_there = |link: &u64| manager.wires.get(link).is_some_and(|wires| wires.is_up);
    manager
        .dials
        .iter()
        .filter(move |dial| !dial.link.as_ref().is_some_and(is_there))
}

fn neighbours(manager: &Manager) -> Vec<Neighbour> {
    let node = &manager.site.node;
    let linked = manager.wires.iter().filter(|(_, wires)| wires.is_up);
    let linked = linked.map(|(link, wires)| Neighbour {
        name: (wires.peer.as_ref()).map_or("?".into(), |(_, name)| name.clone()),
        place: wires.place.clone(),
        is_up: true,
        is_used: node.is_used(*link),
        told: node.told(*link),
        sent: wires.sent,
        came: wires.came,
        dropped: wires.dropped,
        waiting: wires.waiting(),
        said: String::new(),
    });
    let away = dials_away(manager).map(|dial| Neighbour {
        name: "?".into(),
        place: dial.address.to_string(),
        said: dial.said.clone(),
        ..Neighbour::default()
    });
    linked.chain(away).collect()
}

/// The answer to `status --json`.
#[must_use]
pub fn json(manager: &Manager) -> String {
    let numbers = |all: Vec<(&str, &str, u64)>| {
        let all = all.into_iter();
        let all: Vec<_> = all
            .map(|(name, _, value)| format!("\"{name}\": {value}"))
            .collect();
        format!("{{{}}}", all.join(", "))
    };
    let neighbours = neighbours(manager);
    let neighbours = neighbours.iter().map(|one| {
        format!(
            "{{\"name\": {}, \"place\": {}, \"connected\": {}, \"used\": {}, \"filters_told\": {}, \
             \"sent\": {}, \"came\": {}, \"waiting\": {}, \"dropped\": {}, \"reason\": {}}}",
            quoted(&one.name),
            quoted(&one.place),
            one.is_up,
            one.is_used,
            one.told,
            one.sent,
            one.came,
            one.waiting,
            one.dropped,
            quoted(&one.said)
        )
    });
    let neighbours: Vec<_> = neighbours.collect();
    let up = manager
        .deliveries
        .iter()
        .all(|(delivery, _)| delivery.is_up());
    let (error, later) = match &manager.reloaded {
        Ok(later) => ("", later.as_slice()),
        Err(why) => (why.as_str(), [].as_slice()),
    };
    let later: Vec<_> = later.iter().map(|name| quoted(name)).collect();
    format!(
        "{{\"name\": {}, \"version\": \"{VERSION}\", \"algorithm\": {}, \"broker\": {}, \"broker_connected\": {up}, \
         \"retained_known\": {}, \"reload_error\": {}, \"after_restart\": [{}], \"now\": {}, \"counts\": {}, \"neighbours\": [{}]}}\n",
        quoted(&manager.settings.name),
        quoted(manager.settings.algorithm.name()),
        quoted(&manager.broker.to_string()),
        manager.site.node.retained.is_known,
        quoted(error),
        later.join(", "),
        numbers(gauges(manager)),
        numbers(counts(manager)),
        neighbours.join(", ")
    )
}

/// The answer to `topology`: the tree, drawn from this node, and the links that are not used.
#[must_use]
pub fn drawing(manager: &Manager) -> String {
    let node = &manager.site.node;
    let name = |id: NodeId| node.topology.get(id).map_or("?", |state| &*state.name);
    let mut near: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for (_, one, other) in &node.tree.links {
        near.entry(*one).or_default().push(*other);
        near.entry(*other).or_default().push(*one);
    }
    let mut text = String::new();
    // Nodes to draw: each with the one that it was reached from, the text before its name, and the text
    // before the names of the nodes below it.
    let mut open = vec![(node.id(), None, String::new(), String::new())];
    while let Some((id, from, before, below)) = open.pop() {
        let own = if id == node.id() { " (this node)" } else { "" };
        let _ = writeln!(text, "{before}{}{own}", name(id));
        let mut next: Vec<NodeId> = near.get(&id).into_iter().flatten().copied().collect();
        next.retain(|other| Some(*other) != from);
        next.sort_by_key(|other| (name(*other), *other));
        for (place, other) in next.iter().enumerate().rev() {
            let (line, rest) = match place + 1 == next.len() {
                true => ("`-- ", "    "),
                false => ("|-- ", "|   "),
            };
            let (before, rest) = (format!("{below}{line}"), format!("{below}{rest}"));
            open.push((*other, Some(id), before, rest));
        }
    }
    let unused = unused(manager).into_iter().map(|(one, other)| {
        let (one, other) = (name(one), name(other));
        (one.min(other), one.max(other))
    });
    for (one, other) in unused.collect::<BTreeSet<_>>() {
        let _ = writeln!(text, "not used: {one} - {other}");
    }
    let is_waited_for = |(name, _): &(&str, u64)| !manager.removed.contains(*name);
    for (name, until_s) in node.away().filter(is_waited_for) {
        let left_s = until_s.saturating_sub(manager.site.now_s);
        let _ = writeln!(text, "away: {name}, waited for {left_s} s more");
    }
    text
}

/// The links between nodes of the tree that are not part of it.
fn unused(manager: &Manager) -> BTreeSet<(NodeId, NodeId)> {
    let node = &manager.site.node;
    let mut all = BTreeSet::new();
    for state in node.reached() {
        for (peer, key) in &state.links {
            let both = (state.node.min(*peer), state.node.max(*peer));
            if !node.tree.links.contains(&(*key, both.0, both.1)) {
                all.insert(both);
            }
        }
    }
    all
}

/// The answer to `topology --json`.
#[must_use]
pub fn topology_json(manager: &Manager) -> String {
    let node = &manager.site.node;
    let id = |id: &NodeId| format!("\"{id:016x}\"");
    let nodes = node.reached().map(|one| {
        let (id, name) = (id(&one.node), quoted(&one.name));
        format!("{{\"id\": {id}, \"name\": {name}}}")
    });
    let nodes: Vec<_> = nodes.collect();
    let pair = |one: &NodeId, other: &NodeId| format!("[{}, {}]", id(one), id(other));
    let links = node.tree.links.iter();
    let links: Vec<_> = links.map(|(_, one, other)| pair(one, other)).collect();
    let unused = unused(manager);
    let unused: Vec<_> = unused.iter().map(|(one, other)| pair(one, other)).collect();
    format!(
        "{{\"this\": {}, \"nodes\": [{}], \"tree\": [{}], \"unused\": [{}]}}\n",
        id(&node.id()),
        nodes.join(", "),
        links.join(", "),
        unused.join(", ")
    )
}

/// Prometheus' text exposition format 0.0.4.
#[must_use]
pub fn metrics(manager: &Manager) -> String {
    let mut page = format!(
        "# HELP mqtick_join_info The version that runs.\n# TYPE mqtick_join_info gauge\n\
         mqtick_join_info{{version=\"{VERSION}\"}} 1\n"
    );
    let gauges = gauges(manager).into_iter().map(|one| (one, "gauge", ""));
    let counts = counts(manager)
        .into_iter()
        .map(|one| (one, "counter", "_total"));
    for ((name, help, value), kind, end) in gauges.chain(counts) {
        let name = format!("mqtick_join_{name}{end}");
        let _ = writeln!(
            page,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
        );
    }
    page
}

/// A line about the last second, if messages flowed in it. `before`: what was counted up to then.
pub fn line(manager: &Manager, before: &mut BTreeMap<&'static str, u64>) -> Option<String> {
    let now: BTreeMap<_, _> = counts(manager)
        .into_iter()
        .map(|(name, _, value)| (name, value))
        .collect();
    let grown = |name: &str| {
        let value = now.get(name).copied().unwrap_or(0);
        value - before.get(name).copied().unwrap_or(0)
    };
    let flows = [
        "client_messages_received",
        "client_messages_sent",
        "messages_arrived",
    ];
    let lost = [
        "dropped_neighbour",
        "dropped_too_long",
        "dropped_away",
        "dropped_broker",
    ];
    let lost: u64 = lost.into_iter().map(grown).sum();
    let line = flows.into_iter().any(|name| grown(name) > 0).then(|| {
        format!(
            "messages: {} from clients, {} to clients, {} to other sites, {} from other sites, {lost} dropped",
            grown("client_messages_received"),
            grown("client_messages_sent"),
            grown("messages_began"),
            grown("messages_arrived"),
        )
    });
    *before = now;
    line
}
