//! T1, T4 to T6, T10 to T12: windows, dated ids, deploys, renames, and tools whose success takes access away.

use std::path::Path;

use counterfoil_core::Code;
use counterfoil_testkit::site::{Data, EXAMPLE, for_everybody};
use counterfoil_testkit::{Send, Server, Who};
use serde_json::json;

use super::{Case, On, PROGRAM, Stage, edit, edit_42};

use Who::Alice;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "T1, T12: windows and dated ids",
        codes: &[Code::RequestIdExpired, Code::InvalidRequestId],
        on: On::Automations,
        steps: windows,
    },
    Case {
        name: "T4, T5: from v1 to v2, both running",
        codes: &[Code::RevisionChanged, Code::RequestIdReused, Code::InvalidArguments],
        on: On::Automations,
        steps: deploy,
    },
    Case {
        name: "T6: delete and move",
        codes: &[Code::RequestIdReused, Code::ResourceUnavailable],
        on: On::Own(TASKS, TASKS_SCHEMA),
        steps: leave,
    },
    Case { name: "T10: an edited schema is not served", codes: &[], on: On::Automations, steps: edited },
    Case {
        name: "T11: renamed, both running",
        codes: &[Code::RequestIdReused],
        on: On::Automations,
        steps: renamed,
    },
];

/// A UUIDv7 made `millis` after 1970.
fn uuid_v7(millis: u64) -> String {
    let digits = format!("{millis:012x}");
    format!("{}-{}-7abc-8abc-0123456789ab", &digits[..8], &digits[8..])
}

fn windows(stage: &mut Stage) {
    const YEAR: u64 = 31_536_000_000;
    let seconds = match &stage.site.database {
        Data::Sqlite(_) => "SELECT unixepoch()",
        Data::Postgres(..) => "SELECT extract(epoch FROM now())::bigint",
    };
    let now = u64::try_from(stage.count(seconds)).unwrap() * 1000;
    let (old, future) = (uuid_v7(now - YEAR - 60_000), uuid_v7(now + 2 * 86_400_000));
    let told = stage.refused(Alice, &edit(&old, 1, 1, 30), Code::RequestIdExpired);
    assert_eq!(told.operation.as_deref(), Some("unknown"));
    assert_eq!(stage.state(Alice, &old), "unknown");
    let void = json!({ "tool": "set_interval", "operation": old }).to_string();
    let void = stage.server.connect(Alice).call(&Send::new("void_operation", void));
    assert_eq!(void.answer().refused().code, "request_id_expired");
    let _ahead = stage.refused(Alice, &edit(&future, 1, 1, 30), Code::InvalidRequestId);
    // Older than `keep`, younger than `remember`; a ULID of 1970 is opaque.
    for (at, id) in [uuid_v7(now - YEAR / 2), "00000000000000000000000000".to_owned()].iter().enumerate() {
        let _runs = stage.fresh(Alice, &edit(id, 1, 1 + i64::try_from(at).unwrap(), 30));
    }
    let done = stage.fresh(Alice, &edit("edit-42", 1, 3, 30));
    let age = |seconds: i64| {
        let then = match &stage.site.database {
            Data::Sqlite(_) => format!("(unixepoch() - {seconds}) * 1000000"),
            Data::Postgres(..) => format!("now() - interval '{seconds} seconds'"),
        };
        let sql =
            format!("UPDATE counterfoil_receipts SET committed_at = {then} WHERE request_id = 'edit-42'");
        stage.site.database.execute(&sql);
    };
    age(30 * 86_400 - 300);
    assert!(stage.call(Alice, &edit("edit-42", 1, 3, 30)).answer().done().replayed);
    age(30 * 86_400 + 1);
    let told = stage.refused(Alice, &edit("edit-42", 1, 3, 30), Code::RequestIdExpired);
    assert_eq!(told.operation.as_deref(), Some("committed"));
    let status = stage.ask("operation_status", Alice, "set_interval", "edit-42");
    assert_eq!((&status["state"], status.get("result")), (&"committed".into(), None), "{status}");
    stage.row(1, 30, 4);
    assert!(!done.replayed);
}

/// v2 asks for a reason.
fn v2() -> String {
    let live = EXAMPLE
        .replacen("revision    = \"v1\"", "revision = \"v2\"", 1)
        .replacen("UPDATE automations SET", "UPDATE automations SET reason = :reason,", 1)
        .replacen(
            "[tools.set_interval.input]",
            "[tools.set_interval.input]\nreason = { type = \"string\" }",
            1,
        );
    let retired = r#"
[[tools.set_interval.retired]]
revision = "v1"
[tools.set_interval.retired.input]
id               = { type = "integer", minimum = 1 }
expected_version = { type = "integer", minimum = 1 }
interval_minutes = { type = "integer", minimum = 5, maximum = 1440, description = "minutes between runs" }

[tools.get_automation]"#;
    for_everybody(&live.replacen("\n[tools.get_automation]", retired, 1))
}

fn reasoned(id: &str, row: i64, version: i64, interval: i64) -> Send {
    let arguments = json!({
        "request_id": id, "id": row, "expected_version": version, "interval_minutes": interval, "reason": "x",
    });
    Send::new("set_interval", arguments.to_string())
}

fn pinned(send: Send, revision: &str) -> Send {
    Send { tool: format!("set_interval.{revision}"), ..send }
}

fn deploy(stage: &mut Stage) {
    stage.site.database.execute("ALTER TABLE automations ADD COLUMN reason TEXT");
    let new = stage.another("v2.toml", &v2());
    let old = &stage.server;
    // From old to new.
    let first = stage.fresh_at(old, Alice, &edit_42());
    stage.replayed_at(&new, Alice, &edit_42(), &first);
    stage.replayed_at(&new, Alice, &pinned(edit_42(), "v1"), &first);
    stage.replayed_at(old, Alice, &pinned(edit_42(), "v1"), &first);
    let _other = stage.refused_at(&new, Alice, &edit("edit-42", 1, 1, 45), Code::RequestIdReused);
    let changed = [reasoned("edit-42", 1, 1, 30), pinned(reasoned("edit-42", 1, 1, 30), "v2")];
    for send in &changed {
        let told = stage.refused_at(&new, Alice, send, Code::RevisionChanged);
        assert_eq!(told.operation.as_deref(), Some("committed"));
        assert_eq!(told.error["committed_at"], first.committed_at.as_str());
    }
    // New intents of the retired revision.
    let told = stage.refused_at(&new, Alice, &edit("edit-43", 2, 1, 30), Code::InvalidArguments);
    assert_eq!(told.error["fields"][0]["pointer"], "/reason", "{told:?}");
    let told = stage.refused_at(&new, Alice, &pinned(edit("edit-43", 2, 1, 30), "v1"), Code::RevisionChanged);
    assert_eq!(told.operation.as_deref(), Some("not_committed_so_far"));
    let _undeclared = stage.refused_at(&new, Alice, &pinned(edit_42(), "v3"), Code::InvalidArguments);
    // From new to old, which knows nothing of v2.
    let second = stage.fresh_at(&new, Alice, &reasoned("edit-44", 2, 1, 60));
    let told = stage.refused_at(old, Alice, &edit("edit-44", 2, 1, 60), Code::RevisionChanged);
    assert_eq!(told.error["committed_at"], second.committed_at.as_str());
    let _misfit = stage.refused_at(old, Alice, &reasoned("edit-44", 2, 1, 60), Code::InvalidArguments);
    stage.replayed_at(&new, Alice, &pinned(reasoned("edit-44", 2, 1, 60), "v2"), &second);
    // And what the old one commits meanwhile is the new one's to replay.
    let third = stage.fresh_at(old, Alice, &edit("edit-45", 1, 2, 90));
    stage.replayed_at(&new, Alice, &edit("edit-45", 1, 2, 90), &third);
    stage.row(1, 90, 3);
    stage.row(2, 60, 2);
    stage.receipts(3);
}

const TASKS_SCHEMA: &str = "
CREATE TABLE tasks (id INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id TEXT NOT NULL, version INTEGER NOT NULL) STRICT;
INSERT INTO tasks (workspace_id, version) VALUES ('team-a', 1), ('team-a', 1), ('team-a', 1);";

const TASKS: &str = r#"
[tools.delete_task]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM tasks WHERE id = :id AND workspace_id = :workspace"
replay_access = "SELECT 1 WHERE :workspace = 'team-a' AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = :id)"
write = """
  DELETE FROM tasks WHERE id = :id AND workspace_id = :workspace AND version = :expected_version
  RETURNING id, version"""
input = { id = { type = "integer" }, expected_version = { type = "integer" } }

[tools.move_task]
revision = "v1"
scope = "automation:write"
access = "SELECT 1 FROM tasks WHERE id = :id AND workspace_id = :workspace"
replay_access = "SELECT 1 FROM tasks WHERE id = :id AND workspace_id IN (:workspace, :target)"
write = """
  UPDATE tasks SET workspace_id = :target, version = version + 1
   WHERE id = :id AND workspace_id = :workspace AND version = :expected_version
  RETURNING id, workspace_id, version"""
input = { id = { type = "integer" }, expected_version = { type = "integer" }, target = { type = "string" } }
"#;

fn leave(stage: &mut Stage) {
    let delete = |id: &str, row: i64| {
        let arguments = json!({ "request_id": id, "id": row, "expected_version": 1 });
        Send::new("delete_task", arguments.to_string())
    };
    let go = |id: &str, row: i64| {
        let arguments = json!({ "request_id": id, "id": row, "expected_version": 1, "target": "team-b" });
        Send::new("move_task", arguments.to_string())
    };
    for (first, other) in [(delete("gone", 1), delete("gone", 2)), (go("moved", 2), go("moved", 3))] {
        let done = stage.fresh(Alice, &first);
        stage.replayed(Alice, &first, &done);
        let _reused = stage.refused(Alice, &other, Code::RequestIdReused);
        let status = stage.ask("operation_status", Alice, &first.tool, &done.request_id);
        assert_eq!(status["result"].to_string(), done.result, "{status}");
    }
    // Another fingerprint, or another id, is asked the ordinary rule first: the row is out of reach.
    for send in [delete("gone", 99), delete("again", 1), go("moved", 1), go("again", 2)] {
        let _gone = stage.refused(Alice, &send, Code::ResourceUnavailable);
    }
    assert_eq!(stage.count("SELECT count(*) FROM tasks"), 2);
    stage.receipts(2);
}

fn edited(stage: &mut Stage) {
    let narrower = EXAMPLE.replacen("maximum = 1440", "maximum = 720", 1);
    let config = stage.config("edited.toml", &for_everybody(&narrower));
    let refused = Server::try_start(Path::new(PROGRAM), &config).unwrap_err();
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.log.contains("interval_minutes"), "{}", refused.log);
    // As it was, it is served.
    stage.restart();
    let _done = stage.fresh(Alice, &edit_42());
}

fn renamed(stage: &mut Stage) {
    let renamed = EXAMPLE
        .replacen("[tools.set_interval]", "[tools.change_interval]\nwas = [\"set_interval\"]", 1)
        .replacen("[tools.set_interval.input]", "[tools.change_interval.input]", 1);
    let new = stage.another("renamed.toml", &for_everybody(&renamed));
    let by_new_name = |send: Send| Send { tool: "change_interval".to_owned(), ..send };
    let old = &stage.server;
    let first = stage.fresh_at(old, Alice, &edit_42());
    stage.replayed_at(&new, Alice, &edit_42(), &first);
    stage.replayed_at(&new, Alice, &by_new_name(edit_42()), &first);
    stage.replayed_at(&new, Alice, &Send { tool: "change_interval.v1".to_owned(), ..edit_42() }, &first);
    let second = stage.fresh_at(&new, Alice, &by_new_name(edit("edit-43", 1, 2, 45)));
    stage.replayed_at(old, Alice, &edit("edit-43", 1, 2, 45), &second);
    let _reused = stage.refused_at(old, Alice, &edit("edit-43", 1, 2, 50), Code::RequestIdReused);
    for name in ["set_interval", "change_interval"] {
        let arguments = json!({ "tool": name, "operation": "edit-42" }).to_string();
        let told = new.connect(Alice).call(&Send::new("operation_status", arguments)).value();
        assert_eq!(told["state"], "committed", "{told}");
    }
    // Both at once.
    let sends = [edit("edit-44", 1, 3, 60), by_new_name(edit("edit-44", 1, 3, 60))];
    let told = std::thread::scope(|scope| {
        let new = scope.spawn(|| new.connect(Alice).call(&sends[1]));
        [old.connect(Alice).call(&sends[0]), new.join().unwrap()]
    });
    let replays = told.iter().filter(|told| told.answer().done().replayed).count();
    assert_eq!(replays, 1, "{told:?}");
    stage.row(1, 60, 4);
    stage.receipts(3);
}
