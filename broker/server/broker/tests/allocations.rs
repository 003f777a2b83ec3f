//! In steady state a copy of QoS 0 allocates nothing.
//!
//! Counted are all calls of the allocator in this process: the broker's threads and this test's
//! clients, which allocate nothing meanwhile. A round is some messages and all their copies.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use mqtick_broker::program;

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: each call is handed on to the system's allocator as it came.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, SeqCst);
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, SeqCst);
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SUBSCRIBERS: usize = 100;
const WARM_UP: usize = 50; // rounds
const ROUNDS: usize = 100;

/// A packet of fewer than 128 octets.
fn packet(first: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&[first, body.len() as u8], &*body].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&[0, text.len() as u8], text.as_bytes()].concat()
}

fn publish(topic: &str, payload: &[u8]) -> Vec<u8> {
    packet(0x30, &[&text(topic), payload])
}

type Reads = Box<dyn FnMut(&mut [u8])>; // so many octets

/// Who hears: a socket, and how many octets each copy has there beyond the PUBLISH that was sent.
struct Hearer {
    socket: Reads,
    more: usize,
}

fn greet(mut write: impl FnMut(Vec<u8>), version: u8, id: &str, topic: Option<&str>) {
    let none: &[u8] = if version == 5 { &[0] } else { &[] };
    let name = text("MQTT");
    write(packet(0x10, &[&name, &[version, 2, 0, 0], none, &text(id)]));
    if let Some(topic) = topic {
        // In MQTT 5 with a subscription identifier, so that copies have properties of their own.
        let properties: &[u8] = if version == 5 { &[2, 0x0b, 7] } else { &[] };
        write(packet(0x82, &[&[0, 1], properties, &text(topic), &[0]]));
    }
}

fn connected(port: u16, version: u8, id: &str, topic: Option<&str>) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    greet(
        |octets| socket.write_all(&octets).unwrap(),
        version,
        id,
        topic,
    );
    for _ in 0..1 + usize::from(topic.is_some()) {
        let mut head = [0; 2];
        socket.read_exact(&mut head).unwrap();
        socket.read_exact(&mut vec![0; head[1].into()]).unwrap();
    }
    socket
}

fn over_tcp(port: u16, version: u8, id: &str, topic: &str) -> Hearer {
    let mut socket = connected(port, version, id, Some(topic));
    Hearer {
        socket: Box::new(move |octets| socket.read_exact(octets).unwrap()),
        more: if version == 5 { 3 } else { 0 }, // properties: length, identifier
    }
}

fn over_websocket(port: u16, id: &str, topic: &str) -> Hearer {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let request = "GET /mqtt HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\n\
                   Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut one = [0];
        socket.read_exact(&mut one).unwrap();
        answer.push(one[0]);
    }
    let frame =
        |octets: Vec<u8>| [&[0x82, 0x80 | octets.len() as u8, 0, 0, 0, 0], &*octets].concat();
    greet(
        |octets| socket.write_all(&frame(octets)).unwrap(),
        4,
        id,
        Some(topic),
    );
    let mut answers = 0;
    while answers < 4 + 5 {
        let mut head = [0; 2];
        socket.read_exact(&mut head).unwrap();
        socket.read_exact(&mut vec![0; head[1].into()]).unwrap();
        answers += head[1];
    }
    Hearer {
        socket: Box::new(move |octets| socket.read_exact(octets).unwrap()),
        more: 2, // the frame's header
    }
}

fn over_udp(port: u16, topic: &str) -> Hearer {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    let mut room = [0; 2048];
    let subscribe = packet(0x82, &[&[0, 1], &text(topic), &[0]]);
    socket.send(&subscribe).unwrap();
    let length = socket.recv(&mut room).unwrap();
    socket.send(&room[..length]).unwrap(); // the proof of the address
    socket.send(&subscribe).unwrap();
    assert_eq!((socket.recv(&mut room).unwrap(), room[0]), (5, 0x90));
    Hearer {
        socket: Box::new(move |octets| assert_eq!(socket.recv(octets).unwrap(), octets.len())),
        more: 0,
    }
}

/// Calls of the allocator in each round, sorted; `burst`: messages in a round, written at once.
fn rounds(port: u16, topic: &str, burst: usize, hearers: &mut [Hearer]) -> Vec<usize> {
    let mut sender = connected(port, 4, "sender", None);
    let message = publish(topic, &[&[0x20], &[0; 31][..]].concat());
    let messages = message.repeat(burst);
    let mut room = vec![0; 2 * messages.len()];
    let mut counts = Vec::with_capacity(WARM_UP + ROUNDS);
    for _ in 0..WARM_UP + ROUNDS {
        let before = CALLS.load(SeqCst);
        sender.write_all(&messages).unwrap();
        for hearer in &mut *hearers {
            (hearer.socket)(&mut room[..(message.len() + hearer.more) * burst]);
        }
        counts.push(CALLS.load(SeqCst) - before);
    }
    counts.drain(..WARM_UP);
    counts.sort_unstable();
    counts
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

#[test]
fn a_copy_of_qos_0_allocates_nothing() {
    let (port, websocket) = (free_port(), free_port());
    let settings = format!(
        "threads = 2\n\
         [[listener]]\naddress = \"127.0.0.1:{port}\"\n\
         [[listener]]\naddress = \"127.0.0.1:{websocket}\"\ntransport = \"websocket\"\n\
         [udp]\naddress = \"127.0.0.1:{port}\"\nsubnets = [\"127.0.0.0/8\"]\n\
         [[delivery.topic]]\nfilter = \"ordered/#\"\nmode = \"ordered\"\n\
         [[delivery.topic]]\nfilter = \"alternating/#\"\nmode = \"alternating\"\n\
         [[delivery.topic]]\nfilter = \"parallel/#\"\nmode = \"parallel\"\n\
         [[delivery.topic]]\nfilter = \"residence/#\"\nmode = \"ordered\"\nresidence = true\n"
    );
    std::thread::spawn(move || program::run(settings.parse().unwrap()).unwrap());
    while [port, websocket]
        .iter()
        .any(|port| TcpStream::connect(("127.0.0.1", *port)).is_err())
    {
        std::thread::yield_now();
    }
    type Open = fn(u16, &str, &str) -> Hearer;
    let plain: Open = |port, id, topic| over_tcp(port, 4, id, topic);
    let mqtt_5: Open = |port, id, topic| over_tcp(port, 5, id, topic);
    let udp: Open = |port, _, topic| over_udp(port, topic);
    let none = 0;
    let some = SUBSCRIBERS - 1; // a message's, or a system call's: none is a copy's
    for (topic, burst, port_there, open, most) in [
        ("alone", 1, port, plain, none),
        ("together", 4, port, plain, none),
        ("with/identifier", 1, port, mqtt_5, none),
        ("ordered/a", 1, port, plain, none),
        ("alternating/a", 1, port, plain, none),
        ("residence/a", 1, port, plain, none),
        ("in/frames", 1, websocket, over_websocket as Open, none),
        ("parallel/a", 1, port, plain, some),
        ("over/udp", 1, port, udp, some),
        ("residence/udp", 1, port, udp, some),
    ] {
        let open = |number| open(port_there, &format!("{topic} {number}"), topic);
        let mut hearers: Vec<_> = (0..SUBSCRIBERS).map(open).collect();
        let counts = rounds(port, topic, burst, &mut hearers);
        let usual = counts[ROUNDS * 3 / 4]; // in others the broker did what it does each second
        println!("{topic}: {usual} calls in a round, {SUBSCRIBERS} copies of {burst} messages");
        assert!(usual <= most, "{topic}: {counts:?}");
    }
}
