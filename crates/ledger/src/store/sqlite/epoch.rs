//! Epochs: the identity of one unbroken history, and how a broken one is noticed.

use counterfoil_core::{Epoch, Timestamp};
use rusqlite::{Connection, TransactionBehavior};
use uuid::Uuid;

use super::migrate::{epoch, set};
use super::receipts::find;
use crate::fault::{Fault, OpenError};
use crate::witness::Witness;

const ENDED: &str = "SELECT EXISTS (SELECT 1 FROM counterfoil_epochs WHERE epoch = ?1)";
const END: &str =
    "INSERT INTO counterfoil_epochs (epoch, ended_at) VALUES (?1, ?2) ON CONFLICT (epoch) DO NOTHING";

/// Looks for the receipt that `witness` saw acknowledged; begins a new epoch if it is missing before its time, once
/// for the same loss. Tells the epoch that holds from now on.
///
/// # Errors
/// The database's own.
pub(super) fn hear(
    connection: &mut Connection,
    witness: &Witness,
    now: Timestamp,
) -> Result<Epoch, OpenError> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let here = epoch(&tx)?;
    if !missing(&tx, witness, &here, now)? {
        return Ok(here);
    }
    let new = begin(&tx, &[&here, &witness.epoch], now)?;
    tx.commit()?;
    tracing::error!(
        ended = here.as_str(),
        epoch = new.as_str(),
        tool = witness.tool.as_str(),
        request_id = witness.request_id.short(),
        "an operation that was acknowledged is not in the database: an older copy was put in its place. A new epoch \
         begins, and clients will ask which of their operations are gone"
    );
    Ok(new)
}

fn missing(
    connection: &Connection,
    witness: &Witness,
    here: &Epoch,
    now: Timestamp,
) -> Result<bool, OpenError> {
    if now > witness.until {
        return Ok(false);
    }
    let known = witness.epoch != *here
        && connection.query_row(ENDED, [witness.epoch.as_str()], |row| row.get::<_, bool>(0))?;
    Ok(!known && absent(connection, witness)?)
}

/// Is there no receipt of it?
fn absent(connection: &Connection, witness: &Witness) -> Result<bool, OpenError> {
    match find(connection, witness.key()) {
        Ok(receipt) => Ok(receipt.is_none()),
        Err(Fault::Database(error)) => Err(error.into()),
        // A receipt that this program cannot read is there.
        Err(Fault::Refused(_) | Fault::Postgres(_) | Fault::Misuse(_) | Fault::Broken(_)) => Ok(false),
    }
}

/// Begins a new epoch; those of `before` have ended. `connection` is in a write transaction.
///
/// # Errors
/// The database's own.
pub(super) fn begin(connection: &Connection, before: &[&Epoch], now: Timestamp) -> Result<Epoch, OpenError> {
    for ended in before {
        connection.execute(END, (ended.as_str(), now.micros()))?;
    }
    let new = Uuid::new_v4().to_string();
    set(connection, "epoch", &new)?;
    epoch(connection)
}
