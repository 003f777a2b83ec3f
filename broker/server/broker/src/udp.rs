//! MQTT over UDP: its one socket, and the door behind which the first worker serves datagrams.
//!
//! One worker serves them all, because they have to be served in the order in which they come; any
//! worker sends copies, a fan-out with one system call.

use crate::desk::Desk;
use crate::exchange::MOST_RETAINED;
use crate::message::Message;
use crate::residence::{Account, Arrived, Clock, TRAILER};
use crate::session::{Session, Subscription};
use crate::settings::Udp;
use crate::shared::Shared;
use crate::socket::stamp_of;
use mqtick_access::Action;
use mqtick_packet::Qos;
use mqtick_udp::{DATAGRAM, Engine, NAMES, Published, Server, Settings, Subnet};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::EpollFlags;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, MultiHeaders, SockFlag, SockType, SockaddrIn,
    TimestampingFlag, bind, recvmmsg, recvmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::{cmsg_space, libc};
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(crate) const AT_ONCE: usize = 32; // datagrams that one system call receives
pub(crate) const TURN: usize = 256; // datagrams until others have their turn
pub(crate) const ROOM: usize = DATAGRAM + 1; // octets, so that one that is too long shows
const BUFFER: usize = 4 << 20; // octets; the kernel may allow less
pub(crate) const LOWEST_PORT: u16 = 1024; // the system's own services are below, echo among them
const PATIENCE_MS: u8 = 10;
const PATIENCE_REST: u64 = 10; // times as long as was waited, nobody waits again
pub(crate) const TURN_NS: u64 = 2_000_000; // the same, in time
const QUIET_NS: u64 = 1_000_000_000; // netem takes what it holds off the socket's account
const UNDER_WAY: usize = 1 << 16; // departures that are waited for
const FULL: usize = 1024; // copies that leave together; the kernel takes no more
const SPARE: usize = 1 << 20; // octets of a batch that are not given back
const STATED: usize = 8; // copies that state the same time of departure

/// Somebody who has a lease.
pub struct Peer {
    address: SocketAddrV4,
    end_ns: AtomicU64,
    account: Mutex<Account>,
}

impl Peer {
    /// Somebody who is reached at an address until then.
    pub fn new(address: SocketAddrV4, end_ns: u64) -> Self {
        Self {
            address,
            end_ns: AtomicU64::new(end_ns),
            account: Mutex::default(),
        }
    }

    /// Where.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Nothing is sent there after this time.
    pub fn set_end(&self, end_ns: u64) {
        self.end_ns.store(end_ns, Relaxed);
    }
}

struct Copy {
    to: SocketAddrV4,
    peer: Option<Arc<Peer>>, // none: an answer
    octets: Range<usize>,
}

/// Datagrams that leave together.
#[derive(Default)]
pub struct Batch {
    octets: Vec<u8>,
    copies: Vec<Copy>,
    arrived: Option<Arrived>,
}

impl Batch {
    /// Append one message's copy, which says how long it was here where it is known when the message
    /// came. All copies of a batch that says so are of one message.
    pub fn copy(&mut self, peer: &Arc<Peer>, packet: &[u8], arrived: Option<Arrived>) {
        self.arrived = arrived;
        self.push(peer.address, Some(Arc::clone(peer)), packet);
    }

    /// Append an answer.
    pub fn answer(&mut self, to: SocketAddrV4, packet: &[u8]) {
        self.push(to, None, packet);
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Whether it had better be sent now.
    pub fn is_full(&self) -> bool {
        self.copies.len() >= FULL
    }

    fn push(&mut self, to: SocketAddrV4, peer: Option<Arc<Peer>>, packet: &[u8]) {
        let last = self.copies.last().map(|copy| copy.octets.clone());
        let is_same = |last: &Range<usize>| self.octets.get(last.clone()) == Some(packet);
        // Copies that state nothing share their octets.
        let octets = match last.filter(|last| self.arrived.is_none() && is_same(last)) {
            Some(last) => last,
            None => {
                let start = self.octets.len();
                self.octets.extend_from_slice(packet);
                start..self.octets.len()
            }
        };
        self.copies.push(Copy { to, peer, octets });
    }

    fn clear(&mut self) {
        self.octets.clear();
        self.octets.shrink_to(SPARE);
        self.copies.clear();
        self.arrived = None;
    }
}

#[derive(Default)]
struct Sending {
    stamps: bool,
    next: u32, // the number that the kernel gives to the next datagram that it stamps
    // Since when that is not sure: not every kernel gives a number to what it does not take.
    disturbed_ns: Option<u64>,
    under_way: VecDeque<(u32, Arc<Peer>)>,
    patience: Patience,
}

/// A slow link keeps everybody waiting, so its datagrams may wait for a tenth of the time only.
#[derive(Default)]
struct Patience {
    again_ns: u64,
}

impl Patience {
    fn is_left(&self, now_ns: u64) -> bool {
        now_ns >= self.again_ns
    }

    fn waited(&mut self, from_ns: u64, to_ns: u64) {
        self.again_ns = to_ns + (to_ns - from_ns) * PATIENCE_REST;
    }
}

/// The socket.
pub struct Outlet {
    socket: OwnedFd,
    secret: [u8; 16],
    sending: Mutex<Sending>,
    start: Instant,
    counted: [AtomicU64; NAMES.len()],
}

impl Outlet {
    /// Listen on an IPv4 address.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        let SocketAddr::V4(address) = address else {
            return Err(Errno::EAFNOSUPPORT.into());
        };
        let mut secret = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut secret)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        bind(socket.as_raw_fd(), &SockaddrIn::from(address))?;
        // Bursts, and the stamps of departures, have to find room; root may have as much as it wants.
        if setsockopt(&socket, sockopt::RcvBufForce, &BUFFER).is_err() {
            setsockopt(&socket, sockopt::RcvBuf, &BUFFER)?;
        }
        if setsockopt(&socket, sockopt::SndBufForce, &BUFFER).is_err() {
            setsockopt(&socket, sockopt::SndBuf, &BUFFER)?;
        }
        let outlet = Self {
            socket,
            secret,
            sending: Mutex::default(),
            start: Instant::now(),
            counted: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        outlet.stamp(TimestampingFlag::SOF_TIMESTAMPING_OPT_ID);
        Ok(outlet)
    }

    /// Let datagrams go to all of a network.
    pub fn allow_broadcast(&self) {
        // Where that fails, so does sending: nobody gets them then.
        let _ = setsockopt(&self.socket, sockopt::Broadcast, &true);
    }

    /// Since it was opened.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn stamp(&self, more: TimestampingFlag) {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY
            | more;
        // Where the kernel has no stamps, none come: nothing is stated then.
        let _ = setsockopt(&self.socket, sockopt::Timestamping, &flags);
    }

    /// What the door counted until lately, by name.
    pub fn counted(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counted.iter().map(|one| one.load(Relaxed));
        NAMES.into_iter().zip(counts)
    }

    /// A thread that may have been sending failed.
    pub fn failed(&self) {
        self.disturb(&mut lock(&self.sending));
    }

    /// Send what was gathered, in its order: how many copies left, and how many found no room.
    pub fn send(&self, batch: &mut Batch) -> (usize, usize) {
        if batch.is_empty() {
            return (0, 0);
        }
        let mut sending = lock(&self.sending);
        let now_ns = self.now_ns();
        let lives = |peer: &Arc<Peer>| peer.end_ns.load(Relaxed) > now_ns;
        batch
            .copies
            .retain(|copy| copy.peer.as_ref().is_none_or(lives));
        let Batch {
            octets,
            copies,
            arrived,
        } = batch;
        let dropped = match arrived {
            None => {
                self.stamp_departures(&mut sending, false);
                self.write(&mut sending, octets, copies)
            }
            Some(arrived) => {
                if !sending.under_way.is_empty() {
                    self.take_departures(&mut sending);
                }
                self.settle(&mut sending);
                let some = copies.chunks(STATED);
                some.map(|copies| self.write_stated(&mut sending, octets, copies, arrived))
                    .sum()
            }
        };
        let all = batch.copies.iter().filter(|copy| copy.peer.is_some());
        let sent = all.count() - dropped;
        batch.clear();
        (sent, dropped)
    }

    fn stamp_departures(&self, sending: &mut Sending, wanted: bool) {
        if sending.stamps != wanted {
            sending.stamps = wanted;
            let mut more = TimestampingFlag::SOF_TIMESTAMPING_OPT_ID;
            more.set(TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE, wanted);
            self.stamp(more);
        }
    }

    /// Let each copy say how long it was here if it left now, and send them: none leaves sooner.
    fn write_stated(
        &self,
        sending: &mut Sending,
        octets: &mut [u8],
        copies: &[Copy],
        arrived: &Arrived,
    ) -> usize {
        let is_sure = sending.disturbed_ns.is_none();
        self.stamp_departures(sending, is_sure);
        let now = Clock::read();
        for copy in copies {
            let number = sending.next;
            sending.next = sending.next.wrapping_add(1);
            let Some(peer) = &copy.peer else { continue };
            let Some(place) = octets.get_mut(copy.octets.clone()) else {
                continue;
            };
            let mut account = lock(&peer.account);
            let (trailer, is_counted) = account.state(arrived, now, NEVER_AGAIN);
            if let Some(place) = place.last_chunk_mut::<TRAILER>() {
                *place = trailer;
            }
            if is_counted {
                account.written(number, now, NEVER_AGAIN);
                if is_sure {
                    if sending.under_way.len() == UNDER_WAY {
                        sending.under_way.pop_front();
                    }
                    sending.under_way.push_back((number, Arc::clone(peer)));
                }
            }
        }
        self.write(sending, octets, copies)
    }

    /// Believe no number until nothing is under way that has one.
    fn disturb(&self, sending: &mut Sending) {
        sending.disturbed_ns = Some(self.now_ns());
        sending.under_way.clear();
    }

    /// Begin to count anew, if that was disturbed and all stamps of before are there: the kernel
    /// begins at 0, and none of before may be taken for one of after.
    fn settle(&self, sending: &mut Sending) {
        let is_over = |since_ns| self.now_ns().saturating_sub(since_ns) >= QUIET_NS;
        if !sending.disturbed_ns.is_some_and(is_over) || !self.is_idle() {
            return;
        }
        self.take_departures(sending);
        self.stamp(TimestampingFlag::empty());
        sending.stamps = false;
        sending.next = 0;
        sending.disturbed_ns = None;
    }

    /// Whether all datagrams have left, so that their stamps are there.
    #[allow(unsafe_code)]
    fn is_idle(&self) -> bool {
        let mut octets: libc::c_int = 0;
        // SAFETY: the kernel writes one number to where `octets` is, which outlives the call, and so
        // does the descriptor.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) };
        result == 0 && octets == 0
    }

    #[allow(unsafe_code)]
    fn write(&self, sending: &mut Sending, octets: &[u8], copies: &[Copy]) -> usize {
        let address = |copy: &Copy| libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: copy.to.port().to_be(),
            sin_addr: libc::in_addr {
                s_addr: copy.to.ip().to_bits().to_be(),
            },
            sin_zero: [0; 8],
        };
        let part = |copy: &Copy| {
            let octets = octets.get(copy.octets.clone()).unwrap_or_default();
            libc::iovec {
                iov_base: octets.as_ptr().cast_mut().cast(),
                iov_len: octets.len(),
            }
        };
        let mut addresses: Vec<_> = copies.iter().map(address).collect();
        let mut parts: Vec<_> = copies.iter().map(part).collect();
        let header = |(address, part): (&mut libc::sockaddr_in, &mut libc::iovec)| {
            // SAFETY: a structure of numbers and pointers, for which zero is a value.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
            header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            header.msg_hdr.msg_iov = part;
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let mut headers: Vec<_> = addresses.iter_mut().zip(&mut parts).map(header).collect();
        let is_copy = |copy: &&Copy| copy.peer.is_some();
        let (mut done, mut dropped) = (0, 0);
        while let Some(rest) = headers.get_mut(done..).filter(|rest| !rest.is_empty()) {
            // SAFETY: `rest` is as long as is said; each of its headers points to an address and to a
            // part in the vectors above, and each part to some of `octets`, which the kernel only
            // reads; all of them, and the descriptor, outlive the call.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as _,
                    0,
                )
            };
            let asked = rest.len();
            let sent = Errno::result(sent).map(|sent| usize::try_from(sent).unwrap_or_default());
            if sent != Ok(asked) {
                self.disturb(sending);
            }
            match sent {
                Ok(sent) => done += sent,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) if self.is_writable(sending) => {}
                Err(Errno::EAGAIN) => {
                    return dropped + copies.iter().skip(done).filter(is_copy).count();
                }
                Err(_) => {
                    // Nothing leads there: the others get theirs.
                    dropped += usize::from(copies.get(done).as_ref().is_some_and(is_copy));
                    done += 1;
                }
            }
        }
        dropped
    }

    /// Wait for room, not for long.
    fn is_writable(&self, sending: &mut Sending) -> bool {
        let from_ns = self.now_ns();
        if !sending.patience.is_left(from_ns) {
            return false;
        }
        let mut wanted = [PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT)];
        let found = poll(&mut wanted, PollTimeout::from(PATIENCE_MS));
        sending.patience.waited(from_ns, self.now_ns());
        found.is_ok()
            && wanted[0]
                .revents()
                .is_some_and(|one| one.contains(PollFlags::POLLOUT))
    }

    /// The kernel has stamps of what left.
    pub fn departures(&self) {
        self.take_departures(&mut lock(&self.sending));
    }

    /// Take the stamps of what left.
    fn take_departures(&self, sending: &mut Sending) {
        let mut space = cmsg_space!([TimeSpec; 3], [u64; 8]);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        while let Ok(message) =
            recvmsg::<()>(self.socket.as_raw_fd(), &mut [], Some(&mut space), flags)
        {
            let (mut number, mut left) = (None, None);
            for one in message.cmsgs().ok().into_iter().flatten() {
                match one {
                    ControlMessageOwned::Ipv4RecvErr(error, _) => number = Some(error.ee_data),
                    other => left = left.or(stamp_of(other)),
                }
            }
            let Some((number, left_ns)) = number.zip(left) else {
                continue;
            };
            // They come in the order of their numbers: what is missing before one was lost.
            let under_way = &mut sending.under_way;
            let first = under_way.front().map_or(number, |(first, _)| *first);
            let is_before = |one: &(u32, _)| one.0.wrapping_sub(first) < number.wrapping_sub(first);
            under_way.drain(..under_way.partition_point(is_before));
            if let Some((number, peer)) = under_way.pop_front_if(|one| one.0 == number) {
                lock(&peer.account).left(number, left_ns);
            }
        }
    }

    /// Receive some datagrams, each into `ROOM` octets: from whom, how many octets, and when it came.
    pub(crate) fn receive(&self, room: &mut [u8]) -> Vec<(SocketAddrV4, usize, Option<i64>)> {
        let parts = room.chunks_exact_mut(ROOM);
        let mut parts: Vec<_> = parts.map(|one| [IoSliceMut::new(one)]).collect();
        let space = cmsg_space!([TimeSpec; 3]);
        let mut headers = MultiHeaders::<SockaddrIn>::preallocate(parts.len(), Some(space));
        let fd = self.socket.as_raw_fd();
        let flags = MsgFlags::MSG_DONTWAIT;
        let Ok(messages) = recvmmsg(fd, &mut headers, &mut parts, flags, None) else {
            return Vec::new();
        };
        let came = messages.map(|message| {
            let cmsgs = message.cmsgs().ok().into_iter().flatten();
            let stamp = cmsgs.filter_map(stamp_of).next();
            let from = message.address.map_or(NOWHERE, SocketAddrV4::from);
            (from, message.bytes, stamp)
        });
        came.collect()
    }
}

/// Port 0, which the server refuses.
const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

/// How often a datagram was sent again.
const NEVER_AGAIN: Option<u32> = Some(0);

impl AsFd for Outlet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves what comes over UDP.
pub struct Door {
    outlet: Arc<Outlet>,
    server: Server<Arc<Session>>,
    room: Vec<u8>,
    since: Clock,  // nothing that will be read came before
    looked: usize, // for retained messages, in the present second: steps
}

impl Door {
    /// A door that knows nobody; none if there is no socket.
    pub fn new(shared: &Shared) -> Option<Self> {
        let outlet = Arc::clone(shared.outlet.as_ref()?);
        let rate = shared.settings.limits.publishes_a_second_a_client;
        Some(Self {
            server: Server::new(settings(&shared.settings.udp, rate, outlet.secret)),
            outlet,
            room: vec![0; AT_ONCE * ROOM],
            since: Clock::read(),
            looked: 0,
        })
    }

    /// Serve what has come.
    pub fn ready(&mut self, desk: &mut Desk, flags: EpollFlags) {
        if flags.contains(EpollFlags::EPOLLERR) {
            self.outlet.departures();
        }
        let end_ns = self.outlet.now_ns() + TURN_NS;
        for _ in 0..TURN / AT_ONCE {
            let clock = Clock::read();
            let came = self.outlet.receive(&mut self.room);
            for ((from, length, stamp), octets) in came.iter().zip(self.room.chunks_exact(ROOM)) {
                let octets = octets.get(..*length).unwrap_or_default();
                let stamp_ns = stamp.filter(|ns| *ns >= self.since.now_ns);
                desk.came = stamp_ns.map(|ns| (ns, self.since));
                desk.octets += octets.len() as u64;
                let mut hands = Hands {
                    desk,
                    alone: came.len() == 1,
                    looked: &mut self.looked,
                };
                let now_ns = self.outlet.now_ns();
                self.server.datagram(now_ns, *from, octets, &mut hands);
            }
            desk.flush();
            if came.len() < AT_ONCE {
                self.since = clock;
                break;
            }
            if self.outlet.now_ns() >= end_ns {
                break;
            }
        }
        desk.came = None;
    }

    /// Once a second: end leases.
    pub fn tick(&mut self, desk: &mut Desk) {
        let now_ns = self.outlet.now_ns();
        self.looked = 0;
        self.with_hands(desk, |server, hands| server.end_leases(now_ns, hands));
        for (place, (_, count)) in self.outlet.counted.iter().zip(self.server.counters()) {
            place.store(count, Relaxed);
        }
    }

    /// Forget everybody: they find out by a PINGREQ that is not answered.
    pub fn forget_all(&mut self, desk: &mut Desk) {
        self.with_hands(desk, |server, hands| server.clear(hands));
    }

    /// What was counted, by name.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.server.counters()
    }

    fn with_hands(
        &mut self,
        desk: &mut Desk,
        what: impl FnOnce(&mut Server<Arc<Session>>, &mut Hands),
    ) {
        let mut hands = Hands {
            desk,
            alone: false,
            looked: &mut self.looked,
        };
        what(&mut self.server, &mut hands);
    }
}

/// What the server reaches the rest of the broker with.
struct Hands<'a> {
    desk: &'a mut Desk,
    alone: bool,
    looked: &'a mut usize,
}

impl Hands<'_> {
    fn may(&self, action: Action, topic: &str) -> bool {
        let access = self.desk.shared.access.load();
        access.rules.may(None, NOBODY, action, topic)
    }
}

/// No client's identifier in an access list: a `/` fits no pattern.
const NOBODY: &str = "udp/";

impl Engine for Hands<'_> {
    type Subscriber = Arc<Session>;

    fn send(&mut self, to: SocketAddrV4, datagram: &[u8]) {
        if self.desk.courier.batch.is_full() {
            self.desk.send_batch();
        }
        self.desk.courier.batch.answer(to, datagram);
    }

    fn begin(&mut self, who: SocketAddrV4, end_ns: u64) -> Arc<Session> {
        let peer = Arc::new(Peer::new(who, end_ns));
        self.desk.shared.new_peer(NOBODY, peer)
    }

    fn renew(&mut self, who: &Arc<Session>, end_ns: u64) {
        if let Some(peer) = &who.peer {
            peer.set_end(end_ns);
        }
    }

    fn end(&mut self, who: Arc<Session>, filters: HashSet<Box<str>>) {
        self.renew(&who, 0);
        if !filters.is_empty() {
            self.desk.shared.change(|tree| {
                for filter in &filters {
                    tree.unsubscribe(filter, &who.number);
                }
            });
        }
    }

    fn may_subscribe(&self, filter: &str) -> bool {
        self.may(Action::Subscribe, filter)
    }

    fn subscribe(&mut self, who: &Arc<Session>, filters: &[&str]) {
        let subscription = || Subscription {
            session: Arc::clone(who),
            qos: Qos::AtMostOnce,
            no_local: false,
            retain_as_published: false,
            identifier: 0,
        };
        self.desk.shared.change(|tree| {
            for filter in filters {
                tree.subscribe(filter, who.number, subscription());
            }
        });
    }

    fn unsubscribe(&mut self, who: &Arc<Session>, filters: &[&str]) {
        self.desk.shared.change(|tree| {
            for filter in filters {
                tree.unsubscribe(filter, &who.number);
            }
        });
    }

    fn publish(&mut self, topic: &str, payload: &[u8], retain: bool) -> Published {
        if !self.may(Action::Write, topic) {
            return Published::NotAllowed;
        }
        self.desk.received += 1;
        let shared = &self.desk.shared;
        let is_full = shared.ledger().is_some_and(|ledger| ledger.is_full());
        let kept = !retain || (!is_full && shared.has_room_for(topic, payload));
        let message = Message {
            topic,
            payload,
            qos: Qos::AtMostOnce,
            retain: retain && kept,
            forwarded: &[],
            expires_s: None,
        };
        self.desk.publish(None, &message, self.alone);
        if kept {
            Published::Sent
        } else {
            Published::NotKept
        }
    }

    fn retained(
        &mut self,
        who: &Arc<Session>,
        filter: &str,
        most: usize,
        packet: fn(&str, &[u8]) -> Option<Vec<u8>>,
    ) -> usize {
        let Some(peer) = &who.peer else { return 0 };
        if *self.looked > MOST_RETAINED {
            return 0;
        }
        self.desk.send_batch();
        let now_s = self.desk.courier.now_s;
        let shared = Arc::clone(&self.desk.shared);
        let (kept, steps) = shared.retained_first(filter, most, |message| {
            message.expires_s.is_none_or(|expires_s| expires_s > now_s)
                && self.may(Action::Read, message.topic)
        });
        *self.looked += steps;
        for kept in &kept {
            let message = kept.message();
            let Some(packet) = packet(message.topic, message.payload) else {
                continue;
            };
            // It leaves before whoever retains a newer one may send that.
            shared.if_retained(kept, || {
                self.desk.courier.batch.copy(peer, &packet, None);
                self.desk.send_batch();
            });
        }
        kept.len()
    }
}

fn settings(udp: &Udp, publishes_a_second: u32, secret: [u8; 16]) -> Settings {
    let subnet = |one: &crate::settings::Subnet| match one.first {
        IpAddr::V4(first) => Some(Subnet {
            first,
            bits: one.bits,
        }),
        IpAddr::V6(_) => None,
    };
    let subnets: Vec<_> = udp.subnets.iter().filter_map(subnet).collect();
    let is_local = |one: &Subnet| one.first.is_loopback();
    Settings {
        secret,
        loopback: subnets.iter().any(is_local),
        publishers: subnets.clone(),
        subscribers: subnets,
        lowest_port: LOWEST_PORT,
        own_port: udp.address.map_or(0, |address| address.port()),
        publishes_a_second,
        ..Settings::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockname;

    fn peer(port: u16) -> Arc<Peer> {
        Arc::new(Peer {
            address: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            end_ns: AtomicU64::new(u64::MAX),
            account: Mutex::default(),
        })
    }

    /// A socket on any port, and that port.
    fn outlet() -> (Outlet, SocketAddrV4) {
        let outlet = Outlet::open(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let name: SockaddrIn = getsockname(outlet.socket.as_raw_fd()).unwrap();
        (outlet, name.into())
    }

    #[test]
    fn copies_share_their_octets_unless_each_states_its_own_residence() {
        let mut batch = Batch::default();
        for port in 1..4 {
            batch.copy(&peer(port), b"one message", None);
        }
        batch.answer(peer(4).address, b"another");
        assert_eq!(batch.octets, b"one messageanother");
        batch.clear();
        let arrived = Arrived {
            at_ns: 0,
            before: Clock::read(),
            trailer: [0; TRAILER],
        };
        for port in 1..4 {
            batch.copy(&peer(port), b"one message", Some(arrived));
        }
        assert_eq!(batch.octets.len(), 3 * b"one message".len());
    }

    #[test]
    fn what_the_kernel_refuses_is_dropped_and_the_others_get_theirs() {
        let (outlet, own) = outlet();
        let mut batch = Batch::default();
        let peer = peer(own.port());
        batch.copy(&peer, b"before", None);
        batch.copy(&peer, &[0; 70_000], None); // no datagram is so long
        batch.answer(own, &[0; 70_000]); // an answer is no copy
        batch.copy(&peer, b"behind", None);
        assert_eq!(outlet.send(&mut batch), (2, 1));
        assert!(batch.is_empty());
        let mut room = vec![0; 8 * ROOM];
        let came = outlet.receive(&mut room);
        let lengths: Vec<_> = came.iter().map(|one| one.1).collect();
        assert_eq!(lengths, [6, 6]);
        assert!(room.starts_with(b"before") && room[ROOM..].starts_with(b"behind"));
    }

    #[test]
    fn no_copy_leaves_after_the_end_of_a_lease() {
        let (outlet, own) = outlet();
        let ended = Peer {
            address: own,
            end_ns: AtomicU64::new(0),
            account: Mutex::default(),
        };
        let mut batch = Batch::default();
        batch.copy(&Arc::new(ended), b"late", None);
        assert_eq!(outlet.send(&mut batch), (0, 0));
        assert!(outlet.receive(&mut [0; ROOM]).is_empty());
    }

    #[test]
    fn a_datagram_that_is_too_long_shows() {
        let (outlet, own) = outlet();
        let mut batch = Batch::default();
        batch.answer(own, &[7; DATAGRAM + 9]);
        outlet.send(&mut batch);
        assert_eq!(outlet.receive(&mut vec![0; ROOM])[0].1, DATAGRAM + 1);
    }

    /// What one message's copies to a peer say was wrong before; `also`: another copy.
    fn correction(outlet: &Outlet, peer: &Arc<Peer>, also: Option<&[u8]>) -> i32 {
        let arrived = Arrived {
            at_ns: Clock::read().now_ns,
            before: Clock::read(),
            trailer: [0; TRAILER],
        };
        let mut batch = Batch::default();
        batch.copy(peer, &[0x20; 32], Some(arrived));
        if let Some(also) = also {
            batch.copy(peer, also, Some(arrived));
        }
        outlet.send(&mut batch);
        let mut room = vec![0; ROOM];
        assert_eq!(outlet.receive(&mut room)[0].1, 32);
        i32::from_be_bytes(room[24..28].try_into().unwrap())
    }

    #[test]
    fn after_one_was_dropped_no_correction_is_said_until_the_numbers_are_sure() {
        let (outlet, own) = outlet();
        let peer = Arc::new(Peer {
            address: own,
            end_ns: AtomicU64::new(u64::MAX),
            account: Mutex::default(),
        });
        assert_eq!(correction(&outlet, &peer, None), i32::MIN, "the first one");
        let too_long = [0x20; 70_000];
        assert!(correction(&outlet, &peer, Some(&too_long)) >= 0);
        for _ in 0..4 {
            assert_eq!(correction(&outlet, &peer, None), i32::MIN);
        }
        std::thread::sleep(std::time::Duration::from_nanos(QUIET_NS));
        assert_eq!(
            correction(&outlet, &peer, None),
            i32::MIN,
            "the one before has no number"
        );
        for _ in 0..4 {
            assert!(correction(&outlet, &peer, None) >= 0);
        }
    }

    #[test]
    fn who_waited_for_a_slow_link_goes_on_for_ten_times_as_long() {
        let mut patience = Patience::default();
        assert!(patience.is_left(0));
        patience.waited(100, 110);
        assert!(!patience.is_left(209));
        assert!(patience.is_left(210));
    }
}
