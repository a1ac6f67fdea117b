//! Declared lists on PostgreSQL: several statements in one transaction, in two round trips. What one statement finds or
//! meets undoes them all, rows of earlier ones are bound, races and lost acknowledgements end as everywhere.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::sync::Arc;

use counterfoil::Fault;
use counterfoil::core::Call;
use counterfoil::postgres::{Column, Ledger, List, ListStatement, Options, Part, Query, Returns};
use counterfoil::tokio_postgres::types::Type;
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::{Cluster, Cut, Database, Once, Proxy, World, runtime};
use counterfoil_testkit::suite::Stage;
use counterfoil_testkit::{Answer, Who, set_interval};

const SCHEMA: &str = "CREATE TABLE log (id bigint GENERATED ALWAYS AS IDENTITY, line text UNIQUE, at int)";

fn alice(request_id: &str) -> Call {
    call(Who::Alice, &set_interval(request_id, 1, 1, 30))
}

fn statement(sql: Part, columns: &[&str]) -> ListStatement {
    let column = |name: &&str| Column { name: (*name).to_owned(), json: "to_json({})::text".to_owned() };
    let query = Query { sql, columns: columns.iter().map(column).collect() };
    ListStatement { query, may_change_nothing: false }
}

fn list(statements: Vec<ListStatement>, result: usize) -> List {
    List {
        membership: None,
        access: Some(Part::from("SELECT 1 FROM automations WHERE id = 1 AND workspace_id = 'team-a'")),
        replay_access: None,
        statements,
        result,
        returns: Returns::Row,
        current: None,
        session: Vec::new(),
    }
}

fn raise() -> ListStatement {
    statement(
        "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING id, version".into(),
        &["id", "version"],
    )
}

fn log(line: &str) -> ListStatement {
    statement(
        Part::from(format!("INSERT INTO log (line) VALUES ('{line}') RETURNING true").as_str()),
        &["true"],
    )
}

/// Logs what the statement before it has told.
fn log_version() -> ListStatement {
    let sql = Part::from("INSERT INTO log (line, at) VALUES ('version ' || ")
        .earlier(0, 1, Type::INT8)
        .text(", ")
        .earlier(0, 0, Type::INT8)
        .text(") RETURNING line, at");
    statement(sql, &["line", "at"])
}

fn code(answer: &Answer) -> &str {
    match answer {
        Answer::Done(_) => "done",
        Answer::Refused(refused) => &refused.code,
    }
}

/// Round trips of a fresh call and of its retry, and the result: of statements that stand alone, and of one that binds
/// what an earlier one has told.
#[test]
fn a_list_costs_two_round_trips() {
    let cases = [
        (list(vec![raise(), log("one"), log("two")], 0), 2, r#"{"id":1,"version":2}"#),
        (list(vec![raise(), log_version(), log("two")], 1), 3, r#"{"line":"version 2","at":1}"#),
    ];
    for (list, trips, result) in cases {
        let (database, wires) = (Database::fresh(), runtime());
        database.execute(SCHEMA);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let proxy = wires.block_on(Proxy::whole(Cluster::shared().port()));
        let options = Options { pool: 1, ..Options::default() };
        let ledger = runtime.block_on(Ledger::open(proxy.through(&database.config()), options)).unwrap();
        let once = runtime.block_on(Once::listed(&ledger, &list));
        let perform = |id: &str| {
            let before = proxy.trips();
            let answer = runtime.block_on(ledger.perform(Arc::new(alice(id)), once.clone()));
            (Answer::from(answer), proxy.trips() - before)
        };
        let (first, _) = perform("edit-1");
        assert_eq!(first.done().result, result);
        database.execute("TRUNCATE log");
        let (fresh, cost) = perform("edit-2");
        assert_eq!((fresh.done().replayed, cost), (false, trips));
        let (replay, cost) = perform("edit-2");
        assert_eq!((replay.done().replayed, cost), (true, 1));
        assert_eq!((database.row(1).unwrap().version, database.receipts()), (3, 2));
    }
}

/// Whatever one statement finds or meets, nothing of the others stands; and the same id is as good as new.
#[test]
fn a_list_is_done_whole_or_not_at_all() {
    let nothing =
        || statement("UPDATE automations SET version = 9 WHERE id = 77 RETURNING id".into(), &["id"]);
    let many = || statement("UPDATE automations SET version = 9 RETURNING id".into(), &["id"]);
    let optional = || ListStatement { may_change_nothing: true, ..nothing() };
    let fails = |sql: &str| statement(sql.into(), &["value"]);
    let cases = [
        (list(vec![raise(), log("a"), nothing()], 0), "version_conflict"),
        (list(vec![nothing(), log("a")], 1), "version_conflict"),
        (list(vec![log("a"), many()], 1), "precondition_failed"),
        (list(vec![log("a"), log("a")], 0), "constraint_violated"),
        (
            list(vec![raise(), fails("SELECT 1 / (SELECT count(*) - count(*) FROM automations)")], 1),
            "invalid_arguments",
        ),
        (
            List { access: Some(Part::from("SELECT 1 WHERE false")), ..list(vec![raise()], 0) },
            "resource_unavailable",
        ),
        (list(vec![fails("SELECT repeat('x', 100)"), raise()], 0), "result_too_large"),
    ];
    for (at, (broken, expected)) in cases.iter().enumerate() {
        let world = World::fresh(SCHEMA, Options { result_limit: 60, ..Options::default() });
        let once = world.wait(Once::listed(&world.ledger, broken));
        let answer = world.call(alice("edit-42"), once);
        assert_eq!(code(&answer), *expected, "{at}: {answer:?}");
        let left = (world.database.receipts(), world.database.count("SELECT count(*) FROM log"));
        assert_eq!((left, world.database.row(1).unwrap().version), ((0, 0), 1), "{at}");
        let good = world.wait(Once::listed(&world.ledger, &list(vec![raise(), optional(), log("a")], 0)));
        assert!(!world.call(alice("edit-42"), good).done().replayed, "{at}");
    }
}

/// Two identical lists at the same instant, 100 times: one is done, the other is its replay.
#[test]
fn identical_lists_at_once_are_one() {
    let world = World::fresh(SCHEMA, Options::default());
    let once = world.wait(Once::listed(&world.ledger, &list(vec![log_free(), raise()], 1)));
    for round in 0..100 {
        let calls = [(); 2].map(|()| world.start(alice(&format!("edit-{round}")), once.clone()));
        let [left, right] = calls.map(|call| world.finish(call).done());
        assert_ne!(left.replayed, right.replayed, "round {round}");
        assert_eq!((left.result, left.committed_at), (right.result, right.committed_at), "round {round}");
    }
    let rows = world.database.count("SELECT count(*) FROM log");
    assert_eq!((world.database.row(1).unwrap().version, world.database.receipts(), rows), (101, 100, 100));
}

fn log_free() -> ListStatement {
    statement("INSERT INTO log (at) VALUES (1) RETURNING true".into(), &["true"])
}

/// C3: the wire is cut where receipt and COMMIT are sent together.
#[test]
fn a_lost_acknowledgement_of_a_list_is_found_out() {
    let cuts = [
        (Cut::BeforeCommit, Some(false)),
        (Cut::DuringCommit, None),
        (Cut::BeforeAnswer, Some(true)),
        // The first answer is that of the insertion; COMMIT's may be on its way.
        (Cut::AfterAnswer, None),
    ];
    for (place, committed) in cuts {
        let world = World::fresh(SCHEMA, Options::default());
        let (proxy, ledger) = world.wait(async {
            let proxy = Proxy::start(Cluster::shared().port(), place, 1).await;
            let through = proxy.through(&world.database.config());
            (proxy, Ledger::open(through, Options::default()).await.unwrap())
        });
        let once = world.wait(Once::listed(&ledger, &list(vec![raise(), log_free()], 0)));
        let done = Answer::from(world.wait(ledger.perform(Arc::new(alice("edit-42")), once))).done();
        assert_eq!(proxy.left(), 0, "{place:?}");
        assert!(committed.is_none_or(|committed| done.replayed == committed), "{place:?}: {done:?}");
        let rows = world.database.count("SELECT count(*) FROM log");
        assert_eq!(
            (world.database.receipts(), world.database.row(1).unwrap().version, rows),
            (1, 2, 1),
            "{place:?}"
        );
    }
}

/// A list that cannot be sent as it is declared is refused when it is declared.
#[test]
fn a_list_that_looks_ahead_is_refused() {
    let world = World::fresh(SCHEMA, Options::default());
    let ahead = list(vec![log_version(), raise()], 0);
    let beyond = list(vec![raise()], 1);
    for list in [ahead, beyond] {
        assert!(matches!(world.wait(world.ledger.declare_list(&list)), Err(Fault::Misuse(_))));
    }
    let wrong = list(vec![statement("INSERT INTO nowhere VALUES (1) RETURNING true".into(), &["true"])], 0);
    assert!(matches!(world.wait(world.ledger.declare_list(&wrong)), Err(Fault::Postgres(_))));
}
