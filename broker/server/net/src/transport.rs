//! What carries MQTT between a client and the broker: nothing, TLS, WebSocket, or WebSocket in TLS.
//!
//! A transport does no input or output of its own: it turns octets of the socket into octets of
//! MQTT and back.

pub mod tls;
pub mod websocket;

use std::borrow::Cow;
use std::fmt;

use tls::Tls;
use websocket::WebSocket;

/// What carries MQTT on one connection.
pub enum Transport {
    /// MQTT as it is.
    Plain,
    /// MQTT in TLS.
    Tls(Box<Tls>),
    /// MQTT in WebSocket frames.
    WebSocket(Box<WebSocket>),
    /// MQTT in WebSocket frames in TLS.
    TlsWebSocket(Box<Tls>, Box<WebSocket>),
}

impl Transport {
    /// Take octets that were read from the socket. Appends the octets of MQTT to `plain`, and what
    /// has to be sent back (handshake, alert, pong, close) to `wire`.
    ///
    /// # Errors
    /// The client has broken the rules or closed the transport, which must not be used any more.
    /// What was appended before is valid: `plain` is to be read and `wire` to be sent.
    pub fn receive(
        &mut self,
        octets: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        match self {
            Self::Plain => {
                plain.extend_from_slice(octets);
                Ok(())
            }
            Self::Tls(tls) => tls.receive(octets, plain, wire),
            Self::WebSocket(websocket) => websocket.receive(octets, plain, wire),
            Self::TlsWebSocket(tls, websocket) => {
                let (mut frames, mut answers) = (Vec::new(), Vec::new());
                let received = tls.receive(octets, &mut frames, wire);
                let read = websocket.receive(&frames, plain, &mut answers);
                if !answers.is_empty() {
                    tls.send(&answers, wire)?;
                }
                if read.is_err() {
                    tls.close(wire);
                }
                received.and(read)
            }
        }
    }

    /// Append to `wire` the octets that carry `plain`.
    ///
    /// # Errors
    /// The handshake is not done, or the transport was closed.
    pub fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), Failure> {
        match self {
            Self::Plain => {
                wire.extend_from_slice(plain);
                Ok(())
            }
            Self::Tls(tls) => tls.send(plain, wire),
            Self::WebSocket(websocket) => websocket.send(plain, wire),
            Self::TlsWebSocket(tls, websocket) => {
                let mut frame = Vec::with_capacity(plain.len() + websocket::MAX_HEADER);
                websocket.send(plain, &mut frame)?;
                tls.send(&frame, wire)
            }
        }
    }

    /// Append to `wire` the octets that close the transport.
    pub fn close(&mut self, wire: &mut Vec<u8>) {
        match self {
            Self::Plain => {}
            Self::Tls(tls) => tls.close(wire),
            Self::WebSocket(websocket) => websocket.close(wire),
            Self::TlsWebSocket(tls, websocket) => {
                let mut frame = Vec::new();
                websocket.close(&mut frame);
                // If the handshake is not done, only the alert below is sent.
                let _ = tls.send(&frame, wire);
                tls.close(wire);
            }
        }
    }

    /// Return the common name of the client's certificate, which was checked in the handshake.
    #[must_use]
    pub fn common_name(&self) -> Option<String> {
        match self {
            Self::Plain | Self::WebSocket(_) => None,
            Self::Tls(tls) | Self::TlsWebSocket(tls, _) => tls.common_name(),
        }
    }
}

/// Why a transport has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    sentence: Cow<'static, str>,
    orderly: bool,
}

impl Failure {
    /// The client has broken the rules.
    pub fn new(sentence: impl Into<Cow<'static, str>>) -> Self {
        Self {
            sentence: sentence.into(),
            orderly: false,
        }
    }

    pub(crate) fn closed(sentence: &'static str) -> Self {
        Self {
            sentence: sentence.into(),
            orderly: true,
        }
    }

    /// Whether the client has closed the transport by its rules.
    #[must_use]
    pub fn orderly(&self) -> bool {
        self.orderly
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}
