//! A database with its writer and its readers: what a service opens once and clones everywhere.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use counterfoil_core::{Call, Epoch, Reading, Refusal, Reply, limits};
use rusqlite::Transaction;
use tokio::sync::oneshot;

use super::attempt::{Handler, attempt, glance, guarded};
use super::connection::{Prepare, Source, locked, patiently};
use super::epoch::hear;
use super::migrate::migrate;
use super::readers::{Readers, Snapshot};
use super::turn::{Receipts, Turn};
use super::tx::Tx;
use super::writer::{Task, Work, Writer};
use crate::clock::{Clock, SystemClock};
use crate::fault::{Fault, OpenError};
use crate::queue::{Queue, Rejected, drive};
use crate::rule::Rule;
use crate::witness::{self, Keeper, Witness};

/// How a ledger behaves. The defaults are right for most.
#[derive(Clone)]
pub struct Options {
    /// Create the database file if there is none.
    pub create: bool,
    /// Calls that may wait for the writer; one more is refused as `busy`.
    pub queue: usize,
    /// Calls that may share a commit.
    pub group: usize,
    /// How long to wait for another program's lock before `busy`.
    pub lock_wait: Duration,
    /// How long a call may wait for the writer before it begins; one that waited longer is refused as `busy`.
    pub queue_wait: Duration,
    /// How long one statement may run before `busy`.
    pub statement_time: Duration,
    /// Largest result, in bytes.
    pub result_limit: usize,
    /// Where "now" comes from.
    pub clock: Arc<dyn Clock>,
    /// Done to every connection before it is used: an application's own functions, collations, hooks.
    pub prepare: Option<Prepare>,
    /// Where to keep a witness of recent history, by which a restore behind our back is noticed. Without one it is not.
    pub witness: Option<witness::Keep>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            queue: limits::QUEUE,
            group: 256,
            lock_wait: Duration::from_secs(5),
            queue_wait: Duration::from_secs(10),
            statement_time: Duration::from_secs(5),
            result_limit: limits::RESULT,
            clock: Arc::new(SystemClock),
            prepare: None,
            witness: None,
        }
    }
}

/// An open ledger. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

struct Inner {
    receipts: Receipts,
    readers: Arc<Readers>,
    queue: Arc<Queue<Box<dyn Work>>>,
    queue_wait: Duration,
    statement_time: Duration,
    writer: Mutex<Option<JoinHandle<()>>>,
    keeper: Option<Keeper>,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("receipts", &self.inner.receipts).finish_non_exhaustive()
    }
}

/// The way an answer comes back from the writer.
type Answered<T> = oneshot::Receiver<Result<T, Refusal>>;

/// How long a statement of the first look may run. It runs on the caller's thread, which others need: an access rule
/// that takes longer is asked by the writer.
const GLANCE: Duration = Duration::from_millis(20);

/// How long a caller is asked to wait when the queue is full.
const RETRY_AFTER: Duration = Duration::from_millis(100);

impl Ledger {
    /// Opens the database at `path`, brings the ledger's tables up to date and starts the writer.
    ///
    /// An application's existing database is welcome: nothing in it changes but WAL mode and `counterfoil_` tables.
    ///
    /// # Errors
    /// [`OpenError`] says what is in the way.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let source = Source {
            path: path.as_ref().to_owned(),
            create: options.create,
            lock_wait: options.lock_wait,
            prepare: options.prepare,
        };
        let mut handle = source.writer()?;
        let passing = |error: &OpenError| matches!(error, OpenError::Database(error) if locked(error));
        let mut epoch = patiently(options.lock_wait, passing, || migrate(&mut handle.connection))?;
        if let Some(seen) = options.witness.as_ref().and_then(|keep| witness::read(&keep.file)) {
            let now = options.clock.now();
            epoch = patiently(options.lock_wait, passing, || hear(&mut handle.connection, &seen, now))?;
        }
        let keeper = options.witness.map(Keeper::start).transpose()?;
        let receipts = Receipts { epoch, clock: options.clock, result_limit: options.result_limit };
        let readers = Arc::new(Readers::new(source.clone()));
        let writer = Writer {
            source,
            readers: Arc::clone(&readers),
            clock: Arc::clone(&receipts.clock),
            statement_time: options.statement_time,
            epoch: receipts.epoch.clone(),
            handle: Some(handle),
        };
        let queue = Arc::new(Queue::new(options.queue));
        let thread = start(writer, Arc::clone(&queue), options.group)?;
        let (queue_wait, statement_time) = (options.queue_wait, options.statement_time);
        let writer = Mutex::new(Some(thread));
        let inner = Inner { receipts, readers, queue, queue_wait, statement_time, writer, keeper };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The identity of this database's history.
    #[must_use]
    pub fn epoch(&self) -> &Epoch {
        &self.inner.receipts.epoch
    }

    /// Looks `call` up in a transaction of the caller's, on a connection of the caller's to the same database.
    ///
    /// # Errors
    /// As [`Receipts::begin_tx`].
    pub fn begin_tx<'t>(&'t self, tx: &'t Transaction<'_>, call: &'t Call) -> Result<Turn<'t>, Fault> {
        self.inner.receipts.begin_tx(tx, call)
    }

    /// The paved path: asks `access`, looks up, writes, records and commits, in this order and in one transaction.
    ///
    /// Both closures may run more than once, each time in a transaction that has forgotten the time before.
    ///
    /// # Errors
    /// The refusal: this try wrote nothing, and `operation()` tells what is known of the operation.
    pub async fn run<T, A, W>(&self, call: Call, access: A, write: W) -> Result<Reply, Refusal>
    where
        T: serde::Serialize,
        A: FnMut(&Tx<'_>) -> Result<bool, Fault> + Send + 'static,
        W: FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.perform(Arc::new(call), Closures { access, write }).await
    }

    /// As [`Ledger::run`], for a [`Handler`].
    ///
    /// # Errors
    /// The refusal.
    pub async fn perform<H: Handler>(&self, call: Arc<Call>, mut handler: H) -> Result<Reply, Refusal> {
        if let Some(answer) = self.seen(&call, &mut handler) {
            return answer;
        }
        let (inner, alone) = (Arc::clone(&self.inner), handler.alone());
        let asked = Arc::clone(&call);
        let answer =
            self.submit(alone, move |tx: &Tx<'_>| attempt(&inner.receipts, tx, &call, &mut handler)).await;
        if let (Ok(reply), Some(keeper)) = (&answer, &self.inner.keeper) {
            keeper.note(Witness::of(&asked, &reply.epoch, reply.committed_at));
        }
        answer
    }

    /// Step 5: one read transaction, begun after the call arrived. A receipt found there answers there; of anything
    /// else nothing is remembered.
    fn seen(&self, call: &Call, handler: &mut dyn Handler) -> Option<Result<Reply, Refusal>> {
        let receipts = &self.inner.receipts;
        self.reading(GLANCE, |tx| glance(receipts, tx, call, handler)).unwrap_or(None)
    }

    /// Reads in one transaction that cannot write.
    ///
    /// # Errors
    /// What `read` refused, or what the database's error means.
    pub fn read<T>(&self, read: impl FnOnce(&Tx<'_>) -> Result<T, Fault>) -> Result<T, Refusal> {
        self.reading(self.inner.statement_time, read).map_err(Fault::into_refusal)
    }

    fn reading<T>(
        &self,
        statement_time: Duration,
        read: impl FnOnce(&Tx<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if self.inner.readers.in_doubt() {
            // Any work makes the writer open the database again, even work that nobody waits for.
            drop(self.enqueue(true, |_: &Tx<'_>| Ok(())));
        }
        let now = self.inner.receipts.clock.now();
        self.inner.readers.with(|handle| {
            let snapshot = Snapshot::begin(&handle.connection)?;
            let limit = Some((&handle.deadline, statement_time));
            let result = guarded(|| read(&Tx::new(&handle.connection, now, limit)));
            drop(snapshot);
            Ok(result)
        })?
    }

    /// Writes through the writer, in its group; answered after COMMIT. Refused work leaves nothing.
    ///
    /// # Errors
    /// What `write` refused, or what became of the commit.
    pub async fn write<T, F>(&self, write: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.submit(false, write).await
    }

    async fn submit<T, F>(&self, alone: bool, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let answered = self.enqueue(alone, work)?;
        // The writer answers whatever it begins, unless it is torn down in the middle.
        answered.await.unwrap_or_else(|_| Err(Refusal::outcome_unknown(RETRY_AFTER)))
    }

    fn enqueue<T, F>(&self, alone: bool, work: F) -> Result<Answered<T>, Refusal>
    where
        T: Send + 'static,
        F: FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let until = Instant::now() + self.inner.queue_wait;
        match self.inner.queue.push(Box::new(Task { until, alone, work, verdict: None, answer })) {
            Ok(()) => Ok(answered),
            Err(Rejected::Full | Rejected::Closed) => Err(Refusal::busy(RETRY_AFTER)),
        }
    }

    /// Accepts no more writes, does those accepted, and closes the writer. Blocks until it is done.
    pub fn close(&self) {
        self.inner.close();
    }
}

impl Inner {
    fn close(&self) {
        self.queue.close();
        let thread = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last clone may go on the writer's own thread, which cannot wait for itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ended = thread.join();
        }
        self.readers.close();
        if let Some(keeper) = &self.keeper {
            keeper.close();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

/// Gives the queue up however the writer ends, so that no call waits for nobody.
struct Closing(Arc<Queue<Box<dyn Work>>>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

fn start(
    mut writer: Writer,
    queue: Arc<Queue<Box<dyn Work>>>,
    group: usize,
) -> Result<JoinHandle<()>, std::io::Error> {
    std::thread::Builder::new().name("counterfoil-writer".into()).spawn(move || {
        let closing = Closing(queue);
        drive(&closing.0, group, |group| writer.commit(group));
    })
}

/// A handler made of two closures.
struct Closures<A, W> {
    access: A,
    write: W,
}

impl<T, A, W> Handler for Closures<A, W>
where
    T: serde::Serialize,
    A: FnMut(&Tx<'_>) -> Result<bool, Fault> + Send + 'static,
    W: FnMut(&Tx<'_>) -> Result<T, Fault> + Send + 'static,
{
    fn access(&mut self, tx: &Tx<'_>, _rule: Rule<'_>) -> Result<bool, Fault> {
        (self.access)(tx)
    }

    fn write(&mut self, tx: &Tx<'_>, _reading: &Reading) -> Result<Box<str>, Fault> {
        let result = (self.write)(tx)?;
        let json = serde_json::to_string(&result).map_err(|error| Fault::Broken(error.to_string()))?;
        Ok(json.into())
    }
}
