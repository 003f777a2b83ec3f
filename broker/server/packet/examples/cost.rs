//! Prints the time to decode, to encode, and to do both for a PUBLISH of 64 octets at QoS 0, in
//! comparison with mqtt-protocol-core. `cargo run --release -p mqtick-packet --example cost`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::hint::black_box;
use std::time::Instant;

use mqtick_packet::{MAXIMUM_LENGTH, Outgoing, Packet, Publish, Version, decode, frame, publish};
use mqtt_protocol_core::mqtt::common::Arc;
use mqtt_protocol_core::mqtt::packet::{DecodeResult, VariableByteInteger, v3_1_1, v5_0};

const ROUNDS: u32 = 2_000;
const REPEATS: usize = 1_000;

/// The nanoseconds of one call: the minimum of many repeats, as disturbances only add time.
fn cost(mut what: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| what());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
    };
    (0..REPEATS).map(once).fold(f64::INFINITY, f64::min)
}

#[inline]
fn decoded(octets: &[u8], version: Version) -> Publish<'_> {
    let frame = frame(octets, MAXIMUM_LENGTH).unwrap().unwrap();
    let Packet::Publish(message) = decode(&frame, version).unwrap() else {
        panic!()
    };
    message
}

#[inline]
fn outgoing<'a>(message: &Publish<'a>, forwarded: &'a [u8]) -> Outgoing<'a> {
    Outgoing {
        topic: message.topic,
        forwarded,
        payload: message.payload,
        ..Default::default()
    }
}

fn ours(octets: &[u8], version: Version) -> [f64; 3] {
    let (mut out, mut forwarded) = (Vec::with_capacity(4096), Vec::new());
    let known = decoded(octets, version);
    let known = outgoing(&known, &[]);
    [
        cost(|| {
            black_box(decoded(black_box(octets), version));
        }),
        cost(|| {
            out.clear();
            publish(&mut out, version, black_box(&known));
            black_box(&out);
        }),
        cost(|| {
            let message = decoded(black_box(octets), version);
            forwarded.clear();
            message.properties.forwarded(&mut forwarded);
            out.clear();
            publish(&mut out, version, &outgoing(&message, &forwarded));
            black_box(&out);
        }),
    ]
}

/// The body for the other parser, which needs it shared, so copied out of the read buffer.
fn body(octets: &[u8]) -> Arc<[u8]> {
    let DecodeResult::Ok(_, used) = VariableByteInteger::decode_stream(&octets[1..]) else {
        panic!()
    };
    Arc::from(&octets[1 + used..])
}

macro_rules! theirs {
    ($octets:expr, $type:ty) => {{
        let octets: &[u8] = $octets;
        let decoded = |octets: &[u8]| <$type>::parse(octets[0], body(octets)).unwrap().0;
        let known = decoded(octets);
        [
            cost(|| drop(black_box(decoded(black_box(octets))))),
            cost(|| drop(black_box(black_box(&known).to_continuous_buffer()))),
            cost(|| drop(black_box(decoded(black_box(octets)).to_continuous_buffer()))),
        ]
    }};
}

fn main() {
    let with = |property: &[u8]| {
        let head = [
            &[0, 12][..],
            b"time/fast/01",
            &[property.len() as u8],
            property,
        ];
        let octets = [&head.concat()[..], &[b'x'; 64]].concat();
        [&[0x30, octets.len() as u8][..], &octets].concat()
    };
    let plain = with(&[]);
    let user = with(b"\x26\x00\x04name\x00\x05value");
    let mut v3 = plain.clone();
    v3.remove(2 + 14);
    v3[1] -= 1;
    let row = |what: &str, [decode, encode, both]: [f64; 3]| {
        println!("{what:<44} {decode:>8.1} {encode:>8.1} {both:>8.1}");
    };
    println!(
        "{:<44} {:>8} {:>8} {:>8}",
        "ns, least of 1,000 repeats", "decode", "encode", "both"
    );
    row("3.1.1, mqtick-packet", ours(&v3, Version::V3));
    row("3.1.1, mqtt-protocol-core", theirs!(&v3, v3_1_1::Publish));
    row("5, mqtick-packet", ours(&plain, Version::V5));
    row("5, mqtt-protocol-core", theirs!(&plain, v5_0::Publish));
    row(
        "5 with a user property, mqtick-packet",
        ours(&user, Version::V5),
    );
    row(
        "5 with a user property, mqtt-protocol-core",
        theirs!(&user, v5_0::Publish),
    );
}
