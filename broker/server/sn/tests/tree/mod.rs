//! A small engine: the broker's topic tree, without limits.

use mqtick_sn::{
    Answer, Code, Count, Datagrams, Engine, Entrance, Keep, Message, Publication, Qos, Seat,
    decode, lock,
};
use mqtick_topics::{Match, Retained, Tree, valid_filter};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

const SECOND_NS: u64 = 1_000_000_000;

pub struct Body {
    topic: String,
    payload: Vec<u8>,
}

impl Keep for Body {
    type Account = Option<SocketAddr>;

    fn topic(&self) -> &str {
        &self.topic
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    fn octets(&self) -> usize {
        self.topic.len() + self.payload.len()
    }

    fn is_over(&self, _: u64) -> bool {
        false
    }

    fn may_wait(_: usize) -> bool {
        true
    }

    fn hold(_: &mut Self::Account, _: usize) {}

    fn moved(account: &mut Self::Account, to: Option<SocketAddr>) {
        *account = to;
    }
}

#[derive(Default)]
pub struct Broker {
    pub sent: Vec<(SocketAddr, Vec<u8>)>,
    pub now_s: u64,
    /// The message of QoS 2 whose answer waits for the disk.
    pub held: Option<u16>,
    /// The last REGISTER to each port: topic id and message id.
    pub registers: HashMap<u16, (u16, u16)>,
    /// The topics of published messages; false: it is a will, which came earlier.
    pub published: Vec<(String, bool)>,
    /// Why nobody may connect now, and gets no answer.
    pub refuses: Option<Count>,
    came_long_ago: bool,
    tree: Tree<u64, (Seat<Body>, Qos)>,
    retained: Retained<Vec<u8>>,
    known: HashMap<u64, (Seat<Body>, Vec<String>)>,
    next: u64,
}

impl Broker {
    pub fn sessions(&self) -> usize {
        self.known.len()
    }

    pub fn subscriptions(&self) -> usize {
        self.tree.len()
    }

    pub fn most_of_one(&self) -> usize {
        let counts = self.known.values().map(|(_, filters)| filters.len());
        counts.max().unwrap_or(0)
    }

    pub fn take(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        for (to, octets) in &self.sent {
            if let Ok((
                Message::Register {
                    topic_id,
                    message_id,
                    ..
                },
                _,
            )) = decode(octets)
            {
                self.registers.insert(to.port(), (topic_id, message_id));
            }
        }
        std::mem::take(&mut self.sent)
    }

    pub fn deliver(&mut self, topic: &str, payload: &[u8], qos: Qos, retain: bool) {
        let mut seats = Vec::new();
        self.tree.matches(topic, &mut |found| {
            if let Match::One(_, to) = found {
                seats.push(to.clone());
            }
        });
        for (seat, granted) in seats {
            self.copy(&seat, topic, payload, qos.min(granted), false);
        }
        if retain && payload.is_empty() {
            self.retained.remove(topic);
        } else if retain {
            self.retained.set(topic, payload.into());
        }
    }

    fn copy(&mut self, to: &Seat<Body>, topic: &str, payload: &[u8], qos: Qos, retain: bool) {
        let keep = || {
            Arc::new(Body {
                topic: topic.into(),
                payload: payload.into(),
            })
        };
        let mut out = Datagrams::default();
        let mut client = lock(to);
        let now_ns = self.now_s * SECOND_NS;
        client.deliver(now_ns, topic, payload, qos, retain, keep, &mut out);
        if let Some(to) = client.account {
            self.sent.extend(out.iter().map(|one| (to, one.into())));
        }
    }
}

impl Engine for Broker {
    type Message = Body;
    type Subscriber = u64;

    fn random(&mut self) -> u32 {
        self.next as u32 * 0x0101_0100
    }

    fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        self.sent.push((to, datagram.into()));
    }

    fn flush(&mut self) {}

    fn admit(&mut self, _: &Entrance<'_>) -> Result<Option<Code>, Count> {
        self.refuses.map_or(Ok(Some(Code::ACCEPTED)), Err)
    }

    fn left(&mut self, _: &str, _: bool) {}

    fn will(&mut self, who: &u64, will: &Publication<'_>) {
        self.came_long_ago = true;
        self.publish(Some(who), will, None).expect("an own will");
    }

    fn is_held(&self, _: &str, message_id: u16) -> bool {
        self.held == Some(message_id)
    }

    fn begin(&mut self, _: &str, seat: &Seat<Body>) -> Option<u64> {
        self.next += 1;
        self.known.insert(self.next, (Arc::clone(seat), Vec::new()));
        Some(self.next)
    }

    fn end(&mut self, who: &u64) {
        let (_, filters) = self.known.remove(who).expect("somebody known");
        for filter in filters {
            assert!(self.tree.unsubscribe(&filter, who).is_some());
        }
    }

    fn subscribe(&mut self, who: &u64, _: u16, filter: &str, qos: Qos) -> Option<Code> {
        if !valid_filter(filter) || filter.starts_with("$share/") {
            return Some(Code::NOT_SUPPORTED);
        }
        let one = self.known.get_mut(who).expect("somebody known");
        if !one.1.iter().any(|known| known == filter) {
            one.1.push(filter.into());
        }
        self.tree.subscribe(filter, *who, (Arc::clone(&one.0), qos));
        Some(Code::ACCEPTED)
    }

    fn unsubscribe(&mut self, who: &u64, filter: &str) {
        let one = self.known.get_mut(who).expect("somebody known");
        one.1.retain(|known| known != filter);
        assert!(self.tree.unsubscribe(filter, who).is_some());
    }

    fn retained(&mut self, who: &u64, filter: &str, qos: Qos) {
        let seat = Arc::clone(&self.known.get(who).expect("somebody known").0);
        let mut found = Vec::new();
        self.retained.matching(filter, &mut |topic, payload| {
            found.push((topic.to_owned(), payload.clone()));
        });
        for (topic, payload) in found {
            self.copy(&seat, &topic, &payload, qos.min(Qos::AtMostOnce), true);
        }
    }

    fn publish(
        &mut self,
        _: Option<&u64>,
        publication: &Publication<'_>,
        answer: Option<Answer>,
    ) -> Result<(), Code> {
        let Publication {
            topic,
            payload,
            qos,
            retain,
            ..
        } = *publication;
        let is_present = !std::mem::take(&mut self.came_long_ago);
        self.published.push((topic.into(), is_present));
        self.deliver(topic, payload, qos, retain);
        if let Some(answer) = answer
            && self.held != Some(answer.message_id)
        {
            self.send(answer.to, &answer.good);
        }
        Ok(())
    }
}
