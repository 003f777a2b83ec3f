//! Who gets what is the same with acceleration and without: random sessions against a small model of
//! a broker. All of it is simulated.

#![allow(clippy::expect_used)]

mod broker;
mod world;

use proptest::prelude::*;
use std::net::SocketAddr;
use world::{Action, CLIENTS, NAMES, Wanted, What, World};

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
    let keep_alive_s = prop_oneof![Just(20_u16), Just(60)];
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
        3 => (who(), what(), 0..4_u8).prop_map(|(who, what, kind)| Action::PublishOther(who, what, kind)),
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
        Just(Action::LoseEvent),
        Just(Action::RestartController),
        any::<bool>().prop_map(|told| Action::RestartBroker { told }),
    ]
}

/// What follows each other seldom by chance: a rule is open, then something ends it.
fn episode() -> impl Strategy<Value = Vec<Action>> {
    let one = || Action::Publish(0, What::Name(0), 1);
    let topic = Wanted::What(What::Name(0));
    let warm = move || vec![one(), Action::Time(3), one(), Action::Time(3), one()];
    let ends = (1..CLIENTS, 0..6_u8).prop_map(move |(who, kind)| match kind {
        0 => vec![Action::Unsubscribe(who, topic), Action::Serve(0, 2)],
        1 => vec![Action::Sleep(who), Action::Serve(0, 2)],
        2 => vec![Action::Disconnect(who), Action::Serve(0, 2)],
        3 => vec![Action::Vanish(who), Action::Time(370)],
        4 => vec![Action::Subscribe(who, topic), Action::Serve(1, 0)],
        _ => vec![
            Action::Connect {
                who,
                clean: false,
                keep_alive_s: 20,
                moves: true,
            },
            Action::Serve(0, 3),
        ],
    });
    prop_oneof![
        2 => Just(warm()),
        3 => ends.prop_map(move |end| [warm(), end, vec![one(), Action::Time(1)]].concat()),
    ]
}

/// Begins with some clients that are connected, so that most of what follows means something.
fn session(length: usize) -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        100 => ordinary().prop_map(|one| vec![one]),
        10 => episode(),
        1 => trouble().prop_map(|one| vec![one]),
    ];
    prop::collection::vec(one, 1..length).prop_map(|actions| {
        let connect = |who| Action::Connect {
            who,
            clean: true,
            keep_alive_s: 20,
            moves: false,
        };
        let subscribe = |who| Action::Subscribe(who, Wanted::What(What::Name(0)));
        let begin = (0..CLIENTS - 1).map(connect).chain([1, 2].map(subscribe));
        begin.chain(actions.into_iter().flatten()).collect()
    })
}

/// What one world delivered and the other did not, and whatever else is wrong.
fn compare(actions: &[Action], rules: usize, wants_proof: bool) -> (Vec<String>, u64) {
    let mut plain = World::new(false, rules, wants_proof);
    let mut fast = World::new(true, rules, wants_proof);
    for action in actions {
        plain.act(action);
        fast.act(action);
    }
    plain.act(&Action::Time(5));
    fast.act(&Action::Time(5));
    let mut faults = std::mem::take(&mut fast.faults);
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
        actions in session(120),
        rules in prop_oneof![Just(64_usize), Just(2)],
        wants_proof in any::<bool>(),
    ) {
        let (faults, _) = compare(&actions, rules, wants_proof);
        prop_assert!(faults.is_empty(), "{faults:#?}");
    }
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
    let (faults, fast) = compare(&actions, 64, false);
    assert_eq!(faults, Vec::<String>::new());
    assert!(fast >= 97, "{fast} of 100");
}
