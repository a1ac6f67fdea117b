//! What operators do to the books: prune, void, count, verify, export, import, back up, restore, forget.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use counterfoil::rusqlite::Connection;
use counterfoil_testkit::Site;
use counterfoil_testkit::site::{Data, Kind};
use serde_json::Value;

fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(line.split(' ')).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Exit code, standard output, standard error.
fn told(folder: &Path, line: &str) -> (Option<i32>, String, String) {
    let output = run(folder, line);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The example's tools over a served database with operations of four ages, sound in every part.
fn site() -> Site {
    site_on(Kind::Sqlite)
}

fn site_on(kind: Kind) -> Site {
    let site = Site::automations_on(kind);
    let (now, fingerprint_of): (&str, fn(String) -> String) = match kind {
        Kind::Sqlite => {
            let options = counterfoil::sqlite::Options::default();
            counterfoil::sqlite::Ledger::open(site.database.path(), options).unwrap().close();
            ("(strftime('%s', 'now') - AGE * 86400) * 1000000", |hex| format!("x'{hex}'"))
        }
        Kind::Postgres => {
            assert_eq!(told(folder(&site), "migrate counterfoil.toml").0, Some(0));
            ("now() - AGE * interval '1 day'", |hex| format!("'\\x{hex}'"))
        }
    };
    for (number, age) in [(1, 400), (2, 40), (3, 4), (4, 0)] {
        let tool = counterfoil_core::ToolName::parse("set_interval").unwrap();
        let intent = format!("{{\"expected_version\":{number},\"id\":1,\"interval_minutes\":30}}");
        let hex = counterfoil_core::Fingerprint::of_text(&tool, &intent).to_string();
        let result = format!("{{\"id\":1,\"interval_minutes\":30,\"version\":{}}}", number + 1);
        let subject = if number == 4 { "bob" } else { "alice" };
        let (at, fingerprint) = (now.replace("AGE", &age.to_string()), fingerprint_of(hex));
        site.database.execute(&format!(
            "INSERT INTO counterfoil_receipts VALUES
             ('team-a', 'local', '{subject}', 'set_interval', 'edit-{number}', 'committed', {at}, 'v1', {fingerprint},
              '{intent}', '{result}')"
        ));
    }
    site
}

fn folder(site: &Site) -> &Path {
    site.database.directory()
}

fn held(database: &Data) -> (i64, i64) {
    let held = database.count("SELECT count(*) FROM counterfoil_receipts WHERE result IS NOT NULL");
    (database.receipts(), held)
}

#[test]
fn prune_removes_what_is_over_and_a_dry_run_only_tells() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        prune(&site_on(kind));
    }
}

fn prune(site: &Site) {
    let folder = folder(site);
    let (code, out, err) = told(folder, "receipts prune --dry-run counterfoil.toml");
    assert_eq!((code, out.lines().next()), (Some(0), Some("1 result and 1 receipt would go.")), "{err}");
    assert_eq!(held(&site.database), (4, 4));
    let (code, out, err) = told(folder, "receipts prune counterfoil.toml");
    assert_eq!((code, &*out), (Some(0), "Removed 1 result and 1 receipt.\n"), "{err}");
    assert_eq!(held(&site.database), (3, 2));
    let (code, out, _) = told(folder, "receipts prune counterfoil.toml");
    assert_eq!((code, &*out), (Some(0), "Removed 0 results and 0 receipts.\n"));
    let back = "SET value = CAST(CAST(value AS bigint) - 40 * 86400000000 AS text) WHERE name = 'removal'";
    site.database.execute(&format!("UPDATE counterfoil_meta {back}"));
    let (code, out, err) = told(folder, "receipts prune counterfoil.toml");
    assert_eq!((code, &*out), (Some(1), ""));
    assert!(err.contains("nothing was removed") && err.contains("--trust-clock"), "{err}");
    let (code, _, err) = told(folder, "receipts prune counterfoil.toml --trust-clock");
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn what_needs_a_config_or_a_file_says_so() {
    let (file, server) = (site(), site_on(Kind::Postgres));
    for (site, line, wanted) in [
        (&file, "receipts prune automations.db", "give the config instead"),
        (&server, "backup counterfoil.toml --to copy.db", "pg_basebackup"),
        (&server, "restore counterfoil.toml --from copy.db", "without --from"),
    ] {
        let (code, out, err) = told(folder(site), line);
        assert!((code, &*out) == (Some(3), "") && err.contains(wanted), "{line}: {err}");
    }
}

#[test]
fn show_says_what_a_retry_would_get() {
    let site = site();
    let gets = |place: &str, id: &str| -> String {
        let output = run(folder(&site), &format!("receipts show {place} {id}"));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["a_retry_gets"].as_str().unwrap().to_owned()
    };
    for (place, id, wanted) in [
        ("counterfoil.toml", "edit-3", "the result, replayed"),
        ("counterfoil.toml", "edit-2", "request_id_expired"),
        ("automations.db", "edit-3", "not known without the config"),
    ] {
        assert_eq!(gets(place, id), wanted, "{place} {id}");
    }
    site.database.execute("UPDATE counterfoil_receipts SET revision = 'v0' WHERE request_id = 'edit-3'");
    assert_eq!(gets("counterfoil.toml", "edit-3"), "revision_changed");
}

#[test]
fn void_makes_an_unknown_a_fact() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        voided(&site_on(kind));
    }
}

fn voided(site: &Site) {
    let void = |id: &str, more: &str| {
        let whose = "--tool set_interval --workspace team-a --subject alice";
        told(folder(site), &format!("receipts void counterfoil.toml {id} {whose}{more}"))
    };
    let (code, out, _) = void("edit-9", "");
    assert_eq!((code, &*out), (Some(0), "It is void: it has not committed and never will.\n"));
    assert_eq!(void("edit-9", "").0, Some(0), "and again");
    let (code, out, err) = void("edit-3", "");
    assert!(code == Some(1) && out.is_empty() && err.contains("it committed at"), "{err}");
    let (code, _, err) = void("01800000-0000-7000-8000-000000000000", "");
    assert!(code == Some(1) && err.contains("may have committed"), "{err}");
    let (code, _, err) = void("edit 9", "");
    assert!(code != Some(0), "{err}");
    let (code, _, err) = told(
        folder(site),
        "receipts void counterfoil.toml edit-9 --tool get_automation --workspace w --subject s",
    );
    assert!(code == Some(3) && err.contains("declares no tool get_automation"), "{err}");
    assert_eq!(site.database.count("SELECT count(*) FROM counterfoil_receipts WHERE state = 'voided'"), 1);
}

#[test]
fn stats_and_verify_count_and_recompute() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        counted(&site_on(kind));
    }
}

fn counted(site: &Site) {
    site.database.execute("UPDATE automations SET version = 5 WHERE id = 1");
    let (code, out, _) = told(folder(site), "receipts stats counterfoil.toml");
    let line: Value = serde_json::from_str(&out).unwrap();
    let seen = ["committed", "with_result", "voided"].map(|member| line[member].as_i64().unwrap());
    assert_eq!((code, line["tool"].as_str(), seen), (Some(0), Some("set_interval"), [4, 4, 0]));
    let (code, out, _) = told(folder(site), "receipts verify counterfoil.toml");
    assert_eq!((code, &*out), (Some(0), "4 receipts, 0 problems.\n"));
    let damages = [
        (
            "SET intent = '{}' WHERE request_id = 'edit-3'",
            "edit-3: the fingerprint is not that of the intent",
        ),
        ("SET result = '{' WHERE request_id = 'edit-4'", "edit-4: the result is not JSON"),
        ("SET tool = 'a.b' WHERE request_id = 'edit-2'", "edit-2: a receipt holds a tool"),
    ];
    for (number, (damage, problem)) in damages.into_iter().enumerate() {
        site.database.execute(&format!("UPDATE counterfoil_receipts {damage}"));
        let (code, out, _) = told(folder(site), "receipts verify counterfoil.toml");
        assert!(code == Some(1) && out.contains(problem), "{damage}: {out}");
        assert!(out.ends_with(&format!("4 receipts, {} problems.\n", number + 1)), "{out}");
    }
}

/// edit-4 says that it wrote version 5: the row was put back since.
#[test]
fn verify_finds_a_version_that_went_back() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        went_back(&site_on(kind));
    }
    let site = site();
    site.database.execute("UPDATE automations SET version = 4 WHERE id = 1");
    let without_config = told(folder(&site), "receipts verify automations.db");
    assert_eq!(without_config.0, Some(0), "which only the config can tell");
}

fn went_back(site: &Site) {
    site.database.execute("UPDATE automations SET version = 5 WHERE id = 1");
    let (code, out, err) = told(folder(site), "receipts verify counterfoil.toml");
    assert_eq!((code, &*out), (Some(0), "4 receipts, 0 problems.\n"), "{err}");
    site.database.execute("UPDATE automations SET version = 4 WHERE id = 1");
    let (code, out, err) = told(folder(site), "receipts verify counterfoil.toml");
    assert!(
        code == Some(1) && out.contains("edit-4: it wrote version 5, and the row is at version 4"),
        "{out} {err}"
    );
}

#[test]
fn verify_finds_a_contract_that_was_altered() {
    for (kind, digest) in
        [(Kind::Sqlite, "zeroblob(32)"), (Kind::Postgres, "decode(repeat('00', 32), 'hex')")]
    {
        let site = site_on(kind);
        site.database.execute("UPDATE automations SET version = 5 WHERE id = 1");
        site.database.execute(&format!(
            "INSERT INTO counterfoil_contracts VALUES ('old_tool', 'v7', {digest}, '{{}}')"
        ));
        let (code, out, err) = told(folder(&site), "receipts verify counterfoil.toml");
        let wanted =
            "revision v7 of old_tool: the digest is not that of its contract\n4 receipts, 1 problems.\n";
        assert_eq!((code, &*out), (Some(1), wanted), "{err}");
    }
}

#[test]
fn verify_finds_a_page_that_is_damaged() {
    let site = site();
    site.database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    let mut bytes = std::fs::read(site.database.path()).unwrap();
    let at = bytes.windows(6).position(|part| part == b"edit-3").unwrap();
    bytes[at] = b'E';
    std::fs::write(folder(&site).join("damaged.db"), bytes).unwrap();
    let (code, out, err) = told(folder(&site), "receipts verify damaged.db");
    assert!(code == Some(1) && out.contains("not whole"), "{out} {err}");
}

#[test]
fn what_is_exported_can_be_imported_and_nothing_that_was_touched() {
    use Kind::{Postgres, Sqlite};
    for (from, to) in [(Sqlite, Sqlite), (Sqlite, Postgres), (Postgres, Sqlite), (Postgres, Postgres)] {
        let other = site_on(to);
        other.database.execute("DELETE FROM counterfoil_receipts");
        moved(&site_on(from), &other);
    }
}

fn moved(site: &Site, other: &Site) {
    let from = folder(site);
    let (code, out, err) = told(from, "receipts export counterfoil.toml --to out.jsonl");
    assert_eq!((code, &*out, &*err), (Some(0), "", "Exported 4 receipts.\n"));
    let (code, _, err) = told(from, "receipts export counterfoil.toml --to out.jsonl");
    assert!(code == Some(3) && err.contains("not overwritten"), "{err}");
    let whole = std::fs::read_to_string(from.join("out.jsonl")).unwrap();
    let piped = run(from, "receipts export counterfoil.toml").stdout;
    assert_eq!(text(&piped).lines().count(), 6);
    let import = |content: &str| {
        std::fs::write(folder(other).join("in.jsonl"), content).unwrap();
        told(folder(other), "receipts import counterfoil.toml --from in.jsonl")
    };
    let cut = &whole[..whole.len() / 2];
    let shorter = whole
        .lines()
        .filter(|line| !line.contains("edit-2"))
        .fold(String::new(), |all, line| all + line + "\n");
    for (content, wanted) in [
        (cut, "cut"),
        (&whole.replace("\\\"version\\\":4", "\\\"version\\\":9"), "line 6: the lines before do not hash"),
        (&shorter, "line 5: the trailer counts 4 receipts and there are 3"),
        (&whole.replace("edit-2", "edit 2"), "line 3: request id"),
        ("", "line 1: the file ends"),
    ] {
        let (code, _, err) = import(content);
        assert!(
            code == Some(3) && err.contains(wanted) && err.contains("Nothing was changed"),
            "{wanted}: {err}"
        );
        assert_eq!(other.database.receipts(), 0, "{wanted}");
    }
    let (code, out, err) = import(&whole);
    assert!(code == Some(0) && out.starts_with("Imported 4 receipts of epoch"), "{out} {err}");
    assert!(import(&whole).1.ends_with("; 4 were here already.\n"), "and again");
    other
        .database
        .execute("UPDATE counterfoil_receipts SET result = NULL, intent = NULL WHERE request_id = 'edit-3'");
    let (code, _, err) = import(&whole);
    assert!(code == Some(3) && err.contains("another receipt has this key"), "{err}");
}

#[test]
fn a_backup_is_put_back_under_a_new_epoch() {
    let site = site();
    let folder = folder(&site);
    let epoch = |file: &str| -> String {
        let connection = Connection::open(folder.join(file)).unwrap();
        let sql = "SELECT value FROM counterfoil_meta WHERE name = 'epoch'";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let (code, out, err) = told(folder, "backup counterfoil.toml --to backup.db");
    assert!(code == Some(0) && out.starts_with("backup.db is whole: 4 receipts"), "{out} {err}");
    let (code, _, err) = told(folder, "backup counterfoil.toml --to backup.db");
    assert!(code == Some(3) && err.contains("there already"), "{err}");
    site.database.execute("DELETE FROM counterfoil_receipts WHERE request_id = 'edit-4'");
    let (code, _, err) = told(folder, "restore counterfoil.toml --from backup.db");
    assert!(code == Some(3) && err.contains("say --replace"), "{err}");
    assert_eq!((site.database.receipts(), epoch("automations.db")), (3, epoch("backup.db")));
    let (code, out, err) = told(folder, "restore counterfoil.toml --from backup.db --replace");
    assert!(code == Some(0) && out.contains("kept as"), "{out} {err}");
    assert_eq!(site.database.receipts(), 4);
    let second = epoch("automations.db");
    assert!(out.contains(&second) && second != epoch("backup.db"), "{out}");
    let (code, out, _) = told(folder, "restore counterfoil.toml");
    assert_eq!(code, Some(0));
    assert!(out.contains(&epoch("automations.db")) && epoch("automations.db") != second, "{out}");
    let (code, _, err) = told(folder, "restore counterfoil.toml --from none.db --replace");
    assert!(code == Some(3) && err.contains("no such file"), "{err}");
}

#[test]
fn forgetting_a_person_keeps_the_facts() {
    for kind in [Kind::Sqlite, Kind::Postgres] {
        forgotten(&site_on(kind));
    }
}

fn forgotten(site: &Site) {
    let forget = |more: &str| told(folder(site), &format!("forget counterfoil.toml --subject alice{more}"));
    let operations = |(code, out, err): (Option<i32>, String, String)| {
        assert_eq!(code, Some(0), "{err}");
        out.split(' ').find_map(|word| word.parse::<i64>().ok()).unwrap()
    };
    assert_eq!(operations(forget(" --workspace team-b")), 0);
    assert_eq!(operations(forget(" --issuer elsewhere")), 0);
    assert_eq!(operations(forget("")), 3);
    assert_eq!(held(&site.database), (4, 1));
    assert_eq!(operations(forget("")), 0);
}
