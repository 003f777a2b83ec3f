//! Subscriptions that match a topic, and their order.

mod common;

use mqtick_topics::{MAX_LEVELS, Match, Tree};
use proptest::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

/// The matching subscriptions. Of a group, only the member whose turn it is.
fn found(tree: &Tree<u32, u32>, topic: &str) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    tree.matches(topic, &mut |one| {
        found.extend(match one {
            Match::One(key, value) => Some((*key, *value)),
            Match::Group(group) => {
                let turn = group.turn().fetch_add(1, Relaxed) % group.members().count();
                group.members().nth(turn).map(|(key, value)| (*key, *value))
            }
        });
    });
    found
}

fn keys(tree: &Tree<u32, u32>, topic: &str) -> Vec<u32> {
    found(tree, topic).into_iter().map(|(key, _)| key).collect()
}

fn tree_of(filters: &[&str]) -> Tree<u32, u32> {
    let mut tree = Tree::new();
    for (key, filter) in (0..).zip(filters) {
        tree.subscribe(filter, key, 0);
    }
    tree
}

#[test]
fn a_name_comes_before_a_plus_before_a_number_sign_at_each_level() {
    let in_order = [
        "a/b/c", "a/b/c/#", "a/b/+", "a/b/#", "a/+/c", "a/+/+", "a/#", "+/b/c", "+/#", "#",
    ];
    let mut reversed = in_order;
    reversed.reverse();
    assert_eq!(
        keys(&tree_of(&in_order), "a/b/c"),
        (0..10).collect::<Vec<_>>()
    );
    assert_eq!(
        keys(&tree_of(&reversed), "a/b/c"),
        (0..10).rev().collect::<Vec<_>>()
    );
}

#[test]
fn who_subscribed_first_to_a_filter_gets_its_messages_first() {
    let mut tree = Tree::new();
    for key in (0..1000).rev() {
        assert_eq!(tree.subscribe("a", key, 0), None);
    }
    assert_eq!(tree.unsubscribe("a", &500), Some(0));
    assert_eq!(tree.subscribe("a", 500, 0), None);
    let mut order: Vec<u32> = (0..1000).rev().filter(|&key| key != 500).collect();
    order.push(500);
    assert_eq!(keys(&tree, "a"), order);
}

#[test]
fn a_subscription_made_again_keeps_its_place_and_takes_the_new_value() {
    let mut tree = tree_of(&["a", "a", "a"]);
    assert_eq!(tree.subscribe("a", 1, 7), Some(0));
    assert_eq!(found(&tree, "a"), [(0, 0), (1, 7), (2, 0)]);
    assert_eq!(tree.len(), 3);
}

#[test]
fn groups_come_after_all_others_in_the_order_in_which_they_began() {
    let tree = tree_of(&["$share/z/a", "$share/b/a", "$share/b/#", "#", "a"]);
    assert_eq!(keys(&tree, "a"), [4, 3, 0, 1, 2]);
}

#[test]
fn the_members_of_a_group_take_turns_over_all_clones_of_the_tree() {
    let mut tree = tree_of(&["$share/g/a", "$share/g/a", "$share/g/a"]);
    assert_eq!(found(&tree, "a"), [(0, 0)]);
    let clone = tree.clone();
    assert_eq!(found(&clone, "a"), [(1, 0)]);
    assert_eq!(tree.subscribe("$share/g/a", 3, 9), None);
    assert_eq!(keys(&tree, "a"), [2]);
    assert_eq!(found(&tree, "a"), [(3, 9)]);
}

#[test]
fn all_members_of_a_group_are_offered_once_in_the_order_of_subscription() {
    let tree = tree_of(&["$share/g/a"; 300]);
    let mut offered = Vec::new();
    tree.matches("a", &mut |one| {
        if let Match::Group(group) = one {
            offered.extend(group.members().map(|(key, _)| *key));
        }
    });
    assert_eq!(offered, (0..300).collect::<Vec<_>>());
}

#[test]
fn groups_of_the_same_name_on_two_filters_are_two() {
    let tree = tree_of(&["$share/g/a", "$share/g/+"]);
    assert_eq!(keys(&tree, "a"), [0, 1]);
}

#[test]
fn a_group_without_members_is_gone() {
    let mut tree = tree_of(&["$share/g/a", "$share/h/a"]);
    assert_eq!(tree.unsubscribe("$share/g/a", &1), None);
    assert_eq!(tree.unsubscribe("$share/g/a", &0), Some(0));
    assert_eq!((keys(&tree, "a"), tree.len()), (vec![1], 1));
    assert_eq!(tree.unsubscribe("$share/h/a", &1), Some(0));
    assert!(tree.is_empty() && keys(&tree, "a").is_empty());
}

#[test]
fn a_wildcard_in_front_does_not_match_a_dollar_topic() {
    let tree = tree_of(&[
        "#",
        "+/a",
        "+/#",
        "$SYS/#",
        "$SYS/+",
        "$share/g/#",
        "$share/g/$SYS/a",
    ]);
    assert_eq!(keys(&tree, "$SYS/a"), [4, 3, 6]);
    assert_eq!(keys(&tree, "a/$b"), [2, 0, 5]);
}

#[test]
fn empty_levels_count() {
    let tree = tree_of(&["/", "+", "+/+", "/+", "a/", "a//#"]);
    assert_eq!(keys(&tree, "/"), [0, 3, 2]);
    assert_eq!(keys(&tree, "a/"), [4, 5, 2]);
    assert_eq!(keys(&tree, "a"), [1]);
}

#[test]
fn a_filter_that_is_not_valid_is_not_kept() {
    let deep = vec!["+"; 32_768].join("/");
    let mut tree = Tree::new();
    for filter in ["", "a#", "#/a", "$share/g", &deep] {
        assert_eq!(tree.subscribe(filter, 1, 1), None);
        assert_eq!(tree.unsubscribe(filter, &1), None);
    }
    assert!(tree.is_empty());
}

/// The least stack of a broker's thread.
const STACK: usize = 256 * 1024;

#[test]
fn the_deepest_filters_and_topics_fit_a_small_stack() {
    let walk = || {
        let mut tree = Tree::new();
        let deepest: Vec<&str> = vec!["+"; MAX_LEVELS];
        tree.subscribe(&deepest.join("/"), 1, 1);
        tree.subscribe(&vec!["a"; MAX_LEVELS].join("/"), 2, 1);
        tree.subscribe("#", 3, 1);
        assert_eq!(keys(&tree, &vec!["a"; MAX_LEVELS].join("/")), [2, 1, 3]);
        assert_eq!(keys(&tree, &vec!["a"; 32_768].join("/")), [3]);
        let clone = tree.clone();
        assert_eq!(tree.unsubscribe(&deepest.join("/"), &1), Some(1));
        drop(tree);
        assert_eq!(clone.len(), 3);
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(walk);
    assert!(thread.is_ok_and(|walk| walk.join().is_ok()));
}

fn level() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "", "$s", "c"])
}

fn topic() -> impl Strategy<Value = String> {
    prop::collection::vec(level(), 1..5)
        .prop_map(|levels| levels.join("/"))
        .prop_filter("not empty", |topic| !topic.is_empty())
}

fn filter() -> impl Strategy<Value = String> {
    let level = prop_oneof![3 => level(), 2 => Just("+")];
    (prop::collection::vec(level, 0..5), any::<bool>())
        .prop_map(|(mut levels, all)| {
            levels.extend(all.then_some("#"));
            levels.join("/")
        })
        .prop_filter("not empty", |filter| !filter.is_empty())
}

fn change() -> impl Strategy<Value = (bool, Option<&'static str>, String, u32)> {
    let group = prop::option::weighted(0.2, prop::sample::select(vec!["g", "h"]));
    (prop::bool::weighted(0.6), group, filter(), 0..30u32)
}

/// The receivers of a message: single subscriptions, and the members of each group.
type Told = (Vec<(u32, u32)>, Vec<Vec<(u32, u32)>>);

/// A simple model of the tree.
#[derive(Clone, Default)]
struct Naive(Vec<(Option<&'static str>, String, u32, u32)>);

impl Naive {
    fn change(
        &mut self,
        group: Option<&'static str>,
        filter: &str,
        key: u32,
        value: Option<u32>,
    ) -> Option<u32> {
        let at = self
            .0
            .iter()
            .position(|one| (one.0, &*one.1, one.2) == (group, filter, key));
        match (at, value) {
            (Some(at), Some(value)) => Some(std::mem::replace(&mut self.0[at].3, value)),
            (Some(at), None) => Some(self.0.remove(at).3),
            (None, Some(value)) => {
                self.0.push((group, filter.to_owned(), key, value));
                None
            }
            (None, None) => None,
        }
    }

    /// The matching subscriptions in the specified order: filters are compared by levels, the end
    /// before a name before `+` before `#`. Groups are returned separately, without order.
    fn matches(&self, topic: &str) -> Told {
        let rank = |filter: &str| -> Vec<u8> {
            filter
                .split('/')
                .map(|one| match one {
                    "#" => 3,
                    "+" => 2,
                    _ => 1,
                })
                .collect()
        };
        let all: Vec<_> = self
            .0
            .iter()
            .filter(|one| common::matches(&one.1, topic))
            .collect();
        let mut ones: Vec<_> = all.iter().filter(|one| one.0.is_none()).collect();
        ones.sort_by_key(|one| rank(&one.1));
        let ones = ones.iter().map(|one| (one.2, one.3)).collect();
        let mut groups: std::collections::BTreeMap<_, Vec<_>> = Default::default();
        for one in all.iter().filter(|one| one.0.is_some()) {
            groups
                .entry((one.0, &one.1))
                .or_default()
                .push((one.2, one.3));
        }
        let mut groups: Vec<Vec<_>> = groups.into_values().collect();
        groups
            .iter_mut()
            .for_each(|members| members.sort_unstable());
        groups.sort();
        (ones, groups)
    }
}

fn told(tree: &Tree<u32, u32>, topic: &str) -> Told {
    let (mut ones, mut groups) = (Vec::new(), Vec::new());
    tree.matches(topic, &mut |one| match one {
        Match::One(key, value) => ones.push((*key, *value)),
        Match::Group(group) => {
            let mut members: Vec<_> = group.members().map(|(key, value)| (*key, *value)).collect();
            members.sort_unstable();
            groups.push(members);
        }
    });
    groups.sort();
    (ones, groups)
}

proptest! {
    #[test]
    fn a_tree_tells_what_the_standard_says_and_clones_stay_as_they_were(
        changes in prop::collection::vec(change(), 1..200),
        topics in prop::collection::vec(topic(), 1..20),
    ) {
        let (mut tree, mut naive) = (Tree::new(), Naive::default());
        let mut clones = Vec::new();
        for (number, (subscribes, group, filter, key)) in (0..).zip(changes) {
            let full = group.map_or(filter.clone(), |name| format!("$share/{name}/{filter}"));
            let earlier = naive.change(group, &filter, key, subscribes.then_some(number));
            prop_assert_eq!(earlier, if subscribes {
                tree.subscribe(&full, key, number)
            } else {
                tree.unsubscribe(&full, &key)
            });
            if number % 40 == 0 {
                clones.push((tree.clone(), naive.clone()));
            }
        }
        clones.push((tree, naive));
        for (tree, naive) in &clones {
            prop_assert_eq!(tree.len(), naive.0.len());
            for topic in &topics {
                let (ones, groups) = told(tree, topic);
                let (naive_ones, naive_groups) = naive.matches(topic);
                prop_assert_eq!(ones, naive_ones, "{}", topic);
                prop_assert_eq!(groups, naive_groups, "{}", topic);
            }
        }
    }
}
