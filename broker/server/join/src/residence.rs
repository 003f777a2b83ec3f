//! How long time messages were at this site: broker/spec/residence.md.
//!
//! Node and broker are one element. The node notes when a message comes, and recognises it by its
//! payload when the broker, of whatever kind, passes it back. So each copy states how long it was in
//! the node, the broker and the node again. A message that is not recognised states nothing.

use crate::message::Message;
use mqtick_net::residence::{Arrived, NOT_STATED, TRAILER, has_trailer};
use std::collections::{HashMap, VecDeque};

/// Messages that are remembered. Older ones state nothing.
const MOST: usize = 4096;

/// When a message came, if that is known: ns of `CLOCK_MONOTONIC_RAW`.
pub type Came = Option<i64>;

/// The time messages that are in the broker, or were there lately.
#[derive(Default)]
pub struct Residence {
    topics: Vec<String>,
    is_on: bool,
    /// When each message came, by its payload without the trailer. None if that is not known, or if two
    /// messages look the same.
    there: HashMap<Box<[u8]>, Option<Arrived>>,
    order: VecDeque<Box<[u8]>>,
}

impl Residence {
    /// `topics`: the filters of time messages; `is_on`: whether their residence is stated.
    #[must_use]
    pub fn new(topics: Vec<String>, is_on: bool) -> Self {
        Self {
            topics,
            is_on,
            ..Self::default()
        }
    }

    /// Whether any residence is stated.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether messages on this topic are time messages.
    #[must_use]
    pub fn is_timed(&self, topic: &str) -> bool {
        let matches = |filter: &String| mqtick_topics::matches(filter, topic);
        self.topics.iter().any(matches)
    }

    /// Whether a PUBLISH with this body may be a time message. It is not decoded yet, so one with a
    /// topic alias may be.
    #[must_use]
    pub fn may_concern(&self, body: &[u8]) -> bool {
        let Some(([high, low], rest)) = body.split_first_chunk() else {
            return false;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let topic = rest.get(..length).map(std::str::from_utf8);
        self.is_on() && matches!(topic, Some(Ok(topic)) if topic.is_empty() || self.is_timed(topic))
    }

    /// A time message goes to the broker. `arrived`: when it came, if that is to be stated.
    pub fn note(&mut self, payload: &[u8], arrived: Option<Arrived>) {
        let Some((head, _)) = payload.split_last_chunk::<TRAILER>().filter(|_| self.is_on) else {
            return;
        };
        if let Some(before) = self.there.get_mut(head) {
            *before = None; // the broker's copies of the two cannot be told apart
            return;
        }
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.there.remove(&oldest);
        }
        self.order.push_back(head.into());
        self.there.insert(head.into(), arrived);
    }

    /// When a time message came that the broker passes on.
    #[must_use]
    pub fn find(&self, payload: &[u8]) -> Option<Arrived> {
        let (head, _) = payload.split_last_chunk::<TRAILER>()?;
        self.there.get(head).copied().flatten()
    }
}

/// When a time message of a client came, if that is to be stated. Not if it is retained or repeated
/// (`is_old`), nor if it has a trailer already: any client can send a message on with a trailer of its
/// own, so no client's trailer is believed.
#[must_use]
pub fn arrived(payload: &[u8], came: Came, is_old: bool) -> Option<Arrived> {
    let is_first = payload.ends_with(&[0; TRAILER]);
    passed([0; TRAILER], came.filter(|_| is_first && !is_old))
}

/// When a time message came from a neighbour that states this `trailer`.
#[must_use]
pub fn passed(trailer: [u8; TRAILER], came: Came) -> Option<Arrived> {
    came.map(|at_ns| Arrived { at_ns, trailer })
}

/// Prepare a message that goes to another site, or comes from one. Its payload states nothing on the
/// way; what is stated goes in `arrived`. If this node states nothing, no node behind it does.
pub fn set_aside(message: &mut Message, residence: &Residence, arrived: Option<Arrived>) {
    message.arrived = None;
    if has_trailer(&message.payload)
        && residence.is_timed(&message.topic)
        && let Some(trailer) = message.payload.last_chunk_mut()
    {
        *trailer = NOT_STATED;
        message.arrived = arrived.filter(|_| residence.is_on && !message.retain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &[u8] = b"\x27one, with a trailer of 16 octets";

    fn some() -> Option<Arrived> {
        passed([0; TRAILER], Some(7))
    }

    #[test]
    fn a_message_is_known_by_what_no_broker_changes() {
        let mut residence = Residence::new(vec!["time/#".into()], true);
        let now = some();
        assert!(now.is_some());
        residence.note(ONE, now);
        let mut back = ONE.to_vec();
        if let Some(trailer) = back.last_chunk_mut() {
            *trailer = NOT_STATED;
        }
        assert_eq!(residence.find(&back), now);
        assert_eq!(residence.find(b"\x27another, trailer of 16 octets"), None);
        assert_eq!(residence.find(b"short"), None);
    }

    #[test]
    fn what_a_client_says_of_a_message_is_not_believed() {
        let (fresh, came) = ([ONE, &[0; TRAILER]].concat(), Some(7));
        assert!(arrived(&fresh, came, false).is_some());
        assert_eq!(arrived(&fresh, came, true), None, "it may have waited");
        for trailer in [NOT_STATED, mqtick_net::residence::chained(1 << 40)] {
            assert_eq!(arrived(&[ONE, &trailer].concat(), came, false), None);
        }
    }

    #[test]
    fn of_two_that_look_the_same_nothing_is_stated() {
        let mut residence = Residence::new(vec!["time/#".into()], true);
        let now = some();
        residence.note(ONE, now);
        residence.note(ONE, now);
        assert_eq!(residence.find(ONE), None);
    }

    #[test]
    fn however_many_come_those_in_the_broker_take_no_more_room() {
        let mut residence = Residence::new(vec!["time/#".into()], true);
        let now = some();
        let payload = |number: usize| [&number.to_be_bytes()[..], &[0; TRAILER]].concat();
        for number in 0..3 * MOST {
            residence.note(&payload(number), now);
        }
        assert_eq!((residence.there.len(), residence.order.len()), (MOST, MOST));
        assert_eq!(residence.find(&payload(0)), None, "it is not stated");
        assert_eq!(residence.find(&payload(3 * MOST - 1)), now);
    }

    #[test]
    fn a_payload_on_another_topic_is_left_as_it_is() {
        let residence = Residence::new(vec!["time/#".into()], true);
        for (topic, is_changed) in [("time/a", true), ("timer/a", false)] {
            let mut message = Message {
                topic: topic.into(),
                payload: ONE.into(),
                ..Message::default()
            };
            set_aside(&mut message, &residence, some());
            assert_eq!(message.payload != ONE, is_changed);
            assert_eq!(message.arrived.is_some(), is_changed);
        }
        assert!(residence.may_concern(b"\0\x06time/anything"));
        assert!(residence.may_concern(b"\0\0\x03\x23\0\x01"), "an alias");
        assert!(!residence.may_concern(b"\0\x07timer/anything"));
        assert!(!residence.may_concern(b"\0\xfftime/a"));
        assert!(!Residence::default().may_concern(b"\0\x06time/a"));
    }
}
