//! The stores that calls can run on, as one closed set.

use std::sync::Arc;

use counterfoil::Clock;
use counterfoil::sqlite::Prepare;
use counterfoil_core::{Refusal, Reply};

use super::operation::Question;
use super::postgres::Postgres;
use super::reading::Asking;
use super::removal::{Pace, Remover};
use super::sqlite::Sqlite;
use super::start::StartError;
use super::writing::Writing;
use crate::plan::{Database, Pinned, Plan};

/// Tool and revision whose contract on record is another.
pub(super) type Differing = Option<(String, String)>;

/// An open database.
#[derive(Debug)]
pub(super) enum Store {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Store {
    pub(super) async fn open(
        plan: &Plan,
        clock: Arc<dyn Clock>,
        prepare: Option<Prepare>,
    ) -> Result<Self, StartError> {
        match &plan.database {
            Database::Sqlite(file) => Sqlite::open(file, &plan.limits, clock, prepare).map(Self::Sqlite),
            Database::Postgres(server) => Postgres::open(server, plan).await.map(Self::Postgres),
        }
    }

    /// Records what each revision promises; tells the first that was recorded with another promise.
    pub(super) async fn pin(&self, contracts: &[Pinned]) -> Result<Differing, Refusal> {
        match self {
            Self::Sqlite(store) => store.pin(contracts.to_vec()).await,
            Self::Postgres(store) => store.pin(contracts).await,
        }
    }

    /// Can the database be reached, with a schema that this program serves?
    pub(super) async fn ready(&self) -> bool {
        match self {
            Self::Sqlite(store) => store.ready().await,
            Self::Postgres(store) => store.ready().await,
        }
    }

    /// Steps 6 to 12 of a write call.
    pub(super) async fn write(&self, writing: Writing) -> Result<Reply, Refusal> {
        match self {
            Self::Sqlite(store) => store.write(writing).await,
            Self::Postgres(store) => store.write(writing).await,
        }
    }

    /// The structured content of a read.
    pub(super) async fn read(&self, asking: Asking) -> Result<String, Refusal> {
        match self {
            Self::Sqlite(store) => store.read(asking).await,
            Self::Postgres(store) => store.read(asking).await,
        }
    }

    /// The structured content of `operation_status`.
    pub(super) async fn status(&self, question: Question) -> Result<String, Refusal> {
        match self {
            Self::Sqlite(store) => store.status(question).await,
            Self::Postgres(store) => store.status(question).await,
        }
    }

    /// The structured content of `void_operation`.
    pub(super) async fn void(&self, question: Question) -> Result<String, Refusal> {
        match self {
            Self::Sqlite(store) => store.void(question).await,
            Self::Postgres(store) => store.void(question).await,
        }
    }

    /// Starts to remove what is over.
    pub(super) fn remover(&self, plan: &Plan, pace: Pace) -> Remover {
        match self {
            Self::Sqlite(store) => Remover::start(store.ledger().clone(), plan, pace),
            Self::Postgres(store) => Remover::start(store.ledger().clone(), plan, pace),
        }
    }

    /// Finishes what was accepted and closes the database. Blocks until it is done.
    pub(super) fn close(&self) {
        match self {
            Self::Sqlite(store) => store.close(),
            Self::Postgres(store) => store.close(),
        }
    }
}
