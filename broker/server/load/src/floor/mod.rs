//! The floor: the least that a broker has to do, by bare system calls.

use crate::system::process::Process;
use mqtick_net::failure::{Failure, Outcome};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

pub mod tcp;
pub mod udp;

/// The floor as a process of its own, so that its processor time is separate from ours.
#[derive(Debug)]
pub struct FloorProcess {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its cost.
    pub process: Process,
}

impl FloorProcess {
    /// Starts it.
    ///
    /// # Errors
    /// Where this program cannot be started again.
    pub fn start(threads: usize, udp: bool) -> Outcome<Self> {
        let failed =
            |error: std::io::Error| Failure::Failed(format!("the floor did not start: {error}."));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(["floor", "--until-eof", "--threads", &threads.to_string()])
            .args(udp.then_some("--udp"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(failed)?;
        }
        let address = line.trim().parse();
        let address =
            address.map_err(|_| Failure::Failed("the floor did not start.".to_owned()))?;
        let process = Process::new(child.id().cast_signed())?;
        Ok(Self {
            child,
            address,
            process,
        })
    }
}

impl Drop for FloorProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Waits for the end of standard input.
pub fn until_eof() {
    let mut sink = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut sink);
}
