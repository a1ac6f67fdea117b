//! `counterfoil receipts stats|verify|export|import`: the books as a whole.

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use counterfoil::sqlite::{Stats, begin_import, export, stats, verify as verify_file, walk};
use counterfoil::{Clock as _, SystemClock};
use indicatif::HumanBytes;
use serde_json::json;

use crate::output::{printable, say};
use crate::place::Place;

/// What is said for now where the books are not a file.
const ON_POSTGRES: &str = "this command works on SQLite files; there, `receipts list` and SQL tell the same";

/// Something does not fit.
const UNSOUND: u8 = 1;
/// Most problems that are told one by one.
const MOST: usize = 100;

pub(crate) fn show_stats(place: &Path) -> anyhow::Result<ExitCode> {
    let all = stats(&Place::of(place)?.look(ON_POSTGRES)?)?;
    if all.is_empty() {
        eprintln!("No receipts.");
    } else if std::io::stdout().is_terminal() {
        table(&all)?;
    } else {
        let lines: String = all.iter().map(|one| format!("{}\n", line(one))).collect();
        say(&lines)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(stats: &Stats) -> serde_json::Value {
    json!({
        "tool": stats.tool,
        "committed": stats.committed,
        "with_result": stats.held,
        "voided": stats.voided,
        "bytes": stats.bytes,
        "oldest": stats.oldest.map(|at| at.to_string()),
        "newest": stats.newest.map(|at| at.to_string()),
    })
}

fn table(all: &[Stats]) -> anyhow::Result<()> {
    let mut table = Table::new();
    let header = ["tool", "committed", "with result", "voided", "size", "oldest", "newest"];
    table.load_style(NOTHING).set_header(header);
    for one in all {
        let at = |at: Option<counterfoil_core::Timestamp>| at.map_or_else(String::new, |at| at.to_string());
        table.add_row([
            printable(&one.tool),
            one.committed.to_string(),
            one.held.to_string(),
            one.voided.to_string(),
            HumanBytes(one.bytes).to_string(),
            at(one.oldest),
            at(one.newest),
        ]);
    }
    say(&format!("{table}\n"))
}

pub(crate) fn verify(place: &Path) -> anyhow::Result<ExitCode> {
    let place = Place::of(place)?;
    let connection = place.look(ON_POSTGRES)?;
    let mut problems = Vec::new();
    let mut count = 0_u64;
    if let Err(error) = verify_file(place.file(ON_POSTGRES)?) {
        problems.push(error.to_string());
    }
    walk(&connection, |record| {
        count += 1;
        let problem = match record {
            Ok(record) => record.sound().err().map(|problem| (Some(record.request_id), problem)),
            Err(unreadable) => Some(unreadable),
        };
        if let Some((id, problem)) = problem {
            let id = id.map_or_else(|| "a receipt without a request id".to_owned(), |id| id.to_string());
            problems.push(format!("{}: {problem}", printable(&id)));
        }
        Ok(())
    })?;
    for problem in problems.iter().take(MOST) {
        say(&format!("{problem}\n"))?;
    }
    if problems.len() > MOST {
        say(&format!("… and {} more\n", problems.len() - MOST))?;
    }
    say(&format!("{count} receipts, {} problems.\n", problems.len()))?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNSOUND) })
}

pub(crate) fn write_out(place: &Path, to: Option<&PathBuf>) -> anyhow::Result<ExitCode> {
    let connection = Place::of(place)?.look(ON_POSTGRES)?;
    let now = SystemClock.now();
    let Some(to) = to else {
        export(&connection, std::io::stdout().lock(), now)?;
        return Ok(ExitCode::SUCCESS);
    };
    // Whole or not at all, under its own name only when it is on disk.
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = tempfile::NamedTempFile::new_in(folder)
        .with_context(|| format!("{} cannot be written", to.display()))?;
    let mut out = BufWriter::new(draft);
    let receipts = export(&connection, &mut out, now)?;
    out.flush()?;
    let draft = out.into_inner().map_err(|error| anyhow::anyhow!("{error}"))?;
    draft.as_file().sync_all()?;
    draft.persist_noclobber(to).map_err(|error| error.error).with_context(|| {
        format!("{} cannot be made (a file that is there is not overwritten)", to.display())
    })?;
    eprintln!("Exported {receipts} receipts.");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn read_in(place: &Path, from: &Path) -> anyhow::Result<ExitCode> {
    let place = Place::of(place)?;
    drop(place.look(ON_POSTGRES)?);
    let file = File::open(from).with_context(|| format!("{} cannot be read", from.display()))?;
    match begin_import(place.file(ON_POSTGRES)?, BufReader::new(file)) {
        Ok(imported) => {
            say(&format!(
                "Imported {} receipts of epoch {}; {} were here already.\n",
                imported.added,
                imported.epoch.as_str(),
                imported.known
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => bail!("{}, {error}. Nothing was changed", from.display()),
    }
}
