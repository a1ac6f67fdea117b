//! Nothing that a caller said is in the log, not even at its finest and with the MCP library's own lines in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use support::{Log, MODERN, Request, Server, TOKEN, rpc};

/// Everything below is sent; `secret` marks what must not be written down.
fn requests() -> Vec<Request> {
    let meta = MODERN.replace("_meta\":{", "_meta\":{\"dev.counterfoil/request-id\":\"secret-meta\",");
    let params = |name: &str| {
        format!(
            "{{\"name\":\"{name}\",\"arguments\":{{\"a\":\"secret-argument\"}},\"idempotencyKey\":\"secret-member\",{meta}}}"
        )
    };
    let called = |name: &str| {
        let request = Request::post(rpc("tools/call", &params(name))).modern("tools/call", Some(name));
        request.and("Idempotency-Key", "secret-header")
    };
    let names = ["set_interval", "busy", "forbidden", "panics", "nowhere"];
    let twice = Request::post(rpc("tools/call", "{\"arguments\":{\"secret-twice\":1,\"secret-twice\":1}}"));
    let unknown = called("busy").with("Authorization", "Bearer secret-token");
    names.map(called).into_iter().chain([twice, unknown, called("busy").with("Mcp-Name", "other")]).collect()
}

#[tokio::test]
async fn what_a_caller_said_is_not_in_the_log() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(log.clone());
    subscriber.with_ansi(false).init();
    let server = Server::start(|_| {}).await;
    for request in requests() {
        server.send(&request).await;
    }
    let written = log.text();
    assert!(written.contains("rmcp"), "the library's own log is in it");
    assert!(written.contains("a call ended without an answer"), "and ours");
    for line in written.lines() {
        assert!(!line.contains("secret") && !line.contains(TOKEN), "{line}");
    }
}
