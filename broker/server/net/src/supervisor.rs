//! Notifications to systemd: `sd_notify(3)`, `sd_watchdog_enabled(3)`.

use crate::log;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Notify systemd, if it has asked for that.
pub fn tell(what: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &address));
    if let Err(error) = sent {
        log::warning(&format!("systemd was not told: {error}"));
    }
}

/// How often to tell systemd that the program is alive: three times in the time after which it
/// would kill it. None: it does not ask.
pub fn heartbeat() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let limit = number("WATCHDOG_USEC").filter(|limit| *limit > 0 && is_ours)?;
    Some(Duration::from_micros(limit / 3))
}
