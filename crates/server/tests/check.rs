//! What `check` says of a config and its database: every `tests/check/*.toml` has its picture beside it in a `.txt`.
//!
//! Each is checked in a directory of its own that holds every `.sql` file. Most name one as `schema`. Where
//! `NAME.db.sql` exists, the database `NAME.db` is made of it first; where `NAME.before.toml` exists, that config is
//! served first, which pins its contracts. `UPDATE_EXPECT=1` writes the pictures anew; look at them before they are
//! committed: they are what a newcomer reads.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use counterfoil::rusqlite::Connection;
use counterfoil_server::diagnostics::Report;
use counterfoil_server::plan::{self, Plan};
use counterfoil_server::run::Engine;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn checked(path: &Path) -> (Option<Plan>, Report) {
    plan::check(path.to_str().unwrap(), &std::fs::read_to_string(path).unwrap())
}

/// Serves the config at `path` for a moment.
fn serve(path: &Path) {
    let (plan, report) = checked(path);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let plan = plan.unwrap_or_else(|| panic!("{report}"));
    runtime.block_on(Engine::start(plan)).unwrap().close();
}

/// A directory with `toml`, all schemas, and the database that `toml` asks for.
fn stage(toml: &Path) -> tempfile::TempDir {
    let stage = tempfile::tempdir().unwrap();
    for file in files(&fixtures()).iter().filter(|file| file.extension().is_some_and(|e| e == "sql")) {
        std::fs::copy(file, stage.path().join(name(file))).unwrap();
    }
    std::fs::copy(toml, stage.path().join(name(toml))).unwrap();
    let stem = toml.file_stem().unwrap().to_str().unwrap();
    let made = stage.path().join(format!("{stem}.db.sql"));
    if let Ok(sql) = std::fs::read_to_string(made) {
        Connection::open(stage.path().join(format!("{stem}.db"))).unwrap().execute_batch(&sql).unwrap();
    }
    let before = fixtures().join(format!("{stem}.before.toml"));
    if before.exists() {
        let served = stage.path().join(name(&before));
        std::fs::copy(&before, &served).unwrap();
        serve(&served);
    }
    stage
}

/// Every file of a directory and what is in it.
fn bytes(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files(folder).into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap_or_default())).collect()
}

/// Checks `toml` and compares what is said with the picture beside it; nothing may be written meanwhile.
fn check(toml: &Path) -> Result<(), String> {
    let stage = stage(toml);
    let before = bytes(stage.path());
    let (plan, report) = checked(&stage.path().join(name(toml)));
    assert_eq!(plan.is_some(), report.errors() == 0, "{report}");
    assert!(before == bytes(stage.path()), "{}: the check has written", name(toml));
    let picture = report.plain().replace(&format!("{}/", stage.path().display()), "");
    let expected = toml.with_extension("txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&expected, &picture).unwrap();
    }
    let expected = std::fs::read_to_string(&expected).unwrap_or_default();
    if picture == expected {
        Ok(())
    } else {
        Err(format!("{}: expected\n{expected}\nand got\n{picture}", name(toml)))
    }
}

#[test]
fn every_config_gives_the_picture_beside_it() {
    let is_config = |path: &PathBuf| name(path).ends_with(".toml") && !name(path).ends_with(".before.toml");
    let configs: Vec<_> = files(&fixtures()).into_iter().filter(is_config).collect();
    assert!(configs.len() > 15, "the configs have gone missing");
    let failed: Vec<String> = configs.iter().filter_map(|path| check(path).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The example is what everybody copies.
#[test]
fn the_example_has_neither_errors_nor_warnings() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/automations");
    let stage = tempfile::tempdir().unwrap();
    for file in ["counterfoil.toml", "schema.sql"] {
        std::fs::copy(example.join(file), stage.path().join(file)).unwrap();
    }
    let config = stage.path().join("counterfoil.toml");
    let (plan, report) = checked(&config);
    assert!(plan.is_some() && report.is_empty(), "{report}");
    serve(&config);
    let (plan, report) = checked(&config);
    assert!(plan.is_some() && report.is_empty(), "served before: {report}");
}

/// A database at rest, one with a log that another program holds open, and one whose log was left behind: none is
/// changed by a check, and no file appears beside it.
#[test]
fn a_check_never_writes() {
    let stage = stage(&fixtures().join("good.toml"));
    let (config, database) = (stage.path().join("good.toml"), stage.path().join("good.db"));
    let untouched = |what: &str| {
        let before = bytes(stage.path());
        let (plan, report) = checked(&config);
        assert!(plan.is_some(), "{what}: {report}");
        let after = bytes(stage.path());
        let same = before.keys().eq(after.keys())
            // The index of the log is memory that readers share; it is no part of the database.
            && before.iter().filter(|(path, _)| !name(path).ends_with("-shm")).all(|(path, old)| after[path] == *old);
        assert!(same, "{what}: {:?} became {:?}", before.keys(), after.keys());
    };
    let open = || Connection::open(&database).unwrap();
    open().execute_batch(&std::fs::read_to_string(stage.path().join("schema.sql")).unwrap()).unwrap();
    untouched("a rollback journal");
    open().pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    untouched("WAL, at rest");
    let held = open();
    held.execute_batch("CREATE TABLE later (a)").unwrap();
    untouched("WAL, held open");
    let (log, index) = (stage.path().join("good.db-wal"), stage.path().join("good.db-shm"));
    let left = (std::fs::read(&log).unwrap(), std::fs::read(&index).unwrap());
    drop(held);
    std::fs::write(log, left.0).unwrap();
    std::fs::write(index, left.1).unwrap();
    untouched("WAL, left behind by a crash");
}

/// What the database has not committed to its file yet is seen too.
#[test]
fn a_check_sees_the_log() {
    let stage = stage(&fixtures().join("good.toml"));
    let held = Connection::open(stage.path().join("good.db")).unwrap();
    held.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
    held.execute_batch(&std::fs::read_to_string(stage.path().join("schema.sql")).unwrap()).unwrap();
    let (plan, report) = checked(&stage.path().join("good.toml"));
    assert!(plan.is_some(), "{report}");
}

/// The plan of a config over `schema`, which must be one.
fn plan_over(schema: &str, tools: &str) -> Plan {
    let stage = tempfile::tempdir().unwrap();
    std::fs::write(stage.path().join("s.sql"), schema).unwrap();
    let text = format!(
        "[database]\nurl = 'sqlite:none.db'\nschema = 's.sql'\n[auth.stdio]\nsubject = 's'\nworkspace = 'w'\nscopes = ['s']\n{tools}"
    );
    let (plan, report) = plan::check(stage.path().join("c.toml").to_str().unwrap(), &text);
    plan.unwrap_or_else(|| panic!("{report}"))
}

fn write(plan: &Plan) -> &plan::Write {
    let plan::Kind::Write(write) = &plan.tools[0].kind else { panic!("not a write") };
    write
}

/// SQLite knows a table in any case, and so must whoever asks what refers to it.
#[test]
fn a_deferrable_constraint_is_found_whatever_the_case() {
    let schema = "CREATE TABLE Notes (id INTEGER PRIMARY KEY, w TEXT);
                  CREATE TABLE links (note REFERENCES NOTES (id) DEFERRABLE INITIALLY DEFERRED);";
    let tool = "[tools.t]\nrevision = 'v1'\nscope = 's'\nreturns = 'nothing'\naccess = 'SELECT 1 WHERE :workspace = 1'\n\
                write = 'DELETE FROM notes WHERE w = :workspace'\n";
    assert!(write(&plan_over(schema, tool)).alone);
    assert!(!write(&plan_over(&schema.replace("DEFERRABLE INITIALLY DEFERRED", ""), tool)).alone);
}

/// What deletes the row in the way is destructive, whether the statement says so or the table.
#[test]
fn replacing_is_deleting() {
    let tool = |verb: &str| {
        format!(
            "[tools.t]\nrevision = 'v1'\nscope = 's'\nreturns = 'nothing'\naccess = 'SELECT 1 WHERE :workspace = 1'\n\
             write = 'WITH x AS (SELECT 1) {verb} INTO t VALUES (1, replace(:workspace, 1, 2))'\n"
        )
    };
    let (plain, replacing) =
        ("CREATE TABLE t (id PRIMARY KEY, w)", "CREATE TABLE t (id PRIMARY KEY ON\nconflict Replace, w)");
    for (schema, verb, destructive) in [
        (plain, "INSERT", false),
        (plain, "INSERT OR IGNORE", false),
        (plain, "REPLACE", true),
        (plain, "insert or replace", true),
        (replacing, "INSERT", true),
    ] {
        let plan = plan_over(schema, &tool(verb));
        assert_eq!(write(&plan).destructive, destructive, "{schema}: {verb}");
        assert!(!write(&plan).idempotent, "{verb}: a new id inserts again");
    }
}

/// A revision that has no rule of its own is replayed under the tool's rule for replays: its success, too, took away
/// what `access` reads.
#[test]
fn a_retired_revision_is_replayed_under_the_rule_for_replays() {
    let tool = "[tools.t]\nrevision = 'v3'\nscope = 's'\nreturns = 'nothing'\naccess = 'SELECT 1 FROM t WHERE w = :workspace'\n\
                replay_access = 'SELECT 2 WHERE :workspace = :workspace'\nwrite = 'DELETE FROM t WHERE w = :workspace'\n\
                [[tools.t.retired]]\nrevision = 'v1'\n\
                [[tools.t.retired]]\nrevision = 'v2'\nreplay_access = 'SELECT 3 WHERE :workspace = :workspace'\n";
    let plan = plan_over("CREATE TABLE t (w)", tool);
    let rules = write(&plan)
        .retired
        .iter()
        .map(|retired| retired.access.as_ref().map(|rule| rule.sql.split(' ').nth(1)));
    assert_eq!(rules.collect::<Vec<_>>(), [Some(Some("2")), Some(Some("3"))]);
}

/// `serve` would refuse it, so `check` says it.
#[test]
fn a_ledger_of_a_newer_program_is_an_error() {
    let stage = stage(&fixtures().join("good.toml"));
    let config = stage.path().join("good.toml");
    serve(&config);
    let sql = "UPDATE counterfoil_meta SET value = '99' WHERE name = 'schema'";
    Connection::open(stage.path().join("good.db")).unwrap().execute_batch(sql).unwrap();
    let (plan, report) = checked(&config);
    assert!(plan.is_none() && report.plain().contains("99"), "{report}");
}

/// The trigger that is printed can be run as it is, refuses what it should, and satisfies the next check.
#[test]
fn the_trigger_that_is_printed_works() {
    let folder = tempfile::tempdir().unwrap();
    let connection = Connection::open(folder.path().join("a.db")).unwrap();
    let config = folder.path().join("a.toml");
    let help = |report: String| -> Option<String> {
        let help = |line: &str| line.split_once("help: CREATE TRIGGER").map(|(_, rest)| rest.to_owned());
        report.lines().find_map(help)
    };
    for (table, key) in
        [("one", "id INTEGER PRIMARY KEY AUTOINCREMENT"), ("two", "id TEXT, \"part of\" TEXT")]
    {
        let composite = if table == "two" { ", PRIMARY KEY (id, \"part of\")" } else { "" };
        connection
            .execute_batch(&format!("CREATE TABLE {table} ({key}, w TEXT, version INTEGER{composite})"))
            .unwrap();
        std::fs::write(
            &config,
            format!(
                "[database]\nurl = 'sqlite:a.db'\n[auth.stdio]\nsubject = 'a'\nworkspace = 'w'\nscopes = ['s']\n\
                 [tools.t]\nrevision = 'v1'\nscope = 's'\naccess = 'SELECT 1 FROM {table} WHERE id = :id AND w = :workspace'\n\
                 write = 'UPDATE {table} SET version = version + 1 WHERE id = :id AND w = :workspace AND version = \
                 :expected_version RETURNING version'\n[tools.t.input]\nid = {{ type = 'string' }}\n\
                 expected_version = {{ type = 'integer' }}\n"
            ),
        )
        .unwrap();
        let trigger =
            help(checked(&config).1.plain()).unwrap_or_else(|| panic!("{}", checked(&config).1.plain()));
        connection.execute_batch(&format!("CREATE TRIGGER{trigger}")).unwrap();
        let row = if table == "one" { "(1, 'w', 3)" } else { "('1', '2', 'w', 3)" };
        connection.execute_batch(&format!("INSERT INTO {table} VALUES {row}")).unwrap();
        let last = if table == "one" { "id" } else { "\"part of\"" };
        for (change, refused) in [
            ("version = 2".to_owned(), true),
            ("version = 3".to_owned(), true),
            (format!("{last} = 7, version = 4"), true),
            ("version = 4".to_owned(), false),
        ] {
            let tried = connection.execute(&format!("UPDATE {table} SET {change}"), []);
            assert_eq!(tried.is_err(), refused, "{table}: {change}");
        }
        assert_eq!(help(checked(&config).1.plain()), None, "the next check finds it");
    }
}
