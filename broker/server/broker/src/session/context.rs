//! What a worker needs to deliver messages.

use super::{Bounds, Session};
use crate::batch::{Batch, Peer};
use crate::journal::{Entering, Journal, Span};
use crate::message::{Copy, Encoder, Kept, Message};
use crate::remains::Remains;
use crate::sensor::{SECOND_NS, Sending, of_qos};
use mqtick_net::residence::Arrived;
use mqtick_packet::{Qos, Version};
use mqtick_sn::{Delivered, Seat, lock};
use mqtick_store::Change;
use mqtick_udp::DATAGRAM;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a worker needs to deliver messages.
pub struct DeliveryContext {
    /// Encodes the present message.
    pub encoder: Encoder,
    /// Whether each copy is written at once, rather than with what else the same read brings.
    pub at_once: bool,
    /// When the message came, if its copies state their residence.
    pub arrived: Option<Arrived>,
    /// Sessions whose links have something to flush.
    pub pending_flush: Vec<Arc<Session>>,
    /// Datagrams to send.
    pub batch: Batch,
    /// Datagrams of MQTT-SN to send.
    pub sensors: Sending,
    /// The broker's clock, seconds.
    pub now_s: u64,
    /// The same, milliseconds.
    pub now_ms: u64,
    /// Copies that were appended to a link, or sent in a datagram.
    pub sent: u64,
    /// Copies for which there was no room.
    pub dropped: u64,
    /// What a client may make the broker keep.
    pub bounds: Bounds,
    /// The way to the store, if there is one.
    pub journal: Option<Arc<Journal>>,
    /// The changes that the present packet made.
    pub span: Option<Span>,
    /// The last batch of the changes that were not submitted yet.
    pub noted: Option<u64>,
    /// The present message in the store, once it has entered a queue there.
    pub entering: Option<Entering>,
    /// The changes of the present message, if it is of QoS 2 and from a session that is kept: a
    /// client that gets it before they are on disk could get it twice.
    pub once: Option<Span>,
    /// The shared subscription for which the present copy is.
    pub share: Option<Arc<str>>,
    /// What sessions that have ended leave to do.
    pub remains: Remains,
    /// Sessions whose links hold something back until the store has answered a batch.
    pub holding: VecDeque<(u64, Arc<Session>)>,
}

impl DeliveryContext {
    /// A change was appended to the journal.
    pub fn note(&mut self, span: Span) {
        self.span = Some(span.and(self.span));
        self.noted = Some(span.last);
    }

    /// Append a change of a session that is kept: it has a `key`.
    pub(super) fn change(
        &mut self,
        key: Option<&Arc<str>>,
        what: impl FnOnce(Arc<str>) -> Change,
    ) -> Option<Span> {
        let (key, journal) = (key?, self.journal.as_ref()?);
        let span = journal.append(what(Arc::clone(key)));
        self.note(span);
        Some(span)
    }

    /// Deliver one copy to a subscriber over UDP.
    pub(super) fn send_datagram(&mut self, message: &Message, peer: &Arc<Peer>) {
        let copy = Copy {
            version: Version::V3,
            qos: Qos::AtMostOnce,
            retain: false,
            subscription: 0,
        };
        let packet = &self.encoder.octets(message, &copy, self.now_s).packet;
        if (1..=DATAGRAM).contains(&packet.len()) {
            self.batch.copy(peer, packet, self.arrived);
        } else {
            self.dropped += 1;
        }
    }

    /// Deliver one copy to a client over MQTT-SN.
    pub fn send_to_sensor(
        &mut self,
        message: &Message,
        kept: &mut Option<Arc<Kept>>,
        qos: Qos,
        retain: bool,
        seat: &Seat<Kept>,
    ) {
        let qos = of_qos(qos.min(message.qos));
        let keep = || Arc::clone(kept.get_or_insert_with(|| Kept::new(message)));
        let now_ns = self.now_s * SECOND_NS;
        let Sending { batch, out } = &mut self.sensors;
        let mut client = lock(seat);
        let (topic, payload) = (message.topic, message.payload);
        let delivered = client.deliver(now_ns, topic, payload, qos, retain, keep, out);
        if let Some(peer) = &client.account.peer {
            for datagram in out.iter() {
                match delivered {
                    Delivered::Sent => batch.copy(peer, datagram, self.arrived),
                    // It may hold an earlier message: it must not state the residence of this one.
                    _ => batch.answer(peer.address, datagram),
                }
            }
        }
        out.clear();
        // The client counts what it drops.
    }
}
