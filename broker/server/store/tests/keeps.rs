//! A store that is opened again contains all that was submitted.

#![allow(clippy::panic, clippy::unwrap_used)]

mod model;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::{Folder, State, Story, kept, open};
use mqtick_store::{Change, Error, Message, Refused, Session, Store};

fn session(client: &str) -> Change {
    Change::Session {
        client: client.into(),
        session: Session::default(),
    }
}

fn message(number: u64, octets: usize) -> Change {
    let body = Arc::new(Message {
        topic: "a".into(),
        payload: vec![7; octets].into(),
        properties: [][..].into(),
        expiry: 0,
        qos: 1,
    });
    Change::Message {
        message: number,
        body,
    }
}

fn queue(client: &str, place: u64, message: u64) -> Change {
    Change::Queue {
        client: client.into(),
        place,
        message,
        qos: 1,
        retain: false,
        subscription_ids: [][..].into(),
    }
}

#[test]
fn a_new_store_is_empty_and_only_its_owner_can_read_it() {
    let folder = Folder::new();
    let (store, kept) = open(&folder.0.join("deep/er"));
    assert!(kept.sessions.is_empty() && kept.retained.is_empty());
    store.close().unwrap();
    let mode = |name| folder.0.join(name).metadata().unwrap().permissions().mode();
    assert_eq!(mode("deep/er/store.redb") & 0o777, 0o600);
    assert_eq!(mode("deep/er") & 0o777, 0o700);
}

#[test]
fn whatever_is_handed_over_is_there_after_each_opening() {
    let folder = Folder::new();
    let mut story = Story::new(1);
    for round in 0..15 {
        let (store, kept) = open(&folder.0);
        assert!(State::from(&kept) == story.state, "round {round}");
        for _ in 0..story.below(200) {
            store.submit(story.next(), None);
        }
        store.close().unwrap();
    }
}

#[test]
fn single_commits_amount_to_the_same_as_large_ones() {
    let folder = Folder::new();
    let mut story = Story::new(2);
    let (store, _) = open(&folder.0);
    for _ in 0..150 {
        kept(&store, story.next()).unwrap();
    }
    drop(store);
    assert!(State::from(&open(&folder.0).1) == story.state);
}

#[test]
fn answers_come_in_the_order_of_submission() {
    let folder = Folder::new();
    let (store, _) = open(&folder.0);
    let answered = Arc::new(AtomicU64::new(0));
    for number in 0..1000 {
        let answered = answered.clone();
        let done = move |result: Result<(), Refused>| {
            result.unwrap();
            assert_eq!(answered.fetch_add(1, Ordering::SeqCst), number);
        };
        store.submit(vec![session("a")], Some(Box::new(done)));
    }
    store.close().unwrap();
    assert_eq!(answered.load(Ordering::SeqCst), 1000);
}

#[test]
fn threads_share_a_store() {
    let folder = Folder::new();
    let (store, _) = open(&folder.0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (store, client) = (&store, format!("client {thread}"));
            scope.spawn(move || {
                store.submit(vec![session(&client)], None);
                for number in (0..400).map(|count| count * 4 + thread) {
                    store.submit(
                        vec![message(number, 9), queue(&client, number, number)],
                        None,
                    );
                }
            });
        }
    });
    store.close().unwrap();
    let (_, there) = open(&folder.0);
    assert_eq!(there.sessions.len(), 4);
    assert!(
        there
            .sessions
            .iter()
            .all(|session| session.queue.len() == 400)
    );
}

#[test]
fn an_answer_that_panics_harms_nobody_else() {
    let folder = Folder::new();
    let (store, _) = open(&folder.0);
    store.submit(vec![session("a")], Some(Box::new(|_| panic!("on purpose"))));
    assert_eq!(kept(&store, vec![session("b")]), Ok(()));
}

#[test]
fn a_message_of_many_queues_is_stored_once_and_goes_with_the_last() {
    let folder = Folder::new();
    let size = || folder.0.join("store.redb").metadata().unwrap().len();
    let (store, _) = open(&folder.0);
    let clients: Vec<String> = (0..100).map(|number| format!("client {number}")).collect();
    let mut changes: Vec<Change> = clients.iter().map(|client| session(client)).collect();
    changes.push(message(0, 1 << 20));
    changes.extend(clients.iter().map(|client| queue(client, 0, 0)));
    kept(&store, changes).unwrap();
    store.close().unwrap();
    assert!(size() < 20 << 20, "{}", size());
    let (store, there) = open(&folder.0);
    let queued = || there.sessions.iter().map(|session| &session.queue[0].body);
    assert_eq!(queued().count(), 100);
    assert!(queued().all(|body| Arc::ptr_eq(body, queued().next().unwrap())));
    let done = |client: &String| Change::Done {
        client: client.as_str().into(),
        place: 0,
    };
    kept(&store, clients.iter().skip(1).map(done).collect()).unwrap();
    store.close().unwrap();
    let (store, there) = open(&folder.0);
    assert_eq!(there.next_message, 1);
    kept(&store, vec![done(&clients[0])]).unwrap();
    store.close().unwrap();
    assert_eq!(open(&folder.0).1.next_message, 0);
}

#[test]
fn what_names_nothing_that_is_kept_is_refused_alone() {
    let folder = Folder::new();
    let (store, _) = open(&folder.0);
    let changes = vec![
        session("a"),
        message(4, 1),
        queue("a", 0, 4),
        queue("b", 0, 4),
        queue("a", 1, 5),
        queue("a", 0, 4),
    ];
    let wrong = Refused::Wrong("session `b` is not kept".into());
    assert_eq!(kept(&store, changes), Err(wrong));
    let wrong = Refused::Wrong("message number 4 is taken".into());
    assert_eq!(kept(&store, vec![message(4, 1)]), Err(wrong));
    let nothing = Change::Done {
        client: "nobody".into(),
        place: 3,
    };
    assert_eq!(kept(&store, vec![nothing, message(9, 1)]), Ok(()));
    drop(store);
    let (_, there) = open(&folder.0);
    assert_eq!(there.sessions.len(), 1);
    assert_eq!(there.sessions[0].queue.len(), 1);
    assert_eq!(there.next_message, 5);
}

#[test]
fn the_largest_message_and_odd_names_are_kept() {
    let folder = Folder::new();
    let (store, _) = open(&folder.0);
    let name = "\u{10ffff}".repeat(16_000);
    kept(&store, vec![session(""), session(&name), message(1, 9)]).unwrap();
    let changes = vec![message(u64::MAX, 8 << 20), queue(&name, u64::MAX, u64::MAX)];
    assert_eq!(kept(&store, changes), Ok(()));
    drop(store);
    let (_, there) = open(&folder.0);
    assert_eq!(there.sessions[1].client.len(), 64_000);
    assert_eq!(there.sessions[1].queue[0].body.payload.len(), 8 << 20);
}

#[test]
fn two_cannot_have_one_store() {
    let folder = Folder::new();
    let (store, _) = open(&folder.0);
    let second = Store::open(&folder.0, |_| {}).map(drop).unwrap_err();
    assert!(matches!(second, Error::Locked(_)), "{second}");
    drop(store);
    open(&folder.0);
}
