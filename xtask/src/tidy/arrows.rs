//! Who may depend on whom: a layer is a Cargo dependency, and its absence is checked here.

use std::collections::BTreeMap;

use anyhow::Result;
use cargo_metadata::{DependencyKind, MetadataCommand};

use super::Problem;

/// The arrows: each crate of the workspace and the crates of the workspace that it may ship with.
/// A new crate gets its row here and its place in ARCHITECTURE.md.
const ARROWS: &[(&str, &[&str])] = &[
    ("counterfoil-core", &[]),
    ("counterfoil", &["counterfoil-core"]),
    ("counterfoil-client", &["counterfoil-core"]),
    ("counterfoil-server", &["counterfoil", "counterfoil-core"]),
    ("counterfoil-cli", &["counterfoil", "counterfoil-client", "counterfoil-core", "counterfoil-server"]),
    (TESTKIT, &["counterfoil", "counterfoil-client", "counterfoil-core", "counterfoil-server"]),
    // It does not ship, and starts the testkit's clusters.
    (
        "counterfoil-bench",
        &["counterfoil", "counterfoil-client", "counterfoil-core", "counterfoil-server", TESTKIT],
    ),
    // Automation must build in seconds, so it runs the other crates as programs.
    ("xtask", &[]),
];

/// Everybody may test with it, nobody may ship with it: it is in the list of the bench alone.
const TESTKIT: &str = "counterfoil-testkit";

/// What would let I/O, a clock, randomness, async or a driver into the crate that decides.
const IMPURE: &[&str] = &[
    "async-trait",
    "axum",
    "deadpool-postgres",
    "futures",
    "getrandom",
    "hyper",
    "rand",
    "reqwest",
    "rusqlite",
    "tempfile",
    "tokio",
    "tokio-postgres",
    "tower",
];

/// What each crate depends on directly. Dev-dependencies are not in it: a test may reach wherever it likes.
#[derive(Clone, Default)]
pub(super) struct Graph(pub(super) BTreeMap<String, Vec<String>>);

impl Graph {
    pub(super) fn of_workspace() -> Result<Self> {
        let metadata = MetadataCommand::new().no_deps().exec()?;
        let ships = metadata.workspace_packages().into_iter().map(|package| {
            let shipped = package.dependencies.iter().filter(|to| to.kind != DependencyKind::Development);
            (package.name.to_string(), shipped.map(|to| to.name.clone()).collect())
        });
        Ok(Self(ships.collect()))
    }
}

pub(super) fn check(graph: &Graph) -> Vec<Problem> {
    graph.0.iter().flat_map(|(from, to)| crate_(graph, from, to)).collect()
}

fn crate_(graph: &Graph, from: &str, to: &[String]) -> Vec<Problem> {
    let Some((_, may)) = ARROWS.iter().find(|(name, _)| *name == from) else {
        return vec![unknown(from)];
    };
    let forbidden = |to: &&String| match to.as_str() {
        "rmcp" => from != "counterfoil-server",
        other if graph.0.contains_key(other) => !may.contains(&other),
        other => from == "counterfoil-core" && IMPURE.contains(&other),
    };
    to.iter().filter(forbidden).map(|to| arrow(from, to, may)).collect()
}

fn unknown(from: &str) -> Problem {
    Problem {
        place: from.into(),
        what: "this crate has no row in the table of arrows".into(),
        why: "a layer is a dependency that somebody allowed",
        instead: "give it a row in `ARROWS` (xtask/src/tidy/arrows.rs) and a place in ARCHITECTURE.md".into(),
    }
}

fn arrow(from: &str, to: &str, may: &[&str]) -> Problem {
    let (why, instead) = match to {
        TESTKIT => ("test parts are not shipped", "make it a dev-dependency".into()),
        "rmcp" => ("the MCP SDK is known by one file", "go through crates/server/src/mcp.rs".into()),
        other if IMPURE.contains(&other) => (
            "the core decides and does nothing: no I/O, clock, randomness, async or driver",
            "do it in the crate that calls, and hand the core the value".into(),
        ),
        _ => {
            ("the arrows of ARCHITECTURE.md keep each layer testable without the ones above", instead_of(may))
        }
    };
    Problem { place: from.into(), what: format!("depends on `{to}`"), why, instead }
}

fn instead_of(may: &[&str]) -> String {
    let allowed = if may.is_empty() { "no crate of the workspace".into() } else { may.join(", ") };
    format!("it may depend on {allowed}: move the code down, or take what it needs as an argument")
}
