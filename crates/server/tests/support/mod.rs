//! A small engine behind a real edge, and the smallest HTTP client that shows what is on the wire.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test support"
)]

pub mod identity;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use counterfoil_core::{Issuer, Principal, Refusal, Scope, Subject, Workspace};
use counterfoil_server::auth::{Authenticator, TokenEntry, TokenHash};
use counterfoil_server::http::{Edge, Options, serve};
use counterfoil_server::tools::{
    Answer, Effect, Hints, Listed, Noted, Pending, ToolCall, Tools, UnknownTool,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub const TOKEN: &str = "alice-token";
pub const BOB: &str = "bob-token";
/// Digits that a double, and a parsed value, would lose.
pub const RESULT: &str =
    "{\"result\":{\"n\":9007199254740993,\"d\":12345678901234567890.10,\"e\":1e+21},\"z\":1,\"a\":2}";

pub fn principal(subject: &str) -> Arc<Principal> {
    Arc::new(Principal {
        issuer: Issuer::parse("local").unwrap(),
        subject: Subject::parse(subject).unwrap(),
        workspace: Workspace::parse("team-a").unwrap(),
        scopes: ["automation:read", "automation:write"].map(|scope| Scope::parse(scope).unwrap()).into(),
    })
}

/// Remembers what it was asked. `slow` waits at a gate; `forbidden`, `busy`, `limited` refuse; `panics` panics.
pub struct Engine {
    pub begun: Mutex<Vec<(String, ToolCall)>>,
    pub callers: Mutex<Vec<Arc<Principal>>>,
    pub finished: Mutex<Vec<String>>,
    pub gate: Semaphore,
}

impl Engine {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Mutex::default(),
            callers: Mutex::default(),
            finished: Mutex::default(),
            gate: Semaphore::new(0),
        })
    }

    pub fn begun(&self) -> usize {
        self.begun.lock().unwrap().len()
    }

    pub fn finished(&self) -> usize {
        self.finished.lock().unwrap().len()
    }

    pub fn last(&self) -> Option<(String, ToolCall)> {
        self.begun.lock().unwrap().pop()
    }

    async fn answer(&self, name: &str) -> Result<Answer, UnknownTool> {
        match name {
            "set_interval" | "get_automation" | "replayed" => {}
            "slow" => self.gate.acquire().await.unwrap().forget(),
            "forbidden" => return Ok(Answer::Refused(Refusal::forbidden("automation:write"))),
            "busy" => return Ok(Answer::Refused(Refusal::busy(Duration::from_millis(250)))),
            "limited" => return Ok(Answer::Refused(Refusal::rate_limited(Duration::from_millis(1250)))),
            "panics" => panic!("on purpose"),
            _ => return Err(UnknownTool),
        }
        Ok(Answer::Done { structured: RESULT.to_owned(), text: RESULT.to_owned() })
    }
}

impl Tools for Engine {
    fn list(&self, _principal: &Principal) -> Vec<Listed> {
        let schema = || json!({"type": "object"}).as_object().unwrap().clone();
        let hints = |read_only| Hints { read_only, destructive: !read_only, idempotent: false };
        let listed = |name: &str, read_only: bool| Listed {
            name: name.to_owned(),
            title: Some(format!("The {name} tool")),
            description: "Change it.".to_owned(),
            input_schema: schema(),
            output_schema: schema(),
            hints: hints(read_only),
            request_ids: !read_only,
        };
        vec![listed("set_interval", false), listed("get_automation", true)]
    }

    fn effect(&self, name: &str) -> Option<Effect> {
        Some(if name == "get_automation" { Effect::Read } else { Effect::Write })
    }

    fn ready(&self) -> Pending<'_, bool> {
        let ready = !self.gate.is_closed();
        Box::pin(async move { ready })
    }

    fn call(&self, principal: Arc<Principal>, call: ToolCall) -> Pending<'_, Result<Answer, UnknownTool>> {
        let name = call.name.clone();
        self.callers.lock().unwrap().push(Arc::clone(&principal));
        if name == "replayed" {
            let (tool, outcome) = (name.clone(), "committed");
            let noted = Noted { tool, request_id: Some("edit-42".to_owned()), outcome, replayed: true };
            call.noted.set(noted).unwrap();
        }
        self.begun.lock().unwrap().push((principal.subject.as_str().to_owned(), call));
        Box::pin(async move {
            let answer = self.answer(&name).await;
            self.finished.lock().unwrap().push(name);
            answer
        })
    }
}

/// Knows Alice's token, and Bob's.
pub fn authenticator() -> Authenticator {
    let known = [(TOKEN, "alice"), (BOB, "bob")];
    let entry = |(token, who): (&str, &str)| TokenEntry {
        sha256: TokenHash(Sha256::digest(token).into()),
        principal: principal(who),
    };
    Authenticator::new(known.map(entry).to_vec())
}

/// A running server.
pub struct Server {
    pub engine: Arc<Engine>,
    pub address: SocketAddr,
    pub shutdown: CancellationToken,
    pub task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Server {
    pub async fn start(change: impl FnOnce(&mut Options)) -> Self {
        Self::knowing(authenticator(), change).await
    }

    pub async fn knowing(authenticator: Authenticator, change: impl FnOnce(&mut Options)) -> Self {
        let engine = Engine::new();
        let mut options = Options::default();
        change(&mut options);
        let tools: Arc<dyn Tools> = engine.clone();
        let edge = Edge::new(tools, authenticator, options);
        Self { engine, ..Self::of(edge).await }
    }

    /// Of an edge over another engine; the one that remembers is not asked.
    pub async fn of(edge: Arc<Edge>) -> Self {
        let engine = Engine::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let signal = shutdown.clone().cancelled_owned();
        let task = tokio::spawn(serve(listener, edge, signal));
        Self { engine, address, shutdown, task }
    }

    /// Sends a request on a connection of its own and reads the answer.
    pub async fn send(&self, request: &Request) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(&request.bytes(self.address)).await.unwrap();
        read(stream).await
    }

    pub async fn post(&self, body: impl Into<Vec<u8>>) -> Reply {
        self.send(&Request::post(body)).await
    }
}

/// A request, header by header.
#[derive(Clone)]
pub struct Request {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn post(body: impl Into<Vec<u8>>) -> Self {
        let headers = [
            ("Authorization", "Bearer alice-token"),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Self { line: "POST /mcp".to_owned(), headers, body: body.into() }
    }

    /// Adds a header.
    pub fn and(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes a header away.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| other != name);
        self
    }

    pub fn with(self, name: &str, value: &str) -> Self {
        self.without(name).and(name, value)
    }

    pub fn at(mut self, line: &str) -> Self {
        line.clone_into(&mut self.line);
        self
    }

    /// The protocol's own headers of 2026-07-28.
    pub fn modern(self, method: &str, name: Option<&str>) -> Self {
        let request = self.and("MCP-Protocol-Version", "2026-07-28").and("Mcp-Method", method);
        match name {
            Some(name) => request.and("Mcp-Name", name),
            None => request,
        }
    }

    pub fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} HTTP/1.1\r\nConnection: close\r\n", self.line);
        let has = |name: &str| self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !has("Host") {
            head.push_str(&format!("Host: {address}\r\n"));
        }
        if !has("Content-Length") && !has("Transfer-Encoding") {
            head.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        [head.as_bytes(), &self.body].concat()
    }
}

/// An answer, as it came.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let find = |line: &'_ str| {
            line.split_once(':').filter(|(other, _)| other.eq_ignore_ascii_case(name)).is_some()
        };
        self.head.lines().find(|line| find(line)).map(|line| line.split_once(':').unwrap().1.trim())
    }
}

/// Reads one answer whose length is announced.
pub async fn read(mut stream: impl tokio::io::AsyncRead + Unpin) -> Reply {
    let mut all = Vec::new();
    let _ended =
        tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await.expect("an answer");
    let text = String::from_utf8(all).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

/// What was logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> tracing_subscriber::fmt::MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

pub fn call(arguments: &str) -> String {
    rpc("tools/call", &format!("{{\"name\":\"set_interval\",\"arguments\":{arguments}}}"))
}

pub fn call_of(name: &str) -> String {
    rpc("tools/call", &format!("{{\"name\":\"{name}\",\"arguments\":{{}}}}"))
}

pub fn rpc(method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"{method}\",\"params\":{params}}}")
}

/// The `_meta` that 2026-07-28 wants in every request.
pub const MODERN: &str = "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
\"io.modelcontextprotocol/clientCapabilities\":{},\
\"io.modelcontextprotocol/clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}";

pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not in time: {what}");
}
