//! Opening a database to look at it, and leaving no trace.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::migrate;
use crate::fault::OpenError;

/// Opens the database at `path` for reading alone, in such a way that neither it nor the files beside it change: a
/// database in WAL mode would otherwise be given its `-wal` and `-shm` files by the mere look.
///
/// A `-wal` file that has no `-shm` file beside it, as after copying both or a crash of the whole machine, is read
/// all the same, and SQLite makes the `-shm` file to do so.
///
/// # Errors
/// The database's own; that a file is no database is told by the first statement.
pub fn look(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // SQLite looks for the log beside the file itself, not beside a link to it.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match path.to_str().filter(|_| cfg!(unix) && at_rest(&path)) {
        Some(name) => Connection::open_with_flags(immutable(name), flags | OpenFlags::SQLITE_OPEN_URI),
        None => Connection::open_with_flags(path, flags),
    }
}

/// Whether this program can serve the ledger in a database, if there is one.
///
/// # Errors
/// [`OpenError::TooNew`] for the ledger of a newer program, [`OpenError::Damaged`] for one that cannot be read.
pub fn servable(connection: &Connection) -> Result<(), OpenError> {
    match migrate::version(connection)? {
        found if found > migrate::KNOWN => Err(OpenError::TooNew { found, known: migrate::KNOWN }),
        _ => Ok(()),
    }
}

/// In WAL mode, and nobody has it open: whoever had would hold a log beside it.
fn at_rest(path: &Path) -> bool {
    let log = std::fs::metadata(beside(path, "-wal"));
    let idle = log.map_or(true, |log| log.len() == 0 && !beside(path, "-shm").exists());
    idle && is_wal(path).unwrap_or(false)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The versions that a reader and a writer must understand, bytes 18 and 19 of the header, are 2 in WAL mode.
fn is_wal(path: &Path) -> std::io::Result<bool> {
    let mut header = [0; 20];
    File::open(path)?.read_exact(&mut header)?;
    Ok(header[18..20] == [2, 2])
}

fn immutable(path: &str) -> String {
    let escaped = path.bytes().map(|byte| match byte {
        b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    format!("file:{}?immutable=1", escaped.collect::<String>())
}
