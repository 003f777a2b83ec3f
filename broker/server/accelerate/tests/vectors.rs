//! The rules in user space do what `broker/spec/acceleration.json` says, where that is about messages.

#![allow(clippy::expect_used, clippy::panic, dead_code)]

#[path = "../../udp/tests/json/mod.rs"]
mod json;

use std::net::SocketAddr;

use json::Value;
use mqtick_accelerate::plane::{Copy, Key};
use mqtick_accelerate::table::{Table, Verdict, rewritten};
use mqtick_sn::Topic;

fn octets(text: &str) -> Vec<u8> {
    let pair = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(pair).collect()
}

/// From whom, and what.
fn datagram(frame: &[u8]) -> (SocketAddr, Vec<u8>) {
    let ip = &frame[if frame[12..14] == [0x81, 0] { 18 } else { 14 }..];
    let (from, udp) = if ip[0] >> 4 == 4 {
        let from: [u8; 4] = ip[12..16].try_into().expect("4 octets");
        (from.into(), &ip[20..])
    } else {
        let from: [u8; 16] = ip[8..24].try_into().expect("16 octets");
        (std::net::IpAddr::from(from), &ip[40..])
    };
    let end = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let port = u16::from_be_bytes([udp[0], udp[1]]);
    (SocketAddr::new(from, port), udp[8..end].to_vec())
}

fn topic(of: &Value) -> Topic {
    let [high, low] = octets(of.get("topic").expect("topic").text())[..] else {
        panic!("two octets");
    };
    match of.get("kind").expect("kind").text() {
        "registered" => Topic::Registered(u16::from_be_bytes([high, low])),
        "predefined" => Topic::Predefined(u16::from_be_bytes([high, low])),
        _ => Topic::Short([high, low]),
    }
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of.get(name).map_or(&[], Value::list)
}

#[test]
fn copies_are_those_of_the_vectors_and_what_is_not_copied_closes_the_same_rules() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/acceleration.json");
    // The reader knows no words.
    let text = std::fs::read_to_string(file).expect("vectors");
    let text = text.replace(": true", ": 1").replace(": false", ": 0");
    let all = json::read(&text.replace(": null", ": 0"));
    let (mut copied, mut refused) = (0, 0);
    for vector in list(&all, "vectors") {
        let name = vector.get("name").expect("name").text();
        let expect = vector.get("expect").expect("expect");
        let tables = vector.get("tables").expect("tables").text();
        let tables = all
            .get("tables")
            .and_then(|all| all.get(tables))
            .expect(name);
        let counters = expect.get("counters");
        let counts = |name| counters.is_some_and(|all| all.get(name).is_some());
        // Rules for one publisher of MQTT-SN, without flags, and what is no affair of the kernel below.
        let rules = list(tables, "rules").iter().enumerate();
        let rules = rules.filter(|(_, rule)| matches!(rule.get("publisher"), Some(Value::Text(_))));
        let rules: Vec<_> = rules
            .filter(|(_, rule)| list(rule, "flags").is_empty())
            .collect();
        let closed: Vec<_> = list(expect, "closed").iter().map(Value::number).collect();
        let is_ours = |at: &usize| rules.iter().any(|(number, _)| number == at);
        let from_rule = counts("hits") || (counts("qos") && closed.len() == 1);
        if !from_rule || vector.get("settings").is_some() || !closed.iter().all(is_ours) {
            continue;
        }
        let (from, message) = datagram(&octets(vector.get("frame").expect(name).text()));
        // Marks are the proxy's affair: a decoded message has none.
        let flags = message[if message[0] == 1 { 4 } else { 2 }];
        if flags & 8 != 0 {
            continue;
        }
        let Ok((decoded, None)) = mqtick_sn::decode(&message) else {
            continue;
        };
        let mut table = Table::new(99);
        let mut keys = Vec::new();
        for (number, rule) in &rules {
            let publisher = rule.get("publisher").expect(name).text();
            let key = Key {
                publisher: publisher.parse().expect(name),
                topic: topic(rule),
            };
            let to = list(rule, "subscribers").iter().map(|one| Copy {
                to: one.get("address").expect(name).text().parse().expect(name),
                topic: topic(one),
            });
            table.set(key, &to.collect::<Vec<_>>()).expect(name);
            if rule.get("closed").is_none() {
                table.open(&key, 0);
            }
            keys.push((*number, key));
        }
        let copies = match table.from_client(0, from, Some(&decoded)) {
            Verdict::Copies(copies) => copies.to_vec(),
            _ => Vec::new(),
        };
        if copies.is_empty() && counts("hits") && closed.is_empty() {
            continue; // by a rule that is not of this kind
        }
        let got = copies.iter().map(|one| rewritten(&message, one.topic));
        let wanted = list(expect, "copies").iter();
        let wanted = wanted.map(|copy| datagram(&octets(copy.get("frame").expect(name).text())).1);
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
        copied >= 20 && refused >= 8,
        "{copied} copies, {refused} closed"
    );
}
