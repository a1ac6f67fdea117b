//! Numbered migrations, each applied once, in order, under the journal's write lock.

use rusqlite::{Connection, Row, TransactionBehavior};

use super::error::{JournalError, Problem};

/// Never edited once released: the next change is the next number.
const MIGRATIONS: [&str; 2] =
    [include_str!("migrations/0001_operations.sql"), include_str!("migrations/0002_calls.sql")];

/// The newest format this program knows.
const KNOWN: i64 = MIGRATIONS.len() as i64;

/// Stands in the file's header ("cfoi"), so that another program's database is not taken for a journal.
const APPLICATION: i64 = 0x6366_6f69;

/// Brings the tables up to date.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), JournalError> {
    if found(connection)? == KNOWN {
        return Ok(());
    }
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been first: what counts was read under the lock.
    let from = found(&tx)?;
    for (number, sql) in (1..).zip(MIGRATIONS) {
        if number > from {
            tx.execute_batch(sql)?;
        }
    }
    tx.pragma_update(None, "application_id", APPLICATION)?;
    tx.pragma_update(None, "user_version", KNOWN)?;
    Ok(tx.commit()?)
}

/// The format of the file; 0 is an empty one.
pub(super) fn found(connection: &Connection) -> Result<i64, JournalError> {
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?));
    let (application, found, tables) = connection.query_row(include_str!("sql/format.sql"), [], row)?;
    match (application, found) {
        (0, 0) if tables == 0 => Ok(0),
        (APPLICATION, found) if found > KNOWN => Err(Problem::TooNew { found, known: KNOWN }.into()),
        (APPLICATION, found) if found > 0 => Ok(found),
        _ => Err(Problem::NotAJournal.into()),
    }
}
