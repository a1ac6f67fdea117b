//! A database with a pool of connections: what a service opens once and clones everywhere.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::{
    Call, Epoch, Principal, Reading, Receipt, Refusal, Reply, RequestId, ToolName, Windows, decide, limits,
};
use deadpool::Runtime;
use deadpool::managed::{Object, Pool, PoolConfig, QueueMode, Timeouts};
use tokio_postgres::Config;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::attempt::{Handler, Step, Writing, guarded};
use super::contracts::pin_contract;
use super::declared::{Declaration, Declared, List};
use super::doubt::Doubt;
use super::epoch::History;
use super::error::raced;
use super::migrate::migrate;
use super::pool::{Manager, settings};
use super::receipts::{find_record, insert_void, list};
use super::retry::{Attempt, Bounds, Boxed, Place, Setback, connection, drive, pause};
use super::seen::Seen;
use super::tls::Tls;
use super::turn::Receipts;
use super::tx::Tx;
use crate::fault::{Fault, OpenError};
use crate::key::Key;
use crate::record::{Filter, Record, Void};
use crate::rule::Rule;
use crate::witness::{self, Keeper, Witness};

/// How a ledger behaves. The defaults are right for most.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bring the ledger's tables up to date when opening. Without it they must be there already.
    pub create: bool,
    /// Connections at most.
    pub pool: usize,
    /// Calls that may wait for a connection; one more is refused as `busy`.
    pub queue: usize,
    /// How long to wait for a connection, and for one to be made, before `busy`.
    pub connect_wait: Duration,
    /// How long to wait for another transaction's lock before `busy`.
    pub lock_wait: Duration,
    /// How long one statement may run before `busy`.
    pub statement_time: Duration,
    /// How long one call may take in all, its repetitions among it, before `busy`, or before `outcome_unknown` if it
    /// may have committed.
    pub call_wait: Duration,
    /// How often a call is attempted that meets serialization failures, deadlocks or lost connections.
    pub tries: u32,
    /// Largest result, in bytes.
    pub result_limit: usize,
    /// Whether the server must prove who it is.
    pub tls: Tls,
    /// Keep prepared statements and settings on each connection. Not behind a pooler that hands out a server session
    /// for one transaction and keeps no statements (PgBouncer in transaction mode, before 1.21): there every
    /// statement is unnamed and typed, and every setting is made in each transaction.
    pub prepare: bool,
    /// Where to keep a witness of recent history, by which a loss of it is noticed. Without one it is not.
    pub witness: Option<witness::Keep>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            pool: 16,
            queue: limits::QUEUE,
            connect_wait: Duration::from_secs(5),
            lock_wait: Duration::from_secs(5),
            statement_time: Duration::from_secs(5),
            call_wait: Duration::from_secs(30),
            tries: 10,
            result_limit: limits::RESULT,
            tls: Tls::default(),
            prepare: true,
            witness: None,
        }
    }
}

/// An open ledger. Clones share it. Its connections live on the runtime that made the calls.
#[derive(Clone)]
pub struct Ledger {
    receipts: Receipts,
    pool: Pool<Manager>,
    bounds: Bounds,
    seen: Arc<Seen>,
    keeper: Option<Arc<Keeper>>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("receipts", &self.receipts).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Connects to the database that `config` names, and brings the ledger's tables up to date if `options` say so.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way.
    pub async fn open(mut config: Config, options: Options) -> Result<Self, OpenError> {
        let tls = options.tls.prepare(&mut config)?;
        bound(&mut config, &options);
        let (mut receipts, history) = prepare(&config, &tls, &options).await?;
        receipts.result_limit = options.result_limit;
        let bounds = Bounds { tries: options.tries, call_wait: options.call_wait, queue: options.queue };
        let keeper = history.keeper.clone();
        let manager = Manager { config, tls, settings: settings(&options), history };
        let wait = Some(options.connect_wait);
        // Looking at a connection before it is used again waits for nothing.
        let timeouts = Timeouts { wait, create: wait, recycle: None };
        let config = PoolConfig { max_size: options.pool, timeouts, queue_mode: QueueMode::Lifo };
        let pool = Pool::builder(manager).config(config).runtime(Runtime::Tokio1).build();
        let pool = pool.map_err(|_| OpenError::Damaged("the pool has no runtime"))?;
        Ok(Self { receipts, pool, bounds, seen: Arc::default(), keeper })
    }

    /// As [`Ledger::open`], for as long as what is in the way may pass by itself, and at most for `wait`; `tell` hears
    /// what is waited for, each time.
    ///
    /// # Errors
    /// The last one.
    pub async fn open_within(
        config: Config,
        options: Options,
        wait: Duration,
        mut tell: impl FnMut(&OpenError) + Send,
    ) -> Result<Self, OpenError> {
        let end = tokio::time::Instant::now() + wait;
        let mut tried = 0;
        loop {
            let error = match Self::open(config.clone(), options.clone()).await {
                Ok(ledger) => return Ok(ledger),
                Err(error) => error,
            };
            tried += 1;
            let next = tokio::time::Instant::now() + pause(tried);
            if !error.passing() || next > end {
                return Err(error);
            }
            tell(&error);
            tokio::time::sleep_until(next).await;
        }
    }

    /// The identity of this database's history.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.receipts.epoch()
    }

    /// For transactions of the caller's, on connections of the caller's to the same database.
    #[must_use]
    pub fn receipts(&self) -> &Receipts {
        &self.receipts
    }

    /// The paved path: asks `access`, looks up, writes, records and commits, in this order and in one transaction.
    ///
    /// Both closures return a boxed future over the transaction (`|tx| Box::pin(async move { … })`), and may run more
    /// than once, each time in a transaction that has forgotten the time before. Once begun, the call runs to its end
    /// even if the returned future is dropped.
    ///
    /// # Errors
    /// The refusal: this try wrote nothing, and `operation()` tells what is known of the operation.
    pub async fn run<T, A, W>(&self, call: Call, access: A, write: W) -> Result<Reply, Refusal>
    where
        T: serde::Serialize + 'static,
        A: for<'a> FnMut(&'a Tx) -> Step<'a, bool> + Send + 'static,
        W: for<'a> FnMut(&'a Tx) -> Step<'a, T> + Send + 'static,
    {
        self.perform(Arc::new(call), Closures { access, write }).await
    }

    /// As [`Ledger::run`], for a [`Handler`].
    ///
    /// # Errors
    /// The refusal.
    pub async fn perform<H: Handler>(&self, call: Arc<Call>, mut handler: H) -> Result<Reply, Refusal> {
        let retry = self.seen.likely(Key::from(&*call));
        let alone = handler.declared().is_some_and(|values| values.declared.alone());
        let place = if alone { Place::Here } else { Place::Apart };
        let asked = Arc::clone(&call);
        let writing = Writing { receipts: self.receipts.clone(), call, handler, retry };
        let answer = drive(self.pool.clone(), self.bounds, place, writing).await;
        if let (Ok(reply), Some(keeper)) = (&answer, &self.keeper) {
            keeper.note(Witness::of(&asked, &reply.epoch, reply.committed_at));
        }
        answer
    }

    /// Composes `declaration`, for handlers that hand it over with each call: see [`Handler::declared`]. The server
    /// is asked whether it takes the statements.
    ///
    /// # Errors
    /// The database's own, for SQL that it does not take.
    pub async fn declare(&self, declaration: &Declaration) -> Result<Declared, Fault> {
        self.checked(Declared::new(declaration, self.receipts.result_limit)).await
    }

    /// As [`Ledger::declare`], for a tool of several statements: two round trips a call, and one more wherever a
    /// statement needs a row of an earlier one.
    ///
    /// # Errors
    /// [`Fault::Misuse`] for a list that cannot be sent so; the database's own, for SQL that it does not take.
    pub async fn declare_list(&self, list: &List) -> Result<Declared, Fault> {
        let listed = Declared::list(list);
        self.checked(listed.ok_or(Fault::Misuse("a declared list refers to what does not come before it"))?)
            .await
    }

    async fn checked(&self, declared: Declared) -> Result<Declared, Fault> {
        let connection =
            connection(&self.pool).await.map_err(|setback| Fault::from(setback.into_refusal()))?;
        for composed in declared.statements() {
            connection.check(composed).await?;
        }
        Ok(declared)
    }

    /// Records that the operation will never commit, unless it has: exactly one of the two, ever. Waits for a try
    /// that is under way. Asks for no access: do that first.
    ///
    /// # Errors
    /// `request_id_expired` where the fact of a commit may be gone already.
    pub async fn void(&self, key: Key<'_>, windows: Windows) -> Result<Void, Refusal> {
        self.drive(Voiding {
            principal: Arc::new(key.principal.clone()),
            tool: key.tool.clone(),
            request_id: key.request_id.clone(),
            windows,
        })
        .await
    }

    /// The whole record under `key`, intent included.
    ///
    /// # Errors
    /// What the database's error means.
    pub async fn find_record(&self, key: Key<'_>) -> Result<Option<Record>, Refusal> {
        self.reading(async |tx: &Tx| find_record(tx, key).await).await
    }

    /// Receipts, newest first.
    ///
    /// # Errors
    /// What the database's error means.
    pub async fn list(&self, filter: &Filter) -> Result<Vec<Record>, Refusal> {
        self.reading(async |tx: &Tx| list(tx, filter).await).await
    }

    /// Records `contract` as what `revision` of `tool` promises, unless it is recorded already; tells the contract
    /// on record, which another server may have written with other content.
    ///
    /// # Errors
    /// What the database's error means.
    pub async fn pin_contract(&self, tool: &str, revision: &str, contract: &str) -> Result<String, Refusal> {
        let [tool, revision, contract] = [tool, revision, contract].map(str::to_owned);
        self.drive(Pinning { tool, revision, contract }).await
    }

    /// Reads in one snapshot that cannot write.
    ///
    /// # Errors
    /// What `read` refused, or what the database's error means.
    pub async fn read<T, F>(&self, read: F) -> Result<T, Refusal>
    where
        F: for<'a> FnOnce(&'a Tx) -> Step<'a, T>,
    {
        self.reading(async |tx: &Tx| read(tx).await).await
    }

    async fn reading<T>(&self, read: impl AsyncFnOnce(&Tx) -> Result<T, Fault>) -> Result<T, Refusal> {
        let attempt = async {
            let mut tx = Tx::new(connection(&self.pool).await?);
            tx.begin_read().await?;
            let result = guarded(read(&tx)).await;
            tx.rollback();
            Ok(result?)
        };
        attempt.await.map_err(Setback::into_refusal)
    }

    pub(super) async fn drive<A: Attempt>(&self, attempt: A) -> Result<A::Answer, Refusal> {
        drive(self.pool.clone(), self.bounds, Place::Apart, attempt).await
    }

    /// Hands out no more connections. Calls under way keep theirs.
    pub fn close(&self) {
        self.pool.close();
        if let Some(keeper) = &self.keeper {
            keeper.close();
        }
    }
}

/// A host that does not answer must not use up the time of the others, and one that has gone silent must be noticed.
fn bound(config: &mut Config, options: &Options) {
    let hosts = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.connect_wait / u32::try_from(hosts).unwrap_or(u32::MAX));
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(options.call_wait);
    }
}

/// Looks at the database, and changes it if that is wished, on a connection of its own.
async fn prepare(
    config: &Config,
    tls: &MakeRustlsConnect,
    options: &Options,
) -> Result<(Receipts, History), OpenError> {
    let connected = tokio::time::timeout(options.connect_wait, config.connect(tls.clone())).await;
    let (mut client, connection) = connected.map_err(|_| OpenError::Late(options.connect_wait))??;
    let driver = tokio::spawn(connection);
    let receipts = async {
        if options.create {
            migrate(&mut client).await?;
        }
        let receipts = Receipts::open(&client).await?;
        let history = History {
            current: receipts.epoch.clone(),
            before: options.witness.as_ref().and_then(|keep| witness::read(&keep.file)),
            keeper: options.witness.clone().map(Keeper::start).transpose()?.map(Arc::new),
        };
        history.hear(&client).await?;
        Ok((receipts, history))
    };
    let receipts = receipts.await;
    driver.abort();
    receipts
}

/// A handler made of two closures.
struct Closures<A, W> {
    access: A,
    write: W,
}

impl<T, A, W> Handler for Closures<A, W>
where
    T: serde::Serialize + 'static,
    A: for<'a> FnMut(&'a Tx) -> Step<'a, bool> + Send + 'static,
    W: for<'a> FnMut(&'a Tx) -> Step<'a, T> + Send + 'static,
{
    fn access<'a>(&'a mut self, tx: &'a Tx, _rule: Rule<'a>) -> Step<'a, bool> {
        (self.access)(tx)
    }

    fn write<'a>(&'a mut self, tx: &'a Tx, _reading: &'a Reading) -> Step<'a, Box<str>> {
        let written = (self.write)(tx);
        Box::pin(async move {
            let json = serde_json::to_string(&written.await?);
            Ok(json.map_err(|error| Fault::Broken(error.to_string()))?.into())
        })
    }
}

/// An operation on its way to never.
struct Voiding {
    principal: Arc<Principal>,
    tool: ToolName,
    request_id: RequestId,
    windows: Windows,
}

impl Attempt for Voiding {
    type Answer = Void;

    fn once<'a>(
        &'a mut self,
        connection: Object<Manager>,
        doubt: &'a Doubt,
    ) -> Boxed<'a, Result<Void, Setback>> {
        Box::pin(self.void(Tx::new(connection), doubt))
    }
}

impl Voiding {
    async fn void(&self, mut tx: Tx, doubt: &Doubt) -> Result<Void, Setback> {
        let key = Key { principal: &self.principal, tool: &self.tool, request_id: &self.request_id };
        let answer = match tx.begin(key).await? {
            Some(Receipt::Voided) => Void::Voided,
            Some(Receipt::Committed(committed)) => Void::Committed(committed.at),
            None => return self.insert(key, &mut tx, doubt).await,
        };
        tx.fence(doubt).await?;
        Ok(answer)
    }

    async fn insert(&self, key: Key<'_>, tx: &mut Tx, doubt: &Doubt) -> Result<Void, Setback> {
        let inserted = match decide::dated(key.request_id, self.windows.remember, tx.now()) {
            Some(refusal) => Err(refusal.into()),
            None => insert_void(tx.connection(), key).await,
        };
        let met = match inserted {
            Ok(()) => return tx.commit(doubt).await.map(|()| Void::Voided),
            // The try that was under way has committed, or another has voided: the next look tells which.
            Err(Fault::Postgres(error)) if raced(&error) => Setback::Again,
            Err(fault) => fault.into(),
        };
        if !matches!(met, Setback::Lost) {
            tx.rollback();
        }
        Err(met)
    }
}

/// A contract on its way to the record. Harmless to do again.
struct Pinning {
    tool: String,
    revision: String,
    contract: String,
}

impl Attempt for Pinning {
    type Answer = String;

    fn once<'a>(
        &'a mut self,
        connection: Object<Manager>,
        doubt: &'a Doubt,
    ) -> Boxed<'a, Result<String, Setback>> {
        Box::pin(async move {
            let mut tx = Tx::new(connection);
            tx.begin_write().await?;
            let recorded = pin_contract(&tx, &self.tool, &self.revision, &self.contract).await?;
            tx.commit(doubt).await?;
            Ok(recorded)
        })
    }
}
