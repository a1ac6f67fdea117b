//! The stdio edge: a session of lines over a pipe, with every revision and every bad line.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use counterfoil_core::json::{Bounds, parse};
use counterfoil_server::front::Limits;
use counterfoil_server::mcp::serve_stdio;
use counterfoil_server::tools::Tools;
use serde_json::{Value, json};
use support::{Engine, MODERN, RESULT, call, call_of, principal, rpc, until};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, split};
use tokio_util::sync::CancellationToken;

struct Session {
    engine: Arc<Engine>,
    input: Option<WriteHalf<DuplexStream>>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Session {
    fn start() -> Self {
        let limits = Limits { body: 4000, json: Bounds { nesting: 8, values: 100 } };
        let (engine, shutdown) = (Engine::new(), CancellationToken::new());
        let (client, server) = tokio::io::duplex(1 << 16);
        let tools: Arc<dyn Tools> = engine.clone();
        let signal = shutdown.clone().cancelled_owned();
        let drain = Duration::from_secs(5);
        let task = tokio::spawn(serve_stdio(tools, principal("alice"), limits, split(server), signal, drain));
        let (output, input) = split(client);
        Self { engine, input: Some(input), output: BufReader::new(output).lines(), shutdown, task }
    }

    async fn opened() -> Self {
        let mut session = Self::start();
        session.hello("2025-11-25").await;
        session
    }

    async fn hello(&mut self, version: &str) -> Value {
        let params = format!(
            "{{\"protocolVersion\":\"{version}\",\"capabilities\":{{}},\"clientInfo\":{{\"name\":\"t\",\"version\":\"1\"}}}}"
        );
        let hello = self.ask(rpc("initialize", &params)).await;
        self.tell("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}").await;
        hello
    }

    async fn tell(&mut self, line: impl AsRef<[u8]>) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_ref()).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }

    async fn hear(&mut self) -> String {
        let line = tokio::time::timeout(Duration::from_secs(5), self.output.next_line());
        line.await.expect("an answer in time").unwrap().expect("an answer")
    }

    async fn ask(&mut self, line: impl AsRef<[u8]>) -> Value {
        self.tell(line).await;
        serde_json::from_str(&self.hear().await).unwrap()
    }

    /// Closes the input and waits for the end.
    async fn end(mut self) {
        if let Some(mut input) = self.input.take() {
            input.shutdown().await.unwrap();
        }
        tokio::time::timeout(Duration::from_secs(5), &mut self.task).await.expect("an end").unwrap().unwrap();
        assert_eq!(self.output.next_line().await.unwrap(), None, "nothing more is said");
    }
}

#[tokio::test]
async fn bad_lines_are_answered_and_the_session_goes_on() {
    let long = call(&format!("\"{}\"", "x".repeat(5000)));
    let cases: Vec<(Vec<u8>, i64, Value)> = vec![
        (b"nonsense".into(), -32700, Value::Null),
        (call("{\"a\":1,\"a\":1}").into(), -32700, json!(7)),
        (call("{\"a\":\"\\udfff\"}").into(), -32700, json!(7)),
        (call("{\"a\":\"\\u0000\"}").into(), -32700, json!(7)),
        ([b"\"", &[0xff, 0xfe][..], b"\""].concat(), -32700, Value::Null),
        (call("[[[[[[[[[[1]]]]]]]]]]").into(), -32700, json!(7)),
        (long.into(), -32600, Value::Null),
        (format!("[{}]", call("{}")).into(), -32600, Value::Null),
        (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}".into(), -32600, Value::Null),
        (rpc("tools/call", "{}").into(), -32602, json!(7)),
        (rpc("ping", "{\"x\":1e400}").into(), -32602, json!(7)),
        (rpc("no/such", "{}").into(), -32601, json!(7)),
        (call_of("nowhere").into(), -32602, json!(7)),
    ];
    let mut session = Session::opened().await;
    for (line, code, id) in cases {
        let answer = session.ask(&line).await;
        let shown = String::from_utf8_lossy(&line);
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{shown}: {answer}");
        let _unknown = session.engine.last();
        assert_eq!(session.ask(rpc("ping", "{}")).await["result"], json!({}), "after {shown}");
    }
    assert_eq!(session.engine.begun(), 0);
    session.end().await;
}

#[tokio::test]
async fn bad_lines_before_the_handshake_do_no_harm() {
    let mut session = Session::start();
    assert_eq!(session.ask("nonsense").await["error"]["code"], -32700);
    for silent in
        ["", "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}"]
    {
        session.tell(silent).await;
    }
    session.tell("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}").await;
    session.tell("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}").await;
    assert_eq!(session.ask(call("{}")).await["error"]["code"], -32602, "a call before any handshake");
    assert_eq!(session.engine.begun(), 0);
    assert_eq!(session.hello("2025-06-18").await["result"]["protocolVersion"], "2025-06-18");
    session.end().await;
}

#[tokio::test]
async fn nothing_asked_nothing_said() {
    Session::start().end().await;
}

#[tokio::test]
async fn every_revision_with_a_handshake() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut session = Session::start();
        let hello = session.hello(version).await;
        assert_eq!(hello["result"]["protocolVersion"], version);
        assert_eq!(hello["result"]["_meta"]["dev.counterfoil/caller"], principal("alice").caller().as_str());
        assert_eq!(session.ask(rpc("tools/list", "{}")).await["result"]["tools"][0]["name"], "set_interval");
        session.tell(call("{}")).await;
        let answer = session.hear().await;
        assert!(answer.contains(&format!("\"structuredContent\":{RESULT}")), "{answer}");
        session.end().await;
    }
}

#[tokio::test]
async fn the_stateless_revision() {
    let mut session = Session::start();
    let hello = session.ask(rpc("server/discover", &format!("{{{MODERN}}}"))).await;
    assert_eq!(hello["result"]["_meta"]["dev.counterfoil/caller"], principal("alice").caller().as_str());
    let params = format!("{{\"name\":\"set_interval\",\"arguments\":{{\"n\":1e400}},{MODERN}}}");
    session.tell(rpc("tools/call", &params)).await;
    let answer = session.hear().await;
    assert!(answer.contains(&format!("\"structuredContent\":{RESULT}")), "{answer}");
    assert!(answer.contains("\"resultType\":\"complete\""), "{answer}");
    session.end().await;
}

#[tokio::test]
async fn what_a_call_says_arrives() {
    let mut session = Session::opened().await;
    let arguments = "{\"a\":1180591620717411303424,\"b\":1e400,\"c\":-0}";
    let meta = "{\"dev.counterfoil/request-id\":\"edit-1\"}";
    let params = format!(
        "{{\"name\":\"set_interval\",\"arguments\":{arguments},\"_meta\":{meta},\"idempotencyKey\":\"edit-2\"}}"
    );
    session.ask(rpc("tools/call", &params)).await;
    let (subject, call) = session.engine.last().unwrap();
    assert_eq!((subject.as_str(), call.name.as_str()), ("alice", "set_interval"));
    let value = |text: &str| Some(parse(text.as_bytes(), Bounds::default()).unwrap());
    assert_eq!(call.arguments, value(arguments));
    assert_eq!(call.sources.meta, value("\"edit-1\""));
    assert_eq!(call.sources.member, value("\"edit-2\""));
    assert!(call.sources.headers.is_empty());
    session.end().await;
}

#[tokio::test]
async fn refusals_are_results() {
    let mut session = Session::opened().await;
    for code in ["busy", "forbidden"] {
        let answer = session.ask(call_of(code)).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert_eq!(answer["result"]["structuredContent"]["error"]["code"], code);
    }
    session.end().await;
}

#[tokio::test]
async fn two_unanswered_calls_may_share_an_id() {
    let mut session = Session::opened().await;
    session.tell(call_of("slow")).await;
    session.tell(call_of("slow").replace("\"id\":7", "\"id\":\"7\"")).await;
    session.tell(call_of("slow")).await;
    until("all begun", || session.engine.begun() == 3).await;
    session.engine.gate.add_permits(3);
    let mut ids = Vec::new();
    for _ in 0..3 {
        let answer: Value = serde_json::from_str(&session.hear().await).unwrap();
        assert_eq!(answer["result"]["isError"], false);
        ids.push(answer["id"].to_string());
    }
    ids.sort();
    assert_eq!(ids, ["\"7\"", "7", "7"]);
    session.end().await;
}

#[tokio::test]
async fn a_cancelled_call_that_was_begun_runs_to_its_end() {
    let mut session = Session::opened().await;
    session.tell(call_of("slow")).await;
    until("begun", || session.engine.begun() == 1).await;
    session
        .tell("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":7}}")
        .await;
    assert_eq!(session.ask(rpc("ping", "{}")).await["result"], json!({}));
    assert_eq!(session.engine.finished(), 0);
    session.engine.gate.add_permits(1);
    let engine = Arc::clone(&session.engine);
    session.end().await;
    assert_eq!(engine.finished(), 1, "the end waits for it, and it is not answered");
}

/// The session is asked to end while a call is running: it waits for the answer.
async fn check_drain(by_shutdown: bool) {
    let mut session = Session::opened().await;
    session.tell(call_of("slow")).await;
    until("begun", || session.engine.begun() == 1).await;
    if by_shutdown {
        session.shutdown.cancel();
    } else {
        session.input.take().unwrap().shutdown().await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!session.task.is_finished());
    session.engine.gate.add_permits(1);
    assert!(session.hear().await.contains(RESULT));
    session.end().await;
}

#[tokio::test]
async fn the_end_waits_for_begun_calls() {
    check_drain(false).await;
    check_drain(true).await;
}

#[tokio::test]
async fn a_call_cancelled_before_it_was_begun_is_dropped() {
    let mut session = Session::opened().await;
    // Both lines in one write, so that the cancellation is read before the call has had a chance to begin.
    let cancel = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":7}}";
    session.tell(format!("{}\n{cancel}", call("{}"))).await;
    assert_eq!(session.ask(rpc("ping", "{}")).await["result"], json!({}));
    assert_eq!(session.engine.begun(), 0);
    session.end().await;
}
