//! The client's side of MQTT-SN (`broker/spec/mqtt-sn.md`), as far as a load needs it.

use mqtick_sn::{Code, Error, Filter, Message, Qos, decode, encode};
use nix::sys::socket::{MsgFlags, send};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

use crate::protocol::connection::Connection;
use mqtick_net::failure::{Failure, Outcome};

/// Keep alive in s, longer than a run, as we send no PINGREQ.
const KEEP_ALIVE_S: u16 = 3600;

/// The identifier of each request: there is one at a time.
const ID: u16 = 1;

/// Asks for a clean session.
fn connect(client: &str) -> Message<'_> {
    Message::Connect {
        will: false,
        clean: true,
        protocol: 1,
        duration_s: KEEP_ALIVE_S,
        client,
    }
}

/// Asks for a topic's messages at QoS 0.
fn subscribe(name: &str) -> Message<'_> {
    Message::Subscribe {
        dup: false,
        qos: Qos::AtMostOnce,
        message_id: ID,
        filter: Filter::Name(name),
    }
}

/// Asks for a topic's id.
fn register(name: &str) -> Message<'_> {
    Message::Register {
        topic_id: 0,
        message_id: ID,
        name,
    }
}

/// Returns the octets of a message.
fn octets(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    encode(message, &mut octets);
    octets
}

/// Decodes a datagram; one for a client behind a forwarder is refused.
fn read(datagram: &[u8]) -> Outcome<Message<'_>> {
    match decode(datagram) {
        Ok((message, None)) => Ok(message),
        Ok((_, Some(_))) => Err(garbage(Error::Type)),
        Err(error) => Err(garbage(error)),
    }
}

fn garbage(error: Error) -> Failure {
    Failure::Failed(format!(
        "the broker sent something that is not MQTT-SN: {error:?}."
    ))
}

/// Returns the answer to a message that may come at any time; None to any other.
fn answer(message: &Message<'_>) -> Option<Message<'static>> {
    match *message {
        Message::Register {
            topic_id,
            message_id,
            ..
        } => Some(Message::Regack {
            topic_id,
            message_id,
            code: Code::ACCEPTED,
        }),
        Message::Pingreq { .. } => Some(Message::Pingresp),
        _ => None,
    }
}

impl Connection {
    /// Asks for a session.
    pub(crate) fn connect_sensor(&mut self, id: &str) -> Outcome<()> {
        let code = self.ask_sensor(&connect(id), "CONNACK", |one| match one {
            Message::Connack(code) => Some(*code),
            _ => None,
        })?;
        self.accepted("the connection", code)
    }

    /// Asks for a topic's messages.
    pub(crate) fn subscribe_sensor(&mut self, filter: &str) -> Outcome<()> {
        let (id, code) = self.ask_sensor(&subscribe(filter), "SUBACK", |one| match one {
            Message::Suback { topic_id, code, .. } => Some((*topic_id, *code)),
            _ => None,
        })?;
        self.sn = Some(id);
        self.accepted("the subscription", code)
    }

    /// Asks a broker of MQTT-SN for the id of a topic.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub fn register(&mut self, topic: &str) -> Outcome<u16> {
        let ask = register(topic);
        let (id, code) = self.ask_sensor(&ask, "REGACK", |one| match one {
            Message::Regack { topic_id, code, .. } => Some((*topic_id, *code)),
            _ => None,
        })?;
        self.sn = Some(id);
        self.accepted("the topic", code)?;
        Ok(id)
    }

    /// Answers what a broker of MQTT-SN asks during a measurement.
    ///
    /// # Errors
    /// Where something else came.
    pub fn answer_sensor(&self, datagram: &[u8]) -> Outcome<()> {
        let message = read(datagram).map_err(|error| self.named(error))?;
        let answer = answer(&message).ok_or_else(|| self.surprised(&message))?;
        match send(
            self.stream.as_raw_fd(),
            &octets(&answer),
            MsgFlags::MSG_NOSIGNAL,
        ) {
            Ok(_) => Ok(()),
            Err(errno) => Err(self.lost(Some(errno))),
        }
    }

    fn surprised(&self, message: &Message<'_>) -> Failure {
        self.failed(format!("{message:?} came during the measurement."))
    }

    fn accepted(&self, what: &str, code: Code) -> Outcome<()> {
        match code {
            Code::ACCEPTED => Ok(()),
            Code(code) => Err(self.failed(format!("the broker refused {what} with code {code}."))),
        }
    }

    /// Sends a request of MQTT-SN and returns what `take` finds in the answer.
    fn ask_sensor<T>(
        &mut self,
        message: &Message<'_>,
        wanted: &str,
        take: impl Fn(&Message<'_>) -> Option<T>,
    ) -> Outcome<T> {
        self.stream
            .write_all(&octets(message))
            .map_err(|error| self.broken(wanted, &error))?;
        let mut piece = [0; 2048];
        loop {
            let count = self
                .stream
                .read(&mut piece)
                .map_err(|error| self.broken(wanted, &error))?;
            let datagram = piece.get(..count).unwrap_or_default();
            let came = read(datagram).map_err(|error| self.named(error))?;
            match take(&came) {
                Some(found) => return Ok(found),
                None => self.answer_sensor(datagram)?,
            }
        }
    }
}
