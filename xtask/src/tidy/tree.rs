//! The project's files as text, by path.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Files by their path from the root, with `/` between directories.
#[derive(Clone, Default)]
pub(super) struct Tree(pub(super) BTreeMap<String, String>);

impl Tree {
    /// What git tracks and what it would track: a file counts from the moment it is written, not from `git add`.
    pub(super) fn tracked() -> Result<Self> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let output = git.output().context("tidy asks git which files are the project's")?;
        if !output.status.success() {
            bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let paths = String::from_utf8(output.stdout).context("paths in the project are UTF-8")?;
        // What cannot be read as text (deleted but still tracked, or binary) has no rule here.
        let read = |path: &str| Some((path.to_owned(), std::fs::read_to_string(path).ok()?));
        Ok(Self(paths.split_terminator('\0').filter_map(read).collect()))
    }

    pub(super) fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Every file whose path ends so, with its text.
    pub(super) fn ending<'tree>(&'tree self, end: &str) -> impl Iterator<Item = (&'tree str, &'tree str)> {
        let files = self.0.iter().map(|(path, text)| (path.as_str(), text.as_str()));
        files.filter(move |(path, _)| path.ends_with(end))
    }
}
