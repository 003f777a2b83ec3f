//! No figure is wrong: what is odd is refused, left out, or said.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod peer;

use peer::file::{File, error, good, notes, program, run, stopped_meanwhile, value};
use peer::{SOME, Trick, json, row, start};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread::spawn;
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
        let output = good(&start(Trick::Retained), &file, &[]);
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
    let output = good(&start(Trick::Pause), &scenario("held-up", group), &[]);
    assert!(
        value(&output, "late_max_us") < 300_000.0,
        "{}",
        notes(&output)
    );
}

#[test]
fn a_long_message_is_no_full_queue() {
    let group = "payload = 1_000_000\ninterval_us = 50000\nmessages = 10";
    let output = good(&start(Trick::None), &scenario("long", group), &[]);
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
    let output = good(&start(Trick::None), &scenario("window", group), &[]);
    // It is due when it is written, and leaves a little later.
    assert!(value(&output, "wire_p50_us") < value(&output, "delay_p50_us"));
}

#[test]
fn messages_that_are_not_acknowledged_are_told() {
    let group = "qos = 1\ninterval_us = 1000\nmessages = 20";
    for (trick, expected) in [(Trick::None, false), (Trick::Deaf, true)] {
        let file = scenario(&format!("deaf-{trick:?}"), group);
        let output = good(&start(trick), &file, &["--patience", "0.5"]);
        let told = notes(&output);
        let is_told = told.contains("20 messages above QoS 0 were not acknowledged");
        assert_eq!(is_told, expected, "{told}");
    }
}

#[test]
fn where_nobody_subscribes_there_is_no_share_that_came_and_a_rate_that_can_be() {
    let output = good(
        &start(Trick::None),
        &scenario("nobody", "subscribers = 0\nmessages = 5"),
        &[],
    );
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

#[test]
fn a_message_left_when_its_own_last_octet_did() {
    // Both are due at once. The second cannot leave before the broker has read the first, which it
    // keeps for 0.3 s; then it delivers both.
    let group = "kind = \"latency\"\npayload = 60000\ninterval_us = 1\nmessages = 2";
    let output = good(&start(Trick::Hold), &scenario("hold", group), &[]);
    assert_eq!(value(&output, "unstamped"), 0.0);
    assert!(value(&output, "wire_max_us") >= 300_000.0);
}

#[test]
fn what_a_socket_has_not_taken_is_not_written() {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let broker = door.local_addr().unwrap().to_string();
    let (is_over, over) = channel::<()>();
    let reader = spawn(move || {
        let mut publisher = door.accept().unwrap().0;
        let _ = publisher.read(&mut [0; 100]).unwrap();
        publisher.write_all(&[0x20, 2, 0, 0]).unwrap();
        let _ = over.recv();
        let mut octets = Vec::new();
        publisher.read_to_end(&mut octets).unwrap();
        octets.len()
    });
    // 100 times as much as sockets hold.
    let text = "seconds = 0.5\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\ninterval_us = 1\n\
                subscribers = 0\ntopic = \"t\"\npayload = 1000\n";
    let file = File::new("written.toml", text);
    let words = [
        "run",
        file.path(),
        "--broker",
        &broker,
        "--patience",
        "0.2",
        "--json",
    ];
    let output = program(&words);
    drop(is_over);
    let packet = 3 + 2 + 1 + 1000;
    let whole = reader.join().unwrap() / packet;
    assert_eq!(
        (0.5 * value(&output, "ingress")).round(),
        whole as f64,
        "{}",
        error(&output)
    );
}

#[test]
fn a_copy_that_comes_again_in_a_later_trial_was_not_lost_in_its_own() {
    let group = "interval_us = 1000\nmessages = 20";
    for kind in ["load", "latency"] {
        let file = scenario(
            &format!("again-{kind}"),
            &format!("{group}\nkind = \"{kind}\""),
        );
        let output = good(&start(Trick::Again), &file, &["--repeats", "2"]);
        assert_eq!(row(&json(&output), "duplicates", None), [0.0, 1.0]);
        assert!(
            !notes(&output).contains("after their trial"),
            "{}",
            notes(&output)
        );
    }
}

#[test]
fn a_csv_has_each_copy_of_each_message_that_it_has_in_all_repeats() {
    let text = "kind = \"latency\"\nsubscribers = 3\nmessages = 5\n[[group]]\nname = \"load\"\n\
                messages = 7";
    let csv = File::new("repeats.csv", "");
    std::fs::remove_file(&csv.0).unwrap();
    let more = ["--repeats", "2", "--csv", csv.path()];
    good(&start(Trick::None), &scenario("repeats", text), &more);
    let written = std::fs::read_to_string(&csv.0).unwrap();
    let of = |letter: &str| written.lines().filter(|line| line.contains(letter)).count();
    assert_eq!((of(",S,"), of(",R,")), (10, 30));
    // Copies of the load have no time of their own.
    let file = scenario("no-times", "messages = 7");
    let none = run(&start(Trick::None), &file, &["--csv", "/nowhere.csv"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(error(&none).contains("--csv"), "{}", error(&none));
}

#[test]
fn a_percentile_of_too_few_values_is_left_out_or_said_to_be_the_largest() {
    let of = |messages: usize| {
        let group = format!("kind = \"latency\"\ninterval_us = 100\nmessages = {messages}");
        let file = scenario(&format!("few-{messages}"), &group);
        let output = run(&start(Trick::None), &file, &[]);
        let told = notes(&output).contains("p99 of 99 values is the largest of them");
        (
            json(&output)["rows"].to_string().contains("wire_p999_us"),
            told,
        )
    };
    assert_eq!(
        [of(99), of(999), of(1000)],
        [(false, true), (false, false), (true, false)]
    );
}
