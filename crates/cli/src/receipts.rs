//! `counterfoil receipts`: the operator's answer to "did edit-42 succeed?".

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use counterfoil::rusqlite::{Connection, OpenFlags};
use counterfoil::sqlite::{Filter, Record, State, list};
use counterfoil_core::{Receipt, Timestamp};
use counterfoil_server::config::{self, DatabaseUrl};
use serde_json::{Value, json};

/// Nothing was found.
const NOT_FOUND: u8 = 1;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List operations, newest first: a table on a terminal, JSON Lines in a pipe
    #[command(
        after_help = "Example:\n  counterfoil receipts list counterfoil.toml --tool set_interval --since 2026-11-01T00:00:00Z"
    )]
    List {
        /// The config, or the SQLite file itself
        place: PathBuf,
        #[command(flatten)]
        which: Which,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// After so many
        #[arg(long, default_value_t = 0)]
        offset: usize,
    },
    /// Show everything known about operations with one request id
    #[command(
        after_help = "Example:\n  counterfoil receipts show counterfoil.toml edit-42\n\nExit codes: 0 found, 1 no receipt of that id."
    )]
    Show {
        /// The config, or the SQLite file itself
        place: PathBuf,
        /// The request id
        request_id: String,
        #[command(flatten)]
        which: Which,
    },
}

/// Which receipts.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// Of this workspace
    #[arg(long)]
    workspace: Option<String>,
    /// Of this subject
    #[arg(long)]
    subject: Option<String>,
    /// Of this tool, by the oldest name it has had
    #[arg(long)]
    tool: Option<String>,
    /// In this state
    #[arg(long, value_parser = ["committed", "voided"])]
    state: Option<String>,
    /// Not before this instant (RFC 3339)
    #[arg(long, value_parser = Timestamp::parse)]
    since: Option<Timestamp>,
    /// Before this instant (RFC 3339)
    #[arg(long, value_parser = Timestamp::parse)]
    until: Option<Timestamp>,
    /// Whose request id begins so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
}

impl Which {
    fn filter(&self, limit: usize, offset: usize) -> Filter {
        let state = self.state.as_deref().map(|state| match state {
            "voided" => State::Voided,
            _ => State::Committed,
        });
        Filter {
            workspace: self.workspace.clone(),
            subject: self.subject.clone(),
            tool: self.tool.clone(),
            state,
            since: self.since,
            until: self.until,
            prefix: self.prefix.clone(),
            limit,
            offset,
        }
    }
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { place, which, limit, offset } => {
            let records = read(place, &which.filter(*limit, *offset))?;
            if std::io::stdout().is_terminal() { table(&records) } else { lines(&records) }
        }
        Command::Show { place, request_id, which } => show(place, request_id, which),
    }
}

fn read(place: &Path, filter: &Filter) -> anyhow::Result<Vec<Record>> {
    let path = database(place)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags)
        .with_context(|| format!("{} cannot be opened", path.display()))?;
    let exists = connection.table_exists(None::<&str>, "counterfoil_receipts").unwrap_or(false);
    if !exists {
        bail!("{} holds no receipts: nothing has been served from it yet", path.display());
    }
    list(&connection, filter).context("the receipts cannot be read")
}

/// A config names its database; anything else is the database.
fn database(place: &Path) -> anyhow::Result<PathBuf> {
    if place.extension().is_none_or(|extension| extension != "toml") {
        return Ok(place.to_owned());
    }
    let text =
        std::fs::read_to_string(place).with_context(|| format!("{} cannot be read", place.display()))?;
    let config = config::parse(&place.to_string_lossy(), &text)?;
    let DatabaseUrl::Sqlite(path) = &config.database.url.value;
    Ok(config.resolve(path))
}

fn state(record: &Record) -> &'static str {
    match record.receipt {
        Receipt::Committed(_) => State::Committed.as_str(),
        Receipt::Voided => State::Voided.as_str(),
    }
}

fn table(records: &[Record]) -> anyhow::Result<ExitCode> {
    if records.is_empty() {
        println!("No receipts.");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["when", "workspace", "subject", "tool", "request id", "state"]);
    for record in records {
        table.add_row([
            record.at.to_string(),
            record.workspace.to_string(),
            record.subject.to_string(),
            record.tool.to_string(),
            record.request_id.to_string(),
            state(record).to_owned(),
        ]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

fn lines(records: &[Record]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for record in records {
        writeln!(out, "{}", whole(record, false))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(place: &Path, request_id: &str, which: &Which) -> anyhow::Result<ExitCode> {
    let filter = Filter { prefix: Some(request_id.to_owned()), ..which.filter(usize::MAX, 0) };
    let records: Vec<Record> =
        read(place, &filter)?.into_iter().filter(|record| record.request_id.as_str() == request_id).collect();
    if records.is_empty() {
        eprintln!(
            "There is no receipt of {request_id}: it has not committed so far, or is no longer remembered."
        );
        return Ok(ExitCode::from(NOT_FOUND));
    }
    for record in &records {
        println!("{:#}", whole(record, true));
    }
    Ok(ExitCode::SUCCESS)
}

/// A record as JSON; intent and result only where one operation is shown.
fn whole(record: &Record, with_content: bool) -> Value {
    let mut value = json!({
        "at": record.at.to_string(),
        "workspace": record.workspace.as_str(),
        "issuer": record.issuer.as_str(),
        "subject": record.subject.as_str(),
        "tool": record.tool.as_str(),
        "request_id": record.request_id.as_str(),
        "state": state(record),
    });
    if let (Receipt::Committed(committed), Some(members)) = (&record.receipt, value.as_object_mut()) {
        members.insert("revision".into(), committed.revision.as_str().into());
        members.insert("fingerprint".into(), committed.fingerprint.to_string().into());
        if with_content {
            members.insert("intent".into(), parsed(record.intent.as_deref()));
            members.insert("result".into(), parsed(committed.result.as_deref()));
        }
    }
    value
}

fn parsed(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)))
}
