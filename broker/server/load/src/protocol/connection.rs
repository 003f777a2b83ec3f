//! Connections to a broker; each step says what went wrong.

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use mqtick_packet::{
    AckKind, ConnectOut, Packet, Property, Publish, Qos, Version, connect as connect_packet,
    disconnect as disconnect_packet, subscribe as subscribe_packet,
};

use crate::protocol::dial::dial;
use crate::protocol::target::Target;
use crate::protocol::tls::{Security, Tls};
use crate::protocol::wire;
use mqtick_net::failure::{Failure, Outcome};

/// Keep alive in s, longer than a run, as we send no PINGREQ.
const KEEP_ALIVE_S: u16 = 3600;

/// Session expiry in s, for a session that we could not end (MQTT 5).
const KEPT_S: u32 = 3600;

/// An accepted connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket; a UDP socket takes the same system calls.
    pub stream: TcpStream,
    /// TLS, if it is spoken.
    pub tls: Option<Box<Tls>>,
    /// The beginning of a packet that has not come whole.
    pub rest: Vec<u8>,
    /// Receive Maximum of the broker.
    pub receive_maximum: u16,
    /// The version of MQTT.
    pub version: Version,
    /// The topic's id, if it speaks MQTT-SN.
    pub sn: Option<u16>,
    /// Whether each packet is a datagram of its own.
    pub is_datagrams: bool,
    name: String,
    patience: Duration,
    /// The session that the broker keeps: where, and its name.
    kept: Option<(Target, String)>,
}

impl Connection {
    /// Connects. `name` is unique among the connections to this target; `place` is its number.
    ///
    /// # Errors
    /// Where the broker refuses, closes, does not speak MQTT, or does not answer in time.
    pub fn open(target: &Target, name: &str, place: usize) -> Outcome<Self> {
        Self::opened(target, name, place, false)
    }

    /// Connects, with a session that the broker keeps if the target says so; dropping the
    /// connection removes it.
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
    /// As [`Connection::open`]; where the broker grants another QoS.
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

    /// Makes the socket non-blocking.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn unblock(&self) -> Outcome<()> {
        let refused = |error| self.failed(format!("{error}."));
        self.stream.set_nonblocking(true).map_err(refused)
    }

    /// Takes the PUBACKs that have come; returns how many.
    ///
    /// # Errors
    /// Where another packet came, or a message was refused.
    pub fn acknowledgements(&mut self) -> Outcome<u64> {
        let (mut used, mut count) = (0, 0);
        loop {
            let octets = self.rest.get(used..).unwrap_or_default();
            let found = wire::packet(octets, self.version).map_err(|error| self.named(error))?;
            let Some((packet, length)) = found else { break };
            match packet {
                // 0x10, no subscribers: the message will be counted as lost.
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
                    // Over UDP the broker asks for proof of our address, and keeps no state until
                    // then.
                    let proof: Vec<u8> = self.rest.drain(..length).collect();
                    self.put(&proof, wanted)?;
                    self.put(octets, wanted)?;
                    continue;
                }
                let other = || self.failed(format!("{packet:?} came instead of {wanted}."));
                let answer = take(&packet).ok_or_else(other)?;
                self.rest.drain(..length);
                return Ok(answer);
            }
            // The socket's own timeout starts again with each octet.
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
            Ok(0) => Err(self.failed(format!(
                "the broker closed the connection instead of sending {wanted}{}.",
                self.hint()
            ))),
            Ok(count) => self.came(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.broken(wanted, &error)),
        }
    }

    /// Adds octets from the socket to [`Connection::rest`].
    ///
    /// # Errors
    /// Where TLS is broken.
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

    /// Reads without waiting; returns how many octets came.
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

    /// Sends without waiting; returns how many octets the socket or TLS has taken.
    ///
    /// # Errors
    /// Where the broker closed.
    pub fn send(&mut self, octets: &[u8]) -> Outcome<usize> {
        let fd = self.stream.as_raw_fd();
        let write = |octets: &[u8]| match send(fd, octets, MsgFlags::MSG_NOSIGNAL) {
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

    /// Whether the socket has taken all records of TLS.
    pub fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.wire.is_empty())
    }
}

impl Connection {
    /// Makes the failure of a connection that the broker ended while it was needed.
    pub fn lost(&self, error: Option<Errno>) -> Failure {
        let why = match error {
            None | Some(Errno::ECONNRESET | Errno::EPIPE) => {
                "the broker closed the connection".to_owned()
            }
            Some(errno) => format!("the connection broke: {}", errno.desc()),
        };
        self.failed(format!("{why} during the measurement."))
    }

    /// The failure of an unexpected packet.
    pub fn unexpected(&self, packet: &Packet<'_>) -> Failure {
        match packet {
            Packet::Disconnect(one) => self.refused("disconnected", one.reason),
            other => self.failed(format!("{other:?} came during the measurement.")),
        }
    }

    /// Makes the failure of a message that we did not send.
    pub fn stranger(&self, message: &Publish<'_>) -> Failure {
        let (octets, topic) = (message.payload.len(), message.topic);
        self.failed(format!(
            "{octets} octets that we never sent came on {topic}."
        ))
    }

    /// The failure of an answer with a reason code.
    pub fn refused(&self, did: &str, reason: u8) -> Failure {
        self.failed(format!(
            "the broker {did} with reason {reason:#04x}{}.",
            meaning(reason)
        ))
    }

    /// Makes a failure of this connection.
    pub fn failed(&self, text: String) -> Failure {
        Failure::Failed(text).at(&self.name)
    }

    /// Puts the connection's name before a failure.
    pub fn named(&self, failure: Failure) -> Failure {
        failure.at(&self.name)
    }

    pub(crate) fn hint(&self) -> &'static str {
        match &self.tls {
            Some(tls) if tls.is_handshaking() => " (does it speak TLS at this port?)",
            _ => "",
        }
    }

    pub(crate) fn broken(&self, wanted: &str, error: &std::io::Error) -> Failure {
        let text = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                "the broker did not send it in time".to_owned()
            }
            _ => format!("the connection broke: {error}{}", self.hint()),
        };
        self.failed(format!("waiting for {wanted}: {text}."))
    }
}

impl Drop for Connection {
    /// Disconnects, and removes the session that the broker keeps.
    fn drop(&mut self) {
        let mut octets = Vec::new();
        match self.sn {
            Some(_) => {
                let end = mqtick_sn::Message::Disconnect { duration_s: None };
                mqtick_sn::encode(&end, &mut octets);
            }
            None => disconnect_packet(&mut octets, self.version, 0),
        }
        let _ = self.send(&octets);
        if let Some(tls) = &mut self.tls {
            tls.close();
        }
        let _ = self.send(&[]);
        if let Some((target, name)) = self.kept.take() {
            // A clean start ends the old session ([MQTT-3.1.2-4]).
            let _ = Self::open(&target, &name, 0);
        }
    }
}

/// Returns the meaning of the usual reason codes.
fn meaning(code: u8) -> &'static str {
    match code {
        0x84 => " (this MQTT version is not spoken: see --mqtt)",
        0x86 | 0x8c => " (wrong user name or password: see --username, --password-file)",
        0x87 => " (not authorised: see --username, --password-file, and the broker's access list)",
        0x88 | 0x89 | 0x97 | 0x9f => " (the broker is at a limit of its own)",
        _ => "",
    }
}
