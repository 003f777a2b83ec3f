//! When the controller sets rules over mqtt-udp, and why it does not.

#![allow(clippy::expect_used)]

mod plane;

use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_accelerate::controller::{Controller, Event, Reason, Settings, Way};
use mqtick_accelerate::packet::Packet;
use mqtick_accelerate::rules::Protocol;
use mqtick_accelerate::table::Verdict;
use plane::Switch;

const SECOND_NS: u64 = 1_000_000_000;
const WRONG_LEVEL: [u8; 4] = [0x20, 2, 0, 1];
const CHALLENGE: &[u8] = b"\x30\x10\0\x06$proof12345678";

/// Client 1 publishes, and never has a lease; the others have leases of 60 s.
struct Scene {
    controller: Controller,
    rules: Switch,
    now_ns: u64,
    leased: Vec<SocketAddr>,
}

fn broker() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1883))
}

fn client(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, number], 2000))
}

fn fresh() -> Settings {
    let mut settings = Settings::new(broker());
    settings.protocol = Protocol::MqttUdp;
    settings.only = vec![Rc::from("#")];
    settings.fresh = true;
    settings
}

fn publish(topic: &str) -> Vec<u8> {
    let length = topic.len() as u8;
    [&[0x30, length + 3, 0, length], topic.as_bytes(), b"x"].concat()
}

fn subscribe(id: u8, filter: &str) -> Vec<u8> {
    let length = filter.len() as u8;
    let head = [0x82, length + 5, 0, id, 0, length];
    [&head, filter.as_bytes(), &[0]].concat()
}

fn connect(keep_alive_s: u8) -> Vec<u8> {
    [&b"\x10\x0c\0\x04MQTT\x04\x02\0"[..], &[keep_alive_s, 0, 0]].concat()
}

impl Scene {
    fn new(settings: Settings) -> Self {
        Self {
            controller: Controller::new(settings, SECOND_NS),
            rules: Switch::new(64),
            now_ns: SECOND_NS,
            leased: Vec::new(),
        }
    }

    fn event(&mut self, way: Way, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        let packet = Packet::read(Protocol::MqttUdp, way, datagram);
        let table = &mut self.rules.table;
        let verdict = match way {
            Way::ToBroker => table.from_client(self.now_ns, from, &packet),
            Way::FromBroker => table.from_broker(self.now_ns, to, &packet),
        };
        let (mark, kept_back) = match verdict {
            Verdict::Pass(Some(mark)) => (mark, false),
            Verdict::KeptBack(mark) => (mark, true),
            _ => return,
        };
        let event = Event {
            protocol: Protocol::MqttUdp,
            way,
            from,
            to,
            datagram: Some(datagram),
            mark,
            kept_back,
        };
        self.controller.event(self.now_ns, &event, &mut self.rules);
        self.controller.settle(self.now_ns, &mut self.rules);
    }

    /// A packet that cannot be read.
    fn says_unread(&mut self, who: u8) {
        self.says_unread_from(client(who), broker());
    }

    fn says_unread_from(&mut self, from: SocketAddr, to: SocketAddr) {
        let table = &mut self.rules.table;
        let verdict = table.from_client(self.now_ns, from, &Packet::Unread);
        let Verdict::Pass(Some(mark)) = verdict else {
            unreachable!("it is reported")
        };
        let event = Event {
            protocol: Protocol::MqttUdp,
            way: Way::ToBroker,
            from,
            to,
            datagram: None,
            mark,
            kept_back: false,
        };
        self.controller.event(self.now_ns, &event, &mut self.rules);
        self.controller.settle(self.now_ns, &mut self.rules);
    }

    fn says(&mut self, who: u8, datagram: &[u8]) {
        self.event(Way::ToBroker, client(who), broker(), datagram);
    }

    fn hears(&mut self, who: u8, datagram: &[u8]) {
        self.event(Way::FromBroker, broker(), client(who), datagram);
    }

    /// The broker answers the controller's questions.
    fn answers(&mut self) {
        for who in std::mem::take(&mut self.rules.asked) {
            let has_lease = self.leased.contains(&who);
            let answer = if has_lease {
                &WRONG_LEVEL[..]
            } else {
                CHALLENGE
            };
            self.event(Way::FromBroker, broker(), who, answer);
        }
    }

    fn ticks(&mut self, after_ns: u64) {
        self.now_ns += after_ns;
        self.controller.tick(self.now_ns, &mut self.rules);
    }

    /// Time passes. Questions are answered, and the clients `pings` renew their leases.
    fn passes(&mut self, seconds: u64, pings: &[u8]) {
        for second in 0..seconds {
            for who in pings.iter().filter(|_| second % 10 == 0) {
                self.says(*who, b"\xc0\0");
                self.hears(*who, b"\xd0\0");
            }
            for _ in 0..10 {
                self.ticks(SECOND_NS / 10);
                self.answers();
            }
        }
    }

    fn connects(&mut self, who: u8, keep_alive_s: u8) {
        self.says(who, &connect(keep_alive_s));
        self.hears(who, CHALLENGE);
        self.says(who, CHALLENGE);
        self.says(who, &connect(keep_alive_s));
        self.hears(who, &[0x20, 2, 0, 0]);
        self.leased.push(client(who));
    }

    fn subscribes(&mut self, who: u8, filter: &str, code: u8) {
        self.says(who, &subscribe(7, filter));
        self.hears(who, &[0x90, 3, 0, 7, code]);
    }

    fn ordinary(settings: Settings) -> Self {
        let mut scene = Self::new(settings);
        scene.connects(2, 40);
        scene.subscribes(2, "a/b", 0);
        scene.says(1, &publish("a/b"));
        scene.passes(1, &[]);
        scene
    }

    fn rule(&self) -> Result<usize, Reason> {
        let status = self.controller.status(&self.rules);
        let found = status.iter().find(|one| one.key.publisher == client(1));
        let found = found.expect("it is followed");
        found.rule.clone().map(|(copies, _)| copies)
    }
}

#[test]
fn a_subscriber_whose_lease_the_broker_has_confirmed_gets_copies() {
    assert_eq!(Scene::ordinary(fresh()).rule(), Ok(1));
}

#[test]
fn nobody_gets_copies_before_the_broker_has_confirmed_his_lease() {
    let mut scene = Scene::new(fresh());
    scene.connects(2, 40);
    scene.subscribes(2, "a/b", 0);
    scene.says(1, &publish("a/b"));
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
}

#[test]
fn copies_end_before_the_lease_whatever_the_controller_does() {
    let mut scene = Scene::ordinary(fresh());
    let end_ns = SECOND_NS + 60 * SECOND_NS;
    assert!(scene.rules.until_ns < end_ns && scene.rules.until_ns > end_ns - SECOND_NS);
    scene.passes(20, &[2]);
    assert!(scene.rules.until_ns > end_ns);
}

#[test]
fn a_lease_that_nobody_renews_ends_and_is_asked_for() {
    let mut scene = Scene::ordinary(fresh());
    scene.passes(50, &[]);
    assert_eq!(scene.rule(), Ok(1));
    scene.says(1, &publish("a/b"));
    for _ in 0..98 {
        scene.ticks(SECOND_NS / 10);
        scene.answers();
    }
    assert_eq!(scene.rule(), Err(Reason::Overdue(client(2))));
    scene.leased.clear();
    scene.passes(2, &[]);
    assert_eq!(scene.rule(), Err(Reason::NoSubscribers));
}

#[test]
fn a_ping_that_is_not_answered_puts_a_lease_in_doubt() {
    let mut scene = Scene::ordinary(fresh());
    scene.says(2, b"\xc0\0");
    scene.ticks(3 * SECOND_NS);
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
    scene.answers();
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn a_broker_that_was_started_again_has_its_leases_doubted_within_a_second() {
    let mut scene = Scene::ordinary(fresh());
    scene.connects(3, 40);
    scene.subscribes(3, "x", 0);
    scene.passes(3, &[]);
    scene.leased.clear();
    let restarts = scene.controller.counters().restarts;
    scene.passes(1, &[]);
    assert_eq!(scene.controller.counters().restarts, restarts + 1);
    assert!(scene.rule().is_err());
    scene.passes(5, &[]);
    assert_eq!(scene.rule(), Err(Reason::NoSubscribers));
}

#[test]
fn one_challenge_puts_all_leases_in_doubt() {
    let mut scene = Scene::ordinary(fresh());
    scene.connects(3, 40);
    scene.passes(1, &[]);
    scene.hears(3, CHALLENGE);
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
}

#[test]
fn a_test_of_a_broker_ends_no_lease() {
    let mut scene = Scene::ordinary(fresh());
    scene.hears(2, CHALLENGE);
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn who_has_said_good_bye_gets_nothing_and_is_waited_for_only_until_the_broker_has_heard_it() {
    let mut scene = Scene::ordinary(fresh());
    scene.says(2, b"\xe0\0");
    assert_eq!(scene.rule(), Err(Reason::NotActive(client(2))));
    scene.passes(5, &[]);
    assert_eq!(scene.rule(), Err(Reason::NotActive(client(2))));
    scene.leased.clear();
    scene.passes(2, &[]);
    assert_eq!(scene.rule(), Err(Reason::NoSubscribers));
}

#[test]
fn whoever_is_answered_without_a_lease_that_was_seen_is_a_stranger() {
    for answer in [
        &[0xd0, 0][..],
        &[0x20, 2, 0, 0],
        &[0x90, 3, 0, 7, 0],
        &[0xb0, 2, 0, 7],
        &WRONG_LEVEL,
    ] {
        let mut scene = Scene::ordinary(fresh());
        scene.hears(9, answer);
        assert_eq!(scene.rule(), Err(Reason::Stranger(client(9))));
        // A challenge alone may be a test; a client that answers it had no lease.
        scene.hears(9, CHALLENGE);
        assert_eq!(scene.rule(), Err(Reason::Stranger(client(9))));
        scene.says(9, CHALLENGE);
        assert_eq!(scene.rule(), Ok(1));
    }
}

#[test]
fn a_proof_without_a_challenge_does_not_say_what_was_before() {
    let mut scene = Scene::ordinary(fresh());
    scene.says(9, CHALLENGE);
    scene.subscribes(9, "x", 0);
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(9))));
}

#[test]
fn a_filter_that_is_refused_makes_no_receiver_and_ends_what_was_there() {
    let mut scene = Scene::ordinary(fresh());
    scene.connects(3, 40);
    scene.subscribes(3, "a/b", 0x80);
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Ok(1));
    scene.subscribes(2, "a/b", 0x80);
    assert_eq!(scene.rule(), Err(Reason::NoSubscribers));
}

#[test]
fn an_answer_for_another_number_of_filters_is_not_followed() {
    let mut scene = Scene::ordinary(fresh());
    scene.says(2, &subscribe(8, "x"));
    scene.hears(2, &[0x90, 4, 0, 8, 0, 0]);
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(2))));
}

#[test]
fn a_publisher_that_would_hear_itself_is_left_to_the_broker() {
    let mut scene = Scene::ordinary(fresh());
    scene.connects(1, 40);
    scene.subscribes(1, "a/+", 0);
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Err(Reason::Echo));
}

#[test]
fn a_client_gets_a_copy_for_each_subscription_first_by_the_name_itself() {
    let mut scene = Scene::ordinary(fresh());
    scene.connects(3, 40);
    scene.subscribes(3, "#", 0);
    scene.subscribes(3, "a/+", 0);
    scene.subscribes(3, "a/b", 0);
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Ok(4));
    scene.says(1, &publish("a/b"));
    scene.passes(1, &[]);
    let packet = Packet::read(Protocol::MqttUdp, Way::ToBroker, &publish("a/b"));
    let verdict = scene
        .rules
        .table
        .from_client(scene.now_ns, client(1), &packet);
    let Verdict::Copies(copies) = verdict else {
        unreachable!("it is copied: {verdict:?}")
    };
    let to: Vec<_> = copies.iter().map(|copy| copy.to).collect();
    assert_eq!(to, [2, 3, 3, 3].map(client));
}

#[test]
fn what_a_broker_refuses_is_not_copied() {
    for topic in ["$x", "a/+", "a/\0", "a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q"] {
        let mut scene = Scene::ordinary(fresh());
        scene.connects(3, 40);
        scene.subscribes(3, "#", 0);
        scene.says(4, &publish(topic));
        scene.passes(1, &[]);
        let status = scene.controller.status(&scene.rules);
        let found = status.iter().find(|one| one.key.publisher == client(4));
        assert!(found.is_none_or(|one| one.rule.is_err()), "{topic}");
    }
}

#[test]
fn without_a_keep_alive_the_length_of_a_lease_is_what_the_operator_says() {
    for (lease_ns, rule) in [
        (None, Err(Reason::NoLength(client(2)))),
        (Some(60 * SECOND_NS), Ok(1)),
    ] {
        let mut settings = fresh();
        settings.lease_ns = lease_ns;
        let mut scene = Scene::new(settings);
        scene.connects(2, 0);
        scene.subscribes(2, "a/b", 0);
        scene.says(1, &publish("a/b"));
        scene.passes(1, &[]);
        assert_eq!(scene.rule(), rule);
    }
}

#[test]
fn a_flood_of_addresses_is_bounded_and_forgotten() {
    let mut settings = fresh();
    settings.clients = 10;
    let mut scene = Scene::ordinary(settings);
    for who in 20..200 {
        scene.says(who, &publish("a/b"));
        scene.hears(who, CHALLENGE);
        scene.says(who, CHALLENGE);
        scene.says(who, &subscribe(1, "#"));
    }
    scene.passes(70, &[2]);
    assert_eq!(scene.controller.sizes(), (1, 0));
    scene.says(1, &publish("a/b"));
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn after_a_loss_whoever_has_a_lease_is_a_stranger() {
    let mut settings = fresh();
    settings.settle_ns = SECOND_NS;
    let mut scene = Scene::ordinary(settings);
    let mark = scene.rules.table.mark();
    scene.controller.lost(scene.now_ns, mark, &mut scene.rules);
    scene.says(1, &publish("a/b"));
    scene.hears(2, b"\xd0\0");
    assert_eq!(scene.controller.sizes(), (0, 1));
}

#[test]
fn a_broker_that_answers_nothing_any_more_has_its_leases_doubted() {
    let mut scene = Scene::ordinary(fresh());
    for _ in 0..45 {
        scene.ticks(SECOND_NS / 10);
    }
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
}

#[test]
fn a_publisher_that_the_broker_does_not_answer_concerns_nobody_else() {
    let mut scene = Scene::ordinary(fresh());
    scene.connects(3, 40);
    scene.subscribes(3, "x", 0);
    scene.passes(1, &[]);
    scene.says(9, &publish("x"));
    for _ in 0..45 {
        scene.ticks(SECOND_NS / 10);
        scene.rules.asked.retain(|who| *who != client(9));
        scene.answers();
    }
    assert_eq!(scene.controller.counters().unanswered, 1);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn what_a_broker_refuses_is_in_doubt_until_the_next_answer() {
    let mut scene = Scene::ordinary(fresh());
    scene.connects(3, 40);
    scene.passes(1, &[]);
    scene.says(3, b"\x82\x06\0\0\0\x01x\0");
    assert_eq!(scene.rule(), Err(Reason::AnswerAwaited(client(3))));
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Ok(1));
}

/// The broker may have reassembled a SUBSCRIBE from fragments, whatever it answers later.
#[test]
fn what_cannot_be_read_may_have_subscribed_a_client_for_as_long_as_it_has_its_lease() {
    for has_ports in [true, false] {
        let mut scene = Scene::ordinary(fresh());
        scene.connects(3, 40);
        scene.passes(1, &[]);
        match has_ports {
            true => scene.says_unread(3),
            false => scene.says_unread_from(
                SocketAddr::new(client(3).ip(), 0),
                SocketAddr::new(broker().ip(), 0),
            ),
        }
        scene.passes(5, &[]);
        assert_eq!(scene.rule(), Err(Reason::Stranger(client(3))));
        scene.hears(3, CHALLENGE);
        scene.says(3, CHALLENGE);
        assert_eq!(scene.rule(), Ok(1));
    }
}

#[test]
fn a_stranger_who_still_says_something_may_still_have_his_lease() {
    let mut settings = fresh();
    settings.settle_ns = 50 * SECOND_NS;
    let mut scene = Scene::ordinary(settings);
    scene.connects(3, 40);
    scene.says_unread(3);
    scene.passes(40, &[2]);
    scene.says(3, b"\xc0\0"); // its answer is lost before the data plane
    scene.passes(40, &[2]);
    scene.says(1, &publish("a/b"));
    scene.passes(1, &[2]);
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(3))));
    scene.passes(10, &[2]);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn a_connect_that_is_lost_makes_a_lease_no_longer_than_it_may_be_and_costs_seconds() {
    for keep_alive_s in [20, 40, 60] {
        let mut scene = Scene::ordinary(fresh());
        scene.says(2, &connect(keep_alive_s));
        assert_eq!(scene.rule(), Err(Reason::NotActive(client(2))));
        scene.passes(4, &[]);
        assert_eq!(scene.rule(), Ok(1));
        let lasts_s = u64::from(keep_alive_s.min(40)) / 2 * 3;
        assert!(scene.rules.until_ns <= (1 + lasts_s) * SECOND_NS);
        scene.says(2, b"\xc0\0");
        scene.hears(2, b"\xd0\0");
        let renewed_ns = scene.now_ns;
        // The shorter one of the possible leases would end meanwhile.
        for _ in 0..45 {
            scene.says(1, &publish("a/b"));
            scene.passes(1, &[]);
        }
        assert_eq!(scene.rule(), Ok(1), "{keep_alive_s}");
        assert!(scene.rules.until_ns > renewed_ns + 59 * SECOND_NS);
    }
}

#[test]
fn a_connect_that_was_lost_and_is_said_again_says_how_long_the_lease_is() {
    let mut scene = Scene::ordinary(fresh());
    for answered in [false, true] {
        scene.says(2, &connect(60));
        if answered {
            scene.hears(2, &[0x20, 2, 0, 0]);
        }
        scene.passes(4, &[]);
    }
    assert_eq!(scene.rule(), Ok(1));
    assert!(scene.rules.until_ns > scene.now_ns + 80 * SECOND_NS);
}

#[test]
fn a_proof_after_what_may_have_been_a_good_bye_is_not_followed() {
    for is_read in [true, false] {
        let mut scene = Scene::ordinary(fresh());
        match is_read {
            true => scene.says(2, b"\xe0\0"),
            false => scene.says_unread(2),
        }
        scene.says(2, CHALLENGE);
        assert_eq!(scene.rule(), Err(Reason::Stranger(client(2))));
    }
}

#[test]
fn retained_messages_may_follow_a_new_subscription_until_the_next_answer() {
    let mut scene = Scene::ordinary(fresh());
    scene.connects(3, 40);
    scene.passes(1, &[]);
    scene.subscribes(3, "a/b", 0);
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(3))));
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Ok(2));
}

#[test]
fn what_cannot_be_read_of_who_has_no_lease_costs_no_more_than_a_question() {
    let mut scene = Scene::ordinary(fresh());
    scene.hears(9, CHALLENGE);
    scene.says_unread(9);
    scene.says_unread(9);
    assert_eq!(scene.rule(), Err(Reason::AnswerAwaited(client(9))));
    scene.passes(1, &[]);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn who_asks_twice_before_the_first_challenge_comes_is_known_after_his_proof() {
    for was_stranger in [false, true] {
        let mut scene = Scene::ordinary(fresh());
        if was_stranger {
            scene.hears(3, b"\xd0\0");
        }
        scene.says(3, &connect(40));
        scene.says(3, &connect(40));
        scene.hears(3, CHALLENGE);
        scene.says(3, CHALLENGE);
        // The challenge to the second CONNECT, which came before the proof.
        scene.hears(3, CHALLENGE);
        scene.says(3, &connect(40));
        scene.hears(3, &[0x20, 2, 0, 0]);
        scene.leased.push(client(3));
        scene.subscribes(3, "a/b", 0);
        scene.passes(1, &[]);
        assert_eq!(scene.rule(), Ok(2));
    }
}

/// The challenge to the request would be taken for the answer to a question, and open a rule too
/// soon.
#[test]
fn nobody_is_asked_while_his_first_request_may_still_be_answered() {
    let mut scene = Scene::ordinary(fresh());
    scene.says(3, &subscribe(1, "x"));
    scene.says(3, &publish("a/b"));
    scene.ticks(SECOND_NS / 10);
    assert!(!scene.rules.asked.contains(&client(3)));
    scene.hears(3, CHALLENGE);
    scene.ticks(SECOND_NS / 10);
    assert!(scene.rules.asked.contains(&client(3)));
}

#[test]
fn who_finds_no_room_at_the_broker_waits_for_no_answer() {
    let mut scene = Scene::ordinary(fresh());
    scene.says(3, &subscribe(1, "a/b"));
    scene.hears(3, CHALLENGE);
    scene.says(3, CHALLENGE);
    scene.says(3, &subscribe(1, "a/b"));
    scene.hears(3, &[0x20, 2, 0, 3]);
    scene.hears(3, CHALLENGE);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn pings_that_were_lost_do_not_make_a_lease_that_is_kept_shorter_for_ever() {
    let mut scene = Scene::ordinary(fresh());
    for second in 0..200 {
        if second % 10 == 0 {
            // The first ones are lost behind the data plane, and repeated.
            if second < 60 {
                scene.says(2, b"\xc0\0");
            }
            scene.says(2, b"\xc0\0");
            scene.hears(2, b"\xd0\0");
            scene.says(1, &publish("a/b"));
        }
        scene.passes(1, &[]);
    }
    assert_eq!(scene.rule(), Ok(1));
    assert!(scene.rules.until_ns > scene.now_ns + 40 * SECOND_NS);
}

#[test]
fn a_proof_that_is_no_good_keeps_a_publishers_rules_closed_only_until_the_next_answer() {
    let mut scene = Scene::ordinary(fresh());
    scene.says(1, CHALLENGE);
    for _ in 0..2 {
        scene.says(1, &publish("a/b"));
        scene.passes(1, &[]);
    }
    let status = scene.controller.status(&scene.rules);
    assert!(status.iter().any(|one| one.rule == Ok((1, true))));
}
