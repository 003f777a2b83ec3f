//! Gives any octets to our decoder and to mqtt-protocol-core. If both accept them, the results must
//! agree.

use mqtick_packet::{
    AckKind, Error, Frame, MAXIMUM_LENGTH, Outgoing, Packet, Properties, Property, Publish, Qos,
    Version, decode, frame, publish, publish_length,
};
use mqtt_protocol_core::mqtt::common::Arc;
use mqtt_protocol_core::mqtt::packet::{
    DecodeResult, GenericPacket, Property as Theirs, VariableByteInteger, v3_1_1, v5_0,
};

type Other = GenericPacket<u16>;

/// What our decoder may refuse although the other accepts it: our error, the packet types (none:
/// all), and the clause of the standard.
const STRICTER: &[(&str, &[u8], &str)] = &[
    (
        "reserved flags",
        &[],
        "MQTT-2.1.3-1: its parsers see no flags but those of PUBLISH",
    ),
    (
        "octets after its end",
        &[],
        "3.1 to 3.15: it says how many it used, and leaves the rest",
    ),
    ("DUP at QoS 0", &[3], "MQTT-3.3.1-2"),
    ("packet identifier 0", &[], "MQTT-2.2.1-3"),
    ("a string with U+0000", &[], "MQTT-1.5.4-2"),
    (
        "a topic name with a wildcard or U+0000",
        &[1, 3],
        "MQTT-3.3.2-2, -14, MQTT-1.5.4-2",
    ),
    (
        "neither topic nor topic alias",
        &[3],
        "3.3.2.1; 3.1.1: MQTT-4.7.3-1",
    ),
    ("an empty topic filter", &[8, 10], "MQTT-4.7.3-1"),
    ("an empty will topic", &[1], "MQTT-4.7.3-1"),
    ("an empty response topic", &[1, 3], "MQTT-4.7.3-1"),
    ("the reserved flag of CONNECT", &[1], "MQTT-3.1.2-3"),
    (
        "will flags without a will",
        &[1],
        "MQTT-3.1.2-11, MQTT-3.1.2-13",
    ),
    (
        "a QoS that is neither 0, 1 nor 2",
        &[1],
        "MQTT-3.1.2-12: it does not look at a will's QoS",
    ),
    ("reserved flags of CONNACK", &[2], "MQTT-3.2.2-1"),
    ("a session though not connected", &[2], "MQTT-3.2.2-6"),
    (
        "reserved bits of subscription options set",
        &[8],
        "3.1.1: MQTT-3-8.3-4",
    ),
    ("a shared subscription with no local", &[8], "MQTT-3.8.3-4"),
    (
        "the same property twice",
        &[8],
        "3.8.2.1.2: one subscription identifier in a SUBSCRIBE",
    ),
    ("authentication data without a method", &[1], "3.1.2.11.10"),
    (
        "a variable byte integer longer than it needs to be",
        &[],
        "MQTT-1.5.5-1",
    ),
    (
        "it ends too early",
        &[3],
        "3.3.2.3.1: a PUBLISH of MQTT 5 has a property length",
    ),
    ("AUTH without a method", &[15], "3.15.2.2.2"),
];

/// Whether the other decoder may refuse a packet that ours accepts.
fn may_be_laxer(packet: &Packet<'_>) -> bool {
    let shared = |filter: &str| filter.starts_with("$share/");
    match packet {
        // 3.1.2.9: in MQTT 5 a password needs no user name.
        Packet::Connect(one) => one.password.is_some() && one.username.is_none(),
        // 4.8.2: the crate `topics` refuses a malformed share name.
        Packet::Subscribe(one) => one.filters().any(|one| shared(one.filter)),
        Packet::Unsubscribe(one) => one.filters().any(shared),
        _ => false,
    }
}

/// Gives octets to both decoders, as packets of both versions.
pub fn check(octets: &[u8]) {
    for version in [Version::V3, Version::V5] {
        let rest = octets.get(1..).unwrap_or_default();
        match (
            frame(octets, MAXIMUM_LENGTH),
            VariableByteInteger::decode_stream(rest),
        ) {
            (Ok(Some(frame)), DecodeResult::Ok(length, used)) => {
                assert_eq!(frame.length, 1 + used + length.to_u32() as usize);
                assert_eq!(frame.body, &octets[1 + used..frame.length]);
                both(&frame, version);
            }
            (Ok(None), DecodeResult::Ok(length, used)) => {
                assert!(octets.len() < 1 + used + length.to_u32() as usize);
            }
            (Ok(None), DecodeResult::Incomplete) | (Err(_), DecodeResult::Err(_)) => {}
            (Err(error), _) => stricter(error, octets[0] >> 4),
            (found, _) => panic!("{found:?} where the other sees a length of too many octets"),
        }
    }
}

fn stricter(error: Error, kind: u8) {
    let (Error::Malformed(why) | Error::Protocol(why)) = error else {
        panic!("only we refuse this: {error}");
    };
    let known = |(known, kinds, _): &(&str, &[u8], &str)| {
        *known == why && (kinds.is_empty() || kinds.contains(&kind))
    };
    assert!(
        STRICTER.iter().any(known),
        "only we refuse this packet of type {kind}: {why}"
    );
}

fn both(frame: &Frame<'_>, version: Version) {
    let ours = decode(frame, version);
    // Our decoder determines the version of a CONNECT; the other one has to be told.
    let version = match ours {
        Ok(Packet::Connect(connect)) => connect.version,
        _ => version,
    };
    // MQTT 3.1, which the other one does not know
    let is_old = frame.body.starts_with(b"\0\x06MQIsdp");
    let theirs = if frame.first >> 4 == 1 {
        theirs(frame, Version::V5).or_else(|| theirs(frame, Version::V3))
    } else {
        theirs(frame, version)
    };
    match (ours, theirs) {
        (Ok(ours), Some(theirs)) => same(&ours, &theirs),
        (Ok(ours), None) => assert!(
            may_be_laxer(&ours) || is_old,
            "only we accept this: {ours:?}"
        ),
        (Err(error), Some(_)) => stricter(error, frame.first >> 4),
        (Err(_), None) => {}
    }
    if let Ok(Packet::Publish(message)) = ours {
        forward(&message, version);
    }
}

fn theirs(frame: &Frame<'_>, version: Version) -> Option<Other> {
    let (kind, body) = (frame.first >> 4, frame.body);
    macro_rules! parse {
        ($type:path) => {
            <$type>::parse(body).ok().map(|(packet, _)| packet.into())
        };
    }
    let data = || Arc::from(body);
    match (version, kind) {
        (Version::V3, 1) => parse!(v3_1_1::Connect),
        (Version::V3, 2) => parse!(v3_1_1::Connack),
        (Version::V3, 3) => v3_1_1::Publish::parse(frame.first, data())
            .ok()
            .map(|one| one.0.into()),
        (Version::V3, 4) => parse!(v3_1_1::Puback),
        (Version::V3, 5) => parse!(v3_1_1::Pubrec),
        (Version::V3, 6) => parse!(v3_1_1::Pubrel),
        (Version::V3, 7) => parse!(v3_1_1::Pubcomp),
        (Version::V3, 8) => parse!(v3_1_1::Subscribe),
        (Version::V3, 9) => parse!(v3_1_1::Suback),
        (Version::V3, 10) => parse!(v3_1_1::Unsubscribe),
        (Version::V3, 11) => parse!(v3_1_1::Unsuback),
        (Version::V3, 12) => parse!(v3_1_1::Pingreq),
        (Version::V3, 13) => parse!(v3_1_1::Pingresp),
        (Version::V3, 14) => parse!(v3_1_1::Disconnect),
        (Version::V5, 1) => parse!(v5_0::Connect),
        (Version::V5, 2) => parse!(v5_0::Connack),
        (Version::V5, 3) => v5_0::Publish::parse(frame.first, data())
            .ok()
            .map(|one| one.0.into()),
        (Version::V5, 4) => parse!(v5_0::Puback),
        (Version::V5, 5) => parse!(v5_0::Pubrec),
        (Version::V5, 6) => parse!(v5_0::Pubrel),
        (Version::V5, 7) => parse!(v5_0::Pubcomp),
        (Version::V5, 8) => parse!(v5_0::Subscribe),
        (Version::V5, 9) => parse!(v5_0::Suback),
        (Version::V5, 10) => parse!(v5_0::Unsubscribe),
        (Version::V5, 11) => parse!(v5_0::Unsuback),
        (Version::V5, 12) => parse!(v5_0::Pingreq),
        (Version::V5, 13) => parse!(v5_0::Pingresp),
        (Version::V5, 14) => parse!(v5_0::Disconnect),
        (Version::V5, 15) => parse!(v5_0::Auth),
        _ => None,
    }
}

// The other one has a type for each version, with the same names but without a common trait.
macro_rules! same_connect {
    ($ours:ident, $theirs:ident) => {
        assert_eq!($ours.clean_start, $theirs.clean_start());
        assert_eq!($ours.keep_alive, $theirs.keep_alive());
        assert_eq!($ours.client_id, $theirs.client_id());
        assert_eq!($ours.username, $theirs.user_name());
        assert_eq!($ours.password, $theirs.password());
        assert_eq!($ours.will.is_some(), $theirs.will_flag());
        assert_eq!($ours.will.map(|will| will.topic), $theirs.will_topic());
        assert_eq!($ours.will.map(|will| will.payload), $theirs.will_payload());
        if let Some(will) = $ours.will {
            assert_eq!(will.qos as u8, $theirs.will_qos() as u8);
            assert_eq!(will.retain, $theirs.will_retain());
        }
    };
}

macro_rules! same_publish {
    ($ours:ident, $theirs:ident) => {
        assert_eq!($ours.dup, $theirs.dup());
        assert_eq!($ours.qos as u8, $theirs.qos() as u8);
        assert_eq!($ours.retain, $theirs.retain());
        assert_eq!($ours.topic, $theirs.topic_name());
        assert_eq!($ours.id, $theirs.packet_id().unwrap_or(0));
        assert_eq!($ours.payload, $theirs.payload().as_slice());
    };
}

macro_rules! same_id {
    ($ours:ident, $theirs:ident, $kind:expr) => {{
        assert_eq!(($ours.kind, $ours.id), ($kind, $theirs.packet_id()));
        assert_eq!(($ours.reason, $ours.properties), (0, Properties::default()));
    }};
}

macro_rules! same_ack {
    ($ours:ident, $theirs:ident, $kind:expr) => {{
        assert_eq!(($ours.kind, $ours.id), ($kind, $theirs.packet_id()));
        same_reason!($ours, $theirs);
    }};
}

macro_rules! same_reason {
    ($ours:ident, $theirs:ident) => {{
        assert_eq!(
            $ours.reason,
            $theirs.reason_code().map_or(0, |code| code as u8)
        );
        same_properties($ours.properties, $theirs.props().as_ref());
    }};
}

macro_rules! same_subscribe {
    ($ours:ident, $theirs:ident) => {
        assert_eq!($ours.id, $theirs.packet_id());
        assert_eq!($ours.filters().count(), $theirs.entries().len());
        for (ours, theirs) in $ours.filters().zip($theirs.entries()) {
            assert_eq!(ours.filter, theirs.topic_filter());
            let options = theirs.sub_opts();
            assert_eq!(ours.qos as u8, options.qos() as u8);
            assert_eq!(ours.no_local, options.nl());
            assert_eq!(ours.retain_as_published, options.rap());
            assert_eq!(ours.retain_handling, options.rh() as u8);
        }
    };
}

macro_rules! same_codes {
    ($ours:ident, $theirs:ident) => {{
        assert_eq!($ours.id, $theirs.packet_id());
        let codes: Vec<_> = $theirs
            .reason_codes()
            .iter()
            .map(|code| *code as u8)
            .collect();
        assert_eq!($ours.codes, codes);
        same_properties($ours.properties, Some($theirs.props()));
    }};
}

macro_rules! same_unsubscribe {
    ($ours:ident, $theirs:ident) => {
        assert_eq!($ours.id, $theirs.packet_id());
        let entries: Vec<_> = $theirs.entries().iter().map(|one| one.as_str()).collect();
        assert_eq!($ours.filters().collect::<Vec<_>>(), entries);
    };
}

fn same(ours: &Packet<'_>, theirs: &Other) {
    use GenericPacket as T;
    use Packet as O;
    match (ours, theirs) {
        (O::Connect(ours), T::V3_1_1Connect(theirs)) => {
            assert_eq!((ours.version, theirs.protocol_version()), (Version::V3, 4));
            assert_eq!(ours.properties, Properties::default());
            same_connect!(ours, theirs);
        }
        (O::Connect(ours), T::V5_0Connect(theirs)) => {
            assert_eq!((ours.version, theirs.protocol_version()), (Version::V5, 5));
            same_properties(ours.properties, Some(theirs.props()));
            let properties = ours.will.map(|will| will.properties).unwrap_or_default();
            same_properties(properties, Some(theirs.will_props()));
            same_connect!(ours, theirs);
        }
        (O::Connack(ours), T::V3_1_1Connack(theirs)) => {
            assert_eq!(ours.session_present, theirs.session_present());
            let reason = [0, 0x84, 0x85, 0x88, 0x86, 0x87][theirs.return_code() as usize];
            assert_eq!(
                (ours.reason, ours.properties),
                (reason, Properties::default())
            );
        }
        (O::Connack(ours), T::V5_0Connack(theirs)) => {
            assert_eq!(ours.session_present, theirs.session_present());
            assert_eq!(ours.reason, theirs.reason_code() as u8);
            same_properties(ours.properties, Some(theirs.props()));
        }
        (O::Publish(ours), T::V3_1_1Publish(theirs)) => {
            assert_eq!(ours.properties, Properties::default());
            same_publish!(ours, theirs);
        }
        (O::Publish(ours), T::V5_0Publish(theirs)) => {
            same_properties(ours.properties, Some(theirs.props()));
            same_publish!(ours, theirs);
        }
        (O::Ack(ours), T::V3_1_1Puback(theirs)) => same_id!(ours, theirs, AckKind::Puback),
        (O::Ack(ours), T::V3_1_1Pubrec(theirs)) => same_id!(ours, theirs, AckKind::Pubrec),
        (O::Ack(ours), T::V3_1_1Pubrel(theirs)) => same_id!(ours, theirs, AckKind::Pubrel),
        (O::Ack(ours), T::V3_1_1Pubcomp(theirs)) => same_id!(ours, theirs, AckKind::Pubcomp),
        (O::Ack(ours), T::V5_0Puback(theirs)) => same_ack!(ours, theirs, AckKind::Puback),
        (O::Ack(ours), T::V5_0Pubrec(theirs)) => same_ack!(ours, theirs, AckKind::Pubrec),
        (O::Ack(ours), T::V5_0Pubrel(theirs)) => same_ack!(ours, theirs, AckKind::Pubrel),
        (O::Ack(ours), T::V5_0Pubcomp(theirs)) => same_ack!(ours, theirs, AckKind::Pubcomp),
        (O::Subscribe(ours), T::V3_1_1Subscribe(theirs)) => {
            assert_eq!(ours.properties, Properties::default());
            same_subscribe!(ours, theirs);
        }
        (O::Subscribe(ours), T::V5_0Subscribe(theirs)) => {
            same_properties(ours.properties, Some(theirs.props()));
            same_subscribe!(ours, theirs);
        }
        (O::Suback(ours), T::V3_1_1Suback(theirs)) => {
            assert_eq!(
                (ours.id, ours.properties),
                (theirs.packet_id(), Properties::default())
            );
            let codes: Vec<_> = theirs
                .return_codes()
                .iter()
                .map(|code| *code as u8)
                .collect();
            assert_eq!(ours.codes, codes);
        }
        (O::Suback(ours), T::V5_0Suback(theirs)) => same_codes!(ours, theirs),
        (O::Unsubscribe(ours), T::V3_1_1Unsubscribe(theirs)) => {
            assert_eq!(ours.properties, Properties::default());
            same_unsubscribe!(ours, theirs);
        }
        (O::Unsubscribe(ours), T::V5_0Unsubscribe(theirs)) => {
            same_properties(ours.properties, Some(theirs.props()));
            same_unsubscribe!(ours, theirs);
        }
        (O::Unsuback(ours), T::V3_1_1Unsuback(theirs)) => {
            assert_eq!(
                (ours.id, ours.properties),
                (theirs.packet_id(), Properties::default())
            );
            assert!(ours.codes.is_empty());
        }
        (O::Unsuback(ours), T::V5_0Unsuback(theirs)) => same_codes!(ours, theirs),
        (O::Pingreq, T::V3_1_1Pingreq(_) | T::V5_0Pingreq(_)) => {}
        (O::Pingresp, T::V3_1_1Pingresp(_) | T::V5_0Pingresp(_)) => {}
        (O::Disconnect(ours), T::V3_1_1Disconnect(_)) => {
            assert_eq!((ours.reason, ours.properties), (0, Properties::default()));
        }
        (O::Disconnect(ours), T::V5_0Disconnect(theirs)) => same_reason!(ours, theirs),
        (O::Auth(ours), T::V5_0Auth(theirs)) => same_reason!(ours, theirs),
        (ours, theirs) => panic!("{ours:?} is not {theirs:?}"),
    }
}

fn same_properties(ours: Properties<'_>, theirs: Option<&Vec<Theirs>>) {
    let ours: Vec<_> = ours.iter().collect();
    let theirs = theirs.map(Vec::as_slice).unwrap_or_default();
    assert_eq!(ours.len(), theirs.len());
    assert!(
        ours.iter().zip(theirs).all(same_property),
        "{ours:?} is not {theirs:?}"
    );
}

fn same_property((ours, theirs): (&Property<'_>, &Theirs)) -> bool {
    use Property as O;
    use Theirs as T;
    match (ours, theirs) {
        (O::PayloadFormat(a), T::PayloadFormatIndicator(b)) => u8::from(*a) == b.val(),
        (O::MessageExpiry(a), T::MessageExpiryInterval(b)) => *a == b.val(),
        (O::ContentType(a), T::ContentType(b)) => *a == b.val(),
        (O::ResponseTopic(a), T::ResponseTopic(b)) => *a == b.val(),
        (O::CorrelationData(a), T::CorrelationData(b)) => *a == b.val(),
        (O::SubscriptionId(a), T::SubscriptionIdentifier(b)) => *a == b.val(),
        (O::SessionExpiry(a), T::SessionExpiryInterval(b)) => *a == b.val(),
        (O::AssignedClientId(a), T::AssignedClientIdentifier(b)) => *a == b.val(),
        (O::ServerKeepAlive(a), T::ServerKeepAlive(b)) => *a == b.val(),
        (O::AuthenticationMethod(a), T::AuthenticationMethod(b)) => *a == b.val(),
        (O::AuthenticationData(a), T::AuthenticationData(b)) => *a == b.val(),
        (O::RequestProblemInformation(a), T::RequestProblemInformation(b)) => {
            u8::from(*a) == b.val()
        }
        (O::WillDelay(a), T::WillDelayInterval(b)) => *a == b.val(),
        (O::RequestResponseInformation(a), T::RequestResponseInformation(b)) => {
            u8::from(*a) == b.val()
        }
        (O::ResponseInformation(a), T::ResponseInformation(b)) => *a == b.val(),
        (O::ServerReference(a), T::ServerReference(b)) => *a == b.val(),
        (O::ReasonString(a), T::ReasonString(b)) => *a == b.val(),
        (O::ReceiveMaximum(a), T::ReceiveMaximum(b)) => *a == b.val(),
        (O::TopicAliasMaximum(a), T::TopicAliasMaximum(b)) => *a == b.val(),
        (O::TopicAlias(a), T::TopicAlias(b)) => *a == b.val(),
        (O::MaximumQos(a), T::MaximumQos(b)) => *a == b.val(),
        (O::RetainAvailable(a), T::RetainAvailable(b)) => u8::from(*a) == b.val(),
        (O::UserProperty(a), T::UserProperty(b)) => *a == (b.key(), b.val()),
        (O::MaximumPacketSize(a), T::MaximumPacketSize(b)) => *a == b.val(),
        (O::WildcardAvailable(a), T::WildcardSubscriptionAvailable(b)) => u8::from(*a) == b.val(),
        (O::SubscriptionIdsAvailable(a), T::SubscriptionIdentifierAvailable(b)) => {
            u8::from(*a) == b.val()
        }
        (O::SharedAvailable(a), T::SharedSubscriptionAvailable(b)) => u8::from(*a) == b.val(),
        _ => false,
    }
}

/// An accepted message can be forwarded, and the copy says the same.
fn forward(message: &Publish<'_>, version: Version) {
    let mut forwarded = Vec::new();
    message.properties.forwarded(&mut forwarded);
    let ids: Vec<_> = message
        .properties
        .iter()
        .filter_map(|one| match one {
            Property::SubscriptionId(id) => Some(id),
            _ => None,
        })
        .collect();
    let outgoing = Outgoing {
        dup: message.dup,
        qos: message.qos,
        retain: message.retain,
        topic: message.topic,
        id: message.id,
        expiry: message.properties.message_expiry(),
        alias: message.properties.topic_alias(),
        subscription_ids: &ids,
        forwarded: &forwarded,
        payload: message.payload,
    };
    let mut copy = vec![0xFF; 3];
    let place = publish(&mut copy, version, &outgoing);
    let copy = &copy[3..];
    assert_eq!(copy.len(), publish_length(version, &outgoing));
    let found = frame(copy, copy.len()).unwrap().unwrap();
    assert_eq!(found.length, copy.len());
    let Ok(Packet::Publish(again)) = decode(&found, version) else {
        panic!("a copy of {message:?} is refused");
    };
    assert_eq!(
        again.properties.iter().count(),
        message.properties.iter().count()
    );
    let mut twice = Vec::new();
    again.properties.forwarded(&mut twice);
    assert_eq!(twice, forwarded);
    assert_eq!(again.properties.message_expiry(), outgoing.expiry);
    assert_eq!(again.properties.topic_alias(), outgoing.alias);
    assert_eq!(
        Publish {
            properties: message.properties,
            ..again
        },
        *message
    );
    assert_eq!(place.is_some(), message.qos > Qos::AtMostOnce);
    if let Some(place) = place {
        assert_eq!(copy[place..place + 2], message.id.to_be_bytes());
    }
}
