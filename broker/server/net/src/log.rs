//! Lines for a terminal, or for systemd's journal with their priority, such as `<4>`.

use std::io::{IsTerminal, Write, stderr};

fn line(grade: u8, text: &str) {
    let mut stderr = stderr();
    // systemd.exec(5): systemd sets this if it logs the output.
    let is_logged = std::env::var_os("JOURNAL_STREAM").is_some() && !stderr.is_terminal();
    // If the log cannot be written, clients are served all the same.
    let _ = match is_logged {
        true => writeln!(stderr, "<{grade}>{text}"),
        false => writeln!(stderr, "{text}"),
    };
}

/// Log an error.
pub fn error(text: &str) {
    line(3, text);
}

/// Log something that the operator should look at.
pub fn warning(text: &str) {
    line(4, text);
}

/// Log a normal event.
pub fn notice(text: &str) {
    line(5, text);
}
