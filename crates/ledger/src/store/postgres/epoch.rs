//! Epochs: the identity of one unbroken history, and how a broken one is noticed: at start and on every new connection.

use std::sync::{Arc, PoisonError, RwLock};

use counterfoil_core::Epoch;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use super::migrate::META;
use super::receipts::timestamp;
use crate::fault::OpenError;
use crate::witness::{Keeper, Witness};

const HEAR: &str = include_str!("sql/hear.sql");
const END: &str = include_str!("sql/end_epoch.sql");
const EPOCH: &str = "SELECT value FROM counterfoil_meta WHERE name = 'epoch'";
/// Whoever finds the same loss at the same time waits here, and then finds that it is known.
const LOCK: &str = "SELECT value FROM counterfoil_meta WHERE name = 'epoch' FOR UPDATE";

/// The epoch that replies name; all clones are told of a new one.
#[derive(Debug, Clone)]
pub(super) struct Current(Arc<RwLock<Epoch>>);

impl Current {
    pub(super) fn new(epoch: Epoch) -> Self {
        Self(Arc::new(RwLock::new(epoch)))
    }

    pub(super) fn get(&self) -> Epoch {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, epoch: Epoch) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = epoch;
    }
}

/// What a server knows of recent history.
#[derive(Clone)]
pub(super) struct History {
    pub(super) current: Current,
    /// Of the server before this one.
    pub(super) before: Option<Witness>,
    pub(super) keeper: Option<Arc<Keeper>>,
}

impl History {
    /// Holds what is known against the database that answers on `client`, which may be another than before: a standby
    /// that was promoted, or an older dump. If an acknowledged receipt is missing before its time, a new epoch begins,
    /// once for the same loss.
    pub(super) async fn hear(&self, client: &Client) -> Result<(), Error> {
        let latest = self.keeper.as_ref().and_then(|keeper| keeper.latest());
        let Some(witness) = latest.or_else(|| self.before.clone()) else {
            let row = client.query_typed_one(EPOCH, &[]).await?;
            self.adopt(row.try_get(0)?);
            return Ok(());
        };
        let heard = Heard::of(&ask(client, &witness).await?, &witness)?;
        if !heard.missing {
            self.adopt(&heard.epoch);
            return Ok(());
        }
        client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        match begin(client, &witness).await {
            Ok(epoch) => {
                client.batch_execute("COMMIT").await?;
                self.adopt(&epoch);
                Ok(())
            }
            Err(error) => {
                tracing::error!(
                    "an operation that was acknowledged is not in the database, and no new epoch can be begun: grant \
                     UPDATE on counterfoil_meta and INSERT on counterfoil_epochs"
                );
                client.batch_execute("ROLLBACK").await?;
                Err(error)
            }
        }
    }

    /// A malformed epoch was refused when the ledger was opened, and nobody writes one since.
    fn adopt(&self, epoch: &str) {
        if let Ok(epoch) = Epoch::parse(epoch) {
            self.current.set(epoch);
        }
    }
}

struct Heard {
    epoch: String,
    missing: bool,
}

impl Heard {
    fn of(row: &Row, witness: &Witness) -> Result<Self, Error> {
        let epoch: String = row.try_get(0)?;
        let (ended, there): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
        let over = timestamp(row.try_get(3)?) > witness.until;
        let known = ended && witness.epoch.as_str() != epoch;
        Ok(Self { missing: !over && !known && !there, epoch })
    }
}

async fn ask(client: &Client, witness: &Witness) -> Result<Row, Error> {
    let principal = &witness.principal;
    let words = [
        principal.workspace.as_str(),
        principal.issuer.as_str(),
        principal.subject.as_str(),
        witness.tool.as_str(),
        witness.request_id.as_str(),
        witness.epoch.as_str(),
    ];
    let parameters = words.each_ref().map(|word| (word as &(dyn ToSql + Sync), Type::TEXT));
    client.query_typed_one(HEAR, &parameters).await
}

/// Under the lock, and in a transaction: looks again, for another server may have been first.
async fn begin(client: &Client, witness: &Witness) -> Result<String, Error> {
    client.query_typed(LOCK, &[]).await?;
    let heard = Heard::of(&ask(client, witness).await?, witness)?;
    if !heard.missing {
        return Ok(heard.epoch);
    }
    let new = renew(client, &[&heard.epoch, witness.epoch.as_str()]).await?;
    tracing::error!(
        ended = heard.epoch,
        epoch = new,
        tool = witness.tool.as_str(),
        request_id = witness.request_id.short(),
        "an operation that was acknowledged is not in the database: an older state took its place. A new epoch begins, \
         and clients will ask which of their operations are gone"
    );
    Ok(new)
}

async fn renew(client: &Client, before: &[&str]) -> Result<String, Error> {
    for ended in before {
        client.execute_typed(END, &[(ended, Type::TEXT)]).await?;
    }
    let new = Uuid::new_v4().to_string();
    client.execute_typed(META, &[(&"epoch", Type::TEXT), (&new, Type::TEXT)]).await?;
    Ok(new)
}

/// Begins a new epoch in a database whose history was broken by other means: after a restore, say. Servers that run
/// name it from their next connection on.
///
/// # Errors
/// The database's own.
pub async fn begin_epoch(client: &Client) -> Result<Epoch, OpenError> {
    client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    let begun = async {
        let row = client.query_typed_one(LOCK, &[]).await?;
        let new = renew(client, &[row.try_get(0)?]).await?;
        client.batch_execute("COMMIT").await?;
        Epoch::parse(&new).map_err(|_| OpenError::Damaged("the epoch is malformed"))
    };
    let begun = begun.await;
    if begun.is_err() {
        client.batch_execute("ROLLBACK").await?;
    }
    begun
}
