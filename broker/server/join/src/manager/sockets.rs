//! Taking, reading, writing and ending connections.

use super::{EARLY, HIGH, LISTENERS, Manager, Pair, Role, Slot, TURNS, UNAVAILABLE, refusal};
use crate::client::Paired;
use crate::connection::Connection;
use mqtick_broker::log;
use mqtick_broker::residence::Arrived;
use mqtick_broker::upstream::wire::Wire;
use mqtick_packet::{Connect, Error, Packet, Version, decode, frame};
use nix::sys::epoll::EpollFlags;
use std::collections::hash_map::Entry::Occupied;
use std::io;
use std::os::fd::AsFd;

// Octets of a CONNECT, before anybody knows who it is: its five texts, all as long as MQTT allows,
// with a will's payload among them, and some properties.
const FIRST: usize = 6 << 16;

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
                    log::error(&format!("a connection could not be taken: {error}"));
                    std::thread::sleep(std::time::Duration::from_millis(10)); // no files are left
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
                    format!("limits.connections, {most}, is reached: a connection is refused")
                });
            }
        }
    }

    pub(crate) fn add(&mut self, mut connection: Connection, role: Role) -> Option<u64> {
        let is_from_broker = matches!(role, Role::Paired(_) | Role::Lane(_));
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

    pub(super) fn ready(&mut self, token: u64, flags: EpollFlags) {
        if flags != EpollFlags::EPOLLIN {
            self.dirty.push(token); // it may take more
        }
        let comes = EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
        if flags.contains(EpollFlags::EPOLLERR)
            && let Some(slot) = self.slots.get_mut(&token)
            && slot.connection.note_departures()
            && flags == EpollFlags::EPOLLERR
        {
            return; // nothing came but stamps
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

    /// Look at what came.
    pub(crate) fn process(&mut self, token: u64) {
        let Some(slot) = self.slots.get_mut(&token) else {
            return;
        };
        let mut input = std::mem::take(&mut slot.connection.input);
        let role = slot.role;
        let looked = match role {
            Role::New => self.greet(token, &input),
            Role::Client => self.client_says(token, &input),
            Role::Paired(client) => self.broker_says(token, client, &input),
            Role::Lane(number) => self.lane_says(number, &input),
            Role::Reader => self.reader_says(token, &input),
            Role::Link(link, index) => self.neighbour_says(link, index, &input),
            Role::Over => Ok(input.len()),
        };
        let done = *looked.as_ref().unwrap_or(&0);
        if let Some(slot) = self.slots.get_mut(&token) {
            input.drain(..done);
            slot.connection.input = input;
        }
        self.act();
        if let Err(why) = looked {
            self.counts.refused += 1;
            self.close(token, &why);
        } else if role == Role::New && self.role(token) != Some(Role::New) {
            self.process(token); // what came with its CONNECT
        } else if self.slots.get(&token).is_some_and(|slot| slot.has_left) {
            self.close(token, "it has left");
        }
    }

    pub(crate) fn role(&self, token: u64) -> Option<Role> {
        self.slots.get(&token).map(|slot| slot.role)
    }

    /// The first packet says who it is.
    fn greet(&mut self, token: u64, input: &[u8]) -> Result<usize, String> {
        let most = self.settings.limits.packet.min(FIRST);
        let found = frame(input, most).map_err(|error| error.to_string())?;
        let Some(found) = found else {
            return Ok(0);
        };
        let packet = match decode(&found, Version::V5) {
            Err(Error::Version(_)) => {
                const UNKNOWN: u8 = 0x84;
                self.send(token, &refusal(Version::V3, UNKNOWN));
                self.over(token);
                return Ok(found.length);
            }
            packet => packet.map_err(|error| error.to_string())?,
        };
        let Packet::Connect(connect) = packet else {
            return Err("its first packet is no CONNECT".into());
        };
        if connect.client_id.starts_with(crate::words::MARK) {
            self.greet_neighbour(token, &connect);
            return Ok(found.length);
        }
        if self
            .lanes
            .iter()
            .map(|(lane, _)| lane.name())
            .chain([self.reader.name()])
            .any(|name| name == connect.client_id)
        {
            const NOT_VALID: u8 = 0x85; // the broker would end our own session of that name
            self.counts.refused += 1;
            self.send(token, &refusal(connect.version, NOT_VALID));
            self.over(token);
            return Ok(found.length);
        }
        // What it acknowledged on its last connection, the broker must have first, or it would send
        // that again.
        if let Some((_, waiting)) = self.leaving.get_mut(connect.client_id) {
            if !waiting.contains(&token) {
                waiting.push(token);
            }
            return Ok(0);
        }
        self.pair(
            token,
            &connect,
            input.get(..found.length).unwrap_or_default(),
        );
        Ok(found.length)
    }

    fn pair(&mut self, token: u64, connect: &Connect<'_>, raw: &[u8]) {
        let broker = self.connect_to_broker(Role::Paired(token));
        let paired = Paired::new(token, connect);
        let Some(slot) = self.slots.get_mut(&token) else {
            return;
        };
        slot.role = Role::Client;
        match broker {
            Ok(broker) => {
                self.send(broker, raw);
                self.pairs.insert(token, Pair { paired, broker });
            }
            Err(_) => {
                let unavailable = refusal(connect.version, UNAVAILABLE);
                slot.connection.push(&unavailable);
                self.over(token);
            }
        }
    }

    pub(crate) fn connect_to_broker(&mut self, role: Role) -> Result<u64, String> {
        if !self.broker_place.is_sure {
            self.look_up(&self.broker.clone());
        }
        let Some(place) = self.broker_place.next() else {
            let known = Some(self.broker_said.clone()).filter(|why| !why.is_empty());
            return Err(known.unwrap_or_else(|| "its address is not known yet".into()));
        };
        let wire = Wire::open(place, &self.broker, self.secrets.broker_tls.as_ref());
        let wire = wire.map_err(|error| error.to_string())?;
        let token = self.add(Connection::made(wire), role);
        token.ok_or_else(|| "no more connections can be waited for".into())
    }

    /// Have octets of MQTT written.
    pub(crate) fn send(&mut self, token: u64, octets: &[u8]) {
        if let Some(slot) = self.slots.get_mut(&token) {
            if slot.connection.waiting() == 0 {
                self.dirty.push(token);
            }
            slot.connection.push(octets);
        }
    }

    /// Have octets of MQTT written now, and what waits before them.
    pub(crate) fn send_now(&mut self, token: u64, octets: &[u8]) {
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.connection.push(octets);
        }
        self.flush_one(token);
    }

    /// Have a copy written now that says how long it was here.
    pub(crate) fn send_stated(&mut self, token: u64, copy: &mut [u8], arrived: &Arrived) {
        self.flush_one(token); // what comes before
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.connection.push_stated(copy, arrived);
        }
        self.flush_one(token);
    }

    pub(super) fn flush(&mut self) {
        while !self.dirty.is_empty() {
            let mut tokens = std::mem::replace(&mut self.dirty, std::mem::take(&mut self.flushed));
            tokens.drain(..).for_each(|token| self.flush_one(token));
            self.flushed = tokens;
            self.act();
        }
    }

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

    /// Wait for what is wanted of a connection.
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
            // Or for the other connections of its link.
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

    /// A connection ended, or is to end.
    pub(crate) fn close(&mut self, token: u64, why: &str) {
        match self.role(token) {
            None => {}
            Some(Role::New | Role::Over) => self.drop(token),
            Some(Role::Client) if self.must_wait(token) => {}
            Some(Role::Client) => self.end_pair(token, token),
            Some(Role::Paired(client)) => self.end_pair(client, token),
            Some(Role::Lane(number)) => {
                let slot = self.slots.get(&token);
                let has_met = slot.is_some_and(|slot| slot.connection.has_met());
                self.drop(token);
                self.lane_ended(number, why, has_met);
            }
            Some(Role::Reader) => {
                self.drop(token);
                self.reader_ended(why);
            }
            Some(Role::Link(link, _)) => self.link_ended(link, why, false),
        }
    }

    /// A client left, but what it sent before has to wait for the broker or for room.
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

    /// No more comes or goes, but for what is left to be written.
    pub(crate) fn over(&mut self, token: u64) {
        let now_s = self.site.now_s;
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.role = Role::Over;
            slot.since_s = now_s;
            slot.connection.close();
            self.dirty.push(token);
        }
    }

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
