//! A test client with the library rumqttc, for `broker/tests/test_broker_clients.py`. It executes
//! the commands of its standard input, which `broker/tests/clients/README.md` lists.

use std::collections::HashMap;
use std::io::stdin;
use std::thread;

use rumqttc::{Outgoing, v5};

type Given = HashMap<String, String>;

fn say(words: &str) {
    println!("{words}");
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn octets(hex: &str) -> Vec<u8> {
    let octet = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    hex.as_bytes().chunks_exact(2).filter_map(octet).collect()
}

/// A macro, because the clients of both versions have the same names but different types.
macro_rules! run {
    ($mqtt:ident, $qos:path, $will:expr, $keep:expr, $topic:expr, $given:expr) => {{
        use $mqtt::{Client, ConnectionError, Event, Incoming, MqttOptions};
        use $qos as QoS;
        let given: &Given = $given;
        let of = |name: &str| given.get(name).cloned().unwrap_or_default();
        let port = of("url")
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok());
        let mut options = MqttOptions::new(of("id"), "127.0.0.1", port.unwrap_or_default());
        if given.contains_key("user") {
            options.set_credentials(of("user"), of("password"));
        }
        if given.contains_key("will") {
            options.set_last_will($will(of("will"), "gone", QoS::AtLeastOnce));
        }
        $keep(&mut options, of("clean") == "1");
        let (client, mut connection) = Client::new(options, 100);
        thread::spawn(move || {
            for line in stdin().lines().map_while(Result::ok) {
                let mut words = line.split(' ');
                let mut word = || words.next().unwrap_or_default();
                let (what, topic) = (word(), word());
                let qos = match word() {
                    "0" => QoS::AtMostOnce,
                    "1" => QoS::AtLeastOnce,
                    _ => QoS::ExactlyOnce,
                };
                let done = match what {
                    "subscribe" => client.subscribe(topic, qos),
                    "publish" => client.publish(topic, qos, word() == "1", octets(word())),
                    _ => client.disconnect(),
                };
                if done.is_err() {
                    return;
                }
            }
        });
        for event in connection.iter() {
            match event {
                Ok(Event::Incoming(Incoming::ConnAck(answer))) => {
                    say(&format!("connected {}", u8::from(answer.session_present)));
                }
                Ok(Event::Incoming(Incoming::SubAck(_))) => say("subscribed"),
                Ok(
                    Event::Incoming(Incoming::PubAck(_) | Incoming::PubComp(_))
                    | Event::Outgoing(Outgoing::Publish(0)),
                ) => say("published"),
                Ok(Event::Incoming(Incoming::Publish(one))) => {
                    let (topic, qos) = ($topic(&one.topic), one.qos as u8);
                    let (retain, payload) = (u8::from(one.retain), hex(&one.payload));
                    say(&format!("message {topic} {qos} {retain} {payload}"));
                }
                Err(ConnectionError::ConnectionRefused(_)) => return say("refused"),
                Ok(Event::Outgoing(Outgoing::Disconnect)) => return,
                // After an error, the library connects again.
                _ => {}
            }
        }
    }};
}

fn main() {
    let words = std::env::args().skip(1);
    let pairs = words.filter_map(|word| word.split_once('=').map(|(a, b)| (a.into(), b.into())));
    let given: Given = pairs.collect();
    if given.get("version").is_some_and(|version| version == "5") {
        let keep = |options: &mut v5::MqttOptions, clean| {
            options.set_clean_start(clean);
            options.set_session_expiry_interval(Some(if clean { 0 } else { 3600 }));
            options.set_max_packet_size(Some(1 << 20));
        };
        let will = |topic: String, text: &str, qos| {
            v5::mqttbytes::v5::LastWill::new(topic, text, qos, false, None)
        };
        let topic = |topic: &[u8]| String::from_utf8_lossy(topic).into_owned();
        run!(v5, rumqttc::v5::mqttbytes::QoS, will, keep, topic, &given);
    } else {
        let keep = |options: &mut rumqttc::MqttOptions, clean| {
            options.set_clean_session(clean);
            options.set_max_packet_size(1 << 20, 1 << 20);
        };
        let will = |topic: String, text: &str, qos| rumqttc::LastWill::new(topic, text, qos, false);
        run!(rumqttc, rumqttc::QoS, will, keep, String::clone, &given);
    }
}
