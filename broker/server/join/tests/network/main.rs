//! Nodes in a simulated network: links delay, break (and lose what is on them) and come back, nodes
//! restart, and clients subscribe and publish all the while. When that is over, the nodes agree on one
//! tree, each message goes exactly where it is wanted, and no message above QoS 0 was lost on the way
//! to a node that could be reached all the time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod retained;
mod simulated;

use mqtick_join::cooperation::Kind;
use mqtick_join::message::{Key, Link, Message};
use mqtick_join::node::Action;
use mqtick_packet::Qos;
use proptest::prelude::*;
use simulated::{FILTERS, Network, TOPICS, message};

#[derive(Clone, Debug)]
enum Event {
    Join(usize, usize),
    Cut(usize),
    Restart(usize),
    Subscribe(usize, usize),
    Unsubscribe(usize, usize),
    Publish(usize, usize, u8),
    Steps(usize),
    Tick,
}

fn event() -> impl Strategy<Value = Event> {
    let any = 0..1000_usize;
    prop_oneof![
        4 => (any.clone(), any.clone()).prop_map(|(one, other)| Event::Join(one, other)),
        2 => any.clone().prop_map(Event::Cut),
        1 => any.clone().prop_map(Event::Restart),
        6 => (any.clone(), any.clone()).prop_map(|(at, which)| Event::Subscribe(at, which)),
        4 => (any.clone(), any.clone()).prop_map(|(at, which)| Event::Unsubscribe(at, which)),
        4 => (any.clone(), any.clone(), 0..3_u8).prop_map(|(at, which, qos)| Event::Publish(at, which, qos)),
        8 => (0..60_usize).prop_map(Event::Steps),
        1 => Just(Event::Tick),
    ]
}

/// How long a node waits for a neighbour that went away: not at all, or the default.
fn absence_s() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(30)]
}

fn run(kind: Kind, size: usize, absence_s: u64, events: &[Event]) {
    let mut network = Network::new(kind, size, absence_s);
    for one in 1..size {
        let to = network.roll(one);
        network.join(one, to);
    }
    for (number, event) in events.iter().enumerate() {
        match *event {
            Event::Join(one, other) => network.join(one % size, other % size),
            Event::Cut(which) => {
                let keys = network.whole();
                if let Some(key) = keys.get(which % keys.len().max(1)) {
                    network.cut(*key);
                }
            }
            Event::Restart(site) => network.restart(site % size),
            Event::Subscribe(site, which) => network.subscribe(site % size, FILTERS[which % 8]),
            Event::Unsubscribe(site, which) => network.unsubscribe(site % size, FILTERS[which % 8]),
            Event::Publish(site, which, qos) => {
                let payload = format!("event {number}").into_bytes();
                let qos = Qos::try_from(qos).unwrap();
                network.publish(site % size, TOPICS[which % 6], payload, qos);
            }
            Event::Steps(count) => (0..count).for_each(|_| {
                network.step();
            }),
            Event::Tick => network.tick(),
        }
    }
    network.check();
    for (number, site) in network.sites.iter().enumerate() {
        for (payload, count) in &site.got {
            let text = String::from_utf8_lossy(payload);
            let sure = text.starts_with("last")
                || !events.iter().any(|one| matches!(one, Event::Restart(_)));
            // A node that restarts does not know which messages it had before.
            assert!(
                *count == 1 || !sure,
                "{text} came {count} times to {number}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_few_nodes_agree_after_whatever_happened(
        size in 2..7_usize,
        absence_s in absence_s(),
        events in prop::collection::vec(event(), 0..120),
    ) {
        run(Kind::Subscriptions, size, absence_s, &events);
        run(Kind::Publications, size, absence_s, &events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn fifty_nodes_agree_after_whatever_happened(
        events in prop::collection::vec(event(), 100..300),
    ) {
        run(Kind::Subscriptions, 50, 30, &events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// If every node can always be reached some way, and news of a link arrives within the seconds that
    /// nodes allow for it.
    #[test]
    fn links_come_and_go_and_each_message_above_qos_0_arrives_once_wherever_it_is_wanted(
        size in 2..8_usize,
        absence_s in absence_s(),
        filters in prop::collection::vec((0..8_usize, 0..8_usize), 0..12),
        events in prop::collection::vec((0..4_u8, 0..1000_usize, 0..1000_usize), 0..80),
    ) {
        arrives_once(size, absence_s, &filters, &events);
    }

    /// If all nodes can be reached again before others stop waiting for them.
    #[test]
    fn parts_come_and_go_and_each_message_above_qos_0_arrives_once_wherever_it_is_wanted(
        size in 2..8_usize,
        filters in prop::collection::vec((0..8_usize, 0..8_usize), 0..12),
        events in prop::collection::vec((0..6_u8, 0..1000_usize, 0..1000_usize), 0..80),
    ) {
        arrives_once(size, 30, &filters, &events);
    }

    /// Only a node that restarts may get a message twice, or lose one that was published there.
    #[test]
    fn nodes_start_anew_and_each_message_above_qos_0_of_others_arrives_wherever_it_is_wanted(
        size in 2..8_usize,
        filters in prop::collection::vec((0..8_usize, 0..8_usize), 0..12),
        events in prop::collection::vec((prop::sample::select(&[0_u8, 1, 2, 2, 3, 4, 6]), 0..1000_usize, 0..1000_usize), 0..80),
    ) {
        arrives_once(size, 30, &filters, &events);
    }
}

fn arrives_once(
    size: usize,
    absence_s: u64,
    filters: &[(usize, usize)],
    events: &[(u8, usize, usize)],
) {
    let mut network = Network::new(Kind::Subscriptions, size, absence_s);
    for one in 1..size {
        let to = network.roll(one);
        network.join(one, to);
    }
    for (site, which) in filters {
        network.subscribe(site % size, FILTERS[*which]);
    }
    network.settle();
    let (mut sent, mut ticks) = (Vec::new(), 0);
    let mut anew = vec![0; size]; // at which event
    for (number, (what, one, other)) in events.iter().enumerate() {
        match what {
            0 => network.join(one % size, other % size),
            1 | 5 => {
                let keys = network.whole();
                let Some(key) = keys.get(one % keys.len().max(1)) else {
                    continue;
                };
                network.cables.get_mut(key).unwrap().is_cut = true;
                let is_whole = network.parts().iter().all(|part| *part == 0);
                network.cables.get_mut(key).unwrap().is_cut = false;
                if is_whole || *what == 5 {
                    network.cut(*key);
                }
            }
            2 => {
                let payload = format!("event {number}").into_bytes();
                let (from, topic) = (one % size, TOPICS[other % 6]);
                let key = network.publish(from, topic, payload.clone(), Qos::AtLeastOnce);
                sent.push((number, from, topic, payload, key));
            }
            3 => (0..other % 40).for_each(|_| {
                network.step();
            }),
            6 => {
                network.restart(one % size);
                anew[one % size] = number;
            }
            _ => {
                ticks += 1;
                if ticks < 25 {
                    network.rest();
                    network.tick();
                }
            }
        }
    }
    if network.parts().iter().any(|part| *part != 0) {
        (1..size).for_each(|one| network.join(one, one - 1));
    }
    network.settle();
    for (number, from, topic, payload, key) in sent {
        if anew[from] > number {
            continue;
        }
        for (to, anew) in anew.iter().enumerate() {
            let got = network.sites[to].got.get(&payload).copied().unwrap_or(0);
            let wanted = usize::from(to != from && network.wants(to, topic));
            let is_right = got == wanted || got > wanted && wanted > 0 && *anew > number;
            assert!(is_right, "{topic} from {from} came {got} times to {to}");
        }
        assert!(key.is_none_or(|key| network.sites[from].released.contains(&key)));
    }
}

#[test]
fn a_loop_is_cut_at_its_newest_link_and_a_cut_link_is_gone_round() {
    let mut network = Network::new(Kind::Subscriptions, 3, 30);
    network.join(0, 1);
    network.join(1, 2);
    network.join(2, 0);
    network.subscribe(2, "a");
    network.check();
    let used: Vec<u64> = network.sites[0]
        .node
        .tree
        .links
        .iter()
        .map(|(key, ..)| *key)
        .collect();
    assert_eq!(used, [1, 2]);
    network.cut(2);
    network.check();
    network.cut(1);
    network.check();
}

#[test]
fn a_message_above_qos_0_that_was_on_a_link_when_it_was_cut_arrives_over_the_other_one() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut network = Network::new(Kind::Subscriptions, 4, 30);
        for (one, other) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
            network.join(one, other);
        }
        network.subscribe(2, "a/#");
        network.settle();
        let key = network.publish(0, "a/b", b"one".to_vec(), qos).unwrap();
        network.cut(2);
        network.settle();
        assert_eq!(network.sites[2].got.get(b"one".as_slice()), Some(&1));
        assert!(network.sites[0].released.contains(&key));
    }
}

#[test]
fn a_message_that_is_sent_again_goes_where_the_first_attempt_did_not_have_to_go() {
    let mut network = Network::new(Kind::Subscriptions, 5, 30);
    let [begin, first, slow, behind_slow, moves] = [0, 1, 2, 3, 4];
    for (one, other) in [
        (begin, first),
        (first, slow),
        (slow, behind_slow),
        (first, moves),
        (moves, slow), // these two are not used at first
        (begin, slow),
    ] {
        network.join(one, other);
    }
    network.subscribe(behind_slow, "a");
    network.subscribe(moves, "a");
    network.settle();
    let key = network.publish(begin, "a", b"one".to_vec(), Qos::AtLeastOnce);
    network.held = Some(3);
    network.step(); // from `begin` to `first`
    network.cut(4);
    network.cut(1);
    network.settle(); // `slow` has it, and waits for who is behind it
    network.held = None;
    network.settle();
    for site in [behind_slow, moves] {
        assert_eq!(network.sites[site].got.get(b"one".as_slice()), Some(&1));
    }
    assert!(network.sites[begin].released.contains(&key.unwrap()));
}

#[test]
fn an_attempt_is_passed_on_once_whichever_way_it_comes() {
    let mut network = Network::new(Kind::Subscriptions, 4, 30);
    (1..4).for_each(|other| network.join(0, other));
    network.settle();
    let key = Key {
        origin: network.sites[1].node.id(),
        lane: 0,
        sequence: 1,
    };
    for (attempt, passed_on) in [(0, 0), (1, 2), (1, 0), (0, 0), (2, 2)] {
        for link in [2, 4] {
            let node = &mut network.sites[0].node;
            node.arrived(link, key, attempt, message("a", vec![], Qos::AtLeastOnce));
            let said: Vec<Action> = std::iter::from_fn(|| node.next_action()).collect();
            let sends: Vec<Link> = said
                .iter()
                .filter_map(|one| match one {
                    Action::Send { link, .. } => Some(*link),
                    _ => None,
                })
                .collect();
            let expected = if link == 2 { passed_on } else { 0 };
            assert_eq!(
                sends.len(),
                expected,
                "attempt {attempt} from {link}: {said:?}"
            );
            for to in sends {
                node.confirmed(to, key, attempt, true);
            }
            while node.next_action().is_some() {}
        }
    }
}

#[test]
fn what_the_access_list_of_a_site_denies_goes_on_to_others_and_changes_nothing_here() {
    let mut network = Network::new(Kind::Subscriptions, 3, 30);
    (1..3).for_each(|other| network.join(0, other));
    network.subscribe(0, "a");
    network.settle();
    let key = Key {
        origin: network.sites[1].node.id(),
        lane: 0,
        sequence: 1,
    };
    let denied = Message {
        retain: true,
        stamp: 7,
        is_denied: true,
        ..message("a", b"x".to_vec(), Qos::AtLeastOnce)
    };
    let node = &mut network.sites[0].node;
    node.arrived(2, key, 0, denied);
    let said: Vec<Action> = std::iter::from_fn(|| node.next_action()).collect();
    assert!(matches!(*said, [Action::Send { link: 4, .. }]), "{said:?}");
    assert!(node.retained.is_empty());
}

#[test]
fn who_is_back_after_a_while_gets_what_came_before_it_said_again_what_it_wants() {
    let mut network = Network::new(Kind::Subscriptions, 2, 30);
    network.join(0, 1);
    network.subscribe(1, "a");
    network.settle();
    network.cut(1);
    for _ in 0..10 {
        network.rest();
        network.tick();
    }
    network.join(0, 1);
    for number in 0..20 {
        network.step();
        network.publish(0, "a", vec![number], Qos::AtLeastOnce);
    }
    network.settle();
    let got: Vec<_> = (0..20)
        .map(|one| network.sites[1].got.get([one].as_slice()))
        .collect();
    assert_eq!(got, [Some(&1); 20]);
}

#[test]
fn however_many_wait_for_a_neighbour_none_of_them_is_taken_for_one_that_it_had() {
    const COUNT: u16 = 4200; // of one lane: more than a node remembers one by one
    let mut network = Network::new(Kind::Subscriptions, 3, 30);
    network.join(0, 1);
    network.join(1, 2);
    network.subscribe(2, "a");
    network.settle();
    network.cut(2);
    network.rest();
    let publish = |network: &mut Network, number: u16| {
        network.publish(0, "a", number.to_be_bytes().into(), Qos::AtLeastOnce);
    };
    (0..COUNT).for_each(|number| publish(&mut network, number));
    network.rest();
    network.join(1, 2);
    network.rest();
    publish(&mut network, COUNT); // it is there first
    network.settle();
    for number in 0..=COUNT {
        let got = network.sites[2].got.get(number.to_be_bytes().as_slice());
        assert_eq!(got, Some(&1), "{number}");
    }
}

#[test]
fn a_filter_that_only_two_neighbours_in_a_loop_told_each_other_is_not_kept_alive() {
    let mut network = Network::new(Kind::Subscriptions, 3, 30);
    network.subscribe(0, "a");
    for (one, other) in [(0, 1), (1, 2), (2, 0)] {
        network.join(one, other);
    }
    (0..40).for_each(|_| {
        network.step();
    });
    network.unsubscribe(0, "a");
    network.settle();
    for site in &network.sites {
        assert_eq!(site.node.filters(), 0);
    }
}
