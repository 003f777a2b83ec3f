//! Topic names and topic filters.

/// The most octets of a topic or a filter: its length is sent in two octets.
pub const MAX_OCTETS: usize = 65_535;

/// The most levels of a topic or a filter: as many as Mosquitto accepts, which are 200 `/`.
///
/// MQTT has no limit; a broker needs one so that no client can cause a deep recursion.
pub const MAX_LEVELS: usize = 201;

/// The prefix of a shared subscription.
const SHARE: &str = "$share/";

/// Whether a message can be published to `topic`.
///
/// It has no wildcard ([MQTT-3.3.2-2]), no NUL ([MQTT-4.7.3-2]), 1 to [`MAX_OCTETS`] octets
/// ([MQTT-4.7.3-1], [MQTT-4.7.3-3]) and at most [`MAX_LEVELS`] levels.
#[must_use]
pub fn valid_topic(topic: &str) -> bool {
    fits(topic) && !topic.contains(['+', '#', '\0'])
}

/// Whether a client can subscribe to `filter`, which may be shared.
///
/// Wildcards are whole levels and `#` is the last one ([MQTT-4.7.1-1] to [MQTT-4.7.1-3]); a filter
/// that begins with `$share/` has a name without wildcards and a filter ([MQTT-4.8.2-1],
/// [MQTT-4.8.2-2]). The limits of [`valid_topic`] apply to the whole.
#[must_use]
pub fn valid_filter(filter: &str) -> bool {
    if !fits(filter) || filter.contains('\0') {
        return false;
    }
    match split_share(filter) {
        Ok((_, filter)) => !filter.is_empty() && wildcards_stand_well(filter),
        Err(NoName) => false,
    }
}

/// Whether a filter has wildcards.
#[must_use]
pub fn has_wildcards(filter: &str) -> bool {
    filter.contains(['+', '#'])
}

/// Whether a filter, which may be shared, matches a topic name.
#[must_use]
pub fn matches(filter: &str, name: &str) -> bool {
    let Ok((_, filter)) = split_share(filter) else {
        return false;
    };
    if name.starts_with('$') && filter.starts_with(['+', '#']) {
        return false; // [MQTT-4.7.2-1]
    }
    let (mut filter, mut name) = (filter.split('/'), name.split('/'));
    loop {
        match (filter.next(), name.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == "+" || wanted == found => {}
            _ => return false,
        }
    }
}

/// Whether `wide` matches every topic that `narrow` matches. Neither is a shared subscription.
#[must_use]
pub fn covers(wide: &str, narrow: &str) -> bool {
    if narrow.starts_with('$') && wide.starts_with(['+', '#']) {
        return false; // [MQTT-4.7.2-1]
    }
    let wide = if wide == "+/#" { "#" } else { wide }; // each topic has a first level
    let (mut wide, mut narrow) = (wide.split('/'), narrow.split('/'));
    loop {
        match (wide.next(), narrow.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some("#")) => return false,
            (Some(one), Some(other)) if one == "+" || one == other => {}
            _ => return false,
        }
    }
}

/// A shared subscription without a valid group name.
pub(crate) struct NoName;

/// Return the filter, without the group if it is shared; `None`: the group has no valid name.
#[must_use]
pub fn unshared(filter: &str) -> Option<&str> {
    split_share(filter).ok().map(|(_, filter)| filter)
}

/// Return the group's name, if the filter is shared, and the filter itself.
pub(crate) fn split_share(filter: &str) -> Result<(Option<&str>, &str), NoName> {
    match filter.strip_prefix(SHARE) {
        None => Ok((None, filter)),
        Some(rest) => match rest.split_once('/') {
            Some((name, filter)) if !name.is_empty() && !has_wildcards(name) => {
                Ok((Some(name), filter))
            }
            _ => Err(NoName),
        },
    }
}

/// Return the first level, and the levels after it, if there are any.
#[inline]
pub(crate) fn split_level(levels: &str) -> (&str, Option<&str>) {
    // Levels are short: a plain loop finds the slash sooner than a vectorized search does.
    match levels.bytes().position(|octet| octet == b'/') {
        Some(at) => (&levels[..at], Some(&levels[at + 1..])),
        None => (levels, None),
    }
}

fn fits(name: &str) -> bool {
    (1..=MAX_OCTETS).contains(&name.len())
        && name.bytes().filter(|&octet| octet == b'/').count() < MAX_LEVELS
}

fn wildcards_stand_well(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let alone = level.len() == 1;
        if level.contains('+') && !alone
            || level.contains('#') && !(alone && levels.peek().is_none())
        {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{covers, matches};
    use crate::Tree;

    /// All topics or filters of at most this many levels from a small alphabet.
    fn words(alphabet: &[&str], longest: usize) -> Vec<String> {
        let mut all: Vec<String> = alphabet.iter().map(|&one| one.into()).collect();
        let mut last = all.clone();
        for _ in 1..longest {
            last = last
                .iter()
                .flat_map(|one| alphabet.iter().map(move |level| format!("{one}/{level}")))
                .collect();
            all.extend(last.clone());
        }
        all
    }

    #[test]
    fn a_filter_covers_another_where_it_matches_whatever_that_matches() {
        let mut filters = words(&["a", "+", "#", "$a"], 3);
        filters.retain(|one| crate::valid_filter(one));
        let topics = words(&["a", "b", "$a"], 4);
        for wide in &filters {
            for narrow in &filters {
                let mut matched = topics.iter().filter(|topic| matches(narrow, topic));
                let holds = matched.all(|topic| matches(wide, topic));
                assert_eq!(covers(wide, narrow), holds, "{wide} {narrow}");
            }
        }
    }

    #[test]
    fn a_filter_matches_what_the_tree_finds_by_it() {
        let filters = [
            "a/b",
            "a/+",
            "a/#",
            "#",
            "+",
            "+/b",
            "+/+/#",
            "a//b",
            "$SYS/#",
            "$SYS/+",
            "/+",
            "a/b/",
            "$share/group/a/#",
            "$share/group/#",
        ];
        let names = [
            "a/b", "a", "a/b/c", "a//b", "/b", "$SYS/a", "$SYS", "b", "a/", "/",
        ];
        for filter in filters {
            let mut tree = Tree::new();
            tree.subscribe(filter, 1, ());
            for name in names {
                let mut found = false;
                tree.matches(name, &mut |_| found = true);
                assert_eq!(matches(filter, name), found, "{filter} {name}");
            }
        }
        assert!(!matches("$share/group", "group"));
    }
}
