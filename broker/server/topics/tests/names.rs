//! Valid and invalid topics and filters.

use mqtick_topics::{MAX_LEVELS, MAX_OCTETS, valid_filter, valid_topic};

#[test]
fn a_topic_has_no_wildcard_and_no_nul() {
    for topic in [
        "a",
        "/",
        "//",
        "a b/ü/$x",
        "$SYS/broker",
        "a/",
        "$share/a/b",
        "\u{1}",
    ] {
        assert!(valid_topic(topic), "{topic}");
    }
    for topic in ["", "a/+", "a/#", "a+", "#", "a\0b"] {
        assert!(!valid_topic(topic), "{topic:?}");
    }
}

#[test]
fn a_wildcard_is_a_whole_level_and_the_number_sign_the_last() {
    for filter in [
        "a", "#", "+", "a/#", "+/+", "/+", "+/", "/#", "+/a/#", "$SYS/#", "a//b",
    ] {
        assert!(valid_filter(filter), "{filter}");
    }
    for filter in [
        "", "a#", "#a", "##", "#/a", "a/#/b", "#/", "a+", "+a", "++", "a/+b/c", "\0",
    ] {
        assert!(!valid_filter(filter), "{filter:?}");
    }
}

#[test]
fn a_shared_subscription_has_a_name_and_a_filter() {
    for filter in [
        "$share/g/a",
        "$share/g/#",
        "$share/g//",
        "$share/g h/+/a",
        "$share",
        "$sharer/",
    ] {
        assert!(valid_filter(filter), "{filter}");
    }
    for filter in [
        "$share/",
        "$share//a",
        "$share/g",
        "$share/g/",
        "$share/+/a",
        "$share/g#/a",
        "$share/#",
        "$share/g/a#",
        "$share/g/#/a",
    ] {
        assert!(!valid_filter(filter), "{filter}");
    }
}

#[test]
fn names_are_bounded_in_octets_and_levels() {
    let long = "a".repeat(MAX_OCTETS);
    assert!(valid_topic(&long) && valid_filter(&long));
    assert!(!valid_topic(&(long.clone() + "a")) && !valid_filter(&(long + "a")));
    let deep = vec!["+"; MAX_LEVELS].join("/");
    assert!(valid_filter(&deep) && valid_topic(&deep.replace('+', "a")));
    assert!(!valid_filter(&(deep.clone() + "/+")) && !valid_topic(&(deep.replace('+', "a") + "/")));
}
