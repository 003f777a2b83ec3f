//! The retained messages, who has published them, and how many more there may be.

use crate::message::Kept;
use mqtick_topics::Retained as ByTopic;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Who has published a retained message: rules are looked up for it again when they change.
#[derive(PartialEq, Eq)]
pub struct Source {
    /// The user name; none: without one, or the message was restored.
    pub user: Option<Box<str>>,
    /// The client's identifier.
    pub client: Box<str>,
}

/// A retained message.
pub struct Retained {
    /// The message.
    pub kept: Arc<Kept>,
    /// Who has published it. None: the broker itself, a client over UDP, or it is known no more.
    pub source: Option<Arc<Source>>,
}

/// All retained messages.
pub struct AllRetained {
    messages: ByTopic<Retained>,
    most: usize,
    by_account: bool,
    accounts: HashMap<Option<Box<str>>, usize>, // of the broker's own topics none
}

fn is_own(topic: &str) -> bool {
    topic.starts_with("$SYS/")
}

impl AllRetained {
    /// Room for so many messages beside the broker's own. `by_account`: clients have names, and the
    /// messages of one may be as many as there is room left for others.
    pub fn new(most: usize, by_account: bool) -> Self {
        Self {
            messages: ByTopic::new(),
            most,
            by_account,
            accounts: HashMap::new(),
        }
    }

    /// How many there are beside the broker's own.
    pub fn len(&self) -> usize {
        self.accounts.values().sum()
    }

    /// Whether there is room for a message on this topic from this user.
    pub fn has_room(&self, topic: &str, user: Option<&str>) -> bool {
        if is_own(topic) || self.messages.get(topic).is_some() {
            return true;
        }
        let free = self.most.saturating_sub(self.len());
        let ours = || self.accounts.get(&user.map(Into::into)).copied();
        free > 0 && (!self.by_account || ours().unwrap_or(0) < free)
    }

    /// The message of a topic.
    pub fn get(&self, topic: &str) -> Option<&Arc<Kept>> {
        self.messages.get(topic).map(|one| &one.kept)
    }

    /// Retain a message.
    pub fn set(&mut self, topic: &str, kept: Arc<Kept>, source: Option<Arc<Source>>) {
        self.remove(topic);
        if !is_own(topic) {
            let user = source.as_ref().and_then(|source| source.user.clone());
            *self.accounts.entry(user).or_default() += 1;
        }
        self.messages.set(topic, Retained { kept, source });
    }

    /// Forget the message of a topic.
    pub fn remove(&mut self, topic: &str) {
        let Some(Retained { source, .. }) = self.messages.remove(topic) else {
            return;
        };
        let user = source.as_ref().and_then(|source| source.user.clone());
        if let Some(count) = self.accounts.get_mut(&user).filter(|_| !is_own(topic)) {
            *count -= 1;
            if *count == 0 {
                self.accounts.remove(&user);
            }
        }
    }

    /// Messages and their topics from a topic on.
    pub fn iter_from(&self, topic: &str) -> impl Iterator<Item = (&str, &Retained)> {
        self.messages.iter_from(topic)
    }

    /// See [`ByTopic::search`].
    pub fn search(
        &self,
        filter: &str,
        from: &str,
        steps: usize,
        mut each: impl FnMut(&Arc<Kept>) -> ControlFlow<()>,
    ) -> (usize, Option<String>) {
        self.messages
            .search(filter, from, steps, &mut |_, one| each(&one.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;

    fn set(all: &mut AllRetained, topic: &str, user: &str) -> bool {
        let kept = Kept::new(&Message {
            whole: None,
            topic,
            payload: b"x",
            qos: mqtick_packet::Qos::AtMostOnce,
            retain: true,
            forwarded: &[],
            expires_s: None,
        });
        let source = Source {
            user: Some(user.into()),
            client: "c".into(),
        };
        let has_room = all.has_room(topic, Some(user));
        if has_room {
            all.set(topic, kept, Some(Arc::new(source)));
        }
        has_room
    }

    #[test]
    fn an_account_leaves_as_much_as_it_takes_and_what_it_gives_back_is_free_again() {
        let mut all = AllRetained::new(8, true);
        let mut fill = |user: &str| {
            (0..9)
                .filter(|n| set(&mut all, &format!("{user}/{n}"), user))
                .count()
        };
        assert_eq!([fill("a"), fill("b"), fill("c"), fill("a")], [4, 2, 1, 4]);
        assert!(set(&mut all, "a/0", "b"), "in the place of another one's");
        assert!(set(&mut all, "$SYS/x", "z"));
        assert_eq!(all.len(), 7);
        all.remove("a/0");
        all.remove("a/0");
        assert_eq!(all.len(), 6);
        assert!(set(&mut all, "c/5", "c"));
    }

    #[test]
    fn without_names_all_may_take_all() {
        let mut all = AllRetained::new(2, false);
        assert!(set(&mut all, "a", "a") && set(&mut all, "b", "a") && !set(&mut all, "c", "b"));
    }
}
