//! The counters as Prometheus' text exposition format 0.0.4.

use crate::memory;
use crate::shared::{Counters, Shared};
use crate::sn;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP mqtick_broker_{name} {help}");
        let _ = writeln!(self.0, "# TYPE mqtick_broker_{name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        let _ = writeln!(self.0, "mqtick_broker_{name} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: &AtomicU64) {
        self.family(name, "counter", help);
        let _ = writeln!(self.0, "mqtick_broker_{name} {}", value.load(Relaxed));
    }

    /// The series of one family. None of the labels needs escaping.
    fn series<V: Display>(
        &mut self,
        name: &str,
        label: &str,
        values: impl Iterator<Item = (&'static str, V)>,
    ) {
        for (of, value) in values {
            let _ = writeln!(self.0, "mqtick_broker_{name}{{{label}=\"{of}\"}} {value}");
        }
    }
}

/// All counters, as of now.
pub fn page(shared: &Shared) -> String {
    let Counters {
        accepted,
        received,
        sent,
        dropped,
        octets,
        connected,
        restarts,
        ..
    } = &shared.counters;
    let mut page = Page(String::with_capacity(8192));
    let name = "info";
    page.family(name, "gauge", "1, with the version.");
    page.series(
        name,
        "version",
        [(env!("CARGO_PKG_VERSION"), 1)].into_iter(),
    );
    let up_s = shared.up_s();
    page.gauge("uptime_seconds", "Since the start.", up_s);
    page.gauge(
        "clients",
        "Clients that are connected.",
        connected.load(Relaxed),
    );
    let name = "connections";
    page.family(
        name,
        "gauge",
        "Connections that are open, with or without a client yet.",
    );
    page.series(name, "transport", shared.tally.open());
    let help = "Sessions, with and without a connection.";
    page.gauge("sessions", help, shared.sessions().len());
    page.gauge("subscriptions", "Subscriptions.", shared.tree.load().len());
    page.gauge(
        "retained_messages",
        "Retained messages.",
        shared.count_retained(),
    );
    let name = "memory_bytes";
    page.family(
        name,
        "gauge",
        "What clients make the broker hold; queues are outboxes, messages.",
    );
    page.series(name, "of", memory::held());
    page.gauge(
        "memory_limit_bytes",
        "The most that all of it may be.",
        memory::limit(),
    );
    page.counter(
        "connections_accepted_total",
        "Connections accepted.",
        accepted,
    );
    let name = "connections_refused_total";
    page.family(
        name,
        "counter",
        "Connections refused, before or at CONNECT.",
    );
    page.series(name, "reason", shared.tally.refused.all());
    let name = "connections_ended_total";
    page.family(
        name,
        "counter",
        "Connections of clients that the broker ended.",
    );
    page.series(name, "reason", shared.tally.ended.all());
    page.counter(
        "messages_received_total",
        "PUBLISH packets that came.",
        received,
    );
    page.counter("messages_sent_total", "Copies that went to a client.", sent);
    let help = "Copies and retained messages for which there was no room.";
    page.counter("messages_dropped_total", help, dropped);
    page.counter(
        "received_bytes_total",
        "Octets that came from clients.",
        octets,
    );
    let help = "Threads that failed and were started again.";
    page.counter("worker_restarts_total", help, restarts);
    if let Some(socket) = &shared.datagrams {
        let name = "udp_total";
        let help = "What was refused or counted over UDP: broker/spec/mqtt-udp.md, clause 7.";
        page.family(name, "counter", help);
        page.series(name, "what", socket.counted());
    }
    if shared.settings.upstream.url.is_some() {
        let connected = shared.upstream.connected.load(Relaxed);
        let help = "Connections that the upstream has taken.";
        page.gauge("upstream_connections", help, connected);
        let name = "upstream_total";
        page.family(
            name,
            "counter",
            "What happened between gateway and upstream.",
        );
        page.series(name, "what", shared.upstream.all());
    }
    if let Some(sensors) = &shared.sensors {
        let is_count = |one: &(&str, u64)| one.0 != sn::CLIENTS;
        let name = "sn_total";
        let help = "What was refused or counted over MQTT-SN: broker/spec/mqtt-sn.md, clause 8.";
        page.family(name, "counter", help);
        page.series(name, "what", sensors.counted().filter(is_count));
        let clients: u64 = sensors
            .counted()
            .filter(|one| !is_count(one))
            .map(|one| one.1)
            .sum();
        page.gauge(
            "sn_clients",
            "Clients over MQTT-SN, connected or asleep.",
            clients,
        );
    }
    if shared.settings.delivery.accelerate.is_some() {
        let name = "accelerated_total";
        let help = "Messages, and copies, that mqtick-accelerate sent in the broker's place.";
        page.family(name, "counter", help);
        page.series(name, "what", shared.offload.counted().into_iter());
    }
    if let Some(journal) = shared.journal() {
        let help = "Batches of changes that the disk did not take.";
        page.counter("store_refusals_total", help, &journal.refusals().into());
    }
    page.0
}
