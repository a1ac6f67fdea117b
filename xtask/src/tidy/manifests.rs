//! Every crate takes the workspace's lints, `unsafe_code = "forbid"` first among them.

use toml::{Table, Value};

use super::{Problem, tree::Tree};

/// Crates that may hold `unsafe`, each with the one named and tested reason it exists for. Such a crate has lints
/// of its own, because `forbid` cannot be lifted: copy the workspace's and leave `unsafe_code` out.
///
/// Empty so far. A fault-injecting SQLite VFS for the tests would stand here as
/// `("crates/vfs", "SQLite calls a VFS through C function pointers")`.
const UNSAFE_CRATES: &[(&str, &str)] = &[];

pub(super) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems: Vec<Problem> =
        tree.ending("Cargo.toml").filter_map(|(path, text)| one(path, text)).collect();
    problems.extend(UNSAFE_CRATES.iter().filter_map(|(path, _)| stale(tree, path)));
    problems
}

fn one(path: &str, text: &str) -> Option<Problem> {
    let Ok(manifest) = text.parse::<Table>() else {
        return Some(problem(path, "is not TOML", "make `cargo metadata` read it".into()));
    };
    if manifest.contains_key("workspace") && !forbids_unsafe(&manifest) {
        let instead = "put `unsafe_code = \"forbid\"` back under [workspace.lints.rust]".into();
        return Some(problem(path, "the workspace's lints do not forbid unsafe code", instead));
    }
    if !manifest.contains_key("package") || excused(path) || takes_workspace_lints(&manifest) {
        return None;
    }
    let instead = "add `[lints]` with `workspace = true`; a crate that exists for one named, tested `unsafe` \
                   goes into `UNSAFE_CRATES` (xtask/src/tidy/manifests.rs)";
    Some(problem(path, "does not take the workspace's lints", instead.into()))
}

fn takes_workspace_lints(manifest: &Table) -> bool {
    member(manifest, &["lints", "workspace"]).and_then(Value::as_bool) == Some(true)
}

fn forbids_unsafe(manifest: &Table) -> bool {
    member(manifest, &["workspace", "lints", "rust", "unsafe_code"]).and_then(Value::as_str) == Some("forbid")
}

fn member<'table>(table: &'table Table, path: &[&str]) -> Option<&'table Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(*first)?, |value, name| value.get(name))
}

fn excused(path: &str) -> bool {
    UNSAFE_CRATES.iter().any(|(home, _)| path.strip_suffix("/Cargo.toml") == Some(home))
}

/// An excuse outlives its crate unless somebody looks.
fn stale(tree: &Tree, home: &str) -> Option<Problem> {
    let gone = tree.get(&format!("{home}/Cargo.toml")).is_none();
    let instead = "take its row out of `UNSAFE_CRATES` (xtask/src/tidy/manifests.rs)";
    gone.then(|| problem(home, "may hold `unsafe`, but is not there", instead.into()))
}

fn problem(place: &str, what: &str, instead: String) -> Problem {
    let why = "no `unsafe`, and the same lints, everywhere but in a crate that exists for one tested reason";
    Problem { place: place.into(), what: what.into(), why, instead }
}
