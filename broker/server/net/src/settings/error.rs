//! Errors of a configuration, and their place in the file.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Why a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The file; none: the text is not from a file.
    pub file: Option<PathBuf>,
    /// The number of the line, from 1, if one is wrong.
    pub line: Option<usize>,
    /// The setting, such as `limits.packet`; empty: the whole file.
    pub key: String,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(out, "{}: ", file.display())?;
        }
        if let Some(line) = self.line {
            write!(out, "line {line}: ")?;
        }
        if !self.key.is_empty() {
            write!(out, "{}: ", self.key)?;
        }
        out.write_str(&self.what)
    }
}

impl std::error::Error for Error {}

/// Refuse a setting.
///
/// # Errors
/// Always.
pub fn refuse(key: impl Into<String>, what: impl Into<String>) -> Result<(), Error> {
    Err(Error {
        file: None,
        line: None,
        key: key.into(),
        what: what.into(),
    })
}

/// Refuse a value that is out of range.
///
/// # Errors
/// With the range.
pub fn between<T>(key: &str, value: T, range: RangeInclusive<T>) -> Result<(), Error>
where
    T: PartialOrd + fmt::Display,
{
    if range.contains(&value) {
        return Ok(());
    }
    refuse(
        key,
        format!(
            "is {value}; {} to {} can be used",
            range.start(),
            range.end()
        ),
    )
}

/// An error of the parser, with its line and setting.
#[must_use]
pub fn explain(text: &str, error: &toml::de::Error) -> Error {
    let at = error.span().map(|span| span.start);
    let spots = at.map(|at| (at, spots(text)));
    let here = |at, spot: &Spot| spot.name.contains(&at) || spot.value.contains(&at);
    let key = spots.and_then(|(at, mut all)| {
        all.retain(|spot| here(at, spot));
        all.pop().map(|spot| spot.key)
    });
    let mut what = error.message().replace('\n', "; ");
    for (kind, plain) in [
        ("expected u16", "expected a whole number from 0 to 65535"),
        (
            "expected u32",
            "expected a whole number from 0 to 4294967295",
        ),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected usize", "expected a whole number, 0 or more"),
    ] {
        what = what.replace(kind, plain);
    }
    Error {
        file: None,
        line: at.map(|at| line_at(text, at)),
        key: key.unwrap_or_default(),
        what,
    }
}

fn line_at(text: &str, at: usize) -> usize {
    text.bytes()
        .take(at)
        .filter(|octet| *octet == b'\n')
        .count()
        + 1
}

/// Where a setting is in the file.
struct Spot {
    /// Its name, such as `listener[1].tls`.
    key: String,
    name: Range<usize>,
    value: Range<usize>,
}

/// All settings of a file, each after the one that contains it.
fn spots(text: &str) -> Vec<Spot> {
    fn of_table(table: &DeTable<'_>, within: &str, all: &mut Vec<Spot>) {
        for (name, value) in table {
            let dot = if within.is_empty() { "" } else { "." };
            let key = format!("{within}{dot}{}", name.get_ref());
            add(key, name.span(), value, all);
        }
    }
    fn add(key: String, name: Range<usize>, value: &Spanned<DeValue<'_>>, all: &mut Vec<Spot>) {
        all.push(Spot {
            key: key.clone(),
            name,
            value: value.span(),
        });
        match value.get_ref() {
            DeValue::Table(table) => of_table(table, &key, all),
            DeValue::Array(array) => {
                for (at, one) in array.iter().enumerate() {
                    add(format!("{key}[{at}]"), one.span(), one, all);
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        of_table(table.get_ref(), "", &mut all);
    }
    all
}

/// The line of a setting, or of the innermost thing that it would be in.
#[must_use]
pub fn line_of(text: &str, key: &str) -> Option<usize> {
    let spots = spots(text);
    let within = |spot: &&Spot| {
        key.strip_prefix(&spot.key)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    spots
        .iter()
        .filter(within)
        .max_by_key(|spot| spot.key.len())
        .map(|spot| line_at(text, spot.name.start))
}
