//! R7, R8 and S2 over HTTP, with signed tokens and membership: what a caller may do is asked anew on every call, of the
//! token and of the database, and an old receipt changes nothing about it. The store is a parameter.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::sync::Arc;

use counterfoil::SystemClock;
use counterfoil::rusqlite::Connection;
use counterfoil_core::Issuer;
use counterfoil_server::auth::{Authenticator, Trusted};
use counterfoil_server::http::{Edge, Options};
use counterfoil_server::run::Engine;
use counterfoil_server::tools::Tools;
use counterfoil_server::{config, plan};
use serde_json::{Value, json};
use support::identity::{Hand, ISSUER, Provider, Served, Signer, set, trusted, trusting, with};
use support::{Request, Server, rpc};

const EXAMPLE: &str = include_str!("../../../examples/automations/counterfoil.toml");
const SCHEMA: &str = include_str!("../../../examples/automations/schema.sql");
const MEMBERS: &str = "CREATE TABLE members (workspace_id TEXT, issuer TEXT, user_id TEXT);
    INSERT INTO members VALUES ('team-a', 'https://id.example.com', 'alice'), ('team-b', 'https://id.example.com', 'alice'),
    ('team-a', 'https://id.example.com', 'alice-2'), ('team-a', 'https://login.example.org', 'alice');";
const AUTH: &str = "[auth]
membership = \"SELECT 1 FROM members WHERE workspace_id = :workspace AND issuer = :issuer AND user_id = :principal\"

[[auth.token]]";
const OTHER: &str = "https://login.example.org";
const BOTH: &str = "automation:write automation:read";
const READ: &str = "automation:read";

/// A server over some store, and a way behind its back.
struct World {
    server: Server,
    execute: Box<dyn Fn(&str)>,
    receipts: Box<dyn Fn() -> i64>,
    _folder: tempfile::TempDir,
}

async fn on_sqlite(known: Authenticator) -> World {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("schema.sql"), format!("{SCHEMA}\n{MEMBERS}")).unwrap();
    let text = EXAMPLE.replacen("[[auth.token]]", AUTH, 1);
    let config = config::parse(&folder.path().join("c.toml").to_string_lossy(), &text).unwrap();
    let (planned, report) = plan::plan(&config);
    let engine = Engine::start_at(planned.unwrap_or_else(|| panic!("{report}")), Arc::new(SystemClock));
    let tools: Arc<dyn Tools> = Arc::new(engine.await.unwrap());
    let path = folder.path().join("automations.db");
    let (first, second) = (path.clone(), path);
    World {
        server: Server::of(Edge::new(tools, known, Options::default())).await,
        execute: Box::new(move |sql| Connection::open(&first).unwrap().execute_batch(sql).unwrap()),
        receipts: Box::new(move || {
            let count = "SELECT count(*) FROM counterfoil_receipts";
            Connection::open(&second).unwrap().query_row(count, [], |row| row.get(0)).unwrap()
        }),
        _folder: folder,
    }
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
        let mut claims = with("scope", json!(caller.scopes));
        claims["iss"] = json!(caller.issuer);
        for (name, value) in caller.claims {
            claims[*name] = json!(value);
        }
        let signer = if caller.issuer == ISSUER { &self.first } else { &self.second };
        signer.sign("ES256", &claims)
    }
}

async fn call(world: &World, keys: &Keys, caller: Caller, tool: &str, arguments: &str) -> String {
    let body = rpc("tools/call", &format!("{{\"name\":\"{tool}\",\"arguments\":{arguments}}}"));
    let request = Request::post(body).at(&format!("POST {}", caller.at));
    let request = request.with("Authorization", &format!("Bearer {}", keys.token(caller)));
    let reply = world.server.send(&request).await;
    let body: Value = reply.json();
    let structured = [&body["result"]["structuredContent"], &body["error"]["data"]];
    let Some(told) = structured.into_iter().find(|told| told.is_object()) else {
        return reply.status.to_string();
    };
    let word = |name: &str| told[name].as_str().map(str::to_owned);
    if let Some(code) = told["error"]["code"].as_str() {
        assert!(
            !body.to_string().contains("committed_at"),
            "a refusal of access tells of no receipt: {body}"
        );
        return code.to_owned();
    }
    match told["replayed"].as_bool() {
        Some(true) => "replayed".to_owned(),
        Some(false) => "fresh".to_owned(),
        None => word("state").unwrap_or("done".to_owned()),
    }
}

async fn check(case: &Case, world: &World, keys: &Keys) {
    let edit = "{\"request_id\":\"edit-1\",\"id\":1,\"expected_version\":1,\"interval_minutes\":30}";
    for (at, step) in case.1.iter().enumerate() {
        let (got, expected) = match step {
            Edit(caller, expected) => (call(world, keys, *caller, "set_interval", edit).await, *expected),
            Ask(caller, tool, arguments, expected) => {
                (call(world, keys, *caller, tool, arguments).await, *expected)
            }
            Behind(sql) => {
                (world.execute)(sql);
                continue;
            }
            Receipts(count) => {
                assert_eq!((world.receipts)(), *count, "{}, step {at}", case.0);
                continue;
            }
        };
        assert_eq!(got, expected, "{}, step {at}", case.0);
    }
}

#[tokio::test]
async fn what_a_caller_may_do_is_asked_anew_on_sqlite() {
    let keys = Keys { first: Signer::p256("k"), second: Signer::p256("k") };
    let first = Provider::start(Served::Set(set(&[keys.first.jwk()]))).await;
    let second = Provider::start(Served::Set(set(&[keys.second.jwk()]))).await;
    let other = Trusted { issuer: Issuer::parse(OTHER).unwrap(), ..trusted(second.source()) };
    for case in CASES {
        let known = trusting(vec![trusted(first.source()), other.clone()], &Hand::new());
        check(case, &on_sqlite(known).await, &keys).await;
    }
}
