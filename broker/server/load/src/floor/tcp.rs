//! The floor over TCP.
//!
//! It answers CONNECT and SUBSCRIBE. From a publisher's first message on it only forwards: what it
//! reads goes to each subscriber of that topic by one send(). Above QoS 0 it parses packets, too,
//! as it has to acknowledge them.

use mqtick_packet::{
    AckKind, ConnackProperties, MAXIMUM_LENGTH, Packet, Qos, Version, ack, connack, decode, frame,
    suback,
};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{MsgFlags, recv};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;

use mqtick_net::failure::{Failure, Outcome};
use mqtick_net::listener;

const LISTENER: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
const READ: usize = 1 << 18;

type Group = Arc<Vec<Arc<TcpStream>>>;

/// A part of a fan-out for another thread to send.
struct Share {
    octets: Vec<u8>,
    group: Group,
    from: usize,
    to: usize,
}

/// State shared by the threads.
struct House {
    groups: RwLock<HashMap<String, Group>>,
    desks: Vec<(EventFd, Mutex<VecDeque<Share>>)>,
}

/// The other end of a connection.
enum Role {
    /// Not known yet.
    Unknown(Version),
    /// Publishes to this group.
    Publisher(Version, Qos, Group),
    /// Only acknowledges.
    Subscriber,
}

struct Guest {
    stream: Arc<TcpStream>,
    rest: Vec<u8>,
    role: Role,
}

/// Serves at an address (port 0: any) with some threads; returns the port.
///
/// # Errors
/// Where the port is taken, or the kernel refuses a socket.
pub fn serve(at: SocketAddrV4, threads: usize) -> Outcome<u16> {
    let threads = threads.max(1);
    let refused = |error| Failure::Failed(format!("{at} cannot be listened on: {error}."));
    let listeners = listener::tcp(at.into(), threads).map_err(refused)?;
    let first = listeners.first().map(TcpListener::local_addr).transpose();
    let port = first.map_err(refused)?.map_or(0, |address| address.port());
    let mut desks = Vec::new();
    for _ in 0..threads {
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map_err(Failure::system("no event descriptor"))?;
        desks.push((bell, Mutex::new(VecDeque::new())));
    }
    let house = Arc::new(House {
        groups: RwLock::default(),
        desks,
    });
    for (number, listener) in listeners.into_iter().enumerate() {
        let house = Arc::clone(&house);
        thread::spawn(move || {
            if let Err(error) = work(&house, number, &listener) {
                eprintln!("mqtick-load floor: {error}");
                std::process::exit(1);
            }
        });
    }
    Ok(port)
}

fn work(house: &House, number: usize, listener: &TcpListener) -> Outcome<()> {
    let no_poll = || Failure::system("the floor cannot wait for its sockets");
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(no_poll())?;
    let watch = |fd: std::os::fd::BorrowedFd<'_>, token| {
        epoll
            .add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token))
            .map_err(no_poll())
    };
    watch(listener.as_fd(), LISTENER)?;
    if let Some((bell, _)) = house.desks.get(number) {
        watch(bell.as_fd(), BELL)?;
    }
    let mut guests: HashMap<u64, Guest> = HashMap::new();
    let mut piece = vec![0; READ];
    let mut events = [EpollEvent::empty(); 256];
    let mut next = 0;
    loop {
        let count = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(count) => count,
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(no_poll()(error)),
        };
        for event in events.iter().take(count) {
            match event.data() {
                LISTENER => {
                    while let Ok((stream, _)) = listener.accept() {
                        let _ = stream.set_nodelay(true);
                        watch(stream.as_fd(), next)?;
                        let role = Role::Unknown(Version::V3);
                        let guest = Guest {
                            stream: Arc::new(stream),
                            rest: Vec::new(),
                            role,
                        };
                        guests.insert(next, guest);
                        next += 1;
                    }
                }
                BELL => house.send_shares(number),
                token => {
                    let Some(guest) = guests.get_mut(&token) else {
                        continue;
                    };
                    if !house.serve(number, guest, &mut piece) {
                        let _ = epoll.delete(&*guest.stream);
                        guests.remove(&token);
                    }
                }
            }
        }
    }
}

impl House {
    /// Reads once and handles it; false at the end of the connection.
    fn serve(&self, number: usize, guest: &mut Guest, piece: &mut [u8]) -> bool {
        let count = match recv(guest.stream.as_raw_fd(), piece, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN | Errno::EINTR) => return true,
            Ok(0) | Err(_) => return false,
            Ok(count) => count,
        };
        let octets = piece.get(..count).unwrap_or_default();
        match &guest.role {
            Role::Subscriber => return true,
            Role::Publisher(_, Qos::AtMostOnce, group) => {
                self.forward(number, group, octets);
                return true;
            }
            _ => guest.rest.extend_from_slice(octets),
        }
        self.talk(number, guest).is_some()
    }

    /// Handles whole packets; None at the end of the connection.
    fn talk(&self, number: usize, guest: &mut Guest) -> Option<()> {
        let mut answer = Vec::new();
        let mut used = 0;
        let mut forward_from = None;
        while let Some(found) = frame(guest.rest.get(used..)?, MAXIMUM_LENGTH).ok()? {
            let version = match guest.role {
                Role::Unknown(version) | Role::Publisher(version, ..) => version,
                Role::Subscriber => return Some(()),
            };
            match decode(&found, version).ok()? {
                Packet::Connect(one) => {
                    guest.role = Role::Unknown(one.version);
                    connack(
                        &mut answer,
                        one.version,
                        false,
                        0,
                        &ConnackProperties::default(),
                    );
                }
                Packet::Subscribe(one) => {
                    let filter = one.filters().next()?;
                    self.join(filter.filter, &guest.stream);
                    suback(&mut answer, version, one.id, &[filter.qos as u8]);
                    guest.role = Role::Subscriber;
                }
                Packet::Publish(one) => {
                    if let Role::Unknown(version) = guest.role {
                        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
                        let group = groups.get(one.topic).cloned().unwrap_or_default();
                        guest.role = Role::Publisher(version, one.qos, group);
                    }
                    forward_from.get_or_insert(used);
                    if one.qos != Qos::AtMostOnce {
                        ack(&mut answer, version, AckKind::Puback, one.id, 0);
                    }
                }
                _ => return None,
            }
            used += found.length;
        }
        if let (Some(from), Role::Publisher(_, qos, group)) = (forward_from, &guest.role) {
            // At QoS 0 the beginning of a message goes on, too: nothing is parsed from here on.
            let end = if *qos == Qos::AtMostOnce {
                guest.rest.len()
            } else {
                used
            };
            self.forward(number, group, guest.rest.get(from..end)?);
            used = end;
        }
        guest.rest.drain(..used);
        (&*guest.stream).write_all(&answer).ok()
    }

    fn join(&self, filter: &str, stream: &Arc<TcpStream>) {
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let group = groups.entry(filter.to_owned()).or_default();
        Arc::make_mut(group).push(Arc::clone(stream));
    }

    /// Sends to a group; with several threads each sends to a share of it.
    fn forward(&self, number: usize, group: &Group, octets: &[u8]) {
        let shares = self.desks.len().min(group.len()).max(1);
        let share = group.len().div_ceil(shares);
        let others = (0..self.desks.len()).filter(|other| *other != number);
        for (place, other) in others.take(shares - 1).enumerate() {
            let Some((bell, desk)) = self.desks.get(other) else {
                continue;
            };
            let from = (place + 1) * share;
            let part = Share {
                octets: octets.to_vec(),
                group: Arc::clone(group),
                from,
                to: (from + share).min(group.len()),
            };
            desk.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_back(part);
            let _ = bell.write(1);
        }
        for stream in group.iter().take(share) {
            let _ = (&**stream).write_all(octets);
        }
    }

    fn send_shares(&self, number: usize) {
        let Some((bell, desk)) = self.desks.get(number) else {
            return;
        };
        let _ = bell.read();
        loop {
            let Some(share) = desk
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front()
            else {
                return;
            };
            for stream in share.group.get(share.from..share.to).unwrap_or_default() {
                let _ = (&**stream).write_all(&share.octets);
            }
        }
    }
}
