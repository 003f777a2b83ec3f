//! The Unix socket for `status` and other questions to a running program.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Failure, Outcome};

const PATIENCE: Duration = Duration::from_secs(20);
const MOST_WAITING: usize = 8;
const LONGEST: usize = 512;

/// The listening end.
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    waiting: Vec<(UnixStream, Vec<u8>)>,
}

impl Control {
    /// Listen, on behalf of this program. The socket of a program that has ended is replaced.
    ///
    /// # Errors
    /// Another instance runs, or the socket cannot be made.
    pub fn new(path: &Path, program: &str) -> Outcome<Self> {
        let name = path.display();
        let fault = |error: io::Error| Failure::Failed(format!("{name}: {error}."));
        let is_socket = std::fs::symlink_metadata(path)
            .is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_socket(&found.file_type()));
        match UnixStream::connect(path) {
            Ok(_) => {
                return Err(Failure::Failed(format!(
                    "{name}: another {program} runs there: stop it, or give each its own --control."
                )));
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_socket => {
                std::fs::remove_file(path).map_err(fault)?;
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(fault)?;
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(path, mode).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            waiting: Vec::new(),
        })
    }

    /// Whether a question is incomplete: call [`Self::serve`] again soon.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Answer the questions that have come, without waiting for more.
    pub fn serve(&mut self, mut answer: impl FnMut(&str) -> Option<String>) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                if self.waiting.len() >= MOST_WAITING {
                    self.waiting.remove(0);
                }
                self.waiting.push((stream, Vec::new()));
            }
        }
        self.waiting.retain_mut(|(stream, text)| {
            let mut octets = [0; LONGEST];
            match stream.read(&mut octets) {
                Ok(count) => text.extend(octets.iter().take(count)),
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
            let Some(end) = text.iter().position(|octet| *octet == b'\n') else {
                return !text.is_empty() && text.len() < LONGEST;
            };
            let line = String::from_utf8_lossy(text.get(..end).unwrap_or_default());
            if let Some(answer) = answer(&line) {
                // An asker that does not read gets no answer.
                let _ = stream.set_nonblocking(false);
                let _ = stream.set_write_timeout(Some(Duration::from_millis(20)));
                let _ = stream.write_all(answer.as_bytes());
            }
            false
        });
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Ask a running program.
///
/// # Errors
/// The program does not run, or does not answer.
pub fn ask(path: &Path, program: &str, question: &str) -> Outcome<String> {
    ask_within(PATIENCE, path, program, question)
}

fn ask_within(most: Duration, path: &Path, program: &str, question: &str) -> Outcome<String> {
    let name = path.display();
    let fault = |error: io::Error| {
        Failure::Failed(format!(
            "{name}: {error}. Is {program} running, with this --control, and may you ask it?"
        ))
    };
    let mut stream = UnixStream::connect(path).map_err(fault)?;
    stream.set_read_timeout(Some(most)).map_err(fault)?;
    stream
        .write_all(format!("{question}\n").as_bytes())
        .map_err(fault)?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            return Err(Failure::Failed(format!(
                "{name}: {program} did not answer within {most:?}: it is busy, or hangs."
            )));
        }
        read => read.map_err(fault)?,
    };
    if answer.is_empty() {
        let error = io::Error::new(ErrorKind::InvalidData, "it has no answer");
        return Err(fault(error));
    }
    Ok(answer)
}

/// A text as a JSON string.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for one in text.chars() {
        match one {
            '"' | '\\' => out.extend(['\\', one]),
            one if one.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(one));
            }
            one => out.push(one),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]

    use super::*;

    #[test]
    fn who_gets_no_answer_is_told_that_the_program_is_busy_or_hangs() {
        let path = std::env::temp_dir().join(format!("mqtick-control-{}", std::process::id()));
        let _hangs = Control::new(&path, "mqtick-x").unwrap();
        let patience = Duration::from_millis(10);
        let said = ask_within(patience, &path, "mqtick-x", "status").unwrap_err();
        assert_eq!(
            said.to_string(),
            format!(
                "{}: mqtick-x did not answer within 10ms: it is busy, or hangs.",
                path.display()
            )
        );
    }
}
