//! `test`: the workspace's tests, then the interop runs, streamed as they go and counted as they pass by.

use std::io::{BufRead, BufReader, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::step::{cargo, must_succeed, show, succeeds};
use crate::tally::Tally;

/// The interop runs: called with `--bin PATH`; exits 0 if all passed; its last line of the form
/// `N passed, M failed` (perhaps `, K skipped`) is its count.
const INTEROP: &str = "tests/interop/run.py";

pub(crate) fn run(interop: bool) -> Result<Tally> {
    let mut tally = workspace()?;
    if interop && Path::new(INTEROP).exists() {
        tally += settled(interop_runs());
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

fn interop_runs() -> Result<Tally> {
    if !succeeds("python3", &["--version"]) {
        return Ok(without_python());
    }
    let mut command = Command::new("python3");
    command.arg(INTEROP).arg("--bin").arg(binary()?);
    let mut last = None;
    let passed = stream(command, &mut stdout(), |line| last = Tally::of_closing_line(line).or(last))?;
    // Exit 0 without a count is a broken promise, not a pass of nothing.
    Ok(last.map_or(Tally::BROKEN, |counted| honest(counted, passed)))
}

/// At a desk a missing Python leaves the interop runs out and says so; in CI it fails.
fn without_python() -> Tally {
    println!("{INTEROP}: no python3 on this machine, so the interop runs did not happen");
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
fn settled(outcome: Result<Tally>) -> Tally {
    outcome.unwrap_or_else(|error| {
        println!("{INTEROP}: {error:#}");
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
        assert_eq!(settled(Err(anyhow::anyhow!("no such program"))), Tally::BROKEN);
        assert_eq!(settled(Ok(Tally::LEFT_OUT)), Tally::LEFT_OUT);
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
