//! With a full disk, new data is refused and nothing acknowledged is lost.

#![allow(clippy::panic, clippy::unwrap_used)]

mod model;

use std::io::{BufRead, BufReader, Write, stderr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::{Folder, kept, open};
use mqtick_store::{Change, Kept, Message, Refused, Session, Store};

const STORE: &str = "MQTICK_STORE_TO_FILL";

/// A small file system; `None` if this user may not make one.
struct Small(Folder);

impl Small {
    fn new() -> Option<Self> {
        let folder = Folder::new();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=2560k", "tmpfs"])
            .arg(&folder.0);
        if mount.output().is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        // Not `eprintln`, which would be captured.
        let _ = writeln!(
            stderr(),
            "skipped: a small file system needs root and `mount`"
        );
        None
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0.0).output();
    }
}

fn publish(number: u64) -> Vec<Change> {
    let body = Arc::new(Message {
        topic: "a".into(),
        payload: vec![number as u8; 7000].into(),
        properties: [][..].into(),
        expiry: 0,
        qos: 1,
    });
    let queue = Change::Queue {
        client: "a".into(),
        place: number,
        message: number,
        qos: 1,
        retain: false,
        subscription_ids: [][..].into(),
    };
    let message = Change::Message {
        message: number,
        body,
    };
    vec![message, queue]
}

fn session() -> Change {
    Change::Session {
        client: "a".into(),
        session: Session::default(),
    }
}

fn done(number: u64) -> Vec<Change> {
    vec![Change::Done {
        client: "a".into(),
        place: number,
    }]
}

fn places(kept: &Kept) -> Vec<u64> {
    kept.sessions[0]
        .queue
        .iter()
        .map(|entry| entry.place)
        .collect()
}

/// Publish until it is refused. Returns the number of the first refused message.
fn fill(store: &Store, first: u64) -> u64 {
    for number in first.. {
        match kept(store, publish(number)) {
            Ok(()) => assert!(number < first + 4000),
            Err(refused) => {
                assert_eq!(refused, Refused::Full);
                return number;
            }
        }
    }
    first
}

#[test]
fn a_full_disk_refuses_and_loses_nothing_and_takes_more_when_there_is_room() {
    let Some(disk) = Small::new() else { return };
    let directory = disk.0.0.join("store");
    let ballast = disk.0.0.join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 19]).unwrap();
    let told = Arc::new(AtomicUsize::new(0));
    let counter = told.clone();
    let failed = move |text: &str| {
        assert!(text.contains("no room"), "{text}");
        counter.fetch_add(1, Ordering::SeqCst);
    };
    let (store, _) = Store::open(&directory, failed).unwrap();
    kept(&store, vec![session()]).unwrap();
    let first = fill(&store, 0);
    assert!(first > 20, "{first}");
    for number in first..first + 5 {
        assert_eq!(kept(&store, publish(number)), Err(Refused::Full));
    }
    assert_eq!(told.load(Ordering::SeqCst), 1);
    // Another program makes room.
    std::fs::remove_file(&ballast).unwrap();
    let second = fill(&store, first);
    assert!(second > first + 20, "{first} {second}");
    // Subscribers make room.
    for number in 0..second - 5 {
        kept(&store, done(number)).unwrap();
    }
    assert_eq!(kept(&store, publish(second)), Ok(()));
    let third = fill(&store, second + 1);
    assert!(third > second + 20, "{second} {third}");
    drop(store);
    let (_, kept) = open(&directory);
    assert_eq!(places(&kept), (second - 5..third).collect::<Vec<_>>());
}

#[test]
fn a_delivery_is_written_though_its_commit_was_refused() {
    let Some(disk) = Small::new() else { return };
    let directory = disk.0.0.join("store");
    let (store, _) = open(&directory);
    kept(&store, vec![session()]).unwrap();
    let count = fill(&store, 0);
    let mut changes = publish(count);
    changes.extend((1..4).flat_map(|more| publish(count + 100 * more)));
    changes.extend(done(0));
    assert_eq!(kept(&store, changes), Err(Refused::Full));
    drop(store);
    let (_, kept) = open(&directory);
    assert_eq!(places(&kept), (1..count).collect::<Vec<_>>());
}

#[test]
#[ignore = "the process that is killed by the other test"]
fn fills_a_disk() {
    let Ok(directory) = std::env::var(STORE) else {
        return;
    };
    let (store, _) = open(Path::new(&directory));
    kept(&store, vec![session()]).unwrap();
    println!("full {}", fill(&store, 0));
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_store_on_a_full_disk_opens_after_kill_9_and_can_be_emptied() {
    let Some(disk) = Small::new() else { return };
    let directory = disk.0.0.join("store");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["fills_a_disk", "--exact", "--ignored", "--nocapture"])
        .env(STORE, &directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let count = lines.map(|line| line.unwrap()).find_map(|line| {
        let count = line.strip_prefix("full ")?;
        Some(count.parse().unwrap())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let count: u64 = count.unwrap();
    std::fs::write(disk.0.0.join("rest"), vec![1; 8 << 20]).unwrap_err();
    let (store, there) = open(&directory);
    assert_eq!(places(&there), (0..count).collect::<Vec<_>>());
    for number in 0..count {
        kept(&store, done(number)).unwrap();
    }
    assert_eq!(kept(&store, publish(count)), Ok(()));
}
