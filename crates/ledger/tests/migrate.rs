//! Opening: fresh files, newer ones, damaged ones, many openers at once, and an application's own database.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Barrier};

use std::time::Duration;

use counterfoil::OpenError;
use counterfoil::sqlite::{Ledger, Options, Receipts, Turn};
use counterfoil_testkit::library::{SetInterval, call, write};
use counterfoil_testkit::suite::Stage;
use counterfoil_testkit::{Answer, Database, Who, block_on, set_interval};
use rusqlite::types::Value;
use rusqlite::{Connection, TransactionBehavior};

fn open(database: &Database) -> Result<Ledger, OpenError> {
    Ledger::open(database.path(), Options::default())
}

/// What is wrong with the ledger's own tables, and what opening says.
#[test]
fn tables_that_are_not_ours_to_read_are_refused_clearly() {
    let cases = [
        ("UPDATE counterfoil_meta SET value = '99' WHERE name = 'schema'", "start the newer program"),
        ("DELETE FROM counterfoil_meta WHERE name = 'schema'", "there is no schema version"),
        ("UPDATE counterfoil_meta SET value = 'new' WHERE name = 'schema'", "not a number"),
        ("UPDATE counterfoil_meta SET value = '0' WHERE name = 'schema'", "less than one"),
        ("UPDATE counterfoil_meta SET value = '-1' WHERE name = 'schema'", "less than one"),
        ("DELETE FROM counterfoil_meta WHERE name = 'epoch'", "there is no epoch"),
        ("UPDATE counterfoil_meta SET value = 'x y' WHERE name = 'epoch'", "the epoch is malformed"),
        ("DROP TABLE counterfoil_receipts", "a table is missing"),
        ("DROP TABLE counterfoil_contracts", "a table is missing"),
    ];
    for (damage, problem) in cases {
        let database = Database::fresh();
        drop(open(&database).unwrap());
        database.execute(damage);
        let before = dump(&database.connect());
        let error = open(&database).expect_err(damage).to_string();
        assert!(error.contains(problem), "{damage}: {error}");
        assert_eq!(dump(&database.connect()), before, "{damage}: and nothing was changed");
    }
}

#[test]
fn many_openers_of_a_fresh_file_agree_on_one_history() {
    for _ in 0..20 {
        let database = Database::absent();
        let start = Barrier::new(10);
        let epochs: BTreeSet<String> = std::thread::scope(|scope| {
            let one = || {
                start.wait();
                open(&database).unwrap().epoch().as_str().to_owned()
            };
            let threads: Vec<_> = (0..10).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(epochs.len(), 1, "{epochs:?}");
        assert!(epochs.contains(open(&database).unwrap().epoch().as_str()));
    }
}

#[test]
fn a_file_that_is_not_there_is_created_only_if_asked() {
    let database = Database::absent();
    let options = Options { create: false, ..Options::default() };
    assert!(matches!(Ledger::open(database.path(), options), Err(OpenError::Database(_))));
    assert!(!database.path().exists());
    assert!(matches!(Ledger::open(":memory:", Options::default()), Err(OpenError::NoWal(_))));
}

/// Everything in the database but the ledger's own tables: schema, rows, and the numbers in its header.
fn dump(connection: &Connection) -> Vec<Vec<Value>> {
    let rows = |sql: &str| {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let read = |row: &rusqlite::Row<'_>| (0..columns).map(|column| row.get(column)).collect();
        statement.query_map([], read).unwrap().collect::<Result<Vec<Vec<Value>>, _>>().unwrap()
    };
    let mut all = rows(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema \
                        WHERE tbl_name NOT LIKE 'counterfoil_%' ORDER BY name",
    );
    for pragma in ["user_version", "application_id", "page_size", "encoding", "auto_vacuum"] {
        all.extend(rows(&format!("PRAGMA {pragma}")));
    }
    for table in ["automations", "notes"] {
        if connection.table_exists(None, table).unwrap() {
            all.extend(rows(&format!("SELECT rowid, * FROM {table} ORDER BY rowid")));
        }
    }
    all
}

const APPLICATION: &str = "
  PRAGMA user_version = 7;
  PRAGMA application_id = 77;
  CREATE TABLE notes (id INTEGER PRIMARY KEY, body, at REAL);
  CREATE INDEX notes_by_body ON notes (body) WHERE body IS NOT NULL;
  CREATE VIEW long_notes AS SELECT * FROM notes WHERE length(body) > 3;
  CREATE TRIGGER stamp AFTER INSERT ON notes WHEN new.at IS NULL BEGIN UPDATE notes SET at = 1.5 WHERE id = new.id; END;
  INSERT INTO notes (body) VALUES ('text'), (x'00ff'), (NULL), (9007199254740993);
  CREATE TABLE ticks (n INTEGER NOT NULL);";

/// Nothing in it changes but WAL mode and tables of our own.
#[test]
fn an_application_s_database_is_left_as_it_was() {
    let database = Database::fresh();
    database.execute(APPLICATION);
    let before = dump(&database.connect());
    let ledger = open(&database).unwrap();
    assert_eq!(dump(&database.connect()), before);
    let handler = SetInterval::new(call(Who::Alice, &set_interval("edit-42", 1, 1, 30)));
    block_on(ledger.perform(Arc::clone(&handler.call), handler)).unwrap();
    drop(ledger);
    database.execute("UPDATE automations SET interval_minutes = 15, version = 1 WHERE id = 1");
    assert_eq!(dump(&database.connect()), before);
    let ours = "SELECT group_concat(name) FROM (SELECT name FROM sqlite_schema \
                WHERE type = 'table' AND name LIKE 'counterfoil_%' ORDER BY name)";
    let tables: String = database.connect().query_row(ours, [], |row| row.get(0)).unwrap();
    assert_eq!(tables, "counterfoil_contracts,counterfoil_epochs,counterfoil_meta,counterfoil_receipts");
}

/// Lets the other thread end, however this one does.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The application goes on writing on its own connection while the ledger is opened, used and closed, and neither
/// loses a row.
#[test]
fn an_application_that_goes_on_writing_is_lived_with() {
    let database = Database::fresh();
    database.execute(APPLICATION);
    let (stop, written) = (AtomicBool::new(false), AtomicI64::new(0));
    std::thread::scope(|scope| {
        let stopping = Stopping(&stop);
        scope.spawn(|| {
            let connection = database.connect();
            while !stop.load(Ordering::SeqCst) {
                connection.execute("INSERT INTO ticks VALUES (1)", []).unwrap();
                written.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
            }
        });
        let more = |than: i64| {
            while written.load(Ordering::SeqCst) <= than {
                std::thread::yield_now();
            }
        };
        more(0);
        for round in 0..5 {
            let options = Options { lock_wait: Duration::from_secs(60), ..Options::default() };
            let ledger = Ledger::open(database.path(), options).unwrap();
            let ask = set_interval(&format!("edit-{round}"), 1, 1 + round, 30);
            let handler = SetInterval::new(call(Who::Alice, &ask));
            let answer = Answer::from(block_on(ledger.perform(Arc::clone(&handler.call), handler)));
            assert!(!answer.done().replayed);
            more(written.load(Ordering::SeqCst));
        }
        drop(stopping);
    });
    assert_eq!(database.count("SELECT count(*) FROM ticks"), written.into_inner());
    assert_eq!((database.row(1).unwrap().version, database.receipts()), (6, 5));
}

/// The form in which the caller owns connection and transaction.
#[test]
fn a_transaction_that_may_read_a_stale_snapshot_is_refused() {
    let database = Database::fresh();
    let mut connection = database.connect();
    let receipts = Receipts::install(&mut connection).unwrap();
    let call = call(Who::Alice, &set_interval("edit-42", 1, 1, 30));
    for behavior in
        [TransactionBehavior::Deferred, TransactionBehavior::Immediate, TransactionBehavior::Exclusive]
    {
        let tx = connection.transaction_with_behavior(behavior).unwrap();
        let turn = receipts.begin_tx(&tx, &call);
        let refused = turn.is_err();
        assert_eq!(refused, matches!(behavior, TransactionBehavior::Deferred), "{turn:?}");
    }
}

/// A rolled-back transaction takes the receipt with it; one that a statement ended gets none.
#[test]
fn a_receipt_lives_and_dies_with_its_transaction() {
    let database = Database::fresh();
    database.execute("CREATE TABLE names (name TEXT UNIQUE); INSERT INTO names VALUES ('taken')");
    let mut connection = database.connect();
    let receipts = Receipts::install(&mut connection).unwrap();
    let call = call(Who::Alice, &set_interval("edit-42", 1, 1, 30));
    for (hidden, commit) in [(false, false), (true, true), (false, true)] {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let Turn::Fresh(permit) = receipts.begin_tx(&tx, &call).unwrap() else { panic!("not fresh") };
        let written = write(&tx, &call).unwrap();
        if hidden {
            let _hidden = tx.execute("INSERT OR ROLLBACK INTO names VALUES ('taken')", []);
        }
        let recorded = permit.record(&written);
        assert_eq!(recorded.is_err(), hidden);
        if commit && !hidden {
            tx.commit().unwrap();
        }
    }
    assert_eq!((database.row(1).unwrap().version, database.receipts()), (2, 1));
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    assert!(matches!(receipts.begin_tx(&tx, &call).unwrap(), Turn::Replay(reply) if reply.replayed));
}
