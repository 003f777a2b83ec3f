//! Measures the cost of durability: group commits, in comparison with write and fdatasync of the
//! same octets.
//!
//! `cargo run --release -p mqtick-store --example store_speed -- [DIRECTORY] [SECONDS]
//! [OUTSTANDING]...`

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use mqtick_store::{Change, Message, Session, Store};

const CLIENTS: u64 = 100;
const PAYLOAD: usize = 64;

fn client(number: u64) -> Arc<str> {
    format!("subscriber-{:04}", number % CLIENTS).into()
}

/// The changes for a QoS 1 PUBLISH to one durable subscriber, before its PUBACK.
fn publish(number: u64) -> Vec<Change> {
    let body = Arc::new(Message {
        topic: "plant/7/line/3/temperature".into(),
        payload: vec![number as u8; PAYLOAD].into(),
        properties: [][..].into(),
        expiry: 0,
        qos: 1,
    });
    let message = Change::Message {
        message: number,
        body,
    };
    let queue = Change::Queue {
        client: client(number),
        place: number,
        message: number,
        qos: 1,
        retain: false,
        subscription_ids: [][..].into(),
    };
    vec![message, queue]
}

fn done(number: u64) -> Change {
    Change::Done {
        client: client(number),
        place: number,
    }
}

fn sessions() -> Vec<Change> {
    let session = |number| Change::Session {
        client: client(number),
        session: Session::default(),
    };
    (0..CLIENTS).map(session).collect()
}

/// The processor time of this process in seconds, and the octets that it has written.
fn used() -> (f64, u64) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|text| text.parse::<f64>().unwrap())
        .sum();
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let written = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))
        .unwrap();
    (ticks / 100.0, written.parse().unwrap())
}

/// Publishes with `outstanding` unanswered messages. The subscriber acknowledges each `behind`
/// messages later: in the same commit, in a later one, or not in this run.
fn run(directory: &Path, outstanding: u64, behind: Option<u64>, time: Duration) {
    let _ = std::fs::remove_dir_all(directory);
    let (store, _) = Store::open(directory, |text| println!("{text}")).unwrap();
    store.submit(sessions(), None);
    let commits = Arc::new(AtomicU64::new(0));
    let (sender, receiver) = mpsc::channel();
    let (start, before) = (Instant::now(), used());
    let mut waiting = VecDeque::new();
    let mut last_commit = Instant::now();
    let (mut number, mut answered) = (0, 0);
    while start.elapsed() < time {
        while number - answered < outstanding {
            let mut changes = publish(number);
            if let Some(behind) = behind {
                waiting.push_back(number);
                if waiting.len() as u64 > behind {
                    changes.extend(waiting.pop_front().map(done));
                }
            }
            let sender = sender.clone();
            store.submit(
                changes,
                Some(Box::new(move |result| {
                    result.unwrap();
                    let _ = sender.send(Instant::now());
                })),
            );
            number += 1;
        }
        // The answers of one commit come together.
        let mut first = Some(receiver.recv().unwrap());
        while let Some(at) = first.take().or_else(|| receiver.try_recv().ok()) {
            answered += 1;
            if at - last_commit > Duration::from_micros(100) {
                commits.fetch_add(1, Ordering::Relaxed);
            }
            last_commit = at;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = used();
    drop(receiver);
    store.close().unwrap_or_else(|error| println!("{error}"));
    let rate = |count: u64| count as f64 / seconds;
    let changes = answered * if behind.is_some() { 3 } else { 2 };
    let each = (after.1 - before.1) / answered.max(1);
    let size = directory.join("store.redb").metadata().unwrap().blocks() * 512;
    let name = match behind {
        None => "never".into(),
        Some(behind) => format!("{behind} later"),
    };
    println!(
        "{outstanding:>6} outstanding, delivered {name:>10}: {:>7.0} publishes/s {:>8.0} changes/s \
         ~{:>5.0} commits/s {:>5.1} us processor a publish, {each:>6} octets written a publish, \
         file {} KiB",
        rate(answered),
        rate(changes),
        rate(commits.load(Ordering::Relaxed)),
        (after.0 - before.0) * 1e6 / answered.max(1) as f64,
        size / 1024,
    );
    bare(directory, outstanding, each, time / 2);
}

/// Appends the same octets, for as many publishes at a time, to a file that wraps.
fn bare(directory: &Path, outstanding: u64, each: u64, time: Duration) {
    let path = directory.join("bare");
    let mut file = File::create(&path).unwrap();
    let octets = vec![1; (each * outstanding) as usize];
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < time {
        file.write_all(&octets).unwrap();
        file.sync_data().unwrap();
        count += outstanding;
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!(
        "{:>59} {rate:>7.0} publishes/s by bare write and fdatasync of these octets",
        ""
    );
    std::fs::remove_file(path).unwrap();
}

/// Measures the size of a store with queued messages, and the time to open it.
fn load(directory: &Path, sessions: u64, messages: u64) {
    let _ = std::fs::remove_dir_all(directory);
    let (store, _) = Store::open(directory, |text| println!("{text}")).unwrap();
    let client = |number: u64| Arc::<str>::from(format!("client-{number:08}"));
    for number in 0..sessions {
        let changes = vec![
            Change::Session {
                client: client(number),
                session: Session::default(),
            },
            Change::Subscribe {
                client: client(number),
                filter: format!("plant/{number}/#").into(),
                options: 1,
                identifier: 0,
            },
        ];
        store.submit(changes, None);
    }
    for number in 0..messages {
        let mut changes = publish(number);
        if let Some(Change::Queue { client: name, .. }) = changes.get_mut(1) {
            *name = client(number % sessions);
        }
        store.submit(changes, None);
    }
    store.close().unwrap();
    let octets = directory.join("store.redb").metadata().unwrap().blocks() * 512;
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
    };
    let (start, before) = (Instant::now(), resident());
    let (store, kept) = Store::open(directory, |text| println!("{text}")).unwrap();
    println!(
        "{} sessions with a subscription, {messages} queued messages: file {} MiB ({} octets each), \
         opened in {:.2} s, {} MiB more resident",
        kept.sessions.len(),
        octets >> 20,
        octets / sessions.max(messages),
        start.elapsed().as_secs_f64(),
        (resident().saturating_sub(before)) >> 10,
    );
    drop(store);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or(std::env::temp_dir(), PathBuf::from);
    let directory = directory.join("mqtick-store-speed");
    let seconds = arguments.next().map_or(4.0, |text| text.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    let mut many: Vec<u64> = arguments.map(|text| text.parse().unwrap()).collect();
    if many.is_empty() {
        many = vec![1, 32, 1000, 10_000];
    }
    for outstanding in many {
        for behind in [Some(0), Some(outstanding + 1), None] {
            run(&directory, outstanding, behind, time);
        }
    }
    load(&directory, 100_000, 0);
    load(&directory, 100, 200_000);
    std::fs::remove_dir_all(&directory).unwrap();
}
