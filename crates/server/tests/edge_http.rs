//! The HTTP edge: who gets in, what is read, what arrives at the engine, what comes back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::time::Duration;

use counterfoil_core::json::{Bounds, parse};
use serde_json::{Value, json};
use support::{MODERN, RESULT, Request, Server, TOKEN, call, call_of, rpc, until};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const CALL: &str =
    "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"set_interval\"}}";

const NEEDED: &str = "Bearer error=\"insufficient_scope\", scope=\"automation:write\"";

/// A request that is answered at the edge: this status, a JSON-RPC error with this code, nothing begun.
async fn check_stopped(server: &Server, request: &Request, status: u16, code: i64) -> Value {
    let reply = server.send(request).await;
    let shown = String::from_utf8_lossy(&request.body[..request.body.len().min(200)]).into_owned();
    assert_eq!(reply.status, status, "{} {:?} {shown}: {reply:?}", request.line, request.headers);
    assert_eq!(reply.header("content-type"), Some("application/json"), "{reply:?}");
    let body = reply.json();
    assert_eq!(body["jsonrpc"], "2.0", "{reply:?}");
    assert_eq!(body["error"]["code"], code, "{shown}: {reply:?}");
    assert!(!body["error"]["message"].as_str().unwrap().is_empty());
    assert_eq!(server.engine.begun(), 0, "{shown}");
    assert!(!reply.body.contains(TOKEN), "a token is never shown");
    body
}

#[tokio::test]
async fn doors() {
    let server = Server::start(|options| {
        options.hosts = vec!["tools.example.com".into(), "other.example.com:8443".into()];
        options.origins = vec!["https://app.example.com".into()];
    })
    .await;
    let ok = || Request::post(CALL);
    let stopped: &[(Request, u16)] = &[
        (ok().without("Authorization"), 401),
        (ok().with("Authorization", "Bearer nobody"), 401),
        (ok().with("Authorization", "Basic alice-token"), 401),
        (ok().and("Authorization", "Bearer alice-token"), 401),
        (ok().without("Authorization").at("POST /mcp?access_token=alice-token"), 401),
        (ok().with("Host", "evil.example.com"), 403),
        (ok().with("Host", "127.0.0.1.evil.example.com"), 403),
        (ok().with("Host", "other.example.com"), 403),
        (ok().with("Host", "other.example.com:1"), 403),
        (ok().with("Host", "user@localhost"), 403),
        (ok().with("Host", "evil.example.com").without("Authorization"), 403),
        (ok().and("Origin", "https://evil.example.com"), 403),
        (ok().and("Origin", "null"), 403),
        (ok().with("Host", "localhost:8080").and("Origin", "http://localhost:8081"), 403),
        (ok().with("Host", "evil.example.com").and("Origin", "http://evil.example.com"), 403),
        (ok().and("Origin", "https://app.example.com:444"), 403),
        (ok().and("Origin", "http://app.example.com"), 403),
        (ok().and("Origin", "https://app.example.com").and("Origin", "https://evil.example.com"), 403),
        (ok().at("GET /mcp"), 405),
        (ok().at("DELETE /mcp"), 405),
        (ok().at("PUT /mcp"), 405),
        (ok().at("POST /elsewhere"), 404),
        (ok().without("Content-Type"), 415),
        (ok().with("Content-Type", "text/plain"), 415),
        (ok().with("Accept", "text/event-stream"), 406),
    ];
    for (request, status) in stopped {
        check_stopped(&server, request, *status, -32000).await;
    }
    let open = [
        ok(),
        ok().with("Authorization", "bearer alice-token"),
        ok().with("Host", "LOCALHOST:1"),
        ok().with("Host", "[::1]:80"),
        ok().with("Host", "tools.example.com"),
        ok().with("Host", "tools.example.com:9"),
        ok().with("Host", "other.example.com:8443"),
        ok().and("Origin", "https://app.example.com"),
        ok().with("Host", "localhost:8080").and("Origin", "http://localhost:8080"),
        ok().with("Content-Type", "application/json; charset=utf-8"),
        ok().without("Accept"),
        ok().with("Accept", "*/*"),
    ];
    for request in open {
        let reply = server.send(&request).await;
        assert_eq!(reply.status, 200, "{:?}: {reply:?}", request.headers);
        assert_eq!(server.engine.last().unwrap().0, "alice");
    }
    let denied = server.send(&ok().without("Authorization")).await;
    assert_eq!(denied.header("www-authenticate"), Some("Bearer"));
    let get = server.send(&ok().at("GET /mcp")).await;
    assert_eq!(get.header("allow"), Some("POST"));
    let health = server.send(&ok().without("Authorization").at("GET /healthz")).await;
    assert_eq!((health.status, health.body.as_str()), (200, "{\"status\":\"ok\"}"));
}

#[tokio::test]
async fn strict_reading() {
    let server = Server::start(|options| options.limits.json = Bounds { nesting: 8, values: 100 }).await;
    let deep = call(&format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)));
    let many = call(&format!("[{}1]", "1,".repeat(200)));
    let cases: Vec<(Vec<u8>, i64, Value)> = vec![
        (b"".into(), -32700, Value::Null),
        (b"{".into(), -32700, Value::Null),
        (b"nonsense".into(), -32700, Value::Null),
        (CALL[..CALL.len() - 1].into(), -32700, Value::Null),
        ([CALL.as_bytes(), b"{}"].concat(), -32700, Value::Null),
        (call("{\"id\":1,\"id\":1}").into(), -32700, json!(7)),
        (call("{\"a\":{\"b\":1,\"\\u0062\":2}}").into(), -32700, json!(7)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"id\":8,\"method\":\"ping\"}".into(), -32700, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"method\":\"ping\"}".into(), -32700, json!(7)),
        (call("{\"a\":\"\\ud800\"}").into(), -32700, json!(7)),
        (call("{\"a\":\"\\u0000\"}").into(), -32700, json!(7)),
        (call("{\"\\u0000\":1}").into(), -32700, json!(7)),
        ([b"{\"jsonrpc\":\"2.0\",\"id\":\"", &[0xff][..], b"\"}"].concat(), -32700, Value::Null),
        (deep.into(), -32700, json!(7)),
        (many.into(), -32700, json!(7)),
        (format!("[{CALL}]").into(), -32600, Value::Null),
        (b"[]".into(), -32600, Value::Null),
        (b"1".into(), -32600, Value::Null),
        (b"{}".into(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}".into(), -32600, json!(7)),
        (b"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":5}".into(), -32600, json!("x")),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}".into(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}".into(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":9223372036854775808,\"method\":\"ping\"}".into(), -32600, Value::Null),
        (
            b"{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"x\"}}".into(),
            -32600,
            Value::Null,
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}".into(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\"}".into(), -32602, json!(7)),
        (rpc("tools/call", "[]").into(), -32602, json!(7)),
        (rpc("tools/call", "{}").into(), -32602, json!(7)),
        (rpc("tools/call", "{\"name\":1}").into(), -32602, json!(7)),
        (rpc("tools/call", "{\"name\":\"x\",\"_meta\":[]}").into(), -32602, json!(7)),
        (rpc("ping", "{\"x\":1e400}").into(), -32602, json!(7)),
    ];
    for (body, code, id) in cases {
        let answer = check_stopped(&server, &Request::post(body.clone()), 400, code).await;
        assert_eq!(answer["id"], id, "{}", String::from_utf8_lossy(&body));
    }
}

#[tokio::test]
async fn large_bodies() {
    let server = Server::start(|options| options.limits.body = 1000).await;
    let padded = |length: usize| format!("{}{}", CALL, " ".repeat(length - CALL.len()));
    assert_eq!(server.post(padded(1000)).await.status, 200);
    assert!(server.engine.last().is_some());
    for length in [1001, 10_000, 1_000_000] {
        check_stopped(&server, &Request::post(padded(length)), 413, -32000).await;
    }
    let chunked = format!("{:x}\r\n{}\r\n0\r\n\r\n", 5000, padded(5000));
    let chunked = Request::post(chunked).and("Transfer-Encoding", "chunked");
    check_stopped(&server, &chunked, 413, -32000).await;
    let expecting = Request::post("").and("Content-Length", "5000").and("Expect", "100-continue");
    check_stopped(&server, &expecting, 413, -32000).await;
}

#[tokio::test]
async fn a_body_that_never_comes() {
    let server = Server::start(|options| options.body_wait = Duration::from_millis(50)).await;
    check_stopped(&server, &Request::post("{").and("Content-Length", "10"), 408, -32000).await;
}

async fn check_arguments(server: &Server, sent: &str, expected: Option<&str>) {
    let reply = server.post(call(sent)).await;
    assert_eq!(reply.status, 200, "{sent}: {reply:?}");
    let (_, got) = server.engine.last().unwrap();
    let expected = expected.map(|text| parse(text.as_bytes(), Bounds::default()).unwrap());
    assert_eq!(got.arguments, expected, "{sent}");
}

#[tokio::test]
async fn arguments_arrive_as_they_were_spelled() {
    let server = Server::start(|_| {}).await;
    let whole = [
        "{}",
        "{\"a\":1180591620717411303424}",
        "{\"a\":1e400,\"b\":-0,\"c\":3e1,\"d\":30.0}",
        "{\"a\":\"\\u00e9\\ud83d\\ude00\",\"b\":[null,true,{\"c\":[]}]}",
        "{\"name\":\"x\",\"_meta\":{}}",
        "[1,2]",
        "\"text\"",
        "5",
        "true",
    ];
    for sent in whole {
        check_arguments(&server, sent, Some(sent)).await;
    }
    check_arguments(&server, "null", None).await;
    assert_eq!(server.post(CALL).await.status, 200);
    assert_eq!(server.engine.last().unwrap().1.arguments, None);
}

/// What the engine is told of a call with these params, besides its name and arguments, and these headers.
async fn check_sources(
    server: &Server,
    params: &str,
    headers: &[&str],
    expected: (Option<&str>, Option<&str>),
) {
    let body = rpc("tools/call", &format!("{{\"name\":\"set_interval\"{params}}}"));
    let mut request = Request::post(body);
    for value in headers {
        request = request.and("idempotency-key", value);
    }
    assert_eq!(server.send(&request).await.status, 200, "{params}");
    let sources = server.engine.last().unwrap().1.sources;
    let value = |text: &str| parse(text.as_bytes(), Bounds::default()).unwrap();
    assert_eq!(sources.meta, expected.0.map(value), "{params}");
    assert_eq!(sources.member, expected.1.map(value), "{params}");
    let got: Vec<&[u8]> = sources.headers.iter().map(|value| &**value).collect();
    assert_eq!(got, headers.iter().map(|value| value.as_bytes()).collect::<Vec<_>>());
}

#[tokio::test]
async fn request_ids_arrive_from_every_source() {
    let server = Server::start(|_| {}).await;
    let meta = ",\"_meta\":{\"trace\":1e400,\"dev.counterfoil/request-id\":\"edit-1\",\"progressToken\":1}";
    let all = format!("{meta},\"idempotencyKey\":\"edit-2\"");
    check_sources(&server, "", &[], (None, None)).await;
    check_sources(&server, meta, &[], (Some("\"edit-1\""), None)).await;
    check_sources(&server, ",\"idempotencyKey\":\"edit-2\"", &[], (None, Some("\"edit-2\""))).await;
    check_sources(&server, ",\"idempotencyKey\":null", &[], (None, Some("null"))).await;
    check_sources(&server, ",\"idempotencyKey\":[1]", &[], (None, Some("[1]"))).await;
    check_sources(&server, "", &["edit-3"], (None, None)).await;
    check_sources(&server, "", &["\"edit-3\";p=1", "é"], (None, None)).await;
    check_sources(&server, &all, &["edit-3"], (Some("\"edit-1\""), Some("\"edit-2\""))).await;
}

fn check_result(body: &str, modern: bool) {
    let expected = format!("\"structuredContent\":{RESULT}");
    assert!(body.contains(&expected), "byte for byte: {body}");
    let whole: Value = serde_json::from_str(body).unwrap();
    assert_eq!(whole["id"], 7);
    assert_eq!(whole["result"]["isError"], false);
    assert_eq!(whole["result"]["content"], json!([{"type": "text", "text": RESULT}]));
    assert_eq!(whole["result"]["resultType"], if modern { json!("complete") } else { Value::Null });
}

fn check_list(list: &Value) {
    let tools = list["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 2, "{list}");
    assert_eq!(tools[0]["name"], "set_interval");
    assert_eq!(tools[0]["_meta"], json!({"dev.counterfoil/request-ids": true}));
    assert_eq!(tools[0]["outputSchema"], json!({"type": "object"}));
    let hints = &tools[0]["annotations"];
    assert_eq!(hints["readOnlyHint"], false);
    assert_eq!(hints["destructiveHint"], true);
    assert_eq!(hints["idempotentHint"], false);
    assert_eq!(hints["openWorldHint"], false);
    assert_eq!(tools[1]["_meta"], Value::Null);
    assert_eq!(tools[1]["annotations"]["readOnlyHint"], true);
}

fn check_greeting(result: &Value) {
    let caller = support::principal("alice").caller();
    assert_eq!(result["_meta"]["dev.counterfoil/caller"], caller.as_str(), "{result}");
    assert!(result["instructions"].as_str().unwrap().contains("request_id"));
    assert!(result["capabilities"]["tools"].is_object());
}

async fn check_legacy(server: &Server, version: &str, negotiated: &str) {
    let hello = format!(
        "{{\"protocolVersion\":\"{version}\",\"capabilities\":{{}},\"clientInfo\":{{\"name\":\"t\",\"version\":\"1\"}}}}"
    );
    let hello = server.post(rpc("initialize", &hello)).await;
    assert_eq!(hello.status, 200, "{hello:?}");
    assert_eq!(hello.header("mcp-session-id"), None);
    let hello = hello.json();
    assert_eq!(hello["result"]["protocolVersion"], negotiated);
    assert_eq!(hello["result"]["serverInfo"]["name"], "counterfoil");
    check_greeting(&hello["result"]);
    let versioned = |body: String| Request::post(body).and("MCP-Protocol-Version", negotiated);
    let initialized = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}".to_owned();
    assert_eq!(server.send(&versioned(initialized)).await.status, 202);
    check_list(&server.send(&versioned(rpc("tools/list", "{}"))).await.json());
    assert_eq!(server.send(&versioned(rpc("ping", "{}"))).await.json()["result"], json!({}));
    check_result(&server.send(&versioned(call("{}"))).await.body, false);
    let unknown = server.send(&versioned(call_of("nowhere"))).await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (200, &json!(-32602)));
}

#[tokio::test]
async fn every_revision_with_a_handshake() {
    let server = Server::start(|_| {}).await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        check_legacy(&server, version, version).await;
    }
    check_legacy(&server, "2026-07-28", "2025-11-25").await;
    check_legacy(&server, "1999-01-01", "2025-11-25").await;
    // Without any handshake or header, as older clients and one-line tests do it.
    check_result(&server.post(call("{}")).await.body, false);
}

#[tokio::test]
async fn the_stateless_revision() {
    let server = Server::start(|_| {}).await;
    let params = |more: &str| format!("{{{more}{MODERN}}}");
    let discover = Request::post(rpc("server/discover", &params(""))).modern("server/discover", None);
    let hello = server.send(&discover).await;
    assert_eq!(hello.status, 200, "{hello:?}");
    let hello = hello.json();
    check_greeting(&hello["result"]);
    let versions = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
    assert_eq!(hello["result"]["supportedVersions"], json!(versions));
    assert_eq!(hello["result"]["cacheScope"], "private");
    let list =
        server.send(&Request::post(rpc("tools/list", &params(""))).modern("tools/list", None)).await.json();
    check_list(&list);
    assert_eq!((&list["result"]["cacheScope"], &list["result"]["ttlMs"]), (&json!("private"), &json!(0)));
    let called = |name: &str| {
        let body = rpc("tools/call", &params(&format!("\"name\":\"{name}\",\"arguments\":{{\"n\":1e400}},")));
        Request::post(body).modern("tools/call", Some(name))
    };
    check_result(&server.send(&called("set_interval")).await.body, true);
    let unknown = server.send(&called("nowhere")).await;
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (200, &json!(-32602)));
    server.engine.begun.lock().unwrap().clear();
    let other_name = called("set_interval").with("Mcp-Name", "another");
    check_stopped(&server, &other_name, 400, -32020).await;
    let no_meta = Request::post(call("{}")).modern("tools/call", Some("set_interval"));
    check_stopped(&server, &no_meta, 400, -32602).await;
    let unknown_version = Request::post(call("{}")).and("MCP-Protocol-Version", "2031-01-01");
    check_stopped(&server, &unknown_version, 400, -32600).await;
}

#[tokio::test]
async fn refusals() {
    let server = Server::start(|_| {}).await;
    let busy = server.post(call_of("busy")).await;
    assert_eq!(busy.status, 200);
    let result = &busy.json()["result"];
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["error"]["code"], "busy");
    assert_eq!(result["structuredContent"]["error"]["retry_after_ms"], 250);
    assert!(result["content"][0]["text"].as_str().unwrap().ends_with("(busy)"));
    let broken = server.post(call_of("panics")).await.json();
    let error = &broken["result"]["structuredContent"]["error"];
    assert_eq!((&error["code"], &error["operation"]), (&json!("internal"), &json!("unknown")));
    assert!(error["correlation_id"].is_string());
    for (name, status, code) in [("forbidden", 403, "forbidden"), ("limited", 429, "rate_limited")] {
        let reply = server.post(call_of(name)).await;
        assert_eq!(reply.status, status);
        let body = reply.json();
        assert_eq!((&body["id"], &body["error"]["code"]), (&json!(7), &json!(-32000)));
        assert_eq!(body["error"]["data"]["error"]["code"], code);
        let challenge = reply.header("www-authenticate");
        assert_eq!(challenge, (status == 403).then_some(NEEDED));
        assert_eq!(reply.header("retry-after"), (status == 429).then_some("2"));
    }
}

/// The client goes away while its call is running; the call runs to its end.
async fn check_disconnect(server: &Server, request: &Request) {
    let (begun, finished) = (server.engine.begun(), server.engine.finished());
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&request.bytes(server.address)).await.unwrap();
    until("begun", || server.engine.begun() > begun).await;
    drop(stream);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(server.engine.finished(), finished);
    server.engine.gate.add_permits(1);
    until("finished", || server.engine.finished() > finished).await;
}

fn slow_modern() -> Request {
    let params = format!("{{\"name\":\"slow\",{MODERN}}}");
    Request::post(rpc("tools/call", &params)).modern("tools/call", Some("slow"))
}

#[tokio::test]
async fn a_disconnect_does_not_stop_a_begun_call() {
    let server = Server::start(|_| {}).await;
    check_disconnect(&server, &Request::post(call_of("slow"))).await;
    check_disconnect(&server, &slow_modern()).await;
}

#[tokio::test]
async fn shutdown_finishes_begun_calls() {
    let mut server = Server::start(|_| {}).await;
    // One whose client waits, one whose client is gone.
    let waiting = slow_modern().bytes(server.address);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&waiting).await.unwrap();
    let mut gone = TcpStream::connect(server.address).await.unwrap();
    gone.write_all(&waiting).await.unwrap();
    until("both begun", || server.engine.begun() == 2).await;
    drop(gone);
    server.shutdown.cancel();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!server.task.is_finished());
    // New calls still get an answer while begun ones finish; what it is, is the engine's to say.
    assert_eq!(server.post(call_of("busy")).await.status, 200);
    server.engine.gate.add_permits(2);
    check_result(&support::read(stream).await.body, true);
    tokio::time::timeout(Duration::from_secs(5), &mut server.task).await.expect("an end").unwrap().unwrap();
    assert_eq!(server.engine.finished(), 3);
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn shutdown_is_bounded() {
    let mut server = Server::start(|options| options.drain = Duration::from_millis(50)).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&slow_modern().bytes(server.address)).await.unwrap();
    until("begun", || server.engine.begun() == 1).await;
    server.shutdown.cancel();
    tokio::time::timeout(Duration::from_secs(5), &mut server.task).await.expect("an end").unwrap().unwrap();
}
