//! PostgreSQL: migrations, roles, names whatever the collation, and the plan of the look-up whatever the statistics.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::collections::{BTreeSet, HashSet};
use std::io::Write;
use std::sync::{Arc, Mutex};

use counterfoil::OpenError;
use counterfoil::core::{
    Call, Intent, Issuer, Principal, RequestId, Revision, Subject, ToolName, Windows, Workspace,
};
use counterfoil::postgres::{Filter, Ledger, Options, Receipts, State, migrate};
use counterfoil::tokio_postgres::{Config, NoTls};
use counterfoil::{Fault, Key};
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::{Database, Scripted, World, runtime};
use counterfoil_testkit::{Answer, Who, set_interval};
use tokio::task::JoinHandle;

fn alice(request_id: &str) -> Call {
    call(Who::Alice, &set_interval(request_id, 1, 1, 30))
}

/// Ten servers start at once on a database that has nothing, and whose default isolation is not ours.
#[test]
fn many_openers_of_a_fresh_database_agree_on_one_history() {
    for isolation in ["read committed", "serializable"] {
        let (database, runtime) = (Database::fresh(), runtime());
        database.set(&format!("default_transaction_isolation = '{isolation}'"));
        let open = |_| runtime.spawn(Ledger::open(database.config(), Options::default()));
        let opened: Vec<_> = (0..10).map(open).collect();
        let epoch = |opened: JoinHandle<Result<Ledger, OpenError>>| {
            runtime.block_on(opened).unwrap().unwrap().epoch().as_str().to_owned()
        };
        let epochs: HashSet<String> = opened.into_iter().map(epoch).collect();
        assert_eq!(epochs.len(), 1, "{isolation}: {epochs:?}");
        assert_eq!(database.count("SELECT count(*) FROM counterfoil_meta"), 3);
    }
}

/// What is in the database, and why it is not opened.
#[test]
fn databases_that_are_not_ours_to_serve_are_refused_clearly() {
    let cases = [
        ("", "schema version 0 of Counterfoil and this program needs 2"),
        ("MIGRATED; UPDATE counterfoil_meta SET value = '99' WHERE name = 'schema'", "has schema version 99"),
        ("MIGRATED; UPDATE counterfoil_meta SET value = '0' WHERE name = 'schema'", "less than one"),
        ("MIGRATED; UPDATE counterfoil_meta SET value = 'x' WHERE name = 'schema'", "not a number"),
        ("MIGRATED; DELETE FROM counterfoil_meta WHERE name = 'schema'", "no schema version"),
        ("MIGRATED; DELETE FROM counterfoil_meta WHERE name = 'epoch'", "no epoch"),
        ("MIGRATED; DROP TABLE counterfoil_contracts", "a table is missing"),
    ];
    let runtime = runtime();
    for (sql, problem) in cases {
        let database = Database::fresh();
        if let Some(sql) = sql.strip_prefix("MIGRATED; ") {
            drop(runtime.block_on(Ledger::open(database.config(), Options::default())).unwrap());
            database.execute(sql);
        }
        let options = Options { create: false, ..Options::default() };
        let error = runtime.block_on(Ledger::open(database.config(), options)).unwrap_err();
        assert!(error.to_string().contains(problem), "{sql}: {error}");
    }
    let latin = Database::with("ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let error = runtime.block_on(Ledger::open(latin.config(), Options::default())).unwrap_err();
    assert!(matches!(error, OpenError::Encoding(_)), "{error}");
    let mut nowhere = Config::new();
    nowhere.host("127.0.0.1").port(1).user("nobody");
    let error = runtime.block_on(Ledger::open(nowhere, Options::default())).unwrap_err();
    assert!(matches!(error, OpenError::Postgres(_)), "{error}");
}

/// The tables belong to one role, and another one serves: with the grants of the documentation and no more.
#[test]
fn a_role_that_owns_nothing_can_serve() {
    let (database, runtime) = (Database::fresh(), runtime());
    let name = database.config().get_dbname().unwrap().to_owned();
    let [owner, app] = ["owner", "app"].map(|role| format!("{role}_of_{name}"));
    database.execute(&format!(
        "CREATE ROLE {owner} LOGIN; CREATE ROLE {app} LOGIN; CREATE SCHEMA receipts AUTHORIZATION {owner};
         ALTER ROLE {owner} SET search_path = receipts; ALTER ROLE {app} SET search_path = public, receipts;
         GRANT SELECT, UPDATE ON automations TO {app}"
    ));
    let role = |role: &str| {
        let mut config = database.config();
        config.user(role);
        config
    };
    let receipts = runtime.block_on(async {
        let (mut client, connection) = role(&owner).connect(NoTls).await.unwrap();
        drop(tokio::spawn(connection));
        assert!(matches!(Receipts::open(&client).await, Err(OpenError::NotMigrated { found: 0, .. })));
        migrate(&mut client).await.unwrap();
        Receipts::install(&mut client).await.unwrap()
    });
    database.execute(&format!(
        "GRANT USAGE ON SCHEMA receipts TO {app};
         GRANT SELECT ON receipts.counterfoil_meta TO {app};
         GRANT SELECT, INSERT ON receipts.counterfoil_receipts, receipts.counterfoil_contracts TO {app}"
    ));
    let write = "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version";
    for create in [true, false] {
        let options = Options { create, ..Options::default() };
        let ledger = runtime.block_on(Ledger::open(role(&app), options)).unwrap();
        assert_eq!(ledger.epoch(), receipts.epoch());
        let perform = |write: &str, id: &str| {
            let script = Scripted::new(&[write]);
            Answer::from(runtime.block_on(ledger.perform(Arc::new(alice(id)), script)))
        };
        assert_eq!(perform(write, "edit-42").done().replayed, !create);
        assert_eq!(runtime.block_on(ledger.pin_contract("t", "v1", "one")).unwrap(), "one");
        assert_eq!(runtime.block_on(ledger.pin_contract("t", "v1", "two")).unwrap(), "one");
        let delete = "DELETE FROM counterfoil_receipts RETURNING 1::bigint";
        assert_eq!(perform(delete, "edit-43").refused().code, "resource_unavailable");
    }
    database.execute(&format!("DROP OWNED BY {app}, {owner} CASCADE; DROP ROLE {app}, {owner}"));
}

fn named(workspace: &str, issuer: &str, subject: &str, request_id: &str) -> Call {
    let principal = Principal {
        issuer: Issuer::parse(issuer).unwrap(),
        subject: Subject::parse(subject).unwrap(),
        workspace: Workspace::parse(workspace).unwrap(),
        scopes: BTreeSet::new(),
    };
    let intent = Intent::of(&1).unwrap();
    let (tool, revision) = (ToolName::parse("raise").unwrap(), Revision::parse("v1").unwrap());
    Call::new(Arc::new(principal), tool, revision, RequestId::parse(request_id).unwrap(), intent)
}

/// P9, P10: names that some collation takes for one, or some separator, are distinct.
#[test]
fn names_are_what_they_are_on_every_collation() {
    let names = [
        ("team", "local", "alice", "Request-A"),
        ("team", "local", "alice", "request-a"),
        ("team", "local", "Alice", "request-a"),
        ("Team", "local", "alice", "request-a"),
        ("team ", "local", "alice", "request-a"),
        ("team", "local ", "alice", "request-a"),
        ("team", "local", "alice ", "request-a"),
        ("team", "local", "álice", "request-a"),
        ("team", "local", "a\u{301}lice", "request-a"),
        ("team", "local", "ﬁ", "request-a"),
        ("team", "local", "fi", "request-a"),
        ("a|b", "local", "c", "request-a"),
        ("a", "local", "b|c", "request-a"),
        ("a\n", "local", "b", "request-a"),
        ("a", "local", "\nb", "request-a"),
    ];
    let collations = [
        "LOCALE 'C' TEMPLATE template0",
        "LOCALE_PROVIDER icu ICU_LOCALE 'en-US-u-ks-level1' LOCALE 'C.UTF-8' TEMPLATE template0",
        "LOCALE_PROVIDER icu ICU_LOCALE 'tr' LOCALE 'C.UTF-8' TEMPLATE template0",
    ];
    // Some builds of the server are without ICU; its one collation of the bootstrap is listed all the same.
    let icu = Database::fresh().count("SELECT count(*) FROM pg_collation WHERE collprovider = 'i'") > 9;
    for collation in collations.into_iter().filter(|collation| icu || !collation.contains("icu")) {
        let world = World::over(Database::with(collation), Options::default());
        for replayed in [false, true] {
            for (workspace, issuer, subject, id) in names {
                let script = Scripted::new(&["SELECT 1::bigint"]);
                let done = world.call(named(workspace, issuer, subject, id), script).done();
                assert_eq!(
                    done.replayed, replayed,
                    "{collation}: {workspace:?} {issuer:?} {subject:?} {id:?}"
                );
            }
        }
    }
}

/// What an operator sees: the record whole, and the list by every filter.
#[test]
fn records_are_found_and_listed() {
    let world = World::fresh("", Options::default());
    let write = "UPDATE automations SET version = version + 1 WHERE id = 1 RETURNING version";
    let _first = world.call(alice("edit-1"), Scripted::new(&[write])).done();
    let (voided, done) = (alice("edit-2"), alice("edit-1"));
    world.wait(world.ledger.void(Key::from(&voided), Windows::default())).unwrap();
    let record = world.wait(world.ledger.find_record(Key::from(&done))).unwrap().unwrap();
    assert_eq!(record.intent.as_deref(), Some(done.live().unwrap().intent.text()));
    let all = Filter { limit: 10, ..Filter::default() };
    let list = |filter: Filter| {
        let records = world.wait(world.ledger.list(&filter)).unwrap();
        records.into_iter().map(|record| record.request_id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(all.clone()), ["edit-2", "edit-1"]);
    assert_eq!(list(Filter { state: Some(State::Voided), ..all.clone() }), ["edit-2"]);
    assert_eq!(list(Filter { workspace: Some("team-b".into()), ..all.clone() }), [""; 0]);
    assert_eq!(
        list(Filter { subject: Some("alice".into()), prefix: Some("edit-1".into()), ..all.clone() }),
        ["edit-1"]
    );
    assert_eq!(list(Filter { prefix: Some("edit_".into()), ..all.clone() }), [""; 0]);
    assert_eq!(list(Filter { until: Some(record.at), ..all.clone() }), [""; 0]);
    assert_eq!(list(Filter { since: Some(record.at), limit: 1, offset: 1, ..all }), ["edit-1"]);
}

/// The look-up as a connection keeps it, and how often it ran by a plan for all parameters.
const PLANS: &str = "SELECT name, generic_plans FROM pg_prepared_statements WHERE statement LIKE 'SELECT transaction_timestamp%'";

/// A receipts table that was analysed while empty and then fills up: the look-up that a connection has kept from
/// before still goes by the index. Kept as the planner would have it, it scans the table for ever.
#[test]
fn the_look_up_goes_by_the_index_whatever_the_statistics_say() {
    let world = World::fresh("", Options { pool: 1, ..Options::default() });
    world.database.execute(
        "ALTER TABLE counterfoil_receipts SET (autovacuum_enabled = false); ANALYZE counterfoil_receipts",
    );
    let look = include_str!("../src/store/postgres/sql/find.sql");
    let naive = world.wait(async {
        let client = world.database.connect().await;
        let parameters = [&"w" as &(dyn counterfoil::tokio_postgres::types::ToSql + Sync); 5];
        let statement = client.prepare(look).await.unwrap();
        for round in 0..20 {
            client.query(&statement, &parameters).await.unwrap();
            let call = Arc::new(alice(&format!("void-{}", round % 2)));
            let refusing = Scripted::new(&["SELECT 1::bigint WHERE false"]);
            assert!(world.ledger.perform(call, refusing).await.is_err());
        }
        (client, statement)
    });
    world.database.execute(
        "INSERT INTO counterfoil_receipts (workspace, issuer, subject, tool, request_id, state, committed_at)
         SELECT 'team-a', 'local', 'alice', 'set_interval', 'old-' || number, 'voided', now()
           FROM generate_series(1, 20000) AS number",
    );
    let (client, _statement) = naive;
    let scanned = world.wait(plan(&client)).unwrap();
    assert!(scanned.contains("Seq Scan on counterfoil_receipts"), "the trap is not set: {scanned}");
    // On the ledger's one connection, from within a call: the plan that the look-up just now has used.
    let told = Arc::new(std::sync::Mutex::new(String::new()));
    let tell = Arc::clone(&told);
    let reply = world.ledger.run(
        alice("edit-42"),
        |_| Box::pin(async { Ok(true) }),
        move |tx| {
            let tell = Arc::clone(&tell);
            Box::pin(async move {
                let plan = plan(tx).await?;
                *tell.lock().unwrap() = plan;
                // And the application's own statements are planned as ever.
                let row = tx.query_one("SELECT current_setting('enable_seqscan')", &[]).await?;
                Ok(row.get::<_, String>(0))
            })
        },
    );
    assert_eq!(Answer::from(world.wait(reply)).done().result, "\"on\"");
    let told = told.lock().unwrap();
    assert!(told.contains("Index Scan using counterfoil_receipts_key"), "{told}");
    assert!(!told.contains("Seq Scan on counterfoil_receipts"), "{told}");
}

async fn plan(client: &counterfoil::tokio_postgres::Client) -> Result<String, Fault> {
    let row = client.query_one(PLANS, &[]).await?;
    let (name, generic): (String, i64) = (row.get(0), row.get(1));
    assert!(generic > 0, "the plan is not kept");
    let lines = client.query(&format!("EXPLAIN EXECUTE {name} ('w', 'i', 's', 't', 'r')"), &[]).await?;
    Ok(lines.iter().map(|line| line.get::<_, String>(0)).collect::<Vec<_>>().join("\n"))
}

/// Where the log goes.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines that `work` logs about early acknowledgements.
fn told_early<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    let done = tracing::subscriber::with_default(subscriber, work);
    let written = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    (done, written.lines().filter(|line| line.contains("synchronous_commit is off")).count())
}

/// What would be acknowledged before it is on disk is told in one line, and raised where the session is ours.
#[test]
fn early_acknowledgements_are_told_and_raised() {
    for (setting, raised, lines) in [("local", "local", 0), ("off", "on", 1)] {
        let (database, runtime) = (Database::fresh(), runtime());
        database.set(&format!("synchronous_commit = '{setting}'"));
        for create in [true, false] {
            let options = Options { create, ..Options::default() };
            let open = || runtime.block_on(Ledger::open(database.config(), options)).unwrap();
            let (ledger, told) = told_early(open);
            assert_eq!(told, lines, "{setting}, {create}");
            let seen = runtime.block_on(ledger.read(|tx| {
                Box::pin(async move {
                    let row = tx.query_one("SELECT current_setting('synchronous_commit')", &[]).await?;
                    Ok(row.get::<_, String>(0))
                })
            }));
            assert_eq!(seen.unwrap(), raised, "{setting}");
        }
        let client = runtime.block_on(database.connect());
        let (receipts, told) = told_early(|| runtime.block_on(Receipts::open(&client)));
        assert!(receipts.is_ok() && told == lines, "{setting}, in a session of the caller's");
    }
}

/// A dated id is judged by the database's clock (step 9).
#[test]
fn dated_ids_are_judged_by_the_databases_clock() {
    let world = World::fresh("", Options::default());
    let dated = |days: i64| {
        let sql = format!(
            "SELECT lpad(to_hex((extract(epoch FROM now() + interval '{days} days') * 1000)::bigint), 12, '0')"
        );
        let hex: String = world.database.query(&sql)[0].get(0);
        format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..])
    };
    for (days, code) in [(-366, "request_id_expired"), (-364, "done"), (0, "done"), (2, "invalid_request_id")]
    {
        let answer = world.call(alice(&dated(days)), Scripted::new(&["SELECT 1::bigint"]));
        match answer {
            Answer::Done(done) => assert_eq!(("done", false), (code, done.replayed), "{days}"),
            Answer::Refused(refused) => assert_eq!(refused.code, code, "{days}"),
        }
    }
}
