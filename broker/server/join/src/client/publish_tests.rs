//! What a client publishes and subscribes to, while its broker answers late, refuses, or not at all.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::cooperation::Kind;
use crate::node::{Action, Node};
use crate::sessions::Sessions;
use crate::topology::State;
use mqtick_access::Rules;
use mqtick_packet::{ConnectOut, Outgoing, Property, Qos, connect, frame};

const MOST: usize = 1 << 16;

fn site() -> Site {
    Site {
        node: Node::new(1, "here", Kind::Publications, 30),
        sessions: Sessions::default(),
        rules: Rules::open(),
        waits_for_all: false,
        waiting: HashMap::new(),
        denied: 0,
        residence: Residence::new(Vec::new(), false),
        came: None,
        now_s: 0,
    }
}

/// A client that the broker has accepted.
fn client(site: &mut Site) -> Paired {
    let mut octets = Vec::new();
    let with = ConnectOut {
        client_id: "client",
        clean_start: true,
        properties: &[Property::SessionExpiry(60)],
        ..ConnectOut::default()
    };
    connect(&mut octets, Version::V5, &with);
    let found = frame(&octets, MOST).unwrap().unwrap();
    let Packet::Connect(connect) = decode(&found, Version::V5).unwrap() else {
        panic!("it is a CONNECT");
    };
    let mut client = Paired::new(1, &connect);
    let mut connack = Vec::new();
    mqtick_packet::connack(&mut connack, Version::V5, false, 0, &Default::default());
    answer(&mut client, site, &connack);
    client
}

fn answer(client: &mut Paired, site: &mut Site, octets: &[u8]) {
    let found = frame(octets, MOST).unwrap().unwrap();
    client.broker_says(&found, octets, site).unwrap();
}

fn puback(client: &mut Paired, site: &mut Site, id: u16, reason: u8) {
    let mut octets = Vec::new();
    mqtick_packet::ack(&mut octets, Version::V5, AckKind::Puback, id, reason);
    answer(client, site, &octets);
}

fn say(client: &mut Paired, site: &mut Site, say: impl FnOnce(&mut Vec<u8>)) {
    let mut octets = Vec::new();
    say(&mut octets);
    let found = frame(&octets, MOST).unwrap().unwrap();
    client.client_says(&found, site).unwrap();
}

/// A client that is subscribed to `a` and `b`.
fn subscriber(site: &mut Site) -> Paired {
    let mut client = client(site);
    let both = [("a", Qos::AtLeastOnce), ("b", Qos::AtLeastOnce)];
    say(&mut client, site, |out| {
        mqtick_packet::subscribe(out, Version::V5, 1, &both)
    });
    client
}

#[test]
fn an_unsubscription_that_the_broker_refuses_changes_nothing() {
    let mut site = site();
    let mut client = subscriber(&mut site);
    let mut octets = Vec::new();
    mqtick_packet::suback(&mut octets, Version::V5, 1, &[1, 1]);
    answer(&mut client, &mut site, &octets);
    say(&mut client, &mut site, |out| {
        mqtick_packet::unsubscribe(out, Version::V5, 2, &["a", "b"]);
    });
    let mut octets = Vec::new();
    mqtick_packet::unsuback(&mut octets, Version::V5, 2, &[0x87, 0]);
    answer(&mut client, &mut site, &octets);
    assert_eq!(
        site.sessions.sizes(),
        (1, 1),
        "it is still subscribed to `a`"
    );
}

#[test]
fn a_kept_session_is_subscribed_also_where_its_client_did_not_wait_for_the_answer() {
    let mut site = site();
    subscriber(&mut site).end(true, &mut site);
    assert_eq!(site.sessions.sizes(), (2, 2));
}

/// Publish a message; `id` 0: with QoS 0.
fn publish(client: &mut Paired, site: &mut Site, id: u16, retain: bool, payload: &[u8]) {
    let message = Outgoing {
        qos: if id > 0 {
            Qos::AtLeastOnce
        } else {
            Qos::AtMostOnce
        },
        id,
        retain,
        topic: "a",
        payload,
        ..Outgoing::default()
    };
    say(client, site, |out| {
        mqtick_packet::publish(out, Version::V5, &message);
    });
}

/// Whether other sites would get this retained message, as one that was seen being published.
fn is_kept(site: &mut Site, payload: &[u8]) -> bool {
    site.node.begin_reading(&[], &[]);
    let stamp = site.node.retained.found("a", payload);
    stamp.is_some_and(|stamp| stamp > 0)
}

#[test]
fn what_the_broker_got_last_is_kept_however_late_it_answers() {
    let mut site = site();
    let mut client = client(&mut site);
    publish(&mut client, &mut site, 1, true, b"first");
    publish(&mut client, &mut site, 0, true, b"second");
    puback(&mut client, &mut site, 1, 0);
    assert!(is_kept(&mut site, b"second"));
}

#[test]
fn what_the_broker_refused_is_not_kept_nor_what_it_replaced_lost() {
    let mut site = site();
    let mut client = client(&mut site);
    publish(&mut client, &mut site, 0, true, b"there");
    publish(&mut client, &mut site, 1, true, b"refused");
    publish(&mut client, &mut site, 2, true, b"refused, too");
    puback(&mut client, &mut site, 1, 0x87);
    puback(&mut client, &mut site, 2, 0x87);
    assert!(is_kept(&mut site, b"there"));
}

#[test]
fn what_was_not_answered_before_a_client_left_goes_on_in_its_order() {
    let mut site = site();
    site.node.link_up(1, 2, 7, "there");
    let there = State {
        node: 2,
        sequence: 1,
        name: "there".into(),
        links: vec![(1, 7)],
    };
    site.node.state(1, &there);
    let mut client = client(&mut site);
    for (id, payload) in [(65_535, b"first"), (1, b"later")] {
        publish(&mut client, &mut site, id, false, payload);
    }
    client.end(true, &mut site);
    let mut sent = Vec::new();
    while let Some(action) = site.node.next_action() {
        if let Action::Send { message, .. } = action {
            sent.push(message.payload.clone());
        }
    }
    assert_eq!(sent, [b"first", b"later"]);
}
