//! Access files and what they allow. `mosquitto.rs` compares this with Mosquitto.
#![allow(clippy::unwrap_used)]

use mqtick_access::Action::{Read, Subscribe, Write};
use mqtick_access::{Action, Rules};

fn rules(text: &str) -> Rules {
    Rules::parse(text).unwrap()
}

fn refused(text: &str) -> String {
    Rules::parse(text).unwrap_err().to_string()
}

/// Whether this file allows this action to this user with the client identifier `c1`.
fn may(text: &str, user: &str, action: Action, topic: &str) -> bool {
    rules(text).may(Some(user), "c1", action, topic)
}

#[test]
fn without_a_file_everything_is_allowed_and_with_an_empty_one_nothing() {
    for action in [Read, Write] {
        assert!(Rules::open().may(None, "c1", action, "$SYS/x"));
        assert!(Rules::open().may(Some("a#"), "+", action, "x"));
        assert!(!rules("").may(None, "c1", action, "x"));
        assert!(!rules("# nothing\n").may(Some("bob"), "c1", action, "x"));
    }
}

#[test]
fn a_filter_is_denied_where_nothing_that_it_matches_may_be_read() {
    let text = "user bob\ntopic read a/+/c\ntopic write w/#\ntopic deny a/no/#\ntopic read $SYS/#\n\
                pattern read u/%u/#\npattern read c/%c";
    for filter in [
        "#", "+/#", "a/#", "a/+/c", "+/x/+", "a/x/c", "u/bob", "u/+/x", "c/c1", "$SYS/x",
    ] {
        assert!(may(text, "bob", Subscribe, filter), "{filter}");
    }
    for filter in [
        "b", "a", "a/+", "a/+/d", "a/no/c", "w/#", "u/eve/#", "c/c2", "+", "$x/#",
    ] {
        assert!(!may(text, "bob", Subscribe, filter), "{filter}");
    }
    assert!(!may(
        "user bob\ntopic deny #\ntopic read a",
        "bob",
        Subscribe,
        "#"
    ));
    assert!(Rules::open().may(None, "c1", Subscribe, "x"));
}

#[test]
fn lines_before_the_first_user_are_for_clients_without_a_name() {
    let text = "topic open\nuser bob\ntopic bobs\n";
    assert!(rules(text).may(None, "c1", Write, "open"));
    assert!(
        rules(text).may(Some(""), "c1", Write, "open"),
        "an empty name is none"
    );
    assert!(!rules(text).may(None, "c1", Write, "bobs"));
    assert!(may(text, "bob", Write, "bobs"));
    assert!(!may(text, "bob", Write, "open"));
    assert!(!may(text, "eve", Write, "open"));
}

#[test]
fn a_line_says_read_write_readwrite_or_deny_and_readwrite_if_nothing() {
    let text =
        "user bob\ntopic read r\ntopic write w\ntopic readwrite rw\ntopic d\ntopic deny rw/no";
    for (topic, read, write) in [
        ("r", true, false),
        ("w", false, true),
        ("rw", true, true),
        ("d", true, true),
    ] {
        assert_eq!(may(text, "bob", Read, topic), read, "{topic}");
        assert_eq!(may(text, "bob", Write, topic), write, "{topic}");
    }
}

#[test]
fn deny_comes_first_among_the_lines_of_one_user_wherever_it_stands() {
    for text in [
        "user b\ntopic #\ntopic deny x/#",
        "user b\ntopic deny x/#\ntopic #",
    ] {
        assert!(may(text, "b", Read, "y"));
        assert!(!may(text, "b", Read, "x"));
        assert!(!may(text, "b", Write, "x/y"));
    }
    let two_parts = "user b\ntopic x\nuser c\ntopic x\nuser b\ntopic deny x";
    assert!(!may(two_parts, "b", Read, "x"));
    assert!(may(two_parts, "c", Read, "x"));
}

#[test]
fn a_users_own_lines_are_asked_before_the_patterns() {
    assert!(may("user b\ntopic x\npattern deny x", "b", Read, "x"));
    assert!(!may("user b\ntopic deny x\npattern x", "b", Read, "x"));
    assert!(!may("pattern #\npattern deny x", "b", Read, "x"));
}

#[test]
fn patterns_are_for_everybody_with_the_clients_names_put_in() {
    let text = "user eve\ntopic only\npattern read of/%u/#\npattern write from/%c\npattern %u-%c";
    let rules = rules(text);
    assert!(rules.may(Some("bob"), "c1", Read, "of/bob"));
    assert!(rules.may(Some("bob"), "c1", Read, "of/bob/x"));
    assert!(!rules.may(Some("bob"), "c1", Read, "of/bobby"));
    assert!(!rules.may(Some("bob"), "c1", Write, "of/bob"));
    assert!(rules.may(Some("bob"), "c1", Write, "from/c1"));
    assert!(rules.may(None, "c1", Write, "from/c1"), "needs no user");
    assert!(!rules.may(None, "c1", Read, "of/"), "has no user to put in");
    assert!(!rules.may(None, "c1", Read, "of/%u"));
    assert!(
        may("pattern #\npattern deny x%u", "", Read, "x"),
        "nor where it denies"
    );
    assert!(rules.may(Some("bob"), "c1", Write, "bob-c1"));
    assert!(!rules.may(Some("bob"), "c1", Write, "bob-c2"));
}

#[test]
fn names_in_topic_lines_and_lone_percents_mean_themselves() {
    assert!(may("user b\ntopic %u", "b", Read, "%u"));
    assert!(!may("user b\ntopic %u", "b", Read, "b"));
    assert!(may("pattern a%/%%u/%", "b", Read, "a%/%b/%"));
    assert!(may("pattern x%c/%d", "b", Read, "xc1/%d"));
}

#[test]
fn a_name_with_a_wildcard_in_it_is_allowed_nothing_by_patterns() {
    let text = "user +\ntopic own\npattern %u/x\npattern all";
    for name in ["+", "#", "a+", "a#b"] {
        assert!(!rules(text).may(Some(name), "c1", Read, "z/x"), "{name}");
        assert!(!rules(text).may(Some("bob"), name, Read, "bob/x"), "{name}");
        assert!(!rules(text).may(Some(name), "c1", Read, "all"), "{name}");
    }
    assert!(rules(text).may(Some("+"), "c1", Read, "own"));
}

#[test]
fn a_name_with_a_slash_in_it_does_not_reach_into_anothers_tree() {
    let text = "pattern %u/#\npattern c/%c\npattern deny %u/secret\npattern open/#";
    let rules = rules(text);
    assert!(!rules.may(Some("bob/private"), "c1", Read, "bob/private/x"));
    assert!(!rules.may(Some("bob"), "d/e", Read, "c/d/e"));
    assert!(
        rules.may(Some("bob"), "d/e", Read, "bob/x"),
        "it does not use the client id"
    );
    assert!(rules.may(Some("a/b"), "d/e", Read, "open/x"));
    assert!(
        !rules.may(Some("open/a"), "c1", Read, "open/a/secret"),
        "but what denies holds"
    );
}

#[test]
fn topics_that_begin_with_a_dollar_are_matched_only_by_lines_that_do() {
    for wide in ["topic #", "topic +/x", "topic +/#"] {
        assert!(
            !may(&format!("user b\n{wide}"), "b", Read, "$SYS/x"),
            "{wide}"
        );
        assert!(
            !may(&wide.replace("topic", "pattern"), "b", Read, "$SYS/x"),
            "{wide}"
        );
    }
    assert!(may("user b\ntopic $SYS/#", "b", Read, "$SYS/x"));
    assert!(may("pattern $SYS/%u/#", "b", Read, "$SYS/b/x"));
    assert!(
        !may("pattern %u/#", "$SYS", Read, "$SYS/x"),
        "a name does not make it reserved"
    );
    assert!(may(
        "pattern $d/#\npattern deny #\npattern deny +/x",
        "b",
        Read,
        "$d/x"
    ));
    assert!(
        !may("pattern $d/#\npattern deny %u/#", "$d", Read, "$d/x"),
        "but what denies holds"
    );
}

#[test]
fn wildcards_match_as_in_subscriptions() {
    for (filter, matched, not) in [
        (
            "a/#",
            &["a", "a/", "a/b", "a/b/c"][..],
            &["ab", "b/a", "/a"][..],
        ),
        ("a/+", &["a/", "a/b"], &["a", "a/b/c"]),
        ("a//#", &["a/", "a//", "a//b"], &["a", "a/b"]),
        ("+", &["a"], &["a/", "/a", "/"]),
        ("+/+", &["a/", "/", "/a"], &["a", "a/b/c"]),
        ("/#", &["/", "/a"], &["a", "a/"]),
        ("/+", &["/", "/a"], &["a", "//"]),
        ("a/+/#", &["a/", "a/b", "a/b/c"], &["a", "b/a"]),
        ("+/b/+", &["a/b/", "/b/c"], &["a/b", "a/c/b"]),
        ("#", &["a", "/", "a/b"], &["$a"]),
    ] {
        for topic in matched {
            assert!(
                may(&format!("user b\ntopic {filter}"), "b", Read, topic),
                "{filter} {topic}"
            );
        }
        for topic in not {
            assert!(
                !may(&format!("user b\ntopic {filter}"), "b", Read, topic),
                "{filter} {topic}"
            );
        }
    }
}

#[test]
fn blanks_crlf_and_a_missing_last_newline_do_not_matter() {
    for text in [
        "user bob\r\ntopic read a b\r\n",
        "   user   bob  \n\n  topic   read   a b\t \n   \n",
        "user bob\ntopic read a b",
    ] {
        assert!(may(text, "bob", Read, "a b"), "{text:?}");
    }
    assert!(
        may("user big bob # 1\ntopic a", "big bob # 1", Read, "a"),
        "no comments at an end"
    );
    assert!(
        may("user b\ntopic read", "b", Write, "read"),
        "a topic that is called read"
    );
}

#[test]
fn what_cannot_be_used_is_refused_with_its_line_and_a_sentence() {
    for (line, why) in [
        ("user", "names no user"),
        ("user   ", "names no user"),
        ("topic", "names no topic"),
        ("pattern ", "names no topic"),
        ("topics a", "\"topics\" is none of"),
        ("Topic a", "none of"),
        ("\u{feff}topic a", "none of"),
        ("  # indented", "none of"),
        ("topic readonly a", "\"readonly\" is none of read"),
        ("topic READ a", "none of read"),
        ("topic a b", "none of read"),
        ("topic a+", "whole level"),
        ("topic a/#/b", "whole level"),
        ("topic read #a", "whole level"),
        ("pattern %u+", "whole level"),
        ("topic\ta", "tab"),
        ("topic read a\0b", "U+0000"),
        ("topic a\rtopic b", "U+000D"),
    ] {
        let said = refused(&format!("user bob\n{line}\n"));
        assert!(
            said.starts_with("line 2: ") && said.contains(why),
            "{line}: {said}"
        );
    }
    for keyword in ["topic ", "topic read ", "", "user "] {
        let long = format!("{keyword}{}", "a".repeat(1 << 20));
        match Rules::parse(&long) {
            Ok(_) => assert_eq!(keyword, "user "),
            Err(error) => assert!(error.to_string().len() < 200, "{keyword}"),
        }
    }
}

#[test]
fn a_file_of_many_lines_for_one_user_is_read_at_once() {
    let text = "user bob\ntopic a/#\n".to_string() + &"topic deny a/b\n".repeat(200_000);
    let rules = rules(&text);
    assert!(rules.may(Some("bob"), "c1", Read, "a/c"));
    assert!(!rules.may(Some("bob"), "c1", Read, "a/b"));
}

#[test]
fn damaged_files_are_read_or_refused_and_a_refusal_is_short() {
    let good = "user bob\ntopic read a/+/%u/#\npattern deny $x/%c\n# \u{e4}\n\ntopic #";
    for at in 0..good.len() {
        for octet in [0, b'\n', b' ', b'#', b'+', b'/', b'%', b'$', b'u', 0xff] {
            let mut octets = good.as_bytes().to_vec();
            octets[at] = octet;
            match Rules::parse(&String::from_utf8_lossy(&octets)) {
                Ok(rules) => {
                    let _ = rules.may(Some("bob"), "c1", Write, "a/b/bob/c");
                }
                Err(error) => assert!(error.line <= 7 && error.to_string().len() < 200),
            }
        }
    }
}
