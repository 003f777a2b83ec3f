//! Runs the vectors of `broker/spec`, except those about the table sizes of a hardware broker; and
//! checks bounds with random datagrams.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod tree;
mod vectors;

use mqtick_udp::{Server, Settings, Subnet};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::Path;
use tree::Broker;
use vectors::{Value, Vector, hex, octets};

/// The vectors that do not apply here, and why.
const NOT_OURS: [(&str, &str); 6] = [
    ("shapes", "a tree needs none"),
    ("the first shape", "a tree needs none"),
    ("a shape is free again", "a tree needs none"),
    ("share before shape", "a tree needs none"),
    ("not UTF-8", "what goes to TCP as well has to be"),
    ("64 places", "a setting, for all transports together"),
];

fn subnets(value: Option<&Value>) -> Vec<Subnet> {
    let Some(value) = value else {
        return vec![Subnet {
            first: [0, 0, 0, 0].into(),
            bits: 0,
        }];
    };
    let subnet = |text: &Value| {
        let (first, bits) = text.text().split_once('/').expect("a subnet");
        Subnet {
            first: first.parse().expect("an address"),
            bits: bits.parse().expect("a number"),
        }
    };
    value.list().iter().map(subnet).collect()
}

fn settings(given: &Value) -> Settings {
    let number = |name: &str, usual: usize| given.get(name).map_or(usual, Vector::number);
    let usual = Settings::default();
    let secret = octets(given["secret"].text());
    Settings {
        secret: secret.try_into().expect("16 octets"),
        lease_s: number("lease_s", 60) as u16,
        publishers: subnets(given.get("publishers")),
        subscribers: subnets(given.get("subscribers")),
        subscriptions_a_subscriber: number("subscriptions_a_subscriber", 32),
        subscribers_an_address: number("subscribers_an_address", 1024),
        ..usual
    }
}

/// Whether exactly the expected datagrams were sent, in an allowed order.
fn agree(expect: &[Value], sent: &[(SocketAddrV4, Vec<u8>)]) -> bool {
    let Some((first, rest)) = expect.split_first() else {
        return sent.is_empty();
    };
    let Some(runs) = first.get("any_order") else {
        let fits = |(to, octets): &(SocketAddrV4, Vec<u8>)| {
            let wanted = first["send"].text();
            let is = hex(octets);
            to.to_string() == first["to"].text()
                && wanted.len() == is.len()
                && wanted
                    .chars()
                    .zip(is.chars())
                    .all(|(one, other)| one == '.' || one == other)
        };
        return sent.first().is_some_and(fits) && agree(rest, &sent[1..]);
    };
    // The runs can come in any order, but each run is in order: try each run as the next one.
    let runs: Vec<&[Value]> = runs.list().iter().map(Vector::list).collect();
    fn any(runs: &[&[Value]], rest: &[Value], sent: &[(SocketAddrV4, Vec<u8>)]) -> bool {
        if runs.is_empty() {
            return agree(rest, sent);
        }
        (0..runs.len()).any(|next| {
            let mut others = runs.to_vec();
            let run = others.remove(next);
            run.len() <= sent.len()
                && agree(run, &sent[..run.len()])
                && any(&others, rest, &sent[run.len()..])
        })
    }
    any(&runs, rest, sent)
}

fn run(conversation: &Value) {
    let name = conversation["name"].text();
    let mut server = Server::new(settings(&conversation["settings"]));
    let mut broker = Broker::default();
    for (at, step) in conversation["steps"].list().iter().enumerate() {
        let field = |name| &step[name];
        let from = field("from").text().parse().expect("an address");
        let datagram = octets(field("send").text());
        server.datagram(field("at_ns").number() as u64, from, &datagram, &mut broker);
        let sent = std::mem::take(&mut broker.sent);
        let text: Vec<_> = sent
            .iter()
            .map(|(to, one)| format!("{to} {}", hex(one)))
            .collect();
        assert!(
            agree(field("expect").list(), &sent),
            "{name}, step {at}: {text:?}"
        );
    }
    let counted: BTreeMap<&str, usize> = server
        .counters()
        .filter(|(name, count)| *count > 0 && !["challenges", "leases_ended"].contains(name))
        .map(|(name, count)| (name, count as usize))
        .collect();
    let wanted = conversation["counters"].map();
    let wanted = wanted
        .iter()
        .map(|(name, count)| (&**name, count.number()))
        .collect();
    assert_eq!(counted, wanted, "{name}");
}

#[test]
fn the_conversations_of_the_specification_go_as_it_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors");
    let (mut held, mut left) = (0, Vec::new());
    // The engine measures how long a message was in the broker: broker/tests/test_broker_udp.py
    // tests that.
    for file in [
        "filters", "leases", "packets", "proof", "refusals", "retained",
    ] {
        let text = std::fs::read_to_string(folder.join(format!("{file}.json"))).expect("vectors");
        for conversation in vectors::read(&text).list() {
            let name = conversation["name"].text();
            if NOT_OURS.iter().any(|(one, _)| *one == name) {
                left.push(name.to_owned());
            } else {
                run(conversation);
                held += 1;
            }
        }
    }
    assert_eq!(left.len(), NOT_OURS.len());
    assert!(held > 60, "{held}");
}

#[test]
fn a_conversation_that_goes_otherwise_is_noticed() {
    let expect = vectors::read(
        r#"[{"any_order": [[{"to": "10.0.0.2:1", "send": "01.."}], [{"to": "10.0.0.3:2", "send": "03"}]]}]"#,
    );
    let (one, two): (SocketAddrV4, SocketAddrV4) =
        ("10.0.0.2:1".parse().unwrap(), "10.0.0.3:2".parse().unwrap());
    let (first, second) = ((one, vec![1, 9]), (two, vec![3]));
    for right in [
        [first.clone(), second.clone()],
        [second.clone(), first.clone()],
    ] {
        assert!(agree(expect.list(), &right));
    }
    for wrong in [
        vec![first.clone()],
        vec![first.clone(), first.clone()],
        vec![(one, vec![2, 9]), second.clone()],
        vec![(two, vec![1, 9]), second.clone()],
        vec![first, second.clone(), second],
    ] {
        assert!(!agree(expect.list(), &wrong));
    }
}

fn everybody() -> Settings {
    Settings {
        publishers: subnets(None),
        subscribers: subnets(None),
        leases: 8,
        subscribers_an_address: 3,
        subscriptions: 20,
        subscriptions_a_subscriber: 4,
        ..Settings::default()
    }
}

/// A packet: its first octet and its body.
fn packet(first: u8, body: Vec<u8>) -> Vec<u8> {
    let mut octets = vec![first];
    if body.len() < 128 {
        octets.push(body.len() as u8);
    } else {
        octets.extend([body.len() as u8 | 0x80, (body.len() >> 7) as u8]);
    }
    octets.extend(body);
    octets
}

fn string() -> impl Strategy<Value = Vec<u8>> {
    "[a+#/$]{0,6}".prop_map(|text| [vec![0, text.len() as u8], text.into()].concat())
}

fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let filters = || prop::collection::vec(string().prop_map(|one| [one, vec![0]].concat()), 0..4);
    let subscribe = filters().prop_map(|all| packet(0x82, [vec![0, 1], all.concat()].concat()));
    let unsubscribe = prop::collection::vec(string(), 0..4)
        .prop_map(|all| packet(0xa2, [vec![0, 1], all.concat()].concat()));
    let publish = (
        string(),
        any::<bool>(),
        prop::collection::vec(any::<u8>(), 0..40),
    )
        .prop_map(|(topic, retain, rest)| packet(0x30 | u8::from(retain), [topic, rest].concat()));
    let right = prop_oneof![
        Just(
            octets("100c00044d51545404020001")
                .into_iter()
                .chain([0, 0])
                .collect()
        ),
        Just(vec![0xc0, 0]),
        Just(vec![0xe0, 0]),
        publish,
        unsubscribe,
        subscribe.boxed(),
        filters().prop_map(|all| packet(0x82, [vec![0, 2], all.concat()].concat())),
    ];
    let changed = (
        right.clone(),
        any::<prop::sample::Index>(),
        any::<u8>(),
        any::<bool>(),
    );
    prop_oneof![
        6 => right,
        1 => prop::collection::vec(any::<u8>(), 0..60),
        1 => changed.prop_map(|(mut octets, at, octet, cut): (Vec<u8>, _, _, _)| {
            let at = at.index(octets.len());
            if cut { octets.truncate(at) } else { octets[at] = octet }
            octets
        }),
    ]
}

fn subscribe(filter: &str, times: usize) -> Vec<u8> {
    let one = [&[0, filter.len() as u8], filter.as_bytes(), &[0]].concat();
    packet(0x82, [vec![0, 1], one.repeat(times)].concat())
}

/// A server with a lease of `from`, and a broker with 100 retained messages.
fn known(settings: Settings, from: SocketAddrV4) -> (Server<u64>, Broker) {
    let (mut server, mut broker) = (Server::new(settings), Broker::default());
    server.datagram(0, from, &subscribe("a", 1), &mut broker);
    let challenge = broker.sent.remove(0).1;
    server.datagram(0, from, &challenge, &mut broker);
    for number in 0..100u8 {
        let topic = format!("r/{number:02}");
        let body = [&[0, 4], topic.as_bytes(), b"x"].concat();
        server.datagram(0, from, &packet(0x31, body), &mut broker);
    }
    (server, broker)
}

fn count(server: &Server<u64>, name: &str) -> u64 {
    server.counters().find(|(one, _)| *one == name).unwrap().1
}

#[test]
fn a_filter_that_is_there_twice_brings_what_is_retained_once() {
    let from = "10.0.0.1:5000".parse().unwrap();
    let (mut server, mut broker) = known(everybody(), from);
    server.datagram(0, from, &subscribe("#", 32), &mut broker);
    assert_eq!(broker.sent.len(), 1 + 64);
}

#[test]
fn who_asks_all_the_time_gets_a_suback_and_nothing_more_until_the_next_second() {
    let from = "10.0.0.1:5000".parse().unwrap();
    let (mut server, mut broker) = known(everybody(), from);
    for _ in 0..40 {
        server.datagram(0, from, &subscribe("#", 1), &mut broker);
    }
    assert_eq!(broker.sent.len(), 40 + 32 * 64);
    assert_eq!(count(&server, "rate"), 8);
    broker.sent.clear();
    server.datagram(1_000_000_000, from, &subscribe("#", 1), &mut broker);
    assert_eq!(broker.sent.len(), 1 + 64);
}

#[test]
fn who_publishes_more_than_the_limit_waits_for_the_next_second_and_others_do_not() {
    let settings = Settings {
        publishes_a_second: 3,
        ..everybody()
    };
    let (mut server, mut broker) = (Server::new(settings), Broker::default());
    let [one, same, other] = ["10.0.0.1:5000", "10.0.0.1:5001", "10.0.0.2:5000"]
        .map(|one| one.parse::<SocketAddrV4>().unwrap());
    let publish = packet(0x30, b"\0\x01ax".into());
    for from in [one, one, same, same, other] {
        server.datagram(0, from, &publish, &mut broker);
    }
    assert_eq!(count(&server, "rate"), 1);
    server.datagram(1_000_000_000, one, &publish, &mut broker);
    assert_eq!(count(&server, "rate"), 1);
}

#[test]
fn a_service_of_the_system_and_the_server_itself_begin_no_lease() {
    let settings = Settings {
        lowest_port: 1024,
        own_port: 1883,
        ..everybody()
    };
    let (mut server, mut broker) = (Server::new(settings), Broker::default());
    for (port, answers) in [(7, 0), (1023, 0), (1883, 0), (1024, 1)] {
        let from = SocketAddrV4::new([10, 0, 0, 1].into(), port);
        server.datagram(0, from, &subscribe("a", 1), &mut broker);
        assert_eq!(broker.sent.len(), answers);
    }
    assert_eq!(count(&server, "source"), 3);
}

const OVERLAPPING: [&str; 8] = ["a/b", "+/b", "a/+", "+/+", "a/#", "+/#", "#", "a/b/#"];

/// A server with a lease of `from`, which has eight subscriptions that match the same topic.
fn subscribed_to_all(from: SocketAddrV4) -> (Server<u64>, Broker) {
    let share = Settings {
        subscriptions_a_subscriber: 32,
        ..everybody()
    };
    let (mut server, mut broker) = (Server::new(share), Broker::default());
    subscribe_to_all(&mut server, &mut broker, 0, from);
    (server, broker)
}

fn subscribe_to_all(
    server: &mut Server<u64>,
    broker: &mut Broker,
    now_ns: u64,
    from: SocketAddrV4,
) {
    server.datagram(now_ns, from, &subscribe("a", 1), broker);
    let challenge = broker.sent.remove(0).1;
    server.datagram(now_ns, from, &challenge, broker);
    for filter in OVERLAPPING {
        server.datagram(now_ns, from, &subscribe(filter, 1), broker);
    }
}

/// Return all datagrams to the server that are not lost. Returns how many the server sent.
fn reflect(
    server: &mut Server<u64>,
    broker: &mut Broker,
    mut is_lost: impl FnMut(&[u8]) -> bool,
) -> usize {
    let mut count = 0;
    while !broker.sent.is_empty() {
        let (from, octets) = broker.sent.remove(0);
        count += 1;
        assert!(count < 10_000, "they go round");
        if !is_lost(&octets) {
            server.datagram(0, from, &octets, broker);
        }
    }
    count
}

#[test]
fn a_service_that_sends_back_what_it_gets_is_found_out_and_not_heard_any_more() {
    let from = "10.0.0.1:5000".parse().unwrap();
    let (mut server, mut broker) = subscribed_to_all(from);
    let publish = packet(0x30, b"\0\x03a/bx".into());
    for again in [false, true] {
        if again {
            subscribe_to_all(&mut server, &mut broker, 0, from);
        }
        server.datagram(0, from, &publish, &mut broker);
        assert!(reflect(&mut server, &mut broker, |_| false) < 700);
        assert_eq!((server.sizes(), broker.leases()), ((0, 0), 0));
    }
    let minute_ns = 60_000_000_000;
    for (now_ns, answers) in [(minute_ns - 1, 0), (minute_ns, 1)] {
        server.datagram(now_ns, from, &subscribe("a", 1), &mut broker);
        assert_eq!(broker.sent.len(), answers);
    }
}

/// It returns one test, which it takes for its challenge.
#[test]
fn a_program_that_is_started_anew_where_much_was_published_is_let_in_at_once() {
    let from = "10.0.0.1:5000".parse().unwrap();
    let (mut server, mut broker) = subscribed_to_all(from);
    broker.sent.clear();
    for _ in 0..8 {
        let publish = packet(0x30, b"\0\x03a/bx".into());
        server.datagram(0, from, &publish, &mut broker);
    }
    let is_test = |one: &&(SocketAddrV4, Vec<u8>)| one.1[4..].starts_with(b"$proof");
    let test = broker.sent.iter().find(is_test).unwrap().1.clone();
    broker.sent.clear();
    server.datagram(0, from, &test, &mut broker);
    assert_eq!(server.sizes(), (0, 0), "it is another program");
    subscribe_to_all(&mut server, &mut broker, 50_000_000, from);
    assert_eq!(server.sizes(), (1, 8));
}

#[test]
fn such_a_service_is_found_out_where_datagrams_are_lost() {
    let from = "10.0.0.1:5000".parse().unwrap();
    let (mut server, mut broker) = subscribed_to_all(from);
    let publish = packet(0x30, b"\0\x03a/bx".into());
    server.datagram(0, from, &publish, &mut broker);
    let mut tests = 0;
    reflect(&mut server, &mut broker, |octets| {
        let is_test = octets[4..].starts_with(b"$proof");
        tests += usize::from(is_test);
        is_test && tests < 4
    });
    assert_eq!(server.sizes(), (0, 0));
}

#[test]
fn who_publishes_much_and_hears_it_is_put_to_the_test_and_stays() {
    let from = "10.0.0.1:5000".parse().unwrap();
    let (mut server, mut broker) = subscribed_to_all(from);
    broker.sent.clear();
    let publish = packet(0x30, b"\0\x03a/bx".into());
    for _ in 0..100 {
        server.datagram(0, from, &publish, &mut broker);
    }
    let is_test = |one: &(SocketAddrV4, Vec<u8>)| one.1[4..].starts_with(b"$proof");
    let tests: Vec<_> = broker.sent.extract_if(.., |one| is_test(one)).collect();
    assert_eq!((tests.len(), broker.sent.len()), (12, 800));
    broker.sent.clear();
    // Another client cannot make it look like an echo service: the token is sent to its address
    // only.
    let other = "10.0.0.1:5001".parse().unwrap();
    server.datagram(0, other, &tests[0].1, &mut broker);
    server.datagram(0, from, &packet(0xc0, vec![]), &mut broker);
    assert_eq!(broker.sent, [(from, vec![0xd0, 0])]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_comes_tables_stay_bounded_and_what_is_kept_agrees(
        steps in prop::collection::vec(
            (0u8..4, 1u16..6, datagram(), any::<bool>(), 0u64..20_000_000_000), 1..200),
    ) {
        let settings = everybody();
        let mut server = Server::new(settings.clone());
        let mut broker = Broker::default();
        let mut now_ns = 0;
        for (host, port, datagram, proves, later_ns) in steps {
            now_ns += later_ns / 10;
            let from = SocketAddrV4::new([10, 0, 0, host].into(), port);
            server.datagram(now_ns, from, &datagram, &mut broker);
            let sent = std::mem::take(&mut broker.sent);
            for (_, octets) in &sent {
                prop_assert!((2..=1472).contains(&octets.len()));
            }
            let challenge = sent.iter().find(|one| one.1.starts_with(b"\x30\x10\0\x06$proof"));
            if let Some((to, token)) = challenge.filter(|_| proves) {
                server.datagram(now_ns, *to, token, &mut broker);
                server.datagram(now_ns, *to, &datagram, &mut broker);
            }
            broker.sent.clear();
            let (leases, subscriptions) = server.sizes();
            prop_assert!(leases <= settings.leases);
            prop_assert!(subscriptions <= settings.subscriptions);
            prop_assert_eq!(broker.leases(), leases);
            prop_assert_eq!(broker.subscriptions(), subscriptions);
            prop_assert!(broker.most_of_one() <= settings.subscriptions_a_subscriber);
            prop_assert!(broker.ends_ns().all(|end_ns| end_ns > now_ns));
        }
        server.clear(&mut broker);
        prop_assert_eq!(server.sizes(), (0, 0));
        prop_assert_eq!((broker.leases(), broker.subscriptions()), (0, 0));
    }

    #[test]
    fn no_octets_make_it_panic(octets in prop::collection::vec(any::<u8>(), 0..1600)) {
        let mut broker = Broker::default();
        let from = SocketAddrV4::new([10, 0, 0, 1].into(), 1);
        Server::new(everybody()).datagram(0, from, &octets, &mut broker);
    }
}
