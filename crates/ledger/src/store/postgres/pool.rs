//! Connections of our own: how they are made, watched, kept and given up.

use std::borrow::Cow;
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
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Config, Error, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::declared::Composed;
use super::epoch::History;
use super::error::describe;
use super::ledger::Options;

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
    /// Set in every transaction, where nothing can be set for longer.
    local: Option<Arc<str>>,
}

impl Connection {
    fn new(
        wrapper: ClientWrapper,
        driver: AbortHandle,
        unreplicated: Arc<AtomicBool>,
        local: Option<Arc<str>>,
    ) -> Self {
        let (fenced, by_index, statements) = Default::default();
        Self { wrapper, driver, unreplicated, fenced, by_index, statements, local }
    }

    /// Is the server's end always the same session, so that statements and settings can be kept in it?
    pub(super) fn keeps(&self) -> bool {
        self.local.is_none()
    }

    /// `begin`, with what must hold in the transaction and cannot be set for longer.
    pub(super) fn beginning(&self, begin: &'static str) -> Cow<'static, str> {
        match &self.local {
            None => begin.into(),
            Some(local) => format!("{begin}; {local}").into(),
        }
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

    /// Has `composed` ready, so that what follows goes out in one flush.
    pub(super) async fn prepare(&self, composed: &Composed) -> Result<(), Error> {
        if self.keeps() { self.statement(composed).await.map(drop) } else { Ok(()) }
    }

    /// Asks the server whether it takes `composed`.
    pub(super) async fn check(&self, composed: &Composed) -> Result<(), Error> {
        if self.keeps() {
            return self.statement(composed).await.map(drop);
        }
        // In one message, and so in one session, whoever hands it out.
        let named = |kind: &Type| format!("\"{}\".\"{}\"", kind.schema(), kind.name());
        let types: Vec<_> = composed.types.iter().map(named).collect();
        let types = if types.is_empty() { String::new() } else { format!("({})", types.join(", ")) };
        let sql = &composed.sql;
        let name = "counterfoil_check";
        self.wrapper.batch_execute(&format!("PREPARE {name}{types} AS {sql};\nDEALLOCATE {name}")).await
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is sent next is planned so. Sent and not waited for: most often there is nothing to send.
    /// A session that keeps nothing plans each statement for the one time, from the tables as they are.
    pub(super) fn plan(&self, planning: Planning) {
        if !self.keeps() {
            return;
        }
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

    /// Has it made a commit that was waited for, on the session that serves it now?
    pub(super) fn fenced(&self) -> bool {
        self.keeps() && self.fenced.load(Ordering::SeqCst)
    }

    /// A commit of its own was answered: all that was visible before is as durable.
    pub(super) fn fence(&self) {
        self.fenced.store(true, Ordering::SeqCst);
    }
}

/// Makes connections, and looks at them before they are used again.
pub(super) struct Manager {
    pub(super) config: Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) settings: Settings,
    pub(super) history: History,
}

/// What must be set, and for how long it can be.
pub(super) enum Settings {
    /// For the session: on connections that lead to one server session.
    Session(String),
    /// For a transaction: behind a pooler that hands out a server session for one transaction.
    Local(Arc<str>),
}

impl managed::Manager for Manager {
    type Type = Connection;
    type Error = tokio_postgres::Error;

    async fn create(&self) -> Result<Connection, Self::Error> {
        let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
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
        let local = match &self.settings {
            Settings::Session(settings) => {
                wrapper.batch_execute(settings).await?;
                None
            }
            Settings::Local(settings) => Some(Arc::clone(settings)),
        };
        self.history.hear(&wrapper).await?;
        Ok(Connection::new(wrapper, abort, unreplicated, local))
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

/// What every session, or every transaction, begins with.
///
/// `synchronous_commit = off` would answer before anything is on disk, so it is raised; every other value is the
/// operator's choice.
pub(super) fn settings(options: &Options) -> Settings {
    let millis = |of: Duration| of.as_millis().clamp(1, i32::MAX as u128);
    let [lock, statement, idle] = [options.lock_wait, options.statement_time, options.call_wait].map(millis);
    let (set, local) = if options.prepare { ("SET", false) } else { ("SET LOCAL", true) };
    let limits = format!(
        "{set} lock_timeout = {lock}; {set} statement_timeout = {statement}; \
         {set} idle_in_transaction_session_timeout = {idle}; \
         SELECT set_config('synchronous_commit', 'on', {local}) WHERE current_setting('synchronous_commit') = 'off'"
    );
    if local {
        return Settings::Local(limits.into());
    }
    Settings::Session(format!(
        "SET application_name = 'counterfoil'; SET client_encoding = 'UTF8'; \
         SET default_transaction_isolation = 'read committed'; {limits}"
    ))
}
