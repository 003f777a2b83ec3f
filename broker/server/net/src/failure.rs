//! Why a program fails.

use std::fmt;

/// Why a program fails.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// Wrong use: exit code 2.
    Use(String),
    /// Something failed at run time: exit code 1.
    Failed(String),
    /// Ctrl-C or SIGTERM: exit code 130.
    Stopped,
}

impl Failure {
    /// Makes a failure of a system call.
    pub fn system(what: &str) -> impl FnOnce(nix::Error) -> Self + '_ {
        move |error| Self::Failed(format!("{what}: {}.", error.desc()))
    }

    /// Puts where it happened before the text.
    pub fn at(self, place: impl fmt::Display) -> Self {
        match self {
            Self::Use(text) => Self::Use(format!("{place}: {text}")),
            Self::Failed(text) => Self::Failed(format!("{place}: {text}")),
            Self::Stopped => Self::Stopped,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Use(text) | Self::Failed(text) => f.write_str(text),
            Self::Stopped => f.write_str("stopped: the figures are those until then"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}

/// Refuses a wrong use.
///
/// # Errors
/// [`Failure::Use`] with the text, if it is one.
pub fn refuse_if(is_wrong: bool, text: impl Into<String>) -> Outcome<()> {
    match is_wrong {
        true => Err(Failure::Use(text.into())),
        false => Ok(()),
    }
}

/// The result of most functions here.
pub type Outcome<T> = Result<T, Failure>;
