//! Retained messages from before a link came up: they are handed over when the neighbour asks.

use super::{Action, Node};
use crate::message::{Link, Message};
use mqtick_packet::Qos;
use std::rc::Rc;

impl Node {
    /// The broker is about to be asked for its retained messages. `waiting`: messages from other sites
    /// that wait here until the broker takes them; `links`: the neighbours that asked, which get these
    /// messages, too.
    pub fn begin_reading<'a>(
        &mut self,
        waiting: impl IntoIterator<Item = &'a Rc<Message>>,
        links: &[Link],
    ) {
        self.retained.begin_reading();
        for message in waiting {
            if let Some(stamp) = self.retained.waits(message) {
                let message = Message::clone(message);
                self.hand(Message { stamp, ..message }, links);
            }
        }
    }

    /// The broker has this retained message: neighbours that asked get it.
    pub fn found(&mut self, message: Message, links: &[Link]) {
        if let Some(stamp) = self.retained.found(&message.topic, &message.payload) {
            self.hand(Message { stamp, ..message }, links);
        }
    }

    /// The broker has no more. Neighbours that asked (`links`) now get the deletions, and with the next
    /// reading what this one could not find yet. After the first reading all neighbours are asked for
    /// their retained messages, which could not be compared before.
    pub fn end_reading(&mut self, links: &[Link]) {
        let is_first = !self.retained.is_known;
        if self.retained.end_reading() {
            let again = links.iter().map(|link| Action::Hand(*link));
            self.actions.extend(again);
        }
        if is_first {
            let here = self.links.iter();
            let here = here.filter(|(_, one)| one.is_used && one.away.is_none());
            self.actions
                .extend(here.map(|(link, _)| Action::Ask(*link)));
        }
        for (topic, stamp) in self.retained.deleted() {
            let message = Message {
                topic: topic.into(),
                stamp,
                ..Message::default()
            };
            self.hand(message, links);
        }
    }

    /// Give neighbours a message that was retained before they asked. A neighbour that asks only once
    /// it gets all later ones misses none, in whichever order they come.
    fn hand(&mut self, message: Message, links: &[Link]) {
        if links.is_empty() {
            return;
        }
        let message = Message {
            qos: Qos::AtLeastOnce,
            retain: true,
            handed: true,
            ..message
        };
        self.counters.handed += 1;
        let key = self.key(&message.topic, "", message.qos);
        self.pass(key, 0, links, Rc::new(message), None, false);
    }
}
