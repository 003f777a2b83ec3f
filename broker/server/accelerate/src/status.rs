//! The output of `status`, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use mqtick_net::control::quoted;

use crate::driver::{Counters, Status, Watcher};
use crate::plane::{Plane, Topic};

/// The most lines about topics in the text.
const MOST_LINES: usize = 200;

fn counts(counters: &Counters) -> [(&'static str, u64); 9] {
    [
        ("events", counters.events),
        ("forged", counters.forged),
        ("foreign", counters.foreign),
        ("malformed", counters.malformed),
        ("lost", counters.lost),
        ("pings", counters.pings),
        ("unanswered", counters.unanswered),
        ("not_followed", counters.not_followed),
        ("restarts", counters.restarts),
    ]
}

/// The sources of a report.
pub struct Report<'a, P, W> {
    /// The name of the data plane.
    pub plane_name: &'a str,
    /// The data plane.
    pub plane: &'a P,
    /// The counters of the data plane.
    pub plane_counters: Vec<(&'static str, u64)>,
    /// The controller.
    pub controller: &'a W,
}

impl<P: Plane, W: Watcher> Report<'_, P, W> {
    /// The report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let (clients, strangers) = self.controller.sizes();
        let topics = self.controller.status(self.plane);
        let open = topics.iter().filter(|one| one.rule.is_ok()).count();
        let _ = writeln!(out, "data plane   {}", self.plane_name);
        let _ = writeln!(out, "clients      {clients} known, {strangers} not known");
        let _ = writeln!(
            out,
            "topics       {} published, {open} with a rule",
            topics.len()
        );
        let counters = counts(&self.controller.counters());
        for (what, counts) in [
            ("controller", &counters[..]),
            ("frames", &self.plane_counters),
        ] {
            let named = counts.iter().filter(|(_, count)| *count != 0);
            let named: Vec<_> = named
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            let _ = writeln!(out, "{what:<12} {}", named.join(", "));
        }
        for one in topics.iter().take(MOST_LINES) {
            let name = one.name.as_deref().unwrap_or("?");
            let (fast, slow) = (one.counts.fast, one.counts.slow);
            let state = match &one.rule {
                Ok((copies, true)) => format!("to {copies} subscribers"),
                Ok((copies, false)) => {
                    format!("to {copies} subscribers, once nothing is under way")
                }
                Err(reason) => format!("not accelerated: {reason}"),
            };
            let who = one.key.publisher;
            let _ = writeln!(
                out,
                "  {} of {who}: {state}; {fast} copied, {slow} through the broker",
                printable(name)
            );
        }
        if topics.len() > MOST_LINES {
            let _ = writeln!(out, "  and {} more (--json)", topics.len() - MOST_LINES);
        }
        out
    }

    /// The report as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let (clients, strangers) = self.controller.sizes();
        let topics = self.controller.status(self.plane);
        let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
        for one in &topics {
            if let Err(reason) = &one.rule {
                *reasons.entry(reason.to_string()).or_default() += 1;
            }
        }
        let named = |(name, count): (&'static str, u64)| (name.to_owned(), count);
        let topics: Vec<_> = topics.iter().map(topic).collect();
        format!(
            "{{\"data_plane\": {}, \"clients\": {clients}, \"strangers\": {strangers}, \"controller\": {}, \
             \"frames\": {}, \"reasons\": {}, \"topics\": [{}]}}\n",
            quoted(self.plane_name),
            object(counts(&self.controller.counters()).into_iter().map(named)),
            object(self.plane_counters.iter().copied().map(named)),
            object(reasons.into_iter()),
            topics.join(", ")
        )
    }
}

fn topic(one: &Status) -> String {
    let (kind, id) = match one.key.topic {
        Topic::Registered(id) => ("registered", id),
        Topic::Predefined(id) => ("predefined", id),
        Topic::Short(name) => ("short", u16::from_be_bytes(name)),
        Topic::Name(_) => ("name", 0),
    };
    let name = one.name.as_deref().map_or("null".to_owned(), quoted);
    let (subscribers, open, reason) = match &one.rule {
        Ok((copies, open)) => (*copies, *open, "null".to_owned()),
        Err(reason) => (0, false, quoted(&reason.to_string())),
    };
    format!(
        "{{\"name\": {name}, \"publisher\": \"{}\", \"kind\": \"{kind}\", \"id\": {id}, \
         \"subscribers\": {subscribers}, \"open\": {open}, \"reason\": {reason}, \"fast\": {}, \
         \"slow\": {}, \"copies\": {}}}",
        one.key.publisher, one.counts.fast, one.counts.slow, one.counts.copies
    )
}

fn object(pairs: impl Iterator<Item = (String, u64)>) -> String {
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{}: {value}", quoted(&name)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

/// Replaces control characters, since clients choose the topics and a terminal would obey these.
fn printable(name: &str) -> String {
    name.chars()
        .map(|one| if one.is_control() { '\u{fffd}' } else { one })
        .collect()
}
