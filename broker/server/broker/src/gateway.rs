//! What threads share of a gateway's upstream: what is counted of it, and the secrets for it.

use crate::settings::Upstream;
use mqtick_net::wire::trust;
use rustls::ClientConfig;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The names of the counters, in the order of [`Count`].
const NAMES: [&str; 6] = [
    "connections",
    "failures",
    "published",
    "received",
    "refused",
    "dropped",
];

/// What is counted.
#[derive(Clone, Copy)]
#[repr(usize)]
pub enum Count {
    Connections,
    Failures,
    Published,
    Received,
    Refused,
    Dropped,
}

/// What has happened since the start.
#[derive(Default)]
pub struct Counters {
    /// Present connections that the upstream has accepted.
    pub connected: AtomicU64,
    counts: [AtomicU64; NAMES.len()],
}

impl Counters {
    pub fn add(&self, what: Count) {
        if let Some(count) = self.counts.get(what as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// The counters, by name.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES
            .into_iter()
            .zip(self.counts.iter().map(|one| one.load(Relaxed)))
    }
}

/// What a gateway needs beside its settings. It is read before the first connection.
#[derive(Default)]
pub struct Secrets {
    /// The password of the URL's user.
    pub password: Option<String>,
    /// The configuration of TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Secrets {
    /// Read the files that the settings name.
    ///
    /// # Errors
    /// What is wrong with a file.
    pub fn read(settings: &Upstream) -> Result<Self, String> {
        let Some(address) = &settings.url else {
            return Ok(Self::default());
        };
        let password = settings.password_file.as_ref().map(|path| {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, String>(text.lines().next().unwrap_or_default().to_owned())
        });
        let own = settings.certificate.as_deref().zip(settings.key.as_deref());
        let tls = address.is_tls.then(|| trust(&settings.ca_file, own));
        Ok(Self {
            password: password.transpose()?,
            tls: tls.transpose()?,
        })
    }
}
