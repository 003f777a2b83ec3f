//! The messages of mqtt-udp, where a client is identified by its address, and its session is a
//! lease.

use std::net::SocketAddr;
use std::rc::Rc;

use super::{Clients, Dirty};
use crate::controller::SECOND_NS;
use crate::lease::{Lease, Renewal, Stage};
use crate::names::is_filter;
use crate::pings::Answer;
use crate::plane::{Copy, Topic};
use crate::session::{Connect, MOST_NAMES, Named, Request, Session, State, Subscription};
use crate::udp::{Answered, Asked};

impl Clients {
    /// Process a packet of a client; `None`: a broker refuses it.
    pub fn asked_by_udp(&mut self, now_ns: u64, client: SocketAddr, asked: Option<Asked>) {
        match asked {
            Some(Asked::Publish(name)) => {
                return self.publishes(now_ns, client, Topic::Name(name));
            }
            Some(Asked::Proof) => return self.proves(now_ns, client),
            Some(Asked::Nothing) => return,
            _ => self.is_heard(now_ns, client),
        }
        if matches!(
            asked,
            Some(Asked::Connect(_) | Asked::BadConnect | Asked::Subscribe(..))
        ) {
            self.awaits_a_challenge(now_ns, client);
        }
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let Some(lease) = &mut session.lease else {
            return;
        };
        let is_there = matches!(lease.stage, Stage::Proven | Stage::Held);
        match asked {
            Some(Asked::Ping) if is_there => lease.asks(now_ns, Renewal::Ping),
            Some(Asked::BadConnect) => {
                session.pings.sent(now_ns);
                session.changed();
                self.touch(client);
            }
            // The broker only sends a challenge.
            Some(Asked::Connect(_) | Asked::Subscribe(..)) if !is_there => {
                session.pings.sent(now_ns);
                session.changed();
                self.touch(client);
            }
            Some(Asked::Connect(keep_alive_s)) => {
                lease.asks(now_ns, Renewal::Connect);
                lease.since_proof += 1;
                let connect = Connect {
                    keep_alive_ns: u64::from(keep_alive_s) * SECOND_NS,
                    ..Connect::nobodys()
                };
                session.connects_by_udp(now_ns, connect, self.settings.lease_ns);
                self.touch(client);
            }
            Some(Asked::Subscribe(id, filters)) => {
                lease.asks(now_ns, Renewal::Subscribe);
                lease.since_proof += 1;
                session.changed();
                self.touch(client);
                let request = Request::Subscribe(subscriptions(filters));
                self.request(now_ns, client, id, request);
            }
            Some(Asked::Unsubscribe(id, filters)) if is_there => {
                let request = Request::Unsubscribe(subscriptions(filters));
                self.request(now_ns, client, id, request);
            }
            Some(Asked::Disconnect) if is_there => {
                let (leaving, open) = (true, 1);
                session.state = State::Away { leaving, open };
                session.changed();
                self.touch(client);
            }
            None => self.is_in_doubt(now_ns, client),
            _ => {}
        }
    }

    /// The packet of a stranger may have renewed its lease.
    fn is_heard(&mut self, now_ns: u64, client: SocketAddr) {
        if let Some(stranger) = self.strangers.get_mut(&client) {
            stranger.heard_ns = now_ns;
        }
    }

    /// A client without a known lease sends a request, to which the broker may answer with a
    /// challenge. All such requests are counted.
    fn awaits_a_challenge(&mut self, now_ns: u64, client: SocketAddr) {
        if let Some(stranger) = self.strangers.get_mut(&client) {
            stranger.pings.sent(now_ns);
        } else if self.has_room_for(&client) {
            let session = self.sessions.entry(client);
            session.or_insert_with(|| Session::without_lease(now_ns));
        }
    }

    /// PUBLISH, for which a client needs no lease.
    fn publishes(&mut self, now_ns: u64, client: SocketAddr, topic: Topic) {
        if self.strangers.contains_key(&client) || !self.has_room_for(&client) {
            return;
        }
        let session = self.sessions.entry(client);
        let session = session.or_insert_with(|| Session::without_lease(now_ns));
        session.hear(now_ns);
        self.follow(client, topic);
    }

    fn has_room_for(&self, client: &SocketAddr) -> bool {
        self.sessions.len() < self.settings.clients || self.sessions.contains_key(client)
    }

    /// A client answers a challenge. Its earlier subscriptions have ended: either the broker had no
    /// lease of it, or the challenge was a test, after which the broker ends the lease.
    fn proves(&mut self, now_ns: u64, client: SocketAddr) {
        if self
            .strangers
            .get(&client)
            .is_some_and(|one| one.challenged)
        {
            let stranger = self.forget_stranger(client);
            self.is_told(now_ns, client);
            if let (Some(stranger), Some(session)) = (stranger, self.sessions.get_mut(&client)) {
                session.pings = stranger.pings;
            }
        }
        if self.strangers.contains_key(&client) || !self.has_room_for(&client) {
            return;
        }
        let session = self.sessions.entry(client);
        let session = session.or_insert_with(|| Session::without_lease(now_ns));
        session.hear(now_ns);
        let may_have_left = session.unclear || matches!(session.state, State::Away { .. });
        let Some(lease) = &mut session.lease else {
            return;
        };
        match lease.stage {
            Stage::Proven => {
                lease.owed += std::mem::take(&mut lease.since_proof);
                return;
            }
            Stage::Held if lease.challenged.is_some() => self.lease_ends(client),
            // An old token can begin a new lease, or do nothing if the broker has not got the
            // DISCONNECT.
            Stage::Held if may_have_left => return self.estrange(now_ns, client),
            Stage::Held => return,
            Stage::Unknown | Stage::Absent => {}
        }
        if let Some(session) = self.sessions.get_mut(&client)
            && let Some(lease) = &mut session.lease
        {
            lease.begins(now_ns, self.settings.lease_ns);
            lease.owed = session.pings.open();
            session.changed();
        }
    }

    /// A packet of a client cannot be read. If it has a lease, the packet may have been a SUBSCRIBE
    /// whose answer is lost.
    pub fn is_unread(&mut self, now_ns: u64, client: SocketAddr) {
        self.is_heard(now_ns, client);
        let session = self.sessions.get_mut(&client);
        match session.and_then(|session| session.lease.as_mut()) {
            Some(lease) if lease.stage == Stage::Held => return self.estrange(now_ns, client),
            Some(lease) => lease.unread = lease.stage == Stage::Proven,
            None => {}
        }
        self.is_in_doubt(now_ns, client);
    }

    /// A packet of a client may have been any request, until the broker has answered a later one.
    /// If the client has no lease, the packet can only have been a proof.
    fn is_in_doubt(&mut self, now_ns: u64, client: SocketAddr) {
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        session.changed();
        let Some(lease) = &mut session.lease else {
            return;
        };
        match lease.stage {
            Stage::Absent => {
                lease.begins(now_ns, self.settings.lease_ns);
                lease.owed = session.pings.open();
            }
            Stage::Unknown => {}
            Stage::Proven | Stage::Held => {
                session.unclear = true;
                self.listed += 1;
                self.wild.entry(client).or_insert(self.listed);
                self.dirty.push(Dirty::All);
            }
        }
        self.touch(client);
    }

    /// The broker has told a client that it has no lease.
    fn is_told(&mut self, now_ns: u64, client: SocketAddr) {
        if !self.has_room_for(&client) {
            return;
        }
        let session = self.sessions.entry(client);
        let session = session.or_insert_with(|| Session::without_lease(now_ns));
        if let Some(lease) = &mut session.lease
            && lease.stage == Stage::Unknown
        {
            lease.stage = Stage::Absent;
        }
    }

    /// The lease of a client has ended, and all its subscriptions.
    pub fn lease_ends(&mut self, client: SocketAddr) {
        self.touch(client);
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        if session.unclear {
            self.dirty.push(Dirty::All);
        }
        for filter in session.loses_lease() {
            self.unlist(client, &filter);
        }
        self.wild.remove(&client);
        self.dirty.push(Dirty::Publisher(client));
    }

    /// Process a packet of the broker; `None`: it cannot be read. If it may answer a question of
    /// the controller and is the last answer that is awaited, returns what it confirms.
    pub fn answered_by_udp(
        &mut self,
        now_ns: u64,
        client: SocketAddr,
        answered: Option<Answered>,
    ) -> Option<Answer> {
        match answered {
            Some(Answered::Nothing) => return None,
            Some(Answered::Challenge) => return self.challenged(now_ns, client),
            Some(Answered::Connack(3)) => {
                let session = self.sessions.get(&client);
                let lease = session.and_then(|session| session.lease.as_ref());
                if lease.is_some_and(Lease::is_proven) {
                    self.lease_ends(client);
                }
                return None;
            }
            _ => {}
        }
        let session = self.sessions.get_mut(&client);
        let is_followed = session.is_some_and(|session| session.is_answered(now_ns));
        if !is_followed {
            self.estrange(now_ns, client);
            let is_counted = matches!(answered, Some(Answered::Connack(_) | Answered::Suback(..)));
            if let Some(stranger) = self.strangers.get_mut(&client).filter(|_| is_counted) {
                let _ = stranger.pings.answered();
            }
            return None;
        }
        match answered {
            Some(Answered::Connack(0)) => self.connected_by_udp(now_ns, client),
            Some(Answered::Connack(_)) => {
                return self.sessions.get_mut(&client)?.pings.answered_all();
            }
            Some(Answered::Suback(id, codes)) => self.granted(now_ns, client, id, &codes),
            Some(Answered::Unsuback(id)) => self.unsubscribed(now_ns, client, id),
            Some(Answered::Pingresp) => self.renewed(now_ns, client, Renewal::Ping),
            _ => {
                if let Some(session) = self.sessions.get_mut(&client) {
                    session.changed();
                    self.touch(client);
                }
            }
        }
        None
    }

    fn renewed(&mut self, now_ns: u64, client: SocketAddr, what: Renewal) {
        let session = self.sessions.get_mut(&client);
        if let Some(lease) = session.and_then(|one| one.lease.as_mut()) {
            lease.renewed(now_ns, what);
        }
    }

    fn challenged(&mut self, now_ns: u64, client: SocketAddr) -> Option<Answer> {
        if let Some(stranger) = self.strangers.get_mut(&client) {
            // It may be a test of a client with a lease. Only a client that answers has none then.
            stranger.challenged = true;
            let _ = stranger.pings.answered();
            return None;
        }
        self.is_told(now_ns, client);
        let session = self.sessions.get_mut(&client)?;
        let is_expected = session.state != State::Active || session.late;
        let lease = session.lease.as_mut()?;
        if lease.stage == Stage::Proven {
            let _ = session.pings.answered();
            match lease.owed.checked_sub(1) {
                Some(left) => lease.owed = left,
                None => self.lease_ends(client),
            }
            return None;
        }
        if lease.stage != Stage::Held {
            return session.pings.answered_all();
        }
        if is_expected {
            let answered = session.pings.answered_all();
            self.lease_ends(client);
            return answered.map(|one| Answer {
                is_confirmed: false,
                ..one
            });
        }
        let (count, since_ns) = lease.challenged.unwrap_or((0, now_ns));
        lease.challenged = Some((count + 1, since_ns));
        let was_confirmed = session.confirmed;
        session.changed();
        self.touch(client);
        if was_confirmed {
            self.restarts += 1;
            self.doubt_leases();
        }
        None
    }

    /// The broker may have lost all leases: wait for its answers.
    pub fn doubt_leases(&mut self) {
        self.sessions.values_mut().for_each(Session::changed);
        self.dirty.push(Dirty::All);
    }

    fn connected_by_udp(&mut self, now_ns: u64, client: SocketAddr) {
        self.renewed(now_ns, client, Renewal::Connect);
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        // If several CONNECTs differ, the broker may have processed them in another order.
        if !session.accepted_by_udp(self.settings.lease_ns) {
            return self.estrange(now_ns, client);
        }
        self.touch(client);
    }

    fn granted(&mut self, now_ns: u64, client: SocketAddr, id: u16, codes: &[bool]) {
        self.renewed(now_ns, client, Renewal::Subscribe);
        let Some(session) = self.sessions.get_mut(&client) else {
            return;
        };
        let is_it = |request: &Request| matches!(request, Request::Subscribe(some) if some.len() == codes.len());
        let request = match session.answer(id, is_it) {
            Ok(request) => request,
            Err(true) => return,
            Err(false) => return self.estrange(now_ns, client),
        };
        for (subscription, granted) in request.changes().iter().zip(codes) {
            let filter = subscription.filter.as_deref();
            let is_strange = *granted && !filter.is_some_and(|one| one == "\0" || is_filter(one));
            let is_new = !session.subscriptions.contains(subscription);
            if is_strange || session.subscriptions.len() >= MOST_NAMES {
                return self.estrange(now_ns, client);
            }
            match granted {
                true if is_new => session.subscriptions.push(subscription.clone()),
                true => {}
                false => session.subscriptions.retain(|one| one != subscription),
            }
        }
        for (subscription, granted) in request.changes().iter().zip(codes) {
            if *granted {
                self.list(client, subscription);
            } else {
                self.unlist_unused(client, subscription);
            }
        }
        self.touch_filters(request.changes());
        // The broker may send retained messages now.
        if let Some(session) = self.sessions.get_mut(&client) {
            session.changed();
        }
        self.touch(client);
    }

    /// The earliest possible end of any lease of a client that may get copies.
    #[must_use]
    pub fn first_end_ns(&self) -> Option<u64> {
        let gets = |one: &&Session| one.confirmed && !one.late && !one.subscriptions.is_empty();
        let leases = self.sessions.values().filter(gets);
        leases.filter_map(Session::end_ns).min()
    }

    /// The earliest possible end of any lease of these receivers.
    #[must_use]
    pub fn first_end_of(&self, copies: &[Copy]) -> Option<u64> {
        let sessions = copies.iter().filter_map(|copy| self.sessions.get(&copy.to));
        sessions.filter_map(Session::end_ns).min()
    }

    /// The client in whose name to ask next whether the broker still has the leases: the one that
    /// was not used for the longest time.
    #[must_use]
    pub fn witness(&self) -> Option<SocketAddr> {
        let gets =
            |one: &&Session| one.confirmed && one.is_active() && !one.subscriptions.is_empty();
        let leases = self.sessions.iter().filter(|(_, one)| gets(one));
        let leases = leases.filter(|(_, one)| one.lease.is_some() && one.pings.open() == 0);
        leases
            .min_by_key(|(_, one)| one.pings.ours_ns)
            .map(|(client, _)| *client)
    }
}

fn subscriptions(filters: Vec<Rc<str>>) -> Vec<Subscription> {
    let named = Named::Name;
    let one = |filter| Subscription {
        filter: Some(filter),
        named,
    };
    filters.into_iter().map(one).collect()
}
