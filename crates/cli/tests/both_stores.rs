//! Q3 on both stores: the same calls of the same tools, and the results byte for byte the same, wherever a type exists
//! on both. Whether one statement is sent or several, and who writes the JSON, must not show.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;

use counterfoil_testkit::site::{Kind, for_everybody};
use counterfoil_testkit::{Answer, Done, Http, Send, Server, Site, Who};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");

const ON_SQLITE: &str = "
CREATE TABLE vals (id INTEGER PRIMARY KEY, workspace_id TEXT NOT NULL, version INTEGER NOT NULL DEFAULT 1, whole INTEGER, words TEXT,
  exact TEXT, flag INTEGER, bytes BLOB, document TEXT, double REAL) STRICT;";
const ON_POSTGRES: &str = "
CREATE TABLE vals (id bigint PRIMARY KEY, workspace_id text NOT NULL, version int NOT NULL DEFAULT 1, whole bigint, words text,
  exact numeric, flag boolean, bytes bytea, document json, double double precision);";

/// `set_one` is one statement; `set_two` is a list; `set_all` has a column that PostgreSQL writes otherwise than JSON is
/// written here, and runs step by step.
const TOOLS: &str = r#"
[database]
url = "sqlite:values.db"
schema = "schema.sql"

[tools.add]
revision = "v1"
scope = "automation:write"
write = "INSERT INTO vals (id, workspace_id, bytes) VALUES (:id, :workspace, BLOB) RETURNING id, version, bytes, words"
input.id = { type = "integer" }

[tools.set_one]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM vals WHERE id = :id AND workspace_id = :workspace"
write = "UPDATE vals SET whole = :whole, words = :words, exact = :exact, flag = :flag, document = :document, double = :double, version = version + 1 WHERE id = :id AND workspace_id = :workspace AND version = :expected_version RETURNING COLUMNS"
current = "SELECT COLUMNS FROM vals WHERE id = :id AND workspace_id = :workspace"
INPUT

[tools.set_two]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM vals WHERE id = :id AND workspace_id = :workspace"
write = [
  { name = "first", sql = "UPDATE vals SET whole = :whole, words = :words, exact = :exact, double = :double, version = version + 1 WHERE id = :id AND workspace_id = :workspace AND version = :expected_version RETURNING id, whole" },
  "UPDATE vals SET flag = :flag, document = :document, whole = :first.whole WHERE id = :first.id AND workspace_id = :workspace RETURNING COLUMNS",
]
current = "SELECT COLUMNS FROM vals WHERE id = :id AND workspace_id = :workspace"
INPUT

[tools.set_all]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM vals WHERE id = :id AND workspace_id = :workspace"
write = "UPDATE vals SET whole = :whole, words = :words, exact = :exact, flag = :flag, document = :document, double = :double, version = version + 1 WHERE id = :id AND workspace_id = :workspace AND version = :expected_version RETURNING COLUMNS, double"
current = "SELECT COLUMNS, double FROM vals WHERE id = :id AND workspace_id = :workspace"
INPUT

[tools.get]
scope = "automation:read"
read = "SELECT COLUMNS, double FROM vals WHERE workspace_id = :workspace ORDER BY id"
OUTPUT
"#;

const COLUMNS: &str =
    "id, version, whole, words, exact, flag, bytes, document, 9007199254740993 AS beyond, '' AS empty";
const INPUT: &str = r#"
OUTPUT
[tools.TOOL.input]
id = { type = "integer" }
expected_version = { type = "integer" }
whole = { type = ["integer", "null"], optional = true }
words = { type = ["string", "null"], optional = true }
exact = { type = ["string", "null"], optional = true }
flag = { type = ["boolean", "null"], optional = true }
document = { type = ["object", "null"], additionalProperties = true, optional = true }
double = { type = ["number", "null"], optional = true }
"#;

/// Members of the arguments.
const VALUES: [&str; 14] = [
    "",
    r#""whole":9223372036854775807,"flag":true,"words":"","exact":"0.00","double":0.1"#,
    r#""whole":-9223372036854775808,"flag":false,"words":" ","exact":"-1.50","double":-0.1"#,
    r#""whole":9007199254740993,"words":"tab\t\"quote\" \\ / é 😀 \u007f\u2028","double":1e300"#,
    r#""words":"'; DROP TABLE vals; --","exact":"12345678901234567890.123456789","double":2"#,
    r#""words":"\u0001\b\f\n\r\u001f","double":5e-324"#,
    r#""words":"e\u0301 \ufeff \uffff","double":-1.7976931348623157e308"#,
    r#""words":"NULL","double":1e-7,"document":{}"#,
    r#""double":123456789012345680,"document":{"z":1,"a":[9007199254740993,null,"é",true,[],{}]}"#,
    r#""double":-0.0,"document":{"n":-0,"d":1.0,"e":1e2,"s":"\u0001\\\"/"}"#,
    r#""double":1e21,"document":{"":"","\ue000":1,"😀":2}"#,
    r#""double":0.000001,"exact":"100""#,
    r#""double":1e15,"exact":"0.000000000001""#,
    r#""double":1e16,"whole":0"#,
];

fn tools(kind: Kind) -> String {
    let (blob, output) = match kind {
        Kind::Sqlite => ("x'00ff10'", "output = { flag = \"boolean\", document = \"json\" }"),
        Kind::Postgres => ("'\\\\x00ff10'", ""),
    };
    let inputs = ["set_one", "set_two", "set_all"]
        .iter()
        .fold(TOOLS.to_owned(), |text, tool| text.replacen("\nINPUT\n", &INPUT.replace("TOOL", tool), 1));
    inputs.replace("COLUMNS", COLUMNS).replace("BLOB", blob).replace("OUTPUT", output)
}

fn served(kind: Kind) -> (Site, Server) {
    let site = match kind {
        Kind::Sqlite => Site::fresh_on(kind, ON_SQLITE),
        Kind::Postgres => {
            let site = Site::fresh_on(kind, "");
            site.database.execute(ON_POSTGRES);
            site
        }
    };
    let config = site.config("counterfoil.toml", &for_everybody(&tools(kind)));
    let server = Server::start(Path::new(PROGRAM), &config);
    (site, server)
}

/// What the call and its retry tell, as far as it is the same everywhere: the result and the row as it is, or the
/// refusal.
fn told(http: &mut Http, send: &Send) -> Vec<String> {
    let told = http.call(send);
    let Done { result, .. } = match told.answer() {
        Answer::Done(done) => done,
        Answer::Refused(refused) => return vec![refused.code.clone(), refused.error.to_string()],
    };
    let again = http.call(send);
    assert!(again.answer().done().replayed && again.answer().done().result == result, "{again:?}");
    let id = serde_json::from_str::<Value>(&send.arguments).unwrap()["request_id"].clone();
    let status = json!({ "tool": send.tool, "operation": id }).to_string();
    let status = http.call(&Send::new("operation_status", status));
    assert!(status.structured().contains(&format!("\"result\":{result}")), "{status:?}");
    let current = again.structured().split_once("\"current\":").map_or("", |(_, current)| current);
    vec![result, current.to_owned()]
}

fn calls() -> Vec<Send> {
    let mut calls = Vec::new();
    for tool in ["set_one", "set_two", "set_all"] {
        for (at, values) in (1..).zip(VALUES) {
            let row = i64::try_from(calls.len()).unwrap();
            let add = json!({ "request_id": format!("add-{row}"), "id": row });
            calls.push(Send::new("add", add.to_string()));
            let comma = if values.is_empty() { "" } else { "," };
            for version in [1, 7] {
                let id = format!("{tool}-{at}-{version}");
                calls.push(Send::new(
                    tool,
                    format!(
                        "{{\"request_id\":\"{id}\",\"id\":{row},\"expected_version\":{version}{comma}{values}}}"
                    ),
                ));
            }
        }
    }
    calls
}

#[test]
fn results_are_the_same_on_both() {
    let (on_sqlite, on_postgres) = (served(Kind::Sqlite), served(Kind::Postgres));
    let mut sqlite = on_sqlite.1.connect(Who::Alice);
    let mut postgres = on_postgres.1.connect(Who::Alice);
    let mut codes = Vec::new();
    for send in calls() {
        let (left, right) = (told(&mut sqlite, &send), told(&mut postgres, &send));
        assert_eq!(left, right, "{send:?}");
        codes.push(left[0].starts_with('{'));
    }
    // Of each row's three calls the last is refused, since its version is not the row's.
    assert!(codes.chunks(3).all(|row| row == [true, true, false]), "{codes:?}");
    let get = Send::new("get", "{}");
    let (left, right) = (sqlite.call(&get), postgres.call(&get));
    assert_eq!(left.structured(), right.structured());
    assert!(left.structured().contains("\"truncated\":false"));
}
