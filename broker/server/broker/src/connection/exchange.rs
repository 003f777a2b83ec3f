//! PUBLISH, SUBSCRIBE, UNSUBSCRIBE and acknowledgements of a connected client.

use super::{Connection, End, NO_MEMORY, Stage};
use crate::link::DeferredReply;
use crate::memory;
use crate::message::Message;
use crate::reason;
use crate::router::{Reached, Router, work_of};
use crate::session::Subscription;
use mqtick_access::Action;
use mqtick_net::residence::has_trailer;
use mqtick_packet::{
    Ack, AckKind, Filter, Publish, Qos, Subscribe, Unsubscribe, Version, suback, unsuback,
};
use mqtick_topics::{unshared, valid_filter};
use std::sync::Arc;

/// Filters of one SUBSCRIBE above the limit that are refused one by one.
const MOST_REFUSED: usize = 10_000;

impl Connection {
    pub(super) fn publish(
        &mut self,
        router: &mut Router,
        publish: &Publish,
        whole: &[u8],
        alone: bool,
    ) -> Result<(), End> {
        if !matches!(self.stage, Stage::Up(_)) {
            return Err(End::not_connected());
        }
        self.published = self.published.saturating_add(1);
        router.received += 1;
        router.context.span = None;
        if publish.properties.subscription_id().is_some() {
            return Err(End::because(
                reason::PROTOCOL,
                "a subscription identifier from a client",
            ));
        }
        let alias = publish.properties.topic_alias();
        let named: Box<str>;
        let topic = match alias {
            None => publish.topic,
            Some(alias) => {
                named = self.alias(router, alias, publish.topic)?;
                &named
            }
        };
        // The packet identifier is in the same batch as the message.
        let journal = router.context.journal.as_ref();
        let journal = journal.filter(|_| publish.qos == Qos::ExactlyOnce).cloned();
        let _whole = journal.as_ref().map(|journal| journal.whole());
        let Some(identifiers) = self.begin_qos(router, publish)? else {
            return Ok(()); // it has come before
        };
        router.context.once = router.context.span;
        if router.stamp.is_some() && has_trailer(publish.payload) {
            self.arrived(router);
        }
        let Stage::Up(session) = &self.stage else {
            return Err(End::not_connected());
        };
        router.refresh();
        let user = self.user.as_deref();
        let may = !topic.starts_with("$SYS/")
            && router
                .access
                .rules
                .may(user, &session.client, Action::Write, topic);
        let mut forwarded = std::mem::take(&mut router.spare);
        forwarded.clear();
        let (mut anybody, mut has_room) = (false, true);
        if publish.retain && router.shared.settings.limits.retained_messages == 0 {
            let why = "a retained message, and the settings allow none";
            return Err(End::because(reason::NO_RETAIN, why));
        }
        if may {
            publish.properties.forwarded(&mut forwarded);
            let now_s = router.context.now_s;
            let is_plain = publish.qos == Qos::AtMostOnce
                && !publish.retain
                && alias.is_none()
                && publish.properties.message_expiry().is_none();
            let message = Message {
                whole: is_plain.then_some((self.version, whole)),
                topic,
                payload: publish.payload,
                qos: publish.qos,
                retain: publish.retain,
                forwarded: &forwarded,
                expires_s: publish
                    .properties
                    .message_expiry()
                    .map(|s| now_s + u64::from(s)),
            };
            if publish.dup {
                router.came = None; // it may have come before
            }
            has_room =
                publish.qos == Qos::AtMostOnce || memory::may_hold(message.octets() + identifiers);
            if has_room {
                let found = router.publish(Some(session), &message, alone);
                has_room = found != Reached::Refused;
                anybody = found == Reached::Somebody;
            } else {
                router.context.dropped += 1;
            }
        }
        router.context.once = None;
        forwarded.shrink_to(1 << 16);
        router.spare = forwarded;
        let code = match (may, anybody) {
            _ if !has_room => reason::QUOTA,
            (true, true) => 0,
            (true, false) => reason::NO_SUBSCRIBERS,
            (false, _) => reason::NOT_AUTHORIZED,
        };
        if !has_room && self.version == Version::V3 {
            let why = "a message that cannot be kept, for which MQTT 3.1.1 has no other answer";
            return Err(End::because(reason::QUOTA, why)); // acknowledged, it would be lost
        }
        let kind = match publish.qos {
            Qos::AtMostOnce => return Ok(()),
            Qos::AtLeastOnce => AckKind::Puback,
            Qos::ExactlyOnce => AckKind::Pubrec,
        };
        self.with_state(router, |state, router| {
            let span = router.context.span.take();
            if kind == AckKind::Pubrec && code >= 0x80 {
                state.release(&mut router.context, publish.id);
            }
            state.answer(kind, publish.id, code, span);
        })
    }

    /// The topic of an alias. If the packet has a topic, the alias is set to it.
    fn alias(&mut self, router: &Router, alias: u16, topic: &str) -> Result<Box<str>, End> {
        let most = router.shared.settings.limits.topic_alias;
        if alias == 0 || alias > most {
            return Err(End::because(
                reason::ALIAS,
                "a topic alias above what was agreed",
            ));
        }
        let at = usize::from(alias) - 1;
        if !topic.is_empty() {
            let slots = self.aliases.len().max(at + 1);
            let before = self.aliases.get(at).map_or(0, |known| known.len());
            let octets = self.alias_octets + topic.len() - before;
            if topic.len() > before && !memory::may_hold(octets + slots * size_of::<Box<str>>()) {
                return Err(End::because(reason::QUOTA, NO_MEMORY));
            }
            self.aliases.resize(slots, Box::default());
            if let Some(known) = self.aliases.get_mut(at) {
                *known = topic.into();
                self.alias_octets = octets;
            }
        }
        match self.aliases.get(at) {
            Some(known) if !known.is_empty() => Ok(known.clone()),
            _ => Err(End::because(
                reason::PROTOCOL,
                "a topic alias that means nothing yet",
            )),
        }
    }

    /// If a message is new: the octets that its session's identifiers of QoS 2 take.
    fn begin_qos(&mut self, router: &mut Router, publish: &Publish) -> Result<Option<usize>, End> {
        if publish.qos < Qos::ExactlyOnce {
            return Ok(Some(0));
        }
        self.with_state(router, |state, router| {
            if state.receive(&mut router.context, publish.id) {
                state.hold();
                return Some(state.received_octets());
            }
            let span = router.context.span.take();
            state.answer(AckKind::Pubrec, publish.id, 0, span);
            None
        })
    }

    pub(super) fn ack(&mut self, router: &mut Router, ack: &Ack) -> Result<(), End> {
        let fits = self.with_state(router, |state, router| {
            if ack.kind == AckKind::Pubrel {
                router.context.span = None;
                let known = state.release(&mut router.context, ack.id);
                let code = if known { 0 } else { reason::NO_IDENTIFIER };
                let span = router.context.span.take();
                state.answer(AckKind::Pubcomp, ack.id, code, span);
                true
            } else {
                let fits = state.acknowledged(&mut router.context, ack.kind, ack.id, ack.reason);
                state.fill(&mut router.context);
                fits
            }
        })?;
        match fits {
            true => Ok(()),
            false => Err(End::because(
                reason::PROTOCOL,
                "an acknowledgement of another QoS than the message's",
            )),
        }
    }

    /// Subscribe to as many of the filters as this turn allows.
    pub(super) fn subscribe(
        &mut self,
        router: &mut Router,
        subscribe: &Subscribe,
    ) -> Result<(), End> {
        let session = self.session()?;
        let mut part = std::mem::take(&mut self.part);
        let identifier = subscribe.properties.subscription_id().unwrap_or(0);
        let access = router.shared.access.load_full();
        let most = router.shared.settings.limits.subscriptions_a_client;
        if part.done == 0 {
            self.published = self.published.saturating_add(1);
            if subscribe.filters().count() > most.saturating_add(MOST_REFUSED) {
                return Err(End::because(
                    reason::QUOTA,
                    "it subscribes to far more filters than a client may have",
                ));
            }
            let badly = |one: Filter| !valid_filter(one.filter);
            if self.version == Version::V3 && subscribe.filters().any(badly) {
                return Err(End::because(
                    reason::FILTER,
                    "a filter that is not well formed",
                ));
            }
        }
        let version = self.version;
        let mut granted: Vec<(Filter, bool)> = Vec::new();
        let mut filters = subscribe.filters().skip(part.done);
        // The session and the tree change together, under the session's lock: another connection
        // may take over the session.
        let is_done = self.with_state(router, |state, router| {
            router.context.span = part.span;
            let is_done = loop {
                let Some(one) = filters.next() else {
                    break true;
                };
                let filter = one.filter;
                let is_more = (state.filters().len() >= most || !state.may_add(filter))
                    && !state.filters().contains(filter);
                let user = state.user.as_deref();
                part.codes.push(if !valid_filter(filter) {
                    reason::FILTER
                } else if !access.rules.may(
                    user,
                    &session.client,
                    Action::Subscribe,
                    unshared(filter).unwrap_or(filter),
                ) {
                    reason::NOT_AUTHORIZED
                } else if is_more {
                    reason::QUOTA
                } else {
                    router.spend(work_of(filter));
                    granted.push((one, state.add_filter(filter)));
                    one.qos as u8
                });
                part.done += 1;
                if router.left() == 0 {
                    break filters.next().is_none();
                }
            };
            if !granted.is_empty() {
                let filters = granted.iter().map(|(one, _)| one.filter);
                router.shared.change(filters, |tree| {
                    for (one, _) in &granted {
                        let subscription = Subscription {
                            session: Arc::clone(&session),
                            qos: one.qos,
                            no_local: one.no_local,
                            retain_as_published: one.retain_as_published,
                            identifier,
                        };
                        tree.subscribe(one.filter, session.number, subscription);
                    }
                });
            }
            for (one, _) in &granted {
                let own = u8::from(one.no_local) << 2;
                let retained = u8::from(one.retain_as_published) << 3 | one.retain_handling << 4;
                let options = one.qos as u8 | own | retained;
                state.subscribed(&mut router.context, one.filter, options, identifier);
            }
            part.span = router.context.span.take();
            if is_done && let Some(link) = &mut state.link {
                if let Some(span) = part.span {
                    link.hold(span, DeferredReply::Kept);
                }
                suback(link.out(), version, subscribe.id, &part.codes);
            }
            is_done
        })?;
        for (one, is_new) in granted {
            let wanted = one.retain_handling == 0 || (one.retain_handling == 1 && is_new);
            if wanted && !one.filter.starts_with("$share/") {
                self.ask(router, one.filter, one.qos, identifier)?;
            }
        }
        if is_done {
            self.search(router);
        } else {
            self.part = part;
        }
        Ok(())
    }

    /// Unsubscribe from as many of the filters as this turn allows.
    pub(super) fn unsubscribe(
        &mut self,
        router: &mut Router,
        unsubscribe: &Unsubscribe,
    ) -> Result<(), End> {
        let session = self.session()?;
        let mut part = std::mem::take(&mut self.part);
        if part.done == 0 {
            self.published = self.published.saturating_add(1);
            let most = router.shared.settings.limits.subscriptions_a_client;
            if unsubscribe.filters().count() > most {
                return Err(End::because(
                    reason::QUOTA,
                    "it unsubscribes from more filters than a client may have",
                ));
            }
        }
        let version = self.version;
        let mut left: Vec<&str> = Vec::new();
        let mut filters = unsubscribe.filters().skip(part.done);
        let is_done = self.with_state(router, |state, router| {
            router.context.span = part.span;
            let is_done = loop {
                let Some(filter) = filters.next() else {
                    break true;
                };
                router.spend(work_of(filter));
                let known = state.remove_filter(filter);
                let code = if known { 0 } else { reason::NO_SUBSCRIPTION };
                part.codes.push(code);
                left.extend(known.then_some(filter));
                part.done += 1;
                if router.left() == 0 {
                    break filters.next().is_none();
                }
            };
            router.shared.change(left.iter().copied(), |tree| {
                for filter in &left {
                    tree.unsubscribe(filter, &session.number);
                }
            });
            for filter in &left {
                state.unsubscribed(&mut router.context, filter);
            }
            if left.iter().any(|filter| filter.starts_with("$share/")) {
                let is_left = |share: &Arc<str>| left.iter().any(|one| **one == **share);
                let is_wanted = |_: &_, share: Option<&_>| !share.is_some_and(is_left);
                let copies = state.drop_queued(&mut router.context, is_wanted);
                router.context.remains.copies.extend(copies);
            }
            part.span = router.context.span.take();
            if is_done && let Some(link) = &mut state.link {
                if let Some(span) = part.span {
                    link.hold(span, DeferredReply::Kept);
                }
                unsuback(link.out(), version, unsubscribe.id, &part.codes);
            }
            is_done
        })?;
        if !is_done {
            self.part = part;
        }
        Ok(())
    }
}
