//! The password file.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::digest::{Context, SHA512, SHA512_OUTPUT_LEN};
use ring::pbkdf2::{self, PBKDF2_HMAC_SHA512};

use crate::text::{Error, lines, quoted, refuse};

/// The most iterations: more would take longer than about a second for each check.
pub const MOST_ITERATIONS: u32 = 1_000_000;
/// The most memory for Argon2id, KiB, and the most passes over it: a check takes the broker's memory
/// for as long as it lasts. mosquitto_passwd asks for 46 MiB and one pass.
pub const MOST_MEMORY_KIB: u32 = 65_536;
const MOST_PASSES: u32 = 10;
const LONGEST_NAME: usize = u16::MAX as usize;
const LONGEST_PASSWORD: usize = 4096; // to hash a longer one would take longer than the iterations
const LONGEST_SALT: usize = 1024;

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    /// The number of iterations of PBKDF2.
    iterations: Option<NonZeroU32>,
    /// Memory, passes and lanes of Argon2id. Without these and those: a single salted SHA-512.
    argon2: Option<Params>,
    salt: Box<[u8]>,
    hash: Box<[u8]>,
}

impl Entry {
    fn is_salted(&self) -> bool {
        self.iterations.is_none() && self.argon2.is_none()
    }
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
    /// Read a password file as mosquitto_passwd writes it, 1.6 (`$6$`), 2.0 (`$7$`) and 2.1
    /// (`$argon2id$`, RFC 9106).
    ///
    /// # Errors
    /// The first line that cannot be used. The message contains no password.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut users = HashMap::new();
        let mut nobody = Entry {
            iterations: None,
            argon2: None,
            salt: [0; 12].into(),
            hash: [0; SHA512_OUTPUT_LEN].into(),
        };
        let mut salted = false;
        for (number, line) in lines(text) {
            let (user, entry) = parse_line(line?).map_err(|what| refuse(number, what))?;
            nobody.iterations = nobody.iterations.max(entry.iterations);
            let cost = |one: &Params| u64::from(one.m_cost()) * u64::from(one.t_cost());
            nobody.argon2 = nobody
                .argon2
                .into_iter()
                .chain(entry.argon2.clone())
                .max_by_key(cost);
            salted |= entry.is_salted();
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
    /// proportionally longer with more; Argon2id takes tens of milliseconds. Each check takes as
    /// long as for the user with the most iterations, whether the user is known and the password
    /// right or not, so that the time reveals nothing (of Argon2id, if all users have the same
    /// parameters).
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
            right |= same & entry.is_salted();
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
        if let Some(most) = &self.nobody.argon2 {
            let its = entry.argon2.as_ref();
            let from = if its.is_some() { entry } else { &self.nobody };
            let sum = argon2id(its.unwrap_or(most), from, password);
            right |= its.is_some() & equal(&sum, &entry.hash);
        }
        right & known.is_some() & !password.is_empty() & !password.contains(&0)
    }
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Passwords of {} users", self.users.len())
    }
}

/// Nothing, if memory or octets are out of the method's range, which a line is refused for.
fn argon2id(params: &Params, entry: &Entry, password: &[u8]) -> Vec<u8> {
    let mut hash = vec![0; entry.hash.len()];
    let method = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    match method.hash_password_into(password, &entry.salt, &mut hash) {
        Ok(()) => hash,
        Err(_) => Vec::new(),
    }
}

fn derive(iterations: NonZeroU32, salt: &[u8], password: &[u8]) -> [u8; SHA512_OUTPUT_LEN] {
    let mut hash = [0; SHA512_OUTPUT_LEN];
    pbkdf2::derive(PBKDF2_HMAC_SHA512, iterations, salt, password, &mut hash);
    hash
}

/// Whether both are equal, in constant time: without a stop at the first difference.
fn equal(one: &[u8], other: &[u8]) -> bool {
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
    let (mut iterations, mut argon2, mut base64, mut lengths) = (None, None, STANDARD, 64..=64);
    let (salt, hash) = match fields[..] {
        ["", "7", number, salt, hash] => {
            let read = number.parse().ok().filter(|read| *read <= MOST_ITERATIONS);
            iterations = read.and_then(NonZeroU32::new);
            if iterations.is_none() {
                let number = quoted(number);
                return Err(format!(
                    "the user {name} has {number} iterations; 1 to {MOST_ITERATIONS} can be used"
                ));
            }
            (salt, hash)
        }
        ["", "6", salt, hash] => (salt, hash),
        ["", "argon2id", "v=19", costs, salt, hash] => {
            argon2 = argon2_costs(costs);
            if argon2.is_none() {
                let costs = quoted(costs);
                return Err(format!(
                    "the user {name} has {costs}; m=KIB,t=PASSES,p=LANES up to \
                     m={MOST_MEMORY_KIB},t={MOST_PASSES} can be used"
                ));
            }
            (base64, lengths) = (STANDARD_NO_PAD, 16..=64);
            (salt, hash)
        }
        ["", "6" | "7" | "argon2id", ..] => {
            return Err(format!(
                "the hash of the user {name} has not all its parts; {FORM}"
            ));
        }
        ["", ..] => {
            return Err(format!(
                "the password of the user {name} is hashed in a way that is not read here, \
                 which are $6$, $7$ and $argon2id$v=19$; {FORM}"
            ));
        }
        _ => {
            return Err(format!(
                "the password of the user {name} is not hashed; if that is so in every line, \
                 `mosquitto_passwd -U FILE` hashes them"
            ));
        }
    };
    let least = if argon2.is_some() {
        argon2::MIN_SALT_LEN
    } else {
        1
    };
    let salt = base64.decode(salt).ok();
    let Some(salt) = salt.filter(|salt| (least..=LONGEST_SALT).contains(&salt.len())) else {
        return Err(format!(
            "the salt of the user {name} is not base64 of {least} to {LONGEST_SALT} octets"
        ));
    };
    let hash = base64.decode(hash).ok();
    let Some(hash) = hash.filter(|hash| lengths.contains(&hash.len())) else {
        return Err(format!(
            "the hash of the user {name} is not base64 of 64 octets, or of 16 to 64 for Argon2id"
        ));
    };
    let entry = Entry {
        iterations,
        argon2,
        salt: salt.into(),
        hash: hash.into(),
    };
    Ok((user, entry))
}

/// Read `m=47104,t=1,p=1`; nothing if that is more than a check may cost.
fn argon2_costs(text: &str) -> Option<Params> {
    let mut fields = text.split(',');
    let mut next = |start| fields.next()?.strip_prefix(start)?.parse().ok();
    let (memory_kib, passes, lanes): (u32, u32, u32) = (next("m=")?, next("t=")?, next("p=")?);
    let fits = memory_kib <= MOST_MEMORY_KIB && passes <= MOST_PASSES && fields.next().is_none();
    fits.then(|| Params::new(memory_kib, passes, lanes, None).ok())?
}
