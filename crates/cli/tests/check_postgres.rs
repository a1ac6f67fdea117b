//! What `check` says of a config and a database of PostgreSQL: every `tests/check_postgres/*.toml` has its picture beside
//! it in a `.txt`. `UPDATE_EXPECT=1` writes the pictures anew; look at them before they are committed.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};

use counterfoil_server::plan;
use counterfoil_testkit::postgres::Database;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/check_postgres")
}

/// Checks `toml` and compares what is said with the picture beside it; nothing may be written meanwhile.
fn check(database: &Database, toml: &Path) -> Result<(), String> {
    let name = toml.file_name().unwrap().to_str().unwrap();
    let text = std::fs::read_to_string(toml).unwrap().replace("postgres://place", &database.url());
    let before = state(database);
    let (plan, report) = plan::check(name, &text);
    assert_eq!(plan.is_some(), report.errors() == 0, "{report}");
    assert_eq!(before, state(database), "{name}: the check has written");
    let picture = report.plain().replace(&database.url(), "postgres://place");
    let expected = toml.with_extension("txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&expected, &picture).unwrap();
    }
    let expected = std::fs::read_to_string(&expected).unwrap_or_default();
    if picture == expected {
        Ok(())
    } else {
        Err(format!("{name}: expected\n{expected}\nand got\n{picture}"))
    }
}

/// What a check could have changed: every relation and function, and every write transaction so far.
fn state(database: &Database) -> (i64, i64) {
    let count = |sql: &str| database.count(sql);
    (count("SELECT count(*) FROM pg_class"), count("SELECT count(*) FROM notes"))
}

#[test]
fn every_config_gives_the_picture_beside_it() {
    let database = Database::with("");
    database.execute(&std::fs::read_to_string(fixtures().join("schema.sql")).unwrap());
    let files = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path());
    let mut configs: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    configs.sort();
    assert!(configs.len() >= 4, "the configs have gone missing");
    let failed: Vec<String> = configs.iter().filter_map(|path| check(&database, path).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The trigger that is printed can be run as it is, refuses what it should, and satisfies the next check.
#[test]
fn the_trigger_that_is_printed_works() {
    let database = Database::with("");
    database.execute(&std::fs::read_to_string(fixtures().join("schema.sql")).unwrap());
    let text = std::fs::read_to_string(fixtures().join("hazards.toml")).unwrap();
    let checked =
        || plan::check("hazards.toml", &text.replace("postgres://place", &database.url())).1.plain();
    let help = |report: &str| -> Option<String> {
        report
            .lines()
            .find_map(|line| line.split_once("help: CREATE FUNCTION").map(|(_, rest)| rest.to_owned()))
    };
    let trigger = help(&checked()).unwrap();
    database.execute(&format!("CREATE FUNCTION{trigger}"));
    database.execute("INSERT INTO counted VALUES (1, 'team-a', 'one', 3)");
    for (change, refused) in [
        ("version = 2", true),
        ("version = 3", true),
        ("id = 2, version = 4", true),
        ("title = 'two', version = 4", false),
    ] {
        let sql = format!("UPDATE counted SET {change} WHERE id = 1");
        let tried = format!(
            "DO $$ BEGIN {sql}; EXCEPTION WHEN raise_exception THEN INSERT INTO loose VALUES ('refused', '{}'); END $$",
            change.replace('\'', "")
        );
        database.execute(&tried);
        let told = database.count("SELECT count(*) FROM loose WHERE workspace_id = 'refused'");
        database.execute("DELETE FROM loose");
        assert_eq!(told == 1, refused, "{change}");
    }
    assert_eq!(help(&checked()), None, "the next check finds it");
}
