//! What went wrong on a connection, in words.

use mqtick_packet::{Packet, Publish};
use nix::errno::Errno;
use std::io::ErrorKind;

use crate::Failure;
use crate::connection::Connection;

impl Connection {
    /// Makes the failure of a connection that the broker ended while it was needed.
    #[must_use]
    pub fn lost(&self, error: Option<Errno>) -> Failure {
        let why = match error {
            None | Some(Errno::ECONNRESET | Errno::EPIPE) => {
                "the broker closed the connection".to_owned()
            }
            Some(errno) => format!("the connection broke: {}", errno.desc()),
        };
        Failure::Failed(format!("{}: {why} during the measurement.", self.name))
    }

    /// The failure of an unexpected packet.
    #[must_use]
    pub fn unexpected(&self, packet: &Packet<'_>) -> Failure {
        match packet {
            Packet::Disconnect(one) => self.refused("disconnected", one.reason),
            other => Failure::Failed(format!(
                "{}: {other:?} came during the measurement.",
                self.name
            )),
        }
    }

    /// Makes the failure of a message that we did not send.
    #[must_use]
    pub fn stranger(&self, message: &Publish<'_>) -> Failure {
        let octets = message.payload.len();
        let topic = message.topic;
        let text = format!(
            "{}: {octets} octets that we never sent came on {topic}.",
            self.name
        );
        Failure::Failed(text)
    }

    /// The failure of an answer with a reason code.
    #[must_use]
    pub fn refused(&self, did: &str, reason: u8) -> Failure {
        Failure::Failed(format!(
            "{}: the broker {did} with reason {reason:#04x}{}.",
            self.name,
            meaning(reason)
        ))
    }

    /// Puts the connection's name before a failure.
    #[must_use]
    pub fn named(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Failed(text) => Failure::Failed(format!("{}: {text}", self.name)),
            other => other,
        }
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
        Failure::Failed(format!("{}: waiting for {wanted}: {text}.", self.name))
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
