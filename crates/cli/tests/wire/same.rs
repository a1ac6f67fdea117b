//! P1 to P14: what counts as the same call.

use counterfoil_core::Code;
use counterfoil_testkit::{Send, Who};

use super::{Case, On, Stage, edit, edit_42};

use Who::Alice;

/// A tool that takes values of every type.
pub(crate) const NOTES: &str = r#"
[receipts]
keep = "30d"

[tools.add_note]
revision = "v1"
scope = "automation:write"
write = """
  INSERT INTO notes (workspace_id, body, amount, count, tags, extra, kind)
  VALUES (:workspace, :body, :amount, :count, :tags, :extra, :kind)
  RETURNING id, body, amount, count, tags, extra, kind"""
output = { tags = "json", extra = "json" }
[tools.add_note.input]
body = { type = ["string", "null"], optional = true }
amount = { type = "number", optional = true }
count = { type = "integer", optional = true }
tags = { type = "array", items = { type = "integer" }, optional = true }
extra = { type = "object", additionalProperties = true, optional = true }
kind = { type = "string", default = "plain" }
"#;

pub(crate) const NOTES_SCHEMA: &str = "
CREATE TABLE notes (
  id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT NOT NULL,
  body TEXT, amount REAL, count INTEGER, tags TEXT, extra TEXT, kind TEXT
) STRICT;";

enum Second {
    Replay,
    Reused,
    Refused,
    /// A JSON-RPC error, before anything is looked up.
    Unreadable,
}

use Second::{Refused, Replay, Reused, Unreadable};

/// Members of two sets of arguments under one id, and what the second is.
const PAIRS: [(&str, &str, &str, Second); 33] = [
    ("P1 order", r#""body":"x","kind":"y""#, r#""kind":"y","body":"x""#, Replay),
    ("P1 nested order", r#""extra":{"a":{"c":1,"d":2}}"#, r#""extra":{"a":{"d":2,"c":1}}"#, Replay),
    ("P1 whitespace", r#""extra":{"a":[1,2]}"#, " \"extra\" : {\t\"a\" :\n[ 1 , 2 ] } ", Replay),
    ("P1 escapes", r#""body":"abc/é""#, r#""bod\u0079":"\u0061bc\/\u00e9""#, Replay),
    ("P2 order of items", r#""tags":[1,2]"#, r#""tags":[2,1]"#, Reused),
    ("P3 beyond doubles", r#""count":9007199254740992"#, r#""count":9007199254740993"#, Reused),
    ("P3 the largest", r#""count":9223372036854775807"#, r#""count":9223372036854775807.0"#, Replay),
    ("P3 beyond 64 bits", r#""count":9223372036854775807"#, r#""count":9223372036854775808"#, Refused),
    ("P3 far beyond", r#""count":-9223372036854775808"#, r#""count":-1e400"#, Refused),
    ("P4 30.0", r#""count":30"#, r#""count":30.0"#, Replay),
    ("P4 3e1", r#""count":30"#, r#""count":3e1"#, Replay),
    ("P4 300e-1", r#""count":30"#, r#""count":300E-1"#, Replay),
    ("P4 30.5", r#""count":30"#, r#""count":30.5"#, Refused),
    ("P4 -0", r#""amount":0"#, r#""amount":-0.0"#, Replay),
    ("P4 1e2", r#""amount":100"#, r#""amount":1e2"#, Replay),
    ("P4 shortest double", r#""amount":0.1"#, r#""amount":0.1000000000000000055511151231257827"#, Replay),
    ("P4 overflow", r#""amount":1e308"#, r#""amount":1e309"#, Refused),
    ("P4 a boolean", r#""count":1"#, r#""count":true"#, Refused),
    ("P4 free numbers", r#""extra":{"a":1}"#, r#""extra":{"a":1.0}"#, Reused),
    ("P5 null, absent", r#""body":null"#, r#""kind":"plain""#, Reused),
    ("P5 absent, default", r#""body":"x""#, r#""body":"x","kind":"plain""#, Replay),
    ("P5 default, absent", r#""body":"x","kind":"plain""#, r#""body":"x""#, Replay),
    (
        "P6 UTF-16 order",
        "\"extra\":{\"\u{e000}\":1,\"\u{1f600}\":2}",
        "\"extra\":{\"\u{1f600}\":2,\"\u{e000}\":1}",
        Replay,
    ),
    ("P6 escaped pair", "\"body\":\"\u{1f600}\"", r#""body":"\ud83d\ude00""#, Replay),
    ("P6 lone surrogate", r#""body":"x""#, r#""body":"\ud83d""#, Unreadable),
    ("P6 lone low surrogate in a name", r#""body":"x""#, r#""extra":{"\ude00":1}"#, Unreadable),
    ("P7 NFC, NFD", "\"body\":\"\u{e9}\"", "\"body\":\"e\u{301}\"", Reused),
    ("P8 member twice", r#""body":"x""#, r#""body":"x","body":"x""#, Unreadable),
    ("P8 escaped twice", r#""body":"x""#, r#""body":"x","b\u006fdy":"x""#, Unreadable),
    ("P8 nested twice", r#""extra":{"a":1}"#, r#""extra":{"a":1,"a":1}"#, Unreadable),
    ("P8 the id twice", r#""body":"x""#, r#""body":"x","request_id":"other""#, Unreadable),
    ("NUL", r#""body":"x""#, r#""body":"x\u0000""#, Unreadable),
    ("unknown member", r#""body":"x""#, r#""body":"x","colour":"red""#, Refused),
];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "P1 to P8: pairs",
        codes: &[Code::RequestIdReused, Code::InvalidArguments],
        on: On::Own(NOTES, NOTES_SCHEMA),
        steps: pairs,
    },
    Case {
        name: "P11: two honest identical edits",
        codes: &[],
        on: On::Own(NOTES, NOTES_SCHEMA),
        steps: honest,
    },
    Case { name: "P12: what is outside the intent", codes: &[], on: On::Automations, steps: outside },
    Case {
        name: "P13: sources of the id",
        codes: &[Code::InvalidRequestId, Code::RequestIdRequired],
        on: On::Automations,
        steps: sources,
    },
    Case {
        name: "P14: JSON-RPC ids are irrelevant",
        codes: &[Code::VersionConflict],
        on: On::Automations,
        steps: json_rpc_ids,
    },
];

fn note(id: &str, members: &str) -> Send {
    Send::new("add_note", format!("{{\"request_id\":\"{id}\",{members}}}"))
}

fn pairs(stage: &mut Stage) {
    for (at, (name, first, second, then)) in PAIRS.iter().enumerate() {
        println!("  {name}");
        let id = format!("pair-{at}");
        let done = stage.fresh(Alice, &note(&id, first));
        let second = note(&id, second);
        match then {
            Replay => stage.replayed(Alice, &second, &done),
            Reused => drop(stage.refused(Alice, &second, Code::RequestIdReused)),
            Refused => drop(stage.refused(Alice, &second, Code::InvalidArguments)),
            Unreadable => stage.unreadable(Alice, &second),
        }
        stage.replayed(Alice, &note(&id, first), &done);
    }
    let all = i64::try_from(PAIRS.len()).unwrap();
    assert_eq!(stage.count("SELECT count(*) FROM notes"), all);
    stage.receipts(all);
}

fn honest(stage: &mut Stage) {
    for id in ["one", "two"] {
        let _done = stage.fresh(Alice, &note(id, r#""body":"same""#));
    }
    assert_eq!(stage.count("SELECT count(*) FROM notes WHERE body = 'same'"), 2);
    stage.receipts(2);
}

fn outside(stage: &mut Stage) {
    let done = stage.fresh(Alice, &edit_42());
    let outside = [
        edit_42().meta(r#""progressToken":"p-1""#),
        edit_42().meta(r#""traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01""#),
        edit_42().header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        edit_42().more(r#","unheard_of":{"x":1}"#),
        edit_42().id("\"a string\""),
        Send { modern: true, ..edit_42() },
    ];
    for send in &outside {
        stage.replayed(Alice, send, &done);
    }
    stage.receipts(1);
    stage.row(1, 30, 2);
}

/// `edit-42` without its id.
fn bare() -> Send {
    Send::new("set_interval", r#"{"id":1,"expected_version":1,"interval_minutes":30}"#)
}

fn meta(id: &str) -> String {
    format!("\"dev.counterfoil/request-id\":{id}")
}

fn member(id: &str) -> String {
    format!(",\"idempotencyKey\":{id}")
}

fn sources(stage: &mut Stage) {
    const KEY: &str = "Idempotency-Key";
    let _required = stage.refused(Alice, &bare(), Code::RequestIdRequired);
    let _not_the_arguments = stage.refused(Alice, &bare().id("\"edit-42\""), Code::RequestIdRequired);
    let disagreeing = [
        edit_42().header(KEY, "edit-43"),
        edit_42().header(KEY, "Edit-42"),
        edit_42().meta(&meta("\"edit-43\"")),
        edit_42().more(&member("\"edit-43\"")),
        bare().header(KEY, "edit-42").meta(&meta("\"edit-43\"")),
        bare().header(KEY, "edit-42").more(&member("\"edit-43\"")),
        bare().meta(&meta("\"edit-42\"")).more(&member("\"edit-43\"")),
        edit_42().header(KEY, "edit-42").meta(&meta("\"edit-42\"")).more(&member("\"edit-43\"")),
    ];
    let malformed = [
        bare().header(KEY, "edit-42; a=1"),
        bare().header(KEY, "edit-42, edit-42"),
        bare().header(KEY, "\"edit-42"),
        bare().header(KEY, ""),
        bare().header(KEY, "edit-42").header(KEY, "edit-42"),
        bare().meta(&meta("42")),
        bare().meta(&meta("null")),
        bare().more(&member("[\"edit-42\"]")),
        edit_42().more(&member("null")),
    ];
    for send in disagreeing.iter().chain(&malformed) {
        let _refused = stage.refused(Alice, send, Code::InvalidRequestId);
    }
    stage.receipts(0);
    stage.row(1, 15, 1);
    let done = stage.fresh(Alice, &bare().header(KEY, "\"edit-42\""));
    let agreeing = [
        edit_42(),
        bare().header(KEY, "edit-42"),
        bare().header("idempotency-key", "edit-42"),
        bare().meta(&meta("\"edit-42\"")),
        bare().more(&member("\"edit-42\"")),
        edit_42().header(KEY, "\"edit-42\"").meta(&meta("\"edit-42\"")).more(&member("\"edit-42\"")),
    ];
    for send in &agreeing {
        stage.replayed(Alice, send, &done);
    }
    stage.receipts(1);
}

fn json_rpc_ids(stage: &mut Stage) {
    let done = stage.fresh(Alice, &edit_42().id("7"));
    stage.replayed(Alice, &edit_42().id("8"), &done);
    stage.replayed(Alice, &edit_42().id("\"7\""), &done);
    let _another = stage.fresh(Alice, &edit("edit-43", 1, 2, 45).id("7"));
    let _conflict = stage.refused(Alice, &edit("edit-44", 1, 2, 60).id("7"), Code::VersionConflict);
    stage.row(1, 45, 3);
    stage.receipts(2);
}
