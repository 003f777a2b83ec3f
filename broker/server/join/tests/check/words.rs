//! Reads any octets as packets of a neighbour, and has a node process them.

use mqtick_join::cooperation::{Kind, Source};
use mqtick_join::message::Message;
use mqtick_join::node::{Action, Node};
use mqtick_join::topology::State;
use mqtick_join::words::{self, Hello, Passage, RETAINED, TOPOLOGY};
use mqtick_packet::{Packet, Publish, Version, decode, frame};
use std::sync::Arc;

const LINK: u64 = 1;

/// Fails if something panics, if what was read differs when it is written and read again, or if a node
/// has more to do than the words can cause.
pub fn check(octets: &[u8]) {
    let text = String::from_utf8_lossy(octets);
    if let Ok(hello) = Hello::parse(&text) {
        assert_eq!(Hello::parse(&hello.to_string()), Ok(hello));
    }
    for kind in [Kind::Subscriptions, Kind::Publications] {
        talk(octets, kind);
    }
}

fn talk(octets: &[u8], kind: Kind) {
    let mut node = Node::new(1, "here", kind, 30);
    node.link_up(LINK, 2, 7, "there");
    node.link_up(LINK + 1, 3, 8, "behind");
    node.subscribed(Source::Local, &["a".into()]);
    let (mut at, mut words) = (0, 0);
    while let Some(rest) = octets.get(at..).filter(|rest| !rest.is_empty()) {
        let Ok(Some(found)) = frame(rest, 1 << 16) else {
            break;
        };
        at += found.length;
        let Ok(packet) = decode(&found, Version::V5) else {
            break;
        };
        match packet {
            Packet::Connack(connack) => {
                let said = connack.properties.assigned_client_id();
                if let Ok((peer, name)) = words::parse_welcome(said) {
                    let mut again = Vec::new();
                    words::welcome(&mut again, peer, &name, 1 << 20);
                    assert!(frame(&again, 1 << 16).is_ok_and(|found| found.is_some()));
                }
            }
            Packet::Publish(publish) if publish.topic == TOPOLOGY => {
                if let Some(state) = State::parse(publish.payload) {
                    assert_eq!(State::parse(state.text().as_bytes()).as_ref(), Some(&state));
                    node.state(LINK, &state);
                    words += 1 + state.links.len();
                }
            }
            Packet::Publish(publish) => words += message(&mut node, &publish),
            Packet::Subscribe(ask) if ask.filters().all(|one| one.filter == RETAINED) => {
                let message = Message {
                    topic: "kept".into(),
                    payload: b"content".to_vec(),
                    ..Message::default()
                };
                node.begin_reading(&[], &[]);
                node.found(message, &[LINK]);
                words += 1 + node.retained.deleted().len();
                node.end_reading(&[LINK]);
            }
            Packet::Subscribe(subscribe) => {
                let filters: Vec<Arc<str>> =
                    subscribe.filters().map(|one| one.filter.into()).collect();
                words += filters.len();
                node.subscribed(Source::Link(LINK), &filters);
            }
            Packet::Unsubscribe(unsubscribe) => {
                let filters: Vec<Arc<str>> = unsubscribe.filters().map(Into::into).collect();
                words += filters.len();
                node.unsubscribed(Source::Link(LINK), &filters);
            }
            _ => {}
        }
    }
    node.link_down(LINK, true);
    let mut said = 0;
    while let Some(action) = node.next_action() {
        if let Action::Deliver(key, _) = action {
            node.delivered(key);
        }
        said += 1;
    }
    assert!(said <= 40 + 8 * words, "{said} actions for {words} words");
}

/// A message: it has to be the same after it was written and read again.
fn message(node: &mut Node, publish: &Publish<'_>) -> usize {
    let Ok(passed) = words::parse_message(publish) else {
        return 0;
    };
    let how = Passage {
        attempt: passed.attempt,
        id: publish.id.max(1),
        now_s: 0,
        stated: passed.stated,
    };
    let mut octets = Vec::new();
    words::message(&mut octets, passed.key, &passed.message, how);
    let found = frame(&octets, 1 << 20).ok().flatten();
    let packet = found.as_ref().map(|found| decode(found, Version::V5));
    match packet {
        Some(Ok(Packet::Publish(same))) => {
            assert_eq!(words::parse_message(&same).as_ref(), Ok(&passed));
        }
        other => unreachable!("{other:?}"),
    }
    node.arrived(LINK, passed.key, passed.attempt, passed.message);
    1
}
