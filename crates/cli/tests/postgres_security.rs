//! Row-level security as applications use it: policies on the workspace that hold for owners too, and a role that
//! serves and owns nothing. The tools' SQL asks for no workspace of its own accord: the policies alone keep tenants
//! apart.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use counterfoil_testkit::site::{Data, Kind, for_everybody};
use counterfoil_testkit::{Done, Http, Send, Server, Site, Who};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");
const ROLE: &str = "app_under_policies";

const SCHEMA: &str = "
CREATE TABLE secrets (id bigint PRIMARY KEY, workspace_id text NOT NULL DEFAULT current_setting('app.workspace'),
  body text NOT NULL, half double precision, version bigint NOT NULL);
CREATE TABLE log (workspace_id text NOT NULL DEFAULT current_setting('app.workspace'), secret bigint, line text);
INSERT INTO secrets VALUES (1, 'team-a', 'of a', 0.5, 1), (2, 'team-b', 'of b', 0.5, 1);
ALTER TABLE secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE secrets FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON secrets USING (workspace_id = current_setting('app.workspace'));
ALTER TABLE log ENABLE ROW LEVEL SECURITY;
ALTER TABLE log FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON log USING (workspace_id = current_setting('app.workspace'));";

/// One statement, a list, and a list that runs step by step (its `*` cannot be composed).
const TOOLS: &str = r#"
[database]
url = "-"

[tools.set_secret]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM secrets WHERE id = :id AND :workspace <> ''"
write = "UPDATE secrets SET body = :body, version = version + 1 WHERE id = :id AND version = :expected_version AND :workspace <> '' RETURNING id, body, version"
current = "SELECT id, body, version FROM secrets WHERE id = :id AND :workspace <> ''"
input = { id = { type = "integer" }, body = { type = "string" }, expected_version = { type = "integer" } }

[tools.set_and_log]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM secrets WHERE id = :id AND :workspace <> ''"
write = [
  "INSERT INTO log (secret, line) SELECT :id, :body WHERE :workspace <> ''",
  "UPDATE secrets SET body = :body, version = version + 1 WHERE id = :id AND version = :expected_version AND :workspace <> '' RETURNING id, body, version",
]
current = "SELECT id, body, version FROM secrets WHERE id = :id AND :workspace <> ''"
input = { id = { type = "integer" }, body = { type = "string" }, expected_version = { type = "integer" } }

[tools.set_stepwise]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM secrets WHERE id = :id AND :workspace <> ''"
write = [
  "UPDATE secrets SET body = :body, version = version + 1 WHERE id = :id AND version = :expected_version AND :workspace <> '' RETURNING *",
  "INSERT INTO log (secret, line) SELECT :id, :body WHERE :workspace <> ''",
]
current = "SELECT * FROM secrets WHERE id = :id AND :workspace <> ''"
input = { id = { type = "integer" }, body = { type = "string" }, expected_version = { type = "integer" } }

[tools.list_notes]
scope = "automation:read"
read = "SELECT id, body FROM secrets WHERE :workspace <> '' ORDER BY id"
"#;

fn set(tool: &str, id: &str, row: i64, version: i64) -> Send {
    let body = format!("{tool} {id}");
    let arguments = json!({ "request_id": id, "id": row, "body": body, "expected_version": version });
    Send::new(tool, arguments.to_string())
}

fn status(http: &mut Http, tool: &str, operation: &str) -> Value {
    let arguments = json!({ "tool": tool, "operation": operation }).to_string();
    http.call(&Send::new("operation_status", arguments)).value()
}

/// The config of a server that connects as the role that owns nothing.
fn secured(site: &Site, more: &str) -> PathBuf {
    let Data::Postgres(_, database) = &site.database else { unreachable!() };
    site.elsewhere("secured.toml", &database.url().replace("postgres@", &format!("{ROLE}@")), more)
}

fn served(site: &Site, more: &str) -> Server {
    Server::start(Path::new(PROGRAM), &secured(site, more))
}

fn site() -> Site {
    let site = Site::fresh_on(Kind::Postgres, SCHEMA);
    let main = site.config("counterfoil.toml", &for_everybody(TOOLS));
    site.database.execute(&format!(
        "CREATE ROLE {ROLE} LOGIN; GRANT SELECT, UPDATE ON secrets TO {ROLE}; GRANT SELECT, INSERT ON log TO {ROLE}"
    ));
    let migrated =
        Command::new(PROGRAM).arg("migrate").arg(main).args(["--grant-to", ROLE]).output().unwrap();
    assert!(migrated.status.success(), "{migrated:?}");
    site
}

/// Each tenant reaches its own rows by every way that a call can take, and nobody else's.
#[test]
fn policies_keep_tenants_apart() {
    let site = site();
    let server = served(&site, "pool = 1\nsession = { \"app.workspace\" = \":workspace\" }");
    let (mut alice, mut carol) = (server.connect(Who::Alice), server.connect(Who::Carol));
    for (at, tool) in (1..).zip(["set_secret", "set_and_log", "set_stepwise"]) {
        // One connection serves both in turn: what is set for one call is gone in the next.
        for (http, own, other) in [(&mut alice, 1, 2), (&mut carol, 2, 1)] {
            let done = http.call(&set(tool, tool, own, at)).answer().done();
            assert!(!done.replayed && done.result.contains(&format!("\"version\":{}", at + 1)), "{done:?}");
            let again = http.call(&set(tool, tool, own, at));
            assert_eq!(again.answer().done(), Done { replayed: true, ..done.clone() });
            assert_eq!(again.value()["current"]["version"], at + 1, "{again:?}");
            let known = status(http, tool, tool);
            assert_eq!((&known["state"], known["result"].to_string()), (&json!("committed"), done.result));
            let stale = http.call(&set(tool, &format!("{tool}-stale"), own, at)).answer().refused();
            assert_eq!(stale.code, "version_conflict", "{stale:?}");
            assert_eq!(stale.error["current"]["version"], at + 1, "{stale:?}");
            let foreign = http.call(&set(tool, &format!("{tool}-foreign"), other, 1)).answer().refused();
            assert_eq!(foreign.code, "resource_unavailable", "{foreign:?}");
            let none = status(http, tool, &format!("{tool}-foreign"));
            assert_eq!(none["state"], "not_committed_so_far", "{none}");
        }
    }
    for (http, own) in [(&mut alice, 1), (&mut carol, 2)] {
        let seen = http.call(&Send::new("list_notes", "{}")).value();
        let ids: Vec<_> = seen["result"].as_array().unwrap().iter().map(|row| row["id"].clone()).collect();
        assert_eq!(ids, [json!(own)], "{seen}");
    }
    let logged =
        "SELECT count(*) FROM log WHERE workspace_id = CASE secret WHEN 1 THEN 'team-a' ELSE 'team-b' END";
    assert_eq!((site.database.count(logged), site.database.count("SELECT count(*) FROM log")), (4, 4));
    assert_eq!(site.database.receipts(), 6);
    drop(server);
    // Without the setting there is nothing to serve, and it is said what is missing.
    let refused = Server::try_start(Path::new(PROGRAM), &secured(&site, "")).unwrap_err();
    assert!(refused.log.contains("say `session = { \"app.workspace\" = \":workspace\" }`"), "{refused:?}");
    // Where the policies put up with that, nobody reaches anything.
    for table in ["secrets", "log"] {
        let lenient = "USING (workspace_id = current_setting('app.workspace', true))";
        site.database.execute(&format!("ALTER POLICY own ON {table} {lenient}"));
    }
    let server = served(&site, "pool = 1");
    let mut alice = server.connect(Who::Alice);
    for tool in ["set_secret", "set_and_log", "set_stepwise"] {
        let refused = alice.call(&set(tool, &format!("{tool}-late"), 1, 4)).answer().refused();
        assert_eq!(refused.code, "resource_unavailable", "{refused:?}");
    }
    assert_eq!(site.database.receipts(), 6);
    drop(server);
    site.database.execute(&format!("DROP OWNED BY {ROLE}; DROP ROLE {ROLE}"));
}
