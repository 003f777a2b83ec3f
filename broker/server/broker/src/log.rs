//! Lines for the journal: `<4>` and the like say how grave, and systemd takes them off.

use std::io::{IsTerminal, Write, stderr};

fn line(grade: u8, text: &str) {
    let mut stderr = stderr();
    // Nobody may read: that is not our clients' trouble.
    let _ = if stderr.is_terminal() {
        writeln!(stderr, "{text}")
    } else {
        writeln!(stderr, "<{grade}>{text}")
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
