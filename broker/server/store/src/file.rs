//! Opens the file, reads its tables and writes commits.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::posix_fallocate;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, Table, TableDefinition};

use crate::backend::Backend;
use crate::index::{Client, Held, Index, Row, Rows};
use crate::record::{self, Record};
use crate::types::{Error, Kept, KeptEntry, KeptSession, KeptSubscription, Message, Refused};

/// The version of the tables.
const FORMAT: u64 = 1;
/// The size of redb's cache. Only the pages where new rows are written are read repeatedly.
const CACHE_OCTETS: usize = 32 << 20;

/// The size of the spare file, which is removed if the disk is full; the first that there is room
/// for.
const SPARE_OCTETS: [i32; 4] = [1 << 20, 1 << 19, 1 << 18, 1 << 17];

const FULL: [ErrorKind; 2] = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("mqtick");
const SESSIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("sessions");
/// Order, options and identifier, by session and filter.
const SUBSCRIPTIONS: TableDefinition<'_, (u64, &str), (u64, u8, u32)> =
    TableDefinition::new("subscriptions");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const RETAINED: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("retained");

/// The place of a store.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    #[cfg(test)]
    pub(crate) faults: Arc<crate::faults::Faults>,
}

/// An open file.
pub(crate) struct Tables {
    database: Database,
    backend: Backend,
}

/// Why the file cannot be used.
enum Trouble {
    Redb(redb::Error),
    Damage(String),
    Newer(u64),
}

impl<E: Into<redb::Error>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Self::Redb(error.into())
    }
}

impl Place {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            #[cfg(test)]
            faults: Arc::default(),
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("store.redb")
    }

    /// Open the file. At the `start`, a missing file is made, and all contents are returned; later
    /// only the index is of use.
    pub(crate) fn open(&self, start: bool) -> Result<(Tables, Index, Kept), Error> {
        match self.open_once(start) {
            // A repair needs some room on the disk.
            Err(Error::Full(_)) if self.drop_spare() => self.open_once(start),
            result => result,
        }
    }

    /// Make a spare file, as large as there is room for. Returns whether there is any room.
    pub(crate) fn make_spare(&self) -> bool {
        self.drop_spare();
        SPARE_OCTETS.into_iter().any(|octets| {
            let file = File::create(self.spare());
            let made = file.is_ok_and(|file| posix_fallocate(file, 0, octets.into()).is_ok());
            if !made {
                self.drop_spare();
            }
            made
        })
    }

    /// Remove the spare file. Returns whether there was one.
    pub(crate) fn drop_spare(&self) -> bool {
        std::fs::remove_file(self.spare()).is_ok()
    }

    fn spare(&self) -> PathBuf {
        self.directory.join("store.spare")
    }

    fn open_once(&self, start: bool) -> Result<(Tables, Index, Kept), Error> {
        let path = self.path();
        match path.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound && start => self.make()?,
            Ok(data) if !data.is_file() => return Err(io(&path, "cannot open", "it is no file")),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|error| io(&path, "cannot open", &error.to_string()))?;
        if file.metadata().is_ok_and(|data| data.len() == 0) {
            return Err(damaged(&path, "it is empty"));
        }
        let backend = self
            .backend(file)
            .map_err(|error| told(&path, error.into(), None))?;
        // redb promises not to panic on damage while it checks, but this is safer.
        let read = catch_unwind(AssertUnwindSafe(|| {
            let database = redb::Builder::new()
                .set_cache_size(CACHE_OCTETS)
                .set_check_integrity_on_open(true)
                .create_with_backend(backend.clone())?;
            let (index, kept, leaked) = read(&database, start)?;
            Ok((database, index, kept, leaked))
        }));
        let (database, mut index, kept, leaked) = read
            .unwrap_or_else(|_| Err(Trouble::Damage("reading it failed".into())))
            .map_err(|trouble| told(&path, trouble, backend.error()))?;
        let adopted = backend.adopt();
        adopted.map_err(|error| told(&path, error.into(), backend.error()))?;
        let mut tables = Tables { database, backend };
        if !leaked.is_empty() {
            let mut rows = Rows::new(&index);
            for message in leaked {
                if let Some(held) = index.messages.remove(&message) {
                    rows.log.insert(held.key, Row::Remove);
                }
            }
            let written = tables.write(&rows);
            written.map_err(|error| io(&path, "cannot clean up", &error.to_string()))?;
        }
        Ok((tables, index, kept))
    }

    fn backend(&self, file: File) -> Result<Backend, redb::Error> {
        Backend::new(
            file,
            #[cfg(test)]
            self.faults.clone(),
        )
    }

    /// Make an empty file. It gets its name once it is complete.
    fn make(&self) -> Result<(), Error> {
        let path = self.path();
        let new = self.directory.join("store.new");
        let made = || -> Result<(), Trouble> {
            if let Err(error) = std::fs::remove_file(&new)
                && error.kind() != ErrorKind::NotFound
            {
                return Err(error.into());
            }
            // Other users must not read messages.
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            let backend = self.backend(options.open(&new)?)?;
            let database = redb::Builder::new().create_with_backend(backend.clone())?;
            let write = database.begin_write()?;
            write.open_table(META)?.insert("format", FORMAT)?;
            write.open_table(SESSIONS)?;
            write.open_table(SUBSCRIPTIONS)?;
            write.open_table(LOG)?;
            write.open_table(RETAINED)?;
            write.commit()?;
            backend.adopt()?;
            database.close()?;
            std::fs::rename(&new, &path)?;
            File::open(&self.directory)?.sync_all()?;
            Ok(())
        };
        made().map_err(|trouble| told(&path, trouble, None))
    }
}

fn io(path: &Path, what: &str, why: &str) -> Error {
    Error::Io(format!("{what} the store {}: {why}", path.display()))
}

fn damaged(path: &Path, why: &str) -> Error {
    Error::Damaged(format!(
        "{} is not a store of mqtick-broker, or is damaged: {why}; it was left as it is. Move it \
         away to begin with an empty one",
        path.display()
    ))
}

/// The error, with a sentence for the operator. `first`: the first error of the file system.
fn told(path: &Path, trouble: Trouble, first: Option<(ErrorKind, String)>) -> Error {
    const DAMAGE: [ErrorKind; 2] = [ErrorKind::InvalidData, ErrorKind::UnexpectedEof];
    let first = first.or_else(|| match &trouble {
        Trouble::Redb(redb::Error::Io(error)) => Some((error.kind(), error.to_string())),
        _ => None,
    });
    if let Some((kind, text)) = first
        && !DAMAGE.contains(&kind)
    {
        let text = format!("cannot open the store {}: {text}", path.display());
        return match FULL.contains(&kind) {
            true => Error::Full(text),
            false => Error::Io(text),
        };
    }
    match trouble {
        Trouble::Newer(format) => Error::Newer(format!(
            "the store {} has format {format}; this mqtick-broker knows up to {FORMAT}. It was \
             left as it is",
            path.display()
        )),
        Trouble::Damage(text) | Trouble::Redb(redb::Error::Corrupted(text)) => damaged(path, &text),
        Trouble::Redb(redb::Error::DatabaseAlreadyOpen) => locked(path),
        Trouble::Redb(error) => damaged(path, &error.to_string()),
    }
}

/// Another process has the store open.
pub(crate) fn locked(path: &Path) -> Error {
    Error::Locked(format!(
        "the store {} is in use by another process",
        path.display()
    ))
}

impl Tables {
    /// Write a commit; on return it is on disk. After an error the file has to be opened again.
    ///
    /// This is redb's one-phase commit, with one fdatasync. The next open detects a torn commit by
    /// its checksums, and falls back to the one before. A two-phase commit needs a second
    /// fdatasync, so it halves the rate with one publisher. It would only protect against an
    /// attacker that can forge a 128-bit XXH3 and choose which pages a power failure loses.
    pub(crate) fn write(&mut self, rows: &Rows) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        let mut octets = Vec::new();
        if !rows.log.is_empty() {
            let mut log = write.open_table(LOG)?;
            remove(&mut log, &rows.log)?;
            for (key, row) in &rows.log {
                if let Row::Sent(id, state) = row {
                    let old = log.get(key)?.and_then(|old| Record::read(old.value()));
                    if let Some(Record::Entry(mut entry)) = old {
                        entry.in_flight = Some((*id, *state));
                        octets.clear();
                        Record::Entry(entry).write(&mut octets);
                        log.insert(key, &*octets)?;
                    }
                }
            }
            let mut end = log.upper_bound_mut(Bound::<u64>::Unbounded)?;
            for (key, row) in &rows.log {
                if let Row::Put(record) = row {
                    octets.clear();
                    record.write(&mut octets);
                    end.insert_before(key, &*octets)?;
                }
            }
            end.close()?;
        }
        if !rows.sessions.is_empty() {
            let mut sessions = write.open_table(SESSIONS)?;
            for (client, row) in &rows.sessions {
                match row {
                    Some((number, session)) => {
                        octets.clear();
                        record::write_session(&mut octets, *number, session);
                        sessions.insert(&**client, &*octets)?;
                    }
                    None => {
                        sessions.remove(&**client)?;
                    }
                }
            }
        }
        if !rows.gone.is_empty() || !rows.subscriptions.is_empty() {
            let mut subscriptions = write.open_table(SUBSCRIPTIONS)?;
            for gone in &rows.gone {
                subscriptions.retain_in((*gone, "")..(*gone + 1, ""), |_, _| false)?;
            }
            for ((number, filter), row) in &rows.subscriptions {
                let key = (*number, &**filter);
                match row {
                    Some(new) => {
                        let old = match new.fresh {
                            true => None,
                            false => subscriptions.get(key)?.map(|old| old.value().0),
                        };
                        let order = old.unwrap_or(new.order);
                        subscriptions.insert(key, (order, new.options, new.identifier))?;
                    }
                    None => {
                        subscriptions.remove(key)?;
                    }
                }
            }
        }
        if !rows.retained.is_empty() {
            let mut retained = write.open_table(RETAINED)?;
            for (topic, row) in &rows.retained {
                match row {
                    Some(message) => {
                        octets.clear();
                        record::write_message(&mut octets, message);
                        retained.insert(&**topic, &*octets)?;
                    }
                    None => {
                        retained.remove(&**topic)?;
                    }
                }
            }
        }
        Ok(write.commit()?)
    }

    /// Why a write failed.
    pub(crate) fn refusal(&self, error: &redb::Error) -> Refused {
        match self.backend.error() {
            Some((kind, _)) if FULL.contains(&kind) => Refused::Full,
            Some((_, text)) => Refused::Failed(text),
            None => Refused::Failed(error.to_string()),
        }
    }

    /// Close the file properly, so that the next open need not repair it.
    pub(crate) fn close(self) -> Result<(), DatabaseError> {
        self.database.close()
    }

    /// Close the file without writing anything more.
    pub(crate) fn give_up(self) {
        self.backend.kill();
    }
}

/// Remove rows from the log. Rows that came together are usually removed together, and one pass
/// over neighbours is faster than to look up each of them.
fn remove(log: &mut Table<'_, u64, &[u8]>, rows: &BTreeMap<u64, Row>) -> Result<(), redb::Error> {
    const NEAR: u64 = 16;
    let removed = rows.iter().filter(|(_, row)| matches!(row, Row::Remove));
    let removed: Vec<u64> = removed.map(|(key, _)| *key).collect();
    for run in removed.chunk_by(|one, next| next - one <= NEAR) {
        match run {
            [key] => {
                log.remove(key)?;
            }
            [first, .., last] => {
                let mut left = run.iter().peekable();
                log.retain_in(*first..=*last, |key, _| {
                    while left.next_if(|next| **next < key).is_some() {}
                    left.peek() != Some(&&key)
                })?;
            }
            [] => {}
        }
    }
    Ok(())
}

type Contents = (Index, Kept, Vec<u64>);

/// Read everything. The last result: the numbers of messages that no queue holds.
fn read(database: &Database, bodies: bool) -> Result<Contents, Trouble> {
    fn damage(text: &str) -> Trouble {
        Trouble::Damage(text.to_owned())
    }
    let read = database.begin_read()?;
    let meta = read.open_table(META)?;
    match meta.get("format")?.map(|format| format.value()) {
        Some(FORMAT) => {}
        Some(format) => return Err(Trouble::Newer(format)),
        None => return Err(damage("it does not say its format")),
    }
    // 0 is never a key: it stands for the mark of a store without commits.
    let mut index = Index {
        next_key: 1,
        ..Index::default()
    };
    let mut kept = Kept::default();
    let mut clients: Vec<Client> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    for row in read.open_table(SESSIONS)?.iter()? {
        let (key, value) = row?;
        let session = record::read_session(value.value());
        let (number, session) = session.ok_or_else(|| damage("a session"))?;
        if places.insert(number, clients.len()).is_some() {
            return Err(damage("two sessions have one number"));
        }
        index.next_client = index.next_client.max(number.saturating_add(1));
        clients.push(Client {
            number,
            ..Client::default()
        });
        kept.sessions.push(KeptSession {
            client: key.value().into(),
            session,
            subscriptions: Vec::new(),
            queue: Vec::new(),
            received: Vec::new(),
        });
    }
    for row in read.open_table(SUBSCRIPTIONS)?.iter()? {
        let (key, value) = row?;
        let ((number, filter), (order, options, identifier)) = (key.value(), value.value());
        let place = places.get(&number);
        let place = *place.ok_or_else(|| damage("a subscription without session"))?;
        index.next_key = index.next_key.max(order.saturating_add(1));
        if bodies {
            kept.sessions[place].subscriptions.push(KeptSubscription {
                filter: filter.into(),
                options,
                identifier,
                order,
            });
        }
    }
    let mut messages: HashMap<u64, Arc<Message>> = HashMap::new();
    for row in read.open_table(LOG)?.iter()? {
        let (key, value) = row?;
        let key = key.value();
        index.next_key = index.next_key.max(key.saturating_add(1));
        match Record::read(value.value()).ok_or_else(|| damage("a record"))? {
            Record::Mark => index.mark = key,
            Record::Message(number, body) => {
                kept.next_message = kept.next_message.max(number.saturating_add(1));
                if index
                    .messages
                    .insert(number, Held { key, queues: 0 })
                    .is_some()
                {
                    return Err(damage("two messages have one number"));
                }
                if bodies {
                    messages.insert(number, body);
                }
            }
            Record::Entry(entry) => {
                let place = places.get(&entry.client);
                let place = *place.ok_or_else(|| damage("a queue without session"))?;
                let held = index.messages.get_mut(&entry.message);
                held.ok_or_else(|| damage("a queue without message"))?
                    .queues += 1;
                let row = (key, entry.message);
                if clients[place].queue.insert(entry.place, row).is_some() {
                    return Err(damage("two messages have one place"));
                }
                if let Some(body) = messages.get(&entry.message) {
                    kept.sessions[place].queue.push(KeptEntry {
                        place: entry.place,
                        message: entry.message,
                        body: body.clone(),
                        qos: entry.qos,
                        retain: entry.retain,
                        subscription_ids: entry.ids,
                        in_flight: entry.in_flight,
                    });
                }
            }
            Record::Received { client, id } => {
                let place = places.get(&client);
                let place = *place.ok_or_else(|| damage("an identifier without session"))?;
                clients[place].received.insert(id, key);
                kept.sessions[place].received.push(id);
            }
        }
    }
    if bodies {
        for row in read.open_table(RETAINED)?.iter()? {
            let (topic, message) = row?;
            let message = record::read_message(message.value());
            let message = message.ok_or_else(|| damage("a retained message"))?;
            kept.retained
                .push((topic.value().into(), Arc::new(message)));
        }
    }
    for (session, client) in kept.sessions.iter_mut().zip(clients) {
        session.subscriptions.sort_unstable_by_key(|one| one.order);
        session.queue.sort_unstable_by_key(|entry| entry.place);
        session.received.sort_unstable();
        index.clients.insert(session.client.clone(), client);
    }
    let leaked = index.messages.iter().filter(|(_, held)| held.queues == 0);
    let leaked = leaked.map(|(number, _)| *number).collect();
    Ok((index, kept, leaked))
}
