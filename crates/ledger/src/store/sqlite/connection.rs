//! Opening a connection the one right way, and the settings every connection shares.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::tx::Deadline;
use crate::fault::OpenError;

/// Statements a connection keeps prepared; more than any server declares.
const STATEMENTS: usize = 512;
/// Virtual machine steps between two looks at the clock: some tens of microseconds.
const STEPS: i32 = 10_000;

/// What an application does to every connection before it is used: functions, collations, hooks.
pub type Prepare = Arc<dyn Fn(&mut Connection) -> rusqlite::Result<()> + Send + Sync>;

/// Where a database is and how connections to it behave.
#[derive(Clone)]
pub(super) struct Source {
    pub path: PathBuf,
    pub create: bool,
    /// How long a statement waits for another program's lock.
    pub lock_wait: Duration,
    pub prepare: Option<Prepare>,
}

/// A connection and the deadline its statements obey.
#[derive(Debug)]
pub(super) struct Handle {
    pub connection: Connection,
    pub deadline: Deadline,
}

impl Source {
    /// The connection that writes. Puts the database in WAL mode: the one lasting change to an application's file
    /// besides the `counterfoil_` tables.
    pub(super) fn writer(&self) -> Result<Handle, OpenError> {
        let create = if self.create { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
        let handle = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE | create)?;
        wal(&handle.connection)?;
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
        if let Some(prepare) = &self.prepare {
            prepare(&mut connection)?;
        }
        Ok(Handle { connection, deadline })
    }
}

fn wal(connection: &Connection) -> Result<(), OpenError> {
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") { Ok(()) } else { Err(OpenError::NoWal(mode)) }
}
