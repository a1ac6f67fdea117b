//! R7, R8 and S2 over HTTP, with signed tokens and membership: what a caller may do is asked anew on every call, of the
//! token and of the database, and an old receipt changes nothing about it. The store is a parameter.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::path::Path;

use counterfoil_testkit::site::{EXAMPLE, Kind, for_people};
use counterfoil_testkit::{Http, Send, Server, Signer, Site, Told};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterfoil");
const MEMBERS: &str = "CREATE TABLE members (workspace_id TEXT, issuer TEXT, user_id TEXT);
    INSERT INTO members VALUES ('team-a', 'https://id.example.com', 'alice'), ('team-b', 'https://id.example.com', 'alice'),
    ('team-a', 'https://id.example.com', 'alice-2'), ('team-a', 'https://login.example.org', 'alice');";
const MEMBERSHIP: &str =
    "SELECT 1 FROM members WHERE workspace_id = :workspace AND issuer = :issuer AND user_id = :principal";
const ISSUER: &str = "https://id.example.com";
const AUDIENCE: &str = "https://tools.example.com/mcp";
const OTHER: &str = "https://login.example.org";
const BOTH: &str = "automation:write automation:read";
const READ: &str = "automation:read";

/// A server process over some store.
struct World {
    server: Server,
    site: Site,
}

/// `lock` is how the rule of membership ends.
fn world(kind: Kind, lock: &str, keys: &Keys) -> World {
    let site = Site::automations_on(kind);
    site.database.execute(MEMBERS);
    let mut text = for_people(EXAMPLE, &[]);
    text.push_str(&format!("\n[auth]\nmembership = \"{MEMBERSHIP}{lock}\"\n"));
    for (issuer, name, signer) in [(ISSUER, "first", &keys.first), (OTHER, "second", &keys.second)] {
        let _set = site.config(&format!("{name}.json"), &signer.set());
        text.push_str(&format!(
            "\n[[auth.jwt]]\nissuer = \"{issuer}\"\naudience = \"{AUDIENCE}\"\njwks = \"{name}.json\"\nworkspace = \"workspace_id\"\n"
        ));
    }
    let server = Server::start(Path::new(PROGRAM), &site.config("counterfoil.toml", &text));
    World { server, site }
}

/// Who calls: what is not said is as Alice's token has it.
#[derive(Clone, Copy)]
struct Caller {
    issuer: &'static str,
    claims: &'static [(&'static str, &'static str)],
    scopes: &'static str,
    at: &'static str,
}

const ALICE: Caller = Caller { issuer: ISSUER, claims: &[], scopes: BOTH, at: "/mcp" };

enum Step {
    /// `set_interval` of row 1 under `edit-1`: `fresh`, `replayed`, or a code.
    Edit(Caller, &'static str),
    /// A tool with arguments: the state that it tells, `done`, or a code.
    Ask(Caller, &'static str, &'static str, &'static str),
    /// Something happens in the database.
    Behind(&'static str),
    /// How many receipts there are.
    Receipts(i64),
}

use Step::{Ask, Behind, Edit, Receipts};

const OPERATION: &str = "{\"tool\":\"set_interval\",\"operation\":\"edit-1\"}";
const REVOKE: &str = "DELETE FROM members WHERE user_id = 'alice' AND workspace_id = 'team-a'";
const ADMIT: &str = "INSERT INTO members VALUES ('team-a', 'https://id.example.com', 'alice')";

/// A name, and what happens.
type Case = (&'static str, &'static [Step]);

const READING: Caller = Caller { scopes: READ, ..ALICE };
const RENAMED: Caller = Caller { claims: &[("email", "new@example.com"), ("name", "Alicia")], ..ALICE };
const RESUBJECTED: Caller = Caller { claims: &[("sub", "alice-2")], ..ALICE };
const ELSEWHERE: Caller = Caller { issuer: OTHER, ..ALICE };
const IN_B: Caller = Caller { claims: &[("workspace_id", "team-b")], ..ALICE };
const STRANGER: Caller = Caller { claims: &[("sub", "mallory")], ..ALICE };

const CASES: &[Case] = &[
    (
        "R7: the write scope is gone, and comes back",
        &[
            Edit(ALICE, "fresh"),
            Edit(READING, "forbidden"),
            Ask(READING, "operation_status", OPERATION, "forbidden"),
            Ask(READING, "void_operation", OPERATION, "forbidden"),
            Ask(READING, "get_automation", "{\"id\":1}", "done"),
            Edit(ALICE, "replayed"),
            Receipts(1),
        ],
    ),
    (
        "R8: the row is moved, then deleted",
        &[
            Edit(ALICE, "fresh"),
            Behind("UPDATE automations SET workspace_id = 'team-b', version = version + 1 WHERE id = 1"),
            Edit(ALICE, "resource_unavailable"),
            Edit(IN_B, "version_conflict"),
            Behind("DELETE FROM automations WHERE id = 1"),
            Edit(ALICE, "resource_unavailable"),
            Edit(IN_B, "resource_unavailable"),
            Receipts(1),
        ],
    ),
    (
        "S2: membership is revoked between the tries, and given back",
        &[
            Edit(ALICE, "fresh"),
            Behind(REVOKE),
            Edit(ALICE, "resource_unavailable"),
            Ask(ALICE, "operation_status", OPERATION, "resource_unavailable"),
            Ask(ALICE, "void_operation", OPERATION, "resource_unavailable"),
            Ask(ALICE, "get_automation", "{\"id\":1}", "resource_unavailable"),
            Behind(ADMIT),
            Edit(ALICE, "replayed"),
            Ask(ALICE, "operation_status", OPERATION, "committed"),
            Receipts(1),
        ],
    ),
    (
        "S2: revoked before the first try",
        &[
            Behind(REVOKE),
            Edit(ALICE, "resource_unavailable"),
            Behind(ADMIT),
            Ask(ALICE, "operation_status", OPERATION, "not_committed_so_far"),
            Edit(ALICE, "fresh"),
        ],
    ),
    (
        "S1: a stranger with a good token, a known id and a known payload",
        &[Edit(ALICE, "fresh"), Edit(STRANGER, "resource_unavailable"), Receipts(1)],
    ),
    (
        "a new e-mail address and a new name are the same caller",
        &[Edit(ALICE, "fresh"), Edit(RENAMED, "replayed")],
    ),
    (
        "a new subject is another caller, who has done nothing yet",
        &[Edit(ALICE, "fresh"), Edit(RESUBJECTED, "version_conflict"), Receipts(1)],
    ),
    (
        "so is the same subject at another issuer, and in another workspace",
        &[
            Edit(ALICE, "fresh"),
            Edit(ELSEWHERE, "version_conflict"),
            Edit(IN_B, "resource_unavailable"),
            Receipts(1),
        ],
    ),
    (
        "a workspace is picked by the path among those that the token lists",
        &[
            Edit(Caller { at: "/mcp/team-a", ..ALICE }, "fresh"),
            Edit(ALICE, "replayed"),
            Edit(Caller { at: "/mcp/team-b", ..ALICE }, "403"),
        ],
    ),
];

struct Keys {
    first: Signer,
    second: Signer,
}

impl Keys {
    fn token(&self, caller: Caller) -> String {
        let mut claims = json!({
            "iss": caller.issuer, "aud": AUDIENCE, "sub": "alice", "workspace_id": "team-a", "scope": caller.scopes,
        });
        for (name, value) in caller.claims {
            claims[*name] = json!(value);
        }
        let signer = if caller.issuer == ISSUER { &self.first } else { &self.second };
        signer.sign(claims)
    }
}

fn send(world: &World, keys: &Keys, caller: Caller, send: &Send) -> Told {
    let mut http = Http::connect(world.server.address, &keys.token(caller));
    let request = String::from_utf8(http.request(send)).unwrap();
    http.write(request.replacen("/mcp", caller.at, 1).as_bytes()).unwrap();
    http.finish()
}

fn call(world: &World, keys: &Keys, caller: Caller, tool: &str, arguments: &str) -> String {
    let told = send(world, keys, caller, &Send::new(tool, arguments));
    let body: Value = serde_json::from_str(&told.body).unwrap_or_default();
    let structured = [&body["result"]["structuredContent"], &body["error"]["data"]];
    let Some(said) = structured.into_iter().find(|said| said.is_object()) else {
        return told.status.to_string();
    };
    let word = |name: &str| said[name].as_str().map(str::to_owned);
    if let Some(code) = said["error"]["code"].as_str() {
        assert!(!told.body.contains("committed_at"), "a refusal of access tells of no receipt: {told:?}");
        return code.to_owned();
    }
    match said["replayed"].as_bool() {
        Some(true) => "replayed".to_owned(),
        Some(false) => "fresh".to_owned(),
        None => word("state").unwrap_or("done".to_owned()),
    }
}

fn check(case: &Case, world: &World, keys: &Keys) {
    let edit = "{\"request_id\":\"edit-1\",\"id\":1,\"expected_version\":1,\"interval_minutes\":30}";
    for (at, step) in case.1.iter().enumerate() {
        let (got, expected) = match step {
            Edit(caller, expected) => (call(world, keys, *caller, "set_interval", edit), *expected),
            Ask(caller, tool, arguments, expected) => {
                (call(world, keys, *caller, tool, arguments), *expected)
            }
            Behind(sql) => {
                world.site.database.execute(sql);
                continue;
            }
            Receipts(count) => {
                assert_eq!(world.site.database.receipts(), *count, "{}, step {at}", case.0);
                continue;
            }
        };
        assert_eq!(got, expected, "{}, step {at}", case.0);
    }
}

/// The cases whose names begin so.
fn check_all(kind: Kind, lock: &str, named: &str) {
    let keys = Keys { first: Signer::fresh(), second: Signer::fresh() };
    for case in CASES.iter().filter(|case| case.0.starts_with(named)) {
        println!("{}", case.0);
        check(case, &world(kind, lock, &keys), &keys);
    }
}

#[test]
fn what_a_caller_may_do_is_asked_anew_on_sqlite() {
    check_all(Kind::Sqlite, "", "");
}

#[test]
fn what_a_caller_may_do_is_asked_anew_on_postgresql() {
    check_all(Kind::Postgres, "", "");
    check_all(Kind::Postgres, " FOR SHARE", "S2");
}
