//! `counterfoil call`: one operation from the shell, persisted before it is sent.

mod connect;
mod tell;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use counterfoil_client::arguments::typed;
use counterfoil_client::journal::{Entry, Journal, JournalError, Recorded};
use counterfoil_client::operation::Arguments as Given;
use counterfoil_client::session::{Listed, content};
use counterfoil_client::state::Event;
use counterfoil_client::time::{SystemTimer, Time as _};
use counterfoil_client::words::{ServerUrl, Tool};
use counterfoil_client::{Outcome, Report, limits};
use counterfoil_core::json::{self, Bounds};
use counterfoil_core::{RequestId, wire};

use crate::output::say;
pub(crate) use connect::{Connection, Identity, Place, Tries, runtime};
pub(crate) use tell::{UNKNOWN, not_asked};

use tell::{REFUSED, USAGE, not_read, tell};

/// What stands under the options in `--help`.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  counterfoil call http://127.0.0.1:8080/mcp set_interval id=1 expected_version=1 interval_minutes=30 --token-env TOKEN
  counterfoil call https://tools.example.com/mcp set_interval --json arguments.json --token-file token

The result is JSON on standard output; what to do next is said on standard error.

Exit codes:
  0  done: committed, now or earlier; or a read was answered
  1  refused: not done
  2  wrong arguments: nothing was sent
  3  the journal, or something else on this side, failed: nothing was sent
  4  unknown: `counterfoil journal` resumes or voids it
  5  the server cannot be reached, lets nobody in with this token, or does not speak MCP there: nothing was sent";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where the server speaks MCP, as http://127.0.0.1:8080/mcp
    #[arg(value_parser = ServerUrl::parse)]
    url: ServerUrl,
    /// The tool
    #[arg(value_parser = Tool::parse)]
    tool: Tool,
    /// Its arguments, typed by its schema
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// A file with a JSON object of arguments; - is standard input
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The operation's id, to go on with one that was begun [default: a new one]
    #[arg(long, value_parser = RequestId::parse)]
    id: Option<RequestId>,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    tries: Tries,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::from(runtime()?.block_on(call(arguments))?))
}

async fn call(arguments: &Arguments) -> anyhow::Result<u8> {
    let base = arguments.json.as_deref().map(file).transpose()?;
    let journal = arguments.place.open()?;
    let connection =
        Connection::new(&arguments.url, &arguments.identity, &arguments.tries, &arguments.place, journal);
    let connection = match connection.await? {
        Ok(connection) => connection,
        Err(failure) => return Ok(not_asked(&failure)),
    };
    let tool = match connection.tool(&arguments.tool).await {
        Ok(Some(tool)) => tool,
        Ok(None) => return Ok(usage(&format!("the server lists no tool {:?}", arguments.tool.as_str()))),
        Err(failure) => return Ok(not_asked(&failure)),
    };
    let given = match typed(&tool.schema, base.as_deref(), &arguments.pairs) {
        Ok(given) => given,
        Err(misfit) => return Ok(usage(&misfit.to_string())),
    };
    if tool.read_only && !tool.request_ids {
        return read(&connection, &tool, &given).await;
    }
    if tool.request_ids && names_an_id(&given) {
        return Ok(usage("give the operation's id with --id, not among the arguments"));
    }
    let operation = connection.client.operation(&tool, given, arguments.id.clone());
    let report = connection.client.call(operation).await.context("nothing was sent")?;
    connection.done();
    finish(&connection, report).await
}

async fn read(connection: &Connection, tool: &Listed, given: &Given) -> anyhow::Result<u8> {
    let answer = connection.read(tool, given).await;
    connection.done();
    match answer {
        Ok(result) => {
            let (text, is_error) = content(&result);
            say(&format!("{text}\n"))?;
            Ok(if is_error { REFUSED } else { 0 })
        }
        Err(failure) => Ok(not_read(&failure)),
    }
}

/// Tells the outcome, and what the reply says of other operations: a restore may have undone some.
pub(crate) async fn finish(connection: &Connection, report: Report) -> anyhow::Result<u8> {
    let epoch = match &report.outcome {
        Outcome::Replied(reply) => Some(reply.epoch.clone()),
        Outcome::Plain(_)
        | Outcome::Committed(_)
        | Outcome::Refused(_)
        | Outcome::Away(_)
        | Outcome::Voided
        | Outcome::Abandoned { .. }
        | Outcome::Unknown(_) => None,
    };
    let code = tell(&report, &connection.given)?;
    if let Some(epoch) = epoch
        && let Err(error) = warn_of_restore(connection, &epoch).await
    {
        eprintln!("counterfoil: {error}");
    }
    connection.compact();
    Ok(code)
}

async fn warn_of_restore(
    connection: &Connection,
    epoch: &counterfoil_core::Epoch,
) -> Result<(), JournalError> {
    let undone = connection.client.undone(epoch).await?;
    if !undone.is_empty() {
        let ids: Vec<&str> = undone.iter().map(|entry| entry.operation.id.as_str()).collect();
        eprintln!(
            "warning: the server's database was restored; these operations had committed and are gone: {}",
            ids.join(", ")
        );
    }
    Ok(())
}

fn usage(problem: &str) -> u8 {
    eprintln!("counterfoil: {problem}");
    USAGE
}

/// Ends an operation that nobody asks about any more.
pub(crate) fn give_up(journal: &Journal, entry: &Entry) -> Result<(), JournalError> {
    let now = SystemTimer::default().now();
    journal.note(now, &Recorded::from(entry), &Event::Abandoned.into()).map(drop)
}

fn names_an_id(given: &Given) -> bool {
    let value = json::parse(given.as_str().as_bytes(), Bounds::default());
    value.is_ok_and(|value| value.get(wire::REQUEST_ID_ARGUMENT).is_some())
}

/// A bounded read: what is larger than arguments may be is no arguments.
fn file(path: &std::path::Path) -> anyhow::Result<String> {
    let most = limits::ARGUMENTS as u64 + 1;
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().take(most).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_string(&mut text))
    };
    read.with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(text)
}
