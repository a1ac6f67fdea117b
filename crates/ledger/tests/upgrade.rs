//! T9: databases that earlier versions of the schema wrote are served, replays first of all; a migration that is killed
//! is made again. `fixtures/` has one file a version and store, as the programs of that time left it: never edited.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil::core::{Call, Windows};
use counterfoil::sqlite::{Ledger, Options, Prepare};
use counterfoil::{OpenError, postgres};
use counterfoil_testkit::library::{SetInterval, call};
use counterfoil_testkit::postgres::library::SetInterval as SetIntervalOnPostgres;
use counterfoil_testkit::{Answer, Database, OwnedClock, Who, block_on, set_interval};

/// What the fixtures remember, of a time that the tests need not know.
const ALWAYS: Windows =
    Windows { keep: Duration::from_secs(3_153_600_000), remember: Duration::from_secs(3_153_600_000) };

/// What a program of another time left behind.
struct Fixture<T> {
    what: &'static str,
    content: T,
    epoch: &'static str,
    committed_at: &'static str,
}

fn asked(id: &str) -> Call {
    Call { windows: ALWAYS, ..call(Who::Alice, &set_interval(id, 1, 1, 30)) }
}

/// What the operations of every fixture are answered.
fn check<T>(fixture: &Fixture<T>, answer: impl Fn(Call) -> Answer) {
    let what = fixture.what;
    let done = answer(asked("edit-42")).done();
    assert_eq!((done.replayed, &*done.epoch), (true, fixture.epoch), "{what}");
    assert_eq!(done.result, r#"{"id":1,"interval_minutes":30,"version":2}"#, "{what}");
    assert_eq!(done.committed_at, fixture.committed_at, "{what}");
    assert_eq!(answer(asked("edit-43")).refused().code, "request_id_voided", "{what}");
    let reused = Call { windows: ALWAYS, ..call(Who::Alice, &set_interval("edit-42", 1, 1, 60)) };
    assert_eq!(answer(reused).refused().code, "request_id_reused", "{what}");
    assert_eq!(answer(asked("edit-44")).refused().code, "version_conflict", "{what}");
}

const ON_SQLITE: &[Fixture<&[u8]>] = &[Fixture {
    what: "schema 1",
    content: include_bytes!("fixtures/schema_1.db"),
    epoch: "b01adf54-dfab-47ab-a830-70d393ef2c28",
    committed_at: "2026-12-01T00:42:06.458220Z",
}];
const ON_POSTGRES: &[Fixture<&str>] = &[Fixture {
    what: "schema 1",
    content: include_str!("fixtures/schema_1.sql"),
    epoch: "27d4f611-9e1b-45fe-a5b0-572ea6e07476",
    committed_at: "2026-12-01T01:55:51.621000Z",
}];

fn laid_out(fixture: &Fixture<&[u8]>) -> Database {
    let database = Database::absent();
    std::fs::write(database.path(), fixture.content).unwrap();
    database
}

fn replays(fixture: &Fixture<&[u8]>, database: &Database) {
    let clock = OwnedClock::at("2026-12-01T01:00:00Z");
    let ledger = Ledger::open(database.path(), Options { clock, ..Options::default() }).unwrap();
    check(fixture, |call| {
        let handler = SetInterval::new(call);
        Answer::from(block_on(ledger.perform(Arc::clone(&handler.call), handler)))
    });
}

#[test]
fn t9_what_earlier_versions_wrote_is_served_on_sqlite() {
    for fixture in ON_SQLITE {
        let database = laid_out(fixture);
        replays(fixture, &database);
        replays(fixture, &database);
    }
}

/// The dump restored as `psql` would: into an empty database.
fn on_postgres(fixture: &Fixture<&str>) -> counterfoil_testkit::postgres::Database {
    let database = counterfoil_testkit::postgres::Database::with("TEMPLATE template0");
    database.execute(fixture.content);
    database
}

#[test]
fn t9_what_earlier_versions_wrote_is_served_on_postgresql() {
    for fixture in ON_POSTGRES {
        let what = fixture.what;
        let database = on_postgres(fixture);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let old = postgres::Options { create: false, ..postgres::Options::default() };
        let refused = runtime.block_on(postgres::Ledger::open(database.config(), old));
        assert!(matches!(refused, Err(OpenError::NotMigrated { found: 1, .. })), "{what}: {refused:?}");
        let open = postgres::Ledger::open(database.config(), postgres::Options::default());
        let ledger = runtime.block_on(open).unwrap();
        check(fixture, |call| {
            let handler = SetIntervalOnPostgres::new(call.clone());
            Answer::from(runtime.block_on(ledger.perform(Arc::new(call), handler)))
        });
    }
}

// ---- killed in the middle -----------------------------------------------------------------------------------------

const CHILD: &str = "COUNTERFOIL_TEST_CHILD";

/// Death at the n-th thing that the opening of a ledger does: a statement that is prepared, the commit before and after
/// it is on disk.
fn deadly(at: usize) -> Prepare {
    let step = Arc::new(AtomicUsize::new(0));
    let die = move || {
        if step.fetch_add(1, Ordering::SeqCst) == at {
            std::process::abort();
        }
    };
    Arc::new(move |connection| {
        let (statement, before, after) = (die.clone(), die.clone(), die.clone());
        connection.authorizer(Some(move |_: rusqlite::hooks::AuthContext<'_>| {
            statement();
            rusqlite::hooks::Authorization::Allow
        }))?;
        connection.commit_hook(Some(move || {
            before();
            false
        }))?;
        connection.wal_hook(Some(move |_: &mut _, _| {
            after();
            Ok(())
        }))
    })
}

/// Not a test of its own: the process that dies.
#[test]
fn child_that_dies() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (at, path) = what.split_once('|').unwrap();
    let options = Options { prepare: Some(deadly(at.parse().unwrap())), ..Options::default() };
    Ledger::open(path, options).unwrap().close();
}

/// Opens the ledger at `path` in a process that dies at its step `at`; false if it has no such step and ended.
fn dies(at: usize, path: &Path) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child_that_dies"]).env(CHILD, format!("{at}|{}", path.display()));
    !child.output().unwrap().status.success()
}

#[test]
fn a_migration_that_is_killed_at_any_step_is_made_again() {
    for fixture in ON_SQLITE {
        let (what, mut at) = (fixture.what, 0);
        loop {
            let database = laid_out(fixture);
            if !dies(at, &database.path()) {
                break;
            }
            let schema: i64 = database.count("SELECT value + 0 FROM counterfoil_meta WHERE name = 'schema'");
            let indexed =
                database.count("SELECT count(*) FROM sqlite_schema WHERE name = 'counterfoil_receipts_age'");
            assert_eq!(indexed, schema - 1, "{what}, step {at}: the whole migration or none of it");
            replays(fixture, &database);
            at += 7;
        }
        assert!(at > 40, "{at} steps");
    }
}
