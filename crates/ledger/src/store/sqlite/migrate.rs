//! Numbered migrations, each applied once, in order, under the database's write lock.

use counterfoil_core::Epoch;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
use uuid::Uuid;

use crate::fault::OpenError;

/// Never edited once released: the next change is the next number.
const MIGRATIONS: [&str; 2] =
    [include_str!("migrations/0001_receipts.sql"), include_str!("migrations/0002_removal.sql")];

/// The newest version this program knows.
pub(super) const KNOWN: i64 = MIGRATIONS.len() as i64;

/// Brings the tables up to date and tells the epoch.
pub(super) fn migrate(connection: &mut Connection) -> Result<Epoch, OpenError> {
    if version(connection)? != KNOWN {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = version(&tx)?;
        if found > KNOWN {
            return Err(OpenError::TooNew { found, known: KNOWN });
        }
        apply(&tx, found)?;
        tx.commit()?;
    }
    whole(connection)?;
    epoch(connection)
}

/// What the version promises is there.
fn whole(connection: &Connection) -> Result<(), OpenError> {
    let tables = ["counterfoil_meta", "counterfoil_receipts", "counterfoil_contracts", "counterfoil_epochs"];
    for table in tables {
        if !connection.table_exists(Some("main"), table)? {
            return Err(OpenError::Damaged("a table is missing"));
        }
    }
    Ok(())
}

/// Another server may have been first: `from` was read under the lock.
fn apply(tx: &Connection, from: i64) -> Result<(), OpenError> {
    for (number, sql) in (1..).zip(MIGRATIONS) {
        if number > from {
            tx.execute_batch(sql)?;
        }
    }
    set(tx, "schema", &KNOWN.to_string())?;
    if from == 0 {
        set(tx, "epoch", &Uuid::new_v4().to_string())?;
    }
    Ok(())
}

pub(super) fn version(connection: &Connection) -> Result<i64, OpenError> {
    let exists: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'counterfoil_meta')",
        [],
        |row| row.get(0),
    )?;
    if !exists {
        return Ok(0);
    }
    let version = meta(connection, "schema")?.ok_or(OpenError::Damaged("there is no schema version"))?;
    let version = version.parse().map_err(|_| OpenError::Damaged("the schema version is not a number"))?;
    if version < 1 { Err(OpenError::Damaged("the schema version is less than one")) } else { Ok(version) }
}

pub(super) fn epoch(connection: &Connection) -> Result<Epoch, OpenError> {
    let epoch = meta(connection, "epoch")?.ok_or(OpenError::Damaged("there is no epoch"))?;
    Epoch::parse(&epoch).map_err(|_| OpenError::Damaged("the epoch is malformed"))
}

fn meta(connection: &Connection, name: &str) -> Result<Option<String>, rusqlite::Error> {
    connection
        .query_row("SELECT value FROM counterfoil_meta WHERE name = ?1", [name], |row| row.get(0))
        .optional()
}

pub(super) fn set(connection: &Connection, name: &str, value: &str) -> Result<(), rusqlite::Error> {
    let sql = "INSERT INTO counterfoil_meta (name, value) VALUES (?1, ?2) \
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.execute(sql, (name, value)).map(drop)
}

/// One small commit of its own, made after a commit in doubt: whatever frames that one left in the log are either
/// before this one, and thereby in, or overwritten by it, and thereby gone.
pub(super) fn fence(connection: &Connection) -> Result<(), rusqlite::Error> {
    set(connection, "fence", &Uuid::new_v4().to_string())
}
