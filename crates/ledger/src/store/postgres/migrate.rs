//! Numbered migrations, each applied once, in order, under a lock that only migrations take.

use counterfoil_core::Epoch;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, IsolationLevel, Row};
use uuid::Uuid;

use crate::fault::OpenError;

/// Never edited once released: the next change is the next number.
const MIGRATIONS: [&str; 2] =
    [include_str!("migrations/0001_receipts.sql"), include_str!("migrations/0002_removal.sql")];

/// The newest version this program knows.
const KNOWN: i64 = MIGRATIONS.len() as i64;

/// The oldest server that has what is used here and is still maintained.
const OLDEST: i32 = 140_000;

const TABLES: &str = include_str!("sql/tables.sql");
const VERSION: &str = include_str!("sql/version.sql");
const LOCK: &str = include_str!("sql/lock.sql");
pub(super) const META: &str = include_str!("sql/meta.sql");
const EARLY: &str = include_str!("sql/early.sql");

/// Brings the ledger's tables up to date, as the role that owns them. Any number of servers may do it at once.
///
/// # Errors
/// [`OpenError::TooNew`] for a database that a newer program wrote.
pub async fn migrate(client: &mut Client) -> Result<(), OpenError> {
    if version(client).await?.0 == KNOWN {
        return Ok(());
    }
    // Under another level the version would be read as it was before the lock was got.
    let level = IsolationLevel::ReadCommitted;
    let tx = client.build_transaction().isolation_level(level).read_only(false).start().await?;
    tx.batch_execute(LOCK).await?;
    let found = version(&tx).await?.0;
    if found > KNOWN {
        return Err(OpenError::TooNew { found, known: KNOWN });
    }
    apply(&tx, found).await?;
    Ok(tx.commit().await?)
}

/// Another server may have been first: `from` was read under the lock.
async fn apply(tx: &impl GenericClient, from: i64) -> Result<(), OpenError> {
    for (number, sql) in (1..).zip(MIGRATIONS) {
        if number > from {
            tx.batch_execute(sql).await?;
        }
    }
    write_down(tx, "schema", KNOWN.to_string()).await?;
    if from == 0 {
        write_down(tx, "epoch", Uuid::new_v4().to_string()).await?;
    }
    Ok(())
}

/// Unnamed and typed, as every statement here: a pooler may keep no prepared ones.
async fn write_down(tx: &impl GenericClient, name: &str, value: String) -> Result<(), OpenError> {
    tx.execute_typed(META, &[(&name, Type::TEXT), (&value, Type::TEXT)]).await?;
    Ok(())
}

/// The epoch of a database whose tables are as this program needs them.
pub(super) async fn verify(client: &impl GenericClient) -> Result<Epoch, OpenError> {
    let (found, epoch) = version(client).await?;
    if found > KNOWN {
        return Err(OpenError::TooNew { found, known: KNOWN });
    }
    if found < KNOWN {
        return Err(OpenError::NotMigrated { found, known: KNOWN });
    }
    let epoch = epoch.ok_or(OpenError::Damaged("there is no epoch"))?;
    let epoch = Epoch::parse(&epoch).map_err(|_| OpenError::Damaged("the epoch is malformed"))?;
    if client.query_typed_one(EARLY, &[]).await?.try_get(0)? {
        tracing::warn!("{EARLY_SAYS}");
    }
    Ok(epoch)
}

/// A crash may take back what was acknowledged so, the receipt with the write.
const EARLY_SAYS: &str = "synchronous_commit is off for this role or database: connections of the ledger's own raise it \
     to on, transactions of a caller's do not, and what they acknowledge can be lost in a crash";

/// The version of the tables, 0 if there are none, and the epoch.
async fn version(client: &impl GenericClient) -> Result<(i64, Option<String>), OpenError> {
    let row = client.query_typed_one(TABLES, &[]).await?;
    let (meta, others): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    suitable(&row)?;
    if !meta {
        return Ok((0, None));
    }
    let row = client.query_typed_one(VERSION, &[]).await?;
    let version: Option<String> = row.try_get(0)?;
    let version = version.ok_or(OpenError::Damaged("there is no schema version"))?;
    let version = version.parse().map_err(|_| OpenError::Damaged("the schema version is not a number"))?;
    if version < 1 {
        return Err(OpenError::Damaged("the schema version is less than one"));
    }
    if !others {
        return Err(OpenError::Damaged("a table is missing"));
    }
    Ok((version, row.try_get(1)?))
}

/// What the server must be, whatever is in the database.
fn suitable(row: &Row) -> Result<(), OpenError> {
    let (encoding, standby, number): (&str, bool, i32) = (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    if number < OLDEST {
        return Err(OpenError::TooOld { major: number / 10_000, needed: OLDEST / 10_000 });
    }
    if encoding != "UTF8" {
        return Err(OpenError::Encoding(encoding.to_owned()));
    }
    if standby { Err(OpenError::Standby) } else { Ok(()) }
}
