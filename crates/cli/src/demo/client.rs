//! The smallest MCP client: one call of a tool over HTTP, on a connection of its own, in the stateless revision.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

/// How long an answer may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How large an answer may be, in bytes.
pub(super) const ANSWER: u64 = 1 << 20;

const REVISION: &str = "2026-07-28";

/// Someone who calls, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Client {
    pub name: &'static str,
    token: &'static str,
    server: SocketAddr,
}

/// What came back: the structured content of the result, as a value and as it was spelled.
#[derive(Debug)]
pub(super) struct Answer {
    pub value: Value,
    pub text: String,
}

impl Client {
    pub(super) fn alice(server: SocketAddr) -> Self {
        Self { name: "alice", token: "alice-local-token", server }
    }

    pub(super) fn bob(server: SocketAddr) -> Self {
        Self { name: "bob", token: "bob-local-token", server }
    }

    /// Calls; `None` if the connection ended before an answer came.
    pub(super) fn call(&self, tool: &str, arguments: &Value) -> anyhow::Result<Option<Answer>> {
        let mut stream = TcpStream::connect(self.server).context("the server cannot be reached")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(self.request(tool, arguments).as_bytes())?;
        let mut answer = String::new();
        stream.take(ANSWER).read_to_string(&mut answer).context("the answer cannot be read")?;
        if answer.is_empty() { Ok(None) } else { read(&answer).map(Some) }
    }

    fn request(&self, tool: &str, arguments: &Value) -> String {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": { "name": "counterfoil-demo", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: {REVISION}\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.server,
            self.token,
            body.len()
        )
    }
}

/// The structured content of an HTTP answer.
pub(super) fn read(answer: &str) -> anyhow::Result<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer broke off")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        bail!("the server answered {}: {body}", head.lines().next().unwrap_or_default());
    }
    let whole: Value = serde_json::from_str(body).context("the answer is not JSON")?;
    let value = whole.pointer("/result/structuredContent").cloned();
    let value = value.with_context(|| format!("the answer holds no structured content: {body}"))?;
    Ok(Answer { value, text: body.to_owned() })
}

impl Answer {
    /// The `result` of a write, in the very bytes that came.
    pub(super) fn result(&self) -> &str {
        let after = self.text.split_once("\"structuredContent\":{\"result\":").map(|(_, after)| after);
        after.and_then(|after| after.split_once(",\"request_id\":")).map_or("nothing", |(result, _)| result)
    }
}
