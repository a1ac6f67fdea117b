//! `counterfoil receipts`: the operator's answer to "did edit-42 succeed?".

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use counterfoil::OpenError;
use counterfoil::postgres::{Ledger, Options};
use counterfoil::sqlite::{Filter, Record, State, list, look};
use counterfoil_core::{Receipt, Timestamp};
use counterfoil_server::config::{self, DatabaseUrl};
use counterfoil_server::plan::{self, Server};
use serde_json::{Value, json};

use crate::check;
use crate::output::{printable, say};

/// Nothing was found.
const NOT_FOUND: u8 = 1;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List operations, newest first: a table on a terminal, JSON Lines in a pipe
    #[command(
        after_help = "Example:\n  counterfoil receipts list counterfoil.toml --tool set_interval --since 2026-11-30"
    )]
    List {
        /// The config, or the SQLite file itself
        place: PathBuf,
        #[command(flatten)]
        which: Which,
        /// Only receipts whose request id begins so
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// Show at most so many
        #[arg(long, default_value_t = 100, value_parser = limit)]
        limit: usize,
        /// Leave out so many of the newest
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
    /// Only receipts of this workspace
    #[arg(long)]
    workspace: Option<String>,
    /// Only receipts of this subject
    #[arg(long)]
    subject: Option<String>,
    /// Only receipts of this tool; with a database instead of a config, by the oldest name it has had
    #[arg(long)]
    tool: Option<String>,
    /// Only receipts in this state
    #[arg(long, value_parser = ["committed", "voided"])]
    state: Option<String>,
    /// Only receipts of this instant and later: a date (midnight UTC), or as 2026-11-30T14:00:00Z
    #[arg(long, value_name = "TIME", value_parser = instant)]
    since: Option<Timestamp>,
    /// Only receipts before this instant, written in the same way
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Timestamp>,
}

impl Which {
    fn filter(&self, prefix: Option<&str>, limit: usize, offset: usize) -> Filter {
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
            prefix: prefix.map(str::to_owned),
            limit,
            offset,
        }
    }
}

/// An instant in RFC 3339, or a date, which is its midnight in UTC.
fn instant(text: &str) -> Result<Timestamp, String> {
    let of_a_date = || Timestamp::parse(&format!("{text}T00:00:00Z"));
    let wanted = "write a date, as 2026-11-30 (midnight UTC), or an instant, as 2026-11-30T14:00:00Z";
    Timestamp::parse(text).or_else(|_| of_a_date()).map_err(|_| wanted.to_owned())
}

fn limit(text: &str) -> Result<usize, String> {
    let limit: usize = text.parse().map_err(|_| "it must be a whole number".to_owned())?;
    if limit == 0 { Err("it must be at least 1".into()) } else { Ok(limit) }
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { place, which, prefix, limit, offset } => {
            // One more than is shown tells whether more follow.
            let filter = which.filter(prefix.as_deref(), limit.saturating_add(1), *offset);
            let mut records = read(place, filter)?;
            let more = records.len() > *limit;
            records.truncate(*limit);
            if std::io::stdout().is_terminal() { table(&records) } else { lines(&records) }?;
            if more {
                eprintln!("More follow: --offset {}", offset.saturating_add(*limit));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Show { place, request_id, which } => show(place, request_id, which),
    }
}

fn read(place: &Path, filter: Filter) -> anyhow::Result<Vec<Record>> {
    match database(place, filter)? {
        (Database::File(path), filter) => read_file(&path, &filter),
        (Database::Server(server), filter) => read_server(*server, &filter),
    }
}

/// Where receipts are.
enum Database {
    File(PathBuf),
    Server(Box<Server>),
}

fn read_file(path: &Path, filter: &Filter) -> anyhow::Result<Vec<Record>> {
    if path.is_dir() {
        bail!("{} is a directory", path.display());
    }
    let unusable = || format!("{} cannot be used", path.display());
    if !path.exists() {
        bail!("{} is not there: nothing has been served from it yet", path.display());
    }
    let connection = look(path).with_context(unusable)?;
    if !connection.table_exists(None::<&str>, "counterfoil_receipts").with_context(unusable)? {
        bail!("{} holds no receipts: nothing has been served from it yet", path.display());
    }
    list(&connection, filter).context("the receipts cannot be read")
}

fn read_server(server: Server, filter: &Filter) -> anyhow::Result<Vec<Record>> {
    let options =
        Options { create: false, pool: 1, tls: server.tls, prepare: server.prepare, ..Options::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let ledger = match Ledger::open(server.connect, options).await {
            Err(OpenError::NotMigrated { found: 0, .. }) => {
                bail!("the database holds no receipts: nothing has been served from it yet")
            }
            opened => opened.context("the database cannot be used")?,
        };
        ledger.list(filter).await.context("the receipts cannot be read")
    })
}

/// A config names its database, and knows the oldest name of each tool; anything else is the database. Receipts are
/// wanted when something is wrong: a config with mistakes is read as far as it goes.
fn database(place: &Path, filter: Filter) -> anyhow::Result<(Database, Filter)> {
    if place.extension().is_none_or(|extension| extension != "toml") {
        return Ok((Database::File(place.to_owned()), filter));
    }
    let (config, report) = config::read(&place.to_string_lossy(), &check::text(place)?);
    let Some(config) = config else { bail!("{} names no database:\n\n{report}", place.display()) };
    let database = match &config.database.url.value {
        DatabaseUrl::Sqlite(path) => Database::File(config.resolve(path)),
        DatabaseUrl::Postgres(address) => {
            let server = plan::server(&config, address).map_err(|fault| anyhow!("{}", fault.message()))?;
            Database::Server(Box::new(server))
        }
    };
    let known = |asked: &String| {
        let is = |tool: &&config::Tool| {
            tool.was.iter().chain([&tool.name]).any(|name| name.value.as_str() == asked)
        };
        config.tools.iter().find(is).map(|tool| tool.ledger_name().to_string())
    };
    let tool = filter.tool.as_ref().map(|asked| known(asked).unwrap_or_else(|| asked.clone()));
    Ok((database, Filter { tool, ..filter }))
}

fn state(record: &Record) -> &'static str {
    match record.receipt {
        Receipt::Committed(_) => State::Committed.as_str(),
        Receipt::Voided => State::Voided.as_str(),
    }
}

fn table(records: &[Record]) -> anyhow::Result<()> {
    if records.is_empty() {
        return say("No receipts.\n");
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["when", "workspace", "subject", "tool", "request id", "state"]);
    for record in records {
        table.add_row([
            record.at.to_string(),
            printable(record.workspace.as_str()),
            printable(record.subject.as_str()),
            printable(record.tool.as_str()),
            printable(record.request_id.as_str()),
            state(record).to_owned(),
        ]);
    }
    say(&format!("{table}\n"))
}

fn lines(records: &[Record]) -> anyhow::Result<()> {
    if records.is_empty() {
        // Not among the lines: those are JSON.
        eprintln!("No receipts.");
    }
    let lines: String = records.iter().map(|record| format!("{}\n", whole(record, false))).collect();
    say(&lines)
}

fn show(place: &Path, request_id: &str, which: &Which) -> anyhow::Result<ExitCode> {
    let filter = which.filter(Some(request_id), usize::MAX, 0);
    let records: Vec<Record> =
        read(place, filter)?.into_iter().filter(|record| record.request_id.as_str() == request_id).collect();
    if records.is_empty() {
        eprintln!(
            "There is no receipt of {}: it has not committed so far, or is no longer remembered.",
            printable(request_id)
        );
        return Ok(ExitCode::from(NOT_FOUND));
    }
    let shown: String = records.iter().map(|record| format!("{:#}\n", whole(record, true))).collect();
    say(&shown)?;
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
