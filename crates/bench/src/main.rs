//! How fast Counterfoil is, as ratios to what the machine allows: one JSON line a figure.
//!
//! Every figure is two programs, ours and a baseline, run in turns (A B, B A, …) so that whatever else the machine
//! does falls on both. A baseline is the strongest simple form of the same work without receipts; each says in its
//! doc comment what it leaves out. `docs/performance.md` explains the figures.

mod client;
mod figure;
mod group;
mod journal;
mod mcp;
mod one;
mod postgres;
mod prune;
mod replay;
mod server;
mod store;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand};

use figure::Figure;

/// Measure, one JSON line a figure.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Only this figure; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run every part for this share of its time; 0.01 shows that every figure can be produced, and means nothing
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Where the databases are made: on the disk that is to be measured, not in memory
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// The commit that is measured, for the record
    #[arg(long, value_name = "COMMIT")]
    commit: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The server that the MCP figures call, in a process of its own
    #[command(hide = true)]
    Serve { config: PathBuf },
}

/// How long one part of one round runs.
const SLICE: Duration = Duration::from_millis(600);

/// Every figure with its bar, in the order they run.
const FIGURES: [Figure; 14] = [
    Figure { name: "sqlite_one", bar: 0.75, measure: one::measure },
    Figure { name: "sqlite_group", bar: 0.40, measure: group::measure },
    Figure { name: "sqlite_replay", bar: 0.40, measure: replay::measure },
    Figure { name: "mcp_fresh", bar: 0.30, measure: mcp::fresh },
    Figure { name: "mcp_replay", bar: 0.60, measure: mcp::replay },
    Figure { name: "postgres_fresh_1", bar: 0.80, measure: postgres::fresh_1 },
    Figure { name: "postgres_fresh_8", bar: 0.55, measure: postgres::fresh_8 },
    Figure { name: "postgres_fresh_32", bar: 0.55, measure: postgres::fresh_32 },
    Figure { name: "postgres_vs_pgbench", bar: 1.30, measure: postgres::against_pgbench },
    Figure { name: "postgres_replay", bar: 0.80, measure: postgres::replay },
    Figure { name: "postgres_growth_fresh", bar: 0.90, measure: postgres::growth_fresh },
    Figure { name: "postgres_growth_replay", bar: 0.90, measure: postgres::growth_replay },
    Figure { name: "prune", bar: 0.50, measure: prune::measure },
    Figure { name: "journal_fsync", bar: 0.50, measure: journal::measure },
];

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(Command::Serve { config }) = &arguments.command {
        return server::serve(config);
    }
    let known = |name: &String| FIGURES.iter().any(|figure| figure.name == name);
    if let Some(unknown) = arguments.only.iter().find(|name| !known(name)) {
        let names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        anyhow::bail!("there is no figure `{unknown}`; there are {}", names.join(", "));
    }
    let asked =
        |figure: &&Figure| arguments.only.is_empty() || arguments.only.iter().any(|name| name == figure.name);
    for figure in FIGURES.iter().filter(asked) {
        let line = run(figure, &arguments.directory, arguments.scale, arguments.commit.as_deref())?;
        println!("{line}");
    }
    Ok(())
}

fn run(figure: &Figure, directory: &Path, scale: f64, commit: Option<&str>) -> anyhow::Result<String> {
    let room = tempfile::Builder::new().prefix("counterfoil-bench-").tempdir_in(directory)?;
    let rounds = (figure.measure)(room.path(), SLICE.mul_f64(scale))?;
    Ok(figure.line(&rounds, commit).to_string())
}
