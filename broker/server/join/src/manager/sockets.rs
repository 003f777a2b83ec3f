//! Accepting, reading, writing and ending connections.

use super::first::FIRST;
use super::{EARLY, LISTENERS, Manager, Role, Slot, TURNS};
use crate::connection::{Connection, HIGH};
use mqtick_net::residence::Arrived;
use mqtick_net::wire::Wire;
use nix::sys::epoll::EpollFlags;
use std::collections::hash_map::Entry::Occupied;
use std::io;
use std::os::fd::AsFd;

impl Manager {
    pub(super) fn accept(&mut self, token: u64) {
        const AT_ONCE: usize = 64;
        for _ in 0..AT_ONCE {
            let Some(listener) = self.listeners.get((token - LISTENERS) as usize) else {
                return;
            };
            let (socket, transport) = match listener.accept() {
                Ok(both) => both,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    self.accept_said.warn(self.site.now_s, || {
                        format!("no connection can be accepted: {error}; raise LimitNOFILE= or ulimit -n")
                    });
                    std::thread::sleep(std::time::Duration::from_millis(10)); // do not try at once
                    return;
                }
            };
            // Each client needs a second one, to the broker.
            if self.slots.len() < 2 * self.settings.limits.connections {
                self.counts.accepted += 1;
                self.add(Connection::taken(socket, transport), Role::New);
            } else {
                self.counts.full += 1;
                let most = self.settings.limits.connections;
                self.full_said.warn(self.site.now_s, || {
                    format!("a connection is refused: limits.connections, {most}, is reached")
                });
            }
        }
    }

    /// Serve a connection from now on. Returns its token; none: the system has no room for it.
    pub(crate) fn add(&mut self, mut connection: Connection, role: Role) -> Option<u64> {
        let is_from_broker = matches!(role, Role::Paired(_) | Role::Delivery(_));
        if self.site.residence.is_on() && !is_from_broker {
            connection.stamp_arrivals();
        }
        let token = self.next_token;
        self.poller.add(&connection, token).ok()?;
        self.next_token += 1;
        let now_s = self.site.now_s;
        let slot = Slot {
            connection,
            role,
            since_s: now_s,
            heard_s: now_s,
            was_answered: false,
            has_left: false,
            leaves: None,
        };
        self.slots.insert(token, slot);
        self.dirty.push(token);
        Some(token)
    }

    /// A connection can be read or written.
    pub(super) fn ready(&mut self, token: u64, flags: EpollFlags) {
        if flags != EpollFlags::EPOLLIN {
            self.dirty.push(token); // it can be written to
        }
        let comes = EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if flags.contains(EpollFlags::EPOLLERR)
            && let Some(slot) = self.slots.get_mut(&token)
            && slot.connection.note_departures()
            && flags == EpollFlags::EPOLLERR
        {
            return; // only stamps have come
        }
        if !flags.intersects(comes) {
            return;
        }
        for _ in 0..TURNS {
            let now_s = self.site.now_s;
            let Some(slot) = self.slots.get_mut(&token) else {
                return;
            };
            let read = slot.connection.read(&mut self.room);
            slot.heard_s = now_s;
            slot.was_answered |= !slot.connection.input.is_empty();
            if slot.role == Role::Over {
                slot.connection.input.clear();
            }
            self.process(token);
            let slot = self.slots.get(&token);
            if !slot.is_some_and(|slot| slot.connection.is_settled()) {
                self.dirty.push(token);
            }
            match read {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => return self.close(token, &why),
            }
        }
    }

    /// Process the octets that have come.
    pub(crate) fn process(&mut self, token: u64) {
        let Some(slot) = self.slots.get_mut(&token) else {
            return;
        };
        let mut input = std::mem::take(&mut slot.connection.input);
        let role = slot.role;
        let processed = match role {
            Role::New => self.greet(token, &input),
            Role::Client => self.client_says(token, &input),
            Role::Paired(client) => self.broker_says(token, client, &input),
            Role::Delivery(number) => self.delivery_says(number, &input),
            Role::Reader => self.reader_says(token, &input),
            Role::Link(link, index) => self.neighbour_says(link, index, &input),
            Role::Over => Ok(input.len()),
        };
        let done = *processed.as_ref().unwrap_or(&0);
        if let Some(slot) = self.slots.get_mut(&token) {
            input.drain(..done);
            slot.connection.input = input;
        }
        self.act();
        if let Err(fault) = processed {
            self.counts.refused += u64::from(fault.is_malformed);
            self.close(token, &fault.why);
        } else if role == Role::New && self.role(token) != Some(Role::New) {
            self.process(token); // what came with its CONNECT
        } else if self.slots.get(&token).is_some_and(|slot| slot.has_left) {
            self.close(token, "it has left");
        }
    }

    pub(crate) fn role(&self, token: u64) -> Option<Role> {
        self.slots.get(&token).map(|slot| slot.role)
    }

    pub(crate) fn connect_to_broker(&mut self, role: Role) -> Result<u64, String> {
        if !self.broker_place.is_sure {
            self.look_up(&self.broker.clone());
        }
        let Some(place) = self.broker_place.next() else {
            let known = Some(self.broker_said.clone()).filter(|why| !why.is_empty());
            return Err(known.unwrap_or_else(|| "its name is being looked up".into()));
        };
        let wire = Wire::open(place, &self.broker, self.secrets.broker_tls.as_ref());
        let wire = wire.map_err(|error| error.to_string())?;
        let token = self.add(Connection::made(wire), role);
        token.ok_or_else(|| "the system has no room for another connection".into())
    }

    /// Write octets of MQTT at the end of this round.
    pub(crate) fn send(&mut self, token: u64, octets: &[u8]) {
        if let Some(slot) = self.slots.get_mut(&token) {
            if slot.connection.waiting() == 0 {
                self.dirty.push(token);
            }
            slot.connection.push(octets);
        }
    }

    /// Write octets of MQTT now, after those that wait before them.
    pub(crate) fn send_now(&mut self, token: u64, octets: &[u8]) {
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.connection.push(octets);
        }
        self.flush_one(token);
    }

    /// Write a time message now, stating how long it was here.
    pub(crate) fn send_stated(&mut self, token: u64, copy: &mut [u8], arrived: &Arrived) {
        self.flush_one(token); // what comes before
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.connection.push_stated(copy, arrived);
        }
        self.flush_one(token);
    }

    /// Write to all connections that have something to write.
    pub(super) fn flush(&mut self) {
        while !self.dirty.is_empty() {
            let mut tokens = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.flushed));
            tokens.drain(..).for_each(|token| self.flush_one(token));
            self.flushed = tokens;
            self.act();
        }
    }

    /// Write to a connection, and decide whether to read from it and from its pair.
    pub(crate) fn flush_one(&mut self, token: u64) {
        let Some(slot) = self.slots.get_mut(&token) else {
            return;
        };
        let before = slot.connection.waiting();
        let left = match slot.connection.flush() {
            Ok(left) => left,
            Err(why) => return self.close(token, &why),
        };
        if slot.role == Role::Over && !left {
            slot.connection.finish();
        }
        let was_high = before >= HIGH && slot.connection.waiting() < HIGH;
        let other = match slot.role {
            Role::Client => self.pairs.get(&token).map(|pair| pair.broker),
            Role::Paired(client) => Some(client),
            _ => None,
        };
        self.arm(token, left);
        if let Some(other) = other.filter(|_| was_high || before > HIGH / 2) {
            let left = self
                .slots
                .get(&other)
                .is_some_and(|slot| slot.connection.waiting() > 0);
            self.arm(other, left);
        }
    }

    /// Wait until a connection can be read, unless it has to wait, and until it can be written, if
    /// `writes`.
    fn arm(&mut self, token: u64, writes: bool) {
        let waits = |token: &u64| {
            let slot = self.slots.get(token);
            slot.map_or(0, |slot| slot.connection.waiting())
        };
        let Some(slot) = self.slots.get(&token) else {
            return;
        };
        let held = slot.connection.input.len();
        let reads = match slot.role {
            Role::Client => self.pairs.get(&token).is_none_or(|pair| {
                let early = !pair.paired.is_up() && held > EARLY;
                !early
                    && !self.is_ending
                    && !self.blocked.contains(&token)
                    && waits(&pair.broker) < HIGH
            }),
            Role::Paired(client) => !self.blocked.contains(&token) && waits(&client) < HIGH,
            Role::Reader => !self.blocked.contains(&token),
            Role::New => held < 2 * FIRST, // it may wait for its predecessor
            // It may wait for the other connections of its link.
            Role::Link(link, _) => {
                let wires = self.wires.get(&link);
                held < 2 * FIRST || wires.is_none_or(|wires| wires.is_up)
            }
            _ => true,
        };
        if let Some(slot) = self.slots.get_mut(&token)
            && let Some((reads, writes)) = slot.connection.wants(reads, writes)
        {
            self.poller
                .expect(slot.connection.as_fd(), token, false, reads, writes);
        }
    }

    /// A connection has ended, or has to end.
    pub(crate) fn close(&mut self, token: u64, why: &str) {
        match self.role(token) {
            None => {}
            Some(Role::New | Role::Over) => self.drop(token),
            Some(Role::Client) if self.must_wait(token) => {}
            Some(Role::Client) => self.end_pair(token, token),
            Some(Role::Paired(client)) => self.end_pair(client, token),
            Some(Role::Delivery(number)) => {
                let slot = self.slots.get(&token);
                let has_met = slot.is_some_and(|slot| slot.connection.has_met());
                self.drop(token);
                self.delivery_ended(number, why, has_met);
            }
            Some(Role::Reader) => {
                self.drop(token);
                self.reader_ended(why);
            }
            Some(Role::Link(link, _)) => self.link_ended(link, why, false),
        }
    }

    /// Whether a client that has left still has packets here, which wait for the broker or for room.
    fn must_wait(&mut self, token: u64) -> bool {
        let is_up = self
            .pairs
            .get(&token)
            .is_some_and(|pair| pair.paired.is_up());
        let Some(slot) = self.slots.get_mut(&token) else {
            return false;
        };
        let waits = !slot.connection.input.is_empty() && (!is_up || self.blocked.contains(&token));
        if waits && !slot.has_left {
            slot.has_left = true;
            self.poller.forget(&slot.connection);
        }
        waits
    }

    /// End a connection once what is left has been written.
    pub(crate) fn over(&mut self, token: u64) {
        let now_s = self.site.now_s;
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.role = Role::Over;
            slot.since_s = now_s;
            slot.connection.close();
            self.dirty.push(token);
        }
    }

    /// End a connection now.
    pub(crate) fn drop(&mut self, token: u64) {
        let Some(slot) = self.slots.remove(&token) else {
            return;
        };
        self.poller.forget(&slot.connection);
        let leaving = slot.leaves.map(|name| self.leaving.entry(name));
        if let Some(Occupied(entry)) = leaving
            && entry.get().0 == token
        {
            for waits in entry.remove().1 {
                self.process(waits);
                self.dirty.push(waits); // it is to be read from again
            }
        }
    }
}
