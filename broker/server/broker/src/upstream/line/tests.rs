#![allow(clippy::unwrap_used)]

use super::*;

const LET_IN: [u8; 5] = [0x20, 3, 0, 0, 0]; // CONNACK, a new session

fn line() -> Line {
    let terms = Terms {
        clean: true,
        keep_alive_s: 60,
        expiry_s: 3600,
        will: None,
    };
    Line::new("gateway", terms, 1 << 20)
}

/// Connect at a time, and drop the octets that were written.
fn connect(line: &mut Line, now_s: u64) {
    line.open(now_s, Version::V5, None);
    line.take(now_s, &LET_IN, &mut Vec::new()).unwrap();
    line.out.clear();
}

/// The packet identifiers of the SUBSCRIBEs that were written; nothing else was.
fn asked(line: &mut Line) -> Vec<[u8; 2]> {
    let (out, mut ids) = (std::mem::take(&mut line.out), Vec::new());
    let mut rest = &*out;
    while let Some(frame) = frame(rest, usize::MAX).unwrap() {
        if rest[0] == 0x82 {
            ids.push([rest[2], rest[3]]);
        }
        rest = &rest[frame.length..];
    }
    ids
}

#[test]
fn what_is_refused_after_a_return_is_asked_for_again_each_minute_until_it_is_granted() {
    let (mut line, mut events) = (line(), Vec::new());
    connect(&mut line, 0);
    let who = Session::new("sensor", 1);
    line.subscribe(0, &who, 7, "a/+", Qos::AtLeastOnce).unwrap();
    let [high, low] = asked(&mut line)[0];
    line.take(0, &[0x90, 4, high, low, 0, 1], &mut events)
        .unwrap();
    line.close(&mut events);
    connect(&mut line, 10);
    let mut now_s = 10;
    line.ask_again(now_s);
    let mut ids: Vec<[u8; 2]> = line.asks.keys().map(|id| id.to_be_bytes()).collect();
    for code in [0x87, 0x97, 1] {
        let [high, low] = ids.pop().unwrap();
        line.take(now_s, &[0x90, 4, high, low, 0, code], &mut events)
            .unwrap();
        let denied = events
            .drain(..)
            .filter(|one| matches!(one, Event::Denied(_)));
        assert_eq!(denied.count(), usize::from(code >= 0x80));
        line.out.clear();
        for _ in 0..DENIED_S {
            assert!(asked(&mut line).is_empty(), "not before a minute");
            now_s += 1;
            line.pings.clear(); // as if they were answered
            line.tick(now_s).unwrap();
        }
        ids = asked(&mut line);
        assert_eq!(ids.len(), usize::from(code >= 0x80));
    }
    assert!(line.is_subscribed("a/+", 1));
}

#[test]
fn an_identifier_that_is_in_use_is_not_given_to_another_filter() {
    let mut line = line();
    connect(&mut line, 0);
    let who = Session::new("sensor", 1);
    line.subscribe(0, &who, 7, "a", Qos::AtMostOnce).unwrap();
    line.last_identifier = 0x0FFF_FFFF; // so many SUBSCRIBEs later
    line.subscribe(0, &who, 8, "b", Qos::AtMostOnce).unwrap();
    assert_eq!(&*line.identifiers[&1].0, "a");
    assert_eq!(&*line.identifiers[&2].0, "b");
}

#[test]
fn packet_identifiers_are_never_used_up() {
    let mut line = line();
    connect(&mut line, 0);
    let message = Message {
        whole: None,
        topic: "gone",
        payload: b"",
        qos: Qos::AtLeastOnce,
        retain: false,
        forwarded: &[],
        expires_s: None,
    };
    let who = Session::new("sensor", 1);
    let taken = (0..outgoing::MOST_FLIGHTS + 2)
        .filter(|_| line.publish(&message, usize::MAX, None).is_ok())
        .count();
    assert_eq!(taken, outgoing::MOST_FLIGHTS);
    let mut line = self::line();
    connect(&mut line, 0);
    for number in 0..70_000 {
        let _ = line.subscribe(0, &who, 1, &format!("a/{number}"), Qos::AtMostOnce);
        line.unsubscribe(0, &format!("a/{number}"), 1);
        line.out.clear();
    }
    assert!(line.asks.len() + line.ending.len() < 1 << 15);
    line.close(&mut Vec::new());
    connect(&mut line, 1);
    assert!(line.over.is_empty(), "the new session knows none of them");
}
