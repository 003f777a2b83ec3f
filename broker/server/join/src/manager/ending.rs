//! The end of the program.

use super::Manager;
use crate::message::Link;
use mqtick_net::log;
use mqtick_packet::Version;
use std::time::{Duration, Instant};

impl Manager {
    /// The program ends. Clients are no longer read from. Once other sites have what they published
    /// above QoS 0, or `limits.stop_s` has passed, clients and neighbours are disconnected.
    pub fn stop(&mut self) {
        const SHUTTING_DOWN: u8 = 0x8B;
        let end = Instant::now() + Duration::from_secs(self.settings.limits.stop_s);
        self.is_ending = true;
        self.listeners.clear();
        self.dirty.extend(self.pairs.keys());
        self.flush();
        while self.site.node.owes() > 0 && Instant::now() < end {
            self.turn(100);
        }
        match self.site.node.owes() {
            0 => {}
            left => log::warning(&format!(
                "{left} messages above QoS 0 did not reach all other sites within {} s and are lost \
                 there; with more time (limits.stop_s) a slow site may still get them",
                self.settings.limits.stop_s
            )),
        }
        let mut last = Vec::new();
        mqtick_packet::disconnect(&mut last, Version::V5, SHUTTING_DOWN);
        let clients: Vec<u64> = self.pairs.keys().copied().collect();
        for token in clients {
            let version = self.pairs.get(&token).map(|pair| pair.paired.version());
            if version == Some(Version::V5) {
                self.send(token, &last);
            }
        }
        self.flush();
        let clients: Vec<u64> = self.pairs.keys().copied().collect();
        clients
            .into_iter()
            .for_each(|token| self.end_pair(token, token));
        self.act();
        self.flush();
        let links: Vec<Link> = self.wires.keys().copied().collect();
        links
            .into_iter()
            .for_each(|link| self.link_ended(link, "this node ends", true));
        self.flush();
    }
}
