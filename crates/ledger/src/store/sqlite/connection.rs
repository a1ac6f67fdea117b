//! Opening a connection the one right way, and the settings every connection shares.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::tx::Deadline;
use crate::fault::OpenError;

/// Statements a connection keeps prepared; more than any server declares.
const STATEMENTS: usize = 512;
/// The savepoint of one call in a group; a handler may have others, not this one.
pub(super) const SAVEPOINT: &str = "counterfoil";
/// Virtual machine steps between two looks at the clock: some tens of microseconds.
const STEPS: i32 = 10_000;

/// What an application does to every connection before it is used: functions, collations, hooks.
pub type Prepare = Arc<dyn Fn(&mut Connection) -> rusqlite::Result<()> + Send + Sync>;

/// Where a database is and how connections to it behave.
#[derive(Clone)]
pub(super) struct Source {
    pub path: PathBuf,
    pub create: bool,
    /// How long to wait for another program's lock.
    pub lock_wait: Duration,
    pub prepare: Option<Prepare>,
}

/// A connection and the deadline its statements obey.
#[derive(Debug)]
pub(super) struct Handle {
    pub connection: Connection,
    pub deadline: Deadline,
    /// Which file it is, whatever stands at its path by now.
    pub file: Option<FileId>,
}

/// Device and inode.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn file_id(_path: &Path) -> Option<FileId> {
    None
}

impl Source {
    /// The connection that writes. Puts the database in WAL mode: the one lasting change to an application's file
    /// besides the `counterfoil_` tables.
    pub(super) fn writer(&self) -> Result<Handle, OpenError> {
        let create = if self.create { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
        let handle = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE | create)?;
        handle.connection.busy_timeout(PAUSE)?;
        wal(&handle.connection, self.lock_wait)?;
        handle.connection.pragma_update(None, "synchronous", "FULL")?;
        handle.connection.pragma_update(None, "foreign_keys", true)?;
        Ok(handle)
    }

    /// A connection that cannot write.
    pub(super) fn reader(&self) -> Result<Handle, rusqlite::Error> {
        let handle = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        handle.connection.pragma_update(None, "query_only", true)?;
        Ok(handle)
    }

    /// The file that stands at the path now.
    pub(super) fn file(&self) -> Option<FileId> {
        file_id(&self.path)
    }

    fn open(&self, access: OpenFlags) -> Result<Handle, rusqlite::Error> {
        let mut connection =
            Connection::open_with_flags(&self.path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(self.lock_wait)?;
        // A misspelt column in double quotes must be an error, not a string.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let deadline = Deadline::default();
        let watched = deadline.clone();
        connection.progress_handler(STEPS, Some(move || watched.passed()))?;
        let watched = deadline.clone();
        connection.authorizer(Some(move |asked: AuthContext<'_>| authorize(&watched, &asked.action)))?;
        // A handler that hides an `ON CONFLICT ROLLBACK` goes on outside any transaction, where each of its statements
        // would commit by itself. An application's own commit hook takes the place of this one.
        let watched = deadline.clone();
        connection.commit_hook(Some(move || watched.running()))?;
        if let Some(prepare) = &self.prepare {
            prepare(&mut connection)?;
        }
        Ok(Handle { connection, deadline, file: self.file() })
    }
}

/// The transaction is the ledger's: a handler that ended it would commit its neighbours' work, and its own without
/// a receipt.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else a statement does is the handler's business"
)]
fn authorize(handler: &Deadline, action: &AuthAction<'_>) -> Authorization {
    let ours = match action {
        AuthAction::Transaction { .. } => true,
        AuthAction::Savepoint { savepoint_name, .. } => savepoint_name.eq_ignore_ascii_case(SAVEPOINT),
        _ => false,
    };
    if ours && handler.running() { Authorization::Deny } else { Authorization::Allow }
}

/// Says `sql`, which is prepared once a connection.
pub(super) fn execute(connection: &Connection, sql: &str) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

fn wal(connection: &Connection, lock_wait: Duration) -> Result<(), OpenError> {
    let switch =
        || connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
    let mode = patiently(lock_wait, locked, switch)?;
    if mode.eq_ignore_ascii_case("wal") { Ok(()) } else { Err(OpenError::NoWal(mode)) }
}

/// Between two tries for a lock that another program holds.
const PAUSE: Duration = Duration::from_millis(1);

/// Tries again for up to `wait` as long as the error is `passing`.
///
/// SQLite's own waiting is not enough: it does not wait at all to switch to WAL, and otherwise it tries ten times a
/// second in the end, so that a program which writes all the time leaves it out.
pub(super) fn patiently<T, E>(
    wait: Duration,
    passing: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let since = Instant::now();
    loop {
        match attempt() {
            Err(error) if passing(&error) && since.elapsed() < wait => pause(),
            done => return done,
        }
    }
}

/// Does another program hold the lock?
pub(super) fn locked(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[expect(clippy::disallowed_methods, reason = "another program's lock cannot be waited for in any other way")]
fn pause() {
    std::thread::sleep(PAUSE);
}
