//! Tests how the broker's threads exchange data, in every order that two preemptions can cause:
//! `make test-broker-loom`. The code is the broker's; the locks and the kernel are models.
#![cfg(test)]
#![allow(dead_code, clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../../broker/src/calls.rs"]
mod calls;
mod kernel;
#[path = "../../broker/src/link.rs"]
mod link;
#[path = "../../broker/src/memory.rs"]
mod memory;

use calls::Calls;
use kernel::{Event, Kernel, poller::Poller, socket::Socket};
use link::{Link, Place};
use loom::sync::{Arc, Mutex};
use loom::thread;
use net::residence;
use net::transport::{self, Transport};

extern crate self as mqtick_net;

/// Replaces the broker's module: nothing here waits for a disk.
mod journal {
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Span {
        pub last: u64,
    }
}
mod poller {
    pub use crate::kernel::poller::Poller;
}
mod socket {
    pub use crate::kernel::socket::Socket;
}
mod sync {
    pub use loom::sync::Mutex;
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// If a wake-up is lost, the worker sleeps for ever, which loom reports.
#[test]
fn a_worker_hears_every_call_in_its_callers_order() {
    explore(|| {
        let kernel = Arc::new(Kernel::new(0));
        let calls = Arc::new(Calls::new());
        for caller in 0..2 {
            let (kernel, calls) = (Arc::clone(&kernel), Arc::clone(&calls));
            thread::spawn(move || {
                for number in 0..2 {
                    calls.add((caller, number), || kernel.call());
                }
            });
        }
        let mut heard = [Vec::new(), Vec::new()];
        while heard.iter().map(Vec::len).sum::<usize>() < 4 {
            assert_eq!(kernel.wait(), Event::Called);
            for (caller, number) in calls.take(|| kernel.heard()) {
                heard[caller].push(number);
            }
        }
        assert_eq!(heard, [[0, 1], [0, 1]]);
    });
}

/// The client reads slowly, and the worker that owns the connection sends what is left. If an octet
/// is never sent, the client waits for ever, which loom reports.
#[test]
fn what_two_threads_write_to_one_client_arrives_whole_and_at_all() {
    explore(|| {
        let kernel = Arc::new(Kernel::new(2));
        let link = Link::new(
            Place {
                worker: 0,
                token: 7,
            },
            std::sync::Arc::new(Poller(Arc::clone(&kernel))),
            std::sync::Arc::new(Socket(Arc::clone(&kernel))),
            Transport::Plain,
        );
        let link = Arc::new(Mutex::new(link));
        let publisher = {
            let link = Arc::clone(&link);
            thread::spawn(move || link.lock().unwrap().write(b"abc"))
        };
        let worker = {
            let (kernel, link) = (Arc::clone(&kernel), Arc::clone(&link));
            thread::spawn(move || {
                // As for a client whose password is being checked, or that publishes too fast.
                link.lock().unwrap().pause(true);
                link.lock().unwrap().out().extend_from_slice(b"ABC");
                link.lock().unwrap().flush();
                link.lock().unwrap().pause(false);
                while kernel.wait() == Event::Room {
                    link.lock().unwrap().unblock();
                }
            })
        };
        let mut came = Vec::new();
        while came.len() < 6 {
            came.extend(kernel.receive());
        }
        assert!(came == b"abcABC" || came == b"ABCabc", "{came:?}");
        publisher.join().unwrap();
        kernel.call();
        worker.join().unwrap();
        assert_eq!(link.lock().unwrap().waiting(), 0);
    });
}
