//! The floor over UDP: each message goes to all its subscribers by one sendmmsg().
//!
//! It answers CONNECT and SUBSCRIBE, and does not check addresses.

use mqtick_packet::{
    ConnackProperties, MAXIMUM_LENGTH, Packet, Version, connack, decode, frame, suback,
};
use nix::poll::PollTimeout;
use nix::sys::socket::SockaddrStorage;
use std::collections::HashMap;
use std::io::IoSlice;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::thread;

use mqtick_net::datagrams::{is_writable, send_all};
use mqtick_net::failure::{Failure, Outcome};

/// Serves at an address (port 0: any); returns the port.
///
/// # Errors
/// Where the port is taken.
pub fn serve(at: SocketAddrV4) -> Outcome<u16> {
    let refused =
        |error: std::io::Error| Failure::Failed(format!("UDP {at} cannot be opened: {error}."));
    let socket = UdpSocket::bind(at).map_err(refused)?;
    let port = socket.local_addr().map_err(refused)?.port();
    thread::spawn(move || {
        let mut groups = HashMap::new();
        let mut piece = [0; 1 << 16];
        loop {
            if let Ok((count, from)) = socket.recv_from(&mut piece) {
                let octets = piece.get(..count).unwrap_or_default();
                answer(&socket, &mut groups, octets, from);
            }
        }
    });
    Ok(port)
}

type Groups = HashMap<String, Vec<SockaddrStorage>>;

/// Handles a datagram.
fn answer(socket: &UdpSocket, groups: &mut Groups, octets: &[u8], from: SocketAddr) -> Option<()> {
    let found = frame(octets, MAXIMUM_LENGTH).ok()??;
    let mut answer = Vec::new();
    match decode(&found, Version::V3).ok()? {
        Packet::Publish(one) => forward(socket, groups.get(one.topic)?, octets),
        Packet::Connect(_) => {
            let none = ConnackProperties::default();
            connack(&mut answer, Version::V3, false, 0, &none);
        }
        Packet::Subscribe(one) => {
            let filter = one.filters().next()?;
            let group = groups.entry(filter.filter.to_owned()).or_default();
            group.push(from.into());
            suback(&mut answer, Version::V3, one.id, &[filter.qos as u8]);
        }
        _ => return None,
    }
    if !answer.is_empty() {
        socket.send_to(&answer, from).ok()?;
    }
    Some(())
}

fn forward(socket: &UdpSocket, group: &[SockaddrStorage], octets: &[u8]) {
    let copy = [IoSlice::new(octets)];
    let copies = group.iter().map(|to| (to, copy.as_slice()));
    let has_room = || is_writable(socket, PollTimeout::NONE);
    send_all(socket, copies, has_room, |_, errno| {
        eprintln!("mqtick-load floor: {}", errno.desc());
    });
}
