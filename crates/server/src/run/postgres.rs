//! Calls on PostgreSQL: a pool of connections, a transaction a call, and any number of servers beside this one.

mod bind;
mod declare;
mod execute;
mod operation;
mod read;
mod rows;
mod verify;
mod write;

use std::sync::Arc;

use counterfoil::postgres::{Ledger, Options, Receipts};
use counterfoil::witness::Keep;
use counterfoil_core::{Refusal, Reply};
use sha2::{Digest as _, Sha256};

use super::operation::Question;
use super::reading::Asking;
use super::start::StartError;
use super::store::Differing;
use super::writing::Writing;
use crate::plan::{Pinned, Plan, Server};
use declare::Declarations;
pub use verify::{BehindError, behind_on_server};
use write::Calling;

/// An open ledger, and the tools that it has composed.
#[derive(Debug)]
pub(super) struct Postgres(Ledger, Declarations);

impl Postgres {
    pub(super) async fn open(server: &Server, plan: &Plan) -> Result<Self, StartError> {
        let limits = &plan.limits;
        let options = Options {
            pool: server.pool,
            queue: limits.queue,
            lock_wait: limits.lock_wait,
            statement_time: limits.statement_time,
            result_limit: limits.result,
            tls: server.tls.clone(),
            prepare: server.prepare,
            witness: witness(server)?,
            ..Options::default()
        };
        let tell = |error: &counterfoil::OpenError| {
            tracing::warn!(error = error.to_string(), "waiting for the database");
        };
        let opened = Ledger::open_within(server.connect.clone(), options, server.start_wait, tell).await;
        let ledger = opened?;
        let declarations = declare::declare(&ledger, plan).await;
        Ok(Self(ledger, declarations))
    }

    pub(super) async fn pin(&self, contracts: &[Pinned]) -> Result<Differing, Refusal> {
        for pinned in contracts {
            let (tool, revision) = (pinned.tool.as_str(), pinned.revision.as_str());
            if self.0.pin_contract(tool, revision, &pinned.contract).await? != pinned.contract {
                return Ok(Some((tool.to_owned(), revision.to_owned())));
            }
        }
        Ok(None)
    }

    pub(super) async fn ready(&self) -> bool {
        let look = self.0.read(|tx| Box::pin(async move { Ok(Receipts::open(&**tx).await.is_ok()) }));
        look.await.unwrap_or(false)
    }

    pub(super) async fn write(&self, writing: Writing) -> Result<Reply, Refusal> {
        let call = Arc::clone(&writing.call);
        self.0.perform(call, Calling::new(writing, &self.1)).await
    }

    pub(super) async fn read(&self, asking: Asking) -> Result<String, Refusal> {
        self.0.read(|tx| Box::pin(async move { read::read(tx, &asking).await })).await
    }

    pub(super) async fn status(&self, question: Question) -> Result<String, Refusal> {
        let epoch = self.0.epoch();
        self.0
            .read(|tx| Box::pin(async move { operation::status(tx, &question, epoch.as_str()).await }))
            .await
    }

    /// Membership, void and answer each in a transaction of its own: a void waits for a try that is under way.
    pub(super) async fn void(&self, question: Question) -> Result<String, Refusal> {
        let (question, epoch) = (Arc::new(question), self.0.epoch());
        let asked = Arc::clone(&question);
        self.0.read(|tx| Box::pin(async move { operation::member(tx, &asked).await })).await?;
        let write = question.write()?;
        let void = self.0.void(question.key(write), write.contract.windows).await?;
        let asked = Arc::clone(&question);
        self.0
            .read(|tx| Box::pin(async move { operation::voided(tx, &asked, void, epoch.as_str()).await }))
            .await
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.0
    }

    /// Hands out no more connections.
    pub(super) fn close(&self) {
        self.0.close();
    }
}

/// The file in the state folder, one a database: the folder may be shared.
fn witness(server: &Server) -> Result<Option<Keep>, StartError> {
    let Some(folder) = &server.state else {
        tracing::warn!(
            "there is no `[server] state_dir`: a restore, or a standby that lagged, cannot be noticed by itself"
        );
        return Ok(None);
    };
    std::fs::create_dir_all(folder)?;
    let place = format!("{:?} {:?}", server.connect.get_hosts(), server.connect.get_dbname());
    let name: String = Sha256::digest(place).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(Some(Keep::at(folder.join(format!("witness-{name}")))))
}
