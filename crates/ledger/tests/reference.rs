//! The reference behaviours R1 to R12, and C12, against the library: the closure form, the handler form, and the
//! form in which the caller owns the transaction.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::collections::HashSet;
use std::sync::{Arc, Barrier};

use counterfoil::Fault;
use counterfoil::core::{Call, Refusal, Reply};
use counterfoil::sqlite::{Ledger, Options, Turn};
use counterfoil_testkit::library::{SetInterval, access, admit, write};
use counterfoil_testkit::suite::{Caller, REFERENCE, Stage, Subject, hold};
use counterfoil_testkit::{Answer, Ask, Database, Gate, Pending, Who, block_on, set_interval};
use rusqlite::{Connection, TransactionBehavior};

/// How the library is used.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// [`Ledger::run`].
    Closures,
    /// [`Ledger::perform`].
    Handler,
    /// [`Ledger::begin_tx`], on a connection of the caller's.
    Transaction,
}

struct Library {
    form: Form,
    ledger: Ledger,
    database: Database,
}

impl Library {
    fn fresh(form: Form) -> Self {
        let database = Database::fresh();
        let ledger = Ledger::open(database.path(), Options::default()).unwrap();
        Self { form, ledger, database }
    }
}

impl Subject for Library {
    fn connect(&self, who: Who) -> Box<dyn Caller + '_> {
        Box::new(LibraryCaller { library: self, who, connection: self.database.connect() })
    }

    fn stage(&self) -> &dyn Stage {
        &self.database
    }
}

struct LibraryCaller<'a> {
    library: &'a Library,
    who: Who,
    connection: Connection,
}

impl Caller for LibraryCaller<'_> {
    fn call(&mut self, ask: &Ask) -> Answer {
        let ledger = &self.library.ledger;
        let answer = admit(self.who, ask).and_then(|call| match self.library.form {
            Form::Closures => run(ledger, call),
            Form::Handler => perform(ledger, call),
            Form::Transaction => in_transaction(ledger, &mut self.connection, &call),
        });
        Answer::from(answer)
    }

    /// The future is dropped while its write is under way; what is begun commits.
    fn lose(mut self: Box<Self>, ask: &Ask) {
        if matches!(self.library.form, Form::Transaction) {
            return drop(self.call(ask).done());
        }
        let (ledger, gate) = (self.library.ledger.clone(), Gate::default());
        let handler = SetInterval::new(admit(self.who, ask).unwrap()).waiting_at(&gate);
        let call = {
            let ledger = ledger.clone();
            Pending::start(async move { ledger.perform(Arc::clone(&handler.call), handler).await })
        };
        gate.arrived();
        drop(call);
        gate.open();
        // One writer, in order: when it has done this, it has done that.
        block_on(ledger.write(|_| Ok(()))).unwrap();
    }
}

fn run(ledger: &Ledger, call: Call) -> Result<Reply, Refusal> {
    let (asking, writing) = (call.clone(), call.clone());
    block_on(ledger.run(call, move |tx| access(tx, &asking), move |tx| write(tx, &writing)))
}

fn perform(ledger: &Ledger, call: Call) -> Result<Reply, Refusal> {
    let handler = SetInterval::new(call);
    block_on(ledger.perform(Arc::clone(&handler.call), handler))
}

fn in_transaction(ledger: &Ledger, connection: &mut Connection, call: &Call) -> Result<Reply, Refusal> {
    let mut attempt = || -> Result<Reply, Fault> {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !access(&tx, call)? {
            return Err(Refusal::resource_unavailable().into());
        }
        let reply = match ledger.begin_tx(&tx, call)? {
            Turn::Replay(reply) => reply,
            Turn::Fresh(permit) => permit.record(&write(&tx, call)?)?,
        };
        tx.commit()?;
        Ok(reply)
    };
    attempt().map_err(Fault::into_refusal)
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
fn transactions_of_the_caller_behave_as_the_reference() {
    check(Form::Transaction);
}

/// `asks`, all at once, each on a thread and a connection of its own.
fn at_once(form: Form, asks: &[Ask]) -> (Library, Vec<Answer>) {
    let library = Library::fresh(form);
    let start = Barrier::new(asks.len());
    let answers = std::thread::scope(|scope| {
        let one = |ask: &Ask| {
            let mut caller = library.connect(Who::Alice);
            start.wait();
            caller.call(ask)
        };
        let threads: Vec<_> = asks.iter().map(|ask| scope.spawn(move || one(ask))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (library, answers)
}

/// C12: a hundred identical calls at once are one fresh reply and ninety-nine replays of the same bytes.
#[test]
fn a_hundred_identical_calls_are_one() {
    for form in [Form::Closures, Form::Handler, Form::Transaction] {
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
    for form in [Form::Closures, Form::Handler, Form::Transaction] {
        let asks: Vec<_> = (0..100).map(|minutes| set_interval("edit-42", 1, 1, 5 + minutes)).collect();
        let (library, answers) = at_once(form, &asks);
        let (won, lost): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| matches!(answer, Answer::Done(_)));
        assert_eq!(won.len(), 1, "{form:?}: {won:?}");
        assert!(lost.into_iter().all(|answer| answer.refused().code == "request_id_reused"), "{form:?}");
        assert_eq!((library.database.receipts(), library.stage().row(1).unwrap().version), (1, 2));
    }
}
