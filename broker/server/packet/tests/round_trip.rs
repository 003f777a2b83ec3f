//! Decoding reverses encoding, in both versions.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod common;

use mqtick_packet::{
    AckKind, ConnackProperties, ConnectOut, MAXIMUM_LENGTH, Outgoing, Packet, Properties, Property,
    Qos, Version, WillOut, ack, connack, connect, decode, disconnect, frame, pingreq, pingresp,
    publish, publish_length, suback, subscribe, unsuback, unsubscribe,
};
use proptest::prelude::*;

/// Decode the only packet in these octets. The other decoder has to agree.
fn decoded(octets: &[u8], version: Version) -> Packet<'_> {
    common::check::check(octets);
    let frame = frame(octets, MAXIMUM_LENGTH)
        .unwrap()
        .expect("a whole packet");
    assert_eq!(frame.length, octets.len());
    decode(&frame, version).unwrap_or_else(|error| panic!("{octets:02X?}: {error}"))
}

fn versions() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V3), Just(Version::V5)]
}

fn qos() -> impl Strategy<Value = Qos> {
    (0..3_u8).prop_map(|number| Qos::try_from(number).unwrap())
}

fn text() -> impl Strategy<Value = String> {
    "[a-z/é€😀]{1,20}"
}

fn octets() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_connect_comes_back_as_it_was(
        version in versions(),
        (clean_start, keep_alive, client_id) in any::<(bool, u16, String)>(),
        will in prop::option::of((qos(), any::<bool>(), text(), octets(), any::<u32>())),
        (username, password) in (prop::option::of(text()), prop::option::of(octets())),
        (session_expiry, receive_maximum) in (any::<u32>(), 1..=u16::MAX),
    ) {
        let client_id = client_id.replace('\0', "");
        let password = password.as_deref().filter(|_| version == Version::V5 || username.is_some());
        let properties = [
            Property::SessionExpiry(session_expiry),
            Property::ReceiveMaximum(receive_maximum),
            Property::RequestProblemInformation(false),
            Property::UserProperty(("name", "value")),
            Property::UserProperty(("name", "another")),
        ];
        let delay = will.as_ref().map(|will| [Property::WillDelay(will.4)]);
        let out = ConnectOut {
            clean_start,
            keep_alive,
            client_id: &client_id,
            will: will.as_ref().zip(delay.as_ref()).map(|(will, delay)| WillOut {
                qos: will.0,
                retain: will.1,
                topic: &will.2,
                payload: &will.3,
                properties: delay,
            }),
            username: username.as_deref(),
            password,
            properties: &properties,
        };
        let mut octets = Vec::new();
        connect(&mut octets, version, &out);
        let Packet::Connect(found) = decoded(&octets, Version::V3) else { panic!() };
        assert_eq!(found.version, version);
        assert_eq!((found.clean_start, found.keep_alive), (clean_start, keep_alive));
        assert_eq!((found.client_id, found.username), (&*client_id, username.as_deref()));
        assert_eq!(found.password, password);
        assert_eq!(found.will.is_some(), will.is_some());
        if let (Some(found), Some(will)) = (found.will, &will) {
            assert_eq!((found.qos, found.retain), (will.0, will.1));
            assert_eq!((found.topic, found.payload), (&*will.2, &*will.3));
            let delay = Some(will.4).filter(|_| version == Version::V5);
            assert_eq!(found.properties.will_delay(), delay);
        }
        let all: Vec<_> = found.properties.iter().collect();
        assert_eq!(all, if version == Version::V5 { &properties[..] } else { &[] });
        if version == Version::V5 {
            assert_eq!(found.properties.session_expiry(), Some(session_expiry));
            assert_eq!(found.properties.receive_maximum(), Some(receive_maximum));
            assert_eq!(found.properties.request_problem_information(), Some(false));
            assert_eq!(found.properties.user_property(), Some(("name", "value")));
            assert_eq!(found.properties.topic_alias_maximum(), None);
        }
    }

    #[test]
    fn a_publish_comes_back_as_it_was_and_one_encoding_serves_many_copies(
        version in versions(),
        (dup, qos, retain) in (any::<bool>(), qos(), any::<bool>()),
        (topic, id) in (text(), 1..=u16::MAX),
        (expiry, alias) in (any::<Option<u32>>(), prop::option::of(1..=u16::MAX)),
        ids in prop::collection::vec(1..268_435_456_u32, 0..4),
        payload in octets(),
    ) {
        let properties = [
            Property::PayloadFormat(true),
            Property::UserProperty(("b", "1")),
            Property::ContentType("text"),
            Property::UserProperty(("a", "2")),
            Property::ResponseTopic("answer"),
            Property::CorrelationData(&[0, 1]),
            Property::UserProperty(("b", "1")),
        ];
        let mut forwarded = Vec::new();
        properties.iter().for_each(|property| property.encode(&mut forwarded));
        let message = Outgoing {
            dup: dup && qos > Qos::AtMostOnce,
            qos,
            retain,
            topic: &topic,
            id,
            expiry,
            alias,
            subscription_ids: &ids,
            forwarded: &forwarded,
            payload: &payload,
        };
        let mut octets = vec![0xC0, 0];
        let place = publish(&mut octets, version, &message);
        assert_eq!(octets.len(), 2 + publish_length(version, &message));
        let mut octets = octets.split_off(2);
        assert_eq!(place.is_some(), qos > Qos::AtMostOnce);
        let id = if let Some(place) = place {
            octets[place..place + 2].copy_from_slice(&[0x12, 0x34]);
            0x1234
        } else {
            0
        };
        let Packet::Publish(found) = decoded(&octets, version) else { panic!() };
        assert_eq!((found.dup, found.qos, found.retain), (message.dup, qos, retain));
        assert_eq!((found.topic, found.id, found.payload), (&*topic, id, &*payload));
        if version == Version::V3 {
            assert_eq!(found.properties, Properties::default());
            return Ok(());
        }
        let mut again = Vec::new();
        found.properties.forwarded(&mut again);
        assert_eq!(again, forwarded);
        let mut all: Vec<_> = expiry.map(Property::MessageExpiry).into_iter().collect();
        all.extend(alias.map(Property::TopicAlias));
        all.extend(ids.iter().map(|id| Property::SubscriptionId(*id)));
        all.extend(properties);
        assert_eq!(found.properties.iter().collect::<Vec<_>>(), all);
    }

    #[test]
    fn acknowledgements_come_back_as_they_were(
        version in versions(),
        id in 1..=u16::MAX,
        fails in any::<bool>(),
    ) {
        for (kind, failure) in [
            (AckKind::Puback, 0x87),
            (AckKind::Pubrec, 0x97),
            (AckKind::Pubrel, 0x92),
            (AckKind::Pubcomp, 0x92),
        ] {
            let reason = if fails { failure } else { 0 };
            let mut octets = Vec::new();
            ack(&mut octets, version, kind, id, reason);
            let Packet::Ack(found) = decoded(&octets, version) else { panic!() };
            assert_eq!((found.kind, found.id), (kind, id));
            let long = fails && version == Version::V5;
            assert_eq!((found.reason, octets.len()), if long { (reason, 5) } else { (0, 4) });
        }
    }

    #[test]
    fn subscriptions_come_back_as_they_were(
        version in versions(),
        id in 1..=u16::MAX,
        filters in prop::collection::vec((text(), qos()), 1..20),
    ) {
        let some: Vec<_> = filters.iter().map(|(filter, qos)| (&**filter, *qos)).collect();
        let mut octets = Vec::new();
        subscribe(&mut octets, version, id, &some);
        let Packet::Subscribe(found) = decoded(&octets, version) else { panic!() };
        assert_eq!(found.id, id);
        assert_eq!(found.filters().map(|one| (one.filter, one.qos)).collect::<Vec<_>>(), some);
        assert!(found.filters().all(|one| !one.no_local && !one.retain_as_published));

        let some: Vec<_> = filters.iter().map(|(filter, _)| &**filter).collect();
        let mut octets = Vec::new();
        unsubscribe(&mut octets, version, id, &some);
        let Packet::Unsubscribe(found) = decoded(&octets, version) else { panic!() };
        assert_eq!((found.id, found.filters().collect::<Vec<_>>()), (id, some));
    }
}

#[test]
fn a_connack_says_what_the_server_takes() {
    let with = ConnackProperties {
        session_expiry: Some(1),
        receive_maximum: Some(2),
        maximum_qos: Some(Qos::AtLeastOnce),
        retain_available: Some(false),
        maximum_packet_size: Some(3),
        assigned_client_id: Some("client"),
        topic_alias_maximum: Some(4),
        reason_string: Some("why"),
        wildcard_available: Some(true),
        subscription_ids_available: Some(true),
        shared_available: Some(false),
        server_keep_alive: Some(5),
        response_information: Some("answers"),
        server_reference: Some("elsewhere"),
        authentication_method: Some("method"),
        authentication_data: Some(&[6]),
    };
    let mut octets = Vec::new();
    connack(&mut octets, Version::V5, true, 0, &with);
    let Packet::Connack(found) = decoded(&octets, Version::V5) else {
        panic!()
    };
    assert_eq!((found.session_present, found.reason), (true, 0));
    let all = found.properties;
    assert_eq!(all.iter().count(), 16);
    assert_eq!(all.session_expiry(), Some(1));
    assert_eq!(all.receive_maximum(), Some(2));
    assert_eq!(all.maximum_qos(), Some(1));
    assert_eq!(all.retain_available(), Some(false));
    assert_eq!(all.maximum_packet_size(), Some(3));
    assert_eq!(all.assigned_client_id(), Some("client"));
    assert_eq!(all.topic_alias_maximum(), Some(4));
    assert_eq!(all.reason_string(), Some("why"));
    assert_eq!(all.wildcard_available(), Some(true));
    assert_eq!(all.subscription_ids_available(), Some(true));
    assert_eq!(all.shared_available(), Some(false));
    assert_eq!(all.server_keep_alive(), Some(5));
    assert_eq!(all.response_information(), Some("answers"));
    assert_eq!(all.server_reference(), Some("elsewhere"));
    assert_eq!(all.authentication_method(), Some("method"));
    assert_eq!(all.authentication_data(), Some(&[6][..]));

    octets.clear();
    let all = ConnackProperties {
        maximum_qos: Some(Qos::ExactlyOnce),
        ..Default::default()
    };
    connack(&mut octets, Version::V5, false, 0, &all);
    assert_eq!(octets, [0x20, 3, 0, 0, 0]); // a maximum QoS of 2 is never sent
}

#[test]
fn a_refusal_in_3_1_1_has_the_nearest_return_code_and_no_session() {
    let codes = [
        (0x84, 1),
        (0x85, 2),
        (0x88, 3),
        (0x89, 3),
        (0x97, 3),
        (0x9F, 3),
        (0x80, 3),
        (0x86, 4),
        (0x87, 5),
        (0x8A, 5),
        (0x8C, 5),
    ];
    for (reason, code) in codes {
        let mut octets = Vec::new();
        connack(
            &mut octets,
            Version::V3,
            true,
            reason,
            &ConnackProperties::default(),
        );
        assert_eq!(octets, [0x20, 2, 0, code]);
    }
    let mut octets = Vec::new();
    connack(
        &mut octets,
        Version::V3,
        true,
        0,
        &ConnackProperties::default(),
    );
    assert_eq!(octets, [0x20, 2, 1, 0]);
}

#[test]
fn a_suback_has_one_failure_code_in_3_1_1_and_an_unsuback_has_no_codes() {
    let mut octets = Vec::new();
    suback(&mut octets, Version::V3, 7, &[0, 1, 2, 0x80, 0x87, 0xA2]);
    assert_eq!(octets, [0x90, 8, 0, 7, 0, 1, 2, 0x80, 0x80, 0x80]);
    octets.clear();
    suback(&mut octets, Version::V5, 7, &[2, 0x87]);
    let Packet::Suback(found) = decoded(&octets, Version::V5) else {
        panic!()
    };
    assert_eq!((found.id, found.codes), (7, &[2, 0x87][..]));
    octets.clear();
    unsuback(&mut octets, Version::V3, 7, &[0, 0x11]);
    assert_eq!(octets, [0xB0, 2, 0, 7]);
    octets.clear();
    unsuback(&mut octets, Version::V5, 7, &[0, 0x11]);
    let Packet::Unsuback(found) = decoded(&octets, Version::V5) else {
        panic!()
    };
    assert_eq!((found.id, found.codes), (7, &[0, 0x11][..]));
}

#[test]
fn pings_and_disconnects_have_their_short_forms() {
    let mut octets = Vec::new();
    pingreq(&mut octets);
    pingresp(&mut octets);
    disconnect(&mut octets, Version::V3, 0x8E);
    disconnect(&mut octets, Version::V5, 0);
    disconnect(&mut octets, Version::V5, 0x8E);
    assert_eq!(octets, [0xC0, 0, 0xD0, 0, 0xE0, 0, 0xE0, 0, 0xE0, 1, 0x8E]);
    let Packet::Disconnect(found) = decoded(&octets[8..], Version::V5) else {
        panic!()
    };
    assert_eq!(found.reason, 0x8E);
}

#[test]
fn lengths_on_both_sides_of_each_further_octet_come_back() {
    for length in [127, 128, 16_383, 16_384, 2_097_151, 2_097_152_usize] {
        let payload = vec![0; length - 3];
        let message = Outgoing {
            topic: "t",
            payload: &payload,
            ..Default::default()
        };
        let mut octets = Vec::new();
        publish(&mut octets, Version::V3, &message);
        assert_eq!(octets.len(), publish_length(Version::V3, &message));
        let found = frame(&octets, MAXIMUM_LENGTH).unwrap().unwrap();
        assert_eq!((found.body.len(), found.length), (length, octets.len()));
    }
}

#[test]
fn a_message_that_cannot_be_carried_is_not_written() {
    let topic = "t".repeat(65_536);
    let mut octets = vec![1];
    let message = Outgoing {
        qos: Qos::AtLeastOnce,
        id: 1,
        topic: &topic,
        ..Default::default()
    };
    assert_eq!(publish(&mut octets, Version::V5, &message), None);
    assert_eq!(octets, [1]);
    // 268,435,455 octets after the header in 3.1.1 are one too many in 5.
    let payload = vec![0; 268_435_455 - 3];
    let message = Outgoing {
        topic: "t",
        payload: &payload,
        ..Default::default()
    };
    assert_eq!(publish_length(Version::V3, &message), MAXIMUM_LENGTH);
    assert!(publish_length(Version::V5, &message) > MAXIMUM_LENGTH);
    publish(&mut octets, Version::V5, &message);
    assert_eq!(octets, [1]);
}

#[test]
fn a_string_that_is_too_long_is_cut_between_two_characters() {
    let client_id = "é".repeat(40_000);
    let mut octets = Vec::new();
    connect(
        &mut octets,
        Version::V3,
        &ConnectOut {
            client_id: &client_id,
            ..Default::default()
        },
    );
    let Packet::Connect(found) = decoded(&octets, Version::V3) else {
        panic!()
    };
    assert_eq!(found.client_id, &client_id[..65_534]);
}
