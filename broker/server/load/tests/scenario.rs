//! `run` and `limit` as their user sees them, with brokers that are faithful or not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod peer;

use peer::file::{File, error, good, notes, program, run, stopped_meanwhile, value};
use peer::{SOME, Trick, start};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// 20 messages of each of 2 publishers to 3 subscribers.
fn scenario(kind: &str) -> String {
    format!(
        "seconds = 60\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\nkind = \"{kind}\"\npublishers = 2\n\
         subscribers = 3\ninterval_us = 1000\nmessages = 20\n"
    )
}

#[test]
fn each_copy_of_a_scenario_is_counted_and_stamped() {
    let peer = start(Trick::None);
    let file = File::new("counted.toml", &scenario("latency"));
    let output = good(&peer, &file, &[]);
    for key in ["lost", "duplicates", "disorder", "refused", "unstamped"] {
        assert_eq!(value(&output, key), 0.0, "{key}");
    }
    assert_eq!(value(&output, "sp"), 3.0);
    assert!(value(&output, "wire_p50_us") > 0.0);
    assert!(value(&output, "delay_p50_us") >= value(&output, "late_p50_us"));
    assert!(value(&output, "skew_p50_us") > 0.0);
}

#[test]
fn a_broker_that_loses_doubles_or_reorders_is_caught() {
    for kind in ["load", "latency"] {
        // Of 40 messages each tenth is touched, for the last subscriber; one is late only when
        // another follows.
        for (trick, key, expected) in [
            (Trick::Lose, "lost", 4.0),
            (Trick::Twice, "duplicates", 4.0),
            (Trick::Late, "disorder", 3.0),
        ] {
            let peer = start(trick);
            let text = scenario(kind).replace("publishers = 2", "publishers = 1");
            let text = text.replace("messages = 20", "messages = 40");
            let file = File::new(&format!("{kind}-{trick:?}.toml"), &text);
            let output = good(&peer, &file, &["--patience", "0.3"]);
            assert_eq!(value(&output, key), expected, "{kind} {trick:?}");
        }
    }
}

#[test]
fn a_broker_that_invents_closes_or_talks_nonsense_is_told() {
    let text = scenario("load").replace("messages = 20", "messages = 100");
    for (trick, expected) in [
        (Trick::Invent, "5 octets that we never sent came on"),
        (Trick::LateGarbage, "something that is not MQTT"),
        (
            Trick::LateClose,
            "closed the connection during the measurement",
        ),
        (Trick::Refuse(5), "refused the connection with reason 0x88"),
        (
            Trick::Close,
            "closed the connection instead of sending CONNACK",
        ),
        (Trick::NoSubscription, "answered the subscription"),
        (Trick::Swallow, "no copy of 200 messages came"),
    ] {
        let peer = start(trick);
        let file = File::new(&format!("nonsense-{expected:.8}.toml"), &text);
        let output = run(&peer, &file, &["--patience", "0.5"]);
        assert_eq!(output.status.code(), Some(1), "{trick:?}");
        assert!(
            error(&output).contains(expected),
            "{trick:?}: {}",
            error(&output)
        );
    }
}

#[test]
fn a_broker_that_stops_for_a_while_does_not_hide_it() {
    // Messages are due while it stands still, and their delays count from there.
    let peer = start(Trick::Pause);
    let text = "seconds = 60\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\nkind = \"latency\"\n\
                interval_us = 10000\nmessages = 100\n";
    let file = File::new("pause.toml", text);
    let output = good(&peer, &file, &[]);
    // It stands still for 600 ms at the 20th: of the 100, 60 wait, from 600 ms down to none.
    assert!(value(&output, "delay_p50_us") > 50_000.0);
    assert!(value(&output, "delay_max_us") > 550_000.0);
}

#[test]
fn a_file_of_mqttloader_is_run_and_its_csv_is_written() {
    let peer = start(Trick::None);
    let text = format!(
        "broker = 127.0.0.1\nbroker_port = {}\nmqtt_version = 5\nnum_publishers = 2\n\
         num_subscribers = 3\nqos_publisher = 1\nqos_subscriber = 0\npayload = 8\n\
         num_messages = 5\ninterval = 0\nexec_time = 60\nsubscriber_timeout = 1\n",
        peer.address.port()
    );
    let conf = File::new("mqttloader.conf", &text);
    let csv = File::new("out.csv", "");
    let output = program(&["run", conf.path(), "--csv", csv.path()]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "it writes over no other file"
    );
    assert!(error(&output).contains("File exists"), "{}", error(&output));
    fs::remove_file(&csv.0).unwrap();
    // As with the other tool, its folder need not be there.
    let folder = format!("{}-folder", csv.path());
    let second = start(Trick::None);
    let text = text.replace(
        &peer.address.port().to_string(),
        &second.address.port().to_string(),
    );
    let other = File::new("output.conf", &format!("{text}output = {folder}\n"));
    assert_eq!(program(&["run", other.path()]).status.code(), Some(0));
    let made = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    let name = made.file_name().into_string().unwrap();
    assert!(
        name.starts_with("mqttloader_") && name.ends_with(".csv"),
        "{name}"
    );
    fs::remove_dir_all(&folder).unwrap();
    let output = program(&["run", conf.path(), "--csv", csv.path(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let written = fs::read_to_string(&csv.0).unwrap();
    let lines: Vec<Vec<&str>> = written
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    assert!(lines.iter().all(|line| line.len() == 4), "{written}");
    assert_eq!(&lines[0][1..], ["", "", ""]);
    let of = |letter: &str| lines.iter().filter(|line| line[2] == letter).count();
    assert_eq!((of("S"), of("R")), (10, 30));
    let start: u64 = lines[0][0].parse().unwrap();
    for line in &lines[1..] {
        assert!(line[0].parse::<u64>().unwrap() >= start);
        let (name, number) = line[1].rsplit_once('-').unwrap();
        assert!(name.starts_with("ml-") && number.len() == 5, "{line:?}");
        assert_eq!(line[2] == "R", line[3].parse::<u64>().is_ok(), "{line:?}");
    }
}

#[test]
fn files_that_cannot_be_used_are_told_by_name() {
    let long = "#".repeat((1 << 20) + 1);
    for (name, text, expected) in [
        ("a.toml", "[[group]]\nqoss = 1", "unknown field `qoss`"),
        ("b.conf", "broker = h\nqos = 1", "line 2: \"qos\" is no key"),
        ("c.toml", long.as_str(), "not a file of at most"),
    ] {
        let file = File::new(name, text);
        let output = program(&["run", file.path()]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let told = error(&output);
        assert!(
            told.contains(expected) && told.contains(file.path()),
            "{told}"
        );
    }
    let binary = File::new("d.toml", "");
    fs::write(&binary.0, [0xff, 0xfe]).unwrap();
    assert!(error(&program(&["run", binary.path()])).contains("not UTF-8"));
    assert!(error(&program(&["run", "/dev/zero"])).contains("not a file of at most"));
    assert!(error(&program(&["run", "/nowhere.toml"])).contains("No such file"));
}

#[test]
fn a_limit_needs_a_load_to_vary_and_a_broker_that_delivers() {
    let file = File::new("none.toml", &scenario("latency"));
    let output = program(&["limit", "mqtt://127.0.0.1:9", "--scenario", file.path()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        error(&output).contains("groups of kind load"),
        "{}",
        error(&output)
    );
}

#[test]
fn a_scenario_may_keep_windows_full_instead_of_following_a_schedule() {
    let text = "seconds = 0.3\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\npublishers = 2\n\
                subscribers = 3\ninterval_us = 0\nwindow = 8\nburst = 4\n";
    for (qos, trick, lost) in [
        (0, Trick::None, 0.0),
        (1, Trick::None, 0.0),
        (0, Trick::Lose, 1.0),
    ] {
        let peer = start(trick);
        let file = File::new(
            &format!("window-{qos}-{trick:?}.toml"),
            &format!("{text}qos = {qos}\n"),
        );
        let output = good(&peer, &file, &["--patience", "0.3"]);
        // Windows go on after a loss: each tenth message has one.
        assert!(value(&output, "egress") > 1000.0, "{trick:?}");
        assert!(value(&output, "lost") >= 20.0 * lost, "{trick:?}");
    }
    let file = File::new(
        "mixed.toml",
        &format!("{text}[[group]]\nname = \"other\"\n"),
    );
    let output = program(&["run", file.path()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        error(&output).contains("window: give it to all groups or to none"),
        "{}",
        error(&output)
    );
}

/// Octets in the fullest receive queue of a connection to a port, by the kernel.
fn fullest_queue(port: u16) -> u64 {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let of_port = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_ours = words.get(2)?.ends_with(&format!(":{port:04X}"));
        let queue = words.get(4)?.split_once(':')?.1;
        is_ours.then(|| u64::from_str_radix(queue, 16).unwrap())
    });
    of_port.max().unwrap_or(0)
}

#[test]
fn a_load_tool_that_does_not_write_in_time_says_so() {
    for kind in ["load", "latency"] {
        let peer = start(Trick::None);
        let text = format!(
            "seconds = 1\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\ninterval_us = 100\n\
             kind = \"{kind}\"\n"
        );
        let file = File::new(&format!("late-{kind}.toml"), &text);
        let mut began = None;
        let output = stopped_meanwhile(&peer, &file, SOME, || {
            let began = began.get_or_insert_with(std::time::Instant::now);
            began.elapsed().as_secs_f64() > 0.4
        });
        assert_eq!(output.status.code(), Some(0), "{}", error(&output));
        let told = notes(&output);
        assert!(
            told.contains("mqtick-load wrote its messages late"),
            "{told}"
        );
        // Four of ten were due meanwhile.
        assert!(value(&output, "late_p90_us") > 100_000.0, "{kind}");
    }
}

#[test]
fn a_load_tool_that_does_not_read_in_time_says_so() {
    ["load", "latency"]
        .iter()
        .for_each(|kind| does_not_read_in_time(kind));
}

fn does_not_read_in_time(kind: &str) {
    let peer = start(Trick::None);
    let text = format!(
        "seconds = 3\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\ninterval_us = 0\npayload = 4096\n\
         kind = \"{kind}\"\n"
    );
    let port = peer.address.port();
    let mut looks = vec![0];
    let file = File::new(&format!("unread-{kind}.toml"), &text);
    let output = stopped_meanwhile(&peer, &file, 20 * SOME, || {
        // Until nothing more fits, or nothing more was on its way.
        looks.push(fullest_queue(port));
        let last = looks.len().saturating_sub(100);
        looks.len() > 100
            && looks[last..]
                .iter()
                .all(|one| *one > 0 && *one == looks[last])
    });
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let told = notes(&output);
    assert!(told.contains("receive queue was"), "{told}");
}

#[test]
fn a_load_tool_whose_processor_is_at_its_end_says_so() {
    // Bare system calls relay with less than it takes to know each message again.
    let mut served = Command::new(env!("CARGO_BIN_EXE_mqtick-load"))
        .args(["floor", "--until-eof"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut broker = String::new();
    let mut said = BufReader::new(served.stdout.take().unwrap());
    said.read_line(&mut broker).unwrap();
    // Neither that it then waits for what is lost hides it, nor that machines wait for each other.
    let other = start(Trick::None);
    let is_told = ["", "[[machine]]\nname = \"here\"\nclock = \"none\"\n"].map(|machine| {
        let text = format!(
            "seconds = 0.4\nramp_up_s = 0\nramp_down_s = 0\n[[group]]\ninterval_us = 0\n[[group]]\n\
             name = \"lost\"\nmessages = 1\nsubscriber_brokers = [\"{}\"]\n{machine}",
            other.address
        );
        let file = File::new("busy.toml", &text);
        let broker = broker.trim();
        let words = [
            "run",
            file.path(),
            "--broker",
            broker,
            "--patience",
            "2",
            "--json",
        ];
        // Where others keep all cores busy, the floor may be the slower one for a while.
        (0..10).any(|_| {
            let output = program(&words);
            assert_eq!(output.status.code(), Some(0), "{}", error(&output));
            assert_eq!(value(&output, "lost"), 1.0);
            notes(&output).contains("mqtick-load used")
        })
    });
    drop(served.stdin.take());
    served.wait().unwrap();
    assert_eq!(is_told, [true; 2]);
}

#[test]
fn the_published_search_runs_to_its_end_and_says_what_it_does_not_know() {
    let peer = start(Trick::None);
    let text = "seconds = 0.2\nramp_up_s = 0.05\nramp_down_s = 0.02\n[[group]]\npublishers = 4\n\
                subscribers = 4\ninterval_us = 20\n";
    let file = File::new("published.toml", text);
    let broker = peer.address.to_string();
    let words = [
        "limit",
        &broker,
        "--search",
        "published",
        "--scenario",
        file.path(),
        "--json",
    ];
    let output = program(&words);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let [low, found, high] =
        ["limit_ingress_low", "limit_ingress", "limit_ingress_high"].map(|key| value(&output, key));
    // At this rate it held, once; at the next step of the interval it did not.
    assert!(
        low == found && found < high && high <= 1.06 * found,
        "{low} {found} {high}"
    );
    let told = notes(&output);
    assert!(told.contains("each rate was tried once"), "{told}");
}

#[test]
fn ctrl_c_in_a_search_says_what_the_broker_has_carried() {
    let peer = start(Trick::None);
    let broker = peer.address.to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_mqtick-load"))
        .args(["limit", &broker, "--search", "published", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    peer.messages.iter().find(|number| *number == SOME).unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", error(&output));
    assert_eq!(
        (value(&output, "trials"), value(&output, "held")),
        (0.0, 0.0)
    );
}

#[test]
fn clients_are_spread_over_joined_brokers_in_turn() {
    let (one, other) = (start(Trick::None), start(Trick::None));
    let text = format!(
        "{}subscribers = 0\npublisher_brokers = [\"mqtt://{}\", \"{}\"]\n",
        scenario("load").replace("subscribers = 3\n", ""),
        one.address,
        other.address
    );
    let file = File::new("joined.toml", &text);
    good(&one, &file, &[]);
    assert_eq!(
        [one, other].map(|peer| peer.clients.lock().unwrap().len()),
        [1, 1]
    );
}
