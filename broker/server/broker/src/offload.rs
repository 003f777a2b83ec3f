//! Tells `mqtick-accelerate` what it may copy in the broker's place, and until when
//! (`broker/spec/acceleration.md`, 13).

use mqtick_sn::Topic;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Write as _};
use std::fs::{File, Permissions, remove_file, set_permissions, symlink_metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

const HELLO: &str = "mqtick-feed 2\n";
const MILLISECOND_NS: u64 = 1_000_000;
/// Nothing is copied for longer than this after the broker's last sign of life.
const LEASE_NS: u64 = 1_000 * MILLISECOND_NS;
const RENEWAL_NS: u64 = 250 * MILLISECOND_NS;
/// After this time without an answer, the connection is given up.
const PATIENCE_NS: u64 = 500 * MILLISECOND_NS;
const LOOK_MS: u16 = 50;
/// Marked messages that were under way when their rule ended arrive within this time.
const INFLIGHT_NS: u64 = 10_000 * MILLISECOND_NS;
const LINE: usize = 320; // octets of a line from it, at most
const BACKLOG: usize = 1 << 20; // octets that wait to be read; with more, no rule is offered
const MOST_BACKLOG: usize = 16 << 20;
const RULES: usize = 16_384;

/// A topic, as a client names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Called {
    /// Over MQTT-SN.
    Id(Topic),
    /// Over mqtt-udp.
    Name(Arc<str>),
}

/// What identifies the messages of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The publisher's address.
    pub publisher: SocketAddr,
    /// The topic, as the publisher names it.
    pub topic: Called,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.publisher)?;
        match &self.topic {
            Called::Id(topic) => write!(f, "{}", Id(*topic)),
            Called::Name(name) => write!(f, "n{}", Escaped(name)),
        }
    }
}

struct Id(Topic);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Topic::Registered(id) => write!(f, "r{id:04x}"),
            Topic::Predefined(id) => write!(f, "p{id:04x}"),
            Topic::Short([one, two]) => write!(f, "s{one:02x}{two:02x}"),
        }
    }
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.bytes().try_for_each(|octet| match octet {
            b'!'..=b'~' if octet != b'%' => write!(f, "{}", char::from(octet)),
            _ => write!(f, "%{octet:02x}"),
        })
    }
}

/// Copies that may be sent in the broker's place.
pub struct Rule<'a> {
    /// The messages that are copied.
    pub key: Key,
    /// The topic's name.
    pub name: &'a str,
    /// The subscribers' addresses, and how each names the topic.
    pub copies: Vec<(SocketAddr, Called)>,
    /// The sessions of the publisher (0: none) and, after it, of those that get copies.
    pub sessions: Vec<u64>,
    /// Whether each message has to come to the broker, too. Then it has a mark.
    pub marked: bool,
    /// Whether copies state their residence.
    pub residence: bool,
    /// The publisher must be heard within so many seconds. If it has no session, the rule ends
    /// after that time without messages.
    pub keep_alive_s: u16,
}

impl Rule<'_> {
    fn line(&self) -> String {
        let mark = if self.marked { "m" } else { "" };
        let residence = if self.residence { "t" } else { "" };
        let (key, name) = (&self.key, Escaped(self.name));
        let mut line = format!("rule {key} -{mark}{residence} {} {name}", self.keep_alive_s);
        for (to, called) in &self.copies {
            // Writing to a String does not fail.
            let _ = match called {
                Called::Id(topic) => write!(line, " {to}={}", Id(*topic)),
                Called::Name(_) => write!(line, " {to}=n"),
            };
        }
        line.push('\n');
        line
    }
}

struct OfferedRule {
    name: Box<str>,
    sessions: Vec<u64>,
    /// The rule is gone once this question was answered.
    closing: Option<u64>,
}

#[derive(Default)]
struct State {
    link: Option<UnixStream>,
    out: Vec<u8>,
    rules: HashMap<Key, OfferedRule>,
    /// Messages that may have the mark: the publisher's session and, once the rule has ended, until
    /// when.
    marked: HashMap<Key, (u64, Option<u64>)>,
    asked: u64,
    answered: u64,
    /// Questions that wait for an answer, and since when, in ns.
    unanswered: VecDeque<(u64, u64)>,
    until_ns: u64,
    /// When the first lease over mqtt-udp ends.
    lease_end_ns: Option<u64>,
    /// How many changes of subscriptions are going on.
    changing: usize,
    /// What `mqtick-accelerate` proves itself with when it asks; 0: it is not connected.
    token: u64,
}

impl State {
    fn say(&mut self, line: &str) {
        if self.link.is_some() {
            self.out.extend_from_slice(line.as_bytes());
            self.write();
        }
    }

    /// Ask a question. Returns its number, with which it is answered.
    fn ask(&mut self, what: fmt::Arguments<'_>) -> u64 {
        self.asked += 1;
        let number = self.asked;
        self.unanswered.push_back((number, now_ns()));
        self.say(&format!("{what} {number}\n"));
        number
    }

    fn write(&mut self) {
        while let Some(link) = &mut self.link
            && !self.out.is_empty()
        {
            match link.write(&self.out) {
                Ok(count @ 1..) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => return self.hang_up(),
            }
        }
        if self.out.len() > MOST_BACKLOG {
            self.hang_up();
        }
    }

    /// Close the connection. What was allowed holds until the lease ends.
    fn hang_up(&mut self) {
        self.link = None;
        self.token = 0;
        self.out = Vec::new();
    }

    /// `mqtick-accelerate` has ended a rule that is not used.
    fn end(&mut self, publisher: &str, called: &str) {
        let of = publisher.parse::<SocketAddr>();
        let is_it = |key: &Key| {
            of.as_ref().is_ok_and(|of| *of == key.publisher)
                && matches!(&key.topic, Called::Name(name) if called == format!("n{}", Escaped(name)))
        };
        let now_ns = now_ns();
        let marked = &mut self.marked;
        self.rules.retain(|key, rule| {
            let ends = rule.closing.is_none() && is_it(key);
            if ends && let Some((_, until_ns)) = marked.get_mut(key) {
                *until_ns = Some(now_ns + INFLIGHT_NS);
            }
            !ends
        });
    }

    fn answer(&mut self, number: u64) {
        self.answered = number;
        self.unanswered.retain(|(asked, _)| *asked > number);
        let now_ns = now_ns();
        let marked = &mut self.marked;
        self.rules.retain(|key, rule| {
            let stays = rule.closing.is_none_or(|closing| closing > number);
            if !stays && let Some((_, until_ns)) = marked.get_mut(key) {
                *until_ns = Some(now_ns + INFLIGHT_NS);
            }
            stays
        });
    }
}

/// The connection to `mqtick-accelerate`. There is one at a time.
#[derive(Default)]
pub struct OffloadChannel {
    state: Mutex<State>,
    answered: Condvar,
    messages: AtomicU64,
    copies: AtomicU64,
}

/// While this lives, subscriptions may change, and no rule is offered.
pub struct Closed<'a>(&'a OffloadChannel);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.state().changing -= 1;
    }
}

impl OffloadChannel {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counters of messages and copies that `mqtick-accelerate` has sent, by name.
    pub fn counted(&self) -> [(&'static str, u64); 2] {
        let of = |counter: &AtomicU64| counter.load(Relaxed);
        [
            ("accelerated", of(&self.messages)),
            ("accelerated_copies", of(&self.copies)),
        ]
    }

    /// Whether a rule for these messages could be offered.
    pub fn wants(&self, key: &Key) -> bool {
        let state = self.state();
        state.link.is_some() && !state.rules.contains_key(key)
    }

    /// Offer a rule, unless a subscription has changed meanwhile: `is_current`.
    pub fn offer(&self, rule: &Rule<'_>, is_current: impl FnOnce() -> bool) {
        let mut state = self.state();
        let has_room = state.rules.len() < RULES && state.out.len() < BACKLOG;
        if state.link.is_none()
            || !has_room
            || state.changing > 0
            || state.rules.contains_key(&rule.key)
            || !is_current()
        {
            return;
        }
        let offered = OfferedRule {
            name: rule.name.into(),
            sessions: rule.sessions.clone(),
            closing: None,
        };
        state.rules.insert(rule.key.clone(), offered);
        if rule.marked {
            let publisher = rule.sessions.first().copied().unwrap_or_default();
            state.marked.insert(rule.key.clone(), (publisher, None));
        }
        state.say(&rule.line());
    }

    /// Whether the mark of a message can be trusted: a rule sets it, or did so until lately.
    pub fn believes(&self, key: &Key, publisher: u64) -> bool {
        let state = self.state();
        let known = state.marked.get(key);
        known.is_some_and(|(session, until_ns)| {
            *session == publisher && until_ns.is_none_or(|until_ns| now_ns() < until_ns)
        })
    }

    /// The first lease over mqtt-udp ends in so many ns. Nothing is copied after that, until the
    /// next call.
    pub fn lease_ends(&self, in_ns: Option<u64>) {
        let end_ns = in_ns.map(|in_ns| now_ns().saturating_add(in_ns));
        self.state().lease_end_ns = end_ns;
    }

    /// The number of the question in these octets, if it is from `mqtick-accelerate`.
    pub fn question(&self, octets: &[u8]) -> Option<u64> {
        let (token, number) = octets.split_first_chunk()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        let token = u64::from_be_bytes(*token);
        (token != 0 && token == self.state().token).then_some(number)
    }

    /// Say that all messages that have come before this question are served.
    pub fn say_served(&self, number: u64) {
        self.state().say(&format!("heard {number}\n"));
    }

    /// Take back the rule for these messages, without waiting: a message has closed it.
    pub fn take_back(&self, key: &Key) {
        let mut state = self.state();
        close(&mut state, |other, _| other == key);
    }

    /// End the rules for these topics, and wait until nothing is copied by them any more: for the
    /// answer or, if there is none, for the end of what was allowed, 1.5 s at most.
    pub fn close_topics(&self, concerns: impl Fn(&str) -> bool) -> Closed<'_> {
        self.close(|_, rule| concerns(&rule.name))
    }

    /// The same for rules by which this address publishes.
    pub fn close_publisher(&self, address: SocketAddr) -> Closed<'_> {
        self.close(|key, _| key.publisher == address)
    }

    /// The same for rules in which a session is publisher or gets copies.
    pub fn close_session(&self, number: u64) -> Closed<'_> {
        self.close(|_, rule| rule.sessions.contains(&number))
    }

    fn close(&self, concerns: impl Fn(&Key, &OfferedRule) -> bool) -> Closed<'_> {
        // Nothing is copied after this time, even if the listening thread has failed.
        const ALL: Duration = Duration::from_nanos(PATIENCE_NS + 2 * LEASE_NS);
        let mut state = self.state();
        state.changing += 1;
        if let Some(number) = close(&mut state, concerns) {
            let waited = self
                .answered
                .wait_timeout_while(state, ALL, |state| state.answered < number);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        Closed(self)
    }

    /// Serve connections, one after another.
    pub fn listen(&self, listener: &UnixListener) {
        loop {
            match listener.accept() {
                Ok((link, _)) => {
                    mqtick_net::log::notice("mqtick-accelerate is told what it may copy");
                    let end = self.serve(link);
                    mqtick_net::log::warning(&format!("nothing is copied in our place: {end}"));
                }
                Err(_) => sleep(Duration::from_millis(LOOK_MS.into())),
            }
            self.await_end();
        }
    }

    /// Serve a connection. Returns why it has ended.
    fn serve(&self, link: UnixStream) -> String {
        let reader = link.set_nonblocking(true).and_then(|()| link.try_clone());
        let mut reader = match reader {
            Ok(reader) => reader,
            Err(error) => return error.to_string(),
        };
        {
            let mut state = self.state();
            state.link = Some(link);
            let mut token = [0; 8];
            let random =
                File::open("/dev/urandom").and_then(|mut from| from.read_exact(&mut token));
            // Without random octets, no question is answered.
            state.token = random.map_or(0, |()| u64::from_be_bytes(token));
            state.say(HELLO);
            let line = format!("token {:016x}\n", state.token);
            state.say(&line);
            // The other side answers with its hello and this number.
            state.ask(format_args!("sync"));
        }
        let mut heard = Heard::default();
        let mut renewed_ns = 0;
        loop {
            let now_ns = now_ns();
            let mut state = self.state();
            if state.link.is_none() {
                return "it does not read".into();
            }
            let since_ns = state.unanswered.front().map_or(now_ns, |(_, at_ns)| *at_ns);
            if now_ns.saturating_sub(since_ns) >= PATIENCE_NS {
                return "it does not answer".into();
            }
            if heard.greeted && now_ns.saturating_sub(renewed_ns) >= RENEWAL_NS {
                renewed_ns = now_ns;
                let until_ns = state.lease_end_ns.unwrap_or(u64::MAX);
                state.until_ns = until_ns.min(now_ns + LEASE_NS);
                let until_ns = state.until_ns;
                state.ask(format_args!("until {until_ns}"));
            }
            state.write();
            state
                .marked
                .retain(|_, (_, until_ns)| until_ns.is_none_or(|until_ns| now_ns < until_ns));
            let mut flags = PollFlags::POLLIN;
            flags.set(PollFlags::POLLOUT, !state.out.is_empty());
            drop(state);
            let mut wanted = [PollFd::new(reader.as_fd(), flags)];
            match poll(&mut wanted, PollTimeout::from(LOOK_MS)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return error.to_string(),
            }
            if let Err(why) = self.hear(&mut reader, &mut heard) {
                return why;
            }
        }
    }

    fn hear(&self, reader: &mut UnixStream, heard: &mut Heard) -> Result<(), String> {
        let mut octets = [0; 4096];
        let count = match reader.read(&mut octets) {
            Ok(0) => return Err("it has ended".into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        heard.octets.extend(octets.iter().take(count));
        while let Some(end) = heard.octets.iter().position(|octet| *octet == b'\n') {
            let line: Vec<u8> = heard.octets.drain(..=end).collect();
            let refusal = || "it says what nobody understands".to_owned();
            let line = str::from_utf8(&line).map_err(|_| refusal())?;
            if !heard.greeted {
                heard.greeted = line == HELLO;
                if !heard.greeted {
                    return Err(refusal());
                }
                continue;
            }
            let words: Vec<&str> = line.trim_end().split(' ').collect();
            if let ["end", publisher, called] = *words {
                self.state().end(publisher, called);
                continue;
            }
            let ["ok", answered, messages, copies] = *words else {
                return Err(refusal());
            };
            let number = |word: &str| word.parse::<u64>().map_err(|_| refusal());
            let answered = number(answered)?;
            self.count(heard, number(messages)?, number(copies)?);
            let mut state = self.state();
            if answered <= state.answered || answered > state.asked {
                return Err(refusal());
            }
            state.answer(answered);
            self.answered.notify_all();
        }
        match heard.octets.len() {
            0..LINE => Ok(()),
            _ => Err("it says too much".into()),
        }
    }

    fn count(&self, heard: &mut Heard, messages: u64, copies: u64) {
        let more = |sum: &AtomicU64, before: &mut u64, now: u64| {
            sum.fetch_add(now.saturating_sub(*before), Relaxed);
            *before = now;
        };
        more(&self.messages, &mut heard.messages, messages);
        more(&self.copies, &mut heard.copies, copies);
    }

    /// After the end of a connection: wait until nothing can be copied any more. Then all waiting
    /// threads go on.
    fn await_end(&self) {
        let mut state = self.state();
        state.hang_up();
        let left_ns = state.until_ns.saturating_sub(now_ns());
        drop(state);
        sleep(Duration::from_nanos(left_ns));
        let mut state = self.state();
        for rule in state.rules.values_mut() {
            rule.closing = Some(0);
        }
        let asked = state.asked;
        state.answer(asked);
        self.answered.notify_all();
    }
}

#[derive(Default)]
struct Heard {
    octets: Vec<u8>,
    greeted: bool,
    messages: u64,
    copies: u64,
}

/// Close rules. Returns the number of the answer that says that they are closed. Rules that are
/// being closed already count, too.
fn close(state: &mut State, concerns: impl Fn(&Key, &OfferedRule) -> bool) -> Option<u64> {
    let found = state.rules.iter().filter(|(key, rule)| concerns(key, rule));
    let found: Vec<_> = found
        .map(|(key, rule)| (key.clone(), rule.closing))
        .collect();
    let last = found.iter().filter_map(|(_, closing)| *closing).max();
    let open: Vec<Key> = found
        .iter()
        .filter(|(_, closing)| closing.is_none())
        .map(|(key, _)| key.clone())
        .collect();
    if open.is_empty() {
        return last;
    }
    for key in &open {
        state.say(&format!("close {key}\n"));
    }
    let number = state.ask(format_args!("sync"));
    for key in &open {
        if let Some(rule) = state.rules.get_mut(key) {
            rule.closing = Some(number);
        }
    }
    Some(number)
}

/// Listen on this socket. If an earlier broker has left it behind, all that it has allowed is over
/// when this returns.
///
/// # Errors
/// The system's, or another broker listens there.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let found = symlink_metadata(path);
    let is_socket = found.is_ok_and(|found| found.file_type().is_socket());
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::Error::from(ErrorKind::AddrInUse)),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_socket => {
            sleep(Duration::from_nanos(LEASE_NS));
            remove_file(path)?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    set_permissions(path, Permissions::from_mode(0o660))?;
    Ok(listener)
}

/// CLOCK_MONOTONIC, the same for all programs of a host.
fn now_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| now.num_nanoseconds().cast_unsigned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::io::{BufRead, BufReader};

    fn key() -> Key {
        Key {
            publisher: SocketAddr::from(([10, 0, 0, 2], 5000)),
            topic: Called::Id(Topic::Registered(0x8001)),
        }
    }

    fn rule(name: &str) -> Rule<'_> {
        Rule {
            key: key(),
            name,
            copies: vec![(
                SocketAddr::from(([10, 0, 0, 3], 6000)),
                Called::Id(Topic::Short(*b"ab")),
            )],
            sessions: vec![1, 2],
            marked: true,
            residence: true,
            keep_alive_s: 60,
        }
    }

    /// An offload channel, and the other end of its connection.
    fn connected(name: &str) -> (Arc<OffloadChannel>, BufReader<UnixStream>) {
        let path = std::env::temp_dir().join(format!("mqtick-feed-{name}-{}", std::process::id()));
        let _ = remove_file(&path);
        let listener = bind(&path).unwrap();
        let offload = Arc::new(OffloadChannel::default());
        let serving = Arc::clone(&offload);
        std::thread::spawn(move || serving.listen(&listener));
        let mut other = UnixStream::connect(&path).unwrap();
        remove_file(&path).unwrap();
        other.write_all(HELLO.as_bytes()).unwrap();
        let mut other = BufReader::new(other);
        assert_eq!(line(&mut other), HELLO);
        assert!(line(&mut other).starts_with("token "));
        assert_eq!(line(&mut other), "sync 1\n");
        (offload, other)
    }

    fn line(other: &mut BufReader<UnixStream>) -> String {
        let mut line = String::new();
        other.read_line(&mut line).unwrap();
        line
    }

    /// Answer all lines up to the one that begins so.
    fn answer(other: &mut BufReader<UnixStream>, until: &str) -> String {
        loop {
            let line = line(other);
            let number = line.trim_end().rsplit(' ').next();
            if line.starts_with("sync") || line.starts_with("until") {
                let answer = format!("ok {} 0 0\n", number.unwrap());
                other.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            if line.starts_with(until) {
                return line;
            }
        }
    }

    #[test]
    fn a_rule_is_written_as_the_specification_says() {
        let wanted = "rule 10.0.0.2:5000 r8001 -mt 60 a%20b/%25 10.0.0.3:6000=s6162\n";
        assert_eq!(rule("a b/%").line(), wanted);
        let name = Called::Name("a b/%".into());
        let mut named = rule("a b/%");
        named.copies = vec![(SocketAddr::from(([10, 0, 0, 3], 6000)), name.clone())];
        named.key.topic = name;
        let wanted = "rule 10.0.0.2:5000 na%20b/%25 -mt 60 a%20b/%25 10.0.0.3:6000=n\n";
        assert_eq!(named.line(), wanted);
    }

    #[test]
    fn only_whoever_copies_is_told_what_was_served_and_ends_rules_by_name_only() {
        let (offload, mut other) = connected("asks");
        let token = offload.state().token;
        assert_ne!(token, 0);
        let asked = [token.to_be_bytes(), 7_u64.to_be_bytes()].concat();
        assert_eq!(offload.question(&asked), Some(7));
        for wrong in [&asked[..15], &asked[1..], &[0; 16], &[]] {
            assert_eq!(offload.question(wrong), None);
        }
        offload.say_served(7);
        answer(&mut other, "heard 7\n");
        let name = Key {
            topic: Called::Name("a b".into()),
            ..key()
        };
        for key in [key(), name.clone()] {
            offload.offer(&Rule { key, ..rule("a b") }, || true);
        }
        for line in ["end 10.0.0.2:5000 r8001\n", "end 10.0.0.2:5000 na%20b\n"] {
            other.get_mut().write_all(line.as_bytes()).unwrap();
        }
        while !offload.wants(&name) {
            answer(&mut other, "until");
        }
        assert!(!offload.wants(&key()));
        assert!(offload.believes(&name, 1), "what is under way has the mark");
        drop(other);
        offload.await_end();
        assert_eq!(offload.question(&asked), None, "nobody asks any more");
    }

    #[test]
    fn nothing_is_lent_beyond_the_end_of_a_lease() {
        let (offload, mut other) = connected("lease");
        answer(&mut other, "until");
        offload.lease_ends(Some(200 * MILLISECOND_NS));
        let end_ns = now_ns() + 200 * MILLISECOND_NS;
        let lent = |other: &mut _| -> u64 {
            answer(other, "until")
                .split(' ')
                .nth(1)
                .unwrap()
                .parse()
                .unwrap()
        };
        lent(&mut other); // it may be from before
        assert!(lent(&mut other) <= end_ns);
        offload.lease_ends(None);
        lent(&mut other);
        assert!(lent(&mut other) > end_ns);
    }

    #[test]
    fn a_change_waits_until_the_rule_is_closed_and_nothing_is_offered_meanwhile() {
        let (offload, mut other) = connected("waits");
        offload.offer(&rule("a/b"), || false);
        assert!(offload.wants(&key()), "something had changed");
        offload.offer(&rule("a/b"), || true);
        answer(&mut other, "rule");
        assert!(
            !offload.wants(&key()) && offload.believes(&key(), 1) && !offload.believes(&key(), 2)
        );
        drop(offload.close_topics(|name| name == "other")); // there is nothing to wait for
        let changing = Arc::clone(&offload);
        let change = std::thread::spawn(move || {
            let closed = changing.close_session(2);
            changing.offer(&rule("a/b"), || true);
            assert!(changing.wants(&key()), "it is not offered yet");
            drop(closed);
            changing.offer(&rule("a/b"), || true);
            assert!(!changing.wants(&key()));
        });
        answer(&mut other, "close 10.0.0.2:5000 r8001\n");
        assert!(!change.is_finished());
        answer(&mut other, "sync");
        change.join().unwrap();
        assert!(
            offload.believes(&key(), 1),
            "what is under way has the mark"
        );
    }

    #[test]
    fn a_change_goes_on_once_what_was_lent_is_over_if_nobody_answers() {
        let (offload, mut other) = connected("lent");
        let lent = answer(&mut other, "until");
        offload.offer(&rule("a/b"), || true);
        let until_ns: u64 = lent.split(' ').nth(1).unwrap().parse().unwrap();
        drop(offload.close_topics(|_| true));
        assert!(now_ns() >= until_ns);
        assert!(!offload.wants(&key()), "nobody is there");
    }

    #[test]
    fn who_ends_is_waited_for_as_long_as_it_was_lent() {
        let (offload, mut other) = connected("ends");
        let lent = answer(&mut other, "until");
        offload.offer(&rule("a/b"), || true);
        drop(other);
        let until_ns: u64 = lent.split(' ').nth(1).unwrap().parse().unwrap();
        drop(offload.close_topics(|_| true));
        assert!(now_ns() >= until_ns);
    }
}
