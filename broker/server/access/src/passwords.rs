//! The password file.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{Context, SHA512, SHA512_OUTPUT_LEN};
use ring::pbkdf2::{self, PBKDF2_HMAC_SHA512};

use crate::text::{Error, lines, quoted, refuse};

/// The most iterations: more would take longer than about a second for each check.
pub const MOST_ITERATIONS: u32 = 1_000_000;
const LONGEST_NAME: usize = u16::MAX as usize;
const LONGEST_PASSWORD: usize = 4096; // to hash a longer one would take longer than the iterations
const LONGEST_SALT: usize = 1024;

type Hash = [u8; SHA512_OUTPUT_LEN];

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    /// The number of iterations of PBKDF2; `None`: a single salted SHA-512.
    iterations: Option<NonZeroU32>,
    salt: Box<[u8]>,
    hash: Hash,
}

/// The users of a password file and the hashes of their passwords.
#[derive(Clone)]
pub struct Passwords {
    users: HashMap<Box<str>, Entry>,
    /// Checked in place of an unknown user.
    nobody: Entry,
    /// Whether any user has only a salted SHA-512.
    salted: bool,
}

impl Passwords {
    /// Read a password file as mosquitto_passwd writes it, 1.6 (`$6$`) and 2.x (`$7$`).
    ///
    /// # Errors
    /// The first line that cannot be used. The message contains no password.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut users = HashMap::new();
        let mut nobody = Entry {
            iterations: None,
            salt: [0; 12].into(),
            hash: [0; 64],
        };
        let mut salted = false;
        for (number, line) in lines(text) {
            let (user, entry) = parse_line(line?).map_err(|what| refuse(number, what))?;
            nobody.iterations = nobody.iterations.max(entry.iterations);
            salted |= entry.iterations.is_none();
            if users.insert(user.into(), entry).is_some() {
                let what = format!("the user {} has a line above, too", quoted(user));
                return Err(refuse(number, what));
            }
        }
        Ok(Self {
            users,
            nobody,
            salted,
        })
    }

    /// Whether there is such a user.
    #[must_use]
    pub fn knows(&self, user: &str) -> bool {
        self.users.contains_key(user)
    }

    /// Whether a user has the same line here as in an earlier file, so that who has connected is
    /// still who it was.
    #[must_use]
    pub fn knows_as(&self, before: &Self, user: &str) -> bool {
        let now = self.users.get(user);
        now.is_some() && now == before.users.get(user)
    }

    /// Whether this is the password of this user. Never if it is empty, has more than 4,096 octets
    /// or contains a NUL: for HMAC, a NUL at the end makes no difference.
    ///
    /// PBKDF2 is slow on purpose: about 60 us with the 101 iterations of mosquitto_passwd, and
    /// proportionally longer with more. Each check takes as long as for the user with the most
    /// iterations, whether the user is known and the password right or not, so that the time
    /// reveals nothing.
    ///
    /// A flood of wrong passwords costs the caller this time for each, so the caller has to limit
    /// it: Call this from a single thread of low priority, behind a queue that is bounded in total
    /// and to one check per address, and refuse further clients with "server busy". Then a flood
    /// occupies only that thread, deliveries go on, and a flooding address only delays itself.
    #[must_use]
    pub fn check(&self, user: &str, password: &[u8]) -> bool {
        if password.len() > LONGEST_PASSWORD {
            return false;
        }
        let known = self.users.get(user);
        let entry = known.unwrap_or(&self.nobody);
        let mut right = false;
        if self.salted {
            let mut sum = Context::new(&SHA512);
            sum.update(password);
            sum.update(&entry.salt);
            let same = equal(sum.finish().as_ref(), &entry.hash);
            right |= same & entry.iterations.is_none();
        }
        if let Some(iterations) = entry.iterations {
            let sum = derive(iterations, &entry.salt, password);
            right |= equal(&sum, &entry.hash);
        }
        let most = self.nobody.iterations.map_or(0, NonZeroU32::get);
        let done = entry.iterations.map_or(0, NonZeroU32::get);
        if let Some(others) = NonZeroU32::new(most - done) {
            black_box(derive(others, &entry.salt, password));
        }
        right & known.is_some() & !password.is_empty() & !password.contains(&0)
    }
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Passwords of {} users", self.users.len())
    }
}

fn derive(iterations: NonZeroU32, salt: &[u8], password: &[u8]) -> Hash {
    let mut hash = [0; SHA512_OUTPUT_LEN];
    pbkdf2::derive(PBKDF2_HMAC_SHA512, iterations, salt, password, &mut hash);
    hash
}

/// Whether both are equal, in constant time: without a stop at the first difference.
fn equal(one: &[u8], other: &Hash) -> bool {
    let differ = one
        .iter()
        .zip(other)
        .fold(0, |all, (one, other)| black_box(all | (one ^ other)));
    one.len() == other.len() && differ == 0
}

fn parse_line(line: &str) -> Result<(&str, Entry), String> {
    const FORM: &str = "write `mosquitto_passwd FILE USER` to make the line";
    let Some((user, hash)) = line.split_once(':') else {
        return Err(format!("has no `:` after the user's name; {FORM}"));
    };
    if user.is_empty() || user.len() > LONGEST_NAME || user.trim() != user {
        return Err("the user's name is empty, too long, or has a blank at its end".into());
    }
    let name = quoted(user);
    if hash.is_empty() {
        return Err(format!("the user {name} has no password; {FORM}"));
    }
    let fields: Vec<&str> = hash.split('$').collect();
    let (iterations, salt, hash) = match fields[..] {
        ["", "7", iterations, salt, hash] => {
            let number = iterations
                .parse()
                .ok()
                .filter(|number| *number <= MOST_ITERATIONS);
            let Some(number) = number.and_then(NonZeroU32::new) else {
                let iterations = quoted(iterations);
                return Err(format!(
                    "the user {name} has {iterations} iterations; 1 to {MOST_ITERATIONS} can be used"
                ));
            };
            (Some(number), salt, hash)
        }
        ["", "6", salt, hash] => (None, salt, hash),
        ["", "6" | "7", ..] => {
            return Err(format!(
                "the hash of the user {name} has not all its parts; {FORM}"
            ));
        }
        _ => {
            return Err(format!(
                "the password of the user {name} is not hashed with $6$ or $7$; \
                 `mosquitto_passwd -U FILE` hashes a file of plain passwords"
            ));
        }
    };
    let salt = STANDARD.decode(salt).ok();
    let Some(salt) = salt.filter(|salt| (1..=LONGEST_SALT).contains(&salt.len())) else {
        return Err(format!(
            "the salt of the user {name} is not base64 of 1 to 1024 octets"
        ));
    };
    let hash = STANDARD.decode(hash).ok();
    let Some(hash) = hash.and_then(|hash| Hash::try_from(hash).ok()) else {
        return Err(format!(
            "the hash of the user {name} is not base64 of 64 octets"
        ));
    };
    Ok((
        user,
        Entry {
            iterations,
            salt: salt.into(),
            hash,
        },
    ))
}
