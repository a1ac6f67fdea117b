//! A connection as the ledger makes its own, for what is done beside calls: checks, migrations, looking at receipts.

use std::time::Duration;

use tokio_postgres::{Client, Config};

use super::tls::Tls;
use crate::fault::OpenError;

/// How long it may take to connect, where `config` does not say.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connects to the database that `config` names. The connection is driven on the current runtime until its client is
/// dropped.
///
/// # Errors
/// [`OpenError`] says what is in the way.
pub async fn connect(mut config: Config, tls: &Tls) -> Result<Client, OpenError> {
    let tls = tls.prepare(&mut config)?;
    let patience = config.get_connect_timeout().copied().unwrap_or(PATIENCE);
    let connected = tokio::time::timeout(patience, config.connect(tls)).await;
    let (client, connection) = connected.map_err(|_| OpenError::Late(patience))??;
    drop(tokio::spawn(connection));
    Ok(client)
}
