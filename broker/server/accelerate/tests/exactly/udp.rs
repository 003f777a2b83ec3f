//! Random sessions of mqtt-udp.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::udp_world::{Action, CLIENTS, FILTERS, Fate, LONGEST_KEEP_ALIVE_S, TOPICS, World};

fn who() -> impl Strategy<Value = usize> {
    0..CLIENTS
}

fn topic() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0_usize), 1 => 0..TOPICS.len()]
}

fn filters() -> impl Strategy<Value = Vec<usize>> {
    let one = prop_oneof![4 => Just(0_usize), 3 => 0..FILTERS.len()];
    prop::collection::vec(one, 1..3)
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Served),
        1 => Just(Fate::Lost),
        1 => Just(Fate::LostBehind),
        1 => Just(Fate::Unheard),
        1 => Just(Fate::UnheardBehind),
        1 => Just(Fate::Unread),
        1 => Just(Fate::UnreadUnheard),
    ]
}

fn connect() -> impl Strategy<Value = Action> {
    let keep_alive_s = prop_oneof![
        3 => Just(20_u16),
        2 => Just(4),
        1 => Just(0),
        1 => Just(LONGEST_KEEP_ALIVE_S)
    ];
    (who(), keep_alive_s, prop::bool::weighted(0.2), fate()).prop_map(
        |(who, keep_alive_s, moves, fate)| Action::Connect {
            who,
            keep_alive_s,
            moves,
            fate,
        },
    )
}

fn ordinary() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => connect(),
        12 => (who(), filters(), fate()).prop_map(|(a, b, c)| Action::Subscribe(a, b, c)),
        4 => (who(), filters(), fate()).prop_map(|(a, b, c)| Action::Unsubscribe(a, b, c)),
        3 => (who(), any::<bool>()).prop_map(|(a, b)| Action::Repeat(a, b)),
        30 => (who(), topic(), 1..4_usize).prop_map(|(a, b, c)| Action::Publish(a, b, c)),
        4 => (who(), topic(), 0..6_u8).prop_map(|(a, b, c)| Action::PublishOther(a, b, c)),
        3 => (who(), fate()).prop_map(|(a, b)| Action::Disconnect(a, b)),
        3 => (who(), fate()).prop_map(|(a, b)| Action::Ping(a, b)),
        3 => who().prop_map(Action::Insist),
        2 => who().prop_map(Action::Vanish),
        2 => (who(), 0..8_u8).prop_map(|(a, b)| Action::Odd(a, b)),
        1 => who().prop_map(Action::OldProof),
        1 => who().prop_map(Action::ForgeAnswer),
        25 => (0..4_usize, 0..4_usize).prop_map(|(a, b)| Action::Serve(a, b)),
        5 => Just(Action::Tick),
        10 => Just(Action::Lag),
        10 => (1..4_u64).prop_map(Action::Time),
        3 => (10..80_u64).prop_map(Action::Time),
        1 => (80..600_u64).prop_map(Action::Time),
    ]
}

fn trouble() -> impl Strategy<Value = Action> {
    prop_oneof![
        1 => Just(Action::LoseEvent),
        1 => Just(Action::RestartController),
        2 => any::<bool>().prop_map(|told| Action::RestartBroker { told }),
    ]
}

/// Rules are open, something happens, and a client publishes before, while and after the controller
/// learns of it.
fn episode() -> impl Strategy<Value = Vec<Action>> {
    let publish = |count| Action::Publish(0, 0, count);
    let one = prop_oneof![
        6 => ordinary(),
        3 => (1..CLIENTS, fate()).prop_map(|(who, fate)| Action::Unsubscribe(who, vec![0], fate)),
        3 => (who(), fate()).prop_map(|(who, fate)| Action::Subscribe(who, vec![0], fate)),
        2 => (1..CLIENTS, fate()).prop_map(|(who, fate)| Action::Disconnect(who, fate)),
        1 => (1..CLIENTS).prop_map(Action::Vanish),
        2 => who().prop_map(Action::Insist),
        2 => connect(),
        2 => trouble(),
    ];
    let serve = || (0..3_usize, 0..4_usize).prop_map(|(one, other)| Action::Serve(one, other));
    let pause = prop_oneof![
        3 => serve(),
        2 => (1..4_u64).prop_map(Action::Time),
        1 => Just(Action::Tick),
        2 => Just(Action::Lag),
        1 => (20..400_u64).prop_map(Action::Time),
    ];
    let happens = prop::collection::vec(one, 1..5);
    (happens, pause, serve(), 1..3_usize, 0..4_u64).prop_map(
        move |(happens, pause, serve, count, rest)| {
            let warm = [
                publish(1),
                Action::Time(4),
                publish(1),
                Action::Time(3),
                publish(1),
            ];
            let probe = [
                pause,
                publish(count),
                serve,
                publish(1),
                Action::Time(rest),
                publish(2),
            ];
            [&warm[..], &happens, &probe].concat()
        },
    )
}

/// A fast publisher and a busy broker.
fn rush() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        3 => Just(Action::Publish(0, 0, 1)),
        1 => Just(Action::Insist(0)),
        2 => (0..2_u8).prop_map(|kind| Action::Odd(0, kind)),
        4 => Just(Action::Lag),
        4 => (0..3_usize, 0..4_usize).prop_map(|(one, other)| Action::Serve(one, other)),
    ];
    prop::collection::vec(one, 5..30)
}

fn session() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        10 => ordinary().prop_map(|one| vec![one]),
        10 => episode(),
        4 => rush(),
        1 => trouble().prop_map(|one| vec![one]),
    ];
    let first = prop_oneof![2 => Just(Vec::new()), 1 => rush()];
    (first, prop::collection::vec(one, 1..16)).prop_map(|(first, actions)| {
        let fate = Fate::Served;
        let connect = |who| Action::Connect {
            who,
            keep_alive_s: 20,
            moves: false,
            fate,
        };
        let begin = (1..CLIENTS - 1).map(connect);
        let begin = begin.chain([1, 2].map(|who| Action::Subscribe(who, vec![0], fate)));
        let begin = begin.chain([Action::Time(1)]).chain(first);
        begin.chain(actions.into_iter().flatten()).collect()
    })
}

/// Returns the differences between both worlds' deliveries, and the number of copied messages.
fn compare(actions: &[Action], rules: usize, is_told_lease: bool) -> (Vec<String>, u64) {
    let mut plain = World::new(false, rules, is_told_lease);
    let mut fast = World::new(true, rules, is_told_lease);
    for action in actions {
        plain.act(action);
        fast.act(action);
    }
    plain.act(&Action::Time(5));
    fast.act(&Action::Time(5));
    let mut faults = Vec::new();
    let keys: BTreeSet<_> = plain
        .deliveries
        .keys()
        .chain(fast.deliveries.keys())
        .collect();
    for key in keys {
        let sure = |world: &World| -> Vec<u32> {
            let numbers = world.deliveries.get(key).into_iter().flatten().copied();
            numbers.filter(|one| !plain.unsure.contains(one)).collect()
        };
        let (wanted, found) = (sure(&plain), sure(&fast));
        if wanted != found {
            faults.push(format!("{key:?}: without {wanted:?}, with {found:?}"));
        }
    }
    if plain.answers != fast.answers {
        let (wanted, found) = (&plain.answers, &fast.answers);
        faults.push(format!("answers: without {wanted:?}, with {found:?}"));
    }
    if plain.asked_for != fast.asked_for && !fast.may_get_answers {
        let (wanted, found) = (&plain.asked_for, &fast.asked_for);
        faults.push(format!("asked for: without {wanted:?}, with {found:?}"));
    }
    (faults, fast.fast)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn clients_of_mqtt_udp_get_the_same_messages_in_the_same_order(
        actions in session(),
        rules in prop_oneof![Just(64_usize), Just(2)],
        is_told_lease in any::<bool>(),
    ) {
        let (faults, _) = compare(&actions, rules, is_told_lease);
        prop_assert!(faults.is_empty(), "{faults:#?}");
    }
}

#[test]
fn most_publishes_of_an_ordinary_session_of_mqtt_udp_are_copied() {
    let fate = Fate::Served;
    let connect = |who| Action::Connect {
        who,
        keep_alive_s: 20,
        moves: false,
        fate,
    };
    // One publisher with a lease, and one that never requested one.
    for publisher in [0, 3] {
        let mut actions = vec![connect(0), connect(1), connect(2)];
        actions.extend([1, 2].map(|who| Action::Subscribe(who, vec![0], fate)));
        for _ in 0..600 {
            actions.extend([Action::Publish(publisher, 0, 1), Action::Time(1)]);
        }
        let (faults, fast) = compare(&actions, 64, false);
        assert_eq!(faults, Vec::<String>::new());
        assert!(fast >= 590, "{fast} of 600");
    }
}
