//! Files of scenarios, and what the program says when it is given one.

use super::{Peer, json, row};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A file of its own for each test, removed with it.
pub struct File(pub PathBuf);

impl File {
    pub fn new(name: &str, text: &str) -> Self {
        let name = format!("mqtick-load-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

pub fn program(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mqtick-load"))
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub fn run(peer: &Peer, file: &File, more: &[&str]) -> Output {
    let broker = peer.address.to_string();
    let all = [&["run", file.path(), "--broker", &broker, "--json"], more].concat();
    program(&all)
}

/// A run that measures all.
pub fn good(peer: &Peer, file: &File, more: &[&str]) -> Output {
    let output = run(peer, file, more);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    output
}

pub fn error(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The only value of a row.
pub fn value(output: &Output, key: &str) -> f64 {
    row(&json(output), key, None)[0]
}

/// The notes of a run by its output.
pub fn notes(output: &Output) -> String {
    json(output)["notes"].to_string()
}

/// A run that is stopped at message `flow`, until `until` holds; what it then says.
pub fn stopped_meanwhile(
    peer: &Peer,
    file: &File,
    flow: u64,
    mut until: impl FnMut() -> bool,
) -> Output {
    let broker = peer.address.to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_mqtick-load"))
        .args(["run", file.path(), "--broker", &broker, "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let signal = |which| {
        let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
        nix::sys::signal::kill(pid, which).unwrap();
    };
    peer.messages.iter().find(|number| *number == flow).unwrap();
    signal(nix::sys::signal::Signal::SIGSTOP);
    while !until() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    signal(nix::sys::signal::Signal::SIGCONT);
    child.wait_with_output().unwrap()
}
