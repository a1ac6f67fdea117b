//! Connections of our own: how they are made, watched, kept and given up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool::managed::{self, Metrics, RecycleError, RecycleResult};
use deadpool_postgres::ClientWrapper;
use futures_util::FutureExt;
use futures_util::future::poll_fn;
use tokio::task::AbortHandle;
use tokio_postgres::error::DbError;
use tokio_postgres::{AsyncMessage, Config, Error, NoTls, Statement};

use super::declared::Composed;
use super::error::describe;

/// Which plans a connection makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Planning {
    /// As the operator has it.
    AsEver,
    /// A kept plan of a look-up goes by the index, even when it was made while the receipts table was empty.
    ByIndex,
}

/// Where an application's statement has no index, a scan that is switched off has an astronomical cost, which must not
/// call up the just-in-time compiler.
const BY_INDEX: &str = "SET enable_seqscan = off; SET jit = off";
const AS_EVER: &str = "RESET enable_seqscan; RESET jit";

/// One connection, and what its driver has seen.
pub(super) struct Connection {
    pub(super) wrapper: ClientWrapper,
    driver: AbortHandle,
    unreplicated: Arc<AtomicBool>,
    fenced: AtomicBool,
    by_index: AtomicBool,
    statements: Mutex<HashMap<u64, Statement>>,
}

impl Connection {
    fn new(wrapper: ClientWrapper, driver: AbortHandle, unreplicated: Arc<AtomicBool>) -> Self {
        let (fenced, by_index, statements) = Default::default();
        Self { wrapper, driver, unreplicated, fenced, by_index, statements }
    }

    /// Has `composed` prepared here, once.
    pub(super) async fn statement(&self, composed: &Composed) -> Result<Statement, Error> {
        if let Some(kept) = self.kept().get(&composed.id) {
            return Ok(kept.clone());
        }
        let statement = self.wrapper.prepare_typed(&composed.sql, &composed.types).await?;
        self.kept().insert(composed.id, statement.clone());
        Ok(statement)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is sent next is planned so. Sent and not waited for: most often there is nothing to send.
    pub(super) fn plan(&self, planning: Planning) {
        let by_index = planning == Planning::ByIndex;
        if self.by_index.swap(by_index, Ordering::SeqCst) != by_index {
            let setting = if by_index { BY_INDEX } else { AS_EVER };
            let _sent = self.wrapper.batch_execute(setting).now_or_never();
        }
    }

    /// Ends it now. Its transaction is the server's to undo; nothing asks it to cancel.
    pub(super) fn sever(&self) {
        self.driver.abort();
    }

    /// Has a commit been answered that no standby may have?
    pub(super) fn unreplicated(&self) -> bool {
        self.unreplicated.load(Ordering::SeqCst)
    }

    /// Has it made a commit that was waited for?
    pub(super) fn fenced(&self) -> bool {
        self.fenced.load(Ordering::SeqCst)
    }

    /// A commit of its own was answered: all that was visible before is as durable.
    pub(super) fn fence(&self) {
        self.fenced.store(true, Ordering::SeqCst);
    }
}

/// Makes connections, and looks at them before they are used again.
pub(super) struct Manager {
    pub(super) config: Config,
    pub(super) settings: String,
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = tokio_postgres::Error;

    async fn create(&self) -> Result<Connection, Self::Error> {
        let (client, mut connection) = self.config.connect(NoTls).await?;
        let unreplicated = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&unreplicated);
        let driver = tokio::spawn(async move {
            while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    Ok(AsyncMessage::Notice(notice)) if forsakes_standby(&notice) => {
                        seen.store(true, Ordering::SeqCst);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(error = describe(&error), "a connection to the database ended");
                        return;
                    }
                }
            }
        });
        let abort = driver.abort_handle();
        let wrapper = ClientWrapper::new(client, driver);
        wrapper.batch_execute(&self.settings).await?;
        Ok(Connection::new(wrapper, abort, unreplicated))
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> RecycleResult<Self::Error> {
        if connection.wrapper.is_closed() || connection.unreplicated() {
            return Err(RecycleError::message("the connection is of no further use"));
        }
        Ok(())
    }
}

/// "canceling wait for synchronous replication": what was committed is on this machine alone. The text is
/// translated, the routine is not.
fn forsakes_standby(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// Session settings that every connection begins with.
///
/// `synchronous_commit = off` would answer before anything is on disk, so it is raised; every other value is the
/// operator's choice.
pub(super) fn settings(lock_wait: Duration, statement_time: Duration, call_wait: Duration) -> String {
    let millis = |of: Duration| of.as_millis().clamp(1, i32::MAX as u128);
    format!(
        "SET application_name = 'counterfoil'; SET client_encoding = 'UTF8'; SET lock_timeout = {}; \
         SET default_transaction_isolation = 'read committed'; \
         SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; \
         SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
        millis(lock_wait),
        millis(statement_time),
        millis(call_wait),
    )
}
