//! `test`: the workspace's tests, the ledger's on a newer PostgreSQL, then the interop runs, streamed as they go and
//! counted as they pass by.

use std::io::{BufRead, BufReader, Write, stdout};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::step::{cargo, must_succeed, show, succeeds};
use crate::tally::Tally;

/// The interop runs: called with `--bin PATH`; exits 0 if all passed; its last line of the form
/// `N passed, M failed` (perhaps `, K skipped`) is its count.
const INTEROP: &str = "tests/interop/run.py";

/// Prints the folder of PostgreSQL 18's programs; exits with [`CANNOT_BE_HAD`], and says why, where there are none.
const NEWER: &str = "tests/interop/postgres.py";
const CANNOT_BE_HAD: i32 = 3;

/// The suite that runs on both.
const SUITE: &str = "crates/ledger/tests";

/// That build of 18 is without TLS, which these are about.
const WITHOUT_TLS: [&str; 1] = ["connections_are_as_secret_as_they_are_asked_to_be"];

pub(crate) fn run(interop: bool) -> Result<Tally> {
    let mut tally = workspace()?;
    if interop {
        tally += settled(NEWER, newer_postgres());
        tally += settled(INTEROP, interop_runs());
    }
    Ok(tally)
}

/// One failing test does not hide the others: every binary runs, and all of them are counted.
fn workspace() -> Result<Tally> {
    let mut sum = Tally::default();
    let passed = stream(cargo(&["test", "--workspace", "--no-fail-fast"]), &mut stdout(), |line| {
        sum += Tally::of_libtest(line).unwrap_or_default();
    })?;
    Ok(honest(sum, passed))
}

/// The ledger's tests of PostgreSQL once more, on 18. Where it cannot be had they are left out, and counted so: once,
/// since nobody knows how many they would have been.
fn newer_postgres() -> Result<Tally> {
    if !succeeds("python3", &["--version"]) {
        return Ok(without_python(NEWER));
    }
    let told = Command::new("python3").arg(NEWER).stderr(Stdio::inherit()).output()?;
    if told.status.code() == Some(CANNOT_BE_HAD) {
        println!("{NEWER}: so the ledger's tests ran on one version of PostgreSQL alone");
        return Ok(Tally::LEFT_OUT);
    }
    anyhow::ensure!(told.status.success(), "it failed: {}", told.status);
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    for name in suite()? {
        tests.args(["--test", &name]);
    }
    tests.arg("--");
    let mut sum = Tally::default();
    for name in WITHOUT_TLS {
        println!("{NEWER}: that build is without TLS, so `{name}` is left out");
        tests.args(["--skip", name]);
        sum += Tally::LEFT_OUT;
    }
    tests.env("POSTGRES_BIN", String::from_utf8(told.stdout)?.trim());
    let passed = stream(tests, &mut stdout(), |line| sum += Tally::of_libtest(line).unwrap_or_default())?;
    Ok(honest(sum, passed))
}

/// Every file of the ledger's tests that is about PostgreSQL.
fn suite() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(SUITE)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("postgres_") {
            names.push(name.to_owned());
        }
    }
    names.sort();
    anyhow::ensure!(!names.is_empty(), "no test in {SUITE} is about PostgreSQL");
    Ok(names)
}

fn interop_runs() -> Result<Tally> {
    if !succeeds("python3", &["--version"]) {
        return Ok(without_python(INTEROP));
    }
    let mut command = Command::new("python3");
    command.arg(INTEROP).arg("--bin").arg(binary()?);
    let mut last = None;
    let passed = stream(command, &mut stdout(), |line| last = Tally::of_closing_line(line).or(last))?;
    // Exit 0 without a count is a broken promise, not a pass of nothing.
    Ok(last.map_or(Tally::BROKEN, |counted| honest(counted, passed)))
}

/// At a desk a missing Python leaves these runs out and says so; in CI it fails.
fn without_python(runs: &str) -> Tally {
    println!("{runs}: no python3 on this machine, so these runs did not happen");
    if std::env::var_os("CI").is_some() { Tally::BROKEN } else { Tally::LEFT_OUT }
}

/// The built `counterfoil`. The targets are those of `cargo test`, so that nothing is compiled a second time
/// with other features.
fn binary() -> Result<PathBuf> {
    must_succeed(cargo(&["build", "--quiet", "--workspace", "--bins", "--tests"]))?;
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec()?;
    Ok(metadata.target_directory.join("debug").join("counterfoil").into_std_path_buf())
}

/// A run that failed has at least one failure in its count, even if it broke before counting (a compile error).
fn honest(counted: Tally, passed: bool) -> Tally {
    let mut sum = counted;
    if !passed && counted.failed == 0 {
        sum += Tally::BROKEN;
    }
    sum
}

/// Runs that cannot even start have failed: an error here must not keep the count from being closed.
fn settled(runs: &str, outcome: Result<Tally>) -> Tally {
    outcome.unwrap_or_else(|error| {
        println!("{runs}: {error:#}");
        Tally::BROKEN
    })
}

/// Run a command, pass each line of its output on at once, and show it to `see`. True: it succeeded.
fn stream(mut command: Command, to: &mut impl Write, mut see: impl FnMut(&str)) -> Result<bool> {
    let shown = show(&command);
    writeln!(to, "$ {shown}")?;
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let output = child.stdout.take().context("the child's output was just piped")?;
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line)? > 0 {
        // Bytes, not text: a test may print what is not UTF-8, and that must not end the run.
        to.write_all(&line)?;
        to.flush()?;
        see(&String::from_utf8_lossy(&line));
        line.clear();
    }
    Ok(child.wait()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_broke_uncounted_is_one_failure() {
        let three = Tally { passed: 3, failed: 0, skipped: 0 };
        assert_eq!(honest(three, true), three);
        assert_eq!(honest(three, false), Tally { failed: 1, ..three });
        assert_eq!(honest(Tally::BROKEN, false), Tally::BROKEN);
    }

    #[test]
    fn runs_that_cannot_start_are_one_failure() {
        assert_eq!(settled(INTEROP, Err(anyhow::anyhow!("no such program"))), Tally::BROKEN);
        assert_eq!(settled(INTEROP, Ok(Tally::LEFT_OUT)), Tally::LEFT_OUT);
    }

    #[test]
    fn the_suite_of_both_versions_is_there() {
        std::env::set_current_dir(crate::step::root()).expect("the root is there");
        let names = suite().expect("a folder of tests");
        assert!(names.iter().any(|name| name == "postgres_declared"), "{names:?}");
        for name in WITHOUT_TLS {
            let of_tls = std::fs::read_to_string(format!("{SUITE}/postgres_connect.rs")).expect("a test");
            assert!(of_tls.contains(&format!("fn {name}()")), "{name} is called otherwise now");
        }
    }

    #[test]
    fn lines_are_seen_and_the_exit_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo '2 passed, 0 failed'; printf '\\377\\n'; exit 3"]);
        let (mut shown, mut seen) = (Vec::new(), Vec::new());
        let passed = stream(command, &mut shown, |line| seen.push(Tally::of_closing_line(line)));
        assert!(!passed.expect("sh starts"));
        assert_eq!(seen, [Some(Tally { passed: 2, failed: 0, skipped: 0 }), None]);
        assert!(shown.ends_with(b"2 passed, 0 failed\n\xff\n"), "passed on byte for byte");
    }
}
