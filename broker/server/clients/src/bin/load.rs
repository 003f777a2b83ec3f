//! A load generator with the library rumqttc, for `bench/load.py`. `load PORT SECONDS OCTETS
//! WINDOW` prints how many messages came back, and in how many seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rumqttc::{Client, Event, Incoming, MqttOptions, QoS};

fn main() {
    let mut given = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse::<u64>().ok());
    let mut next = || given.next().unwrap_or_default();
    let (port, seconds, octets, window) = (next() as u16, next(), next(), next());
    let client = |name: &str| {
        let mut options = MqttOptions::new(name, "127.0.0.1", port);
        options.set_keep_alive(Duration::from_secs(60));
        Client::new(options, 10_000)
    };
    let came = Arc::new(AtomicU64::new(0));
    let ready = Arc::new(AtomicBool::new(false));
    let (subscriber, mut connection) = client("rumqttc-sub");
    if subscriber
        .subscribe("load/rumqttc", QoS::AtMostOnce)
        .is_err()
    {
        return;
    }
    let (counter, subscribed) = (Arc::clone(&came), Arc::clone(&ready));
    thread::spawn(move || {
        for event in connection.iter().map_while(Result::ok) {
            match event {
                Event::Incoming(Incoming::SubAck(_)) => subscribed.store(true, Ordering::Release),
                Event::Incoming(Incoming::Publish(_)) => {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    });
    let (publisher, mut connection) = client("rumqttc-pub");
    thread::spawn(move || for _ in connection.iter().map_while(Result::ok) {});
    while !ready.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(1));
    }
    let payload = vec![b'.'; octets as usize];
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        if sent >= came.load(Ordering::Relaxed) + window {
            thread::sleep(Duration::from_micros(50));
            continue;
        }
        let message = payload.clone();
        if publisher
            .publish("load/rumqttc", QoS::AtMostOnce, false, message)
            .is_err()
        {
            break;
        }
        sent += 1;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{} {seconds}", came.load(Ordering::Relaxed));
}
