//! A data plane with its rules in a table. It records what the controller sends.

#![allow(dead_code, reason = "no test needs all of it")]

use std::net::SocketAddr;

use mqtick_accelerate::plane::{Copy, Counts, Key, Plane, Refusal};
use mqtick_accelerate::table::Table;

pub struct Switch {
    pub table: Table,
    /// What was sent to the broker, with the clients in whose names.
    pub sent: Vec<(SocketAddr, Vec<u8>)>,
    pub asked: Vec<SocketAddr>,
    /// Whether the way to the broker has room.
    pub has_room: bool,
}

impl Switch {
    pub fn new(rules: usize) -> Self {
        Self {
            table: Table::new(rules),
            sent: Vec::new(),
            asked: Vec::new(),
            has_room: true,
        }
    }
}

impl Plane for Switch {
    fn set(&mut self, key: Key, copies: &[Copy], _residence: bool) -> Result<(), Refusal> {
        self.table.set(key, copies, false, false)
    }
    fn open(&mut self, key: &Key, slow: u64) {
        self.table.open(key, slow);
    }
    fn delete(&mut self, key: &Key) {
        self.table.delete(key);
    }
    fn counts(&self, key: &Key) -> Counts {
        self.table.counts(key)
    }
    fn heard_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.table.heard_ns(client)
    }
    fn served_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.table.served_ns(client)
    }
    fn keep_back(&mut self, client: &SocketAddr, answers: u32, until_ns: u64) {
        self.table.keep_back(client, answers, until_ns);
    }
    fn is_quiet(&self) -> bool {
        self.table.is_quiet()
    }
    fn to_broker(&mut self, client: &SocketAddr, datagram: &[u8]) -> bool {
        if self.has_room {
            self.sent.push((*client, datagram.to_vec()));
            self.asked.push(*client);
        }
        self.has_room
    }
    fn done(&mut self, mark: u64) {
        self.table.done(mark);
    }
}
