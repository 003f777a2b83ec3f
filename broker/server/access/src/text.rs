//! Lines of a file, and why one is refused.

use std::fmt;

/// Why a file was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The line number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Error {}

/// The characters that Mosquitto removes from a line's end.
const BLANKS: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];

/// The lines of a file with their numbers, without empty lines, comments and trailing blanks.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, Result<&str, Error>)> {
    let numbered = text
        .split('\n')
        .map(|line| line.trim_end_matches(BLANKS))
        .zip(1..);
    let said = numbered.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    said.map(
        |(line, number)| match line.chars().find(|one| one.is_control()) {
            None => (number, Ok(line)),
            Some('\t') => (
                number,
                Err(refuse(number, "has a tab within it; write a blank instead")),
            ),
            Some(one) => {
                let what = format!("has the control character U+{:04X} in it", u32::from(one));
                (number, Err(refuse(number, what)))
            }
        },
    )
}

/// Refuse a file because of a line.
pub(crate) fn refuse(line: usize, what: impl Into<String>) -> Error {
    Error {
        line,
        what: what.into(),
    }
}

/// The beginning of a text from a file, quoted for a message.
pub(crate) fn quoted(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
