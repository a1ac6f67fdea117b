//! Crashes, locks, full disks and voids: whatever happens, an operation takes effect once, and its id tells.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use counterfoil::core::{RequestId, ToolName, Windows};
use counterfoil::sqlite::{Handler, Ledger, Options, Prepare, Rule, Tx, Void, void};
use counterfoil::{Fault, Key, core};
use counterfoil_testkit::database::connect;
use counterfoil_testkit::library::{SetInterval, access, call};
use counterfoil_testkit::suite::Stage;
use counterfoil_testkit::{
    Answer, Ask, Database, Gate, OwnedClock, Pending, Refused, Who, block_on, set_interval,
};
use rusqlite::ffi;

fn perform(ledger: &Ledger, ask: &Ask) -> Answer {
    let handler = SetInterval::new(call(Who::Alice, ask));
    Answer::from(block_on(ledger.perform(Arc::clone(&handler.call), handler)))
}

fn edit_42() -> Ask {
    set_interval("edit-42", 1, 1, 30)
}

fn open(database: &Database, options: Options) -> Ledger {
    Ledger::open(database.path(), options).unwrap()
}

// ---- C1: killed at every step -------------------------------------------------------------------------------------

/// Where a child process dies, without unwinding, closing or flushing anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    /// On the reader, before the writer has the call.
    BeforeBegin,
    /// Step 7 is over, in the writer's transaction.
    AfterAccess,
    /// Step 10 is over.
    AfterWrite,
    /// Step 11 is over and COMMIT is about to write.
    AfterReceipt,
    /// Step 12 is over and nothing was answered.
    AfterCommit,
}

const POINTS: [Point; 5] =
    [Point::BeforeBegin, Point::AfterAccess, Point::AfterWrite, Point::AfterReceipt, Point::AfterCommit];

/// Dies at its point.
struct Mortal {
    inner: SetInterval,
    point: Option<Point>,
}

impl Mortal {
    fn at(&self, point: Point) {
        if self.point == Some(point) {
            std::process::abort();
        }
    }
}

impl Handler for Mortal {
    fn access(&mut self, tx: &Tx<'_>, _rule: Rule<'_>) -> Result<bool, Fault> {
        let passed = access(tx, &self.inner.call);
        self.at(Point::BeforeBegin);
        passed
    }

    fn write(&mut self, tx: &Tx<'_>, reading: &core::Reading) -> Result<Box<str>, Fault> {
        self.at(Point::AfterAccess);
        let result = self.inner.write(tx, reading);
        self.at(Point::AfterWrite);
        result
    }
}

/// Death inside COMMIT and right after it: SQLite calls these hooks there.
fn deadly(point: Point, armed: &Arc<AtomicBool>) -> Prepare {
    let armed = Arc::clone(armed);
    Arc::new(move |connection| {
        let (before, after) = (Arc::clone(&armed), Arc::clone(&armed));
        let die = |armed: &AtomicBool| {
            if armed.load(Ordering::SeqCst) {
                std::process::abort();
            }
        };
        match point {
            Point::AfterReceipt => connection.commit_hook(Some(move || {
                die(&before);
                false
            })),
            Point::AfterCommit => connection.wal_hook(Some(move |_: &mut _, _| {
                die(&after);
                Ok(())
            })),
            Point::BeforeBegin | Point::AfterAccess | Point::AfterWrite => Ok(()),
        }
    })
}

const CHILD_POINT: &str = "COUNTERFOIL_TEST_POINT";
const CHILD_DATABASE: &str = "COUNTERFOIL_TEST_DATABASE";

/// Runs the test `name` of this program in a process of its own, on `database`.
fn child(shell: Option<&str>, name: &str, database: &Path, point: &str) -> ExitStatus {
    let program = std::env::current_exe().unwrap();
    let mut command = match shell {
        None => Command::new(program),
        Some(script) => {
            let mut command = Command::new("sh");
            command.arg("-c").arg(script).arg("sh").arg(program);
            command
        }
    };
    command.args(["--exact", name, "--test-threads=1"]);
    let output = command.env(CHILD_DATABASE, database).env(CHILD_POINT, point).output().unwrap();
    println!("{name} at {point}: {}", String::from_utf8_lossy(&output.stdout));
    output.status
}

/// Not a test of its own: the process that dies.
#[test]
fn child_that_dies() {
    let (Ok(path), Ok(name)) = (std::env::var(CHILD_DATABASE), std::env::var(CHILD_POINT)) else { return };
    let Some(point) = POINTS.into_iter().find(|point| format!("{point:?}") == name) else { return };
    let armed = Arc::new(AtomicBool::new(false));
    let options = Options { prepare: Some(deadly(point, &armed)), ..Options::default() };
    let ledger = Ledger::open(path, options).unwrap();
    armed.store(true, Ordering::SeqCst);
    let inner = SetInterval::new(call(Who::Alice, &edit_42()));
    let _answer = block_on(ledger.perform(Arc::clone(&inner.call), Mortal { inner, point: Some(point) }));
    unreachable!("the point was not met");
}

#[test]
fn killed_at_every_step_and_called_again_it_takes_effect_once() {
    for point in POINTS {
        let database = Database::fresh();
        let epoch = open(&database, Options::default()).epoch().clone();
        let status = child(None, "child_that_dies", &database.path(), &format!("{point:?}"));
        assert_eq!(status.code(), None, "{point:?}: killed by a signal, not ended");
        let ledger = open(&database, Options::default());
        let done = perform(&ledger, &edit_42()).done();
        assert_eq!(done.replayed, point == Point::AfterCommit, "{point:?}");
        assert_eq!(done.epoch, epoch.as_str(), "{point:?}");
        assert_eq!((database.row(1).unwrap().version, database.receipts()), (2, 1), "{point:?}");
        assert!(perform(&ledger, &edit_42()).done().replayed, "{point:?}");
    }
}

// ---- C5, C6: statements that fail late ----------------------------------------------------------------------------

/// C5: the second row of an UPDATE … RETURNING violates a unique key while the first is being read.
#[test]
fn a_failure_while_rows_are_read_is_a_refusal() {
    let database = Database::fresh();
    database.execute(
        "CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT UNIQUE) STRICT; INSERT INTO names VALUES (1, 'a'), (2, 'b')",
    );
    let ledger = open(&database, Options::default());
    let write = |tx: &Tx<'_>| {
        let mut statement = tx.prepare("UPDATE names SET name = 'same' RETURNING id")?;
        let rows = statement.query_map([], |row| row.get::<_, i64>(0))?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    };
    let answer = block_on(ledger.run(call(Who::Alice, &edit_42()), |_| Ok(true), write));
    let refused = Answer::from(answer).refused();
    assert_eq!(
        (refused.code.as_str(), refused.operation.as_deref()),
        ("constraint_violated", Some("not_committed_so_far"))
    );
    assert!(refused.error["message"].as_str().unwrap().contains("names.name"), "{refused:?}");
    assert_eq!(database.count("SELECT count(*) FROM names WHERE name = 'same'"), 0);
    assert_eq!(database.receipts(), 0);
}

/// C6: something after the receipt's insertion fails: at once, or only at COMMIT.
#[test]
fn a_failure_after_the_receipt_leaves_no_receipt() {
    let at_once = "SELECT RAISE(ABORT, 'late')";
    let ending = "SELECT RAISE(ROLLBACK, 'late')";
    let at_commit = "INSERT INTO child VALUES (1, 99)";
    for (body, code) in [(at_once, "internal"), (ending, "internal"), (at_commit, "constraint_violated")] {
        let database = Database::fresh();
        let ledger = open(&database, Options::default());
        database.execute(&format!(
            "CREATE TABLE child (id INTEGER PRIMARY KEY, other INTEGER REFERENCES child (id) DEFERRABLE INITIALLY DEFERRED) STRICT;
             CREATE TRIGGER late AFTER INSERT ON counterfoil_receipts BEGIN {body}; END"
        ));
        assert_eq!(perform(&ledger, &edit_42()).refused().code, code, "{body}");
        assert_eq!((database.row(1).unwrap().version, database.receipts()), (1, 0), "{body}");
        database.execute("DROP TRIGGER late");
        assert!(!perform(&ledger, &edit_42()).done().replayed, "{body}");
    }
}

// ---- C8: locked, read-only, full ----------------------------------------------------------------------------------

#[test]
fn locked_by_another_program_is_busy_and_passes() {
    let database = Database::fresh();
    let ledger = open(&database, Options { lock_wait: Duration::from_millis(1), ..Options::default() });
    let other = database.connect();
    other
        .execute_batch("BEGIN IMMEDIATE; UPDATE automations SET interval_minutes = 45 WHERE id = 2")
        .unwrap();
    let refused = perform(&ledger, &edit_42()).refused();
    assert_eq!((refused.code.as_str(), refused.operation.as_deref()), ("busy", Some("unknown")));
    assert!(refused.error["retry_after_ms"].is_u64());
    other.execute_batch("COMMIT").unwrap();
    assert!(!perform(&ledger, &edit_42()).done().replayed);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(perform(&ledger, &edit_42()).done().replayed, "a replay needs no lock");
    assert_eq!(database.receipts(), 1);
}

/// A writer that cannot write, until the cause is gone: nothing needs to be restarted.
#[test]
fn a_database_that_cannot_be_written_is_refused_and_recovers() {
    let database = Database::fresh();
    drop(open(&database, Options::default()));
    let read_only = Arc::new(AtomicBool::new(true));
    let watched = Arc::clone(&read_only);
    let prepare: Prepare = Arc::new(move |connection| {
        connection.pragma_update(None, "query_only", watched.load(Ordering::SeqCst))
    });
    let ledger = open(&database, Options { prepare: Some(prepare), ..Options::default() });
    for _ in 0..3 {
        assert_eq!(perform(&ledger, &edit_42()).refused().code, "internal");
    }
    assert_eq!(ledger.read(|tx| Ok(tx.query_row("SELECT 1", [], |row| row.get::<_, i64>(0))?)).unwrap(), 1);
    read_only.store(false, Ordering::SeqCst);
    assert!(!perform(&ledger, &edit_42()).done().replayed);
    assert_eq!((database.row(1).unwrap().version, database.receipts()), (2, 1));
}

/// Rounds of one run on a full disk, and the largest file there, in blocks of 512 bytes: the log outgrows it again
/// and again, each time in the middle of a COMMIT.
const ROUNDS: i64 = 100;
const FULL: &str = "trap '' XFSZ; ulimit -f 512; exec \"$@\"";

/// One call for each row, all in the queue before any runs: they share a group.
fn round(ledger: &Ledger, version: i64) -> Vec<Answer> {
    let gate = Gate::default();
    let (held, at) = (ledger.clone(), gate.clone());
    let hold = Pending::start(async move {
        let pass = move |_: &Tx<'_>| {
            at.pass();
            Ok(())
        };
        held.write(pass).await
    });
    gate.arrived();
    let rows = [(Who::Alice, 1), (Who::Bob, 2), (Who::Carol, 20)];
    let calls = rows.map(|(who, id)| {
        let ledger = ledger.clone();
        let handler = SetInterval::new(call(who, &set_interval(&format!("edit-{version}"), id, version, 30)));
        Pending::start(async move { ledger.perform(Arc::clone(&handler.call), handler).await })
    });
    gate.open();
    hold.finish().unwrap();
    calls.into_iter().map(|call| Answer::from(call.finish())).collect()
}

/// Not a test of its own: the process that may not let a file grow.
#[test]
fn child_on_a_full_disk() {
    let (Ok(path), Ok(point)) = (std::env::var(CHILD_DATABASE), std::env::var(CHILD_POINT)) else { return };
    if point != "full" {
        return;
    }
    let ledger = Ledger::open(path, Options::default()).unwrap();
    let mut in_doubt = 0;
    for version in 1..=ROUNDS {
        let answers = round(&ledger, version);
        if answers.iter().all(|answer| matches!(answer, Answer::Done(_))) {
            continue;
        }
        in_doubt += 1;
        for refused in answers.into_iter().map(Answer::refused) {
            let Refused { code, retry, operation, .. } = &refused;
            assert_eq!((&**code, &**retry), ("outcome_unknown", "same_id"), "{refused:?}");
            assert_eq!(operation.as_deref(), Some("unknown"));
        }
        reads_come_back(&ledger);
        // The log begins anew when the database is opened anew, so that the second try fits.
        assert!(round(&ledger, version).into_iter().all(|answer| matches!(answer, Answer::Done(_))));
    }
    assert!(in_doubt > 0, "the disk was never full");
}

/// While a commit is in doubt nobody reads what may not be on disk; nothing but reading is needed to end it.
fn reads_come_back(ledger: &Ledger) {
    let read = || ledger.read(|tx| Ok(tx.query_row("SELECT 1", [], |row| row.get::<_, i64>(0))?));
    let since = Instant::now();
    while let Err(refusal) = read() {
        assert!(since.elapsed() < Duration::from_secs(30), "reads do not come back");
        assert_eq!(refusal.code(), core::Code::Busy);
        std::thread::yield_now();
    }
}

#[test]
fn a_commit_on_a_full_disk_is_unknown_and_its_id_tells() {
    let database = Database::fresh();
    let status = child(Some(FULL), "child_on_a_full_disk", &database.path(), "full");
    assert!(status.success(), "{status}");
    assert_eq!(database.receipts(), 3 * ROUNDS, "once each");
    for id in [1, 2, 20] {
        assert_eq!(database.row(id).unwrap().version, ROUNDS + 1, "row {id}: once each");
    }
    let ledger = open(&database, Options::default());
    for version in 1..=ROUNDS {
        assert!(perform(&ledger, &set_interval(&format!("edit-{version}"), 1, version, 30)).done().replayed);
    }
}

/// The other truth: COMMIT reports an error, and has committed all the same. SQLite passes an error of this hook on
/// in just this way.
#[test]
fn a_commit_that_failed_and_stands_is_unknown_and_its_id_tells() {
    let (database, failing) = (Database::fresh(), Arc::new(AtomicBool::new(false)));
    let armed = Arc::clone(&failing);
    let prepare: Prepare = Arc::new(move |connection| {
        let armed = Arc::clone(&armed);
        connection.wal_hook(Some(move |_: &mut _, _| {
            let error = ffi::Error::new(ffi::SQLITE_IOERR_FSYNC);
            if armed.swap(false, Ordering::SeqCst) {
                Err(rusqlite::Error::SqliteFailure(error, None))
            } else {
                Ok(())
            }
        }))
    });
    let ledger = open(&database, Options { prepare: Some(prepare), ..Options::default() });
    failing.store(true, Ordering::SeqCst);
    let refused = perform(&ledger, &edit_42()).refused();
    assert_eq!((refused.code.as_str(), refused.operation.as_deref()), ("outcome_unknown", Some("unknown")));
    assert!(perform(&ledger, &edit_42()).done().replayed);
    assert_eq!((database.row(1).unwrap().version, database.receipts()), (2, 1));
    assert_eq!(database.count("SELECT count(*) FROM counterfoil_meta WHERE name = 'fence'"), 1);
}

/// The file is taken away and another put in its place while the writer must open it again: its receipts are not
/// these, so that no call may run there.
#[test]
fn another_history_in_the_file_s_place_is_not_written() {
    let (database, other) = (Database::fresh(), Database::fresh());
    drop(open(&other, Options::default()));
    let read_only = Arc::new(AtomicBool::new(false));
    let watched = Arc::clone(&read_only);
    let prepare: Prepare = Arc::new(move |connection| {
        connection.pragma_update(None, "query_only", watched.load(Ordering::SeqCst))
    });
    drop(open(&database, Options::default()));
    read_only.store(true, Ordering::SeqCst);
    let ledger = open(&database, Options { prepare: Some(prepare), ..Options::default() });
    // The writer has given its connection up, and opens the file again at the next call.
    assert_eq!(perform(&ledger, &edit_42()).refused().code, "internal");
    assert_eq!(perform(&ledger, &edit_42()).refused().code, "internal");
    read_only.store(false, Ordering::SeqCst);
    std::fs::rename(other.path(), database.path()).unwrap();
    assert_eq!(perform(&ledger, &edit_42()).refused().code, "internal");
    drop(ledger);
    assert_eq!((database.row(1).unwrap().version, database.receipts()), (1, 0));
}

#[test]
fn a_file_that_is_gone_takes_no_writes() {
    let database = Database::fresh();
    let ledger = open(&database, Options::default());
    assert!(!perform(&ledger, &edit_42()).done().replayed);
    std::fs::remove_file(database.path()).unwrap();
    for _ in 0..2 {
        let refused = perform(&ledger, &set_interval("edit-43", 2, 1, 30)).refused();
        assert_eq!((refused.code.as_str(), refused.operation.as_deref()), ("internal", Some("unknown")));
    }
    assert!(!database.path().exists(), "nothing was made in its place");
}

// ---- C10: void ----------------------------------------------------------------------------------------------------

fn void_operation(ledger: &Ledger, request_id: &str) -> Void {
    let (principal, tool) = (Who::Alice.principal(), ToolName::parse("set_interval").unwrap());
    let request_id = RequestId::parse(request_id).unwrap();
    let work = move |tx: &Tx<'_>| {
        let key = Key { principal: &principal, tool: &tool, request_id: &request_id };
        void(tx, key, Windows::default())
    };
    block_on(ledger.write(work)).unwrap()
}

#[test]
fn what_was_voided_never_commits() {
    let database = Database::fresh();
    let ledger = open(&database, Options::default());
    assert_eq!(void_operation(&ledger, "edit-42"), Void::Voided);
    for _ in 0..2 {
        let refused = perform(&ledger, &edit_42()).refused();
        assert_eq!(
            (refused.code.as_str(), refused.operation.as_deref()),
            ("request_id_voided", Some("voided"))
        );
    }
    assert_eq!(void_operation(&ledger, "edit-42"), Void::Voided, "again is the same");
    assert_eq!((database.row(1).unwrap().version, database.receipts()), (1, 1));
}

#[test]
fn a_void_of_what_committed_tells_when() {
    let database = Database::fresh();
    let ledger = open(&database, Options::default());
    let done = perform(&ledger, &edit_42()).done();
    let Void::Committed(at) = void_operation(&ledger, "edit-42") else { panic!("voided what had committed") };
    assert_eq!(at.to_string(), done.committed_at);
    assert!(perform(&ledger, &edit_42()).done().replayed);
}

#[test]
fn of_a_void_and_its_original_exactly_one_happens() {
    let database = Database::fresh();
    let ledger = open(&database, Options::default());
    let start = Barrier::new(2);
    let mut version = 1;
    for round in 0..200 {
        let request_id = format!("edit-{round}");
        let ask = set_interval(&request_id, 1, version, 30);
        let (answer, void) = std::thread::scope(|scope| {
            let original = scope.spawn(|| {
                start.wait();
                perform(&ledger, &ask)
            });
            start.wait();
            let void = void_operation(&ledger, &request_id);
            (original.join().unwrap(), void)
        });
        match (answer, void) {
            (Answer::Done(done), Void::Committed(at)) => {
                assert_eq!(done.committed_at, at.to_string(), "round {round}");
                version += 1;
            }
            (Answer::Refused(refused), Void::Voided) => assert_eq!(refused.code, "request_id_voided"),
            both => panic!("round {round}: {both:?}"),
        }
        assert_eq!(database.row(1).unwrap().version, version, "round {round}");
    }
    assert_eq!(database.receipts(), 200);
}

// ---- T1: windows --------------------------------------------------------------------------------------------------

/// One second before the window closes a retry replays, one second after it is told that it committed, and when.
#[test]
fn results_are_replayed_as_long_as_they_are_kept() {
    let (database, clock) = (Database::fresh(), OwnedClock::at("2026-11-30T12:00:00Z"));
    let ledger = open(&database, Options { clock: Arc::<OwnedClock>::clone(&clock), ..Options::default() });
    let (keep, second) = (Windows::default().keep, Duration::from_secs(1));
    let done = perform(&ledger, &edit_42()).done();
    assert_eq!(done.committed_at, "2026-11-30T12:00:00.000000Z");
    clock.advance(keep - second);
    assert!(perform(&ledger, &edit_42()).done().replayed);
    clock.advance(2 * second);
    let refused = perform(&ledger, &edit_42()).refused();
    assert_eq!(
        (refused.code.as_str(), refused.operation.as_deref()),
        ("request_id_expired", Some("committed"))
    );
    assert_eq!(refused.error["committed_at"], done.committed_at.as_str());
    assert_eq!((database.row(1).unwrap().version, database.receipts()), (2, 1));
}

/// T12 and step 9: only ids that carry their own time are judged by it.
#[test]
fn dated_ids_are_refused_where_their_fact_may_be_gone() {
    let (database, clock) = (Database::fresh(), OwnedClock::at("2026-11-30T12:00:00Z"));
    let ledger = open(&database, Options { clock, ..Options::default() });
    // UUIDv7: 48 bits of milliseconds since 1970.
    let dated = |day: &str| {
        let millis = core::Timestamp::parse(day).unwrap().micros() / 1000;
        let hex = format!("{millis:012x}");
        format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..])
    };
    let cases = [
        (dated("2025-11-30T11:59:59Z"), Some(("request_id_expired", Some("unknown")))),
        (dated("2026-12-01T12:00:01Z"), Some(("invalid_request_id", Some("unknown")))),
        (dated("2027-11-30T12:00:00Z"), Some(("invalid_request_id", Some("unknown")))),
        ("00000000000000000000000000".to_owned(), None),
        (dated("2026-09-30T12:00:00Z"), None),
        (dated("2026-12-01T11:59:59Z"), None),
    ];
    let mut version = 1;
    for (request_id, refusal) in cases {
        let answer = perform(&ledger, &set_interval(&request_id, 1, version, 30));
        match refusal {
            None => {
                assert!(!answer.done().replayed, "{request_id}");
                version += 1;
            }
            Some((code, operation)) => {
                let refused = answer.refused();
                assert_eq!(
                    (refused.code.as_str(), refused.operation.as_deref()),
                    (code, operation),
                    "{request_id}"
                );
            }
        }
    }
    assert_eq!(
        connect(&database.path())
            .query_row("SELECT version FROM automations WHERE id = 1", [], |row| row.get::<_, i64>(0)),
        Ok(version)
    );
}
