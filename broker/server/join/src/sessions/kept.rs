//! What survives a restart of the node.

use super::{FOR_EVER, Sessions};
use std::sync::Arc;

impl Sessions {
    /// The sessions that outlive their connection, as text, if they have changed: for each a line with
    /// its expiry and client, then a line with a tab for each of its filters.
    pub fn changes(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut text = String::new();
        for (client, session) in &self.all {
            if session.expiry_s == 0 || session.filters.is_empty() {
                continue;
            }
            text.push_str(&format!("{} {}\n", session.expiry_s, escaped(client)));
            for filter in &session.filters {
                text.push_str(&format!("\t{}\n", escaped(filter)));
            }
        }
        Some(text)
    }

    /// The last [`Self::changes`] could not be written to disk: give them again.
    pub fn not_kept(&mut self) {
        self.changed = true;
    }

    /// Read this text again. Returns the filters that this site is subscribed to.
    ///
    /// # Errors
    /// The number of the first malformed line.
    pub fn restore(&mut self, text: &str, now_s: u64) -> Result<Vec<Arc<str>>, usize> {
        let mut new = Vec::new();
        let mut client: Option<String> = None;
        for (number, line) in (1_usize..).zip(text.lines()) {
            if let Some(filter) = line.strip_prefix('\t') {
                let client = client.as_deref().ok_or(number)?;
                new.extend(self.subscribe(client, &[plain(filter).ok_or(number)?.into()]));
                continue;
            }
            let (expiry_s, name) = line.split_once(' ').ok_or(number)?;
            let expiry_s = expiry_s.parse().map_err(|_| number)?;
            let name = plain(name).ok_or(number)?;
            let until_s = (expiry_s != FOR_EVER).then(|| now_s + u64::from(expiry_s));
            let session = self.all.entry(name.as_str().into()).or_default();
            (session.expiry_s, session.until_s) = (expiry_s, until_s);
            client = Some(name);
        }
        self.changed = false;
        Ok(new)
    }
}

/// A text without line breaks, for any text of MQTT.
fn escaped(text: &str) -> String {
    let text = text.replace('%', "%25");
    text.replace('\n', "%0A").replace('\r', "%0D")
}

/// The text that [`escaped`] was given.
fn plain(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut plain = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        plain.push(match code {
            "25" => '%',
            "0A" => '\n',
            "0D" => '\r',
            _ => return None,
        });
        plain.push_str(rest);
    }
    Some(plain)
}
