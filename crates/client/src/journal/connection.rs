//! Opening the file: where it is, who may read it, and how it keeps its word.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::{JournalError, Problem};
use super::migrate;
use crate::limits;

/// Arguments are private.
const FILE: u32 = 0o600;
const FOLDER: u32 = 0o700;
/// Between two tries to switch to WAL.
const PAUSE: Duration = Duration::from_millis(5);

/// Opens the journal for writing; makes it if it is not there.
pub(super) fn writer(path: &Path) -> Result<Connection, JournalError> {
    prepare(path).map_err(|error| JournalError::place(path, error))?;
    let mut connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // Before anything is changed: another program's file is left as it was.
    if migrate::found(&connection)? == 0 {
        // Takes hold only in a file that is still empty: compaction then gives pages back in steps.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    close(path).map_err(|error| JournalError::place(path, error))?;
    if connection.is_readonly("main")? {
        return Err(Problem::ReadOnly.into());
    }
    wal(&connection)?;
    // A process that makes one call would write everything twice more as it leaves: whoever comes later does that.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    migrate::migrate(&mut connection)?;
    Ok(connection)
}

/// Opens the journal to look at what is there. Never makes or changes anything.
pub(super) fn reader(path: &Path) -> Result<Connection, JournalError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    if migrate::found(&connection)? == 0 {
        return Err(Problem::NotAJournal.into());
    }
    Ok(connection)
}

fn open(path: &Path, access: OpenFlags) -> Result<Connection, JournalError> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(limits::JOURNAL_WAIT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    // A damaged file must not do more than fail.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

/// The file, for its owner alone, its name on disk too.
fn prepare(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make(folder)?;
    match OpenOptions::new().write(true).create_new(true).mode(FILE).open(path) {
        Ok(file) => {
            file.sync_all()?;
            sync(folder)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Each folder that is missing, and its name in the one above.
fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().filter(|above| !above.as_os_str().is_empty());
    if let Some(above) = above {
        make(above)?;
    }
    match DirBuilder::new().mode(FOLDER).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => sync(above.unwrap_or(Path::new("."))),
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// A journal that others could read is closed to them.
fn close(path: &Path) -> io::Result<()> {
    let mode = path.metadata()?.permissions().mode();
    if mode & 0o077 == 0 {
        Ok(())
    } else {
        std::fs::set_permissions(path, Permissions::from_mode(mode & 0o700))
    }
}

/// SQLite does not wait for a lock here, so that the waiting is ours.
fn wal(connection: &Connection) -> Result<(), JournalError> {
    let since = Instant::now();
    loop {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Err(error) if locked(&error) && since.elapsed() < limits::JOURNAL_WAIT => pause(),
            // A file system without shared memory keeps the rollback journal, which is as safe and slower.
            done => return done.map(drop).map_err(JournalError::from),
        }
    }
}

fn locked(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[expect(clippy::disallowed_methods, reason = "another program's lock cannot be waited for in any other way")]
fn pause() {
    std::thread::sleep(PAUSE);
}
