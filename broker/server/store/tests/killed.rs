//! All acknowledged changes survive kill -9.

#![allow(clippy::panic, clippy::unwrap_used)]

mod model;

use std::io::{BufRead, BufReader, Write, stdout};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use model::{Folder, State, Story, open};

const STORE: &str = "MQTICK_STORE_TO_FILL";
const SEED: u64 = 3;

/// A story, continued up to the state of the store.
fn continued(state: &State) -> Story {
    let mut story = Story::new(SEED);
    for _ in 0..state.count() {
        story.next();
    }
    story
}

#[test]
#[ignore = "the process that is killed by the other test"]
fn fills_a_store() {
    let Ok(directory) = std::env::var(STORE) else {
        return;
    };
    let (store, kept) = open(Path::new(&directory));
    let state = State::from(&kept);
    let mut story = continued(&state);
    assert!(story.state == state);
    let mut random = Story::new(u64::from(std::process::id()));
    for count in state.count() + 1.. {
        let done = move |result: Result<(), _>| {
            result.unwrap();
            if writeln!(stdout(), "acknowledged {count}").is_err() {
                // The parent has ended and cannot kill this process.
                std::process::exit(1);
            }
        };
        store.submit(story.next(), Some(Box::new(done)));
        if count % 64 == 0 {
            // Now and then, let the writer keep up.
            std::thread::sleep(Duration::from_micros(random.below(3000)));
        }
    }
}

#[test]
fn all_that_was_acknowledged_survives_kill_9_and_nothing_comes_back() {
    let rounds = std::env::var("MQTICK_STORE_ROUNDS").map_or(20, |text| text.parse().unwrap());
    let folder = Folder::new();
    let mut random = Story::new(u64::from(std::process::id()));
    let mut told = Story::new(SEED);
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["fills_a_store", "--exact", "--ignored", "--nocapture"])
            .env(STORE, &folder.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut acknowledged = told.state.count();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut heard, wanted) = (0, random.below(150));
        for line in lines {
            // A line that the kill has cut acknowledges nothing.
            if let Some(count) = line.unwrap().strip_prefix("acknowledged ") {
                acknowledged = count.parse().unwrap_or(acknowledged);
                heard += 1;
            }
            if heard == wanted {
                // Kill it at any point of a commit, not only after one.
                std::thread::sleep(Duration::from_micros(random.below(3000)));
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let (store, kept) = open(&folder.0);
        let state = State::from(&kept);
        let count = state.count();
        assert!(
            count >= acknowledged,
            "round {round}: {count} of {acknowledged}"
        );
        while told.state.count() < count {
            told.next();
        }
        assert!(
            state == told.state,
            "round {round}: not as it was after {count} submissions"
        );
        store.close().unwrap();
    }
    assert!(told.state.count() > 100, "{}", told.state.count());
}
