//! The access file: which topics a client may read and write.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::text::{Error, lines, quoted, refuse};

/// An action of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Receive a message on this topic. To be checked for each copy.
    Read,
    /// Publish to this topic. For a will, to be checked when it is published: if it is not allowed,
    /// it is dropped then. Mosquitto, too, accepts a client with such a will.
    Write,
    /// Subscribe to this filter. Allowed if a topic that it matches may be read: each copy is
    /// checked as [`Action::Read`]. Mosquitto 2.0 allows it always.
    Subscribe,
}

const DENY: u8 = 0;
const READ: u8 = 1;
const WRITE: u8 = 2;

/// The names that replace `%u` and `%c` in patterns.
#[derive(Clone, Copy)]
struct Names<'a> {
    user: &'a [u8],
    client: &'a [u8],
}

/// One line of the file.
#[derive(Debug, Clone)]
struct Rule {
    access: u8,
    /// The filter up to the first wildcard or name. Most rules consist of this only.
    prefix: Box<[u8]>,
    /// The prefix's last octet, which is compared first: rules of one user often begin alike.
    last: u8,
    /// The rest of the filter.
    rest: Box<[u8]>,
    /// Whether it begins with `$`: only such rules match topics that begin with `$`.
    reserved: bool,
    of_user: bool,
    of_client: bool,
}

impl Rule {
    fn new(access: u8, filter: &str, pattern: bool) -> Self {
        let filter = filter.as_bytes();
        let names = |at: usize| pattern && matches!(filter.get(at..at + 2), Some(b"%u" | b"%c"));
        let special = |at: &usize| matches!(filter.get(*at), Some(b'+' | b'#')) || names(*at);
        let mut split = (0..filter.len()).find(special).unwrap_or(filter.len());
        if filter.ends_with(b"/#") && split + 1 == filter.len() {
            split -= 1; // `a/#` matches `a`, too
        }
        let (prefix, rest) = filter.split_at(split);
        let uses = |name: &[u8]| pattern && filter.windows(2).any(|two| two == name);
        Self {
            access,
            prefix: prefix.into(),
            last: prefix.last().copied().unwrap_or_default(),
            rest: rest.into(),
            reserved: filter.first() == Some(&b'$'),
            of_user: uses(b"%u"),
            of_client: uses(b"%c"),
        }
    }

    fn begins_with_wildcard(&self) -> bool {
        self.prefix.is_empty() && matches!(self.rest.first(), Some(b'+' | b'#'))
    }

    #[inline]
    fn matches(&self, topic: &[u8], names: Option<Names<'_>>) -> bool {
        let end = self.prefix.len();
        if end > 0 && topic.get(end - 1) != Some(&self.last) {
            return false;
        }
        let Some(topic) = topic.strip_prefix(&*self.prefix) else {
            return false;
        };
        if self.rest.is_empty() {
            topic.is_empty()
        } else {
            follows(&self.rest, topic, names)
        }
    }
}

/// Whether the rest of a topic matches the rest of a filter.
fn follows(mut filter: &[u8], mut topic: &[u8], names: Option<Names<'_>>) -> bool {
    loop {
        (filter, topic) = match (filter, names) {
            ([], _) => return topic.is_empty(),
            ([b'#'], _) => return true,
            ([b'/', b'#'], _) if topic.is_empty() => return true,
            ([b'+', after @ ..], _) => {
                let end = topic
                    .iter()
                    .position(|octet| *octet == b'/')
                    .unwrap_or(topic.len());
                (after, &topic[end..])
            }
            ([b'%', which @ (b'u' | b'c'), after @ ..], Some(names)) => {
                let name = if *which == b'u' {
                    names.user
                } else {
                    names.client
                };
                match topic.strip_prefix(name) {
                    Some(topic) => (after, topic),
                    None => return false,
                }
            }
            ([octet, after @ ..], _) => match topic {
                [same, topic @ ..] if same == octet => (after, topic),
                _ => return false,
            },
        };
    }
}

fn levels(filter: &[u8]) -> impl Iterator<Item = &[u8]> {
    filter.split(|octet| *octet == b'/')
}

/// Whether a topic can match both filters.
fn meet(one: &[u8], other: &[u8]) -> bool {
    let (mut ones, mut others) = (levels(one), levels(other));
    loop {
        match (ones.next(), others.next()) {
            (Some(b"#"), _) | (_, Some(b"#")) | (None, None) => return true,
            (Some(b"+"), Some(_)) | (Some(_), Some(b"+")) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

/// Whether each topic that `filter` matches is matched by `wide`, too.
fn covers(wide: &[u8], filter: &[u8]) -> bool {
    let (mut wides, mut levels) = (levels(wide), levels(filter));
    loop {
        match (wides.next(), levels.next()) {
            (Some(b"#"), _) | (None, None) => return true,
            (Some(b"+"), Some(level)) if level != b"#" => {}
            (Some(wide), Some(level)) if wide == level => {}
            _ => return false,
        }
    }
}

/// A fast hash, which takes eight octets at a time. The names are those of the file, so that
/// clients cannot cause collisions.
#[derive(Default)]
struct Fast(u64);

impl Hasher for Fast {
    fn write(&mut self, octets: &[u8]) {
        let mut add = |word: u64| {
            self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        };
        let (words, rest) = octets.as_chunks::<8>();
        words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
        add(rest.iter().fold(rest.len() as u64, |word, octet| {
            word << 8 | u64::from(*octet)
        }));
    }

    fn write_u8(&mut self, _: u8) {} // ends each string; `write` has hashed a length already

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// The rules of an access file.
#[derive(Debug, Clone)]
pub struct Rules {
    open: bool,
    // In each list, the rules that deny come first: any of them decides.
    anonymous: Vec<Rule>,
    users: HashMap<Box<str>, Vec<Rule>, BuildHasherDefault<Fast>>,
    patterns: Vec<Rule>,
}

impl Rules {
    /// Without an access file, everything is allowed.
    #[must_use]
    pub fn open() -> Self {
        Self {
            open: true,
            anonymous: Vec::new(),
            users: HashMap::default(),
            patterns: Vec::new(),
        }
    }

    /// Read an access file. An empty one allows nothing.
    ///
    /// # Errors
    /// The first line that Mosquitto refuses as well, or that contains a control character.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut rules = Self {
            open: false,
            ..Self::open()
        };
        let mut user = None;
        for (number, line) in lines(text) {
            let line = line?.trim_start_matches(' ');
            let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
            let rest = rest.trim_start_matches(' ');
            let list = match keyword {
                "user" if rest.is_empty() => {
                    return Err(refuse(number, "names no user: write `user NAME`"));
                }
                "user" => {
                    user = Some(rest);
                    continue;
                }
                "topic" => match user {
                    None => &mut rules.anonymous,
                    Some(user) => rules.users.entry(user.into()).or_default(),
                },
                "pattern" => &mut rules.patterns,
                _ => {
                    let keyword = quoted(keyword);
                    let what = format!("{keyword} is none of `user`, `topic` and `pattern`");
                    return Err(refuse(number, what));
                }
            };
            let (access, filter) = access_and_filter(rest).map_err(|what| refuse(number, what))?;
            list.push(Rule::new(access, filter, keyword == "pattern"));
        }
        let lists = rules
            .users
            .values_mut()
            .chain([&mut rules.anonymous, &mut rules.patterns]);
        lists.for_each(|list| list.sort_by_key(|rule| rule.access != DENY));
        Ok(rules)
    }

    /// Whether a client may do this. `user` is its authenticated user name, if it has one; an empty
    /// name counts as none.
    ///
    /// Takes some tens of ns for a user with ten rules, and allocates no memory.
    #[must_use]
    pub fn may(
        &self,
        user: Option<&str>,
        client_id: &str,
        action: Action,
        topic_or_filter: &str,
    ) -> bool {
        let wanted = match action {
            _ if self.open => return true,
            Action::Subscribe => return self.may_hear(user, client_id, topic_or_filter.as_bytes()),
            Action::Read => READ,
            Action::Write => WRITE,
        };
        let topic = topic_or_filter.as_bytes();
        let reserved = topic.first() == Some(&b'$');
        let user = user.filter(|user| !user.is_empty());
        let own = match user {
            None => Some(&self.anonymous),
            Some(user) => self.users.get(user),
        };
        let own = own.map_or(&[][..], |list| list);
        for rule in own {
            if rule.reserved == reserved && rule.matches(topic, None) {
                if rule.access == DENY {
                    return false;
                }
                if rule.access & wanted != 0 {
                    return true;
                }
            }
        }
        !self.patterns.is_empty() && self.pattern_allows(user, client_id, wanted, topic)
    }

    /// Whether there can be a topic that this filter matches and the client may read.
    fn may_hear(&self, user: Option<&str>, client: &str, filter: &[u8]) -> bool {
        let user = user.filter(|user| !user.is_empty());
        let own = match user {
            None => Some(&self.anonymous),
            Some(user) => self.users.get(user),
        };
        let user = user.unwrap_or("");
        let plain = |name: &str| !name.is_empty() && !name.contains(['/', '+', '#']);
        let usable =
            |rule: &&Rule| (plain(user) || !rule.of_user) && (plain(client) || !rule.of_client);
        let own = own.map_or(&[][..], |list| list).iter();
        let own = own.map(|rule| (rule, [&*rule.prefix, &*rule.rest].concat()));
        let patterns = self.patterns.iter().filter(usable).map(|rule| {
            let text = [&*rule.prefix, &*rule.rest].concat();
            let text = String::from_utf8_lossy(&text);
            let named = text.replace("%u", user).replace("%c", client);
            (rule, named.into_bytes())
        });
        let reserved = filter.first() == Some(&b'$');
        let mut may = false;
        for (rule, allowed) in own
            .chain(patterns)
            .filter(|(rule, _)| rule.reserved == reserved)
        {
            if rule.access == DENY && covers(&allowed, filter) {
                return false;
            }
            may |= rule.access & READ != 0 && meet(&allowed, filter);
        }
        may
    }

    fn pattern_allows(&self, user: Option<&str>, client: &str, wanted: u8, topic: &[u8]) -> bool {
        let user = user.unwrap_or("");
        let wild = |name: &str| name.bytes().any(|octet| matches!(octet, b'+' | b'#'));
        if wild(user) || wild(client) {
            return false; // it would become a wildcard
        }
        let plain = |name: &str| !name.is_empty() && !name.contains('/');
        let (user_is_plain, client_is_plain) = (plain(user), plain(client));
        let names = Names {
            user: user.as_bytes(),
            client: client.as_bytes(),
        };
        let reserved = topic.first() == Some(&b'$');
        for rule in &self.patterns {
            let for_others =
                reserved && rule.begins_with_wildcard() || rule.of_user && user.is_empty();
            if for_others || !rule.matches(topic, Some(names)) {
                continue;
            }
            if rule.access == DENY {
                return false;
            }
            let plain = (user_is_plain || !rule.of_user) && (client_is_plain || !rule.of_client);
            if rule.access & wanted != 0 && plain && rule.reserved == reserved {
                return true;
            }
        }
        false
    }
}

/// Parse what follows `topic` or `pattern`: `[read|write|readwrite|deny] FILTER`.
fn access_and_filter(text: &str) -> Result<(u8, &str), String> {
    if text.is_empty() {
        return Err("names no topic".into());
    }
    let (access, filter) = match text.split_once(' ') {
        None => (READ | WRITE, text), // the topic may be called `read`
        Some((access, filter)) => {
            let access = match access {
                "read" => READ,
                "write" => WRITE,
                "readwrite" => READ | WRITE,
                "deny" => DENY,
                other => {
                    let other = quoted(other);
                    return Err(format!(
                        "{other} is none of read, write, readwrite and deny"
                    ));
                }
            };
            (access, filter.trim_start_matches(' '))
        }
    };
    if filter.len() > usize::from(u16::MAX) {
        return Err(format!(
            "has a topic of {} octets; 65535 is the most",
            filter.len()
        ));
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let alone = !level.contains(['+', '#']) || level.len() == 1;
        if !alone || (level == "#" && levels.peek().is_some()) {
            let filter = quoted(filter);
            return Err(format!(
                "{filter}: `+` must be a whole level, `#` the whole last one"
            ));
        }
    }
    Ok((access, filter))
}
