//! Retained messages that match a filter.

mod common;

use std::collections::BTreeMap;

use mqtick_topics::Retained;
use proptest::prelude::*;

fn matching(retained: &Retained<u32>, filter: &str) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    retained.matching(filter, &mut |topic, message| {
        found.push((topic.to_owned(), *message))
    });
    found
}

fn retained(topics: &[&str]) -> Retained<u32> {
    let mut retained = Retained::new();
    for (number, topic) in (0..).zip(topics) {
        retained.set(topic, number);
    }
    retained
}

fn topics(retained: &Retained<u32>, filter: &str) -> Vec<String> {
    matching(retained, filter)
        .into_iter()
        .map(|(topic, _)| topic)
        .collect()
}

#[test]
fn a_message_replaces_the_one_before() {
    let mut kept = retained(&["a", "a/b"]);
    assert_eq!(kept.set("a", 7), Some(0));
    assert_eq!(
        (kept.get("a"), kept.get("b"), kept.len()),
        (Some(&7), None, 2)
    );
    assert_eq!((kept.remove("a"), kept.remove("a")), (Some(7), None));
    assert_eq!(kept.iter().collect::<Vec<_>>(), [("a/b", &1)]);
}

#[test]
fn what_is_below_a_topic_comes_directly_after_it() {
    let kept = retained(&["a b", "a/b", "a!", "a", "a/b/c", "a\u{1}", "a/", "b"]);
    let order: Vec<_> = kept.iter().map(|(topic, _)| topic).collect();
    assert_eq!(
        order,
        ["a", "a/", "a/b", "a/b/c", "a\u{1}", "a b", "a!", "b"]
    );
    assert_eq!(topics(&kept, "a/#"), ["a", "a/", "a/b", "a/b/c"]);
    assert_eq!(topics(&kept, "a/+"), ["a/", "a/b"]);
}

#[test]
fn a_wildcard_in_front_does_not_match_a_dollar_topic() {
    let kept = retained(&["#x", "$SYS/a", "$", "$$/b", "%", "a/$b", "a/b"]);
    assert_eq!(topics(&kept, "#"), ["#x", "%", "a/$b", "a/b"]);
    assert_eq!(topics(&kept, "+/+"), ["a/$b", "a/b"]);
    assert_eq!(topics(&kept, "+/#"), ["#x", "%", "a/$b", "a/b"]);
    assert_eq!(topics(&kept, "$SYS/+"), ["$SYS/a"]);
    assert_eq!(topics(&kept, "$/#"), ["$"]);
}

#[test]
fn a_filter_that_is_not_valid_matches_nothing() {
    let kept = retained(&["a", "a/b"]);
    for filter in [
        "",
        "#/a",
        "a#",
        &vec!["+"; 32_768].join("/"),
        "$share/g/a",
        "$share/g",
    ] {
        assert!(topics(&kept, filter).is_empty());
    }
}

fn level() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "", "$s", "ab", "$"]).prop_map(str::to_owned),
        1 => "[^/+#\0]{0,3}",
    ]
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("not empty", |topic| !topic.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let level = prop_oneof![2 => level(), 2 => Just("+".to_owned())];
    (prop::collection::vec(level, 0..5), any::<bool>())
        .prop_map(|(mut levels, all)| {
            levels.extend(all.then(|| "#".to_owned()));
            levels.join("/")
        })
        .prop_filter("not empty", |filter| !filter.is_empty())
}

proptest! {
    #[test]
    fn a_filter_finds_what_the_standard_says(
        changes in prop::collection::vec((topic(), prop::option::weighted(0.8, 0..9u32)), 1..100),
        filters in prop::collection::vec(filter(), 1..20),
    ) {
        let (mut kept, mut naive) = (Retained::new(), BTreeMap::new());
        for (topic, message) in changes {
            match message {
                Some(message) => prop_assert_eq!(
                    kept.set(&topic, message), naive.insert(topic, message)
                ),
                None => prop_assert_eq!(kept.remove(&topic), naive.remove(&topic)),
            }
        }
        prop_assert_eq!(kept.len(), naive.len());
        for filter in filters {
            let all: Vec<_> = kept.iter().map(|(topic, one)| (topic.to_owned(), *one)).collect();
            let wanted: Vec<_> =
                all.into_iter().filter(|(topic, _)| common::matches(&filter, topic)).collect();
            prop_assert_eq!(matching(&kept, &filter), wanted, "{}", filter);
        }
        prop_assert_eq!(kept.iter().map(|(t, m)| (t.to_owned(), *m)).collect::<BTreeMap<_, _>>(), naive);
    }
}
