//! Clients that connect, disconnect and sleep, and their wills.

use super::counters::Count;
use super::engine::{Engine, Entrance};
use super::session::{Session, Testament};
use super::{Gateway, SECOND_NS, answer, send};
use crate::client::{Address, Bounds, Client, Datagrams, Keep, State, lock};
use crate::codec::{Code, Message, Will};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

const CLIENT: usize = 64; // most octets of a client identifier
// most clients that were asked for their will, or that the engine has not let in yet
const CONNECTING: usize = 1024;
const CONNECTING_NS: u64 = 30 * SECOND_NS;
const ANY_S: u16 = 3600; // the keep-alive of a client that states none
const PROTOCOL: u8 = 1;

/// A CONNECT that waits for the will.
#[derive(Clone)]
pub(super) struct Connecting {
    client: Box<str>,
    clean: bool,
    duration_s: u16,
    will: Option<Testament>, // after WILLTOPIC
    since_ns: u64,
    received: usize, // octets of the handshake, for the session's credit
    sent: usize,
}

impl Connecting {
    /// Whether the client took too long to send its will.
    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.since_ns) >= CONNECTING_NS
    }

    /// Its keep-alive.
    fn lives_s(&self) -> u16 {
        match self.duration_s {
            0 => ANY_S,
            duration_s => duration_s,
        }
    }
}

/// A client that the engine has not let in yet.
pub(super) struct Entering {
    address: Address,
    wanted: Connecting,
    will: Change,
}

/// How CONNECT changes a will.
enum Change {
    Stays,
    Ends,
    Is(Testament),
}

impl<M: Keep, S> Gateway<M, S> {
    /// CONNECT: connect the client, or ask for its will.
    pub(super) fn connect(
        &mut self,
        now_ns: u64,
        address: Address,
        message: &Message<'_>,
        octets: usize,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let Message::Connect {
            will,
            clean,
            protocol,
            duration_s,
            client,
        } = *message
        else {
            return Err(Count::Unexpected);
        };
        if protocol != PROTOCOL || client.len() > CLIENT {
            answer(engine, &address, &Message::Connack(Code::NOT_SUPPORTED));
            return Ok(());
        }
        let mut connecting = Connecting {
            client: client.into(),
            clean,
            duration_s,
            will: None,
            since_ns: now_ns,
            received: octets,
            sent: 0,
        };
        if !will {
            return self.enter(now_ns, address, connecting, Change::Stays, engine);
        }
        if self.connecting.len() >= CONNECTING && !self.connecting.contains_key(&address) {
            answer(engine, &address, &Message::Connack(Code::CONGESTION));
            return Err(Count::Full);
        }
        connecting.sent = answer(engine, &address, &Message::WillTopicRequest);
        self.connecting.insert(address, connecting);
        Ok(())
    }

    /// WILLTOPIC: ask for the will's payload, or connect the client without a will.
    pub(super) fn will_topic(
        &mut self,
        now_ns: u64,
        address: Address,
        will: Option<&Will<'_>>,
        octets: usize,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let connecting = self.connecting.get_mut(&address);
        let connecting = connecting.ok_or(Count::Unexpected)?;
        connecting.received += octets;
        let Some(will) = will else {
            let connecting = connecting.clone();
            return self.enter(now_ns, address, connecting, Change::Ends, engine);
        };
        connecting.will = Some(Testament::of(will, &[]));
        connecting.sent += answer(engine, &address, &Message::WillMessageRequest);
        Ok(())
    }

    /// WILLMSG: connect the client.
    pub(super) fn will_message(
        &mut self,
        now_ns: u64,
        address: Address,
        payload: &[u8],
        octets: usize,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let connecting = self.connecting.get_mut(&address);
        let connecting = connecting.ok_or(Count::Unexpected)?;
        let mut will = connecting.will.clone().ok_or(Count::Unexpected)?;
        will.payload = payload.into();
        connecting.received += octets;
        let (connecting, will) = (connecting.clone(), Change::Is(will));
        self.enter(now_ns, address, connecting, will, engine)
    }

    /// Connect a client if the engine lets it in.
    fn enter(
        &mut self,
        now_ns: u64,
        address: Address,
        wanted: Connecting,
        will: Change,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let old = self.sessions.get(&*wanted.client);
        let is_full = old.is_none() && self.sessions.len() >= self.settings.clients
            || self.entering.len() >= CONNECTING;
        let testament = match &will {
            Change::Stays => old
                .filter(|_| !wanted.clean)
                .and_then(|old| old.will.as_ref()),
            Change::Ends => None,
            Change::Is(testament) => Some(testament),
        };
        let entrance = Entrance {
            address,
            client: &wanted.client,
            clean: wanted.clean,
            duration_s: wanted.lives_s(),
            will: testament.map(Testament::publication),
            is_elsewhere: old.is_some_and(|old| old.is_elsewhere(&address)),
        };
        let admitted = match is_full {
            true => Some(Code::CONGESTION),
            false => engine.admit(&entrance)?,
        };
        self.connecting.remove(&address); // only now: a client without an answer repeats its will
        match admitted {
            Some(Code::ACCEPTED) => self.come_in(now_ns, address, &wanted, will, engine),
            Some(code) => {
                answer(engine, &address, &Message::Connack(code));
                Err(Count::Full)
            }
            None => {
                let client = wanted.client.clone();
                let entering = Entering {
                    address,
                    wanted,
                    will,
                };
                self.entering.insert(client, entering);
                Ok(())
            }
        }
    }

    /// The engine has decided about a client that waited to be let in.
    pub fn admitted(
        &mut self,
        now_ns: u64,
        client: &str,
        code: Code,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        let Some(entering) = self.entering.remove(client) else {
            return;
        };
        let Entering {
            address,
            wanted,
            will,
        } = entering;
        let done = match code {
            Code::ACCEPTED => self.come_in(now_ns, address, &wanted, will, engine),
            code => {
                answer(engine, &address, &Message::Connack(code));
                Err(Count::Full)
            }
        };
        if let Err(count) = done {
            engine.left(client, false);
            self.leave(client, false, engine); // its last connection has ended, too
            self.count(count);
        }
    }

    /// The engine has lost a client: tell it to connect again.
    pub fn dismiss(&mut self, client: &str, engine: &mut impl Engine<Message = M, Subscriber = S>) {
        if let Some(session) = self.sessions.get(client).filter(|one| !one.gone) {
            let told = Message::Disconnect { duration_s: None };
            session.send(&mut self.out, engine, |seat, out| seat.say(&told, out));
            self.leave(client, true, engine);
        }
    }

    /// Connect a client that was let in.
    fn come_in(
        &mut self,
        now_ns: u64,
        address: Address,
        wanted: &Connecting,
        will: Change,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        // Another client that had this address cannot be reached any more.
        if let Some(other) = self
            .here
            .get(&address)
            .filter(|one| ***one != *wanted.client)
        {
            let other = Arc::clone(other);
            self.lose(now_ns, &other, engine);
        }
        if let Some(old) = self.sessions.get_mut(&*wanted.client) {
            engine.moves(&old.subscriber);
            let was_elsewhere = old.is_elsewhere(&address);
            if !old.gone {
                // if it is gone, another client may have this address
                self.here.remove(&old.address);
            }
            if was_elsewhere {
                let testament = old.will.take();
                publish_will(&old.subscriber, testament.as_ref(), engine);
                if !wanted.clean {
                    old.will = testament;
                }
                self.count(Count::TakenOver);
            }
            if wanted.clean {
                self.forget(&wanted.client, engine);
            }
        }
        let client: Arc<str> = match self.sessions.get_key_value(&*wanted.client) {
            Some((client, _)) => Arc::clone(client),
            None => {
                let client: Arc<str> = (&*wanted.client).into();
                if !self.begin(now_ns, &client, address, engine) {
                    answer(engine, &address, &Message::Connack(Code::CONGESTION));
                    return Err(Count::Full);
                }
                client
            }
        };
        self.here.insert(address, Arc::clone(&client));
        let Some(session) = self.sessions.get_mut(&client) else {
            return Ok(());
        };
        match will {
            Change::Stays => {}
            Change::Ends => session.will = None,
            Change::Is(testament) => session.will = Some(testament),
        }
        session.address = address;
        session.clean = wanted.clean;
        session.duration_s = wanted.lives_s();
        session.heard_ns = now_ns;
        (session.gone, session.asleep) = (false, false);
        let mut client = lock(&session.seat);
        client.come(address);
        client.heard(wanted.received);
        client.told(wanted.sent);
        client.will_octets = session.will.as_ref().map_or(0, Testament::octets);
        client.hold();
        client.leave(State::Active);
        client.say(&Message::Connack(Code::ACCEPTED), &mut self.out);
        client.resume(now_ns, &mut self.out);
        send(engine, &address, &mut self.out);
        Ok(())
    }

    fn begin(
        &mut self,
        now_ns: u64,
        client: &Arc<str>,
        address: Address,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> bool {
        if self.sessions.len() >= self.settings.clients {
            return false;
        }
        let bounds = Bounds {
            messages: self.settings.messages,
            octets: self.settings.octets,
            topics: self.settings.topics,
            retry_ns: self.settings.retry_ns,
            retries: self.settings.retries,
            prove: self.settings.prove,
        };
        let seat = Arc::new(Mutex::new(Client::new(address, bounds, engine.random())));
        let Some(subscriber) = engine.begin(client, &seat) else {
            return false;
        };
        let session = Session {
            seat,
            subscriber,
            address,
            clean: true,
            duration_s: 0,
            heard_ns: now_ns,
            gone: false,
            asleep: false,
            will: None,
            filters: HashSet::new(),
            asked: Vec::new(),
            incoming: Vec::new(),
            second: 0,
            subscribes: 0,
        };
        self.sessions.insert(Arc::clone(client), session);
        true
    }

    /// PINGREQ with a client identifier: a sleeping client asks for its messages, or a connected
    /// client for a PINGRESP.
    pub(super) fn wake(
        &mut self,
        now_ns: u64,
        address: Address,
        client: &str,
        octets: usize,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) -> Result<(), Count> {
        let session = self.sessions.get_mut(client).filter(|one| !one.gone);
        // A sleeping client may come back from another port, but not from another host.
        let session = session
            .filter(|one| one.address == address || one.asleep && one.address.is_near(&address));
        let Some(session) = session else {
            answer(engine, &address, &Message::Disconnect { duration_s: None });
            return Err(Count::Stranger);
        };
        session.heard_ns = now_ns;
        if session.address != address {
            engine.moves(&session.subscriber);
        }
        let mut seat = lock(&session.seat);
        let mut displaced = None;
        if session.address != address {
            self.here.remove(&session.address);
            displaced = self.here.insert(address, client.into());
            session.address = address;
            seat.come(address);
        }
        seat.heard(octets);
        if session.asleep {
            seat.state = State::Awake;
            seat.resume(now_ns, &mut self.out);
        } else {
            seat.say(&Message::Pingresp, &mut self.out);
        }
        send(engine, &address, &mut self.out);
        drop(seat);
        if let Some(other) = displaced.filter(|other| **other != *client) {
            let here = self.here.remove(&address);
            self.lose(now_ns, &other, engine);
            self.here.extend(here.map(|here| (address, here)));
        }
        Ok(())
    }

    /// A client is gone without DISCONNECT.
    pub(super) fn lose(
        &mut self,
        now_ns: u64,
        client: &str,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        self.count(Count::Lost);
        let Some(session) = self.sessions.get_mut(client) else {
            return;
        };
        session.heard_ns = now_ns;
        let testament = session.will.take();
        publish_will(&session.subscriber, testament.as_ref(), engine);
        if !session.clean {
            session.will = testament;
        }
        self.leave(client, true, engine);
    }

    /// A client is gone: keep its session, or end it.
    pub(super) fn leave(
        &mut self,
        client: &str,
        is_lost: bool,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        let Some(session) = self.sessions.get_mut(client) else {
            return;
        };
        engine.moves(&session.subscriber);
        if !session.gone {
            self.here.remove(&session.address);
        }
        (session.gone, session.asleep) = (true, false);
        lock(&session.seat).leave(State::Away);
        engine.left(client, is_lost);
        if session.clean {
            self.forget(client, engine);
        }
    }

    pub(super) fn forget(
        &mut self,
        client: &str,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        if let Some(session) = self.sessions.remove(client) {
            self.dropped += std::mem::take(&mut lock(&session.seat).dropped);
            engine.end(&session.subscriber);
        }
    }

    /// Forget all clients. Each gets a DISCONNECT when it sends something.
    pub fn clear(&mut self, engine: &mut impl Engine<Message = M, Subscriber = S>) {
        let clients: Vec<_> = self.sessions.keys().cloned().collect();
        for client in clients {
            self.forget(&client, engine);
        }
        self.here.clear();
        self.connecting.clear();
        self.entering.clear();
        self.out.clear(); // or datagrams could go to the wrong client
    }
}

impl<M: Keep, S> Session<M, S> {
    /// Whether the client is connected, and not asleep, at another address.
    fn is_elsewhere(&self, address: &Address) -> bool {
        !self.gone && !self.asleep && self.address != *address
    }

    /// The client goes to sleep for at most `duration_s`.
    pub(super) fn sleep(
        &mut self,
        duration_s: u16,
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        self.duration_s = duration_s;
        self.asleep = true;
        self.send(out, engine, |seat, out| {
            seat.say(&Message::Disconnect { duration_s: None }, out);
            seat.leave(State::Asleep);
        });
    }

    /// WILLTOPICUPD: replace or remove the will.
    pub(super) fn change_will(
        &mut self,
        will: Option<&Will<'_>>,
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        self.will = will.map(|will| {
            let before = self.will.take();
            Testament::of(will, before.as_ref().map_or(&[], |one| &one.payload))
        });
        self.hold_will(Message::WillTopicResponse(Code::ACCEPTED), out, engine);
    }

    /// WILLMSGUPD: replace the will's payload.
    pub(super) fn change_will_message(
        &mut self,
        payload: &[u8],
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        let code = match &mut self.will {
            Some(will) => {
                will.payload = payload.into();
                Code::ACCEPTED
            }
            None => Code::NOT_SUPPORTED,
        };
        self.hold_will(Message::WillMessageResponse(code), out, engine);
    }

    fn hold_will(
        &self,
        answer: Message<'_>,
        out: &mut Datagrams,
        engine: &mut impl Engine<Message = M, Subscriber = S>,
    ) {
        self.send(out, engine, |seat, out| {
            seat.will_octets = self.will.as_ref().map_or(0, Testament::octets);
            seat.hold();
            seat.say(&answer, out);
        });
    }
}

fn publish_will<E: Engine>(who: &E::Subscriber, will: Option<&Testament>, engine: &mut E) {
    if let Some(will) = will {
        engine.will(who, &will.publication());
    }
}
