//! How a client connects and disconnects.

use super::{Connection, End, NO_MEMORY, Stage};
use crate::link::{DeferredReply, Link};
use crate::memory;
use crate::message::{Kept, Message};
use crate::reason;
use crate::router::Router;
use crate::session::{Session, Will};
use crate::shared::{Access, Check};
use mqtick_access::Action;
use mqtick_packet::{
    ConnackProperties, Connect, Disconnect, Packet, Version, connack, decode, disconnect, frame,
};
use mqtick_topics::valid_topic;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const NEVER: u32 = u32::MAX;

impl Connection {
    pub(super) fn connect(
        &mut self,
        router: &mut Router,
        connect: &Connect,
        whole: &[u8],
    ) -> Result<(), End> {
        let link = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(link) => link,
            other => {
                self.stage = other;
                return Err(End::because(reason::PROTOCOL, "a second CONNECT"));
            }
        };
        self.version = connect.version;
        self.greeted = true;
        self.stage = Stage::New(link);
        if connect.properties.authentication_method().is_some() {
            return Err(End::because(
                reason::METHOD,
                "enhanced authentication is not offered",
            ));
        }
        if connect.client_id.is_empty() && connect.version == Version::V3 && !connect.clean_start {
            let why = "no client identifier, and not a clean session";
            return Err(End::because(reason::CLIENT, why));
        }
        if self.by_certificate {
            let name = self.link(|link| link.common_name()).flatten();
            let name = name.filter(|name| !name.is_empty());
            let Some(name) = name else {
                return Err(End::because(
                    reason::NOT_RIGHT,
                    "no certificate with a name",
                ));
            };
            return self.enter(router, connect, Some(&name));
        }
        let access = router.shared.access.load_full();
        let Some(user) = connect.username.filter(|_| access.passwords.is_some()) else {
            if !access.anonymous {
                return Err(End::because(reason::NOT_RIGHT, "no name"));
            }
            return self.enter(router, connect, None);
        };
        let check = Check {
            user: user.into(),
            password: connect.password.unwrap_or_default().into(),
            worker: router.worker,
            token: self.token,
            from: self.socket.neighbourhood(),
        };
        if !router.shared.check(check) {
            return Err(End::because(reason::BUSY, "too many passwords to check"));
        }
        if let Stage::New(link) = std::mem::replace(&mut self.stage, Stage::Over) {
            self.stage = Stage::Checking(link, whole.into());
        }
        self.hold(0)
    }

    /// The password of the waiting CONNECT was checked.
    pub fn checked(&mut self, router: &mut Router, right: bool, by: &Access) -> Result<(), End> {
        let (link, octets) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Checking(link, octets) => (link, octets),
            other => {
                self.stage = other;
                return Ok(());
            }
        };
        self.stage = Stage::New(link);
        if !right {
            return Err(End::because(reason::NOT_RIGHT, "name or password is wrong"));
        }
        let Some(frame) = frame(&octets, usize::MAX)? else {
            return Ok(());
        };
        if let Packet::Connect(connect) = decode(&frame, self.version)? {
            let user = connect.username.unwrap_or_default();
            if !router.shared.access.load().knows_as(by, user) {
                let why = "its user's password was changed while it was checked";
                return Err(End::because(reason::NOT_RIGHT, why));
            }
            self.enter(router, &connect, connect.username)?;
        }
        self.go_on(router)
    }

    fn enter(
        &mut self,
        router: &mut Router,
        connect: &Connect,
        user: Option<&str>,
    ) -> Result<(), End> {
        let shared = Arc::clone(&router.shared);
        let limits = &shared.settings.limits;
        let is_new = !shared.sessions().contains_key(connect.client_id);
        if is_new && shared.counters.connected.load(Relaxed) >= limits.connections {
            return Err(End::because(
                reason::QUOTA,
                "as many clients as the configuration allows",
            ));
        }
        let most = limits.connections.saturating_mul(2);
        if is_new && shared.sessions().len() >= most {
            return Err(End::because(
                reason::QUOTA,
                "too many sessions of clients that are gone",
            ));
        }
        if is_new && memory::free() == 0 {
            return Err(End::because(reason::QUOTA, NO_MEMORY));
        }
        let will = self.will(router, connect, user)?;
        let assigned = connect.client_id.is_empty().then(|| shared.assign_client());
        let client = assigned.as_deref().unwrap_or(connect.client_id);
        let asked_s = match connect.version {
            Version::V3 => {
                if connect.clean_start {
                    0
                } else {
                    NEVER
                }
            }
            Version::V5 => connect.properties.session_expiry().unwrap_or(0),
        };
        let expiry_s = asked_s.min(limits.session_expiry_s);
        let Stage::New(mut link) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Err(End::TakenOver);
        };
        link.version = connect.version;
        let largest = connect.properties.maximum_packet_size();
        link.largest = largest.map_or(usize::MAX, |octets| octets as usize);
        let keep_alive = connect.keep_alive;
        self.silent_ms = u64::from(keep_alive) * 1500;
        self.user = user.map(Into::into);
        let mut ended = None;
        router.context.span = None;
        let access = shared.access.load_full();
        {
            let mut sessions = shared.sessions();
            let known = sessions.get(client).cloned();
            let mut present = known.is_some();
            if let Some(session) = &known {
                let mut state = session.lock();
                let is_other = state.user.as_deref() != user;
                let is_free = shared.settings.access.shared_identifiers
                    || state.is_over(router.context.now_s)
                    || shared.is_nobody(state.user.as_deref());
                if is_other && !is_free {
                    self.stage = Stage::New(link);
                    let why = "its identifier is that of another user's session";
                    return Err(End::because(reason::CLIENT, why));
                }
                if let Some(mut old) = state.link.take() {
                    old.let_go();
                    if old.version == Version::V5 {
                        disconnect(old.out(), Version::V5, reason::TAKEN_OVER);
                    }
                    old.close();
                    shared.counters.connected.fetch_sub(1, Relaxed);
                }
                // Another user must not get what waits for this one.
                let over = connect.clean_start
                    || state.expiry_s == 0
                    || is_other
                    || state.is_over(router.context.now_s);
                if over {
                    present = false;
                    shared.end_session(session, &mut state, &mut router.context);
                }
                let will = state.will.take_if(|will| over || will.delay_s == 0);
                ended = will.map(|will| (Arc::clone(session), will));
            }
            let session = match known.filter(|_| present) {
                Some(session) => session,
                None => shared.new_session(client),
            };
            sessions.insert(client.into(), Arc::clone(&session));
            let mut state = session.lock();
            shared.calendar.forget(&session, &mut state);
            let in_store = || Some(format!("{}/{client}", session.number).into());
            if !present && expiry_s > 0 && router.context.journal.is_some() {
                state.key = in_store();
            } else if state.key.is_none() && will.is_some() {
                state.will_key = in_store();
            }
            state.user = user.map(Into::into);
            state.expiry_s = expiry_s;
            state.left_s = None;
            state.will = will;
            let window = connect.properties.receive_maximum().unwrap_or(u16::MAX);
            state.window = window.min(shared.bounds.window);
            let given = ConnackProperties {
                session_expiry: (expiry_s != asked_s).then_some(expiry_s),
                receive_maximum: None,
                maximum_packet_size: Some(limits.packet.try_into().unwrap_or(u32::MAX)),
                assigned_client_id: assigned.as_deref(),
                retain_available: (limits.retained_messages == 0).then_some(false),
                topic_alias_maximum: Some(limits.topic_alias),
                ..ConnackProperties::default()
            };
            let has_only_will = state.key.is_none() && router.context.span.is_none();
            state.keep(&mut router.context);
            if let Some(span) = router.context.span.take() {
                let may_fail = present || has_only_will;
                link.hold(span, DeferredReply::Connected { may_fail });
            }
            // MQTT 3.1 has no such flag.
            let says_present = present && connect.level > 3;
            connack(link.out(), connect.version, says_present, 0, &given);
            state.link = Some(*link);
            shared.counters.connected.fetch_add(1, Relaxed);
            self.stage = Stage::Up(Arc::clone(&session));
            router.context.at_once = false;
            state.resume();
            let rules = &access.rules;
            let may = |topic: &str| rules.may(user, client, Action::Read, topic);
            let copies = state.judge(&mut router.context, may);
            router.context.remains.copies.extend(copies);
            state.fill(&mut router.context);
            session.written(&mut state, &mut router.context);
        }
        if let Some((session, will)) = ended {
            router.publish_will(&session, &will);
        }
        Ok(())
    }

    fn will(
        &self,
        router: &Router,
        connect: &Connect,
        user: Option<&str>,
    ) -> Result<Option<Will>, End> {
        let Some(will) = &connect.will else {
            return Ok(None);
        };
        let access = router.shared.access.load();
        if !valid_topic(will.topic) || will.topic.starts_with("$SYS/") {
            return Err(End::because(
                reason::TOPIC,
                "the will's topic cannot be published to",
            ));
        }
        if !access
            .rules
            .may(user, connect.client_id, Action::Write, will.topic)
        {
            return Err(End::because(
                reason::NOT_AUTHORIZED,
                "the will's topic is not allowed",
            ));
        }
        let mut forwarded = Vec::new();
        will.properties.forwarded(&mut forwarded);
        let message = Message {
            whole: None,
            topic: will.topic,
            payload: will.payload,
            qos: will.qos,
            retain: will.retain,
            forwarded: &forwarded,
            expires_s: None,
        };
        if will.retain && router.shared.settings.limits.retained_messages == 0 {
            let why = "a will that is retained, and the settings allow none";
            return Err(End::because(reason::NO_RETAIN, why));
        }
        // Half of all memory is not for wills, either.
        let octets = message.octets();
        if octets > memory::ALWAYS && (memory::is_tight() || !memory::may_hold(octets)) {
            return Err(End::because(reason::QUOTA, NO_MEMORY));
        }
        let delay_s = will.properties.will_delay().unwrap_or(0);
        Ok(Some(Will {
            message: Kept::new(&message),
            lifetime_s: will.properties.message_expiry(),
            delay_s,
        }))
    }

    pub(super) fn goodbye(&self, router: &mut Router, packet: &Disconnect) -> End {
        let wanted = packet.properties.session_expiry();
        let most = router.shared.settings.limits.session_expiry_s;
        let done = self.with_state(router, |state, _| {
            if state.expiry_s == 0 && wanted.is_some_and(|wanted| wanted > 0) {
                // [MQTT-3.14.2-2]
                return End::because(reason::PROTOCOL, "a session that ends gets no expiry");
            }
            if let Some(wanted) = wanted {
                state.expiry_s = wanted.min(most);
            }
            if packet.reason != reason::WITH_WILL {
                state.will = None;
            }
            End::Gone
        });
        done.unwrap_or_else(|end| end)
    }

    /// End the connection: tell the client why, and end or keep its session.
    pub fn end(&mut self, router: &mut Router, end: &End) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::New(link) | Stage::Checking(link, _) => self.refuse(router, *link, end),
            Stage::Up(session) => self.leave(router, &session, end),
            Stage::Over => {}
        }
    }

    fn refuse(&self, router: &Router, mut link: Link, end: &End) {
        router.shared.counters.refused.fetch_add(1, Relaxed);
        router.shared.tally.refused.count(end.reason());
        if let End::Because(code, why) = end {
            router
                .shared
                .complain(&format!("{}: refused: {why}", link.socket().peer()));
            // Without a readable CONNECT, the version of the answer is not known.
            if self.greeted || *code == reason::VERSION {
                // CONNACK has no reason code for a timeout; Server busy comes closest.
                let code = match *code {
                    reason::KEEP_ALIVE => reason::BUSY,
                    code => code,
                };
                connack(
                    link.out(),
                    self.version,
                    false,
                    code,
                    &ConnackProperties::default(),
                );
            }
        }
        link.close();
    }

    fn leave(&self, router: &mut Router, session: &Arc<Session>, end: &End) {
        let shared = Arc::clone(&router.shared);
        let mut complaint = None;
        let will = {
            let mut sessions = shared.sessions();
            let mut state = session.lock();
            let ours = |link: &mut Link| {
                link.place.token == self.token && link.place.worker == router.worker
            };
            let Some(mut link) = state.link.take_if(ours) else {
                return;
            };
            shared.counters.connected.fetch_sub(1, Relaxed);
            if let End::Because(code, why) = end {
                let who = format!("{} ({})", short(&session.client), link.socket().peer());
                complaint = Some(format!("{who}: ended: {why}"));
                shared.tally.ended.count(*code);
                link.let_go();
                if link.version == Version::V5 {
                    disconnect(link.out(), Version::V5, *code);
                }
            }
            link.close();
            state.left_s = Some(router.context.now_s);
            let over = state.expiry_s == 0;
            if over {
                sessions.remove(&session.client);
                shared.end_session(session, &mut state, &mut router.context);
            }
            state.keep(&mut router.context);
            let will = state.will.take_if(|will| over || will.delay_s == 0);
            if !over {
                shared.calendar.remind(session, &mut state);
            }
            will
        };
        if let Some(complaint) = complaint {
            shared.complain(&complaint);
        }
        if let Some(will) = will {
            router.publish_will(session, &will);
        }
    }
}

/// A client's identifier for the log: without control characters, and not longer than a line.
fn short(client: &str) -> String {
    client
        .chars()
        .take(64)
        .flat_map(char::escape_debug)
        .collect()
}
