//! Rows of PostgreSQL held against their receipts.

use std::sync::Arc;

use counterfoil::postgres::{Ledger, Options, Record, Tx, Walk};
use counterfoil::{Fault, OpenError};
use counterfoil_core::Refusal;

use super::super::behind::{Behind, Told};
use super::execute::{Context, Mode, first, prepare_session};
use crate::plan::{Plan, Server};

/// Every row of which a tool of `plan` can tell, by its `current` query and an integer version in its result, that it is
/// behind one of its receipts; rows and receipts of one snapshot. Rows that are gone, or out of their principal's
/// reach, are not.
///
/// # Errors
/// The database's own.
pub async fn behind_on_server(plan: Arc<Plan>, server: &Server) -> Result<Vec<Behind>, BehindError> {
    let (tls, prepare) = (server.tls.clone(), server.prepare);
    let limits = &plan.limits;
    let options = Options {
        create: false,
        pool: 1,
        tls,
        prepare,
        statement_time: limits.statement_time,
        ..Options::default()
    };
    let ledger = Ledger::open(server.connect.clone(), options).await?;
    let found = ledger.read(move |tx| Box::pin(async move { compare(tx, &plan).await })).await;
    ledger.close();
    Ok(found?)
}

/// Why rows could not be held against receipts.
#[derive(Debug, thiserror::Error)]
pub enum BehindError {
    /// The ledger does not open.
    #[error("the database cannot be used")]
    Open(#[from] OpenError),
    /// A statement failed.
    #[error("the rows cannot be read ({}): {}", .0.code().as_str(), .0.message())]
    Read(Refusal),
}

impl From<Refusal> for BehindError {
    fn from(refusal: Refusal) -> Self {
        Self::Read(refusal)
    }
}

async fn compare(tx: &Tx, plan: &Plan) -> Result<Vec<Behind>, Fault> {
    let walk = Walk::begin(tx).await?;
    let mut all = Vec::new();
    loop {
        let some = walk.some().await?;
        if some.is_empty() {
            return Ok(all);
        }
        // One that cannot be read is told by whoever looks at the receipts alone.
        for record in some.into_iter().flatten() {
            all.extend(one(tx, plan, &record).await?);
        }
    }
}

async fn one(tx: &Tx, plan: &Plan, record: &Record) -> Result<Option<Behind>, Fault> {
    let Some(told) = Told::of(plan, record) else { return Ok(None) };
    let principal = record.principal();
    prepare_session(tx, plan, &principal).await?;
    let context = Context {
        request_id: Some(&record.request_id),
        intent: Some(&told.reading.intent),
        ..Context::of(&principal)
    };
    let row = first(tx, told.query, &context, plan.limits.result, Mode::Reading).await?;
    Ok(told.behind(record, row.as_deref()))
}
