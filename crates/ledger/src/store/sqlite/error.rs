//! SQLite's error codes as refusals, and as log lines that hold no SQL and no values.

use std::time::Duration;

use counterfoil_core::{FieldError, Refusal};
use rusqlite::{Error, ErrorCode, ffi};

use crate::fault::internal;

/// How long a caller is asked to wait when another program holds the database.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The refusal for an error met before COMMIT: nothing was written.
#[expect(clippy::wildcard_enum_match_arm, reason = "whatever SQLite adds is our fault until it is looked at")]
pub(crate) fn refusal_of(error: &Error) -> Refusal {
    let Error::SqliteFailure(failure, message) = error else {
        return internal(&describe(error));
    };
    match failure.code {
        ErrorCode::ConstraintViolation => {
            Refusal::constraint_violated(&constraint(failure, message.as_deref()))
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OperationInterrupted => {
            tracing::warn!(code = failure.extended_code, "the database is busy");
            Refusal::busy(RETRY_AFTER)
        }
        ErrorCode::TypeMismatch | ErrorCode::TooBig | ErrorCode::ParameterOutOfRange => {
            Refusal::invalid_arguments(vec![FieldError::new("", "do not fit the database's types")])
        }
        _ => internal(&describe(error)),
    }
}

/// Which constraint: SQLite names columns and constraints and never a value. A trigger's own text is its author's.
fn constraint(failure: &ffi::Error, message: Option<&str>) -> String {
    match message {
        Some(message) if failure.extended_code != ffi::SQLITE_CONSTRAINT => message.to_owned(),
        Some(message) if message.contains("constraint failed") => message.to_owned(),
        Some(_) | None => "a constraint failed".to_owned(),
    }
}

/// An error without the SQL that some of rusqlite's carry.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not known to be free of SQL is not shown")]
pub(super) fn describe(error: &Error) -> String {
    match error {
        Error::SqliteFailure(failure, message) => {
            format!("SQLite error {}: {}", failure.extended_code, message.as_deref().unwrap_or("no text"))
        }
        Error::SqlInputError { error, msg, .. } => format!("SQLite error {}: {msg}", error.extended_code),
        Error::FromSqlConversionFailure(column, kind, _) => {
            format!("column {column} cannot be read as {kind}")
        }
        Error::InvalidColumnType(column, _, kind) => {
            format!("column {column} has the unexpected type {kind}")
        }
        _ => "a statement could not be run".to_owned(),
    }
}

/// Did COMMIT fail for a reason that leaves no doubt: it was refused, and nothing was written?
pub(super) fn refused_commit(error: &Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::ConstraintViolation | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}
