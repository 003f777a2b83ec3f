//! WebSocket, RFC 6455, as MQTT uses it: binary frames whose payloads, one after another, are MQTT.

use std::io::Cursor;
use std::iter;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::http::HeaderValue;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};

use super::Failure;

/// The most octets of a client's request: as many as most web servers take.
pub const MAX_REQUEST: usize = 8192;

/// The most octets of a frame's header.
pub(crate) const MAX_HEADER: usize = 14;

/// The most octets of a control frame's payload.
const MAX_CONTROL: u64 = 125;

/// Subprotocols that a client may offer, best first ([MQTT-6.0.0-3], [MQTT-6.0.0-4]).
const PROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// The beginning of a request. Other clients are refused at once.
const GET: &[u8] = b"GET ";

/// The end of a request.
const END: &[u8] = b"\r\n\r\n";

/// The server's side of a WebSocket connection.
///
/// Payloads are passed on as they come and are never kept, so the size of frames and messages needs
/// no limit. The most that is kept is a request, a frame's header or a control frame.
pub struct WebSocket {
    origins: Origins,
    state: State,
    /// The part of a request, a header or a control frame that has come so far.
    partial: Vec<u8>,
    /// Whether the message of the last data frame goes on in the next one.
    continues: bool,
}

/// From which pages browsers may connect, RFC 6454. Browsers send a page's origin, and no page can
/// change it; most other clients send none, and are not asked for any.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// Those that are allowed, such as `https://home.example`; `*`: all.
    pub allowed: Arc<[String]>,
    /// Whether a page is allowed that has the broker's own name, which a certificate proves. Else
    /// only one that has its address: whoever has a name can have it mean any address.
    pub own_name: bool,
}

impl Origins {
    fn allow(&self, origin: &str, host: &str) -> bool {
        let is_listed = |one: &String| one == "*" || one.eq_ignore_ascii_case(origin);
        let place = origin.split_once("://").map_or("", |(_, place)| place);
        let is_address = host.parse::<SocketAddr>().is_ok()
            || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
            || host.split(':').next() == Some("localhost");
        let is_own = !place.is_empty() && place.eq_ignore_ascii_case(host);
        self.allowed.iter().any(is_listed) || is_own && (self.own_name || is_address)
    }
}

enum State {
    Handshake,
    Header,
    Payload(Payload),
    Closed,
}

/// A frame of which `left` octets have still to come.
struct Payload {
    code: OpCode,
    left: u64,
    /// The mask, rotated to the next octet.
    mask: [u8; 4],
}

/// A failure, and the status code for the client, [RFC6455-7.4.1].
struct Refusal(CloseCode, Failure);

impl Default for WebSocket {
    fn default() -> Self {
        Self::new()
    }
}

impl WebSocket {
    /// Wait for a client's request.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Origins::default())
    }

    /// Wait for a client's request, of pages of these origins only if it is a browser's.
    #[must_use]
    pub fn of(origins: Origins) -> Self {
        Self {
            origins,
            state: State::Handshake,
            partial: Vec::new(),
            continues: false,
        }
    }

    /// See [`super::Transport::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(
        &mut self,
        octets: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let mut octets = octets;
        if matches!(self.state, State::Handshake) {
            self.handshake(&mut octets, wire)
                .inspect_err(|_| self.state = State::Closed)?;
        }
        self.frames(octets, plain, wire)
            .map_err(|Refusal(code, failure)| {
                if !matches!(self.state, State::Closed) {
                    self.end(code, wire);
                }
                failure
            })
    }

    /// Append a frame that carries `plain`.
    ///
    /// # Errors
    /// See [`super::Transport::send`].
    pub fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), Failure> {
        match self.state {
            State::Handshake => Err(Failure::new("the client has not asked for a WebSocket yet")),
            State::Closed => Err(Failure::new("the WebSocket is closed")),
            State::Header | State::Payload(_) => {
                frame(OpCode::Data(Data::Binary), plain, wire);
                Ok(())
            }
        }
    }

    /// Append a close frame, if the connection is open.
    pub fn close(&mut self, wire: &mut Vec<u8>) {
        match self.state {
            State::Header | State::Payload(_) => self.end(CloseCode::Normal, wire),
            State::Handshake | State::Closed => self.state = State::Closed,
        }
    }

    fn end(&mut self, code: CloseCode, wire: &mut Vec<u8>) {
        frame(
            OpCode::Control(Control::Close),
            &u16::from(code).to_be_bytes(),
            wire,
        );
        self.state = State::Closed;
    }

    fn handshake(&mut self, octets: &mut &[u8], wire: &mut Vec<u8>) -> Result<(), Failure> {
        let before = self.partial.len();
        let (now, later) = octets.split_at(octets.len().min(MAX_REQUEST - before));
        self.partial.extend_from_slice(now);
        if iter::zip(&self.partial, GET).any(|(one, other)| one != other) {
            return Err(Failure::new("what came is no WebSocket request"));
        }
        let searched = before.saturating_sub(END.len() - 1);
        let end = self.partial.get(searched..).and_then(|new| {
            new.windows(END.len())
                .position(|at| at == END)
                .map(|at| searched + at + END.len())
        });
        let Some(end) = end else {
            return if self.partial.len() < MAX_REQUEST {
                *octets = later;
                Ok(())
            } else {
                refuse("431 Request Header Fields Too Large", wire);
                Err(Failure::new(format!(
                    "the WebSocket request has over {MAX_REQUEST} octets"
                )))
            };
        };
        self.partial.truncate(end);
        let answer = answer(&self.partial, &self.origins)
            .inspect_err(|(status, _)| refuse(status, wire))
            .map_err(|(_, failure)| failure)?;
        wire.extend_from_slice(&answer);
        self.partial = Vec::new();
        self.state = State::Header;
        *octets = octets.get(end - before..).unwrap_or_default();
        Ok(())
    }

    fn frames(
        &mut self,
        mut octets: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        loop {
            match &mut self.state {
                State::Handshake => return Ok(()),
                State::Closed => {
                    let failure = Failure::new("the WebSocket is closed");
                    return Err(Refusal(CloseCode::Normal, failure));
                }
                State::Header => {
                    let Some((header, length)) = self.header(&mut octets)? else {
                        return Ok(());
                    };
                    self.state = State::Payload(self.begin(&header, length)?);
                }
                State::Payload(payload) => {
                    let control = matches!(payload.code, OpCode::Control(_));
                    let to = if control {
                        &mut self.partial
                    } else {
                        &mut *plain
                    };
                    payload.take(&mut octets, to);
                    if payload.left > 0 {
                        return Ok(());
                    }
                    if let OpCode::Control(code) = payload.code {
                        self.control(code, wire)?;
                        self.partial.clear();
                    }
                    self.state = State::Header;
                }
            }
        }
    }

    /// Return the next frame's header and the length of its payload, once the whole header has
    /// come.
    fn header(&mut self, octets: &mut &[u8]) -> Result<Option<(FrameHeader, u64)>, Refusal> {
        let kept = self.partial.len();
        let missing = octets.len().min(MAX_HEADER - kept);
        self.partial.extend(octets.iter().take(missing));
        let mut cursor = Cursor::new(&self.partial);
        let header = FrameHeader::parse(&mut cursor)
            .map_err(|error| refusal(format!("a WebSocket frame was wrong: {error}")))?;
        // An incomplete header is shorter than the longest one, so all octets were taken.
        let taken = match header {
            Some(_) => usize::try_from(cursor.position()).unwrap_or(kept) - kept,
            None => missing,
        };
        *octets = octets.get(taken..).unwrap_or_default();
        if let Some((header, length)) = &header {
            if header.len(*length) != kept + taken {
                return Err(refusal(
                    "a WebSocket frame's length was not in its shortest form",
                ));
            }
            self.partial.clear();
        }
        Ok(header)
    }

    /// Check a frame by its header, and return the payload that has to come.
    fn begin(&mut self, header: &FrameHeader, length: u64) -> Result<Payload, Refusal> {
        if header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(refusal("a WebSocket frame had bits set that are reserved"));
        }
        let Some(mask) = header.mask else {
            return Err(refusal("a WebSocket frame was not masked"));
        };
        match header.opcode {
            OpCode::Control(_) if !header.is_final => {
                return Err(refusal("a WebSocket control frame was fragmented"));
            }
            OpCode::Control(_) if length > MAX_CONTROL => {
                return Err(refusal("a WebSocket control frame was too long"));
            }
            OpCode::Control(_) => {}
            OpCode::Data(Data::Text) => {
                // [MQTT-6.0.0-1].
                let failure = Failure::new("a WebSocket frame had text, not binary data");
                return Err(Refusal(CloseCode::Unsupported, failure));
            }
            OpCode::Data(code) => {
                if self.continues != (code == Data::Continue) {
                    return Err(refusal("fragments of WebSocket messages were out of order"));
                }
                self.continues = !header.is_final;
            }
        }
        if length > u64::MAX / 2 {
            return Err(refusal(
                "a WebSocket frame's length had its highest bit set",
            ));
        }
        Ok(Payload {
            code: header.opcode,
            left: length,
            mask,
        })
    }

    /// Answer a control frame, whose payload has come.
    fn control(&mut self, code: Control, wire: &mut Vec<u8>) -> Result<(), Refusal> {
        match code {
            Control::Ping => frame(OpCode::Control(Control::Pong), &self.partial, wire),
            Control::Close => {
                let code = match self.partial.as_slice() {
                    [] => CloseCode::Normal,
                    [high, low, ..] => CloseCode::from(u16::from_be_bytes([*high, *low])),
                    [_] => CloseCode::Protocol,
                };
                let code = if code.is_allowed() {
                    code
                } else {
                    CloseCode::Protocol
                };
                return Err(Refusal(
                    code,
                    Failure::closed("the client closed the WebSocket"),
                ));
            }
            Control::Pong | Control::Reserved(_) => {}
        }
        Ok(())
    }
}

impl Payload {
    /// Append the octets of the payload that have come to `to`, unmasked.
    fn take(&mut self, octets: &mut &[u8], to: &mut Vec<u8>) {
        let count = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(octets.len());
        let (now, later) = octets.split_at(count);
        *octets = later;
        self.left -= count as u64;
        let begin = to.len();
        to.extend_from_slice(now);
        let [a, b, c, d] = self.mask;
        let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
        let mut words = to.get_mut(begin..).unwrap_or_default().chunks_exact_mut(8);
        for word in &mut words {
            if let Ok(octets) = <[u8; 8]>::try_from(&*word) {
                word.copy_from_slice(&(u64::from_ne_bytes(octets) ^ wide).to_ne_bytes());
            }
        }
        for (octet, mask) in words
            .into_remainder()
            .iter_mut()
            .zip(self.mask.iter().cycle())
        {
            *octet ^= mask;
        }
        self.mask.rotate_left(count % 4);
    }
}

fn refusal(sentence: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal(CloseCode::Protocol, Failure::new(sentence))
}

/// Append a frame to `wire`.
fn frame(opcode: OpCode, payload: &[u8], wire: &mut Vec<u8>) {
    let header = FrameHeader {
        opcode,
        ..FrameHeader::default()
    };
    // Writing to a vector cannot fail.
    let _ = header.format(payload.len() as u64, wire);
    wire.extend_from_slice(payload);
}

/// Append the answer that refuses a request.
fn refuse(status: &str, wire: &mut Vec<u8>) {
    let head = "Sec-WebSocket-Version: 13\r\nConnection: close\r\nContent-Length: 0";
    wire.extend_from_slice(format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n").as_bytes());
}

/// Return the answer to a request.
fn answer(request: &[u8], origins: &Origins) -> Result<Vec<u8>, (&'static str, Failure)> {
    const BAD: &str = "400 Bad Request";
    let wrong = |error| {
        let what = format!("the WebSocket request was wrong: {error}");
        (BAD, Failure::new(what))
    };
    let Some((_, request)) = Request::try_parse(request).map_err(wrong)? else {
        return Err((BAD, Failure::new("the WebSocket request was not complete")));
    };
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let host = request.headers().get("Host").map(text).unwrap_or_default();
    for origin in request.headers().get_all("Origin").iter().map(text) {
        if !origins.allow(&origin, &host) {
            let what = format!("a page of {origin:.100?} wants a WebSocket; see listener.origins");
            return Err(("403 Forbidden", Failure::new(what)));
        }
    }
    let mut response = create_response(&request).map_err(wrong)?;
    let offered = request.headers().get_all("Sec-WebSocket-Protocol");
    let offered: Vec<&str> = offered
        .iter()
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(',').map(str::trim))
        .collect();
    let Some(chosen) = PROTOCOLS.into_iter().find(|one| offered.contains(one)) else {
        let what = "the WebSocket request does not name the protocol `mqtt`";
        return Err((BAD, Failure::new(what)));
    };
    let chosen = HeaderValue::from_static(chosen);
    response
        .headers_mut()
        .insert("Sec-WebSocket-Protocol", chosen);
    let mut answer = Vec::new();
    write_response(&mut answer, &response).map_err(wrong)?;
    Ok(answer)
}
