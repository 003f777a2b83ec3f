//! What outlives a restart of the node: the kept sessions of clients, and the names of other nodes.

use crate::manager::Manager;
use crate::rarely::Rarely;
use crate::topology::valid_name;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The files, if the setting `state` names them.
pub(super) struct State {
    path: Option<PathBuf>,
    /// The names of other nodes that are on disk.
    names: String,
    said: Rarely,
}

impl State {
    /// Read the files, if there are any.
    pub fn restore(manager: &mut Manager) -> Result<Self, String> {
        let path = manager.settings.state.clone();
        if let Some(path) = &path {
            let fault = |error: io::Error| format!("{}: {error}", path.display());
            let text = match fs::read_to_string(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
                text => text.map_err(fault)?,
            };
            let names = fs::read_to_string(path.with_extension("nodes")).unwrap_or_default();
            let names = names.lines().filter(|name| valid_name(name));
            manager.site.node.expect(names.map(Into::into));
            manager.restore(&text).map_err(|line| {
                format!(
                    "{}: line {line} was not written by mqtick-join: move the file away; clients with \
                     kept sessions then have to subscribe again",
                    path.display()
                )
            })?;
        }
        Ok(Self {
            path,
            names: String::new(),
            said: Rarely::default(),
        })
    }

    /// Write what has changed. If that fails, the next call tries again.
    pub fn keep(&mut self, manager: &mut Manager) {
        let Some(path) = self.path.clone() else {
            return;
        };
        if let Some(text) = manager.site.sessions.changes()
            && !self.write(&path, &text, manager.site.now_s)
        {
            manager.site.sessions.not_kept();
        }
        let names = manager.site.node.others().into_iter();
        let names: String = names.map(|name| format!("{name}\n")).collect();
        // At its end the node parts with all others, which must not be forgotten.
        if names != self.names
            && !manager.is_ending
            && self.write(&path.with_extension("nodes"), &names, manager.site.now_s)
        {
            self.names = names;
        }
    }

    /// Write a file as a whole. Returns whether that was done.
    fn write(&mut self, path: &Path, text: &str, now_s: u64) -> bool {
        let new = path.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
        if let Err(error) = &written {
            self.said.warn(now_s, || {
                format!(
                    "{}: {error}; until it can be written, a restart of the node loses what changed",
                    path.display()
                )
            });
        }
        written.is_ok()
    }
}
