//! PostgreSQL, when it goes wrong: acknowledgements lost on a cut wire (C3), attempts repeated inside (C4),
//! statements that fail late (C5, C6), standbys that were not waited for, locks, limits, and time (T1).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use counterfoil::Key;
use counterfoil::core::{Call, Refusal, Windows};
use counterfoil::postgres::{Handler, Ledger, Options, Rule, Step, Tx};
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::library::SetInterval;
use counterfoil_testkit::postgres::{Cluster, Cut, Database, Proxy, Scripted, World};
use counterfoil_testkit::suite::Stage;
use counterfoil_testkit::{Answer, Gate, Who, set_interval};
use futures_util::FutureExt as _;

const RAISE: &str = "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version";

fn alice(request_id: &str) -> Call {
    call(Who::Alice, &set_interval(request_id, 1, 1, 30))
}

/// A ledger behind a wire that is cut, and one behind a wire that is not.
fn cut(cut: Cut, options: Options) -> (World, Proxy, Ledger) {
    let world = World::fresh("", Options::default());
    let (proxy, ledger) = world.wait(async {
        let proxy = Proxy::start(Cluster::shared().port(), cut, 1).await;
        let ledger = Ledger::open(proxy.through(&world.database.config()), options).await.unwrap();
        (proxy, ledger)
    });
    (world, proxy, ledger)
}

/// C3: wherever the wire is cut, the answer is definite, there is one effect and one receipt, and the same call again
/// is a replay of it. The naive forms: to look for the receipt and conclude (see
/// `a_try_that_is_still_committing_is_waited_for`), or to write again without one (the second UPDATE below).
#[test]
fn a_lost_acknowledgement_is_found_out() {
    // Where, and whether what is answered was written by the try that was cut.
    let cuts = [
        (Cut::BeforeReceipt, Some(false)),
        (Cut::BeforeCommit, Some(false)),
        (Cut::DuringCommit, None),
        (Cut::BeforeAnswer, Some(true)),
        (Cut::AfterAnswer, Some(false)),
    ];
    for (place, committed) in cuts {
        let (world, proxy, ledger) = cut(place, Options::default());
        let handler = SetInterval::new(alice("edit-42"));
        let answer = world.wait(ledger.perform(Arc::clone(&handler.call), handler));
        let done = Answer::from(answer).done();
        assert_eq!(proxy.left(), 0, "{place:?}");
        assert!(committed.is_none_or(|committed| done.replayed == committed), "{place:?}: {done:?}");
        assert_eq!((world.database.receipts(), world.database.row(1).unwrap().version), (1, 2), "{place:?}");
        let again = SetInterval::new(alice("edit-42"));
        let again = Answer::from(world.wait(ledger.perform(Arc::clone(&again.call), again))).done();
        assert_eq!((again.replayed, again.committed_at), (true, done.committed_at), "{place:?}");
    }
}

#[test]
fn a_lost_acknowledgement_of_a_write_that_nothing_guards_writes_once() {
    for place in [Cut::BeforeCommit, Cut::DuringCommit, Cut::BeforeAnswer, Cut::AfterAnswer] {
        let (world, _proxy, ledger) = cut(place, Options::default());
        let answer = world.wait(ledger.perform(Arc::new(alice("edit-42")), Scripted::new(&[RAISE])));
        assert_eq!(Answer::from(answer).done().result, "2", "{place:?}");
        assert_eq!((world.database.receipts(), world.database.row(1).unwrap().version), (1, 2), "{place:?}");
    }
}

/// COMMIT waits, for as long as a lock is held elsewhere.
const SLOW_COMMIT: &str = "
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON automations DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION slow()";

/// Begins a call whose COMMIT is on its way, and whose wire is cut. What `after` does happens while the old backend
/// is still at it, with the answer not yet known; then the old COMMIT goes on, or is killed.
fn still_committing(
    script: &Scripted,
    call_wait: Duration,
    kill: bool,
    after: impl FnOnce(&World),
) -> (World, Answer) {
    let patient = Options { lock_wait: Duration::from_secs(60), call_wait, ..Options::default() };
    let (world, _proxy, ledger) = cut(Cut::DuringCommit, patient);
    world.database.execute(SLOW_COMMIT);
    let holder = world.wait(async {
        let holder = world.database.connect().await;
        holder.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
        holder
    });
    let (call, script) = (Arc::new(alice("edit-42")), script.clone());
    let answer = world.runtime.spawn(async move { ledger.perform(call, script).await });
    // The old backend in its COMMIT, and the new try behind it.
    world.until_blocked(2);
    after(&world);
    if kill {
        let old = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND wait_event = 'advisory'";
        world.wait(holder.batch_execute(old)).unwrap();
    }
    if call_wait > Duration::from_secs(10) {
        world.wait(holder.batch_execute("SELECT pg_advisory_unlock(1)")).unwrap();
    }
    let answer = Answer::from(world.wait(answer).unwrap());
    world.wait(holder.batch_execute("SELECT pg_advisory_unlock_all()")).unwrap();
    (world, answer)
}

const LONG: Duration = Duration::from_secs(60);

/// C3: the old backend is still at it. A look-up finds nothing, and whoever concludes from that is wrong.
#[test]
fn a_try_that_is_still_committing_is_waited_for() {
    let nothing = |world: &World| {
        let call = alice("edit-42");
        assert_eq!(world.wait(world.ledger.find_record(Key::from(&call))).unwrap(), None);
    };
    let update = Scripted::new(&[RAISE]);
    let (world, answer) = still_committing(&update, LONG, false, nothing);
    let done = answer.done();
    assert_eq!((done.replayed, done.result.as_str()), (true, "2"));
    assert_eq!((world.database.receipts(), world.database.row(1).unwrap().version), (1, 2));
}

#[test]
fn a_try_that_dies_while_committing_is_run_again() {
    let (world, answer) = still_committing(&Scripted::new(&[RAISE]), LONG, true, |_| {});
    let done = answer.done();
    assert_eq!((done.replayed, done.result.as_str()), (false, "2"));
    assert_eq!((world.database.receipts(), world.database.row(1).unwrap().version), (1, 2));
}

/// The new try meets a refusal without waiting for anybody. It is no answer until the old try is known to be over.
#[test]
fn a_refusal_waits_for_the_try_that_is_still_committing() {
    let refused = "SELECT 1::bigint WHERE false";
    for kill in [false, true] {
        let script = Scripted::new(&[refused]).at_first(&[RAISE]);
        let (world, answer) = still_committing(&script, LONG, kill, |_| {});
        match answer {
            Answer::Done(done) => assert!(done.replayed && !kill, "{done:?}"),
            Answer::Refused(refused) => assert!(refused.code == "version_conflict" && kill, "{refused:?}"),
        }
        let committed = i64::from(!kill);
        assert_eq!(world.database.receipts(), committed);
        assert_eq!(world.database.row(1).unwrap().version, 1 + committed);
    }
}

/// Past its limit the wait ends in "unknown", and the same call again finds out.
#[test]
fn a_wait_without_end_is_answered_unknown() {
    let script = Scripted::new(&[RAISE]);
    let (world, answer) = still_committing(&script, Duration::from_secs(2), false, |_| {});
    let refused = answer.refused();
    assert_eq!((refused.code.as_str(), refused.retry.as_str()), ("outcome_unknown", "same_id"));
    let done = world.call(alice("edit-42"), script).done();
    assert_eq!((done.replayed, done.result.as_str()), (true, "2"));
    assert_eq!((world.database.receipts(), world.database.row(1).unwrap().version), (1, 2));
}

/// A synchronous standby that never answers, and an operator who cancels the wait: the commit is on the primary
/// alone, and PostgreSQL says so in a warning beside a success. That warning is a lost acknowledgement: nothing is
/// answered from what only the primary has, neither by this call nor by a replay on a new connection.
#[test]
fn a_commit_that_no_standby_has_is_not_acknowledged() {
    let database = Database::fresh();
    let prepared = World::over(database, Options::default());
    prepared.database.set("synchronous_commit = 'on'");
    let short = Options { create: false, call_wait: Duration::from_secs(3), ..Options::default() };
    let strict = prepared.wait(Ledger::open(prepared.database.config(), short)).unwrap();
    let writing = {
        let ledger = strict.clone();
        let script = Scripted::new(&[RAISE]);
        prepared.runtime.spawn(async move { ledger.perform(Arc::new(alice("edit-42")), script).await })
    };
    prepared.wait(async {
        let client = prepared.database.connect().await;
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
                      WHERE datname = current_database() AND wait_event = 'SyncRep'";
        while client.query(cancel, &[]).await.unwrap().is_empty() {}
    });
    let refused = Answer::from(prepared.wait(writing).unwrap()).refused();
    assert_eq!(refused.code, "outcome_unknown");
    // It is there, but on this machine alone.
    assert_eq!((prepared.database.receipts(), prepared.database.row(1).unwrap().version), (1, 2));
    let again = prepared.wait(strict.perform(Arc::new(alice("edit-42")), Scripted::new(&[RAISE])));
    assert_eq!(Answer::from(again).refused().code, "outcome_unknown");
    // For connections that are told not to wait for the standby, what is here is all there is.
    prepared.database.set("synchronous_commit = 'local'");
    let local = prepared.wait(Ledger::open(prepared.database.config(), Options::default())).unwrap();
    let done = prepared.wait(local.perform(Arc::new(alice("edit-42")), Scripted::new(&[RAISE])));
    assert_eq!(Answer::from(done).done().result, "2");
}

/// C4: undone by the database for its own reasons, repeated, and the answer is of the successful attempt alone. The
/// database's default is SERIALIZABLE, and not ours.
#[test]
fn serialization_failures_are_repeated_inside() {
    let database = Database::fresh();
    database.set("default_transaction_isolation = 'serializable'");
    database.execute(
        "CREATE FUNCTION fails(code text) RETURNS bigint LANGUAGE plpgsql
         AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = code; END $$",
    );
    let world = World::over(database, Options { tries: 4, ..Options::default() });
    let once = "UPDATE automations SET interval_minutes = 55 WHERE id = 1";
    let level = "SELECT 7::bigint WHERE current_setting('transaction_isolation') = 'read committed'";
    for (index, code) in ["40001", "40P01"].into_iter().enumerate() {
        let fails = format!("SELECT fails('{code}')");
        let twice = Scripted::new(&[level]).at_first(&[once, &fails]).at_first(&[&fails]);
        let done = world.call(alice(&format!("edit-{index}")), twice.clone()).done();
        assert_eq!((done.result.as_str(), done.replayed, twice.count()), ("7", false, 3), "{code}");
        let always = Scripted::new(&[&fails]);
        let refused = world.call(alice(&format!("never-{index}")), always.clone()).refused();
        assert_eq!((refused.code.as_str(), always.count()), ("busy", 4), "{code}");
    }
    assert_eq!((world.database.row(1).unwrap().interval, world.database.receipts()), (15, 2));
}

/// Two calls that lock two rows in opposite order: one is undone, repeated, and both commit.
#[test]
fn deadlocks_are_repeated_inside() {
    let database = Database::fresh();
    database.set("deadlock_timeout = '10ms'");
    let world = World::over(database, Options::default());
    let raise =
        |id: i64| format!("UPDATE automations SET version = version + 1 WHERE id = {id} RETURNING version");
    for round in 0..20 {
        let orders = [[raise(1), "SELECT pg_sleep(0.02)".into(), raise(2)], [raise(2), raise(1), raise(1)]];
        let calls = [0, 1].map(|order| {
            let statements = orders[order].each_ref().map(String::as_str);
            world.start(alice(&format!("edit-{round}-{order}")), Scripted::new(&statements))
        });
        calls.into_iter().for_each(|call| assert!(!world.finish(call).done().replayed));
    }
    assert_eq!(world.database.row(1).unwrap().version, 1 + 60);
    assert_eq!(world.database.row(2).unwrap().version, 1 + 40);
}

/// The connection is lost before COMMIT was sent: nothing was written, and the call is run on a new one.
#[test]
fn a_backend_that_is_killed_is_replaced() {
    let world = World::fresh("", Options::default());
    let dies = "SELECT pg_terminate_backend(pg_backend_pid())::int::bigint";
    let script = Scripted::new(&[RAISE]).at_first(&[RAISE, dies]);
    let done = world.call(alice("edit-42"), script.clone()).done();
    assert_eq!((done.result.as_str(), done.replayed, script.count()), ("2", false, 2));
    assert_eq!(world.database.row(1).unwrap().version, 2);
}

/// How a statement fails, and what is answered: never with what the row holds.
struct Failing {
    name: &'static str,
    schema: &'static str,
    write: &'static [&'static str],
    code: &'static str,
    says: &'static str,
}

const FAILING: [Failing; 9] = [
    Failing {
        name: "C5: a unique key, while rows are being returned",
        schema: "CREATE TABLE orders (id bigint, name text CONSTRAINT one_order UNIQUE);
                 INSERT INTO orders VALUES (1, 'secret')",
        write: &[RAISE, "INSERT INTO orders VALUES (2, 'milk'), (3, 'secret') RETURNING id"],
        code: "constraint_violated",
        says: "one_order",
    },
    Failing {
        name: "C6: a deferred constraint, at COMMIT",
        schema: "CREATE TABLE lists (id bigint PRIMARY KEY);
                 CREATE TABLE items (list bigint CONSTRAINT in_a_list REFERENCES lists DEFERRABLE INITIALLY DEFERRED)",
        write: &[RAISE, "INSERT INTO items VALUES (271828) RETURNING list"],
        code: "constraint_violated",
        says: "in_a_list",
    },
    Failing {
        name: "C6: a trigger after the receipt's insertion",
        schema: "",
        write: &["CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'secret'; END $$",
                 "CREATE TRIGGER late AFTER INSERT ON counterfoil_receipts FOR EACH ROW EXECUTE FUNCTION late()", RAISE],
        code: "internal",
        says: "",
    },
    Failing {
        name: "a column that must not be null",
        schema: "",
        write: &[RAISE, "UPDATE automations SET workspace_id = NULL WHERE id = 2 RETURNING id"],
        code: "constraint_violated",
        says: "workspace_id",
    },
    Failing {
        name: "a trigger's own words",
        schema: "",
        write: &[RAISE, "DO $$ BEGIN RAISE EXCEPTION 'not on a Sunday' USING DETAIL = 'secret'; END $$"],
        code: "constraint_violated",
        says: "not on a Sunday",
    },
    Failing {
        name: "a value that does not fit",
        schema: "",
        write: &[RAISE, "SELECT 'secret'::bigint"],
        code: "invalid_arguments",
        says: "",
    },
    Failing {
        name: "a permission",
        schema: "",
        write: &[RAISE, "DO $$ BEGIN RAISE EXCEPTION 'secret' USING ERRCODE = '42501'; END $$"],
        code: "resource_unavailable",
        says: "",
    },
    Failing { name: "a table that is not there", schema: "", write: &[RAISE, "SELECT * FROM secret"], code: "internal", says: "" },
    Failing {
        name: "too long a statement",
        schema: "",
        write: &[RAISE, "SELECT pg_sleep(60)"],
        code: "busy",
        says: "",
    },
];

#[test]
fn a_statement_that_fails_leaves_nothing_and_tells_nothing() {
    for case in FAILING {
        let options = Options { statement_time: Duration::from_millis(300), ..Options::default() };
        let world = World::fresh(case.schema, options);
        let refused = world.call(alice("edit-42"), Scripted::new(case.write)).refused();
        assert_eq!(refused.code, case.code, "{}: {}", case.name, refused.error);
        let told = refused.error.to_string();
        assert!(told.contains(case.says) && !told.contains("secret") && !told.contains("271828"), "{told}");
        let left = (world.database.receipts(), world.database.row(1).unwrap().version);
        assert_eq!(left, (0, 1), "{}", case.name);
        assert!(!world.call(alice("edit-42"), Scripted::new(&[RAISE])).done().replayed, "{}", case.name);
    }
}

/// Locks and connections that are not to be had are `busy`, and the same call again is as good as new.
#[test]
fn waiting_is_bounded() {
    let lock_wait = Duration::from_millis(50);
    let world = World::fresh("", Options { lock_wait, ..Options::default() });
    let holder = world.wait(world.database.connect());
    world
        .wait(holder.batch_execute("BEGIN; UPDATE automations SET interval_minutes = 20 WHERE id = 1"))
        .unwrap();
    let refused = world.call(alice("edit-42"), Scripted::new(&[RAISE])).refused();
    assert_eq!((refused.code.as_str(), refused.operation.as_deref()), ("busy", Some("unknown")));
    world.wait(holder.batch_execute("COMMIT")).unwrap();
    assert!(!world.call(alice("edit-42"), Scripted::new(&[RAISE])).done().replayed);

    let connect_wait = Duration::from_millis(50);
    for queue in [0, 1] {
        let world = World::fresh("", Options { pool: 1, queue, connect_wait, ..Options::default() });
        let gate = Gate::default();
        let first = match queue {
            0 => None,
            _ => Some(world.start(alice("edit-1"), Scripted::new(&[RAISE]).waiting_at(&gate))),
        };
        first.iter().for_each(|_| gate.arrived());
        assert_eq!(world.call(alice("edit-2"), Scripted::new(&[RAISE])).refused().code, "busy");
        gate.open();
        first.into_iter().for_each(|first| assert!(!world.finish(first).done().replayed));
    }
}

/// Step 6: what has not begun is dropped with its caller.
#[test]
fn a_call_that_waits_for_a_connection_goes_with_its_caller() {
    let world = World::fresh("", Options { pool: 1, ..Options::default() });
    let gate = Gate::default();
    let first = world.start(alice("edit-1"), Scripted::new(&[RAISE]).waiting_at(&gate));
    gate.arrived();
    let gone = world.wait(async {
        let call = Arc::new(alice("edit-2"));
        world.ledger.perform(call, Scripted::new(&[RAISE])).now_or_never()
    });
    assert!(gone.is_none(), "{gone:?}");
    gate.open();
    assert!(!world.finish(first).done().replayed);
    // Whoever waits for a connection gets it in turn.
    assert_eq!(world.call(alice("edit-3"), Scripted::new(&[RAISE])).done().result, "3");
    assert_eq!(world.database.receipts(), 2);
}

/// T1: by the database's clock, one second before and after the window closes.
#[test]
fn a_result_is_replayed_for_as_long_as_it_is_kept() {
    let world = World::fresh("", Options::default());
    let _fresh = world.call(alice("edit-42"), Scripted::new(&[RAISE])).done();
    let keep = Windows::default().keep.as_secs();
    for (age, code) in [(keep - 10, "done"), (keep + 1, "request_id_expired")] {
        world.database.execute(&format!(
            "UPDATE counterfoil_receipts SET committed_at = statement_timestamp() - interval '{age} seconds'"
        ));
        match world.call(alice("edit-42"), Scripted::new(&[RAISE])) {
            Answer::Done(done) => assert_eq!((done.replayed, code), (true, "done")),
            Answer::Refused(refused) => {
                assert_eq!((refused.code.as_str(), refused.operation.as_deref()), (code, Some("committed")));
            }
        }
    }
    assert_eq!(world.database.row(1).unwrap().version, 2);
}

/// Panics where it is told to.
struct Panicking(&'static str);

impl Handler for Panicking {
    fn access<'a>(&'a mut self, _: &'a Tx, _: Rule<'a>) -> Step<'a, bool> {
        assert_ne!(self.0, "before access");
        Box::pin(async move {
            assert_ne!(self.0, "in access");
            Ok(true)
        })
    }

    fn write<'a>(&'a mut self, tx: &'a Tx, _: &'a counterfoil::core::Reading) -> Step<'a, Box<str>> {
        Box::pin(async move {
            tx.batch_execute(RAISE).await?;
            assert_ne!(self.0, "in write");
            Ok("1".into())
        })
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        assert_ne!(self.0, "when dropped");
    }
}

#[test]
fn a_panic_is_rolled_back() {
    for place in ["before access", "in access", "in write", "when dropped"] {
        let world = World::fresh("", Options { pool: 1, ..Options::default() });
        let answer: Result<_, Refusal> =
            world.wait(world.ledger.perform(Arc::new(alice("edit-42")), Panicking(place)));
        assert_eq!(Answer::from(answer).refused().code, "internal", "{place}");
        // Dropped after its commit, it had committed: the operation was unknown, and the same id finds out.
        let committed = place == "when dropped";
        let again = world.call(alice("edit-42"), Scripted::new(&[RAISE])).done();
        assert_eq!((again.replayed, world.database.row(1).unwrap().version), (committed, 2), "{place}");
    }
}

/// The answer of a call that nobody waits for any more is still written down: see `lose` in the reference suite. A
/// call that is dropped before it had its turn is run all the same.
#[test]
fn a_result_that_is_too_large_is_rolled_back() {
    let world = World::fresh("", Options { result_limit: 3, ..Options::default() });
    let large = Scripted::new(&[RAISE, "SELECT 1000::bigint"]);
    assert_eq!(world.call(alice("edit-42"), large).refused().code, "result_too_large");
    assert_eq!((world.database.receipts(), world.database.row(1).unwrap().version), (0, 1));
}
