//! S1: what is refused as `resource_unavailable` looks alike whatever the cause, to the byte and to the statement; and
//! nothing that a caller said, or that the config holds, is written where it does not belong.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::sync::{Arc, Mutex};

use counterfoil::SystemClock;
use counterfoil::rusqlite::Connection;
use counterfoil::rusqlite::trace::{TraceEvent, TraceEventCodes};
use counterfoil_server::auth::{Authenticator, TokenEntry, TokenHash};
use counterfoil_server::front::{Front, Given, Verdict};
use counterfoil_server::http::{Edge, Options};
use counterfoil_server::run::Engine;
use counterfoil_server::tools::{ToolCall, Tools};
use counterfoil_server::{config, plan};
use serde_json::json;
use sha2::{Digest, Sha256};
use support::identity::{Hand, Provider, Served, Signer, claims, set, trusted};
use support::{Log, Reply, Request, Server, TOKEN, rpc};

const EXAMPLE: &str = include_str!("../../../examples/automations/counterfoil.toml");
const SCHEMA: &str = include_str!("../../../examples/automations/schema.sql");

/// Statements in the order in which they ran, on every connection of this process that traces.
static TRACED: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn trace(connection: &mut Connection) -> Result<(), counterfoil::rusqlite::Error> {
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note))
}

fn note(event: TraceEvent<'_>) {
    if let TraceEvent::Stmt(_, sql) = event {
        TRACED.lock().unwrap().push(sql.to_owned());
    }
}

/// The example over HTTP, with members, on a database in `folder`.
async fn example(folder: &Path, known: Authenticator) -> Server {
    let members = "CREATE TABLE members (workspace_id TEXT, user_id TEXT);\n\
                   INSERT INTO members VALUES ('team-a', 'alice'), ('team-a', 'bob');";
    std::fs::write(folder.join("schema.sql"), format!("{SCHEMA}\n{members}")).unwrap();
    let membership = "[tools.guarded]
scope = \"automation:read\"
returns = \"rows\"
access = \"SELECT 1 FROM automations WHERE id = :id AND workspace_id = :workspace\"
read = \"SELECT version FROM automations WHERE id = :id AND workspace_id = :workspace\"
input.id = { type = \"integer\" }

[auth]\nmembership = \"SELECT 1 FROM members WHERE workspace_id = :workspace AND user_id = :principal\"\n\n[[auth.token]]";
    let text = EXAMPLE.replacen("[[auth.token]]", membership, 1);
    let config = config::parse(&folder.join("counterfoil.toml").to_string_lossy(), &text).unwrap();
    let (planned, report) = plan::plan(&config);
    let planned = planned.unwrap_or_else(|| panic!("{report}"));
    let engine = Engine::start_prepared(planned, Arc::new(SystemClock), Some(Arc::new(trace))).await.unwrap();
    let edge = Edge::new(Arc::new(engine) as Arc<dyn Tools>, known, Options::default());
    Server::of(edge).await
}

fn ask(tool: &str, arguments: serde_json::Value) -> Request {
    Request::post(rpc("tools/call", &json!({"name": tool, "arguments": arguments}).to_string()))
}

fn edit(id: i64, request_id: &str) -> Request {
    let arguments =
        json!({"request_id": request_id, "id": id, "expected_version": 1, "interval_minutes": 1437});
    ask("set_interval", arguments)
}

/// The answer and the statements that led to it.
async fn watched(server: &Server, request: &Request) -> (Reply, Vec<String>) {
    TRACED.lock().unwrap().clear();
    let reply = server.send(request).await;
    (reply, std::mem::take(&mut TRACED.lock().unwrap()))
}

/// A cause: what is done behind the server's back, and to which row the call goes.
type Cause = (&'static str, &'static str, i64);

async fn check_alike(
    server: &Server,
    database: &Path,
    causes: &[Cause],
    call: impl Fn(i64) -> Request,
) -> String {
    let mut first: Option<(String, Vec<String>)> = None;
    for (what, sql, id) in causes {
        let other = Connection::open(database).unwrap();
        other.execute_batch(sql).unwrap();
        drop(other);
        // Once unseen: what a connection prepares for the first time it keeps.
        let _warm = server.send(&call(*id)).await;
        let (reply, statements) = watched(server, &call(*id)).await;
        assert!(reply.body.contains("resource_unavailable"), "{what}: {reply:?}");
        assert!(statements.iter().any(|sql| sql.contains("FROM members")), "{what}: {statements:?}");
        assert!(statements.iter().any(|sql| sql.contains("FROM automations")), "{what}: {statements:?}");
        assert!(!statements.iter().any(|sql| sql.contains("UPDATE")), "{what}: {statements:?}");
        let got = (reply.body, statements);
        let expected = first.get_or_insert_with(|| got.clone());
        assert_eq!(&got, expected, "{what}");
    }
    first.unwrap().0
}

/// One at a time: what is traced is the whole process's.
static ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test]
async fn every_cause_looks_alike() {
    let _one = ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let server = example(folder.path(), support::authenticator()).await;
    let database = folder.path().join("automations.db");
    for id in [1, 2] {
        let body = server.send(&edit(id, &format!("done-{id}"))).await.body;
        assert!(body.contains("\"replayed\":false"), "{body}");
    }
    let fresh: [Cause; 5] = [
        ("never existed", "", 99),
        ("another workspace's", "", 20),
        ("moved away", "UPDATE automations SET workspace_id = 'team-b', version = 9 WHERE id = 1", 1),
        ("deleted", "DELETE FROM automations WHERE id = 2", 2),
        ("not a member", "INSERT INTO automations VALUES (3, 'team-a', 15, 1); DELETE FROM members", 3),
    ];
    let stranger = check_alike(&server, &database, &fresh, |id| edit(id, "new-id")).await;
    // The caller's own operation has committed, and its row has gone since.
    let member = "INSERT INTO members VALUES ('team-a', 'alice')";
    let own: [Cause; 3] = [
        ("moved since", member, 1),
        ("deleted since", "", 2),
        (
            "membership revoked since",
            "DELETE FROM members; INSERT INTO automations VALUES (2, 'team-a', 15, 2)",
            2,
        ),
    ];
    let own = check_alike(&server, &database, &own, |id| edit(id, &format!("done-{id}"))).await;
    assert_eq!(own, stranger, "nor does the answer tell of a receipt");
    let reads: [Cause; 4] = [
        ("never existed", member, 99),
        ("another workspace's", "", 20),
        ("deleted", "DELETE FROM automations WHERE id = 2", 2),
        ("not a member", "DELETE FROM members", 3),
    ];
    let _body = check_alike(&server, &database, &reads, |id| ask("guarded", json!({"id": id}))).await;
}

/// To somebody who is no member the built-in tools say the same, whatever there is to tell.
#[tokio::test]
async fn built_in_tools_look_alike_to_strangers() {
    let _one = ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let server = example(folder.path(), support::authenticator()).await;
    let body = server.send(&edit(1, "done")).await.body;
    assert!(body.contains("\"replayed\":false"), "{body}");
    let operation = |operation: &str| json!({"tool": "set_interval", "operation": operation});
    let body = server.send(&ask("void_operation", operation("voided"))).await.body;
    assert!(body.contains("\"voided\""), "{body}");
    let other = Connection::open(folder.path().join("automations.db")).unwrap();
    other.execute_batch("DELETE FROM members").unwrap();
    for tool in ["operation_status", "void_operation"] {
        let mut all = Vec::new();
        for name in ["done", "voided", "never"] {
            let call = ask(tool, operation(name));
            let _warm = server.send(&call).await;
            let (reply, statements) = watched(&server, &call).await;
            assert!(reply.body.contains("resource_unavailable"), "{tool} {name}: {reply:?}");
            assert!(
                statements.iter().any(|sql| sql.contains("FROM members")),
                "{tool} {name}: {statements:?}"
            );
            all.push((reply.body, statements));
        }
        assert!(all.iter().all(|one| *one == all[0]), "{tool}: {all:?}");
    }
    let count = "SELECT count(*) FROM counterfoil_receipts";
    assert_eq!(other.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 2, "nothing was voided");
}

#[tokio::test]
async fn nothing_that_is_secret_is_in_the_log() {
    let _one = ONE.lock().await;
    let log = Log::default();
    // As the program filters it, and for the rest at its finest.
    let filter = format!("trace,{}", counterfoil_server::mcp::LOG_DIRECTIVE);
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log.clone());
    subscriber.with_ansi(false).init();
    let folder = tempfile::tempdir().unwrap();
    let (key, clock) = (Signer::p256("p256"), Hand::new());
    let provider = Provider::start(Served::Set(set(&[key.jwk()]))).await;
    let known = support::identity::trusting(vec![trusted(provider.source())], &clock);
    let server = example(folder.path(), known).await;
    let good = key.sign("ES256", &claims());
    let unfit = key.sign("ES256", &support::identity::with("workspace_id", None));
    let bearing = |token: &str, request: Request| request.with("Authorization", &format!("Bearer {token}"));
    let id = "secret-request-id-0123456789";
    let requests = [
        bearing(&good, edit(1, id)),
        bearing(&good, edit(1, id)),
        bearing(&good, edit(2, id)),
        bearing(&good, edit(99, "other-secret-request-id")),
        bearing(&unfit, edit(1, id)),
        bearing(&Signer::p256("secret-kid").sign("ES256", &claims()), edit(1, id)),
        edit(2, "third-secret-request-id"),
        edit(2, "third-secret-request-id").with("Authorization", "Bearer secret-and-unknown"),
    ];
    let mut answers = String::new();
    for request in &requests {
        answers.push_str(&server.send(request).await.body);
    }
    let written = log.text();
    assert!(written.contains("the claim workspace_id is missing"), "what is wrong is in it");
    assert!(written.contains("\"write\"") || written.contains(" write "), "and what was written");
    let signature = |token: &str| token.rsplit('.').next().unwrap().to_owned();
    let secrets = [
        good.clone(),
        signature(&good),
        signature(&unfit),
        TOKEN.to_owned(),
        "secret-and-unknown".to_owned(),
        "secret-request-id".to_owned(),
        "1437".to_owned(),
        "UPDATE automations".to_owned(),
        "FROM members".to_owned(),
    ];
    for line in written.lines() {
        for secret in &secrets {
            assert!(!line.contains(secret), "{secret}: {line}");
        }
    }
    assert!(!answers.contains("UPDATE") && !answers.contains("members") && !answers.contains(&good));
}

#[test]
fn debug_of_secrets_shows_nothing() {
    let value = || counterfoil_core::json::parse(b"{\"a\":\"secret\"}", Default::default()).unwrap();
    let entry = TokenEntry {
        sha256: TokenHash(Sha256::digest(TOKEN).into()),
        principal: support::principal("alice"),
    };
    let config = config::parse("c.toml", EXAMPLE).unwrap();
    let sources = counterfoil_core::Sources { meta: Some(value()), ..Default::default() };
    let given = Given { arguments: Some(value()), sources: sources.clone() };
    let call = ToolCall {
        name: "set_interval".into(),
        arguments: Some(value()),
        sources,
        noted: Arc::default(),
        cancelled: Default::default(),
    };
    let front = Front {
        principal: support::principal("alice"),
        given: Some(given.clone()),
        verdict: Some(Verdict::default()),
    };
    let shown = [
        format!("{:?}", entry.sha256),
        format!("{entry:?}"),
        format!("{:?}", Authenticator::new(vec![entry.clone()])),
        format!("{:?}", config.auth),
        format!("{given:?}"),
        format!("{front:?}"),
        format!("{call:?}"),
    ];
    let first = Sha256::digest(TOKEN)[0].to_string();
    let example = "176, 162, 106, 129"; // the beginning of the hash of alice-local-token
    for text in shown {
        let leaked = ["secret\"", "sha256: [", example].iter().any(|secret| text.contains(secret));
        assert!(!leaked && !text.contains(&format!("[{first},")), "{text}");
    }
}
