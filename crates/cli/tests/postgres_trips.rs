//! What a call of a server costs on PostgreSQL, in round trips: counted on the wire between them.

use std::path::Path;

use counterfoil_testkit::postgres::{Cluster, Proxy, runtime};
use counterfoil_testkit::site::{Data, Kind, for_everybody};
use counterfoil_testkit::{Send, Server, Site, Who};
use serde_json::json;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

const SCHEMA: &str = "
CREATE TABLE things (id bigint PRIMARY KEY, workspace_id text NOT NULL, name text, version bigint NOT NULL, size double precision);
INSERT INTO things VALUES (1, 'team-a', 'a', 1, 1);
CREATE TABLE log (workspace_id text NOT NULL, thing bigint, line text)";

/// One statement; two that need nothing of each other; two of which the second binds what the first returned; and one
/// whose result the database would write otherwise, which runs step by step.
const TOOLS: &str = r#"
[database]
url = "-"

[tools.one]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM things WHERE id = :id AND workspace_id = :workspace"
write = "UPDATE things SET name = :name, version = version + 1 WHERE id = :id AND workspace_id = :workspace RETURNING id, name, version"
current = "SELECT id, name, version FROM things WHERE id = :id AND workspace_id = :workspace"
input = { id = { type = "integer" }, name = { type = "string" } }

[tools.two]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM things WHERE id = :id AND workspace_id = :workspace"
write = [
  { name = "changed", sql = "UPDATE things SET name = :name, version = version + 1 WHERE id = :id AND workspace_id = :workspace RETURNING id, name, version" },
  "INSERT INTO log VALUES (:workspace, :id, :name)",
]
current = "SELECT id, name, version FROM things WHERE id = :id AND workspace_id = :workspace"
input = { id = { type = "integer" }, name = { type = "string" } }

[tools.chained]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM things WHERE id = :id AND workspace_id = :workspace"
write = [
  { name = "changed", sql = "UPDATE things SET name = :name, version = version + 1 WHERE id = :id AND workspace_id = :workspace RETURNING id, name, version" },
  "INSERT INTO log VALUES (:workspace, :changed.id, :changed.name)",
]
input = { id = { type = "integer" }, name = { type = "string" } }
"#;

fn call(tool: &str, id: &str) -> Send {
    Send::new(tool, json!({ "request_id": id, "id": 1, "name": id }).to_string())
}

/// One for a tool of one statement, two for a list, and one more where a row is waited for; one for every retry.
#[test]
fn round_trips_of_a_call() {
    let site = Site::fresh_on(Kind::Postgres, SCHEMA);
    let Data::Postgres(_, database) = &site.database else { unreachable!() };
    let runtime = runtime();
    let proxy = runtime.block_on(Proxy::whole(Cluster::shared().port()));
    let _main = site.config("counterfoil.toml", &for_everybody(TOOLS));
    let config = proxy.through(&database.config());
    let url = format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port(), config.get_dbname().unwrap());
    let server = Server::start(Path::new(PROGRAM), &site.elsewhere("proxied.toml", &url, "pool = 1"));
    let mut alice = server.connect(Who::Alice);
    let mut cost = |send: &Send| {
        let before = proxy.trips();
        let done = alice.call(send).answer().done();
        (done.replayed, proxy.trips() - before)
    };
    for (tool, trips) in [("one", 1), ("two", 2), ("chained", 3)] {
        // The connection learns the statements of a tool when it first meets them.
        let (first, again) = (format!("{tool}-1"), format!("{tool}-2"));
        let _learnt = [cost(&call(tool, &first)), cost(&call(tool, &first))];
        assert_eq!(cost(&call(tool, &again)), (false, trips), "{tool}");
        assert_eq!(cost(&call(tool, &again)), (true, 1), "{tool}");
        assert_eq!(cost(&call(tool, &first)), (true, 1), "{tool}");
    }
    assert_eq!(database.count("SELECT count(*) FROM log"), 4);
}
