//! C4 to C6, C8 and Q1 to Q3 as they are on PostgreSQL: its SQL, its types, its locks.

use counterfoil_core::Code;
use counterfoil_testkit::site::Data;
use counterfoil_testkit::{Send, Who};
use serde_json::json;

use super::{Case, On, Stage, edit, edit_42};

use Who::Alice;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "C5 on PostgreSQL: a failure while rows are written",
        codes: &[Code::ConstraintViolated],
        on: On::Own(NAMES, NAMES_SCHEMA),
        steps: while_writing,
    },
    Case {
        name: "C6 on PostgreSQL: a failure after the receipt",
        codes: &[Code::Internal],
        on: On::Automations,
        steps: after_receipt,
    },
    Case {
        name: "C8 on PostgreSQL: a row that another program has locked",
        codes: &[Code::Busy],
        on: On::Limited("lock_wait = \"50ms\""),
        steps: locked,
    },
    Case {
        name: "Q1 on PostgreSQL: only true parameters are bound",
        codes: &[],
        on: On::Own(ODD, ODD_SCHEMA),
        steps: parameters,
    },
    Case {
        name: "Q3 on PostgreSQL: results are exact",
        codes: &[Code::InvalidArguments],
        on: On::Own(VALUES, VALUES_SCHEMA),
        steps: exact,
    },
    Case {
        name: "Q3 on PostgreSQL: one statement and step by step tell the same",
        codes: &[Code::PreconditionFailed, Code::VersionConflict],
        on: On::Own(FORMS, FORMS_SCHEMA),
        steps: forms,
    },
    Case {
        name: "Q6 on PostgreSQL: what earlier statements returned",
        codes: &[Code::InvalidArguments],
        on: On::Own(CHAIN, CHAIN_SCHEMA),
        steps: chain,
    },
];

const NAMES_SCHEMA: &str = "CREATE TABLE names (workspace_id text, name text UNIQUE);";
const NAMES: &str = r#"
[tools.add_names]
revision = "v1"
scope = "automation:write"
returns = "rows"
write = "INSERT INTO names SELECT :workspace, unnest(:names::text[]) RETURNING name"
input.names = { type = "array", items = { type = "string" } }
"#;

fn while_writing(stage: &mut Stage) {
    let add = |id: &str, names: &[&str]| {
        Send::new("add_names", json!({ "request_id": id, "names": names }).to_string())
    };
    let refused = stage.refused(Alice, &add("a", &["x", "y", "x"]), Code::ConstraintViolated);
    let message = refused.error["message"].as_str().unwrap();
    assert!(message.contains("names_name_key") && !message.contains("Key ("), "{refused:?}");
    assert_eq!(stage.count("SELECT count(*) FROM names"), 0);
    stage.receipts(0);
    let odd = ["", "NULL", "a,b", "{}", "\"q\"", "\\", "é 😀", " x "];
    let done = stage.fresh(Alice, &add("a", &odd));
    let names = odd.map(|name| json!({ "name": name }));
    assert_eq!(done.result, json!(names).to_string());
    stage.replayed(Alice, &add("a", &odd), &done);
}

const BREAK: &str = "
CREATE FUNCTION after_receipt() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'secret of the trigger'; END $$;
CREATE TRIGGER after_receipt AFTER INSERT ON counterfoil_receipts FOR EACH ROW EXECUTE FUNCTION after_receipt()";

fn after_receipt(stage: &mut Stage) {
    stage.site.database.execute(BREAK);
    let refused = stage.refused(Alice, &edit_42(), Code::Internal);
    assert!(!refused.error.to_string().contains("secret"), "{refused:?}");
    let id = refused.error["correlation_id"].as_str().unwrap();
    stage.server.says(id);
    stage.row(1, 15, 1);
    stage.receipts(0);
    stage.site.database.execute("DROP TRIGGER after_receipt ON counterfoil_receipts");
    let _done = stage.fresh(Alice, &edit_42());
}

fn locked(stage: &mut Stage) {
    let done = stage.fresh(Alice, &edit_42());
    let Data::Postgres(_, database) = &stage.site.database else { panic!("not on PostgreSQL") };
    let runtime = counterfoil_testkit::postgres::runtime();
    let other = runtime.block_on(database.connect());
    runtime
        .block_on(other.batch_execute("BEGIN; SELECT 1 FROM automations WHERE id = 1 FOR UPDATE"))
        .unwrap();
    let _busy = stage.refused(Alice, &edit("edit-43", 1, 2, 45), Code::Busy);
    // What is known already is told without the lock, and other rows are free.
    stage.replayed(Alice, &edit_42(), &done);
    let _free = stage.fresh(Alice, &edit("edit-44", 2, 1, 45));
    assert_eq!(stage.state(Alice, "edit-43"), "not_committed_so_far");
    runtime.block_on(other.batch_execute("ROLLBACK")).unwrap();
    let _now = stage.fresh(Alice, &edit("edit-43", 1, 2, 45));
    stage.row(1, 45, 3);
    stage.receipts(3);
}

const ODD_SCHEMA: &str = "CREATE TABLE \"odd :table\" (workspace_id text, \"a:b\" text, body text, twice text, size int, list int[]);";
const ODD: &str = r#"
[tools.add_odd]
revision = "v1"
scope = "automation:write"
write = """
  -- :comment is no parameter, nor is '::text'
  INSERT INTO "odd :table" (workspace_id, "a:b", body, twice, size, list)
  VALUES (:workspace, 'a :literal, ''::text'' $1 @x' || $$ :dollar $$ || $t$ :tag $t$ || E'\\':e', :body /* /* :body */ :gone */,
          :body || ':body' || :body::text, :size, ARRAY[1, 2, 3])
  RETURNING "a:b" AS literal, body, twice, list[1:2] AS slice, list[:size] AS one, :size::text AS text, :principal::text AS who,
            :request_id::text AS id, :now::timestamptz = now() AS same"""
input.body = { type = "string" }
input.size = { type = "integer" }
"#;

fn parameters(stage: &mut Stage) {
    let arguments = json!({ "request_id": "a", "body": ":workspace'; --", "size": 3 });
    let add = Send::new("add_odd", arguments.to_string());
    let done = stage.fresh(Alice, &add);
    let told: serde_json::Value = serde_json::from_str(&done.result).unwrap();
    assert_eq!(told["literal"], "a :literal, '::text' $1 @x :dollar  :tag ':e");
    assert_eq!(told["body"], ":workspace'; --");
    assert_eq!(told["twice"], ":workspace'; --:body:workspace'; --");
    assert_eq!((&told["slice"], &told["one"], &told["text"]), (&json!([1, 2]), &json!(3), &json!("3")));
    assert_eq!((&told["who"], &told["id"]), (&json!("alice"), &json!("a")));
    stage.replayed(Alice, &add, &done);
}

const VALUES_SCHEMA: &str = "
CREATE TYPE mood AS ENUM ('calm', 'wild');
CREATE TABLE vals (
  workspace_id text, whole bigint, small smallint, half real, double double precision, exact numeric, flag boolean, words text,
  ref uuid, at timestamptz, local timestamp, day date, hour time, bytes bytea, free jsonb, plain json, numbers int[], mood mood);";
const VALUES: &str = r#"
[tools.add_values]
revision = "v1"
scope = "automation:write"
write = """
  INSERT INTO vals VALUES (:workspace, :whole, :small, :half, :double, :exact, :flag, :words, :ref, :at, :local, :day, :hour,
                           :bytes, :free, :plain, :numbers, :mood)
  RETURNING whole, small, half, double, exact, flag, words, ref, at, local, day, hour, bytes, free, plain, numbers, mood,
            9007199254740993 AS beyond, '' AS empty, NULL::text AS absent, 0.1::float8 AS tenth, 1e300::float8 AS huge,
            2.0::float8 AS two, 12345678901234567890.10 AS amount, 0.000012 AS tiny, -10000.00 AS minus, 0 ::numeric AS zero,
            12 AS counted, '{}'::int[] AS none, ARRAY[[1, NULL], [3, 4]] AS grid, ARRAY['a', 'b"c'] AS texts"""
output = { counted = "integer" }
[tools.add_values.input]
whole = { type = "integer" }
small = { type = "integer", default = 1 }
half = { type = "number", default = 1.5 }
double = { type = "number", default = 0.1 }
exact = { type = "string", default = "1.50" }
flag = { type = "boolean", default = true }
words = { type = "string", default = "tab\t\"quote\" \\ é 😀" }
ref = { type = "string", default = "0F0E0D0C-0b0a-0908-0706-050403020100" }
at = { type = "string", default = "2026-11-30T16:00:00.5+02:00" }
local = { type = "string", default = "2026-11-30T16:00:00.5" }
day = { type = "string", default = "2026-11-30" }
hour = { type = "string", default = "16:00:00.5" }
bytes = { type = "string", default = "AP8Q" }
free = { type = "object", additionalProperties = true, default = {} }
plain = { type = "object", additionalProperties = true, default = {} }
numbers = { type = "array", items = { type = "integer" }, default = [1, 2] }
mood = { type = ["string", "null"], default = "calm" }
"#;

fn exact(stage: &mut Stage) {
    let add = |id: &str, name: &str, value: serde_json::Value| {
        let mut arguments = json!({ "request_id": id, "whole": i64::MAX });
        arguments[name] = value;
        Send::new("add_values", arguments.to_string())
    };
    let first = add("a", "free", json!({ "z": 1, "a": [9_007_199_254_740_993_i64, null, "é"] }));
    let done = stage.fresh(Alice, &first);
    for part in [
        r#""whole":9223372036854775807,"small":1,"half":1.5,"double":0.1,"exact":"1.50","flag":true"#,
        r#""words":"tab\t\"quote\" \\ é 😀","ref":"0f0e0d0c-0b0a-0908-0706-050403020100""#,
        r#""at":"2026-11-30T14:00:00.500000Z","local":"2026-11-30T16:00:00.500000""#,
        r#""day":"2026-11-30","hour":"16:00:00.500000","bytes":"AP8Q""#,
        r#""free":{"a":[9007199254740993,null,"é"],"z":1},"plain":{},"numbers":[1,2],"mood":"calm""#,
        r#""beyond":9007199254740993,"empty":"","absent":null,"tenth":0.1,"huge":1e+300,"two":2.0"#,
        r#""amount":"12345678901234567890.10","tiny":"0.000012","minus":"-10000.00","zero":"0","counted":12"#,
        r#""none":[],"grid":[[1,null],[3,4]],"texts":["a","b\"c"]"#,
    ] {
        assert!(done.result.contains(part), "{part}\n{}", done.result);
    }
    let last = stage.fresh(Alice, &add("last", "day", json!("9999-12-31")));
    assert!(last.result.contains(r#""day":"9999-12-31""#), "{last:?}");
    let last = stage.fresh(Alice, &add("never", "at", json!("9999-12-31T23:59:59Z")));
    assert!(last.result.contains(r#""at":"9999-12-31T23:59:59.000000Z""#), "{last:?}");
    stage.replayed(Alice, &first, &done);
    stage.restart();
    stage.replayed(Alice, &first, &done);
    // What the declared type lets through and the database's does not is the caller's to correct, and is named.
    for (at, (name, wrong)) in [
        ("small", json!(40_000)),
        ("half", json!(1e300)),
        ("exact", json!("1,5")),
        ("ref", json!("0f0e0d0c")),
        ("at", json!("yesterday")),
        ("local", json!("2026-11-30T16:00:00Z")),
        ("day", json!("30.11.2026")),
        ("hour", json!("teatime")),
        ("bytes", json!("%%")),
        ("numbers", json!([1, 3_000_000_000_i64])),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = stage.refused(Alice, &add(&format!("wrong-{at}"), name, wrong), Code::InvalidArguments);
        assert_eq!(refused.error["fields"][0]["pointer"], format!("/{name}"), "{refused:?}");
    }
    let _label = stage.refused(Alice, &add("label", "mood", json!("odd")), Code::InvalidArguments);
    stage.receipts(3);
}

const FORMS_SCHEMA: &str = "
CREATE TABLE forms (
  id bigint PRIMARY KEY, workspace_id text NOT NULL, version int NOT NULL, flag boolean, small smallint, whole bigint, exact numeric,
  words text, name varchar(40), ref uuid, at timestamptz, local timestamp, day date, hour time, bytes bytea);
INSERT INTO forms VALUES (1, 'team-a', 1, true, -1, 9223372036854775807, 12345678901234567890.1200, E'tab\t\"q\" \\\\ \x01\x7f é 😀', 'n',
  '0f0e0d0c-0b0a-0908-0706-050403020100', '2026-11-30T14:00:00.5Z', '0001-01-01', '9999-12-31', '24:00', decode(repeat('00ff10', 40), 'hex'));
INSERT INTO forms VALUES (4, 'team-a', 1, NULL, NULL, NULL, 'NaN', '', NULL, NULL, 'infinity', '-infinity', 'infinity', '00:00', '');
INSERT INTO forms SELECT forms.id + step, workspace_id, version, flag, small, whole, exact, words, name, ref, at, local, day, hour, bytes FROM forms, (VALUES (1), (2)) AS steps (step);";
/// The same write as one statement, as a list, and step by step, as a WITH of its own has to run.
const FORMS: &str = r#"
[tools.one]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM forms WHERE id = :id AND workspace_id = :workspace FOR SHARE"
write = "UPDATE forms SET version = version + 1 WHERE id = :id AND workspace_id = :workspace AND version = :expected_version AND :really RETURNING version, flag, small, whole, exact, words, name, ref, at, local, day, hour, bytes, :id::text AS text, :now > '2026-01-01' AS late"
current = "SELECT version, words FROM forms WHERE id = :id AND workspace_id = :workspace"
output = { small = "string" }
input = { id = { type = "integer" }, expected_version = { type = "integer" }, really = { type = "boolean", default = true } }

[tools.two]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM forms WHERE id = :id AND workspace_id = :workspace FOR SHARE"
write = [
  "UPDATE forms SET version = version + 1 WHERE id = :id AND workspace_id = :workspace AND version = :expected_version AND :really RETURNING version, flag, small, whole, exact, words, name, ref, at, local, day, hour, bytes, :id::text AS text, :now > '2026-01-01' AS late",
  { sql = "DELETE FROM forms WHERE workspace_id = :workspace AND id < 0", may_change_nothing = true },
]
current = "SELECT version, words FROM forms WHERE id = :id AND workspace_id = :workspace"
output = { small = "string" }
input = { id = { type = "integer" }, expected_version = { type = "integer" }, really = { type = "boolean", default = true } }

[tools.three]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM forms WHERE id = :id AND workspace_id = :workspace FOR SHARE"
write = "WITH one AS (SELECT 1) UPDATE forms SET version = version + 1 WHERE id = :id AND workspace_id = :workspace AND version = :expected_version AND :really RETURNING version, flag, small, whole, exact, words, name, ref, at, local, day, hour, bytes, :id::text AS text, :now > '2026-01-01' AS late"
current = "SELECT version, words FROM forms WHERE id = :id AND workspace_id = :workspace"
output = { small = "string" }
input = { id = { type = "integer" }, expected_version = { type = "integer" }, really = { type = "boolean", default = true } }
"#;

fn forms(stage: &mut Stage) {
    let call = |tool: &str, id: &str, row: i64, version: i64, really: bool| {
        let arguments = json!({ "request_id": id, "id": row, "expected_version": version, "really": really });
        Send::new(tool, arguments.to_string())
    };
    for row in [1, 4] {
        let mut results = Vec::new();
        for (at, tool) in (0..).zip(["one", "two", "three"]) {
            let (id, own) = (format!("{tool}-{row}"), row + at);
            let done = stage.fresh(Alice, &call(tool, &id, own, 1, true));
            stage.replayed(Alice, &call(tool, &id, own, 1, true), &done);
            // The rule ends in a lock, which a transaction that only reads cannot take.
            let status = stage.ask("operation_status", Alice, tool, &id);
            assert_eq!(status["result"].to_string(), done.result, "{status}");
            results.push(done.result.replace(&format!("\"text\":\"{own}\""), "\"text\":\"\""));
        }
        assert!(results.iter().all(|result| *result == results[0]), "{results:#?}");
    }
    for tool in ["one", "two", "three"] {
        let stale = stage.refused(Alice, &call(tool, "c", 1, 1, true), Code::VersionConflict);
        assert_eq!(stale.error["current"]["version"], 2, "{stale:?}");
        // The row is still at the version that the caller saw: something else was not met.
        let unmet = stage.refused(Alice, &call(tool, "d", 1, 2, false), Code::PreconditionFailed);
        assert_eq!(unmet.error["current"]["version"], 2, "{unmet:?}");
    }
    stage.receipts(6);
}

const CHAIN_SCHEMA: &str = "
CREATE TABLE orders (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, workspace_id text NOT NULL, at timestamptz, total numeric);
CREATE TABLE lines (order_id bigint REFERENCES orders, workspace_id text NOT NULL, at timestamptz, half numeric, gone text);";
/// Later statements bind what earlier ones returned: once as a list of the ledger's, once step by step.
const CHAIN: &str = r#"
[tools.listed]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 WHERE :workspace = 'team-a'"
write = [
  { name = "made", sql = "INSERT INTO orders (workspace_id, at, total) VALUES (:workspace, :now, :total::text::numeric) RETURNING id, total, at" },
  { name = "gone", sql = "DELETE FROM lines WHERE workspace_id = :workspace AND half = -1 RETURNING gone", may_change_nothing = true },
  "INSERT INTO lines (order_id, workspace_id, at, half, gone) VALUES (:made.id, :workspace, :now, :made.total / 2, :gone.gone) RETURNING order_id, gone, half = 2.5 AS halved",
]
input = { total = { type = "string" } }

[tools.stepped]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 WHERE :workspace = 'team-a'"
write = [
  { name = "made", sql = "WITH one AS (SELECT 1) INSERT INTO orders (workspace_id, at, total) VALUES (:workspace, :now, :total::text::numeric) RETURNING id, total, at" },
  { name = "gone", sql = "DELETE FROM lines WHERE workspace_id = :workspace AND half = -1 RETURNING gone", may_change_nothing = true },
  "INSERT INTO lines (order_id, workspace_id, at, half, gone) VALUES (:made.id, :workspace, :now, :made.total / 2, :gone.gone) RETURNING order_id, gone, half = 2.5 AS halved",
]
input = { total = { type = "string" } }

[tools.perhaps]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 WHERE :workspace = 'team-a'"
write = [{ sql = "UPDATE orders SET total = total + 1 WHERE id = :id AND workspace_id = :workspace RETURNING id, total", may_change_nothing = true }]
input = { id = { type = "integer" } }
"#;

fn chain(stage: &mut Stage) {
    for (at, tool) in (1..).zip(["listed", "stepped"]) {
        let add = Send::new(tool, json!({ "request_id": "a", "total": "5.00" }).to_string());
        let done = stage.fresh(Alice, &add);
        assert_eq!(done.result, format!("{{\"order_id\":{at},\"gone\":null,\"halved\":true}}"));
        stage.replayed(Alice, &add, &done);
        // One instant for the whole call.
        let sql = format!(
            "SELECT count(*) FROM lines JOIN orders ON orders.id = order_id \
             WHERE orders.id = {at} AND lines.at = orders.at"
        );
        assert_eq!(stage.count(&sql), 1, "{tool}");
        let wrong = Send::new(tool, json!({ "request_id": "b", "total": "much" }).to_string());
        let _refused = stage.refused(Alice, &wrong, Code::InvalidArguments);
    }
    assert_eq!(stage.count("SELECT count(*) FROM orders"), 2);
    // One row, or none: both are results.
    for (id, row, result) in [("none", 9, "null"), ("some", 1, r#"{"id":1,"total":"6.00"}"#)] {
        let perhaps = Send::new("perhaps", json!({ "request_id": id, "id": row }).to_string());
        let done = stage.fresh(Alice, &perhaps);
        assert_eq!(done.result, result);
        stage.replayed(Alice, &perhaps, &done);
    }
    stage.receipts(4);
}
