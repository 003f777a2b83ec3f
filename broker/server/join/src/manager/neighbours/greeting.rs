//! How two nodes greet each other, and which ones are let in.

use super::{ITSELF, MOST_REST_S, Wires, random, unix_ms};
use crate::connection::Connection;
use crate::manager::{Manager, Role, Secrets};
use crate::message::Link;
use crate::settings::Settings;
use crate::words::{self, Hello};
use mqtick_access::Rules;
use mqtick_net::log;
use mqtick_net::wire::Wire;
use mqtick_packet::Connect;
use subtle::ConstantTimeEq;

const NOT_ALLOWED: u8 = 0x87;
const OTHER_VERSION: u8 = 0x84;

impl Manager {
    /// Connect to the neighbour with this number.
    pub(super) fn dial(&mut self, number: usize) {
        let now_s = self.site.now_s;
        let Some(dial) = self.dials.get_mut(number) else {
            return;
        };
        dial.again_s = now_s + dial.rest_s;
        dial.rest_s = (2 * dial.rest_s).min(MOST_REST_S);
        let address = dial.address.clone();
        if !dial.place.is_sure {
            self.look_up(&address);
        }
        let Some(dial) = self.dials.get_mut(number) else {
            return;
        };
        let Some(at) = dial.place.next() else {
            dial.again_s = now_s; // as soon as its address is known
            return;
        };
        let link = self.next_link;
        self.next_link += 1;
        dial.link = Some(link);
        let count = self.settings.neighbours.connections;
        // Both ends order links by this key: first by the time in ms, then at random.
        let key = unix_ms() << 20 | random() >> 44;
        let mut wires = Wires::new(key, count, address.to_string(), true, now_s);
        wires.is_tls = address.is_tls;
        self.wires.insert(link, wires);
        for index in 0..count {
            let tls = self.secrets.neighbour_tls.as_ref();
            let tls = tls.filter(|_| address.is_tls);
            let opened = Wire::open(at, &address, tls).map_err(|error| error.to_string());
            let role = Role::Link(link, index);
            let token = opened.and_then(|wire| {
                let token = self.add(Connection::made(wire), role);
                token.ok_or_else(|| "the system has no room for another connection".into())
            });
            let token = match token {
                Ok(token) => token,
                Err(why) => return self.link_ended(link, &why, false),
            };
            let hello = Hello {
                node: self.site.node.id(),
                key,
                index,
                count,
                algorithm: self.settings.algorithm.name().into(),
                name: self.settings.name.clone(),
            };
            let mut out = Vec::new();
            let keep_alive_s = self.settings.neighbours.keep_alive_s;
            let (most, secret) = (self.longest(), self.secrets.secret.as_deref());
            hello.encode(&mut out, 3 * keep_alive_s, most as u32, secret);
            self.send(token, &out);
            let wires = self.wires.get_mut(&link);
            if let Some(one) = wires.and_then(|wires| wires.all.get_mut(usize::from(index))) {
                one.token = Some(token);
            }
        }
    }

    /// Something that says it is a node has connected.
    pub(crate) fn greet_neighbour(&mut self, token: u64, connect: &Connect<'_>) {
        let refused = match Hello::parse(connect.client_id) {
            Err(why) => Err((OTHER_VERSION, why)),
            Ok(hello) => self.take_neighbour(token, &hello, connect),
        };
        if let Err((reason, why)) = refused {
            self.counts.strangers += 1;
            let peer = self.slots.get(&token).map(|slot| slot.connection.peer());
            let peer = peer.unwrap_or_default();
            self.stranger_said.warn(self.site.now_s, || {
                format!("a neighbour from {peer} is turned away: {why}")
            });
            let mut out = Vec::new();
            words::refuse(&mut out, reason, &why);
            self.send(token, &out);
            self.over(token);
        }
    }

    fn take_neighbour(
        &mut self,
        token: u64,
        hello: &Hello,
        connect: &Connect<'_>,
    ) -> Result<(), (u8, String)> {
        let not_allowed = |why: &str| Err((NOT_ALLOWED, why.to_owned()));
        if let Err(why) = self.lets_in(token, connect.password) {
            return not_allowed(why);
        }
        if hello.node == self.site.node.id() {
            return Err((
                ITSELF,
                "that is this node itself, so it is not tried again".into(),
            ));
        }
        if self.removed.contains(&hello.name) {
            let why = format!(
                "{} was removed at this node and not added again",
                hello.name
            );
            return not_allowed(&why);
        }
        let algorithm = self.settings.algorithm.name();
        if hello.algorithm != algorithm {
            let why = format!(
                "its algorithm is {:?}, but this node's is {algorithm:?}: set the same at all nodes",
                hello.algorithm
            );
            return Err((NOT_ALLOWED, why));
        }
        let both = (hello.node, hello.key);
        let link = match self.greeted.get(&both) {
            Some(link) => *link,
            None => {
                let link = self.next_link;
                self.next_link += 1;
                let peer = self.slots.get(&token).map(|slot| slot.connection.peer());
                let place = peer.unwrap_or_default();
                let now_s = self.site.now_s;
                let mut wires = Wires::new(hello.key, hello.count, place, false, now_s);
                wires.peer = Some((hello.node, hello.name.clone()));
                self.wires.insert(link, wires);
                self.greeted.insert(both, link);
                link
            }
        };
        let mut wires = self.wires.get_mut(&link);
        if let Some(wires) = &mut wires {
            wires.secret = connect.password.map(Into::into);
            wires.takes(connect.properties.maximum_packet_size());
        }
        let one = wires.and_then(|wires| wires.all.get_mut(usize::from(hello.index)));
        let Some(one) = one.filter(|one| one.token.is_none()) else {
            return not_allowed("the link has this connection already, or has no such connection");
        };
        (one.token, one.is_greeted) = (Some(token), true);
        if let Some(slot) = self.slots.get_mut(&token) {
            slot.role = Role::Link(link, hello.index);
        }
        let mut out = Vec::new();
        let most = self.longest() as u32;
        words::welcome(&mut out, self.site.node.id(), &self.settings.name, most);
        self.send(token, &out);
        self.complete(link);
        Ok(())
    }

    /// Whether the other end of a connection that it made is a neighbour. `shown`: the secret that it
    /// showed, if any.
    fn lets_in(&self, token: u64, shown: Option<&[u8]>) -> Result<(), &'static str> {
        let (ours, names) = (
            &self.secrets.secret,
            &self.settings.neighbours.certificate_names,
        );
        let knows = match (ours, shown) {
            (Some(ours), Some(shown)) => ours.ct_eq(shown).into(),
            _ => ours.is_none(),
        };
        if !knows || !self.is_listed(token) {
            return Err("it shows neither the certificate nor the secret of a neighbour");
        }
        if ours.is_none() && names.is_empty() && !self.settings.trusts_anybody() {
            return Err(
                "this node lets no neighbour in: neither neighbours.secret_file nor \
                        neighbours.certificate_names is set",
            );
        }
        Ok(())
    }

    /// Whether the other end has shown the certificate of a neighbour, or need not show one.
    fn is_listed(&self, token: u64) -> bool {
        let names = &self.settings.neighbours.certificate_names;
        let slot = self.slots.get(&token);
        let shown = slot.and_then(|slot| slot.connection.common_name());
        names.is_empty() || shown.is_some_and(|shown| names.contains(&shown))
    }

    /// Why the other end of a connection is not a neighbour; none: it is one.
    pub(super) fn is_wrong(&self, wires: &Wires, token: u64) -> Option<&'static str> {
        match wires.dials {
            false => self.lets_in(token, wires.secret.as_deref()).err(),
            // Without TLS there is no certificate, so the node that dials has to trust the address.
            true if !wires.is_tls || self.is_listed(token) => None,
            true => Some("neighbours.certificate_names does not list the name in its certificate"),
        }
    }

    /// The settings and the files that they name were read again. End the links to nodes that are no
    /// longer neighbours, and connect to new ones.
    pub(crate) fn change(&mut self, settings: Settings, secrets: Secrets, rules: Rules) {
        let before = std::mem::replace(&mut self.settings, settings)
            .neighbours
            .urls;
        (self.secrets, self.site.rules) = (secrets, rules);
        let now = self.settings.neighbours.urls.clone();
        let mut over = Vec::new();
        self.dials.retain(|dial| {
            let stays = now.contains(&dial.address) || !before.contains(&dial.address);
            let link = dial.link.filter(|_| !stays);
            over.extend(link.map(|link| (link, "neighbours.urls no longer names it", true)));
            stays
        });
        for (link, wires) in &self.wires {
            let greeted = wires.all.iter().filter(|one| one.is_greeted);
            let mut tokens = greeted.filter_map(|one| one.token);
            // No message waits for a node that is not listed. One with the old secret may get the new.
            let wrong = |token| Some((*link, self.is_wrong(wires, token)?, !self.is_listed(token)));
            over.extend(tokens.find_map(wrong));
        }
        for (link, why, for_good) in over {
            self.link_ended(link, why, for_good);
        }
        for url in now.into_iter().filter(|url| !before.contains(url)) {
            let _ = self.add_neighbour(url); // `add` may have added it already
        }
    }

    /// A connection of a link is there. If all are, the link is up.
    pub(super) fn complete(&mut self, link: Link) {
        let Some(wires) = self.wires.get_mut(&link) else {
            return;
        };
        if wires.is_up || !wires.all.iter().all(|one| one.is_greeted) {
            return;
        }
        let Some((peer, name)) = wires.peer.clone() else {
            return;
        };
        wires.is_up = true;
        let (place, key) = (wires.place.clone(), wires.key);
        let tokens: Vec<u64> = wires.tokens().collect();
        if name == self.settings.name {
            log::warning(&format!(
                "the neighbour at {place} is also called {name:?}: give each node a name of its own"
            ));
        }
        log::notice(&format!("neighbour {name} at {place}: connected"));
        if let Some(dial) = self.dials.iter_mut().find(|dial| dial.link == Some(link)) {
            dial.rest_s = 1;
            dial.said.clear();
        }
        self.site.node.link_up(link, peer, key, &name);
        self.act();
        for token in tokens {
            self.process(token); // packets that came early
            self.dirty.push(token); // it is to be read from again
        }
    }
}
