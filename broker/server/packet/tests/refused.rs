//! All that both standards call malformed or a protocol error is refused, with the right reason.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod common;

use common::{packet, string, variable};
use mqtick_packet::Version::{V3, V5};
use mqtick_packet::{Error, MAXIMUM_LENGTH, Packet, Version, decode, frame};

const MALFORMED: u8 = 0x81;
const PROTOCOL: u8 = 0x82;
const ALIAS: u8 = 0x94;
const VERSION: u8 = 0x84;

fn outcome(version: Version, octets: &[u8]) -> Result<Packet<'_>, Error> {
    decode(
        &frame(octets, MAXIMUM_LENGTH)?.expect("a whole packet"),
        version,
    )
}

#[track_caller]
fn refused(version: Version, reason: u8, first: u8, parts: &[&[u8]]) {
    let octets = packet(first, &parts.concat());
    match outcome(version, &octets) {
        Ok(packet) => panic!("accepted: {packet:?}"),
        Err(error) => assert_eq!(error.reason(), reason, "{error}"),
    }
}

#[track_caller]
fn refused_by_both(reason: u8, first: u8, id: &[u8], rest: &[u8]) {
    refused(V3, reason, first, &[id, rest]);
    refused(V5, reason, first, &[id, &[0], rest]);
}

#[track_caller]
fn accepted(version: Version, first: u8, parts: &[&[u8]]) {
    let octets = packet(first, &parts.concat());
    let found = outcome(version, &octets);
    assert!(found.is_ok(), "{}", found.unwrap_err());
}

/// The body of a CONNECT with a protocol level, flags, and these parts after the keep-alive.
fn connect(level: u8, flags: u8, parts: &[&[u8]]) -> Vec<u8> {
    [&string("MQTT"), &[level, flags, 0, 60][..], &parts.concat()].concat()
}

fn properties(octets: &[u8]) -> Vec<u8> {
    [&variable(octets.len()), octets].concat()
}

const ID: &[u8] = &[0, 9];
const EMPTY: &[u8] = &[0, 0];
const TOPIC: &[u8] = &[0, 1, b't'];

#[test]
fn a_remaining_length_of_more_than_four_octets_is_refused_before_its_fifth_octet() {
    assert_eq!(frame(&[0x30, 0xFF, 0xFF, 0xFF], MAXIMUM_LENGTH), Ok(None));
    let error = frame(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF], MAXIMUM_LENGTH).unwrap_err();
    assert_eq!(error.reason(), MALFORMED);
}

#[test]
fn a_remaining_length_in_more_octets_than_it_needs_is_refused() {
    for length in [
        &[0x80, 0][..],
        &[0x80, 0x80, 0],
        &[0x80, 0x80, 0x80, 0],
        &[0xFF, 0x80, 0],
    ] {
        let octets = [&[0xC0], length].concat();
        assert_eq!(
            frame(&octets, MAXIMUM_LENGTH).unwrap_err().reason(),
            MALFORMED
        );
    }
}

#[test]
fn a_packet_above_the_limit_is_refused_as_soon_as_it_announces_its_length() {
    assert_eq!(frame(&[0x30, 0x7F], 128), Err(Error::TooLarge));
    assert_eq!(frame(&[0x30, 0x7F], 129), Ok(None));
    assert_eq!(frame(&[0x30, 0xFF, 0xFF, 0xFF], 1 << 20), Ok(None));
    let error = frame(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], 1 << 20).unwrap_err();
    assert_eq!((error, error.reason()), (Error::TooLarge, 0x95));
    assert_eq!(
        frame(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], MAXIMUM_LENGTH),
        Ok(None)
    );
    assert_eq!(
        frame(&[0x30, 0xFF, 0xFF, 0xFF, 0x7F], MAXIMUM_LENGTH - 1),
        Err(Error::TooLarge)
    );
}

#[test]
fn octets_of_the_next_packet_are_left_alone() {
    let found = frame(&[0xC0, 0, 0x30, 0xFF], 2).unwrap().unwrap();
    assert_eq!((found.first, found.body, found.length), (0xC0, &[][..], 2));
}

#[test]
fn packet_types_that_there_are_not_are_refused() {
    refused(V3, MALFORMED, 0x00, &[]);
    refused(V5, MALFORMED, 0x00, &[]);
    refused(V3, MALFORMED, 0xF0, &[]);
    accepted(V5, 0xF0, &[]);
}

#[test]
fn reserved_flags_are_refused_with_every_packet_type() {
    let bodies: [(u8, Vec<u8>); 14] = [
        (0x10, connect(5, 2, &[&[0], EMPTY])),
        (0x20, vec![0, 0, 0]),
        (0x40, ID.to_vec()),
        (0x50, ID.to_vec()),
        (0x62, ID.to_vec()),
        (0x70, ID.to_vec()),
        (0x82, [ID, &[0], TOPIC, &[0]].concat()),
        (0x90, [ID, &[0], &[0]].concat()),
        (0xA2, [ID, &[0], TOPIC].concat()),
        (0xB0, [ID, &[0], &[0]].concat()),
        (0xC0, vec![]),
        (0xD0, vec![]),
        (0xE0, vec![]),
        (0xF0, vec![]),
    ];
    for (first, body) in bodies {
        accepted(V5, first, &[&body]);
        for other in (0..16)
            .map(|flags| first & 0xF0 | flags)
            .filter(|other| *other != first)
        {
            refused(V5, MALFORMED, other, &[&body]);
        }
    }
}

#[test]
fn octets_after_the_end_are_refused() {
    refused(V3, MALFORMED, 0x10, &[&connect(4, 2, &[TOPIC]), &[0]]);
    refused(V5, MALFORMED, 0x10, &[&connect(5, 2, &[&[0], TOPIC]), &[0]]);
    refused(V3, MALFORMED, 0x20, &[&[0, 0, 0]]);
    refused(V5, MALFORMED, 0x20, &[&[0, 0, 0, 0]]);
    for first in [0x40, 0x50, 0x62, 0x70] {
        refused(V3, MALFORMED, first, &[ID, &[0]]);
        refused(V5, MALFORMED, first, &[ID, &[0, 0, 0]]);
    }
    refused(V3, MALFORMED, 0xB0, &[ID, &[0]]);
    refused(V3, MALFORMED, 0xE0, &[&[0]]);
    refused(V5, MALFORMED, 0xE0, &[&[0, 0, 0]]);
    refused(V5, MALFORMED, 0xF0, &[&[0, 0, 0]]);
    for first in [0xC0, 0xD0] {
        refused(V3, MALFORMED, first, &[&[0]]);
        refused(V5, MALFORMED, first, &[&[0]]);
    }
}

#[test]
fn strings_that_are_not_utf8_are_refused_wherever_there_is_one() {
    let bad: [&[u8]; 8] = [
        b"\xED\xA0\x80",     // a surrogate, U+D800
        b"\xED\xBF\xBF",     // a surrogate, U+DFFF
        b"\xC0\x80",         // U+0000 in two octets
        b"\xC1\xBF",         // U+007F in two octets
        b"\xE0\x80\xAF",     // U+002F in three octets
        b"\xF4\x90\x80\x80", // above U+10FFFF
        b"a\x00b",           // U+0000
        b"a\xE2\x82",        // cut short
    ];
    for text in bad.map(string) {
        let user = properties(&[&[0x26], EMPTY, &text].concat());
        let name = properties(&[&[0x26], &text[..], EMPTY].concat());
        let content = properties(&[&[0x03], &text[..]].concat());
        let answer = properties(&[&[0x08], &text[..]].concat());
        for properties in [&user, &name, &content, &answer] {
            refused(V5, MALFORMED, 0x30, &[TOPIC, properties]);
        }
        refused(V3, MALFORMED, 0x30, &[&text]);
        refused_by_both(MALFORMED, 0x82, ID, &[&text[..], &[0]].concat());
        refused_by_both(MALFORMED, 0xA2, ID, &text);
        refused(V3, MALFORMED, 0x10, &[&connect(4, 2, &[&text])]);
        refused(V5, MALFORMED, 0x10, &[&connect(5, 2, &[&[0], &text])]);
        refused(
            V3,
            MALFORMED,
            0x10,
            &[&connect(4, 6, &[TOPIC, &text, EMPTY])],
        );
        refused(V3, MALFORMED, 0x10, &[&connect(4, 0x82, &[TOPIC, &text])]);
    }
}

#[test]
fn strings_with_odd_but_allowed_characters_are_accepted() {
    // A byte order mark is kept ([MQTT-1.5.4-3]); control and non-characters are allowed.
    for text in [
        "\u{feff}",
        "\u{1}",
        "\u{7f}",
        "\u{fffe}",
        "\u{10ffff}",
        "\u{fdd0}",
        "€",
    ] {
        let octets = packet(0x30, &[string(text), vec![]].concat());
        let Ok(Packet::Publish(message)) = outcome(V3, &octets) else {
            panic!("{text:?}")
        };
        assert_eq!(message.topic, text);
    }
}

#[test]
fn packet_identifier_zero_is_refused_wherever_there_is_one() {
    refused(V3, PROTOCOL, 0x32, &[TOPIC, EMPTY]);
    refused(V5, PROTOCOL, 0x34, &[TOPIC, EMPTY, &[0]]);
    for first in [0x40, 0x50, 0x62, 0x70] {
        refused(V3, PROTOCOL, first, &[EMPTY]);
        refused(V5, PROTOCOL, first, &[EMPTY]);
    }
    refused_by_both(PROTOCOL, 0x82, EMPTY, &[TOPIC, &[0]].concat());
    refused_by_both(PROTOCOL, 0x90, EMPTY, &[0]);
    refused_by_both(PROTOCOL, 0xA2, EMPTY, TOPIC);
    refused(V3, PROTOCOL, 0xB0, &[EMPTY]);
    refused(V5, PROTOCOL, 0xB0, &[EMPTY, &[0, 0]]);
}

#[test]
fn qos_3_is_refused_wherever_there_is_one() {
    refused(V3, MALFORMED, 0x36, &[TOPIC, ID]);
    refused(V5, MALFORMED, 0x36, &[TOPIC, ID, &[0]]);
    refused_by_both(MALFORMED, 0x82, ID, &[TOPIC, &[3]].concat());
    refused(
        V3,
        MALFORMED,
        0x10,
        &[&connect(4, 0x1E, &[TOPIC, TOPIC, EMPTY])],
    );
    refused(
        V5,
        MALFORMED,
        0x10,
        &[&connect(5, 0x1E, &[&[0], TOPIC, &[0], TOPIC, EMPTY])],
    );
}

#[test]
fn a_publish_that_is_not_allowed_is_refused() {
    refused(V3, MALFORMED, 0x38, &[TOPIC]); // DUP at QoS 0
    refused(V5, MALFORMED, 0x38, &[TOPIC, &[0]]);
    for topic in ["#", "a/+", "a/#", "+", "a+b", "a#"] {
        refused(V3, MALFORMED, 0x30, &[&string(topic)]);
        refused(V5, MALFORMED, 0x30, &[&string(topic), &[0]]);
    }
    refused(V3, PROTOCOL, 0x30, &[EMPTY]);
    refused(V5, PROTOCOL, 0x30, &[EMPTY, &[0]]);
    accepted(V5, 0x30, &[EMPTY, &[3, 0x23, 0, 1]]);
    refused(V5, ALIAS, 0x30, &[EMPTY, &[3, 0x23, 0, 0]]);
    refused(V5, MALFORMED, 0x30, &[TOPIC]); // no property length
    refused(V3, MALFORMED, 0x30, &[]);
}

#[test]
fn a_connect_that_is_not_allowed_is_refused() {
    let both = |reason, flags: u8, v3: &[&[u8]], v5: &[&[u8]]| {
        refused(V5, reason, 0x10, &[&connect(4, flags, v3)]);
        refused(V3, reason, 0x10, &[&connect(5, flags, v5)]);
    };
    both(MALFORMED, 0x03, &[TOPIC], &[&[0], TOPIC]); // the reserved flag
    for flags in [0x0A, 0x12, 0x1A, 0x22, 0x32] {
        both(MALFORMED, flags, &[TOPIC], &[&[0], TOPIC]); // will flags without a will
    }
    both(MALFORMED, 0x06, &[TOPIC], &[&[0], TOPIC]); // no will
    both(
        MALFORMED,
        0x06,
        &[TOPIC, EMPTY, EMPTY],
        &[&[0], TOPIC, &[0], EMPTY, EMPTY],
    );
    both(
        MALFORMED,
        0x06,
        &[TOPIC, &string("a/#"), EMPTY],
        &[&[0], TOPIC, &[0], &string("+"), EMPTY],
    );
    both(MALFORMED, 0x82, &[TOPIC], &[&[0], TOPIC]); // no user name
    both(MALFORMED, 0xC2, &[TOPIC, TOPIC], &[&[0], TOPIC, TOPIC]); // no password
    refused(V3, MALFORMED, 0x10, &[&connect(4, 0x42, &[TOPIC, TOPIC])]); // no user name
    accepted(V5, 0x10, &[&connect(5, 0x42, &[&[0], TOPIC, TOPIC])]);
    // the caller has to refuse it with return code 2
    accepted(V3, 0x10, &[&connect(4, 0x00, &[EMPTY])]);
}

#[test]
fn a_connect_of_another_protocol_is_refused_with_its_level_where_it_is_mqtt() {
    let with = |name: &str, level: u8| [&string(name), &[level, 2, 0, 60][..], TOPIC].concat();
    for (name, level) in [
        ("MQTT", 3),
        ("MQTT", 6),
        ("MQTT", 0),
        ("MQTT", 0x84),
        ("MQIsdp", 4),
    ] {
        refused(V3, VERSION, 0x10, &[&with(name, level)]);
        let octets = packet(0x10, &with(name, level));
        assert_eq!(outcome(V5, &octets), Err(Error::Version(level)));
    }
    accepted(V5, 0x10, &[&with("MQIsdp", 3)]);
    for name in ["", "MQTU", "mqtt", "MQT", "MQTTS", "MQIsdq"] {
        refused(V3, MALFORMED, 0x10, &[&with(name, 4)]);
    }
}

#[test]
fn a_connack_that_is_not_allowed_is_refused() {
    refused(V3, MALFORMED, 0x20, &[&[2, 0]]);
    refused(V5, MALFORMED, 0x20, &[&[0x80, 0, 0]]);
    refused(V3, PROTOCOL, 0x20, &[&[0, 6]]);
    refused(V5, PROTOCOL, 0x20, &[&[0, 1, 0]]);
    refused(V3, PROTOCOL, 0x20, &[&[1, 5]]);
    refused(V5, PROTOCOL, 0x20, &[&[1, 0x87, 0]]);
}

#[test]
fn a_subscribe_that_is_not_allowed_is_refused() {
    refused_by_both(PROTOCOL, 0x82, ID, &[]);
    refused_by_both(MALFORMED, 0x82, ID, &[EMPTY, &[0]].concat());
    refused_by_both(MALFORMED, 0x82, ID, TOPIC); // no options
    refused_by_both(MALFORMED, 0x82, ID, &[TOPIC, &[0], TOPIC].concat());
    for options in [4, 8, 0x10, 0x20] {
        refused(V3, MALFORMED, 0x82, &[ID, TOPIC, &[options]]);
        accepted(V5, 0x82, &[ID, &[0], TOPIC, &[options]]);
    }
    for options in [0x40, 0x80] {
        refused_by_both(MALFORMED, 0x82, ID, &[TOPIC, &[options]].concat());
    }
    refused(V5, PROTOCOL, 0x82, &[ID, &[0], TOPIC, &[0x30]]); // retain handling 3
    refused(V5, PROTOCOL, 0x82, &[ID, &[0], &string("$share/g/t"), &[4]]);
    refused(V5, PROTOCOL, 0x82, &[ID, &[2, 0x0B, 0], TOPIC, &[0]]); // subscription identifier 0
    refused_by_both(PROTOCOL, 0xA2, ID, &[]);
    refused_by_both(MALFORMED, 0xA2, ID, EMPTY);
}

#[test]
fn reason_codes_of_other_packets_are_refused() {
    for code in [0x01, 0x92, 0xFF] {
        refused(V5, PROTOCOL, 0x40, &[ID, &[code]]);
        refused(V5, PROTOCOL, 0x50, &[ID, &[code, 0]]);
    }
    for code in [0x10, 0x80] {
        refused(V5, PROTOCOL, 0x62, &[ID, &[code]]);
        refused(V5, PROTOCOL, 0x70, &[ID, &[code]]);
    }
    refused_by_both(PROTOCOL, 0x90, ID, &[3]);
    refused(V3, PROTOCOL, 0x90, &[ID, &[0x87]]);
    refused(V5, PROTOCOL, 0xB0, &[ID, &[0, 0x01]]);
    refused_by_both(MALFORMED, 0x90, ID, &[]); // no codes
    refused(V5, MALFORMED, 0xB0, &[ID, &[0]]);
    refused(V5, PROTOCOL, 0xE0, &[&[0x01]]);
    refused(V5, PROTOCOL, 0xF0, &[&[0x80]]);
    refused(V5, PROTOCOL, 0xF0, &[&[0x18]]); // no method
    refused(V5, PROTOCOL, 0xF0, &[&[0, 5, 0x26], EMPTY, EMPTY]); // no method
}

/// Each property with a value, and the packets in which table 2-4 allows it.
const PROPERTIES: [(&[u8], &str); 27] = [
    (&[0x01, 1], "PUBLISH will"),
    (&[0x02, 0, 0, 0, 1], "PUBLISH will"),
    (&[0x03, 0, 0], "PUBLISH will"),
    (&[0x08, 0, 1, b'a'], "PUBLISH will"),
    (&[0x09, 0, 0], "PUBLISH will"),
    (&[0x0B, 1], "PUBLISH SUBSCRIBE"),
    (&[0x11, 0, 0, 0, 1], "CONNECT CONNACK DISCONNECT"),
    (&[0x12, 0, 0], "CONNACK"),
    (&[0x13, 0, 1], "CONNACK"),
    (&[0x15, 0, 0], "CONNECT CONNACK AUTH"),
    (&[0x16, 0, 0], "CONNECT CONNACK AUTH"),
    (&[0x17, 1], "CONNECT"),
    (&[0x18, 0, 0, 0, 1], "will"),
    (&[0x19, 1], "CONNECT"),
    (&[0x1A, 0, 0], "CONNACK"),
    (&[0x1C, 0, 0], "CONNACK DISCONNECT"),
    (
        &[0x1F, 0, 0],
        "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH",
    ),
    (&[0x21, 0, 1], "CONNECT CONNACK"),
    (&[0x22, 0, 0], "CONNECT CONNACK"),
    (&[0x23, 0, 1], "PUBLISH"),
    (&[0x24, 1], "CONNACK"),
    (&[0x25, 1], "CONNACK"),
    (
        &[0x26, 0, 0, 0, 0],
        "CONNECT CONNACK PUBLISH will PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE \
         UNSUBACK DISCONNECT AUTH",
    ),
    (&[0x27, 0, 0, 0, 1], "CONNECT CONNACK"),
    (&[0x28, 1], "CONNACK"),
    (&[0x29, 1], "CONNACK"),
    (&[0x2A, 1], "CONNACK"),
];

/// Each packet that can have properties, with these.
fn with_properties(octets: &[u8]) -> [(&'static str, u8, Vec<u8>); 14] {
    let some = properties(octets);
    let reason = [ID, &[0], &some].concat();
    [
        ("CONNECT", 0x10, connect(5, 2, &[&some, TOPIC])),
        (
            "will",
            0x10,
            connect(5, 6, &[&[0], TOPIC, &some, TOPIC, EMPTY]),
        ),
        ("CONNACK", 0x20, [&[0, 0], &some[..]].concat()),
        ("PUBLISH", 0x30, [TOPIC, &some].concat()),
        ("PUBACK", 0x40, reason.clone()),
        ("PUBREC", 0x50, reason.clone()),
        ("PUBREL", 0x62, reason.clone()),
        ("PUBCOMP", 0x70, reason),
        ("SUBSCRIBE", 0x82, [ID, &some, TOPIC, &[0]].concat()),
        ("SUBACK", 0x90, [ID, &some, &[0]].concat()),
        ("UNSUBSCRIBE", 0xA2, [ID, &some, TOPIC].concat()),
        ("UNSUBACK", 0xB0, [ID, &some, &[0]].concat()),
        ("DISCONNECT", 0xE0, [&[0], &some[..]].concat()),
        ("AUTH", 0xF0, [&[0], &some[..]].concat()),
    ]
}

#[test]
fn each_property_is_accepted_in_its_packets_only_and_only_once() {
    for (octets, places) in PROPERTIES {
        for ((name, first, _), (_, _, twice)) in with_properties(&[])
            .iter()
            .zip(with_properties(&[octets, octets].concat()))
        {
            // Authentication data needs a method; AUTH always needs one.
            let needs =
                octets[0] == 0x16 && *name == "CONNECT" || *name == "AUTH" && octets[0] != 0x15;
            let method: &[u8] = if needs { &[0x15, 0, 0] } else { &[] };
            let once = [method, octets].concat();
            let found = with_properties(&once);
            let once = found.iter().find(|(other, _, _)| other == name).unwrap();
            if !places.split(' ').any(|place| place == *name) {
                refused(V5, MALFORMED, *first, &[&once.2]);
                continue;
            }
            accepted(V5, *first, &[&once.2]);
            let often = octets[0] == 0x26 || octets[0] == 0x0B && *name == "PUBLISH";
            if !often {
                refused(V5, PROTOCOL, *first, &[&twice]);
            } else if !needs {
                accepted(V5, *first, &[&twice]);
            }
        }
    }
}

#[test]
fn properties_that_there_are_not_are_refused_in_every_packet() {
    for id in (0..=0xFF_u8).filter(|id| !PROPERTIES.iter().any(|(octets, _)| octets[0] == *id)) {
        for (_, first, body) in with_properties(&[id, 0, 0, 0, 1]) {
            refused(V5, MALFORMED, first, &[&body]);
        }
    }
    for (_, first, body) in with_properties(&[0xA6, 0, 0, 0, 0, 0]) {
        refused(V5, MALFORMED, first, &[&body]); // 0x26 in two octets
    }
}

#[test]
fn properties_cut_short_or_longer_than_they_say_are_refused() {
    for (octets, places) in PROPERTIES {
        for length in 1..octets.len() {
            for (name, first, body) in with_properties(&octets[..length]) {
                if places.split(' ').any(|place| place == name) {
                    refused(V5, MALFORMED, first, &[&body]);
                }
            }
        }
    }
    refused(V5, MALFORMED, 0x30, &[TOPIC, &[5, 0x01, 1]]); // longer than the packet
    refused(V5, MALFORMED, 0x30, &[TOPIC, &[0x82, 0, 0x01, 1]]); // a length of too many octets
    refused(V5, MALFORMED, 0x30, &[TOPIC, &[0xFF, 0xFF, 0xFF, 0xFF, 0]]);
    refused(V5, MALFORMED, 0x30, &[TOPIC, &[0xFF, 0xFF, 0xFF, 0x7F]]);
}

#[test]
fn property_values_out_of_range_are_refused() {
    let refused_in = |place: &str, octets: &[u8]| {
        let found = with_properties(octets);
        let (_, first, body) = found.iter().find(|(name, _, _)| *name == place).unwrap();
        refused(V5, PROTOCOL, *first, &[body]);
    };
    for (id, place) in [
        (0x01, "PUBLISH"),
        (0x01, "will"),
        (0x17, "CONNECT"),
        (0x19, "CONNECT"),
        (0x24, "CONNACK"),
        (0x25, "CONNACK"),
        (0x28, "CONNACK"),
        (0x29, "CONNACK"),
        (0x2A, "CONNACK"),
    ] {
        refused_in(place, &[id, 2]);
        refused_in(place, &[id, 0xFF]);
    }
    for place in ["CONNECT", "CONNACK"] {
        refused_in(place, &[0x21, 0, 0]);
        refused_in(place, &[0x27, 0, 0, 0, 0]);
    }
    refused_in("CONNECT", &[0x16, 0, 1, b'x']); // data without a method
    for place in ["PUBLISH", "SUBSCRIBE"] {
        refused_in(place, &[0x0B, 0]);
    }
    refused(V5, ALIAS, 0x30, &[TOPIC, &properties(&[0x23, 0, 0])]);
    refused_in("PUBLISH", &[0x08, 0, 0]);
    refused(
        V5,
        MALFORMED,
        0x30,
        &[TOPIC, &properties(b"\x08\x00\x03a/#")],
    );
}
