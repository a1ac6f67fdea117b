//! P9, P10, S1, S9 and R7's neighbours: who may see what, and whose operation is whose.

use std::path::Path;

use counterfoil_core::Code;
use counterfoil_testkit::site::{EXAMPLE, Person, for_people};
use counterfoil_testkit::{Http, Send, Server, Stdio, Who};
use serde_json::json;

use super::same::{NOTES, NOTES_SCHEMA};
use super::{Case, On, PROGRAM, Stage, edit, edit_42, own};

use Who::{Alice, AliceReading, Bob, Carol};

pub(crate) const CASES: &[Case] = &[
    Case { name: "P9, P10: names are distinct", codes: &[], on: On::Own(NOTES, NOTES_SCHEMA), steps: names },
    Case {
        name: "S1: another caller learns nothing",
        codes: &[Code::ResourceUnavailable, Code::VersionConflict, Code::Forbidden],
        on: On::Automations,
        steps: strangers,
    },
    Case {
        name: "S2: membership is asked every time",
        codes: &[Code::ResourceUnavailable],
        on: On::Automations,
        steps: members,
    },
    Case { name: "S9: no identity, no call", codes: &[], on: On::Automations, steps: nobody },
];

/// Under one id and with one payload, each of these is a principal of its own.
const PEOPLE: [(&str, &str); 9] = [
    ("a|b", "c"),
    ("a", "b|c"),
    ("a\nb", "c"),
    ("a", "\nb\nc"),
    ("a\u{1f}b", "c"),
    ("team-a", "Alice"),
    ("team-a", "alice"),
    ("Team-a", "alice"),
    ("team-a", "alice "),
];

fn names(stage: &mut Stage) {
    let tokens: Vec<String> = (0..PEOPLE.len()).map(|at| format!("person-{at}")).collect();
    let people: Vec<Person<'_>> = PEOPLE
        .iter()
        .zip(&tokens)
        .map(|((workspace, subject), token)| Person {
            token,
            subject,
            workspace,
            scopes: &["automation:write"],
        })
        .collect();
    let server = stage.another("people.toml", &for_people(&own(NOTES), &people));
    let ids = ["Request-A", "request-a"];
    for (token, id) in tokens.iter().flat_map(|token| ids.map(|id| (token, id))) {
        let send = Send::new("add_note", json!({ "request_id": id, "body": "x" }).to_string());
        let mut http = Http::connect(server.address, token);
        let first = http.call(&send);
        assert!(!first.answer().done().replayed, "{token} {id}: {first:?}");
        assert!(http.call(&send).answer().done().replayed, "{token} {id}");
    }
    let space = Send::new("add_note", r#"{"request_id":"request-a ","body":"x"}"#);
    let told = Http::connect(server.address, &tokens[0]).call(&space);
    assert_eq!(told.answer().refused().code, "invalid_request_id");
    stage.receipts(i64::try_from(PEOPLE.len() * ids.len()).unwrap());
    for (workspace, subject) in [("team\0a", "alice"), ("team-a", "al\0ice")] {
        let person = Person { token: "nul", subject, workspace, scopes: &["automation:write"] };
        let config = stage.config("nul.toml", &for_people(&own(NOTES), &[person]));
        let refused = Server::try_start(Path::new(PROGRAM), &config).unwrap_err();
        assert_eq!(refused.code, Some(1), "{refused:?}");
    }
}

/// What a stranger is told of a known operation is, byte for byte, what he is told of one that never was.
fn strangers(stage: &mut Stage) {
    let _done = stage.fresh(Alice, &edit_42());
    for who in [Bob, Carol, AliceReading, Who::AliceInB] {
        let known = stage.call(who, &edit_42());
        let unheard_of = stage.call(who, &edit("edit-77", 1, 1, 30));
        assert_eq!((known.status, &known.body), (unheard_of.status, &unheard_of.body), "{who:?}");
        for built_in in ["operation_status", "void_operation"] {
            let ask = |operation: &str| {
                let arguments = json!({ "tool": "set_interval", "operation": operation }).to_string();
                let told = stage.server.connect(who).call(&Send::new(built_in, arguments));
                (told.status, told.body.replace(operation, "ID"))
            };
            assert_eq!(ask("edit-42"), ask("edit-78"), "{who:?} {built_in}");
        }
    }
    assert_eq!(stage.state(Alice, "edit-42"), "committed");
    stage.row(1, 30, 2);
}

fn members(stage: &mut Stage) {
    stage.site.database.execute(
        "CREATE TABLE members (workspace_id TEXT, user_id TEXT); INSERT INTO members VALUES ('team-a', 'alice')",
    );
    let rule = "SELECT 1 FROM members WHERE workspace_id = :workspace AND user_id = :principal";
    let config = counterfoil_testkit::site::for_everybody(&EXAMPLE.replacen(
        "[receipts]",
        &format!("[auth]\nmembership = \"{rule}\"\n\n[receipts]"),
        1,
    ));
    let server = stage.another("members.toml", &config);
    let get = Send::new("get_automation", r#"{"id":1}"#);
    let status = Send::new("operation_status", r#"{"tool":"set_interval","operation":"edit-42"}"#);
    let done = stage.fresh_at(&server, Alice, &edit_42());
    stage.replayed_at(&server, Alice, &edit_42(), &done);
    let _bob = stage.refused_at(&server, Bob, &edit("edit-1", 1, 2, 45), Code::ResourceUnavailable);
    stage.site.database.execute("DELETE FROM members");
    for send in [&edit_42(), &edit("edit-43", 1, 2, 45), &get] {
        let _revoked = stage.refused_at(&server, Alice, send, Code::ResourceUnavailable);
    }
    let told = server.connect(Alice).call(&status);
    assert_eq!(told.answer().refused().code, "resource_unavailable");
    stage.site.database.execute("INSERT INTO members VALUES ('team-a', 'alice')");
    stage.replayed_at(&server, Alice, &edit_42(), &done);
    stage.row(1, 30, 2);
}

fn nobody(stage: &mut Stage) {
    let body = edit_42().body();
    for token in ["", "nobody's", "alice-token "] {
        let mut http = Http::connect(stage.server.address, token);
        let request = http.post(&[], body.as_bytes());
        http.write(&request).unwrap();
        let told = http.finish();
        let known = token.trim() == "alice-token";
        assert_eq!(told.status, if known { 200 } else { 401 }, "{token:?}: {told:?}");
    }
    let in_the_arguments = Send::new(
        "set_interval",
        r#"{"request_id":"a","id":1,"expected_version":2,"interval_minutes":5,"token":"alice-token"}"#,
    );
    let told = Http::connect(stage.server.address, "").call(&in_the_arguments);
    assert_eq!(told.status, 401);
    stage.receipts(1);
    // Without a configured principal there is no server, over either transport.
    let tokens_only = stage.config("tokens.toml", &counterfoil_testkit::site::for_everybody(EXAMPLE));
    let mut stdio = Stdio::spawn(Path::new(PROGRAM), &tokens_only);
    stdio.hang_up();
    let (status, log) = stdio.ended();
    assert_eq!(status.code(), Some(3), "{log}");
    let stdio_only = stage.site.stdio(EXAMPLE, Alice);
    let refused = Server::try_start(Path::new(PROGRAM), &stdio_only).unwrap_err();
    assert_eq!(refused.code, Some(3), "{refused:?}");
}
