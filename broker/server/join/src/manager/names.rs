//! The addresses of the broker and of other nodes.

use super::Manager;
use mqtick_net::log;
use mqtick_net::settings::Address;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

/// Where a name leads. It is looked up again each time that a connection fails; until the answer
/// comes, the addresses from before are used. If there are several, they are tried in turn, as a
/// program may not listen on all addresses of its host.
#[derive(Default)]
pub(crate) struct Place {
    pub found: Vec<SocketAddr>,
    /// It was looked up, and no connection has failed since.
    pub is_sure: bool,
    pub is_asking: bool,
    pub tries: usize,
    /// Which of the addresses is used.
    at: usize,
}

impl Place {
    /// The address to connect to, if one is known.
    pub fn next(&mut self) -> Option<SocketAddr> {
        self.tries += 1;
        self.found.get(self.at % self.found.len().max(1)).copied()
    }

    /// A connection failed, so the name has to be looked up again. `has_met`: there was something at
    /// the address.
    pub fn away(&mut self, has_met: bool) {
        // Only once, if several connections fail together.
        self.at += usize::from(!has_met && self.is_sure);
        self.is_sure = false;
    }
}

/// A name, and the addresses that the resolver found.
pub(crate) type Found = (String, Result<Vec<SocketAddr>, String>);

impl Manager {
    /// Look up an address. A name is looked up in a thread of its own, as that may take long.
    pub(crate) fn look_up(&mut self, address: &Address) {
        let name = address.to_string();
        if let Ok(ip) = address.host.parse::<IpAddr>() {
            let found = vec![SocketAddr::new(ip, address.port)];
            return self.know(&name, Ok(found));
        }
        let mut is_asked = false;
        for place in self.places(&name) {
            is_asked |= std::mem::replace(&mut place.is_asking, true);
        }
        if is_asked {
            return;
        }
        let (sender, poller) = (self.resolver.0.clone(), Arc::clone(&self.poller));
        let (host, port, answer) = (address.host.clone(), address.port, name.clone());
        let ask = move || {
            let found = (&*host, port).to_socket_addrs();
            let found = found
                .map(Iterator::collect)
                .map_err(|error| error.to_string());
            let _ = sender.send((answer, found)); // it fails only if the program ends
            poller.call();
        };
        if let Err(error) = std::thread::Builder::new().spawn(ask) {
            self.know(&name, Err(error.to_string()));
        }
    }

    /// The resolver has answered.
    pub(super) fn found(&mut self) {
        self.poller.heard();
        while let Ok((name, found)) = self.resolver.1.try_recv() {
            self.know(&name, found);
        }
    }

    /// All places of this name: of neighbours, and of the broker, which may be named as one, too.
    fn places(&mut self, name: &str) -> impl Iterator<Item = &mut Place> {
        let broker = (self.broker.to_string() == name).then_some(&mut self.broker_place);
        let dials = self.dials.iter_mut();
        let dials = dials.filter(move |dial| dial.address.to_string() == name);
        broker.into_iter().chain(dials.map(|dial| &mut dial.place))
    }

    fn know(&mut self, name: &str, found: Result<Vec<SocketAddr>, String>) {
        for place in self.places(name) {
            place.is_asking = false;
            if let Ok(found) = &found {
                (place.found, place.is_sure) = (found.clone(), true);
            }
        }
        let Err(why) = found else {
            return;
        };
        let mut is_new = false;
        if self.broker.to_string() == name && self.broker_said != why {
            (self.broker_said, is_new) = (why.clone(), true);
        }
        let now_s = self.site.now_s;
        let dials = self.dials.iter_mut();
        for dial in dials.filter(|dial| dial.address.to_string() == name) {
            is_new |= dial.is_unknown(&why, now_s);
        }
        if is_new {
            log::warning(&format!("{name}: {why}"));
        }
    }
}
