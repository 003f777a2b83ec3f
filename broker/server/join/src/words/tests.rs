//! Packets between nodes, written and read.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use mqtick_packet::{Packet, decode, frame};

fn read(octets: &[u8]) -> Publish<'_> {
    let frame = frame(octets, 1 << 20).unwrap().unwrap();
    match decode(&frame, Version::V5).unwrap() {
        Packet::Publish(publish) => publish,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_is_what_it_was_after_it_went_to_a_neighbour() {
    let mut forwarded = Vec::new();
    Property::ContentType("text").encode(&mut forwarded);
    Property::UserProperty(("a", "b")).encode(&mut forwarded);
    let sent = Message {
        topic: "a/b".into(),
        payload: b"payload".to_vec(),
        qos: Qos::ExactlyOnce,
        retain: true,
        expiry: Some(7),
        came_s: 0,
        forwarded,
        user: "a user".into(),
        client: "a client".into(),
        arrived: None,
        stamp: 0x1_0000_0000,
        handed: true,
        is_denied: false,
    };
    let key = Key {
        origin: u64::MAX,
        lane: 15,
        sequence: 77,
    };
    let mut octets = Vec::new();
    let how = Passage {
        attempt: 3,
        id: 9,
        now_s: 0,
        stated: Some(u64::MAX),
    };
    message(&mut octets, key, &sent, how);
    let publish = read(&octets);
    assert_eq!((publish.qos, publish.id), (Qos::AtLeastOnce, 9));
    let came = Passed {
        key,
        attempt: 3,
        stated: None, // a retained message never states it
        message: sent.clone(),
    };
    assert_eq!(parse_message(&publish), Ok(came));
    octets.clear();
    let later = Passage {
        now_s: 5,
        stated: None,
        ..how
    };
    message(&mut octets, key, &sent, later);
    let found = parse_message(&read(&octets)).unwrap();
    assert_eq!(found.message.expiry, Some(2), "it waited for 5 seconds");
    octets.clear();
    let once = Message {
        retain: false,
        handed: false,
        stamp: 0,
        ..sent
    };
    message(&mut octets, key, &once, how);
    let found = parse_message(&read(&octets)).unwrap();
    assert_eq!((found.stated, found.message), (how.stated, once));
}

#[test]
fn a_message_of_somebody_else_is_refused() {
    for (name, tag) in [
        ("mqtick-join", "1 10 1 0"),
        ("mqtick-join", "1 1 1 800000000"),
        ("mqtick-join", "1 1 1 4"),
        ("mqtick-join", "1 1 1 x"),
        ("mqtick-join", "1 1 1 3"),
        ("mqtick-join", "1 1 1 1"),
        ("mqtick-join", "1 1 1"),
        ("mqtick-join", "1 1 1 0 0 0"),
        ("mqtick-join", "1 1 1 0 "),
        ("mqtick-join", "1 1 1 0 -1"),
        ("mqtick-join", "1 1 1 0 10000000000000000"),
        ("mqtick-join", "1 1 ffffffffffffffff 0"),
        ("mqtick-join", "x 1 1 0"),
        ("other", "1 1 1 0"),
    ] {
        let mut forwarded = Vec::new();
        Property::UserProperty((name, tag)).encode(&mut forwarded);
        Property::UserProperty(("", "")).encode(&mut forwarded);
        let mut octets = Vec::new();
        let outgoing = Outgoing {
            topic: "a",
            forwarded: &forwarded,
            ..Outgoing::default()
        };
        publish(&mut octets, Version::V5, &outgoing);
        assert!(parse_message(&read(&octets)).is_err(), "{name} {tag}");
    }
}

#[test]
fn a_greeting_is_read_as_it_was_said_and_one_of_another_version_is_told_apart() {
    let hello = Hello {
        node: 17,
        key: 3,
        index: 1,
        count: 2,
        algorithm: "subscriptions".into(),
        name: "site-a".into(),
    };
    let text = hello.to_string();
    assert_eq!(Hello::parse(&text), Ok(hello));
    let other = Hello::parse("mqtick-join/1/11/3/1/2/subscriptions/site-a").unwrap_err();
    assert_eq!(
        other,
        "the node that connects speaks version \"1\" of mqtick-join's protocol, and the node that it \
         connects to speaks version 4: install the same release at both"
    );
    for wrong in [
        "",
        "/11/3/2/2/subscriptions/site-a",
        "/11/3/0/0/subscriptions/site-a",
        "/11/3/0/17/subscriptions/site-a",
        "/11/3/0/1/subscriptions/site a",
        "/11/3/0/1/subscriptions/a/b",
        "/x/3/0/1/subscriptions/a",
    ] {
        let said = Hello::parse(&format!("{MARK}{VERSION}{wrong}"));
        assert_eq!(said, Err("its greeting is malformed".into()), "{wrong}");
    }
}
