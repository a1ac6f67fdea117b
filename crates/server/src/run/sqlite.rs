//! Calls on SQLite: one writer, pooled readers, everything synchronous inside.

mod execute;
mod open;
mod operation;
mod read;
mod rows;
mod verify;
mod write;

pub use verify::behind;

use std::sync::Arc;

use counterfoil::Clock;
use counterfoil::sqlite::{Ledger, Prepare, pin_contract, servable};
use counterfoil_core::{Refusal, Reply};

use super::RETRY_AFTER;
use super::operation::Question;
use super::reading::Asking;
use super::start::StartError;
use super::store::Differing;
use super::writing::Writing;
use crate::config::Limits;
use crate::plan::{Pinned, SqliteFile};

/// An open ledger.
#[derive(Debug)]
pub(super) struct Sqlite(Ledger);

impl Sqlite {
    pub(super) fn open(
        file: &SqliteFile,
        limits: &Limits,
        clock: Arc<dyn Clock>,
        prepare: Option<Prepare>,
    ) -> Result<Self, StartError> {
        open::open(file, limits, clock, prepare).map(Self)
    }

    pub(super) async fn pin(&self, contracts: Vec<Pinned>) -> Result<Differing, Refusal> {
        let differing = self.0.write(move |tx| {
            for pinned in &contracts {
                let (tool, revision) = (pinned.tool.as_str(), pinned.revision.as_str());
                if pin_contract(tx, tool, revision, &pinned.contract)? != pinned.contract {
                    return Ok(Some((tool.to_owned(), revision.to_owned())));
                }
            }
            Ok(None)
        });
        differing.await
    }

    pub(super) async fn ready(&self) -> bool {
        let look = |ledger: &Ledger| ledger.read(|tx| Ok(servable(tx).is_ok()));
        self.blocking(look).await.unwrap_or(false)
    }

    pub(super) async fn write(&self, writing: Writing) -> Result<Reply, Refusal> {
        self.0.perform(Arc::clone(&writing.call), writing).await
    }

    pub(super) async fn read(&self, asking: Asking) -> Result<String, Refusal> {
        self.blocking(move |ledger| ledger.read(|tx| read::read(tx, &asking))).await
    }

    pub(super) async fn status(&self, question: Question) -> Result<String, Refusal> {
        let status = move |ledger: &Ledger| {
            ledger.read(|tx| operation::status(&question, tx, ledger.epoch().as_str()))
        };
        self.blocking(status).await
    }

    pub(super) async fn void(&self, question: Question) -> Result<String, Refusal> {
        let epoch = self.0.epoch().clone();
        self.0.write(move |tx| operation::make_void(&question, tx, epoch.as_str())).await
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.0
    }

    /// Finishes what was accepted. Blocks until it is done.
    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Declared reads may be slow: they run where blocking is allowed.
    async fn blocking<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Ledger) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let ledger = self.0.clone();
        let ran = tokio::task::spawn_blocking(move || read(&ledger)).await;
        ran.unwrap_or_else(|_| Err(Refusal::busy(RETRY_AFTER)))
    }
}
