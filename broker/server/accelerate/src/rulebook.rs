//! The rules: which topics of which publishers have one, and who receives the copies.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_topics::{has_wildcards, matches};

use crate::clients::{Clients, Dirty};
use crate::clock::SECOND_NS;
use crate::driver::Status;
use crate::plane::{Copy, Counts, Key, MOST_COPIES, Plane, Topic};
use crate::reason::Reason;
use crate::session::{Named, OTHER_QOS_NS, Session, State, Subscription};
use crate::settings::Settings;

/// How long after the deletion of a rule its room in the kernel may become free.
const EMPTIED_S: u32 = 3;

#[derive(Debug)]
struct Rule {
    copies: Vec<Copy>,
    open: Option<u64>,
    /// The value of `slow` with which to open it once the publisher's PINGREQs are answered.
    wanted: Option<u64>,
}

#[derive(Debug)]
struct Candidate {
    name: Option<Rc<str>>,
    rule: Result<Rule, Reason>,
    before: Counts, // the counters of deleted rules
}

/// All rules.
pub struct Rulebook {
    settings: Rc<Settings>,
    candidates: HashMap<Key, Candidate>,
    by_name: HashMap<Rc<str>, HashSet<Key>>,
    rules: HashMap<SocketAddr, HashSet<Topic>>,
    retried_ns: u64,
    /// For how many more seconds the room of a deleted rule may become free.
    emptied: u32,
}

impl Rulebook {
    /// No rules.
    #[must_use]
    pub fn new(settings: Rc<Settings>) -> Self {
        Self {
            settings,
            candidates: HashMap::new(),
            by_name: HashMap::new(),
            rules: HashMap::new(),
            retried_ns: 0,
            emptied: 0,
        }
    }

    /// The state of all topics of publishers that are followed.
    #[must_use]
    pub fn status(&self, general: Option<&Reason>, plane: &impl Plane) -> Vec<Status> {
        let mut all: Vec<Status> = self
            .candidates
            .iter()
            .map(|(key, one)| {
                let mut counts = one.before;
                let rule = match &one.rule {
                    Ok(rule) => {
                        let now = plane.counts(key);
                        add(&mut counts, now);
                        Ok((rule.copies.len(), rule.open == Some(now.slow)))
                    }
                    Err(reason) => Err(general.unwrap_or(reason).clone()),
                };
                Status {
                    key: *key,
                    name: one.name.clone(),
                    rule,
                    counts,
                }
            })
            .collect();
        all.sort_by(|a, b| (&a.name, a.key.publisher).cmp(&(&b.name, b.key.publisher)));
        all
    }

    /// Delete all rules, and forget all topics.
    pub fn clear(&mut self, plane: &mut impl Plane) {
        for (publisher, topics) in std::mem::take(&mut self.rules) {
            for topic in topics {
                plane.delete(&Key { publisher, topic });
            }
        }
        self.candidates.clear();
        self.by_name.clear();
    }

    /// Whether a publisher has rules.
    #[must_use]
    pub fn has_rules(&self, publisher: &SocketAddr) -> bool {
        self.rules.contains_key(publisher)
    }

    /// Note which rules of a publisher are opened by the answer to a PINGREQ that is sent now.
    /// Returns whether there are any.
    pub fn prepare(&mut self, publisher: SocketAddr, plane: &impl Plane) -> bool {
        let mut any = false;
        for &topic in self.rules.get(&publisher).into_iter().flatten() {
            let key = Key { publisher, topic };
            if let Some(Candidate { rule: Ok(rule), .. }) = self.candidates.get_mut(&key) {
                let slow = plane.counts(&key).slow;
                // A first message goes through the broker, which may have to send REGISTER before
                // it.
                let is_closed = rule.open != Some(slow) && slow > 0;
                rule.wanted = is_closed.then_some(slow);
                any |= is_closed;
            }
        }
        any
    }

    /// The last PINGREQ of a publisher is answered, so all its earlier messages have been
    /// delivered: open its rules. Returns whether all of them are open now.
    pub fn open(&mut self, publisher: SocketAddr, plane: &mut impl Plane) -> bool {
        let mut all = true;
        for &topic in self.rules.get(&publisher).into_iter().flatten() {
            let key = Key { publisher, topic };
            if let Some(Candidate { rule: Ok(rule), .. }) = self.candidates.get_mut(&key)
                && let Some(slow) = rule.wanted.take()
            {
                rule.open = Some(slow);
                plane.open(&key, slow);
                all &= plane.counts(&key).slow == slow;
            }
        }
        all
    }

    /// Check topics again whose reason may have gone without an event.
    pub fn retry(&mut self, now_ns: u64, clients: &mut Clients, plane: &impl Plane) {
        let is_second = now_ns.saturating_sub(self.retried_ns) >= SECOND_NS;
        if is_second {
            self.retried_ns = now_ns;
        }
        let has_room = is_second && self.emptied > 0;
        self.emptied -= u32::from(has_room);
        let mut proven: HashMap<SocketAddr, bool> = HashMap::new();
        let mut may_be = |one: &Candidate| match one.rule {
            // A PUBLISH of the broker to it proves the address.
            Err(Reason::Unproven(who)) => *proven.entry(who).or_insert_with(|| {
                let session = clients.get(&who);
                session.is_none_or(|session| session.is_proven(plane.served_ns(&who)))
            }),
            Err(Reason::Full) => has_room,
            Err(Reason::Unreachable(_) | Reason::OtherQos(_)) => is_second,
            _ => false,
        };
        let keys = self.candidates.iter().filter(|(_, one)| may_be(one));
        let keys: Vec<_> = keys.map(|(key, _)| Dirty::Key(*key)).collect();
        clients.dirty.extend(keys);
    }

    /// Update all rules that have to be checked again.
    pub fn update(&mut self, now_ns: u64, clients: &mut Clients, plane: &mut impl Plane) {
        let mut dirty = std::mem::take(&mut clients.dirty);
        let is_all = |one: &Dirty| matches!(one, Dirty::All | Dirty::Filter(None));
        // Keys stay: they may be of new topics or of publishers that have gone.
        if dirty.iter().any(is_all) {
            dirty.retain(|one| matches!(one, Dirty::Key(_)));
            dirty.push(Dirty::All);
        }
        let mut keys = HashSet::new();
        for one in dirty {
            match one {
                Dirty::All | Dirty::Filter(None) => {
                    keys.extend(self.candidates.keys().copied());
                }
                Dirty::Publisher(publisher) => {
                    let session = clients.get(&publisher);
                    let topics = session
                        .into_iter()
                        .flat_map(|session| session.publishes.keys());
                    keys.extend(topics.map(|&topic| Key { publisher, topic }));
                }
                Dirty::Key(key) => {
                    keys.insert(key);
                }
                Dirty::Filter(Some(filter)) if has_wildcards(&filter) => {
                    let names = self
                        .by_name
                        .iter()
                        .filter(|(name, _)| matches(&filter, name));
                    keys.extend(names.flat_map(|(_, keys)| keys).copied());
                }
                Dirty::Filter(Some(name)) => {
                    keys.extend(self.by_name.get(&name).into_iter().flatten().copied());
                }
            }
        }
        for key in keys {
            self.remake(now_ns, key, clients, plane);
        }
    }

    fn remake(&mut self, now_ns: u64, key: Key, clients: &Clients, plane: &mut impl Plane) {
        if !clients.follows(&key) {
            self.withdraw(&key, plane);
            let name = self.candidates.remove(&key).and_then(|one| one.name);
            return self.unname(&key, name);
        }
        let name = self.name(&key, clients);
        let wanted = match clients.general_reason() {
            Some(reason) => Err(reason),
            None => self.receivers(now_ns, &key, name.as_ref(), clients, plane),
        };
        let candidate = self.candidates.entry(key).or_insert(Candidate {
            name: None,
            rule: Err(Reason::NameUnknown),
            before: Counts::default(),
        });
        if let (Ok(rule), Ok(copies)) = (&candidate.rule, &wanted)
            && rule.copies == *copies
            && candidate.name == name
        {
            return;
        }
        let was = std::mem::replace(&mut candidate.name, name.clone());
        self.withdraw(&key, plane);
        if was != name {
            self.unname(&key, was);
            if let Some(name) = &name {
                self.by_name.entry(Rc::clone(name)).or_default().insert(key);
            }
        }
        let residence = name.is_some_and(|name| {
            let mut filters = self.settings.residence.iter();
            filters.any(|one| matches(one, &name))
        });
        let rule = wanted.and_then(|copies| {
            plane.set(key, &copies, residence)?;
            Ok(Rule {
                copies,
                open: None,
                wanted: None,
            })
        });
        if rule.is_ok() {
            self.rules
                .entry(key.publisher)
                .or_default()
                .insert(key.topic);
        }
        if let Some(candidate) = self.candidates.get_mut(&key) {
            candidate.rule = rule;
        }
    }

    /// Delete a rule, if there is one.
    fn withdraw(&mut self, key: &Key, plane: &mut impl Plane) {
        let Some(topics) = self.rules.get_mut(&key.publisher) else {
            return;
        };
        if topics.remove(&key.topic) {
            if let Some(candidate) = self.candidates.get_mut(key) {
                add(&mut candidate.before, plane.counts(key));
            }
            plane.delete(key);
            self.emptied = EMPTIED_S;
        }
        if topics.is_empty() {
            self.rules.remove(&key.publisher);
        }
    }

    fn unname(&mut self, key: &Key, name: Option<Rc<str>>) {
        if let Some(name) = name
            && let Some(keys) = self.by_name.get_mut(&name)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_name.remove(&name);
            }
        }
    }

    fn name(&self, key: &Key, clients: &Clients) -> Option<Rc<str>> {
        match key.topic {
            Topic::Registered(id) => clients.get(&key.publisher)?.ids.get(&id).cloned(),
            Topic::Predefined(id) => self.settings.predefined.get(&id).cloned(),
            Topic::Short(name) => std::str::from_utf8(&name).ok().map(Rc::from),
            Topic::Name(name) => str::from_utf8(name.octets()).ok().map(Rc::from),
        }
    }

    /// The copies of a message, or why it is not copied.
    fn receivers(
        &self,
        now_ns: u64,
        key: &Key,
        name: Option<&Rc<str>>,
        clients: &Clients,
        plane: &impl Plane,
    ) -> Result<Vec<Copy>, Reason> {
        let who = key.publisher;
        let publisher = clients.get(&who).ok_or(Reason::PublisherUnknown)?;
        if !publisher.is_active() || publisher.late {
            return Err(Reason::PublisherNotActive);
        }
        if publisher.refused {
            return Err(Reason::Refused);
        }
        if publisher.unclear {
            return Err(Reason::Unclear(who));
        }
        let other_ns = publisher.publishes.get(&key.topic).copied().flatten();
        let other_ns = other_ns.max(publisher.before_ns);
        if other_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < OTHER_QOS_NS) {
            return Err(Reason::OtherQos(who));
        }
        let name = name.ok_or(Reason::NameUnknown)?;
        if name.starts_with('$') {
            return Err(Reason::Reserved);
        }
        if has_wildcards(name) {
            return Err(Reason::NameUnknown);
        }
        // If the publisher could name the topic in two ways, the order could not be kept.
        let predefined = self.settings.predefined.values();
        let predefined = predefined.filter(|one| *one == name).count();
        let ways = publisher.ids_of(name) + predefined + usize::from(name.len() == 2);
        if ways != 1 || publisher.unnamed {
            return Err(Reason::OtherWay(who));
        }
        if !self.settings.only.iter().any(|one| matches(one, name)) {
            return Err(Reason::NotDeclared);
        }
        if let Some(id) = clients.kept_for(name) {
            return Err(Reason::Kept(Rc::clone(id)));
        }
        let mut copies = Vec::new();
        for to in clients.subscribed_to(name) {
            if let Some(session) = clients.get(&to)
                && let Some(topic) = receives(to, session, key.topic, name, plane)?
            {
                copies.push(Copy { to, topic });
            }
        }
        match copies.len() {
            0 => Err(Reason::NoSubscribers),
            _ if !publisher.confirmed => Err(Reason::PublisherInDoubt),
            count if count > MOST_COPIES => Err(Reason::Copies),
            _ => Ok(copies),
        }
    }
}

/// How the copies for this client name the topic; `None`: it gets none.
fn receives(
    client: SocketAddr,
    session: &Session,
    topic: Topic,
    name: &Rc<str>,
    plane: &impl Plane,
) -> Result<Option<Topic>, Reason> {
    let is_it = |one: &Subscription| match (&one.filter, one.named) {
        (Some(filter), _) => Ok(matches(filter, name)),
        (None, Named::Predefined(id)) => Err(Reason::PredefinedUnknown(client, id)),
        (None, _) => Ok(true),
    };
    for one in session.awaited() {
        if is_it(one)? {
            return Err(Reason::AnswerAwaited(client));
        }
    }
    let mut found = None;
    for one in &session.subscriptions {
        if is_it(one)? && found.replace(one).is_some() {
            return Err(Reason::Overlap(client));
        }
    }
    let Some(subscription) = found else {
        return Ok(None);
    };
    let why_not = if !session.as_said.clean && session.state != State::New {
        Some(Reason::NotClean(client))
    } else if !session.is_active() {
        Some(Reason::NotActive(client))
    } else if session.late {
        Some(Reason::Overdue(client))
    } else if session.other_qos {
        Some(Reason::OtherQos(client))
    } else if session.unclear {
        Some(Reason::Unclear(client))
    } else if !session.proposed.is_empty() {
        // A broker may send nothing until the client has answered its REGISTER.
        Some(Reason::NoId(client))
    } else if !session.is_proven(plane.served_ns(&client)) {
        Some(Reason::Unproven(client))
    } else if !session.confirmed {
        Some(Reason::InDoubt(client))
    } else {
        None
    };
    if let Some(reason) = why_not {
        return Err(reason);
    }
    match (topic, subscription.named) {
        (Topic::Short(_), Named::Short) if subscription.filter.as_deref() == Some(name) => {
            Ok(Some(topic))
        }
        (Topic::Predefined(id), Named::Predefined(own)) if id == own => Ok(Some(topic)),
        // The broker may send a name of two octets as a short name.
        (Topic::Registered(_), Named::Name) if name.len() != 2 => match session.told.get(name) {
            Some(Some(id)) => Ok(Some(Topic::Registered(*id))),
            _ => Err(Reason::NoId(client)),
        },
        _ => Err(Reason::OtherWay(client)),
    }
}

fn add(sum: &mut Counts, more: Counts) {
    sum.slow += more.slow;
    sum.fast += more.fast;
    sum.copies += more.copies;
}
