//! Runs the vectors of `broker/spec/vectors/mqtt-sn`; and checks bounds with random datagrams.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "check/sn.rs"]
mod check;
mod tree;
#[path = "../../udp/tests/vectors/mod.rs"]
mod vectors;

use check::{Act, Watched};
use mqtick_sn::{Count, Gateway, Qos, Settings};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::Path;
use tree::Broker;
use vectors::{Value, Vector, hex, octets};

const SECOND_NS: u64 = 1_000_000_000;

/// Ids that the gateway has chosen, by their names in the vectors.
#[derive(Default)]
struct Ids(BTreeMap<String, String>);

impl Ids {
    fn fill(&self, pattern: &str) -> String {
        let mut text = pattern.to_owned();
        for (name, id) in &self.0 {
            text = text.replace(&format!("{{{name}}}"), id);
        }
        text
    }

    /// Whether octets match the pattern. Unknown ids are learnt from them.
    fn agree(&mut self, pattern: &str, sent: &str) -> bool {
        let filled = self.fill(pattern);
        let (mut wanted, mut is) = (filled.as_str(), sent);
        while let Some((before, rest)) = wanted.split_once('{') {
            let (name, after) = rest.split_once('}').expect("a whole name");
            let Some(found) = is.strip_prefix(before).and_then(|rest| rest.get(..4)) else {
                return false;
            };
            self.0.insert(name.into(), found.into());
            (wanted, is) = (after, &is[before.len() + 4..]);
        }
        wanted == is
    }
}

fn run(conversation: &Value) {
    let name = conversation["name"].text();
    let given = &conversation["settings"];
    let predefined: HashMap<u16, Box<str>> =
        given.get("predefined").map_or_else(HashMap::new, |all| {
            let pairs = all.map().iter();
            pairs
                .map(|(id, name)| (id.parse().expect("an id"), name.text().into()))
                .collect()
        });
    let mut gateway = Gateway::new(Settings {
        predefined,
        ..Settings::default()
    });
    let mut broker = Broker::default();
    let mut ids = Ids::default();
    for (at, step) in conversation["steps"].list().iter().enumerate() {
        let until_s = step
            .get("at_s")
            .map_or(broker.now_s, |one| one.number() as u64);
        while broker.now_s < until_s {
            broker.now_s += 1;
            gateway.tick(broker.now_s * SECOND_NS, &mut broker);
        }
        if let Some(from) = step.get("from") {
            let from = from.text().parse().expect("an address");
            let datagram = octets(&ids.fill(step["send"].text()));
            gateway.datagram(broker.now_s * SECOND_NS, from, &datagram, &mut broker);
        }
        if let Some(message) = step.get("publish") {
            let field = |name| &message[name];
            let qos = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce][field("qos").number()];
            let payload = octets(field("payload").text());
            let retain = field("retain").number() == 1;
            broker.deliver(field("topic").text(), &payload, qos, retain);
        }
        let sent = std::mem::take(&mut broker.sent);
        let text: Vec<_> = sent
            .iter()
            .map(|(to, one)| format!("{to} {}", hex(one)))
            .collect();
        let expect = step["expect"].list();
        let fits = |(wanted, (to, octets)): (&Value, &(SocketAddr, Vec<u8>))| {
            wanted["to"].text() == to.to_string() && ids.agree(wanted["send"].text(), &hex(octets))
        };
        let agrees = expect.len() == sent.len() && expect.iter().zip(&sent).all(fits);
        assert!(agrees, "{name}: step {at}: {text:#?}");
    }
    let counted: BTreeMap<_, _> = gateway.counters().filter(|one| one.1 > 0).collect();
    let wanted = conversation["counters"].map();
    let wanted: BTreeMap<_, _> = wanted
        .iter()
        .map(|(name, count)| (&**name, count.number() as u64))
        .collect();
    assert_eq!(counted, wanted, "{name}");
}

#[test]
fn the_vectors_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/mqtt-sn");
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("vectors") {
        let text = std::fs::read_to_string(file.expect("a file").path()).expect("text");
        for conversation in vectors::read(&text).list() {
            run(conversation);
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}

#[test]
fn a_repeated_message_of_qos_2_is_not_answered_before_it_is_safe() {
    let from = "10.0.0.2:5000".parse().expect("an address");
    let mut gateway = Gateway::new(Settings::default());
    let mut broker = Broker::default();
    let mut say = |text: &str, broker: &mut Broker| {
        gateway.datagram(0, from, &octets(text), broker);
        std::mem::take(&mut broker.sent)
    };
    say("0e040401003c73656e736f722d31", &mut broker);
    broker.held = Some(3);
    assert!(say("080c426162000379", &mut broker).is_empty());
    assert!(say("080cc26162000379", &mut broker).is_empty());
    broker.held = None;
    assert_eq!(hex(&say("080cc26162000379", &mut broker)[0].1), "040f0003");
}

#[test]
fn a_will_did_not_come_with_the_datagram_that_ends_a_connection() {
    let mut gateway = Gateway::new(Settings::default());
    let mut broker = Broker::default();
    let mut say = |port, text: &str| {
        let from = SocketAddr::from(([10, 0, 0, 2], port));
        gateway.datagram(0, from, &octets(text), &mut broker);
    };
    say(5000, "07040c01003c73"); // with a will
    say(5000, "060700612f62");
    say(5000, "030978");
    say(5000, "080c026364000078");
    say(5001, "07040401003c73"); // from another port
    assert_eq!(
        broker.published,
        [("cd".into(), true), ("a/b".into(), false)]
    );
}

#[test]
fn a_client_that_connects_too_often_repeats_the_end_of_its_will_until_it_may() {
    let from = "10.0.0.2:5000".parse().expect("an address");
    for end in ["030978", "0207"] {
        let mut gateway = Gateway::new(Settings::default());
        let mut broker = Broker::default();
        let mut say = |text: &str, broker: &mut Broker| {
            gateway.datagram(0, from, &octets(text), broker);
            std::mem::take(&mut broker.sent)
        };
        say("07040c01003c73", &mut broker);
        if end == "030978" {
            say("060700612f62", &mut broker);
        }
        broker.refuses = Some(Count::Rate);
        for _ in 0..2 {
            assert!(say(end, &mut broker).is_empty());
        }
        broker.refuses = None;
        assert_eq!(hex(&say(end, &mut broker)[0].1), "030500");
    }
}

#[test]
fn who_has_a_network_of_ipv6_publishes_no_more_than_one_address() {
    let mut gateway = Gateway::new(Settings {
        publishes_a_second: 2,
        ..Settings::default()
    });
    let mut broker = Broker::default();
    for from in [
        "[2001:db8::1]:5000",
        "[2001:db8::2]:5000",
        "[2001:db8::ff:3]:5000",
    ] {
        let from = from.parse().expect("an address");
        gateway.datagram(0, from, &octets("080c626162000078"), &mut broker);
    }
    assert_eq!(broker.published.len(), 2);
    let other = "[2001:db8:0:1::1]:5000".parse().expect("an address");
    gateway.datagram(0, other, &octets("080c626162000078"), &mut broker);
    assert_eq!(broker.published.len(), 3);
}

/// Octets that are usually a valid message.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![
        Just("04 04 01 00 05 61"),
        Just("04 00 01 00 05 61"),
        Just("04 0c 01 00 05 62"),
        Just("07 30 77"),
        Just("09 78"),
        Just("0a 00 00 00 01 61 2f 62"),
        Just("0b 00 01 00 01 00"),
        Just("0c 00 00 01 00 00 79"),
        Just("0c 22 61 62 00 05 79"),
        Just("0c 42 61 62 00 06 79"),
        Just("0c 62 61 62 00 00 79"),
        Just("0d 00 01 00 01 00"),
        Just("0f 00 01"),
        Just("10 00 06"),
        Just("0e 00 01"),
        Just("12 40 00 01 23"),
        Just("12 20 00 02 61 2f 62"),
        Just("12 02 00 03 61 62"),
        Just("14 00 00 04 23"),
        Just("16"),
        Just("16 61"),
        Just("18"),
        Just("18 00 05"),
        Just("1a 00 76"),
        Just("1c 75"),
    ];
    let whole = kinds.prop_map(|text| {
        let body = octets(&text.replace(' ', ""));
        [&[1 + body.len() as u8], &body[..]].concat()
    });
    let changed = (vec(any::<(u8, u8)>(), 0..3), any::<bool>());
    (whole, changed).prop_map(|(mut octets, (changes, is_changed))| {
        for (at, value) in changes.into_iter().filter(|_| is_changed) {
            let at = usize::from(at) % octets.len();
            octets[at] = value;
        }
        octets
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (5000_u16..5004, datagram()).prop_map(|(port, octets)| Act::Says(port, octets)),
        2 => ("[ab/]{1,4}", vec(any::<u8>(), 0..4), 0_usize..3, any::<bool>())
            .prop_map(|(topic, payload, qos, retain)| Act::Publishes(topic, payload, qos, retain)),
        1 => (1_u64..30).prop_map(Act::Waits),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_comes_bounds_hold_and_no_unproven_address_gets_more_than_thrice_what_it_sent(
        acts in vec(act(), 1..120),
    ) {
        let mut watched = Watched::new();
        for act in acts {
            watched.act(act);
        }
        watched.end();
    }
}
