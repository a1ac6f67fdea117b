//! From a plan to a running engine: the ledger opened, the contracts pinned.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use counterfoil::sqlite::Prepare;
use counterfoil::{Clock, OpenError, SystemClock};
use counterfoil_core::Refusal;

use super::Engine;
use super::removal::Pace;
use super::store::Store;
use crate::plan::Plan;

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
        Self::start_paced(plan, clock, Pace::default()).await
    }

    /// As [`Engine::start_at`], with removal at the caller's pace.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub async fn start_paced(plan: Plan, clock: Arc<dyn Clock>, pace: Pace) -> Result<Self, StartError> {
        Self::begin(plan, clock, None, pace).await
    }

    /// As [`Engine::start_at`]; on SQLite `prepare` is done to every connection before it is used.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub async fn start_prepared(
        plan: Plan,
        clock: Arc<dyn Clock>,
        prepare: Option<Prepare>,
    ) -> Result<Self, StartError> {
        Self::begin(plan, clock, prepare, Pace::default()).await
    }

    async fn begin(
        plan: Plan,
        clock: Arc<dyn Clock>,
        prepare: Option<Prepare>,
        pace: Pace,
    ) -> Result<Self, StartError> {
        let store = Store::open(&plan, clock, prepare).await?;
        if let Some((tool, revision)) = store.pin(&plan.contracts).await? {
            return Err(StartError::Contract { tool, revision });
        }
        let remover = store.remover(&plan, pace);
        Ok(Self { plan: Arc::new(plan), store, draining: AtomicBool::new(false), remover })
    }
}
