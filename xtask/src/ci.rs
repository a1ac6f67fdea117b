//! `ci`: everything a change must pass, one headed and timed step after the other.

use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::step::{cargo, must_succeed};
use crate::tally::Tally;
use crate::{deny, test, tidy};

/// The steps, in the order they run: the quick ones first, so that a slip is told early.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub(crate) enum Name {
    Fmt,
    Tidy,
    Deny,
    Clippy,
    Test,
}

pub(crate) fn run(skip: &[Name]) -> Result<()> {
    let start = Instant::now();
    let mut tally = Tally::default();
    let steps: Vec<Name> =
        Name::value_variants().iter().copied().filter(|name| !skip.contains(name)).collect();
    for (index, name) in steps.iter().enumerate() {
        heading(index + 1, steps.len(), *name);
        tally += timed(*name).with_context(|| format!("ci stopped at step {name:?}").to_lowercase())?;
    }
    println!("\nall {} steps took {:.1} s", steps.len(), start.elapsed().as_secs_f64());
    if skip.contains(&Name::Test) { Ok(()) } else { tally.close() }
}

fn heading(number: usize, of: usize, name: Name) {
    println!("\n== {number}/{of} {}", about(name));
}

fn about(name: Name) -> &'static str {
    match name {
        Name::Fmt => "fmt: the one format",
        Name::Tidy => "tidy: the house rules",
        Name::Deny => "deny: licences, banned crates, sources, advisories",
        Name::Clippy => "clippy: lints, warnings refused",
        Name::Test => "test: every test, then the interop runs",
    }
}

/// Run one step and say how long it took, whether it passed or not.
fn timed(name: Name) -> Result<Tally> {
    let start = Instant::now();
    let outcome = step(name);
    let word = if outcome.is_ok() { "passed" } else { "FAILED" };
    println!("-- {word} in {:.1} s", start.elapsed().as_secs_f64());
    outcome
}

/// Only the test step counts tests; the others pass or fail as a whole.
fn step(name: Name) -> Result<Tally> {
    match name {
        Name::Fmt => must_succeed(cargo(&["fmt", "--all", "--check"]))?,
        Name::Tidy => tidy::run()?,
        Name::Deny => deny::run()?,
        Name::Clippy => {
            must_succeed(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
        }
        Name::Test => return test::run(true)?.passed(),
    }
    Ok(Tally::default())
}
