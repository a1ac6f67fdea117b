//! The journal: every operation is on disk before the first byte of it is sent.
//!
//! One SQLite file, shared by any number of processes. [`Journal::begin`] is the only maker of a [`Try`], and a
//! [`Try`] is what a call is sent from: an operation that is not on disk cannot be sent.

mod call;
mod connection;
mod entry;
mod error;
mod migrate;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use counterfoil_core::{Epoch, RequestId, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, named_params};

pub use call::{Claim, Wanted};
pub use entry::{Entry, Happened};
pub use error::{JournalError, Problem};

use crate::operation::{Operation, Shared};
use crate::state::{Event, State, next};
use crate::words::{Caller, ServerUrl};

/// Which side of a write to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edge {
    /// It is about to be written.
    Before,
    /// It is written, and on disk if [`Event::must_last`].
    After,
}

/// Is told of every event as it goes to disk, by its word in the journal; of a delivery as `delivered`.
pub type Watch = Arc<dyn Fn(&'static str, Edge) + Send + Sync>;

/// Operations on disk. All methods block.
pub struct Journal {
    connection: Mutex<Connection>,
    path: PathBuf,
    watch: Option<Watch>,
}

/// An operation that is on disk. Only the journal makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    pub(crate) seq: i64,
    operation: Shared,
}

/// One try of an operation, on disk before it leaves. Only the journal makes it; what came of it is told to
/// [`Journal::answered`], once.
#[derive(Debug, PartialEq, Eq)]
pub struct Try {
    recorded: Recorded,
    number: u32,
}

/// May the operation leave?
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "made once a try")]
pub enum Begun {
    /// Yes, by this try.
    Send(Try),
    /// No: it has ended, or may have been done by a server that would do it twice.
    Stays(Entry),
}

/// An event, and what else is known with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What happened.
    pub event: Event,
    /// The refusal's code.
    pub code: Option<String>,
    /// The answer, as JSON text.
    pub answer: Option<Box<str>>,
    /// When the operation committed.
    pub committed_at: Option<Timestamp>,
    /// The history that holds it.
    pub epoch: Option<Epoch>,
}

impl From<Event> for Told {
    fn from(event: Event) -> Self {
        Self { event, code: None, answer: None, committed_at: None, epoch: None }
    }
}

/// Which operations.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// With this id.
    pub id: Option<RequestId>,
    /// Of this server.
    pub server: Option<ServerUrl>,
    /// Of this tool.
    pub tool: Option<String>,
    /// That have not ended.
    pub open_only: bool,
}

/// One page of a listing.
#[derive(Debug, Default)]
pub struct Page {
    /// Newest first.
    pub entries: Vec<Entry>,
    /// Where the next page begins.
    pub next: Option<Mark>,
}

/// A place in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(i64);

/// What one step of compaction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Operations removed.
    pub removed: u32,
    /// There may be more to remove.
    pub more: bool,
}

/// What can still be read of a damaged journal.
#[derive(Debug, Default)]
pub struct Salvage {
    /// Newest first.
    pub entries: Vec<Entry>,
    /// Numbers of operations that cannot be read.
    pub lost: u64,
}

impl Recorded {
    /// What is on disk.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.operation
    }
}

impl Try {
    /// What is sent.
    #[must_use]
    pub fn operation(&self) -> &Operation {
        &self.recorded.operation
    }

    /// The how-manieth it is, from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The operation it is a try of.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        self.recorded.clone()
    }
}

impl From<&Entry> for Recorded {
    fn from(entry: &Entry) -> Self {
        Self { seq: entry.seq, operation: Arc::new(entry.operation.clone()) }
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal at `path`; makes it, for its owner alone, if it is not there.
    ///
    /// # Errors
    /// [`JournalError`]: nothing can be sent.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let connection = Mutex::new(connection::writer(path)?);
        Ok(Self { connection, path: path.to_owned(), watch: None })
    }

    /// The same journal, telling `watch` of every event.
    #[must_use]
    pub fn watched(self, watch: Watch) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Opens the journal at `path` to look at it. Whatever would write answers [`Problem::ReadOnly`].
    ///
    /// # Errors
    /// [`JournalError`]
    pub fn view(path: &Path) -> Result<Self, JournalError> {
        let connection = Mutex::new(connection::reader(path)?);
        Ok(Self { connection, path: path.to_owned(), watch: None })
    }

    /// Lets the file grow to at most so many pages, or its present size if that is more. Beyond it, a write answers
    /// [`Problem::Full`].
    ///
    /// # Errors
    /// The file fails.
    pub fn limit_pages(&self, most: u32) -> Result<(), JournalError> {
        Ok(self.lock().pragma_update(None, "max_page_count", most)?)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts an operation on disk without sending it. One that is there already is the same operation.
    ///
    /// # Errors
    /// [`Problem::IdTaken`], [`Problem::OtherCaller`], or the file fails.
    pub fn record(&self, now: Timestamp, operation: &Operation) -> Result<Recorded, JournalError> {
        self.write(Event::Recorded, |tx| Ok(Recorded::from(&recorded(tx, now, operation)?)))
    }

    /// Puts an operation on disk, if it is not there yet, and a try of it: one write, one fsync.
    ///
    /// # Errors
    /// As [`Journal::record`]. Nothing may be sent.
    pub fn begin(&self, now: Timestamp, operation: &Operation) -> Result<Begun, JournalError> {
        self.write(Event::Sent, |tx| {
            let entry = recorded(tx, now, operation)?;
            attempt(tx, now, entry)
        })
    }

    /// Puts another try of a recorded operation on disk.
    ///
    /// # Errors
    /// [`Problem::NoSuch`], or the file fails. Nothing may be sent.
    pub fn again(&self, now: Timestamp, recorded: &Recorded) -> Result<Begun, JournalError> {
        self.write(Event::Sent, |tx| {
            let entry = get(tx, recorded.seq)?;
            attempt(tx, now, entry)
        })
    }

    /// Writes what came of a try.
    ///
    /// # Errors
    /// The file fails, or [`Problem::Impossible`]. The operation stays as it was, and can be resumed.
    #[expect(clippy::needless_pass_by_value, reason = "a try is answered once")]
    pub fn answered(&self, now: Timestamp, attempt: Try, told: &Told) -> Result<State, JournalError> {
        self.note(now, &attempt.recorded, told)
    }

    /// Writes what became known of an operation otherwise than by the answer to a try.
    ///
    /// # Errors
    /// As [`Journal::answered`].
    pub fn note(&self, now: Timestamp, recorded: &Recorded, told: &Told) -> Result<State, JournalError> {
        self.write(told.event, |tx| {
            let entry = get(tx, recorded.seq)?;
            change(tx, now, &entry, told)
        })
    }

    /// What the journal holds of an operation.
    ///
    /// # Errors
    /// [`Problem::NoSuch`], or the file fails.
    pub fn entry(&self, recorded: &Recorded) -> Result<Entry, JournalError> {
        get(&self.lock(), recorded.seq)
    }

    /// Operations, newest first.
    ///
    /// # Errors
    /// The file fails; see [`Journal::salvage`].
    pub fn list(&self, filter: &Filter, from: Option<Mark>, most: u32) -> Result<Page, JournalError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(include_str!("journal/sql/list.sql"))?;
        let mut rows = statement.query(named_params! {
            ":id": filter.id.as_ref().map(RequestId::as_str),
            ":server": filter.server.as_ref().map(ServerUrl::as_str),
            ":tool": filter.tool,
            ":open_only": filter.open_only,
            ":below": from.map_or(i64::MAX, |mark| mark.0),
            ":most": most,
        })?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next()? {
            entries.push(Entry::read(row)?);
        }
        let full = entries.len() == most as usize;
        let next = entries.last().filter(|_| full).map(|entry| Mark(entry.seq));
        Ok(Page { entries, next })
    }

    /// What happened to an operation, oldest first.
    ///
    /// # Errors
    /// The file fails.
    pub fn history(&self, entry: &Entry) -> Result<Vec<Happened>, JournalError> {
        let connection = self.lock();
        let sql = "SELECT at, event, code FROM events WHERE operation = ?1 ORDER BY seq";
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([entry.seq], |row| {
            let at = Timestamp::from_micros(row.get(0)?);
            Ok(Happened { at, event: row.get(1)?, code: row.get(2)? })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Removes an operation that has ended.
    ///
    /// # Errors
    /// [`Problem::NoSuch`] if it has not ended, or is not there; or the file fails.
    pub fn forget(&self, entry: &Entry) -> Result<(), JournalError> {
        let sql = "DELETE FROM operations WHERE seq = ?1 AND state NOT IN ('ready', 'sent', 'unknown')";
        let removed = self.lock().execute(sql, [entry.seq])?;
        if removed == 0 { Err(Problem::NoSuch.into()) } else { Ok(()) }
    }

    /// One bounded step of compaction: ended operations that have not changed since `before` go, at most `most` of
    /// them, and some of their pages go back to the file system.
    ///
    /// # Errors
    /// The file fails; nothing is lost.
    pub fn compact(&self, before: Timestamp, most: u32) -> Result<Compacted, JournalError> {
        let connection = self.lock();
        let parameters = named_params! { ":before": before.micros(), ":most": most };
        let removed = connection.execute(include_str!("journal/sql/compact.sql"), parameters)?;
        if removed > 0 {
            let pages = format!("PRAGMA incremental_vacuum({})", crate::limits::COMPACT_PAGES);
            connection.execute_batch(&pages)?;
        }
        let removed = u32::try_from(removed).unwrap_or(u32::MAX);
        Ok(Compacted { removed, more: removed == most })
    }

    /// Operations of `caller` at `server` whose reply belongs to another history than `epoch`, newest first.
    ///
    /// # Errors
    /// The file fails.
    pub fn elsewhere(
        &self,
        (server, caller, epoch): (&ServerUrl, &Caller, &Epoch),
        from: Option<Mark>,
        most: u32,
    ) -> Result<Page, JournalError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(include_str!("journal/sql/elsewhere.sql"))?;
        let mut rows = statement.query(named_params! {
            ":server": server.as_str(),
            ":caller": caller.as_str(),
            ":epoch": epoch.as_str(),
            ":below": from.map_or(i64::MAX, |mark| mark.0),
            ":most": most,
        })?;
        let mut entries = Vec::new();
        while let Some(row) = rows.next()? {
            entries.push(Entry::read(row)?);
        }
        let full = entries.len() == most as usize;
        let next = entries.last().filter(|_| full).map(|entry| Mark(entry.seq));
        Ok(Page { entries, next })
    }

    /// Writes what a look at a restored server found: the operation is in the history `epoch` too, or it is not.
    ///
    /// # Errors
    /// The file fails.
    pub fn restored(&self, entry: &Entry, epoch: &Epoch, survived: bool) -> Result<(), JournalError> {
        let column = if survived { "epoch" } else { "undone_in" };
        let sql = format!("UPDATE operations SET {column} = ?2 WHERE seq = ?1");
        self.lock().execute(&sql, (entry.seq, epoch.as_str()))?;
        Ok(())
    }

    /// Reads what can be read, row by row, of a journal that [`Problem::Damaged`] was said of.
    ///
    /// # Errors
    /// Not even the file's head can be read.
    pub fn salvage(path: &Path) -> Result<Salvage, JournalError> {
        let connection = connection::reader(path)?;
        let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'operations'";
        let last: i64 = connection.query_row(sql, [], |row| row.get(0)).optional()?.unwrap_or(0);
        let mut found = Salvage::default();
        for seq in (1..=last).rev() {
            match get(&connection, seq) {
                Ok(entry) => found.entries.push(entry),
                // Removed long ago: nothing is missing.
                Err(error) if *error.problem() == Problem::NoSuch => {}
                Err(_) => found.lost += 1,
            }
        }
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One transaction, on disk when this returns if `event` must last.
    fn write<T>(
        &self,
        event: Event,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let level = if event.must_last() { "FULL" } else { "NORMAL" };
        self.write_at(level, event.as_str(), work)
    }

    /// One transaction, as durable as SQLite's `level` makes it.
    fn write_at<T>(
        &self,
        level: &str,
        word: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let mut connection = self.lock();
        connection.pragma_update(None, "synchronous", level)?;
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let done = work(&tx)?;
        self.tell(word, Edge::Before);
        tx.commit()?;
        self.tell(word, Edge::After);
        Ok(done)
    }

    fn tell(&self, word: &'static str, edge: Edge) {
        if let Some(watch) = &self.watch {
            watch(word, edge);
        }
    }
}

fn get(connection: &Connection, seq: i64) -> Result<Entry, JournalError> {
    let mut statement = connection.prepare_cached(include_str!("journal/sql/get.sql"))?;
    let mut rows = statement.query(named_params! { ":seq": seq })?;
    rows.next()?.map(Entry::read).unwrap_or_else(|| Err(Problem::NoSuch.into()))
}

/// The operation as it is on disk, put there if it was not.
fn recorded(tx: &Transaction<'_>, now: Timestamp, operation: &Operation) -> Result<Entry, JournalError> {
    for rival in rivals(tx, operation)? {
        if rival.operation.caller == operation.caller {
            let same = rival.operation == *operation;
            return if same { Ok(rival) } else { Err(Problem::IdTaken(operation.id.clone()).into()) };
        }
        if !rival.state.ended() {
            return Err(Problem::OtherCaller(operation.id.clone()).into());
        }
    }
    let mut insert = tx.prepare_cached(include_str!("journal/sql/insert.sql"))?;
    let seq = insert.insert(named_params! {
        ":id": operation.id.as_str(),
        ":server": operation.server.as_str(),
        ":caller": operation.caller.as_str(),
        ":tool": operation.tool.as_str(),
        ":arguments": operation.arguments.as_str(),
        ":sending": operation.sending.as_str(),
        ":at": now.micros(),
    })?;
    append(tx, now, seq, &Event::Recorded.into())?;
    get(tx, seq)
}

fn rivals(tx: &Transaction<'_>, operation: &Operation) -> Result<Vec<Entry>, JournalError> {
    let mut statement = tx.prepare_cached(include_str!("journal/sql/rivals.sql"))?;
    let mut rows = statement.query(named_params! {
        ":id": operation.id.as_str(),
        ":server": operation.server.as_str(),
        ":tool": operation.tool.as_str(),
    })?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Entry::read(row)?);
    }
    Ok(found)
}

fn attempt(tx: &Transaction<'_>, now: Timestamp, entry: Entry) -> Result<Begun, JournalError> {
    if !entry.sendable() {
        return Ok(Begun::Stays(entry));
    }
    change(tx, now, &entry, &Event::Sent.into())?;
    let number = entry.tries.saturating_add(1);
    Ok(Begun::Send(Try { recorded: Recorded::from(&entry), number }))
}

/// Appends an event and moves the state with it, by the one rule.
fn change(tx: &Transaction<'_>, now: Timestamp, entry: &Entry, told: &Told) -> Result<State, JournalError> {
    let state = next(Some(entry.state), told.event)?;
    append(tx, now, entry.seq, told)?;
    // A later answer must not put a refusal in a reply's place.
    let settled = entry.state.ended();
    let answer = told.answer.as_deref().filter(|_| !settled || state != entry.state);
    let mut statement = tx.prepare_cached(include_str!("journal/sql/change.sql"))?;
    statement.execute(named_params! {
        ":state": state.as_str(),
        ":open": state.open(),
        ":sent": u32::from(told.event == Event::Sent),
        ":at": now.micros(),
        ":code": told.code,
        ":answer": answer,
        ":committed_at": told.committed_at.map(Timestamp::micros),
        ":epoch": told.epoch.as_ref().map(Epoch::as_str),
        ":seq": entry.seq,
    })?;
    Ok(state)
}

fn append(tx: &Transaction<'_>, now: Timestamp, seq: i64, told: &Told) -> Result<(), JournalError> {
    let mut statement = tx.prepare_cached(include_str!("journal/sql/event.sql"))?;
    statement.execute(named_params! {
        ":seq": seq,
        ":at": now.micros(),
        ":event": told.event.as_str(),
        ":code": told.code,
    })?;
    Ok(())
}
