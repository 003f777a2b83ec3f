//! When the controller makes rules, and why not.

#![allow(clippy::expect_used)]

use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_accelerate::controller::{Controller, Event, Reason, Settings, Way};
use mqtick_accelerate::plane::{Copy, Counts, Key, Plane, Refusal};
use mqtick_accelerate::table::{Table, Verdict};
use mqtick_sn::{Code, Filter, Message, Qos, Topic, encode};

const SECOND_NS: u64 = 1_000_000_000;

struct Rules(Table, Vec<SocketAddr>);

impl Plane for Rules {
    fn set(&mut self, key: Key, copies: &[Copy], _residence: bool) -> Result<(), Refusal> {
        self.0.set(key, copies)
    }
    fn open(&mut self, key: &Key, slow: u64) {
        self.0.open(key, slow);
    }
    fn delete(&mut self, key: &Key) {
        self.0.delete(key);
    }
    fn counts(&self, key: &Key) -> Counts {
        self.0.counts(key)
    }
    fn heard_ns(&self, client: &SocketAddr) -> Option<u64> {
        self.0.heard_ns(client)
    }
    fn keep_back(&mut self, client: &SocketAddr, until_ns: u64) {
        self.0.keep_back(client, until_ns);
    }
    fn is_quiet(&self) -> bool {
        self.0.is_quiet()
    }
    fn to_broker(&mut self, client: &SocketAddr, _datagram: &[u8]) {
        self.1.push(*client);
    }
    fn done(&mut self, mark: u64) {
        self.0.done(mark);
    }
}

struct Scene {
    controller: Controller,
    rules: Rules,
    now_ns: u64,
}

fn broker() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1883))
}

fn client(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, number], 2000))
}

fn fresh() -> Settings {
    let mut settings = Settings::new(broker());
    settings.only = vec![Rc::from("#")];
    settings.fresh = true;
    settings
}

impl Scene {
    fn new(settings: Settings, rules: usize) -> Self {
        Self {
            controller: Controller::new(settings, SECOND_NS),
            rules: Rules(Table::new(rules), Vec::new()),
            now_ns: SECOND_NS,
        }
    }

    fn event(&mut self, way: Way, from: SocketAddr, to: SocketAddr, message: &Message<'_>) {
        let mut datagram = Vec::new();
        assert!(encode(message, &mut datagram));
        let verdict = match way {
            Way::ToBroker => self.rules.0.from_client(self.now_ns, from, Some(message)),
            Way::FromBroker => self.rules.0.from_broker(self.now_ns, to, Some(message)),
        };
        let (mark, kept_back) = match verdict {
            Verdict::Pass(Some(mark)) => (mark, false),
            Verdict::KeptBack(mark) => (mark, true),
            _ => return,
        };
        let event = Event {
            way,
            from,
            to,
            datagram: Some(&datagram),
            mark,
            kept_back,
        };
        self.controller.event(self.now_ns, &event, &mut self.rules);
    }

    fn says(&mut self, who: u8, message: &Message<'_>) {
        self.event(Way::ToBroker, client(who), broker(), message);
    }

    fn hears(&mut self, who: u8, message: &Message<'_>) {
        self.event(Way::FromBroker, broker(), client(who), message);
    }

    fn connects(&mut self, who: u8, clean: bool) {
        let id = format!("c{who}");
        self.says(
            who,
            &Message::Connect {
                will: false,
                clean,
                protocol: 1,
                duration_s: 60,
                client: &id,
            },
        );
        self.hears(who, &Message::Connack(Code::ACCEPTED));
    }

    fn subscribes(&mut self, who: u8, filter: Filter<'_>, topic_id: u16, code: Code) {
        let (qos, message_id) = (Qos::AtMostOnce, 7);
        self.says(
            who,
            &Message::Subscribe {
                dup: false,
                qos,
                message_id,
                filter,
            },
        );
        self.hears(
            who,
            &Message::Suback {
                qos,
                topic_id,
                message_id,
                code,
            },
        );
    }

    fn registers(&mut self, who: u8, name: &str, topic_id: u16) {
        let message_id = 9;
        self.says(
            who,
            &Message::Register {
                topic_id: 0,
                message_id,
                name,
            },
        );
        self.hears(
            who,
            &Message::Regack {
                topic_id,
                message_id,
                code: Code::ACCEPTED,
            },
        );
    }

    /// One publisher, one subscriber.
    fn ordinary(settings: Settings, rules: usize) -> Self {
        let mut scene = Self::new(settings, rules);
        scene.connects(1, true);
        scene.connects(2, true);
        scene.subscribes(2, Filter::Name("a/b"), 30, Code::ACCEPTED);
        scene.registers(1, "a/b", 20);
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
fn a_subscriber_whom_the_broker_has_confirmed_gets_copies() {
    let scene = Scene::ordinary(fresh(), 64);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn without_a_declaration_nothing_is_copied() {
    let mut settings = fresh();
    settings.only = vec![Rc::from("other/#")];
    assert_eq!(
        Scene::ordinary(settings, 64).rule(),
        Err(Reason::NotDeclared)
    );
}

#[test]
fn a_refused_subscription_makes_no_receiver() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.connects(3, true);
    scene.subscribes(3, Filter::Name("a/b"), 0, Code::NOT_SUPPORTED);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn an_answer_that_comes_from_where_clients_are_is_refused_and_counted() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.connects(3, true);
    let (qos, message_id) = (Qos::AtMostOnce, 7);
    let filter = Filter::Name("a/b");
    let subscribe = Message::Subscribe {
        dup: false,
        qos,
        message_id,
        filter,
    };
    scene.says(3, &subscribe);
    let code = Code::ACCEPTED;
    let suback = Message::Suback {
        qos,
        topic_id: 40,
        message_id,
        code,
    };
    scene.event(Way::ToBroker, broker(), client(3), &suback);
    assert_eq!(scene.controller.counters().forged, 1);
    assert_eq!(scene.rule(), Err(Reason::AnswerAwaited(client(3))));
}

#[test]
fn a_started_controller_waits_for_clients_that_were_there_before() {
    let mut settings = fresh();
    settings.fresh = false;
    settings.settle_ns = 90 * SECOND_NS;
    let mut scene = Scene::ordinary(settings, 64);
    assert!(matches!(scene.rule(), Err(Reason::Settling { .. })));
    // Somebody whose CONNECT was not seen, and whom the broker knows.
    scene.hears(9, &Message::Pingresp);
    scene.now_ns += 89 * SECOND_NS;
    for who in [1, 2, 9] {
        scene.says(who, &Message::Pingreq { client: "" });
        scene.hears(who, &Message::Pingresp);
    }
    scene.now_ns += 2 * SECOND_NS;
    let now_ns = scene.now_ns;
    scene.controller.tick(now_ns, &mut scene.rules);
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(9))));
    scene.connects(9, true);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn a_request_alone_makes_nobody_a_stranger() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.says(9, &Message::Pingreq { client: "" });
    scene.hears(9, &Message::Disconnect { duration_s: None });
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn a_session_of_before_the_start_is_a_strangers() {
    let mut settings = fresh();
    (settings.fresh, settings.settle_ns) = (false, 0);
    let mut scene = Scene::ordinary(settings, 64);
    scene.controller.tick(2 * SECOND_NS, &mut scene.rules);
    assert_eq!(scene.rule(), Ok(1));
    scene.connects(3, false);
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(3))));
}

#[test]
fn lost_events_end_everything_and_begin_anew() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.controller.lost(2 * SECOND_NS, 9, &mut scene.rules);
    assert!(scene.rules.0.is_empty());
    assert_eq!(scene.controller.sizes(), (0, 2));
}

#[test]
fn a_broker_that_knows_nobody_puts_all_in_doubt() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.connects(3, true);
    scene.hears(3, &Message::Disconnect { duration_s: None });
    assert_eq!(scene.rule(), Err(Reason::PublisherInDoubt));
    for who in [1, 2] {
        scene.says(who, &Message::Pingreq { client: "" });
        scene.hears(who, &Message::Pingresp);
    }
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn overlapping_subscriptions_of_one_client_go_through_the_broker() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.subscribes(2, Filter::Name("a/#"), 0, Code::ACCEPTED);
    assert_eq!(scene.rule(), Err(Reason::Overlap(client(2))));
}

#[test]
fn a_predefined_id_without_a_name_may_be_any_topic() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.subscribes(2, Filter::Predefined(5), 5, Code::ACCEPTED);
    assert_eq!(scene.rule(), Err(Reason::PredefinedUnknown(client(2), 5)));
}

#[test]
fn a_full_table_says_so_and_takes_the_next_when_there_is_room() {
    let mut scene = Scene::ordinary(fresh(), 1);
    scene.connects(3, true);
    scene.registers(3, "a/b", 50);
    let full = |scene: &Scene| {
        let status = scene.controller.status(&scene.rules);
        status
            .iter()
            .filter(|one| one.rule == Err(Reason::Full))
            .count()
    };
    assert_eq!(full(&scene), 1);
    scene.says(1, &Message::Disconnect { duration_s: None });
    scene.hears(1, &Message::Disconnect { duration_s: None });
    scene.controller.tick(2 * SECOND_NS, &mut scene.rules);
    assert_eq!(full(&scene), 0);
}

#[test]
fn a_flood_of_requests_is_bounded_and_costs_only_speed() {
    let mut scene = Scene::ordinary(fresh(), 64);
    for message_id in 1..=200 {
        let name = format!("x/{message_id}");
        let filter = Filter::Name(&name);
        let qos = Qos::AtMostOnce;
        scene.says(
            2,
            &Message::Subscribe {
                dup: false,
                qos,
                message_id,
                filter,
            },
        );
    }
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(2))));
    assert_eq!(scene.controller.sizes(), (1, 1));
}

#[test]
fn nobody_is_kept_alive_who_does_not_publish() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let publish = Message::Publish {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic: Topic::Registered(20),
        message_id: 0,
        data: b"x",
    };
    for _ in 0..10 {
        scene.now_ns += SECOND_NS;
        scene.says(1, &publish);
        let now_ns = scene.now_ns;
        scene.controller.tick(now_ns, &mut scene.rules);
        scene.hears(1, &Message::Pingresp);
    }
    let pings = scene.rules.1.len();
    assert!((2..=4).contains(&pings), "{pings}");
    for _ in 0..600 {
        scene.now_ns += SECOND_NS / 10;
        let now_ns = scene.now_ns;
        scene.controller.tick(now_ns, &mut scene.rules);
        scene.hears(1, &Message::Pingresp);
    }
    assert!(scene.rules.1.len() <= pings + 1);
}
