//! Takes the rules from `mqtick-broker`, which offers them and states until when they are valid
//! (`broker/spec/acceleration.md`, 13). With other brokers, the controller has to derive the rules.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use mqtick_sn::{Code, Message};

use crate::clock::{SECOND_NS, now_ns};
use crate::driver::{Counters, Driver, Event, Status, Watcher};
use crate::packet::Way;
use crate::pings::{PATIENCE_NS, PINGREQ, retry_ns};
use crate::plane::{Copy, Key, Plane, Topic};
use crate::reason::Reason;
use crate::rules::{Name, Protocol};
use mqtick_net::failure::Outcome;

const HELLO: &str = "mqtick-feed 2";
const REST_NS: u64 = 10 * SECOND_NS; // how long no PINGREQ is sent after an unanswered one
const MOST_PINGING: usize = 65_536;
const MOST_CLIENTS: usize = 65_536;
// if there are too many clients, those that were silent for this time are forgotten
const GONE_NS: u64 = 3_600 * SECOND_NS;
const LINE: usize = 4 << 20; // octets; more than a rule with 4,095 copies has
const AT_ONCE: usize = 1 << 16;
/// The beginning of a PUBLISH of mqtt-udp to `$accelerate`; 16 octets of payload follow.
const QUESTION: &[u8] = b"\x30\x1d\x00\x0b$accelerate";

/// A line of the broker.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Hello,
    Until(u64, u64),
    Sync(u64),
    Token(u64),
    Heard(u64),
    Close(Key),
    Rule(Box<Rule>),
}

/// A rule, with addresses as the broker sees them.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    key: Key,
    name: Rc<str>,
    copies: Vec<Copy>,
    marked: bool,
    residence: bool,
    keep_alive_ns: u64,
}

/// A topic; `n` alone stands for the name `named`, that of the rule.
fn topic(text: &str, named: Option<&str>) -> Option<Topic> {
    let (kind, rest) = text.split_at_checked(1)?;
    if kind == "n" {
        let name = named.filter(|_| rest.is_empty()).map(Rc::from);
        let name = name.or_else(|| name_of(rest))?;
        return Name::new(name.as_bytes()).map(Topic::Name);
    }
    let id = u16::from_str_radix(Some(rest).filter(|id| id.len() == 4)?, 16).ok()?;
    match kind {
        "r" => Some(Topic::Registered(id)),
        "p" => Some(Topic::Predefined(id)),
        "s" => Some(Topic::Short(id.to_be_bytes())),
        _ => None,
    }
}

fn key(publisher: &str, id: &str) -> Option<Key> {
    Some(Key {
        publisher: publisher.parse().ok()?,
        topic: topic(id, None)?,
    })
}

/// A copy. Its topic has to be of the same protocol as the rule's.
fn copy(text: &str, of: &Key, named: &str) -> Option<Copy> {
    let (to, id) = text.split_once('=')?;
    let topic = topic(id, Some(named))?;
    let is_name = |topic| matches!(topic, Topic::Name(_));
    let is_same = topic == of.topic || !is_name(topic) && !is_name(of.topic);
    is_same.then_some(Copy {
        to: to.parse().ok()?,
        topic,
    })
}

fn name_of(text: &str) -> Option<Rc<str>> {
    let mut octets = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first != b'%' {
            octets.push(*first);
            continue;
        }
        let (digits, more) = rest.split_at_checked(2)?;
        octets.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
        rest = more;
    }
    String::from_utf8(octets).ok().map(Rc::from)
}

fn read(line: &str) -> Option<Said> {
    if line == HELLO {
        return Some(Said::Hello);
    }
    let words: Vec<&str> = line.split(' ').collect();
    match *words {
        ["until", until_ns, number] => {
            Some(Said::Until(until_ns.parse().ok()?, number.parse().ok()?))
        }
        ["sync", number] => Some(Said::Sync(number.parse().ok()?)),
        ["token", token] if token.len() == 16 => {
            Some(Said::Token(u64::from_str_radix(token, 16).ok()?))
        }
        ["heard", number] => Some(Said::Heard(number.parse().ok()?)),
        ["close", publisher, id] => Some(Said::Close(key(publisher, id)?)),
        [
            "rule",
            publisher,
            id,
            flags,
            keep_alive_s,
            of,
            ref copies @ ..,
        ] => {
            let keep_alive_s: u16 = keep_alive_s.parse().ok()?;
            let (key, name) = (key(publisher, id)?, name_of(of)?);
            let copies = copies.iter().map(|one| copy(one, &key, &name));
            let rule = Rule {
                copies: copies.collect::<Option<_>>()?,
                key,
                name,
                marked: flags.contains('m'),
                residence: flags.contains('t'),
                keep_alive_ns: u64::from(keep_alive_s) * SECOND_NS,
            };
            Some(Said::Rule(Box::new(rule)))
        }
        _ => None,
    }
}

struct Offer {
    rule: Rule,
    /// Its key in the data plane, or why it is not there.
    set: Result<Key, Reason>,
    /// The addresses of the receivers, as the data plane sees them.
    receivers: HashSet<SocketAddr>,
    open: Option<u64>,
    /// The value of `slow` with which to open it once the publisher's PINGREQs are answered.
    wanted: Option<u64>,
    fast_then: u64,
    /// The number of its messages, and since when this has not changed.
    used: (u64, u64),
}

#[derive(Default)]
struct Pings {
    unanswered: u32, // those of this program and those of the client
    asked_ns: u64,
    ours: bool,
    pinged_ns: Option<u64>,
    tries: u32,
    answered: bool,
    number: u64,         // of the question of mqtt-udp
    rests_until_ns: u64, // or a late answer could be taken for the next one
}

type Publisher = (Protocol, SocketAddr);

fn publisher(key: &Key) -> Publisher {
    let protocol = match key.topic {
        Topic::Name(_) => Protocol::MqttUdp,
        _ => Protocol::MqttSn,
    };
    (protocol, key.publisher)
}

/// The rules that the broker has offered.
pub struct Told {
    path: PathBuf,
    link: Option<UnixStream>,
    heard: Vec<u8>,
    greeted: bool,
    tried_ns: u64,
    retried_ns: u64, // when rules that could not be set were last tried
    offers: HashMap<Key, Offer>,
    pings: HashMap<Publisher, Pings>,
    token: Option<u64>,
    questions: u64,
    clients: HashSet<SocketAddr>,
    copied: (u64, u64), // hits and copies when the connection was made
    counters: Counters,
}

impl Watcher for Told {
    fn event(&mut self, now_ns: u64, event: &Event<'_>, plane: &mut impl Plane) {
        self.counters.events += 1;
        match event.protocol {
            Protocol::MqttSn => self.event_of_sn(now_ns, event),
            Protocol::MqttUdp => match (event.way, event.datagram) {
                (Way::FromBroker, Some([0x20, _, _, 0] | [0x90, ..])) => {
                    self.clients.insert(event.to);
                }
                // A DISCONNECT has no answer. Copies to the client end now, before the broker gets
                // it.
                (Way::ToBroker, Some([0xe0, ..])) => {
                    self.clients.remove(&event.from);
                    self.end(plane, |offer| offer.receivers.contains(&event.from));
                }
                _ => {}
            },
        }
        // No rule waits for this event: the broker announces each change of receivers beforehand.
        plane.done(event.mark);
    }

    fn lost(&mut self, _now_ns: u64, mark: u64, plane: &mut impl Plane) {
        self.counters.lost += 1;
        self.cancel_pings(plane);
        plane.done(mark);
    }

    fn knows(&self, client: &SocketAddr) -> bool {
        self.clients.contains(client)
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn sizes(&self) -> (usize, usize) {
        (self.clients.len(), 0)
    }

    fn status(&self, plane: &impl Plane) -> Vec<Status> {
        let of = |offer: &Offer| {
            let counts = offer.set.as_ref().map(|key| plane.counts(key));
            let counts = counts.unwrap_or_default();
            let copies = offer.rule.copies.len();
            Status {
                key: offer.rule.key,
                name: Some(Rc::clone(&offer.rule.name)),
                rule: match &offer.set {
                    Ok(_) => Ok((copies, offer.open == Some(counts.slow))),
                    Err(reason) => Err(reason.clone()),
                },
                counts,
            }
        };
        let mut all: Vec<_> = self.offers.values().map(of).collect();
        all.sort_by(|a, b| (&a.name, a.key.publisher).cmp(&(&b.name, b.key.publisher)));
        all
    }

    fn begin(&mut self, driver: &mut impl Driver) -> Outcome<()> {
        driver.lend(0)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(AsFd::as_fd)
    }

    // The lines of the broker first: they preceded the answers to PINGREQs that have come.
    fn work(&mut self, now_ns: u64, driver: &mut impl Driver) -> Outcome<()> {
        if self.link.is_none() && now_ns.saturating_sub(self.tried_ns) >= SECOND_NS / 10 {
            self.tried_ns = now_ns;
            self.connect(driver);
        }
        let mut octets = vec![0; AT_ONCE];
        while let Some(link) = &mut self.link {
            let ended = match link.read(&mut octets) {
                Ok(count @ 1..) => {
                    self.heard.extend(octets.iter().take(count));
                    self.hear(driver)?
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => false,
                Ok(_) | Err(_) => true,
            };
            if ended {
                self.hang_up(driver)?;
            }
        }
        self.open(driver);
        Ok(())
    }

    fn tick(&mut self, now_ns: u64, ways_changed: bool, driver: &mut impl Driver) {
        let is_due = now_ns.saturating_sub(self.retried_ns) >= SECOND_NS;
        if ways_changed || is_due {
            self.retried_ns = now_ns;
            self.forget_silent(now_ns, driver);
            let offers = self.offers.values_mut();
            for offer in offers.filter(|offer| offer.set.is_err()) {
                (offer.set, offer.receivers) = set(&offer.rule, driver);
            }
        }
        self.end_unused(now_ns, driver);
        let mut publishers: HashMap<Publisher, Vec<Key>> = HashMap::new();
        for offer in self.offers.values() {
            if let Ok(key) = &offer.set {
                publishers
                    .entry(publisher(key))
                    .or_default()
                    .push(offer.rule.key);
            }
        }
        for ((protocol, client), pings) in &mut self.pings {
            if pings.unanswered > 0 && now_ns.saturating_sub(pings.asked_ns) >= PATIENCE_NS {
                if std::mem::take(&mut pings.ours) {
                    self.counters.unanswered += 1;
                    if *protocol == Protocol::MqttSn {
                        driver.keep_back(client, 0, 0);
                    }
                }
                pings.unanswered = 0;
                // An answer of mqtt-udp states the number of its question.
                if *protocol == Protocol::MqttSn {
                    pings.rests_until_ns = now_ns + REST_NS;
                }
            }
        }
        self.pings.retain(|client, pings| {
            pings.unanswered > 0 || now_ns < pings.rests_until_ns || publishers.contains_key(client)
        });
        // A client that has just gone to sleep must not be woken by a PINGREQ in its name.
        if driver.is_quiet() {
            for (client, keys) in publishers {
                self.ping(now_ns, client, &keys, driver);
            }
        }
    }

    fn stop(&mut self, plane: &mut impl Plane) {
        self.link = None;
        self.delete_all(plane);
    }

    fn place(&self) -> String {
        let is = if self.greeted {
            ""
        } else {
            ", which does not answer"
        };
        format!(", told by the broker at {}{is}", self.path.display())
    }
}

impl Told {
    fn event_of_sn(&mut self, now_ns: u64, event: &Event<'_>) {
        let of = |client| (Protocol::MqttSn, client);
        match (event.way, event.datagram.map(mqtick_sn::decode)) {
            // Counted even without a rule, so that the answer is not taken for one to this program.
            (Way::ToBroker, Some(Ok((Message::Pingreq { client: "" }, None))))
                if self.has_room_for(&of(event.from)) =>
            {
                let pings = self.pings.entry(of(event.from)).or_default();
                pings.unanswered = pings.unanswered.saturating_add(1);
                pings.asked_ns = now_ns;
            }
            (Way::FromBroker, Some(Ok((message, None)))) => {
                match message {
                    Message::Connack(Code::ACCEPTED) => drop(self.clients.insert(event.to)),
                    Message::Disconnect { .. } => drop(self.clients.remove(&event.to)),
                    _ => {}
                }
                if let (Message::Pingresp, Some(pings)) =
                    (message, self.pings.get_mut(&of(event.to)))
                {
                    pings.unanswered = pings.unanswered.saturating_sub(1);
                    pings.ours &= !event.kept_back;
                    pings.answered = pings.unanswered == 0;
                }
            }
            _ => {}
        }
    }

    /// Without rules yet. `path`: the Unix socket of the broker, which may not exist yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            link: None,
            heard: Vec::new(),
            greeted: false,
            tried_ns: 0,
            retried_ns: 0,
            offers: HashMap::new(),
            pings: HashMap::new(),
            token: None,
            questions: 0,
            clients: HashSet::new(),
            copied: (0, 0),
            counters: Counters::default(),
        }
    }

    fn connect(&mut self, driver: &impl Driver) {
        let Ok(link) = UnixStream::connect(&self.path) else {
            return;
        };
        if link.set_nonblocking(true).is_ok() {
            self.copied = copied(driver);
            self.link = Some(link);
            self.say(&format!("{HELLO}\n"));
        }
    }

    fn say(&mut self, line: &str) -> bool {
        // The broker always reads. If it hangs, losing this line does no harm.
        let link = self.link.as_mut();
        link.is_some_and(
            |link| matches!(link.write(line.as_bytes()), Ok(count) if count == line.len()),
        )
    }

    /// The connection to the broker has ended: no rule is valid any more.
    fn hang_up(&mut self, driver: &mut impl Driver) -> Outcome<()> {
        self.link = None;
        (self.heard, self.greeted, self.token) = (Vec::new(), false, None);
        self.delete_all(driver);
        driver.lend(0)
    }

    fn delete_all(&mut self, plane: &mut impl Plane) {
        for (_, offer) in self.offers.drain() {
            if let Ok(key) = offer.set {
                plane.delete(&key);
            }
        }
        self.cancel_pings(plane);
    }

    /// Wait for no answers any more. Unanswered PINGREQs stay counted, since answers may still
    /// come.
    fn cancel_pings(&mut self, plane: &mut impl Plane) {
        for ((protocol, client), pings) in &mut self.pings {
            let was_ours = std::mem::take(&mut pings.ours);
            if *protocol == Protocol::MqttUdp {
                (pings.unanswered, pings.answered, pings.number) = (0, false, 0);
            } else if was_ours {
                plane.keep_back(client, 0, 0);
            }
        }
        for offer in self.offers.values_mut() {
            offer.wanted = None;
        }
    }

    fn has_room_for(&self, client: &Publisher) -> bool {
        self.pings.len() < MOST_PINGING || self.pings.contains_key(client)
    }

    /// Process what the broker has sent. Returns whether to hang up.
    fn hear(&mut self, driver: &mut impl Driver) -> Outcome<bool> {
        let heard = std::mem::take(&mut self.heard);
        let mut rest = heard.as_slice();
        while let Some(end) = rest.iter().position(|octet| *octet == b'\n') {
            let (line, more) = rest.split_at(end);
            rest = more.get(1..).unwrap_or_default();
            let said = str::from_utf8(line).ok().and_then(read);
            let is_first = said == Some(Said::Hello);
            let Some(said) = said.filter(|_| is_first != self.greeted) else {
                return Ok(true);
            };
            self.greeted = true;
            if !self.follow(now_ns(), said, driver)? {
                return Ok(true);
            }
        }
        self.heard = rest.to_vec();
        Ok(self.heard.len() > LINE)
    }

    fn follow(&mut self, now_ns: u64, said: Said, driver: &mut impl Driver) -> Outcome<bool> {
        let number = match said {
            Said::Hello => return Ok(true),
            Said::Token(token) => {
                self.token = Some(token);
                return Ok(true);
            }
            Said::Heard(number) => {
                let mut pings = self.pings.values_mut();
                if let Some(pings) = pings.find(|one| number != 0 && one.number == number) {
                    (pings.number, pings.unanswered, pings.ours) = (0, 0, false);
                    pings.answered = true;
                }
                return Ok(true);
            }
            Said::Until(until_ns, number) => {
                driver.lend(until_ns)?;
                number
            }
            Said::Sync(number) => number,
            Said::Close(key) => {
                if let Some(Ok(key)) = self.offers.remove(&key).map(|offer| offer.set) {
                    driver.delete(&key);
                }
                return Ok(true);
            }
            Said::Rule(rule) => {
                let (set, receivers) = set(&rule, driver);
                let offer = Offer {
                    set,
                    receivers,
                    rule: *rule,
                    open: None,
                    wanted: None,
                    fast_then: 0,
                    used: (0, now_ns),
                };
                self.offers.insert(offer.rule.key, offer);
                return Ok(true);
            }
        };
        let (hits, copies) = copied(driver);
        let (hits, copies) = (
            hits.saturating_sub(self.copied.0),
            copies.saturating_sub(self.copied.1),
        );
        Ok(self.say(&format!("ok {number} {hits} {copies}\n")))
    }

    /// Open rules of publishers whose PINGREQs are answered: all their earlier messages have been
    /// delivered.
    fn open(&mut self, plane: &mut impl Plane) {
        for offer in self.offers.values_mut() {
            let Ok(key) = &offer.set else { continue };
            let Some(pings) = self.pings.get_mut(&publisher(key)) else {
                continue;
            };
            if pings.answered
                && let Some(slow) = offer.wanted.take()
            {
                offer.open = Some(slow);
                plane.open(key, slow);
                if plane.counts(key).slow == slow {
                    pings.tries = 0;
                }
            }
        }
        for pings in self.pings.values_mut() {
            pings.answered = false;
        }
    }

    /// Forget silent clients if there are too many: the end of a lease is not announced.
    fn forget_silent(&mut self, now_ns: u64, plane: &impl Plane) {
        let is_there = |heard_ns| now_ns.saturating_sub(heard_ns) < GONE_NS;
        if self.clients.len() > MOST_CLIENTS {
            self.clients
                .retain(|client| plane.heard_ns(client).is_some_and(is_there));
        }
    }

    /// End mqtt-udp rules whose publishers have fallen silent. They need no lease, so the broker
    /// does not notice that they are gone.
    fn end_unused(&mut self, now_ns: u64, plane: &mut impl Plane) {
        let mut unused = HashSet::new();
        for (key, offer) in &mut self.offers {
            let Topic::Name(_) = key.topic else { continue };
            let counts = offer.set.as_ref().map(|key| plane.counts(key));
            let count = counts.map_or(0, |counts| counts.fast + counts.slow);
            if offer.used.0 != count {
                offer.used = (count, now_ns);
            } else if now_ns.saturating_sub(offer.used.1) >= offer.rule.keep_alive_ns {
                unused.insert(*key);
            }
        }
        self.end(plane, |offer| unused.contains(&offer.rule.key));
    }

    /// End rules of mqtt-udp, and tell the broker.
    fn end(&mut self, plane: &mut impl Plane, ends: impl Fn(&Offer) -> bool) {
        let is_it = |offer: &&Offer| matches!(offer.rule.key.topic, Topic::Name(_)) && ends(offer);
        let ended = self.offers.values().filter(is_it);
        for key in ended.map(|offer| offer.rule.key).collect::<Vec<_>>() {
            if self.say(&format!("end {}\n", Line(&key)))
                && let Some(Ok(key)) = self.offers.remove(&key).map(|offer| offer.set)
            {
                plane.delete(&key);
            }
        }
    }

    fn ping(&mut self, now_ns: u64, client: Publisher, keys: &[Key], plane: &mut impl Plane) {
        if !self.has_room_for(&client) {
            return;
        }
        let pings = self.pings.entry(client).or_default();
        let before_ns = pings.pinged_ns;
        let since_ns = before_ns.map_or(u64::MAX, |at_ns| now_ns.saturating_sub(at_ns));
        let retry_ns = retry_ns(pings.tries);
        let (mut closed, mut silent) = (false, false);
        for key in keys {
            let Some(Offer {
                set: Ok(set),
                open,
                rule,
                fast_then,
                ..
            }) = self.offers.get(key)
            else {
                continue;
            };
            let counts = plane.counts(set);
            closed |= *open != Some(counts.slow);
            // Marked messages reach the broker anyway; in mqtt-udp a PUBLISH does not renew a
            // lease.
            let must_be_heard = !rule.marked && client.0 == Protocol::MqttSn;
            silent |=
                must_be_heard && counts.fast > *fast_then && since_ns >= rule.keep_alive_ns / 4;
        }
        if pings.ours
            || client.0 == Protocol::MqttUdp && self.token.is_none()
            || now_ns < pings.rests_until_ns
            || !(closed && since_ns >= retry_ns || silent)
        {
            return;
        }
        for key in keys {
            if let Some(offer) = self.offers.get_mut(key)
                && let Ok(set) = &offer.set
            {
                let counts = plane.counts(set);
                offer.fast_then = counts.fast;
                let is_closed = offer.open != Some(counts.slow);
                offer.wanted = is_closed.then_some(counts.slow);
            }
        }
        pings.tries = if closed {
            pings.tries.saturating_add(1)
        } else {
            0
        };
        let (protocol, client) = client;
        let has_left = match protocol {
            Protocol::MqttSn => {
                plane.keep_back(&client, 1, now_ns + PATIENCE_NS);
                plane.to_broker(&client, &PINGREQ)
            }
            Protocol::MqttUdp => {
                self.questions += 1;
                pings.number = self.questions;
                let token = self.token.unwrap_or_default().to_be_bytes();
                let question = [QUESTION, &token, &pings.number.to_be_bytes()].concat();
                plane.to_broker(&client, &question)
            }
        };
        if !has_left {
            return plane.keep_back(&client, 0, 0); // the next tick tries again
        }
        (pings.pinged_ns, pings.asked_ns, pings.ours) = (Some(now_ns), now_ns, true);
        pings.unanswered = pings.unanswered.saturating_add(1);
        pings.answered = false;
        self.counters.pings += 1;
    }
}

/// A key, as lines state it.
struct Line<'a>(&'a Key);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.0.publisher)?;
        match self.0.topic {
            Topic::Registered(id) => write!(f, "r{id:04x}"),
            Topic::Predefined(id) => write!(f, "p{id:04x}"),
            Topic::Short([one, two]) => write!(f, "s{one:02x}{two:02x}"),
            Topic::Name(name) => {
                f.write_str("n")?;
                name.octets().iter().try_for_each(|octet| match octet {
                    b'!'..=b'~' if *octet != b'%' => write!(f, "{}", char::from(*octet)),
                    octet => write!(f, "%{octet:02x}"),
                })
            }
        }
    }
}

/// Set a rule in the data plane. Returns its key there, and the receivers of its copies.
fn set(rule: &Rule, driver: &mut impl Driver) -> (Result<Key, Reason>, HashSet<SocketAddr>) {
    let find = |driver: &_, who| Driver::client_of(driver, who).ok_or(Reason::Unreachable(who));
    let mut copies = Vec::new();
    let key = find(driver, rule.key.publisher).and_then(|publisher| {
        for copy in &rule.copies {
            let to = find(driver, copy.to)?;
            copies.push(Copy { to, ..*copy });
        }
        let topic = rule.key.topic;
        Ok(Key { publisher, topic })
    });
    let set = key.and_then(|key| {
        let set = match rule.marked {
            true => driver.set_marked(key, &copies, rule.residence),
            false => driver.set(key, &copies, rule.residence),
        };
        set.map(|()| key).map_err(Reason::from)
    });
    (set, copies.iter().map(|copy| copy.to).collect())
}

/// The numbers of copied messages and of copies since the data plane started.
fn copied(driver: &impl Driver) -> (u64, u64) {
    let counters = driver.counters();
    let of = |wanted| {
        let found = counters.iter().find(|(name, _)| *name == wanted);
        found.map_or(0, |(_, count)| *count)
    };
    (of("hits"), of("copies"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_the_broker_says_is_read_as_the_specification_writes_it() {
        let line = "rule 10.0.0.2:5000 r8001 -mt 60 a%20b/%c3%a9 10.0.0.3:6000=p0007 \
                    [fe80::1]:7=s6162";
        let Some(Said::Rule(rule)) = read(line) else {
            panic!("it was not read");
        };
        assert_eq!(&*rule.name, "a b/é");
        assert_eq!(rule.key, key("10.0.0.2:5000", "r8001").unwrap());
        assert!(rule.marked && rule.residence);
        assert_eq!(rule.keep_alive_ns, 60 * SECOND_NS);
        let topics: Vec<_> = rule.copies.iter().map(|one| one.topic).collect();
        assert_eq!(topics, [Topic::Predefined(7), Topic::Short(*b"ab")]);
        let line = "rule 10.0.0.2:5000 na%20b/%25 -m 60 a%20b/%25 10.0.0.3:6000=n";
        let Some(Said::Rule(rule)) = read(line) else {
            panic!("it was not read");
        };
        let named = Topic::Name(Name::new(b"a b/%").unwrap());
        assert_eq!((rule.key.topic, rule.copies[0].topic), (named, named));
        assert_eq!(Line(&rule.key).to_string(), "10.0.0.2:5000 na%20b/%25");
        assert_eq!(read("token 00000000000000ff"), Some(Said::Token(255)));
        assert_eq!(read("heard 7"), Some(Said::Heard(7)));
        let long = format!("close 10.0.0.2:5000 n{}", "x".repeat(65));
        assert_eq!(
            (read(&long), read(&long[..long.len() - 1]).is_some()),
            (None, true)
        );
        assert_eq!(read("until 5 6"), Some(Said::Until(5, 6)));
        assert_eq!(read("sync 6"), Some(Said::Sync(6)));
        let key = key("10.0.0.2:5000", "r8001").unwrap();
        assert_eq!(read("close 10.0.0.2:5000 r8001"), Some(Said::Close(key)));
    }

    #[test]
    fn what_it_cannot_have_said_is_not_read() {
        for line in [
            "",
            "mqtick-feed 1",
            "token 5",
            "token 00000000000000000",
            "token 000000000000000x",
            "heard",
            "heard -1",
            "heard 18446744073709551616",
            "close 10.0.0.2:5000 n",
            "close 10.0.0.2:5000 n%",
            "rule 10.0.0.2:5000 n - 60 a 10.0.0.3:6000=n",
            "rule 10.0.0.2:5000 na - 60 a 10.0.0.3:6000=r0001",
            "rule 10.0.0.2:5000 na - 60 a 10.0.0.3:6000=nb",
            "rule 10.0.0.2:5000 na - 60 b 10.0.0.3:6000=n",
            "rule 10.0.0.2:5000 r0001 - 60 a 10.0.0.3:6000=n",
            "until 5",
            "sync -1",
            "sync 18446744073709551616",
            "close 10.0.0.2 r8001",
            "close 10.0.0.2:5000 x8001",
            "close 10.0.0.2:5000 r80011",
            "close 10.0.0.2:5000 r+001 ",
            "rule 10.0.0.2:5000 r8001 - 60",
            "rule 10.0.0.2:5000 r8001 - 65536 a",
            "rule 10.0.0.2:5000 r8001 - 60 a%",
            "rule 10.0.0.2:5000 r8001 - 60 a%fg",
            "rule 10.0.0.2:5000 r8001 - 60 a%ff",
            "rule 10.0.0.2:5000 r8001 - 60 a 10.0.0.3:6000",
            "rule 10.0.0.2:5000 r8001 - 60 a 10.0.0.3:6000=",
            "rule 10.0.0.2:5000 r8001 - 60 a  10.0.0.3:6000=r0001",
        ] {
            assert_eq!(read(line), None, "{line:?}");
        }
    }
}
