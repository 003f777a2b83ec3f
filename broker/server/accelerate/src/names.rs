//! Topic filters.

/// Whether a filter has wildcards.
#[must_use]
pub fn has_wildcards(filter: &str) -> bool {
    filter.contains(['+', '#'])
}

/// Whether a text is a valid filter.
#[must_use]
pub fn is_filter(text: &str) -> bool {
    let levels = text.split('/').count();
    let is_good = |(at, level): (usize, &str)| match level {
        "+" => true,
        "#" => at + 1 == levels,
        level => !level.contains(['+', '#', '\0']),
    };
    !text.is_empty() && text.split('/').enumerate().all(is_good)
}

/// Whether a filter matches a topic name (MQTT 3.1.1, 4.7).
#[must_use]
pub fn matches(filter: &str, name: &str) -> bool {
    if name.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut name) = (filter.split('/'), name.split('/'));
    loop {
        match (filter.next(), name.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_filter_matches_as_mqtt_has_it() {
        for (filter, name) in [
            ("a/b", "a/b"),
            ("a/+", "a/b"),
            ("a/#", "a"),
            ("a/#", "a/b/c"),
            ("#", "a/b"),
            ("+/+", "/b"),
            ("$SYS/#", "$SYS/x"),
        ] {
            assert!(matches(filter, name), "{filter} {name}");
        }
        for (filter, name) in [
            ("a/b", "a/b/c"),
            ("a/+", "a"),
            ("a/+", "a/b/c"),
            ("#", "$SYS"),
            ("+/x", "$SYS/x"),
            ("a/b", "a"),
        ] {
            assert!(!matches(filter, name), "{filter} {name}");
        }
    }
}
