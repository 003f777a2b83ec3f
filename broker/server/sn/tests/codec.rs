//! The codec of MQTT-SN: valid and refused octets, and that decoding reverses encoding.

#![allow(clippy::unwrap_used)]

use mqtick_sn::{
    Code, Error, Filter, Forwarded, Message, Qos, Topic, Will, decode, encode, encode_forwarded,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn octets(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(encode(message, &mut out));
    out
}

fn any_qos() -> impl Strategy<Value = Qos> {
    prop_oneof![
        Just(Qos::AtMostOnce),
        Just(Qos::AtLeastOnce),
        Just(Qos::ExactlyOnce)
    ]
}

/// A message of a type, made of these values.
fn message<'a>(
    kind: usize,
    (a, b, c): (u16, u16, u8),
    (dup, retain): (bool, bool),
    qos: Qos,
    name: &'a str,
    data: &'a [u8],
) -> Message<'a> {
    let (topic_id, message_id, code) = (a, b, Code(c));
    let will = retain.then_some(Will {
        qos,
        retain: dup,
        topic: name,
    });
    let filter = match c % 3 {
        0 => Filter::Name(name),
        1 => Filter::Predefined(a),
        _ => Filter::Short(a.to_be_bytes()),
    };
    let topic = match c % 3 {
        0 => Topic::Registered(a),
        1 => Topic::Predefined(a),
        _ => Topic::Short(a.to_be_bytes()),
    };
    match kind {
        0 => Message::Advertise {
            gateway: c,
            duration_s: a,
        },
        1 => Message::SearchGateway { radius: c },
        2 => Message::GatewayInfo {
            gateway: c,
            address: data,
        },
        3 => Message::Connect {
            will: dup,
            clean: retain,
            protocol: c,
            duration_s: a,
            client: name,
        },
        4 => Message::Connack(code),
        5 => Message::WillTopicRequest,
        6 => Message::WillTopic(will),
        7 => Message::WillMessageRequest,
        8 => Message::WillMessage(data),
        9 => Message::Register {
            topic_id,
            message_id,
            name,
        },
        10 => Message::Regack {
            topic_id,
            message_id,
            code,
        },
        11 => Message::Publish {
            dup,
            qos: if b.is_multiple_of(4) {
                Qos::Unconnected
            } else {
                qos
            },
            retain,
            topic,
            message_id,
            data,
        },
        12 => Message::Puback {
            topic_id,
            message_id,
            code,
        },
        13 => Message::Pubrec(a),
        14 => Message::Pubrel(a),
        15 => Message::Pubcomp(a),
        16 => Message::Subscribe {
            dup,
            qos,
            message_id,
            filter,
        },
        17 => Message::Suback {
            qos,
            topic_id,
            message_id,
            code,
        },
        18 => Message::Unsubscribe { message_id, filter },
        19 => Message::Unsuback(a),
        20 => Message::Pingreq {
            client: if dup { name } else { "" },
        },
        21 => Message::Pingresp,
        22 => Message::Disconnect {
            duration_s: dup.then_some(a),
        },
        23 => Message::WillTopicUpdate(will),
        24 => Message::WillTopicResponse(code),
        25 => Message::WillMessageUpdate(data),
        _ => Message::WillMessageResponse(code),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_also_behind_a_forwarder(
        kind in 0_usize..27,
        numbers in any::<(u16, u16, u8)>(),
        flags in any::<(bool, bool)>(),
        qos in any_qos(),
        name in "[a-zé/+#$]{1,300}",
        data in vec(any::<u8>(), 0..300),
        node in vec(any::<u8>(), 0..252),
        radius in 0_u8..4,
    ) {
        let message = message(kind, numbers, flags, qos, &name, &data);
        let mut written = octets(&message);
        prop_assert_eq!(decode(&written), Ok((message, None)));
        for length in 0..written.len() {
            prop_assert!(decode(&written[..length]).is_err(), "cut to {length} octets");
        }
        written.push(0);
        prop_assert!(decode(&written).is_err(), "an octet is left over");
        let forwarded = Forwarded { radius, node: &node };
        let mut written = Vec::new();
        prop_assert!(encode_forwarded(&message, &forwarded, &mut written));
        prop_assert_eq!(decode(&written), Ok((message, Some(forwarded))));
        for length in 0..written.len() {
            prop_assert!(decode(&written[..length]).is_err(), "cut to {length} octets");
        }
    }

    #[test]
    fn any_octets_are_read_or_refused(octets in vec(any::<u8>(), 0..80)) {
        let _ = decode(&octets);
    }

    /// The length is valid here, since almost all random datagrams fail at it.
    #[test]
    fn any_body_is_read_or_refused_and_written_the_same(
        kind in prop_oneof![0_u8..0x1e, Just(0xfe)],
        body in vec(any::<u8>(), 0..40),
    ) {
        let mut octets = vec![2 + body.len() as u8, kind];
        octets.extend(&body);
        if let Ok((message, None)) = decode(&octets) {
            let mut again = Vec::new();
            prop_assert!(encode(&message, &mut again));
            prop_assert_eq!(decode(&again), Ok((message, None)));
            prop_assert_eq!(again.len(), octets.len());
        }
    }
}

#[test]
fn a_length_that_is_not_the_number_of_octets_is_refused() {
    for lie in [
        "",
        "00",
        "01",
        "02",
        "0217ff",
        "0317",
        "0017",
        "010017",
        "01000517",
        "0100041700",
    ] {
        let octets: Vec<u8> = (0..lie.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&lie[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(decode(&octets), Err(Error::Length), "{lie}");
    }
}

#[test]
fn a_length_of_three_octets_is_written_where_one_is_not_enough_and_read_anywhere() {
    assert_eq!(decode(&[1, 0, 4, 0x17]), Ok((Message::Pingresp, None)));
    let data = [7; 70_000];
    let message = |length| Message::WillMessage(&data[..length]);
    assert_eq!(octets(&message(253))[..3], [255, 0x09, 7]);
    assert_eq!(octets(&message(254))[..4], [1, 0x01, 0x02, 0x09]);
    assert_eq!(octets(&message(65_531)).len(), 65_535);
    let mut out = vec![1, 2];
    assert!(!encode(&message(65_532), &mut out));
    assert_eq!(out, [1, 2], "nothing of it is left");
}

#[test]
fn reserved_flags_and_types_are_refused() {
    assert_eq!(decode(&[7, 0x0c, 3, 0, 1, 0, 0]), Err(Error::Flags));
    assert_eq!(
        decode(&[7, 0x12, 0x60, 0, 1, b'a', b'b']),
        Err(Error::Flags),
        "SUBSCRIBE, QoS -1"
    );
    assert_eq!(decode(&[7, 0x12, 3, 0, 1, b'a', b'b']), Err(Error::Flags));
    for kind in [3, 0x11, 0x19, 0x1e, 0x80, 0xff] {
        assert_eq!(decode(&[2, kind]), Err(Error::Type), "{kind:#x}");
    }
}

#[test]
fn names_are_of_utf8_and_not_empty() {
    assert_eq!(decode(&[7, 0x04, 4, 1, 0, 9, 0xff]), Err(Error::Text));
    assert_eq!(decode(&[6, 0x04, 4, 1, 0, 9]), Err(Error::Text));
    assert_eq!(decode(&[6, 0x0a, 0, 0, 0, 1]), Err(Error::Text));
}

#[test]
fn a_forwarder_inside_another_one_is_refused() {
    assert_eq!(
        decode(&[4, 0xfe, 0, 9, 2, 0x17]).unwrap().1.unwrap().node,
        [9]
    );
    assert_eq!(
        decode(&[4, 0xfe, 0, 9, 4, 0xfe, 0, 9, 2, 0x17]),
        Err(Error::Length)
    );
    assert_eq!(decode(&[4, 0xfe, 0, 9, 3, 0xfe, 0]), Err(Error::Type));
    assert_eq!(
        decode(&[2, 0xfe, 2, 0x17]),
        Err(Error::Length),
        "no control octet"
    );
}
