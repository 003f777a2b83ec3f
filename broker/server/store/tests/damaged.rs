//! A damaged file, or one of another program, is refused with a sentence and left as it is.

#![allow(clippy::panic, clippy::unwrap_used)]

mod model;

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{Folder, State, Story, kept, open};
use mqtick_store::{Error, Kept, Store};

/// Open a file with these octets. If it is refused, it has to be unchanged.
fn opened(octets: &[u8]) -> Result<Kept, Error> {
    let folder = Folder::new();
    fs::write(folder.file(), octets).unwrap();
    let result = Store::open(&folder.0, |_| {}).map(|(_, kept)| kept);
    if result.is_err() {
        assert!(
            fs::read(folder.file()).unwrap() == octets,
            "the file was changed"
        );
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }
    result
}

fn refused(octets: &[u8]) -> String {
    match opened(octets) {
        Err(Error::Damaged(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// A file with all kinds of contents, and these contents.
fn good() -> (Vec<u8>, State) {
    let folder = Folder::new();
    let mut story = Story::new(4);
    let (store, _) = open(&folder.0);
    for _ in 0..300 {
        store.submit(story.next(), None);
    }
    store.close().unwrap();
    (fs::read(folder.file()).unwrap(), story.state)
}

/// Flip bits. If the file can still be opened, its contents must be `as_it_was`. Nothing may panic.
fn flip(good: &[u8], as_it_was: impl Fn(&State) -> bool) {
    let panics = Arc::new(AtomicUsize::new(0));
    let counter = panics.clone();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // Do not count failures of other tests.
        let place = info.location().map_or("", |place| place.file());
        counter.fetch_add(usize::from(!place.contains("tests/")), Ordering::SeqCst);
        before(info);
    }));
    let mut random = Story::new(5);
    let rounds: u64 = std::env::var("MQTICK_STORE_ROUNDS").map_or(60, |text| text.parse().unwrap());
    let mut found = 0;
    for round in 0..rounds {
        let mut octets = good.to_vec();
        // Every other time in the header, where each octet matters.
        let end = [400, octets.len() as u64][(round % 2) as usize];
        for _ in 0..=random.below(3) {
            octets[random.below(end) as usize] ^= 1 << random.below(8);
        }
        match opened(&octets) {
            Ok(kept) => assert!(as_it_was(&State::from(&kept)), "round {round}"),
            Err(error) => {
                assert!(error.to_string().contains("store.redb"), "{error}");
                found += 1;
            }
        }
    }
    assert!(found > rounds / 10, "{found}");
    assert_eq!(panics.load(Ordering::SeqCst), 0);
}

#[test]
fn flipped_bits_are_found_or_harmless() {
    let (good, state) = good();
    flip(&good, |found| *found == state);
}

#[test]
fn flipped_bits_after_a_crash_cost_the_last_commit_at_most() {
    let folder = Folder::new();
    let mut story = Story::new(9);
    let (store, _) = open(&folder.0);
    let mut states = Vec::new();
    for _ in 0..60 {
        kept(&store, story.next()).unwrap();
        states.push(story.state.clone());
    }
    // The file of an open store, as kill -9 leaves it.
    let crashed = fs::read(folder.file()).unwrap();
    flip(&crashed, |found| states[states.len() - 2..].contains(found));
}

#[test]
fn a_shorter_file_is_refused_wherever_it_ends() {
    let (good, _) = good();
    assert!(refused(&[]).contains("it is empty"));
    for part in 0..40 {
        refused(&good[..1 + good.len() * part / 40]);
    }
    refused(&good[..good.len() - 1]);
}

#[test]
fn another_programs_file_is_refused() {
    let (good, _) = good();
    refused(b"# allow_anonymous false\n");
    refused(&[0; 100_000]);
    refused(&[0xff; 100_000]);
    let mut octets = good.clone();
    octets[..4].copy_from_slice(b"bder");
    refused(&octets);
    let folder = Folder::new();
    let table = redb::TableDefinition::<u64, u64>::new("their own");
    let database = redb::Database::create(folder.file()).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(table).unwrap().insert(1, 1).unwrap();
    write.commit().unwrap();
    drop(database);
    refused(&fs::read(folder.file()).unwrap());
}

#[test]
fn a_store_of_a_newer_version_is_refused_by_its_number() {
    let folder = Folder::new();
    open(&folder.0).0.close().unwrap();
    let table = redb::TableDefinition::<&str, u64>::new("mqtick");
    let database = redb::Database::open(folder.file()).unwrap();
    let write = database.begin_write().unwrap();
    write
        .open_table(table)
        .unwrap()
        .insert("format", 1000)
        .unwrap();
    write.commit().unwrap();
    drop(database);
    match opened(&fs::read(folder.file()).unwrap()) {
        Err(Error::Newer(text)) => assert!(text.contains("format 1000"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// A file with one queued message, from whose log the rows of this kind were removed.
fn without(kind: u8) -> Vec<u8> {
    let folder = Folder::new();
    let (store, _) = open(&folder.0);
    let mut story = Story::new(6);
    while story
        .state
        .clients
        .values()
        .all(|client| client.queue.is_empty())
    {
        store.submit(story.next(), None);
    }
    store.close().unwrap();
    let table = redb::TableDefinition::<u64, &[u8]>::new("log");
    let database = redb::Database::open(folder.file()).unwrap();
    let write = database.begin_write().unwrap();
    write
        .open_table(table)
        .unwrap()
        .retain(|_, row| row[0] & 3 != kind)
        .unwrap();
    write.commit().unwrap();
    drop(database);
    fs::read(folder.file()).unwrap()
}

#[test]
fn a_queue_whose_message_is_missing_is_damage() {
    assert!(refused(&without(1)).contains("a queue without message"));
}

#[test]
fn a_message_that_no_queue_holds_is_removed() {
    let folder = Folder::new();
    fs::write(folder.file(), without(2)).unwrap();
    let (store, kept) = open(&folder.0);
    assert_ne!(kept.next_message, 0);
    store.close().unwrap();
    assert_eq!(open(&folder.0).1.next_message, 0);
}

#[test]
fn what_is_no_file_or_folder_is_refused() {
    let refused = |path: &std::path::Path| match Store::open(path, |_| {}).map(drop) {
        Err(Error::Io(text)) => assert!(text.contains(&*path.to_string_lossy()), "{text}"),
        other => panic!("{other:?}"),
    };
    let folder = Folder::new();
    fs::write(folder.0.join("file"), "").unwrap();
    refused(&folder.0.join("file"));
    fs::create_dir_all(folder.0.join("one/store.redb")).unwrap();
    refused(&folder.0.join("one"));
    fs::create_dir(folder.0.join("two")).unwrap();
    let fifo = folder.0.join("two/store.redb");
    assert!(Command::new("mkfifo").arg(fifo).status().unwrap().success());
    refused(&folder.0.join("two"));
}

#[test]
fn what_a_crash_left_of_a_new_file_is_in_nobodys_way() {
    let folder = Folder::new();
    fs::write(folder.0.join("store.new"), "half").unwrap();
    open(&folder.0).0.close().unwrap();
    assert!(!folder.0.join("store.new").exists());
}
