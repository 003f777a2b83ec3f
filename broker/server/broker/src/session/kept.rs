//! The part of a session that outlives the broker, and packets that wait until it is on disk.

use super::inflight::{Entry, Flight, RELEASED, Step};
use super::{DeliveryContext, State, Will};
use crate::journal::{Journal, Span, from_store, to_store, to_wall};
use crate::link::DeferredReply;
use crate::message::{Copy, Kept, Message};
use crate::reason;
use mqtick_packet::{AckKind, ConnackProperties, Qos, Version, ack, connack, disconnect, pingresp};
use mqtick_store::{self as store, Change, KeptSession};
use std::collections::HashMap;
use std::sync::Arc;

impl State {
    /// A QoS 2 message has come. Returns whether it is new. If so, the caller has the journal keep
    /// all of its changes in one batch.
    pub fn receive(&mut self, context: &mut DeliveryContext, id: u16) -> bool {
        if let Some(before) = self.received.get(&id) {
            let refused = context.journal.as_ref().zip(*before);
            if !refused.is_some_and(|(journal, span)| journal.is_refused(span)) {
                let answered = context
                    .journal
                    .as_ref()
                    .map_or(0, |journal| journal.answered());
                context.span = before.filter(|before| before.last > answered);
                return false;
            }
        }
        let span = context.change(self.key.as_ref(), |client| Change::Received { client, id });
        self.received.insert(id, span);
        true
    }

    /// A QoS 2 message will not come again. Returns whether its identifier was in use.
    pub fn release(&mut self, context: &mut DeliveryContext, id: u16) -> bool {
        context.change(self.key.as_ref(), |client| Change::Released { client, id });
        self.received.remove(&id).is_some()
    }

    /// The client has subscribed to a filter; `options` as in SUBSCRIBE.
    pub fn subscribed(
        &mut self,
        context: &mut DeliveryContext,
        filter: &str,
        options: u8,
        identifier: u32,
    ) {
        let filter = filter.into();
        context.change(self.key.as_ref(), |client| Change::Subscribe {
            client,
            filter,
            options,
            identifier,
        });
    }

    /// The client has unsubscribed from a filter.
    pub fn unsubscribed(&mut self, context: &mut DeliveryContext, filter: &str) {
        let filter = filter.into();
        context.change(self.key.as_ref(), |client| Change::Unsubscribe {
            client,
            filter,
        });
    }

    /// Write the session's present state to the store, if the session is kept.
    pub fn keep(&mut self, context: &mut DeliveryContext) -> Option<Span> {
        let key = self.key.as_ref().or(self.will_key.as_ref()).cloned()?;
        let now = session_change(&key, self, context.now_s);
        context.change(Some(&key), |_| now)
    }

    /// Remove the will of a session that ends with its connection from the store: it is published,
    /// or will not be.
    pub fn forget_will(&mut self, context: &mut DeliveryContext) {
        context.change(self.will_key.take().as_ref(), |client| {
            Change::SessionGone { client }
        });
    }

    /// The session has ended: remove it from the store, too.
    pub fn end(&mut self, context: &mut DeliveryContext) {
        self.clear();
        context.change(self.key.as_ref(), |client| Change::SessionGone { client });
        self.key = None;
        if self.will.is_none() {
            self.forget_will(context);
        }
    }

    /// Whether the session has no connection and has expired.
    pub fn is_over(&self, now_s: u64) -> bool {
        let left_s = self.left_s.filter(|_| self.link.is_none());
        left_s.is_some_and(|left_s| {
            self.expiry_s != u32::MAX && now_s >= left_s.saturating_add(u64::from(self.expiry_s))
        })
    }

    /// Take over what the store has kept. A client that was connected when the broker ended counts
    /// as disconnected since now. `messages`: those that sessions have in common, by their numbers.
    pub fn restore(
        &mut self,
        kept: &KeptSession,
        messages: &mut HashMap<u64, Arc<Kept>>,
        now_s: u64,
    ) {
        self.key = Some(Arc::clone(&kept.client));
        self.user = kept.session.user.as_deref().map(Into::into);
        self.expiry_s = kept.session.expiry;
        self.left_s = Some(match kept.session.disconnected_at {
            0 => now_s,
            left_s => left_s.min(now_s),
        });
        self.will = kept.session.will.as_ref().map(will_from_store);
        self.received = kept.received.iter().map(|id| (*id, None)).collect();
        for one in &kept.subscriptions {
            self.add_filter(&one.filter);
        }
        for one in &kept.queue {
            self.next_place = one.place + 1;
            let message = messages.entry(one.message);
            let message = Arc::clone(message.or_insert_with(|| from_store(&one.body, false)));
            let copy = Copy {
                version: Version::V5,
                qos: Qos::try_from(one.qos).unwrap_or_default(),
                retain: one.retain,
                subscription: one.subscription_ids.first().copied().unwrap_or(0),
            };
            let entry = Entry {
                place: one.place,
                message,
                copy,
                entered: None,
                share: None,
            };
            let Some((id, state)) = one.in_flight else {
                self.queued += entry.message.octets();
                self.queue.push_back(entry);
                continue;
            };
            let step = match state {
                RELEASED => Step::Released,
                _ => Step::Sent,
            };
            self.last_id = id;
            self.flights.push_back(Flight { id, entry, step });
        }
        self.hold();
        self.resume();
    }

    /// Let through what was held back for changes that the store has answered.
    pub fn settle(&mut self, context: &mut DeliveryContext, journal: &Journal) {
        let answered = journal.answered();
        let mut fills = false;
        while let Some(link) = &mut self.link
            && let Some((span, reply)) = link.next_reply(answered)
        {
            let version = link.version;
            let refused = journal.is_refused(span);
            match reply {
                DeferredReply::Publish { .. } if !refused => {}
                DeferredReply::Pings(count) => (0..count).for_each(|_| pingresp(link.front())),
                DeferredReply::Publish { id, length } => {
                    let at = self.flights.iter().position(|flight| flight.id == id);
                    let flight = at.and_then(|at| self.flights.get(at));
                    let entry = flight.map(|flight| &flight.entry);
                    if let Some(at) = at
                        && entry.is_some_and(|entry| entry.is_refused(Some(journal)))
                    {
                        // Its publisher is told, and may send it again.
                        link.skip(length);
                        let flight = self.flights.remove(at);
                        if let Some(flight) = flight {
                            self.done(context, flight.entry.place);
                        }
                        fills = true;
                    }
                }
                DeferredReply::Ack(kind, id, code) if !refused => {
                    ack(link.front(), version, kind, id, code);
                }
                DeferredReply::Ack(kind @ (AckKind::Puback | AckKind::Pubrec), id, _) => {
                    if version == Version::V5 {
                        ack(link.front(), version, kind, id, reason::QUOTA);
                    } else {
                        link.let_go();
                        link.close();
                    }
                    if kind == AckKind::Pubrec {
                        self.release(context, id); // it may come again
                    }
                }
                // Only a new session that is kept is refused: a client that resumes one may take what
                // waits for it, which makes room.
                DeferredReply::Connected { may_fail: false } if refused => {
                    let none = ConnackProperties::default();
                    link.let_go();
                    connack(link.front(), version, false, reason::QUOTA, &none);
                    link.close();
                    self.expiry_s = 0;
                    self.will = None;
                    return;
                }
                DeferredReply::Connected { .. } => {}
                DeferredReply::Kept if !refused => {}
                DeferredReply::Ack(..) | DeferredReply::Kept => {
                    link.let_go();
                    if version == Version::V5 {
                        disconnect(link.front(), version, reason::QUOTA);
                    }
                    link.close();
                    return;
                }
            }
            if let Some(link) = &mut self.link {
                link.pass();
            }
        }
        if fills {
            self.fill(context);
        }
    }
}

/// A session's state, as the store keeps it.
pub fn session_change(key: &Arc<str>, state: &State, now_s: u64) -> Change {
    Change::Session {
        client: Arc::clone(key),
        session: store::Session {
            expiry: state.expiry_s,
            disconnected_at: state.left_s.map_or(0, |s| to_wall(s, now_s)),
            user: state.user.as_deref().map(Into::into),
            will: state.will.as_ref().map(|will| store::Will {
                message: Arc::new(store::Message {
                    expiry: will.lifetime_s.map_or(0, |s| u64::from(s.max(1))), // 0: no limit
                    ..to_store(&will.message.message(), now_s)
                }),
                retain: will.message.message().retain,
                delay: will.delay_s,
            }),
        },
    }
}

/// A will that the store has kept.
fn will_from_store(will: &store::Will) -> Will {
    let lifetime_s = u32::try_from(will.message.expiry).ok();
    let message = Message {
        whole: None,
        topic: &will.message.topic,
        payload: &will.message.payload,
        qos: Qos::try_from(will.message.qos).unwrap_or_default(),
        retain: will.retain,
        forwarded: &will.message.properties,
        expires_s: None,
    };
    Will {
        message: Kept::new(&message),
        lifetime_s: lifetime_s.filter(|s| *s > 0),
        delay_s: will.delay,
    }
}
