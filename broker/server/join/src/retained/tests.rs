//! Which of two retained messages wins, and what is remembered.
use super::*;

fn kept(topic: &str, payload: &str, stamp: u64) -> Message {
    Message {
        topic: topic.into(),
        payload: payload.into(),
        retain: true,
        stamp,
        handed: true,
        ..Message::default()
    }
}

#[test]
fn what_was_published_last_wins_also_by_a_clock_that_is_behind() {
    let mut here = Retained::default();
    assert_eq!(here.came(&kept("a", "ahead", 1000)), Compared::Newer);
    assert_eq!(here.published("a", b"now", 10).0, 1001);
    assert_eq!(here.came(&kept("a", "ahead", 1000)), Compared::Older);
    assert_eq!(here.came(&kept("a", "now", 1002)), Compared::Same);
}

#[test]
fn what_was_found_gives_way_to_what_was_seen_and_to_nothing_else() {
    let mut here = Retained::default();
    here.begin_reading();
    assert_eq!(here.found("a", b"found"), Some(0));
    here.end_reading();
    assert_eq!(here.came(&kept("a", "found elsewhere", 0)), Compared::Older);
    assert_eq!(here.came(&kept("a", "seen", 1)), Compared::Newer);
}

#[test]
fn what_the_broker_lost_comes_again_and_what_was_deleted_does_not() {
    let mut here = Retained::default();
    here.published("lost", b"x", 5);
    here.published("deleted", b"x", 5);
    here.published("deleted", b"", 6);
    here.away();
    here.back();
    here.begin_reading();
    here.end_reading();
    assert_eq!(here.came(&kept("lost", "x", 5)), Compared::Newer);
    assert_eq!(here.came(&kept("deleted", "x", 5)), Compared::Older);
    assert_eq!(here.deleted(), [("deleted".into(), 6)]);
}

#[test]
fn what_is_on_its_way_to_the_broker_while_that_is_read_is_known_afterwards() {
    let mut here = Retained::default();
    here.begin_reading();
    here.end_reading();
    here.published("new", b"x", 5);
    here.published("changed", b"x", 5);
    here.stays("denied", b"not for others");
    here.begin_reading();
    assert_eq!(here.found("changed", b"before"), None);
    here.end_reading();
    for topic in ["new", "changed"] {
        assert_eq!(here.came(&kept(topic, "y", 4)), Compared::Older);
    }
    here.begin_reading();
    assert_eq!(here.found("denied", b"not for others"), None);
    assert_eq!(here.found("changed", b"past the node"), Some(0));
    here.end_reading();
    assert_eq!(
        here.came(&kept("new", "y", 4)),
        Compared::Newer,
        "it never came"
    );
}

#[test]
fn what_had_not_come_to_the_broker_when_it_was_read_is_found_by_the_next_reading() {
    let mut here = Retained::default();
    here.begin_reading();
    here.end_reading();
    here.came(&kept("slow", "x", 5));
    here.came(&kept("waits", "x", 6));
    here.begin_reading();
    assert_eq!(here.waits(&kept("waits", "x", 6)), Some(6));
    assert_eq!(here.waits(&kept("waits", "before", 4)), None);
    here.published("later", b"x", 7);
    assert!(here.end_reading(), "neighbours do not have it");
    here.begin_reading();
    assert_eq!(here.found("slow", b"x"), Some(5));
    here.found("waits", b"x");
    here.found("later", b"x");
    assert!(!here.end_reading());
}

#[test]
fn what_waited_for_the_broker_does_not_replace_what_is_newer() {
    let mut here = Retained::default();
    here.came(&kept("a", "x", 5));
    here.published("a", b"y", 6);
    assert!(here.is_outdated(&kept("a", "x", 5)));
    here.came(&kept("a", "y", 7));
    assert!(!here.is_outdated(&kept("a", "y", 6)), "it is the same");
}

#[test]
fn what_came_again_is_no_surer_to_be_at_the_broker() {
    let mut here = Retained::default();
    here.came(&kept("a", "", 5));
    here.away();
    here.back();
    assert_eq!(here.came(&kept("a", "", 6)), Compared::Same);
    here.begin_reading();
    assert_eq!(here.found("a", b"before"), Some(0));
    assert_eq!(here.came(&kept("a", "", 6)), Compared::Newer);
}

#[test]
fn what_is_at_the_broker_without_the_nodes_knowledge_goes_on_as_what_was_found() {
    let mut here = Retained::default();
    here.published("a", b"seen", 5);
    here.away();
    here.back();
    here.begin_reading();
    assert_eq!(here.found("a", b"past the node"), Some(0));
    here.published("a", b"on its way", 6);
    assert_eq!(here.found("a", b"past the node"), None);
}

#[test]
fn what_is_not_for_other_sites_stays_and_does_not_touch_what_is() {
    let mut here = Retained::default();
    here.published("a", b"for all", 5);
    here.published("gone", b"", 5);
    for topic in ["a", "b", "gone"] {
        here.stays(topic, b"not for others");
        here.stays(topic, b"");
    }
    here.stays("a", b"for all");
    here.stays("a", b"not for others");
    here.begin_reading();
    assert_eq!(
        here.found("a", b"for all"),
        Some(5),
        "the broker refused it"
    );
    assert_eq!(here.found("a", b"not for others"), None);
    assert_eq!(here.found("b", b"not for others"), None);
    here.end_reading();
    assert_eq!(here.deleted(), [("gone".into(), 5)]);
    assert_eq!(here.came(&kept("a", "newer", 6)), Compared::Newer);
    assert_eq!(here.came(&kept("b", "found elsewhere", 0)), Compared::Newer);
}

#[test]
fn clients_that_may_not_publish_leave_room_for_others_and_pass_nothing_on_when_theirs_is_full() {
    let mut here = Retained {
        most_octets: 40 * (OF_ENTRY + 2),
        ..Retained::default()
    };
    for number in 10..99 {
        here.stays(&number.to_string(), b"not for others");
    }
    assert_eq!(here.unknown, 79);
    for number in 10..50 {
        here.published(&number.to_string(), b"for all", 5);
    }
    assert_eq!((here.len(), here.unknown), (40, 79));
    here.away();
    here.back();
    here.begin_reading();
    assert_eq!(here.found("10", b"not for others"), None);
    assert_eq!(here.found("49", b"not for others"), None);
    assert_eq!(here.found("98", b"not for others"), None);
    assert_eq!(here.found("30", b"for all"), Some(5));
    here.end_reading();
    assert_eq!((here.len(), here.stays.len()), (2, 1));
    assert_eq!(here.stays_octets, OF_ENTRY + 2);
}

#[test]
fn what_one_client_may_not_publish_another_one_may() {
    let mut here = Retained::default();
    here.stays("a", b"x");
    here.published("a", b"x", 5);
    here.begin_reading();
    assert_eq!(here.found("a", b"x"), Some(5));
    assert_eq!((here.stays.len(), here.stays_octets), (0, 0));
}

#[test]
fn two_sites_that_give_the_same_stamp_at_once_keep_the_same() {
    let (mut one, mut other) = (Retained::default(), Retained::default());
    for site in [&mut one, &mut other] {
        site.came(&kept("a", "of a clock that is ahead", 1000));
    }
    let stamp = one.published("a", b"x", 10).0;
    assert_eq!(stamp, other.published("a", b"y", 20).0);
    let came = [
        one.came(&kept("a", "y", stamp)),
        other.came(&kept("a", "x", stamp)),
    ];
    assert!(
        came.contains(&Compared::Newer) && came.contains(&Compared::Older),
        "{came:?}"
    );
}

#[test]
fn what_the_broker_refused_leaves_what_was_there_before() {
    let mut here = Retained::default();
    here.published("gone", b"", 5);
    here.published("a", b"x", 5);
    for topic in ["a", "gone", "new"] {
        let (stamp, before) = here.published(topic, b"refused", 9);
        here.refused(topic, stamp, before);
    }
    let (stamp, before) = here.published("a", b"refused", 20);
    here.published("a", b"later", 30);
    here.refused("a", stamp, before);
    assert_eq!((here.len(), here.deleted()), (2, vec![("gone".into(), 5)]));
    here.begin_reading();
    assert_eq!(here.found("a", b"later"), Some(30));
}

#[test]
fn where_there_is_no_room_nothing_that_may_be_newer_is_replaced() {
    let mut here = Retained {
        most_octets: 2 * (OF_ENTRY + 1),
        ..Retained::default()
    };
    for topic in ["a", "b", "c"] {
        here.published(topic, b"x", 5);
    }
    assert_eq!((here.len(), here.unknown), (2, 1));
    assert_eq!(here.came(&kept("c", "y", 6)), Compared::Older);
    assert_eq!(here.came(&kept("a", "y", 6)), Compared::Newer);
    let live = Message {
        handed: false,
        ..kept("c", "y", 6)
    };
    assert_eq!(
        here.came(&live),
        Compared::Newer,
        "what is published now is kept"
    );
}

#[test]
fn deletions_are_remembered_up_to_a_number_and_room_is_given_back() {
    let mut here = Retained::default();
    for number in 0..MOST_GONE + 5 {
        here.published(&number.to_string(), b"", 5);
        here.published("comes and goes", b"here", 5);
        here.published("comes and goes", b"", 5);
    }
    assert_eq!(here.len(), MOST_GONE);
    assert_eq!(here.deleted().len(), MOST_GONE);
    let octets: usize = here.all.keys().map(|one| one.len() + OF_ENTRY).sum();
    assert_eq!(here.octets, octets);
}
