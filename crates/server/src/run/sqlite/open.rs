//! The database made if there is none, and the ledger in it opened.

use std::path::Path;
use std::sync::Arc;

use counterfoil::Clock;
use counterfoil::rusqlite::Connection;
use counterfoil::sqlite::{Ledger, Options, Prepare};
use counterfoil::witness::Keep;

use super::super::start::StartError;
use crate::config::Limits;
use crate::plan::SqliteFile;

pub(super) fn open(
    file: &SqliteFile,
    limits: &Limits,
    clock: Arc<dyn Clock>,
    prepare: Option<Prepare>,
) -> Result<Ledger, StartError> {
    if let Some(schema) = &file.schema {
        make(&file.path, schema)?;
    }
    let options = Options {
        create: false,
        queue: limits.queue,
        lock_wait: limits.lock_wait,
        statement_time: limits.statement_time,
        result_limit: limits.result,
        clock,
        prepare,
        witness: Some(Keep::beside(&file.path)),
        ..Options::default()
    };
    Ok(Ledger::open(&file.path, options)?)
}

/// Makes the database whole under another name and then gives it its own, so that of several servers that start at
/// once one wins and none sees half a schema.
fn make(path: &Path, schema: &str) -> Result<(), StartError> {
    if path.exists() {
        return Ok(());
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let draft =
        tempfile::Builder::new().prefix(".counterfoil-").tempdir_in(directory.unwrap_or(Path::new(".")))?;
    let draft_file = draft.path().join("new.db");
    Connection::open(&draft_file)?.execute_batch(schema)?;
    match std::fs::hard_link(&draft_file, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.into()),
    }
}
