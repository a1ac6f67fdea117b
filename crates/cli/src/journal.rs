//! `counterfoil journal`: operations of this side, and the ways out of an unknown one.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use counterfoil_client::journal::{Entry, Filter, Happened, Journal, JournalError, Problem};
use counterfoil_client::words::ServerUrl;
use counterfoil_client::{Outcome, Report};
use counterfoil_core::RequestId;
use serde_json::{Value, json};

use crate::call::{self, Connection, Identity, Place, Tries, UNKNOWN, finish, runtime};
use crate::output::{printable, say};

/// There is no such operation.
const NOT_FOUND: u8 = 1;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List operations, newest first: a table on a terminal, JSON Lines in a pipe
    #[command(
        after_help = "Example:\n  counterfoil journal list --open\n\nExit codes: 0 listed, 3 the journal cannot be read whole (what can be read is listed)."
    )]
    List {
        /// Only those that have not ended
        #[arg(long)]
        open: bool,
        /// Only those of this server
        #[arg(long, value_name = "URL", value_parser = ServerUrl::parse)]
        server: Option<ServerUrl>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        #[command(flatten)]
        place: Place,
    },
    /// Show everything known about an operation: arguments, answer, history
    #[command(
        after_help = "Example:\n  counterfoil journal show 0193a1b2-7c00-7000-8000-000000000000\n\nExit codes: 0 found, 1 no such operation."
    )]
    Show {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        place: Place,
    },
    /// Send an operation that has not ended again: the same id, the same bytes
    #[command(
        after_help = "Examples:\n  counterfoil journal resume 0193a1b2-7c00-7000-8000-000000000000 --token-env TOKEN\n  counterfoil journal resume --all --token-env TOKEN\n\nThe exit code is that of `counterfoil call`; with --all, the highest of them."
    )]
    Resume(Resume),
    /// Make sure that an operation never commits, or learn that it has
    #[command(
        after_help = "Example:\n  counterfoil journal void 0193a1b2-7c00-7000-8000-000000000000 --token-env TOKEN\n\nExit codes: 0 it is voided, or was refused: it will not happen; 1 it had committed; 4 still unknown; 5 the server cannot be reached."
    )]
    Void {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        identity: Identity,
        #[command(flatten)]
        tries: Tries,
        #[command(flatten)]
        place: Place,
    },
    /// Remove an operation that has ended; with --give-up, end one that has not
    #[command(
        after_help = "Example:\n  counterfoil journal forget 0193a1b2-7c00-7000-8000-000000000000\n\nExit codes: 0 done, 1 no such operation, 4 it has not ended."
    )]
    Forget {
        #[command(flatten)]
        which: Which,
        /// It will not be sent again, and nobody asks any more what became of it
        #[arg(long)]
        give_up: bool,
        #[command(flatten)]
        place: Place,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// The operation's id
    #[arg(value_parser = RequestId::parse)]
    id: RequestId,
    #[command(flatten)]
    narrow: Narrow,
}

/// Where one id names operations at several servers or of several tools.
#[derive(Debug, clap::Args)]
pub(crate) struct Narrow {
    /// At this server
    #[arg(long, value_name = "URL", value_parser = ServerUrl::parse)]
    server: Option<ServerUrl>,
    /// Of this tool
    #[arg(long)]
    tool: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Resume {
    /// The operation's id
    #[arg(value_parser = RequestId::parse, required_unless_present = "all")]
    id: Option<RequestId>,
    /// Every operation that has not ended
    #[arg(long, conflicts_with = "id")]
    all: bool,
    #[command(flatten)]
    narrow: Narrow,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    tries: Tries,
    #[command(flatten)]
    place: Place,
}

/// Most operations that one `resume --all` takes up.
const ALL: u32 = 10_000;

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::List { open, server, limit, place } => {
            let filter = Filter { open_only: *open, server: server.clone(), ..Filter::default() };
            list(place, &filter, *limit)
        }
        Command::Show { which, place } => show(place, which),
        Command::Resume(resume) => runtime()?.block_on(resume_all(resume)),
        Command::Void { which, identity, tries, place } => {
            runtime()?.block_on(void(which, identity, tries, place))
        }
        Command::Forget { which, give_up, place } => forget(place, which, *give_up),
    }
}

fn list(place: &Place, filter: &Filter, limit: u32) -> anyhow::Result<ExitCode> {
    let path = place.path()?;
    if !path.exists() {
        return shown(&[]).map(|()| ExitCode::SUCCESS);
    }
    match Journal::view(&path).and_then(|journal| journal.list(filter, None, limit)) {
        Ok(page) => {
            shown(&page.entries)?;
            if page.next.is_some() {
                eprintln!("counterfoil: there may be more; --limit {limit} was reached");
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) if *error.problem() == Problem::Damaged => salvage(place, &error),
        Err(error) => Err(error.into()),
    }
}

/// What can still be read, and that it is not all.
fn salvage(place: &Place, error: &JournalError) -> anyhow::Result<ExitCode> {
    let salvage = Journal::salvage(&place.path()?)?;
    shown(&salvage.entries)?;
    bail!("{error}; {} operations cannot be read", salvage.lost)
}

fn shown(entries: &[Entry]) -> anyhow::Result<()> {
    if std::io::stdout().is_terminal() {
        say(&table(entries))
    } else {
        say(&entries.iter().map(|entry| format!("{}\n", whole(entry))).collect::<String>())
    }
}

fn table(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "No operations.\n".into();
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["recorded", "id", "tool", "server", "tries", "state"]);
    for entry in entries {
        table.add_row([
            entry.recorded_at.to_string(),
            entry.operation.id.to_string(),
            printable(entry.operation.tool.as_str()),
            entry.operation.server.to_string(),
            entry.tries.to_string(),
            state(entry),
        ]);
    }
    format!("{table}\n")
}

fn state(entry: &Entry) -> String {
    let word = entry.state.as_str();
    match (&entry.undone_in, entry.state.open()) {
        (Some(_), _) => format!("{word}, undone by a restore"),
        (None, 0) => word.to_owned(),
        (None, open) => format!("{word}, {open} unanswered"),
    }
}

/// What a listing shows: no arguments and no answers, which are private.
fn whole(entry: &Entry) -> Value {
    let operation = &entry.operation;
    json!({
        "request_id": operation.id.as_str(),
        "server": operation.server.as_str(),
        "caller": operation.caller.as_str(),
        "tool": operation.tool.as_str(),
        "recorded_at": entry.recorded_at.to_string(),
        "changed_at": entry.changed_at.to_string(),
        "state": entry.state.as_str(),
        "unanswered": entry.state.open(),
        "tries": entry.tries,
        "code": entry.code,
        "committed_at": entry.committed_at.map(|at| at.to_string()),
        "epoch": entry.epoch.as_ref().map(|epoch| epoch.as_str()),
        "undone_in": entry.undone_in.as_ref().map(|epoch| epoch.as_str()),
    })
}

fn show(place: &Place, which: &Which) -> anyhow::Result<ExitCode> {
    let journal = view(place)?;
    let entries = matching(&journal, Some(&which.id), &which.narrow, false)?;
    if entries.is_empty() {
        return Ok(not_found(&which.id));
    }
    for entry in &entries {
        let history = journal.history(entry)?;
        say(&format!("{:#}\n", everything(entry, &history)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn everything(entry: &Entry, history: &[Happened]) -> Value {
    let mut value = whole(entry);
    let event =
        |event: &Happened| json!({"at": event.at.to_string(), "event": event.event, "code": event.code});
    if let Some(members) = value.as_object_mut() {
        // As text: exactly what is sent, and exactly what came.
        members.insert("arguments".into(), entry.operation.arguments.as_str().into());
        members.insert("answer".into(), entry.answer.as_deref().into());
        members.insert("history".into(), history.iter().map(event).collect());
    }
    value
}

async fn resume_all(resume: &Resume) -> anyhow::Result<ExitCode> {
    let journal = resume.place.open()?;
    let entries = matching(&journal, resume.id.as_ref(), &resume.narrow, resume.all)?;
    let entries = match (&resume.id, entries) {
        (Some(id), entries) if entries.is_empty() => return Ok(not_found(id)),
        (Some(_), entries) => vec![one(entries)?],
        (None, entries) => entries,
    };
    let mut worst = 0;
    for entry in entries {
        let connection = connect(&entry, &resume.identity, &resume.tries, &resume.place, &journal).await?;
        let connection = match connection {
            Ok(connection) => connection,
            Err(code) => {
                worst = worst.max(code);
                continue;
            }
        };
        let report = connection.client.resume(&entry).await?;
        connection.done();
        worst = worst.max(finish(&connection, report).await?);
    }
    Ok(ExitCode::from(worst))
}

async fn void(which: &Which, identity: &Identity, tries: &Tries, place: &Place) -> anyhow::Result<ExitCode> {
    let journal = place.open()?;
    let entries = matching(&journal, Some(&which.id), &which.narrow, false)?;
    if entries.is_empty() {
        return Ok(not_found(&which.id));
    }
    let entry = one(entries)?;
    let connection = match connect(&entry, identity, tries, place, &journal).await? {
        Ok(connection) => connection,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let report = connection.client.void(&entry).await?;
    connection.done();
    let code = voided(&report);
    finish(&connection, report).await?;
    Ok(ExitCode::from(code))
}

/// Who voids wants to know that it will not happen.
fn voided(report: &Report) -> u8 {
    match &report.outcome {
        Outcome::Voided | Outcome::Refused(_) | Outcome::Away(_) => 0,
        Outcome::Replied(_) | Outcome::Plain(_) | Outcome::Committed(_) => 1,
        Outcome::Abandoned { .. } | Outcome::Unknown(_) => UNKNOWN,
    }
}

fn forget(place: &Place, which: &Which, give_up: bool) -> anyhow::Result<ExitCode> {
    let journal = place.open()?;
    let entries = matching(&journal, Some(&which.id), &which.narrow, false)?;
    if entries.is_empty() {
        return Ok(not_found(&which.id));
    }
    let entry = one(entries)?;
    if entry.state.ended() {
        journal.forget(&entry)?;
        return Ok(ExitCode::SUCCESS);
    }
    if give_up {
        call::give_up(&journal, &entry)?;
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "counterfoil: {} has not ended ({}): resume or void it; or give it up, with --give-up",
        which.id,
        state(&entry)
    );
    Ok(ExitCode::from(UNKNOWN))
}

fn view(place: &Place) -> anyhow::Result<Journal> {
    let path = place.path()?;
    Journal::view(&path).with_context(|| format!("the journal {} cannot be read", path.display()))
}

fn matching(
    journal: &Journal,
    id: Option<&RequestId>,
    narrow: &Narrow,
    open_only: bool,
) -> anyhow::Result<Vec<Entry>> {
    let (server, tool) = (narrow.server.clone(), narrow.tool.clone());
    let filter = Filter { id: id.cloned(), server, tool, open_only };
    Ok(journal.list(&filter, None, ALL)?.entries)
}

fn one(mut entries: Vec<Entry>) -> anyhow::Result<Entry> {
    let found = entries.len();
    match entries.pop() {
        Some(entry) if found == 1 => Ok(entry),
        _ => bail!("{found} operations have this id: say which, with --server and --tool"),
    }
}

fn not_found(id: &RequestId) -> ExitCode {
    eprintln!("counterfoil: there is no operation {id} in the journal");
    ExitCode::from(NOT_FOUND)
}

/// A connection to the server that an operation was meant for; else the exit code, its reason said.
async fn connect(
    entry: &Entry,
    identity: &Identity,
    tries: &Tries,
    place: &Place,
    journal: &Arc<Journal>,
) -> anyhow::Result<Result<Connection, u8>> {
    let connection = Connection::new(&entry.operation.server, identity, tries, place, Arc::clone(journal));
    let connection = connection.await?;
    Ok(connection.map_err(|failure| call::not_asked(&failure)))
}
