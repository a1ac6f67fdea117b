//! What `check` says of a config and its database: every `tests/check/*.toml` has its picture beside it in a `.txt`.
//!
//! Each is checked in a directory of its own that holds every `.sql` file. Most name one as `schema`. Where
//! `NAME.db.sql` exists, the database `NAME.db` is made of it first; where `NAME.before.toml` exists, that config is
//! served first, which pins its contracts. `UPDATE_EXPECT=1` writes the pictures anew; look at them before they are
//! committed: they are what a newcomer reads.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a failed step is a failed test"
)]

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

/// A statement of a tool with the inputs `a` and `b`, in a database with a table `t`.
fn plan_of(sql: &str) -> (Option<Plan>, Report) {
    let schema = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&schema, "CREATE TABLE t (id INTEGER PRIMARY KEY, w TEXT, \"x:a\" TEXT, [select] TEXT);")
        .unwrap();
    let quoted = |text: &str| serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f");
    let text = format!(
        "[database]\nurl = 'sqlite:none.db'\nschema = {}\n[auth.stdio]\nsubject = 's'\nworkspace = 'w'\nscopes = ['s']\n\
         [tools.t]\nscope = 's'\nshared = true\nread = {}\ninput.a = {{ type = 'string' }}\ninput.b = {{ type = 'string' }}\n",
        quoted(schema.path().to_str().unwrap()),
        quoted(sql),
    );
    plan::check("c.toml", &text)
}

/// What SQLite itself takes for the parameters of `sql`.
fn parameters(sql: &str) -> Option<Vec<String>> {
    let connection = Connection::open_in_memory().unwrap();
    connection
        .execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, w TEXT, \"x:a\" TEXT, [select] TEXT);")
        .unwrap();
    let statement = connection.prepare(sql).ok()?;
    let name = |at| statement.parameter_name(at).unwrap_or("?").to_owned();
    Some((1..=statement.parameter_count()).map(name).collect())
}

/// Texts that hide a parameter, or look as if they held one: what is bound is what SQLite binds, or the config is
/// refused. Each binds `:a` and then `:b` if it is accepted.
#[test]
fn what_is_bound_is_what_sqlite_binds() {
    let accepted = [
        "SELECT :a, :b",
        "SELECT ':x' || :a || \":b\" FROM (SELECT :b AS \":b\")",
        "SELECT [x:a] AS c, `x:a` AS d, \"x:a\", :a, :b FROM t",
        "SELECT :a /* :x /* :y */, :b",
        "SELECT :a -- :x\n, :b",
        "SELECT :a --\r:x\n, :b",
        "SELECT 'it''s :x', :a, \":\"\":\", :b FROM (SELECT 1 AS \":\"\":\")",
        "SELECT 'back\\', :a, ' slash\\', :b",
        "SELECT X'3a61', x'', :a, :b",
        "SELECT 1e5, 1.e5, .5, 0x1F, 1_000, :a, :b",
        "SELECT -:a, +:b",
        "SELECT:a,:b",
        "SELECT(:a)IS(:b)",
        "SELECT :a||:b",
        "SELECT :a->:b",
        "SELECT :a->>:b",
        "SELECT :a<>:b",
        "SELECT :a<<:b",
        "SELECT :a==:b",
        "SELECT :a!=:b",
        "SELECT :a&:b",
        "SELECT :a|:b",
        "SELECT ~:a, :b",
        "SELECT :a%:b",
        "SELECT :a*:b",
        "SELECT :a/:b",
        "SELECT CASE :a WHEN :b THEN 1 END",
        "SELECT [select], :a FROM t WHERE w = :b",
        "SELECT :a AS \u{e4}\u{1f600}, :b",
        "SELECT N':x', :a, :b FROM (SELECT 1 AS n)",
        "SELECT e':x', :a, :b FROM (SELECT 1 AS e)",
        "\u{feff}SELECT :a, :b",
        "SELECT :a\u{c}, :b",
        "SELECT :a, :b;",
        "SELECT :a, :b;;; -- end",
        "SELECT :a, :b, 'NUL'",
        "SELECT a, b FROM (SELECT :a AS a, :b AS b)",
    ];
    for sql in accepted {
        let (plan, report) = plan_of(sql);
        let Some(plan) = plan else {
            assert!(MAY_BE_REFUSED.contains(&sql), "{sql}\n{report}");
            continue;
        };
        let plan::Kind::Read(read) = &plan.tools[0].kind else { panic!("not a read") };
        let bound: Vec<String> = read
            .query
            .binds
            .iter()
            .map(|bind| match bind {
                plan::Bind::Argument(name) => format!(":{name}"),
                other => panic!("{sql} binds {other:?}"),
            })
            .collect();
        assert_eq!(Some(&bound), parameters(&read.query.sql).as_ref(), "{sql}");
        assert_eq!(bound, [":a", ":b"], "{sql}");
    }
}

/// Right, and refused all the same: each can be written in another way.
const MAY_BE_REFUSED: [&str; 2] = ["\u{feff}SELECT :a, :b", "SELECT :a, :b;;; -- end"];

#[test]
fn what_sqlite_reads_otherwise_is_refused() {
    let refused = [
        "SELECT :a, :b, ?",
        "SELECT :a, :b, ?1",
        "SELECT :a, :b, :1",
        "SELECT :a, :b, :a:b",
        "SELECT :a, :b, :a::b",
        "SELECT :a, :b, ::a",
        "SELECT :a, :b, :a(b)",
        "SELECT :a, :b, :a::b(c)",
        "SELECT :a, :b, $a",
        "SELECT :a, :b, $a::b(c)",
        "SELECT :a, :b, @a",
        "SELECT :a, :b, #a",
        "SELECT :a, :b, #1",
        "SELECT :a, :b, : a",
        "SELECT :a, :b, :\"a\"",
        "SELECT :a, :b, :[a]",
        "SELECT :a, :b, :a\u{e4}",
        "SELECT :a, :b, :a\u{1f600}",
        "SELECT :a, :b, :a\u{a0}",
        "SELECT :a, :b, :a\u{200b}",
        "SELECT :a, :b, :a$b",
        "SELECT :a, :b, :A",
        "SELECT :a, :b, :a.b",
        "SELECT :a, 1:b",
        "SELECT :a, 1e5:b",
        "SELECT :a, x':b'",
        "SELECT :a, x'0':b",
        "SELECT :a, /* :b",
        "SELECT :a, /* /* */ :b */",
        "SELECT :a -- :b",
        "SELECT :a, ':b",
        "SELECT :a, \":b",
        "SELECT :a, `:b",
        "SELECT :a, [:b",
        "SELECT :a, ':b'",
        "SELECT :a, '\\':b'",
        "SELECT :a, \":b\"",
        "SELECT :a\0, :b",
        "SELECT :a, $tag$ :b $tag$",
        "SELECT :a, :b; SELECT 1",
        "SELECT :a, :b; -- \n SELECT 1",
        "SELECT :a, :b # comment",
        "SELECT :a, :b // comment",
        "SELECT :a, \u{2018}:b\u{2019}",
        "/* SELECT */ PRAGMA user_version",
        "WITH x AS (SELECT :a, :b) DROP TABLE t",
        "SELECT :a, :b FROM sqlite_schema",
        "SELECT :a, :b FROM main.sqlite_master",
        "SELECT :a, :b FROM \"SQLITE_SCHEMA\"",
        "SELECT :a, :b FROM sqlite_temp_schema",
        "SELECT :a, :b FROM sqlite_temp_master",
        "SELECT :a, :b FROM pragma_table_info('t')",
        "SELECT :a, :b FROM pragma_database_list()",
        "SELECT :a, :b FROM pragma_user_version",
        "SELECT :a, :b FROM dbstat",
        "SELECT :a, :b FROM sqlite_dbpage",
        "SELECT :a, :b FROM sqlite_stmt",
        "SELECT :a, (SELECT count(*) FROM sqlite_schema), :b",
        "SELECT :a, EXISTS (SELECT 1 FROM \"counterfoil_meta\"), :b",
        "SELECT :a, load_extension('x'), :b",
        "SELECT :a, \"load_extension\"(:b)",
        "SELECT :a, [load_extension](:b)",
        "SELECT :a, fts3_tokenizer(:b)",
        "SELECT :a, fts3_tokenizer('x', :b)",
        "SELECT :a, readfile(:b)",
        "SELECT :a, writefile('x', :b)",
        "SELECT :a, edit(:b)",
        "SELECT :a, Changes(), :b",
        "SELECT :a, total_changes(), :b",
        "SELECT :a, last_insert_rowid(), :b",
    ];
    for sql in refused {
        let (plan, report) = plan_of(sql);
        assert!(plan.is_none(), "{sql} was accepted");
        // The picture of the most twisted text can be drawn.
        assert!(report.coloured().contains("c.toml"), "{sql}");
    }
}
