//! T8 on SQLite: histories that end, announced or not, and files that are copied whole or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use counterfoil::core::Timestamp;
use counterfoil::sqlite::{CopyError, Ledger, Options, Stage, backup, begin_epoch, restore, verify};
use counterfoil::witness::Keep;
use counterfoil_testkit::library::{SetInterval, call};
use counterfoil_testkit::suite::Stage as _;
use counterfoil_testkit::{Answer, Database, OwnedClock, Who, block_on, set_interval};

const NOON: &str = "2026-11-30T12:00:00Z";

fn noon() -> Timestamp {
    Timestamp::parse(NOON).unwrap()
}

/// Opens `path` as a server does that keeps its witness beside the file.
fn serve(path: &Path, clock: &Arc<OwnedClock>) -> Ledger {
    let keep = Keep { every: Duration::ZERO, ..Keep::beside(path) };
    let options = Options { clock: Arc::clone(clock) as Arc<_>, witness: Some(keep), ..Options::default() };
    Ledger::open(path, options).unwrap()
}

fn edit(ledger: &Ledger, number: i64) -> Answer {
    let ask = set_interval(&format!("edit-{number}"), 1, number, 30);
    let handler = SetInterval::new(call(Who::Alice, &ask));
    Answer::from(block_on(ledger.perform(Arc::clone(&handler.call), handler)))
}

fn fresh(answer: &Answer) -> bool {
    matches!(answer, Answer::Done(done) if !done.replayed)
}

fn epoch(path: &Path) -> String {
    verify(path).unwrap().epoch.as_str().to_owned()
}

/// A database with a history of two operations, closed, and a copy of it from between them.
struct Two {
    database: Database,
    clock: Arc<OwnedClock>,
    older: PathBuf,
}

impl Two {
    fn new() -> Self {
        let (database, clock) = (Database::fresh(), OwnedClock::at(NOON));
        let older = database.directory().join("older.db");
        let ledger = serve(&database.path(), &clock);
        assert!(fresh(&edit(&ledger, 1)));
        ledger.close();
        std::fs::copy(database.path(), &older).unwrap();
        let ledger = serve(&database.path(), &clock);
        assert!(fresh(&edit(&ledger, 2)));
        ledger.close();
        Self { database, clock, older }
    }

    fn path(&self) -> PathBuf {
        self.database.path()
    }

    fn open(&self) -> Ledger {
        serve(&self.path(), &self.clock)
    }
}

type Act = fn(&Two);

/// What is done to the file while no server runs, and whether a new epoch begins at the next start.
const BEHIND_OUR_BACK: &[(&str, Act, bool)] = &[
    ("nothing", |_| {}, false),
    ("an older copy in its place", |two| assert!(std::fs::copy(&two.older, two.path()).is_ok()), true),
    (
        "an older copy, after the fact may be gone",
        |two| {
            std::fs::copy(&two.older, two.path()).unwrap();
            two.clock.advance(Duration::from_secs(366 * 86_400));
        },
        false,
    ),
    (
        "an older copy, and no witness any more",
        |two| {
            std::fs::copy(&two.older, two.path()).unwrap();
            std::fs::remove_file(Keep::beside(&two.path()).file).unwrap();
        },
        false,
    ),
    (
        "a copy of the same instant",
        |two| {
            let copy = two.database.directory().join("copy.db");
            std::fs::copy(two.path(), &copy).unwrap();
            std::fs::rename(copy, two.path()).unwrap();
        },
        false,
    ),
    (
        "a witness that cannot be read",
        |two| {
            std::fs::write(Keep::beside(&two.path()).file, "{").unwrap();
        },
        false,
    ),
    ("the receipts emptied", |two| two.database.execute("DELETE FROM counterfoil_receipts"), true),
];

#[test]
fn t8_a_restore_behind_our_back_begins_a_new_epoch_once() {
    for (what, act, begins) in BEHIND_OUR_BACK {
        let two = Two::new();
        let before = epoch(&two.path());
        act(&two);
        let first = two.open().epoch().as_str().to_owned();
        assert_eq!(first != before, *begins, "{what}");
        assert_eq!(two.open().epoch().as_str(), first, "{what}: and the next server finds nothing new");
        let ledger = two.open();
        if let Answer::Done(done) = edit(&ledger, 2) {
            assert_eq!(done.epoch, first, "{what}: every reply names it");
        }
        ledger.close();
        assert_eq!(two.open().epoch().as_str(), first, "{what}: and so it stays");
    }
}

/// The same old copy again: each loss is one of its own.
#[test]
fn t8_every_loss_begins_an_epoch_of_its_own() {
    let two = Two::new();
    let mut seen = vec![epoch(&two.path())];
    for _ in 0..3 {
        std::fs::copy(&two.older, two.path()).unwrap();
        let ledger = two.open();
        seen.push(ledger.epoch().as_str().to_owned());
        assert!(fresh(&edit(&ledger, 2)), "the operation is gone, and its version fits again");
        ledger.close();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// A witness is written while the server runs, so that it is there when the server is killed.
#[test]
fn the_witness_is_written_while_the_server_runs() {
    let (database, clock) = (Database::fresh(), OwnedClock::at(NOON));
    let ledger = serve(&database.path(), &clock);
    assert!(fresh(&edit(&ledger, 1)));
    let file = Keep::beside(&database.path()).file;
    while !std::fs::read_to_string(&file).is_ok_and(|text| text.contains("\"edit-1\"")) {
        std::thread::yield_now();
    }
}

// ---- backup and restore -------------------------------------------------------------------------------------------

#[test]
fn a_backup_is_one_instant_of_a_database_in_use() {
    let (database, clock) = (Database::fresh(), OwnedClock::at(NOON));
    let ledger = serve(&database.path(), &clock);
    for number in 1..=50 {
        assert!(fresh(&edit(&ledger, number)));
    }
    let copy = database.directory().join("backup.db");
    let mut more = 50;
    let verified = backup(&database.path(), &copy, &mut |_| {
        more += 1;
        assert!(fresh(&edit(&ledger, more)), "calls go on");
    });
    let verified = verified.unwrap();
    assert!(more > 52);
    assert_eq!((verified.receipts, verified.epoch.as_str()), (50, ledger.epoch().as_str()));
    let rows = counterfoil_testkit::database::connect(&copy);
    let version: i64 =
        rows.query_row("SELECT version FROM automations WHERE id = 1", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 51, "rows and receipts of one instant");
}

fn nothing(_: Stage) {}

/// What is refused, and that nothing was changed by it.
#[test]
fn what_cannot_be_copied_is_refused_and_leaves_nothing() {
    let two = Two::new();
    let folder = two.database.directory().to_owned();
    let other = folder.join("other.db");
    std::fs::write(
        folder.join("text.db"),
        "no database, though longer than the header of one, which has a hundred bytes in all",
    )
    .unwrap();
    let cut = folder.join("cut.db");
    let whole = std::fs::read(&two.older).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let plain = folder.join("plain.db");
    rusqlite::Connection::open(&plain).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (names(), std::fs::read(two.path()).unwrap());
    type Try<'a> = (&'a str, Box<dyn Fn() -> Result<(), CopyError> + 'a>);
    let to = |from: PathBuf, to: PathBuf, replace: bool| {
        Box::new(move || restore(&from, &to, replace, noon(), &mut nothing).map(drop))
    };
    let tries: Vec<Try<'_>> = vec![
        ("is there already", Box::new(|| backup(&two.path(), &two.older, &mut nothing).map(drop))),
        ("no receipts", Box::new(|| backup(&plain, &other, &mut nothing).map(drop))),
        ("cannot be read", Box::new(|| backup(&folder.join("text.db"), &other, &mut nothing).map(drop))),
        ("is there already", to(two.older.clone(), two.path(), false)),
        ("the database itself", to(two.path(), two.path(), true)),
        ("not whole", to(cut.clone(), two.path(), true)),
        ("not whole", to(folder.join("text.db"), two.path(), true)),
        ("no receipts", to(plain.clone(), two.path(), true)),
        ("no such file", to(folder.join("none.db"), two.path(), true)),
    ];
    for (wanted, attempt) in tries {
        let error = attempt().expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{wanted}: {error}");
        assert_eq!((names(), std::fs::read(two.path()).unwrap()), before, "{wanted}");
    }
    let ledger = two.open();
    let error = restore(&two.older, &two.path(), true, noon(), &mut nothing).unwrap_err();
    assert!(matches!(error, CopyError::InUse(_)), "{error:?}");
    assert!(fresh(&edit(&ledger, 3)), "and the server goes on");
}

#[test]
fn t8_a_restore_begins_a_new_epoch_and_keeps_what_it_replaces() {
    let two = Two::new();
    let before = epoch(&two.path());
    let restored = restore(&two.older, &two.path(), true, noon(), &mut nothing).unwrap();
    assert_eq!((restored.backup.receipts, restored.backup.epoch.as_str()), (1, &*before));
    assert_eq!(verify(&restored.kept.unwrap()).unwrap().receipts, 2, "what was replaced is kept");
    let ledger = two.open();
    assert_eq!(
        ledger.epoch().as_str(),
        restored.epoch.as_str(),
        "begun once, though the witness misses its receipt"
    );
    assert_ne!(ledger.epoch().as_str(), before);
    assert!(fresh(&edit(&ledger, 2)));
    ledger.close();
    // A file that is no database any more is replaced too, and kept.
    std::fs::write(two.path(), "broken").unwrap();
    let again = restore(&two.older, &two.path(), true, noon(), &mut nothing).unwrap();
    assert_eq!(std::fs::read(again.kept.unwrap()).unwrap(), b"broken");
    assert_eq!(two.open().epoch().as_str(), again.epoch.as_str());
    let begun = begin_epoch(&two.path(), noon()).unwrap();
    assert_eq!((two.open().epoch().as_str(), begun == again.epoch), (begun.as_str(), false));
}

// ---- killed at every step -----------------------------------------------------------------------------------------

const CHILD: &str = "COUNTERFOIL_TEST_CHILD";

/// The steps at which the child dies, by their number.
fn deadly(at: usize) -> impl FnMut(Stage) {
    let mut step = 0;
    move |stage| {
        println!("{step}: {stage:?}");
        if step == at {
            std::process::abort();
        }
        step += 1;
    }
}

/// Not a test of its own: the process that dies.
#[test]
fn child_that_dies() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let [act, at, from, to] = what.split('|').collect::<Vec<_>>()[..] else { panic!("{what}") };
    let (from, to, mut see) = (Path::new(from), Path::new(to), deadly(at.parse().unwrap()));
    match act {
        "backup" => drop(backup(from, to, &mut see).unwrap()),
        _ => drop(restore(from, to, true, noon(), &mut see).unwrap()),
    }
}

/// Runs `act` in a process that dies at its step `at`; false if it has no such step and ended.
fn dies(act: &str, at: usize, from: &Path, to: &Path) -> bool {
    let what = format!("{act}|{at}|{}|{}", from.display(), to.display());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child_that_dies", "--nocapture"]).env(CHILD, what);
    let output = child.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code().is_none_or(|code| code == 0), "{told}");
    !output.status.success()
}

#[test]
fn a_backup_that_is_killed_is_whole_or_not_there_and_can_be_made_again() {
    let two = Two::new();
    let to = two.database.directory().join("backup.db");
    let mut at = 0;
    while dies("backup", at, &two.path(), &to) {
        if to.exists() {
            assert_eq!(verify(&to).unwrap().receipts, 2, "step {at}");
            std::fs::remove_file(&to).unwrap();
        }
        assert_eq!(backup(&two.path(), &to, &mut nothing).unwrap().receipts, 2, "step {at}: again");
        std::fs::remove_file(&to).unwrap();
        at += 1;
    }
    assert!(at >= 5, "{at} steps");
    assert!(to.exists(), "the last one was not killed");
}

#[test]
fn a_restore_that_is_killed_leaves_the_old_or_the_new_and_can_be_made_again() {
    let mut at = 0;
    loop {
        let two = Two::new();
        let before = epoch(&two.path());
        if !dies("restore", at, &two.older, &two.path()) {
            break;
        }
        let there = verify(&two.path()).unwrap();
        let expected = if there.epoch.as_str() == before { 2 } else { 1 };
        assert_eq!(there.receipts, expected, "step {at}: one or the other, whole");
        let again = restore(&two.older, &two.path(), true, noon(), &mut nothing).unwrap();
        let ledger = two.open();
        assert_eq!((ledger.epoch(), two.database.receipts()), (&again.epoch, 1), "step {at}");
        assert_eq!(two.database.row(1).unwrap().version, 2);
        let held =
            |name: String| verify(&two.database.directory().join(name)).is_ok_and(|held| held.receipts == 2);
        assert!((1..3).any(|n| held(format!("automations.db.replaced-{n}"))), "step {at}: nothing is lost");
        at += 1;
    }
    assert!(at >= 7, "{at} steps");
}
