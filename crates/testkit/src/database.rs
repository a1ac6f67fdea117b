//! Fresh databases, and what tests do to them behind the server's back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use tempfile::TempDir;

use crate::suite::{Change, Stage};

/// The reference application's schema and rows.
pub const AUTOMATIONS: &str = include_str!("automations.sql");

/// A row of `automations`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Whose it is.
    pub workspace: String,
    /// Minutes between runs.
    pub interval: i64,
    /// Raised by every change.
    pub version: i64,
}

/// A SQLite database in a directory of its own, gone when this is dropped.
#[derive(Debug)]
pub struct Database {
    directory: TempDir,
}

impl Database {
    /// With the reference application's schema and rows, and nothing of the ledger's.
    #[must_use]
    pub fn fresh() -> Self {
        let database = Self::absent();
        database.connect().execute_batch(AUTOMATIONS).unwrap();
        database
    }

    /// A directory, and no file yet.
    #[must_use]
    pub fn absent() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("automations.db")
    }

    /// The directory it is in, for what belongs beside it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A connection that knows nothing of the ledger.
    #[must_use]
    pub fn connect(&self) -> Connection {
        connect(&self.path())
    }

    /// Runs `sql` as another program would.
    pub fn execute(&self, sql: &str) {
        self.connect().execute_batch(sql).unwrap();
    }

    /// How many receipts there are, voids among them.
    #[must_use]
    pub fn receipts(&self) -> i64 {
        self.count("SELECT count(*) FROM counterfoil_receipts")
    }

    /// The one number that `sql` tells.
    #[must_use]
    pub fn count(&self, sql: &str) -> i64 {
        self.connect().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

/// A connection to the file at `path` that waits for locks.
#[must_use]
pub fn connect(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}

/// As [`Stage`] asks: everything through a connection of its own, so that any entry point may have the file open.
impl Stage for Database {
    fn row(&self, id: i64) -> Option<Row> {
        let sql = "SELECT workspace_id, interval_minutes, version FROM automations WHERE id = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Row { workspace: row.get(0)?, interval: row.get(1)?, version: row.get(2)? })
        };
        self.connect().query_row(sql, [id], read).optional().unwrap()
    }

    fn receipts(&self) -> i64 {
        Database::receipts(self)
    }

    fn bare_update(&self, id: i64, version: i64, interval: i64) -> usize {
        let sql = "UPDATE automations SET interval_minutes = ?3, version = version + 1 \
                   WHERE id = ?1 AND version = ?2";
        self.connect().execute(sql, [id, version, interval]).unwrap()
    }

    fn change(&self, change: Change) {
        let connection = self.connect();
        match change {
            Change::Move { id, workspace } => {
                let sql = "UPDATE automations SET workspace_id = ?2 WHERE id = ?1";
                connection.execute(sql, (id, workspace)).unwrap();
            }
            Change::Delete { id } => {
                connection.execute("DELETE FROM automations WHERE id = ?1", [id]).unwrap();
            }
            Change::BreakReceipts => connection.execute_batch(BREAK).unwrap(),
            Change::MendReceipts => connection.execute_batch("DROP TRIGGER broken_receipts").unwrap(),
        }
    }
}

const BREAK: &str = "CREATE TRIGGER broken_receipts BEFORE INSERT ON counterfoil_receipts \
                     BEGIN SELECT RAISE(ABORT, 'receipts are broken'); END";
