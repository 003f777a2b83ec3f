//! What a session says to a broker that answers, breaks off, forgets the session, or takes less.
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

fn delivery() -> Delivery {
    delivery_to(&Takes2::default())
}

fn delivery_to(broker: &Takes2) -> Delivery {
    let mut delivery = Delivery::new("delivery".into(), Rc::clone(broker));
    delivery.open(None, None);
    delivery
}

fn hear(delivery: &mut Delivery, say: impl FnOnce(&mut Vec<u8>)) -> Vec<Key> {
    let mut octets = Vec::new();
    say(&mut octets);
    let found = frame(&octets, 1 << 20).unwrap().unwrap();
    delivery.take(&found, &Retained::default()).unwrap();
    std::mem::take(&mut delivery.done)
}

fn answer(delivery: &mut Delivery, kind: AckKind, id: u16) -> Vec<Key> {
    let version = delivery.version;
    hear(delivery, |out| ack(out, version, kind, id, 0))
}

fn accept(delivery: &mut Delivery, is_present: bool, with: &ConnackProperties<'_>) -> Vec<Key> {
    hear(delivery, |out| {
        connack(out, Version::V5, is_present, 0, with)
    })
}

fn reconnect(delivery: &mut Delivery) {
    delivery.closed(true);
    delivery.open(None, None);
}

fn up(delivery: &mut Delivery, is_present: bool) -> Vec<Key> {
    let with = ConnackProperties {
        receive_maximum: Some(1),
        ..ConnackProperties::default()
    };
    accept(delivery, is_present, &with)
}

fn publish(delivery: &mut Delivery, number: u64, message: Rc<Message>, is_full: bool) {
    delivery.publish(key(number), message, is_full, &Retained::default());
}

fn message(qos: Qos) -> Rc<Message> {
    Rc::new(Message {
        topic: "t".into(),
        qos,
        ..Message::default()
    })
}

/// First octet and packet identifier of each PUBLISH and PUBREL that is to be sent.
fn sent(delivery: &mut Delivery) -> Vec<(u8, u16)> {
    let out = std::mem::take(&mut delivery.out);
    let (mut at, mut all) = (0, Vec::new());
    while let Some(found) = frame(&out[at..], 1 << 20).unwrap() {
        at += found.length;
        match mqtick_packet::decode(&found, delivery.version).unwrap() {
            Packet::Publish(publish) => all.push((found.first, publish.id)),
            Packet::Ack(ack) => all.push((found.first, ack.id)),
            _ => {}
        }
    }
    all
}

#[test]
fn a_message_of_qos_2_goes_on_where_it_was_when_the_connection_broke() {
    let mut delivery = delivery();
    publish(&mut delivery, 1, message(Qos::ExactlyOnce), false);
    up(&mut delivery, false);
    assert_eq!(sent(&mut delivery), [(0x34, 1)]);
    reconnect(&mut delivery);
    up(&mut delivery, true);
    assert_eq!(sent(&mut delivery), [(0x3C, 1)], "sent again, and said so");
    let done = answer(&mut delivery, AckKind::Pubrec, 1);
    assert_eq!(done, [key(1)], "the broker has it");
    assert_eq!(sent(&mut delivery), [(0x62, 1)]);
    reconnect(&mut delivery);
    assert!(up(&mut delivery, true).is_empty());
    assert_eq!(sent(&mut delivery), [(0x62, 1)]);
    answer(&mut delivery, AckKind::Pubcomp, 1);
    assert_eq!(delivery.waiting(), 0);
}

#[test]
fn a_message_that_ends_the_connection_each_time_is_given_up_and_those_behind_it_go() {
    let mut delivery = delivery();
    publish(&mut delivery, 1, message(Qos::AtLeastOnce), false);
    publish(&mut delivery, 2, message(Qos::AtLeastOnce), false);
    for _ in 0..MOST_TRIES {
        assert!(up(&mut delivery, true).is_empty());
        assert_eq!(delivery.waiting(), 2);
        reconnect(&mut delivery);
    }
    assert_eq!(up(&mut delivery, true), [key(1)]);
    assert_eq!((delivery.refused, delivery.waiting()), (1, 1));
}

#[test]
fn of_qos_0_nothing_waits() {
    let mut delivery = delivery();
    publish(&mut delivery, 1, message(Qos::AtMostOnce), false);
    up(&mut delivery, false);
    publish(&mut delivery, 2, message(Qos::AtMostOnce), true);
    delivery.out.clear();
    publish(&mut delivery, 3, message(Qos::AtMostOnce), false);
    assert_eq!(sent(&mut delivery), [(0x30, 0)]);
    assert_eq!(delivery.dropped, 2);
}

#[test]
fn nothing_is_sent_that_the_broker_says_it_does_not_take() {
    let mut delivery = delivery();
    publish(&mut delivery, 1, message(Qos::ExactlyOnce), false);
    let with = ConnackProperties {
        maximum_qos: Some(Qos::AtLeastOnce),
        retain_available: Some(false),
        maximum_packet_size: Some(100),
        ..ConnackProperties::default()
    };
    accept(&mut delivery, false, &with);
    assert_eq!(sent(&mut delivery), [(0x32, 1)], "with QoS 1");
    let kept = Message {
        retain: true,
        ..Message::clone(&message(Qos::AtMostOnce))
    };
    publish(&mut delivery, 2, Rc::new(kept), false);
    assert_eq!(sent(&mut delivery), [(0x30, 0)], "as one that is not kept");
    let long = |qos| {
        Rc::new(Message {
            payload: vec![0; 100],
            ..Message::clone(&message(qos))
        })
    };
    publish(&mut delivery, 3, long(Qos::AtMostOnce), false);
    publish(&mut delivery, 4, long(Qos::AtLeastOnce), false);
    assert_eq!(sent(&mut delivery), []);
    assert_eq!(
        (delivery.dropped, delivery.refused),
        (0, 2),
        "both are too long"
    );
    assert_eq!(delivery.done, [key(4)], "it is not waited for");
}

#[test]
fn a_broker_that_forgot_the_session_and_takes_less_at_once_is_sent_less_at_once() {
    let mut delivery = delivery();
    accept(&mut delivery, false, &ConnackProperties::default());
    for number in 1..=3 {
        publish(&mut delivery, number, message(Qos::AtLeastOnce), false);
    }
    assert_eq!(sent(&mut delivery).len(), 3);
    reconnect(&mut delivery);
    up(&mut delivery, false);
    assert_eq!(sent(&mut delivery), [(0x32, 1)]);
    for number in 1..=3 {
        let id = delivery.flying.front().unwrap().id;
        let done = answer(&mut delivery, AckKind::Puback, id);
        assert_eq!(done, [key(number)]);
    }
}

#[test]
fn a_broker_that_comes_back_and_takes_only_qos_0_is_not_waited_for() {
    let mut delivery = delivery();
    for number in 1..=2 {
        publish(&mut delivery, number, message(Qos::ExactlyOnce), false);
    }
    up(&mut delivery, false);
    reconnect(&mut delivery);
    delivery.out.clear();
    let with = ConnackProperties {
        maximum_qos: Some(Qos::AtMostOnce),
        ..ConnackProperties::default()
    };
    let done = accept(&mut delivery, true, &with);
    assert_eq!(sent(&mut delivery), [(0x30, 0), (0x30, 0)]);
    assert_eq!(done, [key(1), key(2)]);
    assert_eq!(delivery.waiting(), 0);
}

#[test]
fn a_message_whose_time_is_over_is_not_published_any_more() {
    let mut delivery = delivery();
    for (number, expiry) in [(1, 5), (2, 60)] {
        let message = Message {
            expiry: Some(expiry),
            ..Message::clone(&message(Qos::AtLeastOnce))
        };
        publish(&mut delivery, number, Rc::new(message), false);
    }
    delivery.now_s = 10;
    assert_eq!(up(&mut delivery, false), [key(1)]);
    assert_eq!(delivery.expired, 1);
    let found = frame(&delivery.out, 1 << 20).unwrap().unwrap();
    delivery.out = delivery.out.split_off(found.length);
    let found = frame(&delivery.out, 1 << 20).unwrap().unwrap();
    match mqtick_packet::decode(&found, Version::V5).unwrap() {
        Packet::Publish(publish) => {
            assert_eq!(publish.properties.message_expiry(), Some(50));
        }
        other => unreachable!("{other:?}"),
    }
}

/// A delivery to a broker of MQTT 3.1.1; what is sent when it is connected again.
fn old_delivery(broker: &Takes2) -> (Delivery, impl Fn(&mut Delivery) -> Vec<(u8, u16)>) {
    let mut delivery = delivery_to(broker);
    delivery.closed(true); // it does not speak MQTT 5
    let connected = |delivery: &mut Delivery| {
        delivery.open(None, None);
        delivery.out.clear();
        hear(delivery, |out| {
            connack(out, Version::V3, true, 0, &ConnackProperties::default());
        });
        sent(delivery)
    };
    (delivery, connected)
}

#[test]
fn a_broker_of_mqtt_3_1_1_that_ends_the_connection_at_qos_2_gets_it_with_qos_1() {
    let broker = Takes2::default();
    let ((mut delivery, connected), (mut other, _)) =
        (old_delivery(&broker), old_delivery(&broker));
    publish(&mut delivery, 1, message(Qos::ExactlyOnce), false);
    publish(&mut delivery, 2, message(Qos::ExactlyOnce), false);
    for dup in [0, 8] {
        assert_eq!(connected(&mut delivery), [(0x34 | dup, 1), (0x34 | dup, 2)]);
        delivery.closed(true);
    }
    assert_eq!(connected(&mut delivery), [(0x3A, 1), (0x3A, 2)]);
    for number in 1..=2 {
        let done = answer(&mut delivery, AckKind::Puback, number as u16);
        assert_eq!(done, [key(number)]);
    }
    assert_eq!((delivery.refused, delivery.waiting()), (0, 0));
    publish(&mut delivery, 3, message(Qos::ExactlyOnce), false);
    assert_eq!(sent(&mut delivery), [(0x32, 3)], "and those behind it");
    connected(&mut other);
    publish(&mut other, 4, message(Qos::ExactlyOnce), false);
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
    let ((mut delivery, connected), (mut other, _)) =
        (old_delivery(&broker), old_delivery(&broker));
    connected(&mut delivery);
    publish(&mut delivery, 1, message(Qos::ExactlyOnce), false);
    for kind in [AckKind::Pubrec, AckKind::Pubcomp] {
        answer(&mut delivery, kind, 1);
    }
    for (delivery, id) in [(&mut delivery, 2), (&mut other, 1)] {
        connected(delivery);
        publish(delivery, 2, message(Qos::ExactlyOnce), false);
        for _ in 0..MOST_TRIES - 1 {
            delivery.closed(true);
            assert_eq!(connected(delivery), [(0x3C, id)]);
        }
    }
}

#[test]
fn only_a_broker_that_was_there_is_asked_in_the_older_version() {
    let mut delivery = delivery();
    delivery.closed(false);
    assert_eq!(delivery.version(), Version::V5);
    delivery.closed(true);
    assert_eq!(delivery.version(), Version::V3);
    delivery.closed(false);
    assert_eq!(delivery.version(), Version::V5, "another one may come back");
}

#[test]
fn what_waited_while_something_newer_came_is_not_to_be_kept_any_more() {
    let mut delivery = delivery();
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
        delivery.publish(key(number), message, false, &retained);
    }
    let with = ConnackProperties::default();
    let mut octets = Vec::new();
    connack(&mut octets, Version::V5, false, 0, &with);
    delivery
        .take(&frame(&octets, 1 << 20).unwrap().unwrap(), &retained)
        .unwrap();
    assert_eq!(sent(&mut delivery), [(0x32, 1), (0x33, 2)]);
}
