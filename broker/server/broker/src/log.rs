//! Lines for people, or for systemd's journal: there, `<4>` and the like say how grave each one is.

use std::io::{IsTerminal, Write, stderr};

fn line(grade: u8, text: &str) {
    let mut stderr = stderr();
    // systemd.exec(5): it sets this for what it logs.
    let is_logged = std::env::var_os("JOURNAL_STREAM").is_some() && !stderr.is_terminal();
    // Nobody may read: that is not our clients' trouble.
    let _ = match is_logged {
        true => writeln!(stderr, "<{grade}>{text}"),
        false => writeln!(stderr, "{text}"),
    };
}

/// Something that should not be.
pub fn error(text: &str) {
    line(3, text);
}

/// Something that somebody should look at.
pub fn warning(text: &str) {
    line(4, text);
}

/// What goes on.
pub fn notice(text: &str) {
    line(5, text);
}
