//! The interface of a data plane with its input and output to the program, and of what makes its
//! rules.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use crate::packet::Way;
use crate::plane::{Counts, Key, Plane};
use crate::reason::Reason;
use crate::rules::Protocol;
use mqtick_net::failure::Outcome;

/// A packet that was seen.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The protocol of its broker.
    pub protocol: Protocol,
    /// Its direction.
    pub way: Way,
    /// Its source address, which may be forged.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Its UDP payload; `None`: it could not be read (a fragment, for example). If the ports could
    /// not be read either, they are 0.
    pub datagram: Option<&'a [u8]>,
    /// The argument for [`Plane::done`] once it is processed.
    pub mark: u64,
    /// Whether it was not delivered to its receiver.
    pub kept_back: bool,
}

/// The controller's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that were processed.
    pub events: u64,
    /// Packets from the side of the clients with the broker's source address.
    pub forged: u64,
    /// Packets that are neither from nor to the broker.
    pub foreign: u64,
    /// Datagrams that are not a valid message.
    pub malformed: u64,
    /// How often events were lost, so that all had to be learnt again.
    pub lost: u64,
    /// PINGREQs in clients' names.
    pub pings: u64,
    /// How often these were not answered.
    pub unanswered: u64,
    /// Publishers' topics that are not followed for lack of room.
    pub not_followed: u64,
    /// How often the broker seems to have been restarted.
    pub restarts: u64,
}

/// The state of one topic of one publisher.
#[derive(Clone, Debug)]
pub struct Status {
    /// The publisher and the topic.
    pub key: Key,
    /// Its name, if it is known.
    pub name: Option<Rc<str>>,
    /// The number of its copies, and whether it is open; or why it has no rule.
    pub rule: Result<(usize, bool), Reason>,
    /// Its counters since it is followed.
    pub counts: Counts,
}

/// A data plane with its input and output.
pub trait Driver: Plane {
    /// Its name, for the user.
    fn name(&self) -> String;
    /// Its counters.
    fn counters(&self) -> Vec<(&'static str, u64)>;
    /// Readable when there is work.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Do the work that there is, without waiting.
    ///
    /// # Errors
    /// It cannot go on.
    fn work(&mut self, watcher: &mut impl Watcher) -> Outcome<()>;
    /// To be called ten times a second. Returns whether routes to subscribers have changed.
    ///
    /// # Errors
    /// It cannot go on.
    fn upkeep(&mut self, now_ns: u64) -> Outcome<bool>;
    /// Copy until this time (CLOCK_MONOTONIC, ns). From the first call on, nothing else extends it.
    ///
    /// # Errors
    /// It cannot go on.
    fn lend(&mut self, until_ns: u64) -> Outcome<()>;
    /// The address of a client that the broker sees at `seen_as`; `None` if it does not come this
    /// way.
    fn client_of(&self, seen_as: SocketAddr) -> Option<SocketAddr> {
        Some(seen_as)
    }
}

/// Makes the rules of a data plane: the controller, or the rules that a broker offers.
pub trait Watcher {
    /// Process a packet. To be followed by [`Self::settle`], which updates the rules, before the
    /// data plane takes the packet for done.
    fn event(&mut self, now_ns: u64, event: &Event<'_>, plane: &mut impl Plane);
    /// Events were lost, none of them after this mark.
    fn lost(&mut self, now_ns: u64, mark: u64, plane: &mut impl Plane);
    /// Whether the broker has, or may have, a session with this client.
    fn knows(&self, client: &SocketAddr) -> bool;
    /// The counters.
    fn counters(&self) -> Counters;
    /// The numbers of known clients and of strangers.
    fn sizes(&self) -> (usize, usize);
    /// The state of all topics of publishers that are followed.
    fn status(&self, plane: &impl Plane) -> Vec<Status>;
    /// Start.
    ///
    /// # Errors
    /// It cannot go on.
    fn begin(&mut self, _driver: &mut impl Driver) -> Outcome<()> {
        Ok(())
    }
    /// Readable when there is work other than packets.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Do that work.
    ///
    /// # Errors
    /// It cannot go on.
    fn work(&mut self, _now_ns: u64, _driver: &mut impl Driver) -> Outcome<()> {
        Ok(())
    }
    /// Update the rules after the packets since the last call. One call serves many packets,
    /// because a rule with 4,000 subscribers takes longer than a packet.
    fn settle(&mut self, _now_ns: u64, _plane: &mut impl Plane) {}
    /// The regular work; to be called at least ten times a second. `ways_changed`: routes to
    /// subscribers have changed.
    fn tick(&mut self, now_ns: u64, ways_changed: bool, driver: &mut impl Driver);
    /// The broker is about to be started, and has no sessions.
    fn broker_started(&mut self, _now_ns: u64, _plane: &mut impl Plane) {}
    /// Delete all rules, and keep no answers back any more.
    fn stop(&mut self, plane: &mut impl Plane);
    /// The source of its rules, for the user.
    fn place(&self) -> String;
}
