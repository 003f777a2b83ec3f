//! The least that a node can add to a message: relays each connection to a port of this machine by
//! `epoll_wait`, `read` and `write`, and does not look at the octets.
//!
//!     bare_relay LISTEN_PORT BROKER_PORT

use mqtick_net::poller::Poller;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

const LISTENER: u64 = 1 << 62;

fn main() -> io::Result<()> {
    let ports: Vec<u16> = std::env::args()
        .skip(1)
        .filter_map(|port| port.parse().ok())
        .collect();
    let [own, broker] = *ports else {
        return Err(io::Error::other(
            "usage: bare_relay LISTEN_PORT BROKER_PORT",
        ));
    };
    let listener = TcpListener::bind(("127.0.0.1", own))?;
    let poller = Poller::new()?;
    poller.listen(&listener, LISTENER)?;
    let mut all: Vec<TcpStream> = Vec::new(); // in pairs: both ends of a relay
    let (mut events, mut room) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        poller.wait(&mut events, 1000);
        for (token, _) in events.drain(..) {
            if token == LISTENER {
                for stream in [
                    listener.accept()?.0,
                    TcpStream::connect(("127.0.0.1", broker))?,
                ] {
                    stream.set_nodelay(true)?;
                    poller.add(&stream, all.len() as u64)?;
                    all.push(stream);
                }
                continue;
            }
            let at = token as usize;
            let (Some(from), Some(to)) = (all.get(at), all.get(at ^ 1)) else {
                continue;
            };
            let (mut from, mut to) = (from, to);
            match from.read(&mut room) {
                Ok(count @ 1..) => to.write_all(room.get(..count).unwrap_or_default())?,
                _ => poller.forget(from), // it ended
            }
        }
    }
}
