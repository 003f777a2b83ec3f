//! Sockets that systemd has opened and keeps open over a restart (`sd_listen_fds(3)`).

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::socket::{
    AddressFamily, SockType, SockaddrLike, SockaddrStorage, getsockname, getsockopt, sockopt,
};
use std::net::TcpListener;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

const FIRST: RawFd = 3; // SD_LISTEN_FDS_START
const MOST: RawFd = 1024;

/// A socket that accepts connections.
pub enum Door {
    /// Over IP.
    Tcp(TcpListener),
    /// From this host.
    Unix(UnixListener),
}

/// The sockets that systemd has passed, each with its name (`FileDescriptorName=`).
#[derive(Default)]
pub struct Passed(Vec<(String, OwnedFd)>);

impl Passed {
    /// Take them over. Must be called once, before the program opens any file.
    ///
    /// # Errors
    /// The environment contradicts the open files.
    pub fn take() -> Result<Self, String> {
        let said = |name: &str| std::env::var(name).ok();
        let number = |name: &str| {
            said(name)
                .map(|text| text.parse::<RawFd>().map_err(|_| text))
                .transpose()
                .map_err(|text| format!("{name}={text} is no number"))
        };
        // If the id is another one, they were passed to the process that has started this one.
        let is_ours =
            number("LISTEN_PID")?.is_some_and(|pid| pid.unsigned_abs() == std::process::id());
        let count = number("LISTEN_FDS")?.filter(|_| is_ours).unwrap_or(0);
        if !(0..=MOST).contains(&count) {
            return Err(format!("LISTEN_FDS={count}: 0 to {MOST} can be used"));
        }
        let names = said("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let mut sockets = Vec::new();
        for file in FIRST..FIRST + count {
            let name = names.next().unwrap_or("unknown").into();
            let socket = own(file).ok_or(format!("LISTEN_FDS={count}, but {file} is not open"))?;
            sockets.push((name, socket));
        }
        Ok(Self(sockets))
    }

    /// Take the sockets of one name: a unit may list several.
    ///
    /// # Errors
    /// There is none, or one does not accept connections.
    pub fn claim(&mut self, name: &str) -> Result<Vec<Door>, String> {
        let (found, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(of, _)| of == name);
        self.0 = rest;
        if found.is_empty() {
            return Err(match self.0.as_slice() {
                [] => "systemd passed no such socket: is the program started by a .socket unit?"
                    .into(),
                rest => {
                    let names: Vec<_> = rest.iter().map(|(name, _)| name.as_str()).collect();
                    let names = names.join(", ");
                    format!("systemd passed no such socket, but: {names} (see FileDescriptorName=)")
                }
            });
        }
        found.into_iter().map(|(_, socket)| door(socket)).collect()
    }

    /// Check that no socket is left over: its clients would wait for ever.
    ///
    /// # Errors
    /// The names of those that are left.
    pub fn finish(self) -> Result<(), String> {
        let names: Vec<_> = self
            .0
            .iter()
            .map(|(name, _)| format!("systemd = {name:?}"))
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let names = names.join(", ");
        Err(format!(
            "systemd passed a socket that no [[listener]] has: {names}"
        ))
    }
}

/// Take over a descriptor that was open before the program began.
#[allow(unsafe_code)]
fn own(file: RawFd) -> Option<OwnedFd> {
    // SAFETY: F_GETFD takes any number, and touches no memory.
    if unsafe { libc::fcntl(file, libc::F_GETFD) } == -1 {
        return None;
    }
    // SAFETY: it is open, as was just checked. By LISTEN_PID, it was passed to this process for its
    // use. `take` is called once, before anything else here opens a file, so nothing else owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(file) };
    // It does not fail for an open descriptor. If it did, only a program started by us would keep
    // it.
    let _ = fcntl(&owned, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    Some(owned)
}

fn door(socket: OwnedFd) -> Result<Door, String> {
    let listens = getsockopt(&socket, sockopt::SockType) == Ok(SockType::Stream)
        && getsockopt(&socket, sockopt::AcceptConn) == Ok(true);
    let family = getsockname::<SockaddrStorage>(socket.as_raw_fd())
        .ok()
        .and_then(|address| address.family());
    let door = match family.filter(|_| listens) {
        Some(AddressFamily::Inet | AddressFamily::Inet6) => Door::Tcp(socket.into()),
        Some(AddressFamily::Unix) => Door::Unix(socket.into()),
        _ => {
            return Err(
                "what systemd passed takes no connections: the .socket unit needs \
                        ListenStream=, and Accept=no"
                    .into(),
            );
        }
    };
    let unblocked = match &door {
        Door::Tcp(one) => one.set_nonblocking(true),
        Door::Unix(one) => one.set_nonblocking(true),
    };
    unblocked.map_err(|error| error.to_string())?;
    Ok(door)
}
