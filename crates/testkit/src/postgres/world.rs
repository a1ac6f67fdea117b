//! A ledger over a fresh database, on a runtime of its own; and a tool that is a list of statements.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use counterfoil::Fault;
use counterfoil::postgres::{
    Column, Declaration, Declared, Handler, Ledger, List, Options, Part, Query, Returns, Rule, Step, Tx,
    Values,
};
use counterfoil_core::{Call, Reading, Refusal, Reply};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::{Database, runtime};
use crate::{Answer, Gate};

/// What a test has.
#[derive(Debug)]
pub struct World {
    /// The ledger.
    pub ledger: Ledger,
    /// Where its connections live.
    pub runtime: Runtime,
    /// Its database; dropped last.
    pub database: Database,
}

impl World {
    /// Over the reference application, changed by `sql`.
    #[must_use]
    pub fn fresh(sql: &str, options: Options) -> Self {
        let database = Database::fresh();
        database.execute(sql);
        Self::over(database, options)
    }

    /// Over `database`.
    #[must_use]
    pub fn over(database: Database, options: Options) -> Self {
        let runtime = runtime();
        let ledger = runtime.block_on(Ledger::open(database.config(), options)).unwrap();
        Self { ledger, runtime, database }
    }

    /// Waits for `future`.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Starts a call.
    pub fn start(&self, call: Call, handler: impl Handler) -> JoinHandle<Result<Reply, Refusal>> {
        let (ledger, call) = (self.ledger.clone(), Arc::new(call));
        self.runtime.spawn(async move { ledger.perform(call, handler).await })
    }

    /// Makes a call.
    pub fn call(&self, call: Call, handler: impl Handler) -> Answer {
        self.finish(self.start(call, handler))
    }

    /// Waits for a call.
    pub fn finish(&self, call: JoinHandle<Result<Reply, Refusal>>) -> Answer {
        Answer::from(self.wait(call).unwrap())
    }

    /// Waits until so many of the database's sessions wait for a lock.
    pub fn until_blocked(&self, sessions: i64) {
        // Asked again and again, with a breath between, so that the others get their turn.
        let sql = "SELECT count(*) FROM pg_sleep(0.005), pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let seen = async {
            let client = self.database.connect().await;
            while client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) < sessions {}
        };
        let within = self.wait(async { tokio::time::timeout(Duration::from_secs(60), seen).await });
        within.expect("sessions that wait for a lock");
    }
}

/// A tool made of statements without parameters. Its result is the first column of the last one's first row, an
/// integer; no row is `version_conflict`.
#[derive(Debug, Clone)]
pub struct Scripted {
    /// The access rule; no row is `resource_unavailable`.
    pub access: String,
    /// What is asked instead when the same operation has committed.
    pub replay_access: String,
    /// The write, by attempt: the last one also serves every attempt after it.
    pub attempts: Vec<Vec<String>>,
    /// Where the first attempt waits before it writes.
    pub gate: Option<Gate>,
    /// How often the write began.
    pub writes: Arc<AtomicUsize>,
}

impl Scripted {
    /// Open to everybody.
    #[must_use]
    pub fn new(write: &[&str]) -> Self {
        let (access, writes) = ("SELECT 1".to_owned(), Arc::default());
        Self { replay_access: access.clone(), access, attempts: vec![owned(write)], gate: None, writes }
    }

    /// In its first attempt writes this instead.
    #[must_use]
    pub fn at_first(mut self, write: &[&str]) -> Self {
        self.attempts.insert(0, owned(write));
        self
    }

    /// Open to those for whom `sql` finds a row.
    #[must_use]
    pub fn for_whom(self, sql: &str) -> Self {
        Self { access: sql.to_owned(), replay_access: sql.to_owned(), ..self }
    }

    /// Waits at `gate` when it is about to write for the first time.
    #[must_use]
    pub fn waiting_at(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    /// How often the write began.
    #[must_use]
    pub fn count(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }
}

/// A [`Scripted`] tool of one statement, which is declared.
#[derive(Debug, Clone)]
pub struct Once {
    script: Scripted,
    declared: Vec<Arc<Declared>>,
}

impl Scripted {
    /// The declaration of the statement of `attempt`.
    #[must_use]
    pub fn declaration(&self, attempt: usize) -> Declaration {
        let write = self.attempts[attempt].concat();
        let columns = vec![Column { name: "value".to_owned(), json: "({})::text".to_owned() }];
        Declaration {
            membership: None,
            access: Some(Part::from(self.access.as_str())),
            replay_access: Some(Part::from(self.replay_access.as_str())),
            write: Query { sql: Part::from(write.as_str()), columns },
            returns: Returns::Row,
            may_change_nothing: false,
            current: None,
            session: Vec::new(),
        }
    }

    /// The same, declared: its result is an object of one `value`.
    pub async fn declared(self, ledger: &Ledger) -> Once {
        let mut declared = Vec::new();
        for attempt in 0..self.attempts.len() {
            declared.push(Arc::new(ledger.declare(&self.declaration(attempt)).await.unwrap()));
        }
        Once { script: self, declared }
    }
}

impl Once {
    /// With `declaration` in place of its own.
    pub async fn of(ledger: &Ledger, declaration: &Declaration) -> Self {
        let declared = vec![Arc::new(ledger.declare(declaration).await.unwrap())];
        Self { script: Scripted::new(&["SELECT 1::bigint WHERE false"]), declared }
    }
}

impl Once {
    /// With `list` in place of its own.
    pub async fn listed(ledger: &Ledger, list: &List) -> Self {
        let declared = vec![Arc::new(ledger.declare_list(list).await.unwrap())];
        Self { script: Scripted::new(&["SELECT 1::bigint WHERE false"]), declared }
    }
}

impl Handler for Once {
    fn access<'a>(&'a mut self, tx: &'a Tx, rule: Rule<'a>) -> Step<'a, bool> {
        self.script.access(tx, rule)
    }

    fn write<'a>(&'a mut self, tx: &'a Tx, reading: &'a Reading) -> Step<'a, Box<str>> {
        self.script.write(tx, reading)
    }

    fn declared(&mut self) -> Option<Values<'_>> {
        // Asked once before the first attempt, once for its statement, and once more for its verdict: the last one
        // serves all after it.
        let asked = self.script.writes.fetch_add(1, Ordering::SeqCst);
        let at = asked.saturating_sub(1).min(self.declared.len() - 1);
        Some(Values { declared: &self.declared[at], values: Vec::new() })
    }
}

fn owned(statements: &[&str]) -> Vec<String> {
    statements.iter().map(|&sql| sql.to_owned()).collect()
}

impl Handler for Scripted {
    fn access<'a>(&'a mut self, tx: &'a Tx, rule: Rule<'a>) -> Step<'a, bool> {
        let sql = match rule {
            Rule::Ordinary => &self.access,
            Rule::Replay(_) => &self.replay_access,
        };
        Box::pin(async move { Ok(tx.query_opt(sql.as_str(), &[]).await?.is_some()) })
    }

    fn write<'a>(&'a mut self, tx: &'a Tx, _reading: &'a Reading) -> Step<'a, Box<str>> {
        let attempt = self.writes.fetch_add(1, Ordering::SeqCst).min(self.attempts.len() - 1);
        let (statements, gate) = (&self.attempts[attempt], self.gate.take());
        Box::pin(async move {
            if let Some(gate) = gate {
                tokio::task::spawn_blocking(move || gate.pass()).await.unwrap();
            }
            let mut result = None;
            for sql in statements {
                result = tx.query(sql.as_str(), &[]).await?.into_iter().next();
            }
            let row = result.ok_or_else(|| Fault::from(Refusal::version_conflict(None)))?;
            Ok(row.try_get::<_, i64>(0)?.to_string().into())
        })
    }
}
