//! C4 to C6 and Q1 to Q7: declared SQL and its results; lists, reads, and what `returns` says.

use counterfoil_core::Code;
use counterfoil_testkit::{Send, Who};
use serde_json::json;

use super::{Case, On, Stage, edit_42, together};

use Who::{Alice, AliceReading};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "C5: a failure while rows are read",
        codes: &[Code::ConstraintViolated],
        on: On::Own(NAMES, NAMES_SCHEMA),
        steps: while_reading,
    },
    Case {
        name: "C6: a failure after the receipt",
        codes: &[Code::Internal],
        on: On::Automations,
        steps: after_receipt,
    },
    Case {
        name: "Q1: only true parameters are bound",
        codes: &[],
        on: On::Own(ODD, ODD_SCHEMA),
        steps: parameters,
    },
    Case {
        name: "Q2, C4: one ends the transaction of all",
        codes: &[Code::ConstraintViolated],
        on: On::Own(GROUP, GROUP_SCHEMA),
        steps: enders,
    },
    Case { name: "Q3: results are exact", codes: &[], on: On::Own(VALUES, VALUES_SCHEMA), steps: exact },
    Case {
        name: "Q4: a result that is too large",
        codes: &[Code::ResultTooLarge],
        on: On::Notes("result = \"1KiB\""),
        steps: large,
    },
    Case {
        name: "Q5: a column that appears, a table that goes",
        codes: &[Code::Internal, Code::VersionConflict],
        on: On::Own(STAR, STAR_SCHEMA),
        steps: schema,
    },
    Case {
        name: "Q6, Q7: lists, and rows that were not declared",
        codes: &[Code::VersionConflict, Code::PreconditionFailed],
        on: On::Own(LISTS, LISTS_SCHEMA),
        steps: lists,
    },
    Case {
        name: "reads",
        codes: &[Code::ResourceUnavailable, Code::Forbidden, Code::InvalidArguments, Code::ResultTooLarge],
        on: On::Own(READS, READS_SCHEMA),
        steps: reads,
    },
];

const NAMES_SCHEMA: &str = "CREATE TABLE names (workspace_id TEXT, name TEXT UNIQUE) STRICT;";
const NAMES: &str = r#"
[tools.add_names]
revision = "v1"
scope = "automation:write"
returns = "rows"
write = "INSERT INTO names SELECT :workspace, value FROM json_each(:names) RETURNING name"
input.names = { type = "array", items = { type = "string" } }

[tools.forget]
revision = "v1"
scope = "automation:write"
returns = "nothing"
access = "SELECT 1 WHERE :workspace = 'team-a'"
write = "DELETE FROM names WHERE workspace_id = :workspace AND name = :name"
input.name = { type = "string" }
"#;

fn while_reading(stage: &mut Stage) {
    let add = |id: &str, names: &[&str]| {
        Send::new("add_names", json!({ "request_id": id, "names": names }).to_string())
    };
    let refused = stage.refused(Alice, &add("a", &["x", "y", "x"]), Code::ConstraintViolated);
    assert!(refused.error["message"].as_str().unwrap().contains("names.name"), "{refused:?}");
    assert_eq!(stage.count("SELECT count(*) FROM names"), 0);
    stage.receipts(0);
    // The refusal has not consumed the id; `rows` gives all of them, `nothing` gives null.
    let done = stage.fresh(Alice, &add("a", &["x", "y", "z"]));
    assert_eq!(done.result, r#"[{"name":"x"},{"name":"y"},{"name":"z"}]"#);
    stage.replayed(Alice, &add("a", &["x", "y", "z"]), &done);
    let forget = Send::new("forget", r#"{"request_id":"b","name":"y"}"#);
    let done = stage.fresh(Alice, &forget);
    assert_eq!(done.result, "null");
    stage.replayed(Alice, &forget, &done);
    assert_eq!(stage.count("SELECT count(*) FROM names"), 2);
}

fn after_receipt(stage: &mut Stage) {
    stage.site.database.execute(
        "CREATE TRIGGER after_receipt AFTER INSERT ON counterfoil_receipts \
         BEGIN SELECT RAISE(ABORT, 'secret of the trigger'); END",
    );
    let refused = stage.refused(Alice, &edit_42(), Code::Internal);
    assert!(!refused.error.to_string().contains("secret"), "{refused:?}");
    let id = refused.error["correlation_id"].as_str().unwrap();
    stage.server.says(id);
    stage.row(1, 15, 1);
    stage.receipts(0);
    stage.site.database.execute("DROP TRIGGER after_receipt");
    let _done = stage.fresh(Alice, &edit_42());
}

const ODD_SCHEMA: &str = "CREATE TABLE \"odd :table\" (workspace_id TEXT, \"a:b\" TEXT, body TEXT, twice TEXT, [c :d] TEXT) STRICT;";
const ODD: &str = r#"
[tools.add_odd]
revision = "v1"
scope = "automation:write"
write = """
  -- :comment is no parameter, nor is '::text'
  INSERT INTO "odd :table" (workspace_id, "a:b", body, twice, [c :d])
  VALUES (:workspace, 'a :literal, ''::text'' ? ?1 @x $y', :body /* :body :gone */,
          :body || ':body' || :body, :workspace)
  RETURNING "a:b" AS literal, body, twice, `c :d` AS quoted, :principal AS who, :request_id AS id"""
input.body = { type = "string" }
"#;

fn parameters(stage: &mut Stage) {
    let add = Send::new("add_odd", json!({ "request_id": "a", "body": ":workspace'; --" }).to_string());
    let done = stage.fresh(Alice, &add);
    assert_eq!(
        done.result,
        concat!(
            r#"{"literal":"a :literal, '::text' ? ?1 @x $y","body":":workspace'; --","#,
            r#""twice":":workspace'; --:body:workspace'; --","quoted":"team-a","who":"alice","id":"a"}"#
        )
    );
    stage.replayed(Alice, &add, &done);
}

const GROUP_SCHEMA: &str = "
CREATE TABLE parents (id INTEGER PRIMARY KEY) STRICT;
CREATE TABLE children (workspace_id TEXT, parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED) STRICT;
CREATE TABLE things (workspace_id TEXT, name TEXT UNIQUE ON CONFLICT ROLLBACK) STRICT;
CREATE TRIGGER no_bombs BEFORE INSERT ON things WHEN NEW.name = 'bomb' BEGIN SELECT RAISE(ROLLBACK, 'boom'); END;
INSERT INTO things VALUES ('team-a', 'taken');";
const GROUP: &str = r#"
[tools.add_thing]
revision = "v1"
scope = "automation:write"
write = "INSERT INTO things VALUES (:workspace, :name) RETURNING name, (SELECT count(*) FROM things) AS seen"
input.name = { type = "string" }

[tools.add_child]
revision = "v1"
scope = "automation:write"
write = "INSERT INTO children VALUES (:workspace, :parent) RETURNING parent"
input.parent = { type = "integer" }
"#;

/// Whatever the neighbours do, and however the calls were grouped: each good one commits once and tells what its own
/// last run saw, each bad one is refused alone.
fn enders(stage: &mut Stage) {
    let thing = |id: String, name: &str| {
        Send::new("add_thing", json!({ "request_id": id, "name": name }).to_string())
    };
    for round in 0..10 {
        let other = stage.site.database.connect();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut sends: Vec<Send> =
            (0..6).map(|at| thing(format!("good-{round}-{at}"), &format!("{round} {at}"))).collect();
        sends.insert(2, thing(format!("bomb-{round}"), "bomb"));
        sends.insert(4, thing(format!("taken-{round}"), "taken"));
        let orphan = json!({ "request_id": format!("orphan-{round}"), "parent": 7 }).to_string();
        sends.insert(5, Send::new("add_child", orphan));
        let told = together(&stage.server, &sends, || other.execute_batch("ROLLBACK").unwrap());
        let mut seen = Vec::new();
        for (send, told) in sends.iter().zip(&told) {
            stage.judge(Alice, send, told);
            if send.arguments.contains("good") {
                let done = told.answer().done();
                assert!(!done.replayed);
                seen.push(told.value()["result"]["seen"].as_i64().unwrap());
                stage.replayed(Alice, send, &done);
            } else {
                assert_eq!(told.answer().refused().code, "constraint_violated", "{told:?}");
                drop(stage.refused(Alice, send, Code::ConstraintViolated));
            }
        }
        seen.sort_unstable();
        let expected: Vec<i64> = (0..6).map(|at| 2 + round * 6 + at).collect();
        assert_eq!(seen, expected, "what an undone run saw was told");
        stage.receipts((round + 1) * 6);
    }
    assert_eq!(stage.count("SELECT count(*) FROM children"), 0);
    assert_eq!(stage.count("SELECT count(*) FROM things"), 61);
}

const VALUES_SCHEMA: &str =
    "CREATE TABLE vals (workspace_id, id INTEGER PRIMARY KEY AUTOINCREMENT, given, document, flag);";
const VALUES: &str = r#"
[tools.add_values]
revision = "v1"
scope = "automation:write"
write = """
  INSERT INTO vals (workspace_id, given, document, flag) VALUES (:workspace, :given, :document, :flag)
  RETURNING given, typeof(given) AS kind, document, flag, 9007199254740993 AS beyond, -9223372036854775808 AS least,
            '' AS empty, NULL AS absent, x'00ff10' AS bytes, x'' AS no_bytes, 0.1 AS tenth, 1e300 AS huge, 2.0 AS two,
            '12345678901234567890.10' AS amount, 'tab	"quote" \\ é 😀' AS words, '1.50' AS price"""
output = { document = "json", flag = "boolean", bytes = "bytes" }
input = { given = { type = "integer" }, document = { type = "object", additionalProperties = true }, flag = { type = "boolean" } }
"#;

fn exact(stage: &mut Stage) {
    let arguments = r#"{"request_id":"a","given":9223372036854775807,"flag":true,
        "document":{"z":1.0,"a":[9007199254740993,null,"é"],"n":-0}}"#;
    let add = Send::new("add_values", arguments);
    let first = stage.call(Alice, &add);
    let done = first.answer().done();
    for part in [
        r#""given":9223372036854775807,"kind":"integer""#,
        r#""a":[9007199254740993,null,"é"]"#,
        r#""flag":true,"beyond":9007199254740993,"least":-9223372036854775808"#,
        r#""empty":"","absent":null,"bytes":"AP8Q","no_bytes":"","tenth":0.1,"huge":1e+300,"two":2.0"#,
        r#""amount":"12345678901234567890.10","words":"tab\t\"quote\" \\ é 😀","price":"1.50""#,
    ] {
        assert!(done.result.contains(part), "{part}\n{}", done.result);
    }
    stage.replayed(Alice, &add, &done);
    stage.restart();
    stage.replayed(Alice, &add, &done);
    let status = Send::new("operation_status", r#"{"tool":"add_values","operation":"a"}"#);
    let told = stage.server.connect(Alice).call(&status);
    assert!(told.structured().contains(&format!("\"result\":{}", done.result)), "{told:?}");
}

fn large(stage: &mut Stage) {
    let note = |length: usize| {
        let arguments = json!({ "request_id": "a", "body": "x".repeat(length) });
        Send::new("add_note", arguments.to_string())
    };
    let _large = stage.refused(Alice, &note(1024), Code::ResultTooLarge);
    assert_eq!(stage.count("SELECT count(*) FROM notes"), 0);
    stage.receipts(0);
    let done = stage.fresh(Alice, &note(512));
    stage.replayed(Alice, &note(512), &done);
}

const STAR_SCHEMA: &str = "
CREATE TABLE things (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT NOT NULL, name TEXT, version INTEGER NOT NULL DEFAULT 1) STRICT;
INSERT INTO things (workspace_id, name) VALUES ('team-a', 'one');";
const STAR: &str = r#"
[tools.rename]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM things WHERE id = :id AND workspace_id = :workspace"
write = """
  UPDATE things SET name = :name, version = version + 1
   WHERE id = :id AND workspace_id = :workspace AND version = :expected_version RETURNING *"""
current = "SELECT * FROM things WHERE id = :id AND workspace_id = :workspace"
input = { id = { type = "integer" }, name = { type = "string" }, expected_version = { type = "integer" } }
"#;

fn rename(id: &str, version: i64, name: &str) -> Send {
    let arguments = json!({ "request_id": id, "id": 1, "expected_version": version, "name": name });
    Send::new("rename", arguments.to_string())
}

fn schema(stage: &mut Stage) {
    let done = stage.fresh(Alice, &rename("a", 1, "two"));
    let told = stage.call(Alice, &rename("a", 1, "two"));
    assert_eq!(told.value()["current"], told.value()["result"], "{told:?}");
    // A row too large to be shown takes no answer away.
    let long = "x".repeat(400_000);
    stage.site.database.execute(&format!("UPDATE things SET name = '{long}'"));
    let told = stage.call(Alice, &rename("a", 1, "two"));
    assert_eq!(told.value().get("current"), None, "{told:?}");
    stage.replayed(Alice, &rename("a", 1, "two"), &done);
    let stale = stage.refused(Alice, &rename("b", 9, "three"), Code::VersionConflict);
    assert_eq!(stale.error.get("current"), None);
    stage.site.database.execute("UPDATE things SET name = 'two'");
    let stale = stage.refused(Alice, &rename("b", 9, "three"), Code::VersionConflict);
    assert_eq!(stale.error["current"], told.value()["result"]);
    stage.site.database.execute("ALTER TABLE things ADD COLUMN later TEXT");
    let _unknown = stage.refused(Alice, &rename("b", 2, "three"), Code::Internal);
    stage.receipts(1);
    // What has committed is told all the same, without a row that cannot be shown.
    let told = stage.call(Alice, &rename("a", 1, "two"));
    assert_eq!(told.value().get("current"), None, "{told:?}");
    stage.replayed(Alice, &rename("a", 1, "two"), &done);
    stage.restart();
    let told = stage.call(Alice, &rename("b", 2, "three"));
    assert_eq!(told.value()["result"]["later"], json!(null), "{told:?}");
    stage.site.database.execute("ALTER TABLE things RENAME TO elsewhere");
    let _gone = stage.refused(Alice, &rename("c", 3, "four"), Code::Internal);
    let _gone = stage.refused(Alice, &rename("a", 1, "two"), Code::Internal);
    stage.site.database.execute("ALTER TABLE elsewhere RENAME TO things");
    let _back = stage.fresh(Alice, &rename("c", 3, "four"));
    stage.replayed(Alice, &rename("a", 1, "two"), &done);
    stage.receipts(3);
}

const LISTS_SCHEMA: &str = "
CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT NOT NULL, total INTEGER NOT NULL, version INTEGER NOT NULL) STRICT;
CREATE TABLE lines (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT NOT NULL, order_id INTEGER, amount INTEGER) STRICT;
CREATE TABLE log (workspace_id TEXT NOT NULL, line INTEGER, total INTEGER) STRICT;
INSERT INTO orders (workspace_id, total, version) VALUES ('team-a', 0, 1), ('team-a', 0, 1);";
const LISTS: &str = r#"
[tools.add_line]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM orders WHERE id = :order AND workspace_id = :workspace"
write = [
  { name = "order", sql = "UPDATE orders SET total = total + :amount, version = version + 1 WHERE id = :order AND workspace_id = :workspace AND version = :expected_version RETURNING id, total, version" },
  { name = "line", sql = "INSERT INTO lines (workspace_id, order_id, amount) VALUES (:workspace, :order.id, :amount) RETURNING id, amount" },
  { sql = "DELETE FROM log WHERE workspace_id = :workspace AND line < 0", may_change_nothing = true },
  { sql = "INSERT INTO log SELECT :workspace, :line.id, :order.total WHERE :amount > 0" },
]
input = { order = { type = "integer" }, expected_version = { type = "integer" }, amount = { type = "integer" } }

[tools.touch_all]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 WHERE :workspace = 'team-a'"
write = "UPDATE orders SET version = version + 1 WHERE workspace_id = :workspace RETURNING id"

[tools.touch_none]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 WHERE :workspace = 'team-a'"
write = "UPDATE orders SET version = version + 1 WHERE workspace_id = :workspace AND id = :id RETURNING id"
input.id = { type = "integer" }
"#;

fn lists(stage: &mut Stage) {
    let line = |id: &str, version: i64, amount: i64| {
        let arguments =
            json!({ "request_id": id, "order": 1, "expected_version": version, "amount": amount });
        Send::new("add_line", arguments.to_string())
    };
    let nothing_but = |lines: i64, total: i64| {
        assert_eq!(stage.count("SELECT count(*) FROM lines"), lines);
        assert_eq!(stage.count("SELECT count(*) FROM log"), lines);
        assert_eq!(stage.count("SELECT total FROM orders WHERE id = 1"), total);
        assert_eq!(stage.count("SELECT count(*) FROM counterfoil_receipts"), lines);
    };
    let _stale = stage.refused(Alice, &line("a", 9, 5), Code::VersionConflict);
    nothing_but(0, 0);
    let done = stage.fresh(Alice, &line("a", 1, 5));
    assert_eq!(done.result, r#"{"id":1,"amount":5}"#);
    stage.replayed(Alice, &line("a", 1, 5), &done);
    nothing_but(1, 5);
    // The last statement changes nothing: what the first three did is undone.
    let _undone = stage.refused(Alice, &line("b", 2, -1), Code::PreconditionFailed);
    nothing_but(1, 5);
    let _next = stage.fresh(Alice, &line("b", 2, 7));
    nothing_but(2, 12);
    assert_eq!(stage.count("SELECT max(total) FROM log"), 12);
    let _two_rows =
        stage.refused(Alice, &Send::new("touch_all", r#"{"request_id":"c"}"#), Code::PreconditionFailed);
    let none = Send::new("touch_none", r#"{"request_id":"d","id":99}"#);
    let _no_row = stage.refused(Alice, &none, Code::PreconditionFailed);
    assert_eq!(stage.count("SELECT sum(version) FROM orders"), 4);
    nothing_but(2, 12);
}

const READS_SCHEMA: &str = "
CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT NOT NULL, body TEXT) STRICT;
INSERT INTO notes (workspace_id, body) VALUES ('team-a', 'one'), ('team-a', 'two'), ('team-a', 'three'), ('team-b', 'four');";
const READS: &str = r#"
[limits]
result = "1KiB"

[tools.list_notes]
scope = "automation:read"
limit = 2
read = "SELECT id, body FROM notes WHERE workspace_id = :workspace AND id > :after ORDER BY id"
input.after = { type = "integer", default = 0 }

[tools.get_note]
scope = "automation:write"
returns = "row"
read = "SELECT body FROM notes WHERE workspace_id = :workspace AND id = :id"
input.id = { type = "integer" }
"#;

fn reads(stage: &mut Stage) {
    let list = |arguments: &str| Send::new("list_notes", arguments);
    let get = |arguments: &str| Send::new("get_note", arguments);
    let told = |who, send: &Send| stage.call(who, send).structured().to_owned();
    assert_eq!(
        told(Alice, &list("{}")),
        r#"{"result":[{"id":1,"body":"one"},{"id":2,"body":"two"}],"truncated":true}"#
    );
    assert_eq!(
        told(Alice, &list(r#"{"after":1}"#)),
        r#"{"result":[{"id":2,"body":"two"},{"id":3,"body":"three"}],"truncated":false}"#
    );
    assert_eq!(told(Who::Carol, &list("{}")), r#"{"result":[{"id":4,"body":"four"}],"truncated":false}"#);
    assert_eq!(told(Who::AliceReading, &list(r#"{"after":9}"#)), r#"{"result":[],"truncated":false}"#);
    // A read has no request id: whatever stands in its place is taken out and ignored.
    let ignored = get(r#"{"id":1,"request_id":["no id"]}"#)
        .header("Idempotency-Key", "a;b")
        .more(r#","idempotencyKey":7"#);
    assert_eq!(told(Alice, &ignored), r#"{"result":{"body":"one"}}"#);
    for id in [4, 99] {
        let _missing = stage.refused(Alice, &get(&format!("{{\"id\":{id}}}")), Code::ResourceUnavailable);
    }
    let _scope = stage.refused(AliceReading, &get(r#"{"id":1}"#), Code::Forbidden);
    let _type = stage.refused(Alice, &get(r#"{"id":"1"}"#), Code::InvalidArguments);
    let long = "x".repeat(1200);
    stage.site.database.execute(&format!("UPDATE notes SET body = '{long}' WHERE id = 1"));
    let _large = stage.refused(Alice, &get(r#"{"id":1}"#), Code::ResultTooLarge);
    stage.receipts(0);
}
