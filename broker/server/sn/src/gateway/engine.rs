//! The interface to the broker behind the gateway.

use super::counters::Count;
use crate::client::{Address, Keep, Seat};
use crate::codec::{Code, Qos, Topic};
use std::net::SocketAddr;
use std::sync::Arc;

/// A message that is to be published.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// The topic's name, without wildcards.
    pub topic: &'a str,
    /// The payload.
    pub payload: &'a [u8],
    /// Its QoS; 0 for a PUBLISH with QoS -1.
    pub qos: Qos,
    /// Whether it is retained.
    pub retain: bool,
    /// How it came. `None` if this client could publish to this topic in another way as well.
    pub came: Option<Came>,
}

/// How a message came: the properties by which a switch on the way recognises it.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Its source.
    pub from: SocketAddr,
    /// The topic, as the publisher names it.
    pub topic: Topic,
    /// The publisher's keep-alive.
    pub keep_alive_s: u16,
    /// Whether it is marked: clients over MQTT-SN already have their copies.
    pub marked: bool,
}

/// The answer to a publisher.
pub struct Answer {
    /// Its destination.
    pub to: SocketAddr,
    /// The datagram to send once the message is safe.
    pub good: Vec<u8>,
    /// The datagram to send if the message is refused.
    pub bad: Vec<u8>,
    /// The publisher's client identifier.
    pub client: Arc<str>,
    /// The message id.
    pub message_id: u16,
    /// Whether the message is of QoS 2.
    pub is_once: bool,
}

impl Answer {
    /// The datagram for this return code, which is the last octet of a refusal.
    #[must_use]
    pub fn told(&self, code: Code) -> Vec<u8> {
        if code == Code::ACCEPTED {
            return self.good.clone();
        }
        let mut told = self.bad.clone();
        if let Some(last) = told.last_mut() {
            *last = code.0;
        }
        told
    }
}

/// A client that asks to be connected.
#[derive(Clone, Copy, Debug)]
pub struct Entrance<'a> {
    /// Its address.
    pub address: Address,
    /// The client's identifier.
    pub client: &'a str,
    /// Whether its last session is to be forgotten.
    pub clean: bool,
    /// Its keep-alive. It is lost after 1.5 times this.
    pub duration_s: u16,
    /// Its will.
    pub will: Option<Publication<'a>>,
    /// Whether it is still connected at another address.
    pub is_elsewhere: bool,
}

/// The broker behind the gateway.
pub trait Engine {
    /// A message that is kept.
    type Message: Keep;
    /// The engine's handle of a client.
    type Subscriber;

    /// A random number.
    fn random(&mut self) -> u32;
    /// Send a datagram.
    fn send(&mut self, to: SocketAddr, datagram: &[u8]);
    /// Send the datagrams now that were given to `send`. The caller has the client locked, so that
    /// its queued messages leave before newer ones.
    fn flush(&mut self);
    /// Whether a client may connect. `None`: the engine calls [`Gateway::admitted`] later.
    ///
    /// # Errors
    /// The event to count. The client gets no answer, so it sends its CONNECT again.
    ///
    /// [`Gateway::admitted`]: crate::Gateway::admitted
    fn admit(&mut self, entrance: &Entrance<'_>) -> Result<Option<Code>, Count>;
    /// A client is gone, with (`is_lost` is false) or without DISCONNECT. Its session may be kept.
    fn left(&mut self, client: &str, is_lost: bool);
    /// Publish the will of a lost client.
    fn will(&mut self, who: &Self::Subscriber, will: &Publication<'_>);
    /// Whether the answer to this message still waits because the message is not safe yet.
    fn is_held(&self, client: &str, message_id: u16) -> bool;
    /// A session begins. `None`: there is no room for it.
    fn begin(&mut self, client: &str, seat: &Seat<Self::Message>) -> Option<Self::Subscriber>;
    /// The client's address, whether it is connected, or its topic ids are about to change.
    fn moves(&mut self, _who: &Self::Subscriber) {}
    /// A session ends, with all its subscriptions.
    fn end(&mut self, who: &Self::Subscriber);
    /// Subscribe, if the filter is valid and allowed. `None`: the engine calls
    /// [`Gateway::subscribed`] later.
    ///
    /// [`Gateway::subscribed`]: crate::Gateway::subscribed
    fn subscribe(
        &mut self,
        who: &Self::Subscriber,
        message_id: u16,
        filter: &str,
        qos: Qos,
    ) -> Option<Code>;
    /// A subscription ends.
    fn unsubscribe(&mut self, who: &Self::Subscriber, filter: &str);
    /// Deliver the retained messages that match a filter.
    fn retained(&mut self, who: &Self::Subscriber, filter: &str, qos: Qos);
    /// Deliver a message to all subscribers, and send the answer. `who` is `None` for QoS -1.
    ///
    /// # Errors
    /// The message is not allowed: the code to refuse it with.
    fn publish(
        &mut self,
        who: Option<&Self::Subscriber>,
        publication: &Publication<'_>,
        answer: Option<Answer>,
    ) -> Result<(), Code>;
}
