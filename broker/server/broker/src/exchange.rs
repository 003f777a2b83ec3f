//! Messages and subscriptions of a connected client.

use crate::connection::{Connection, End, reason};
use crate::desk::Desk;
use crate::message::Message;
use crate::session::Subscription;
use mqtick_access::Action;
use mqtick_packet::{
    Ack, AckKind, Filter, Publish, Qos, Subscribe, Unsubscribe, Version, suback, unsuback,
};
use mqtick_topics::valid_filter;
use std::sync::Arc;

impl Connection {
    pub(crate) fn publish(
        &mut self,
        desk: &mut Desk,
        publish: &Publish,
        alone: bool,
    ) -> Result<(), End> {
        let session = self.session()?;
        self.published = self.published.saturating_add(1);
        desk.received += 1;
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
                named = self.alias(desk, alias, publish.topic)?;
                &named
            }
        };
        if publish.qos > Qos::AtMostOnce && !self.begin_qos(desk, publish)? {
            return Ok(()); // it came before
        }
        let access = desk.shared.access.load_full();
        let user = self.user.as_deref();
        let may = !topic.starts_with("$SYS/")
            && access
                .rules
                .may(user, &session.client, Action::Write, topic);
        let mut forwarded = std::mem::take(&mut desk.spare);
        forwarded.clear();
        let mut anybody = false;
        if may {
            publish.properties.forwarded(&mut forwarded);
            let now_s = desk.courier.now_s;
            let message = Message {
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
            anybody = desk.publish(Some(&session), &message, alone);
        }
        forwarded.shrink_to(1 << 16);
        desk.spare = forwarded;
        let code = match (may, anybody) {
            (true, true) => 0,
            (true, false) => reason::NO_SUBSCRIBERS,
            (false, _) => reason::NOT_AUTHORIZED,
        };
        let kind = match publish.qos {
            Qos::AtMostOnce => return Ok(()),
            Qos::AtLeastOnce => AckKind::Puback,
            Qos::ExactlyOnce => AckKind::Pubrec,
        };
        self.with_state(desk, |state, _| {
            if kind == AckKind::Pubrec && code >= 0x80 {
                state.received.remove(&publish.id);
            }
            state.answer(kind, publish.id, code);
        })
    }

    /// The topic that an alias stands for; a name with it gives it that meaning.
    fn alias(&mut self, desk: &Desk, alias: u16, topic: &str) -> Result<Box<str>, End> {
        let most = desk.shared.settings.limits.topic_alias;
        if alias == 0 || alias > most {
            return Err(End::because(
                reason::ALIAS,
                "a topic alias above what was agreed",
            ));
        }
        let at = usize::from(alias) - 1;
        if self.aliases.len() <= at {
            self.aliases.resize(at + 1, Box::default());
        }
        match self.aliases.get_mut(at) {
            Some(known) if !topic.is_empty() => *known = topic.into(),
            _ => {}
        }
        match self.aliases.get(at) {
            Some(known) if !known.is_empty() => Ok(known.clone()),
            _ => Err(End::because(
                reason::PROTOCOL,
                "a topic alias that means nothing yet",
            )),
        }
    }

    /// Whether a message of QoS 1 or 2 is new.
    fn begin_qos(&mut self, desk: &mut Desk, publish: &Publish) -> Result<bool, End> {
        if publish.qos == Qos::AtLeastOnce {
            return Ok(true);
        }
        self.with_state(desk, |state, _| {
            if state.received.insert(publish.id) {
                return true;
            }
            state.answer(AckKind::Pubrec, publish.id, 0);
            false
        })
    }

    pub(crate) fn ack(&mut self, desk: &mut Desk, ack: &Ack) -> Result<(), End> {
        self.with_state(desk, |state, desk| {
            if ack.kind == AckKind::Pubrel {
                let known = state.received.remove(&ack.id);
                let code = if known { 0 } else { reason::NO_IDENTIFIER };
                state.answer(AckKind::Pubcomp, ack.id, code);
            } else {
                state.acknowledged(ack.kind, ack.id, ack.reason);
                state.fill(&mut desk.courier);
            }
        })
    }

    pub(crate) fn subscribe(&mut self, desk: &mut Desk, subscribe: &Subscribe) -> Result<(), End> {
        let session = self.session()?;
        let identifier = subscribe.properties.subscription_id().unwrap_or(0);
        let access = desk.shared.access.load_full();
        let most = desk.shared.settings.limits.subscriptions_a_client;
        let badly = |one: Filter| !valid_filter(one.filter);
        if self.version == Version::V3 && subscribe.filters().any(badly) {
            return Err(End::because(
                reason::FILTER,
                "a filter that is not well formed",
            ));
        }
        let mut codes = Vec::new();
        let mut granted: Vec<(Filter, bool)> = Vec::new();
        self.with_state(desk, |state, _| {
            for one in subscribe.filters() {
                let allowed = || {
                    access.rules.may(
                        state.user.as_deref(),
                        &session.client,
                        Action::Subscribe,
                        one.filter,
                    )
                };
                if !valid_filter(one.filter) {
                    codes.push(reason::FILTER);
                } else if !allowed() {
                    codes.push(reason::NOT_AUTHORIZED);
                } else if state.filters.len() >= most && !state.filters.contains(one.filter) {
                    codes.push(reason::QUOTA);
                } else {
                    codes.push(one.qos as u8);
                    granted.push((one, state.filters.insert(one.filter.into())));
                }
            }
        })?;
        let local = |one: &(Filter, bool)| one.0.no_local && one.0.filter.starts_with("$share/");
        if granted.iter().any(local) {
            return Err(End::because(
                reason::PROTOCOL,
                "a shared subscription with No Local",
            ));
        }
        if !granted.is_empty() {
            desk.shared.change(|tree| {
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
        let version = self.version;
        self.with_state(desk, |state, _| {
            if let Some(link) = &mut state.link {
                suback(link.out(), version, subscribe.id, &codes);
            }
        })?;
        for (one, new) in granted {
            let wanted = one.retain_handling == 0 || (one.retain_handling == 1 && new);
            if !wanted || one.filter.starts_with("$share/") {
                continue;
            }
            let subscription = Subscription {
                session: Arc::clone(&session),
                qos: one.qos,
                no_local: false,
                retain_as_published: true,
                identifier,
            };
            for kept in desk.shared.retained(one.filter) {
                let message = kept.message();
                let topic = message.topic;
                let user = self.user.as_deref();
                if message
                    .expires_s
                    .is_some_and(|expires_s| expires_s <= desk.courier.now_s)
                    || !access.rules.may(user, &session.client, Action::Read, topic)
                {
                    continue;
                }
                desk.courier.encoder.begin();
                desk.courier.at_once = false;
                let mut again = Some(Arc::clone(&kept));
                session.deliver(&mut desk.courier, &message, &mut again, &subscription, true);
            }
        }
        Ok(())
    }

    pub(crate) fn unsubscribe(
        &mut self,
        desk: &mut Desk,
        unsubscribe: &Unsubscribe,
    ) -> Result<(), End> {
        let session = self.session()?;
        let mut codes = Vec::new();
        self.with_state(desk, |state, _| {
            for filter in unsubscribe.filters() {
                let known = state.filters.remove(filter);
                codes.push(if known { 0 } else { reason::NO_SUBSCRIPTION });
            }
        })?;
        desk.shared.change(|tree| {
            for filter in unsubscribe.filters() {
                tree.unsubscribe(filter, &session.number);
            }
        });
        let version = self.version;
        self.with_state(desk, |state, _| {
            if let Some(link) = &mut state.link {
                unsuback(link.out(), version, unsubscribe.id, &codes);
            }
        })
    }
}
