//! Backup and restore: whole files or none, verified, whenever the process dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use counterfoil_core::{Epoch, Timestamp};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::connection::locked;
use super::epoch::begin;
use super::look::look;
use super::migrate::{epoch, migrate, version};
use crate::fault::OpenError;
use crate::witness;

/// Why a copy was not made. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A database could not be read or written.
    #[error("a database cannot be read or written")]
    Database(#[from] rusqlite::Error),
    /// The ledger in it is newer, or damaged.
    #[error(transparent)]
    Ledger(#[from] OpenError),
    /// A file could not be read or written.
    #[error("{0}")]
    File(String, #[source] std::io::Error),
    /// Something is there already.
    #[error("{0} is there already")]
    Exists(PathBuf),
    /// Both are one file.
    #[error("{0} is the database itself")]
    Same(PathBuf),
    /// The database is open elsewhere.
    #[error("{0} is in use: stop every server and program that has it open")]
    InUse(PathBuf),
    /// It is no whole database with a ledger.
    #[error("{0} is not whole: {1}")]
    NotWhole(PathBuf, String),
}

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// So many pages of so many are copied.
    Copying(i32, i32),
    /// The copy is complete, under a name of its own.
    Copied,
    /// It was read through and is whole.
    Verified,
    /// A new epoch has begun in it.
    Begun,
    /// It is on disk.
    Synced,
    /// What it replaces is safe under another name.
    Kept,
    /// It is in its place.
    Placed,
}

/// What is in a verified file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Its history.
    pub epoch: Epoch,
    /// Receipts in it, voids among them.
    pub receipts: i64,
    /// When the newest of them was written.
    pub newest: Option<Timestamp>,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// What the backup holds.
    pub backup: Verified,
    /// The epoch that has begun.
    pub epoch: Epoch,
    /// Where the database that was replaced is now.
    pub kept: Option<PathBuf>,
}

/// Pages copied between two looks at the progress.
const PAGES: i32 = 1000;

/// Copies the database at `from`, as it is at one instant and while it is used, to the new file `to`, and reads the
/// copy through.
///
/// # Errors
/// [`CopyError`]; `to` is there whole or not at all.
pub fn backup(from: &Path, to: &Path, see: &mut dyn FnMut(Stage)) -> Result<Verified, CopyError> {
    if to.exists() {
        return Err(CopyError::Exists(to.to_owned()));
    }
    let draft = Draft::beside(to)?;
    draft.fill(from, see)?;
    let verified = verify(&draft.path)?;
    see(Stage::Verified);
    draft.sync()?;
    see(Stage::Synced);
    draft.place(to)?;
    see(Stage::Placed);
    Ok(verified)
}

/// Puts a copy of `backup` in the place of the database at `to`, and begins a new epoch in it. What is there is
/// replaced only if `replace`, and kept under another name.
///
/// # Errors
/// [`CopyError`]; `to` is as it was, or restored.
pub fn restore(
    backup: &Path,
    to: &Path,
    replace: bool,
    now: Timestamp,
    see: &mut dyn FnMut(Stage),
) -> Result<Restored, CopyError> {
    if to.exists() && same(backup, to) {
        return Err(CopyError::Same(backup.to_owned()));
    }
    if to.exists() && !replace {
        return Err(CopyError::Exists(to.to_owned()));
    }
    let holds = verify(backup)?;
    let draft = Draft::beside(to)?;
    draft.fill(backup, see)?;
    verify(&draft.path)?;
    see(Stage::Verified);
    let epoch = renew(&draft.path, to, now)?;
    see(Stage::Begun);
    draft.sync()?;
    see(Stage::Synced);
    let kept = if to.exists() {
        let held = hold(to)?;
        let kept = keep(to)?;
        see(Stage::Kept);
        draft.replace(to)?;
        drop(held);
        Some(kept)
    } else {
        draft.place(to)?;
        None
    };
    see(Stage::Placed);
    Ok(Restored { backup: holds, epoch, kept })
}

/// Begins a new epoch in the database at `path`, whose history was broken by other means.
///
/// # Errors
/// [`CopyError`].
pub fn begin_epoch(path: &Path, now: Timestamp) -> Result<Epoch, CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    renew_in(&mut connection, path, now)
}

/// Reads the file at `path` through: every page, every index, every constraint, and the ledger's own tables.
///
/// # Errors
/// [`CopyError::NotWhole`] says what is wrong.
pub fn verify(path: &Path) -> Result<Verified, CopyError> {
    let wrong = |problem: String| CopyError::NotWhole(path.to_owned(), problem);
    if !path.is_file() {
        return Err(wrong("there is no such file".into()));
    }
    let unreadable = |error: rusqlite::Error| wrong(error.to_string());
    let connection = look(path).map_err(unreadable)?;
    let problem: String =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(unreadable)?;
    if problem != "ok" {
        return Err(wrong(problem));
    }
    super::look::servable(&connection)?;
    if version(&connection)? == 0 {
        return Err(wrong("it holds no receipts: nothing was ever served from it".into()));
    }
    let sql = "SELECT count(*), max(committed_at) FROM counterfoil_receipts";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?));
    let (receipts, newest) = connection.query_row(sql, [], read).map_err(unreadable)?;
    Ok(Verified { epoch: epoch(&connection)?, receipts, newest: newest.map(Timestamp::from_micros) })
}

/// Brings the ledger in `draft` up to date and begins a new epoch in it, also for those who know that of the database
/// at `place`, or what its witness tells.
fn renew(draft: &Path, place: &Path, now: Timestamp) -> Result<Epoch, CopyError> {
    let mut connection = Connection::open(draft)?;
    let new = renew_in(&mut connection, place, now)?;
    // One file, without a log beside it: only so can it be moved.
    connection.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(new)
}

fn renew_in(connection: &mut Connection, place: &Path, now: Timestamp) -> Result<Epoch, CopyError> {
    let here = migrate(connection)?;
    let there = look(place).ok().and_then(|replaced| epoch(&replaced).ok());
    let seen = witness::read(&witness::Keep::beside(place).file).map(|witness| witness.epoch);
    let ended: Vec<&Epoch> = [Some(&here), there.as_ref(), seen.as_ref()].into_iter().flatten().collect();
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let new = begin(&tx, &ended, now)?;
    tx.commit()?;
    Ok(new)
}

/// A file on its way to its name. Only one process at a time makes it; what a dead one left is begun anew.
struct Draft {
    path: PathBuf,
    lock: File,
}

impl Draft {
    fn beside(place: &Path) -> Result<Self, CopyError> {
        let path = named(place, ".", ".counterfoil-copy");
        let told = |error| CopyError::File(format!("{} cannot be written", path.display()), error);
        let mut options = OpenOptions::new();
        let lock = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(told)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(CopyError::InUse(path)),
            Err(TryLockError::Error(error)) => return Err(told(error)),
        }
        // Whoever had the lock before may have given this very file its name in the meantime.
        if !still_there(&lock, &path) {
            return Err(CopyError::InUse(path));
        }
        // Whoever died over it may have left half a file, and its journal.
        lock.set_len(0).map_err(told)?;
        for suffix in ["-wal", "-shm", "-journal"] {
            let _none = std::fs::remove_file(named(&path, "", suffix));
        }
        Ok(Self { path, lock })
    }

    fn fill(&self, from: &Path, see: &mut dyn FnMut(Stage)) -> Result<(), CopyError> {
        let source = look(from)?;
        source.busy_timeout(std::time::Duration::from_secs(5))?;
        // One snapshot from the first page to the last, however long it takes and whoever writes.
        let snapshot = source.unchecked_transaction()?;
        let _any: i64 = snapshot.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let mut draft = Connection::open(&self.path)?;
        {
            let copy = Backup::new(&snapshot, &mut draft)?;
            loop {
                let step = copy.step(PAGES)?;
                let progress = copy.progress();
                see(Stage::Copying(progress.pagecount - progress.remaining, progress.pagecount));
                if step == StepResult::Done {
                    break;
                }
                if step != StepResult::More {
                    return Err(CopyError::InUse(from.to_owned()));
                }
            }
        }
        draft.close().map_err(|(_, error)| error)?;
        see(Stage::Copied);
        Ok(())
    }

    fn sync(&self) -> Result<(), CopyError> {
        self.lock.sync_all().map_err(|error| self.told(error))
    }

    fn told(&self, error: std::io::Error) -> CopyError {
        CopyError::File(format!("{} cannot be written", self.path.display()), error)
    }

    /// Gives it the name `place`, which nobody may have.
    fn place(self, place: &Path) -> Result<(), CopyError> {
        match std::fs::hard_link(&self.path, place) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(CopyError::Exists(place.to_owned()));
            }
            Err(error) => return Err(self.told(error)),
        }
        settle(place)
    }

    /// Gives it the name `place`, in one step.
    fn replace(self, place: &Path) -> Result<(), CopyError> {
        std::fs::rename(&self.path, place).map_err(|error| self.told(error))?;
        settle(place)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

/// The folder's own entry is on disk.
fn settle(place: &Path) -> Result<(), CopyError> {
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| CopyError::File(format!("{} cannot be synced", folder.display()), error))
}

fn named(place: &Path, prefix: &str, suffix: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(prefix);
    name.push(place.file_name().unwrap_or_default());
    name.push(suffix);
    place.with_file_name(name)
}

/// Keeps everybody else out of the database at `path`, whose log is written back and gone. A file that is no database
/// any more can be in nobody's use.
fn hold(path: &Path) -> Result<Option<Connection>, CopyError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let Ok(connection) = Connection::open_with_flags(path, flags) else { return Ok(None) };
    connection.busy_timeout(std::time::Duration::ZERO)?;
    let exclusive = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE; BEGIN EXCLUSIVE";
    match connection.execute_batch(exclusive) {
        Ok(()) if named(path, "", "-wal").exists() => return Err(CopyError::InUse(path.to_owned())),
        Ok(()) => {}
        Err(error) if locked(&error) => return Err(CopyError::InUse(path.to_owned())),
        Err(error) => tracing::warn!(%error, "what is replaced is no database that can be opened"),
    }
    Ok(Some(connection))
}

/// More replaced databases than anybody keeps.
const MOST_KEPT: u32 = 1000;

/// Gives the database at `path`, and a log that could not be written back, a second name.
fn keep(path: &Path) -> Result<PathBuf, CopyError> {
    for number in 1..MOST_KEPT {
        let kept = named(path, "", &format!(".replaced-{number}"));
        if kept.exists() && !same(&kept, path) {
            continue;
        }
        let told = |error| CopyError::File(format!("{} cannot be made", kept.display()), error);
        if !kept.exists() {
            std::fs::hard_link(path, &kept).map_err(told)?;
        }
        for suffix in ["-wal", "-journal"] {
            let log = named(path, "", suffix);
            if log.metadata().is_ok_and(|log| log.len() > 0) {
                std::fs::rename(&log, named(&kept, "", suffix)).map_err(told)?;
            } else {
                let _none = std::fs::remove_file(log);
            }
        }
        let _none = std::fs::remove_file(named(path, "", "-shm"));
        return Ok(kept);
    }
    Err(CopyError::Exists(named(path, "", ".replaced-1")))
}

#[cfg(unix)]
fn still_there(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let here = file.metadata().map(|file| (file.dev(), file.ino())).ok();
    here.is_some() && here == std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok()
}

#[cfg(not(unix))]
fn still_there(_file: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(unix)]
fn same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let id = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    id(one).is_some() && id(one) == id(other)
}

#[cfg(not(unix))]
fn same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}
