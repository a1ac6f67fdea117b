//! S1 on PostgreSQL: what is refused as `resource_unavailable` looks alike whatever the cause, to the byte and to the
//! statement, for every form that a tool can have. `edge_leaks.rs` of the server does it for SQLite.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;

use counterfoil_testkit::postgres::{Database, traced};
use counterfoil_testkit::site::{Data, EXAMPLE, Kind, Person, for_people};
use counterfoil_testkit::{Http, Send, Server, Site};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");
const MEMBERS: &str =
    "CREATE TABLE members (workspace_id text, user_id text); INSERT INTO members VALUES ('team-a', 'alice');
    INSERT INTO automations SELECT id, 'team-a', 15, 1 FROM generate_series(3, 9) id";
const MEMBERSHIP: &str = "SELECT 1 FROM members WHERE workspace_id = :workspace AND user_id = :principal";
/// The example's tool in its other forms: step by step, several statements, and one whose success takes the row away.
const MORE: &str = r#"
[tools.by_step]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM automations WHERE id = :id AND workspace_id = :workspace"
write = """
  WITH minutes AS (SELECT :interval_minutes::bigint AS wanted)
  UPDATE automations SET interval_minutes = wanted, version = version + 1 FROM minutes
   WHERE id = :id AND workspace_id = :workspace AND version = :expected_version
  RETURNING id, interval_minutes, version"""
input = { id = { type = "integer" }, expected_version = { type = "integer" }, interval_minutes = { type = "integer" } }

[tools.by_list]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM automations WHERE id = :id AND workspace_id = :workspace"
write = [
  "UPDATE automations SET version = version + 1 WHERE id = :id AND workspace_id = :workspace AND version = :expected_version RETURNING version",
  "UPDATE automations SET interval_minutes = :interval_minutes WHERE id = :id AND workspace_id = :workspace RETURNING id, version",
]
input = { id = { type = "integer" }, expected_version = { type = "integer" }, interval_minutes = { type = "integer" } }

[tools.hand_over]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM automations WHERE id = :id AND workspace_id = :workspace"
replay_access = "SELECT 1 FROM automations WHERE id = :id AND workspace_id IN (:workspace, 'archive')"
write = """
  UPDATE automations SET interval_minutes = :interval_minutes, version = version + 1
   WHERE id = :id AND workspace_id = :workspace AND version = :expected_version RETURNING id"""
input = { id = { type = "integer" }, expected_version = { type = "integer" }, interval_minutes = { type = "integer" } }

[tools.guarded_read]
scope = "automation:read"
returns = "rows"
access = "SELECT 1 FROM automations WHERE id = :id AND workspace_id = :workspace"
read = "SELECT id, version FROM automations WHERE id = :id AND workspace_id = :workspace"
input.id = { type = "integer" }
"#;

struct World {
    server: Server,
    site: Site,
}

impl World {
    /// `lock` is how the rule of membership ends.
    fn new(lock: &str) -> Self {
        let site = Site::automations_on(Kind::Postgres);
        site.database.execute(MEMBERS);
        let scopes = ["automation:read", "automation:write"];
        let alice = Person { token: "token", subject: "alice", workspace: "team-a", scopes: &scopes };
        let text =
            for_people(&EXAMPLE.replacen("[[auth.token]]", &format!("{MORE}\n[[auth.token]]"), 1), &[alice]);
        let auth = format!("[auth]\nmembership = \"{MEMBERSHIP}{lock}\"\n\n[[auth.token]]");
        let config = site.config("counterfoil.toml", &text.replacen("[[auth.token]]", &auth, 1));
        database(&site).set("log_statement = 'all'");
        let server = Server::start(Path::new(PROGRAM), &config);
        Self { server, site }
    }

    fn call(&self, send: &Send) -> String {
        Http::connect(self.server.address, "token").call(send).body
    }

    /// The answer to a call that is refused, and the statements that led to it.
    fn refused(&self, what: &str, send: &Send) -> (String, Vec<String>) {
        // Once unseen: what a connection prepares for the first time it keeps.
        let _warm = self.call(send);
        let (body, statements) = traced(database(&self.site), || self.call(send));
        assert!(body.contains("resource_unavailable"), "{what}: {body}");
        let runs = |part: &str| statements.iter().any(|sql| sql.contains(part));
        assert!(runs("FROM members"), "{what}: {statements:?}");
        (body, statements)
    }
}

fn database(site: &Site) -> &Database {
    match &site.database {
        Data::Postgres(_, database) => database,
        Data::Sqlite(_) => unreachable!(),
    }
}

/// A call of `tool` for row `id`. What a tool does not take is left out.
fn call(tool: &str, id: i64, request_id: &str) -> Send {
    let mut arguments = json!({"id": id});
    if !READS.contains(&tool) {
        arguments =
            json!({"request_id": request_id, "id": id, "expected_version": 1, "interval_minutes": 30});
    }
    Send::new(tool, arguments.to_string())
}

/// A cause: what is done behind the server's back, the row that is called for, and under which id.
type Cause = (&'static str, &'static str, i64, &'static str);

const READS: [&str; 1] = ["guarded_read"];
const WRITES: [&str; 4] = ["set_interval", "by_step", "by_list", "hand_over"];
const STRANGE: [Cause; 5] = [
    ("never existed", "", 99, "new"),
    ("another workspace's", "", 20, "new"),
    ("moved away", "UPDATE automations SET workspace_id = 'team-b', version = 9 WHERE id = 1", 1, "new"),
    ("deleted", "DELETE FROM automations WHERE id = 2", 2, "new"),
    ("not a member", "DELETE FROM members", 6, "new"),
];
/// The caller's own operation has committed, and something has been taken away since.
const OWN: [Cause; 3] = [
    ("moved since", "UPDATE automations SET workspace_id = 'team-b' WHERE id = 3", 3, "done-3"),
    ("deleted since", "DELETE FROM automations WHERE id = 4", 4, "done-4"),
    ("revoked since", "DELETE FROM members", 5, "done-5"),
];
const ADMIT: &str = "INSERT INTO members VALUES ('team-a', 'alice')";

/// Every cause of a table: one body, and one list of statements.
fn check(world: &World, tool: &str, causes: &[Cause]) -> String {
    let mut first = None;
    for (what, sql, id, request_id) in causes {
        world.site.database.execute(sql);
        let again = || world.refused(&format!("{tool}, {what}"), &call(tool, *id, request_id));
        let mut got = again();
        // What a server does by itself each minute may have come in between: a difference that is one is there again.
        if first.as_ref().is_some_and(|first| *first != got) {
            got = again();
        }
        assert!(got.1.iter().any(|sql| sql.contains("FROM automations")), "{tool}, {what}: {:?}", got.1);
        let expected = first.get_or_insert_with(|| got.clone());
        assert_eq!(&got, expected, "{tool}, {what}");
    }
    world.site.database.execute(ADMIT);
    first.unwrap().0
}

fn check_tools(lock: &str) {
    for tool in WRITES.into_iter().chain(READS) {
        let world = World::new(lock);
        let own: Vec<Cause> = OWN.into_iter().filter(|_| WRITES.contains(&tool)).collect();
        for (_, _, id, request_id) in &own {
            let body = world.call(&call(tool, *id, request_id));
            assert!(body.contains("\"replayed\":false"), "{body}");
        }
        let strange = check(&world, tool, &STRANGE);
        if !own.is_empty() {
            assert_eq!(check(&world, tool, &own), strange, "{tool}: nor does the answer tell of a receipt");
        }
    }
}

/// To somebody who is no member the built-in tools say the same, whatever there is to tell.
fn check_built_ins(lock: &str) {
    let world = World::new(lock);
    let done = world.call(&call("set_interval", 1, "done"));
    assert!(done.contains("\"replayed\":false"), "{done}");
    let ask = |name: &str, tool: &str, operation: &str| {
        Send::new(name, json!({"tool": tool, "operation": operation}).to_string())
    };
    let voided = world.call(&ask("void_operation", "set_interval", "voided"));
    assert!(voided.contains("\"state\":\"voided\""), "{voided}");
    world.site.database.execute("DELETE FROM members");
    for name in ["operation_status", "void_operation"] {
        let mut all = Vec::new();
        for (tool, operation) in [
            ("set_interval", "done"),
            ("set_interval", "voided"),
            ("set_interval", "never"),
            ("by_list", "done"),
        ] {
            all.push(world.refused(&format!("{name} {operation}"), &ask(name, tool, operation)));
        }
        assert!(all.iter().all(|one| *one == all[0]), "{name}: {all:?}");
        assert!(!all[0].1.iter().any(|sql| sql.contains("INSERT")), "{name}: {all:?}");
    }
    let voids = "SELECT count(*) FROM counterfoil_receipts";
    assert_eq!(world.site.database.count(voids), 2, "nothing was voided");
}

#[test]
fn every_cause_looks_alike_on_postgresql() {
    for lock in ["", " FOR SHARE"] {
        check_tools(lock);
        check_built_ins(lock);
    }
}
