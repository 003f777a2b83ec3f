//! Measures the time of a check:
//! `cargo test --release -p mqtick-access --test speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use mqtick_access::{Action, Passwords, Rules};

fn ns_each(times: u32, mut work: impl FnMut()) -> f64 {
    let once = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..times).for_each(|_| work());
        start.elapsed().as_secs_f64() / f64::from(times) * 1e9
    };
    (0..15)
        .map(|_| once(&mut work))
        .fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "prints durations"]
fn a_check_for_each_copy_costs_some_tens_of_ns() {
    let mut text = String::new();
    for user in 0..1000 {
        writeln!(text, "user device-{user}").unwrap();
        for room in 0..8 {
            writeln!(text, "topic read house/{user}/room-{room}/#").unwrap();
        }
        writeln!(
            text,
            "topic read house/+/news\ntopic deny house/{user}/private/#"
        )
        .unwrap();
    }
    let topics = Rules::parse(&text).unwrap();
    let patterns = Rules::parse("pattern read house/%u/#\npattern write from/%c/#\n").unwrap();
    for (what, rules, topic) in [
        ("no file", &Rules::open(), "house/500/room-7/light"),
        (
            "1,000 users of 10 rules, the 8th matches",
            &topics,
            "house/500/room-7/light",
        ),
        (
            "1,000 users of 10 rules, the last matches",
            &topics,
            "house/other-place/news",
        ),
        (
            "1,000 users of 10 rules, none matches",
            &topics,
            "garden/500/room-7/light",
        ),
        (
            "one rule",
            &Rules::parse("user device-500\ntopic house/#").unwrap(),
            "house/5",
        ),
        (
            "an unknown user",
            &Rules::parse("user bob\ntopic house/#").unwrap(),
            "house/5",
        ),
        (
            "2 patterns, the first matches",
            &patterns,
            "house/device-500/room-7/light",
        ),
    ] {
        let ns = ns_each(2_000, || {
            let user = black_box(Some("device-500"));
            black_box(rules.may(
                user,
                black_box("client-500"),
                Action::Read,
                black_box(topic),
            ));
        });
        println!("{ns:7.1} ns  {what}");
    }
}

#[test]
#[ignore = "prints durations"]
fn a_password_check_costs_the_same_for_known_and_unknown_users() {
    let passwords = Passwords::parse(include_str!("files/mixed.passwd")).unwrap();
    let long = "x".repeat(4096);
    for (user, password) in [
        ("alice", "correct horse"),
        ("alice", "wrong horse"),
        ("old", "from 1.6"),
        ("old", "wrong"),
        ("nobody", "wrong"),
        ("nobody", &long),
    ] {
        let ns = ns_each(3, || {
            black_box(passwords.check(black_box(user), black_box(password.as_bytes())));
        });
        println!("{:7.1} us  {user}, {} octets", ns / 1e3, password.len());
    }
}
