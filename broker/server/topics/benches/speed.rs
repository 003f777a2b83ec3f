//! Measures the time of matches, iterations and changes: `cargo bench -p mqtick-topics`.

use std::hint::black_box;
use std::time::Instant;

use mqtick_topics::{Match, Retained, Tree};

/// Print the median and the least time of a call of `work`, in nanoseconds over `per`.
fn measure(what: &str, per: usize, mut work: impl FnMut(usize)) {
    let mut calls = 1;
    let mut number = 0;
    let mut run = |calls: usize| {
        let start = Instant::now();
        for _ in 0..calls {
            work(number);
            number += 1;
        }
        start.elapsed().as_secs_f64() * 1e9
    };
    while run(calls) < 2e6 {
        calls *= 2;
    }
    let mut times: Vec<f64> = (0..21).map(|_| run(calls) / (calls * per) as f64).collect();
    times.sort_by(f64::total_cmp);
    println!("{what:60} {:10.2} {:10.2}", times[10], times[0]);
}

fn topic(number: usize) -> String {
    format!("site/{}/sensor/{}/temperature", number % 100, number)
}

fn main() {
    println!("{:60} {:>10} {:>10}", "nanoseconds", "median", "least");
    for subscribers in [1, 100, 600, 64_000] {
        let mut tree = Tree::new();
        for key in 0..subscribers {
            tree.subscribe("a/b", key, key as u64);
        }
        measure(
            &format!("a subscriber of {subscribers}"),
            subscribers,
            |_| {
                let mut sum = 0;
                tree.matches("a/b", &mut |one| {
                    if let Match::One(key, value) = one {
                        sum += *key as u64 + value;
                    }
                });
                black_box(sum);
            },
        );
        measure(
            &format!("a change to a filter of {subscribers}, shared"),
            2,
            |number| {
                let reader = tree.clone();
                let key = number * 7919 % subscribers;
                let value = tree.unsubscribe("a/b", &key);
                tree.subscribe("a/b", key, value.unwrap_or_default());
                drop(reader);
            },
        );
    }
    for filters in [1, 1000, 10_000, 1_000_000] {
        let mut tree = Tree::new();
        let mut retained = Retained::new();
        for key in 0..filters {
            tree.subscribe(&topic(key), key, 0);
            retained.set(&topic(key), key);
        }
        let topics: Vec<String> = (0..4096).map(|one| topic(one * 7919 % filters)).collect();
        measure(
            &format!("a match of one of {filters} filters"),
            1,
            |number| {
                tree.matches(&topics[number % 4096], &mut |one| {
                    black_box(matches!(one, Match::One(..)));
                });
            },
        );
        measure(
            "the same with `#`, `+/#` and `site/+/sensor/+/+`",
            1,
            |number| {
                if number == 0 {
                    for filter in ["#", "+/#", "site/+/sensor/+/+"] {
                        tree.subscribe(filter, 0, 0);
                    }
                }
                tree.matches(&topics[number % 4096], &mut |one| {
                    black_box(matches!(one, Match::One(..)));
                });
            },
        );
        measure(&format!("a match of none of {filters} filters"), 1, |_| {
            tree.matches(black_box("site/x/sensor"), &mut |_| ());
        });
        measure(
            &format!("retained: one of {filters} replaced"),
            1,
            |number| {
                black_box(retained.set(&topics[number % 4096], number));
            },
        );
        measure(
            &format!("retained: `site/+/sensor/7/#` of {filters}"),
            1,
            |_| {
                retained.matching("site/+/sensor/7/#", &mut |topic, _| {
                    black_box(topic);
                });
            },
        );
        measure(
            &format!("retained: `#`, each of {filters}"),
            filters,
            |_| {
                retained.matching("#", &mut |topic, _| {
                    black_box(topic);
                });
            },
        );
    }
}
