//! The program as its user sees it, with brokers that are faithful or not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod peer;

use peer::sensor::start_sensor_broker;
use peer::{Peer, SOME, Trick, start};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

fn program(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mqtick-load"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

fn measure(peer: &Peer, line: &str) -> Output {
    program(&format!("{line} --broker {} --json", peer.address))
        .output()
        .unwrap()
}

/// The values of one row: one a repeat.
fn row(output: &Output, key: &str, who: &str) -> Vec<f64> {
    peer::row(&peer::json(output), key, Some(who))
}

fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn counts(output: &Output, who: &str) -> [Vec<f64>; 3] {
    ["lost", "duplicates", "disorder"].map(|key| row(output, key, who))
}

#[test]
fn one_to_one_topics_are_measured_beside_the_floor_in_both_versions_and_qualities() {
    for line in [
        "--mqtt 3.1.1 --qos 0",
        "--mqtt 3.1.1 --qos 1",
        "--mqtt 5 --qos 0",
        "--mqtt 5 --qos 1",
    ] {
        let peer = start(Trick::None);
        let line = format!(
            "pairs --pairs 3 --window 64 --burst 8 --seconds 0.05 --repeats 2 --floor --threads 2 \
             {line} --broker-pid {}",
            std::process::id()
        );
        let output = measure(&peer, &line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", error(&output));
        for who in ["broker", "floor"] {
            assert_eq!(
                counts(&output, who),
                [vec![0.0; 2], vec![0.0; 2], vec![0.0; 2]],
                "{line}"
            );
            assert!(row(&output, "rate", who).iter().all(|rate| *rate > 0.0));
            assert!(row(&output, "cost_ns", who).iter().all(|cost| *cost > 0.0));
            assert!(row(&output, "pss_kib", who).iter().all(|kib| *kib > 0.0));
        }
        assert_eq!(row(&output, "cost_ns", "ratio").len(), 2);
    }
}

#[test]
fn a_fan_out_is_measured_beside_the_floor_in_both_versions_and_qualities() {
    for line in [
        "--mqtt 3.1.1 --qos 0",
        "--mqtt 3.1.1 --qos 1",
        "--mqtt 5 --qos 0",
        "--mqtt 5 --qos 1",
    ] {
        let peer = start(Trick::None);
        let line =
            format!("fanout --subscribers 5 --messages 10 --repeats 2 --floor --threads 3 {line}");
        let output = measure(&peer, &line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", error(&output));
        for who in ["broker", "floor"] {
            assert_eq!(
                counts(&output, who),
                [vec![0.0; 2], vec![0.0; 2], vec![0.0; 2]],
                "{line}"
            );
            for key in ["first_p50_us", "skew_p50_us", "skew_max_us", "delay_p99_us"] {
                assert!(row(&output, key, who).iter().all(|us| *us > 0.0), "{key}");
            }
        }
        assert_eq!(row(&output, "skew_p50_us", "ratio").len(), 2);
    }
}

#[test]
fn a_fan_out_over_udp_is_measured_beside_one_system_call_for_all_copies() {
    let mut served = program("floor --udp --until-eof")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut place = String::new();
    BufReader::new(served.stdout.take().unwrap())
        .read_line(&mut place)
        .unwrap();
    for (flags, key) in [("", "skew_p50_us"), ("--rate 1000", "sent_p50_us")] {
        let line = format!(
            "fanout --udp --subscribers 20 --messages 10 --repeats 2 --floor --json {flags} \
             --broker {place}"
        );
        let output = program(&line).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        for who in ["broker", "floor"] {
            assert_eq!(
                counts(&output, who),
                [vec![0.0; 2], vec![0.0; 2], vec![0.0; 2]]
            );
            assert!(row(&output, key, who).iter().all(|us| *us > 0.0));
        }
    }
    drop(served.stdin.take());
    served.wait().unwrap();
}

#[test]
fn a_fan_out_over_mqtt_sn_is_measured_whatever_id_each_subscriber_has() {
    for (loses, lost) in [(false, 0.0), (true, 4.0)] {
        let address = start_sensor_broker(loses);
        let line = "fanout --sn --subscribers 4 --messages 10 --repeats 2 --floor --patience 0.3";
        let output = program(&format!("{line} --broker {address} --json"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        assert_eq!(row(&output, "lost", "broker"), [lost; 2]);
        assert_eq!(row(&output, "lost_in_all", "broker"), [3.0 * lost]);
        assert_eq!(row(&output, "lost", "floor"), [0.0; 2]);
        assert_eq!(row(&output, "duplicates", "broker"), [0.0; 2]);
        assert!(row(&output, "skew_p50_us", "broker")[0] > 0.0);
    }
}

#[test]
fn messages_at_a_rate_and_in_bursts_have_figures_of_their_own() {
    let address = start_sensor_broker(false);
    for (flags, key) in [("--rate 1000", "sent_mean_us"), ("--burst 5", "burst_rate")] {
        let line = "fanout --sn --subscribers 2 --messages 20 --repeats 1";
        let output = program(&format!("{line} {flags} --broker {address} --json"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        assert!(row(&output, key, "broker")[0] > 0.0, "{key}");
        assert_eq!(row(&output, "lost", "broker"), [0.0]);
    }
}

#[test]
fn it_warms_up_until_standard_input_ends() {
    let address = start_sensor_broker(false);
    let line = format!(
        "fanout --sn --subscribers 1 --messages 2 --repeats 1 --until-eof --json --broker {address}"
    );
    let mut run = program(&line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(run.try_wait().unwrap(), None);
    drop(run.stdin.take());
    let output = run.wait_with_output().unwrap();
    assert_eq!(row(&output, "lost", "broker"), [0.0]);
}

#[test]
fn copies_that_are_lost_doubled_or_late_are_counted() {
    // Blocks of 20, the first of which does not count: two tenth messages each.
    let line = "fanout --subscribers 3 --messages 20 --repeats 2 --rate 500 --patience 0.5";
    for (trick, place) in [(Trick::Lose, 0), (Trick::Twice, 1), (Trick::Late, 2)] {
        let output = measure(&start(trick), line);
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        let found = counts(&output, "broker");
        let mut expected = [vec![0.0; 2], vec![0.0; 2], vec![0.0; 2]];
        expected[place] = vec![2.0; 2];
        if trick == Trick::Late {
            // The last tenth message of a block comes with the first of the next.
            expected = [vec![1.0; 2], vec![0.0; 2], vec![1.0; 2]];
        }
        assert_eq!(found, expected, "{trick:?}");
    }
}

#[test]
fn the_windows_of_pairs_go_on_after_a_loss_and_count_it() {
    for (trick, key) in [
        (Trick::Lose, "lost"),
        (Trick::Twice, "duplicates"),
        (Trick::Late, "disorder"),
    ] {
        let line = "pairs --window 64 --burst 8 --seconds 0.1 --repeats 1 --patience 0.3";
        let output = measure(&start(trick), line);
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        assert!(row(&output, key, "broker")[0] >= 2.0, "{trick:?}");
    }
}

#[test]
fn a_delay_counts_from_when_a_message_was_due() {
    // Message 20 is the first after warming up; 0.6 s later all 50 are overdue, the last by 0.1 s.
    let line = "fanout --subscribers 2 --messages 50 --repeats 1 --rate 100";
    let output = measure(&start(Trick::Pause), line);
    assert!(
        row(&output, "delay_p50_us", "broker")[0] > 300_000.0,
        "{}",
        error(&output)
    );
    assert_eq!(row(&output, "lost", "broker"), [0.0]);
}

#[test]
fn the_mean_places_show_whether_somebody_is_always_served_first() {
    let line = "fanout --subscribers 5 --messages 20 --repeats 1";
    let places = |trick| {
        let output = measure(&start(trick), line);
        row(&output, "place_spread", "broker")
    };
    assert_eq!(places(Trick::None), [100.0]);
    assert_eq!(places(Trick::Alternate), [0.0]);
}

#[test]
fn the_result_says_whose_stamps_they_are() {
    for (stamps, text) in [
        (
            "kernel",
            "broker: stamps: the kernel's, at receipt (SO_TIMESTAMPNS)",
        ),
        ("clock", "broker: stamps: the clock after each receive"),
    ] {
        let line = format!("fanout --subscribers 3 --messages 5 --repeats 1 --stamps {stamps}");
        let output = measure(&start(Trick::None), &line);
        assert_eq!(row(&output, "lost", "broker"), [0.0]);
        assert!(
            String::from_utf8(output.stdout).unwrap().contains(text),
            "{stamps}"
        );
    }
}

#[test]
fn a_copy_in_other_octets_is_still_known() {
    for command in [
        "fanout --subscribers 2 --messages 10",
        "pairs --seconds 0.05 --window 8 --burst 2",
    ] {
        for qos in [0, 1] {
            let line = format!("{command} --repeats 1 --mqtt 5 --qos {qos}");
            let output = measure(&start(Trick::Properties), &line);
            assert_eq!(output.status.code(), Some(0), "{}", error(&output));
            assert_eq!(counts(&output, "broker"), [[0.0], [0.0], [0.0]]);
        }
    }
}

#[test]
fn sessions_that_are_kept_are_removed_at_the_end_even_of_a_run_that_fails() {
    for (trick, code) in [(Trick::None, 0), (Trick::LateGarbage, 1)] {
        let peer = start(trick);
        let line = "pairs --persistent --qos 1 --window 8 --burst 1 --seconds 0.1 --repeats 1";
        assert_eq!(measure(&peer, line).status.code(), Some(code));
        let clients = peer.clients.lock().unwrap();
        let wishes = clients.iter().filter(|(name, _)| name.ends_with("sub0"));
        let clean: Vec<bool> = wishes.map(|(_, clean)| *clean).collect();
        assert_eq!(clean, [false, true], "{trick:?}");
    }
}

#[test]
fn what_a_broker_does_wrong_is_told_in_a_sentence() {
    for (trick, command, text) in [
        (
            Trick::Refuse(0x87),
            "",
            "refused the connection with reason 0x87 (not authorised",
        ),
        (
            Trick::Close,
            "",
            "sub0 of the broker: the broker closed the connection instead of sending CONNACK.",
        ),
        (
            Trick::Silence,
            "--patience 0.2",
            "waiting for CONNACK: the broker did not send it in time.",
        ),
        (
            Trick::Dribble,
            "--patience 0.3",
            "waiting for CONNACK: the broker did not send it in time.",
        ),
        (
            Trick::Garbage,
            "",
            "the broker sent something that is not MQTT",
        ),
        (Trick::NoSubscription, "--mqtt 5", "0x87 (not authorised"),
        (Trick::Swallow, "--patience 0.1", "the broker"),
        (
            Trick::Invent,
            "",
            "octets that we never sent came on mqtick-load-",
        ),
        (
            Trick::LateGarbage,
            "",
            "the broker sent something that is not MQTT",
        ),
        (
            Trick::LateClose,
            "",
            "pub of the broker: the broker closed the connection during the measurement.",
        ),
        (
            Trick::Quota,
            "--mqtt 5 --qos 1",
            "refused a message with reason 0x97 (the broker is at a limit",
        ),
    ] {
        let fanout = format!("fanout --subscribers 2 --messages 100 --repeats 1 {command}");
        let pairs = format!("pairs --window 8 --burst 1 --seconds 5 --repeats 1 {command}");
        for line in [fanout, pairs] {
            let output = measure(&start(trick), &line);
            let said = error(&output).replace("pub0", "pub");
            assert_eq!(output.status.code(), Some(1), "{trick:?}: {line}: {said}");
            assert!(
                said.contains(text) && said.lines().count() == 1,
                "{trick:?}: {line}: {said}"
            );
        }
    }
}

#[test]
fn nobody_listening_is_told_with_the_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let output = program(&format!("pairs --broker {address}"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = format!(
        "mqtick-load: {address}: the connection was refused: does a broker listen there?\n"
    );
    assert_eq!(error(&output), text);
}

#[test]
fn wrong_use_ends_with_2_and_help_and_version_with_0() {
    for (line, code) in [
        ("pairs --qos 7", 2),
        ("", 2),
        ("pairs --broker no.such.host.invalid", 2),
        ("fanout --broker-pid 2147483647", 2),
        ("--help", 0),
        ("pairs --help", 0),
        ("--version", 0),
    ] {
        assert_eq!(
            program(line).output().unwrap().status.code(),
            Some(code),
            "{line}"
        );
    }
    let help = String::from_utf8(program("--help").output().unwrap().stdout).unwrap();
    assert!(
        help.contains("Examples:") && help.lines().all(|line| line.len() <= 100),
        "{help}"
    );
}

#[test]
fn more_connections_than_descriptors_are_refused_with_what_would_do() {
    let mut shell = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_mqtick-load");
    // Root may raise its hard limit; what even root cannot pass is the kernel's own.
    let line =
        format!("ulimit -n 64; exec {program} fanout --subscribers 1000000 --messages 1 --floor");
    let output = shell.args(["-c", &line]).output().unwrap();
    let most: u64 = std::fs::read_to_string("/proc/sys/fs/nr_open")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    if most < 2_000_000 {
        assert!(
            error(&output).contains("connections need"),
            "{}",
            error(&output)
        );
    }
}

#[test]
fn the_memory_of_idle_connections_is_that_of_the_process() {
    let peer = start(Trick::None);
    let output = measure(
        &peer,
        &format!("idle --connections 50 --broker-pid {}", std::process::id()),
    );
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert_eq!(row(&output, "pss_octets", "broker").len(), 10);
    assert!(row(&output, "pss_all_octets", "broker")[0] > 0.0);
}

#[test]
fn ctrl_c_prints_what_was_measured() {
    let peer = start(Trick::None);
    let line = format!(
        "fanout --subscribers 2 --messages 5 --repeats 10000 --floor --json --broker {}",
        peer.address
    );
    let child = program(&line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    // Messages are numbered from 0: by now several blocks have been measured.
    peer.messages.iter().find(|number| *number == SOME).unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    // A terminal tells all of the group, the floor, too.
    nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(row(&output, "skew_p50_us", "broker").len() >= 10);
    assert_eq!(peer::json(&output)["complete"], false);
}
