//! PostgreSQL: row-level security by settings that hold for one call's own transaction, in every form of a declared tool
//! and over every kind of connection. Nobody sees another's rows, and no setting stays behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::sync::Arc;

use counterfoil::postgres::{
    Column, Declaration, Declared, Ledger, List, ListStatement, Options, Part, Query, Returns,
};
use counterfoil::tokio_postgres::types::Type;
use counterfoil_testkit::library::call;
use counterfoil_testkit::postgres::library::{Single, declaration};
use counterfoil_testkit::postgres::{Bouncer, Cluster, Database, runtime};
use counterfoil_testkit::{Answer, Who, set_interval};
use tokio::runtime::Runtime;

/// Neither rule nor write asks for the workspace: the policy does.
const MINE: &str = "SELECT 1 FROM automations WHERE id = ";

fn update() -> Query {
    let sql = Part::from("UPDATE automations SET version = version + 1 WHERE id = ").slot(0, Type::INT8);
    query(sql.text(" RETURNING id, version"), &["id", "version"])
}

/// Writes down in which workspace it ran, and what the statement before it told.
fn note() -> Query {
    let sql = Part::from("INSERT INTO notes (workspace, id) VALUES (current_setting('app.workspace'), ");
    query(sql.earlier(0, 0, Type::INT8).text(") RETURNING workspace"), &["workspace"])
}

fn query(sql: Part, columns: &[&str]) -> Query {
    let column = |name: &&str| Column { name: (*name).to_owned(), json: "to_json({})::text".to_owned() };
    Query { sql, columns: columns.iter().map(column).collect() }
}

fn setting() -> Vec<(String, usize)> {
    vec![("app.workspace".to_owned(), 1)]
}

fn access() -> Option<Part> {
    Some(Part::from(MINE).slot(0, Type::INT8))
}

fn single() -> Declaration {
    Declaration { access: access(), write: update(), session: setting(), ..declaration() }
}

fn list() -> List {
    let statement = |query| ListStatement { query, may_change_nothing: false };
    List {
        membership: None,
        access: access(),
        replay_access: None,
        statements: [update(), note()].map(statement).into(),
        result: 1,
        returns: Returns::Row,
        current: None,
        session: setting(),
    }
}

/// The reference application with a policy, whose sessions are all of a role that the policy holds for.
struct Tenants {
    database: Database,
    role: String,
}

impl Tenants {
    fn fresh() -> Self {
        let database = Database::fresh();
        let role = format!("tenant_of_{}", database.config().get_dbname().unwrap());
        database.execute(&format!(
            "CREATE ROLE {role}; GRANT ALL ON SCHEMA public TO {role}; GRANT SELECT, UPDATE ON automations TO {role};
             ALTER TABLE automations ENABLE ROW LEVEL SECURITY;
             CREATE POLICY mine ON automations USING (workspace_id = current_setting('app.workspace', true));
             CREATE TABLE notes (workspace text, id bigint); GRANT SELECT, INSERT ON notes TO {role}"
        ));
        database.set(&format!("role = '{role}'"));
        Self { database, role }
    }
}

impl Drop for Tenants {
    fn drop(&mut self) {
        self.database.set("role = 'none'");
        self.database.execute(&format!("DROP OWNED BY {0} CASCADE; DROP ROLE {0}", self.role));
    }
}

const CASES: [(Who, i64, &str); 5] = [
    (Who::Alice, 1, "done"),
    (Who::Alice, 20, "resource_unavailable"),
    (Who::Carol, 20, "done"),
    (Who::Carol, 1, "resource_unavailable"),
    (Who::Alice, 1, "done"),
];

/// Every case by `declared`, each twice.
fn check(runtime: &Runtime, ledger: &Ledger, declared: &Arc<Declared>, form: &str) {
    for (at, (who, id, expected)) in CASES.into_iter().enumerate() {
        for replayed in [false, true] {
            let call = call(who, &set_interval(&format!("{form}-{at}"), id, 1, 30));
            let handler = Single::new(call, declared);
            let answer = runtime.block_on(ledger.perform(Arc::clone(&handler.steps.call), handler));
            match Answer::from(answer) {
                Answer::Done(done) => {
                    assert_eq!(("done", done.replayed), (expected, replayed), "{form} {at}");
                }
                Answer::Refused(refused) => assert_eq!(refused.code, expected, "{form} {at}"),
            }
        }
    }
}

#[test]
fn tenants_are_kept_apart_in_every_form_and_over_every_connection() {
    for lent in [false, true] {
        let (tenants, runtime) = (Tenants::fresh(), runtime());
        // One server session serves everybody: what stayed behind in it would be found.
        let bouncer = lent.then(|| Bouncer::start(Cluster::shared().port(), 1));
        let config = tenants.database.config();
        let config = bouncer.as_ref().map_or_else(|| config.clone(), |bouncer| bouncer.through(&config));
        let options = Options { pool: 1, prepare: !lent, ..Options::default() };
        let ledger = runtime.block_on(Ledger::open(config, options)).unwrap();
        let declared = Arc::new(runtime.block_on(ledger.declare(&single())).unwrap());
        check(&runtime, &ledger, &declared, "single");
        let declared = Arc::new(runtime.block_on(ledger.declare_list(&list())).unwrap());
        check(&runtime, &ledger, &declared, "list");
        let notes = tenants.database.query("SELECT workspace || ' ' || id FROM notes ORDER BY ctid");
        let notes: Vec<String> = notes.iter().map(|note| note.get(0)).collect();
        assert_eq!(notes, ["team-a 1", "team-b 20", "team-a 1"], "lent: {lent}");
        let left = runtime.block_on(ledger.read(|tx| {
            Box::pin(async move {
                let sql = "SELECT coalesce(current_setting('app.workspace', true), '')";
                Ok(tx.query_typed_one(sql, &[]).await?.get::<_, String>(0))
            })
        }));
        assert_eq!(left.unwrap(), "", "lent: {lent}");
        ledger.close();
    }
}
