//! Why the program fails.

use std::fmt;

/// Why the program fails.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Use(String),
    /// Something failed at run time: exit code 1.
    Failed(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Use(text) => write!(f, "{text} See --help."),
            Self::Failed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}

/// The result of what can fail.
pub type Outcome<T> = Result<T, Failure>;
