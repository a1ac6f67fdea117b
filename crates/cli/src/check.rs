//! `counterfoil check`, and the way every command reads a config.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use counterfoil::OpenError;
use counterfoil_server::diagnostics::Report;
use counterfoil_server::plan::{self, Plan};

use crate::output::{coloured, say};

/// The exit code of a config with errors.
pub(crate) const WRONG: u8 = 1;

pub(crate) fn check(path: &Path) -> anyhow::Result<ExitCode> {
    let (planned, report) = read(path)?;
    // `check` is asked for the report: it is the output, and goes where output goes.
    say(&picture(&report, coloured(&std::io::stdout())))?;
    Ok(planned.map_or(ExitCode::from(WRONG), |_| ExitCode::SUCCESS))
}

/// Reads and plans a config to be served, waiting for its database if that is not there yet; shows on standard error
/// what is waited for, and what is wrong or doubtful.
pub(crate) fn planned(path: &Path) -> anyhow::Result<Option<Plan>> {
    let mut said = String::new();
    let tell = |error: &OpenError| {
        let now = error.to_string();
        if now != said {
            eprintln!("waiting for the database: {now}");
            said = now;
        }
    };
    let (planned, report) = plan::check_when_there(&path.to_string_lossy(), &text(path)?, tell);
    if !report.is_empty() {
        eprint!("{}", picture(&report, coloured(&std::io::stderr())));
    }
    Ok(planned)
}

fn read(path: &Path) -> anyhow::Result<(Option<Plan>, Report)> {
    Ok(plan::check(&path.to_string_lossy(), &text(path)?))
}

/// The text of a config.
pub(crate) fn text(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    String::from_utf8(bytes).map_err(|_| anyhow!("{} is not UTF-8 text, as a config must be", path.display()))
}

fn picture(report: &Report, colour: bool) -> String {
    if colour { report.coloured() } else { report.plain() }
}
