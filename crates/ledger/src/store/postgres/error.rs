//! PostgreSQL's errors: as refusals, as reasons to try again, and as log lines that hold no SQL and no values.

use std::time::Duration;

use counterfoil_core::{FieldError, Refusal};
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::fault::internal;

/// How long a caller is asked to wait when the database is busy or away.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The receipts' own unique index. A collision there is a rival's receipt, and none of the caller's fault.
const KEY: &str = "counterfoil_receipts_key";

/// The refusal for an error met before COMMIT: nothing was written.
pub(crate) fn refusal_of(error: &Error) -> Refusal {
    let Some(db) = error.as_db_error() else {
        return if lost(error) { busy(error) } else { internal(&describe(error)) };
    };
    match class(db.code()) {
        "23" if raced(error) => busy(error),
        "23" => Refusal::constraint_violated(&constraint(db)),
        "22" => Refusal::invalid_arguments(vec![FieldError::new("", "do not fit the database's types")]),
        _ if *db.code() == SqlState::RAISE_EXCEPTION => Refusal::constraint_violated(db.message()),
        _ if *db.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            tracing::warn!(error = describe(error), "the database refused a permission");
            Refusal::resource_unavailable()
        }
        _ if passing(db) => busy(error),
        _ => internal(&describe(error)),
    }
}

fn busy(error: &Error) -> Refusal {
    tracing::warn!(error = describe(error), "the database is busy or away");
    Refusal::busy(RETRY_AFTER)
}

fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// Locks, timeouts, resources, shutdowns: what another try may not meet.
fn passing(db: &DbError) -> bool {
    let codes = [
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ];
    codes.contains(db.code()) || matches!(class(db.code()), "08" | "53" | "57") || fatal(db)
}

fn fatal(db: &DbError) -> bool {
    matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// Is the connection gone? Then what it was asked last has no answer.
pub(super) fn lost(error: &Error) -> bool {
    error.is_closed() || error.as_db_error().is_some_and(fatal)
}

/// Did the database undo the transaction for its own reasons, so that the same again may pass?
pub(super) fn repeatable(error: &Error) -> bool {
    let codes = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
    error.code().is_some_and(|code| codes.contains(code))
}

/// Was it a rival's receipt?
pub(super) fn raced(error: &Error) -> bool {
    let db = error.as_db_error();
    db.is_some_and(|db| *db.code() == SqlState::UNIQUE_VIOLATION && db.constraint() == Some(KEY))
}

/// Which column of a receipt must not be NULL and was?
pub(super) fn missing(error: &Error) -> Option<&str> {
    let db = error.as_db_error()?;
    let receipts = *db.code() == SqlState::NOT_NULL_VIOLATION && db.table() == Some("counterfoil_receipts");
    db.column().filter(|_| receipts)
}

/// Is it an error that anybody's trigger may have raised, the receipts' among them?
pub(super) fn raised(error: &Error) -> bool {
    error.code() == Some(&SqlState::RAISE_EXCEPTION)
}

/// Is it about the receipts table itself?
pub(super) fn of_receipts(error: &Error) -> bool {
    let named = |name: Option<&str>| name.is_some_and(|name| name.starts_with("counterfoil_"));
    error.as_db_error().is_some_and(|db| named(db.table()) || named(db.constraint()))
}

/// Is it a constraint, or a trigger, on the receipts themselves?
pub(super) fn ours(error: &Error) -> bool {
    let refused = |db: &DbError| class(db.code()) == "23" || *db.code() == SqlState::RAISE_EXCEPTION;
    error.as_db_error().is_some_and(refused) && !raced(error)
}

/// Which constraint, by its name: never DETAIL, which quotes rows.
fn constraint(db: &DbError) -> String {
    match (db.constraint(), db.column()) {
        (Some(constraint), _) => format!("constraint {constraint} failed"),
        (None, Some(column)) => format!("column {column} must not be null"),
        (None, None) => "a constraint failed".to_owned(),
    }
}

/// Classes whose messages name things of the schema or the server, and never a value.
const PLAIN: [&str; 8] = ["08", "25", "28", "3D", "42", "53", "57", "58"];

/// What stands in the way of opening, and what helps. The error itself is the source.
pub(crate) fn what_to_do(error: &Error) -> &'static str {
    match error.code().map(SqlState::code) {
        Some("28P01") => "PostgreSQL refused the password: give the one that belongs to the role",
        Some("28000") => {
            "PostgreSQL does not let this role in from here: does the role exist, and does pg_hba.conf name it, with TLS or without?"
        }
        Some("3D000") => "the database does not exist: create it, or name another",
        Some("42501") => {
            "the role may not do this: migrate as the role that owns the ledger's tables, and grant the one that serves what is documented"
        }
        Some("53300") => {
            "PostgreSQL has no connection left: make the pool smaller, or max_connections larger"
        }
        Some("57P03") => "PostgreSQL is starting or stopping: wait until it takes connections",
        Some(_) => "PostgreSQL refused a statement",
        None if handshake(error) => {
            "TLS with PostgreSQL failed: does the server speak it, is its certificate for this host, and by these authorities?"
        }
        None if read_only(error) => {
            "none of the hosts takes writes: promote the standby, or name the primary in the URL"
        }
        None if unreached(error) => {
            "PostgreSQL cannot be reached: are host and port right, and is it running?"
        }
        None => "the connection to PostgreSQL failed: is all of the URL right?",
    }
}

/// May an error of opening pass by itself?
pub(crate) fn may_pass(error: &Error) -> bool {
    match error.as_db_error() {
        Some(db) => {
            *db.code() == SqlState::READ_ONLY_SQL_TRANSACTION
                || matches!(class(db.code()), "08" | "53" | "57")
        }
        None => !handshake(error) && (unreached(error) || error.is_closed()),
    }
}

/// The driver tells the kind of an error in its text alone.
fn handshake(error: &Error) -> bool {
    error.to_string().starts_with("error performing TLS handshake")
}

/// Every host that was reached was a standby, where `target_session_attrs=read-write` asks for another.
fn read_only(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.to_string() == "database does not allow writes")
}

fn unreached(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

/// An error without what a caller sent.
pub(super) fn describe(error: &Error) -> String {
    let Some(db) = error.as_db_error() else {
        let source = std::error::Error::source(error).map(|source| format!(": {source}"));
        return format!("{error}{}", source.unwrap_or_default());
    };
    let text = if PLAIN.contains(&class(db.code())) { db.message() } else { "" };
    let place = db.constraint().or(db.table()).or(db.routine()).unwrap_or_default();
    format!("PostgreSQL error {} ({place}) {text}", db.code().code())
}
