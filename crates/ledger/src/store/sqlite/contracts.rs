//! The same revision must mean the same schema: the first server to serve a revision writes down what it promises.

use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};

use super::tx::Tx;
use crate::fault::Fault;

/// Records `contract` as what `revision` of `tool` promises, unless it is recorded already; tells the contract on
/// record, which another server may have written with other content.
///
/// # Errors
/// The database's own.
pub fn pin_contract(tx: &Tx<'_>, tool: &str, revision: &str, contract: &str) -> Result<String, Fault> {
    let sql = "SELECT contract FROM counterfoil_contracts WHERE tool = ?1 AND revision = ?2";
    let recorded: Option<String> = tx.query_row(sql, (tool, revision), |row| row.get(0)).optional()?;
    if let Some(recorded) = recorded {
        return Ok(recorded);
    }
    let digest: [u8; 32] = Sha256::digest(contract).into();
    let sql = "INSERT INTO counterfoil_contracts (tool, revision, digest, contract) VALUES (?1, ?2, ?3, ?4)";
    tx.execute(sql, (tool, revision, digest.as_slice(), contract))?;
    Ok(contract.to_owned())
}

/// Tool and revision of each contract on record whose digest is not that of its text.
///
/// # Errors
/// The database's own.
pub fn altered_contracts(connection: &Connection) -> Result<Vec<(String, String)>, Fault> {
    let sql = "SELECT tool, revision, digest, contract FROM counterfoil_contracts ORDER BY tool, revision";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    let mut altered = Vec::new();
    while let Some(row) = rows.next()? {
        let (digest, contract): (Vec<u8>, String) = (row.get(2)?, row.get(3)?);
        if digest != Sha256::digest(contract).as_slice() {
            altered.push((row.get(0)?, row.get(1)?));
        }
    }
    Ok(altered)
}
