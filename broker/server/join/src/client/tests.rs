//! Time messages that the broker sends to a client.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use mqtick_packet::{ConnectOut, Outgoing, Property, connect, frame, publish};

const PAYLOAD: &[u8] = b"\x27one, with a trailer of 16 octets";

fn client() -> Paired {
    let mut octets = Vec::new();
    connect(&mut octets, Version::V5, &ConnectOut::default());
    match decode(&frame(&octets, 1 << 20).unwrap().unwrap(), Version::V5).unwrap() {
        Packet::Connect(connect) => Paired::new(1, &connect),
        other => panic!("{other:?}"),
    }
}

/// Whether a copy with this property is taken for a time message.
fn is_timed(client: &mut Paired, topic: &str, property: &Property<'_>) -> bool {
    let times = Residence::new(vec!["time/#".into()], true);
    let (mut octets, mut forwarded) = (Vec::new(), Vec::new());
    property.encode(&mut forwarded);
    let message = Outgoing {
        topic,
        payload: PAYLOAD,
        forwarded: &forwarded,
        ..Outgoing::default()
    };
    publish(&mut octets, Version::V5, &message);
    let found = frame(&octets, 1 << 20).unwrap().unwrap();
    client.broker_tells(&found, &times).is_some()
}

#[test]
fn an_alias_that_stands_for_another_topic_now_is_no_longer_one_of_time_messages() {
    let (mut client, one, two) = (client(), Property::TopicAlias(1), Property::TopicAlias(2));
    assert!(is_timed(&mut client, "time/a", &one));
    assert!(!is_timed(&mut client, "other", &two));
    assert!(is_timed(&mut client, "", &one));
    assert!(!is_timed(&mut client, "", &two));
    assert!(!is_timed(&mut client, "other", &one));
    assert!(!is_timed(&mut client, "", &one));
    assert!(is_timed(&mut client, "time/a", &two));
    assert!(is_timed(&mut client, "", &two));
}

#[test]
fn a_time_message_with_a_mistake_states_nothing() {
    let mistake = Property::ResponseTopic("");
    assert!(is_timed(&mut client(), "time/a", &mistake));
    assert!(!is_timed(&mut client(), "other", &mistake));
}
