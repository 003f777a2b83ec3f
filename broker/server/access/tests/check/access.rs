//! Reads any octets as an access file and as a password file, and queries both.

use mqtick_access::{Action, Passwords, Rules};

/// Fails if something panics, if a message is long, or if more is allowed than the file states.
pub fn check(octets: &[u8]) {
    let text = String::from_utf8_lossy(octets);
    let lines = text.lines().count() + 1;
    match Rules::parse(&text) {
        Ok(rules) => {
            let grants = text.contains("topic") || text.contains("pattern");
            for user in [None, Some("a"), Some("b/c"), Some("+"), Some("$SYS")] {
                for topic in ["a", "a/b", "$SYS/a", "", "/", "a/b/c/d/e/f"] {
                    for action in [Action::Read, Action::Write] {
                        assert!(grants || !rules.may(user, "client", action, topic));
                    }
                }
            }
        }
        Err(error) => assert!(error.line <= lines && error.to_string().len() < 1000),
    }
    if let Err(error) = Passwords::parse(&text) {
        assert!(
            error.line <= lines && error.to_string().len() < 1000,
            "{error}"
        );
    }
}
