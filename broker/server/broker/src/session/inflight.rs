//! Messages of QoS 1 and 2 on their way to a client: queued, sent, acknowledged.

use super::{DeliveryContext, State};
use crate::journal::{Journal, Span};
use crate::link::{DeferredReply, Link};
use crate::memory;
use crate::message::{Copy, Kept};
use mqtick_packet::{AckKind, Qos, ack};
use mqtick_store::Change;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

const SPARE: usize = 16; // places in a queue
const SENT: u8 = 0; // the steps of a message, as the store numbers them
pub(super) const RELEASED: u8 = 1;

#[derive(PartialEq, Eq)]
pub(super) enum Step {
    Sent,
    Released, // PUBREC has come, and PUBREL is sent
}

pub(super) struct Entry {
    pub(super) place: u64, // its key in the store's queue
    pub(super) message: Arc<Kept>,
    pub(super) copy: Copy,
    pub(super) entered: Option<Span>, // changes by which it entered the store's queue, or came
    pub(super) share: Option<Arc<str>>, // the shared subscription for which it is
}

pub(super) struct Flight {
    pub(super) id: u16,
    pub(super) entry: Entry,
    pub(super) step: Step,
}

impl State {
    /// Send a copy of QoS 1 or 2, or queue it. Returns whether something was appended to the link.
    pub(super) fn queue_or_send(
        &mut self,
        context: &mut DeliveryContext,
        kept: &Arc<Kept>,
        copy: Copy,
    ) -> bool {
        let octets = kept.octets();
        let sends = self.due == 0 && self.queue.is_empty() && self.has_room(context, octets);
        let may = if sends {
            self.has_memory(octets)
        } else {
            self.queue.len() < context.bounds.messages
                && self.queued + octets <= context.bounds.octets
                && memory::may_queue(self.queued + octets)
        };
        if !may {
            context.dropped += 1;
            return false;
        }
        let mut entry = Entry {
            place: self.next_place,
            message: Arc::clone(kept),
            copy,
            entered: None,
            share: context.share.clone(),
        };
        if let (Some(key), Some(journal)) = (&self.key, &context.journal) {
            self.next_place += 1;
            let entering = &mut context.entering;
            let span = journal.queue(key, entry.place, kept, &copy, entering, context.now_s);
            entry.entered = Some(span);
            context.note(span);
        } else {
            entry.entered = context.once;
        }
        if sends {
            return self.send(context, entry);
        }
        self.queued += octets;
        self.queue.push_back(entry);
        self.hold();
        false
    }

    pub(super) fn send(&mut self, context: &mut DeliveryContext, mut entry: Entry) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        entry.copy.version = link.version;
        let message = entry.message.message();
        let octets = context.encoder.octets(&message, &entry.copy, context.now_s);
        if octets.packet.is_empty() || octets.packet.len() > link.largest {
            self.done(context, entry.place);
            return false; // empty: too long for MQTT; else for the client: [MQTT-3.1.2-24]
        }
        // At most `window` of 65,535 identifiers are in use.
        loop {
            self.last_id = self.last_id.checked_add(1).unwrap_or(1);
            if !self.flights.iter().any(|flight| flight.id == self.last_id) {
                break;
            }
        }
        let id = self.last_id;
        let octets = if self.key.is_some() {
            let (place, state) = (entry.place, SENT);
            let changed = context.change(self.key.as_ref(), |client| Change::InFlight {
                client,
                place,
                id,
                state,
            });
            let octets = context.encoder.octets(&message, &entry.copy, context.now_s);
            // After a crash, a QoS 1 message may be sent again. A QoS 2 message may not, and no
            // other message may get its identifier.
            if let Some(span) = changed.filter(|_| entry.copy.qos == Qos::ExactlyOnce) {
                let (span, length) = (span.and(entry.entered), octets.packet.len());
                link.hold(span, DeferredReply::Publish { id, length });
            }
            octets
        } else {
            if let Some(span) = entry.unanswered(context.journal.as_deref()) {
                let length = octets.packet.len();
                link.hold(span, DeferredReply::Publish { id, length });
            }
            octets
        };
        append(link.out(), &octets.packet, octets.id_at, id);
        context.sent += 1;
        self.flights.push_back(Flight {
            id,
            entry,
            step: Step::Sent,
        });
        true
    }

    /// Fill the window with what has to be sent again, then from the queue.
    pub fn fill(&mut self, context: &mut DeliveryContext) {
        self.send_again(context);
        while let Some(next) = self.queue.front()
            && self.due == 0
            && self.has_room(context, next.message.octets())
        {
            let Some(entry) = self.queue.pop_front() else {
                break;
            };
            self.queued -= entry.message.octets();
            let expires_s = entry.message.message().expires_s;
            let is_over = expires_s.is_some_and(|expires_s| expires_s <= context.now_s);
            if is_over || entry.is_refused(context.journal.as_deref()) {
                self.done(context, entry.place);
                continue;
            }
            // A message that is not on disk cannot wait for memory: nothing would try again. One on
            // disk has been acknowledged to its publisher, so it is not dropped.
            if self.key.is_none() && !self.has_memory(entry.message.octets()) {
                context.dropped += 1;
                continue;
            }
            context.encoder.begin();
            self.send(context, entry);
        }
        if self.queue.is_empty() {
            self.queue.shrink_to(SPARE);
        }
        self.hold();
    }

    /// Whether the limit of all memory lets the link take a message of this size.
    fn has_memory(&self, octets: usize) -> bool {
        let waiting = self.link.as_ref().map_or(0, Link::waiting);
        memory::may_queue(waiting + octets)
    }

    /// A new connection: what was under way when the last one ended is sent again by `fill`
    /// ([MQTT-4.4.0-1]).
    pub fn resume(&mut self) {
        self.due = self.flights.len();
    }

    /// Whether the window, and the bounds of what waits in the link, let another message of this
    /// size go. A link with nothing under way has to take one, or no acknowledgement would ever
    /// bring it back here.
    pub(super) fn has_room(&self, context: &DeliveryContext, next: usize) -> bool {
        let inflight = self.flights.len() - self.due;
        self.link.as_ref().is_some_and(|link| {
            inflight < usize::from(self.window)
                && (inflight == 0
                    || link.waiting() <= context.bounds.octets
                        && memory::may_queue(link.waiting() + next))
        })
    }

    fn send_again(&mut self, context: &mut DeliveryContext) {
        while self.due > 0 {
            let at = self.flights.len() - self.due;
            let next = self
                .flights
                .get(at)
                .map_or(0, |next| next.entry.message.octets());
            if !self.has_room(context, next) {
                break;
            }
            self.due -= 1;
            let (Some(link), Some(flight)) = (&mut self.link, self.flights.get_mut(at)) else {
                return;
            };
            if flight.step == Step::Released {
                let version = link.version;
                ack(link.out(), version, AckKind::Pubrel, flight.id, 0);
                continue;
            }
            if flight.entry.is_refused(context.journal.as_deref()) {
                let place = flight.entry.place;
                self.flights.remove(at);
                self.done(context, place);
                continue;
            }
            flight.entry.copy.version = link.version;
            context.encoder.begin();
            let message = flight.entry.message.message();
            let octets = context
                .encoder
                .octets(&message, &flight.entry.copy, context.now_s);
            // A message for which there is no memory cannot wait, as in `fill`.
            let finds_none =
                self.key.is_none() && !memory::may_queue(link.waiting() + octets.packet.len());
            if octets.packet.len() > link.largest || finds_none {
                context.dropped += u64::from(finds_none);
                let place = flight.entry.place;
                self.flights.remove(at); // [MQTT-3.1.2-24]
                self.done(context, place);
                continue;
            }
            if let Some(span) = flight.entry.unanswered(context.journal.as_deref()) {
                let (id, length) = (flight.id, octets.packet.len());
                link.hold(span, DeferredReply::Publish { id, length });
            }
            let start = link.out().len();
            append(link.out(), &octets.packet, octets.id_at, flight.id);
            if let Some(first) = link.out().get_mut(start) {
                *first |= 0x08; // DUP
            }
        }
    }

    /// Copies that another member of their shared subscription may get instead ([MQTT-4.8.2-4],
    /// -5): all that wait, and those of QoS 1 that were not acknowledged.
    pub fn shared_copies(&self) -> impl Iterator<Item = (Arc<str>, Arc<Kept>)> {
        let inflight = self.flights.iter().map(|flight| &flight.entry);
        let again = inflight.filter(|entry| entry.copy.qos == Qos::AtLeastOnce);
        again.chain(&self.queue).filter_map(|entry| {
            let share = entry.share.as_ref()?;
            Some((Arc::clone(share), Arc::clone(&entry.message)))
        })
    }

    /// Take the copies that wait and are not `wanted` any more.
    pub(crate) fn drop_queued(
        &mut self,
        context: &mut DeliveryContext,
        mut wanted: impl FnMut(&Kept, Option<&Arc<str>>) -> bool,
    ) -> Vec<(Arc<str>, Arc<Kept>)> {
        let (mut dropped, mut places) = (Vec::new(), Vec::new());
        self.queue.retain(|entry| {
            let is_wanted = wanted(&entry.message, entry.share.as_ref());
            if !is_wanted {
                self.queued -= entry.message.octets();
                places.push(entry.place);
                let share = entry.share.clone();
                dropped.extend(share.map(|share| (share, Arc::clone(&entry.message))));
            }
            is_wanted
        });
        for place in places {
            self.done(context, place);
        }
        dropped
    }

    /// Drop the copies that the client `may` not read any more and was not sent on this
    /// connection. Returns those that another member of a shared subscription may get.
    pub fn judge(
        &mut self,
        context: &mut DeliveryContext,
        may: impl Fn(&str) -> bool,
    ) -> Vec<(Arc<str>, Arc<Kept>)> {
        let mut at = self.flights.len() - self.due;
        while let Some(flight) = self.flights.get(at) {
            if flight.step == Step::Released || may(flight.entry.message.message().topic) {
                at += 1;
                continue;
            }
            let place = flight.entry.place;
            self.flights.remove(at);
            self.due -= 1;
            self.done(context, place);
        }
        self.drop_queued(context, |kept, _| may(kept.message().topic))
    }

    /// Forget what is under way and what waits.
    pub fn clear(&mut self) {
        self.flights.clear();
        self.due = 0;
        self.queue = VecDeque::new();
        self.queued = 0;
        self.received = HashMap::new();
        self.hold();
    }

    /// An acknowledgement has come. Returns false if it is of the wrong kind for its message.
    pub fn acknowledged(
        &mut self,
        context: &mut DeliveryContext,
        kind: AckKind,
        id: u16,
        reason: u8,
    ) -> bool {
        let sent = self.flights.len() - self.due;
        let mut flights = self.flights.iter().take(sent);
        let Some(at) = flights.position(|flight| flight.id == id) else {
            if kind == AckKind::Pubrec && reason < 0x80 {
                self.answer(AckKind::Pubrel, id, 0x92, None);
            }
            return true;
        };
        let Some(flight) = self.flights.get_mut(at) else {
            return true;
        };
        let place = flight.entry.place;
        let twice = flight.entry.copy.qos == Qos::ExactlyOnce;
        match kind {
            AckKind::Pubrec if twice && reason < 0x80 => {
                flight.step = Step::Released;
                let state = RELEASED;
                let span = context.change(self.key.as_ref(), |client| Change::InFlight {
                    client,
                    place,
                    id,
                    state,
                });
                self.answer(AckKind::Pubrel, id, 0, span);
                return true;
            }
            AckKind::Puback if !twice => drop(self.flights.remove(at)),
            AckKind::Pubrec | AckKind::Pubcomp if twice => drop(self.flights.remove(at)),
            _ => return false,
        }
        self.done(context, place);
        true
    }

    /// A message has left the queue.
    pub(super) fn done(&mut self, context: &mut DeliveryContext, place: u64) {
        context.change(self.key.as_ref(), |client| Change::Done { client, place });
    }
}

impl Entry {
    /// The changes that it waits for: it is of QoS 2, and the store has not answered them yet.
    pub(super) fn unanswered(&self, journal: Option<&Journal>) -> Option<Span> {
        let (journal, span) = journal.zip(self.entered)?;
        let is_held = self.copy.qos == Qos::ExactlyOnce && span.last > journal.answered();
        is_held.then_some(span)
    }

    /// Whether it is of QoS 2, and its publisher was told that it was not taken: then it may come
    /// again.
    pub(super) fn is_refused(&self, journal: Option<&Journal>) -> bool {
        let refused = journal.zip(self.entered);
        self.copy.qos == Qos::ExactlyOnce
            && refused.is_some_and(|(journal, span)| journal.is_refused(span))
    }
}

fn append(out: &mut Vec<u8>, packet: &[u8], id_at: Option<usize>, id: u16) {
    let start = out.len();
    out.extend_from_slice(packet);
    if let Some(place) = id_at.and_then(|at| out.get_mut(start + at..start + at + 2)) {
        place.copy_from_slice(&id.to_be_bytes());
    }
}
