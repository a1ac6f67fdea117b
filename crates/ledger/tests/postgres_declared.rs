//! Declared tools on PostgreSQL: one statement a call. Its round trips are counted, its traps are set (§ races, rows
//! that move, rules that lock, parameters of two types), its outcomes are lost (C3), its plan is looked at.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::time::Duration;

use counterfoil::core::{Call, Reading};
use counterfoil::postgres::{
    Column, Declaration, Declared, Handler, Ledger, Options, Part, Query, Returns, Rule, Step, Tx, Values,
};
use counterfoil::tokio_postgres::SimpleQueryMessage;
use counterfoil::tokio_postgres::types::private::BytesMut;
use counterfoil::tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::library::{Single, declaration};
use counterfoil_testkit::postgres::{Cluster, Cut, Database, Once, Proxy, Scripted, World, runtime};
use counterfoil_testkit::suite::Stage;
use counterfoil_testkit::{Answer, Who, set_interval};
use tokio::runtime::Runtime;

const RAISE: &str = "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version";

fn alice(request_id: &str) -> Call {
    call(Who::Alice, &set_interval(request_id, 1, 1, 30))
}

fn once(world: &World, script: Scripted) -> Once {
    world.wait(script.declared(&world.ledger))
}

fn code(answer: &Answer) -> &str {
    match answer {
        Answer::Done(_) => "done",
        Answer::Refused(refused) => &refused.code,
    }
}

/// A ledger on a thread of its own, so that what is sent together goes out together; and a wire that counts.
struct Counted {
    ledger: Ledger,
    declared: Arc<Declared>,
    runtime: Runtime,
    proxy: Proxy,
    _wires: Runtime,
    database: Database,
}

impl Counted {
    fn fresh(declaration: &Declaration) -> Self {
        let (database, wires) = (Database::fresh(), runtime());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let proxy = wires.block_on(Proxy::whole(Cluster::shared().port()));
        let options = Options { pool: 1, ..Options::default() };
        let through = proxy.through(&database.config());
        let ledger = runtime.block_on(Ledger::open(through, options)).unwrap();
        let declared = Arc::new(runtime.block_on(ledger.declare(declaration)).unwrap());
        Self { ledger, declared, runtime, proxy, _wires: wires, database }
    }

    /// What a call is answered, and in how many round trips.
    fn call(&self, call: Call) -> (Answer, usize) {
        let before = self.proxy.trips();
        let handler = Single::new(call, &self.declared);
        let call = Arc::clone(&handler.steps.call);
        let answer = self.runtime.block_on(self.ledger.perform(call, handler));
        (Answer::from(answer), self.proxy.trips() - before)
    }
}

/// How many round trips a call costs: a fresh one, a retry, a retry that does not look like one (it comes from
/// another server), a refusal.
#[test]
fn a_call_costs_one_round_trip() {
    let setting = ("app.workspace".to_owned(), 1);
    for session in [Vec::new(), vec![setting]] {
        let counted = Counted::fresh(&Declaration { session, ..declaration() });
        let edit = |id: &str, version| call(Who::Alice, &set_interval(id, 1, version, 30));
        // The connection's first: it has nothing prepared but the declaration.
        let (first, _) = counted.call(edit("edit-1", 1));
        assert!(!first.done().replayed);
        for round in 2..5 {
            let id = format!("edit-{round}");
            let (fresh, trips) = counted.call(edit(&id, round));
            assert_eq!((fresh.done().replayed, trips), (false, 1), "fresh");
            let (replay, trips) = counted.call(edit(&id, round));
            assert_eq!((replay.done().replayed, trips), (true, 1), "replay");
        }
        let (refused, trips) = counted.call(edit("edit-9", 1));
        assert_eq!((refused.refused().code.as_str(), trips), ("version_conflict", 2));
        // As if another server had made it.
        counted
            .database
            .execute("UPDATE counterfoil_receipts SET request_id = 'other' WHERE request_id = 'edit-4'");
        let (replay, trips) = counted.call(edit("other", 4));
        assert_eq!((replay.done().replayed, trips), (true, 2), "a replay that looked like a fresh call");
    }
}

/// A dated id whose time is long past is a retry, most likely: one round trip on any server.
#[test]
fn an_old_dated_id_is_looked_up_first() {
    let counted = Counted::fresh(&declaration());
    let minutes_ago = |minutes: i64| {
        let sql = format!(
            "SELECT lpad(to_hex((extract(epoch FROM now() - interval '{minutes} minutes') * 1000)::bigint), 12, '0')"
        );
        let hex: String = counted.database.query(&sql)[0].get(0);
        format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..])
    };
    let edit = |id: &str, version| call(Who::Alice, &set_interval(id, 1, version, 30));
    let (_first, _) = counted.call(edit("edit-1", 1));
    let (new, trips) = counted.call(edit(&minutes_ago(0), 2));
    assert_eq!((new.done().replayed, trips), (false, 1));
    let (old, trips) = counted.call(edit(&minutes_ago(5), 3));
    assert_eq!((old.done().replayed, trips), (false, 2));
    // Step 9, inside the statement: too old, and from the future.
    for (minutes, code) in [(366 * 24 * 60, "request_id_expired"), (-2 * 24 * 60, "invalid_request_id")] {
        let (refused, _) = counted.call(edit(&minutes_ago(minutes), 4));
        assert_eq!(refused.refused().code, code);
    }
    assert_eq!((counted.database.receipts(), counted.database.row(1).unwrap().version), (3, 4));
}

/// One way for a late loser to fail.
struct Late {
    name: &'static str,
    schema: &'static str,
    write: &'static str,
    /// What holds both up until both have begun.
    hold: &'static str,
    /// What the same write meets under an id that has no receipt.
    naive: &'static str,
}

const ROWS: &str = "SELECT 1 FROM automations FOR UPDATE";

const LATE: [Late; 6] = [
    Late {
        name: "an unversioned UPDATE meets the rival's receipt",
        schema: "",
        write: RAISE,
        hold: ROWS,
        naive: "done",
    },
    Late {
        name: "an INSERT meets its own unique key",
        schema: "CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY, name text UNIQUE)",
        write: "INSERT INTO orders (name) VALUES ('milk') RETURNING id",
        hold: "INSERT INTO orders (name) VALUES ('milk')",
        naive: "constraint_violated",
    },
    Late {
        name: "a versioned UPDATE finds no row",
        schema: "",
        write: "UPDATE automations SET version = 2 WHERE id = 1 AND version = 1 RETURNING version",
        hold: ROWS,
        naive: "version_conflict",
    },
    Late {
        name: "a trigger of the application's own says no",
        schema: "CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                   IF old.version > 1 THEN RAISE EXCEPTION 'only once'; END IF; RETURN new; END $$;
                 CREATE TRIGGER once BEFORE UPDATE ON automations FOR EACH ROW EXECUTE FUNCTION once()",
        write: RAISE,
        hold: ROWS,
        naive: "constraint_violated",
    },
    Late {
        name: "the division is by zero now",
        schema: "",
        write: "UPDATE automations SET version = 1 + 1 / (2 - version) WHERE id = 1 RETURNING version",
        hold: ROWS,
        naive: "invalid_arguments",
    },
    Late {
        name: "the permission has gone",
        schema: "CREATE FUNCTION once() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
                   IF (SELECT version FROM automations WHERE id = 1 FOR UPDATE) > 1
                   THEN RAISE EXCEPTION USING ERRCODE = '42501'; END IF;
                   UPDATE automations SET version = 2 WHERE id = 1; RETURN 2; END $$",
        write: "SELECT once()",
        hold: ROWS,
        naive: "resource_unavailable",
    },
];

/// Two identical calls that have both begun: one is fresh, and the other, whatever its write then met, is its replay.
#[test]
fn a_late_loser_gets_the_winners_reply() {
    for late in LATE {
        let world = World::fresh(late.schema, Options::default());
        let script = once(&world, Scripted::new(&[late.write]));
        let holder = world.wait(world.database.connect());
        world.wait(holder.batch_execute(&format!("BEGIN; {}", late.hold))).unwrap();
        let calls = [(); 2].map(|()| world.start(alice("edit-42"), script.clone()));
        world.until_blocked(2);
        world.wait(holder.batch_execute("ROLLBACK")).unwrap();
        let [left, right] = calls.map(|call| world.finish(call).done());
        assert_ne!(left.replayed, right.replayed, "{}", late.name);
        assert_eq!((left.result, left.committed_at), (right.result, right.committed_at), "{}", late.name);
        assert_eq!(world.database.receipts(), 1, "{}", late.name);
        let naive = world.call(alice("edit-43"), script);
        assert_eq!(code(&naive), late.naive, "{}: {naive:?}", late.name);
    }
}

/// The same with other arguments: the id is taken, whatever the write met.
#[test]
fn a_late_loser_with_another_payload_learns_that_the_id_is_taken() {
    for late in LATE {
        let world = World::fresh(late.schema, Options::default());
        let script = once(&world, Scripted::new(&[late.write]));
        let holder = world.wait(world.database.connect());
        world.wait(holder.batch_execute(&format!("BEGIN; {}", late.hold))).unwrap();
        let payloads = [30, 45].map(|minutes| call(Who::Alice, &set_interval("edit-42", 1, 1, minutes)));
        let calls = payloads.map(|call| world.start(call, script.clone()));
        world.until_blocked(2);
        world.wait(holder.batch_execute("ROLLBACK")).unwrap();
        let mut codes = calls.map(|call| code(&world.finish(call)).to_owned());
        codes.sort();
        assert_eq!(codes, ["done", "request_id_reused"], "{}", late.name);
        assert_eq!(world.database.receipts(), 1, "{}", late.name);
    }
}

/// A tool whose own success takes access away.
#[test]
fn a_late_loser_of_a_delete_gets_the_winners_reply() {
    let world = World::fresh("", Options::default());
    let script = Scripted {
        access: "SELECT 1 FROM automations WHERE id = 1 AND workspace_id = 'team-a'".into(),
        ..Scripted::new(&["DELETE FROM automations WHERE id = 1 RETURNING id"])
    };
    let script = once(&world, script);
    let won = world.call(alice("delete-1"), script.clone()).done();
    let again = world.call(alice("delete-1"), script.clone()).done();
    assert_eq!((again.replayed, again.result), (true, won.result));
    assert_eq!(world.call(alice("delete-2"), script).refused().code, "resource_unavailable");
}

/// Two identical calls at the same instant, 200 times, with a write that only the receipt keeps from running twice.
/// With `ON CONFLICT DO NOTHING` on the receipt the version would end near 401.
#[test]
fn identical_calls_at_once_write_once() {
    let world = World::fresh("", Options::default());
    let script = once(&world, Scripted::new(&[RAISE]));
    for round in 0..200 {
        let calls = [(); 2].map(|()| world.start(alice(&format!("edit-{round}")), script.clone()));
        let [left, right] = calls.map(|call| world.finish(call).done());
        assert_ne!(left.replayed, right.replayed, "round {round}");
        assert_eq!((left.result, left.committed_at), (right.result, right.committed_at), "round {round}");
    }
    assert_eq!((world.database.row(1).unwrap().version, world.database.receipts()), (201, 200));
}

/// A write that returns two rows where one is promised, one that returns none, one whose result is too large, one
/// whose access is not given: each is undone, with what its triggers wrote.
#[test]
fn what_is_not_one_good_row_is_undone() {
    let schema = "CREATE TABLE log (line text);
        CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          INSERT INTO log VALUES ('tried'); RETURN CASE WHEN new.interval_minutes = 7 THEN NULL ELSE new END; END $$;
        CREATE TRIGGER log BEFORE UPDATE ON automations FOR EACH ROW EXECUTE FUNCTION log()";
    let cases = [
        ("UPDATE automations SET version = 2 RETURNING id", "SELECT 1", "precondition_failed"),
        ("UPDATE automations SET interval_minutes = 7 RETURNING id", "SELECT 1", "version_conflict"),
        ("UPDATE automations SET version = 2 WHERE id = 1 RETURNING 1000000", "SELECT 1", "result_too_large"),
        (
            "UPDATE automations SET version = 2 WHERE id = 1 RETURNING id",
            "SELECT 1 WHERE false",
            "resource_unavailable",
        ),
        (
            "UPDATE automations SET interval_minutes = 1 WHERE id = 1 RETURNING id",
            "SELECT 1",
            "constraint_violated",
        ),
    ];
    for (write, access, expected) in cases {
        let world = World::fresh(schema, Options { result_limit: 15, ..Options::default() });
        let script = once(&world, Scripted::new(&[write]).for_whom(access));
        let answer = world.call(alice("edit-42"), script.clone());
        assert_eq!(code(&answer), expected, "{write}: {answer:?}");
        assert_eq!(
            (world.database.receipts(), world.database.count("SELECT count(*) FROM log")),
            (0, 0),
            "{write}"
        );
        assert_eq!(world.database.row(1).unwrap().version, 1, "{write}");
    }
}

const MINE: &str = "SELECT 1 FROM automations WHERE id = 1 AND workspace_id = 'team-a'";

/// A rule that ends in FOR SHARE is asked, and locks, before the write begins: asked after it, it would not find the
/// row that the same statement has just changed. And it waits for a row that is being moved away.
#[test]
fn a_rule_that_locks_is_asked_first() {
    let world = World::fresh("", Options::default());
    let update = "UPDATE automations SET interval_minutes = 30 WHERE id = 1 RETURNING id";
    let script = once(&world, Scripted::new(&[update]).for_whom(&format!("{MINE} FOR SHARE")));
    assert!(!world.call(alice("edit-1"), script.clone()).done().replayed);
    let mover = world.wait(world.database.connect());
    world
        .wait(mover.batch_execute(
            "BEGIN; UPDATE automations SET workspace_id = 'team-b', interval_minutes = 15 WHERE id = 1",
        ))
        .unwrap();
    let late = world.start(alice("edit-2"), script);
    world.until_blocked(1);
    world.wait(mover.batch_execute("COMMIT")).unwrap();
    assert_eq!(world.finish(late).refused().code, "resource_unavailable");
    assert_eq!(world.database.row(1).unwrap().interval, 15);
}

fn column(name: &str, json: &str) -> Column {
    Column { name: name.to_owned(), json: json.to_owned() }
}

/// One value in places of two types; columns of awkward names; strings that JSON and SQL quote differently; several
/// rows; nothing; the row as it is now.
#[test]
fn parts_and_results_are_composed() {
    let world = World::fresh("CREATE TABLE notes (id bigint, body text, n numeric)", Options::default());
    let insert = Part::from("INSERT INTO notes SELECT ")
        .slot(0, Type::INT8)
        // A function of text alone.
        .text(", 'it''s \"' || btrim(")
        .slot(0, Type::TEXT)
        .text(") || E'\\\\', NULL FROM generate_series(1, ")
        .slot(1, Type::INT4)
        .text(") RETURNING id, body, n, id -- and no more");
    let columns = vec![
        column("id", "({})::text"),
        column("bo\"dy'\\", "to_json({})::text"),
        column("n", "({})::text"),
        column("again", "({})::text"),
    ];
    let row = r#"{"id":7,"bo\"dy'\\":"it's \"7\\","n":null,"again":7}"#;
    let cases = [
        (Returns::Row, 1, row.to_owned()),
        (Returns::Rows, 2, format!("[{row},{row}]")),
        (Returns::Nothing, 2, "null".to_owned()),
    ];
    for (at, (returns, rows, result)) in cases.into_iter().enumerate() {
        let declaration = Declaration {
            access: Some(Part::from("SELECT 1 -- anybody")),
            replay_access: None,
            write: Query { sql: insert.clone(), columns: columns.clone() },
            returns,
            current: Some(Query { sql: Part::from("SELECT 5"), columns: vec![column("five", "({})::text")] }),
            ..declaration()
        };
        let declared = world.wait(world.ledger.declare(&declaration)).unwrap();
        let tool = Valued { declared: Arc::new(declared), rows };
        let call = Arc::new(alice(&format!("edit-{at}")));
        let done = world.wait(world.ledger.perform(Arc::clone(&call), tool.clone())).unwrap();
        assert_eq!((&*done.result, done.replayed, done.current), (&*result, false, None));
        let replay = world.wait(world.ledger.perform(call, tool)).unwrap();
        let current = replay.current.as_deref();
        assert_eq!((&*replay.result, replay.replayed, current), (&*result, true, Some(r#"{"five":5}"#)));
    }
}

/// A handler of two values: seven, as whatever is asked for, and how many rows.
#[derive(Clone)]
struct Valued {
    declared: Arc<Declared>,
    rows: i32,
}

impl Handler for Valued {
    fn access<'a>(&'a mut self, _: &'a Tx, _: Rule<'a>) -> Step<'a, bool> {
        unreachable!("the statement is enough")
    }

    fn write<'a>(&'a mut self, _: &'a Tx, _: &'a Reading) -> Step<'a, Box<str>> {
        unreachable!("the statement is enough")
    }

    fn declared(&mut self) -> Option<Values<'_>> {
        Some(Values { declared: &self.declared, values: vec![&Seven, &self.rows] })
    }
}

#[derive(Debug)]
struct Seven;

impl ToSql for Seven {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        if *kind == Type::INT8 { 7_i64.to_sql(kind, out) } else { "7".to_sql(kind, out) }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::INT8, Type::TEXT].contains(kind)
    }

    to_sql_checked!();
}

/// What only the statement carries in its parameters.
const SENT: &[u8] = b"\"interval_minutes\":30}";

/// A ledger behind a wire that is cut once where the statement is sent, and one behind a wire that is not.
fn cut(cut: Cut, options: Options) -> (World, Proxy, Ledger) {
    let world = World::fresh("", Options::default());
    let (proxy, ledger) = world.wait(async {
        let proxy = Proxy::marked(Cluster::shared().port(), cut, SENT, 1).await;
        let ledger = Ledger::open(proxy.through(&world.database.config()), options).await.unwrap();
        (proxy, ledger)
    });
    (world, proxy, ledger)
}

/// C3: wherever the wire is cut, one effect, one receipt, a definite answer; also of a write that nothing but the
/// receipt guards.
#[test]
fn a_lost_acknowledgement_is_found_out() {
    let cuts = [
        (Cut::BeforeCommit, Some(false)),
        (Cut::DuringCommit, None),
        (Cut::BeforeAnswer, Some(true)),
        (Cut::AfterAnswer, Some(false)),
    ];
    for (place, committed) in cuts {
        let (world, proxy, ledger) = cut(place, Options::default());
        let script = world.wait(Scripted::new(&[RAISE]).declared(&ledger));
        let done =
            Answer::from(world.wait(ledger.perform(Arc::new(alice("edit-42")), script.clone()))).done();
        assert_eq!((proxy.left(), done.result.as_str()), (0, r#"{"value":2}"#), "{place:?}");
        assert!(committed.is_none_or(|committed| done.replayed == committed), "{place:?}: {done:?}");
        assert_eq!((world.database.receipts(), world.database.row(1).unwrap().version), (1, 2), "{place:?}");
        let again = Answer::from(world.wait(ledger.perform(Arc::new(alice("edit-42")), script))).done();
        assert_eq!((again.replayed, again.committed_at), (true, done.committed_at), "{place:?}");
    }
}

/// The old try waits for a row's lock, with its receipt not inserted yet: nothing could be waited for. What the new
/// try meets without a receipt is no answer, whatever it is; the same call again finds out.
#[test]
fn a_refusal_is_no_answer_while_an_older_try_may_be_on_its_way() {
    let refused = "UPDATE automations SET version = 9 WHERE id = 77 RETURNING version";
    for dies in [false, true] {
        let patient = Options { lock_wait: Duration::from_secs(60), ..Options::default() };
        let (world, _proxy, ledger) = cut(Cut::DuringCommit, patient);
        let script = Scripted::new(&[refused]).at_first(&[RAISE]);
        let script = world.wait(script.declared(&ledger));
        let holder = world.wait(world.database.connect());
        world.wait(holder.batch_execute("BEGIN; SELECT 1 FROM automations FOR UPDATE")).unwrap();
        let answer = world.wait(ledger.perform(Arc::new(alice("edit-42")), script));
        let answer = Answer::from(answer).refused();
        assert_eq!((answer.code.as_str(), answer.retry.as_str()), ("outcome_unknown", "same_id"));
        let old = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        if dies {
            world.database.execute(&format!("SELECT pg_terminate_backend(pid) FROM ({old}) AS old"));
        }
        world.wait(holder.batch_execute("COMMIT")).unwrap();
        // Until the old try is over.
        let unfinished = "SELECT count(*) FROM pg_sleep(0.001), pg_stat_activity
                          WHERE datname = current_database() AND query LIKE 'WITH counterfoil_access%' AND state = 'active'";
        while world.database.count(unfinished) > 0 {}
        assert_eq!(world.database.receipts(), i64::from(!dies));
        let again = once(&world, Scripted::new(&[RAISE]));
        let done = world.call(alice("edit-42"), again).done();
        assert_eq!((done.replayed, world.database.row(1).unwrap().version), (!dies, 2));
    }
}

/// COMMIT waits, for as long as a lock is held elsewhere: longer than a statement may take. The time limit of a
/// statement does not cut the commit of a statement that is a transaction of its own: PostgreSQL takes it off before it
/// commits. What is checked at commit is over by then, too.
#[test]
fn the_time_limit_of_a_statement_does_not_cut_its_commit() {
    let database = Database::fresh();
    let strict = World::over(database, Options::default());
    strict.database.set("synchronous_commit = 'on'");
    let options = Options {
        create: false,
        statement_time: Duration::from_millis(50),
        call_wait: Duration::from_millis(1500),
        ..Options::default()
    };
    let ledger = strict.wait(Ledger::open(strict.database.config(), options)).unwrap();
    let script = strict.wait(Scripted::new(&[RAISE]).declared(&ledger));
    // There is no such standby: its commit waits to the end of the call, and far beyond its statement's limit.
    let refused = Answer::from(strict.wait(ledger.perform(Arc::new(alice("edit-42")), script))).refused();
    assert_eq!(refused.code, "outcome_unknown");
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event = 'SyncRep' AND state = 'active'";
    assert_eq!(strict.database.count(waiting), 1);
    let nothing = strict.wait(strict.ledger.find_record(counterfoil::Key::from(&alice("edit-42")))).unwrap();
    assert_eq!(nothing, None, "not visible before the standby has it");
}

/// A synchronous standby that never answers, and an operator who cancels the wait: a warning beside a success is a
/// lost acknowledgement, in the one-statement form as in any other.
#[test]
fn a_commit_that_no_standby_has_is_not_acknowledged() {
    let prepared = World::fresh("", Options::default());
    prepared.database.set("synchronous_commit = 'on'");
    let short = Options { create: false, call_wait: Duration::from_secs(2), ..Options::default() };
    let strict = prepared.wait(Ledger::open(prepared.database.config(), short)).unwrap();
    let script = prepared.wait(Scripted::new(&[RAISE]).declared(&strict));
    let writing = {
        let (ledger, script) = (strict.clone(), script.clone());
        prepared.runtime.spawn(async move { ledger.perform(Arc::new(alice("edit-42")), script).await })
    };
    prepared.wait(async {
        let client = prepared.database.connect().await;
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
                      WHERE datname = current_database() AND wait_event = 'SyncRep'";
        while client.query(cancel, &[]).await.unwrap().is_empty() {}
    });
    assert_eq!(Answer::from(prepared.wait(writing).unwrap()).refused().code, "outcome_unknown");
    assert_eq!((prepared.database.receipts(), prepared.database.row(1).unwrap().version), (1, 2));
    let again = prepared.wait(strict.perform(Arc::new(alice("edit-42")), script));
    assert_eq!(Answer::from(again).refused().code, "outcome_unknown");
}

/// C4: undone by the database for its own reasons, and repeated.
#[test]
fn serialization_failures_are_repeated_inside() {
    let database = Database::fresh();
    database.set("default_transaction_isolation = 'serializable'");
    database.execute(
        "CREATE FUNCTION fails(code text) RETURNS bigint LANGUAGE plpgsql
         AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = code; END $$",
    );
    let world = World::over(database, Options { tries: 4, ..Options::default() });
    let level = "SELECT 7::bigint WHERE current_setting('transaction_isolation') = 'read committed'";
    for (index, code) in ["40001", "40P01"].into_iter().enumerate() {
        let fails = format!("UPDATE automations SET version = fails('{code}') WHERE id = 1 RETURNING id");
        let twice = once(&world, Scripted::new(&[level]).at_first(&[&fails]).at_first(&[&fails]));
        let done = world.call(alice(&format!("edit-{index}")), twice).done();
        assert_eq!((done.result.as_str(), done.replayed), (r#"{"value":7}"#, false), "{code}");
        let always = once(&world, Scripted::new(&[&fails]));
        assert_eq!(world.call(alice(&format!("never-{index}")), always).refused().code, "busy", "{code}");
    }
    assert_eq!((world.database.row(1).unwrap().version, world.database.receipts()), (1, 2));
}

/// C6: what is deferred is checked at the statement's own commit, and is its failure.
#[test]
fn a_deferred_constraint_is_the_statements_own() {
    let schema = "CREATE TABLE lists (id bigint PRIMARY KEY);
                  CREATE TABLE items (list bigint CONSTRAINT in_a_list REFERENCES lists DEFERRABLE INITIALLY DEFERRED)";
    let world = World::fresh(schema, Options::default());
    let script = once(&world, Scripted::new(&["INSERT INTO items VALUES (271828) RETURNING list"]));
    let refused = world.call(alice("edit-42"), script.clone()).refused();
    assert_eq!(refused.code, "constraint_violated");
    assert!(refused.error.to_string().contains("in_a_list"));
    assert_eq!((world.database.receipts(), world.database.count("SELECT count(*) FROM items")), (0, 0));
    world.database.execute("INSERT INTO lists VALUES (271828)");
    assert!(!world.call(alice("edit-42"), script).done().replayed);
}

/// Who may have a replay and may no longer touch the resource gets the reply, and not the row as it is now.
#[test]
fn the_row_as_it_is_now_is_for_those_who_may_touch_it_now() {
    let world = World::fresh("", Options::default());
    let current = Query {
        sql: Part::from("SELECT version FROM automations WHERE id = 1"),
        columns: vec![column("version", "({})::text")],
    };
    let declaration = Declaration {
        access: Some(Part::from(MINE)),
        replay_access: Some(Part::from("SELECT 1")),
        current: Some(current),
        ..Scripted::new(&[RAISE]).declaration(0)
    };
    let script = world.wait(Once::of(&world.ledger, &declaration));
    let call = || world.wait(world.ledger.perform(Arc::new(alice("edit-42")), script.clone())).unwrap();
    assert!(!call().replayed);
    for (workspace, row) in [("team-a", Some(r#"{"version":2}"#)), ("team-b", None)] {
        world.database.execute(&format!("UPDATE automations SET workspace_id = '{workspace}' WHERE id = 1"));
        let reply = call();
        assert_eq!((reply.replayed, reply.current.as_deref()), (true, row), "{workspace}");
    }
}

/// Row-level security by a setting that holds for the call's own transaction: on one connection, one workspace after
/// the other sees its own rows and no others, and afterwards the setting is gone.
#[test]
fn row_level_security_holds_call_by_call() {
    let database = Database::fresh();
    let role = format!("app_of_{}", database.config().get_dbname().unwrap());
    database.execute(&format!(
        "CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA public TO {role}; GRANT SELECT, UPDATE ON automations TO {role};
         ALTER TABLE automations ENABLE ROW LEVEL SECURITY;
         CREATE POLICY mine ON automations USING (workspace_id = current_setting('app.workspace', true))"
    ));
    let mut config = database.config();
    config.user(&role);
    let runtime = runtime();
    let options = Options { pool: 1, ..Options::default() };
    let ledger = runtime.block_on(Ledger::open(config, options)).unwrap();
    // Neither rule nor write asks for the workspace: the policy does.
    let declaration = Declaration {
        access: Some(Part::from("SELECT 1 FROM automations WHERE id = ").slot(0, Type::INT8)),
        session: vec![("app.workspace".to_owned(), 1)],
        write: Query {
            sql: Part::from("UPDATE automations SET version = version + 1 WHERE id = ")
                .slot(0, Type::INT8)
                .text(" RETURNING version"),
            columns: vec![column("version", "({})::text")],
        },
        ..declaration()
    };
    let declared = Arc::new(runtime.block_on(ledger.declare(&declaration)).unwrap());
    let cases = [
        (Who::Alice, 1, "done"),
        (Who::Alice, 20, "resource_unavailable"),
        (Who::Carol, 20, "done"),
        (Who::Carol, 1, "resource_unavailable"),
        (Who::Alice, 1, "done"),
    ];
    for (at, (who, id, expected)) in cases.into_iter().enumerate() {
        for replayed in [false, true] {
            let call = call(who, &set_interval(&format!("edit-{at}"), id, 1, 30));
            let handler = Single::new(call, &declared);
            let answer = runtime.block_on(ledger.perform(Arc::clone(&handler.steps.call), handler));
            match Answer::from(answer) {
                Answer::Done(done) => assert_eq!(("done", done.replayed), (expected, replayed), "{at}"),
                Answer::Refused(refused) => assert_eq!(refused.code, expected, "{at}"),
            }
        }
    }
    let left = runtime.block_on(ledger.read(|tx| {
        Box::pin(async move {
            let row =
                tx.query_one("SELECT coalesce(current_setting('app.workspace', true), '')", &[]).await?;
            Ok(row.get::<_, String>(0))
        })
    }));
    assert_eq!(left.unwrap(), "");
    ledger.close();
    drop((ledger, runtime));
    database.execute(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}

/// The composed statements as their connection keeps them: the plan of both goes by the indexes, whatever the
/// statistics say, and the rule is asked before anything is written.
#[test]
fn the_composed_statements_go_by_the_index_whatever_the_statistics_say() {
    let world = World::fresh("", Options { pool: 1, ..Options::default() });
    world.database.execute(
        "ALTER TABLE counterfoil_receipts SET (autovacuum_enabled = false); ANALYZE counterfoil_receipts",
    );
    let declared = Arc::new(world.wait(world.ledger.declare(&declaration())).unwrap());
    let edit = |round: i64| {
        let handler =
            Single::new(call(Who::Alice, &set_interval(&format!("edit-{round}"), 1, round, 30)), &declared);
        Answer::from(world.wait(world.ledger.perform(Arc::clone(&handler.steps.call), handler))).done()
    };
    // Each plan is kept by now, and the table is empty but for this.
    for round in 1..10 {
        world.database.execute("TRUNCATE counterfoil_receipts; ANALYZE counterfoil_receipts");
        assert!(!edit(round).replayed);
        assert!(edit(round).replayed);
    }
    world.database.execute(
        "INSERT INTO counterfoil_receipts (workspace, issuer, subject, tool, request_id, state, committed_at)
         SELECT 'team-a', 'local', 'alice', 'set_interval', 'old-' || number, 'voided', now()
           FROM generate_series(1, 20000) AS number",
    );
    for statistics in [
        "",
        "ANALYZE counterfoil_receipts",
        "UPDATE pg_class SET reltuples = 1e6, relpages = 3e4 WHERE relname = 'counterfoil_receipts'",
    ] {
        world.database.execute(statistics);
        // Plans that the change has made invalid are made again, as the ledger makes them.
        assert!(edit(9).replayed);
        for (like, uses) in [
            ("SELECT statement_timestamp%AS receipt%", "counterfoil_receipts_key"),
            ("WITH counterfoil_access%", "Insert on counterfoil_receipts"),
        ] {
            let plan = world.wait(kept_plan(&world.ledger, like));
            assert!(plan.contains(uses) && !plan.contains("Seq Scan on counterfoil_receipts"), "{plan}");
            if like.starts_with("WITH") {
                let [rule, write] =
                    ["access", "written"].map(|cte| plan.find(&format!("CTE Scan on counterfoil_{cte}")));
                assert!(rule.is_some() && rule < write, "{plan}");
            }
        }
    }
}

/// The plan for all parameters that the ledger's one connection keeps of a statement: no setting is made for it here.
async fn kept_plan(ledger: &Ledger, like: &'static str) -> String {
    let reply = ledger.read(move |tx| {
        Box::pin(async move {
            let find = "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements
                         WHERE statement LIKE $1 AND generic_plans > 0";
            let row = tx.query_one(find, &[&like]).await?;
            let (name, parameters): (String, i32) = (row.get(0), row.get(1));
            let nulls = vec!["NULL"; parameters.try_into().unwrap()].join(", ");
            let lines = tx.simple_query(&format!("EXPLAIN EXECUTE {name} ({nulls})")).await?;
            let text = |line: &SimpleQueryMessage| {
                let SimpleQueryMessage::Row(row) = line else { return None };
                row.get(0).map(str::to_owned)
            };
            Ok(lines.iter().filter_map(text).collect::<Vec<_>>().join("\n"))
        })
    });
    reply.await.unwrap()
}
