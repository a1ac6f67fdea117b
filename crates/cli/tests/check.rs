//! The command as a shell meets it: exit codes, what goes to which stream, colour, and bad input.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use counterfoil_server::config;
use sha2::{Digest as _, Sha256};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterfoil"));
    command.args(arguments).stdin(Stdio::null()).env_remove("NO_COLOR").env_remove("RUST_LOG");
    command
}

/// What a run wrote, and its exit code.
#[derive(Debug)]
struct Ran {
    code: i32,
    out: String,
    err: String,
}

fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn run(folder: &Path, arguments: &[&str]) -> Ran {
    ran(command(arguments).current_dir(folder).output().unwrap())
}

/// Runs the command on a terminal, where both streams are one.
fn on_a_terminal(folder: &Path, arguments: &[&str], no_color: Option<&str>) -> (i32, String) {
    let line = [&[env!("CARGO_BIN_EXE_counterfoil")], arguments].concat();
    let line: Vec<String> = line.iter().map(|word| format!("'{word}'")).collect();
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
    script.env_remove("NO_COLOR").env("TERM", "xterm-256color").envs(no_color.map(|no| ("NO_COLOR", no)));
    let output = script.current_dir(folder).stdin(Stdio::null()).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// A directory with the example, and a config with one error.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/automations");
    for file in ["counterfoil.toml", "schema.sql"] {
        std::fs::copy(example.join(file), folder.path().join(file)).unwrap();
    }
    let good = std::fs::read_to_string(folder.path().join("counterfoil.toml")).unwrap();
    std::fs::write(folder.path().join("wrong.toml"), good.replace("version + 1", "versoin + 1")).unwrap();
    std::fs::write(folder.path().join("empty.toml"), "").unwrap();
    std::fs::write(folder.path().join("latin.toml"), b"# K\xe4ufe\n").unwrap();
    std::fs::create_dir(folder.path().join("folder.toml")).unwrap();
    folder
}

#[test]
fn a_check_answers_on_standard_output_and_by_its_exit_code() {
    let folder = folder();
    let good = run(folder.path(), &["check", "counterfoil.toml"]);
    assert_eq!(
        (good.code, good.out.as_str(), good.err.as_str()),
        (0, "counterfoil.toml: nothing wrong\n", "")
    );
    let wrong = run(folder.path(), &["check", "wrong.toml"]);
    assert_eq!((wrong.code, wrong.err.as_str()), (1, ""));
    assert!(
        wrong.out.contains("no such column: versoin") && wrong.out.contains("did you mean `version`?"),
        "{wrong:?}"
    );
    assert!(wrong.out.ends_with("wrong.toml: 1 error\n"), "{wrong:?}");
    let empty = run(folder.path(), &["check", "empty.toml"]);
    assert_eq!((empty.code, empty.err.as_str()), (1, ""));
    assert!(empty.out.contains("the file has no `[database]`"), "{empty:?}");
    assert!(!folder.path().join("automations.db").exists(), "a check makes no database");
}

#[test]
fn a_config_that_cannot_be_read_is_said_in_one_line() {
    let folder = folder();
    for (file, why) in [
        ("nowhere.toml", "nowhere.toml cannot be read: No such file or directory"),
        ("folder.toml", "folder.toml cannot be read: Is a directory"),
        ("latin.toml", "latin.toml is not UTF-8 text"),
    ] {
        for arguments in [vec!["check", file], vec!["serve", file], vec!["receipts", "list", file]] {
            let ran = run(folder.path(), &arguments);
            assert_eq!(
                (ran.code, ran.out.as_str(), ran.err.lines().count()),
                (3, "", 1),
                "{arguments:?} {ran:?}"
            );
            assert!(ran.err.starts_with("counterfoil: ") && ran.err.contains(why), "{arguments:?} {ran:?}");
        }
    }
}

#[test]
fn serve_shows_what_is_wrong_on_standard_error_and_does_not_start() {
    let folder = folder();
    let wrong = run(folder.path(), &["serve", "wrong.toml"]);
    assert_eq!((wrong.code, wrong.out.as_str()), (1, ""));
    assert!(wrong.err.ends_with("wrong.toml: 1 error\n"), "{wrong:?}");
    assert!(!folder.path().join("automations.db").exists());
}

#[test]
fn colour_is_for_terminals_and_for_those_who_want_it() {
    let folder = folder();
    let coloured = |no_color| {
        let (code, out) = on_a_terminal(folder.path(), &["check", "wrong.toml"], no_color);
        assert_eq!(code, 1, "{out}");
        assert!(out.contains("versoin"), "{out}");
        out.contains('\u{1b}')
    };
    assert!(coloured(None) && coloured(Some("")));
    assert!(!coloured(Some("1")));
    assert!(!run(folder.path(), &["check", "wrong.toml"]).out.contains('\u{1b}'));
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let folder = folder();
    let mut child = command(&["check", "wrong.toml"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = ran(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
}

#[test]
fn every_help_shows_an_example() {
    let folder = folder();
    for words in [
        vec![],
        vec!["serve"],
        vec!["check"],
        vec!["receipts"],
        vec!["receipts", "list"],
        vec!["receipts", "show"],
        vec!["token"],
        vec!["token", "new"],
    ] {
        let help = run(folder.path(), &[words.as_slice(), &["--help"]].concat());
        assert_eq!((help.code, help.err.as_str()), (0, ""), "{words:?}");
        let example = help.out.split("Example").nth(1).unwrap_or_default();
        assert!(example.contains(&format!("  counterfoil {}", words.join(" "))), "{words:?}: {}", help.out);
    }
}

#[test]
fn wrong_arguments_are_answered_with_a_suggestion() {
    let folder = folder();
    for (arguments, hint) in [
        (vec!["chek", "x.toml"], "'check'"),
        (vec!["receipts", "lst"], "'list'"),
        (vec!["check", "x.toml", "--colour"], "--colour"),
        (vec!["serve", "x.toml", "--listn", "127.0.0.1:1"], "'--listen'"),
        (vec!["serve", "x.toml", "--listen", "8080"], "--listen"),
        (vec!["serve", "x.toml", "--listen", "127.0.0.1:1", "--stdio"], "cannot be used with"),
        (vec!["check"], "<CONFIG>"),
        (vec!["check", "x.toml", "y.toml"], "y.toml"),
    ] {
        let ran = run(folder.path(), &arguments);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?} {ran:?}");
        assert!(ran.err.contains(hint), "{arguments:?} {ran:?}");
    }
    assert_eq!(run(folder.path(), &[]).code, 2);
    let version = run(folder.path(), &["--version"]);
    assert_eq!((version.code, version.out.starts_with("counterfoil ")), (0, true));
}

#[test]
fn a_new_token_fits_the_stanza_beside_it() {
    let folder = folder();
    let odd = "al\"ic\\e \u{7f}\u{e9}\n'''";
    let ran = run(
        folder.path(),
        &["token", "new", "--subject", odd, "--workspace", "team-a", "--scope", "a:w", "--scope", "a:r"],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let token = ran.err.split_whitespace().find(|word| word.starts_with("cf_")).unwrap();
    assert!(!ran.out.contains(token), "the token stands in what is appended to a config");
    // As `>>` would append it, also to a file that does not end its last line.
    let good = std::fs::read_to_string(folder.path().join("counterfoil.toml")).unwrap();
    let parsed = config::parse("c.toml", &format!("{}{}", good.trim_end(), ran.out)).unwrap();
    let stanza = parsed.auth.tokens.last().unwrap();
    assert_eq!(stanza.sha256.value.0, <[u8; 32]>::from(Sha256::digest(token)));
    assert_eq!(stanza.credentials.subject.value.as_str(), odd);
    let scopes: Vec<&str> = stanza.credentials.scopes.iter().map(|scope| scope.value.as_str()).collect();
    assert_eq!(scopes, ["a:w", "a:r"]);
    let other = run(folder.path(), &["token", "new"]);
    assert_ne!(other.err, ran.err, "two tokens are two");
    assert!(config::parse("c.toml", &format!("{good}{}", other.out)).is_ok(), "{other:?}");
    for (option, value) in [("--scope", "two words"), ("--subject", ""), ("--workspace", "")] {
        let ran = run(folder.path(), &["token", "new", option, value]);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{option} {value:?}: {ran:?}");
    }
}
