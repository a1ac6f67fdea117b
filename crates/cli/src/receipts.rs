//! `counterfoil receipts`: the operator's answer to "did edit-42 succeed?".

mod books;
pub(crate) mod prune;
mod void;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use counterfoil::sqlite::{Filter, Record, State};
use counterfoil::{Clock as _, SystemClock};
use counterfoil_core::{Code, Receipt, Timestamp};
use serde_json::{Value, json};

use crate::output::{printable, say};
use crate::place::Place;

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
    /// Remove results and receipts whose windows are over; servers do it by themselves, this is for those who schedule it
    #[command(
        after_help = "Examples:\n  counterfoil receipts prune --dry-run counterfoil.toml\n  counterfoil receipts prune counterfoil.toml\n\nSmall steps, while servers run; cut short, it goes on next time.\n\nExit codes: 0 done, 1 the clock is not believed and nothing was removed, 2 wrong arguments, 3 it could not run."
    )]
    Prune(prune::Arguments),
    /// Record that an operation will never commit, unless it has
    #[command(
        after_help = "Example:\n  counterfoil receipts void counterfoil.toml edit-42 --tool set_interval --workspace team-a --subject alice\n\nExit codes: 0 it is void, 1 it committed or may have, 2 wrong arguments, 3 it could not run."
    )]
    Void(void::Arguments),
    /// Show what there is of each tool: a table on a terminal, JSON Lines in a pipe
    #[command(after_help = "Example:\n  counterfoil receipts stats counterfoil.toml")]
    Stats {
        /// The config, or the SQLite file itself
        place: PathBuf,
    },
    /// Recompute every fingerprint and digest, check every constraint, hold rows against their receipts
    #[command(
        after_help = "Example:\n  counterfoil receipts verify counterfoil.toml\n\nExit codes: 0 all fits, 1 something does not, 2 wrong arguments, 3 it could not run."
    )]
    Verify {
        /// The config, or the SQLite file itself
        place: PathBuf,
    },
    /// Write all receipts of one instant as JSON Lines with a checksum
    #[command(
        after_help = "Examples:\n  counterfoil receipts export counterfoil.toml --to receipts.jsonl\n  counterfoil receipts export counterfoil.toml | gzip > receipts.jsonl.gz"
    )]
    Export {
        /// The config, or the SQLite file itself
        place: PathBuf,
        /// Where to [default: standard output]; a file that is there is not overwritten
        #[arg(long, value_name = "PATH")]
        to: Option<PathBuf>,
    },
    /// Read an export in: all of it or nothing
    #[command(after_help = "Example:\n  counterfoil receipts import counterfoil.toml --from receipts.jsonl")]
    Import {
        /// The config, or the SQLite file itself
        place: PathBuf,
        /// The export
        #[arg(long, value_name = "PATH")]
        from: PathBuf,
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
            let mut records = read(&Place::of(place)?, filter)?;
            let more = records.len() > *limit;
            records.truncate(*limit);
            if std::io::stdout().is_terminal() { table(&records) } else { lines(&records) }?;
            if more {
                eprintln!("More follow: --offset {}", offset.saturating_add(*limit));
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Show { place, request_id, which } => show(place, request_id, which),
        Command::Prune(arguments) => prune::run(arguments),
        Command::Void(arguments) => void::run(arguments),
        Command::Stats { place } => books::show_stats(place),
        Command::Verify { place } => books::verify(place),
        Command::Export { place, to } => books::write_out(place, to.as_ref()),
        Command::Import { place, from } => books::read_in(place, from),
    }
}

fn read(place: &Place, filter: Filter) -> anyhow::Result<Vec<Record>> {
    let tool = filter.tool.as_ref().map(|asked| place.ledger_name(asked));
    place.list(&Filter { tool, ..filter }).context("the receipts cannot be read")
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
    let place = Place::of(place)?;
    let records: Vec<Record> =
        read(&place, filter)?.into_iter().filter(|record| record.request_id.as_str() == request_id).collect();
    if records.is_empty() {
        eprintln!(
            "There is no receipt of {}: it has not committed so far, or is no longer remembered.",
            printable(request_id)
        );
        return Ok(ExitCode::from(NOT_FOUND));
    }
    let shown: String = records.iter().map(|record| format!("{:#}\n", everything(&place, record))).collect();
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

/// As [`whole`], and what a retry with the same arguments would get now from somebody with access.
fn everything(place: &Place, record: &Record) -> Value {
    let mut value = whole(record, true);
    if let Some(members) = value.as_object_mut() {
        members.insert("a_retry_gets".into(), retry_gets(place, record, SystemClock.now()).into());
    }
    value
}

fn retry_gets(place: &Place, record: &Record, now: Timestamp) -> &'static str {
    let Receipt::Committed(committed) = &record.receipt else {
        return Code::RequestIdVoided.as_str();
    };
    if committed.result.is_none() {
        return Code::RequestIdExpired.as_str();
    }
    if !place.configured() {
        return "not known without the config";
    }
    match place.serves(record.tool.as_str(), &committed.revision) {
        None => "the tool is not declared",
        Some((_, false)) => Code::RevisionChanged.as_str(),
        Some((windows, true)) if now <= committed.at.plus(windows.keep) => "the result, replayed",
        Some((_, true)) => Code::RequestIdExpired.as_str(),
    }
}

fn parsed(text: Option<&str>) -> Value {
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)))
}
