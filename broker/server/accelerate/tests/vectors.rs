//! Runs the vectors of `broker/spec/acceleration.json` that are about messages with the rules in
//! user space.

#![allow(clippy::expect_used, clippy::panic, dead_code)]

#[path = "../../udp/tests/vectors/mod.rs"]
mod vectors;

use std::net::SocketAddr;

use mqtick_accelerate::packet::{Packet, TRAILER, Way, mark, rewrite, stated, trailer, unmark};
use mqtick_accelerate::plane::{Copy, Key};
use mqtick_accelerate::rules::{Name, Protocol, Topic};
use mqtick_accelerate::table::{Table, Verdict};
use vectors::{Value, Vector, octets};

/// Destination port, source and payload of a frame's UDP datagram.
fn datagram(frame: &[u8]) -> Option<(u16, SocketAddr, Vec<u8>)> {
    let ip = frame.get(
        if frame.get(12..14)? == [0x81, 0] {
            18
        } else {
            14
        }..,
    )?;
    let (from, udp) = if ip[0] >> 4 == 4 {
        let from: [u8; 4] = ip[12..16].try_into().expect("4 octets");
        (from.into(), &ip[20..])
    } else {
        let from: [u8; 16] = ip[8..24].try_into().expect("16 octets");
        (std::net::IpAddr::from(from), &ip[40..])
    };
    let [from_port, port, end] = [0, 2, 4].map(|at| u16::from_be_bytes([udp[at], udp[at + 1]]));
    let message = udp.get(8..end.into())?.to_vec();
    Some((port, SocketAddr::new(from, from_port), message))
}

fn topic_is_name(rule: &Value) -> bool {
    rule["kind"].text() == "name"
}

/// The topic of a rule, or of its subscriber `of`.
fn topic(of: &Value, rule: &Value) -> Topic {
    let id = octets(of["topic"].text());
    let pair = || <[u8; 2]>::try_from(&id[..]).expect("two octets");
    match of["kind"].text() {
        "registered" => Topic::Registered(u16::from_be_bytes(pair())),
        "predefined" => Topic::Predefined(u16::from_be_bytes(pair())),
        "short" => Topic::Short(pair()),
        _ => {
            let name = octets(rule["topic"].text());
            Topic::Name(Name::new(&name).expect("1 to 64 octets"))
        }
    }
}

fn flag(rule: &Value, name: &str) -> bool {
    list(rule, "flags").iter().any(|one| one.text() == name)
}

/// The UDP payload of a copy, as the data plane in user space makes it.
fn copy(message: &[u8], packet: &Packet, topic: Topic, times_ns: [u64; 2], due: bool) -> Vec<u8> {
    let mut copy = message.to_vec();
    rewrite(&mut copy, topic);
    let Packet::Publish(publish) = packet else {
        panic!("a message")
    };
    if let Some(before) = trailer(message, publish.payload).filter(|_| due) {
        let [came_ns, now_ns] = times_ns;
        let place = copy.last_chunk_mut::<TRAILER>().expect("a trailer");
        *place = stated(before, Some(came_ns), now_ns);
    }
    copy
}

/// Here a program takes the timestamp of a copy; in the vectors the kernel does.
fn by_a_program(mut copy: Vec<u8>, message: &[u8]) -> Vec<u8> {
    if copy != message
        && let Some(source) = copy.last_mut().filter(|source| **source == 2)
    {
        *source = 1;
    }
    copy
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of.get(name).map_or(&[], Vector::list)
}

#[test]
fn copies_are_those_of_the_vectors_and_what_is_not_copied_closes_the_same_rules() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/acceleration.json");
    let all = vectors::read(&std::fs::read_to_string(file).expect("vectors"));
    let (mut copied, mut refused, mut unread, mut originals) = (0, 0, 0, 0);
    for vector in list(&all, "vectors") {
        let name = vector["name"].text();
        let expect = &vector["expect"];
        let tables = &all["tables"][vector["tables"].text()];
        let counters = expect.get("counters");
        let counts = |name| counters.is_some_and(|all| all.get(name).is_some());
        // Only rules for one publisher, without what only the kernel's data plane does.
        let rules = list(tables, "rules").iter().enumerate();
        let rules =
            rules.filter(|(_, rule)| matches!(rule.get("publisher"), Some(Value::String(_))));
        let rules: Vec<_> = rules
            .filter(|(_, rule)| flag(rule, "broker") == flag(rule, "mark") && !flag(rule, "pass"))
            .collect();
        let closed: Vec<_> = list(expect, "closed").iter().map(Vector::number).collect();
        let is_ours = |at: &usize| rules.iter().any(|(number, _)| number == at);
        let from_rule = counts("hits") || (counts("qos") && closed.len() == 1);
        let is_unread = name.starts_with("mqtt-udp") && counts("length") && closed.len() != 1;
        let no_rule = counts("no_rule") && closed.is_empty();
        let is_read = from_rule && closed.iter().all(is_ours);
        if !(is_read || is_unread || no_rule) || vector.get("settings").is_some() {
            continue;
        }
        let Some((port, from, message)) = datagram(&octets(vector["frame"].text())) else {
            continue; // not a complete datagram
        };
        let protocol = match port {
            1883 => Protocol::MqttSn,
            _ => Protocol::MqttUdp,
        };
        let packet = Packet::read(protocol, Way::ToBroker, &message);
        if is_unread {
            let is_over = |packet| matches!(packet, Packet::Nothing | Packet::Unread);
            assert!(is_over(packet), "{name}: {packet:?}");
            let event = expect.get("event");
            assert_eq!(packet == Packet::Unread, event.is_some(), "{name}");
            unread += 1;
            continue;
        }
        let mut table = Table::new(99);
        let mut keys = Vec::new();
        let is_of = |rule: &Value| (topic_is_name(rule)) == (protocol == Protocol::MqttUdp);
        for (number, rule) in rules.iter().filter(|(_, rule)| is_of(rule)) {
            let publisher = rule["publisher"].text();
            let key = Key {
                publisher: publisher.parse().expect(name),
                topic: topic(rule, rule),
            };
            let hops = list(tables, "hops");
            let is_up = |one: &&Value| {
                let hop = &hops[one["hop"].number()];
                hop["up"] == true
            };
            let to = list(rule, "subscribers").iter().filter(is_up);
            let to = to.map(|one| Copy {
                to: one["address"].text().parse().expect(name),
                topic: topic(one, rule),
            });
            let to = to.collect::<Vec<_>>();
            let (marked, residence) = (flag(rule, "mark"), flag(rule, "residence"));
            table.set(key, &to, marked, residence).expect(name);
            if rule.get("closed").is_none() {
                table.open(&key, 0);
            }
            keys.push((*number, key));
        }
        let mut came = message.clone();
        unmark(protocol, &mut came);
        let goes_on = expect.get("original").map(Vector::text);
        let goes_on = goes_on.map(|frame| datagram(&octets(frame)).expect(name).2);
        let (is_marked, due) = table.flags(from, &packet);
        let packet = Packet::read(protocol, Way::ToBroker, &came);
        let copies = match table.from_client(0, from, &packet) {
            Verdict::Copies(copies) => copies.to_vec(),
            _ => Vec::new(),
        };
        if copies.is_empty() && counts("hits") && closed.is_empty() {
            continue; // copied by a rule that was left out
        }
        if protocol == Protocol::MqttSn && came != message {
            continue; // without the mark it is an ordinary message
        }
        let mut original = came.clone();
        if is_marked && !copies.is_empty() {
            mark(protocol, &mut original);
        }
        if let Some(goes_on) = goes_on {
            assert_eq!(original, goes_on, "{name}");
            originals += 1;
        }
        let times_ns =
            ["arrival_ns", "now_ns"].map(|one| vector.get(one).expect(name).number() as u64);
        let got = copies
            .iter()
            .map(|one| copy(&came, &packet, one.topic, times_ns, due));
        let wanted = list(expect, "copies").iter();
        let wanted = wanted.map(|one| {
            let wanted = datagram(&octets(one["frame"].text()));
            wanted.expect(name).2
        });
        let wanted = wanted.map(|one| if due { by_a_program(one, &came) } else { one });
        assert_eq!(
            got.collect::<Vec<_>>(),
            wanted.collect::<Vec<_>>(),
            "{name}"
        );
        let slow = keys.iter().filter(|(_, key)| table.counts(key).slow != 0);
        assert_eq!(
            slow.map(|(at, _)| *at).collect::<Vec<_>>(),
            closed,
            "{name}"
        );
        copied += copies.len();
        refused += closed.len();
    }
    assert!(
        copied >= 60 && refused >= 20 && unread >= 20 && originals >= 10,
        "{copied} copies, {refused} closed, {unread} not read, {originals} that go on changed"
    );
}
