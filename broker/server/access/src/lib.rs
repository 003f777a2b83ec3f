//! Decides which clients may connect, publish and subscribe, by Mosquitto's password and access
//! files.
//!
//! The meaning of the files was determined from Mosquitto 2.0.11 itself, and `tests/mosquitto.rs`
//! compares both if Mosquitto is installed. We only differ by being stricter:
//!
//! | | Mosquitto | here |
//! |---|---|---|
//! | a line of the password file that cannot be used | that user is left out | the file is refused
//! |
//! | a user twice in the password file | the last line counts | the file is refused |
//! | a control character within a line | part of a name or topic | the file is refused |
//! | `/` in a user name or client id | `%u` or `%c` becomes two levels | no pattern that uses it
//! allows |
//! | a user or client id such as `$SYS` | pattern `%u/#` allows `$SYS/#` | only a pattern that
//! begins with `$` allows it |
//! | a filter of which no topic may be read | granted, and nothing comes | refused |
//! | a NUL in the password of a client | what follows it is ignored | it is wrong |
//! | a password of more than 4,096 octets | can be right | is wrong |

mod passwords;
mod rules;

use std::fmt;

pub use passwords::{MOST_ITERATIONS, Passwords};
pub use rules::{Action, Rules};

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
fn lines(text: &str) -> impl Iterator<Item = (usize, Result<&str, Error>)> {
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

fn refuse(line: usize, what: impl Into<String>) -> Error {
    Error {
        line,
        what: what.into(),
    }
}

/// The beginning of a text from a file, quoted for a message.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}
