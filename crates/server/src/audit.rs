//! The audit log: one JSON line for each write, to standard output or to a file.
//!
//! Lines are written by a thread of their own, behind a bounded queue: a full disk or a reader that has stopped
//! reading costs lines, which is reported in the log, and never a call.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use counterfoil_core::{Principal, Timestamp};
use serde_json::json;

use crate::tools::Noted;

/// Lines that may wait for the disk.
const WAITING: usize = 4096;

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// Appended to this file.
    File(PathBuf),
}

enum Order {
    Line(String),
    Reopen,
}

/// An open audit log.
#[derive(Debug)]
pub struct Audit {
    orders: Mutex<Option<SyncSender<Order>>>,
    lost: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Audit {
    /// Opens `target`, so that a file that cannot be written is known before anything is served.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(target: Target) -> io::Result<Self> {
        let out = output(&target)?;
        Self::writing_to(out, move || output(&target), WAITING)
    }

    fn writing_to<W: Write + Send + 'static>(
        out: W,
        reopen: impl Fn() -> io::Result<W> + Send + 'static,
        waiting: usize,
    ) -> io::Result<Self> {
        let (orders, received) = sync_channel(waiting);
        let lost = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&lost);
        let work = move || write(out, &reopen, &received, &counted);
        let thread = std::thread::Builder::new().name("audit".into()).spawn(work)?;
        Ok(Self { orders: Mutex::new(Some(orders)), lost, thread: Mutex::new(Some(thread)) })
    }

    /// Records what became of a write. Never waits.
    pub fn note(&self, at: Timestamp, who: &Principal, noted: &Noted, took: Duration) {
        let line = json!({
            "at": at.to_string(),
            "issuer": who.issuer.as_str(),
            "subject": who.subject.as_str(),
            "workspace": who.workspace.as_str(),
            "tool": noted.tool,
            "request_id": noted.request_id,
            "outcome": noted.outcome,
            "replayed": noted.replayed,
            "duration_us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        });
        self.order(Order::Line(format!("{line}\n")));
    }

    /// Closes the file and opens it anew by its name, for whoever has moved it away.
    pub fn reopen(&self) {
        self.order(Order::Reopen);
    }

    /// Writes what is waiting, and ends. Waits no longer than the disk does.
    pub fn close(&self) {
        drop(self.orders.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ended = thread.join();
        }
    }

    fn order(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok());
        // The first loss is told at once; how many there were, when lines go out again.
        if !sent && self.lost.fetch_add(1, Ordering::SeqCst) == 0 {
            tracing::error!("the audit log cannot keep up: lines are lost");
        }
    }
}

fn output(target: &Target) -> io::Result<Output> {
    Ok(match target {
        Target::Stdout => Output::Stdout(io::stdout()),
        Target::File(path) => Output::File(OpenOptions::new().create(true).append(true).open(path)?),
    })
}

enum Output {
    Stdout(io::Stdout),
    File(File),
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Output::Stdout(out) => out.write(bytes),
            Output::File(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Output::Stdout(out) => out.flush(),
            Output::File(out) => out.flush(),
        }
    }
}

/// A line that fails is lost, and the next one is tried all the same: a disk may have room again.
fn write<W: Write>(
    mut out: W,
    reopen: &dyn Fn() -> io::Result<W>,
    orders: &Receiver<Order>,
    lost: &AtomicU64,
) {
    let mut whole = true;
    while let Ok(order) = orders.recv() {
        let line = match order {
            Order::Line(line) => line,
            Order::Reopen => {
                match reopen() {
                    Ok(anew) => out = anew,
                    Err(error) => {
                        tracing::error!(%error, "the audit log cannot be opened anew: the old one goes on")
                    }
                }
                continue;
            }
        };
        // What a failed write has left of a line must not swallow the next.
        let text = if whole { line } else { format!("\n{line}") };
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {
                whole = true;
                let lost = lost.swap(0, Ordering::SeqCst);
                if lost > 0 {
                    tracing::error!(lost, "lines of the audit log were lost");
                }
            }
            Err(error) => {
                whole = false;
                if lost.fetch_add(1, Ordering::SeqCst) == 0 {
                    tracing::error!(%error, "the audit log cannot be written: lines are lost");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use counterfoil_core::{Issuer, Subject, Workspace};

    use super::*;

    fn note(audit: &Audit, outcome: &'static str) {
        let who = Principal {
            issuer: Issuer::parse("local").unwrap(),
            subject: Subject::parse("al\"ice\n").unwrap(),
            workspace: Workspace::parse("team-a").unwrap(),
            scopes: BTreeSet::new(),
        };
        let noted = Noted { tool: "t".into(), request_id: Some("edit-42".into()), outcome, replayed: false };
        audit.note(Timestamp::from_micros(1), &who, &noted, Duration::from_micros(7));
    }

    fn outcomes(text: &str) -> Vec<String> {
        let read = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok();
        text.lines().filter_map(read).map(|line| line["outcome"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_line_a_write_and_a_file_that_is_moved_away() {
        let folder = tempfile::tempdir().unwrap();
        let (path, moved) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
        let audit = Audit::open(Target::File(path.clone())).unwrap();
        note(&audit, "committed");
        note(&audit, "busy");
        // Whoever moves it away first sees nothing lost: the order to reopen stands behind the lines.
        std::fs::rename(&path, &moved).unwrap();
        audit.reopen();
        note(&audit, "internal");
        audit.close();
        note(&audit, "after the end");
        let first = std::fs::read_to_string(moved).unwrap();
        assert_eq!(outcomes(&first), ["committed", "busy"]);
        assert_eq!(outcomes(&std::fs::read_to_string(path).unwrap()), ["internal"]);
        let line: serde_json::Value = serde_json::from_str(first.lines().next().unwrap()).unwrap();
        let expected = json!({
            "at": "1970-01-01T00:00:00.000001Z", "issuer": "local", "subject": "al\"ice\n", "workspace": "team-a",
            "tool": "t", "request_id": "edit-42", "outcome": "committed", "replayed": false, "duration_us": 7,
        });
        assert_eq!(line, expected);
        assert!(Audit::open(Target::File(folder.path().join("none/audit.log"))).is_err());
    }

    /// A disk with room for so many bytes, and half a line of what does not fit.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().unwrap();
            let fits = bytes.len().min(disk.1);
            disk.1 -= fits;
            disk.0.extend_from_slice(&bytes[..fits]);
            if fits == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(fits) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_lines_and_stops_nobody() {
        let disk = Disk::default();
        disk.0.lock().unwrap().1 = 300;
        let (other, room) = (disk.clone(), disk.clone());
        // Reopening happens in the order of the lines: here it is the moment at which there is room again.
        let reopen = move || {
            room.0.lock().unwrap().1 = 100_000;
            Ok(room.clone())
        };
        let audit = Audit::writing_to(other, reopen, 64).unwrap();
        for _ in 0..5 {
            note(&audit, "before");
        }
        audit.reopen();
        note(&audit, "after");
        audit.close();
        let text = String::from_utf8(disk.0.lock().unwrap().0.clone()).unwrap();
        assert_eq!(outcomes(&text), ["before", "after"], "{text}");
        assert_eq!(audit.lost.load(Ordering::SeqCst), 0, "they were counted and told");
    }

    /// A reader that never reads.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _never = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_stops_nobody() {
        let (release, stuck) = sync_channel(0);
        let audit = Audit::writing_to(Stuck(stuck), || Err(io::ErrorKind::Other.into()), 2).unwrap();
        for _ in 0..1000 {
            note(&audit, "committed");
        }
        assert!(audit.lost.load(Ordering::SeqCst) >= 997);
        drop(release);
        audit.close();
    }
}
