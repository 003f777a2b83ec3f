//! Retained messages: once all sites are joined, each has the last one of each topic.

use crate::simulated::{Network, TOPICS, message};
use mqtick_join::cooperation::Kind;
use mqtick_join::message::{Key, Message};
use mqtick_packet::Qos;
use proptest::prelude::*;
use std::collections::BTreeMap;

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// In whatever order sites join, part and publish, and brokers go and come back; even if links and
    /// brokers lose messages of QoS 0, and one broker loses everything that it had.
    #[test]
    fn once_all_are_joined_each_site_has_what_was_published_last_on_a_topic(
        size in 2..7_usize,
        events in prop::collection::vec((0..10_u8, 0..1000_usize, 0..1000_usize), 0..80),
    ) {
        all_have_the_last(size, &events);
    }
}

/// No client publishes at the last site: its broker loses everything each time that it goes away.
fn all_have_the_last(size: usize, events: &[(u8, usize, usize)]) {
    for kind in [Kind::Subscriptions, Kind::Publications] {
        let mut network = Network::new(kind, size, 30);
        let mut last: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (number, (what, one, other)) in events.iter().enumerate() {
            match what {
                0 => network.join(one % size, other % size),
                1 => {
                    let keys = network.whole();
                    if let Some(key) = keys.get(one % keys.len().max(1)) {
                        network.cut(*key);
                    }
                }
                2..5 => {
                    let payload = if *what == 2 {
                        Vec::new()
                    } else {
                        vec![1, number as u8]
                    };
                    let (topic, qos) = (
                        TOPICS[other % 6],
                        Qos::try_from((other / 6 % 3) as u8).unwrap(),
                    );
                    if network.keep(one % (size - 1), topic, payload.clone(), qos) {
                        last.insert(topic.into(), payload);
                    }
                }
                5 => network.tick(),
                6 => {
                    let site = &mut network.sites[one % size];
                    if site.is_away {
                        site.broker_is_back();
                    } else {
                        site.lose_broker();
                    }
                    if one % size == size - 1 {
                        site.kept.clear();
                    }
                }
                _ => (0..other % 40).for_each(|_| {
                    network.step();
                }),
            }
        }
        for one in 0..size {
            network.sites[one].broker_is_back();
            if one > 0 {
                network.join(one, one - 1);
            }
        }
        network.settle();
        last.retain(|_, payload| !payload.is_empty());
        for site in 0..size {
            assert_eq!(&network.sites[site].kept, &last, "site {}", site);
        }
    }
}

#[test]
fn of_two_retained_messages_that_no_node_saw_being_published_each_site_keeps_its_own() {
    let mut network = Network::new(Kind::Subscriptions, 2, 30);
    network.sites[0].keep("a".into(), b"here".to_vec());
    network.sites[1].keep("a".into(), b"there".to_vec());
    network.sites[1].keep("b".into(), b"only there".to_vec());
    network.tick();
    network.rest();
    network.join(0, 1);
    network.settle();
    assert_eq!(network.sites[0].kept["a"], b"here");
    assert_eq!(network.sites[1].kept["a"], b"there");
    assert_eq!(network.sites[0].kept["b"], b"only there");
}

#[test]
fn what_comes_behind_a_later_message_of_another_topic_is_kept_all_the_same() {
    let mut network = Network::new(Kind::Subscriptions, 2, 30);
    network.join(0, 1);
    network.settle();
    let origin = network.sites[1].node.id();
    for (sequence, topic) in [(2, "a"), (1, "b"), (1, "b")] {
        let key = Key {
            origin,
            lane: 0,
            sequence,
        };
        let message = Message {
            retain: true,
            stamp: 100 + sequence,
            ..message(topic, topic.into(), Qos::AtMostOnce)
        };
        network.sites[0].node.arrived(2, key, 0, message);
        network.collect(0);
    }
    network.settle();
    assert_eq!(network.sites[0].kept["b"], b"b");
    assert_eq!(network.sites[0].got[b"b".as_slice()], 1);
}
