//! What a lane says to a broker that answers, breaks off, forgets, or takes less.
#![allow(clippy::unwrap_used)]

use super::*;
use mqtick_packet::{ConnackProperties, connack, frame};

fn key(sequence: u64) -> Key {
    Key {
        origin: 1,
        lane: 0,
        sequence,
    }
}

fn lane() -> Lane {
    lane_of(&Takes2::default())
}

fn lane_of(broker: &Takes2) -> Lane {
    let mut lane = Lane::new("lane".into(), Rc::clone(broker));
    lane.open(None, None);
    lane
}

fn hear(lane: &mut Lane, say: impl FnOnce(&mut Vec<u8>)) -> Vec<Key> {
    let mut octets = Vec::new();
    say(&mut octets);
    let found = frame(&octets, 1 << 20).unwrap().unwrap();
    lane.take(&found, &Retained::default()).unwrap();
    std::mem::take(&mut lane.done)
}

fn up(lane: &mut Lane, is_present: bool) -> Vec<Key> {
    let with = ConnackProperties {
        receive_maximum: Some(1),
        ..ConnackProperties::default()
    };
    hear(lane, |out| connack(out, Version::V5, is_present, 0, &with))
}

fn publish(lane: &mut Lane, key: Key, message: Rc<Message>, is_full: bool) {
    lane.publish(key, message, is_full, &Retained::default());
}

fn message(qos: Qos) -> Rc<Message> {
    Rc::new(Message {
        topic: "t".into(),
        qos,
        ..Message::default()
    })
}

/// First octet and packet identifier of each PUBLISH and PUBREL that is to be sent.
fn sent(lane: &mut Lane) -> Vec<(u8, u16)> {
    let out = std::mem::take(&mut lane.out);
    let (mut at, mut all) = (0, Vec::new());
    while let Some(found) = frame(&out[at..], 1 << 20).unwrap() {
        at += found.length;
        match mqtick_packet::decode(&found, lane.version).unwrap() {
            Packet::Publish(publish) => all.push((found.first, publish.id)),
            Packet::Ack(ack) => all.push((found.first, ack.id)),
            _ => {}
        }
    }
    all
}

#[test]
fn a_message_of_qos_2_goes_on_where_it_was_when_the_connection_broke() {
    let mut lane = lane();
    publish(&mut lane, key(1), message(Qos::ExactlyOnce), false);
    up(&mut lane, false);
    assert_eq!(sent(&mut lane), [(0x34, 1)]);
    lane.closed(true);
    lane.open(None, None);
    up(&mut lane, true);
    assert_eq!(sent(&mut lane), [(0x3C, 1)], "sent again, and said so");
    let done = hear(&mut lane, |out| {
        ack(out, Version::V5, AckKind::Pubrec, 1, 0)
    });
    assert_eq!(done, [key(1)], "the broker has it");
    assert_eq!(sent(&mut lane), [(0x62, 1)]);
    lane.closed(true);
    lane.open(None, None);
    assert!(up(&mut lane, true).is_empty());
    assert_eq!(sent(&mut lane), [(0x62, 1)]);
    hear(&mut lane, |out| {
        ack(out, Version::V5, AckKind::Pubcomp, 1, 0)
    });
    assert_eq!(lane.waiting(), 0);
}

#[test]
fn a_message_that_ends_the_connection_each_time_is_given_up_and_those_behind_it_go() {
    let mut lane = lane();
    publish(&mut lane, key(1), message(Qos::AtLeastOnce), false);
    publish(&mut lane, key(2), message(Qos::AtLeastOnce), false);
    for _ in 0..MOST_TRIES {
        assert!(up(&mut lane, true).is_empty());
        assert_eq!(lane.waiting(), 2);
        lane.closed(true);
        lane.open(None, None);
    }
    assert_eq!(up(&mut lane, true), [key(1)]);
    assert_eq!((lane.refused, lane.waiting()), (1, 1));
}

#[test]
fn of_qos_0_nothing_waits() {
    let mut lane = lane();
    publish(&mut lane, key(1), message(Qos::AtMostOnce), false);
    up(&mut lane, false);
    publish(&mut lane, key(2), message(Qos::AtMostOnce), true);
    lane.out.clear();
    publish(&mut lane, key(3), message(Qos::AtMostOnce), false);
    assert_eq!(sent(&mut lane), [(0x30, 0)]);
    assert_eq!(lane.dropped, 2);
}

#[test]
fn nothing_is_sent_that_the_broker_says_it_does_not_take() {
    let mut lane = lane();
    publish(&mut lane, key(1), message(Qos::ExactlyOnce), false);
    let with = ConnackProperties {
        maximum_qos: Some(Qos::AtLeastOnce),
        retain_available: Some(false),
        maximum_packet_size: Some(100),
        ..ConnackProperties::default()
    };
    hear(&mut lane, |out| connack(out, Version::V5, false, 0, &with));
    assert_eq!(sent(&mut lane), [(0x32, 1)], "with QoS 1");
    let kept = Message {
        retain: true,
        ..Message::clone(&message(Qos::AtMostOnce))
    };
    publish(&mut lane, key(2), Rc::new(kept), false);
    assert_eq!(sent(&mut lane), [(0x30, 0)], "as one that is not kept");
    let long = |qos| {
        Rc::new(Message {
            payload: vec![0; 100],
            ..Message::clone(&message(qos))
        })
    };
    publish(&mut lane, key(3), long(Qos::AtMostOnce), false);
    publish(&mut lane, key(4), long(Qos::AtLeastOnce), false);
    assert_eq!(sent(&mut lane), []);
    assert_eq!((lane.dropped, lane.refused), (1, 1));
    assert_eq!(lane.done, [key(4)], "nobody waits for it");
}

#[test]
fn a_broker_that_forgot_the_session_and_takes_less_at_once_is_sent_less_at_once() {
    let mut lane = lane();
    hear(&mut lane, |out| {
        connack(out, Version::V5, false, 0, &ConnackProperties::default());
    });
    for number in 1..=3 {
        publish(&mut lane, key(number), message(Qos::AtLeastOnce), false);
    }
    assert_eq!(sent(&mut lane).len(), 3);
    lane.closed(true);
    lane.open(None, None);
    up(&mut lane, false);
    assert_eq!(sent(&mut lane), [(0x32, 1)]);
    for number in 1..=3 {
        let id = lane.flying.front().unwrap().id;
        let done = hear(&mut lane, |out| {
            ack(out, Version::V5, AckKind::Puback, id, 0);
        });
        assert_eq!(done, [key(number)]);
    }
}

#[test]
fn a_message_whose_time_is_over_is_not_published_any_more() {
    let mut lane = lane();
    for (number, expiry) in [(1, 5), (2, 60)] {
        let message = Message {
            expiry: Some(expiry),
            ..Message::clone(&message(Qos::AtLeastOnce))
        };
        publish(&mut lane, key(number), Rc::new(message), false);
    }
    lane.now_s = 10;
    assert_eq!(up(&mut lane, false), [key(1)]);
    assert_eq!(lane.expired, 1);
    let found = frame(&lane.out, 1 << 20).unwrap().unwrap();
    lane.out = lane.out.split_off(found.length);
    let found = frame(&lane.out, 1 << 20).unwrap().unwrap();
    match mqtick_packet::decode(&found, Version::V5).unwrap() {
        Packet::Publish(publish) => {
            assert_eq!(publish.properties.message_expiry(), Some(50));
        }
        other => unreachable!("{other:?}"),
    }
}

/// A lane to a broker of MQTT 3.1.1; what is sent when it is connected again.
fn old_lane(broker: &Takes2) -> (Lane, impl Fn(&mut Lane) -> Vec<(u8, u16)>) {
    let mut lane = lane_of(broker);
    lane.closed(true); // it does not speak MQTT 5
    let connected = |lane: &mut Lane| {
        lane.open(None, None);
        lane.out.clear();
        hear(lane, |out| {
            connack(out, Version::V3, true, 0, &ConnackProperties::default());
        });
        sent(lane)
    };
    (lane, connected)
}

#[test]
fn a_broker_of_mqtt_3_1_1_that_ends_the_connection_at_qos_2_gets_it_with_qos_1() {
    let broker = Takes2::default();
    let ((mut lane, connected), (mut other, _)) = (old_lane(&broker), old_lane(&broker));
    publish(&mut lane, key(1), message(Qos::ExactlyOnce), false);
    publish(&mut lane, key(2), message(Qos::ExactlyOnce), false);
    for dup in [0, 8] {
        assert_eq!(connected(&mut lane), [(0x34 | dup, 1), (0x34 | dup, 2)]);
        lane.closed(true);
    }
    assert_eq!(connected(&mut lane), [(0x3A, 1), (0x3A, 2)]);
    for number in 1..=2 {
        let done = hear(&mut lane, |out| {
            ack(out, Version::V3, AckKind::Puback, number as u16, 0);
        });
        assert_eq!(done, [key(number)]);
    }
    assert_eq!((lane.refused, lane.waiting()), (0, 0));
    publish(&mut lane, key(3), message(Qos::ExactlyOnce), false);
    assert_eq!(sent(&mut lane), [(0x32, 3)], "and those behind it");
    connected(&mut other);
    publish(&mut other, key(4), message(Qos::ExactlyOnce), false);
    assert_eq!(
        sent(&mut other),
        [(0x32, 1)],
        "and those on other connections"
    );
}

#[test]
fn a_broker_that_has_taken_qos_2_goes_on_to_get_it_on_all_connections_however_often_it_breaks_off()
{
    let broker = Takes2::default();
    let ((mut lane, connected), (mut other, _)) = (old_lane(&broker), old_lane(&broker));
    connected(&mut lane);
    publish(&mut lane, key(1), message(Qos::ExactlyOnce), false);
    for kind in [AckKind::Pubrec, AckKind::Pubcomp] {
        hear(&mut lane, |out| ack(out, Version::V3, kind, 1, 0));
    }
    for (lane, id) in [(&mut lane, 2), (&mut other, 1)] {
        connected(lane);
        publish(lane, key(2), message(Qos::ExactlyOnce), false);
        for _ in 0..MOST_TRIES - 1 {
            lane.closed(true);
            assert_eq!(connected(lane), [(0x3C, id)]);
        }
    }
}

#[test]
fn only_a_broker_that_was_there_is_asked_in_the_older_version() {
    let mut lane = lane();
    lane.closed(false);
    assert_eq!(lane.version(), Version::V5);
    lane.closed(true);
    assert_eq!(lane.version(), Version::V3);
    lane.closed(false);
    assert_eq!(lane.version(), Version::V5, "another one may come back");
}

#[test]
fn what_waited_while_something_newer_came_is_not_to_be_kept_any_more() {
    let mut lane = lane();
    let kept = |stamp, payload: &[u8]| {
        Rc::new(Message {
            retain: true,
            stamp,
            payload: payload.into(),
            ..Message::clone(&message(Qos::AtLeastOnce))
        })
    };
    let mut retained = Retained::default();
    for (number, payload) in [(1, b"x"), (2, b"y")] {
        let message = kept(number, payload);
        retained.came(&message);
        lane.publish(key(number), message, false, &retained);
    }
    let with = ConnackProperties::default();
    let mut octets = Vec::new();
    connack(&mut octets, Version::V5, false, 0, &with);
    lane.take(&frame(&octets, 1 << 20).unwrap().unwrap(), &retained)
        .unwrap();
    assert_eq!(sent(&mut lane), [(0x32, 1), (0x33, 2)]);
}
