//! From a plan to a running engine: the database made if there is none, the ledger opened, the contracts pinned.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use counterfoil::rusqlite::Connection;
use counterfoil::sqlite::{Ledger, Options, pin_contract};
use counterfoil::{Clock, OpenError, SystemClock};
use counterfoil_core::Refusal;

use super::Engine;
use crate::plan::{Pinned, Plan};

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] OpenError),
    /// The schema cannot be applied.
    #[error("the schema cannot be applied to a new database")]
    Schema(#[from] counterfoil::rusqlite::Error),
    /// The database file cannot be made.
    #[error("the database file cannot be made")]
    File(#[from] std::io::Error),
    /// Another server has served this revision with another schema since the config was checked.
    #[error(
        "revision {revision} of {tool} has been served with another schema: `counterfoil check` shows the difference"
    )]
    Contract {
        /// The tool.
        tool: String,
        /// The revision.
        revision: String,
    },
    /// The contracts cannot be recorded.
    #[error("the contracts cannot be recorded")]
    Refused(#[from] Refusal),
}

impl Engine {
    /// Starts to serve `plan`.
    ///
    /// # Errors
    /// [`StartError`] says what is in the way.
    pub async fn start(plan: Plan) -> Result<Self, StartError> {
        Self::start_at(plan, Arc::new(SystemClock)).await
    }

    /// As [`Engine::start`], with a clock of the caller's.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub async fn start_at(plan: Plan, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        if let Some(schema) = &plan.schema {
            make(&plan.database, schema)?;
        }
        let options = Options {
            create: false,
            queue: plan.limits.queue,
            lock_wait: plan.limits.lock_wait,
            statement_time: plan.limits.statement_time,
            result_limit: plan.limits.result,
            clock,
            ..Options::default()
        };
        let ledger = Ledger::open(&plan.database, options)?;
        pin(&ledger, plan.contracts.clone()).await?;
        Ok(Self { plan: Arc::new(plan), ledger, draining: AtomicBool::new(false) })
    }
}

/// Makes the database whole under another name and then gives it its own, so that of several servers that start at
/// once one wins and none sees half a schema.
fn make(path: &Path, schema: &str) -> Result<(), StartError> {
    if path.exists() {
        return Ok(());
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let draft =
        tempfile::Builder::new().prefix(".counterfoil-").tempdir_in(directory.unwrap_or(Path::new(".")))?;
    let draft_file = draft.path().join("new.db");
    Connection::open(&draft_file)?.execute_batch(schema)?;
    match std::fs::hard_link(&draft_file, path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn pin(ledger: &Ledger, contracts: Vec<Pinned>) -> Result<(), StartError> {
    let differing = ledger.write(move |tx| {
        for pinned in &contracts {
            let (tool, revision) = (pinned.tool.as_str(), pinned.revision.as_str());
            if pin_contract(tx, tool, revision, &pinned.contract)? != pinned.contract {
                return Ok(Some((tool.to_owned(), revision.to_owned())));
            }
        }
        Ok(None)
    });
    match differing.await? {
        None => Ok(()),
        Some((tool, revision)) => Err(StartError::Contract { tool, revision }),
    }
}
