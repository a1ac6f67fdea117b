//! The project's automation as a program: `ci`, `tidy`, `test` and `bench`, each run as `cargo xtask NAME`.

mod bench;
mod ci;
mod deny;
mod step;
mod tally;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The automation of Counterfoil, run from anywhere in the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

const EXAMPLES: &str = "Examples:
  cargo xtask test     run every test, on a second PostgreSQL too, and the interop runs
  cargo xtask tidy     check the house rules that no compiler knows
  cargo xtask bench    how fast, as ratios to what the machine allows
  cargo xtask ci       everything a change must pass, in order";

#[derive(Subcommand)]
enum Task {
    /// Format, lints, house rules, dependencies and tests; stops at the first that fails.
    #[command(after_help = "Examples:
  cargo xtask ci
  cargo xtask ci --skip test --skip deny     the quick half, before a commit")]
    Ci {
        /// Leave a step out; may be given more than once.
        #[arg(long, value_name = "STEP")]
        skip: Vec<ci::Name>,
    },
    /// The house rules that no compiler knows; reports every problem at once.
    #[command(after_help = "Examples:
  cargo xtask tidy     exit 0: nothing to say; exit 1: each problem with its reason and its replacement")]
    Tidy,
    /// Every test of the workspace, the ledger's on PostgreSQL 18 too, then the interop runs; ends with
    /// `N passed, M failed`.
    #[command(after_help = "Examples:
  cargo xtask test
  cargo xtask test --no-interop     the Rust tests alone; needs no Python
For one test, cargo itself is quicker:
  cargo test -p counterfoil-core decide")]
    Test {
        /// Leave out the runs on PostgreSQL 18 and those with other languages' SDKs.
        #[arg(long)]
        no_interop: bool,
    },
    /// How fast, as ratios to what the machine allows: one JSON line a figure, in about two minutes.
    #[command(after_help = "Examples:
  cargo xtask bench                       every figure
  cargo xtask bench --only sqlite_one     one of them
  cargo xtask bench --scale 0.01          that each can be produced, and nothing more
  cargo xtask bench --save                every figure, kept in docs/performance.json
docs/performance.md explains the figures.")]
    Bench(bench::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    // Paths in messages, commands and rules are all relative to the root, wherever the caller stands.
    std::env::set_current_dir(step::root())?;
    match task {
        Task::Ci { skip } => ci::run(&skip),
        Task::Tidy => tidy::run(),
        Task::Bench(options) => bench::run(&options),
        Task::Test { no_interop } => test::run(!no_interop)?.close(),
    }
}
