//! A witness of recent history that stands outside the database: which receipt was acknowledged lately, so that its
//! absence tells of a restore that nobody announced.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use counterfoil_core::{
    Call, Epoch, Issuer, Principal, RequestId, Subject, Timestamp, ToolName, Windows, Workspace,
};
use serde_json::{Value, json};

use crate::key::Key;

/// Where a server keeps its witness, and how often it is written at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// The file.
    pub file: PathBuf,
    /// No two writes of it are closer together: the history since the last one is what a loss may take unnoticed.
    pub every: Duration,
}

impl Keep {
    /// Beside a SQLite file: `DATABASE-counterfoil`.
    #[must_use]
    pub fn beside(database: &Path) -> Self {
        let mut name = database.as_os_str().to_owned();
        name.push("-counterfoil");
        Self::at(PathBuf::from(name))
    }

    /// In `file`, written every five seconds at most.
    #[must_use]
    pub fn at(file: PathBuf) -> Self {
        Self { file, every: Duration::from_secs(5) }
    }
}

/// A receipt that was acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct Witness {
    /// In which history.
    pub epoch: Epoch,
    /// Whose operation.
    pub principal: Arc<Principal>,
    /// Of which tool, by its ledger name.
    pub tool: ToolName,
    /// Which operation.
    pub request_id: RequestId,
    /// Its fact is kept at least to this instant.
    pub until: Timestamp,
}

impl Witness {
    /// Of `call`, which committed in `epoch` at the instant `at`.
    pub(crate) fn of(call: &Call, epoch: &Epoch, at: Timestamp) -> Self {
        let Windows { keep: _, remember } = call.windows;
        Self {
            epoch: epoch.clone(),
            principal: Arc::clone(&call.principal),
            tool: call.tool.clone(),
            request_id: call.request_id.clone(),
            until: at.plus(remember),
        }
    }

    /// What it is found by.
    #[must_use]
    pub fn key(&self) -> Key<'_> {
        Key { principal: &self.principal, tool: &self.tool, request_id: &self.request_id }
    }

    fn text(&self) -> String {
        let body = json!({
            "epoch": self.epoch.as_str(),
            "workspace": self.principal.workspace.as_str(),
            "issuer": self.principal.issuer.as_str(),
            "subject": self.principal.subject.as_str(),
            "tool": self.tool.as_str(),
            "request_id": self.request_id.as_str(),
            "until": self.until.to_string(),
        });
        format!("{body}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(text).ok()?;
        let member = |name: &str| body.get(name)?.as_str();
        let principal = Principal {
            issuer: Issuer::parse(member("issuer")?).ok()?,
            subject: Subject::parse(member("subject")?).ok()?,
            workspace: Workspace::parse(member("workspace")?).ok()?,
            scopes: std::collections::BTreeSet::new(),
        };
        Some(Self {
            epoch: Epoch::parse(member("epoch")?).ok()?,
            principal: Arc::new(principal),
            tool: ToolName::parse(member("tool")?).ok()?,
            request_id: RequestId::parse(member("request_id")?).ok()?,
            until: Timestamp::parse(member("until")?).ok()?,
        })
    }
}

/// Largest file that is read: the words of a witness are bounded, and escapes make them six times as long.
const LARGEST: u64 = 32 << 10;

/// The witness that a server left in `file`, if it left one. A file that cannot be read is reported and taken for none.
#[must_use]
pub fn read(file: &Path) -> Option<Witness> {
    let size = std::fs::metadata(file).ok()?.len();
    let text = (size <= LARGEST).then(|| std::fs::read_to_string(file).ok()).flatten();
    let witness = text.as_deref().and_then(Witness::parse);
    if witness.is_none() {
        tracing::warn!(file = %file.display(), "the witness of recent history cannot be read: a loss may pass unnoticed");
    }
    witness
}

/// Writes `witness` whole or not at all: under another name first, on disk, and then in its place.
fn write(file: &Path, witness: &Witness) -> std::io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        PathBuf::from(name)
    };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut out = options.open(&draft)?;
    out.write_all(witness.text().as_bytes())?;
    out.sync_all()?;
    std::fs::rename(&draft, file)?;
    std::fs::File::open(folder)?.sync_all()
}

/// Keeps the witness of a running server up to date, on a thread of its own.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    keep: Keep,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    latest: Option<Witness>,
    written: bool,
    closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Starts to keep.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(keep: Keep) -> std::io::Result<Self> {
        let state = State { latest: None, written: true, closed: false };
        let shared = Arc::new(Shared { keep, state: Mutex::new(state), changed: Condvar::new() });
        let own = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("counterfoil-witness".into()).spawn(move || own.run())?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Takes note of a receipt that was acknowledged. Costs a lock and no write.
    pub(crate) fn note(&self, witness: Witness) {
        let mut state = self.shared.state();
        let idle = state.written;
        (state.latest, state.written) = (Some(witness), false);
        drop(state);
        if idle {
            self.shared.changed.notify_one();
        }
    }

    /// The last receipt that was noted.
    pub(crate) fn latest(&self) -> Option<Witness> {
        self.shared.state().latest.clone()
    }

    /// Writes what was noted last, and ends.
    pub(crate) fn close(&self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ended = thread.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(witness) = self.next() {
            if let Err(error) = write(&self.keep.file, &witness) {
                let file = self.keep.file.display();
                tracing::warn!(%file, %error, "the witness of recent history cannot be written: a loss may pass unnoticed");
            }
            self.rest();
        }
    }

    /// Waits for something to write; `None` once closed and written.
    fn next(&self) -> Option<Witness> {
        let mut state = self.state();
        loop {
            if !state.written {
                state.written = true;
                return state.latest.clone();
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the next write is due, or the end.
    fn rest(&self) {
        let until = Instant::now() + self.keep.every;
        let mut state = self.state();
        while !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(id: &str) -> Witness {
        let principal = Principal {
            issuer: Issuer::parse("local").unwrap(),
            subject: Subject::parse("ali\"ce\n").unwrap(),
            workspace: Workspace::parse("team-a").unwrap(),
            scopes: std::collections::BTreeSet::new(),
        };
        Witness {
            epoch: Epoch::parse("one").unwrap(),
            principal: Arc::new(principal),
            tool: ToolName::parse("set_interval").unwrap(),
            request_id: RequestId::parse(id).unwrap(),
            until: Timestamp::from_micros(1_796_000_000_123_456),
        }
    }

    #[test]
    fn what_was_noted_last_is_in_the_file_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("app.db-counterfoil");
        assert_eq!(read(&file), None);
        let keep = Keep { file: file.clone(), every: Duration::from_secs(3600) };
        let keeper = Keeper::start(keep).unwrap();
        for number in 0..100 {
            keeper.note(witness(&format!("edit-{number}")));
        }
        keeper.close();
        assert_eq!(read(&file), Some(witness("edit-99")));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "and no draft beside it");
    }

    #[test]
    fn what_is_no_witness_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w");
        let whole = witness("edit-1").text();
        let cases = ["", "{}", &whole[..whole.len() / 2], &whole.replace("team-a", ""), &" ".repeat(40_000)];
        for text in cases {
            std::fs::write(&file, text).unwrap();
            assert_eq!(read(&file), None, "{text:.40}");
        }
    }
}
