//! A small HTTP server for one page, `GET /metrics`, in a thread of its own.
//!
//! Its clients may be hostile: at most 8 KiB of a request are read, at most 16 connections are
//! open, the oldest is closed when another one comes (so idle ones cannot keep Prometheus out), and
//! each is closed after 5 seconds. The other programs of mqtick do the same.

use crate::log;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// The content type of Prometheus' text exposition format 0.0.4.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const LARGEST_REQUEST: usize = 8192;
const MOST: usize = 16; // connections
const AT_ONCE: usize = 64; // new connections that are accepted
const TIMEOUT: Duration = Duration::from_secs(5);

struct Asker {
    stream: TcpStream,
    until: Instant,
    request: Vec<u8>,
    answer: Vec<u8>,
    written: usize,
}

/// Listen at `metrics.address` of the settings.
///
/// # Errors
/// A sentence with the system's.
pub fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let bound = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    bound.map_err(|error| format!("metrics.address, {address}: {error}"))
}

/// Serve `page` in a thread, for ever.
///
/// # Errors
/// A sentence with the system's.
pub fn start(
    listener: TcpListener,
    page: impl Fn() -> String + Send + 'static,
) -> Result<(), String> {
    let fault = |error: io::Error| format!("metrics are not served: {error}");
    let address = listener.local_addr().map_err(fault)?; // the kernel chooses the port if it is 0
    let builder = thread::Builder::new().name("metrics".into());
    builder
        .spawn(move || serve(&listener, page))
        .map_err(fault)?;
    log::notice(&format!("metrics are at http://{address}/metrics"));
    Ok(())
}

fn serve(listener: &TcpListener, page: impl Fn() -> String) {
    let mut askers: VecDeque<Asker> = VecDeque::new();
    loop {
        let ready = wait(listener, &askers);
        let mut is_ready = ready.iter();
        let comes = is_ready.next().is_some_and(|ready| *ready);
        let now = Instant::now();
        askers.retain_mut(|asker| {
            let goes_on = !is_ready.next().is_some_and(|ready| *ready) || asker.step(&page);
            goes_on && now < asker.until
        });
        let mut at_once = 0..AT_ONCE;
        while comes && at_once.next().is_some() && accept(listener, &mut askers, &page) {}
    }
}

/// Wait until something happens. Returns whether it is at the listener, and at each connection.
fn wait(listener: &TcpListener, askers: &VecDeque<Asker>) -> Vec<bool> {
    let wanted = |asker: &Asker| match asker.answer.is_empty() {
        true => PollFlags::POLLIN,
        false => PollFlags::POLLOUT,
    };
    let mut all = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    all.extend(
        askers
            .iter()
            .map(|asker| PollFd::new(asker.stream.as_fd(), wanted(asker))),
    );
    let timeout = if askers.is_empty() {
        PollTimeout::NONE
    } else {
        PollTimeout::from(500u16)
    };
    if poll(&mut all, timeout).is_err() {
        return Vec::new(); // a signal, or no memory for a moment
    }
    all.iter().map(|one| one.any().unwrap_or(true)).collect()
}

/// Accept a connection. Returns whether there may be more.
fn accept(listener: &TcpListener, askers: &mut VecDeque<Asker>, page: impl Fn() -> String) -> bool {
    let stream = match listener.accept() {
        Ok((stream, _)) => stream,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
        // Out of descriptors, most likely: without a pause this would be a busy loop.
        Err(_) => {
            sleep(Duration::from_millis(100));
            return false;
        }
    };
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let mut asker = Asker {
        stream,
        until: Instant::now() + TIMEOUT,
        request: Vec::new(),
        answer: Vec::new(),
        written: 0,
    };
    // Mostly its request is there already: then later connections cannot push it out.
    if asker.step(page) {
        if askers.len() >= MOST {
            askers.pop_front();
        }
        askers.push_back(asker);
    }
    true
}

impl Asker {
    /// Read or write. Returns whether there is more to do.
    fn step(&mut self, page: impl Fn() -> String) -> bool {
        if self.answer.is_empty() && !self.read(page) {
            return false;
        }
        while let Some(rest) = self
            .answer
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            match self.stream.write(rest) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        if self.answer.is_empty() {
            return true;
        }
        // It fails if the other side has closed the connection before.
        let _ = self.stream.shutdown(Shutdown::Write);
        false
    }

    /// Read the request. Returns whether the connection goes on.
    fn read(&mut self, page: impl Fn() -> String) -> bool {
        let mut octets = [0; 2048];
        while self.answer.is_empty() {
            match self.stream.read(&mut octets) {
                Ok(0) => return false,
                Ok(count) => self
                    .request
                    .extend_from_slice(octets.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            let ends = |end: &[u8]| self.request.windows(end.len()).any(|here| here == end);
            if ends(b"\r\n\r\n") || ends(b"\n\n") {
                self.answer = answer(&self.request, &page);
            } else if self.request.len() >= LARGEST_REQUEST {
                self.answer = said("431 Request Header Fields Too Large", "too long", true);
            }
        }
        true
    }
}

fn answer(request: &[u8], page: impl Fn() -> String) -> Vec<u8> {
    let line = request
        .split(|octet| *octet == b'\n')
        .next()
        .unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let mut words = line.split_ascii_whitespace();
    let (method, target, version) = (words.next(), words.next(), words.next());
    if !version.is_some_and(|version| version.starts_with("HTTP/1.")) || words.next().is_some() {
        return said("400 Bad Request", "not a request of HTTP/1.1", true);
    }
    let with_body = match method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return said("405 Method Not Allowed", "only GET and HEAD are here", true),
    };
    let path = target.and_then(|target| target.split('?').next());
    if path != Some("/metrics") {
        return said("404 Not Found", "only /metrics is here", with_body);
    }
    http("200 OK", CONTENT_TYPE, &page(), with_body)
}

fn said(status: &str, sentence: &str, with_body: bool) -> Vec<u8> {
    http(
        status,
        "text/plain; charset=utf-8",
        &format!("{sentence}\n"),
        with_body,
    )
}

fn http(status: &str, kind: &str, body: &str, with_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let length = body.len();
    let body = if with_body { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nServer: mqtick\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         {allow}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
