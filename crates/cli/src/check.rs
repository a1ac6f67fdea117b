//! `counterfoil check`, and the way every command reads a config.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use counterfoil_server::config;
use counterfoil_server::diagnostics::Report;
use counterfoil_server::plan::{Plan, plan};

/// The exit code of a config with errors.
pub(crate) const WRONG: u8 = 1;

pub(crate) fn check(path: &Path) -> anyhow::Result<ExitCode> {
    let (planned, report) = read(path)?;
    // `check` is asked for the report: it is the output, and goes where output goes.
    print!("{}", picture(&report, std::io::stdout().is_terminal()));
    Ok(planned.map_or(ExitCode::from(WRONG), |_| ExitCode::SUCCESS))
}

/// Reads and plans a config; shows on standard error what is wrong or doubtful.
pub(crate) fn planned(path: &Path) -> anyhow::Result<Option<Plan>> {
    let (planned, report) = read(path)?;
    if !report.is_empty() {
        eprint!("{}", picture(&report, std::io::stderr().is_terminal()));
    }
    Ok(planned)
}

fn read(path: &Path) -> anyhow::Result<(Option<Plan>, Report)> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(match config::parse(&path.to_string_lossy(), &text) {
        Ok(config) => plan(&config),
        Err(report) => (None, report),
    })
}

fn picture(report: &Report, terminal: bool) -> String {
    if colour(terminal) { report.coloured() } else { report.plain() }
}

/// Colours are for terminals whose user has not said no (<https://no-color.org>).
pub(crate) fn colour(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty())
}
