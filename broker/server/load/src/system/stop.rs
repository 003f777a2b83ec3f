//! Ctrl-C and SIGTERM, polled, so that what was measured is still printed.

use mqtick_net::failure::{Failure, Outcome};
use mqtick_net::process::{END, signals};
use nix::sys::signalfd::SignalFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program was asked to end.
#[derive(Debug)]
pub struct Stop {
    signals: SignalFd,
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// Blocks SIGINT and SIGTERM; call it before any thread is started.
    ///
    /// # Errors
    /// Where the kernel refuses a descriptor.
    pub fn new() -> Outcome<Self> {
        Ok(Self {
            signals: signals(&END)?,
            asked: Arc::default(),
        })
    }

    /// Whether a signal has come.
    pub fn asked(&self) -> bool {
        if matches!(self.signals.read_signal(), Ok(Some(_))) {
            self.asked.store(true, Ordering::Relaxed);
        }
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns a flag by which another thread asks for the end.
    pub fn asker(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// Fails if a signal has come.
    ///
    /// # Errors
    /// [`Failure::Stopped`].
    pub fn check(&self) -> Outcome<()> {
        if self.asked() {
            Err(Failure::Stopped)
        } else {
            Ok(())
        }
    }
}
