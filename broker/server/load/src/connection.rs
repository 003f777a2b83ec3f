//! Connections to a broker: opened, accepted, subscribed; each step says clearly what went wrong.

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mqtick_packet::{
    AckKind, ConnectOut, Packet, Property, Qos, Version, connect as connect_packet,
    disconnect as disconnect_packet, subscribe as subscribe_packet,
};

use crate::dial::dial;
use crate::target::Target;
use crate::tls::{Security, Tls};
use crate::{Failure, Outcome, sensor, wire};

/// Seconds after which a broker may drop us: longer than a run, as we send no PINGREQ.
const KEEP_ALIVE_S: u16 = 3600;

/// Seconds for which a broker keeps a session that we could not end (MQTT 5).
const KEPT_S: u32 = 3600;

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket; over UDP, too: reading and writing are the same system calls.
    pub stream: TcpStream,
    /// What encrypts it, if anything does.
    pub tls: Option<Box<Tls>>,
    /// Octets that came and are no whole packet yet.
    pub rest: Vec<u8>,
    /// How many QoS 1 messages the broker takes before it has answered one.
    pub receive_maximum: u16,
    /// Which MQTT it speaks.
    pub version: Version,
    /// Of MQTT-SN: whether it is, and what the topic's id is.
    pub sn: Option<u16>,
    /// Whether each packet is a datagram of its own.
    pub is_datagrams: bool,
    /// How the socket is written to.
    pub flags: MsgFlags,
    pub(crate) name: String,
    patience: Duration,
    /// Which session the broker keeps, and where.
    kept: Option<(Target, String)>,
}

impl Connection {
    /// Connects; `name` is unique among the connections to this target, `place` counts them.
    ///
    /// # Errors
    /// Where the broker refuses, closes, says what is no MQTT, or says nothing in time.
    pub fn open(target: &Target, name: &str, place: usize) -> Outcome<Self> {
        Self::opened(target, name, place, false)
    }

    /// The same with a session that the broker keeps, where the target says so. It is there until
    /// the connection is dropped.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub fn open_kept(target: &Target, name: &str, place: usize) -> Outcome<Self> {
        Self::opened(target, name, place, target.persistent)
    }

    fn opened(target: &Target, name: &str, place: usize, kept: bool) -> Outcome<Self> {
        let stream = dial(target, place)?;
        let mut connection = Self {
            stream,
            tls: None,
            rest: Vec::new(),
            receive_maximum: u16::MAX,
            version: target.version,
            sn: target.sn.then_some(0),
            is_datagrams: target.is_datagrams(),
            flags: MsgFlags::MSG_NOSIGNAL,
            name: format!("{} of the {}", name, target.who),
            patience: target.patience,
            kept: None,
        };
        if let Some(security) = &target.security {
            connection.encrypt(security)?;
        }
        let expiry = [Property::SessionExpiry(KEPT_S)];
        let id = format!("{}-{name}", target.prefix);
        if target.sn {
            connection.connect_sensor(&id)?;
            return Ok(connection);
        }
        let mut octets = Vec::new();
        let with = ConnectOut {
            clean_start: !kept,
            properties: if kept { &expiry } else { &[] },
            keep_alive: KEEP_ALIVE_S,
            client_id: &id,
            username: target.login.as_ref().map(|(name, _)| name.as_str()),
            password: target
                .login
                .as_ref()
                .map(|(_, password)| password.as_slice()),
            ..ConnectOut::default()
        };
        connect_packet(&mut octets, target.version, &with);
        let (code, maximum) = connection.ask(&octets, "CONNACK", |packet| match packet {
            Packet::Connack(one) => Some((
                one.reason,
                one.properties.receive_maximum().unwrap_or(u16::MAX),
            )),
            _ => None,
        })?;
        if code != 0 {
            return Err(connection.refused("refused the connection", code));
        }
        connection.receive_maximum = maximum;
        connection.kept = kept.then(|| (target.clone(), name.to_owned()));
        Ok(connection)
    }

    /// Subscribes to one filter, and waits for the answer.
    ///
    /// # Errors
    /// As [`Connection::open`]; also where the broker grants another QoS.
    pub fn subscribe(&mut self, filter: &str, qos: Qos) -> Outcome<()> {
        if self.sn.is_some() {
            return self.subscribe_sensor(filter);
        }
        let mut octets = Vec::new();
        subscribe_packet(&mut octets, self.version, 1, &[(filter, qos)]);
        let code = self.ask(&octets, "SUBACK", |packet| match packet {
            Packet::Suback(one) => one.codes.first().copied(),
            _ => None,
        })?;
        if code == qos as u8 {
            return Ok(());
        }
        let did = format!("answered the subscription to {filter} at QoS {}", qos as u8);
        Err(self.refused(&did, code))
    }

    /// Makes the socket one that never waits.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn unblock(&self) -> Outcome<()> {
        let refused = |error| Failure::Failed(format!("{}: {error}.", self.name));
        self.stream.set_nonblocking(true).map_err(refused)
    }

    /// Takes the PUBACKs out of what has come; returns how many there were.
    ///
    /// # Errors
    /// Where something else came, or one says that the message was refused.
    pub fn acknowledgements(&mut self) -> Outcome<u64> {
        let (mut used, mut count) = (0, 0);
        loop {
            let octets = self.rest.get(used..).unwrap_or_default();
            let found = wire::packet(octets, self.version).map_err(|error| self.named(error))?;
            let Some((packet, length)) = found else { break };
            match packet {
                // 0x10: nobody has subscribed. It will be counted as lost.
                Packet::Ack(one) if one.kind == AckKind::Puback && one.reason < 0x80 => count += 1,
                Packet::Ack(one) if one.kind == AckKind::Puback => {
                    return Err(self.refused("refused a message", one.reason));
                }
                other => return Err(self.unexpected(&other)),
            }
            used += length;
        }
        self.rest.drain(..used);
        Ok(count)
    }

    /// Sends a request and returns what `take` finds in the answer.
    fn ask<T>(
        &mut self,
        octets: &[u8],
        wanted: &str,
        take: impl FnOnce(&Packet<'_>) -> Option<T>,
    ) -> Outcome<T> {
        self.put(octets, wanted)?;
        let asked = Instant::now();
        loop {
            let found =
                wire::packet(&self.rest, self.version).map_err(|error| self.named(error))?;
            if let Some((packet, length)) = found {
                if matches!(&packet, Packet::Publish(one) if one.topic == "$proof") {
                    // Over UDP: what came shows that we are there; nothing else was kept.
                    let proof: Vec<u8> = self.rest.drain(..length).collect();
                    self.put(&proof, wanted)?;
                    self.put(octets, wanted)?;
                    continue;
                }
                let answer = take(&packet).ok_or_else(|| {
                    Failure::Failed(format!(
                        "{}: {packet:?} came instead of {wanted}.",
                        self.name
                    ))
                })?;
                self.rest.drain(..length);
                return Ok(answer);
            }
            // Octets that come one by one would hold us up for ever.
            if asked.elapsed() > self.patience {
                return Err(self.broken(wanted, &ErrorKind::TimedOut.into()));
            }
            self.get(wanted)?;
        }
    }

    /// Does the handshake of TLS.
    fn encrypt(&mut self, security: &Security) -> Outcome<()> {
        let (wanted, begun) = ("the TLS handshake", Instant::now());
        self.tls = Some(Box::new(Tls::new(security)?));
        self.put(&[], wanted)?;
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            if begun.elapsed() > self.patience {
                return Err(self.broken(wanted, &ErrorKind::TimedOut.into()));
            }
            self.get(wanted)?;
            self.put(&[], wanted)?;
        }
        Ok(())
    }

    /// Writes all, and waits for it.
    fn put(&mut self, octets: &[u8], wanted: &str) -> Outcome<()> {
        let written = match &mut self.tls {
            None => self.stream.write_all(octets),
            Some(tls) => {
                if !octets.is_empty() {
                    tls.seal(octets);
                }
                self.stream.write_all(&std::mem::take(&mut tls.wire))
            }
        };
        written.map_err(|error| self.broken(wanted, &error))
    }

    /// Waits for octets.
    fn get(&mut self, wanted: &str) -> Outcome<()> {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(Failure::Failed(format!(
                "{}: the broker closed the connection instead of sending {wanted}{}.",
                self.name,
                self.hint()
            ))),
            Ok(count) => self.came(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.broken(wanted, &error)),
        }
    }

    /// Adds what came through the socket to [`Connection::rest`].
    ///
    /// # Errors
    /// Where it is no TLS, but should be.
    pub fn came(&mut self, octets: &[u8]) -> Outcome<()> {
        let Some(tls) = &mut self.tls else {
            self.rest.extend_from_slice(octets);
            return Ok(());
        };
        tls.open(octets, &mut self.rest).map_err(|why| {
            let _ = self.stream.write_all(&tls.wire); // an alert
            Failure::Failed(format!("{}: the broker's TLS: {why}.", self.name))
        })
    }

    /// Reads what the socket has, without waiting, into a piece of memory.
    ///
    /// # Errors
    /// Where the broker closed.
    pub fn receive(&self, piece: &mut [u8]) -> Outcome<usize> {
        match recv(self.stream.as_raw_fd(), piece, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Err(self.lost(None)),
            Ok(count) => Ok(count),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(errno) => Err(self.lost(Some(errno))),
        }
    }

    /// Sends octets as far as the socket takes them, without waiting; returns how many are its or
    /// TLS's now.
    ///
    /// # Errors
    /// Where the broker closed.
    pub fn send(&mut self, octets: &[u8]) -> Outcome<usize> {
        let (fd, flags) = (self.stream.as_raw_fd(), self.flags);
        let write = |octets: &[u8]| match send(fd, octets, flags) {
            Ok(count) => Ok(count),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(errno) => Err(errno),
        };
        let sent = match &mut self.tls {
            None if octets.is_empty() => Ok(0),
            None => write(octets),
            Some(tls) => tls.send(octets, write),
        };
        sent.map_err(|errno| self.lost(Some(errno)))
    }

    /// Whether the socket has taken all that TLS has made.
    #[must_use]
    pub fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.wire.is_empty())
    }
}

impl Drop for Connection {
    /// Says goodbye, and has the broker forget what it kept, so that nothing of a run stays.
    fn drop(&mut self) {
        let mut octets = Vec::new();
        match self.sn {
            Some(_) => octets = sensor::octets(&sensor::disconnect()),
            None => disconnect_packet(&mut octets, self.version, 0),
        }
        let _ = self.send(&octets);
        if let Some(tls) = &mut self.tls {
            tls.close();
        }
        let _ = self.send(&[]);
        if let Some((target, name)) = self.kept.take() {
            // A clean session ends the old one ([MQTT-3.1.2-4]).
            let _ = Self::open(&target, &name, 0);
        }
    }
}
