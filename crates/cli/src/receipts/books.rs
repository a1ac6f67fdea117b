//! `counterfoil receipts stats|verify|export|import`: the books as a whole.

use std::fs::File;
use std::io::{BufReader, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use counterfoil::rusqlite::Connection;
use counterfoil::sqlite::{Record, Stats, begin_import, export, stats, verify as verify_file, walk};
use counterfoil::tokio_postgres::Client;
use counterfoil::{Clock as _, OpenError, SystemClock, postgres, sqlite};
use counterfoil_core::RequestId;
use counterfoil_server::plan::Server;
use counterfoil_server::run::{Behind, behind, behind_on_server};
use indicatif::HumanBytes;
use serde_json::json;

use crate::output::{printable, say};
use crate::place::{Place, runtime};

/// Something does not fit.
const UNSOUND: u8 = 1;
/// Most problems that are told one by one.
const MOST: usize = 100;

pub(crate) fn show_stats(place: &Path) -> anyhow::Result<ExitCode> {
    let place = Place::of(place)?;
    let all = match place.server() {
        None => stats(&place.look("")?)?,
        Some(server) => runtime()?.block_on(async {
            let client = connected(server).await?;
            anyhow::Ok(postgres::stats(&client).await?)
        })?,
    };
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

/// What does not fit.
#[derive(Default)]
struct Problems {
    receipts: u64,
    found: Vec<String>,
}

impl Problems {
    fn see(&mut self, record: Result<Record, (Option<RequestId>, String)>) {
        self.receipts += 1;
        let problem = match record {
            Ok(record) => record.sound().err().map(|problem| (Some(record.request_id), problem)),
            Err(unreadable) => Some(unreadable),
        };
        if let Some((id, problem)) = problem {
            let id = id.map_or_else(|| "a receipt without a request id".to_owned(), |id| id.to_string());
            self.found.push(format!("{}: {problem}", printable(&id)));
        }
    }

    fn contracts(&mut self, altered: Vec<(String, String)>) {
        self.found.extend(altered.into_iter().map(|(tool, revision)| {
            format!(
                "revision {} of {}: the digest is not that of its contract",
                printable(&revision),
                printable(&tool)
            )
        }));
    }

    fn behind(&mut self, behind: &Behind) {
        let Behind { request_id, written, now } = behind;
        let id = printable(request_id.as_str());
        self.found
            .push(format!("{id}: it wrote version {written}, and the row is at version {now}: it went back"));
    }
}

pub(crate) fn verify(place: &Path) -> anyhow::Result<ExitCode> {
    let place = Place::of(place)?;
    let mut problems = Problems::default();
    let see = |problems: &mut Problems, record| {
        problems.see(record);
        Ok(())
    };
    match place.server() {
        None => {
            let connection = place.look("")?;
            if let Err(error) = verify_file(place.file("")?) {
                problems.found.push(error.to_string());
            }
            walk(&connection, |record| see(&mut problems, record))?;
            problems.contracts(sqlite::altered_contracts(&connection)?);
            rows(&place, &connection, &mut problems)?;
        }
        Some(server) => runtime()?.block_on(async {
            let mut client = connected(server).await?;
            postgres::walk(&mut client, |record| see(&mut problems, record)).await?;
            problems.contracts(postgres::altered_contracts(&client).await?);
            anyhow::Ok(())
        })?,
    }
    if let Some(server) = place.server() {
        rows_on_server(&place, server, &mut problems)?;
    }
    let found = &problems.found;
    for problem in found.iter().take(MOST) {
        say(&format!("{problem}\n"))?;
    }
    if found.len() > MOST {
        say(&format!("… and {} more\n", found.len() - MOST))?;
    }
    say(&format!("{} receipts, {} problems.\n", problems.receipts, found.len()))?;
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(UNSOUND) })
}

/// Where the config tells how a tool's row is read: no version may be behind its receipts.
fn rows(place: &Place, connection: &Connection, problems: &mut Problems) -> anyhow::Result<()> {
    let Some(plan) = place.plan()? else { return Ok(()) };
    behind(&plan, connection, SystemClock.now(), |behind| problems.behind(&behind))?;
    Ok(())
}

/// As [`rows`]. Asked of a runtime of its own, since a plan asks the database while it is made.
fn rows_on_server(place: &Place, server: &Server, problems: &mut Problems) -> anyhow::Result<()> {
    let Some(plan) = place.plan()? else { return Ok(()) };
    let found = runtime()?.block_on(behind_on_server(Arc::new(plan), server))?;
    found.iter().for_each(|behind| problems.behind(behind));
    Ok(())
}

async fn connected(server: &Server) -> anyhow::Result<Client> {
    let client = postgres::connect(server.connect.clone(), &server.tls).await;
    let client = client.context("the database cannot be used")?;
    match postgres::Receipts::open(&client).await {
        Err(OpenError::NotMigrated { found: 0, .. }) => {
            bail!("the database holds no receipts: nothing has been served from it yet")
        }
        opened => opened.map(drop).context("the database cannot be used")?,
    }
    Ok(client)
}

fn exported(place: &Place, out: impl Write) -> anyhow::Result<u64> {
    let now = SystemClock.now();
    match place.server() {
        None => Ok(export(&place.look("")?, out, now)?),
        Some(server) => runtime()?.block_on(async {
            let mut client = connected(server).await?;
            Ok(postgres::export(&mut client, out, now).await?)
        }),
    }
}

pub(crate) fn write_out(place: &Path, to: Option<&PathBuf>) -> anyhow::Result<ExitCode> {
    let place = Place::of(place)?;
    let Some(to) = to else {
        exported(&place, std::io::stdout())?;
        return Ok(ExitCode::SUCCESS);
    };
    // Whole or not at all, under its own name only when it is on disk.
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = tempfile::NamedTempFile::new_in(folder)
        .with_context(|| format!("{} cannot be written", to.display()))?;
    let mut out = BufWriter::new(draft);
    let receipts = exported(&place, &mut out)?;
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
    let file = File::open(from).with_context(|| format!("{} cannot be read", from.display()))?;
    let file = BufReader::new(file);
    let imported = match place.server() {
        None => {
            drop(place.look("")?);
            begin_import(place.file("")?, file)
        }
        Some(server) => runtime()?.block_on(async {
            let mut client = connected(server).await?;
            anyhow::Ok(postgres::import(&mut client, file).await)
        })?,
    };
    match imported {
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
