//! Well-formed packets of each kind, made by the standard and without the crate.
#![allow(dead_code, reason = "each test uses a part")]

#[macro_use]
pub mod check;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

pub type Octets = BoxedStrategy<Vec<u8>>;

/// A packet: a fixed header with the right length, and the body.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut octets = vec![first];
    octets.extend(variable(body.len()));
    octets.extend(body);
    octets
}

pub fn variable(mut value: usize) -> Vec<u8> {
    let mut octets = Vec::new();
    while value >= 128 {
        octets.push((value % 128) as u8 + 128);
        value /= 128;
    }
    octets.push(value as u8);
    octets
}

pub fn string(value: impl AsRef<[u8]>) -> Vec<u8> {
    let value = value.as_ref();
    [&(value.len() as u16).to_be_bytes(), value].concat()
}

fn texts(least: usize) -> Octets {
    let short = proptest::string::string_regex(&format!("[a-c/é€😀 \u{feff}]{{{least},9}}"));
    let long = proptest::collection::vec(b'a'..=b'z', 100..400);
    prop_oneof![9 => short.unwrap().prop_map(string), 1 => long.prop_map(string)].boxed()
}

fn binaries() -> Octets {
    proptest::collection::vec(any::<u8>(), 0..20)
        .prop_map(string)
        .boxed()
}

fn filters() -> Octets {
    let known = ["#", "+/a/#", "$share/group/a/+", "$SYS/#", "a//b", "/", " "].map(string);
    prop_oneof![select(known.to_vec()), texts(1)].boxed()
}

/// A value of a property, by the types of table 2-4.
fn value(id: u8) -> Octets {
    match id {
        0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28 | 0x29 | 0x2A => {
            (0..2_u8).prop_map(|octet| vec![octet]).boxed()
        }
        0x13 | 0x22 => any::<[u8; 2]>().prop_map(Vec::from).boxed(),
        0x21 | 0x23 => (1..=u16::MAX)
            .prop_map(|value| value.to_be_bytes().to_vec())
            .boxed(),
        0x02 | 0x11 | 0x18 => any::<[u8; 4]>().prop_map(Vec::from).boxed(),
        0x27 => (1..=u32::MAX)
            .prop_map(|value| value.to_be_bytes().to_vec())
            .boxed(),
        0x0B => {
            let edges = select(vec![
                1,
                127,
                128,
                16_383,
                16_384,
                2_097_151,
                2_097_152,
                268_435_455,
            ]);
            prop_oneof![edges, 1..268_435_456_usize]
                .prop_map(variable)
                .boxed()
        }
        0x09 | 0x16 => binaries(),
        0x08 => texts(1),
        0x26 => (texts(0), texts(0))
            .prop_map(|(name, value)| [name, value].concat())
            .boxed(),
        _ => texts(0),
    }
}

/// Properties after their length: some of `once` in any order, and several of `often`.
fn properties(once: &[u8], often: &[u8]) -> Octets {
    let once = subsequence(once.to_vec(), 0..=once.len());
    let often = proptest::collection::vec(select(often.to_vec()), 0..3);
    let all = (once, often).prop_map(|(mut once, often)| {
        if !once.contains(&0x15) {
            once.retain(|id| *id != 0x16); // data needs a method
        }
        once.extend(often);
        once
    });
    let values = |ids: Vec<u8>| {
        let one =
            |id: &u8| (Just(vec![*id]), value(*id)).prop_map(|(id, value)| [id, value].concat());
        ids.iter().map(one).collect::<Vec<_>>()
    };
    let octets = all.prop_shuffle().prop_flat_map(values).prop_map(|all| {
        let all = all.concat();
        [variable(all.len()), all].concat()
    });
    octets.boxed()
}

/// Properties in MQTT 5, nothing in 3.1.1.
fn maybe(v5: bool, once: &[u8], often: &[u8]) -> Octets {
    if v5 {
        properties(once, often)
    } else {
        Just(Vec::new()).boxed()
    }
}

fn ids() -> Octets {
    (1..=u16::MAX)
        .prop_map(|id| id.to_be_bytes().to_vec())
        .boxed()
}

fn many(one: Octets) -> Octets {
    proptest::collection::vec(one, 1..5)
        .prop_map(|all| all.concat())
        .boxed()
}

fn code(codes: &[u8]) -> Octets {
    select(codes.to_vec()).prop_map(|code| vec![code]).boxed()
}

pub const USER: &[u8] = &[0x26];

/// CONNECT of either version.
pub fn connect(v5: bool) -> Octets {
    let will = (
        maybe(v5, &[0x01, 0x02, 0x03, 0x08, 0x09, 0x18], USER),
        texts(1),
        binaries(),
        (0..3_u8, any::<bool>()),
    );
    let head = (any::<bool>(), any::<[u8; 2]>(), texts(0));
    let properties = maybe(v5, &[0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x27], USER);
    let all = (
        head,
        properties,
        proptest::option::of(will),
        proptest::option::of(texts(0)),
    );
    let password = proptest::option::of(binaries());
    let octets = (all, password).prop_map(
        move |(((clean, keep_alive, client_id), properties, will, username), password)| {
            let password = password.filter(|_| v5 || username.is_some());
            let mut flags = u8::from(clean) << 1;
            flags |= u8::from(username.is_some()) << 7 | u8::from(password.is_some()) << 6;
            let will = will.map(|(properties, topic, payload, (qos, retain))| {
                flags |= 4 | qos << 3 | u8::from(retain) << 5;
                [properties, topic, payload].concat()
            });
            let head = [
                string("MQTT"),
                vec![4 + u8::from(v5), flags],
                keep_alive.to_vec(),
            ]
            .concat();
            let rest = [will, username, password]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .concat();
            packet(0x10, &[head, properties, client_id, rest].concat())
        },
    );
    octets.boxed()
}

/// PUBLISH of either version.
pub fn publish(v5: bool) -> Octets {
    let flags = (any::<bool>(), 0..3_u8, any::<bool>());
    let properties = maybe(v5, &[0x01, 0x02, 0x03, 0x08, 0x09, 0x23], &[0x26, 0x0B]);
    let payload = proptest::collection::vec(any::<u8>(), 0..200);
    let octets = (flags, texts(1), ids(), properties, payload).prop_map(
        |((dup, qos, retain), topic, id, properties, payload)| {
            let dup = dup && qos > 0;
            let id = if qos > 0 { id } else { Vec::new() };
            let first = 0x30 | u8::from(dup) << 3 | qos << 1 | u8::from(retain);
            packet(first, &[topic, id, properties, payload].concat())
        },
    );
    octets.boxed()
}

/// A packet whose body consists of these parts.
fn parts(first: u8, parts: Vec<Octets>) -> Octets {
    parts
        .prop_map(move |all| packet(first, &all.concat()))
        .boxed()
}

/// A packet that ends with a reason code and properties, of which the last or both may be missing.
fn reason(first: u8, id: Octets, codes: &[u8], once: &[u8], v5: bool) -> Octets {
    if !v5 {
        return parts(first, vec![id]);
    }
    let rest =
        (code(codes), properties(once, USER), 0..3_u8).prop_map(|(code, properties, left)| {
            match left {
                0 => Vec::new(),
                1 => code,
                _ => [code, properties].concat(),
            }
        });
    parts(first, vec![id, rest.boxed()])
}

/// Packets of any kind.
pub fn packets(v5: bool) -> Octets {
    let none = || Just(Vec::new()).boxed();
    let ack = [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99];
    let connack_codes: &[u8] = if v5 {
        &[0x80, 0x84, 0x87, 0x9F]
    } else {
        &[1, 2, 3, 4, 5]
    };
    let connack = prop_oneof![
        Just(vec![0, 0]),
        Just(vec![1, 0]),
        code(connack_codes).prop_map(|code| [vec![0], code].concat())
    ];
    let of_connack = [
        0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x27, 0x28, 0x29,
        0x2A,
    ];
    let options = (0..3_u8, 0..16_u8).prop_map(move |(qos, rest)| {
        // Without no local (bit 2), which a shared subscription must not have.
        let rest = if v5 { rest << 2 & 0b0010_1000 } else { 0 };
        vec![qos | rest]
    });
    let filter = (filters(), options).prop_map(|(filter, options)| [filter, options].concat());
    let suback: &[u8] = if v5 {
        &[0, 1, 2, 0x80, 0x8F, 0xA2]
    } else {
        &[0, 1, 2, 0x80]
    };
    let unsuback = if v5 {
        many(code(&[0, 0x11, 0x80, 0x91]))
    } else {
        none()
    };
    let mut all = vec![
        connect(v5),
        publish(v5),
        parts(0x20, vec![connack.boxed(), maybe(v5, &of_connack, USER)]),
        reason(0x40, ids(), &ack, &[0x1F], v5),
        reason(0x50, ids(), &ack, &[0x1F], v5),
        reason(0x62, ids(), &[0, 0x92], &[0x1F], v5),
        reason(0x70, ids(), &[0, 0x92], &[0x1F], v5),
        parts(
            0x82,
            vec![ids(), maybe(v5, &[0x0B], USER), many(filter.boxed())],
        ),
        parts(
            0x90,
            vec![ids(), maybe(v5, &[0x1F], USER), many(code(suback))],
        ),
        parts(0xA2, vec![ids(), maybe(v5, &[], USER), many(filters())]),
        parts(0xB0, vec![ids(), maybe(v5, &[0x1F], USER), unsuback]),
        Just(packet(0xC0, &[])).boxed(),
        Just(packet(0xD0, &[])).boxed(),
        reason(
            0xE0,
            none(),
            &[0x00, 0x04, 0x8B, 0x8E, 0x98],
            &[0x11, 0x1C, 0x1F],
            v5,
        ),
    ];
    if v5 {
        let method = (code(&[0x00, 0x18, 0x19]), texts(0)).prop_map(|(code, method)| {
            let properties = [vec![0x15], method].concat();
            packet(
                0xF0,
                &[code, variable(properties.len()), properties].concat(),
            )
        });
        all.push(method.boxed());
    }
    proptest::strategy::Union::new(all).boxed()
}

/// A packet with random changes: usually only in its body, whose length is then corrected.
pub fn mutated(v5: bool) -> Octets {
    let change = (0..4_u8, any::<prop::sample::Index>(), any::<u8>());
    let changes = proptest::collection::vec(change, 1..4);
    let octets = (packets(v5), changes, 0..10_u8).prop_map(|(mut octets, changes, keep)| {
        let start = if keep == 0 {
            0
        } else {
            octets.len() - body(&octets).len()
        };
        for (kind, place, octet) in changes {
            let place = start + place.index(octets.len() + 1 - start);
            match kind {
                0 => octets.insert(place, octet),
                1 if place < octets.len() => drop(octets.remove(place)),
                2 if place < octets.len() => octets[place] = octet,
                3 if place < octets.len() => octets[place] ^= 1 << (octet % 8),
                _ => {}
            }
        }
        if keep == 0 {
            octets
        } else {
            packet(octets[0], &octets[start..])
        }
    });
    octets.boxed()
}

/// The octets after the fixed header of a well-formed packet.
pub fn body(octets: &[u8]) -> &[u8] {
    let length = octets[1..]
        .iter()
        .take_while(|octet| **octet >= 128)
        .count();
    &octets[length + 2..]
}
