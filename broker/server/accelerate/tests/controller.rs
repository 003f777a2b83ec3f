//! When the controller sets rules, and why it does not.

#![allow(clippy::expect_used)]

mod plane;

use std::net::SocketAddr;
use std::rc::Rc;

use mqtick_accelerate::controller::Controller;
use mqtick_accelerate::driver::{Event, Watcher};
use mqtick_accelerate::packet::{Packet, Way};
use mqtick_accelerate::plane::Key;
use mqtick_accelerate::reason::Reason;
use mqtick_accelerate::rules::Protocol;
use mqtick_accelerate::settings::Settings;
use mqtick_accelerate::table::Verdict;
use mqtick_sn::{Code, Filter, Message, Qos, Topic, encode};
use plane::Switch;

const SECOND_NS: u64 = 1_000_000_000;

struct Scene {
    controller: Controller,
    rules: Switch,
    now_ns: u64,
}

fn broker() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1883))
}

fn client(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, number], 2000))
}

fn publish(qos: Qos, topic: Topic) -> Message<'static> {
    Message::Publish {
        dup: false,
        qos,
        retain: false,
        topic,
        message_id: u16::from(qos != Qos::AtMostOnce),
        data: b"x",
    }
}

fn connect(clean: bool, client: &str) -> Message<'_> {
    Message::Connect {
        will: false,
        clean,
        protocol: 1,
        duration_s: 60,
        client,
    }
}

fn subscribe(qos: Qos, message_id: u16, filter: Filter<'_>) -> Message<'_> {
    Message::Subscribe {
        dup: false,
        qos,
        message_id,
        filter,
    }
}

fn suback(qos: Qos, topic_id: u16, message_id: u16, code: Code) -> Message<'static> {
    Message::Suback {
        qos,
        topic_id,
        message_id,
        code,
    }
}

fn register(topic_id: u16, message_id: u16, name: &str) -> Message<'_> {
    Message::Register {
        topic_id,
        message_id,
        name,
    }
}

fn regack(topic_id: u16, message_id: u16, code: Code) -> Message<'static> {
    Message::Regack {
        topic_id,
        message_id,
        code,
    }
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
            rules: Switch::new(rules),
            now_ns: SECOND_NS,
        }
    }

    /// An event, without the update of rules that follows.
    fn takes(&mut self, way: Way, from: SocketAddr, to: SocketAddr, message: &Message<'_>) {
        let mut datagram = Vec::new();
        assert!(encode(message, &mut datagram));
        let packet = Packet::read(Protocol::MqttSn, way, &datagram);
        let verdict = match way {
            Way::ToBroker => self.rules.table.from_client(self.now_ns, from, &packet),
            Way::FromBroker => self.rules.table.from_broker(self.now_ns, to, &packet),
        };
        let (mark, kept_back) = match verdict {
            Verdict::Pass(Some(mark)) => (mark, false),
            Verdict::KeptBack(mark) => (mark, true),
            _ => return,
        };
        self.reads(way, from, to, Some(&datagram), mark, kept_back);
    }

    /// The controller reads of a packet.
    fn reads(
        &mut self,
        way: Way,
        from: SocketAddr,
        to: SocketAddr,
        datagram: Option<&[u8]>,
        mark: u64,
        kept_back: bool,
    ) {
        let event = Event {
            protocol: Protocol::MqttSn,
            way,
            from,
            to,
            datagram,
            mark,
            kept_back,
        };
        self.controller.event(self.now_ns, &event, &mut self.rules);
    }

    /// A packet of a client that the data plane cannot read. `datagram`: what of it can be read.
    fn unread(&mut self, from: SocketAddr, to: SocketAddr, datagram: Option<&[u8]>) {
        let table = &mut self.rules.table;
        let verdict = table.from_client(self.now_ns, from, &Packet::Unread);
        let Verdict::Pass(Some(mark)) = verdict else {
            unreachable!("it is reported")
        };
        self.reads(Way::ToBroker, from, to, datagram, mark, false);
        self.controller.settle(self.now_ns, &mut self.rules);
    }

    fn event(&mut self, way: Way, from: SocketAddr, to: SocketAddr, message: &Message<'_>) {
        self.takes(way, from, to, message);
        self.controller.settle(self.now_ns, &mut self.rules);
    }

    fn says(&mut self, who: u8, message: &Message<'_>) {
        self.event(Way::ToBroker, client(who), broker(), message);
    }

    fn hears(&mut self, who: u8, message: &Message<'_>) {
        self.event(Way::FromBroker, broker(), client(who), message);
    }

    fn connects(&mut self, who: u8, clean: bool) {
        self.says(who, &connect(clean, &format!("c{who}")));
        self.hears(who, &Message::Connack(Code::ACCEPTED));
    }

    fn subscribes(&mut self, who: u8, filter: Filter<'_>, topic_id: u16, code: Code) {
        let (qos, message_id) = (Qos::AtMostOnce, 7);
        self.says(who, &subscribe(qos, message_id, filter));
        self.hears(who, &suback(qos, topic_id, message_id, code));
    }

    fn registers(&mut self, who: u8, name: &str, topic_id: u16) {
        let message_id = 9;
        self.says(who, &register(0, message_id, name));
        self.hears(who, &regack(topic_id, message_id, Code::ACCEPTED));
    }

    /// A PINGREQ and its answer: the broker knows the client, and nothing waits for it.
    fn pings(&mut self, who: u8) {
        self.says(who, &Message::Pingreq { client: "" });
        self.hears(who, &Message::Pingresp);
    }

    /// The broker sends a message to the client.
    fn gets(&mut self, who: u8) {
        self.now_ns += 1;
        self.hears(who, &publish(Qos::AtMostOnce, Topic::Registered(30)));
    }

    fn ticks(&mut self, after_ns: u64) {
        self.now_ns += after_ns;
        self.controller.tick(self.now_ns, &mut self.rules);
    }

    /// One publisher, one subscriber.
    fn ordinary(settings: Settings, rules: usize) -> Self {
        let mut scene = Self::new(settings, rules);
        scene.connects(1, true);
        scene.connects(2, true);
        scene.subscribes(2, Filter::Name("a/b"), 30, Code::ACCEPTED);
        scene.registers(1, "a/b", 20);
        scene.gets(2);
        scene.pings(1);
        scene.pings(2);
        scene
    }

    fn octets(&mut self, who: u8, datagram: &[u8]) {
        self.unread(client(who), broker(), Some(datagram));
    }

    /// A packet that cannot be read, not even its ports.
    fn fragment(&mut self, who: u8) {
        let [from, to] = [client(who), broker()].map(|one| SocketAddr::new(one.ip(), 0));
        self.unread(from, to, None);
    }

    fn asks_to_connect(&mut self, who: u8) {
        self.says(who, &connect(true, &format!("c{who}")));
    }

    /// A minute passes, in which two clients are there.
    fn passes_a_minute(&mut self) {
        for _ in 0..3 {
            self.passes(21);
            self.pings(1);
            self.pings(2);
        }
    }

    /// Time passes, and the broker answers.
    fn passes(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.ticks(SECOND_NS / 10);
            for who in std::mem::take(&mut self.rules.asked) {
                self.event(Way::FromBroker, broker(), who, &Message::Pingresp);
            }
        }
    }

    /// The number of copied messages, by the counters of the rules.
    fn copied(&self) -> u64 {
        let found = self.controller.status(&self.rules);
        found.iter().map(|one| one.counts.fast).sum()
    }

    fn rule_of(&self, topic: Topic) -> Result<usize, Reason> {
        let topic = topic.into();
        let status = self.controller.status(&self.rules);
        let publisher = client(1);
        let mut all = status.iter();
        let found = all.find(|one| one.key == Key { publisher, topic });
        found
            .expect("it is followed")
            .rule
            .clone()
            .map(|(copies, _)| copies)
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
    let subscribe = subscribe(qos, message_id, filter);
    scene.says(3, &subscribe);
    let code = Code::ACCEPTED;
    let suback = suback(qos, 40, message_id, code);
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
    // A client that the broker knows, but whose CONNECT was not seen.
    scene.hears(9, &Message::Pingresp);
    scene.now_ns += 89 * SECOND_NS;
    for who in [1, 2, 9] {
        scene.says(who, &Message::Pingreq { client: "" });
        scene.hears(who, &Message::Pingresp);
    }
    scene.ticks(2 * SECOND_NS);
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
    scene.ticks(SECOND_NS);
    assert_eq!(scene.rule(), Ok(1));
    scene.connects(3, false);
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(3))));
}

#[test]
fn lost_events_end_everything_and_begin_anew() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.controller.lost(2 * SECOND_NS, 9, &mut scene.rules);
    assert!(scene.rules.table.is_empty());
    assert_eq!(scene.controller.sizes(), (0, 2));
}

#[test]
fn a_broker_that_knows_nobody_puts_all_in_doubt() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.connects(3, true);
    scene.hears(3, &Message::Disconnect { duration_s: None });
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
    scene.pings(2);
    assert_eq!(scene.rule(), Err(Reason::PublisherInDoubt));
    scene.pings(1);
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
    scene.pings(3);
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
    scene.ticks(SECOND_NS);
    assert_eq!(full(&scene), 0);
}

#[test]
fn a_flood_of_requests_is_bounded_and_costs_only_speed() {
    let mut scene = Scene::ordinary(fresh(), 64);
    for message_id in 1..=200 {
        let name = format!("x/{message_id}");
        let filter = Filter::Name(&name);
        let qos = Qos::AtMostOnce;
        scene.says(2, &subscribe(qos, message_id, filter));
    }
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(2))));
    assert_eq!(scene.controller.sizes(), (1, 1));
}

/// The packets of a forger of addresses may all be dropped on the way to the broker.
#[test]
fn who_asks_to_connect_and_never_reaches_the_broker_costs_a_minute() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.asks_to_connect(3);
    let (qos, message_id, filter) = (Qos::AtMostOnce, 7, Filter::Name("#"));
    let subscribe = subscribe(qos, message_id, filter);
    scene.says(3, &subscribe);
    scene.octets(3, &[9]);
    assert_eq!(scene.rule(), Err(Reason::AnswerAwaited(client(3))));
    scene.passes_a_minute();
    assert_eq!(scene.rule(), Ok(1));
    assert_eq!(scene.controller.sizes(), (2, 0));
}

#[test]
fn a_client_whose_connect_was_lost_gets_copies_again_in_a_minute() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.asks_to_connect(2);
    assert_eq!(scene.rule(), Err(Reason::NotActive(client(2))));
    scene.passes_a_minute();
    assert_eq!(scene.rule(), Ok(1));
    // The answer comes after all: the subscriptions have ended.
    scene.hears(2, &Message::Connack(Code::ACCEPTED));
    assert_eq!(scene.rule(), Err(Reason::NoSubscribers));
}

#[test]
fn a_fragment_of_a_client_may_have_subscribed_it_until_it_connects_again() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.fragment(9);
    assert_eq!(scene.rule(), Ok(1), "of nobody");
    scene.connects(3, true);
    scene.fragment(3);
    scene.pings(3);
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(3))));
    scene.connects(3, true);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn what_cannot_be_read_of_who_is_not_connected_yet_makes_a_stranger_once_it_is() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.asks_to_connect(3);
    scene.octets(3, &[9]);
    assert_eq!(scene.rule(), Ok(1));
    scene.hears(3, &Message::Connack(Code::ACCEPTED));
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(3))));
}

/// A data plane reports such messages once a second, so perhaps not those after the reconnect.
#[test]
fn what_was_published_with_qos_2_counts_after_a_reconnect_too() {
    for broker_started in [false, true] {
        let mut scene = Scene::ordinary(fresh(), 64);
        scene.says(1, &publish(Qos::ExactlyOnce, Topic::Registered(20)));
        assert_eq!(scene.rule(), Err(Reason::OtherQos(client(1))));
        if broker_started {
            scene
                .controller
                .broker_started(scene.now_ns, &mut scene.rules);
            scene.connects(2, true);
            scene.subscribes(2, Filter::Name("a/b"), 30, Code::ACCEPTED);
            scene.gets(2);
        }
        scene.connects(1, true);
        scene.registers(1, "a/b", 20);
        scene.pings(1);
        scene.pings(2);
        scene.says(1, &publish(Qos::ExactlyOnce, Topic::Registered(20)));
        assert_eq!(
            scene.rule_of(Topic::Registered(20)),
            Err(Reason::OtherQos(client(1)))
        );
        scene.passes_a_minute();
        assert_eq!(scene.rule_of(Topic::Registered(20)), Ok(1));
    }
}

#[test]
fn nobody_is_kept_alive_who_does_not_publish() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let publish = publish(Qos::AtMostOnce, Topic::Registered(20));
    for _ in 0..10 {
        scene.now_ns += SECOND_NS;
        scene.says(1, &publish);
        scene.ticks(0);
        scene.hears(1, &Message::Pingresp);
    }
    let pings = scene.rules.asked.len();
    assert!((2..=4).contains(&pings), "{pings}");
    for _ in 0..600 {
        scene.ticks(SECOND_NS / 10);
        scene.hears(1, &Message::Pingresp);
    }
    assert!(scene.rules.asked.len() <= pings + 1);
}

/// The controller reads of a packet some time after it came. It may have sent a PINGREQ in between,
/// which confirms nothing after that packet.
#[test]
fn a_subscriber_whose_answer_was_read_after_a_ping_is_asked_once_more() {
    let mut scene = Scene::new(fresh(), 64);
    scene.connects(2, true);
    scene.subscribes(2, Filter::Name("a/+"), 0, Code::ACCEPTED);
    let (topic_id, message_id, code) = (31, 77, Code::ACCEPTED);
    let name = "a/b";
    scene.hears(2, &register(topic_id, message_id, name));
    scene.ticks(SECOND_NS);
    assert_eq!(scene.rules.asked, [client(2)]);
    scene.now_ns -= 1;
    scene.says(2, &regack(topic_id, message_id, code));
    scene.hears(2, &Message::Pingresp);
    scene.ticks(SECOND_NS);
    assert_eq!(scene.rules.asked, [client(2), client(2)]);
    scene.hears(2, &Message::Pingresp);
    // Confirmed: a client that only receives is not asked again.
    for _ in 0..100 {
        scene.ticks(SECOND_NS);
    }
    assert_eq!(scene.rules.asked.len(), 2);
}

/// A gateway passes SUBSCRIBE on, and answers when the broker behind it has answered.
#[test]
fn a_subscriber_who_was_asked_before_its_answer_came_is_asked_once_more() {
    let mut scene = Scene::new(fresh(), 64);
    let (qos, message_id, topic_id) = (Qos::AtMostOnce, 7, 30);
    scene.connects(2, true);
    scene.says(2, &subscribe(qos, message_id, Filter::Name("a/b")));
    scene.ticks(SECOND_NS);
    assert_eq!(scene.rules.asked, [client(2)]);
    scene.hears(2, &suback(qos, topic_id, message_id, Code::ACCEPTED));
    scene.hears(2, &Message::Pingresp);
    scene.ticks(SECOND_NS);
    assert_eq!(scene.rules.asked, [client(2), client(2)]);
}

#[test]
fn nobody_gets_copies_before_the_broker_has_shown_that_his_address_is_proven() {
    for (filter, topic) in [
        (Filter::Short(*b"ab"), Topic::Short(*b"ab")),
        (Filter::Name("a/b"), Topic::Registered(20)),
    ] {
        let mut scene = Scene::new(fresh(), 64);
        scene.connects(1, true);
        scene.connects(2, true);
        scene.registers(1, "a/b", 20);
        scene.subscribes(2, filter, 30, Code::ACCEPTED);
        scene.pings(1);
        scene.pings(2);
        scene.says(1, &publish(Qos::AtMostOnce, topic));
        scene.ticks(SECOND_NS);
        assert_eq!(scene.rule_of(topic), Err(Reason::Unproven(client(2))));
        scene.gets(2);
        scene.ticks(SECOND_NS);
        assert_eq!(scene.rule_of(topic), Ok(1));
    }
}

#[test]
fn an_answer_to_the_brokers_register_proves_the_address() {
    let mut scene = Scene::new(fresh(), 64);
    scene.connects(1, true);
    scene.connects(2, true);
    scene.registers(1, "a/b", 20);
    scene.subscribes(2, Filter::Name("a/+"), 0, Code::ACCEPTED);
    let (topic_id, message_id, code) = (31, 77, Code::ACCEPTED);
    let name = "a/b";
    scene.hears(2, &register(topic_id, message_id, name));
    scene.pings(1);
    scene.pings(2);
    assert_eq!(scene.rule(), Err(Reason::NoId(client(2))));
    scene.says(2, &regack(topic_id, message_id, code));
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
    scene.pings(2);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn who_asked_for_another_qos_has_messages_that_wait() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let (qos, message_id) = (Qos::AtLeastOnce, 8);
    scene.says(2, &subscribe(qos, message_id, Filter::Name("other")));
    scene.hears(2, &suback(qos, 33, message_id, Code::ACCEPTED));
    assert_eq!(scene.rule(), Err(Reason::OtherQos(client(2))));
}

#[test]
fn a_topic_with_acknowledged_publishes_is_left_to_the_broker_for_a_minute() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.says(1, &publish(Qos::ExactlyOnce, Topic::Registered(20)));
    assert_eq!(scene.rule(), Err(Reason::OtherQos(client(1))));
    for _ in 0..7 {
        scene.ticks(10 * SECOND_NS);
        scene.pings(1);
        scene.pings(2);
    }
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn a_kept_session_of_somebody_who_is_away_goes_through_the_broker() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.connects(3, false);
    scene.subscribes(3, Filter::Name("a/b"), 40, Code::ACCEPTED);
    assert_eq!(scene.rule(), Err(Reason::NotClean(client(3))));
    scene.says(3, &Message::Disconnect { duration_s: None });
    scene.hears(3, &Message::Disconnect { duration_s: None });
    assert_eq!(scene.rule(), Err(Reason::Kept(Rc::from("c3"))));
    scene.connects(3, true);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn a_stranger_that_falls_asleep_is_still_there() {
    for (duration_s, rule) in [(Some(50), Err(Reason::Stranger(client(9)))), (None, Ok(1))] {
        let mut scene = Scene::ordinary(fresh(), 64);
        scene.hears(9, &Message::Pingresp);
        scene.says(9, &Message::Disconnect { duration_s });
        scene.hears(9, &Message::Disconnect { duration_s: None });
        assert_eq!(scene.rule(), rule);
        // The session that the broker may keep for it is not known.
        scene.connects(8, false);
        assert!(matches!(scene.rule(), Err(Reason::Stranger(_))));
    }
}

#[test]
fn who_is_silent_for_longer_than_its_keep_alive_is_overdue_and_then_in_doubt() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.now_ns += 61 * SECOND_NS;
    scene.pings(1);
    scene.ticks(0);
    assert_eq!(scene.rule(), Err(Reason::Overdue(client(2))));
    scene.says(2, &Message::Pingreq { client: "" });
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
    scene.hears(2, &Message::Pingresp);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn who_was_given_up_in_its_silence_says_nothing_of_others_unless_it_was_answered_since() {
    let mut scene = Scene::ordinary(fresh(), 64);
    for is_answered in [false, true] {
        scene.connects(3, true);
        scene.pings(3);
        scene.now_ns += 50 * SECOND_NS;
        scene.pings(1);
        scene.pings(2);
        scene.now_ns += 20 * SECOND_NS;
        scene.ticks(0);
        scene.says(3, &Message::Pingreq { client: "" });
        if is_answered {
            scene.hears(3, &Message::Pingresp);
        }
        scene.hears(3, &Message::Disconnect { duration_s: None });
        let doubt = Err(Reason::InDoubt(client(2)));
        assert_eq!(scene.rule(), if is_answered { doubt } else { Ok(1) });
    }
}

#[test]
fn a_second_id_for_a_name_is_a_second_way() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.registers(1, "a/b", 21);
    assert_eq!(
        scene.rule_of(Topic::Registered(20)),
        Err(Reason::OtherWay(client(1)))
    );
}

#[test]
fn an_id_for_a_second_name_is_not_clear() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.registers(2, "other", 30);
    assert_eq!(scene.rule(), Err(Reason::Unclear(client(2))));
}

#[test]
fn a_request_sent_again_after_its_opposite_counts() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let (filter, qos) = (Filter::Name("a/b"), Qos::AtMostOnce);
    let subscribe = |message_id| subscribe(qos, message_id, filter);
    let suback = |message_id| suback(qos, 30, message_id, Code::ACCEPTED);
    scene.says(2, &subscribe(20));
    scene.says(
        2,
        &Message::Unsubscribe {
            message_id: 21,
            filter,
        },
    );
    scene.says(2, &subscribe(20));
    scene.hears(2, &suback(20));
    scene.hears(2, &Message::Unsuback(21));
    assert_eq!(scene.rule(), Err(Reason::AnswerAwaited(client(2))));
    scene.hears(2, &suback(20));
    scene.pings(2);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn what_cannot_be_read_makes_its_sender_a_stranger() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.octets(2, &[4, 0x18, 0]);
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(2))));
    scene.octets(7, &[4, 0x18, 0]);
    assert_eq!(scene.controller.sizes(), (1, 1));
}

#[test]
fn a_connect_that_was_not_read_shows_in_its_answer() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.hears(2, &Message::Connack(Code::ACCEPTED));
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(2))));
}

#[test]
fn two_different_connects_at_a_time_cannot_be_followed() {
    let mut scene = Scene::ordinary(fresh(), 64);
    for clean in [true, false] {
        let connect = connect(clean, "c2");
        scene.says(2, &connect);
    }
    scene.hears(2, &Message::Connack(Code::ACCEPTED));
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(2))));
}

#[test]
fn another_identifier_of_a_sleeper_makes_a_stranger() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.says(2, &Message::Pingreq { client: "who" });
    assert_eq!(scene.rule(), Err(Reason::Stranger(client(2))));
}

#[test]
fn an_answer_that_was_lost_is_not_made_good_by_the_next_one() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let topic = Topic::Registered(20);
    scene.now_ns += SECOND_NS;
    scene.says(1, &publish(Qos::AtMostOnce, topic));
    scene.ticks(0);
    let pings = scene.rules.asked.len();
    scene.ticks(4 * SECOND_NS);
    assert_eq!(scene.controller.counters().unanswered, 1);
    assert_eq!(scene.rule(), Err(Reason::PublisherInDoubt));
    // Two more, and both answers are needed: the first may be a late one to the lost PINGREQ.
    assert_eq!(scene.rules.asked.len(), pings + 2);
    scene.hears(1, &Message::Pingresp);
    assert_eq!(scene.rule(), Err(Reason::PublisherInDoubt));
    scene.hears(1, &Message::Pingresp);
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn a_publish_between_a_lost_ping_and_its_late_answer_keeps_the_rule_closed() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let publish = publish(Qos::AtMostOnce, Topic::Registered(20));
    scene.says(1, &publish);
    scene.ticks(SECOND_NS);
    scene.ticks(4 * SECOND_NS);
    scene.says(1, &publish);
    // The late answer to the first one: the broker may not have delivered the PUBLISH after it yet.
    scene.hears(1, &Message::Pingresp);
    scene.says(1, &publish);
    assert_eq!(scene.copied(), 0);
    scene.hears(1, &Message::Pingresp);
    scene.says(1, &publish);
    scene.ticks(SECOND_NS);
    scene.hears(1, &Message::Pingresp);
    scene.hears(1, &Message::Pingresp);
    scene.says(1, &publish);
    assert_eq!(scene.copied(), 1);
}

#[test]
fn a_silent_subscriber_whose_answer_is_lost_is_asked_again() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.subscribes(2, Filter::Name("another"), 31, Code::ACCEPTED);
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
    scene.ticks(SECOND_NS);
    for _ in 0..4 {
        scene.ticks(SECOND_NS);
    }
    assert_eq!(scene.rules.asked, [client(2); 3]);
    (0..2).for_each(|_| scene.hears(2, &Message::Pingresp));
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn a_ping_that_finds_no_room_is_none_and_leaves_as_soon_as_there_is_some() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.says(1, &publish(Qos::AtMostOnce, Topic::Registered(20)));
    scene.rules.has_room = false;
    for _ in 0..10 {
        scene.ticks(SECOND_NS / 10);
    }
    let counters = scene.controller.counters();
    assert_eq!((counters.pings, counters.unanswered), (0, 0));
    scene.rules.has_room = true;
    scene.ticks(SECOND_NS / 10);
    assert_eq!(scene.rules.asked, [client(1)]);
    scene.hears(1, &Message::Pingresp);
    scene.says(1, &publish(Qos::AtMostOnce, Topic::Registered(20)));
    assert_eq!(scene.copied(), 1);
}

#[test]
fn a_crowd_is_not_asked_all_at_once() {
    let mut scene = Scene::new(fresh(), 64);
    for who in 0..=255 {
        scene.connects(who, true);
    }
    scene.ticks(SECOND_NS);
    assert_eq!(scene.rules.asked.len(), 128);
    // Unanswered questions would hold up the others for three seconds.
    scene.rules.asked.clone().iter().for_each(|who| {
        scene.event(Way::FromBroker, broker(), *who, &Message::Pingresp);
    });
    scene.ticks(SECOND_NS / 100);
    assert_eq!(scene.rules.asked.len(), 256);
}

#[test]
fn strangers_for_whom_there_is_no_room_are_forgotten_in_time() {
    let mut settings = fresh();
    (settings.clients, settings.settle_ns) = (2, 90 * SECOND_NS);
    let mut scene = Scene::ordinary(settings, 64);
    for who in 5..9 {
        scene.hears(who, &Message::Pingresp);
    }
    assert_eq!(scene.rule(), Err(Reason::TooMany));
    for _ in 0..10 {
        scene.ticks(10 * SECOND_NS);
        scene.pings(1);
        scene.pings(2);
    }
    assert_eq!(scene.rule(), Ok(1));
}

#[test]
fn who_sleeps_publishes_through_the_broker() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let duration_s = Some(50);
    scene.says(1, &Message::Disconnect { duration_s });
    assert_eq!(scene.rule(), Err(Reason::PublisherNotActive));
}

#[test]
fn a_rule_is_opened_only_after_a_message_has_gone_through_the_broker() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let topic = Topic::Registered(20);
    let mut is_open = |publishes: bool| {
        scene.now_ns += SECOND_NS;
        if publishes {
            scene.says(1, &publish(Qos::AtMostOnce, topic));
        } else {
            scene.pings(1);
        }
        scene.ticks(0);
        scene.hears(1, &Message::Pingresp);
        let status = scene.controller.status(&scene.rules);
        status.iter().any(|one| one.rule == Ok((1, true)))
    };
    assert!(!is_open(false));
    assert!(is_open(true));
}

#[test]
fn no_rule_is_opened_by_what_was_known_before_the_packets_in_hand() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.now_ns += SECOND_NS;
    scene.says(1, &publish(Qos::AtMostOnce, Topic::Registered(20)));
    scene.ticks(0);
    let good_bye = Message::Disconnect { duration_s: None };
    scene.takes(Way::ToBroker, client(2), broker(), &good_bye);
    scene.takes(Way::FromBroker, broker(), client(1), &Message::Pingresp);
    assert_eq!(scene.rule(), Err(Reason::NotActive(client(2))));
}

#[test]
fn nobody_is_pinged_while_the_controller_is_behind() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.now_ns += SECOND_NS;
    scene.says(1, &publish(Qos::AtMostOnce, Topic::Registered(20)));
    // A packet whose event has not come yet: the client may be going to sleep.
    let now_ns = scene.now_ns;
    let _ = scene
        .rules
        .table
        .from_client(now_ns, client(1), &Packet::Unread);
    scene.ticks(0);
    assert_eq!(scene.rules.asked, []);
    scene.rules.table.done(scene.rules.table.mark());
    scene.ticks(0);
    assert_eq!(scene.rules.asked, [client(1)]);
}

#[test]
fn who_connects_elsewhere_is_gone_from_where_he_was() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let connect = connect(true, "c2");
    scene.says(9, &connect);
    assert_eq!(scene.rule(), Err(Reason::InDoubt(client(2))));
    scene.hears(9, &Message::Connack(Code::ACCEPTED));
    assert_eq!(scene.rule(), Err(Reason::NoSubscribers));
}

#[test]
fn who_says_connect_again_is_no_receiver_until_the_answer() {
    let mut scene = Scene::ordinary(fresh(), 64);
    let connect = connect(true, "c2");
    scene.says(2, &connect);
    assert_eq!(scene.rule(), Err(Reason::NotActive(client(2))));
    scene.hears(2, &Message::Connack(Code::ACCEPTED));
    assert_eq!(scene.rule(), Err(Reason::NoSubscribers));
}

#[test]
fn a_new_connection_has_to_be_proven_again() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.now_ns += SECOND_NS;
    scene.connects(2, true);
    scene.subscribes(2, Filter::Name("a/b"), 30, Code::ACCEPTED);
    scene.pings(2);
    assert_eq!(scene.rule(), Err(Reason::Unproven(client(2))));
}

#[test]
fn a_publish_of_nobody_in_particular_is_no_sign_of_life() {
    let mut scene = Scene::ordinary(fresh(), 64);
    scene.now_ns += 50 * SECOND_NS;
    scene.pings(1);
    scene.says(2, &publish(Qos::Unconnected, Topic::Short(*b"zz")));
    scene.ticks(11 * SECOND_NS);
    assert_eq!(scene.rule(), Err(Reason::Overdue(client(2))));
}
