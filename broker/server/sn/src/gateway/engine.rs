//! Where subscriptions and messages go: the broker, as the gateway sees it.

use super::counters::Count;
use crate::client::{Address, Keep, Seat};
use crate::codec::{Code, Qos, Topic};
use std::net::SocketAddr;
use std::sync::Arc;

/// A message for all that are subscribed.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// The topic's name, without wildcards.
    pub topic: &'a str,
    /// The application's octets.
    pub payload: &'a [u8],
    /// As published; 0 where it is -1.
    pub qos: Qos,
    /// Whether it is kept.
    pub retain: bool,
    /// How it came, if nothing but this can be how messages of its topic come from this client.
    pub came: Option<Came>,
}

/// How a message came: what a switch on the way knows it by.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// Where from.
    pub from: SocketAddr,
    /// What its sender calls the topic.
    pub topic: Topic,
    /// Within how many seconds something must be heard of its sender.
    pub keep_alive_s: u16,
    /// Whether it says that clients over MQTT-SN have their copies.
    pub marked: bool,
}

/// What a publisher is told.
pub struct Answer {
    /// Where.
    pub to: SocketAddr,
    /// Once the message is safe.
    pub good: Vec<u8>,
    /// If it cannot be taken.
    pub bad: Vec<u8>,
    /// Whose message it is.
    pub client: Arc<str>,
    /// Which.
    pub message_id: u16,
    /// Whether it is of QoS 2.
    pub is_once: bool,
}

impl Answer {
    /// What to say: the return code is the last octet of a refusal.
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

/// Somebody who wants to come in.
#[derive(Clone, Copy, Debug)]
pub struct Entrance<'a> {
    /// Where it is.
    pub address: Address,
    /// The client's identifier.
    pub client: &'a str,
    /// Whether what was before is forgotten.
    pub clean: bool,
    /// Seconds after which it is lost, times 2/3.
    pub duration_s: u16,
    /// Its will.
    pub will: Option<Publication<'a>>,
    /// Whether it is at another address now, too.
    pub is_elsewhere: bool,
}

/// Where subscriptions and messages go.
pub trait Engine {
    /// A message that is kept.
    type Message: Keep;
    /// What the engine knows a client by.
    type Subscriber;

    /// Any number.
    fn random(&mut self) -> u32;
    /// Send a datagram.
    fn send(&mut self, to: SocketAddr, datagram: &[u8]);
    /// Let what was given to `send` leave now: nobody else delivers to the client meanwhile, so that
    /// what waited leaves before what comes.
    fn flush(&mut self);
    /// Whether somebody may come in. None: [`Gateway::admitted`] will say so.
    ///
    /// # Errors
    /// What is counted: nothing is answered, so the client says it again.
    ///
    /// [`Gateway::admitted`]: crate::Gateway::admitted
    fn admit(&mut self, entrance: &Entrance<'_>) -> Result<Option<Code>, Count>;
    /// A client went, with or without a good-bye; its session may be kept.
    fn left(&mut self, client: &str, is_lost: bool);
    /// Publish the will of somebody who is lost.
    fn will(&mut self, who: &Self::Subscriber, will: &Publication<'_>);
    /// Whether the answer to a message still waits until the message is safe.
    fn is_held(&self, client: &str, message_id: u16) -> bool;
    /// A session begins; none: there is no room.
    fn begin(&mut self, client: &str, seat: &Seat<Self::Message>) -> Option<Self::Subscriber>;
    /// Whether and where a client is reached, or by what ids it knows topics, changes.
    fn moves(&mut self, _who: &Self::Subscriber) {}
    /// A session ends, with all its subscriptions.
    fn end(&mut self, who: &Self::Subscriber);
    /// Subscribe, if that is a filter and may be. None: [`Gateway::subscribed`] will say so.
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
    /// Deliver a message to all that are subscribed, and answer it; whether it is allowed, or what
    /// to refuse it with. Nobody: it is of QoS -1.
    fn publish(
        &mut self,
        who: Option<&Self::Subscriber>,
        publication: &Publication<'_>,
        answer: Option<Answer>,
    ) -> Result<(), Code>;
}
