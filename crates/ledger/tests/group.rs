//! The writer: what waits together commits together, one call's failure is its own, and what is begun is ended.
//!
//! Every test holds the writer at a gate, puts its calls in the queue behind it, and lets it go: so they surely
//! share a group, and nothing waits for time to pass.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use counterfoil::core::{Reading, Refusal, Reply};
use counterfoil::sqlite::{Handler, Ledger, Options, Rule, Tx};
use counterfoil::{Fault, OpenError};
use counterfoil_testkit::library::{SetInterval, access, call};
use counterfoil_testkit::suite::Stage;
use counterfoil_testkit::{Answer, Database, Gate, Pending, Who, block_on, set_interval};

type Outcome = Result<Reply, Refusal>;

/// A ledger that counts its commits.
struct Counted {
    database: Database,
    ledger: Ledger,
    commits: Arc<AtomicUsize>,
}

impl Counted {
    fn open(options: Options) -> Self {
        let database = Database::fresh();
        database.execute(TABLES);
        let commits = Arc::new(AtomicUsize::new(0));
        let ledger = open(&database, options, &commits).unwrap();
        commits.store(0, Ordering::SeqCst);
        Self { database, ledger, commits }
    }

    fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// In the queue when this returns.
    fn queue(&self, handler: impl Handler, who: Who, ask: &counterfoil_testkit::Ask) -> Pending<Outcome> {
        let (ledger, call) = (self.ledger.clone(), Arc::new(call(who, ask)));
        Pending::start(async move { ledger.perform(call, handler).await })
    }

    /// A good call: row `id`, from version 1 to 2.
    fn good(&self, request_id: &str, id: i64) -> (Pending<Outcome>, Arc<AtomicUsize>) {
        let who = if id == 20 { Who::Carol } else { Who::Alice };
        let ask = set_interval(request_id, id, 1, 30);
        let handler = SetInterval::new(call(who, &ask));
        let writes = Arc::clone(&handler.writes);
        (self.queue(handler, who, &ask), writes)
    }

    /// The writer is busy until the gate is opened.
    fn hold(&self) -> Hold {
        let gate = Gate::default();
        let (ledger, at) = (self.ledger.clone(), gate.clone());
        let holder = Pending::start(async move {
            let pass = move |_: &Tx<'_>| {
                at.pass();
                Ok(())
            };
            ledger.write(pass).await
        });
        gate.arrived();
        Hold { gate, holder }
    }
}

#[must_use]
struct Hold {
    gate: Gate,
    holder: Pending<Result<(), Refusal>>,
}

impl Hold {
    fn release(self) {
        self.gate.open();
        self.holder.finish().unwrap();
    }
}

fn open(database: &Database, options: Options, commits: &Arc<AtomicUsize>) -> Result<Ledger, OpenError> {
    let commits = Arc::clone(commits);
    let prepare: counterfoil::sqlite::Prepare = Arc::new(move |connection| {
        let commits = Arc::clone(&commits);
        connection.commit_hook(Some(move || {
            commits.fetch_add(1, Ordering::SeqCst);
            false
        }))
    });
    Ledger::open(database.path(), Options { prepare: Some(prepare), ..options })
}

const TABLES: &str = "
  CREATE TABLE parent (id INTEGER PRIMARY KEY) STRICT;
  CREATE TABLE child (id INTEGER PRIMARY KEY,
                      parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED) STRICT;
  CREATE TABLE names (name TEXT NOT NULL UNIQUE) STRICT;
  INSERT INTO names VALUES ('taken');
  CREATE TABLE guarded (x INTEGER) STRICT;
  CREATE TRIGGER guard BEFORE INSERT ON guarded BEGIN SELECT RAISE(ROLLBACK, 'guarded'); END;
  CREATE TABLE numbers (n INTEGER) STRICT;";

/// A step of a handler as a plain function.
type Step = fn(&Tx<'_>) -> Result<(), Fault>;

/// A call that first changes row 2 as it should and then takes a bad step.
struct Bad {
    inner: SetInterval,
    step: Step,
    alone: bool,
}

impl Handler for Bad {
    fn access(&mut self, tx: &Tx<'_>, _rule: Rule<'_>) -> Result<bool, Fault> {
        access(tx, &self.inner.call)
    }

    fn write(&mut self, tx: &Tx<'_>, reading: &Reading) -> Result<Box<str>, Fault> {
        let result = self.inner.write(tx, reading)?;
        (self.step)(tx)?;
        Ok(result)
    }

    fn alone(&self) -> bool {
        self.alone
    }
}

impl Bad {
    fn new(step: Step, alone: bool) -> Self {
        Self { inner: SetInterval::new(call(Who::Alice, &set_interval("bad", 2, 1, 30))), step, alone }
    }
}

#[test]
fn calls_that_wait_together_commit_together() {
    let counted = Counted::open(Options::default());
    let hold = counted.hold();
    let calls = [("a", 1), ("b", 2), ("c", 20)].map(|(request_id, id)| counted.good(request_id, id).0);
    let again = counted.good("a", 1).0;
    assert!(calls.iter().all(Pending::waits), "nothing is answered before its commit");
    hold.release();
    for call in calls {
        assert!(!call.finish().unwrap().replayed);
    }
    assert!(again.finish().unwrap().replayed, "an identical call of the same group replays its neighbour");
    assert_eq!((counted.commits(), counted.database.receipts()), (2, 3), "the holder's commit and theirs");
}

#[test]
fn under_load_there_are_fewer_commits_than_calls() {
    let counted = Counted::open(Options::default());
    let first = counted.hold();
    let calls: Vec<_> = (0..500)
        .map(|n| {
            let ask = set_interval(&format!("edit-{n}"), 1, 1 + n, 30);
            counted.queue(SetInterval::new(call(Who::Alice, &ask)), Who::Alice, &ask)
        })
        .collect();
    first.release();
    assert!(calls.into_iter().all(|call| !call.finish().unwrap().replayed));
    assert_eq!(counted.database.receipts(), 500);
    assert_eq!(counted.commits(), 3, "the holder's, and 500 calls in groups of at most 256");
}

/// One way for a call to fail, and what becomes of its group.
struct Case {
    name: &'static str,
    step: Step,
    code: &'static str,
    /// How often its neighbours ran, before and after it: twice, if the group had to be taken apart after they did.
    runs: [usize; 2],
}

const CASES: [Case; 14] = [
    Case { name: "refuses", step: refuses, code: "version_conflict", runs: [1, 1] },
    Case { name: "meets a constraint", step: constraint, code: "constraint_violated", runs: [1, 1] },
    Case { name: "panics", step: panics, code: "internal", runs: [1, 1] },
    Case { name: "ON CONFLICT ROLLBACK", step: or_rollback, code: "constraint_violated", runs: [2, 1] },
    Case { name: "RAISE(ROLLBACK)", step: raise_rollback, code: "constraint_violated", runs: [2, 1] },
    Case { name: "deferred key fails at COMMIT", step: deferred, code: "constraint_violated", runs: [2, 2] },
    Case { name: "runs too long", step: endless, code: "busy", runs: [2, 1] },
    Case { name: "says COMMIT", step: commit, code: "internal", runs: [1, 1] },
    Case { name: "says COMMIT, prepared", step: commit_cached, code: "internal", runs: [1, 1] },
    Case { name: "says ROLLBACK", step: rollback, code: "internal", runs: [1, 1] },
    Case { name: "releases our savepoint", step: release, code: "internal", runs: [1, 1] },
    Case { name: "hides an ON CONFLICT ROLLBACK", step: hidden_rollback, code: "internal", runs: [2, 1] },
    Case { name: "writes its own receipt", step: receipts_by_hand, code: "internal", runs: [1, 1] },
    Case { name: "leaves a savepoint open", step: open_savepoint, code: "constraint_violated", runs: [1, 1] },
];

fn refuses(_: &Tx<'_>) -> Result<(), Fault> {
    Err(Refusal::version_conflict(None).into())
}

fn constraint(tx: &Tx<'_>) -> Result<(), Fault> {
    Ok(tx.execute("INSERT INTO names VALUES ('taken')", []).map(drop)?)
}

fn panics(_: &Tx<'_>) -> Result<(), Fault> {
    panic!("on purpose")
}

fn or_rollback(tx: &Tx<'_>) -> Result<(), Fault> {
    Ok(tx.execute("INSERT OR ROLLBACK INTO names VALUES ('taken')", []).map(drop)?)
}

fn raise_rollback(tx: &Tx<'_>) -> Result<(), Fault> {
    Ok(tx.execute("INSERT INTO guarded VALUES (1)", []).map(drop)?)
}

fn deferred(tx: &Tx<'_>) -> Result<(), Fault> {
    Ok(tx.execute("INSERT INTO child VALUES (1, 99)", []).map(drop)?)
}

fn endless(tx: &Tx<'_>) -> Result<(), Fault> {
    let sql = "INSERT INTO numbers WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
               SELECT i FROM n WHERE i < 0";
    Ok(tx.execute(sql, []).map(drop)?)
}

fn commit(tx: &Tx<'_>) -> Result<(), Fault> {
    Ok(tx.execute_batch("COMMIT")?)
}

fn commit_cached(tx: &Tx<'_>) -> Result<(), Fault> {
    Ok(tx.prepare_cached("COMMIT")?.execute([]).map(drop)?)
}

fn rollback(tx: &Tx<'_>) -> Result<(), Fault> {
    Ok(tx.execute_batch("ROLLBACK")?)
}

fn release(tx: &Tx<'_>) -> Result<(), Fault> {
    Ok(tx.execute_batch("RELEASE Counterfoil")?)
}

fn hidden_rollback(tx: &Tx<'_>) -> Result<(), Fault> {
    let _hidden = or_rollback(tx);
    Ok(())
}

/// The receipt of this very call, written by the handler: its own insertion then meets the primary key.
fn receipts_by_hand(tx: &Tx<'_>) -> Result<(), Fault> {
    let sql = "INSERT INTO counterfoil_receipts (workspace, issuer, subject, tool, request_id, state, committed_at) \
               VALUES ('team-a', 'local', 'alice', 'set_interval', 'bad', 'voided', 0)";
    Ok(tx.execute(sql, []).map(drop)?)
}

fn open_savepoint(tx: &Tx<'_>) -> Result<(), Fault> {
    tx.execute_batch("SAVEPOINT mine")?;
    constraint(tx)
}

/// Q2 and C9: the call in the middle is refused, its neighbours commit, and all that is left is theirs.
fn check(case: &Case, alone: bool) {
    let name = case.name;
    let counted = Counted::open(Options { statement_time: Duration::from_millis(50), ..Options::default() });
    let hold = counted.hold();
    let (before, runs_before) = counted.good("before", 1);
    let bad = counted.queue(Bad::new(case.step, alone), Who::Alice, &set_interval("bad", 2, 1, 30));
    let (after, runs_after) = counted.good("after", 20);
    hold.release();
    assert!(!before.finish().unwrap().replayed, "{name}");
    assert!(!after.finish().unwrap().replayed, "{name}");
    assert_eq!(Answer::from(bad.finish()).refused().code, case.code, "{name}");
    let runs = [runs_before, runs_after].map(|runs| runs.load(Ordering::SeqCst));
    let expected = if alone { [1, 1] } else { case.runs };
    assert_eq!(runs, expected, "{name}: what shared its group, and nothing else, ran again");
    for (id, version) in [(1, 2), (2, 1), (20, 2)] {
        assert_eq!(counted.database.row(id).unwrap().version, version, "{name}: row {id}");
    }
    assert_eq!(counted.database.receipts(), 2, "{name}");
    let retry = counted.good("bad", 2).0.finish().unwrap();
    assert!(!retry.replayed, "{name}: a refusal does not consume the id");
}

#[test]
fn one_call_fails_and_its_neighbours_commit() {
    CASES.iter().for_each(|case| check(case, false));
}

#[test]
fn a_call_that_wants_to_be_alone_is() {
    CASES.iter().for_each(|case| check(case, true));
}

/// After a rollback that a handler hides, what it goes on to write would commit by itself, without a receipt.
#[test]
fn nothing_is_written_after_a_hidden_rollback() {
    fn goes_on(tx: &Tx<'_>) -> Result<(), Fault> {
        let _hidden = or_rollback(tx);
        let _hidden_too = tx.execute("INSERT INTO names VALUES ('stray')", []);
        Ok(())
    }
    let database = Database::fresh();
    database.execute(TABLES);
    let ledger = Ledger::open(database.path(), Options::default()).unwrap();
    let bad = Bad::new(goes_on, false);
    let answer = block_on(ledger.perform(Arc::clone(&bad.inner.call), bad));
    assert_eq!(Answer::from(answer).refused().code, "internal");
    assert_eq!(database.count("SELECT count(*) FROM names"), 1);
    assert_eq!(database.receipts(), 0);
}

/// The limit is a statement's: a handler that takes its time between two of them does not starve the receipt's.
#[test]
fn each_step_has_a_time_limit_of_its_own() {
    let database = Database::fresh();
    let statement_time = Duration::from_millis(200);
    let ledger = Ledger::open(database.path(), Options { statement_time, ..Options::default() }).unwrap();
    let write = move |tx: &Tx<'_>| {
        tx.execute("UPDATE automations SET version = 2 WHERE id = 1", [])?;
        let begun = Instant::now();
        while begun.elapsed() <= statement_time {
            std::thread::yield_now();
        }
        Ok(())
    };
    // A trigger makes the receipt's own insertion long enough for SQLite to look at the clock.
    database.execute(
        "CREATE TRIGGER slow AFTER INSERT ON counterfoil_receipts BEGIN
           SELECT count(*) FROM automations a, automations b, automations c, automations d, automations e,
                                automations f, automations g, automations h, automations i; END",
    );
    let call = call(Who::Alice, &set_interval("edit", 1, 1, 30));
    assert!(!block_on(ledger.run(call, |_| Ok(true), write)).unwrap().replayed);
}

/// Commits come from one transaction each once a group was taken apart.
#[test]
fn a_group_taken_apart_commits_one_by_one() {
    let counted = Counted::open(Options::default());
    let hold = counted.hold();
    let good = [counted.good("a", 1).0, counted.good("b", 2).0];
    let (step, ask) = (deferred as Step, set_interval("bad", 20, 1, 30));
    let bad = Bad { inner: SetInterval::new(call(Who::Carol, &ask)), step, alone: false };
    let bad = counted.queue(bad, Who::Carol, &ask);
    hold.release();
    assert!(good.into_iter().all(|call| !call.finish().unwrap().replayed));
    assert_eq!(Answer::from(bad.finish()).refused().code, "constraint_violated");
    assert_eq!(counted.database.receipts(), 2);
}

/// C4: an attempt that is repeated answers only what the last attempt saw.
#[test]
fn a_repeated_attempt_answers_what_it_saw_itself() {
    let counted = Counted::open(Options::default());
    let hold = counted.hold();
    let (first, writes) = counted.good("edit-1", 1);
    // A refusal judged in the group on its neighbour's row; alone, it is judged again on the committed one.
    let (second, _) = counted.good("edit-2", 1);
    let bad = counted.queue(Bad::new(or_rollback, false), Who::Alice, &set_interval("bad", 2, 1, 30));
    let replay = counted.good("edit-1", 1).0;
    hold.release();
    let (first, replay) = (first.finish().unwrap(), replay.finish().unwrap());
    assert_eq!(writes.load(Ordering::SeqCst), 2);
    assert_eq!((first.replayed, replay.replayed), (false, true));
    assert_eq!((first.result, first.committed_at), (replay.result, replay.committed_at));
    assert_eq!(Answer::from(second.finish()).refused().code, "version_conflict");
    assert_eq!(Answer::from(bad.finish()).refused().code, "constraint_violated");
    assert_eq!(counted.database.row(1).unwrap().version, 2);
}

#[test]
fn a_full_queue_is_busy_and_says_for_how_long() {
    let counted = Counted::open(Options { queue: 2, ..Options::default() });
    let hold = counted.hold();
    let accepted = [counted.good("a", 1).0, counted.good("b", 2).0];
    let refusal = counted.good("c", 20).0.finish().unwrap_err();
    assert!(refusal.retry_after().is_some());
    assert_eq!(Answer::from(Err(refusal)).refused().code, "busy");
    hold.release();
    assert!(accepted.into_iter().all(|call| !call.finish().unwrap().replayed));
    assert!(!counted.good("c", 20).0.finish().unwrap().replayed, "and then there is room again");
}

#[test]
fn closing_does_what_was_accepted_and_refuses_the_rest() {
    let counted = Counted::open(Options::default());
    let hold = counted.hold();
    let accepted = [counted.good("a", 1).0, counted.good("b", 2).0];
    std::thread::scope(|scope| {
        scope.spawn(|| counted.ledger.close());
        // What comes before the closing is accepted, what comes after is refused: the first refusal tells.
        let refused = std::iter::repeat_with(|| counted.good("a", 1).0).find(|call| !call.waits()).unwrap();
        assert_eq!(Answer::from(refused.finish()).refused().code, "busy");
        hold.release();
    });
    assert!(accepted.into_iter().all(|call| !call.finish().unwrap().replayed));
    assert_eq!(counted.database.receipts(), 2);
}

#[test]
fn what_is_abandoned_before_it_began_never_runs() {
    let counted = Counted::open(Options::default());
    let hold = counted.hold();
    let ((gone, runs), (stays, _)) = (counted.good("gone", 1), counted.good("stays", 2));
    drop(gone);
    hold.release();
    assert!(!stays.finish().unwrap().replayed);
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert_eq!((counted.database.receipts(), counted.database.row(1).unwrap().version), (1, 1));
}

#[test]
fn what_is_abandoned_after_it_began_commits() {
    let counted = Counted::open(Options::default());
    let (gate, ask) = (Gate::default(), set_interval("gone", 1, 1, 30));
    let gone = counted.queue(SetInterval::new(call(Who::Alice, &ask)).waiting_at(&gate), Who::Alice, &ask);
    gate.arrived();
    drop(gone);
    gate.open();
    block_on(counted.ledger.write(|_| Ok(()))).unwrap();
    assert_eq!((counted.database.receipts(), counted.database.row(1).unwrap().version), (1, 2));
    assert!(counted.good("gone", 1).0.finish().unwrap().replayed);
}

/// The drop of a caller's closure runs on the writer, outside every guard.
#[test]
fn the_writer_survives_a_panic_that_is_nobodys() {
    struct Fuse;
    impl Drop for Fuse {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let counted = Counted::open(Options::default());
    let hold = counted.hold();
    let ledger = counted.ledger.clone();
    let bomb = Pending::start(async move {
        let fuse = Fuse;
        let work = move |_: &Tx<'_>| {
            let _holds = &fuse;
            Ok(())
        };
        ledger.write(work).await
    });
    let neighbour = counted.good("edit", 1).0;
    hold.release();
    let _answered_before_the_panic = bomb.finish();
    // Its answer was lost in the panic, or it ran in a later group: its id tells.
    if let Err(refusal) = neighbour.finish() {
        assert_eq!(Answer::from(Err(refusal)).refused().code, "outcome_unknown");
    }
    assert!(counted.good("edit", 1).0.finish().unwrap().replayed);
    assert!(!counted.good("next", 2).0.finish().unwrap().replayed, "the writer goes on");
}

/// The futures can be spawned, and the last clone may be dropped inside a runtime or by the writer itself.
#[test]
fn futures_are_send_and_the_last_clone_may_go_anywhere() {
    let counted = Counted::open(Options::default());
    let Counted { database, ledger, .. } = counted;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let call = call(Who::Alice, &set_interval("edit", 1, 1, 30));
    let handler = SetInterval::new(call);
    let reply = runtime
        .block_on(runtime.spawn(async move { ledger.perform(Arc::clone(&handler.call), handler).await }));
    assert!(!reply.unwrap().unwrap().replayed);
    assert_eq!(database.receipts(), 1);
}

/// Waits for the clock to pass an instant, and for nothing else.
fn until(instant: Instant) {
    while Instant::now() <= instant {
        std::thread::yield_now();
    }
}

#[test]
fn a_call_that_waited_too_long_is_refused_unbegun() {
    // Long enough that the holder surely begins in time.
    let queue_wait = Duration::from_secs(2);
    let counted = Counted::open(Options { queue_wait, ..Options::default() });
    let hold = counted.hold();
    let (late, writes) = counted.good("late", 1);
    until(Instant::now() + queue_wait);
    hold.release();
    let refused = Answer::from(late.finish()).refused();
    assert_eq!((refused.code.as_str(), refused.operation.as_deref()), ("busy", Some("unknown")));
    assert_eq!((writes.load(Ordering::SeqCst), counted.database.receipts()), (0, 0));
    let (again, _) = counted.good("late", 1);
    assert!(!Answer::from(again.finish()).done().replayed);
}

/// An access rule that takes its time, and tells on which thread it came to an end.
struct Slow {
    inner: SetInterval,
    ended: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Handler for Slow {
    fn access(&mut self, tx: &Tx<'_>, rule: Rule<'_>) -> Result<bool, Fault> {
        let count = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 5000000) \
                     SELECT count(*) FROM n";
        tx.query_row(count, [], |row| row.get::<_, i64>(0))?;
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.ended.lock().unwrap().push(thread);
        self.inner.access(tx, rule)
    }

    fn write(&mut self, tx: &Tx<'_>, reading: &Reading) -> Result<Box<str>, Fault> {
        self.inner.write(tx, reading)
    }
}

#[test]
fn a_slow_access_rule_stalls_nobody_else() {
    let statement_time = Duration::from_secs(120);
    let queue_wait = Duration::from_secs(120);
    let counted = Counted::open(Options { statement_time, queue_wait, ..Options::default() });
    let (first, _) = counted.good("edit", 1);
    first.finish().unwrap();
    let ended = Arc::new(std::sync::Mutex::new(Vec::new()));
    let ask = set_interval("edit", 1, 1, 30);
    let handler = Slow { inner: SetInterval::new(call(Who::Alice, &ask)), ended: Arc::clone(&ended) };
    let replayed = Answer::from(counted.queue(handler, Who::Alice, &ask).finish()).done().replayed;
    // On the caller's thread it was cut short; where it may take its time it came to an end.
    assert!(replayed);
    assert_eq!(*ended.lock().unwrap(), ["counterfoil-writer"]);
}

#[test]
fn a_neighbour_whose_caller_goes_before_its_savepoint_never_begins() {
    let counted = Counted::open(Options::default());
    let hold = counted.hold();
    let second = Arc::new(std::sync::Mutex::new(None));
    let leaves = Arc::clone(&second);
    let ledger = counted.ledger.clone();
    // The first of the group makes the caller of the second go.
    let first = Pending::start(async move {
        let work = move |_: &Tx<'_>| {
            drop(leaves.lock().unwrap().take());
            Ok(())
        };
        ledger.write(work).await
    });
    let (pending, writes) = counted.good("goes", 1);
    *second.lock().unwrap() = Some(pending);
    hold.release();
    first.finish().unwrap();
    assert_eq!((writes.load(Ordering::SeqCst), counted.database.receipts()), (0, 0));
}
