//! A small broker in a thread, faithful or not; and what the program says of it.

pub mod file;
pub mod sensor;

use mqtick_packet::{
    AckKind, ConnackProperties, MAXIMUM_LENGTH, Outgoing, Packet, Qos, Version, ack, connack,
    decode, frame, publish, suback,
};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Output;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a broker does that it should not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trick {
    /// Nothing.
    None,
    /// Answers CONNECT with this reason.
    Refuse(u8),
    /// Closes when CONNECT comes.
    Close,
    /// Says nothing.
    Silence,
    /// Answers CONNECT with octets that are no MQTT.
    Garbage,
    /// Answers CONNECT with a packet that never ends, an octet at a time.
    Dribble,
    /// Grants no subscription.
    NoSubscription,
    /// The last subscriber does not get each tenth message.
    Lose,
    /// The last subscriber gets each tenth message twice.
    Twice,
    /// The last subscriber gets each tenth message after the next.
    Late,
    /// Each other message goes to the subscribers in the opposite order.
    Alternate,
    /// Subscribers get an expiry, which nobody sent, in octets cut in two.
    Properties,
    /// Delivers one message that nobody has sent.
    Invent,
    /// Sends what is no MQTT after some messages.
    LateGarbage,
    /// Closes after some messages.
    LateClose,
    /// Stops for 0.6 s once.
    Pause,
    /// Refuses each QoS 1 message.
    Quota,
    /// Acknowledges no QoS 1 message.
    Deaf,
    /// Has a message that was retained before, and sends it with the SUBACK.
    Retained,
    /// Delivers nothing.
    Swallow,
    /// Takes little at a time, and delivers the first message 0.3 s after it came, with the second.
    Hold,
    /// Delivers the first message again with the 25th.
    Again,
}

/// Messages after which something happens "after some messages".
pub const SOME: u64 = 60;

pub struct Peer {
    pub address: SocketAddr,
    /// Hears the number of each message, from 0.
    pub messages: Receiver<u64>,
    /// Names of all clients, and whether each wanted a clean session.
    pub clients: Arc<Mutex<Vec<(String, bool)>>>,
}

struct Shared {
    trick: Trick,
    subscribers: Mutex<Vec<(String, Version, TcpStream)>>,
    messages: Sender<u64>,
    late: Mutex<Vec<u8>>,
    clients: Arc<Mutex<Vec<(String, bool)>>>,
}

pub fn start(trick: Trick) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    if trick == Trick::Hold {
        nix::sys::socket::setsockopt(&listener, nix::sys::socket::sockopt::RcvBuf, &4096).unwrap();
    }
    let address = listener.local_addr().unwrap();
    let (sender, messages) = channel();
    let clients = Arc::default();
    let shared = Arc::new(Shared {
        clients: Arc::clone(&clients),
        trick,
        subscribers: Mutex::default(),
        messages: sender,
        late: Mutex::default(),
    });
    thread::spawn(move || {
        for stream in listener.incoming() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.guest(stream.unwrap()));
        }
    });
    Peer {
        address,
        messages,
        clients,
    }
}

impl Shared {
    fn guest(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut version = Version::V3;
        let (mut held, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        let mut count = 0;
        loop {
            let mut used = 0;
            while let Some(found) = frame(&held[used..], MAXIMUM_LENGTH).ok()? {
                let mut answer = Vec::new();
                match decode(&found, version).ok()? {
                    Packet::Connect(one) => {
                        version = one.version;
                        let client = (one.client_id.to_owned(), one.clean_start);
                        self.clients.lock().unwrap().push(client);
                        let none = ConnackProperties::default();
                        match self.trick {
                            Trick::Close => return None,
                            Trick::Silence => {}
                            Trick::Dribble => {
                                stream.write_all(&[0x20, 0xff, 0x7f]).ok()?;
                                loop {
                                    thread::sleep(Duration::from_millis(20));
                                    stream.write_all(&[0]).ok()?;
                                }
                            }
                            Trick::Garbage => answer.extend([0x20, 0xff, 0xff, 0xff, 0xff]),
                            Trick::Refuse(reason) => {
                                connack(&mut answer, version, false, reason, &none)
                            }
                            _ => connack(&mut answer, version, false, 0, &none),
                        }
                    }
                    Packet::Subscribe(one) => {
                        let filter = one.filters().next()?;
                        let denied = self.trick == Trick::NoSubscription;
                        let code = if denied { 0x87 } else { filter.qos as u8 };
                        let mut all = self.subscribers.lock().unwrap();
                        all.push((filter.filter.to_owned(), version, stream.try_clone().ok()?));
                        suback(&mut answer, version, one.id, &[code]);
                        if self.trick == Trick::Retained {
                            let message = Outgoing {
                                topic: filter.filter,
                                retain: true,
                                payload: b"kept",
                                ..Outgoing::default()
                            };
                            publish(&mut answer, version, &message);
                        }
                    }
                    Packet::Publish(one) => {
                        if one.qos == Qos::AtLeastOnce && self.trick != Trick::Deaf {
                            let reason = if self.trick == Trick::Quota { 0x97 } else { 0 };
                            ack(&mut answer, version, AckKind::Puback, one.id, reason);
                        }
                        let octets = &held[used..used + found.length];
                        self.deliver(count, octets, one.topic, one.payload, one.qos)?;
                        let _ = self.messages.send(count);
                        count += 1;
                    }
                    _ => {}
                }
                stream.write_all(&answer).ok()?;
                used += found.length;
            }
            held.drain(..used);
            match stream.read(&mut piece).ok()? {
                0 => return None,
                count => held.extend(&piece[..count]),
            }
        }
    }

    fn deliver(
        &self,
        count: u64,
        octets: &[u8],
        topic: &str,
        payload: &[u8],
        qos: Qos,
    ) -> Option<()> {
        let subscribers = self.subscribers.lock().unwrap();
        let mut group: Vec<_> = subscribers
            .iter()
            .filter(|(filter, ..)| filter == topic)
            .collect();
        let tenth = count % 10 == 9;
        match self.trick {
            Trick::Alternate if count % 2 == 1 => group.reverse(),
            Trick::Pause if count == 20 => thread::sleep(Duration::from_millis(600)),
            Trick::Swallow => return Some(()),
            Trick::Hold if count == 0 => {
                thread::sleep(Duration::from_millis(300));
                *self.late.lock().unwrap() = octets.to_vec();
                return Some(());
            }
            Trick::Again if count == 0 => *self.late.lock().unwrap() = octets.to_vec(),
            Trick::LateClose if count == SOME => return None,
            _ => {}
        }
        let last = group.len().saturating_sub(1);
        for (place, (_, version, stream)) in group.into_iter().enumerate() {
            let mut stream = stream;
            let mut again = |octets: &[u8]| stream.write_all(octets);
            let mut other = Vec::new();
            match self.trick {
                Trick::Lose if tenth && place == last => {}
                Trick::Twice if tenth && place == last => again(&octets.repeat(2)).ok()?,
                Trick::Late if place == last && tenth => {
                    *self.late.lock().unwrap() = octets.to_vec();
                }
                Trick::Late if place == last => {
                    again(octets).ok()?;
                    again(&std::mem::take(&mut *self.late.lock().unwrap())).ok()?;
                }
                Trick::Hold => {
                    again(&std::mem::take(&mut *self.late.lock().unwrap())).ok()?;
                    again(octets).ok()?;
                }
                Trick::Again if count == 24 => {
                    again(octets).ok()?;
                    again(&std::mem::take(&mut *self.late.lock().unwrap())).ok()?;
                }
                Trick::Properties => {
                    let expiry = Some(9);
                    let message = Outgoing {
                        qos,
                        topic,
                        id: 5,
                        payload,
                        expiry,
                        ..Outgoing::default()
                    };
                    publish(&mut other, *version, &message);
                    let (front, back) = other.split_at(3);
                    again(front).ok()?;
                    again(back).ok()?;
                }
                Trick::Invent if count == SOME => {
                    let message = Outgoing {
                        qos,
                        topic,
                        id: 5,
                        payload: b"hello",
                        ..Outgoing::default()
                    };
                    publish(&mut other, *version, &message);
                    again(&other).ok()?;
                }
                Trick::LateGarbage if count == SOME => {
                    again(&[0xf0, 0xff, 0xff, 0xff, 0xff, 1]).ok()?
                }
                _ => again(octets).ok()?,
            }
        }
        Some(())
    }
}

/// The result that was printed.
pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {said}")
    })
}

/// The values of a row: one a repeat.
pub fn row(result: &Value, key: &str, who: Option<&str>) -> Vec<f64> {
    let rows = result["rows"].as_array().unwrap();
    let is_it = |row: &&Value| row["key"] == key && who.is_none_or(|who| row["who"] == who);
    let found = rows.iter().find(is_it);
    numbers(&found.unwrap_or_else(|| panic!("no {key} of {who:?} in {result}"))["repeats"])
}

/// The numbers of a list.
fn numbers(list: &Value) -> Vec<f64> {
    let all = list.as_array().unwrap().iter();
    all.map(|one| one.as_f64().unwrap()).collect()
}
