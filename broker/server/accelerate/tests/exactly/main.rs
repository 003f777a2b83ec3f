//! Clients get the same messages with acceleration as without. Random sessions against a small
//! model of a broker; all of it is simulated.

#![allow(clippy::expect_used)]

mod broker;
#[path = "../plane/mod.rs"]
mod plane;
mod world;

use broker::Proof;
use proptest::prelude::*;
use std::net::SocketAddr;
use world::{Action, CLIENTS, LONGEST_KEEP_ALIVE_S, NAMES, Wanted, What, World};

fn who() -> impl Strategy<Value = usize> {
    0..CLIENTS
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        6 => Just(What::Name(0)),
        3 => (0..NAMES.len()).prop_map(What::Name),
        1 => (0..2_usize).prop_map(What::Short),
        1 => (0..2_usize).prop_map(What::Predefined),
    ]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        4 => what().prop_map(Wanted::What),
        1 => (0..4_usize).prop_map(Wanted::Wild),
    ]
}

fn connect() -> impl Strategy<Value = Action> {
    let keep_alive_s = prop_oneof![Just(20_u16), Just(LONGEST_KEEP_ALIVE_S)];
    (
        who(),
        prop::bool::weighted(0.7),
        keep_alive_s,
        prop::bool::weighted(0.3),
    )
        .prop_map(|(who, clean, keep_alive_s, moves)| Action::Connect {
            who,
            clean,
            keep_alive_s,
            moves,
        })
}

fn ordinary() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => connect(),
        12 => (who(), wanted()).prop_map(|(who, wanted)| Action::Subscribe(who, wanted)),
        3 => (who(), wanted()).prop_map(|(who, wanted)| Action::Unsubscribe(who, wanted)),
        30 => (who(), what(), 1..4_usize).prop_map(|(who, what, n)| Action::Publish(who, what, n)),
        3 => (who(), what(), 0..6_u8).prop_map(|(who, what, kind)| Action::PublishOther(who, what, kind)),
        1 => (who(), wanted()).prop_map(|(who, wanted)| Action::SubscribeOther(who, wanted)),
        3 => who().prop_map(Action::Repeat),
        1 => who().prop_map(Action::Become),
        1 => who().prop_map(Action::WakeElsewhere),
        1 => who().prop_map(Action::ForgeAnswer),
        2 => who().prop_map(Action::Disconnect),
        2 => who().prop_map(Action::Sleep),
        2 => who().prop_map(Action::Wake),
        1 => who().prop_map(Action::Vanish),
        2 => who().prop_map(Action::Ping),
        25 => (0..4_usize, 0..4_usize).prop_map(|(one, other)| Action::Serve(one, other)),
        5 => Just(Action::Tick),
        10 => (1..4_u64).prop_map(Action::Time),
        2 => (10..200_u64).prop_map(Action::Time),
        1 => (200..1200_u64).prop_map(Action::Time),
    ]
}

fn trouble() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => Just(Action::LoseEvent),
        4 => Just(Action::LosePing),
        2 => (1..45_u64).prop_map(Action::Hang),
        1 => Just(Action::RestartController),
        2 => any::<bool>().prop_map(|told| Action::RestartBroker { told }),
        2 => (who(), any::<bool>()).prop_map(|(who, connects)| Action::Odd(who, connects)),
        1 => (1..3_usize).prop_map(Action::Refuse),
        2 => wanted().prop_map(Action::Forge),
    ]
}

/// The other way to name the same topic, if there is one.
fn twin(topic: What) -> What {
    match topic {
        What::Name(2) => What::Predefined(1),
        What::Predefined(1) => What::Name(2),
        other => other,
    }
}

/// A sequence that is unlikely to occur by chance: rules are open, something happens, and a client
/// publishes before, while and after the controller learns of it.
fn episode(topic: What) -> impl Strategy<Value = Vec<Action>> {
    let publish = move |count| Action::Publish(0, topic, count);
    let wanted = Wanted::What(topic);
    let others = 1..CLIENTS;
    let one = prop_oneof![
        6 => ordinary(),
        2 => others.clone().prop_map(move |who| Action::Unsubscribe(who, wanted)),
        2 => (0..CLIENTS).prop_map(move |who| Action::Subscribe(who, wanted)),
        1 => (others.clone(), what()).prop_map(|(who, what)| Action::SubscribeOther(who, Wanted::What(what))),
        2 => (0..6_u8).prop_map(move |kind| Action::PublishOther(0, topic, kind)),
        1 => Just(Action::Publish(0, twin(topic), 1)),
        2 => (0..CLIENTS).prop_map(Action::Sleep),
        1 => (0..CLIENTS).prop_map(Action::Disconnect),
        2 => connect(),
        2 => trouble(),
    ];
    let length = prop_oneof![4 => 1..3_usize, 1 => 3..8_usize];
    let happens = length.prop_flat_map(move |n| prop::collection::vec(one.clone(), n));
    let serve = || (0..3_usize, 0..4_usize).prop_map(|(one, other)| Action::Serve(one, other));
    let pause = prop_oneof![
        3 => serve(),
        2 => (1..4_u64).prop_map(Action::Time),
        1 => Just(Action::Tick),
        1 => (150..700_u64).prop_map(Action::Time),
    ];
    let last = prop_oneof![4 => Just(topic), 1 => Just(twin(topic))];
    let changes = (happens, pause, 1..3_usize, 0..4_u64, 0..6_u8, last).prop_map(
        move |(happens, pause, count, rest, kind, last)| {
            let warm = vec![
                publish(1),
                Action::Time(4),
                publish(1),
                Action::Time(3),
                publish(1),
            ];
            let probe = vec![
                pause,
                Action::PublishOther(0, last, if kind == 5 { 5 } else { 2 }),
                publish(count),
                Action::Time(rest),
                publish(2),
            ];
            [warm, happens, probe].concat()
        },
    );
    // A rule that was closed is opened again while messages are under way.
    let races = (0..3_usize, 0..3_usize, 0..3_usize, serve(), serve()).prop_map(
        move |(pings, before, while_, one, other)| {
            let ping = |index: usize| {
                if pings == index {
                    Action::Ping(0)
                } else {
                    Action::Serve(0, 0)
                }
            };
            vec![
                Action::Time(3),
                Action::PublishOther(0, topic, 2),
                publish(before),
                ping(1),
                Action::Tick,
                publish(while_),
                ping(2),
                one,
                publish(1),
                other,
                publish(1),
            ]
        },
    );
    prop_oneof![5 => changes, 2 => races]
}

/// A session that begins with connected clients, so that most of its actions have an effect.
fn session() -> impl Strategy<Value = Vec<Action>> {
    let topic = prop_oneof![4 => Just(What::Name(0)), 1 => Just(What::Name(2)), 1 => what()];
    topic.prop_flat_map(|topic| {
        let one = prop_oneof![
            10 => ordinary().prop_map(|one| vec![one]),
            10 => episode(topic),
            1 => trouble().prop_map(|one| vec![one]),
        ];
        prop::collection::vec(one, 1..16).prop_map(move |actions| {
            let connect = |who| Action::Connect {
                who,
                clean: true,
                keep_alive_s: 20,
                moves: false,
            };
            let subscribe = |who| Action::Subscribe(who, Wanted::What(topic));
            let begin = (0..CLIENTS - 1).map(connect).chain([1, 2].map(subscribe));
            begin.chain(actions.into_iter().flatten()).collect()
        })
    })
}

/// Returns the differences between both worlds' deliveries, and other faults; and the number of
/// copied messages.
fn compare(actions: &[Action], rules: usize, proof: Proof) -> (Vec<String>, u64) {
    let mut plain = World::new(false, rules, proof);
    let mut fast = World::new(true, rules, proof);
    for action in actions {
        plain.act(action);
        fast.act(action);
    }
    plain.act(&Action::Time(5));
    fast.act(&Action::Time(5));
    let mut faults = std::mem::take(&mut fast.faults);
    // A client that sends CONNECT again and goes on with old ids fails without acceleration, too.
    faults.retain(|fault| !plain.faults.contains(fault));
    let keys: std::collections::BTreeSet<_> = plain
        .deliveries
        .keys()
        .chain(fast.deliveries.keys())
        .cloned()
        .collect();
    for key in keys {
        let sure = |world: &World| -> Vec<u32> {
            let numbers = world.deliveries.get(&key).into_iter().flatten().copied();
            numbers
                .filter(|one| !is_unsure(&plain, *one, key.0))
                .collect()
        };
        let (wanted, found) = (sure(&plain), sure(&fast));
        if wanted != found {
            let fast_log = fast.log.join(", ");
            faults.push(format!(
                "{key:?}: without {wanted:?}, with {found:?} ({fast_log})"
            ));
        }
    }
    (faults, fast.fast)
}

fn is_unsure(world: &World, number: u32, at: SocketAddr) -> bool {
    world.unsure.contains(&(number, at))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_clients_get_the_same_messages_in_the_same_order(
        actions in session(),
        rules in prop_oneof![Just(64_usize), Just(2)],
        proof in prop_oneof![Just(Proof::None), Just(Proof::Register), Just(Proof::Credit)],
    ) {
        let (faults, _) = compare(&actions, rules, proof);
        prop_assert!(faults.is_empty(), "{faults:#?}");
    }
}

/// A REGACK lets a publisher name a topic in a second way. Messages by this name must not overtake
/// those by the other one, even before the controller learns of it.
#[test]
fn what_is_sent_by_a_second_name_is_not_overtaken() {
    let connect = |who| Action::Connect {
        who,
        clean: true,
        keep_alive_s: 60,
        moves: false,
    };
    let (by_id, by_name) = (What::Predefined(1), What::Name(2));
    let mut actions = vec![connect(0), connect(1)];
    actions.push(Action::Subscribe(1, Wanted::What(by_id)));
    for _ in 0..9 {
        actions.extend([Action::Publish(0, by_id, 1), Action::Time(4)]);
    }
    actions.extend([Action::Publish(0, by_name, 1), Action::Publish(0, by_id, 1)]);
    let (faults, fast) = compare(&actions, 64, Proof::None);
    assert_eq!(faults, Vec::<String>::new());
    assert!(fast > 0);
}

#[test]
fn most_publishes_of_an_ordinary_session_are_copied() {
    let connect = |who| Action::Connect {
        who,
        clean: true,
        keep_alive_s: 60,
        moves: false,
    };
    let mut actions = vec![connect(0), connect(1), connect(2)];
    for who in [1, 2] {
        actions.push(Action::Subscribe(who, Wanted::What(What::Name(0))));
    }
    for _ in 0..100 {
        actions.extend([Action::Publish(0, What::Name(0), 1), Action::Time(1)]);
    }
    let (faults, fast) = compare(&actions, 64, Proof::None);
    assert_eq!(faults, Vec::<String>::new());
    assert!(fast >= 97, "{fast} of 100");
}
