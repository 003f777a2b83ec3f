//! The first packet of a connection.

use super::{Manager, Pair, Role, UNAVAILABLE, refusal};
use crate::client::Paired;
use crate::connection::{Fault, next_packet};
use mqtick_packet::{Connect, Error, Packet, Version, decode};

// The most octets of a CONNECT, whose sender is not known yet: five fields, each as long as MQTT
// allows (identifier, will topic and payload, user, password), and some properties.
pub(super) const FIRST: usize = 6 << 16;

impl Manager {
    /// Process the first packet: it says whether this is a client or a neighbour.
    pub(super) fn greet(&mut self, token: u64, input: &[u8]) -> Result<usize, Fault> {
        let most = self.settings.limits.packet.min(FIRST);
        let Some(found) = next_packet(input, 0, most)? else {
            return Ok(0);
        };
        let packet = match decode(&found, Version::V5) {
            Err(Error::Version(_)) => {
                const UNKNOWN: u8 = 0x84;
                self.send(token, &refusal(Version::V3, UNKNOWN));
                self.over(token);
                return Ok(found.length);
            }
            packet => packet?,
        };
        let Packet::Connect(connect) = packet else {
            return Err("its first packet is not a CONNECT".into());
        };
        if connect.client_id.starts_with(crate::words::MARK) {
            self.greet_neighbour(token, &connect);
            return Ok(found.length);
        }
        let own = self.deliveries.iter().map(|(delivery, _)| delivery.name());
        let is_own = |name| name == connect.client_id;
        if own.chain([self.reader.name()]).any(is_own) {
            const NOT_VALID: u8 = 0x85; // it would take over this node's own session at the broker
            self.counts.refused += 1;
            self.send(token, &refusal(connect.version, NOT_VALID));
            self.over(token);
            return Ok(found.length);
        }
        // First the broker must have read all acknowledgements from the client's last connection, or it
        // would send those messages again.
        if let Some((_, waiting)) = self.leaving.get_mut(connect.client_id) {
            if !waiting.contains(&token) {
                waiting.push(token);
            }
            return Ok(0);
        }
        self.pair(
            token,
            &connect,
            input.get(..found.length).unwrap_or_default(),
        );
        Ok(found.length)
    }

    fn pair(&mut self, token: u64, connect: &Connect<'_>, raw: &[u8]) {
        let broker = self.connect_to_broker(Role::Paired(token));
        let paired = Paired::new(token, connect);
        let Some(slot) = self.slots.get_mut(&token) else {
            return;
        };
        slot.role = Role::Client;
        match broker {
            Ok(broker) => {
                self.send(broker, raw);
                self.pairs.insert(token, Pair { paired, broker });
            }
            Err(_) => {
                let unavailable = refusal(connect.version, UNAVAILABLE);
                slot.connection.push(&unavailable);
                self.over(token);
            }
        }
    }
}
