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
    let membership = "[auth]\nmembership = \"SELECT 1 FROM members WHERE workspace_id = :workspace AND user_id = :principal\"\n\n[[auth.token]]";
    let text = EXAMPLE.replacen("[[auth.token]]", membership, 1);
    let config = config::parse(&folder.join("counterfoil.toml").to_string_lossy(), &text).unwrap();
    let (planned, report) = plan::plan(&config);
    let planned = planned.unwrap_or_else(|| panic!("{report}"));
    let engine = Engine::start_prepared(planned, Arc::new(SystemClock), Some(Arc::new(trace))).await.unwrap();
    let edge = Edge::new(Arc::new(engine) as Arc<dyn Tools>, known, Options::default());
    Server::of(edge).await
}

fn edit(id: i64, request_id: &str) -> Request {
    let arguments =
        json!({"request_id": request_id, "id": id, "expected_version": 1, "interval_minutes": 1437});
    Request::post(rpc("tools/call", &json!({"name": "set_interval", "arguments": arguments}).to_string()))
}

/// The answer and the statements that led to it.
async fn watched(server: &Server, request: &Request) -> (Reply, Vec<String>) {
    TRACED.lock().unwrap().clear();
    let reply = server.send(request).await;
    (reply, std::mem::take(&mut TRACED.lock().unwrap()))
}

/// A cause: what is done behind the server's back, and to which row the call goes.
type Cause = (&'static str, &'static str, i64);

async fn check_alike(server: &Server, database: &Path, causes: &[Cause], request_id: &str) {
    let mut first: Option<(String, Vec<String>)> = None;
    for (what, sql, id) in causes {
        let other = Connection::open(database).unwrap();
        other.execute_batch(sql).unwrap();
        drop(other);
        // Once unseen: what a connection prepares for the first time it keeps.
        let _warm = server.send(&edit(*id, request_id)).await;
        let (reply, statements) = watched(server, &edit(*id, request_id)).await;
        assert!(reply.body.contains("resource_unavailable"), "{what}: {reply:?}");
        assert!(statements.iter().any(|sql| sql.contains("FROM members")), "{what}: {statements:?}");
        assert!(statements.iter().any(|sql| sql.contains("FROM automations")), "{what}: {statements:?}");
        assert!(!statements.iter().any(|sql| sql.contains("UPDATE")), "{what}: {statements:?}");
        let got = (reply.body, statements);
        let expected = first.get_or_insert_with(|| got.clone());
        assert_eq!(&got, expected, "{what}");
    }
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
    check_alike(&server, &database, &fresh, "new-id").await;
    // The caller's own operation has committed, and its row has gone since.
    let member = "INSERT INTO members VALUES ('team-a', 'alice')";
    let (moved, deleted) = ([("moved since", member, 1)], [("deleted since", "", 2)]);
    let gone = [("membership revoked since", "DELETE FROM members", 1)];
    let own: Vec<Reply> = {
        check_alike(&server, &database, &moved, "done-1").await;
        let moved = watched(&server, &edit(1, "done-1")).await;
        check_alike(&server, &database, &deleted, "done-2").await;
        let deleted = watched(&server, &edit(2, "done-2")).await;
        check_alike(&server, &database, &gone, "done-1").await;
        let gone = watched(&server, &edit(1, "done-1")).await;
        assert_eq!((&moved.1, &deleted.1), (&gone.1, &gone.1));
        vec![moved.0, deleted.0, gone.0]
    };
    let stranger = server.send(&edit(99, "new-id")).await;
    assert!(own.iter().all(|reply| reply.body == stranger.body), "nor does the answer tell of a receipt");
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
