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
mod text;

pub use passwords::{MOST_ITERATIONS, Passwords};
pub use rules::{Action, Rules};
pub use text::Error;
