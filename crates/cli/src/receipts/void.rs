//! `counterfoil receipts void`: an unknown becomes a fact.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use counterfoil::Key;
use counterfoil::sqlite::{Void, void};
use counterfoil_core::{Code, Issuer, Principal, RequestId, Subject, ToolName, Workspace};

use crate::output::say;
use crate::place::{Opened, Place, runtime};

/// It committed, or may have: there is nothing to void any more.
const TOO_LATE: u8 = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The config
    config: PathBuf,
    /// The request id
    request_id: String,
    /// The tool, by any of its names
    #[arg(long)]
    tool: String,
    /// The workspace
    #[arg(long)]
    workspace: String,
    /// Whose operation it is
    #[arg(long)]
    subject: String,
    /// Who vouches for the subject
    #[arg(long, default_value = "local")]
    issuer: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let place = Place::of(&arguments.config)?;
    let terms = place.terms()?;
    let principal = Arc::new(Principal {
        issuer: Issuer::parse(&arguments.issuer)?,
        subject: Subject::parse(&arguments.subject)?,
        workspace: Workspace::parse(&arguments.workspace)?,
        scopes: std::collections::BTreeSet::new(),
    });
    let tool = ToolName::parse(&place.ledger_name(&arguments.tool))?;
    if !terms.declares(tool.as_str()) {
        bail!("{} declares no tool {} that takes request ids", arguments.config.display(), arguments.tool);
    }
    let request_id = RequestId::parse(&arguments.request_id).context("the request id is none")?;
    let windows = terms.windows(tool.as_str());
    let voided = runtime()?.block_on(async {
        match place.open().await? {
            Opened::Postgres(ledger) => {
                let key = Key { principal: &principal, tool: &tool, request_id: &request_id };
                anyhow::Ok(ledger.void(key, windows).await)
            }
            Opened::Sqlite(ledger) => {
                let key = (principal, tool, request_id);
                let voided = ledger.write(move |tx| {
                    let (principal, tool, request_id) = &key;
                    void(tx, Key { principal, tool, request_id }, windows)
                });
                let voided = voided.await;
                ledger.close();
                Ok(voided)
            }
        }
    });
    match voided? {
        Ok(Void::Voided) => {
            say("It is void: it has not committed and never will.\n")?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(Void::Committed(at)) => {
            eprintln!(
                "counterfoil: it committed at {at}: what has committed is changed by another operation"
            );
            Ok(ExitCode::from(TOO_LATE))
        }
        Err(refusal) if refusal.code() == Code::RequestIdExpired => {
            eprintln!(
                "counterfoil: the id is so old that it may have committed and be forgotten: read the data first"
            );
            Ok(ExitCode::from(TOO_LATE))
        }
        Err(refusal) => bail!("it could not be voided ({}): {}", refusal.code().as_str(), refusal.message()),
    }
}
