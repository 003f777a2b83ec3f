//! A broker of MQTT-SN, as far as a load needs one: ids of its own for each client, and a REGISTER
//! before a subscriber's first message.

use mqtick_sn::{Code, Message, Qos, Topic, decode, encode};
use std::net::{SocketAddr, UdpSocket};
use std::thread;

/// Start it; where it listens. It leaves out each tenth copy if it is to lose some.
pub fn start_sensor_broker(loses: bool) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || serve(&socket, loses));
    address
}

struct Subscriber {
    at: SocketAddr,
    id: u16,
    knows: bool,
}

fn serve(socket: &UdpSocket, loses: bool) {
    let mut subscribers: Vec<Subscriber> = Vec::new();
    let mut piece = [0; 2048];
    let mut copies = 0;
    loop {
        let (count, from) = socket.recv_from(&mut piece).unwrap();
        let (message, _) = decode(&piece[..count]).unwrap();
        let say = |message: &Message<'_>, to: SocketAddr| {
            let mut octets = Vec::new();
            assert!(encode(message, &mut octets));
            socket.send_to(&octets, to).unwrap();
        };
        match message {
            Message::Connect { .. } => say(&Message::Connack(Code::ACCEPTED), from),
            Message::Subscribe { message_id, .. } => {
                let id = 100 + subscribers.len() as u16;
                subscribers.push(Subscriber {
                    at: from,
                    id,
                    knows: false,
                });
                let answer = Message::Suback {
                    qos: Qos::AtMostOnce,
                    topic_id: id,
                    message_id,
                    code: Code::ACCEPTED,
                };
                say(&answer, from);
            }
            Message::Register { message_id, .. } => {
                let answer = Message::Regack {
                    topic_id: 7,
                    message_id,
                    code: Code::ACCEPTED,
                };
                say(&answer, from);
            }
            Message::Regack { topic_id, code, .. } => {
                assert_eq!(code, Code::ACCEPTED);
                assert!(subscribers.iter().any(|one| one.id == topic_id));
            }
            Message::Publish { topic, data, .. } => {
                assert_eq!(topic, Topic::Registered(7));
                for one in &mut subscribers {
                    if !one.knows {
                        let name = "any";
                        let (topic_id, message_id) = (one.id, 1);
                        let ask = Message::Register {
                            topic_id,
                            message_id,
                            name,
                        };
                        say(&ask, one.at);
                        one.knows = true;
                    }
                    copies += 1;
                    if loses && copies % 10 == 0 {
                        continue;
                    }
                    let copy = Message::Publish {
                        dup: false,
                        qos: Qos::AtMostOnce,
                        retain: false,
                        topic: Topic::Registered(one.id),
                        message_id: 0,
                        data,
                    };
                    say(&copy, one.at);
                }
            }
            _ => {}
        }
    }
}
