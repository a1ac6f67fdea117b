//! `counterfoil receipts`: what an operator asks after an incident, on good databases and on everything else.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use counterfoil::rusqlite::Connection;
use counterfoil::sqlite::{Ledger, Options};
use serde_json::Value;

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs the command on a terminal.
fn on_a_terminal(folder: &Path, arguments: &[&str]) -> String {
    let line = format!("'{}' {}", env!("CARGO_BIN_EXE_counterfoil"), arguments.join(" "));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    text(&script.current_dir(folder).stdin(Stdio::null()).output().unwrap().stdout).replace('\r', "")
}

const CONFIG: &str = "[database]\nurl = 'sqlite:data.db'\n[tools.edit]\nwas = ['oldest', 'older']\nrevision = 'v1'\n\
                      scope = 's'\nwrite = 'UPDATE t SET a = 1'\n";

/// Six operations: five commits and one void, the newest last. One subject tries to draw on terminals.
const ROWS: &str = r#"
INSERT INTO counterfoil_receipts VALUES
  ('team-a', 'local', 'alice', 'oldest', 'edit-1',  'committed', 1793000001000000, 'v1', zeroblob(32), '{"id":1}', '{"big":9007199254740993}'),
  ('team-a', 'local', 'bob',   'oldest', 'edit-1',  'committed', 1793000002000000, 'v1', zeroblob(32), '{"id":2}', '[]'),
  ('team-b', 'local', 'alice', 'oldest', 'edit-10', 'committed', 1793000003000000, 'v1', zeroblob(32), '{"id":3}', NULL),
  ('team-b', 'local', 'carol', 'add',    'note_1', 'committed', 1793000004000000, 'v2', zeroblob(32), '{}', 'null'),
  ('team-b', 'local', char(27) || '[2J' || char(10) || 'x', 'add', 'void-1', 'voided', 1793000005000000, NULL, NULL, NULL, NULL),
  ('team-c', 'local', 'dave',  'add',    'NOTE',    'committed', 1793000006000000, 'v1', zeroblob(32), '{}', '{}');
"#;

/// A directory with a served database, an empty ledger, a plain database and things that are none.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["data.db", "empty.db"] {
        Ledger::open(folder.path().join(file), Options { create: true, ..Options::default() })
            .unwrap()
            .close();
    }
    Connection::open(folder.path().join("data.db")).unwrap().execute_batch(ROWS).unwrap();
    Connection::open(folder.path().join("plain.db")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    for (file, content) in [
        (
            "text.db",
            "no database, though longer than the header of one, which has a hundred bytes; this line has more than that",
        ),
        ("zero.db", ""),
        ("c.toml", CONFIG),
        ("wrong.toml", &CONFIG.replace("scope", "scoop")),
        ("worse.toml", "url = 1"),
        ("early.toml", &CONFIG.replace("data.db", "none.db")),
    ] {
        std::fs::write(folder.path().join(file), content).unwrap();
    }
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    folder
}

/// The request ids listed by `arguments`, and who they are of.
fn listed(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let output = run(folder, &[&["receipts", "list"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    let lines = text(&output.stdout);
    let line = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
    let said = |value: Value| {
        format!("{} {}", value["request_id"].as_str().unwrap(), value["workspace"].as_str().unwrap())
    };
    lines.lines().map(line).map(said).collect()
}

#[test]
fn every_filter_filters() {
    let folder = folder();
    let all =
        ["NOTE team-c", "void-1 team-b", "note_1 team-b", "edit-10 team-b", "edit-1 team-a", "edit-1 team-a"];
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &all),
        (&["--workspace", "team-a"], &all[4..]),
        (&["--workspace", "TEAM-A"], &[]),
        (&["--subject", "carol"], &all[2..3]),
        (&["--tool", "add"], &all[..3]),
        (&["--state", "voided"], &all[1..2]),
        (&["--state", "committed", "--workspace", "team-b"], &all[2..4]),
        (&["--since", "2026-10-26T07:33:24Z"], &["NOTE team-c", "void-1 team-b", "note_1 team-b"]),
        (&["--until", "2026-10-26T07:33:22Z"], &all[5..]),
        (&["--since", "2026-10-26T09:33:22+02:00", "--until", "2026-10-26T07:33:23.000001Z"], &all[3..5]),
        (&["--since", "2026-10-26", "--until", "2026-10-27"], &all),
        (&["--since", "2026-10-27"], &[]),
        (&["--until", "2026-10-26"], &[]),
        (&["--prefix", "edit-1"], &all[3..]),
        (&["--prefix", "note_"], &all[2..3]),
        (&["--prefix", "note%"], &[]),
        (&["--prefix", "n_te"], &[]),
        (&["--limit", "2"], &all[..2]),
        (&["--limit", "2", "--offset", "2"], &all[2..4]),
        (&["--offset", "6"], &[]),
        (&["--offset", "5"], &all[5..]),
    ];
    for (arguments, expected) in cases {
        assert_eq!(listed(folder.path(), &[&["data.db"], *arguments].concat()), *expected, "{arguments:?}");
    }
}

#[test]
fn a_config_knows_the_tool_by_all_its_names() {
    let folder = folder();
    for name in ["edit", "older", "oldest"] {
        assert_eq!(listed(folder.path(), &["c.toml", "--tool", name]).len(), 3, "{name}");
    }
    assert_eq!(
        listed(folder.path(), &["wrong.toml", "--tool", "add"]).len(),
        3,
        "the config has other mistakes"
    );
}

#[test]
fn more_is_announced_beside_the_lines() {
    let folder = folder();
    let output = run(folder.path(), &["receipts", "list", "data.db", "--limit", "2", "--offset", "1"]);
    assert_eq!(text(&output.stderr), "More follow: --offset 3\n");
    let output = run(folder.path(), &["receipts", "list", "data.db", "--limit", "6"]);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn an_empty_ledger_is_no_failure() {
    let folder = folder();
    let output = run(folder.path(), &["receipts", "list", "empty.db"]);
    assert_eq!(
        (output.status.code(), text(&output.stdout), text(&output.stderr)),
        (Some(0), String::new(), "No receipts.\n".into())
    );
    assert_eq!(on_a_terminal(folder.path(), &["receipts", "list", "empty.db"]), "No receipts.\n");
    let output = run(folder.path(), &["receipts", "show", "empty.db", "edit-1"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(text(&output.stderr).starts_with("There is no receipt of edit-1"), "{output:?}");
}

#[test]
fn what_is_no_ledger_is_said_in_one_line() {
    let folder = folder();
    for (place, why) in [
        ("nowhere.db", "nowhere.db is not there: nothing has been served from it yet"),
        ("early.toml", "none.db is not there: nothing has been served from it yet"),
        ("plain.db", "plain.db holds no receipts: nothing has been served from it yet"),
        ("zero.db", "zero.db holds no receipts: nothing has been served from it yet"),
        ("text.db", "text.db cannot be used: file is not a database"),
        ("folder", "folder is a directory"),
    ] {
        for arguments in [vec!["receipts", "list", place], vec!["receipts", "show", place, "edit-1"]] {
            let output = run(folder.path(), &arguments);
            let err = text(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{arguments:?}: {err}");
            assert!(err.contains(why) && err.lines().count() == 1, "{arguments:?}: {err}");
        }
    }
    let output = run(folder.path(), &["receipts", "list", "worse.toml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("worse.toml names no database"), "{output:?}");
}

#[test]
fn wrong_filters_are_wrong_arguments() {
    let folder = folder();
    for (option, value) in [
        ("--state", "lost"),
        ("--since", "yesterday"),
        ("--until", "2026-13-01T00:00:00Z"),
        ("--since", "2026-11-31"),
        ("--until", "2026-11-30T14:00"),
        ("--limit", "0"),
        ("--limit", "-1"),
        ("--limit", "many"),
        ("--offset", "-1"),
        ("--colour", "red"),
    ] {
        let output = run(folder.path(), &["receipts", "list", "data.db", &format!("{option}={value}")]);
        let err = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{option} {value}: {err}");
        assert!(err.contains(option.trim_start_matches('-')), "{option} {value}: {err}");
        let instant = ["--since", "--until"].contains(&option);
        assert_eq!(err.contains("write a date, as 2026-11-30"), instant, "{option} {value}: {err}");
    }
    let output = run(folder.path(), &["receipts", "show", "data.db", "edit-1", "--prefix=e"]);
    assert_eq!(output.status.code(), Some(2), "one id has no prefix: {output:?}");
}

#[test]
fn show_tells_everything_of_every_operation_with_the_id() {
    let folder = folder();
    let shown = |arguments: &[&str]| {
        let output = run(folder.path(), &[&["receipts", "show", "data.db"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
        (values.map(Result::unwrap).collect::<Vec<_>>(), text(&output.stdout))
    };
    let (both, written) = shown(&["edit-1"]);
    assert_eq!(both.len(), 2, "of alice and of bob, and not edit-10");
    assert!(written.contains("9007199254740993"), "{written}");
    let (one, _) = shown(&["edit-1", "--subject", "alice"]);
    assert_eq!(one[0]["intent"]["id"], 1);
    assert_eq!(one[0]["at"], "2026-10-26T07:33:21.000000Z");
    let (voided, written) = shown(&["void-1"]);
    assert_eq!((voided[0]["state"].as_str(), voided[0].get("result")), (Some("voided"), None));
    assert!(!written.contains('\u{1b}'), "{written:?}");
    let output = run(folder.path(), &["receipts", "show", "data.db", "edit-1", "--workspace", "team-b"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_terminal_gets_a_table_that_nobody_draws_in() {
    let folder = folder();
    let table = on_a_terminal(folder.path(), &["receipts", "list", "data.db"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 7, "{table}");
    assert!(lines[0].contains("request id") && lines[1].contains("NOTE"), "{table}");
    assert!(lines[2].contains(r"\u{1b}[2J\nx") && !table.contains('\u{1b}'), "{table:?}");
}

#[test]
fn a_look_leaves_no_trace() {
    let folder = folder();
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (names(), std::fs::read(folder.path().join("data.db")).unwrap());
    assert_eq!(listed(folder.path(), &["data.db"]).len(), 6);
    assert!(before == (names(), std::fs::read(folder.path().join("data.db")).unwrap()));
}
