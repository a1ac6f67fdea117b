//! The same revision must mean the same schema: the first server to serve a revision writes down what it promises.

use sha2::{Digest, Sha256};

use super::tx::Tx;
use crate::fault::Fault;

const CONTRACT: &str = include_str!("sql/contract.sql");
const PIN: &str = include_str!("sql/pin.sql");

/// Records `contract` as what `revision` of `tool` promises, unless it is recorded already; tells the contract on
/// record, which another server may have written with other content.
///
/// # Errors
/// The database's own.
pub async fn pin_contract(tx: &Tx, tool: &str, revision: &str, contract: &str) -> Result<String, Fault> {
    if let Some(row) = tx.query_opt(CONTRACT, &[&tool, &revision]).await? {
        return Ok(row.try_get(0)?);
    }
    let digest: [u8; 32] = Sha256::digest(contract).into();
    tx.execute(PIN, &[&tool, &revision, &digest.as_slice(), &contract]).await?;
    Ok(tx.query_one(CONTRACT, &[&tool, &revision]).await?.try_get(0)?)
}
