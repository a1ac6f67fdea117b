//! The same revision must mean the same schema: the first server to serve a revision writes down what it promises.

use sha2::{Digest, Sha256};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use super::run::{Parameter, Run as _};
use super::tx::Tx;
use crate::fault::Fault;

const CONTRACT: &str = include_str!("sql/contract.sql");
const CONTRACTS: &str = include_str!("sql/contracts.sql");
const PIN: &str = include_str!("sql/pin.sql");

/// Records `contract` as what `revision` of `tool` promises, unless it is recorded already; tells the contract on
/// record, which another server may have written with other content.
///
/// # Errors
/// The database's own.
pub async fn pin_contract(tx: &Tx, tool: &str, revision: &str, contract: &str) -> Result<String, Fault> {
    let (run, which): (_, [Parameter<'_>; 2]) =
        (tx.connection(), [(&tool, Type::TEXT), (&revision, Type::TEXT)]);
    if let Some(row) = run.rows(CONTRACT, &which).await?.first() {
        return Ok(row.try_get(0)?);
    }
    let digest: [u8; 32] = Sha256::digest(contract).into();
    let [tool, revision] = which.clone();
    let pinned = [tool, revision, (&digest.as_slice(), Type::BYTEA), (&contract, Type::TEXT)];
    run.rows(PIN, &pinned).await?;
    let rows = run.rows(CONTRACT, &which).await?;
    let row = rows.first().ok_or_else(|| Fault::Broken("a contract that was pinned is gone".into()))?;
    Ok(row.try_get(0)?)
}

/// Tool and revision of each contract on record whose digest is not that of its text.
///
/// # Errors
/// The database's own.
pub async fn altered_contracts(client: &impl GenericClient) -> Result<Vec<(String, String)>, Fault> {
    let mut altered = Vec::new();
    for row in client.query_typed(CONTRACTS, &[]).await? {
        let (digest, contract): (&[u8], &str) = (row.try_get(2)?, row.try_get(3)?);
        if digest != Sha256::digest(contract).as_slice() {
            altered.push((row.try_get(0)?, row.try_get(1)?));
        }
    }
    Ok(altered)
}
