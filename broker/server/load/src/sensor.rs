//! MQTT-SN (`broker/spec/mqtt-sn.md`): a client's side of it, as far as a load needs it.

use mqtick_sn::{Code, Error, Filter, Message, Qos, decode, encode};

use crate::{Failure, Outcome};

/// Seconds after which a broker may give us up: longer than a run, as we send no PINGREQ.
const KEEP_ALIVE_S: u16 = 3600;

/// The identifier of each request: there is one at a time.
const ID: u16 = 1;

/// Asks for a clean session.
#[must_use]
pub fn connect(client: &str) -> Message<'_> {
    Message::Connect {
        will: false,
        clean: true,
        protocol: 1,
        duration_s: KEEP_ALIVE_S,
        client,
    }
}

/// Asks for a topic's messages at QoS 0.
#[must_use]
pub fn subscribe(name: &str) -> Message<'_> {
    Message::Subscribe {
        dup: false,
        qos: Qos::AtMostOnce,
        message_id: ID,
        filter: Filter::Name(name),
    }
}

/// Asks for a topic's id.
#[must_use]
pub fn register(name: &str) -> Message<'_> {
    Message::Register {
        topic_id: 0,
        message_id: ID,
        name,
    }
}

/// Ends the session.
#[must_use]
pub fn disconnect() -> Message<'static> {
    Message::Disconnect { duration_s: None }
}

/// Returns the octets of a message.
#[must_use]
pub fn octets(message: &Message<'_>) -> Vec<u8> {
    let mut octets = Vec::new();
    encode(message, &mut octets);
    octets
}

/// Reads what a broker sent.
///
/// # Errors
/// Where it is no MQTT-SN, or meant for somebody behind a forwarder.
pub fn message(datagram: &[u8]) -> Outcome<Message<'_>> {
    match decode(datagram) {
        Ok((message, None)) => Ok(message),
        Ok((_, Some(_))) => Err(garbage(Error::Type)),
        Err(error) => Err(garbage(error)),
    }
}

fn garbage(error: Error) -> Failure {
    Failure::Failed(format!("the broker sent what is no MQTT-SN: {error:?}."))
}

/// Returns what a client answers to what nobody asked for; None where it may not come.
#[must_use]
pub fn answer(message: &Message<'_>) -> Option<Message<'static>> {
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
