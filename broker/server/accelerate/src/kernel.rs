//! The data plane in the kernel: loads `broker/bpf`, attaches it, and keeps its tables.

use std::io;
use std::os::fd::RawFd;

use crate::rules::{Broker, Event, Flags, Hop, Key, RuleCounters, Subscriber};

/// The programs on their interfaces; dropping it takes them off.
pub struct Kernel {}

impl Kernel {
    /// Load the programs and attach them to `interfaces`; `in_path`: frames for other hosts too.
    pub fn start(interfaces: &[&str], brokers: &[Broker], in_path: bool) -> io::Result<Self> {
        let _ = (interfaces, brokers, in_path);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// How the programs are attached: `tcx` or `clsact`.
    pub fn attached(&self) -> &'static str;

    /// Say that the controller is alive: four times a second.
    pub fn alive(&mut self) -> io::Result<()>;

    /// Make or replace a rule. `StorageFull`: there is no room; what was there stays.
    pub fn set(&mut self, key: &Key, subscribers: &[Subscriber], flags: Flags) -> io::Result<()>;

    /// Remove a rule; that there is none is no error.
    pub fn remove(&mut self, key: &Key) -> io::Result<()>;

    /// Remove all rules.
    pub fn clear(&mut self) -> io::Result<()>;

    /// Set the way to subscribers, in place: all rules that use this hop follow.
    pub fn set_hop(&mut self, number: u16, hop: Hop) -> io::Result<()>;

    /// Hold back one PINGRESP to this client for so many ns.
    pub fn hold(&mut self, client: std::net::SocketAddr, vlan: u16, ns: u64) -> io::Result<()>;

    /// What to poll for events (readable).
    pub fn events_fd(&self) -> RawFd;

    /// The next event, if there is one.
    pub fn next_event(&mut self) -> Option<Event>;

    /// All counters, by the names of the specification, `events_lost` among them.
    pub fn counters(&self) -> io::Result<Vec<(&'static str, u64)>>;

    /// Counters of one rule.
    pub fn rule_counters(&self, key: &Key) -> io::Result<RuleCounters>;
}
