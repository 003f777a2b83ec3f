//! How clients of MQTT-SN get messages of the broker.
//!
//! Any worker delivers to them: each client has a lock around what it has to be sent next.

use crate::batch::{Batch, Peer};
use crate::memory::{self, Of, Share};
use crate::message::Kept;
use mqtick_packet::Qos;
use mqtick_sn::{Datagrams, Keep};
use std::net::SocketAddr;
use std::sync::Arc;

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// What a worker needs to deliver over MQTT-SN.
#[derive(Default)]
pub struct Sending {
    /// Datagrams to send.
    pub batch: Batch,
    /// What a client is to be sent for one message.
    pub out: Datagrams,
}

/// What the broker keeps beside the gateway's state of a client.
#[derive(Default)]
pub struct Account {
    share: Option<Share>,
    /// Where its datagrams go.
    pub peer: Option<Arc<Peer>>,
}

impl Keep for Kept {
    type Account = Account;

    fn topic(&self) -> &str {
        self.message().topic
    }

    fn payload(&self) -> &[u8] {
        self.message().payload
    }

    fn octets(&self) -> usize {
        Self::octets(self)
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let expires_s = self.message().expires_s;
        expires_s.is_some_and(|expires_s| expires_s.saturating_mul(SECOND_NS) <= now_ns)
    }

    fn may_wait(octets: usize) -> bool {
        memory::may_queue(octets)
    }

    fn hold(account: &mut Account, octets: usize) {
        let share = || Share::new(Of::Sessions, 0);
        account.share.get_or_insert_with(share).set(octets);
    }

    fn moved(account: &mut Account, to: Option<SocketAddr>) {
        if account.peer.as_ref().map(|peer| peer.address) != to {
            if let Some(peer) = &account.peer {
                peer.set_end(0); // datagrams that wait for the old address are dropped
            }
            account.peer = to.map(|to| Arc::new(Peer::new(to, u64::MAX)));
        }
    }
}

/// The QoS in MQTT of a message from a sensor.
pub fn qos_of(qos: mqtick_sn::Qos) -> Qos {
    match qos {
        mqtick_sn::Qos::ExactlyOnce => Qos::ExactlyOnce,
        mqtick_sn::Qos::AtLeastOnce => Qos::AtLeastOnce,
        mqtick_sn::Qos::AtMostOnce | mqtick_sn::Qos::Unconnected => Qos::AtMostOnce,
    }
}

/// The QoS of a message to a sensor.
pub fn of_qos(qos: Qos) -> mqtick_sn::Qos {
    match qos {
        Qos::AtMostOnce => mqtick_sn::Qos::AtMostOnce,
        Qos::AtLeastOnce => mqtick_sn::Qos::AtLeastOnce,
        Qos::ExactlyOnce => mqtick_sn::Qos::ExactlyOnce,
    }
}
