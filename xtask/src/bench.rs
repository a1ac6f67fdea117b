//! `bench`: builds the bench program for release, runs it, and keeps its lines if they are to be kept.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::step::{cargo, show};

/// The lines of the last full run, as one array.
const RECORD: &str = "docs/performance.json";

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only this figure; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run every part for this share of its time: 0.01 shows that each figure can be produced, and means nothing.
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Keep the lines in docs/performance.json. Needs every figure, at full size.
    #[arg(long)]
    save: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    #[expect(clippy::float_cmp, reason = "the default, or something else")]
    if options.save && !(options.only.is_empty() && options.scale == 1.0) {
        bail!("only a full run is kept: leave out --only and --scale");
    }
    let lines = measure(options)?;
    if options.save {
        std::fs::write(RECORD, format!("[\n  {}\n]\n", lines.join(",\n  ")))?;
    }
    Ok(())
}

/// Prints each line as it comes, and gives them all back.
fn measure(options: &Options) -> Result<Vec<String>> {
    let mut command = cargo(&["run", "--release", "--quiet", "--package", "counterfoil-bench", "--"]);
    // On the disk of the build, and cleaned with it.
    let target = cargo_metadata::MetadataCommand::new().no_deps().exec()?.target_directory;
    command.args(["--directory", target.as_str(), "--scale", &options.scale.to_string()]);
    command.args(["--commit", &commit()?]);
    command.args(options.only.iter().flat_map(|name| ["--only", name]));
    let shown = show(&command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start `{shown}`"))?;
    let output = child.stdout.take().context("the bench has no output")?;
    let mut lines = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        lines.push(line);
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("`{shown}` failed: {status}");
    }
    Ok(lines)
}

/// The commit that is measured; a tree with changes is none.
fn commit() -> Result<String> {
    let told = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output()?;
    Ok(String::from_utf8(told.stdout)?.trim().to_owned())
}
