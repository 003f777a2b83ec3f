//! No figure is wrong: what is odd is refused, left out, or said.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod peer;

use peer::file::{File, error, notes, program, run, stopped_meanwhile, value};
use peer::{SOME, Trick, json, start};
use std::time::Instant;

const ALL: &str = "seconds = 60\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\n";

fn scenario(name: &str, group: &str) -> File {
    File::new(&format!("{name}.toml"), &format!("{ALL}{group}"))
}

#[test]
fn what_was_retained_before_may_come_in_one_piece_with_the_subscription() {
    for kind in ["load", "latency"] {
        let group = format!("kind = \"{kind}\"\ninterval_us = 1000\nmessages = 20");
        let file = scenario(&format!("retained-{kind}"), &group);
        let output = run(&start(Trick::Retained), &file, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        assert_eq!(
            (value(&output, "lost"), value(&output, "duplicates")),
            (0.0, 0.0)
        );
        assert!(notes(&output).contains("1 messages that were retained before"));
    }
}

#[test]
fn a_broker_that_takes_nothing_does_not_make_the_load_tool_late() {
    // More than sockets hold is due while it stands still for 600 ms.
    let group = "payload = 1_000_000\ninterval_us = 20000\nmessages = 60";
    let output = run(&start(Trick::Pause), &scenario("held-up", group), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert!(
        value(&output, "late_max_us") < 300_000.0,
        "{}",
        notes(&output)
    );
}

#[test]
fn a_long_message_is_no_full_queue() {
    let group = "payload = 1_000_000\ninterval_us = 50000\nmessages = 10";
    let output = run(&start(Trick::None), &scenario("long", group), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert!(
        !notes(&output).contains("receive queue"),
        "{}",
        notes(&output)
    );
}

#[test]
fn copies_that_waited_for_the_load_tool_are_said_to_have_the_stamp_of_the_last() {
    let group = "kind = \"latency\"\ninterval_us = 1000\nmessages = 1000";
    let (peer, began) = (start(Trick::None), Instant::now());
    let output = stopped_meanwhile(&peer, &scenario("waited", group), SOME, || {
        began.elapsed().as_secs_f64() > 0.2
    });
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    // All that were due then leave together, come together, and are read together.
    let told = notes(&output);
    assert!(
        told.contains("copies have the stamp of a later one"),
        "{told}"
    );
}

#[test]
fn with_a_window_a_message_has_left_by_the_kernels_stamp_too() {
    let group = "kind = \"latency\"\nwindow = 1\ninterval_us = 1000\nmessages = 50";
    let output = run(&start(Trick::None), &scenario("window", group), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    // It is due when it is written, and leaves a little later.
    assert!(value(&output, "wire_p50_us") < value(&output, "delay_p50_us"));
}

#[test]
fn messages_that_are_not_acknowledged_are_told() {
    let group = "qos = 1\ninterval_us = 1000\nmessages = 20";
    for (trick, expected) in [(Trick::None, false), (Trick::Deaf, true)] {
        let file = scenario(&format!("deaf-{trick:?}"), group);
        let output = run(&start(trick), &file, &["--patience", "0.5"]);
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        let told = notes(&output);
        let is_told = told.contains("20 messages above QoS 0 were not acknowledged");
        assert_eq!(is_told, expected, "{told}");
    }
}

#[test]
fn where_nobody_subscribes_there_is_no_share_that_came_and_a_rate_that_can_be() {
    let output = run(
        &start(Trick::None),
        &scenario("nobody", "subscribers = 0\nmessages = 5"),
        &[],
    );
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let rows = json(&output)["rows"].to_string();
    assert!(!rows.contains("\"ratio\""), "{rows}");
    assert!(
        (50.0..1000.0).contains(&value(&output, "ingress")),
        "{rows}"
    );
}

#[test]
fn a_result_says_which_broker_and_mqtt_it_was_and_the_command_line_goes_before_the_file() {
    let (one, other) = (start(Trick::None), start(Trick::None));
    let [port, others] = [&one, &other].map(|peer| peer.address.port());
    let text =
        format!("broker = 127.0.0.1\nbroker_port = {port}\nnum_messages = 3\nuser_name = file\n");
    let file = File::new("header.conf", &text);
    let named = format!("127.0.0.1:{others}");
    for (more, broker, mqtt) in [
        (&[][..], one.address.to_string(), "5"),
        (
            &["--broker", &named, "--mqtt", "3.1.1"],
            named.clone(),
            "3.1.1",
        ),
    ] {
        let words = [&["run", file.path(), "--json"], more].concat();
        let output = program(&words);
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        let told = &json(&output)["parameters"];
        assert_eq!(
            (&told["broker"], &told["mqtt"]),
            (&broker.into(), &mqtt.into())
        );
    }
    assert_eq!(other.clients.lock().unwrap().len(), 2);
}

#[test]
fn a_limit_that_cannot_be_found_is_refused_before_anything_is_searched() {
    let peer = start(Trick::None);
    let broker = peer.address.to_string();
    for (name, group, expected) in [
        ("w", "window = 9", "that have subscribers and no window"),
        (
            "s",
            "subscribers = 0",
            "that have subscribers and no window",
        ),
        ("m", "messages = 9", "leave `messages` out"),
        ("d", "interval_us = 1000000", "no message is due in a trial"),
    ] {
        let file = scenario(&format!("limit-{name}"), group);
        let words = [
            "limit",
            &broker,
            "--scenario",
            file.path(),
            "--trial",
            "0.1",
        ];
        let output = program(&words);
        let told = error(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {told}");
        assert!(told.contains(expected), "{name}: {told}");
    }
}
