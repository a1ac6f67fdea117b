//! The reference behaviours R1 to R12, and C12, against the library on PostgreSQL: the closure form, the handler
//! form, the declared form (one statement), and the form in which the caller owns the transaction. C12 is spread over three ledgers, as three servers
//! would have them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::collections::HashSet;
use std::sync::{Arc, Barrier};

use counterfoil::Fault;
use counterfoil::core::{Call, Refusal, Reply};
use counterfoil::postgres::{Declared, Ledger, Options, Receipts, Turn, commit};
use counterfoil::tokio_postgres::{Client, Transaction};
use counterfoil_testkit::library::admit;
use counterfoil_testkit::postgres::library::{SetInterval, Single, access, declaration, write};
use counterfoil_testkit::postgres::{Database, runtime};
use counterfoil_testkit::suite::{Caller, REFERENCE, Stage, Subject, hold};
use counterfoil_testkit::{Answer, Ask, Gate, Who, set_interval};
use tokio::runtime::Runtime;

/// How the library is used.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// [`Ledger::run`].
    Closures,
    /// [`Ledger::perform`].
    Handler,
    /// [`Ledger::perform`] of a handler whose write is declared.
    Declared,
    /// [`Receipts::begin_tx`], on a connection of the caller's.
    Transaction,
}

struct Library {
    form: Form,
    ledgers: Vec<Ledger>,
    declared: Arc<Declared>,
    runtime: Runtime,
    database: Database,
}

impl Library {
    fn fresh(form: Form) -> Self {
        let (database, runtime) = (Database::fresh(), runtime());
        let open = |_| runtime.block_on(Ledger::open(database.config(), Options::default())).unwrap();
        let ledgers: Vec<_> = (0..3).map(open).collect();
        let declared = Arc::new(runtime.block_on(ledgers[0].declare(&declaration())).unwrap());
        Self { form, ledgers, declared, runtime, database }
    }

    fn caller(&self, who: Who, server: usize) -> LibraryCaller<'_> {
        let connection = self.runtime.block_on(self.database.connect());
        LibraryCaller { library: self, ledger: &self.ledgers[server % self.ledgers.len()], who, connection }
    }

    /// Waits until a session of the database waits for a lock.
    async fn until_blocked(&self) {
        let sql = "SELECT count(*) FROM pg_sleep(0.001), pg_stat_activity \
                   WHERE datname = current_database() AND wait_event_type = 'Lock'";
        let client = self.database.connect().await;
        while client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
    }
}

impl Subject for Library {
    fn connect(&self, who: Who) -> Box<dyn Caller + '_> {
        Box::new(self.caller(who, 0))
    }

    fn stage(&self) -> &dyn Stage {
        &self.database
    }
}

struct LibraryCaller<'a> {
    library: &'a Library,
    ledger: &'a Ledger,
    who: Who,
    connection: Client,
}

impl Caller for LibraryCaller<'_> {
    fn call(&mut self, ask: &Ask) -> Answer {
        let (ledger, connection) = (self.ledger, &mut self.connection);
        let answer = admit(self.who, ask).and_then(|call| {
            self.library.runtime.block_on(async {
                match self.library.form {
                    Form::Closures => run(ledger, call).await,
                    Form::Handler => perform(ledger, call).await,
                    Form::Declared => declared(ledger, call, &self.library.declared).await,
                    Form::Transaction => in_transaction(ledger.receipts(), connection, &call).await,
                }
            })
        });
        Answer::from(answer)
    }

    /// The future is dropped while its write is under way; what is begun commits.
    fn lose(mut self: Box<Self>, ask: &Ask) {
        match self.library.form {
            Form::Transaction => return drop(self.call(ask).done()),
            Form::Declared => return self.lose_declared(ask),
            Form::Closures | Form::Handler => {}
        }
        let gate = Gate::default();
        let handler = SetInterval::new(admit(self.who, ask).unwrap()).waiting_at(&gate);
        let (handler, end) = handler.telling_its_end();
        let ledger = self.ledger.clone();
        let call = self
            .library
            .runtime
            .spawn(async move { ledger.perform(Arc::clone(&handler.call), handler).await });
        gate.arrived();
        call.abort();
        gate.open();
        let _dropped = self.library.runtime.block_on(end);
    }
}

impl LibraryCaller<'_> {
    /// As `lose`; the write is one with its commit, and waits for a row's lock.
    fn lose_declared(&self, ask: &Ask) {
        let handler = Single::new(admit(self.who, ask).unwrap(), &self.library.declared);
        let (handler, end) = handler.telling_its_end();
        let call = Arc::clone(&handler.steps.call);
        let ledger = self.ledger.clone();
        self.library.runtime.block_on(async {
            self.connection.batch_execute("BEGIN; SELECT 1 FROM automations FOR UPDATE").await.unwrap();
            let call = tokio::spawn(async move { ledger.perform(call, handler).await });
            self.library.until_blocked().await;
            call.abort();
            self.connection.batch_execute("COMMIT").await.unwrap();
            let _dropped = end.await;
        });
    }
}

async fn declared(ledger: &Ledger, call: Call, declared: &Arc<Declared>) -> Result<Reply, Refusal> {
    let handler = Single::new(call, declared);
    ledger.perform(Arc::clone(&handler.steps.call), handler).await
}

async fn run(ledger: &Ledger, call: Call) -> Result<Reply, Refusal> {
    let (asking, writing) = (call.clone(), call.clone());
    ledger
        .run(
            call,
            move |tx| {
                let call = asking.clone();
                Box::pin(async move { access(&**tx, &call).await })
            },
            move |tx| {
                let call = writing.clone();
                Box::pin(async move { write(&**tx, &call).await })
            },
        )
        .await
}

async fn perform(ledger: &Ledger, call: Call) -> Result<Reply, Refusal> {
    let handler = SetInterval::new(call);
    ledger.perform(Arc::clone(&handler.call), handler).await
}

/// What a program with transactions of its own writes once.
async fn in_transaction(receipts: &Receipts, client: &mut Client, call: &Call) -> Result<Reply, Refusal> {
    let tried = attempt(receipts, client, call).await;
    let answer = match tried {
        Ok(reply) => return Ok(reply),
        Err(fault) => judge(receipts, client, call, fault).await,
    };
    answer.map_err(Fault::into_refusal)
}

async fn attempt(receipts: &Receipts, client: &mut Client, call: &Call) -> Result<Reply, Fault> {
    // Dropped, it is rolled back.
    let tx = client.transaction().await?;
    if !access(&tx, call).await? {
        return Err(Refusal::resource_unavailable().into());
    }
    let reply = in_turn(receipts, &tx, call).await?;
    commit(tx).await?;
    Ok(reply)
}

async fn in_turn(receipts: &Receipts, tx: &Transaction<'_>, call: &Call) -> Result<Reply, Fault> {
    match receipts.begin_tx(tx, call).await? {
        Turn::Replay(reply) => Ok(reply),
        Turn::Fresh(permit) => match write(tx, call).await {
            Ok(row) => permit.record(&row).await,
            Err(Fault::Refused(refusal)) => permit.refuse(refusal).await,
            Err(fault) => Err(fault),
        },
    }
}

async fn judge(receipts: &Receipts, client: &mut Client, call: &Call, fault: Fault) -> Result<Reply, Fault> {
    let tx = client.transaction().await?;
    if !access(&tx, call).await? {
        return Err(Refusal::resource_unavailable().into());
    }
    receipts.judge(&tx, call, fault).await
}

fn check(form: Form) {
    hold(&REFERENCE, 200, || Box::new(Library::fresh(form)));
}

#[test]
fn closures_behave_as_the_reference() {
    check(Form::Closures);
}

#[test]
fn handlers_behave_as_the_reference() {
    check(Form::Handler);
}

#[test]
fn declared_tools_behave_as_the_reference() {
    check(Form::Declared);
}

#[test]
fn transactions_of_the_caller_behave_as_the_reference() {
    check(Form::Transaction);
}

/// `asks`, all at once, each on a thread of its own, spread over three ledgers.
fn at_once(form: Form, asks: &[Ask]) -> (Library, Vec<Answer>) {
    let library = Library::fresh(form);
    let start = Barrier::new(asks.len());
    let answers = std::thread::scope(|scope| {
        let (library, start) = (&library, &start);
        let one = move |server, ask: &Ask| {
            let mut caller = library.caller(Who::Alice, server);
            start.wait();
            caller.call(ask)
        };
        let threads: Vec<_> =
            asks.iter().enumerate().map(|(server, ask)| scope.spawn(move || one(server, ask))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (library, answers)
}

/// C12: a hundred identical calls at once are one fresh reply and ninety-nine replays of the same bytes.
#[test]
fn a_hundred_identical_calls_are_one() {
    for form in [Form::Closures, Form::Handler, Form::Declared, Form::Transaction] {
        let (library, answers) = at_once(form, &vec![set_interval("edit-42", 1, 1, 30); 100]);
        let done: Vec<_> = answers.into_iter().map(Answer::done).collect();
        assert_eq!(done.iter().filter(|done| !done.replayed).count(), 1, "{form:?}");
        let bytes: HashSet<_> = done.into_iter().map(|done| (done.result, done.committed_at)).collect();
        assert_eq!(bytes.len(), 1, "{form:?}: {bytes:?}");
        assert_eq!((library.database.receipts(), library.stage().row(1).unwrap().version), (1, 2));
    }
}

/// C12: of a hundred payloads under one id exactly one wins; the others are told that the id is taken.
#[test]
fn of_a_hundred_payloads_under_one_id_one_wins() {
    for form in [Form::Closures, Form::Handler, Form::Declared, Form::Transaction] {
        let asks: Vec<_> = (0..100).map(|minutes| set_interval("edit-42", 1, 1, 5 + minutes)).collect();
        let (library, answers) = at_once(form, &asks);
        let (won, lost): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| matches!(answer, Answer::Done(_)));
        assert_eq!(won.len(), 1, "{form:?}: {won:?}");
        assert!(lost.into_iter().all(|answer| answer.refused().code == "request_id_reused"), "{form:?}");
        assert_eq!((library.database.receipts(), library.stage().row(1).unwrap().version), (1, 2));
    }
}
